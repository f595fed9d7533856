//! Compaction policies: pure functions from a [`Shape`] to a [`Plan`].
//!
//! A policy holds no state, does no I/O and may be asked from any thread. The caller marks a plan's inputs busy and
//! adds it to the running jobs before it asks again. Every policy takes any shape, also one that another policy left
//! behind, and leads it step by step to one of its own.

use crate::collections::HashSet;
use std::fmt::Debug;

use crate::compaction::plan::Plan;
use crate::compaction::shape::{KeyRange, Shape, TableShape};
use crate::options::{CompactionChoice, KeyspaceOptions};

pub use promise::Promise;

#[cfg(test)]
mod endurance;
pub(crate) mod fifo;
pub(crate) mod fragmented;
pub(crate) mod layered;
mod promise;
mod retention;
pub(crate) mod time_window;

/// What writers must do so that compaction keeps up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pressure {
    /// Go on.
    None,
    /// Write more slowly: from 0 (hardly) to 1 (nearly stopped).
    Slowdown(f64),
    /// Wait.
    Stop,
}

impl Pressure {
    /// The pressure of a quantity that should stay below `slow` and must stay below `stop`.
    pub(crate) fn of(value: u64, slow: u64, stop: u64) -> Pressure {
        match value {
            _ if value >= stop => Pressure::Stop,
            _ if value >= slow => Pressure::Slowdown((value - slow + 1) as f64 / (stop - slow).max(1) as f64),
            _ => Pressure::None,
        }
    }

    /// The stronger of two.
    pub(crate) fn max(self, other: Pressure) -> Pressure {
        let strength = |pressure: Pressure| match pressure {
            Pressure::None => -1.0,
            Pressure::Slowdown(severity) => severity.min(1.0),
            Pressure::Stop => 2.0,
        };
        if strength(other) > strength(self) { other } else { self }
    }
}

/// Decides what to compact.
pub(crate) trait CompactionPolicy: Send + Sync + Debug {
    /// The most urgent compaction that conflicts with no running one, if any is due.
    fn plan(&self, shape: &Shape) -> Option<Plan>;

    /// If something is due, but the shape has no room for any plan that would further it: how many bytes the
    /// plan that the policy would make with room enough may write. `None` if it is not the room that is missing (a
    /// plan may still wait for running jobs). Costs up to twice what [`plan`](Self::plan) does.
    fn needs(&self, shape: &Shape) -> Option<u64> {
        shape.room?;
        if self.plan(shape).is_some() {
            return None;
        }
        let plan = self.plan(&Shape { room: None, ..shape.clone() })?;
        let named: HashSet<_> = plan.tables().collect();
        let inputs = shape.levels.iter().flat_map(|level| level.tables());
        Some(inputs.filter(|table| named.contains(&table.id())).map(TableShape::bytes).sum())
    }

    /// How writers must behave with this shape. Means nothing if nobody carries out the plans.
    fn write_pressure(&self, shape: &Shape) -> Pressure;

    /// Roughly how many bytes must be read and written again before nothing is due.
    fn debt(&self, shape: &Shape) -> u64;

    /// The size in bytes that each level should have at most, from level 0 on; 0 where the level should be
    /// empty or is not measured in bytes.
    fn level_targets(&self, shape: &Shape) -> Vec<u64>;

    /// The number of runs that each level may have at most when nothing is due, and what else can be promised of a
    /// tree of this shape.
    fn promise(&self, shape: &Shape) -> Promise;

    /// The next step of compacting what overlaps `range` (everything if `None`) into one run of the last level that
    /// holds data. `None` while nothing is running: it is done. `None` with running jobs: ask again when one
    /// ended.
    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan>;

    /// Whether another policy may take over once `plan` is done: it ends a compaction round, or the shape depends
    /// on no round.
    fn ends_round(&self, shape: &Shape, plan: &Plan) -> bool;

    /// Whether the policy drops data that nobody deleted. Snapshots then hold on to the tables themselves.
    fn drops_data(&self) -> bool {
        false
    }

    /// The policy's name in statistics and options.
    fn name(&self) -> String;
}

/// The policy that a keyspace's options ask for.
pub(crate) fn policy_for(options: &KeyspaceOptions) -> Box<dyn CompactionPolicy> {
    match options.compaction {
        CompactionChoice::Fragmented => Box::new(fragmented::Fragmented::new(options)),
        CompactionChoice::Fifo => Box::new(fifo::Fifo::new(options)),
        CompactionChoice::TimeWindow => Box::new(time_window::TimeWindow::new(options)),
        CompactionChoice::Leveling
        | CompactionChoice::Tiering
        | CompactionChoice::LazyLeveling
        | CompactionChoice::Hybrid(_) => Box::new(layered::Layered::new(options)),
    }
}
