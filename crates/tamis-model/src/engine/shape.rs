//! The runs of a tree: the compaction policies as arithmetic on sizes.
//!
//! A tree is grown flush by flush with evenly spread keys, and the policies of the engine
//! (`compaction/policy`, and `docs/compaction.md`) are applied to sizes instead of tables: targets
//! that follow the last level, a base level that moves up, full merges that cascade, partial ones
//! that move the excess. The result is a series of states, one for each flush of the last round,
//! over which costs are averaged, and the write amplification of the whole growth.
//!
//! Not modelled: which tables a partial merge picks (the average overlap is assumed), concurrent
//! merges, disk space, time (level 0 never waits for more flushes than are due). A fragmented tree
//! is approximated by a tiered one whose runs each cover a part of the keys. Costs O(levels) per
//! flush; very long histories are shortened by growing the first part in larger flushes.

use super::inputs::Data;

/// The compaction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Every level below 0 is one run.
    Leveling,
    /// Every level is a stack of runs.
    Tiering,
    /// Stacks, and one run in the last level.
    LazyLeveling,
    /// Stacks, and this many levels of one run at the bottom.
    Hybrid(u32),
    /// Stacks of fragments between guards.
    Fragmented,
    /// Only neighbours in a long level 0 are merged. Drops data; never recommended.
    Fifo,
    /// Runs adjacent in age are merged within windows. Drops data; never recommended.
    TimeWindow,
}

/// The scope of one merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Merge {
    /// Whole levels.
    Full,
    /// Some tables and the tables they overlap.
    Partial,
    /// Whole levels, and, into the last one, in groups (Spooky).
    Partitioned,
}

/// The settings of `keyspace.compaction` and related options.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Shape {
    /// The policy.
    pub policy: Policy,
    /// The scope of one merge.
    pub merge: Merge,
    /// T, at least 2.
    pub size_ratio: u64,
    /// Runs in level 0 that start a compaction.
    pub level0_runs: u64,
    /// Maximum number of levels, including level 0.
    pub levels: usize,
    /// Whether reads trigger merges when there are no writes: a tree that is only read then ends as
    /// one run.
    pub read_compaction: bool,
}

impl Shape {
    /// Creates a shape for a policy with its usual merges, four runs in level 0, seven levels.
    pub fn new(policy: Policy, size_ratio: u64) -> Shape {
        let merge = match policy {
            Policy::LazyLeveling | Policy::Hybrid(0 | 1) => Merge::Partitioned,
            Policy::Leveling | Policy::Hybrid(_) | Policy::Fragmented => Merge::Partial,
            Policy::Tiering | Policy::Fifo | Policy::TimeWindow => Merge::Full,
        };
        Shape {
            policy,
            merge,
            size_ratio: size_ratio.max(2),
            level0_runs: 4,
            levels: 7,
            read_compaction: true,
        }
    }

    /// Returns the number of single-run levels at the bottom.
    fn leveling(&self) -> usize {
        match self.policy {
            Policy::Leveling => usize::MAX,
            Policy::LazyLeveling => 1,
            Policy::Hybrid(levels) => levels.max(1) as usize,
            _ => 0,
        }
    }

    /// Returns whether reads may merge it into one run.
    pub fn merges_for_reads(&self) -> bool {
        self.read_compaction
            && matches!(self.policy, Policy::Leveling | Policy::LazyLeveling | Policy::Hybrid(_))
    }

    /// Returns the share of runs that have a table over a given key: 1 where runs span the key
    /// space.
    fn coverage(&self) -> f64 {
        if self.policy == Policy::Fragmented { 0.5 } else { 1.0 }
    }
}

/// The runs of a tree at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Entries of each run, newest first.
    pub runs: Vec<f64>,
    /// The fraction of the runs that covers a given key.
    pub coverage: f64,
}

impl State {
    /// Creates a tree of these runs, newest first, all of which span the key space.
    pub fn of(runs: Vec<f64>) -> State {
        State { runs, coverage: 1.0 }
    }

    /// Returns the total number of entries.
    pub fn entries(&self) -> f64 {
        self.runs.iter().sum()
    }
}

/// The result of growing a tree under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The states that costs are averaged over; never empty.
    pub states: Vec<State>,
    /// Bytes written by flushes and compactions per byte flushed, over the whole growth.
    pub write_amplification: f64,
}

impl Tree {
    /// Returns the average number of runs.
    pub fn mean_runs(&self) -> f64 {
        self.states.iter().map(|state| state.runs.len() as f64).sum::<f64>() / self.states.len() as f64
    }
}

/// Maximum number of flushes simulated one by one.
const MOST_FLUSHES: f64 = 60_000.0;
/// Maximum number of states averaged over.
const MOST_STATES: usize = 256;

/// Grows the tree that `shape` makes of `data`. `settled_by_reads`: there are no more writes, so a
/// tree that merges for reads is one run.
pub fn grow(shape: &Shape, data: &Data, settled_by_reads: bool) -> Tree {
    let base = data.memtable_bytes as f64 / data.entry_bytes() * shape.level0_runs as f64;
    grow_from(shape, data.entries as f64, data.flush_entries(), base, settled_by_reads)
}

