//! Compaction by time windows (Cassandra's time window compaction strategy), for data written in
//! time order and read by time. The data of one window ends up in one run. Whole windows are
//! dropped when they are too old or too many.
//!
//! # Windows
//!
//! A window is a multiple of `time_window` since 1970. A run belongs to the window in which its
//! newest data was flushed, or to an older run's window if that is later: from the oldest run to
//! the newest, windows never decrease. So after the clock jumps back, windows hold too much until
//! it has caught up, but the order by time never differs from the order by age. Runs of unknown
//! time belong to the first window.
//!
//! * When a window has ended, its runs are merged into one.
//! * Within the open window, neighbours of similar size are merged, `level0_runs` or more at a
//!   time. If sizes are too mixed and there are too many runs (more than `slowdown_runs`, and more
//!   than `level0_runs` − 1 of each size), the `level0_runs` smallest neighbours are merged.
//!
//! All runs are in level 0. Data that another policy left in deeper levels counts as the oldest, is
//! not merged, and is dropped first. [`retention`](crate::compaction::policy::retention) documents
//! how runs are dropped.
//!
//! # Cost
//!
//! In a window of n flushes of equal size, each byte is written once by its flush, about log n to
//! the base of `level0_runs` times within the window, and once at its end. Each ended window has at
//! most one run; the open window adds its own. Versions superseded by later windows stay until
//! their window is dropped.

use std::ops::Range;

use crate::compaction::plan::{Plan, Reason, Work};
use crate::compaction::policy::retention::{Aged, Retention, by_age, fits, join};
use crate::compaction::policy::small::{Joiner, Part, SPARE};
use crate::compaction::policy::{CompactionPolicy, Pressure, Promise};
use crate::compaction::settings::Settings;
use crate::compaction::shape::{KeyRange, Shape, Spot};

/// The policy and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct TimeWindow {
    retention: Retention,
    /// The length of a window, in seconds.
    window: u64,
    /// Runs of similar size that are merged within a window.
    fan_in: usize,
    /// Runs of the open window above which runs of any size may be merged.
    slowdown_runs: usize,
    /// Runs waiting to be merged at which writes stall.
    stop_runs: usize,
    /// Size of a memtable, in bytes.
    memtable_bytes: u64,
    /// Size at which an output table ends, in bytes.
    table_bytes: u64,
    /// Debt in bytes at which writes slow down, and at which they stall.
    debt_limits: (u64, u64),
}

/// The runs of one window.
#[derive(Debug)]
struct Window {
    number: u64,
    /// Their positions in the list of runs by age.
    runs: Range<usize>,
}

