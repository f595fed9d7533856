//! Ingesting external tables: a single edit makes files part of the tree without rewriting them.
//!
//! # The steps
//!
//! 1. *Without any lock*: describes and checks every file, compares the files of one keyspace with
//!    each other, links or copies all of them into the directory under new numbers, and syncs them,
//!    names included. Flushes overlapping memtables, so that little is left to wait for later.
//! 2. *Under the log lock*, so that no write comes between: seals non-empty memtables; takes the
//!    next sequence number for the ingestion, with a record in the log, and syncs the log up to it;
//!    then waits for sealed memtables that overlap.
//! 3. *Under the log and state locks*: chooses places, makes the edit durable, replaces the views,
//!    and makes the number visible.
//!
//! # Why no reader sees a partial ingestion
//!
//! * The edit is one manifest record: after a crash either all tables are in or none. The log is
//!   synced up to the number first, so that ingested data never outlives a write acknowledged
//!   earlier. The ingestion's own record keeps the log's numbers free of gaps, whether or not the
//!   edit took effect.
//! * A reader with the old view sees none of the tables. It sees no later write either, since every
//!   new view has its own memtable: the old one, empty or not, takes no more writes. A reader with
//!   the new view sees all of the tables if it reads at their number or later, and otherwise none.
//! * The number becomes visible under the state lock, before any compaction can pick up the new
//!   tables: a compaction that does may drop the entries that they shadow.
//!
//! # Why versions stay in order
//!
//! A key's newer version must come first in the order in which the tree is read. By the time places
//! are chosen (step 3), older data that overlaps a file is in tables, and [`place`](place::place)
//! puts the file above it. A memtable whose flush has begun has an older epoch than the ingestion.
//! The ingestion waits for it if the key ranges overlap at all, so that epochs stay disjoint at
//! every key. A memtable whose flush has not begun gets a newer epoch. Neither gets its run until
//! its flush ends, so its run is newer than the ingestion's; hence the ingestion's run may be
//! merged with older ones.

mod place;
mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use place::{Depth, place};
use stage::{Staged, Staging};
use tamis_base::ids::{KeyspaceId, RunId};
use tamis_base::key::{MAX_SEQNO, SeqNo};
use tamis_files::tree::edit::VersionEdit;
use tamis_policy::compaction::policy::Pressure;
use tamis_policy::compaction::shape::KeyRange;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::conflicts::history::Ingested;
use crate::error::{AdminError, ExternalTableError, WriteError};
use crate::external::{Described, describe};
use crate::log::Current;
use crate::observe::events::Event;
use crate::observe::latency::Operation;
use crate::observe::span;
use crate::read::{MemtableSlot, Memtables, key_range};
use crate::session::Session;
use crate::sync;
use crate::tree::new_tables::NewTables;

/// How to ingest files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestOptions {
    /// Hard-link the files into the database's directory where the file system can, instead of
    /// copying them, and remove the original names once the files are ingested. The files must not
    /// be written to in the meantime.
    pub move_files: bool,
    /// Read every byte of the files and check checksums, order, counts and filters before changing
    /// anything. Without this check, a file that was not written by this library, or was damaged
    /// since, causes wrong answers or errors later.
    pub verify: bool,
}

impl Default for IngestOptions {
    /// Files are copied and verified.
    fn default() -> IngestOptions {
        IngestOptions { move_files: false, verify: true }
    }
}

/// What an ingestion did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IngestReport {
    /// The sequence number of everything ingested; 0 if there were no files.
    pub seq: u64,
    /// The tables that the files became, by keyspace and key.
    pub tables: Vec<IngestedTable>,
    /// Entries in all tables, including deletes.
    pub entries: u64,
    /// The bytes of all tables.
    pub bytes: u64,
    /// Files to be moved whose original name could not be removed; they were still ingested.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::paths"))]
    pub left: Vec<PathBuf>,
}

/// One ingested file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IngestedTable {
    /// The path that it came from.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::path"))]
    pub source: PathBuf,
    /// The keyspace that it went into.
    pub keyspace: String,
    /// The number of the table that it became.
    pub table: u64,
    /// The level that it went into.
    pub level: usize,
    /// The number of entries in it, including deletes.
    pub entries: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The files for one keyspace, in key order.
struct IngestGroup<F> {
    keyspace: Arc<KeyspaceInner>,
    files: Vec<F>,
}

impl IngestGroup<Staged> {
    fn ranges(&self) -> impl Iterator<Item = KeyRange> + '_ {
        self.files.iter().map(|file| range_of(&file.described))
    }

    /// Reports whether a sealed memtable must become a table before the files can be placed.
    fn must_wait(&self, state: &State) -> bool {
        let flushing = state.scheduler.is_flushing(self.keyspace.id);
        let view = self.keyspace.view.load();
        let sealed = &view.memtables.sealed;
        // One flush may write several memtables to one table.
        let written = if flushing { hull(sealed) } else { None };
        self.ranges().any(|range| {
            sealed.iter().any(|slot| holds_some_of(slot, &range))
                || written.as_ref().is_some_and(|hull| hull.overlaps(&range))
        })
    }
}