/// The same for this many entries, of which each flush has `flush_entries`. A base level that takes
/// level 0 may hold `base_entries` before the level above it is used: what `level0_runs` memtables
/// would hold if they held only entries.
pub fn grow_from(
    shape: &Shape,
    entries: f64,
    flush_entries: f64,
    base_entries: f64,
    settled_by_reads: bool,
) -> Tree {
    let entries = entries.max(1.0);
    let flush = flush_entries.clamp(1.0, entries);
    let mut tree = Growing {
        shape: *shape,
        levels: vec![Vec::new(); shape.levels.clamp(2, 64)],
        base: base_entries.max(flush),
        written: 0.0,
        flushed: 0.0,
    };
    let mut flushes = (entries / flush).floor().max(1.0);
    if flushes > MOST_FLUSHES {
        // Deep data was written long ago: as one run, in the last level.
        let early = (flushes - MOST_FLUSHES) * flush;
        if let Some(last) = tree.levels.last_mut() {
            last.push(early);
        }
        flushes = MOST_FLUSHES;
    }
    // At least one round of the levels above the last.
    let window = (flushes / 4.0).max((shape.level0_runs * shape.size_ratio) as f64).min(flushes) as usize;
    let every = window.div_ceil(MOST_STATES).max(1);
    let mut states = Vec::new();
    for at in 0..flushes as usize {
        tree.flush(flush);
        let left = flushes as usize - 1 - at;
        if left < window && left.is_multiple_of(every) {
            states.push(tree.state());
        }
    }
    let write_amplification = tree.written / tree.flushed.max(1.0);
    if settled_by_reads && shape.merges_for_reads() {
        states = vec![State::of(vec![entries])];
    } else {
        // The states differ in size; costs depend on how the runs share the entries.
        for state in &mut states {
            let factor = entries / state.entries().max(1.0);
            state.runs.iter_mut().for_each(|run| *run *= factor);
        }
    }
    Tree { states, write_amplification }
}

struct Growing {
    shape: Shape,
    /// Entries per run by level, newest first.
    levels: Vec<Vec<f64>>,
    base: f64,
    written: f64,
    flushed: f64,
}

struct Layout {
    targets: Vec<f64>,
    last: usize,
    level0_output: usize,
    base: usize,
}

impl Growing {
    fn bytes(&self, level: usize) -> f64 {
        self.levels[level].iter().sum()
    }

    fn ratio(&self) -> f64 {
        self.shape.size_ratio.max(2) as f64
    }

    fn is_leveling(&self, level: usize, last: usize) -> bool {
        level > 0 && level.saturating_add(self.shape.leveling()) > last
    }

    /// Returns the largest target of a base level, as the engine has it.
    fn cap(&self, level: usize, last: usize) -> f64 {
        let stacks = |n: usize| n > 0 && !self.is_leveling(n, last);
        match self.shape.merge {
            _ if stacks(level) || stacks(level - 1) => self.base * self.ratio(),
            Merge::Partial => self.base * 2.0,
            _ => self.base,
        }
    }

    fn layout(&self) -> Layout {
        let first_used = (1..self.levels.len()).find(|&n| !self.levels[n].is_empty());
        if self.shape.leveling() == 0 {
            let last = self.levels.len() - 1;
            return Layout { targets: Vec::new(), last, level0_output: 1, base: 1 };
        }
        let last = self.levels.len() - 1;
        let total: f64 = (1..=last).map(|n| self.bytes(n)).sum();
        let goal = self.bytes(last).max(total - total / self.ratio());
        let mut targets = vec![0.0; self.levels.len()];
        let (mut base, mut target) = (last, goal.max(1.0));
        while target > self.cap(base, last) && base > 1 {
            targets[base] = target;
            base -= 1;
            target = (target / self.ratio()).max(1.0);
        }
        targets[base] = target.max(if base == last { self.cap(base, last) } else { 1.0 });
        Layout { targets, last, level0_output: first_used.map_or(base, |used| used.min(base)), base }
    }

    fn is_over(&self, layout: &Layout, level: usize, runs: usize, bytes: f64) -> bool {
        let counts_bytes = !layout.targets.is_empty();
        // Slightly above the target, so that rounding does not decide.
        let too_large = counts_bytes && bytes > layout.targets[level] * (1.0 + 1e-9);
        match self.is_leveling(level, layout.last) {
            true => too_large,
            false if level == 0 => runs as u64 >= self.shape.level0_runs.max(1),
            false => too_large || runs as u64 >= self.shape.size_ratio.max(2),
        }
    }

