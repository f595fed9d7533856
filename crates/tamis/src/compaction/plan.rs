//! What a compaction is to do, and the policies' interface.
//!
//! A policy is a pure function from a [`Shape`] to a [`Plan`]: it holds no state, does no I/O and may be
//! asked from any thread. The caller marks a plan's inputs busy and adds it to the running jobs before it
//! asks again.

use std::fmt::Debug;

use crate::compaction::shape::{KeyRange, Shape};
use crate::key::KeyBytes;
use crate::tree::meta::{RunId, TableId};

/// Tables of one run that a plan reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanInput {
    pub(crate) level: usize,
    pub(crate) run: RunId,
    /// In key order.
    pub(crate) tables: Vec<TableId>,
}

/// The run that the outputs join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputRun {
    /// The run that the output level has. If it lost its last table to another job meanwhile, it comes back
    /// under this number.
    Into(RunId),
    /// A new run: the output level is empty. No other plan fills that level as long as this one runs.
    New,
}

/// Why a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Level 0 has as many runs as are allowed, or more.
    Level0Runs,
    /// The input level holds more bytes than its target.
    LevelSize,
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
    /// The input tables move to the output level as they are, without being read.
    pub(crate) trivial_move: bool,
    /// No older data overlaps the inputs' range: deletes that every reader sees may go, and the outputs'
    /// epochs may [reach down](crate::tree::epochs::EpochMap::reaching_down).
    pub(crate) bottommost: bool,
}

impl Plan {
    /// All input tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.inputs.iter().flat_map(|input| input.tables.iter().copied())
    }
}

/// What writers must do so that compaction keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// Go on.
    None,
    /// Write more slowly.
    Slowdown,
    /// Wait.
    Stop,
}

/// Decides what to compact.
pub(crate) trait CompactionPolicy: Send + Sync + Debug {
    /// The most urgent compaction that conflicts with no running one, if any is due.
    fn plan(&self, shape: &Shape) -> Option<Plan>;

    /// How writers must behave with this shape. Means nothing if nobody carries out the plans.
    fn write_pressure(&self, shape: &Shape) -> Pressure;

    /// The size in bytes that each level should have at most, from level 0 on; 0 where the level should be
    /// empty or is not measured in bytes (level 0).
    fn level_targets(&self, shape: &Shape) -> Vec<u64>;

    /// The next step of compacting what overlaps `range` (everything if `None`) into the last level that
    /// holds data. `None` while nothing is running: it is done. `None` with running jobs: ask again when one
    /// ended.
    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan>;

    /// The policy's name in statistics and options.
    fn name(&self) -> &'static str;
}
