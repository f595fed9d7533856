//! What is saved now and then by a manifest edit of its own: times of writes, and the hotness of
//! tables.

use tamis_files::tree::edit::VersionEdit;

use crate::catalogue::state::State;
use crate::session::Session;

impl Session {
    /// Stores new samples if none were stored for a while: a memtable may take days to fill. For an
    /// otherwise idle background thread.
    pub(crate) fn save_times(&self, state: &mut State) {
        let stopped = self.gate.cancels() || !state.catalogue.is_open();
        if !stopped && self.expiry.is_save_due(state.catalogue.tree().times.newest()) {
            // On failure, a later edit saves them.
            let _ = self.commit_without_tables(state, VersionEdit::default());
        }
    }
}

/// With fewer than this many bytes free on the device, no edit is made for the hotness alone.
const LEAST_ROOM: u64 = 16 << 20;

impl Session {
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
            self.elastic.note_unsaved();
            return;
        }
        let edit = VersionEdit { hotness, ..VersionEdit::default() };
        // On failure, the catalogue has logged why.
        let _ = self.commit_without_tables(&mut state, edit);
    }

    fn may_save_hotness(&self, state: &State) -> bool {
        let full =
            self.space.reserve.is_full() || self.space.room.free().is_some_and(|free| free < LEAST_ROOM);
        state.catalogue.is_open() && self.gate.check_writable().is_ok() && !full
    }
}
