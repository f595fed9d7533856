//! The guards of a tree, and the groups between them.
//!
//! A guard of a level is a key whose digest ends in at least the level's number of zero bits. The
//! known guards follow from where tables start: a merge cuts its output before every guard that it
//! meets, so every known guard starts a table, at its own level or deeper. Nothing else is
//! recorded, and a guard whose key was deleted everywhere is forgotten.
//!
//! Between two adjacent guards of a level lies a [`Group`], the unit of compaction. Tables left by
//! another policy, or moved here unchanged, may straddle guards; such a table belongs to the group
//! it starts in, and counts as one more table in the groups it reaches into.

use std::cmp::Ordering;

use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_filter::Digest;

use crate::compaction::plan::{OutputRun, Reason};
use crate::compaction::shape::{KeyRange, LevelShape, Shape, TableShape};

/// The table starts that are guards of some level, by key.
#[derive(Debug)]
pub(super) struct Guards<'a> {
    /// Key, number of zero bits at the end of its digest, and level of the table.
    starts: Vec<(&'a KeyBytes, u32, usize)>,
    /// The number of bits that make a guard, per level.
    bits: Vec<u32>,
}

impl<'a> Guards<'a> {
    /// O(tables · log guards).
    pub(super) fn of(shape: &'a Shape, bits: Vec<u32>) -> Guards<'a> {
        let fewest = bits.iter().copied().min().unwrap_or(0);
        let mut starts: Vec<_> = shape
            .levels
            .iter()
            .enumerate()
            .skip(1)
            .flat_map(|(n, level)| level.tables().map(move |table| (n, &table.meta.smallest)))
            .map(|(n, key)| (key, Digest::of(key).get().trailing_zeros(), n))
            .filter(|(_, zeros, _)| *zeros >= fewest)
            .collect();
        // Of tables with the same start, the deepest represents all: it makes a guard at every
        // level above, too.
        starts.sort_unstable_by(|a, b| a.0.cmp(b.0).then(b.2.cmp(&a.2)));
        starts.dedup_by(|a, b| a.0 == b.0);
        Guards { starts, bits }
    }

    /// Returns the number of zero bits that make a guard of `level`.
    pub(super) fn bits(&self, level: usize) -> u32 {
        self.bits.get(level).or(self.bits.last()).copied().unwrap_or(0)
    }

    /// Returns the known guards of `level`, ascending: those with tables there or deeper.
    pub(super) fn at(&self, level: usize) -> impl Iterator<Item = &'a KeyBytes> + '_ {
        let bits = self.bits(level);
        self.starts.iter().filter(move |(_, zeros, n)| *zeros >= bits && *n >= level).map(|(key, _, _)| *key)
    }

    /// Returns the known guards of `level` that split `range`.
    pub(super) fn within(&self, level: usize, range: &KeyRange) -> Vec<KeyBytes> {
        let bits = self.bits(level);
        let from = self.starts.partition_point(|(key, _, _)| **key <= range.smallest);
        self.starts[from..]
            .iter()
            .take_while(|(key, _, _)| range.largest.reaches(key))
            .filter(|(_, zeros, n)| *zeros >= bits && *n >= level)
            .map(|(key, _, _)| (*key).clone())
            .collect()
    }
}

/// The tables of a level that start between two borders.
#[derive(Debug)]
pub(super) struct Group {
    /// The start of the first table.
    pub(super) from: KeyBytes,
    /// The start of the next group; `None` in the last one.
    pub(super) until: Option<KeyBytes>,
    /// Bytes of the tables that start here.
    pub(super) bytes: u64,
    /// The greatest number of tables over one key.
    pub(super) depth: usize,
    /// The runs that have tables here, including tables that reach in, and their bytes. Runs are
    /// given as positions in the level, newest first.
    pub(super) runs: Vec<(usize, u64)>,
    /// A running job reads a table that starts here.
    pub(super) busy: bool,
}

impl Group {
    /// Returns the keys from this group's start to the start of the next.
    pub(super) fn range(&self) -> KeyRange {
        let largest = self.until.clone().map_or(KeyEnd::Unbounded, KeyEnd::Excluded);
        KeyRange { smallest: self.from.clone(), largest }
    }

