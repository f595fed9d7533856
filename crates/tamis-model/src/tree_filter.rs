//! A filter per table, or one for the whole tree: what reads cost under each, and which to use.
//!
//! This is the rule behind `filter = auto`, small enough to be asked at every change of a tree.
//! [`engine`](crate::engine) predicts the same reads in more detail, for every filter, from costs
//! measured on the machine; between these two it leaves the choice to this rule
//! ([`between`](crate::engine::between)), so that advice and what `auto` does are the same.
//!
//! * **A filter per table** is asked for every run that a read comes past, and the rates of the
//!   runs add up. It knows nothing of ranges: an iterator opens every run.
//! * **A global filter** is asked once. It pays with bits for the names of runs: about the entropy
//!   of the runs' shares, and [`GLOBAL_OVERHEAD`] beyond the position. If its map keeps the keys'
//!   order, an iterator opens only runs that have keys ahead.
//!
//! Times are nanoseconds of one thread, the part of a read that depends on the filter: the search
//! that finds the key, and the first run that has keys of a range, cost the same under both. Writes
//! are left out: a table filter and an entry of a global filter cost about as much to make. Memory
//! is the same by definition, `bits_per_key`.

use crate::bloom;
use crate::grf::entropy_bits;
use crate::numbers::{bits, count, fraction, normalized, time};

/// Bits per key that a global filter takes beyond those of positions and names of runs.
pub const GLOBAL_OVERHEAD: f64 = 2.4;

/// The part of a read's time that the other filter must save before it is preferred.
pub const MARGIN: f64 = 0.2;

/// Keys that an iteration reads, for the number of runs that it opens: few, as long scans cost the
/// same under both.
const KEYS_OF_A_RANGE: i32 = 4;

/// The two kinds of filters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TreeFilter {
    /// A cache-line-blocked Bloom filter for each table.
    PerTable,
    /// One filter for the whole tree.
    Global,
}

/// A tree as its filters see it.
#[derive(Clone, PartialEq, Debug)]
pub struct Runs {
    /// The entries of each run, newest first, in any unit. Negative, infinite and NaN entries are
    /// treated as 0.
    pub entries: Vec<f64>,
    /// Bits of filter per entry.
    pub bits_per_key: f64,
    /// Whether the global filter answers ranges: its map keeps the order of keys.
    pub ordered: bool,
}

/// Shares of reads, relative to their sum. Negative, infinite and NaN shares are treated as 0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reads {
    /// Gets of keys that do not exist.
    pub absent_gets: f64,
    /// Gets of keys that exist.
    pub existing_gets: f64,
    /// Ranges with nothing in them.
    pub empty_ranges: f64,
    /// Other ranges, and seeks without an end.
    pub filled_ranges: f64,
}

/// Costs of one operation each, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Asking a table's filter for a key, with those of other runs under way.
    pub probe_ns: f64,
    /// Asking the global filter for a key.
    pub global_probe_ns: f64,
    /// Asking the global filter about a range.
    pub global_range_ns: f64,
    /// Searching a table in vain.
    pub vain_ns: f64,
    /// Opening a run for an iterator.
    pub open_ns: f64,
}

impl Costs {
    /// Tables in memory, as measured on a 2-core virtual machine.
    pub const MEMORY: Costs = Costs {
        probe_ns: 15.0,
        global_probe_ns: 60.0,
        global_range_ns: 250.0,
        vain_ns: 700.0,
        open_ns: 700.0,
    };

    /// Tables on flash memory, read past the page cache: a tenth of a millisecond a block, less
    /// what the block cache saves.
    pub const DIRECT: Costs = Costs {
        vain_ns: Costs::MEMORY.vain_ns + 80_000.0,
        open_ns: Costs::MEMORY.open_ns + 80_000.0,
        ..Costs::MEMORY
    };
}

