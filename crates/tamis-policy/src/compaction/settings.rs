//! What a policy is made from: the part of a keyspace's options that it goes by, as plain data.

use std::fmt;
use std::time::Duration;

/// The form that compaction gives to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Level 0 collects runs, every deeper level is one run.
    Leveling,
    /// Every level collects runs.
    Tiering,
    /// Tiering above a last level of one run.
    LazyLeveling,
    /// Tiering above, and this many leveling levels at the bottom.
    Hybrid(usize),
    /// Levels of fragments between guards.
    Fragmented,
    /// Nothing is merged but small runs; the oldest are dropped.
    Fifo,
    /// Runs are merged within time windows; the oldest are dropped.
    TimeWindow,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Leveling => "leveling",
            Form::Tiering => "tiering",
            Form::LazyLeveling => "lazy-leveling",
            Form::Hybrid(levels) => return write!(f, "hybrid:{levels}"),
            Form::Fragmented => "fragmented",
            Form::Fifo => "fifo",
            Form::TimeWindow => "time-window",
        })
    }
}

impl Form {
    /// Returns how much of a level one merge takes unless somebody chooses otherwise. `counted`:
    /// levels are due by the number of flushes.
    pub fn granularity(self, counted: bool) -> Granularity {
        match self {
            Form::LazyLeveling | Form::Hybrid(1) => Granularity::Partitioned,
            Form::Leveling | Form::Hybrid(_) if counted => Granularity::Partitioned,
            Form::Leveling | Form::Hybrid(_) | Form::Fragmented => Granularity::Partial,
            Form::Tiering | Form::Fifo | Form::TimeWindow => Granularity::Full,
        }
    }

    /// Returns the granularities that may be chosen.
    pub fn granularities(self, counted: bool) -> &'static [Granularity] {
        match self {
            Form::Tiering | Form::Fifo | Form::TimeWindow => &[Granularity::Full],
            Form::Fragmented => &[Granularity::Partial],
            Form::Leveling | Form::LazyLeveling | Form::Hybrid(_) if counted => {
                &[Granularity::Full, Granularity::Partitioned]
            }
            Form::Leveling | Form::LazyLeveling | Form::Hybrid(_) => {
                &[Granularity::Full, Granularity::Partial, Granularity::Partitioned]
            }
        }
    }

    /// Reports whether levels may be due by the number of flushes alone.
    pub fn may_count(self) -> bool {
        !matches!(self, Form::Fragmented | Form::Fifo | Form::TimeWindow)
    }
}

/// How much of a level one merge takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Whole levels.
    Full,
    /// Some tables, chosen by a [`Picker`], and those that they overlap in the next level.
    Partial,
    /// Whole levels down to the last but one, and from there piece by piece, along the borders of
    /// the last level's tables.
    Partitioned,
}

/// Which tables of an oversized level a partial merge takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picker {
    /// Those that overlap the next level least for their own size.
    LeastOverlap,
    /// In turn through the key space.
    RoundRobin,
    /// Those with the largest share of deletes.
    MostTombstones,
    /// Those with the oldest data.
    Oldest,
}

/// The size ratio of each level; the last one applies to all deeper levels. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratios(Vec<u64>);

impl Ratios {
    /// Takes one ratio for each level from level 0 on; `None` if there is none.
    pub fn new(levels: Vec<u64>) -> Option<Ratios> {
        (!levels.is_empty()).then_some(Ratios(levels))
    }

    /// Returns the ratio of `level` and the next.
    pub fn at(&self, level: usize) -> u64 {
        self.0[level.min(self.0.len() - 1)]
    }
}

impl From<u64> for Ratios {
    fn from(ratio: u64) -> Ratios {
        Ratios(vec![ratio])
    }
}

/// What a policy goes by. The default is that of a keyspace's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The policy.
    pub form: Form,
    /// How much of a level one merge takes.
    pub granularity: Granularity,
    /// Which tables a partial merge takes.
    pub picker: Picker,
    /// Levels are due by the number of flushes alone.
    pub deterministic: bool,
    /// Level n + 1 is this many times larger than level n, or as many runs of level n make one of
    /// level n + 1.
    pub size_ratio: Ratios,
    /// Bytes of a flush.
    pub memtable_bytes: u64,
    /// Bytes at which an output table ends.
    pub table_bytes: u64,
    /// Levels, including level 0.
    pub levels: usize,
    /// Runs in level 0 that start a compaction.
    pub level0_runs: usize,
    /// Runs in level 0 at which writes slow down.
    pub slowdown_runs: usize,
    /// Runs in level 0 at which writes stall.
    pub stop_runs: usize,
    /// Debt in bytes at which writes slow down.
    pub slowdown_debt_bytes: u64,
    /// Debt in bytes at which writes stall.
    pub stop_debt_bytes: u64,
    /// Bytes of the tree beyond which the oldest runs are dropped.
    pub retain_bytes: u64,
    /// The age at which data expires.
    pub time_to_live: Option<Duration>,
    /// The length of a time window.
    pub time_window: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            form: Form::Leveling,
            granularity: Granularity::Partial,
            picker: Picker::LeastOverlap,
            deterministic: false,
            size_ratio: Ratios::from(10),
            memtable_bytes: 64 << 20,
            table_bytes: 64 << 20,
            levels: 7,
            level0_runs: 4,
            slowdown_runs: 20,
            stop_runs: 36,
            slowdown_debt_bytes: 64 << 30,
            stop_debt_bytes: 256 << 30,
            retain_bytes: u64::MAX,
            time_to_live: None,
            time_window: Some(Duration::from_secs(3600)),
        }
    }
}

impl Settings {
    /// The same with another form and the granularity that is usual for it.
    pub fn of_form(self, form: Form) -> Settings {
        Settings { form, granularity: form.granularity(self.deterministic), ..self }
    }

    /// Reports whether the form, the granularity and `deterministic` go together.
    pub fn are_consistent(&self) -> bool {
        (!self.deterministic || self.form.may_count())
            && self.form.granularities(self.deterministic).contains(&self.granularity)
    }
}
