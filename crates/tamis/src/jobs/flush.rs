//! Flushes: turning sealed memtables into a run in level 0, and releasing the logs behind it.
//!
//! The single flush thread writes tables; opening does so before there are any threads. Any holder
//! of the log's lock seals. A flush that fails before its edit changes nothing and is retried
//! ([`health`](crate::jobs::health)): the memtables stay readable, and their logs stay. After a
//! failed edit the manifest is rewritten first ([`catalogue`](crate::catalogue)).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::epochs::EpochMap;
use tamis_base::ids::LogId;
use tamis_files::sums::RecordSum;
use tamis_files::table::CursorOptions;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::tombstones::Tombstones;
use tamis_filter::Digest;
use tamis_policy::compaction::deletes::{self, DeleteTimes};

use crate::catalogue::keyspace::{CONSUMERS_KEYSPACE, KeyspaceInner};
use crate::catalogue::state::State;
use crate::compaction::blobs::BlobInputs;
use crate::compaction::filters::FilterBits;
use crate::compaction::sink::Everything;
use crate::compaction::{Lineage, NewKeys, TableSink, logged, writer};
use crate::error::StorageError;
use crate::jobs::control::FlushControl;
use crate::jobs::verify::check_written;
use crate::log::Current;
use crate::observe::events::{Event, FlushInfo, FlushOutcome};
use crate::observe::latency::Operation;
use crate::observe::{Explained, span};
use crate::read::merge::{MergeCursor, RunTables};
use crate::read::{MemtableSlot, Memtables, key_range};
use crate::records::Pass;
use crate::select::TakenEpoch;
use crate::session::Session;
use crate::sync;
use crate::tree::new_tables::NewTables;

/// The tables of memtables, and the bytes written.
type WrittenTables = (NewTables, u64);

impl Session {
    /// Rolls the log and replaces the non-empty memtables of `keyspaces` by fresh ones. The old
    /// ones are now due for flushing.
    pub(crate) fn seal(
        &self,
        log: &mut Current,
        keyspaces: &[Arc<KeyspaceInner>],
    ) -> Result<(), StorageError> {
        self.log.roll(log)?;
        let mut state = self.state();
        let oldest = self.log.oldest_if_near_limit(&state.logs, 0);
        let pinning = oldest.map_or_else(Vec::new, |oldest| self.keyspaces.filled.holding_back(oldest));
        // Acknowledgements never fill a memtable, which would therefore hold back all logs.
        let small = state.catalogue.named(CONSUMERS_KEYSPACE).cloned();
        for keyspace in keyspaces.iter().chain(&pinning).chain(&small) {
            let old = keyspace.view.load_full();
            if old.memtables.active.memtable.is_empty() || keyspace.is_dropped() {
                continue;
            }
            keyspace.replace_memtables(old.memtables.rotated(keyspace.fresh_memtable(log.id())));
            self.keyspaces.filled.remove(keyspace.id);
            state.scheduler.note_memtables(keyspace);
        }
        drop(state);
        self.monitor.notify();
        Ok(())
    }

    /// Returns the oldest log with writes that are in no table once `flushed` of this keyspace are:
    /// for the keyspace, and for all keyspaces. If there are no such writes, it is the current log.
    pub(crate) fn floors(
        &self,
        state: &State,
        keyspace: &KeyspaceInner,
        flushed: &[Arc<MemtableSlot>],
    ) -> (LogId, LogId) {
        let is_flushed = |slot: &Arc<MemtableSlot>| flushed.iter().any(|gone| Arc::ptr_eq(gone, slot));
        let view = keyspace.view.load();
        let waiting = view.memtables.iter().filter(|slot| !slot.memtable.is_empty() && !is_flushed(slot));
        let current = state.logs.current();
        let own = waiting.map(|slot| slot.first_log.load(Relaxed)).min().unwrap_or(current);
        let active = self.keyspaces.filled.oldest_log(Some(keyspace.id));
        let sealed = state.scheduler.oldest_sealed_log(keyspace.id);
        (own, [active, sealed].into_iter().flatten().fold(own, LogId::min))
    }

    /// Seals the memtable that the memory shared with other databases wants flushed. Does nothing
    /// while a writer holds the log or is in flight: the next write will seal it. Only for the
    /// flush thread, which must not wait for the log, since its holder may be waiting for a flush.
    pub(crate) fn seal_as_asked(&self) {
        let Some(keyspace) = self.throttle.asked_to_seal() else { return };
        let Some(mut log) = self.try_lock_log() else { return };
        if self.gate.check_health().is_err() {
            return;
        }
        // After a failure the request stands, and is retried within a second.
        if self.seal(&mut log, &[keyspace]).is_ok() {
            self.throttle.note_sealed();
        }
    }

