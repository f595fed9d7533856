//! How far from the processor the data being read lies.
//!
//! A cache holds a line until so much else has been touched that the line is the oldest. Between
//! two reads of a line of a run, every other line of that run is read, more of a run that is read
//! more often, and all of a small run; meanwhile writes stream through the same caches: log,
//! memtable, and the input and output of merges. The total of these bytes is the line's distance,
//! and its cost is the machine's latency at that many bytes. So a small run that every iterator
//! opens is near, and a database that is mostly written is far, however small.
//!
//! Pure; O(runs²) per state.

use super::counts::{Counts, zipf_share};
use super::inputs::{Class, Configuration, Data, Machine, Workload};
use super::shape::{State, Tree};

/// Cost of cache misses beyond the measured ones, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Far {
    /// In the run that has the key.
    pub(super) keyed_ns: f64,
    /// In any other run, on average.
    pub(super) other_ns: f64,
    /// In a filter, beyond one in the processor's cache.
    pub(super) filter_ns: f64,
}

/// Bytes of a run that one search touches: lines of index, fingerprints and entries.
const SEARCHED_BYTES: f64 = 256.0;
const LINE: f64 = 64.0;
/// Number of states examined: distances differ less between them than counts do.
const MOST_STATES: usize = 8;

impl Far {
    /// `counts` are those of one operation of each class, averaged over the tree's states.
    pub(super) fn new(
        machine: &Machine,
        data: &Data,
        workload: &Workload,
        configuration: &Configuration,
        tree: &Tree,
        counts: &[Counts; 6],
    ) -> Far {
        let hot = hot_part((data.entries as f64).max(1.0), workload.skew);
        let near = machine.latency_ns(machine.measured_bytes.min(data.bytes()));
        let in_cache = machine.latency.first().map_or(0.0, |(_, ns)| *ns);
        // A put is written to the log and the memtable, then by flush and merges. Merges read
        // tables, which are counted there.
        let written = workload.share(Class::Put) * data.entry_bytes() * (2.0 + tree.write_amplification);
        let (keyed_searches, other_searches) = searches(workload, counts);
        let filters = Filters::new(data, workload, configuration, hot);
        let states = tree.states.iter().step_by(tree.states.len().div_ceil(MOST_STATES).max(1));
        let (mut keyed, mut others, mut of_filters) = (Mean::default(), Mean::default(), Mean::default());
        for state in states {
            let entries = state.entries().max(1.0);
            let runs = (state.runs.len() as f64).max(1.0);
            // Tables first, then filters.
            let mut parts: Vec<Part> = Vec::with_capacity(2 * state.runs.len());
            parts.extend(state.runs.iter().map(|run| Part {
                bytes: run * data.entry_bytes() * hot,
                touched: (keyed_searches * run / entries + other_searches / runs) * SEARCHED_BYTES,
            }));
            filters.add(state, &mut parts);
            for (at, run) in state.runs.iter().enumerate() {
                let ns = (machine.latency_ns(distance(&parts, at, written)) - near).max(0.0);
                let share = run / entries;
                keyed.add(ns, share);
                others.add(ns, 1.0 - share);
            }
            for at in state.runs.len()..parts.len() {
                of_filters.add((machine.latency_ns(distance(&parts, at, written)) - in_cache).max(0.0), 1.0);
            }
        }
        Far { keyed_ns: keyed.get(), other_ns: others.get(), filter_ns: of_filters.get() }
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    fn get(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }
}

/// The part of a table or filter that is read, and the bytes of it that one operation touches.
#[derive(Clone, Copy)]
struct Part {
    bytes: f64,
    touched: f64,
}

/// Returns the bytes touched between two reads of a line of `parts[at]`, with `streamed` additional
/// bytes per operation.
fn distance(parts: &[Part], at: usize, streamed: f64) -> f64 {
    let Part { bytes, touched } = parts[at];
    if touched <= 0.0 {
        // Nothing waits for it.
        return parts.iter().map(|part| part.bytes).sum();
    }
    let operations = bytes / touched;
    let read = |part: &Part| part.bytes.min(operations * part.touched);
    parts.iter().map(read).sum::<f64>() + operations * streamed
}

/// Returns how often an operation searches the run that has the key, and how often it searches
/// others.
fn searches(workload: &Workload, counts: &[Counts; 6]) -> (f64, f64) {
    let (mut keyed, mut others) = (0.0, 0.0);
    for (class, counts) in Class::ALL.into_iter().zip(counts) {
        let (found, all) = match class {
            Class::EmptyGet => (0.0, counts.runs_searched),
            Class::ExistingGet => (1.0, counts.runs_searched),
            Class::EmptyRange => (0.0, counts.cursors),
            Class::Seek | Class::Scan => (1.0, counts.cursors),
            Class::Put => (0.0, 0.0),
        };
        keyed += workload.share(class) * found;
        others += workload.share(class) * (all - found).max(0.0);
    }
    (keyed, others)
}

/// The filters of a tree.
struct Filters {
    is_global: bool,
    /// Bytes read, per entry.
    bytes: f64,
    /// Bytes of each filter that an operation touches.
    touched: f64,
}

impl Filters {
    fn new(data: &Data, workload: &Workload, configuration: &Configuration, hot: f64) -> Filters {
        let selector = configuration.selector;
        let (absent, present) = (workload.share(Class::EmptyGet), workload.share(Class::ExistingGet));
        let mut lines = (absent + present) * selector.misses(false);
        if selector.answers_ranges() {
            lines += workload.share(Class::EmptyRange) * selector.misses(true);
        }
        if selector.keeps_order() {
            lines += (workload.share(Class::Seek) + workload.share(Class::Scan)) * selector.misses(true);
        }
        // Absent keys fall anywhere, whatever the skew.
        let read = if absent + present > 0.0 { (absent + present * hot) / (absent + present) } else { hot };
        Filters {
            is_global: selector.is_global(),
            bytes: read * selector.spent_bits(configuration.bits_per_key, data.keys) / 8.0,
            touched: lines * LINE,
        }
    }

