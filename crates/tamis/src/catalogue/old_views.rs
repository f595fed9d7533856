//! Replaced views of a keyspace that are still being read.

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::read::View;
use crate::sync::{self, Mutex};

/// The replaced views of a keyspace that may still be held.
#[derive(Debug)]
pub(crate) struct OldViews(pub(crate) Mutex<OldViewList>);

#[derive(Debug)]
pub(crate) struct OldViewList {
    /// When the current view became current.
    since: Instant,
    /// Oldest first.
    pub(crate) old: Vec<OldView>,
}

#[derive(Clone, Debug)]
pub(crate) struct OldView {
    view: Weak<View>,
    /// When it was current.
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl OldViews {
    pub(crate) fn new() -> OldViews {
        OldViews(Mutex::new(OldViewList { since: sync::now(), old: Vec::new() }))
    }

    /// Notes that a view is no longer current. O(views held).
    pub(crate) fn note(&self, view: &Arc<View>) {
        let mut views = self.0.lock();
        let until = sync::now();
        let from = std::mem::replace(&mut views.since, until);
        views.old.retain(|old| old.view.strong_count() > 0);
        views.old.push(OldView { view: Arc::downgrade(view), from, until });
    }

    /// Returns the views that are still held, oldest first.
    pub(crate) fn held(&self) -> Vec<(Arc<View>, OldView)> {
        let old = self.0.lock().old.clone();
        old.into_iter().filter_map(|old| Some((old.view.upgrade()?, old))).collect()
    }
}