    /// Seals the memtables that have to become tables because of the age of their deletes. Does
    /// nothing while a writer holds the log or is in flight, and is retried a second later. Only
    /// for the flush thread.
    pub(crate) fn seal_old_deletes(&self) {
        if !self.expiry.ages_deletes() {
            return;
        }
        let now = self.now();
        let is_due = |keyspace: &Arc<KeyspaceInner>| {
            let first = keyspace.view.load().memtables.active.first_delete();
            let due = first.zip(keyspace.options.max_tombstone_age);
            due.is_some_and(|(first, age)| deletes::flush_time(first, age) <= now)
        };
        let mut due = self.keyspaces.filled.list();
        due.retain(is_due);
        if !due.is_empty() {
            self.try_seal(&due);
        }
    }

    /// Seals the memtables of these keyspaces, unless a writer holds the log or is in flight, or
    /// writes fail. For the flush thread, which must not wait for the log.
    pub(crate) fn try_seal(&self, due: &[Arc<KeyspaceInner>]) {
        let Some(mut log) = self.try_lock_log() else { return };
        if self.gate.check_health().is_ok() {
            // A failure either suspends writes or is retried.
            let _ = self.seal(&mut log, due);
        }
    }

    /// Releases the logs whose writes are all in tables.
    pub(crate) fn release_logs(&self, state: &mut State) {
        self.log.release(&mut state.logs, state.catalogue.tree().log_floor(), self.now());
    }

    /// Releases the logs that readers of changes no longer need.
    pub(crate) fn expire_logs(&self) {
        let now = self.now();
        if self.log.expire(&mut self.state().logs, now) {
            self.log.remove_obsolete();
        }
    }

    /// Removes the files that nothing needs. Called with no lock held.
    pub(crate) fn remove_obsolete(&self) {
        self.log.remove_obsolete();
        self.files.garbage.remove_unless_busy(&*self.fs);
    }

    /// Takes the next epoch of a keyspace for tables to be written. While the second result lives,
    /// the keyspace's global filter counts the epoch as taken. `None` if the keyspace was dropped.
    pub(crate) fn take_epoch(&self, keyspace: &KeyspaceInner) -> Option<(u64, Option<TakenEpoch>)> {
        let mut state = self.state();
        let epoch = state.catalogue.take_epoch(keyspace.id)?;
        Some((epoch, keyspace.filter.global().map(|global| global.grf.note_taken(epoch))))
    }

    /// Writes the oldest sealed memtables of a keyspace (given newest first) to one new run in
    /// level 0, and publishes it.
    pub(crate) fn flush_memtables(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        slots: &[Arc<MemtableSlot>],
    ) -> Result<(), StorageError> {
        let (started, memtables) = (sync::now(), slots.len());
        let memtable_bytes = slots.iter().map(|slot| slot.memtable.used_bytes() as u64).sum();
        let name = || keyspace.name().to_owned();
        let begins = || FlushInfo { keyspace: name(), memtables, memtable_bytes };
        span!("flush", keyspace = keyspace.name(), memtables, memtable_bytes);
        self.observed.observer.raise(|| Event::FlushBegan(begins()));
        let mut written = FlushOutcome::default();
        let result = self.flush_to_table(keyspace, slots, &mut written);
        if result.is_err() {
            self.files.garbage.remove_all(&*self.fs);
        }
        let took = sync::since(started);
        self.observed.observer.raise(|| {
            let error = result.as_ref().err().map(ToString::to_string);
            Event::FlushEnded(FlushOutcome {
                keyspace: name(),
                memtables,
                memtable_bytes,
                took,
                error,
                ..written.clone()
            })
        });
        if result.is_ok() {
            self.keep_filters_in_memory(Some(keyspace));
            self.observed.observer.timed(Operation::Flush, started, || Explained {
                keyspace: name(),
                key: None,
                explanation: format!(
                    "{memtables} memtables of {memtable_bytes} bytes, {} bytes written",
                    written.bytes_written
                ),
            });
        }
        result
    }

