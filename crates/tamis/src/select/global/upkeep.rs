//! Maintenance of the filter: adds flushed keys and rebuilds key ranges when it pays.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use tamis_filter::global::{Batch, Epoch, Epochs, MapChoice, Partition, PartitionSpec};
use tamis_filter::{Digest, FilterError};

use super::gather::{Gathered, Span, each_key, gather, oldest_run};
use super::{Cell, Directory, Grf, Work, holds};
use crate::error::StorageError;
use crate::ids::TableId;
use crate::key::KeyBytes;
use crate::options::PrefixFilter;
use crate::select::damaged_list;
use crate::select::keys::Source;
use crate::sync;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// Keys per partition: few enough that a flush copies it within the cache, enough that the directory stays small.
const PARTITION_KEYS: u64 = 1 << 16;
/// The least number of keys per partition, however small the tables are.
const FEWEST_KEYS: u64 = 1 << 7;

/// A partition is rebuilt once it has grown by an eighth and the oldest run has changed below it …
const STALE: u64 = 8;
/// … or, whatever has changed, once it has this many times the entries it was made for.
const OVERGROWN: f64 = 1.5;

/// The limit of the room made in advance for growth.
const MOST_GROWTH: f64 = 2.0;
/// The most bits for all digits of a code.
const CODE_BITS: u32 = 48;

/// Blocks with this many times the usual number of entries are collected even if no key is added to them …
const LARGE: usize = 2;
/// … at every table whose id is a multiple of this.
const COLLECT_EVERY: u64 = 8;

/// What a background thread should do for a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Build or rebuild a key range.
    Build(Span),
    /// Add the keys of tables that were published without.
    Insert,
}

/// Partitions for a key range, not published yet.
#[derive(Debug)]
pub(crate) struct Built {
    span: Span,
    parts: Vec<(KeyBytes, Arc<Cell>)>,
    started: Instant,
    /// Problems that were overcome.
    pub(crate) warnings: Vec<String>,
}

impl Built {
    /// Reports whether all of it was built.
    pub(crate) fn is_complete(&self) -> bool {
        self.parts.iter().all(|(_, cell)| cell.partition.load().is_some())
    }
}

impl Grf {
    /// Returns the work due, given the current version. Cheap: O(partitions · runs · log tables), mostly without the runs.
    pub(crate) fn task(&self, version: &Version) -> Option<Task> {
        let directory = self.directory.load();
        let growth = growth(version);
        for (at, (_, cell)) in directory.parts.iter().enumerate() {
            let span = directory.span(at);
            let (due, entries) = match &*cell.partition.load() {
                None => (true, 0),
                Some(partition) => {
                    (self.is_stale(version, cell, &span, partition, growth), partition.entries())
                }
            };
            match is_inhabited(version, &span) {
                true if due => return Some(Task::Build(self.widened(version, span))),
                // Dropped tables leave their entries behind, and no later insert would remove them.
                false if entries > 0 => return Some(Task::Build(uninhabited(version, &directory, at))),
                // Without keys there is nothing to build.
                _ => {}
            }
        }
        (!self.lacking(version).is_empty()).then_some(Task::Insert)
    }

    /// Returns the missing epochs that can be added: those not held by an unreadable table.
    fn wanted(&self, version: &Version) -> Vec<Epoch> {
        let missing = self.missing.lock().clone();
        if missing.is_empty() {
            return missing;
        }
        let unread = {
            let mut unread = self.unread.lock();
            unread.retain(|id| version.tables.iter().any(|table| table.meta.id == *id));
            unread.clone()
        };
        let unread = || version.tables.iter().filter(|table| unread.contains(&table.meta.id));
        missing.into_iter().filter(|epoch| !unread().any(|table| holds(&table.meta.epochs, *epoch))).collect()
    }

