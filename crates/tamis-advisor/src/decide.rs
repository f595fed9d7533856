//! When a change is worth it.
//!
//! A workload at the boundary between two configurations favours now one, now the other, as its
//! counters fluctuate. A change must therefore promise a gain beyond a margin, and the next check
//! must promise it again. The caller remembers the last answer; this function is pure.

use super::{Advice, Ranked};
use tamis::Options;

/// A worthwhile change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change {
    /// The options to change to.
    pub options: Options,
    /// The lines of their text that change.
    pub changes: String,
    /// The predicted saving, as a part of the current time per operation.
    pub gain: f64,
    /// Whether some of it takes effect only at the next open: whatever concerns a filter for the
    /// whole tree, and memory. Filters of single tables and the compaction policy can be changed at
    /// once with [`Keyspace::set_options`](tamis::Keyspace::set_options).
    pub needs_reopening: bool,
    /// The gain, in words.
    pub reason: String,
}

/// Reports whether to leave `current` for what `advice` recommends: only if that saves more than
/// the part `hysteresis` of the current time per operation (0.15: fifteen per cent). Prediction and
/// observation err by some per cent, and a change rewrites tables, so less than a tenth is seldom
/// wise.
///
/// Decisions do not flap: after a change the new configuration is the current one, and the old one
/// would have to be better by the same margin to replace it. Two checks whose predictions differ by
/// less than the margin on either side never cause changes in both directions. A current
/// configuration that exceeds the budget is always left.
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
            "{} takes {:.0} ns per operation, {} takes {:.0}",
            best.configuration.describe(),
            best.prediction.mean_ns,
            now.configuration.describe(),
            now.prediction.mean_ns
        ),
        false => format!(
            "{} needs {:.0} bytes of filters, the budget is {}",
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
    let of_tree = |options: &Options| options.keyspace.filter.of_tree();
    let (was, becomes) = (of_tree(current), of_tree(&advice.options));
    // A filter for the whole tree is configured when the database is opened.
    let needs_reopening = was.is_some() || becomes.is_some() || !changes.lines().all(changes_in_use);
    Some(Change { options: advice.options.clone(), changes, gain, needs_reopening, reason })
}

/// Returns the part of the current time that the best saves; 0 if no time is predicted for either.
fn saved(best: &Ranked, now: &Ranked) -> f64 {
    let (best, now) = (best.prediction.mean_ns, now.prediction.mean_ns);
    if now > 0.0 { (1.0 - best / now).max(0.0) } else { 0.0 }
}
