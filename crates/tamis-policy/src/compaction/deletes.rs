//! Compacts tables that are dense with deletes, or hold deletes that are too old, although no level
//! is full: moves the deletes to where they can be dropped.
//!
//! # Density
//!
//! A delete slows every read that passes it until it has met the last older version of its key.
//! Policies count only bytes, and a million deletes take few: they may stay above the values they
//! hide until something else is written. So a table is compacted early when it has at least
//! [`LEAST`] deletes and they are half of its entries, as with RocksDB's
//! `CompactOnDeletionCollector` and Pebble's tombstone density compactions.
//!
//! # Cost
//!
//! A step requires at least one delete per [`PAYS`] entries in its inputs, overlapped tables below
//! included. So each delete pays for rewriting at most that many entries per level, whatever the
//! keys. Deletes spread too thinly over the level below wait for ordinary compactions. Level 0
//! keeps collecting runs while flushes are seconds apart. Without deletes nothing changes.
//!
//! # Age
//!
//! With `max_tombstone_age`, a key or range delete and the data it hides should leave the disk
//! within that time. Each table records the sequence number of its oldest delete and the earliest
//! time it can have been written ([`OldestDelete`]). Memtables with deletes are flushed after a
//! quarter of the age. A table is due after three quarters ([`overdue`]), whatever the cost; the
//! last quarter is for the merges.
//!
//! # Why it ends
//!
//! A step takes the table to a deeper level, or merges everything that overlaps it there. If
//! nothing older overlaps the table, the step rewrites it in place without its deletes. A dense
//! table waits while any snapshot is older than its newest entry, so all its deletes go at once. A
//! table due by age waits while any snapshot is older than its oldest delete. So each rewrite drops
//! at least that delete, and a snapshot holds the oldest of any that stay.

use std::cmp::Reverse;
use std::time::Duration;

use tamis_base::collections::HashSet;
use tamis_base::ids::TableId;
use tamis_base::key::SeqNo;
use tamis_base::meta::OldestDelete;

use crate::compaction::plan::{Plan, Reason, Work};
use crate::compaction::policy::CompactionPolicy;
use crate::compaction::released;
use crate::compaction::shape::{Shape, Spot, TableShape};

/// Fewer deletes do not make a table dense: reads pass them in about a tenth of a millisecond.
pub const LEAST: u64 = 4096;

/// The entries that may be rewritten for each delete, in each step.
const PAYS: u64 = 8;

/// How long level 0 is left alone after a flush: another may follow.
const COLLECTING_SECONDS: u64 = 5;

/// How many tables to try a plan for, most deletes first.
const TRIES: usize = 8;

/// Plans the next step for one of the dense tables. O(tables · log tables).
pub fn plan(shape: &Shape, policy: &dyn CompactionPolicy, max_table_bytes: u64) -> Option<Plan> {
    plan_from(LEAST, shape, policy, max_table_bytes)
}

/// The same for tables with at least `least` deletes.
fn plan_from(least: u64, shape: &Shape, policy: &dyn CompactionPolicy, max_table_bytes: u64) -> Option<Plan> {
    let mut dense: Vec<Spot<'_>> = shape
        .spots()
        .filter(|spot| is_dense(spot.table, least) && !spot.table.busy && !is_held(shape, spot.table))
        .filter(|spot| (spot.level > 0 || !is_collecting(shape)) && may_pay(shape, spot))
        .collect();
    dense.sort_by_key(|spot| Reverse(spot.table.meta.deletes));
    dense.iter().take(TRIES).find_map(|spot| {
        let plan = step(shape, policy, spot, max_table_bytes, Reason::Deletes)?;
        pays(shape, &plan).then_some(plan)
    })
}

