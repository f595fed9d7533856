//! Flushes: turning a sealed memtable into a run in level 0, and releasing the logs behind it.
//!
//! Called by the single flush thread, and by opening before there are any threads. A failed flush changes nothing and is
//! retried ([`health`](super::health)): the memtable stays readable, and the logs behind it stay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction::{Lineage, TableSink, filters, writer};
use crate::db::inner::{DbInner, Jobs, KeyspaceInner, State};
use crate::db::jobs::FlushControl;
use crate::error::StorageError;
use crate::ids::{KeyspaceId, LogId};
use crate::read::merge::{MergeCursor, Tables};
use crate::read::{MemtableSlot, Memtables};
use crate::sync;
use crate::table::CursorOptions;
use crate::tree::edit::VersionEdit;
use crate::tree::epochs::EpochMap;
use crate::tree::files::{log_path, table_path};
use crate::tree::meta::TableMeta;
use crate::tree::open_table::OpenTable;
use crate::tree::tombstones::Tombstones;

/// Returns the memtable to flush next: the one that holds the oldest log. Memtables in backoff are skipped.
pub(crate) fn next_flush(state: &State) -> Option<(Arc<KeyspaceInner>, Arc<MemtableSlot>)> {
    let oldest = |ks: &Arc<KeyspaceInner>| {
        ks.view.load().memtables.sealed.last().cloned().map(|slot| (ks.clone(), slot))
    };
    let held_back =
        |jobs: &Jobs| jobs.flushing || jobs.flush_aside.as_ref().is_some_and(|aside| !aside.is_over());
    let idle = |ks: &&Arc<KeyspaceInner>| !state.jobs.get(&ks.id).is_some_and(held_back);
    // The memtable that holds the oldest log comes first.
    let due = state.keyspaces.values().filter(idle).filter_map(oldest);
    due.min_by_key(|(_, slot)| slot.first_log.load(Ordering::Relaxed))
}

/// The open tables of a memtable, and the bytes written.
type Written = (Vec<Arc<OpenTable>>, u64);

