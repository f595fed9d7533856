//! How far from the processor lies what is read.
//!
//! A cache holds a line until so much else was touched that it is the oldest. Between two reads of a line of a run every other line
//! of that run is read, of a run that is asked as often as much again, of a small run all there is, and meanwhile writes
//! stream through the same caches: log, memtable, what merges read and write. The bytes of all this are the line's distance, and the
//! machine's latency at that many bytes is what it costs. So a small run that every iterator opens is near, and a database
//! that is mostly written is far, however small.
//!
//! Pure; O(runs²) a state.

use super::counts::zipf_share;
use super::inputs::{Class, Configuration, Data, Machine, Workload};
use super::selector::Selector;
use super::shape::{State, Tree};

/// What a miss of memory costs beyond those that were measured, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Far {
    /// In the run that has what is looked for.
    pub(super) keyed_ns: f64,
    /// In another run, on average.
    pub(super) other_ns: f64,
    /// In a filter, beyond one in the processor's cache.
    pub(super) filter_ns: f64,
}

/// Bytes of a run that one search touches: lines of index, fingerprints and entries.
const SEARCHED_BYTES: f64 = 256.0;
const LINE: f64 = 64.0;
/// States that are looked at: distances differ less between them than counts do.
const MOST_STATES: usize = 8;

impl Far {
    pub(super) fn new(
        machine: &Machine,
        data: &Data,
        workload: &Workload,
        configuration: &Configuration,
        tree: &Tree,
    ) -> Far {
        let hot = hot_part((data.entries as f64).max(1.0), workload.skew);
        let near = machine.latency_ns(machine.measured_bytes.min(data.bytes()) * hot);
        let in_cache = machine.latency.first().map_or(0.0, |(_, ns)| *ns);
        // A put is written to log and memtable, and then by flush and merges. What merges read is tables, and counted there.
        let written = workload.share(Class::Put) * data.entry_bytes() * (2.0 + tree.write_amplification);
        let (mut keyed, mut others, mut other_runs, mut filters, mut all_filters) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let states = tree.states.iter().step_by(tree.states.len().div_ceil(MOST_STATES).max(1));
        let mut looked_at = 0.0;
        for state in states {
            looked_at += 1.0;
            let entries = state.entries().max(1.0);
            let asked = searches(state, workload, configuration.selector);
            let lines: Vec<(f64, f64)> = state
                .runs
                .iter()
                .zip(&asked)
                .map(|(run, asked)| (run * data.entry_bytes() * hot, asked * SEARCHED_BYTES))
                .collect();
            for (at, run) in state.runs.iter().enumerate() {
                let ns = (machine.latency_ns(distance(&lines, at, written)) - near).max(0.0);
                let share = run / entries;
                keyed += share * ns;
                others += (1.0 - share) * ns;
                other_runs += 1.0 - share;
            }
            let read: f64 = lines.iter().map(|(_, touched)| touched).sum();
            let filter_lines = filters_of(state, data, workload, configuration);
            for at in 0..filter_lines.len() {
                filters +=
                    (machine.latency_ns(distance(&filter_lines, at, written + read)) - in_cache).max(0.0);
            }
            all_filters += filter_lines.len() as f64;
        }
        let part = |sum: f64, count: f64| if count > 0.0 { sum / count } else { 0.0 };
        Far {
            keyed_ns: part(keyed, looked_at),
            other_ns: part(others, other_runs),
            filter_ns: part(filters, all_filters),
        }
    }
}

/// Bytes that are touched between two reads of a line of `parts[at]`. A part is its bytes, and those of them that an operation
/// touches; `streamed` bytes pass with each operation besides.
fn distance(parts: &[(f64, f64)], at: usize, streamed: f64) -> f64 {
    let (bytes, touched) = parts[at];
    if touched <= 0.0 {
        return f64::MAX;
    }
    let operations = bytes / touched;
    parts.iter().map(|(bytes, touched)| bytes.min(operations * touched)).sum::<f64>() + operations * streamed
}

