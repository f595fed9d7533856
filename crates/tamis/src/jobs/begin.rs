//! The beginning of a session: replayed data becomes tables, and a new log and manifest are
//! created.
//!
//! Usually opening does this at once. If the disk has no room for it, the database opens anyway and
//! *waits*: reads see what the existing logs and tables hold, replayed data stays in memory, and
//! nothing on disk changes. Each write, and any other request that needs the disk, tries to begin
//! the session; so does the flush thread from time to time. Until an attempt succeeds, they return
//! the error of the last attempt.
//!
//! # Invariants
//!
//! * Nothing has changed until `CURRENT` names the new manifest: a failed attempt removes
//!   everything it created, except the first log, which the next attempt reuses. The manifest's
//!   first record is the state with all replayed data in tables, so that a single step leads from
//!   the last session to this one.
//! * The first log exists before the manifest, since a closed manifest without a later log means
//!   that nothing was written after it (see `wrong_end` in the recovery).
//! * A waiting database has neither a log nor a manifest. No memtable changes, and no background
//!   work that would need either one runs.
//! * If the last log is empty and not closed, an opening reuses its number, so that any number of
//!   attempts leaves at most one empty log behind.
//!
//! # Threads
//!
//! One mutex guards the state that an attempt needs. It is taken before every other lock of the
//! database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis_base::collections::HashSet;
use tamis_base::ids::{DEFAULT_KEYSPACE, KeyspaceId, LogId};
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::{self, first_log_path, options_path, table_path};

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::catalogue::{Directory, NotBegun};
use crate::compaction::blobs::BlobInputs;
use crate::error::{StorageError, WriteError};
use crate::io::{read_file, write_file_atomically};
use crate::read::Memtables;
use crate::select::GlobalFilter;
use crate::session::Session;
use crate::session::beginning::Beginning;
use crate::sync;
use crate::tree::new_tables::NewTables;
use crate::tree::open_table::OpenTable;

/// How long to repeat an attempt's error while the disk has no more room than it had then.
const RETRY: Duration = Duration::from_secs(1);

/// Tables made from replayed data that are not part of the tree yet.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    edit: VersionEdit,
    tables: Vec<(KeyspaceId, NewTables)>,
}

impl Flushed {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the tables, which a manifest may now name.
    fn publish(self) -> Vec<Arc<OpenTable>> {
        self.tables.into_iter().flat_map(|(_, tables)| tables.publish()).collect()
    }

    /// Removes the tables.
    pub(crate) fn discard(self, db: &Session) {
        drop(self);
        db.files.garbage.remove_all(&*db.fs);
    }
}

impl Session {
    /// Like [`check_writable`](crate::gate::Gate::check_writable), but also begins the session if
    /// it has not begun. Call without holding any lock.
    pub(crate) fn check_ready(&self) -> Result<(), WriteError> {
        self.gate.check_writable()?;
        self.check_begun()
    }

    /// Begins the session if it has not begun. Call without holding any lock.
    pub(crate) fn check_begun(&self) -> Result<(), WriteError> {
        if self.gate.is_waiting() { self.begin_late() } else { Ok(()) }
    }

    /// Retries the beginning, from a background thread that has nothing else to do.
    pub(crate) fn retry_beginning(&self) {
        if self.gate.is_waiting() && self.gate.check_writable().is_ok() {
            // The next write reports the error to its caller.
            let _ = self.begin_late();
        }
    }

    /// Records that opening ran into a full disk: nothing can be written until a later attempt
    /// finds room.
    pub(crate) fn wait_for_room(&self, mut pending: Beginning, error: StorageError) {
        self.warn(format!(
            "opened without room to write: reads work, writes fail until there is room: {error}"
        ));
        let mut beginning = self.lifecycle.beginning.lock();
        self.gate.note_waiting(&error);
        pending.failed = Some(self.failure(error));
        *beginning = pending;
    }

    fn failure(&self, error: StorageError) -> (StorageError, Instant, Option<u64>) {
        (error, sync::now(), self.fs.available_space(&self.dir).unwrap_or_default())
    }