    /// Returns the tables whose keys are to be added.
    fn lacking<'v>(&self, version: &'v Version) -> Vec<&'v Arc<OpenTable>> {
        let wanted = self.wanted(version);
        if wanted.is_empty() {
            return Vec::new();
        }
        let lacks = |table: &&Arc<OpenTable>| wanted.iter().any(|epoch| holds(&table.meta.epochs, *epoch));
        version.tables.iter().filter(lacks).collect()
    }

    fn is_stale(
        &self,
        version: &Version,
        cell: &Cell,
        span: &Span,
        partition: &Partition,
        growth: f64,
    ) -> bool {
        let (entries, built) = (partition.entries(), partition.built_entries());
        if entries as f64 > growth * OVERGROWN * built as f64 + 4096.0 {
            return true;
        }
        // Codes of later epochs would match all newer runs.
        if cell.newest.load(Relaxed) > cell.lasts_until {
            return true;
        }
        // Tombstones and what they deleted stay entries until then (the paper's lazy way, section 4.2). `eager` is the other
        // way, as far as versions allow: older ones need these entries, so they cannot be removed from their partition.
        if !self.spec.eager && entries < built + built / STALE + 64 {
            return false;
        }
        let Some((_, oldest)) = oldest_run(version, span) else { return false };
        let changed = oldest.iter().filter(|id| !cell.oldest.contains(id)).count();
        // More than half: a key range covers a few tables of the oldest run, and those at its borders may be rewritten
        // for its neighbours.
        2 * changed > oldest.len()
    }

    /// Returns the number of entries added to the partitions of a span since they were built.
    fn grown(&self, span: &Span) -> f64 {
        let directory = self.directory.load();
        let within = |at: usize, start: &KeyBytes| {
            span.end.as_ref().is_none_or(|end| start < end)
                && directory.end(at).is_none_or(|end| *end > span.start)
        };
        let parts = directory.parts.iter().enumerate().filter(|(at, (start, _))| within(*at, start));
        let grown = parts.filter_map(|(_, (_, cell))| cell.partition.load_full());
        grown.map(|partition| partition.entries().saturating_sub(partition.built_entries()) as f64).sum()
    }

    /// Returns a span large enough for a partition: the tables of the oldest run that it touches, and more if these are small.
    fn widened(&self, version: &Version, span: Span) -> Span {
        let Some(run) = version.runs.last() else { return span };
        let tables = &version.tables[run.tables.clone()];
        let first = tables.partition_point(|table| !table.meta.largest.reaches(&span.start));
        let Some(first_table) = tables.get(first) else { return span };
        let start = if first == 0 { KeyBytes::default() } else { first_table.meta.smallest.clone() };
        let start = start.min(span.start.clone());
        let (mut last, mut keys) = (first, 0u64);
        let partition_keys = partition_keys(version);
        while last < tables.len() && keys < partition_keys {
            keys += tables[last].meta.entries;
            last += 1;
        }
        // A remainder too small for a partition is included.
        let rest: u64 = tables[last..].iter().map(|table| table.meta.entries).sum();
        let end = match tables.get(last) {
            Some(next) if rest >= partition_keys / 2 => Some(next.meta.smallest.clone()),
            _ => None,
        };
        Span { start, end }
    }

    /// Begins a build; from now on flushes are recorded.
    pub(crate) fn begin_build(&self, work: &mut Work) {
        debug_assert!(work.since.is_none(), "two builds at once");
        work.since = Some(Vec::new());
    }

    /// Abandons a build.
    pub(crate) fn end_build(&self, work: &mut Work) {
        work.since = None;
    }

    /// Builds the partitions of a span from the tables of a version. Takes no lock during the build.
    ///
    /// `levels` is the number of levels above the last that the tree uses.
    pub(crate) fn build(&self, version: &Version, span: Span, levels: usize) -> Result<Built, StorageError> {
        let started = sync::now();
        let Gathered { batch, from_data, unread } = gather(&version.tables, &span)?;
        unread.iter().for_each(|(table, why)| self.note_unread(table, why));
        let mut warnings = Vec::new();
        from_data.into_iter().for_each(|(table, damaged)| self.note_from_data(table, damaged));
        // The next rebuild will see as much growth as there was since the last one.
        let grown = self.grown(&span);
        let mut parts = Vec::new();
        let cuts = batch.len().div_ceil(partition_keys(version) as usize).max(1);
        let mut from = 0;
        let mut start = span.start.clone();
        for part in 1..=cuts {
            let mut to = batch.len() * part / cuts;
            // All entries of a key belong to one partition.
            while from < to && to < batch.len() && batch.get(to).0 == batch.get(to - 1).0 {
                to += 1;
            }
            if part < cuts && to <= from || to > batch.len() {
                continue;
            }
            let end = if to < batch.len() { Some(KeyBytes::from(batch.get(to).0)) } else { span.end.clone() };
            let within = Span { start: start.clone(), end: end.clone() };
            let mut entries = Batch::new();
            (from..to)
                .map(|at| batch.get(at))
                .for_each(|(key, digest, epochs)| entries.push(key, digest, epochs));
            let cell = self
                .build_cell(version, within, &entries, levels, grown / cuts as f64)
                .unwrap_or_else(|why| {
                    warnings.push(format!("a key range is read without the global filter: {why}"));
                    Cell::empty()
                });
            parts.push((start, cell));
            from = to;
            let Some(next) = end.filter(|_| to < batch.len()) else { break };
            start = next;
        }
        Ok(Built { span, parts, started, warnings })
    }

    fn build_cell(
        &self,
        version: &Version,
        span: Span,
        batch: &Batch,
        levels: usize,
        grown: f64,
    ) -> Result<Arc<Cell>, FilterError> {
        let (base, oldest) = oldest_run(version, &span).unwrap_or_default();
        let next = batch.iter().map(|(_, _, epochs)| epochs.hi).max().unwrap_or(base);
        // Enough digits for the levels above, and for twice the present number of flushes, if they fit into a code.
        let flushes = 2 * next.saturating_sub(base).max(8);
        let (mut bits, mut product, mut digits) = (0, 1u64, 0);
        for radix in &self.spec.radices {
            bits += u32::BITS - (radix - 1).leading_zeros();
            if bits > CODE_BITS || product >= flushes && digits >= levels.max(1) {
                break;
            }
            product = product.saturating_mul(u64::from(*radix));
            digits += 1;
        }
        // If they do not fit, the cell is rebuilt only after twice as many flushes: it may have a later base by then.
        let lasts_until = base.saturating_add(product.max(flushes) - 1);
        let spec = PartitionSpec {
            bits_per_key: self.spec.bits_per_key,
            growth: growth(version).max(1.0 + grown / batch.len().max(1) as f64).min(MOST_GROWTH),
            radices: self.spec.radices[..digits].to_vec(),
            map: self.spec.map,
        };
        let partition = ArcSwapOption::from_pointee(Partition::build(batch, base, &spec)?);
        let prefixes = match self.spec.prefixes {
            PrefixFilter::None => ArcSwapOption::empty(),
            known => {
                let spec = PartitionSpec { map: MapChoice::Digest, ..spec };
                ArcSwapOption::from_pointee(Partition::build(&prefixes_of(known, batch), base, &spec)?)
            }
        };
        let Span { start, end } = span;
        Ok(Arc::new(Cell { start, end, partition, prefixes, oldest, newest: next.into(), lasts_until }))
    }

    /// Adds what was flushed during the build. `work` must be held from now until the result is [installed](Self::install).
    pub(crate) fn catch_up(&self, work: &mut Work, built: &Built) {
        let parts = &built.parts[..];
        let since = work.since.take().unwrap_or_default();
        for table in &since {
            self.insert_within(parts, table, &since, &built.span);
        }
    }

    /// Makes the built partitions part of the current directory. The caller holds `work` and `state`, and publishes a
    /// version with the new directory before it releases either.
    pub(crate) fn install(&self, _work: &Work, built: Built) -> Replaced {
        let Built { span, parts, started, .. } = built;
        let old = self.directory.load_full();
        let now = Arc::new(old.with(&span.start, span.end.as_ref(), parts));
        self.directory.store(now.clone());
        self.counts.built.fetch_add(1, Relaxed);
        self.counts.build_ns.fetch_add(sync::since(started).as_nanos() as u64, Relaxed);
        let kept = |cell: &Arc<Cell>| now.parts.iter().any(|(_, other)| Arc::ptr_eq(cell, other));
        Replaced(old.parts.iter().map(|(_, cell)| cell).filter(|cell| !kept(cell)).cloned().collect())
    }

    /// Shrinks cells that only readers of older versions still use. Called after the version without them is published.
    pub(crate) fn shrink(&self, _work: &Work, replaced: Replaced) {
        for cell in replaced.0 {
            // Other than this reference, only directories hold a cell.
            if Arc::strong_count(&cell) > 1
                && let Some(partition) = &*cell.partition.load()
            {
                cell.partition.store(Some(Arc::new(partition.shrink())));
                if let Some(prefixes) = &*cell.prefixes.load() {
                    cell.prefixes.store(Some(Arc::new(prefixes.shrink())));
                }
                let mut old = self.old.lock();
                old.retain(|cell| cell.strong_count() > 0);
                old.push(Arc::downgrade(&cell));
            }
        }
    }

    /// Adds the keys of flushed tables that are published together. `work` must be held until the version with them is
    /// published. `tables` must include every table whose keys were added but which is not published yet: cuts would miss it.
    pub(crate) fn insert_flushed(&self, work: &mut Work, tables: &[Arc<OpenTable>]) {
        let directory = self.directory.load_full();
        let all = Span { start: KeyBytes::default(), end: None };
        for table in tables {
            self.insert_within(&directory.parts, table, tables, &all);
            if let Some(since) = &mut work.since {
                since.push(table.clone());
            }
        }
    }

    /// Adds the keys of tables that were published without. With `work` held. Returns `false` if a table cannot be read.
    pub(crate) fn insert_lacking(&self, _work: &mut Work, version: &Version) -> bool {
        let directory = self.directory.load_full();
        let all = Span { start: KeyBytes::default(), end: None };
        let lacking = self.lacking(version);
        if !lacking
            .iter()
            .all(|table| self.insert_within(&directory.parts, table, std::slice::from_ref(table), &all))
        {
            return false;
        }
        // Excludes epochs of tables that this version does not have yet, and of tables found to be damaged.
        let wanted = self.wanted(version);
        let done = |epoch: &u64| {
            wanted.contains(epoch) && lacking.iter().any(|table| holds(&table.meta.epochs, *epoch))
        };
        self.missing.lock().retain(|epoch| !done(epoch));
        true
    }

    /// Adds a table's keys within a span to the directory's cells; the table is one of the `coming` ones. If its keys
    /// cannot be read, the filter keeps lacking the table; returns `false` if a later attempt may succeed.
    fn insert_within(
        &self,
        parts: &[(KeyBytes, Arc<Cell>)],
        table: &Arc<OpenTable>,
        coming: &[Arc<OpenTable>],
        span: &Span,
    ) -> bool {
        let started = sync::now();
        let metas = self.alive(coming);
        let (mut at, mut batch, mut count) = (0, Batch::new(), 0u64);
        let mut put = |at: usize, batch: &mut Batch| {
            let cell = &parts[at].1;
            count += batch.len() as u64;
            if let Some(partition) = &*cell.partition.load()
                && !batch.is_empty()
            {
                let cuts = cell.cuts(&metas);
                if let Some(prefixes) = &*cell.prefixes.load() {
                    let batch = prefixes_of(self.spec.prefixes, batch);
                    cell.prefixes.store(Some(Arc::new(prefixes.insert(&batch, &cuts))));
                }
                let mut grown = partition.insert(batch, &cuts);
                // With skewed inserts, blocks that receive none keep long codes: large ones are collected now and then.
                let usual = grown.entries() as usize / grown.blocks().max(1) + 1;
                if table.meta.id.is_multiple_of(COLLECT_EVERY) && grown.largest_block() > LARGE * usual {
                    grown = grown.collect(&cuts, LARGE * usual);
                }
                cell.partition.store(Some(Arc::new(grown)));
                let newest = batch.iter().map(|(_, _, epochs)| epochs.hi).max().unwrap_or(0);
                cell.newest.fetch_max(newest, Relaxed);
            }
            *batch = Batch::new();
        };
        let read = each_key(table, span, &mut |key, digest, epochs| {
            while parts.get(at + 1).is_some_and(|(start, _)| &start[..] <= key) {
                put(at, &mut batch);
                at += 1;
            }
            batch.push(key, digest, epochs);
        });
        put(at, &mut batch);
        self.counts.inserted.fetch_add(count, Relaxed);
        self.counts.insert_ns.fetch_add(sync::since(started).as_nanos() as u64, Relaxed);
        match read {
            Ok(Source::List) => {}
            Ok(source) => self.note_from_data(table.meta.id, source == Source::DamagedList),
            Err(damage @ StorageError::Corrupt(_)) => self.note_unread(table, &damage),
            Err(io) => {
                log::warn!("table {} is read without the global filter for now: {io}", table.meta.id);
                self.note_incomplete(table);
                return false;
            }
        }
        true
    }

    /// Counts a table whose keys were read from its data.
    fn note_from_data(&self, table: TableId, damaged: bool) {
        self.counts.from_data.fetch_add(1, Relaxed);
        if damaged {
            self.warnings.add(table, || damaged_list(table));
        }
    }
}

