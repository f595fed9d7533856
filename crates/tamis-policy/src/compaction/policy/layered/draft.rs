//! What a layered plan is made of: the layout of the tree, and a draft.

use std::ops::Range;

use tamis_base::meta::Stretch;

use crate::compaction::plan::{Plan, Reason};
use crate::compaction::shape::{RunShape, TableShape};

/// Tables of one run to be compacted.
#[derive(Clone)]
pub(super) struct Selected<'a> {
    pub(super) level: usize,
    pub(super) run: &'a RunShape,
    pub(super) tables: Range<usize>,
}

impl<'a> Selected<'a> {
    pub(super) fn whole(level: usize, run: &'a RunShape) -> Self {
        Selected { level, run, tables: 0..run.tables.len() }
    }

    pub(super) fn tables(&self) -> &'a [TableShape] {
        &self.run.tables[self.tables.clone()]
    }
}

/// Where a plan's outputs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputPlace {
    /// Into the only run of the output level, whose overlapping tables are inputs.
    Joined,
    /// Into the only run of the output level; the whole run is input unless nothing overlaps and a
    /// move is enough.
    JoinedWhole,
    /// A new run on top of the output level.
    Stacked,
    /// Into the newest of the selected runs in the output level.
    NewestInput,
}

/// A plan under construction.
pub(super) struct Draft<'a> {
    /// Newest run first.
    pub(super) selected: Vec<Selected<'a>>,
    pub(super) output_level: usize,
    pub(super) place: OutputPlace,
    pub(super) reason: Reason,
    /// Tables of the output run that are included even if nothing overlaps them.
    pub(super) besides: Range<usize>,
    pub(super) max_table_bytes: u64,
    /// The lengths of blocks from now on; `None` keeps them.
    pub(super) stretch: Option<Stretch>,
}

/// How a level is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its runs are merged together into one run of the next level.
    Tiering,
    /// It is a single, growing run.
    Leveling,
}

/// Where the data should be, and what stands in the way of plans.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Per level; 0 above the base level, and everywhere if only runs count.
    pub(super) targets: Vec<u64>,
    /// Whether targets count; otherwise only the numbers of runs do.
    pub(super) counts_bytes: bool,
    /// The first used level below level 0.
    pub(super) base: usize,
    /// The deepest level to fill.
    pub(super) last: usize,
    /// The level that level 0 compacts into: the base level, or a level above it that is still in
    /// use.
    pub(super) level0_output: usize,
    /// Bytes that a plan may write; `None` if unlimited.
    pub(super) room: Option<u64>,
    /// Whether a table is damaged: no job can read it, now or later.
    pub(super) is_damaged: bool,
}

impl Layout {
    /// Reports whether a smaller plan should be made, since this one is impossible for a reason that
    /// may last: room is all that it lacks, or a table is damaged. A job in the way is no reason: it
    /// ends.
    pub(super) fn is_too_much(&self, plan: impl FnOnce(&Layout) -> Option<Plan>) -> bool {
        self.is_damaged || self.room.is_some() && plan(&Layout { room: None, ..self.clone() }).is_some()
    }

    /// Returns the level that is merged into the last one in groups, if merges are partitioned.
    pub(super) fn partitioned(&self) -> Option<usize> {
        (self.last > 1).then(|| self.last - 1)
    }
}