/// The same for tables with any deletes, on a full disk: however few they are, they free space.
/// Where the inputs do not fit into the room, the outputs are expected to, since each delete hides
/// an entry of the usual size, and range deletes of some inputs hide the returned share of others.
/// If they do not, nothing is lost.
pub fn freeing(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    max_table_bytes: u64,
    hidden: impl Fn(&HashSet<TableId>, TableId) -> f64,
) -> Option<Plan> {
    let unlimited = Shape { room: None, settling: true, ..shape.clone() };
    let mut deleting: Vec<Spot<'_>> = shape
        .spots()
        .filter(|spot| spot.table.holds_deletes() && !spot.table.busy && !is_held(shape, spot.table))
        .collect();
    // Those that hide most first: a range delete hides any number of entries.
    deleting.sort_by_key(|spot| Reverse((spot.table.meta.range_tombstones > 0, spot.table.meta.deletes)));
    deleting.iter().take(TRIES).find_map(|spot| {
        let plan = step(&unlimited, policy, spot, max_table_bytes, Reason::Deletes)?;
        let named: HashSet<TableId> = plan.tables().collect();
        let inputs = shape.spots().filter(|spot| named.contains(&spot.table.id())).map(|spot| spot.table);
        let left = inputs.map(|table| (table, 1.0 - hidden(&named, table.id())));
        let fits = |room| expected_bytes(left, plan.bottommost) < room;
        (plan.work == Work::Move || shape.room.is_none_or(fits)).then_some(plan)
    })
}

/// Returns the bytes that a merge of tables is expected to write if so much of each is visible
/// below range deletes, and each delete of a key hides an entry.
fn expected_bytes<'t>(inputs: impl Iterator<Item = (&'t TableShape, f64)>, bottommost: bool) -> u64 {
    let (mut deletes, mut of_deletes, mut others, mut of_others) = (0.0, 0.0, 0.0, 0.0);
    for (table, left) in inputs {
        let (own, entries) = (table.meta.deletes.min(table.meta.entries) as f64, table.meta.entries as f64);
        let of_own = table.bytes() as f64 * own / entries.max(1.0);
        (deletes, of_deletes) = (deletes + own, of_deletes + of_own);
        (others, of_others) =
            (others + (entries - own) * left, of_others + (table.bytes() as f64 - of_own) * left);
    }
    let left = of_others * (others - deletes).max(0.0) / others.max(1.0);
    (left + if bottommost { 0.0 } else { of_deletes }) as u64
}

