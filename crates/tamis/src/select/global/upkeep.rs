//! Maintenance of the filter: adds flushed keys, and builds key ranges.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use tamis_base::key::KeyBytes;
use tamis_base::meta::TableMeta;
use tamis_filter::global::{Batch, Epoch, Epochs, MapChoice, Partition, PartitionSpec, QueryMix};
use tamis_filter::{Digest, FilterError};

use super::cell::{Cell, SavedImage};
use super::chosen::{Chosen, Shares};
use super::gather::{Gathered, gather, oldest_run};
use super::grf::{Grf, Work};
use super::span::{Span, holds};
use crate::error::StorageError;
use crate::options::PrefixFilter;
use crate::select::queries::Queries;
use crate::sync;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// Keys per partition: few enough that a flush copies it within the cache, enough that the
/// directory stays small.
const PARTITION_KEYS: u64 = 1 << 16;
/// The minimum keys per partition, however small the tables are. The fixed-size parts of a
/// partition are then a hundredth of it.
pub(super) const FEWEST_KEYS: u64 = 1 << 13;

/// About so many keys are in memory at once while they are added.
const GATHERED_KEYS: u64 = 1 << 18;

/// Approximate bytes of a cell and its place in the directory.
const CELL_BYTES: usize = 320;
/// The most that these bytes may take of a partition's bits.
const MOST_FOR_CELL: f64 = 0.03;

/// The tables, and epochs of tables, whose keys the filter lacks at one moment.
#[derive(Debug)]
pub(crate) struct Outside {
    young: Vec<Arc<OpenTable>>,
    missing: Vec<Epoch>,
}

/// What partitions were made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The keys of tables.
    Tables,
    /// So many images.
    Images(u64),
    /// The partitions so far, with shorter codes.
    Codes,
}

/// Unpublished partitions for a key range.
#[derive(Debug)]
pub(crate) struct Built {
    pub(super) span: Span,
    pub(super) parts: Vec<(KeyBytes, Arc<Cell>)>,
    pub(super) started: Instant,
    /// Problems that did not stop the build.
    pub(crate) warnings: Vec<String>,
    pub(super) source: Source,
}

impl Built {
    /// Reports whether all of it was made. What no image has is still to be built.
    pub(crate) fn is_complete(&self) -> bool {
        self.source != Source::Tables || self.parts.iter().all(|(_, cell)| cell.partition.load().is_some())
    }
}

