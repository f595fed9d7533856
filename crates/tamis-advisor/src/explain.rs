//! Advice in words.

use std::fmt::Write as _;

use super::{Advice, Class, Ranked, Workload};

/// Configurations listed besides the best and the current one.
const LISTED: usize = 5;

pub(super) fn summary(advice: &Advice) -> String {
    let mut text = String::new();
    let Some(best) = advice.recommended() else {
        return "nothing fits the budget\n".to_owned();
    };
    let kept = if best.is_current { "keep" } else { "take" };
    let _ = writeln!(text, "{kept} {}", best.configuration.describe());
    let _ = writeln!(
        text,
        "  {:.0} ns per operation, {} of filters, {:.1} runs, each byte written {:.1} times",
        best.prediction.mean_ns,
        bytes(best.prediction.filter_bytes),
        best.prediction.runs,
        best.prediction.write_amplification
    );
    for reason in &best.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    if let Some(first) = advice.best().filter(|first| *first != best) {
        let first_name = first.configuration.describe();
        let saved = 100.0 * (1.0 - first.prediction.mean_ns / best.prediction.mean_ns);
        let _ = match first.is_rejected {
            true => writeln!(text, "  {first_name} is what the rule of filter = auto would not choose here"),
            false => writeln!(
                text,
                "  {first_name} would save {saved:.1} % by prediction, less than the prediction error"
            ),
        };
    }
    let others = || advice.ranking.ranked.iter().enumerate().filter(|(_, other)| *other != best);
    for (at, other) in others().filter(|(at, other)| *at <= LISTED || other.is_current) {
        let what = if other.is_current { " (current)" } else { "" };
        let _ = writeln!(text, "{}. {}{what}", at + 1, other.configuration.describe());
        if other.prediction.filter_bytes > advice.budget_bytes as f64 {
            let _ = writeln!(text, "  needs {}, more than the budget", bytes(other.prediction.filter_bytes));
        }
        for reason in &other.reasons {
            let _ = writeln!(text, "  {reason}");
        }
    }
    for refused in &advice.ranking.refused {
        let _ = writeln!(text, "not {}: {}", refused.selector.word(), refused.reason);
    }
    text
}

pub(super) fn formulas(ranked: &Ranked, workload: &Workload) -> String {
    let mut text = String::new();
    for class in Class::ALL {
        let share = workload.share(class);
        if share == 0.0 {
            continue;
        }
        let ns = ranked.prediction.ns(class);
        let _ = writeln!(text, "{}: {ns:.0} ns, {:.1} % of the operations", class.name(), 100.0 * share);
        for term in ranked.prediction.terms.iter().filter(|term| term.class == class) {
            let _ = writeln!(
                text,
                "  {}: {} = {} = {:.1} ns",
                term.name, term.formula, term.numbers, term.value_ns
            );
        }
    }
    let _ = writeln!(text, "mean: {:.0} ns", ranked.prediction.mean_ns);
    text
}

fn bytes(count: f64) -> String {
    match count {
        count if count >= (1u64 << 30) as f64 => format!("{:.1} GiB", count / (1u64 << 30) as f64),
        count if count >= (1u64 << 20) as f64 => format!("{:.1} MiB", count / (1u64 << 20) as f64),
        count => format!("{:.1} KiB", count / 1024.0),
    }
}
