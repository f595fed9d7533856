//! Finds the options that suit the data, the operations and the machine: measures, predicts,
//! explains.
//!
//! 1. [`Calibration::measure`] times the engine's own paths on this machine: T_H (a digest), T_P (a
//!    probe of each kind of filter), T_D (a block read), puts, merges.
//! 2. [`Observed::between`] derives the workload from a database's counters; a [`Workload`] can
//!    also be declared.
//! 3. [`advise`] ranks the configurations that fit a budget by the model of
//!    [`tamis_model::engine`]. [`Advice`] explains the ranking and holds the options that apply it.
//! 4. [`decide`] reports whether a change is worth it, with hysteresis, for callers that ask
//!    periodically.
//! 5. [`auto`] returns options under which an open database asks by itself, through [`Advisor`].
//!
//! ```
//! use tamis::Options;
//! use tamis_advisor::{Calibration, Data, Effort, Setup, Workload, advise};
//!
//! let calibration = Calibration::measure(&Setup::new(8, 100).effort(Effort::Quick))?;
//! let data = Data::new(1_000_000, 8.0, 100.0);
//! let workload = Workload { empty_gets: 0.9, puts: 0.1, ..Workload::default() };
//! let advice = advise(&calibration, &data, &workload, 2 << 20, &Options::default());
//! println!("{}\n{}", advice.explain(), advice.changes);
//! # Ok::<(), tamis::Error>(())
//! ```
//!
//! Threads: everything runs on the calling thread. Measuring creates in-memory databases, which
//! start their own background threads, and leaves nothing behind. Cost: measuring takes up to two
//! seconds (`Full`) or a tenth of a second (`Quick`), advice some tens of milliseconds.
//!
//! [`tamis_model::engine`] lists what the model leaves out. Measured costs are those of one thread
//! that reads without a pause.

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
mod tuner;

pub use tamis_model::engine::{
    Allocation, Class, Configuration, Counts, Data, Keys, Machine, Merge, Operations, Policy, Prediction,
    ProbeCost, Ranked, Ranking, ReadPath, Refused, Selector, Shape, Space, State, Term, Tree,
    UnknownWorkload, Workload, counts, grow, grow_from, predict, predict_tree, rank, zipf_exponent,
};

pub use calibrate::{Calibration, Effort, Setup};
pub use decide::{Change, decide};
pub use observe::Observed;
pub use tuner::{Advisor, auto};

use tamis::Options;

/// The least part of an operation's time that a change must save. The model's errors are larger,
/// but mostly alike for all.
const KEPT: f64 = 0.05;

/// Configurations within this part of the best one's time count as equal.
const ALIKE: f64 = 0.01;

/// Tolerated excess over the budget: the data may grow between two checks, and memory is counted
/// only from time to time.
const SLACK: f64 = 1.05;

/// Reports whether the filters of a configuration fit a budget.
fn fits(ranked: &Ranked, budget_bytes: u64) -> bool {
    let slack = if ranked.is_current { SLACK } else { 1.0 };
    ranked.prediction.filter_bytes <= budget_bytes as f64 * slack
}

/// Returns the recommended configuration of a ranking (best first) among those that fit the budget.
/// This is the current one unless the best saves more than a twentieth of its time; otherwise it is
/// the one with the smallest filters among the best and those at most a hundredth slower. One that
/// the rule of `filter = auto` rejects ([`Ranked::is_rejected`]) is not recommended if there is
/// another.
pub fn recommend(ranked: &[Ranked], budget_bytes: u64) -> Option<&Ranked> {
    let fits = |ranked: &&Ranked| fits(ranked, budget_bytes) && !ranked.is_rejected;
    let first = ranked.iter().find(fits).or(ranked.first())?.prediction.mean_ns;
    let within = |part: f64| move |other: &&Ranked| first >= other.prediction.mean_ns * (1.0 - part);
    let bytes = |ranked: &Ranked| ranked.prediction.filter_bytes;
    let kept = ranked.iter().filter(fits).filter(within(KEPT)).find(|now| now.is_current);
    let alike = || ranked.iter().filter(fits).filter(within(ALIKE));
    kept.or_else(|| alike().min_by(|a, b| bytes(a).total_cmp(&bytes(b)))).or(ranked.first())
}

/// The selector that a keyspace's options name for its last level.
fn selector_in(options: &tamis::KeyspaceOptions) -> Selector {
    apply::selector_of(options.filter.at(options.levels))
}

/// A recommendation with its reasons.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Advice {
    /// All configurations considered, best first, including the current one.
    pub ranking: Ranking,
    /// The budget for filters and block cache, in bytes.
    pub budget_bytes: u64,
    /// The operations it is for.
    pub workload: Workload,
    /// The data it is for.
    pub data: Data,
    /// The current options with the recommended configuration applied.
    pub options: Options,
    /// The lines of the options' text that change; empty if the current options are the best.
    pub changes: String,
}

impl Advice {
    /// Returns the recommended configuration: see [`recommend`].
    pub fn recommended(&self) -> Option<&Ranked> {
        recommend(&self.ranking.ranked, self.budget_bytes)
    }

    /// Returns the first configuration of the ranking.
    pub fn best(&self) -> Option<&Ranked> {
        self.ranking.best()
    }

    /// Returns the current configuration.
    pub fn current(&self) -> Option<&Ranked> {
        self.ranking.current()
    }

    /// Explains the recommendation in words: its cost, the largest parts of it, why others lose,
    /// which ones are unavailable.
    pub fn explain(&self) -> String {
        explain::summary(self)
    }

    /// Returns every term of the best configuration: in symbols, with numbers filled in, and its
    /// value.
    pub fn formulas(&self) -> String {
        self.recommended().map_or_else(String::new, |best| explain::formulas(best, &self.workload))
    }
}

/// Ranks all configurations whose filters and block cache fit in `budget_bytes` bytes, with the
/// tree's shape free, and returns the changes to `current`. Shapes that drop data (`fifo`,
/// `time-window`) are neither recommended nor replaced.
pub fn advise(
    calibration: &Calibration,
    data: &Data,
    workload: &Workload,
    budget_bytes: u64,
    current: &Options,
) -> Advice {
    advise_among(calibration, data, workload, budget_bytes, current, |_| true)
}

/// Like [`advise`], but considers only the selectors that `may` accepts, and the current one.
pub fn advise_among(
    calibration: &Calibration,
    data: &Data,
    workload: &Workload,
    budget_bytes: u64,
    current: &Options,
    may: impl Fn(Selector) -> bool,
) -> Advice {
    let resolved = apply::resolved(current, data, workload);
    let now = apply::configuration_of(&resolved, data, budget_bytes);
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
    space.selectors.retain(|selector| may(*selector));
    space.keeps_order = apply::keeps_order(current);
    let ranking = rank(&calibration.machine, data, workload, &space);
    let options = match recommend(&ranking.ranked, budget_bytes) {
        Some(best) if !best.is_current => {
            let mut options = apply::options_for(&best.configuration, data, &resolved);
            // The engine finds the way from one of these to the other by itself.
            let either = matches!(best.configuration.selector, Selector::BlockedBloom | Selector::Grf);
            if apply::is_auto(current) && either && best.configuration.allocation != Allocation::Monkey {
                options.keyspace.filter = current.keyspace.filter.clone();
            }
            options
        }
        _ => current.clone(),
    };
    let changes = apply::difference(current, &options);
    Advice { ranking, budget_bytes, workload: *workload, data: data.clone(), options, changes }
}