impl Session {
    /// See [`Db::ingest`](crate::Db::ingest). Any thread may call it, concurrently with everything
    /// else.
    pub(crate) fn ingest(
        &self,
        files: Vec<(Arc<KeyspaceInner>, Vec<PathBuf>)>,
        options: IngestOptions,
    ) -> Result<IngestReport, AdminError> {
        span!("ingestion", keyspaces = files.len());
        let started = sync::now();
        self.check_ready()?;
        self.space.reserve.refuse()?;
        let described = self.described(files)?;
        if described.is_empty() {
            return Ok(IngestReport::default());
        }
        let ingested = self.bring_in(described, &options);
        let mut report = ingested.inspect_err(|_| self.files.garbage.remove_all(&*self.fs))?;
        self.keep_filters_in_memory(None);
        let took = sync::since(started);
        self.observed.observer.record(Operation::Ingestion, took);
        self.observed.observer.raise(|| {
            let mut keyspaces: Vec<String> =
                report.tables.iter().map(|table| table.keyspace.clone()).collect();
            keyspaces.dedup();
            Event::Ingested { keyspaces, tables: report.tables.len(), bytes: report.bytes, took }
        });
        if options.move_files {
            for table in &report.tables {
                if let Err(e) = self.fs.remove(&table.source)
                    && e.kind() != std::io::ErrorKind::NotFound
                {
                    log::warn!("{} was ingested but could not be removed: {e}", table.source.display());
                    report.left.push(table.source.clone());
                }
            }
        }
        Ok(report)
    }

    fn bring_in(
        &self,
        described: Vec<IngestGroup<Described>>,
        options: &IngestOptions,
    ) -> Result<IngestReport, AdminError> {
        let mut staging = Staging::new(self);
        let mut groups = Vec::with_capacity(described.len());
        for IngestGroup { keyspace, files } in described {
            let staged = files.iter().map(|file| staging.bring(file, options.move_files, options.verify));
            groups.push(IngestGroup { keyspace, files: staged.collect::<Result<Vec<_>, _>>()? });
        }
        staging.sync_names()?;
        self.make_way(&groups)?;
        self.commit_ingestion(groups, staging)
    }

    /// Returns the files' descriptions, checked against each other, in one group per keyspace that
    /// receives any.
    fn described(
        &self,
        files: Vec<(Arc<KeyspaceInner>, Vec<PathBuf>)>,
    ) -> Result<Vec<IngestGroup<Described>>, AdminError> {
        let mut groups: BTreeMap<KeyspaceId, IngestGroup<Described>> = BTreeMap::new();
        for (keyspace, paths) in files {
            check_alive(&keyspace)?;
            keyspace.check_operators()?;
            if paths.is_empty() {
                continue;
            }
            let group = groups.entry(keyspace.id).or_insert(IngestGroup { keyspace, files: Vec::new() });
            for path in paths {
                group.files.push(describe(&*self.fs, &path)?);
            }
        }
        for group in groups.values_mut() {
            group.files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            if let Some(pair) = group.files.windows(2).find(|pair| pair[0].overlaps(&pair[1])) {
                let (first, second) = (pair[0].path().to_owned(), pair[1].path().to_owned());
                let range = pair[1].info().range_text();
                return Err(ExternalTableError::Overlap { first, second, range }.into());
            }
        }
        Ok(groups.into_values().collect())
    }

    /// Waits in advance, so as not to wait while holding the log lock: for a level 0 that is too
    /// full for writes, and for flushes of overlapping memtables.
    fn make_way(&self, groups: &[IngestGroup<Staged>]) -> Result<(), AdminError> {
        for group in groups {
            let keyspace = &group.keyspace;
            let mut state = self.state();
            while keyspace.shaping.load().options.auto_compaction
                && !keyspace.is_dropped()
                && keyspace.pressure.get() == Pressure::Stop
            {
                self.gate.check_writable()?;
                state.scheduler.check_compactions(keyspace.id)?;
                state = self.monitor.wait(state);
            }
            drop(state);
            let view = keyspace.view.load_full();
            let overlapping =
                view.memtables.iter().any(|slot| group.ranges().any(|range| holds_some_of(slot, &range)));
            // The ingestion may add one more memtable to the flush queue.
            if overlapping || view.memtables.sealed.len() + 1 >= keyspace.options.max_memtables {
                self.flush(std::slice::from_ref(keyspace))?;
            }
        }
        Ok(())
    }

    /// Steps 2 and 3 of the module documentation.
    fn commit_ingestion(
        &self,
        groups: Vec<IngestGroup<Staged>>,
        staging: Staging<'_>,
    ) -> Result<IngestReport, AdminError> {
        let mut log = self.lock_log();
        self.gate.check_writable()?;
        let keyspaces: Vec<_> = groups.iter().map(|group| group.keyspace.clone()).collect();
        keyspaces.iter().try_for_each(|keyspace| check_alive(keyspace))?;
        if keyspaces.iter().any(|keyspace| !keyspace.view.load().memtables.active.memtable.is_empty()) {
            self.seal(&mut log, &keyspaces)?;
        }
        let seq = self.log.append_ingestion(&mut log, keyspaces[0].id)?;
        // Before the number becomes visible.
        keyspaces.iter().for_each(|keyspace| keyspace.view.load().gaps.clear());
        let result = self.publish(&log, seq, groups, staging);
        // Even on failure: the number is used up.
        self.committer.publish(seq);
        self.expiry.note_visible();
        drop(log);
        self.trim_history();
        result
    }

