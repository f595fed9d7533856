//! Which options suit the data, the operations and the machine: measured, predicted, explained.
//!
//! 1. [`Calibration::measure`] times the engine's own paths on this machine: T_H (a digest), T_P (a question to each kind of
//!    filter), T_D (a block), puts, merges.
//! 2. [`Observed::between`] tells the workload from a database's counters; or it is declared, as a [`Workload`].
//! 3. [`advise`] ranks what fits a budget by the model of [`tamis_model::engine`], and [`Advice`] says why, with the options that
//!    apply it.
//! 4. [`decide`] says whether a change is worth it, with hysteresis, for those who ask again and again.
//!
//! ```
//! use tamis::Options;
//! use tamis::advise::{Calibration, Data, Effort, Setup, Workload, advise};
//!
//! let calibration = Calibration::measure(&Setup::new(8, 100).effort(Effort::Quick))?;
//! let data = Data::new(1_000_000, 8.0, 100.0);
//! let workload = Workload { empty_gets: 0.9, puts: 0.1, ..Workload::default() };
//! let advice = advise(&calibration, &data, &workload, 2 << 20, &Options::default());
//! println!("{}\n{}", advice.explain(), advice.changes);
//! # Ok::<(), tamis::Error>(())
//! ```
//!
//! Threads: everything here is called from the thread that asks. Measuring makes databases of its own, in memory, and starts
//! their background threads; nothing of it stays. Costs: measuring takes up to two seconds (`Full`) or a tenth of one (`Quick`),
//! advice some tens of milliseconds.
//!
//! What the model leaves out stands in [`tamis_model::engine`]. Measured costs are those of one thread that asks without a
//! break.

mod apply;
mod calibrate;
mod decide;
mod device;
mod explain;
mod filters;
mod observe;
mod reads;
#[cfg(test)]
mod tests;

pub use tamis_model::engine::{
    Allocation, Class, Configuration, Counts, Data, Keys, Machine, Merge, Policy, Prediction, ProbeCost,
    Ranked, Ranking, ReadPath, Refused, Selector, Shape, Space, State, Term, Tree, UnknownWorkload, Workload,
    counts, grow, grow_from, predict, predict_tree, rank, zipf_exponent,
};

pub use calibrate::{Calibration, Effort, Setup};
pub use decide::{Change, decide};
pub use observe::Observed;
pub(crate) use observe::{data_of_tables, operations_of, workload_of};

use crate::options::Options;

/// A change must save more than this part of an operation's time. The model's errors are larger, but mostly the same for all.
const KEPT: f64 = 0.05;

/// Configurations within this part of the first's time do not differ.
const ALIKE: f64 = 0.01;

/// What data grows by between two looks may lie above the budget: memory is counted from time to time only.
const SLACK: f64 = 1.05;

/// Whether the filters of a configuration fit a budget.
fn fits(ranked: &Ranked, budget_bytes: u64) -> bool {
    let slack = if ranked.is_current { SLACK } else { 1.0 };
    ranked.prediction.filter_bytes <= budget_bytes as f64 * slack
}

/// Of a ranking, best first, what is recommended of those that fit: what there is now, if the first saves less than a twentieth of
/// its time; else the first, or of those that take at most a hundredth more the one with the smallest filters.
pub fn recommend(ranked: &[Ranked], budget_bytes: u64) -> Option<&Ranked> {
    let fits = |ranked: &&Ranked| fits(ranked, budget_bytes);
    let first = ranked.iter().find(fits).or(ranked.first())?.prediction.mean_ns;
    let within = |part: f64| move |other: &&Ranked| first >= other.prediction.mean_ns * (1.0 - part);
    let bytes = |ranked: &Ranked| ranked.prediction.filter_bytes;
    let kept = ranked.iter().filter(fits).filter(within(KEPT)).find(|now| now.is_current);
    let alike = || ranked.iter().filter(fits).filter(within(ALIKE));
    kept.or_else(|| alike().min_by(|a, b| bytes(a).total_cmp(&bytes(b)))).or(ranked.first())
}

/// The selector that a keyspace's options name for its last level.
pub(crate) fn selector_in(options: &crate::KeyspaceOptions) -> Selector {
    apply::selector_of(options.filter.at(options.levels))
}

/// What to do, and why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Advice {
    /// All configurations that were looked at, best first, the present one among them.
    pub ranking: Ranking,
    /// For how many bytes of filters and block cache.
    pub budget_bytes: u64,
    /// The operations it is for.
    pub workload: Workload,
    /// The data it is for.
    pub data: Data,
    /// The present options with the recommended configuration in.
    pub options: Options,
    /// The lines of the options' text that change; empty if the present options are the best.
    pub changes: String,
}

impl Advice {
    /// What is recommended: see [`recommend`].
    pub fn recommended(&self) -> Option<&Ranked> {
        recommend(&self.ranking.ranked, self.budget_bytes)
    }

    /// The first of the ranking.
    pub fn best(&self) -> Option<&Ranked> {
        self.ranking.best()
    }

    /// What there is now.
    pub fn current(&self) -> Option<&Ranked> {
        self.ranking.current()
    }

    /// The recommendation in words: what it costs, what most of that is, what others lose by, what cannot be had.
    pub fn explain(&self) -> String {
        explain::summary(self)
    }

    /// Every term of the best configuration: with symbols, with numbers in, and its value.
    pub fn formulas(&self) -> String {
        self.recommended().map_or_else(String::new, |best| explain::formulas(best, &self.workload))
    }
}

/// Ranks all configurations for which `budget_bytes` bytes of filters and block cache suffice, with the tree's shape free, and
/// says what to change in `current`. Shapes that drop data (`fifo`, `time-window`) are neither recommended nor replaced.
pub fn advise(
    calibration: &Calibration,
    data: &Data,
    workload: &Workload,
    budget_bytes: u64,
    current: &Options,
) -> Advice {
    advise_among(calibration, data, workload, budget_bytes, current, |_| true)
}

/// The same with some selectors left out, but for the present one.
pub(crate) fn advise_among(
    calibration: &Calibration,
    data: &Data,
    workload: &Workload,
    budget_bytes: u64,
    current: &Options,
    may: impl Fn(Selector) -> bool,
) -> Advice {
    let now = apply::configuration_of(current, data, budget_bytes);
    let drops_data = matches!(now.shape.policy, Policy::Fifo | Policy::TimeWindow);
    let mut space = match drops_data || current.keyspace.deterministic {
        true => Space::of_shape(budget_bytes, now.shape),
        false => {
            let mut space = Space::new(budget_bytes);
            for shape in &mut space.shapes {
                shape.level0_runs = now.shape.level0_runs;
                shape.levels = now.shape.levels;
                shape.read_compaction = now.shape.read_compaction;
            }
            space.shapes.push(now.shape);
            space
        }
    };
    space.current = Some(now);
    space.shapes.dedup();
    let mut ranking = rank(&calibration.machine, data, workload, &space);
    ranking.ranked.retain(|ranked| ranked.is_current || may(ranked.configuration.selector));
    let options = match recommend(&ranking.ranked, budget_bytes) {
        Some(best) if !best.is_current => apply::options_for(&best.configuration, data, current),
        _ => current.clone(),
    };
    let changes = apply::difference(current, &options);
    Advice { ranking, budget_bytes, workload: *workload, data: data.clone(), options, changes }
}
