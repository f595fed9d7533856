//! Targets of tamis, as ratios to the best other LSM-tree in the same run.
//!
//! Targets apply to keys of 8 and values of 256 bytes, and to exactly the system they name: `tamis` is tamis with its
//! defaults. Targets that are no ratios, and those of large values, are not judged here. A target is judged where its
//! row was measured; without anything to compare with it is neither met nor missed.

use super::figure::Figure;
use super::summary::{Group, Suite};

/// The conditions to which targets apply.
const KEY_BYTES: u64 = 8;
const VALUE_BYTES: u64 = 256;

/// Ratios are quotients of medians: a smaller deficit is a rounding error.
const EXACT: f64 = 1e-9;

/// The reference of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The best of the peers in the same row.
    Best,
    /// The best of the peers at another workload under the same conditions.
    BestAt(&'static str),
    /// The same system with this number of threads.
    OwnThreads(usize),
}

/// One target. `None` matches anything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) suite: Option<&'static str>,
    pub(super) workload: Option<&'static str>,
    pub(super) threads: Option<usize>,
    /// The numbers of keys to which it applies.
    pub(super) least_keys: u64,
    pub(super) most_keys: u64,
    pub(super) system: &'static str,
    pub(super) figure: Figure,
    pub(super) of: Reference,
    /// The required ratio.
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

/// Returns a target for `tamis` with one thread: its time against the best.
const fn time(suite: &'static str, workload: &'static str, at_least: f64) -> Target {
    Target {
        suite: Some(suite),
        workload: Some(workload),
        threads: Some(1),
        least_keys: 0,
        most_keys: u64::MAX,
        system: "tamis",
        figure: Figure::NsPerOp,
        of: Reference::Best,
        at_least,
    }
}

const fn batched(workload: &'static str, single: &'static str, at_least: f64) -> Target {
    Target { of: Reference::BestAt(single), ..time("settled", workload, at_least) }
}

const fn grf(workload: &'static str, at_least: f64) -> Target {
    Target { system: "tamis-grf", ..time("runs", workload, at_least) }
}

const fn load(workload: &'static str, least_keys: u64, at_least: f64) -> Target {
    Target { least_keys, ..time("load", workload, at_least) }
}

const fn rate(suite: &'static str, workload: &'static str, threads: usize, at_least: f64) -> Target {
    Target { threads: Some(threads), figure: Figure::OpsPerSecond, ..time(suite, workload, at_least) }
}

const fn tail(workload: &'static str) -> Target {
    Target { figure: Figure::P999, ..time("load", workload, 1.0) }
}

const fn ycsb(workload: &'static str, threads: usize) -> Target {
    rate("ycsb", workload, threads, 1.2)
}

const fn cost(figure: Figure) -> Target {
    Target {
        suite: None,
        workload: None,
        threads: None,
        least_keys: 0,
        most_keys: u64::MAX,
        system: "tamis",
        figure,
        of: Reference::Best,
        at_least: 1.0,
    }
}

/// All targets.
pub(super) const TARGETS: &[Target] = &[
    time("settled", "get-empty", 2.0),
    time("settled", "get-existing", 1.5),
    time("settled", "get-zipf", 1.5),
    batched("multi-get-empty", "get-empty", 6.0),
    batched("multi-get-existing", "get-existing", 2.5),
    time("settled", "seek", 1.3),
    time("settled", "seek-next50", 1.3),
    time("settled", "range-empty", 1.3),
    Target {
        threads: Some(2),
        figure: Figure::OpsPerSecond,
        of: Reference::OwnThreads(1),
        ..time("settled", "get-existing", 1.9)
    },
    time("runs", "get-empty", 4.0),
    time("runs", "seek", 3.0),
    time("runs", "seek-next50", 3.0),
    time("runs", "range-empty", 3.0),
    grf("get-empty", 10.0),
    grf("range-empty", 50.0),
    grf("seek", 10.0),
    Target { most_keys: 3_000_000, ..load("fill-random", 0, 1.8) },
    load("fill-random", 3_000_001, 2.2),
    load("fill-seq", 0, 1.3),
    tail("fill-random"),
    tail("fill-seq"),
    time("batch", "fill-random", 1.5),
    rate("writers", "fill-random", 2, 1.5),
    rate("writers", "fill-random", 8, 1.5),
    rate("sync", "overwrite", 1, 1.0),
    rate("sync", "overwrite", 8, 1.5),
    rate("sync", "overwrite", 32, 1.5),
    rate("steady", "overwrite", 1, 1.5),
    rate("ycsb", "ycsb-a", 1, 1.5),
    ycsb("ycsb-b", 1),
    ycsb("ycsb-c", 1),
    ycsb("ycsb-d", 1),
    ycsb("ycsb-e", 1),
    rate("ycsb", "ycsb-f", 1, 1.5),
    ycsb("ycsb-a", 2),
    ycsb("ycsb-b", 2),
    ycsb("ycsb-c", 2),
    ycsb("ycsb-d", 2),
    ycsb("ycsb-e", 2),
    ycsb("ycsb-f", 2),
    cost(Figure::WriteAmplification),
    cost(Figure::SpaceAmplification),
    cost(Figure::Resident),
];

impl Target {
    /// Returns a label for lists: the system if it is a variant, the figure if it is not the suite's own, and the
    /// reference if it is not the row's best.
    pub(super) fn label(&self) -> String {
        let mut words = vec![self.system.to_owned()];
        if self.figure != Figure::headline(self.suite.unwrap_or("")) && !self.is_scaling() {
            words.push(self.figure.name().to_owned());
        }
        match self.of {
            Reference::Best => {}
            Reference::BestAt(workload) => words.push(format!("against the best {workload}")),
            Reference::OwnThreads(1) => words.push("against its own 1 thread".to_owned()),
            Reference::OwnThreads(n) => words.push(format!("against its own {n} threads")),
        }
        words.join(" ")
    }