    fn publish(
        &self,
        log: &Current,
        seq: SeqNo,
        groups: Vec<IngestGroup<Staged>>,
        staging: Staging<'_>,
    ) -> Result<IngestReport, AdminError> {
        let mut state = self.state();
        loop {
            self.gate.check_writable()?;
            // The memtables of a dropped keyspace are no longer flushed.
            groups.iter().try_for_each(|group| check_alive(&group.keyspace))?;
            if !groups.iter().any(|group| group.must_wait(&state)) {
                break;
            }
            groups.iter().try_for_each(|group| state.scheduler.check_flushes(group.keyspace.id))?;
            state = self.monitor.wait(state);
        }
        let mut report = IngestReport { seq, ..IngestReport::default() };
        let mut edit = VersionEdit { last_seq: Some(seq), ..VersionEdit::default() };
        let mut opened = NewTables::default();
        let now = self.now();
        for IngestGroup { keyspace, files } in groups {
            let version = keyspace.view.load().version.clone();
            let shape = self.shape(&state, &keyspace);
            let depth = {
                let shaping = keyspace.shaping.load();
                Depth::of(&shaping.options, shaping.policy.drops_data())
            };
            let dropped = || WriteError::Dropped { name: keyspace.name().to_owned() };
            let epoch = state.catalogue.take_epoch(keyspace.id).ok_or_else(dropped)?;
            edit.next_epochs.push((keyspace.id, epoch + 1));
            if let Some(global) = keyspace.filter.global() {
                global.grf.note_missing(epoch);
            }
            let mut new_runs: BTreeMap<usize, RunId> = BTreeMap::new();
            for file in files {
                let place = place(&shape, &range_of(&file.described), depth);
                let new_run = || self.files.numbers.take();
                let run = place.run.unwrap_or_else(|| *new_runs.entry(place.level).or_insert_with(new_run));
                let meta = file.described.meta(file.id, seq, epoch, now);
                report.entries += meta.entries;
                report.bytes += meta.file_bytes;
                report.tables.push(IngestedTable {
                    source: file.source,
                    keyspace: keyspace.name().to_owned(),
                    table: meta.id,
                    level: place.level,
                    entries: meta.entries,
                    bytes: meta.file_bytes,
                });
                let table = file.table.ingested(meta.clone());
                keyspace.inherit_accesses(&version, &table);
                opened.push(table);
                edit.added.push((keyspace.id, place.level as u32, run, meta));
            }
        }
        staging.keep();
        let ranges = edit.added.iter().map(|(keyspace, _, _, meta)| Ingested {
            keyspace: *keyspace,
            seq,
            range: KeyRange { smallest: meta.smallest.clone(), largest: meta.largest.clone() },
        });
        self.note_ingested(ranges);
        let keyspaces = state.catalogue.keyspaces().clone();
        let ingested = self.commit_edit(&mut state, edit, opened, |id, old| {
            // A fresh one: readers that still hold the old view must not see later writes.
            let active = keyspaces[&id].fresh_memtable(log.id());
            Memtables { active, sealed: old.sealed.clone() }
        });
        // The next opening may find that the files were ingested after all. No later write may be
        // acknowledged until that is ruled out.
        ingested.inspect_err(|error| self.gate.suspend(error))?;
        // Before the state lock is released: see the module documentation.
        self.committer.publish(seq);
        self.expiry.note_visible();
        drop(state);
        self.observed.write_counters.ingested_tables.add(report.tables.len() as u64);
        self.observed.write_counters.ingested_bytes.add(report.bytes);
        Ok(report)
    }
}

fn check_alive(keyspace: &KeyspaceInner) -> Result<(), WriteError> {
    match keyspace.is_dropped() {
        true => Err(WriteError::Dropped { name: keyspace.name().to_owned() }),
        false => Ok(()),
    }
}

fn range_of(file: &Described) -> KeyRange {
    KeyRange { smallest: file.smallest.clone(), largest: file.largest.clone() }
}

/// Reports whether a memtable contains a key of `range`. O(log n).
fn holds_some_of(slot: &MemtableSlot, range: &KeyRange) -> bool {
    let mut cursor = slot.memtable.cursor();
    cursor.seek(&range.smallest, MAX_SEQNO);
    cursor.valid() && range.largest.reaches(cursor.key())
        || slot.memtable.range_map().touches(&range.smallest, &range.largest)
}

/// Returns the key range that the table flushed from these memtables will have; `None` if they are
/// empty.
fn hull(slots: &[Arc<MemtableSlot>]) -> Option<KeyRange> {
    key_range(slots).map(|(smallest, largest)| KeyRange { smallest, largest })
}
