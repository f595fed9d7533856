//! Shared by the policies that keep only the newest data: runs by age, dropping from the oldest,
//! and merging neighbours in age.
//!
//! Invariants of every plan:
//! * A drop takes whole runs, the oldest of the tree, with everything that is older: nothing hidden
//!   can reappear.
//! * A merge takes whole runs of level 0 that are adjacent in age, and its outputs join the newest
//!   of them: no run passes another, whatever the clocks say.
//! * No input is busy. Two jobs never share a run, so their outputs never meet in one.

use std::time::Duration;

use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::settings::Settings;
use crate::compaction::shape::{KeyRange, RunShape, Shape, TableShape};

/// How much data is kept.
#[derive(Clone, Debug)]
pub(super) struct Retention {
    /// Limit on the bytes of tables and of their values in blob files; the oldest beyond it are
    /// dropped.
    pub(super) retain_bytes: u64,
    /// How long entries live. Needed besides [`Shape::expired`] for tables in which merges have
    /// reset all sequence numbers to 0: only their flush time tells their age.
    pub(super) time_to_live: Option<Duration>,
}

/// A run as seen by these policies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aged<'a> {
    pub(super) level: usize,
    pub(super) run: &'a RunShape,
    pub(super) bytes: u64,
    /// The same with the values in blob files: what it takes on disk.
    pub(super) whole_bytes: u64,
    /// When its oldest and its newest data was flushed, in seconds since 1970; 0 if unknown.
    pub(super) written: (u64, u64),
}

impl Aged<'_> {
    pub(super) fn busy(&self) -> bool {
        self.run.tables.iter().any(|table| table.busy)
    }

    fn may_be_dropped(&self) -> bool {
        self.run.tables.iter().all(|table| table.free)
    }
}

/// Returns all runs, oldest first: from the deepest level's oldest run to level 0's newest.
/// O(tables).
pub(super) fn by_age(shape: &Shape) -> Vec<Aged<'_>> {
    let levels = shape.levels.iter().enumerate().rev();
    levels
        .flat_map(|(level, l)| l.runs.iter().rev().map(move |run| (level, run)))
        .filter(|(_, run)| !run.tables.is_empty())
        .map(|(level, run)| {
            let written = || run.tables.iter().map(|table| table.meta.extra.written);
            let oldest = written().map(|span| span.0).min().unwrap_or(0);
            let newest = written().map(|span| span.1).max().unwrap_or(0);
            let whole_bytes = run.tables.iter().map(|table| table.meta.whole_bytes()).sum();
            Aged { level, run, bytes: run.bytes(), whole_bytes, written: (oldest, newest) }
        })
        .collect()
}

impl Retention {
    pub(super) fn new(settings: &Settings) -> Retention {
        Retention { retain_bytes: settings.retain_bytes, time_to_live: settings.time_to_live }
    }

    fn is_expired(&self, shape: &Shape, table: &TableShape) -> bool {
        let (max_seq, written) = (table.meta.max_seq, table.meta.extra.written.1);
        if max_seq > 0 {
            return max_seq <= shape.expired;
        }
        let lives_until = |ttl: Duration| written.saturating_add(ttl.as_secs()).saturating_add(1);
        written > 0 && self.time_to_live.is_some_and(|ttl| lives_until(ttl) <= shape.now)
    }

    /// Drops the oldest runs for as long as each has expired as a whole, then more of them until
    /// the rest fits, but never the newest run for that. Waits while a job reads one of them.
    ///
    /// A run whose writes came after those of newer runs is not dropped early: data that was
    /// ingested while a memtable waited, or that leveling carried deep down, shares no key with
    /// these. Newer runs wait for it unread, as the horizon hides them.
    pub(super) fn plan(&self, shape: &Shape, runs: &[Aged<'_>]) -> Option<Plan> {
        let expired = |aged: &Aged<'_>| aged.run.tables.iter().all(|table| self.is_expired(shape, table));
        let by_time = runs.iter().take_while(|aged| expired(aged)).count();
        let mut kept: u64 = runs.iter().map(|aged| aged.whole_bytes).sum();
        let older = &runs[..runs.len().saturating_sub(1)];
        let by_size = older
            .iter()
            .take_while(|aged| {
                let goes = kept > self.retain_bytes;
                kept = kept.saturating_sub(aged.whole_bytes);
                goes
            })
            .count();
        let (count, reason) =
            if by_time >= by_size { (by_time, Reason::Expired) } else { (by_size, Reason::Retention) };
        // Older runs that no job reads may be dropped; newer ones must wait for the others.
        let free = runs[..count].iter().take_while(|aged| aged.may_be_dropped()).count();
        join(shape, &runs[..free], Work::Drop, u64::MAX, reason)
    }
}

/// Returns a plan for runs that are adjacent in age, listed from the oldest, none of which is busy;
/// `None` if there are none. Disjoint runs are joined without being rewritten.
pub(super) fn join(
    shape: &Shape,
    runs: &[Aged<'_>],
    work: Work,
    max_table_bytes: u64,
    reason: Reason,
) -> Option<Plan> {
    let newest = runs.last()?;
    let mut tables: Vec<&TableShape> = runs.iter().flat_map(|aged| &aged.run.tables).collect();
    tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let disjoint = tables.windows(2).all(|pair| !pair[0].meta.largest.reaches(&pair[1].meta.smallest));
    let work = if work == Work::Merge && disjoint { Work::Move } else { work };
    let range = KeyRange::hull(tables)?;
    let oldest = runs[0].run.id;
    let is_older = |(level, run): &(usize, &RunShape)| *level > runs[0].level || run.id < oldest;
    let bottommost = shape
        .levels
        .iter()
        .enumerate()
        .skip(runs[0].level)
        .flat_map(|(level, l)| l.runs.iter().map(move |run| (level, run)))
        .filter(is_older)
        .all(|(_, run)| range.overlap(&run.tables).is_empty());
    let input = |aged: &Aged<'_>| PlanInput {
        level: aged.level,
        run: aged.run.id,
        tables: aged.run.tables.iter().map(TableShape::id).collect(),
    };
    Some(Plan {
        inputs: runs.iter().rev().map(input).collect(),
        output_level: newest.level,
        output: OutputRun::Into(newest.run.id),
        range,
        max_table_bytes,
        borders: Vec::new(),
        edges: Vec::new(),
        reason,
        work,
        guard_bits: None,
        bottommost,
        stretch: None,
    })
}

/// Reports whether the device has room for a merge of `bytes` bytes.
pub(super) fn fits(shape: &Shape, bytes: u64) -> bool {
    shape.room.is_none_or(|room| bytes <= room)
}