    fn add(&self, state: &State, parts: &mut Vec<Part>) {
        let of = |entries: f64| Part { bytes: entries * self.bytes, touched: self.touched };
        match self.is_global {
            _ if self.bytes <= 0.0 => {}
            true => parts.push(of(state.entries())),
            false => parts.extend(state.runs.iter().map(|run| of(*run))),
        }
    }
}

/// Returns the fraction of the entries that receives nine of ten reads.
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
    use crate::engine::{Policy, Selector, Shape, counts};

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
        let configuration = Configuration::new(selector, 10.0, shape);
        let counts = counts(&tree, &data, workload, &configuration);
        Far::new(&machine(), &data, workload, &configuration, &tree, &counts)
    }

    #[test]
    fn among_equally_read_runs_the_small_ones_are_near() {
        let seeks = Workload { seeks: 1.0, ..Workload::default() };
        let of = far(Selector::None, &seeks, &[2_000.0, 98_000.0]);
        assert!(of.other_ns < of.keyed_ns / 10.0, "{of:?}");
        assert!(of.keyed_ns > 5.0, "{of:?}");
        let alike = far(Selector::None, &seeks, &[50_000.0, 50_000.0]);
        assert_eq!(alike.keyed_ns, alike.other_ns, "{alike:?}");
    }

    #[test]
    fn writes_evict_rarely_read_lines() {
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
    fn small_databases_are_always_near() {
        for selector in Selector::ALL {
            for workload in [
                Workload { empty_gets: 1.0, ..Workload::default() },
                Workload { existing_gets: 1.0, skew: 1.2, ..Workload::default() },
                Workload { empty_ranges: 1.0, ..Workload::default() },
                Workload { puts: 1.0, ..Workload::default() },
                Workload::default(),
            ] {
                let of = far(selector, &workload, &[10.0, 100.0]);
                assert_eq!(of, Far::default(), "{selector:?} {workload:?}");
            }
            let none = far(selector, &Workload { puts: 1.0, ..Workload::default() }, &[]);
            assert!(none.keyed_ns + none.other_ns + none.filter_ns < 200.0, "{selector:?} {none:?}");
        }
    }

    #[test]
    fn the_distance_of_filters_depends_on_table_reads() {
        // 1.2 MiB of filters; hot tables of less than a MiB, and tables of 110 MiB that are read
        // everywhere.
        let of = |skew: f64| {
            let workload = Workload { existing_gets: 1.0, skew, ..Workload::default() };
            far(Selector::BlockedBloom, &workload, &[1_000_000.0])
        };
        let (hot, all) = (of(1.2), of(0.0));
        assert!(hot.filter_ns < 4.0, "within two MiB: {hot:?}");
        assert!(all.filter_ns > 5.0 && all.keyed_ns > 40.0, "{all:?}");
        assert!(hot.keyed_ns < 1.0, "{hot:?}");
    }
}
