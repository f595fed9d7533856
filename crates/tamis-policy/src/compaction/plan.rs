//! Compaction plans.

pub use crate::compaction::shape::OutputRun;
use tamis_base::ids::{RunId, TableId};
use tamis_base::key::KeyBytes;
use tamis_base::meta::Stretch;
use tamis_filter::Digest;

use crate::compaction::shape::{KeyRange, Shape, TableShape};

/// Tables of one run that a plan reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanInput {
    /// The level of the run.
    pub level: usize,
    /// The run.
    pub run: RunId,
    /// In key order.
    pub tables: Vec<TableId>,
}

/// What happens to the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// The inputs are merged into new tables.
    Merge,
    /// The inputs move to the output level unchanged, without being read.
    Move,
    /// The inputs are dropped unread: no reader may see any of their contents.
    Drop,
}

/// Why a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Level 0 has as many runs as allowed, or more.
    Level0Runs,
    /// The input level holds more bytes than its target.
    LevelSize,
    /// The input level has as many runs as are merged into one run of the next level.
    RunCount,
    /// The input level's turn has come by the number of flushes.
    FlushCount,
    /// A level that should be one run has several: another policy wrote the tree.
    Joining,
    /// A run has more tables than its bytes allow.
    SmallTables,
    /// A group of tables between two borders is being merged into the last level.
    Partition,
    /// A guard holds as many tables as allowed.
    Guard,
    /// A time window has ended.
    Window,
    /// Everything in the inputs has expired.
    Expired,
    /// Newer range deletes hide everything in the inputs.
    Covered,
    /// The tree holds more bytes than should be retained.
    Retention,
    /// The snapshots that pinned versions in the inputs are gone.
    Released,
    /// The inputs refer to blob files that are mostly garbage.
    BlobGarbage,
    /// Many of the entries in the inputs are deletes.
    Deletes,
    /// Deletes in the inputs are so old that they should be gone.
    DeleteAge,
    /// Reads have lost as much to the extra runs as merging them costs.
    Reads,
    /// A manual compaction was requested.
    Manual,
}

/// One compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Newest first: runs of level 0 from the newest, then deeper levels.
    pub inputs: Vec<PlanInput>,
    /// The level of the outputs.
    pub output_level: usize,
    /// The run that they join.
    pub output: OutputRun,
    /// The hull of the inputs.
    pub range: KeyRange,
    /// Size in bytes at which an output table ends.
    pub max_table_bytes: u64,
    /// Ascending keys before which an output table also ends, so that no output overlaps too much
    /// of the level below.
    pub borders: Vec<KeyBytes>,
    /// Ascending keys at which tables of the level below begin. A half-full output table ends
    /// before one, so that it overlaps no table below only in part.
    pub edges: Vec<KeyBytes>,
    /// Why it was made.
    pub reason: Reason,
    /// What happens to the inputs.
    pub work: Work,
    /// For levels with guards: an output table also ends before each key whose digest ends in this
    /// many zero bits.
    pub guard_bits: Option<u32>,
    /// No older data overlaps the inputs' range: deletes that every reader sees may be dropped, and
    /// the outputs' epochs may [reach down](tamis_base::epochs::EpochMap::reaching_down).
    pub bottommost: bool,
    /// What the outputs' records say about the lengths of blocks from now on.
    pub stretch: Option<Stretch>,
}

impl Plan {
    /// Returns a plan that drops, unread, every free table for which `gone` holds; `None` if there
    /// is none.
    pub fn drop_of(shape: &Shape, reason: Reason, gone: impl Fn(&TableShape) -> bool) -> Option<Plan> {
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
            edges: Vec::new(),
            reason,
            work: Work::Drop,
            guard_bits: None,
            bottommost: false,
            stretch: None,
        })
    }

    /// Returns the ids of all input tables.
    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.inputs.iter().flat_map(|input| input.tables.iter().copied())
    }
}

/// Reports whether a key with this digest is a guard of a level whose guards have digests that end
/// in `bits` zero bits (PebblesDB, section 3.2). A level with fewer bits has all guards of the
/// levels with more bits, and more.
pub fn is_guard(digest: Digest, bits: u32) -> bool {
    digest.get().trailing_zeros() >= bits
}