    /// All bytes divided by those of the largest run. A run holds each key once, so this bounds how
    /// many times the group's live data is stored (deletes aside).
    pub(super) fn amplification(&self) -> f64 {
        let total: u64 = self.runs.iter().map(|(_, bytes)| bytes).sum();
        let largest = self.runs.iter().map(|(_, bytes)| *bytes).max().unwrap_or(1);
        total as f64 / largest as f64
    }

    fn count(&mut self, run: usize, bytes: u64) {
        match self.runs.binary_search_by_key(&run, |(run, _)| *run) {
            Ok(at) => self.runs[at].1 += bytes,
            Err(at) => self.runs.insert(at, (run, bytes)),
        }
    }
}

/// Returns the groups of a level between `borders` (ascending), split further where one would hold
/// more than `limit` bytes: a level left by another policy has no known guards yet. O(tables ·
/// (runs + log tables)).
pub(super) fn groups<'a>(
    level: &LevelShape,
    borders: impl Iterator<Item = &'a KeyBytes>,
    limit: u64,
) -> Vec<Group> {
    let mut tables: Vec<(&TableShape, usize)> =
        level.runs.iter().enumerate().flat_map(|(run, r)| r.tables.iter().map(move |t| (t, run))).collect();
    tables.sort_by(|a, b| a.0.meta.smallest.cmp(&b.0.meta.smallest));
    let mut borders = borders.peekable();
    let mut groups: Vec<Group> = Vec::new();
    // The tables over the key that the sweep has reached: at most one per run.
    let mut open: Vec<(&TableShape, usize)> = Vec::new();
    for (table, run) in tables {
        let start = &table.meta.smallest;
        open.retain(|(other, _)| other.meta.largest.reaches(start));
        let mut cut = groups.is_empty();
        while borders.next_if(|border| *border <= start).is_some() {
            cut = true;
        }
        // Two tables with the same start stay together, whatever their size.
        let last = groups.last();
        cut |= last.is_some_and(|group| {
            let full = group.bytes >= limit && (open.is_empty() || group.bytes >= 2 * limit);
            full && group.from < *start && open.iter().all(|(other, _)| other.meta.smallest < *start)
        });
        if cut {
            if let Some(last) = groups.last_mut() {
                last.until = Some(start.clone());
            }
            let mut group =
                Group { from: start.clone(), until: None, bytes: 0, depth: 0, runs: Vec::new(), busy: false };
            open.iter().for_each(|(other, run)| group.count(*run, other.bytes()));
            groups.push(group);
        }
        open.push((table, run));
        let group = groups.last_mut().expect("the first table starts one");
        group.bytes += table.bytes();
        group.depth = group.depth.max(open.len());
        group.busy |= table.busy;
        group.count(run, table.bytes());
    }
    groups
}

/// A group that is due.
pub(super) struct Due {
    pub(super) level: usize,
    pub(super) group: usize,
    /// Above 1: over its limit by that factor.
    pub(super) score: f64,
    pub(super) reason: Reason,
}

impl Due {
    /// Compares by urgency, the most urgent first.
    pub(super) fn urgency(&self, other: &Due) -> Ordering {
        other.score.total_cmp(&self.score)
    }
}

/// The runs of a level by number, newest first, with their tables; includes runs that running jobs
/// will recreate.
pub(super) fn runs_to_be(shape: &Shape, level: usize) -> Vec<(u64, &[TableShape])> {
    let mut runs: Vec<(u64, &[TableShape])> =
        shape.runs(level).iter().map(|run| (run.id, &run.tables[..])).collect();
    for job in shape.running.iter().filter(|job| job.output_level == level) {
        if let OutputRun::Into(id) = job.output
            && let Err(at) = runs.binary_search_by(|(run, _)| id.cmp(run))
        {
            runs.insert(at, (id, &[]));
        }
    }
    runs
}

/// The run of a level that is, or will be, older than all others.
pub(super) fn oldest_run(shape: &Shape, level: usize) -> Option<u64> {
    runs_to_be(shape, level).last().map(|(id, _)| *id)
}

/// Returns the oldest run of `level` such that neither it nor a newer one has a table in `range`.
/// No running job that writes to the level may overlap the range.
pub(super) fn place(shape: &Shape, level: usize, range: &KeyRange) -> OutputRun {
    let runs = runs_to_be(shape, level);
    let free = runs.iter().take_while(|(_, tables)| range.overlap(tables).is_empty());
    free.last().map_or(OutputRun::New, |(id, _)| OutputRun::Into(*id))
}
