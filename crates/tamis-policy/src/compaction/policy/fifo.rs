//! First in, first out: every flush stays a separate run. The oldest runs are dropped when the tree
//! holds more than `retain_bytes`, or when they have outlived `time_to_live`.
//!
//! # Dropping
//!
//! Runs are dropped whole, oldest first, so nothing hidden by a newer version or a delete
//! reappears. Data that other policies left in deeper levels is older than level 0 and is dropped
//! first, one run at a time, however large. By size, runs are dropped until the rest fits; the
//! newest run always stays, even if the limit is below one memtable. By age, a run is dropped
//! together with all older ones once all of it has expired.
//!
//! # Joining
//!
//! Nothing is merged until level 0 has more than `slowdown_runs` runs. Then runs adjacent in age
//! are joined, oldest first, each time enough to make one run of C bytes, so that each byte is
//! joined once. C is the geometric mean of the retained bytes and a memtable, so joined runs are
//! about as numerous as runs waiting to be joined. Runs with disjoint keys (a log, keys by time)
//! are joined without being read. A group also ends before its data spans more than an eighth of
//! `time_to_live`: a run expires as a whole, up to that much late.
//!
//! With R bytes of tables, and runs counted as at least a quarter of a memtable M, there are thus
//! at most 2R / (C − M/2) + 4C / M + 3 runs (and 18 more with a time to live): two neighbours that
//! may not be joined are together larger than C.
//!
//! # Cost
//!
//! While C stays the same, a byte is written by its flush and at most once more. Each time R grows
//! fourfold (without `retain_bytes`), joined runs may be joined again in pairs. Disjoint runs cost
//! none of this, but tables that are too small have to be
//! [joined](crate::compaction::policy::small). A read may check every run. Space is all that was
//! written: superseded versions stay until their run is dropped.

use crate::compaction::plan::{Plan, Reason, Work};
use crate::compaction::policy::retention::{Aged, Retention, by_age, fits, join};
use crate::compaction::policy::small::{Joiner, Part, SPARE};
use crate::compaction::policy::{CompactionPolicy, Pressure, Promise};
use crate::compaction::settings::Settings;
use crate::compaction::shape::{KeyRange, Shape, Spot};

/// The policy and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    retention: Retention,
    /// Runs in level 0 above which neighbours are joined.
    joined_beyond: usize,
    /// Size of a memtable, in bytes.
    memtable_bytes: u64,
    /// Size at which an output table ends, in bytes.
    table_bytes: u64,
    /// Debt in bytes at which writes slow down, and at which they stall.
    debt_limits: (u64, u64),
}

impl Fifo {
    /// Creates the policy from a keyspace's settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        Fifo {
            retention: Retention::new(settings),
            joined_beyond: settings.slowdown_runs,
            memtable_bytes: settings.memtable_bytes,
            table_bytes: settings.table_bytes,
            debt_limits: (settings.slowdown_debt_bytes, settings.stop_debt_bytes),
        }
    }

    /// The size of joined runs when the tree holds `total` bytes.
    fn joined_bytes(&self, total: u64) -> u64 {
        let kept = if self.retention.retain_bytes < u64::MAX { self.retention.retain_bytes } else { total };
        let mean = (kept as f64 * self.memtable_bytes as f64).sqrt() as u64;
        mean.max(self.memtable_bytes.saturating_mul(4))
    }

    /// The bytes that a run counts for: at least a quarter of a memtable, so that there are never
    /// many tiny runs.
    fn weight(&self, bytes: u64) -> u64 {
        bytes.max(self.memtable_bytes / 4)
    }

    /// Returns the groups of level 0 to be joined, from the oldest, as ranges of `runs`.
    fn due(&self, runs: &[Aged<'_>]) -> Vec<std::ops::Range<usize>> {
        let first = runs.iter().position(|aged| aged.level == 0).unwrap_or(runs.len());
        if runs.len() - first <= self.joined_beyond {
            return Vec::new();
        }
        let limit = self.joined_bytes(runs.iter().map(|aged| aged.bytes).sum());
        let span = self.retention.time_to_live.map_or(u64::MAX, |ttl| ttl.as_secs() / 8);
        let mut groups = Vec::new();
        let (mut start, mut weight) = (first, 0u64);
        for (i, aged) in runs.iter().enumerate().skip(first) {
            let own = self.weight(aged.bytes);
            let is_old = |other: &Aged<'_>| {
                let (from, to) = (other.written.0.min(aged.written.0), other.written.1.max(aged.written.1));
                from > 0 && to.saturating_sub(from) > span
            };
            // A run that a job is joining ends the group, as does one that would make it too large
            // or span too much time.
            if i > start && (aged.busy() || weight.saturating_add(own) > limit || is_old(&runs[start])) {
                if i - start > 1 {
                    groups.push(start..i);
                }
                (start, weight) = (i, 0);
            }
            weight = weight.saturating_add(own);
            if aged.busy() {
                (start, weight) = (i + 1, 0);
            }
        }
        groups
    }

    fn joiner(&self) -> Joiner {
        Joiner { table_bytes: self.table_bytes, spare: SPARE }
    }
}

