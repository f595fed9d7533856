//! The memory for block cache, units and record cache: own limits, or one for all: see
//! [`crate::memory`].
//!
//! The lock of such memory comes before all locks of the database. Threads of any database call the
//! methods of [`Member`] with it held. These take the locks for a change of the budget and of the
//! cache's capacity. So a thread that holds one of these must not join, report, leave or change the
//! total.

use std::sync::Arc;

use tamis_files::table::retire;
use tamis_policy::memory::{Ghosts, Reading};

use crate::error::OptionsError;
use crate::memory::{Member, USES, Use};
use crate::observe::cost::ReadCost;
use crate::session::elastic::{Elastic, Shared, Spared};

impl Elastic {
    /// Lets the memory, if it is shared, change its uses from now on.
    pub(crate) fn join_shared(self: &Arc<Self>) {
        if let Some(shared) = &self.shared {
            shared.membership.attach(self);
        }
    }

    /// Leaves the shared memory, if any. Caches and filters are emptied and stay empty; reads go on
    /// without them.
    pub(crate) fn leave_shared(&self) {
        if let Some(shared) = &self.shared {
            shared.membership.leave(|| USES.iter().for_each(|&of| self.set_bytes(of, 0)));
        }
    }

    /// Returns the bytes that caches and filters currently share; 0 if each has its own limit.
    pub(crate) fn read_memory(&self) -> u64 {
        // Without the memory's lock, under which others evict.
        self.shared.as_ref().map_or(0, |shared| {
            shared.cache.capacity_bytes() + self.inner().manager.budget() + shared.records.capacity_bytes()
        })
    }

    /// Tells the shared memory what bytes are worth here, and lets a step move.
    pub(crate) fn report_to(&self, shared: &Shared) {
        let report = shared.cache.ghost_report().expect("the cache was made for this");
        let ghosts = Ghosts {
            ghost_hits: report.ghost_hits,
            evicted_bytes: report.evicted_bytes,
            sampling: report.sampling,
            step_bytes: report.step_bytes,
        };
        let marginal = self.inner().manager.marginal(report.step_bytes);
        let read = shared.counters.read();
        let readings = [
            (Use::Blocks, Reading::Counted(ghosts)),
            (Use::Filters, Reading::Expected(marginal)),
            (Use::Records, Reading::Counted(shared.worth_of_records(&read))),
        ];
        shared.membership.report(read.gets, readings);
    }

    /// Changes the budget. Units beyond it are evicted at once; gets that use them release them
    /// when they end.
    fn limit(&self, bytes: u64) {
        let retired = {
            let mut inner = self.inner();
            let unload = inner.manager.set_budget(bytes);
            inner.unload(unload)
        };
        retire(retired, &self.retired);
        self.sampler.wake();
    }

    /// Changes the budget of units. An error if they share one with the caches.
    pub(crate) fn set_filter_budget(&self, bytes: u64) -> Result<(), OptionsError> {
        let expected = match &self.shared {
            None => {
                self.limit(bytes);
                return Ok(());
            }
            Some(Shared { own: None, .. }) => SHARED.into(),
            Some(_) => "the database has one budget for filters and caches, `read_memory_bytes`".into(),
        };
        refused("filter_budget_bytes", bytes, expected)
    }

    /// Changes the budget that units share with the caches. An error if they share none.
    pub(crate) fn set_read_memory(&self, bytes: u64) -> Result<(), OptionsError> {
        let expected = match &self.shared {
            None => "the database was opened with one budget for each, `read_memory_bytes = 0`".into(),
            Some(Shared { own: None, .. }) => SHARED.into(),
            Some(Shared { own: Some(opened), .. }) if bytes < opened / 8 => {
                format!("at least an eighth of what it was opened with, {}", opened / 8)
            }
            Some(shared) => {
                shared.membership.set_total(bytes);
                return Ok(());
            }
        };
        refused("read_memory_bytes", bytes, expected)
    }
}

const SHARED: &str = "the database shares its memory with others, `shared_read_memory`";

fn refused(name: &'static str, bytes: u64, expected: String) -> Result<(), OptionsError> {
    Err(OptionsError::Value { name, value: bytes.to_string(), expected })
}

impl Shared {
    /// The hits that a smaller record cache would not have had, as block reads: as many of them as
    /// of the blocks that gets touched through the block cache meanwhile. Where none goes through
    /// it, touching one counts as a read.
    fn worth_of_records(&self, read: &ReadCost) -> Ghosts {
        let report = self.records.report();
        let mut spared = self.spared.lock();
        let (touches, fetches) = (read.cache_hits + read.cache_misses, read.cache_misses);
        let touched = touches.saturating_sub(spared.touches);
        let fetched = fetches.saturating_sub(spared.fetches);
        let per_hit = if touched == 0 { 1.0 } else { fetched as f64 / touched as f64 };
        let reads = spared.reads + report.last_hits.saturating_sub(spared.last_hits) as f64 * per_hit;
        *spared = Spared { touches, fetches, last_hits: report.last_hits, reads };
        Ghosts {
            ghost_hits: reads as u64,
            evicted_bytes: report.evicted_bytes,
            sampling: 1,
            step_bytes: report.step_bytes,
        }
    }
}

impl Member for Elastic {
    fn set_bytes(&self, of: Use, bytes: u64) {
        let Some(shared) = &self.shared else { return };
        match of {
            Use::Blocks => shared.cache.set_capacity(bytes),
            Use::Filters => self.limit(bytes),
            Use::Records => shared.records.set_capacity(bytes),
        }
    }

    fn used_bytes(&self, of: Use) -> u64 {
        match of {
            Use::Blocks => self.shared.as_ref().map_or(0, |shared| shared.cache.used_bytes()),
            Use::Filters => self.inner().manager.used(),
            Use::Records => self.shared.as_ref().map_or(0, |shared| shared.records.used_bytes()),
        }
    }
}

/// For a failed opening, which does not close.
impl Drop for Elastic {
    fn drop(&mut self) {
        self.leave_shared();
    }
}