    fn flush_to_table(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        slots: &[Arc<MemtableSlot>],
        told: &mut FlushOutcome,
    ) -> Result<(), StorageError> {
        let started = sync::now();
        // Before anything is written, since the tables' epoch maps name it. An ingestion that
        // begins meanwhile gets a later one, and waits for this flush where their keys overlap
        // ([`ingest`](crate::jobs::ingest)), so that epochs stay disjoint at every key.
        let Some((epoch, taken)) = self.take_epoch(keyspace) else { return Ok(()) };
        let blobs = self.values_in_logs(keyspace, slots)?;
        let Some((opened, bytes)) = self.write_memtables(keyspace, slots, &blobs, epoch, true)? else {
            return Ok(());
        };
        // If this flush survives a crash, earlier writes in other keyspaces must, too, and so must
        // its log, where readers of changes need it.
        if self.keyspaces.directory.load().len() > 1 || self.state().logs.keeps_changes() {
            self.log.sync_rolled()?;
        }
        let records = forget_records(keyspace, slots);
        let global = keyspace.filter.global();
        let young = global.map(|global| global.young_of(&opened));
        let tables = opened.to_vec();
        let mut state = self.state();
        if keyspace.is_dropped() {
            return Ok(());
        }
        if let Some((global, young)) = global.zip(young) {
            global.note_flushed(&opened, young);
        }
        let mut edit = VersionEdit { next_epochs: vec![(keyspace.id, epoch + 1)], ..VersionEdit::default() };
        // Not earlier: an ingestion may meanwhile have been merged with older runs, and the result
        // must not sort above this flush.
        let run = self.files.numbers.take();
        edit.added.extend(opened.iter().map(|table| (keyspace.id, 0, run, (*table.meta).clone())));
        told.tables = opened.iter().map(|table| table.meta.id).collect();
        let (own, all) = self.floors(&state, keyspace, slots);
        (edit.log_floor, edit.floor) = (vec![(keyspace.id, own)], Some(all));
        // Their logs are released, and some of these numbers may be in no table.
        edit.last_seq = slots.iter().filter_map(|slot| slot.memtable.max_seq()).max();
        let without = |memtables: &Memtables| memtables.without(slots);
        // Merges may drop range tombstones together with cached versions.
        if let Some(pass) = &records
            && !slots.iter().any(|slot| slot.memtable.has_range_tombstones())
        {
            pass.complete();
        }
        self.keep_for_transactions(keyspace, slots);
        // They keep no files, and the retry has others.
        let forget = |_: &_| _ = global.inspect(|global| global.grf.forget_young(&tables));
        if edit.added.is_empty() {
            // Everything was shadowed: neither a table nor the log is needed.
            self.commit_edit(&mut state, edit, opened, |_, _| unreachable!("no tables change"))
                .inspect_err(forget)?;
            keyspace.replace_memtables(without(&keyspace.view.load().memtables));
            state.scheduler.note_memtables(keyspace);
        } else {
            self.commit_edit(&mut state, edit, opened, |_, old| without(old)).inspect_err(forget)?;
        }
        // Under the lock, so that whoever waits for the flush finds the cache open.
        drop(records);
        // Under the lock, so that the next image includes this flush.
        drop(taken);
        let memtables = || slots.iter().map(|slot| &slot.memtable);
        state.reshaping.tuning(keyspace.id).flushed += memtables().map(|m| m.entries() as u64).sum::<u64>();
        state.scheduler.allow_flushes(keyspace.id);
        self.release_logs(&mut state);
        told.bytes_written = bytes;
        // Under the lock, so that threads waiting for the flush find it counted.
        let flushed = memtables().map(|m| m.used_bytes() as u64).sum();
        self.throttle.note_flush(flushed, sync::since(started));
        self.observed.write_counters.flushes.add(1);
        self.observed.write_counters.flush_bytes.add(bytes);
        // The bytes written no longer count as still to be written.
        self.space.room.outdated();
        drop(state);
        self.monitor.notify();
        Ok(())
    }

    /// Returns the logs that have large values of sealed memtables, and in which of them these are
    /// to stay. The logs are complete and durable then. On failure, writes are suspended.
    fn values_in_logs(
        &self,
        keyspace: &KeyspaceInner,
        slots: &[Arc<MemtableSlot>],
    ) -> Result<BlobInputs, StorageError> {
        let logs = logged::logs_of(slots);
        if logs.is_empty() {
            return Ok(BlobInputs::default());
        }
        self.log.sync_rolled()?;
        let options = &keyspace.shaping.load().options;
        let kept = logged::kept_bytes(slots, !self.live_snapshots().is_empty());
        let state = self.state();
        let judge = |id: LogId| {
            let bytes = state.logs.complete(id)?;
            Some((bytes, logged::stay(options, bytes, kept.get(&id).copied().unwrap_or(0))))
        };
        Ok(BlobInputs::of_logs(&self.dir, logs, judge))
    }