    fn is_scaling(&self) -> bool {
        matches!(self.of, Reference::OwnThreads(_))
    }

    fn is_about(&self, suite: &Suite, group: &Group) -> bool {
        let conditions = &group.conditions;
        self.suite.is_none_or(|name| name == suite.name)
            && self.workload.is_none_or(|name| name == conditions.workload)
            && self.threads.is_none_or(|threads| threads == conditions.threads)
            && (self.least_keys..=self.most_keys).contains(&conditions.keys)
            && (conditions.key_bytes, conditions.value_bytes) == (KEY_BYTES, VALUE_BYTES)
    }

    fn ratio(&self, suite: &Suite, group: &Group, ours: f64) -> Option<f64> {
        let conditions = &group.conditions;
        let other = match self.of {
            Reference::Best => group.best(self.figure)?.1,
            Reference::BestAt(workload) => {
                suite.sibling(group, workload, conditions.threads)?.best(self.figure)?.1
            }
            Reference::OwnThreads(threads) => {
                suite.sibling(group, &conditions.workload, threads)?.spread(self.system, self.figure)?
            }
        };
        Some(self.figure.ratio(ours, other.median))
    }
}

/// Judges the targets that apply to a group and whose system was measured. `costs` selects cost targets, which apply to
/// every row, or the others.
pub(super) fn judge(suite: &Suite, group: &Group, costs: bool) -> Vec<Verdict<'static>> {
    let about = TARGETS.iter().filter(|target| target.suite.is_none() == costs);
    let about = about.filter(|target| target.is_about(suite, group));
    let judged = about.filter_map(|target| {
        let ours = group.spread(target.system, target.figure)?.median;
        Some(Verdict { target, ratio: target.ratio(suite, group, ours) })
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
        assert_eq!(of(230.0), ["tamis ≥ 2.00×: 2.00× met"]);
        assert_eq!(of(200.0), ["tamis ≥ 2.00×: 2.30× met, 15 % above"]);
        assert_eq!(of(287.5), ["tamis ≥ 2.00×: 1.60× missed by 20 %"]);
        assert_eq!(of(230.1), ["tamis ≥ 2.00×: 2.00× missed by less than 0.1 %"]);
    }

    #[test]
    fn batches_are_compared_with_single_gets() {
        let mut rows = rows_of("settled", "multi-get-empty", &[("tamis", &[50.0]), ("fjall", &[55.0])]);
        let alone = judged(&rows, "multi-get-empty", 1);
        assert_eq!(alone, ["tamis against the best get-empty ≥ 6.00×: nothing to compare with"]);
        rows.extend(rows_of("settled", "get-empty", &[("rocksdb", &[400.0]), ("fjall", &[500.0])]));
        let both = judged(&rows, "multi-get-empty", 1);
        assert_eq!(both, ["tamis against the best get-empty ≥ 6.00×: 8.00× met, 33 % above"]);
    }

    #[test]
    fn two_threads_are_compared_with_one() {
        let mut rows = rows_of("settled", "get-existing", &[("tamis", &[100.0])]);
        let mut two = rows_of("settled", "get-existing", &[("tamis", &[100.0])]);
        two[0].conditions.threads = 2;
        two[0].figures.ops_per_second *= 1.71;
        rows.extend(two);
        let verdict = judged(&rows, "get-existing", 2);
        assert_eq!(verdict, ["tamis against its own 1 thread ≥ 1.90×: 1.71× missed by 10 %"]);
    }

    #[test]
    fn variants_have_targets_of_their_own_and_refusals_none() {
        let systems: &[(&str, &[f64])] =
            &[("tamis-grf", &[10.0]), ("tamis:a=b", &[1.0]), ("rocksdb", &[99.0])];
        let mut rows = rows_of("runs", "get-empty", systems);
        rows.push(refused("runs", "get-empty", "tamis", "no"));
        let verdicts = judged(&rows, "get-empty", 1);
        assert_eq!(verdicts, ["tamis-grf ≥ 10.0×: 9.90× missed by 1 %"]);
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
        assert_eq!(costs.len(), 2);
        assert!(costs.iter().all(Verdict::is_met));
        let tail: Vec<String> = judge(suite, group, false).iter().map(text::verdict).collect();
        assert_eq!(
            tail,
            ["tamis ≥ 1.30×: 9.00× met, 592 % above", "tamis p99.9 ≥ 1.00×: 9.00× met, 800 % above"]
        );
    }

    #[test]
    fn no_target_is_named_twice_and_all_names_exist() {
        for (at, target) in TARGETS.iter().enumerate() {
            assert!(target.at_least >= 1.0, "{target:?}");
            let key = |t: &Target| (t.suite, t.workload, t.threads, t.least_keys, t.system, t.figure);
            assert!(TARGETS[..at].iter().all(|other| key(other) != key(target)), "{target:?}");
            let workload = target.workload.map(str::parse::<tamis_bench::Workload>);
            assert!(workload.is_none_or(|parsed| parsed.is_ok()), "{target:?}");
        }
        let summary = Summary::of(&comparison());
        let judged: usize = summary
            .suites
            .iter()
            .flat_map(|suite| suite.groups.iter().map(move |group| judge(suite, group, false).len()))
            .sum();
        // All speed targets except multi-get-existing, a load of more keys, the seven of other suites, four mixes with one
        // thread and all six with two.
        assert_eq!(judged, TARGETS.iter().filter(|target| target.suite.is_some()).count() - 19);
    }
}