    fn begin_late(&self) -> Result<(), WriteError> {
        let mut pending = self.lifecycle.beginning.lock();
        if !self.gate.is_waiting() {
            return Ok(());
        }
        if let Some((error, when, free)) = &pending.failed {
            // An attempt writes as much as it can. Without more room than after the last one, it
            // would get no further.
            let now_free = self.fs.available_space(&self.dir).unwrap_or_default();
            let no_more = now_free.zip(*free).is_some_and(|(now, then)| now <= then);
            if no_more && sync::since(*when) < RETRY {
                return Err(WriteError::Suspended { cause: error.to_string() });
            }
        }
        match self.begin(&mut pending, Flushed::default()) {
            Ok(()) => {
                if let Err(error) = self.write_options() {
                    self.warn(error.to_string());
                }
                self.remove_unneeded(&pending.files);
                // Not earlier: a log begun and rolled meanwhile may have the number of an empty one
                // that was found.
                self.gate.begin();
                pending.in_doubt.drain(..).for_each(|path| self.files.garbage.push(path));
                *pending = Beginning::default();
                drop(pending);
                self.warn("there is room again: writes resume".to_owned());
                let _state = self.state();
                self.monitor.notify();
                Ok(())
            }
            Err(NotBegun::Unchanged(error) | NotBegun::Unknown(error)) => {
                self.gate.note_waiting(&error);
                let cause = error.to_string();
                let more_room = error.is_out_of_space() && self.find_room();
                pending.failed = (!more_room).then(|| self.failure(error));
                Err(WriteError::Suspended { cause })
            }
            Err(NotBegun::Stopped(error)) => Err(error),
        }
    }

    /// Writes the active memtable of a keyspace to a table. No thread changes the memtable.
    pub(crate) fn flush_replayed(
        &self,
        keyspace: &KeyspaceInner,
        flushed: &mut Flushed,
    ) -> Result<(), StorageError> {
        let view = keyspace.view.load_full();
        if view.memtables.active.memtable.is_empty() {
            return Ok(());
        }
        let run = self.files.numbers.take();
        let Some(epoch) = self.state().catalogue.take_epoch(keyspace.id) else { return Ok(()) };
        let slots = std::slice::from_ref(&view.memtables.active);
        let written = self.write_memtables(keyspace, slots, &BlobInputs::default(), epoch, false)?;
        let (tables, bytes) = written.expect("cannot be cancelled");
        flushed.edit.added.extend(tables.iter().map(|table| (keyspace.id, 0, run, (*table.meta).clone())));
        if !tables.is_empty() {
            flushed.tables.push((keyspace.id, tables));
        }
        self.observed.write_counters.flushes.add(1);
        self.observed.write_counters.flush_bytes.add(bytes);
        Ok(())
    }

    /// Begins the session: flushes the data in memory, and creates a log and a manifest. `flushed`
    /// are tables that hold the rest of the replayed data; on failure they are removed.
    pub(crate) fn begin(&self, pending: &mut Beginning, mut flushed: Flushed) -> Result<(), NotBegun> {
        let keyspaces = self.keyspaces.directory.load_full();
        let in_memory: Vec<KeyspaceId> = {
            let holds = |ks: &&Arc<KeyspaceInner>| !ks.view.load().memtables.active.memtable.is_empty();
            self.keyspaces.filled.list().iter().filter(holds).map(|keyspace| keyspace.id).collect()
        };
        let mut manifest = None;
        let begun = (|| {
            in_memory.iter().try_for_each(|id| self.flush_replayed(&keyspaces[id], &mut flushed))?;
            self.switch(pending, &keyspaces, &in_memory, &flushed, &mut manifest)
        })();
        let written = manifest.map(|number| files::manifest_path(&self.dir, number));
        let written = match &begun {
            Ok(()) => {
                flushed.publish();
                self.keep_filters_in_memory(None);
                return begun;
            }
            Err(NotBegun::Unknown(_)) => {
                let tables = flushed.publish();
                let blobs = tables.iter().flat_map(|table| &table.meta.extra.blobs);
                let blobs = blobs.map(|&(id, _)| files::blob_path(&self.dir, id));
                let tables = tables.iter().map(|table| table_path(&self.dir, table.meta.id));
                pending.in_doubt.extend(written.into_iter().chain(tables).chain(blobs));
                return begun;
            }
            Err(_) => written,
        };
        let unfinished = [first_log_path(&self.dir), files::temporary_current_path(&self.dir)];
        unfinished.into_iter().chain(written).for_each(|path| self.files.garbage.push(path));
        flushed.discard(self);
        begun
    }