    /// Writes the contents of successive memtables, newest first, to a table (or to none, if no
    /// reader can see any of it) and opens it. `blobs` are the logs that have their large values.
    /// `None` if cancelled.
    pub(crate) fn write_memtables(
        &self,
        keyspace: &KeyspaceInner,
        slots: &[Arc<MemtableSlot>],
        blobs: &BlobInputs,
        epoch: u64,
        cancellable: bool,
    ) -> Result<Option<WrittenTables>, StorageError> {
        let expired = self.expiry.expired_for_merge(keyspace);
        let snapshots = self.live_snapshots();
        let (shaping, view) = (keyspace.shaping.load(), keyspace.view.load());
        let options = &shaping.options;
        let entries = slots.iter().map(|slot| slot.memtable.entries() as u64).sum();
        let accesses = keyspace.filter.accesses().map(|accesses| &**accesses);
        let bits = FilterBits::for_flush(options, &view.version, accesses, entries, || key_range(slots));
        // Replayed deletes were not noted.
        let with_deletes = slots.iter().filter(|slot| slot.memtable.has_deletes());
        let first = |slot: &Arc<MemtableSlot>| {
            slot.first_delete().or_else(|| self.expiry.written_since(slot.memtable.min_seq()?))
        };
        let deletes = DeleteTimes::of_flush(with_deletes.filter_map(first).min(), self.now());
        let sink = TableSink {
            fs: &*self.fs,
            dir: &self.dir,
            garbage: &self.files.garbage,
            next_file: self.files.numbers.counter(),
            options,
            level: 0,
            filter: keyspace.filter.for_flush(options, &view.version, entries),
            filter_bits: &bits,
            new_keys: NewKeys::All,
            max_table_bytes: u64::MAX,
            borders: &[],
            edges: &[],
            snapshots: &snapshots,
            visible: self.visible(),
            guard_bits: None,
            written: (self.now(), self.now()),
            deletes: &deletes,
            rules: keyspace.rules(expired),
            lineage: Lineage { keyspace: keyspace.id, keyspace_name: keyspace.name(), merge: None },
            blobs,
            protect: self.options.protect_writes,
            control: &FlushControl { db: self, cancellable },
        };
        let mut cursor = MergeCursor::new(RunTables::List(Vec::new()), CursorOptions::default(), slots.len());
        slots.iter().for_each(|slot| cursor.add_memtable(slot.memtable.cursor()));
        let list: Vec<_> = slots.iter().flat_map(|slot| slot.memtable.range_tombstones()).collect();
        let tombstones = Tombstones::fragment_for(list, &sink.readers());
        let output =
            writer::write_tables(&sink, &mut cursor, tombstones, &mut Everything, &|smallest, _| {
                EpochMap::flush(smallest.clone(), epoch)
            })?;
        let Some(output) = output else { return Ok(None) };
        if sink.protect && Some(output.read) != sum_of(slots) {
            let what = "the memtables do not have what was inserted: memory has changed";
            return Err(StorageError::corrupt(&self.dir, None, what));
        }
        let (written, blobs) = (output.written_bytes, output.blob_bytes);
        let opened = output.files.open(&*self.fs, &output.tables, &self.files.reader_config)?;
        check_written(&opened, &output.sums)?;
        bits.inherit(&opened);
        self.observed.write_counters.blob_write_bytes.add(blobs);
        Ok(Some((opened, written)))
    }
}

/// Returns the sum of all versions in these memtables, if they keep it.
fn sum_of(slots: &[Arc<MemtableSlot>]) -> Option<RecordSum> {
    let mut sum = RecordSum::default();
    for slot in slots {
        sum.add_all(slot.memtable.sum()?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests;

/// Removes the cached records of the keys in memtables that are about to become a run. While the
/// result lives, reads of the keyspace add none.
fn forget_records<'k>(
    keyspace: &'k KeyspaceInner,
    slots: &[Arc<MemtableSlot>],
) -> Option<Pass<'k, impl Fn() -> u64 + 'k>> {
    let pass = keyspace.records.as_ref()?.pass(|| keyspace.view.load().edition);
    for slot in slots {
        let mut cursor = slot.memtable.cursor();
        cursor.seek_to_first();
        while cursor.valid() {
            pass.forget(Digest::of(cursor.key()));
            cursor.next();
        }
    }
    Some(pass)
}
