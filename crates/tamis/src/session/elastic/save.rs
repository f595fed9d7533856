//! Saves the hotness learned from reads, in the manifest.
//!
//! Every edit includes the hotness if it was last saved [`SAVE_EVERY`](super::saved::SAVE_EVERY)
//! ago. A database that is only read makes no edits. There the idle flush thread makes an edit of
//! only the hotness, when as much time has passed and there were gets. So with or without writes, a
//! crash loses half a minute of learning.
//!
//! # Failures
//!
//! The edit is like any other: if it fails, the next one begins with a new manifest, and nothing
//! else happens ([`health`](crate::jobs::health)). Writes go on, since no log depends on it, and
//! the hotness is due again after [`SAVE_EVERY`](super::saved::SAVE_EVERY). The edit is not
//! attempted where it could do needless harm: while writes are suspended; on a full disk, where
//! rewriting the manifest takes room and frees none; or once the database is closing, which saves
//! the hotness anyway.
//!
//! # Locks
//!
//! The hotness is encoded under the elastic filters' own lock, before the edit takes `state`. A
//! table removed in between does no harm: the hotness of unknown tables is ignored.

use tamis_base::ids::TableId;

use crate::session::elastic::saved::Saved;
use crate::session::elastic::{Elastic, Inner};

impl Elastic {
    /// Returns the hotness of every table for the next edit of the manifest; empty if it was saved
    /// recently.
    pub(crate) fn hotness_to_save(&self) -> Vec<(TableId, Vec<u8>)> {
        let now = self.clock.now();
        let mut inner = self.inner();
        if !inner.saved.is_due(now, inner.gets) {
            return Vec::new();
        }
        inner.saved = Saved { when: now, gets: Some(inner.gets) };
        inner.hotness()
    }

    /// Returns the hotness of every table for the manifest.
    pub(crate) fn hotness(&self) -> Vec<(TableId, Vec<u8>)> {
        self.inner().hotness()
    }

    pub(crate) fn is_save_due(&self) -> bool {
        let now = self.clock.now();
        let inner = self.inner();
        !inner.dead && inner.saved.is_due(now, inner.gets)
    }

    /// Records that an edit that may have included the hotness failed: it is due again after a
    /// while, even without gets.
    pub(crate) fn note_unsaved(&self) {
        self.inner().saved.gets = None;
    }
}

impl Inner {
    fn hotness(&self) -> Vec<(TableId, Vec<u8>)> {
        if self.dead {
            // The saved values are closer to the truth.
            return Vec::new();
        }
        let mut hotness: Vec<_> =
            self.tables.keys().filter_map(|&id| Some((id, self.manager.encode(id)?))).collect();
        hotness.sort_unstable_by_key(|(id, _)| *id);
        hotness
    }
}

#[cfg(test)]
mod tests;