    /// Creates the log and the manifest, and puts the manifest in force. `made` is the manifest's
    /// number once its file may exist.
    fn switch(
        &self,
        pending: &mut Beginning,
        keyspaces: &Directory,
        in_memory: &[KeyspaceId],
        flushed: &Flushed,
        made: &mut Option<u64>,
    ) -> Result<(), NotBegun> {
        // A global filter may already be in use.
        let filtered = |id: &KeyspaceId| keyspaces.get(id).and_then(|keyspace| keyspace.filter.global());
        let young: Vec<_> = match self.gate.is_waiting() {
            true => flushed
                .tables
                .iter()
                .filter_map(|(id, tables)| {
                    let global = filtered(id)?;
                    Some((global, tables, global.young_of(tables)))
                })
                .collect(),
            false => Vec::new(),
        };
        let mut log = self.lock_log();
        // Under the log lock: a database that is being closed no longer begins a session.
        self.gate.check_writable().map_err(NotBegun::Stopped)?;
        if pending.first_log.is_none() {
            // If the log gets its name but the name cannot be synced, the next attempt must not add
            // a second empty log.
            let id = *pending.empty_log.get_or_insert_with(|| self.files.numbers.take());
            pending.first_log = Some(self.log.create_first(id)?);
        }
        let id = pending.first_log.as_ref().expect("just made").id();
        let mut state = self.state();
        let mut edit = flushed.edit.clone();
        self.describe_session(&state, keyspaces, id, &mut edit);
        self.complete_edit(&state.catalogue, &mut edit);
        state.catalogue.begin(&edit, made)?;
        let first = pending.first_log.take().expect("just made");
        self.log.begin(&mut log, &mut state.logs, first, self.visible());
        let opened: Vec<_> = flushed.tables.iter().flat_map(|(_, tables)| tables.to_vec()).collect();
        let fresh = |keyspace: &KeyspaceInner| keyspace.fresh_memtable(0);
        young.into_iter().for_each(|(global, tables, young)| global.note_flushed(tables, young));
        self.publish_edit(&mut state, &edit, &opened, |keyspace, old| {
            let is_fresh = in_memory.binary_search(&keyspace).is_ok();
            Memtables::new(if is_fresh { fresh(&keyspaces[&keyspace]) } else { old.active.clone() })
        });
        // Data in memory that is hidden from every reader is in no table.
        let in_tables: HashSet<KeyspaceId> = flushed.tables.iter().map(|(keyspace, _)| *keyspace).collect();
        for id in in_memory.iter().filter(|id| !in_tables.contains(id)) {
            let keyspace = &keyspaces[id];
            keyspace.replace_memtables(Memtables::new(fresh(keyspace)));
        }
        in_memory.iter().for_each(|&id| self.keyspaces.filled.remove(id));
        Ok(())
    }

    /// Completes the edit that begins a session's manifest: where its logs start, and the options
    /// of its keyspaces.
    pub(crate) fn describe_session(
        &self,
        state: &State,
        keyspaces: &Directory,
        log: LogId,
        edit: &mut VersionEdit,
    ) {
        // Options come from the stored text, except those of the default keyspace. Keyspaces that
        // share options share one rendering of them as text.
        let mut last: Option<(&Arc<str>, String)> = None;
        for (ks, keyspace) in keyspaces.iter() {
            let stored = &state.catalogue.tree().keyspaces[ks].options;
            let is_same = *ks != DEFAULT_KEYSPACE && !state.reshaping.has_change(*ks);
            let known = last.take().filter(|(known, _)| is_same && *known == stored);
            let options = match known {
                Some((_, options)) => options,
                None => state.reshaping.to_store(*ks, &keyspace.options).to_text(),
            };
            if **stored != *options {
                edit.set_options.push((*ks, options.clone()));
            }
            last = is_same.then_some((stored, options));
        }
        for (ks, stored) in state.catalogue.tree().keyspaces.iter() {
            let Some(keyspace) = keyspaces.get(ks) else { continue };
            if !keyspace.filter.global().is_some_and(GlobalFilter::is_in_force) {
                edit.removed_filters.extend(stored.filter_files.keys().map(|file| (*ks, *file)));
            }
        }
        edit.next_epochs =
            state.catalogue.tree().keyspaces.iter().map(|(&ks, stored)| (ks, stored.next_epoch)).collect();
        edit.floor = Some(log);
        edit.last_seq = Some(self.visible());
    }

    /// Writes the options to a file for people to read, unless it has them. The session continues
    /// even if there is no room for it.
    pub(crate) fn write_options(&self) -> Result<(), StorageError> {
        let path = options_path(&self.dir);
        let text = self.options.to_text();
        // Of any other length it is not read, however long it is.
        if self.fs.file_len(&path).is_ok_and(|len| len == text.len() as u64)
            && read_file(&*self.fs, &path).is_ok_and(|there| there == text.as_bytes())
        {
            return Ok(());
        }
        let written = write_file_atomically(&*self.fs, &path, text.as_bytes())
            .map_err(|e| StorageError::io("write", &path, e));
        match written {
            Err(error) if error.is_out_of_space() => {
                self.warn(error.to_string());
                Ok(())
            }
            written => written,
        }
    }
}
