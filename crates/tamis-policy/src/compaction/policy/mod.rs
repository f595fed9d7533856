//! Compaction policies: pure functions from a [`Shape`] to a [`Plan`].
//!
//! A policy holds no state, does no I/O and may be called from any thread. The caller marks a
//! plan's inputs busy and adds the plan to the running jobs before the next call. A policy accepts
//! any shape, including another policy's, and converts it to its own step by step.

use std::fmt::Debug;

use crate::compaction::plan::{Plan, Reason};
use crate::compaction::settings::{Form, Settings};
use crate::compaction::shape::{KeyRange, Shape, Spot, TableShape};

pub use promise::Promise;
use tamis_base::collections::HashSet;

#[cfg(test)]
mod endurance;
mod fifo;
mod fragmented;
pub(super) mod layered;
mod promise;
mod retention;
mod small;
#[cfg(test)]
mod tests;
mod time_window;

/// How writers must be throttled so that compaction keeps up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pressure {
    /// No throttling.
    None,
    /// Write more slowly: from 0 (hardly) to 1 (nearly stopped).
    Slowdown(f64),
    /// Writes stall.
    Stop,
}

impl Pressure {
    /// Returns the pressure of a quantity that should stay below `slow` and must stay below `stop`.
    pub fn of(value: u64, slow: u64, stop: u64) -> Pressure {
        match value {
            _ if value >= stop => Pressure::Stop,
            _ if value >= slow => Pressure::Slowdown((value - slow + 1) as f64 / (stop - slow).max(1) as f64),
            _ => Pressure::None,
        }
    }

    /// Returns the stronger of two pressures.
    pub fn max(self, other: Pressure) -> Pressure {
        let strength = |pressure: Pressure| match pressure {
            Pressure::None => -1.0,
            Pressure::Slowdown(severity) => severity.min(1.0),
            Pressure::Stop => 2.0,
        };
        if strength(other) > strength(self) { other } else { self }
    }
}

/// Decides what to compact.
pub trait CompactionPolicy: Send + Sync + Debug {
    /// Returns the most urgent compaction that conflicts with no running one, if any is due.
    fn plan(&self, shape: &Shape) -> Option<Plan>;

    /// If a compaction is due but no plan fits the room, returns the bytes that the plan for
    /// unlimited room may write. `None` if room is not the obstacle: a plan may be deferred or wait
    /// for running jobs. Costs up to three times as much as [`plan`](Self::plan).
    fn needs(&self, shape: &Shape) -> Option<u64> {
        shape.room?;
        // A deferred plan appears with `settling`, in the same room.
        if self.plan(shape).is_some() || self.plan(&Shape { settling: true, ..shape.clone() }).is_some() {
            return None;
        }
        let plan = self.plan(&Shape { room: None, settling: true, ..shape.clone() })?;
        let named: HashSet<_> = plan.tables().collect();
        let inputs = shape.levels.iter().flat_map(|level| level.tables());
        Some(inputs.filter(|table| named.contains(&table.id())).map(TableShape::bytes).sum())
    }

    /// Returns the write pressure of this shape. Meaningless if no one executes the plans.
    fn write_pressure(&self, shape: &Shape) -> Pressure;

    /// Returns roughly how many bytes must be read and rewritten before nothing is due.
    fn debt(&self, shape: &Shape) -> u64;

    /// Returns the target size in bytes of each level, from level 0: its maximum, or 0 where the
    /// level should be empty or is not measured in bytes.
    fn level_targets(&self, shape: &Shape) -> Vec<u64>;

    /// Returns the maximum number of runs in each level when nothing is due, and what else is
    /// promised for a tree of this shape.
    fn promise(&self, shape: &Shape) -> Promise;

    /// Returns the next step of compacting everything that overlaps `range` (all keys if `None`)
    /// into one run of the last level that holds data. `None` while nothing is running means done;
    /// `None` with running jobs means that the caller should ask again when one has ended.
    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan>;

    /// Returns the next step in taking one table to where nothing older overlaps it, with no more
    /// of the data above it than the shape requires. `None` if there is no such step, or none
    /// possible now. Each step takes the table to a deeper level, or merges everything that
    /// overlaps it in the deepest one, so a chain of steps ends.
    fn deepen(&self, shape: &Shape, spot: &Spot<'_>, reason: Reason) -> Option<Plan>;

    /// Reports whether another policy may take over once `plan` is done: it ends a compaction
    /// round, or the shape does not depend on rounds.
    fn ends_round(&self, shape: &Shape, plan: &Plan) -> bool;

    /// Reports whether the policy drops data that was never deleted. Snapshots then hold on to the
    /// tables themselves.
    fn drops_data(&self) -> bool {
        false
    }

    /// Returns the policy's name in statistics and options.
    fn name(&self) -> String;
}

/// Creates the policy that the settings name.
pub fn policy_for(settings: &Settings) -> Box<dyn CompactionPolicy> {
    match settings.form {
        Form::Fragmented => Box::new(fragmented::Fragmented::new(settings)),
        Form::Fifo => Box::new(fifo::Fifo::new(settings)),
        Form::TimeWindow => Box::new(time_window::TimeWindow::new(settings)),
        Form::Leveling | Form::Tiering | Form::LazyLeveling | Form::Hybrid(_) => {
            Box::new(layered::Layered::new(settings))
        }
    }
}
