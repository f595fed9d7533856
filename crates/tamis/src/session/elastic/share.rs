//! Membership in memory shared by several databases: see [`crate::memory`].
//!
//! Its lock comes before all locks of the database. Threads of any database call the methods of
//! [`Member`] with it held. These take the lock of the divider, and under it the locks for a change
//! of the budget. So a thread that holds one of these must not join, report or leave.

use std::sync::{Arc, Weak};

use crate::memory::{Member, Membership, ReadMemoryShare};
use crate::session::elastic::{Elastic, Shared};

impl Elastic {
    fn membership(&self) -> Option<(&Shared, &Membership)> {
        let shared = self.shared.as_ref()?;
        Some((shared, shared.membership.as_ref()?))
    }

    /// Lets the shared memory, if any, change the share from now on.
    pub(crate) fn join_shared(self: &Arc<Self>) {
        if let Some((_, membership)) = self.membership() {
            let member: Weak<Elastic> = Arc::downgrade(self);
            membership.attach(member);
        }
    }

    /// Leaves the shared memory, if any. Block cache and filters are emptied and stay empty; reads
    /// go on without them.
    pub(crate) fn leave_shared(&self) {
        if let Some((_, membership)) = self.membership() {
            membership.leave(|| self.set_share(0));
        }
    }

    /// Returns the bytes that block cache and filters currently share; 0 if each has its own limit.
    pub(crate) fn read_memory(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| {
            let split = shared.divider.lock().split();
            split.cache + split.filters
        })
    }
}

impl Member for Elastic {
    fn set_share(&self, bytes: u64) {
        let Some(shared) = &self.shared else { return };
        let mut divider = shared.divider.lock();
        let split = divider.set_share(bytes);
        self.apply(shared, split);
    }

    fn usage(&self, share: &mut ReadMemoryShare) {
        let Some(shared) = &self.shared else { return };
        // While the divider is held, nothing moves between the two.
        let _divider = shared.divider.lock();
        let inner = self.inner();
        (share.filter_bytes, share.filter_used_bytes) = (inner.manager.budget(), inner.manager.used());
        drop(inner);
        (share.cache_bytes, share.cache_used_bytes) =
            (shared.cache.capacity_bytes(), shared.cache.used_bytes());
    }
}

/// For a failed opening, which does not close.
impl Drop for Elastic {
    fn drop(&mut self) {
        self.leave_shared();
    }
}