/// How often an operation searches each run.
fn searches(state: &State, workload: &Workload, selector: Selector) -> Vec<f64> {
    let entries = state.entries().max(1.0);
    let iterators =
        workload.share(Class::Seek) + workload.share(Class::Scan) + workload.share(Class::EmptyRange);
    let (present, absent) = (workload.share(Class::ExistingGet), workload.share(Class::EmptyGet));
    let mut newer = 0.0;
    let mut of = |run: &f64| {
        let share = run / entries;
        let got = match selector {
            // Gets go from the newest run to the one with the key.
            Selector::None => present * (1.0 - newer) + absent,
            _ => present * share,
        };
        newer += share;
        got + iterators * if selector.keeps_order() { share } else { 1.0 }
    };
    state.runs.iter().map(&mut of).collect()
}

/// The filters of a state: bytes, and those that an operation touches.
fn filters_of(
    state: &State,
    data: &Data,
    workload: &Workload,
    configuration: &Configuration,
) -> Vec<(f64, f64)> {
    let selector = configuration.selector;
    let bytes = selector.spent_bits(configuration.bits_per_key, data.keys) / 8.0;
    let gets = workload.share(Class::ExistingGet) + workload.share(Class::EmptyGet);
    let iterators = workload.share(Class::Seek) + workload.share(Class::Scan);
    let mut touched = gets * selector.misses(false) * LINE;
    if selector.answers_ranges() {
        touched += workload.share(Class::EmptyRange) * selector.misses(true) * LINE;
    }
    if selector.keeps_order() {
        touched += iterators * selector.misses(true) * LINE;
    }
    match selector.is_global() {
        true => vec![(state.entries() * bytes, touched)],
        false => state.runs.iter().map(|run| (run * bytes, touched)).collect(),
    }
}

/// The part of the entries that nine of ten reads go to.
fn hot_part(entries: f64, skew: f64) -> f64 {
    let (mut low, mut high) = (1.0f64, entries);
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        if zipf_share(middle, entries, skew) < 0.9 { low = middle } else { high = middle }
    }
    high / entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Policy, Shape};

    const MIB: f64 = 1_048_576.0;

    fn machine() -> Machine {
        Machine {
            latency: vec![(MIB / 32.0, 1.0), (MIB, 4.0), (32.0 * MIB, 20.0), (256.0 * MIB, 100.0)],
            measured_bytes: MIB,
            ..Machine::default()
        }
    }

    fn far(selector: Selector, workload: &Workload, runs: &[f64]) -> Far {
        let tree = Tree { states: vec![State::of(runs.to_vec())], write_amplification: 4.0 };
        let data = Data::new(runs.iter().sum::<f64>() as u64, 8.0, 100.0);
        let shape = Shape::new(Policy::Leveling, 10);
        Far::new(&machine(), &data, workload, &Configuration::new(selector, 10.0, shape), &tree)
    }

    #[test]
    fn of_runs_that_are_asked_alike_the_small_ones_are_near() {
        let seeks = Workload { seeks: 1.0, ..Workload::default() };
        let of = far(Selector::None, &seeks, &[2_000.0, 98_000.0]);
        assert!(of.other_ns < of.keyed_ns / 10.0, "{of:?}");
        assert!(of.keyed_ns > 5.0, "{of:?}");
        let alike = far(Selector::None, &seeks, &[50_000.0, 50_000.0]);
        assert_eq!(alike.keyed_ns, alike.other_ns, "{alike:?}");
    }

    #[test]
    fn writes_push_what_is_seldom_read_out_of_the_caches() {
        let of = |puts: f64| {
            let workload = Workload { existing_gets: 1.0 - puts, puts, ..Workload::default() };
            far(Selector::BlockedBloom, &workload, &[10_000.0, 90_000.0])
        };
        let (only, few, many) = (of(0.0), of(0.05), of(0.9));
        assert!(only.keyed_ns < few.keyed_ns && few.keyed_ns < 1.5 * only.keyed_ns, "{only:?} {few:?}");
        assert!(many.keyed_ns > 3.0 * only.keyed_ns, "{many:?}");
        assert!(many.filter_ns > only.filter_ns, "{many:?}");
    }

    #[test]
    fn what_nobody_reads_is_nowhere_near_and_numbers_stay_finite() {
        let puts = Workload { puts: 1.0, ..Workload::default() };
        let of = far(Selector::Grf, &puts, &[10_000.0, 90_000.0]);
        assert!((95.0..97.0).contains(&of.keyed_ns), "the slowest latency less the measured one: {of:?}");
        let none = far(Selector::None, &puts, &[]);
        assert_eq!(none, Far { keyed_ns: 0.0, ..none });
        assert!(none.other_ns.is_finite() && none.filter_ns.is_finite());
    }
}