/// Plans the next step for one of the tables with deletes of three quarters of `age`, the oldest
/// first. O(tables · log tables) for each that waits for running jobs.
pub fn overdue(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    age: Duration,
    max_table_bytes: u64,
) -> Option<Plan> {
    let age = age.as_secs();
    let oldest_snapshot = shape.snapshots.first().copied().unwrap_or(SeqNo::MAX);
    let mut due: Vec<(u64, Spot<'_>)> = shape
        .spots()
        .filter(|spot| !spot.table.busy)
        .filter_map(|spot| Some((spot.table.meta.oldest_delete()?, spot)))
        .filter(|(oldest, _)| oldest.since.saturating_add(age - age / 4) <= shape.now)
        .filter(|(oldest, _)| oldest.seq <= oldest_snapshot)
        .map(|(oldest, spot)| (oldest.since, spot))
        .collect();
    due.sort_by_key(|(since, _)| *since);
    due.iter().find_map(|(_, spot)| step(shape, policy, spot, max_table_bytes, Reason::DeleteAge))
}

/// When a memtable whose first delete was written at `since` is to be flushed.
pub fn flush_time(since: u64, age: Duration) -> u64 {
    since.saturating_add(age.as_secs() / 4)
}

/// Plans the next step of taking a table to where its deletes are dropped.
fn step(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    spot: &Spot<'_>,
    max_table_bytes: u64,
    reason: Reason,
) -> Option<Plan> {
    let (place, range) = ((spot.level, spot.run), spot.table.range());
    if released::nothing_older(shape, place, &range) {
        let is_free = !released::conflicts(shape, spot.level, &range);
        return is_free.then(|| released::rewrite(shape, place, spot.table, max_table_bytes, reason));
    }
    policy.deepen(shape, spot, reason)
}

fn is_dense(table: &TableShape, least: u64) -> bool {
    table.meta.deletes >= least && table.meta.deletes >= table.meta.entries.saturating_sub(table.meta.deletes)
}

/// Reports whether level 0 may get more runs soon.
fn is_collecting(shape: &Shape) -> bool {
    let flushes = shape.runs(0).iter().flat_map(|run| &run.tables).map(|table| table.meta.extra.written.1);
    // 0 is unknown. The clock may have gone back.
    let newest = flushes.max().filter(|&flushed| flushed > 0);
    let is_young = |flushed| shape.now.checked_sub(flushed).is_some_and(|age| age < COLLECTING_SECONDS);
    !shape.settling && newest.is_some_and(is_young)
}

/// Reports whether a snapshot may need one of the table's deletes, or what it hides.
fn is_held(shape: &Shape, table: &TableShape) -> bool {
    shape.snapshots.first().is_some_and(|oldest| *oldest < table.meta.max_seq)
}

/// A quick check of what a step would have to read at least: the table, or level 0 as a whole, and
/// what it overlaps in the next level.
fn may_pay(shape: &Shape, spot: &Spot<'_>) -> bool {
    let range = spot.table.range();
    if released::nothing_older(shape, (spot.level, spot.run), &range) {
        return true;
    }
    let below = shape.levels[spot.level + 1..].iter().find(|level| !level.is_empty());
    let overlapped = below
        .into_iter()
        .flat_map(|level| &level.runs)
        .flat_map(|run| &run.tables[range.overlap(&run.tables)]);
    let level0 = shape.levels[0].tables().filter(|table| spot.level == 0 && table.id() != spot.table.id());
    is_worth([spot.table].into_iter().chain(level0).chain(overlapped))
}

/// Reports whether the deletes in the plan's inputs are worth rewriting the inputs.
fn pays(shape: &Shape, plan: &Plan) -> bool {
    let named: HashSet<TableId> = plan.tables().collect();
    let tables = shape.levels.iter().flat_map(|level| level.tables());
    plan.work == Work::Move || is_worth(tables.filter(|table| named.contains(&table.id())))
}

fn is_worth<'t>(tables: impl Iterator<Item = &'t TableShape>) -> bool {
    let (entries, deletes) = tables.fold((0u64, 0u64), |(entries, deletes), table| {
        (entries.saturating_add(table.meta.entries), deletes.saturating_add(table.meta.deletes))
    });
    deletes.saturating_mul(PAYS) >= entries
}

/// Bounds on when the deletes that a flush or merge writes were first written.
#[derive(Clone, Debug)]
pub struct DeleteTimes {
    known: Vec<OldestDelete>,
    now: u64,
}

impl DeleteTimes {
    /// For the flush of memtables in which no delete is older than `since`; `None` if that is not
    /// known.
    pub fn of_flush(since: Option<u64>, now: u64) -> DeleteTimes {
        let known = since.map(|since| OldestDelete { seq: 0, since });
        DeleteTimes { known: known.into_iter().collect(), now }
    }

    /// For a merge of tables with these oldest deletes.
    pub fn of_merge(inputs: impl Iterator<Item = OldestDelete>, now: u64) -> DeleteTimes {
        DeleteTimes { known: inputs.collect(), now }
    }

    /// Returns the record of a table whose oldest delete has this number.
    pub fn oldest(&self, seq: SeqNo) -> OldestDelete {
        // It was written after all of smaller numbers. A delete that a filter or the expiry makes
        // may be older than all that are known.
        let before = self.known.iter().filter(|known| known.seq <= seq).map(|known| known.since).max();
        let first = || self.known.iter().map(|known| known.since).min();
        OldestDelete { seq, since: before.or_else(first).unwrap_or(self.now) }
    }
}

#[cfg(test)]
mod tests;