/// Returns the expected number of runs that a global filter names without reason: `2^-(b - 2.4 -
/// H)`, with H the entropy of the runs' shares in bits. At most 1, as if the position had no bits
/// left.
pub fn global_rate(bits_per_key: f64, entries: &[f64]) -> f64 {
    let position = bits(bits_per_key) - GLOBAL_OVERHEAD - entropy_bits(entries);
    fraction((-position.max(0.0)).exp2())
}

/// Returns the mean time that a read spends on filters and what they let through. 0 without reads
/// or runs.
pub fn read_ns(filter: TreeFilter, runs: &Runs, reads: &Reads, costs: &Costs) -> f64 {
    let shares = normalized(runs.entries.iter().copied());
    let runs_count = shares.iter().filter(|share| **share > 0.0).count() as f64;
    let all = [reads.absent_gets, reads.existing_gets, reads.empty_ranges, reads.filled_ranges].map(count);
    let sum: f64 = all.iter().sum();
    if runs_count == 0.0 || sum <= 0.0 {
        return 0.0;
    }
    // The runs that a get passes before it reaches the one that has its key, and the part of the
    // entries in them.
    let (mut newer, mut passed, mut entries_passed) = (0.0, 0.0, 0.0);
    for (place, share) in shares.iter().filter(|share| **share > 0.0).enumerate() {
        passed += share * place as f64;
        entries_passed += share * newer;
        newer += share;
    }
    // The runs that a few consecutive keys lie in.
    let filled: f64 = shares.iter().map(|share| 1.0 - (1.0 - share).powi(KEYS_OF_A_RANGE)).sum();
    let [absent, existing, empty_range, filled_range] = match filter {
        TreeFilter::PerTable => {
            let rate = bloom::optimal_rate(runs.bits_per_key);
            [
                runs_count * (costs.probe_ns + rate * costs.vain_ns),
                (passed + 1.0) * costs.probe_ns + passed * rate * costs.vain_ns,
                runs_count * costs.open_ns,
                runs_count * costs.open_ns,
            ]
        }
        TreeFilter::Global => {
            let rate = global_rate(runs.bits_per_key, &shares);
            let (empty, filled) = match runs.ordered {
                true => (rate, (filled + rate).min(runs_count)),
                false => (runs_count, runs_count),
            };
            [
                costs.global_probe_ns + rate * costs.vain_ns,
                costs.global_probe_ns + entries_passed * rate * costs.vain_ns,
                costs.global_range_ns + empty * costs.open_ns,
                costs.global_range_ns + filled * costs.open_ns,
            ]
        }
    };
    let total = all[0] * absent + all[1] * existing + all[2] * empty_range + all[3] * filled_range;
    time(total / sum)
}

/// A comparison of both filters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// The preferred one.
    pub filter: TreeFilter,
    /// [`read_ns`] under a filter per table.
    pub per_table_ns: f64,
    /// [`read_ns`] under a global filter.
    pub global_ns: f64,
}

/// Prefers the other filter to the `current` one if it saves more than [`MARGIN`] of the time of
/// reads; so two trees between which a program goes back and forth do not make it change every
/// time. Without a current one, the quicker is preferred.
pub fn compare(current: Option<TreeFilter>, runs: &Runs, reads: &Reads, costs: &Costs) -> Comparison {
    compare_states(current, std::slice::from_ref(runs), reads, costs)
}

/// Like [`compare`], for a tree that is now in one of these states and now in another, each as
/// often. Without states, nothing costs anything.
pub fn compare_states(
    current: Option<TreeFilter>,
    states: &[Runs],
    reads: &Reads,
    costs: &Costs,
) -> Comparison {
    let ns = |filter| {
        let sum: f64 = states.iter().map(|runs| read_ns(filter, runs, reads, costs)).sum();
        time(sum / states.len().max(1) as f64)
    };
    let (per_table_ns, global_ns) = (ns(TreeFilter::PerTable), ns(TreeFilter::Global));
    let filter = match current {
        Some(TreeFilter::PerTable) if global_ns < per_table_ns * (1.0 - MARGIN) => TreeFilter::Global,
        Some(TreeFilter::Global) if per_table_ns < global_ns * (1.0 - MARGIN) => TreeFilter::PerTable,
        Some(current) => current,
        None if global_ns < per_table_ns => TreeFilter::Global,
        None => TreeFilter::PerTable,
    };
    Comparison { filter, per_table_ns, global_ns }
}

