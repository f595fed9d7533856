//! When a change is worth it.
//!
//! A workload at the boundary between two configurations favours now one, now the other, by what chance makes of its counters.
//! So a change must promise a gain beyond a margin, and be promised again by the next look: the caller keeps the last answer's
//! place, this function is pure.

use super::{Advice, Ranked};
use crate::options::Options;

/// A change that is worth it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change {
    /// The options to go to.
    pub options: Options,
    /// The lines of their text that change.
    pub changes: String,
    /// The part of the present time for an operation that is saved, by prediction.
    pub gain: f64,
    /// Whether a part of it only holds from the next opening on: what concerns a filter for the whole tree, and memory. Filters
    /// of single tables and the compaction policy may change at once, by
    /// [`Keyspace::set_options`](crate::Keyspace::set_options).
    pub needs_reopening: bool,
    /// In words, what is gained.
    pub reason: String,
}

/// Whether to leave `current` for what `advice` recommends: only if that saves more than the part `hysteresis` of the present
/// time for an operation (0.15: fifteen in a hundred). Errors of prediction and of observation are some per cent, and a change
/// rewrites tables, so less than a tenth is seldom wise.
///
/// No flapping: after a change the new configuration is the present one, and to go back the old one would have to be better by
/// the same margin. So two looks whose predictions differ by less than the margin on either side never answer with changes in
/// both directions. A present configuration that does not fit the budget is always left.
pub fn decide(advice: &Advice, current: &Options, hysteresis: f64) -> Option<Change> {
    let best = advice.recommended().filter(|best| !best.is_current)?;
    let now = advice.current()?;
    let gain = saved(best, now);
    let fits = super::fits(now, advice.budget_bytes);
    let margin = if hysteresis.is_finite() { hysteresis.clamp(0.0, 1.0) } else { 1.0 };
    if fits && gain <= margin {
        return None;
    }
    let changes = super::apply::difference(current, &advice.options);
    if changes.is_empty() {
        return None;
    }
    let reason = match fits {
        true => format!(
            "{} takes {:.0} ns an operation, {} takes {:.0}",
            best.configuration.describe(),
            best.prediction.mean_ns,
            now.configuration.describe(),
            now.prediction.mean_ns
        ),
        false => format!(
            "{} takes {:.0} bytes of filters, the budget has {}",
            now.configuration.describe(),
            now.prediction.filter_bytes,
            advice.budget_bytes
        ),
    };
    let in_use = ["filter", "filter_allocation", "bits_per_key", "compaction", "merge", "size_ratio"];
    let changes_in_use = |line: &str| {
        let name = line.split(" =").next().and_then(|name| name.strip_prefix("keyspace."));
        name.is_some_and(|name| in_use.contains(&name))
    };
    let global = |options: &Options| options.keyspace.filter.global();
    let (was, becomes) = (global(current), global(&advice.options));
    // What a filter for the whole tree is like is settled when the database is opened.
    let needs_reopening = was.is_some() || becomes.is_some() || !changes.lines().all(changes_in_use);
    Some(Change { options: advice.options.clone(), changes, gain, needs_reopening, reason })
}

/// The part of the present time that the best saves; 0 if no time is predicted for either.
fn saved(best: &Ranked, now: &Ranked) -> f64 {
    let (best, now) = (best.prediction.mean_ns, now.prediction.mean_ns);
    if now > 0.0 { (1.0 - best / now).max(0.0) } else { 0.0 }
}
