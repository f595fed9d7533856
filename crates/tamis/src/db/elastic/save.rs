//! Saves what was learned of the reads, in the manifest.
//!
//! Every edit takes the hotness along if it was last saved [`SAVE_EVERY`] ago. A database that is
//! only read makes no edits; for that one the idle flush thread makes an edit of nothing but
//! hotness, when as much time has passed and there were gets. So a crash loses what half a minute
//! taught, whether there are writes or not.
//!
//! # Failures
//!
//! The edit is like any other: if it fails, the next one begins with a new manifest, and that is
//! all ([`health`](crate::db::health)). Writes go on, since no log depends on it, and the hotness
//! is due again after [`SAVE_EVERY`]. It is not attempted where it could do harm without need:
//! while writes are suspended, on a full disk, where a manifest that needs rewriting takes room
//! that frees none, or once the database is being closed, which saves the hotness anyway.
//!
//! # Locks
//!
//! The hotness is encoded under the elastic filters' own lock, before `state` is taken for the
//! edit. A table that goes in between does no harm: the hotness of unknown tables is ignored.

use tamis_base::ids::TableId;
use tamis_files::tree::edit::VersionEdit;

use super::{Elastic, Inner};
use crate::db::inner::{DbInner, State};
use crate::read::Memtables;
use crate::tree::new_tables::NewTables;

/// How long the hotness is kept from the manifest at most, in seconds of the clock, while there are
/// gets. It takes a byte or two per segment.
pub(super) const SAVE_EVERY: u64 = 30;

/// With less room on the device than this, in bytes, there is no edit for the hotness alone.
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
    /// The hotness as it was opened.
    pub(super) fn at_opening(now: u64) -> Saved {
        Saved { when: now, gets: Some(0) }
    }

    /// Reports whether the hotness should be saved. A clock that was set counts as time that has
    /// passed.
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

    /// Records that an edit, which may have had the hotness, failed: it is due again after a while,
    /// even without gets.
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
        // The catalogue has logged why, if it failed.
        let _ = self.commit_edit(&mut state, edit, NewTables::default(), none);
    }

    fn may_save_hotness(&self, state: &State) -> bool {
        let full = self.reserve.is_full() || self.room.free().is_some_and(|free| free < LEAST_ROOM);
        state.catalogue.is_open() && self.gate.check_writable().is_ok() && !full
    }
}

#[cfg(test)]
mod tests;