/// Returns the factor by which a partition's entries grow before it is rebuilt. Linear in the tables.
fn growth(version: &Version) -> f64 {
    let entries = |tables: &[Arc<OpenTable>]| tables.iter().map(|table| table.meta.entries).sum::<u64>();
    let all = entries(&version.tables);
    let oldest = version.runs.last().map_or(0, |run| entries(&version.tables[run.tables.clone()]));
    // As much as lies above the oldest run now will be added again; for a young or stacked tree nothing better is known.
    let above = (all - oldest) as f64 / oldest.max(1) as f64;
    (1.0 + above.max(0.1)).min(MOST_GROWTH)
}

/// Reports whether a table of the version may have keys in the span.
fn is_inhabited(version: &Version, span: &Span) -> bool {
    // The oldest run is the most likely one.
    version.runs.iter().rev().any(|run| {
        let first = version.first_reaching(&run.tables, &span.start);
        first < run.tables.end && span.overlaps(&version.tables[first])
    })
}

/// Returns the contiguous key ranges around number `at` in which the version has no tables.
fn uninhabited(version: &Version, directory: &Directory, at: usize) -> Span {
    let is_empty = |at: &usize| !is_inhabited(version, &directory.span(*at));
    let first = (0..at).rev().take_while(is_empty).last().unwrap_or(at);
    let last = (at + 1..directory.parts.len()).take_while(is_empty).last().unwrap_or(at);
    Span { start: directory.start(first).clone(), end: directory.end(last).cloned() }
}

/// Returns the number of keys per partition in this tree: not many more than a table has, since tables are the unit of change.
fn partition_keys(version: &Version) -> u64 {
    let entries: u64 = version.tables.iter().map(|table| table.meta.entries).sum();
    (entries / version.tables.len().max(1) as u64).clamp(FEWEST_KEYS, PARTITION_KEYS)
}

/// Returns the known prefixes of a batch's keys as a batch, each once for all keys with the same epochs.
fn prefixes_of(known: PrefixFilter, batch: &Batch) -> Batch {
    let mut all: Vec<(&[u8], Epochs)> = Vec::new();
    for (key, _, epochs) in batch.iter() {
        for prefix in known.prefixes(key) {
            // Sorted keys repeat the prefix of the previous key, of either length.
            if !all.iter().rev().take(2).any(|last| *last == (prefix, epochs)) {
                all.push((prefix, epochs));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    let mut prefixes = Batch::new();
    all.into_iter().for_each(|(prefix, epochs)| prefixes.push(prefix, Digest::of(prefix), epochs));
    prefixes
}

/// Cells that the current directory no longer uses.
pub(crate) struct Replaced(Vec<Arc<Cell>>);
