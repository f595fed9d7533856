//! What a compaction is to do.

use tamis_filter::Digest;

use crate::compaction::shape::{KeyRange, Shape, TableShape};
use crate::ids::{RunId, TableId};
use crate::key::KeyBytes;

/// Tables of one run that a plan reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanInput {
    pub(crate) level: usize,
    pub(crate) run: RunId,
    /// In key order.
    pub(crate) tables: Vec<TableId>,
}

/// The run that the outputs join. All of its tables within the plan's range must be inputs, or the outputs must lie
/// between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRun {
    /// A run of the output level. If it lost its last table to another job meanwhile, it comes back under this
    /// number, and so in its place by age. A merge of runs of one level joins one of them, with nothing that overlaps
    /// it between that one and the inputs.
    Into(RunId),
    /// A new run, the newest of its level.
    New,
}

/// What becomes of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// They are merged into new tables.
    Merge,
    /// They go to the output level as they are, without being read.
    Move,
    /// They are dropped with all that they hold, unread: nobody may see any of it.
    Drop,
}

/// Why a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Level 0 has as many runs as are allowed, or more.
    Level0Runs,
    /// The input level holds more bytes than its target.
    LevelSize,
    /// The input level has as many runs as make one of the next level.
    RunCount,
    /// So many flushes have come since that it is the input level's turn.
    FlushCount,
    /// A level that should be one run has several: the tree was made under another policy.
    Joining,
    /// A group of tables between two borders is on its way into the last level.
    Partition,
    /// A guard holds as many tables as are allowed.
    Guard,
    /// A window of time has come to its end.
    Window,
    /// Everything in the inputs has outlived its time.
    Expired,
    /// Newer range deletes hide everything in the inputs.
    Covered,
    /// The tree holds more bytes than are to be kept.
    Retention,
    /// Snapshots that kept versions alive are gone.
    Released,
    /// Reads have lost as much to the runs as merging them costs.
    Reads,
    /// Somebody asked.
    Manual,
}

/// One compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Newest first: runs of level 0 from the newest on, then deeper levels.
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) output_level: usize,
    pub(crate) output: OutputRun,
    /// The hull of the inputs.
    pub(crate) range: KeyRange,
    /// Size at which an output table is ended.
    pub(crate) max_table_bytes: u64,
    /// Ascending: an output table is also ended before each of these keys, so that no output overlaps too
    /// much of the level below.
    pub(crate) borders: Vec<KeyBytes>,
    pub(crate) reason: Reason,
    pub(crate) work: Work,
    /// For levels with guards: an output table is also ended before each key whose digest ends in so many zero bits.
    pub(crate) guard_bits: Option<u32>,
    /// No older data overlaps the inputs' range: deletes that every reader sees may go, and the outputs'
    /// epochs may [reach down](crate::tree::epochs::EpochMap::reaching_down).
    pub(crate) bottommost: bool,
}

impl Plan {
    /// Drops the tables of which `gone` holds, wherever they lie, without reading them; `None` if there are none.
    pub(crate) fn drop_of(shape: &Shape, reason: Reason, gone: impl Fn(&TableShape) -> bool) -> Option<Plan> {
        let mut inputs = Vec::new();
        let mut range: Option<KeyRange> = None;
        for (level, runs) in shape.levels.iter().enumerate() {
            for run in &runs.runs {
                let tables: Vec<_> = run.tables.iter().filter(|table| gone(table)).collect();
                for table in &tables {
                    range.get_or_insert_with(|| table.range()).extend(table);
                }
                if !tables.is_empty() {
                    let tables = tables.iter().map(|table| table.id()).collect();
                    inputs.push(PlanInput { level, run: run.id, tables });
                }
            }
        }
        let last = inputs.last()?;
        Some(Plan {
            output_level: last.level,
            output: OutputRun::Into(last.run),
            range: range?,
            inputs,
            max_table_bytes: u64::MAX,
            borders: Vec::new(),
            reason,
            work: Work::Drop,
            guard_bits: None,
            bottommost: false,
        })
    }

    /// All input tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.inputs.iter().flat_map(|input| input.tables.iter().copied())
    }
}

/// Whether a key with this digest is a guard of a level whose guards have digests that end in `bits` zero bits
/// (PebblesDB, section 3.2). Levels with fewer bits have the guards of those with more, and others besides.
pub(crate) fn is_guard(digest: Digest, bits: u32) -> bool {
    digest.get().trailing_zeros() >= bits
}