impl TimeWindow {
    /// Creates the policy from a keyspace's settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        TimeWindow {
            retention: Retention::new(settings),
            window: settings.time_window.map_or(3600, |window| window.as_secs()).max(1),
            fan_in: settings.level0_runs.max(2),
            slowdown_runs: settings.slowdown_runs.max(2),
            stop_runs: settings.stop_runs,
            memtable_bytes: settings.memtable_bytes,
            table_bytes: settings.table_bytes,
            debt_limits: (settings.slowdown_debt_bytes, settings.stop_debt_bytes),
        }
    }

    /// Returns the windows of level 0, oldest first.
    fn windows(&self, runs: &[Aged<'_>]) -> Vec<Window> {
        let first = runs.iter().position(|aged| aged.level == 0).unwrap_or(runs.len());
        let mut windows: Vec<Window> = Vec::new();
        for (i, aged) in runs.iter().enumerate().skip(first) {
            let number = aged.written.1 / self.window;
            match windows.last_mut() {
                Some(last) if number <= last.number => last.runs.end = i + 1,
                _ => windows.push(Window { number, runs: i..i + 1 }),
            }
        }
        windows
    }

    fn is_over(&self, shape: &Shape, window: &Window) -> bool {
        window.number < shape.now / self.window
    }

    /// The number of runs allowed in an open window: `slowdown_runs`, or more if it takes more to
    /// merge its bytes a logarithmic number of times.
    fn allowed(&self, runs: &[Aged<'_>], window: &Window) -> usize {
        let bytes: u64 = runs[window.runs.clone()].iter().map(|aged| aged.bytes).sum();
        self.slowdown_runs.max((self.fan_in - 1) * (self.merges(bytes) as usize + 1))
    }

    /// How often each byte of a window of `bytes` bytes is merged before the window ends. Encoding
    /// may make a run smaller than a memtable.
    fn merges(&self, bytes: u64) -> f64 {
        let flushes = (4.0 * bytes as f64 / self.memtable_bytes.max(1) as f64).max(1.0);
        (flushes.ln() / (self.fan_in as f64).ln()).ceil()
    }

    /// The number of runs of a window beyond the allowed number.
    fn surplus(&self, shape: &Shape, runs: &[Aged<'_>], window: &Window) -> usize {
        let allowed = if self.is_over(shape, window) { 1 } else { self.allowed(runs, window) };
        window.runs.len().saturating_sub(allowed)
    }

    /// The greatest ratio between the sizes of runs that are merged within a window: less than a
    /// merge makes them differ.
    fn similarity(&self) -> f64 {
        (self.fan_in as f64).sqrt().max(1.5)
    }

    /// Returns the first sequence of neighbours of similar size in the open window, as a range of
    /// `runs`, or the smallest neighbours if there are too many runs.
    fn within(&self, runs: &[Aged<'_>], window: &Window) -> Option<Range<usize>> {
        // Tiny runs count as equal.
        let weight = |i: usize| runs[i].bytes.max(self.memtable_bytes / 4).max(1) as f64;
        let mut start = window.runs.start;
        while start + self.fan_in <= window.runs.end {
            let (mut least, mut most) = (f64::INFINITY, 0f64);
            let similar = (start..window.runs.end).take_while(|&i| {
                (least, most) = (least.min(weight(i)), most.max(weight(i)));
                most <= least * self.similarity() && !runs[i].busy()
            });
            let end = start + similar.count();
            if end - start >= self.fan_in {
                return Some(start..end);
            }
            start += 1;
        }
        if window.runs.len() <= self.allowed(runs, window) {
            return None;
        }
        let stretches = window.runs.clone().map(|start| start..start + self.fan_in);
        let free = |stretch: &Range<usize>| {
            stretch.end <= window.runs.end && runs[stretch.clone()].iter().all(|aged| !aged.busy())
        };
        stretches
            .filter(free)
            .min_by_key(|stretch| runs[stretch.clone()].iter().map(|aged| aged.bytes).sum::<u64>())
    }

    /// Returns the longest prefix of `stretch` that there is room to merge.
    fn fitting(shape: &Shape, runs: &[Aged<'_>], stretch: Range<usize>) -> Range<usize> {
        let mut bytes = 0u64;
        let count = runs[stretch.clone()].iter().take_while(|aged| {
            bytes = bytes.saturating_add(aged.bytes);
            fits(shape, bytes)
        });
        stretch.start..stretch.start + count.count()
    }

    /// Returns the groups of runs that are due, the most urgent first.
    fn due(&self, shape: &Shape, runs: &[Aged<'_>]) -> Vec<(Range<usize>, Reason)> {
        let mut due = Vec::new();
        for window in self.windows(runs) {
            if !self.is_over(shape, &window) {
                // Reads of the newest data come first, and writes may be waiting.
                due.splice(0..0, self.within(runs, &window).map(|stretch| (stretch, Reason::RunCount)));
                continue;
            }
            // Skip the runs that a job is merging already.
            let mut start = window.runs.start;
            for i in window.runs.clone() {
                if runs[i].busy() {
                    due.push((start..i, Reason::Window));
                    start = i + 1;
                }
            }
            due.push((start..window.runs.end, Reason::Window));
        }
        due.retain(|(stretch, _)| stretch.len() > 1);
        due
    }

    fn joiner(&self) -> Joiner {
        Joiner { table_bytes: self.table_bytes, spare: SPARE }
    }
}

impl CompactionPolicy for TimeWindow {
    /// O(tables log tables).
    fn plan(&self, shape: &Shape) -> Option<Plan> {
        let runs = by_age(shape);
        let join_runs = || {
            self.due(shape, &runs).into_iter().find_map(|(stretch, reason)| {
                let stretch = Self::fitting(shape, &runs, stretch);
                let plan = || join(shape, &runs[stretch.clone()], Work::Merge, self.table_bytes, reason);
                (stretch.len() > 1).then(plan)?
            })
        };
        let no_walls = |_: &Part| Vec::new();
        let small = || self.joiner().plan(shape, Part::whole_runs(shape), no_walls, Reason::SmallTables);
        self.retention.plan(shape, &runs).or_else(join_runs).or_else(small)
    }

    /// From the number of runs beyond the allowed number, and from the debt.
    fn write_pressure(&self, shape: &Shape) -> Pressure {
        let runs = by_age(shape);
        // Only what is due counts, or writes would wait in vain.
        let surplus: usize =
            self.windows(&runs).iter().map(|window| self.surplus(shape, &runs, window)).sum();
        let value = if surplus > 0 { surplus + self.fan_in } else { 0 };
        let by_runs = Pressure::of(value as u64, self.slowdown_runs as u64, self.stop_runs as u64);
        by_runs.max(Pressure::of(self.debt(shape), self.debt_limits.0, self.debt_limits.1))
    }

    fn debt(&self, shape: &Shape) -> u64 {
        let runs = by_age(shape);
        self.due(shape, &runs)
            .into_iter()
            .flat_map(|(stretch, _)| &runs[stretch])
            .map(|aged| aged.bytes)
            .sum()
    }

    /// Level 0 holds what is retained; the other levels are to be empty eventually.
    fn level_targets(&self, shape: &Shape) -> Vec<u64> {
        let mut targets = vec![0; shape.levels.len().max(1)];
        targets[0] = if self.retention.retain_bytes < u64::MAX { self.retention.retain_bytes } else { 0 };
        targets
    }

    /// One run per window, plus those allowed in the open one. Writes: the flush, the merges within
    /// the largest window, and the one at its end, for flushes of similar size.
    fn promise(&self, shape: &Shape) -> Promise {
        let runs = by_age(shape);
        let windows = self.windows(&runs);
        let bytes = |window: &Window| runs[window.runs.clone()].iter().map(|aged| aged.bytes).sum::<u64>();
        let largest = windows.iter().map(bytes).max().unwrap_or(0);
        let deeper = shape.levels.iter().skip(1).map(|level| level.runs.len());
        let open = windows.iter().filter(|window| !self.is_over(shape, window));
        let level0 = windows.len() + open.map(|window| self.allowed(&runs, window)).sum::<usize>();
        Promise {
            tables: Some(self.joiner().promised(shape, Part::whole_runs(shape), |_| Vec::new())),
            runs_per_level: std::iter::once(level0).chain(deeper).map(Some).collect(),
            space_amplification: None,
            write_amplification: Some(
                (2.0 + self.merges(largest)).max(self.joiner().writes(self.memtable_bytes)),
            ),
        }
    }

    /// The same as [`plan`](Self::plan): open windows stay open, and a key range cannot be dropped
    /// by itself.
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
        "time-window".into()
    }
}

#[cfg(test)]
mod tests;