impl Grf {
    /// Returns the missing epochs that can be added: those that no unreadable table holds.
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
    pub(super) fn lacking<'v>(&self, version: &'v Version) -> Vec<&'v Arc<OpenTable>> {
        let wanted = self.wanted(version);
        let unseen = self.unseen.lock().clone();
        if wanted.is_empty() && unseen.is_empty() {
            return Vec::new();
        }
        let unread = self.unread.lock().clone();
        let lacks = |table: &&Arc<OpenTable>| {
            let id = table.meta.id;
            unseen.contains(&id) && !unread.contains(&id)
                || wanted.iter().any(|epoch| holds(&table.meta.epochs, *epoch))
        };
        version.tables.iter().filter(lacks).collect()
    }

    /// Builds the partitions of a span from the tables of a version. Takes no lock during the
    /// build.
    pub(crate) fn build(&self, version: &Version, span: Span) -> Result<Built, StorageError> {
        let started = sync::now();
        let Gathered { batch, read, unread } = gather(&version.tables, &span)?;
        unread.iter().for_each(|(table, why)| self.note_unread(table, why));
        let mut warnings = Vec::new();
        read.into_iter().for_each(|(table, source, keys)| self.notes.note_read(table, source, keys));
        let mut parts = Vec::new();
        let mut from = 0;
        let mut start = span.start.clone();
        for to in borders(&batch, partition_keys(version) as usize) {
            let end = if to < batch.len() { Some(KeyBytes::from(batch.get(to).0)) } else { span.end.clone() };
            let within = Span { start: start.clone(), end: end.clone() };
            let mut entries = Batch::new();
            (from..to)
                .map(|at| batch.get(at))
                .for_each(|(key, digest, epochs)| entries.push(key, digest, epochs));
            let cell = self.build_cell(version, within, &entries).unwrap_or_else(|why| {
                warnings.push(format!("a key range is read without the global filter: {why}"));
                Cell::empty()
            });
            parts.push((start, cell));
            from = to;
            let Some(next) = end.filter(|_| to < batch.len()) else { break };
            start = next;
        }
        Ok(Built { span, parts, started, warnings, source: Source::Tables })
    }

    /// Returns the read mix of a key range: its recent queries, in their proportion among all
    /// reads.
    fn mix(&self, span: &Span) -> (QueryMix, Shares) {
        let Queries { absent, ranges, seeks, rates, .. } = self.queries.snapshot();
        let within = |key: &KeyBytes| *key >= span.start && span.end.as_ref().is_none_or(|end| key < end);
        let absent = absent.into_iter().filter(within).map(|key| key.to_vec()).collect();
        let ranges = ranges.into_iter().map(|range| (range.start, range.end));
        let seeks = seeks.into_iter().map(|start| (start, None));
        let ranges = ranges.chain(seeks).filter(|(start, _)| within(start));
        let ranges = ranges.map(|(start, end)| (start.to_vec(), end.map(|end| end.to_vec()))).collect();
        let shares = Shares::of(&rates);
        let needs_order = self.spec.prefixes != PrefixFilter::None;
        (QueryMix { range_share: shares.sum(), points: absent, ranges, needs_order }, shares)
    }

    fn build_cell(&self, version: &Version, span: Span, batch: &Batch) -> Result<Arc<Cell>, FilterError> {
        let (base, oldest) = oldest_run(version, &span).unwrap_or_default();
        let (mix, shares) = self.mix(&span);
        let chosen = {
            let directory = self.directory.load();
            let within = |at: &usize| directory.span(*at).meets(&span);
            let old = (0..directory.parts.len()).filter(within).map(|at| &*directory.cell(at).chosen);
            Chosen::now(shares, self.queries.rates().1, old)
        };
        // Subtract the directory's share of the bits, within reason: a hundred keys do not pay for
        // it.
        let directory = (CELL_BYTES * 8) as f64 / batch.len().max(1) as f64;
        let bits_per_key = self.spec.bits_per_key - directory.min(MOST_FOR_CELL * self.spec.bits_per_key);
        let spec = PartitionSpec { bits_per_key, map: self.spec.map, mix };
        let partition = ArcSwapOption::from_pointee(Partition::build(batch, base, &spec)?);
        let prefixes = match self.spec.prefixes {
            PrefixFilter::None => ArcSwapOption::empty(),
            known => {
                let spec = PartitionSpec { map: MapChoice::Digest, ..spec };
                ArcSwapOption::from_pointee(Partition::build(&prefixes_of(known, batch), base, &spec)?)
            }
        };
        let Span { start, end } = span;
        let chosen = Arc::new(chosen);
        let (collections, is_outdated, saved) = (0, false, SavedImage::default());
        Ok(Arc::new(Cell {
            start,
            end,
            partition,
            prefixes,
            oldest,
            collections,
            is_outdated,
            chosen,
            saved,
        }))
    }

    /// Puts the partitions that were built from a version into the current directory. The caller
    /// holds `work` and `state`, and publishes a version with the new directory before it releases
    /// either.
    pub(crate) fn install(&self, _work: &Work, version: &Version, built: Built) -> Replaced {
        let all = Span { start: KeyBytes::default(), end: None };
        // Of what is added to images, some may not have been readable.
        let is_whole = built.source == Source::Tables && built.span == all && built.is_complete();
        let Built { span, parts, started, source, .. } = built;
        let (old, collected) = (self.directory.load_full(), parts.len() as u64);
        let now = Arc::new(old.with(&span.start, span.end.as_ref(), parts));
        self.directory.store(now.clone());
        let count = |times: &AtomicU64, ns: &AtomicU64, by| {
            times.fetch_add(by, Relaxed);
            ns.fetch_add(sync::since(started).as_nanos() as u64, Relaxed);
        };
        match source {
            Source::Images(images) => {
                self.loaded.store(true, Relaxed);
                self.counts.images_loaded.fetch_add(images, Relaxed);
            }
            Source::Tables => count(&self.counts.built, &self.counts.build_ns, 1),
            Source::Codes => count(&self.counts.collected, &self.counts.collect_ns, collected),
        }
        if is_whole {
            let Outside { mut young, missing } = self.outside();
            young.retain(|young| version.tables.iter().any(|table| Arc::ptr_eq(table, young)));
            // A young table's epoch is its own.
            self.note_added(version, &missing, &young);
            self.young.lock().forget(&young);
        }
        let kept = |cell: &Arc<Cell>| now.parts.iter().any(|(_, other)| Arc::ptr_eq(cell, other));
        Replaced(old.parts.iter().map(|(_, cell)| cell).filter(|cell| !kept(cell)).cloned().collect())
    }

    /// Shrinks cells that only readers of older versions still use. Call after publishing the
    /// version without them.
    pub(crate) fn shrink(&self, _work: &Work, replaced: Replaced) {
        for cell in replaced.0 {
            // Only this reference and directories hold a cell.
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

    /// Returns what the filter lacks. Call under `state`, under which the version is read, too: every
    /// table that was noted is then in it, or has been merged.
    pub(crate) fn outside(&self) -> Outside {
        Outside { young: self.young.lock().tables(), missing: self.missing.lock().clone() }
    }

    /// Adds the keys of tables published without them, as far as they were `outside` together with
    /// this version. Call with `work` held. Returns `false` if a table cannot be read.
    pub(crate) fn insert_lacking(&self, work: &Work, version: &Version, outside: Outside) -> bool {
        let missing = outside.missing.clone();
        if !self.insert_young(work, version, outside) {
            return false;
        }
        let lacking: Vec<_> = self.lacking(version).into_iter().cloned().collect();
        if !self.insert_all(&lacking) {
            return false;
        }
        self.note_added(version, &missing, &lacking);
        // From now on, unreadable tables lack their last epochs.
        self.unseen.lock().retain(|id| !lacking.iter().any(|table| table.meta.id == *id));
        true
    }

    /// The same for young tables only, even those that were merged meanwhile: the merged tables have
    /// more keys.
    pub(crate) fn insert_young(&self, _work: &Work, version: &Version, outside: Outside) -> bool {
        let Outside { young, missing } = outside;
        if self.insert_all(&young) {
            self.note_added(version, &missing, &young);
            self.young.lock().forget(&young);
            return true;
        }
        // One of them must not hold up the others. If it was merged, the merged table is read.
        let (added, failed): (Vec<_>, Vec<_>) =
            young.into_iter().partition(|table| self.insert_all(std::slice::from_ref(table)));
        self.note_added(version, &missing, &added);
        let is_current = |table: &Arc<OpenTable>| version.tables.iter().any(|one| Arc::ptr_eq(one, table));
        let (current, merged): (Vec<_>, Vec<_>) = failed.into_iter().partition(is_current);
        let mut young = self.young.lock();
        young.forget(&added);
        young.forget(&merged);
        current.is_empty()
    }

    fn insert_all(&self, tables: &[Arc<OpenTable>]) -> bool {
        let directory = self.directory.load_full();
        let all = Span { start: KeyBytes::default(), end: None };
        self.insert(&directory.parts, tables, &all, &|_, _| true)
    }

    /// Forgets those of the epochs, which were `missing` together with the version, that these
    /// tables hold. Later ones stay, whatever the tables hold: a merge of an ingested table may hold
    /// the epoch of a flush that is not published yet. So do epochs of tables that could not be read.
    fn note_added(&self, version: &Version, missing: &[Epoch], tables: &[Arc<OpenTable>]) {
        let unread = self.unread.lock().clone();
        let (read, damaged): (Vec<_>, Vec<_>) =
            tables.iter().partition(|table| !unread.contains(&table.meta.id));
        let holds =
            |tables: &[&Arc<OpenTable>], epoch| tables.iter().any(|table| holds(&table.meta.epochs, epoch));
        let wanted = self.wanted(version);
        let done = |epoch: &Epoch| {
            missing.contains(epoch)
                && wanted.contains(epoch)
                && holds(&read, *epoch)
                && !holds(&damaged, *epoch)
        };
        self.missing.lock().retain(|epoch| !done(epoch));
    }

    /// Adds the keys that tables have within a span to the directory's cells: those that are
    /// `wanted`, by the number of the part and the epochs of the key. If keys of a table cannot be
    /// read, the filter keeps lacking it. Returns `false` if a later attempt may succeed.
    ///
    /// Cost: copies each cell that gets a key once, however many tables it comes from.
    pub(super) fn insert(
        &self,
        parts: &[(KeyBytes, Arc<Cell>)],
        tables: &[Arc<OpenTable>],
        span: &Span,
        wanted: &dyn Fn(usize, Epochs) -> bool,
    ) -> bool {
        let started = sync::now();
        let metas = self.alive(tables);
        let first = parts.partition_point(|(start, _)| *start <= span.start).saturating_sub(1);
        let past = span.end.as_ref().map_or(parts.len(), |end| parts.partition_point(|(at, _)| at < end));
        let entries: u64 = tables.iter().map(|table| table.meta.entries).sum();
        let groups = (entries / GATHERED_KEYS + 1).min(usize::MAX as u64) as usize;
        let at_once = ((past - first) / groups).max(1);
        let mut added = 0;
        for from in (first..past).step_by(at_once) {
            let to = (from + at_once).min(past);
            let end = parts.get(to).map(|(start, _)| start.clone());
            let end = if to == past { span.end.clone() } else { end };
            if parts[from..to].iter().all(|(_, cell)| cell.partition.load().is_none()) {
                // Built from tables that have the keys.
                continue;
            }
            let within = Span { start: parts[from].0.clone().max(span.start.clone()), end };
            let Gathered { batch, read, unread } = match gather(tables, &within) {
                Ok(gathered) => gathered,
                Err(io) => {
                    log::warn!("tables are read without the global filter for now: {io}");
                    tables.iter().for_each(|table| self.note_incomplete(table));
                    return false;
                }
            };
            read.into_iter().for_each(|(table, source, keys)| self.notes.note_read(table, source, keys));
            unread.iter().for_each(|(table, why)| self.note_unread(table, why));
            let mut at = 0;
            for part in from..to {
                let mut of_part = Batch::new();
                let end = parts.get(part + 1).map(|(start, _)| &start[..]);
                while at < batch.len() && end.is_none_or(|end| batch.get(at).0 < end) {
                    let (key, digest, epochs) = batch.get(at);
                    if wanted(part, epochs) {
                        of_part.push(key, digest, epochs);
                    }
                    at += 1;
                }
                added += of_part.len() as u64;
                self.insert_into(&parts[part].1, &of_part, &metas);
            }
        }
        self.counts.inserted.fetch_add(added, Relaxed);
        self.counts.insert_ns.fetch_add(sync::since(started).as_nanos() as u64, Relaxed);
        true
    }

    fn insert_into(&self, cell: &Cell, batch: &Batch, metas: &[Arc<TableMeta>]) {
        if batch.is_empty() {
            return;
        }
        let Some(partition) = &*cell.partition.load() else { return };
        let cuts = cell.cuts(metas);
        if let Some(prefixes) = &*cell.prefixes.load() {
            let batch = prefixes_of(self.spec.prefixes, batch);
            cell.prefixes.store(Some(Arc::new(prefixes.insert(&batch, &cuts))));
        }
        cell.partition.store(Some(Arc::new(partition.insert(batch, &cuts))));
        cell.saved.add(batch.len() as u64);
    }
}

/// Returns the number of keys per partition in this tree: not many more than a table has, since
/// tables are the unit of change.
pub(super) fn partition_keys(version: &Version) -> u64 {
    let entries: u64 = version.tables.iter().map(|table| table.meta.entries).sum();
    (entries / version.tables.len().max(1) as u64).clamp(FEWEST_KEYS, PARTITION_KEYS)
}

/// Returns where to cut a batch into partitions of up to about `most` keys, and its end. Keys with
/// different beginnings are cut apart if the eight bytes after the common beginning cannot tell
/// them apart ([`beginnings`]). All entries of a key stay together.
fn borders(batch: &Batch, most: usize) -> Vec<usize> {
    let mut borders = Vec::new();
    for group in beginnings(batch) {
        let parts = group.len().div_ceil(most).max(1);
        for part in 1..=parts {
            let mut to = group.start + group.len() * part / parts;
            while to < batch.len() && to > 0 && batch.get(to).0 == batch.get(to - 1).0 {
                to += 1;
            }
            if to > borders.last().copied().unwrap_or(0) {
                borders.push(to);
            }
        }
    }
    if borders.is_empty() {
        borders.push(0);
    }
    borders
}

/// Divides a batch by the beginnings of its keys. A group of keys is cut off if it shares two bytes
/// more than all keys share, is enough for a partition, and has keys too long for a map to see
/// whole. The map of the group then sees two bytes more.
fn beginnings(batch: &Batch) -> Vec<Range<usize>> {
    let key = |at: usize| batch.get(at).0;
    let shared = |range: &Range<usize>| {
        let ends = key(range.start).iter().zip(key(range.end - 1));
        ends.take_while(|(a, b)| a == b).count()
    };
    let mut found = Vec::new();
    let mut open: Vec<Range<usize>> = std::iter::once(0..batch.len()).collect();
    while let Some(range) = open.pop() {
        let fewest = FEWEST_KEYS as usize / 2;
        let cut = Some(&range).filter(|range| range.len() >= 2 * fewest).and_then(|range| {
            let common = shared(range);
            let longest = key(range.start).len().max(key(range.end - 1).len());
            let byte = |at: usize| key(at).get(common);
            let place = |ends: &dyn Fn(usize) -> bool| {
                let (mut low, mut high) = (range.start, range.end);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if ends(middle) { high = middle } else { low = middle + 1 }
                }
                low
            };
            // After the first beginning, and before the last one.
            let first = place(&|at| byte(at) != byte(range.start));
            let last = place(&|at| byte(at) == byte(range.end - 1));
            // The part cut off must share a longer beginning; the rest may be divided further.
            let pays = |off: Range<usize>, rest: Range<usize>| {
                off.len().min(rest.len()) >= fewest && shared(&off) >= common + 2
            };
            if longest <= common + 8 {
                None
            } else if pays(range.start..first, first..range.end) {
                Some(first)
            } else {
                Some(last).filter(|_| pays(last..range.end, range.start..last))
            }
        });
        match cut {
            Some(cut) => open.extend([cut..range.end, range.start..cut]),
            None => found.push(range),
        }
    }
    found
}

