//! Handling of failed file writes: which work stops, and how it resumes.
//!
//! # The rule
//!
//! Nothing that failed is acknowledged, and nothing acknowledged depends on what failed. Work
//! resumes as soon as this can be ensured again, without reopening the database:
//!
//! | what failed | what happens |
//! | --- | --- |
//! | a write of a log, or its sync | writes are *suspended*: they return [`WriteError::Suspended`](crate::WriteError::Suspended). Everything acknowledged is in memtables, or in a log that memtables refer to. All of it is written to tables, a new log is begun, and one edit of the manifest publishes the tables and declares earlier logs obsolete. Then writes resume |
//! | a write of the manifest, or its sync | the next edit begins with a new manifest of the tree in memory, so that the state on disk is known again. Writes continue, since the logs hold them. They are suspended after a failed drop of a keyspace, since the keyspace may be gone, and after a failed ingestion, which the next opening may find but must not once a later write is acknowledged |
//! | a flush, before its edit | its memtable and its logs stay. It is retried with backoff |
//! | a compaction, before its edit | its outputs are removed, and its keyspace backs off |
//! | anything, by a panic | writes stop for good: an invariant may be broken |
//!
//! A failed sync may have lost what was written since the previous one, even if the file shows it,
//! and a second sync may succeed regardless. So no log sync is ever retried. None needs to be: the
//! contents of the log are in memory, except large values. These are read from the log; one that
//! the failure has taken stays lost, and reads of its key fail.
//!
//! On a full disk, obsolete logs are removed first; if there are none, the
//! [reserve](crate::gate::reserve) is released, and only work that frees space is accepted until
//! there is enough room again.
//!
//! A caller does not keep waiting for a flush or compaction that has failed twice in a row, or for
//! a compaction that lacks room. It gets the reason, also as
//! [`WriteError::Suspended`](crate::WriteError::Suspended), and may retry at any time.

use std::sync::Arc;

use tamis_base::ids::{KeyspaceId, LogId};
use tamis_files::tree::edit::VersionEdit;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::compaction::blobs::BlobInputs;
use crate::compaction::logged;
use crate::error::StorageError;
use crate::observe::events::Event;
use crate::read::{MemtableSlot, Memtables};
use crate::select::TakenEpoch;
use crate::session::Session;
use crate::tree::new_tables::NewTables;

/// A keyspace's memtables that were written to tables.
struct Rescued {
    keyspace: Arc<KeyspaceInner>,
    slots: Vec<Arc<MemtableSlot>>,
    /// Tables by memtable, oldest first.
    tables: NewTables,
    last_epoch: u64,
    taken: Vec<TakenEpoch>,
}

impl Session {
    /// Flushes the contents of the logs to tables and begins a new log, so that writes can resume.
    /// For the flush thread.
    pub(crate) fn resume(&self) {
        match self.replace_logs() {
            Ok(Some(cause)) => self.warn(format!("writes were suspended and have resumed: {cause}")),
            // The database is being closed.
            Ok(None) => {}
            // There is more room now: retry at once.
            Err(error) if error.is_out_of_space() && self.find_room() => {}
            Err(error) => self.gate.stays_suspended(&error),
        }
        self.files.garbage.remove_all(&*self.fs);
        drop(self.state());
        self.monitor.notify();
    }

    /// Does the work of [`resume`](Self::resume). Returns why writes were suspended, or `None` if
    /// they stay suspended because the database is being closed. One edit publishes all tables:
    /// what one keyspace keeps must not depend on whether another's memtables were written.
    fn replace_logs(&self) -> Result<Option<String>, StorageError> {
        let log_id = match self.gate.replacement_log() {
            Some(Some(begun)) => begun,
            Some(None) => {
                let begun = self.give_up_logs()?;
                self.gate.note_replacement_log(begun);
                begun
            }
            None => return Ok(None),
        };
        let mut rescued = Vec::new();
        let sealed = self.state().scheduler.sealed();
        for keyspace in &sealed {
            match self.rescue(keyspace)? {
                Some(one) => rescued.push(one),
                None => return Ok(None),
            }
        }
        let young = |one: &Rescued| one.keyspace.filter.global().map(|global| global.young_of(&one.tables));
        let young: Vec<_> = rescued.iter().map(young).collect();

        let mut state = self.state();
        let mut edit = VersionEdit::default();
        let (mut opened, mut flushed) =
            (NewTables::default(), Vec::<(KeyspaceId, Vec<Arc<MemtableSlot>>)>::new());
        // Kept until the edit is published.
        let mut epochs = Vec::new();
        let mut noted = Vec::new();
        for (Rescued { keyspace, slots, tables, last_epoch, taken }, young) in rescued.into_iter().zip(young)
        {
            epochs.extend(taken);
            if keyspace.is_dropped() {
                continue;
            }
            if let Some((global, young)) = keyspace.filter.global().zip(young) {
                global.note_flushed(&tables, young);
                noted.push((keyspace.clone(), tables.to_vec()));
            }
            if last_epoch > 0 {
                edit.next_epochs.push((keyspace.id, last_epoch + 1));
            }
            for table in tables.iter() {
                // A later run is newer.
                let run = self.files.numbers.take();
                edit.added.push((keyspace.id, 0, run, (*table.meta).clone()));
            }
            opened.append(tables);
            self.keep_for_transactions(&keyspace, &slots);
            flushed.push((keyspace.id, slots));
        }
        edit.floor = Some(log_id);
        edit.last_seq = Some(self.visible());
        let without = |id: KeyspaceId, memtables: &Memtables| {
            memtables.without(flushed.iter().find(|one| one.0 == id).map_or(&[][..], |one| &one.1))
        };
        // The retry has other tables.
        let forget = |(keyspace, tables): &(Arc<KeyspaceInner>, Vec<_>)| {
            keyspace.filter.global().inspect(|global| global.grf.forget_young(tables));
        };
        self.commit_edit(&mut state, edit, opened, without).inspect_err(|_| noted.iter().for_each(forget))?;
        drop(epochs);
        for keyspace in &sealed {
            // Memtables with nothing left to write.
            let view = keyspace.view.load_full();
            let memtables = without(keyspace.id, &view.memtables);
            if memtables.sealed.len() < view.memtables.sealed.len() {
                keyspace.replace_memtables(memtables);
            }
            state.scheduler.note_memtables(keyspace);
        }
        state.scheduler.allow_all_flushes();
        self.release_logs(&mut state);
        let cause = self.gate.end_suspension();
        drop(state);
        self.keep_filters_in_memory(None);
        Ok(cause)
    }