impl CompactionPolicy for Fifo {
    /// O(tables log tables).
    fn plan(&self, shape: &Shape) -> Option<Plan> {
        let runs = by_age(shape);
        let join_runs = || {
            let mut due = self.due(&runs).into_iter();
            let group = due.find(|group| fits(shape, runs[group.clone()].iter().map(|a| a.bytes).sum()))?;
            join(shape, &runs[group], Work::Merge, self.table_bytes, Reason::RunCount)
        };
        let no_walls = |_: &Part| Vec::new();
        let small = || self.joiner().plan(shape, Part::whole_runs(shape), no_walls, Reason::SmallTables);
        self.retention.plan(shape, &runs).or_else(join_runs).or_else(small)
    }

    /// Only runs waiting to be joined count: a level 0 of many runs is normal for this policy.
    fn write_pressure(&self, shape: &Shape) -> Pressure {
        Pressure::of(self.debt(shape), self.debt_limits.0, self.debt_limits.1)
    }

    fn debt(&self, shape: &Shape) -> u64 {
        let runs = by_age(shape);
        self.due(&runs).into_iter().flat_map(|group| &runs[group]).map(|aged| aged.bytes).sum()
    }

    /// Level 0 holds what is retained; the other levels are to be empty eventually.
    fn level_targets(&self, shape: &Shape) -> Vec<u64> {
        let mut targets = vec![0; shape.levels.len().max(1)];
        targets[0] = if self.retention.retain_bytes < u64::MAX { self.retention.retain_bytes } else { 0 };
        targets
    }

    /// The module documentation derives the bounds. Deeper levels, filled by other policies, keep
    /// their runs.
    fn promise(&self, shape: &Shape) -> Promise {
        let total: u64 = shape.levels.iter().map(|level| level.bytes()).sum();
        let (limit, memtable) = (self.joined_bytes(total), self.memtable_bytes.max(1));
        let by_size =
            total.saturating_mul(2) / (limit - memtable / 2).max(1) + limit.saturating_mul(4) / memtable + 3;
        let by_time = if self.retention.time_to_live.is_some() { 18 } else { 0 };
        let level0 = ((by_size + by_time) as usize).max(self.joined_beyond);
        let deeper = shape.levels.iter().skip(1).map(|level| level.runs.len());
        let growth = (limit as f64 / (4 * memtable) as f64).log2().max(0.0);
        let is_fixed = self.retention.retain_bytes < u64::MAX;
        Promise {
            tables: Some(self.joiner().promised(shape, Part::whole_runs(shape), |_| Vec::new())),
            runs_per_level: std::iter::once(level0).chain(deeper).map(Some).collect(),
            space_amplification: None,
            write_amplification: Some(
                if is_fixed { 2.0 } else { 2.0 + growth }.max(self.joiner().writes(memtable)),
            ),
        }
    }

    /// The same as [`plan`](Self::plan): there is no better shape to reach, and a key range cannot
    /// be dropped by itself.
    fn manual(&self, shape: &Shape, _range: Option<&KeyRange>) -> Option<Plan> {
        self.plan(shape)
    }

    /// Deletes go when their run does.
    fn deepen(&self, _shape: &Shape, _spot: &Spot<'_>, _reason: Reason) -> Option<Plan> {
        None
    }

    fn ends_round(&self, _shape: &Shape, _plan: &Plan) -> bool {
        true
    }

    fn drops_data(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        "fifo".into()
    }
}

#[cfg(test)]
mod tests;