#[cfg(test)]
mod tests {
    use super::TreeFilter::{Global, PerTable};
    use super::*;

    const GETS: Reads = Reads { absent_gets: 0.5, existing_gets: 0.5, empty_ranges: 0.0, filled_ranges: 0.0 };

    fn equal(runs: usize, bits_per_key: f64) -> Runs {
        Runs { entries: vec![1.0; runs], bits_per_key, ordered: true }
    }

    fn chosen(current: TreeFilter, runs: &Runs, reads: &Reads) -> TreeFilter {
        compare(Some(current), runs, reads, &Costs::MEMORY).filter
    }

    #[test]
    fn one_run_needs_no_global_filter_and_twenty_do() {
        for bits in [8.0, 10.0, 14.0] {
            assert_eq!(chosen(Global, &equal(1, bits), &GETS), PerTable, "{bits}");
        }
        for bits in [10.0, 14.0] {
            assert_eq!(chosen(PerTable, &equal(20, bits), &GETS), Global, "{bits}");
        }
    }

    /// By hand: three runs with shares of 1/4, 1/4 and 1/2 have an entropy of 1.5 bits.
    #[test]
    fn the_times_are_those_of_the_formulas() {
        let runs = Runs { entries: vec![1.0, 1.0, 2.0], bits_per_key: 10.0, ordered: true };
        let only = |kind: fn(&mut Reads) -> &mut f64| {
            let mut reads = Reads::default();
            *kind(&mut reads) = 7.0;
            [PerTable, Global].map(|filter| read_ns(filter, &runs, &reads, &Costs::MEMORY))
        };
        let (local, global) = (bloom::optimal_rate(10.0), (-(10.0 - 2.4 - 1.5f64)).exp2());
        let near = |a: [f64; 2], b: [f64; 2]| {
            assert!((a[0] - b[0]).abs() < 1e-9 && (a[1] - b[1]).abs() < 1e-9, "{a:?} {b:?}");
        };
        near(only(|r| &mut r.absent_gets), [3.0 * (15.0 + 700.0 * local), 60.0 + 700.0 * global]);
        // A key lies behind 0, 1 or 2 runs, which is 1.25 on average, and behind 0, 1/4 or 1/2 of
        // the entries.
        near(
            only(|r| &mut r.existing_gets),
            [2.25 * 15.0 + 1.25 * 700.0 * local, 60.0 + 0.3125 * 700.0 * global],
        );
        near(only(|r| &mut r.empty_ranges), [2100.0, 250.0 + 700.0 * global]);
        let filled = 2.0 * (1.0 - 0.75f64.powi(4)) + 1.0 - 0.5f64.powi(4);
        near(only(|r| &mut r.filled_ranges), [2100.0, 250.0 + 700.0 * (filled + global)]);
    }

    #[test]
    fn ranges_favour_a_global_filter_only_if_it_keeps_their_order() {
        let reads = Reads { empty_ranges: 0.5, ..GETS };
        let mut runs = equal(3, 10.0);
        assert_eq!((chosen(PerTable, &runs, &GETS), chosen(PerTable, &runs, &reads)), (PerTable, Global));
        runs.ordered = false;
        assert_eq!(chosen(PerTable, &runs, &reads), PerTable);
    }