impl DbInner {
    /// Writes one sealed memtable to a new run in level 0 and publishes it.
    pub(crate) fn flush_memtable(
        &self,
        keyspace: &KeyspaceInner,
        slot: &Arc<MemtableSlot>,
    ) -> Result<(), StorageError> {
        let started = sync::now();
        let Some(epoch) = self.state().tree.take_epoch(keyspace.id) else { return Ok(()) };
        let Some((opened, bytes)) = self.write_memtable(keyspace, slot, epoch, true)? else {
            return Ok(());
        };
        // If this flush survives a crash, so must earlier writes in other keyspaces.
        if self.directory.load().len() > 1
            && let Err(error) = self.sync_closed_logs()
        {
            opened.iter().for_each(|table| table.mark_obsolete());
            return Err(error);
        }
        // Filter first; no rebuild may come between that and the version that needs it.
        let _work = keyspace.filter.insert_flushed(&opened);
        let mut state = self.state();
        if keyspace.is_dropped() {
            opened.iter().for_each(|table| table.mark_obsolete());
            return Ok(());
        }
        let mut edit = VersionEdit { next_epochs: vec![(keyspace.id, epoch + 1)], ..VersionEdit::default() };
        // Not earlier: tables ingested since may have been joined with older runs, which must not come to lie above.
        let run = self.next_file.fetch_add(1, Ordering::Relaxed);
        edit.added.extend(opened.iter().map(|table| (keyspace.id, 0, run, (*table.meta).clone())));
        edit.log_floor = self.log_floors(&state, Some((keyspace.id, slot)));
        let without = |memtables: &Memtables| memtables.without(std::slice::from_ref(slot));
        if edit.added.is_empty() {
            // Everything in it was shadowed: no table is needed, but neither is the log any more.
            self.commit_edit(&mut state, edit, opened, |_, _| unreachable!("no tables change"))?;
            let view = keyspace.view.load_full();
            keyspace.view.store(Arc::new(view.with_memtables(without(&view.memtables))));
        } else {
            self.commit_edit(&mut state, edit, opened, |_, old| without(old))?;
        }
        let jobs = state.jobs.entry(keyspace.id).or_default();
        jobs.tuning.flushed += slot.memtable.entries() as u64;
        jobs.flush_aside = None;
        self.drop_obsolete_logs(&mut state);
        // Under the lock, so that threads that waited for the flush find it counted.
        self.background.note_flush(slot.memtable.memory_bytes() as u64, sync::since(started));
        self.write_counters.flushes.add(1);
        self.write_counters.flush_bytes.add(bytes);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Writes a memtable's contents to a table (or to none, if no reader can see any of it) and opens it. `None` if
    /// cancelled. An error leaves no files behind.
    pub(crate) fn write_memtable(
        &self,
        keyspace: &KeyspaceInner,
        slot: &MemtableSlot,
        epoch: u64,
        cancellable: bool,
    ) -> Result<Option<Written>, StorageError> {
        let expired = self.expired_for_merge(keyspace);
        let snapshots = self.live_snapshots();
        let (shaping, view) = (keyspace.shaping.load(), keyspace.view.load());
        let options = &shaping.options;
        let sink = TableSink {
            fs: &*self.fs,
            dir: &self.dir,
            next_file: &self.next_file,
            options,
            level: 0,
            filter_bits: filters::bits_for_flush(options, &view.version, slot.memtable.entries() as u64),
            max_table_bytes: u64::MAX,
            borders: &[],
            snapshots: &snapshots,
            visible: self.visible(),
            guard_bits: None,
            written: (self.now(), self.now()),
            rules: keyspace.rules(expired),
            lineage: Lineage { keyspace: keyspace.id, keyspace_name: &keyspace.name, merge: None },
            control: &FlushControl { db: self, cancellable },
        };
        let mut cursor = MergeCursor::new(Tables::List(Vec::new()), CursorOptions::default(), 1);
        cursor.add_memtable(slot.memtable.cursor());
        let tombstones = slot.tombstones().map_or_else(Tombstones::default, |t| t.1.clone());
        let output =
            writer::write_tables(&sink, &mut cursor, tombstones, &mut writer::Everything, &|smallest, _| {
                EpochMap::flush(smallest.clone(), epoch)
            })?;
        let Some(output) = output else { return Ok(None) };
        self.sync_tables(&output.tables)?;
        Ok(Some((self.open_tables(&output.tables)?, output.written_bytes)))
    }

    /// Makes the names of newly written tables durable. If that fails, all of the tables are removed.
    pub(crate) fn sync_tables(&self, metas: &[TableMeta]) -> Result<(), StorageError> {
        let synced = self.fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e));
        synced.inspect_err(|_| self.discard_tables(metas))
    }

    /// Opens newly written tables. If one cannot be opened, all of them are removed.
    pub(crate) fn open_tables(&self, metas: &[TableMeta]) -> Result<Vec<Arc<OpenTable>>, StorageError> {
        let open = |meta: &TableMeta| {
            OpenTable::open(&*self.fs, &self.dir, Arc::new(meta.clone()), &self.reader_config, &self.garbage)
        };
        metas.iter().map(open).collect::<Result<_, _>>().inspect_err(|_| self.discard_tables(metas))
    }

    /// Removes written tables that nothing names.
    pub(crate) fn discard_tables(&self, metas: &[TableMeta]) {
        metas.iter().for_each(|meta| self.garbage.push(table_path(&self.dir, meta.id)));
    }

    /// Returns, for every keyspace, the oldest log that holds writes which are in no table (once `flushed` is).
    fn log_floors(
        &self,
        state: &State,
        flushed: Option<(KeyspaceId, &Arc<MemtableSlot>)>,
    ) -> Vec<(KeyspaceId, LogId)> {
        let floor = |ks: &Arc<KeyspaceInner>| {
            let view = ks.view.load();
            let waiting = view.memtables.iter().filter(|slot| {
                !slot.memtable.is_empty()
                    && !flushed.is_some_and(|(id, gone)| id == ks.id && Arc::ptr_eq(gone, slot))
            });
            let oldest = waiting.map(|slot| slot.first_log.load(Ordering::Relaxed)).min();
            (ks.id, oldest.unwrap_or(state.current_log))
        };
        state.keyspaces.values().map(floor).collect()
    }

    /// Recycles or removes the logs below every keyspace's floor.
    pub(crate) fn drop_obsolete_logs(&self, state: &mut State) {
        let floor = state.tree.log_floor().min(state.current_log);
        let obsolete: Vec<_> = state.logs.extract_if(.., |log| log.id < floor).collect();
        if obsolete.is_empty() {
            return;
        }
        // Closes the handles; the contents are in durable tables.
        self.closed_logs.lock().retain(|(id, _)| *id >= floor);
        self.note_closed_logs(state);
        for log in obsolete {
            if !log.linked && self.may_recycle(state, &log) {
                state.recyclable.push(log);
            } else {
                self.garbage.push(log_path(&self.dir, log.id));
            }
        }
    }
}