/// Returns the known prefixes of a batch's keys as a batch, each once per set of epochs.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(keys: impl IntoIterator<Item = String>) -> Batch {
        let mut keys: Vec<String> = keys.into_iter().collect();
        keys.sort_unstable();
        let mut batch = Batch::new();
        for key in keys {
            batch.push(key.as_bytes(), Digest::of(key.as_bytes()), Epochs { lo: 0, hi: 1 });
        }
        batch
    }

    #[test]
    fn partitions_end_where_beginnings_do() {
        let names =
            |beginning: &'static str, keys: u32| (0..keys).map(move |i| format!("{beginning}/{i:09}"));
        let most = 1 << 16;
        assert_eq!(borders(&Batch::new(), most), [0]);
        let two = || names("aa", 30_000).chain(names("bb", 20_000));
        assert_eq!(borders(&batch(two()), most), [30_000, 50_000]);
        let three = batch(two().chain(names("cc/more", 5000)));
        assert_eq!(borders(&three, most), [30_000, 50_000, 55_000]);
        assert_eq!(borders(&three, 16_000), [15_000, 30_000, 40_000, 50_000, 55_000]);
        // Too few of one kind, or keys short enough for a map to see whole.
        assert_eq!(borders(&batch(names("aa", 30_000).chain(names("bb", 300))), most), [30_300]);
        let short = |beginning: &'static str| (0..20_000).map(move |i| format!("{beginning}{i:06}"));
        assert_eq!(borders(&batch(short("aa").chain(short("bb"))), most), [40_000]);
        // Entries of a key stay together.
        let same = batch((0..20_000).map(|i| format!("key {:09}", i / 12_000)));
        assert_eq!(borders(&same, 10_000), [12_000, 20_000]);
    }
}