    /// `docs/filters.md` names these runs.
    #[test]
    fn the_runs_from_which_on_either_is_preferred() {
        let ranges =
            Reads { absent_gets: 0.45, existing_gets: 0.45, empty_ranges: 0.05, filled_ranges: 0.05 };
        let from = |bits, reads: &Reads| {
            let global = (1..40).find(|runs| chosen(PerTable, &equal(*runs, bits), reads) == Global);
            let local = (1..40).rev().find(|runs| chosen(Global, &equal(*runs, bits), reads) == PerTable);
            (global.unwrap_or(0), local.unwrap_or(0))
        };
        let all = [GETS, ranges].map(|reads| [8.0, 10.0, 14.0].map(|bits| from(bits, &reads)));
        assert_eq!(all, [[(8, 3), (6, 3), (7, 3)], [(3, 1), (3, 1), (3, 1)]]);
    }

    /// A tree that is one run half of the time and forty the other half: what reads take altogether
    /// decides.
    #[test]
    fn the_states_of_a_tree_are_averaged() {
        let states = [equal(1, 10.0), equal(40, 10.0)];
        let both = compare_states(Some(PerTable), &states, &GETS, &Costs::MEMORY);
        let [one, forty] = [0, 1].map(|at| compare(Some(PerTable), &states[at], &GETS, &Costs::MEMORY));
        assert_eq!((one.filter, forty.filter, both.filter), (PerTable, Global, Global));
        assert!((both.global_ns - (one.global_ns + forty.global_ns) / 2.0).abs() < 1e-9);
        assert!((both.per_table_ns - (one.per_table_ns + forty.per_table_ns) / 2.0).abs() < 1e-9);
        assert_eq!(compare_states(Some(Global), &[], &GETS, &Costs::MEMORY).filter, Global);
    }

    /// Around the break-even point each keeps what it has: there is no number of runs at which the
    /// two change places.
    #[test]
    fn no_tree_makes_both_filters_prefer_the_other() {
        let mut kept = 0;
        for runs in 1..40 {
            for bits in [6.0, 8.0, 10.0, 12.0, 16.0] {
                for ranges in [0.0, 0.01, 0.1, 0.5] {
                    let reads = Reads { empty_ranges: ranges, filled_ranges: ranges, ..GETS };
                    let of = [PerTable, Global].map(|current| chosen(current, &equal(runs, bits), &reads));
                    assert_ne!(of, [Global, PerTable], "{runs} runs, {bits} bits, {ranges}");
                    kept += usize::from(of == [PerTable, Global]);
                }
            }
        }
        assert!(kept > 20, "hysteresis has an effect: {kept}");
    }

    /// On a device only false positives count, and those depend on the bits: four names of runs
    /// cost two of them.
    #[test]
    fn a_slow_device_weighs_false_positives() {
        let device = Costs::DIRECT;
        assert_eq!(chosen(PerTable, &equal(4, 10.0), &GETS), PerTable);
        assert_eq!(compare(Some(PerTable), &equal(4, 10.0), &GETS, &device).filter, Global);
        assert_eq!(compare(None, &equal(4, 6.0), &GETS, &device).filter, PerTable);
    }

    #[test]
    fn nothing_to_compare_changes_nothing_and_numbers_stay_finite() {
        let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300];
        for current in [PerTable, Global] {
            assert_eq!(chosen(current, &equal(0, 10.0), &GETS), current);
            assert_eq!(chosen(current, &equal(9, 10.0), &Reads::default()), current);
        }
        for a in odd {
            for b in odd {
                let runs = Runs { entries: vec![a, b, 1.0], bits_per_key: a, ordered: true };
                let reads = Reads { absent_gets: b, existing_gets: a, empty_ranges: 1.0, filled_ranges: b };
                let costs = Costs { probe_ns: a, vain_ns: b, open_ns: b, ..Costs::MEMORY };
                for filter in [PerTable, Global] {
                    let ns = read_ns(filter, &runs, &reads, &costs);
                    assert!(ns.is_finite() && ns >= 0.0, "{a} {b} {ns}");
                }
            }
        }
    }
}