    /// Begins a log in place of the current one, and seals all memtables. Nothing is written to the
    /// new log before everything acknowledged so far is in tables. Until then the abandoned logs
    /// stay, in case the process ends earlier; they are no longer synced.
    fn give_up_logs(&self) -> Result<LogId, StorageError> {
        let mut log = self.lock_log();
        let next = self.log.next()?;
        let mut state = self.state();
        let id = self.log.abandon(&mut log, &mut state.logs, next);
        for keyspace in &self.keyspaces.filled.list() {
            let view = keyspace.view.load_full();
            if !view.memtables.active.memtable.is_empty() {
                let active = keyspace.fresh_memtable(id);
                keyspace.replace_memtables(view.memtables.rotated(active));
                state.scheduler.note_memtables(keyspace);
            }
            // Nothing is in the new log yet.
            self.keyspaces.filled.remove(keyspace.id);
        }
        Ok(id)
    }

    /// Writes all sealed memtables of a keyspace to tables. `None` if the database is being closed.
    fn rescue(&self, keyspace: &Arc<KeyspaceInner>) -> Result<Option<Rescued>, StorageError> {
        let slots: Vec<_> = keyspace.view.load().memtables.sealed.iter().rev().cloned().collect();
        let mut rescued = Rescued {
            keyspace: keyspace.clone(),
            slots,
            tables: NewTables::default(),
            last_epoch: 0,
            taken: Vec::new(),
        };
        for slot in &rescued.slots {
            let Some((epoch, taken)) = self.take_epoch(keyspace) else { break };
            rescued.taken.extend(taken);
            let slot = std::slice::from_ref(slot);
            // Values in the logs given up are read as long as the system has them.
            let blobs = BlobInputs::of_logs(&self.dir, logged::logs_of(slot), |_| None);
            let Some((tables, bytes)) = self.write_memtables(keyspace, slot, &blobs, epoch, true)? else {
                return Ok(None);
            };
            rescued.tables.append(tables);
            rescued.last_epoch = epoch;
            self.observed.write_counters.flushes.add(1);
            self.observed.write_counters.flush_bytes.add(bytes);
        }
        Ok(Some(rescued))
    }

    /// Frees space that no particular write needs: obsolete logs, or else the reserve. Returns
    /// `false` if there is neither. Called with no lock held.
    pub(crate) fn find_room(&self) -> bool {
        self.log.release_recyclable() || self.space.reserve.spend()
    }

    /// Records that a flush failed, for a later retry.
    pub(crate) fn flush_failed(&self, keyspace: &KeyspaceInner, error: &StorageError) {
        self.observed.write_counters.failed_flushes.add(1);
        self.observed.observer.raise(|| Event::BackgroundError {
            work: "flush",
            keyspace: keyspace.name().to_owned(),
            error: error.to_string(),
        });
        if error.is_out_of_space() && self.find_room() {
            // There is more room now: retry at once.
            return;
        }
        if self.state().scheduler.flush_failed(keyspace.id, error) {
            self.warn(format!(
                "a flush of keyspace `{}` failed and will be retried: {error}",
                keyspace.name()
            ));
        }
    }

    /// Returns what currently fails and is being retried, in words.
    pub(crate) fn troubles(&self, state: &State) -> Vec<String> {
        let mut troubles = Vec::new();
        let suspended = self.gate.held_up();
        troubles.extend(suspended.map(|cause| format!("writes are suspended: {cause}")));
        if self.space.reserve.is_full() {
            troubles.push(self.space.reserve.trouble());
        }
        let unsettled = state.catalogue.unsettled();
        troubles.extend(unsettled.map(|cause| format!("the manifest has to be rewritten: {cause}")));
        let known = state.scheduler.known().filter_map(|id| state.catalogue.keyspaces().get(&id));
        for keyspace in known {
            let tell = |(work, cause)| {
                format!("{work} of keyspace `{}` are being retried: {cause}", keyspace.name())
            };
            troubles.extend(state.scheduler.troubles(keyspace.id).into_iter().map(tell));
        }
        troubles.sort();
        troubles
    }
}

#[cfg(test)]
mod tests;