    fn flush(&mut self, entries: f64) {
        self.flushed += entries;
        self.written += entries;
        self.levels[0].insert(0, entries);
        match self.shape.policy {
            Policy::Fifo => self.join_fifo(entries),
            Policy::TimeWindow => self.join_window(),
            _ => {
                for _ in 0..4 * self.levels.len() {
                    let layout = self.layout();
                    let counts_bytes = !layout.targets.is_empty();
                    let end = if counts_bytes { layout.last } else { layout.last + 1 };
                    let due = (0..end).find(|&n| {
                        let (runs, bytes) = (self.levels[n].len(), self.bytes(n));
                        let above_base = n > 0 && n < layout.base && counts_bytes;
                        let alone = !counts_bytes && n == layout.last && runs < 2;
                        runs > 0 && !alone && (above_base || self.is_over(&layout, n, runs, bytes))
                    });
                    match due {
                        Some(level) => self.merge(&layout, level),
                        None => return,
                    }
                }
            }
        }
    }

    /// Performs one merge out of `from`.
    fn merge(&mut self, layout: &Layout, from: usize) {
        let counts_bytes = !layout.targets.is_empty();
        let next =
            if from == 0 { layout.level0_output } else { (from + 1).max(layout.base).min(layout.last) };
        let partial = self.shape.merge == Merge::Partial && counts_bytes;
        if partial
            && from >= layout.base
            && self.is_leveling(from, layout.last)
            && self.is_leveling(next, layout.last)
        {
            let bytes = self.bytes(from);
            let excess = (bytes - layout.targets[from]).clamp(0.0, bytes);
            let part = excess / bytes.max(1.0);
            let met = part * self.bytes(next);
            self.written += excess + met;
            self.levels[from].iter_mut().for_each(|run| *run *= 1.0 - part);
            self.levels[from].retain(|run| *run >= 0.5);
            self.add(next, excess, layout.last);
            return;
        }
        // All of it, with every intermediate level that would become due on receiving it.
        let limit = match self.shape.merge {
            Merge::Partitioned
                if counts_bytes && layout.last > 1 && layout.base < layout.last && from < layout.last - 1 =>
            {
                layout.last - 1
            }
            _ => layout.last,
        };
        let (mut to, mut moved) = (next, self.bytes(from));
        self.levels[from].clear();
        loop {
            let bytes = self.bytes(to);
            if !self.is_over(layout, to, self.levels[to].len() + 1, bytes + moved) {
                break;
            }
            if to >= limit {
                if to == layout.last && !counts_bytes {
                    moved += std::mem::take(&mut self.levels[to]).iter().sum::<f64>();
                }
                break;
            }
            if partial && self.is_leveling(to + 1, layout.last) {
                break;
            }
            moved += bytes;
            self.levels[to].clear();
            to += 1;
        }
        self.written += moved;
        if self.is_leveling(to, layout.last) {
            self.written += self.bytes(to);
        }
        self.add(to, moved, layout.last);
    }

    fn add(&mut self, level: usize, entries: f64, last: usize) {
        if self.is_leveling(level, last) && !self.levels[level].is_empty() {
            self.levels[level][0] += entries;
        } else {
            self.levels[level].insert(0, entries);
        }
    }

    /// Aims at runs of about √(all · memtable), once there are more than 20.
    fn join_fifo(&mut self, flush: f64) {
        let runs = &mut self.levels[0];
        if runs.len() <= 20 {
            return;
        }
        let goal = (runs.iter().sum::<f64>() * flush).sqrt().max(4.0 * flush);
        // The oldest small neighbours.
        let Some(end) = runs.iter().rposition(|run| *run < goal / 2.0) else { return };
        let (mut start, mut sum) = (end, runs[end]);
        while start > 0 && sum < goal {
            start -= 1;
            sum += runs[start];
        }
        runs.splice(start..=end, [sum]);
        self.written += sum;
    }

    /// Merges neighbours of similar size, `level0_runs` at a time.
    fn join_window(&mut self) {
        let take = self.shape.level0_runs.max(2) as usize;
        while let Some(start) = self.levels[0].windows(take).position(|runs| runs[take - 1] < 2.0 * runs[0]) {
            let sum = self.levels[0][start..start + take].iter().sum();
            self.levels[0].splice(start..start + take, [sum]);
            self.written += sum;
        }
    }

    fn state(&self) -> State {
        State { runs: self.levels.iter().flatten().copied().collect(), coverage: self.shape.coverage() }
    }
}

impl Shape {
    /// Returns a short description: `leveling T=10 partial`.
    pub fn describe(&self) -> String {
        let policy = match self.policy {
            Policy::Leveling => "leveling".to_owned(),
            Policy::Tiering => "tiering".to_owned(),
            Policy::LazyLeveling => "lazy-leveling".to_owned(),
            Policy::Hybrid(levels) => format!("hybrid:{levels}"),
            Policy::Fragmented => "fragmented".to_owned(),
            Policy::Fifo => "fifo".to_owned(),
            Policy::TimeWindow => "time-window".to_owned(),
        };
        let merge = match (self.merge, Shape::new(self.policy, self.size_ratio).merge) {
            (merge, usual) if merge == usual => "",
            (Merge::Full, _) => " full",
            (Merge::Partial, _) => " partial",
            (Merge::Partitioned, _) => " partitioned",
        };
        format!("{policy} T={}{merge}", self.size_ratio)
    }
}
