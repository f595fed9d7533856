//! Saves the hotness learned from reads, in the manifest.
//!
//! Every edit includes the hotness if it was last saved [`SAVE_EVERY`] ago. A database that is only
//! read makes no edits. There the idle flush thread makes an edit of only the hotness, when as much
//! time has passed and there were gets. So with or without writes, a crash loses half a minute of
//! learning.
//!
//! # Failures
//!
//! The edit is like any other: if it fails, the next one begins with a new manifest, and nothing
//! else happens ([`health`](crate::db::health)). Writes go on, since no log depends on it, and the
//! hotness is due again after [`SAVE_EVERY`]. The edit is not attempted where it could do needless
//! harm: while writes are suspended; on a full disk, where rewriting the manifest takes room and
//! frees none; or once the database is closing, which saves the hotness anyway.
//!
//! # Locks
//!
//! The hotness is encoded under the elastic filters' own lock, before the edit takes `state`. A
//! table removed in between does no harm: the hotness of unknown tables is ignored.

use tamis_base::ids::TableId;
use tamis_files::tree::edit::VersionEdit;

use super::{Elastic, Inner};
use crate::db::inner::{DbInner, State};
use crate::read::Memtables;
use crate::tree::new_tables::NewTables;

/// The longest time between saves while there are gets, in seconds of the clock. The hotness takes
/// a byte or two per segment.
pub(super) const SAVE_EVERY: u64 = 30;

/// With less free space than this on the device, in bytes, no edit is made for the hotness alone.
const LEAST_ROOM: u64 = 16 << 20;

/// When the hotness was last saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    /// By the database's clock.
    when: u64,
    /// The gets counted by then; `None` if the edit failed.
    gets: Option<u64>,
}

impl Saved {
    /// The state at opening.
    pub(super) fn at_opening(now: u64) -> Saved {
        Saved { when: now, gets: Some(0) }
    }

    /// Reports whether the hotness should be saved. A clock change counts as elapsed time.
    fn is_due(&self, now: u64, gets: u64) -> bool {
        self.gets != Some(gets) && now.abs_diff(self.when) >= SAVE_EVERY
    }
}

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

    fn is_save_due(&self) -> bool {
        let now = self.clock.now();
        let inner = self.inner();
        !inner.dead && inner.saved.is_due(now, inner.gets)
    }

    /// Records that an edit that may have included the hotness failed: it is due again after a
    /// while, even without gets.
    pub(crate) fn was_not_saved(&self) {
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

impl DbInner {
    /// Saves the hotness if no edit has done so for a while. For an otherwise idle background
    /// thread, which holds no lock.
    pub(crate) fn save_hotness(&self) {
        if self.gate.is_read_only() || !self.elastic.is_save_due() || !self.may_save_hotness(&self.state()) {
            return;
        }
        let hotness = self.elastic.hotness_to_save();
        if hotness.is_empty() {
            return;
        }
        let mut state = self.state();
        if !self.may_save_hotness(&state) {
            self.elastic.was_not_saved();
            return;
        }
        let edit = VersionEdit { hotness, ..VersionEdit::default() };
        let none = |_, _: &Memtables| unreachable!("no tables change");
        // On failure, the catalogue has logged why.
        let _ = self.commit_edit(&mut state, edit, NewTables::default(), none);
    }

    fn may_save_hotness(&self, state: &State) -> bool {
        let full = self.reserve.is_full() || self.room.free().is_some_and(|free| free < LEAST_ROOM);
        state.catalogue.is_open() && self.gate.check_writable().is_ok() && !full
    }
}

#[cfg(test)]
mod tests;
