//! Targets of tamis, as ratios to the best other engine in the same run.
//!
//! Targets apply to keys of 8 and values of 256 bytes, those of large values to all sizes, and to `tamis` with its
//! defaults and one thread, or several for writers and syncs. Targets that are no ratios are not judged here. A target is
//! judged where its row was measured; without anything to compare with it is neither met nor missed.

use super::figure::Figure;
use super::summary::{Group, Suite};

/// The system that has targets.
pub(super) const SYSTEM: &str = "tamis";

/// The conditions to which targets apply.
const KEY_BYTES: u64 = 8;
const VALUE_BYTES: u64 = 256;

/// The suite whose targets apply to values of all sizes.
const LARGE: &str = "large";

/// Ratios are quotients of medians: a smaller deficit is a rounding error.
const EXACT: f64 = 1e-9;

/// One target. `None` matches anything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) suite: Option<&'static str>,
    pub(super) workload: Option<&'static str>,
    pub(super) threads: Option<usize>,
    pub(super) figure: Figure,
    /// The required ratio to the best.
    pub(super) at_least: f64,
}

/// The verdict on a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict<'a> {
    pub(super) target: &'a Target,
    /// `None`: nothing to compare with.
    pub(super) ratio: Option<f64>,
}

impl Verdict<'_> {
    /// Reports whether it is met.
    pub(super) fn is_met(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio >= self.target.at_least * (1.0 - EXACT))
    }
}

/// Returns a target for one thread: its time against the best.
const fn time(suite: &'static str, workload: &'static str, at_least: f64) -> Target {
    Target {
        suite: Some(suite),
        workload: Some(workload),
        threads: Some(1),
        figure: Figure::NsPerOp,
        at_least,
    }
}

/// Returns a target for all workloads of a suite.
const fn all(suite: &'static str, at_least: f64) -> Target {
    Target { workload: None, ..time(suite, "", at_least) }
}

const fn rate(suite: &'static str, workload: &'static str, threads: usize, at_least: f64) -> Target {
    Target { threads: Some(threads), figure: Figure::OpsPerSecond, ..time(suite, workload, at_least) }
}

/// Returns a target for the slowest of 10,000 puts: within 1.2 times the best.
const fn tail(suite: &'static str, workload: &'static str) -> Target {
    Target { figure: Figure::PutP9999, ..time(suite, workload, 1.0 / 1.2) }
}

const fn cost(figure: Figure) -> Target {
    Target { suite: None, workload: None, threads: None, figure, at_least: 1.0 }
}

/// All targets.
pub(super) const TARGETS: &[Target] = &[
    time("compacted", "get-empty", 2.0),
    time("compacted", "get-existing", 2.0),
    time("compacted", "get-zipf", 1.8),
    time("compacted", "range-empty", 1.3),
    time("compacted", "seek", 1.3),
    time("compacted", "seek-next50", 1.3),
    time("compacted", "reverse-next50", 1.3),
    time("settled", "get-empty", 2.0),
    time("settled", "get-existing", 2.0),
    time("settled", "get-zipf", 1.8),
    time("settled", "range-empty", 1.3),
    time("settled", "seek", 1.3),
    time("settled", "seek-next50", 1.3),
    time("settled", "reverse-next50", 1.3),
    time("runs", "get-empty", 4.0),
    time("load", "fill-random", 2.0),
    time("load", "fill-seq", 2.0),
    tail("load", "fill-random"),
    tail("load", "fill-seq"),
    tail("ycsb", "ycsb-a"),
    time("batch", "fill-random", 1.5),
    rate("writers", "fill-random", 2, 1.5),
    rate("writers", "fill-random", 8, 1.5),
    rate("sync", "overwrite", 1, 1.0),
    rate("sync", "overwrite", 8, 1.5),
    rate("sync", "overwrite", 32, 1.5),
    rate("steady", "overwrite", 1, 1.5),
    all("beyond-memory", 1.1),
    all(LARGE, 1.0),
    cost(Figure::WriteAmplification),
    cost(Figure::SpaceAmplification),
];

impl Target {
    /// Returns a label for lists: the figure if it is not the suite's own.
    pub(super) fn label(&self) -> &'static str {
        if self.figure == Figure::headline(self.suite.unwrap_or("")) { "" } else { self.figure.name() }
    }

    fn is_about(&self, suite: &Suite, group: &Group) -> bool {
        let conditions = &group.conditions;
        self.suite.is_none_or(|name| name == suite.name)
            && self.workload.is_none_or(|name| name == conditions.workload)
            && self.threads.is_none_or(|threads| threads == conditions.threads)
            && conditions.key_bytes == KEY_BYTES
            && (conditions.value_bytes == VALUE_BYTES || self.suite == Some(LARGE))
    }
}

/// Judges the targets that apply to a group. `costs` selects cost targets, which apply to every row, or the others.
pub(super) fn judge(suite: &Suite, group: &Group, costs: bool) -> Vec<Verdict<'static>> {
    let about = TARGETS.iter().filter(|target| target.suite.is_none() == costs);
    let about = about.filter(|target| target.is_about(suite, group));
    let judged = about.filter_map(|target| {
        let ours = group.spread(SYSTEM, target.figure)?.median;
        let best = group.best(target.figure).map(|(_, best)| best.median);
        Some(Verdict { target, ratio: best.map(|best| target.figure.ratio(ours, best)) })
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Row;
    use crate::report::summary::Summary;
    use crate::report::synthetic::{comparison, refused, rows_of};
    use crate::report::text;

    /// Returns the verdicts on one workload with this number of threads in words.
    fn judged(rows: &[Row], workload: &str, threads: usize) -> Vec<String> {
        let summary = Summary::of(rows);
        let suite = &summary.suites[0];
        let wanted =
            |g: &&Group| (g.conditions.workload.as_str(), g.conditions.threads) == (workload, threads);
        let group = suite.groups.iter().find(wanted).unwrap();
        judge(suite, group, false).iter().map(text::verdict).collect()
    }

    #[test]
    fn targets_are_met_exactly_or_missed_by_their_deficit() {
        let of = |ours: f64| {
            let rows = rows_of("settled", "get-empty", &[("tamis", &[ours]), ("fjall", &[460.0])]);
            judged(&rows, "get-empty", 1)
        };
        assert_eq!(of(230.0), ["≥ 2.00×: 2.00× met"]);
        assert_eq!(of(200.0), ["≥ 2.00×: 2.30× met, 15 % above"]);
        assert_eq!(of(287.5), ["≥ 2.00×: 1.60× missed by 20 %"]);
        assert_eq!(of(230.1), ["≥ 2.00×: 2.00× missed by less than 0.1 %"]);
    }

    #[test]
    fn other_keys_and_values_have_no_targets() {
        let mut rows = rows_of("settled", "get-empty", &[("tamis", &[1.0]), ("rocksdb", &[9.0])]);
        for row in &mut rows {
            row.conditions.key_bytes = 32;
        }
        assert!(judged(&rows, "get-empty", 1).is_empty());
    }

    #[test]
    fn costs_may_tie() {
        let rows = rows_of("load", "fill-seq", &[("tamis", &[1.0]), ("rocksdb", &[9.0])]);
        let summary = Summary::of(&rows);
        let (suite, group) = (&summary.suites[0], &summary.suites[0].groups[0]);
        let costs = judge(suite, group, true);
        // There were no writes, so there is no write amplification to judge.
        assert_eq!(costs.len(), 1);
        assert!(costs.iter().all(Verdict::is_met));
        let tail: Vec<String> = judge(suite, group, false).iter().map(text::verdict).collect();
        assert_eq!(
            tail,
            ["≥ 2.00×: 9.00× met, 350 % above", "p99.99 of puts ≥ 0.83×: 9.00× met, 980 % above"]
        );
    }

    #[test]
    fn variants_and_refused_systems_have_no_targets() {
        let systems: &[(&str, &[f64])] =
            &[("tamis-grf", &[10.0]), ("tamis:a=b", &[1.0]), ("rocksdb", &[99.0])];
        let mut rows = rows_of("runs", "get-empty", systems);
        rows.push(refused("runs", "get-empty", "tamis", "no"));
        assert!(judged(&rows, "get-empty", 1).is_empty());
    }

    #[test]
    fn large_values_and_little_memory_have_targets_in_every_row() {
        let systems: &[(&str, &[f64])] = &[("tamis", &[10.0]), ("rocksdb", &[99.0]), ("lmdb", &[9.0])];
        let mut rows = rows_of("large", "overwrite", systems);
        rows.iter_mut().for_each(|row| row.conditions.value_bytes = 4096);
        assert_eq!(judged(&rows, "overwrite", 1), ["≥ 1.00×: 0.90× missed by 10 %"]);
        let rows = rows_of("beyond-memory", "ycsb-d", systems);
        assert_eq!(judged(&rows, "ycsb-d", 1), ["≥ 1.10×: 0.90× missed by 18 %"]);
    }

    #[test]
    fn no_target_is_named_twice_and_all_names_exist() {
        for (at, target) in TARGETS.iter().enumerate() {
            let key = |t: &Target| (t.suite, t.workload, t.threads, t.figure);
            assert!(TARGETS[..at].iter().all(|other| key(other) != key(target)), "{target:?}");
            let workload = target.workload.map(str::parse::<tamis_bench::Workload>);
            assert!(workload.is_none_or(|parsed| parsed.is_ok()), "{target:?}");
        }
        let summary = Summary::of(&comparison());
        let judged = |suite: &Suite| -> usize {
            suite.groups.iter().map(|group| judge(suite, group, false).len()).sum()
        };
        let judged: Vec<(&str, usize)> =
            summary.suites.iter().map(|suite| (suite.name.as_str(), judged(suite))).collect();
        // The rows have no scans backwards, and puts have tails in loads only.
        assert_eq!(judged, [("settled", 6), ("runs", 1), ("load", 4), ("ycsb", 0)]);
    }
}
