//! Predictions against the engine's own counters, never against a clock.

use std::sync::Arc;

use tamis_testkit::{FaultPlan, FaultyFs};

use super::*;
use tamis::Db;
use tamis::io::MemFs;
use tamis::options::{CompactionChoice, FilterAllocation, FilterChoice};
use tamis::stats::ReadCost;
use tamis::{Durability, Options};
use tamis_filter::Digest;
use tamis_model::engine::between;
use tamis_model::tree_filter::{Costs, Reads, Runs, TreeFilter, compare_states};

const KEYS: u64 = 60_000;
const OPS: u64 = 4_000;

/// Returns a pseudo-random number below 2^62.
fn number(i: u64, salt: u64) -> u64 {
    Digest::from_u64(i).remix(salt) >> 2
}

fn options(filter: FilterChoice, compaction: CompactionChoice) -> Options {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    let keyspace = &mut options.keyspace;
    keyspace.filter = filter.into();
    keyspace.bits_per_key = 10.0;
    keyspace.compaction = compaction;
    keyspace.size_ratio = 4.into();
    keyspace.memtable_bytes = 128 << 10;
    keyspace.table_bytes = 128 << 10;
    keyspace.read_compaction = false;
    keyspace.compression = tamis::options::Compression::None.into();
    options
}

fn filled(options: &Options) -> Db {
    let db = options.clone().open("/db").expect("opening");
    // Waits until idle after each flush; otherwise the tree would depend on timing.
    for i in 0..KEYS {
        db.put(number(i, 1).to_be_bytes(), [7; 32]).expect("a write");
        if i % 800 == 799 {
            db.default_keyspace().flush().expect("a flush");
            db.wait_for_compaction().expect("waiting until idle");
        }
    }
    db.wait_for_filters().expect("filters complete");
    db
}

fn data() -> Data {
    let mut data = data_of(KEYS);
    data.memtable_bytes = 128 << 10;
    data
}

fn data_of(entries: u64) -> Data {
    Data::new(entries, 8.0, 32.0)
}

/// Returns the actual tree. A partial merge leaves key ranges of a level without tables, so not
/// every run covers every key.
fn tree_of(db: &Db) -> Tree {
    let stats = db.stats();
    let runs: Vec<_> = stats.keyspaces[0].levels.iter().flat_map(|level| &level.runs).collect();
    let at =
        |key: &[u8]| u64::from_be_bytes(key[..8].try_into().expect("eight bytes")) as f64 / 2f64.powi(62);
    let tables = db.default_keyspace().tables();
    let width = |run: u64| {
        let tables = tables.iter().filter(|table| table.run == run);
        tables.map(|t| at(&t.largest.as_ref().expect("an end").0) - at(&t.smallest)).sum::<f64>()
    };
    let newer = &runs[..runs.len() - 1];
    let covered: f64 = newer.iter().map(|run| width(run.run)).sum();
    let mut state = State::of(runs.iter().map(|run| run.entries as f64).collect());
    if !newer.is_empty() {
        state.coverage = covered / newer.len() as f64;
    }
    Tree { states: vec![state], write_amplification: 1.0 }
}

/// Returns the average of a counter per operation.
type Counted = Box<dyn Fn(fn(&ReadCost) -> u64) -> f64>;

/// Runs operations and returns the counters they moved.
fn counted(db: &Db, mut operation: impl FnMut(u64)) -> Counted {
    let before = db.stats().read;
    (0..OPS).for_each(&mut operation);
    let read = db.stats().read - before;
    Box::new(move |field| field(&read) as f64 / OPS as f64)
}

/// Asserts equality within a part of the value, or a small amount where events are rare.
fn close(what: &str, predicted: f64, counted: f64, part: f64) {
    assert!(is_close(predicted, counted, part), "{what}: {predicted} predicted, {counted} counted");
}

fn is_close(predicted: f64, counted: f64, part: f64) -> bool {
    (predicted - counted).abs() <= part * counted.max(predicted) + 0.02
}

#[test]
fn counters_per_operation_match_the_prediction() {
    let mut wrong = Vec::new();
    let mut check = |what: &str, predicted: f64, counted: f64, part: f64| {
        if !is_close(predicted, counted, part) {
            wrong.push(format!("{what}: {predicted} predicted, {counted} counted"));
        }
    };
    for (filter, compaction) in [
        (FilterChoice::None, CompactionChoice::Tiering),
        (FilterChoice::BlockedBloom, CompactionChoice::Leveling),
        (FilterChoice::BlockedBloom, CompactionChoice::Tiering),
        (FilterChoice::Ribbon, CompactionChoice::LazyLeveling),
        (FilterChoice::Cuckoo, CompactionChoice::Tiering),
        (FilterChoice::Snarf, CompactionChoice::Tiering),
        (FilterChoice::Grafite, CompactionChoice::Tiering),
        (FilterChoice::Grf, CompactionChoice::Tiering),
    ] {
        let options = options(filter, compaction);
        let db = filled(&options);
        let (tree, data) = (tree_of(&db), data());
        let workload =
            Workload { empty_gets: 1.0, range_width: 16.0, scan_entries: 20.0, ..Workload::default() };
        let configuration = apply::configuration_of(&options, &data, u64::MAX);
        let predicted = counts(&tree, &data, &workload, &configuration);
        let of = |class: Class| &predicted[class as usize];
        let name = format!("{filter:?} {compaction:?} {} runs", tree.states[0].runs.len());

        let empty = counted(&db, |i| assert!(db.get(number(i, 2).to_be_bytes()).unwrap().is_none()));
        let expected = of(Class::EmptyGet);
        assert_eq!(empty(|read| read.digests), expected.digests, "{name}");
        check(&format!("{name}, probes"), expected.filter_probes, empty(|read| read.filter_probes), 0.02);
        // Predicted rates are those of large filters; the small runs here consist of whole lines
        // and blocks.
        check(&format!("{name}, searched"), expected.runs_searched, empty(|read| read.runs_searched), 0.5);
        check(&format!("{name}, blocks"), expected.blocks, empty(|read| read.block_reads), 0.5);

        let existing =
            counted(&db, |i| assert!(db.get(number(i * 13 % KEYS, 1).to_be_bytes()).unwrap().is_some()));
        let expected = of(Class::ExistingGet);
        check(&format!("{name}, probes"), expected.filter_probes, existing(|read| read.filter_probes), 0.1);
        check(
            &format!("{name}, searched"),
            expected.runs_searched,
            existing(|read| read.runs_searched),
            0.12,
        );
        check(&format!("{name}, blocks"), expected.blocks, existing(|read| read.block_reads), 0.2);

        let ranges = counted(&db, |i| {
            let from = number(i, 3);
            assert_eq!(db.range(from.to_be_bytes()..(from + 16).to_be_bytes()).count(), 0);
        });
        let expected = of(Class::EmptyRange);
        check(&format!("{name}, range probes"), expected.range_probes, ranges(|read| read.range_probes), 0.1);
        check(&format!("{name}, cursors of ranges"), expected.cursors, ranges(|read| read.seeks), 0.5);

        let seeks = counted(&db, |i| drop(db.range(number(i, 4).to_be_bytes()..).next()));
        check(&format!("{name}, cursors of seeks"), of(Class::Seek).cursors, seeks(|read| read.seeks), 0.35);
        let scans = counted(&db, |i| assert!(db.range(number(i, 5).to_be_bytes()..).take(20).count() <= 20));
        check(&format!("{name}, cursors of scans"), of(Class::Scan).cursors, scans(|read| read.seeks), 0.35);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn monkey_false_positives_match_the_prediction() {
    let mut options = options(FilterChoice::BlockedBloom, CompactionChoice::Tiering);
    options.keyspace.filter_allocation = FilterAllocation::Monkey;
    options.keyspace.bits_per_key = 5.0;
    let db = filled(&options);
    let (tree, data, workload) = (tree_of(&db), data(), Workload { empty_gets: 1.0, ..Workload::default() });
    let configuration = apply::configuration_of(&options, &data, u64::MAX);
    assert_eq!(configuration.allocation, Allocation::Monkey);
    let expected = counts(&tree, &data, &workload, &configuration)[Class::EmptyGet as usize];
    let empty = counted(&db, |i| assert!(db.get(number(i, 2).to_be_bytes()).unwrap().is_none()));
    close("searched", expected.runs_searched, empty(|read| read.runs_searched), 0.4);
}

/// Memtables of the trees below, in bytes.
const MEMTABLE: u64 = 32 << 10;

/// Compares trees grown by arithmetic with written ones: runs and bytes written.
#[test]
fn predicted_trees_match_written_ones() {
    for compaction in [CompactionChoice::Leveling, CompactionChoice::Tiering, CompactionChoice::LazyLeveling]
    {
        for ratio in [4u64, 10] {
            let mut options = options(FilterChoice::None, compaction);
            options.keyspace.size_ratio = ratio.into();
            options.keyspace.memtable_bytes = MEMTABLE;
            let shape = apply::shape_of(&options.keyspace);
            let db = options.open("/db").expect("opening");
            // Average over the last quarter, as in the model; waits until idle after each flush to
            // avoid a race.
            let (flushes, entries) = (96, 300u64);
            let (mut runs, mut seen) = (0.0, 0.0);
            for flush in 0..flushes {
                for i in 0..entries {
                    db.put(number(flush * entries + i, 1).to_be_bytes(), [7; 32]).expect("a write");
                }
                db.default_keyspace().flush().expect("a flush");
                db.wait_for_compaction().expect("waiting until idle");
                if flush >= flushes - (flushes / 4).max(4 * ratio) {
                    runs += db.stats().keyspaces[0].runs as f64;
                    seen += 1.0;
                }
            }
            let write = db.stats().write;
            let amplification =
                (write.flush_bytes + write.compaction_write_bytes) as f64 / write.flush_bytes as f64;
            let entry_bytes = write.flush_bytes as f64 / (flushes * entries) as f64;
            let base = (4 * MEMTABLE) as f64 / entry_bytes;
            let tree = grow_from(&shape, (flushes * entries) as f64, entries as f64, base, false);
            let name = format!("{compaction:?} T={ratio}");
            close(&format!("{name}, runs"), tree.mean_runs(), runs / seen, 0.5);
            close(&format!("{name}, amplification"), tree.write_amplification, amplification, 0.5);
        }
    }
}

/// Returns a machine on which searching costs far more than probing.
fn machine() -> Machine {
    let mut machine = Machine::default();
    (machine.get_ns, machine.search_ns, machine.cursor_ns, machine.iterator_ns) = (60.0, 300.0, 300.0, 200.0);
    machine.vain_ns = 150.0;
    (machine.put_ns, machine.merge_entry_ns, machine.next_ns) = (600.0, 200.0, 60.0);
    for selector in Selector::ALL.into_iter().filter(|selector| *selector != Selector::None) {
        let cost = if selector.is_global() { 90.0 } else { 15.0 };
        machine.probes.push((selector, ProbeCost::new(cost, cost, 30.0, 0.0)));
    }
    machine
}

fn calibration() -> Calibration {
    Calibration::of(machine(), 8, 100)
}

#[test]
fn advised_options_match_the_recommended_configuration() {
    let current = Options::default();
    let mut data = data_of(1_000_000);
    data.memtable_bytes = 1 << 20;
    for workload in [
        Workload { empty_gets: 0.9, puts: 0.1, ..Workload::default() },
        Workload { puts: 1.0, ..Workload::default() },
        Workload { scans: 0.9, puts: 0.1, ..Workload::default() },
        Workload { empty_ranges: 0.9, puts: 0.1, ..Workload::default() },
    ] {
        let advice = advise(&calibration(), &data, &workload, 4 << 20, &current);
        let best = advice.recommended().expect("a ranking");
        advice.options.check().expect("sound options");
        let again = apply::configuration_of(&advice.options, &data, advice.budget_bytes);
        assert_eq!(again.selector, best.configuration.selector);
        assert_eq!(again.shape, best.configuration.shape);
        assert_eq!(again.allocation, best.configuration.allocation);
        // The current text followed by the changed lines is the advice.
        let text = current.to_text() + &advice.changes;
        assert_eq!(Options::from_text(&text).expect("a text"), advice.options);
        assert!(advice.explain().contains(&best.configuration.describe()));
        assert!(advice.formulas().contains("mean: "));
        assert!(advice.current().is_some());
    }
}

#[test]
fn every_filter_option_converts_to_a_selector_and_back() {
    for choice in FilterChoice::all() {
        let selector = apply::selector_of(choice);
        let back = apply::choice_of(selector).expect("a choice");
        assert_eq!(apply::selector_of(back), selector);
    }
    // Without the feature, the rivals of the laboratory are the model's alone.
    let shipped = Selector::ALL.into_iter().filter(|selector| apply::choice_of(*selector).is_some());
    assert_eq!(shipped.count(), if cfg!(feature = "rivals") { 20 } else { 17 });
}

#[test]
fn shapes_that_drop_data_are_neither_replaced_nor_recommended() {
    let mut current = Options::default();
    current.keyspace.compaction = CompactionChoice::Fifo;
    let workload = Workload { empty_gets: 0.5, puts: 0.5, ..Workload::default() };
    let advice = advise(&calibration(), &data_of(1_000_000), &workload, 4 << 20, &current);
    assert_eq!(advice.options.keyspace.compaction, CompactionChoice::Fifo);
    let advice = advise(&calibration(), &data_of(1_000_000), &workload, 4 << 20, &Options::default());
    let policies = advice.ranking.ranked.iter().map(|ranked| ranked.configuration.shape.policy);
    assert!(policies.into_iter().all(|policy| !matches!(policy, Policy::Fifo | Policy::TimeWindow)));
}

/// A workload that wavers about a boundary keeps its first configuration.
#[test]
fn decisions_do_not_flap_at_a_boundary() {
    let (mut current, calibration) = (Options::default(), calibration());
    let mut data = data_of(1_000_000);
    data.memtable_bytes = 1 << 20;
    let mut changes = 0;
    for look in 0..60 {
        // Between 47 and 53 % of puts, back and forth.
        let puts = 0.5 + 0.03 * f64::from(look % 7 - 3) / 3.0;
        let workload = Workload { puts, empty_gets: 1.0 - puts, ..Workload::default() };
        let advice = advise(&calibration, &data, &workload, 4 << 20, &current);
        if let Some(change) = decide(&advice, &current, 0.15) {
            assert!(change.gain > 0.15 && !change.changes.is_empty() && !change.reason.is_empty());
            current = change.options;
            changes += 1;
        }
    }
    assert!(changes <= 1, "{changes} changes");
    // A really different workload causes a change.
    current = Options::default();
    current.keyspace.filter = FilterChoice::None.into();
    current.keyspace.compaction = CompactionChoice::Tiering;
    let workload = Workload { empty_gets: 0.95, puts: 0.05, ..Workload::default() };
    let advice = advise(&calibration, &data, &workload, 4 << 20, &current);
    let change = decide(&advice, &current, 0.15).expect("a change");
    assert_eq!(change.needs_reopening, change.options.keyspace.filter.global().is_some());
    let advice = advise(&calibration, &data, &workload, 4 << 20, &change.options);
    assert!(decide(&advice, &change.options, 0.15).is_none());
}

/// `filter = auto` counts as what the engine's rule makes of it, and stays where the best filter is
/// one that it may choose.
#[test]
fn a_filter_that_the_engine_chooses_is_compared_as_what_it_chooses() {
    let mut current = options(FilterChoice::Auto, CompactionChoice::Tiering);
    let (data, gets) = (data(), Workload { empty_gets: 1.0, puts: 1.0, ..Workload::default() });
    let ranges = Workload { empty_ranges: 1.0, puts: 1.0, ..Workload::default() };
    let of = |options: &Options, workload: &Workload| {
        apply::selector_of(apply::resolved(options, &data, workload).keyspace.filter.at(0))
    };
    assert_eq!(of(&current, &ranges), Selector::Grf);
    current.keyspace.key_map = tamis::options::KeyMapChoice::Digest;
    current.keyspace.compaction = CompactionChoice::Leveling;
    current.keyspace.level0_runs = 1;
    assert_eq!(
        (of(&current, &ranges), of(&current, &gets)),
        (Selector::BlockedBloom, Selector::BlockedBloom)
    );
    for workload in [gets, ranges] {
        let advice = advise(&calibration(), &data, &workload, 1 << 20, &current);
        let now = advice.current().expect("what there is").configuration;
        assert_eq!(now.selector, Selector::BlockedBloom);
        let best = advice.recommended().expect("an advice").configuration;
        let either = matches!(best.selector, Selector::BlockedBloom | Selector::Grf);
        let kept = advice.options.keyspace.filter == current.keyspace.filter;
        assert_eq!(kept, best == now || either && best.allocation != Allocation::Monkey, "{best:?}");
        advice.options.check().expect("options that are accepted");
    }
}

/// The rule of `filter = auto` and the ranking are the same between a filter per table and `grf` of
/// equal memory: over numbers of runs, mixes of reads and bits, whichever is present, the ranking
/// has no candidate of the kind that the rule rejects.
#[test]
fn advice_and_the_engine_prefer_the_same_of_a_filter_per_table_and_one_for_the_tree() {
    let (mut preferred, mut candidates) = ([0, 0], 0);
    for level0_runs in [1, 4, 8, 16, 32] {
        for (ranges, absent) in [(0.0, 0.1), (0.0, 0.9), (0.02, 0.5), (0.3, 0.5)] {
            for bits in [4.0, 6.0, 10.0, 14.0, 20.0] {
                for filter in [FilterChoice::BlockedBloom, FilterChoice::Grf] {
                    let mut current = options(filter, CompactionChoice::Tiering);
                    current.keyspace.level0_runs = level0_runs;
                    current.keyspace.size_ratio = (level0_runs as u64).clamp(2, 10).into();
                    current.keyspace.bits_per_key = bits;
                    current.keyspace.deterministic = true;
                    let (data, gets) = (data(), 1.0 - ranges);
                    let workload = Workload {
                        empty_gets: gets * absent,
                        existing_gets: gets * (1.0 - absent),
                        empty_ranges: ranges / 2.0,
                        seeks: ranges / 2.0,
                        ..Workload::default()
                    };
                    // What the engine decides in each state of the tree, and what that makes over
                    // all of them.
                    let tree = grow(&apply::shape_of(&current.keyspace), &data, true);
                    let states: Vec<Runs> = (tree.states.iter())
                        .map(|state| Runs { entries: state.runs.clone(), bits_per_key: bits, ordered: true })
                        .collect();
                    let reads = Reads {
                        absent_gets: workload.empty_gets,
                        existing_gets: workload.existing_gets,
                        empty_ranges: workload.empty_ranges,
                        filled_ranges: workload.seeks,
                    };
                    let kind =
                        if filter == FilterChoice::Grf { TreeFilter::Global } else { TreeFilter::PerTable };
                    let rule = compare_states(Some(kind), &states, &reads, &Costs::MEMORY).filter;
                    preferred[rule as usize] += 1;
                    // Memory for these bits, and not for the next that are tried.
                    let budget = (KEYS as f64 * (bits + 0.9) / 8.0) as u64;
                    let advice = advise(&calibration(), &data, &workload, budget, &current);
                    let what = format!(
                        "{level0_runs} runs, {ranges} ranges, {absent} absent, {bits} bits, {filter:?}"
                    );
                    for ranked in &advice.ranking.ranked {
                        let configuration = ranked.configuration;
                        let side = match (configuration.selector, configuration.allocation) {
                            (Selector::Grf, _) => TreeFilter::Global,
                            (Selector::BlockedBloom, Allocation::Uniform) => TreeFilter::PerTable,
                            _ => continue,
                        };
                        if configuration.bits_per_key == bits {
                            candidates += u32::from(!ranked.is_current);
                            assert_eq!(
                                ranked.is_rejected,
                                side != rule,
                                "{what}: {}",
                                configuration.describe()
                            );
                            assert!(
                                ranked.is_current || side == rule,
                                "{what}: {}",
                                configuration.describe()
                            );
                        }
                    }
                    let best = advice.recommended().expect("a ranking");
                    assert!(!best.is_rejected, "{what}: {}", best.configuration.describe());
                }
            }
        }
    }
    assert!(preferred.iter().all(|count| *count > 20), "each is preferred somewhere: {preferred:?}");
    assert!(candidates > 20, "where it is not what there is, the other is offered: {candidates}");
}

/// Beside the rule's own inputs: what an open keyspace under `filter = auto` says it wants, and
/// what is advised for its tree.
#[test]
fn the_filter_that_an_open_keyspace_wants_is_the_one_that_is_advised() {
    let mut wanted = Vec::new();
    for (runs, workload) in
        [(1, "get 50, empty-get 50"), (12, "get 50, empty-get 50"), (3, "get 50, empty-range 50")]
    {
        let mut options = options(FilterChoice::Auto, CompactionChoice::Tiering);
        options.keyspace.auto_compaction = false;
        options.set("keyspace.workload", workload).expect("a workload");
        let db = options.clone().open("/db").expect("opening");
        for run in 0..runs {
            (0..500).for_each(|i| db.put(number(i * runs + run, 1).to_be_bytes(), [7; 32]).expect("a write"));
            db.flush().expect("a flush");
        }
        db.wait_for_filters().expect("filters complete");
        let stats = db.stats();
        let auto = stats.keyspaces[0].auto_filter.as_ref().expect("a choice");
        let workload = options.keyspace.workload.expect("a workload");
        let bits = options.keyspace.bits_per_key;
        let advised = between(Some(TreeFilter::PerTable), &tree_of(&db), &data(), &workload, bits, true);
        let word = if advised.filter == TreeFilter::Global { "global" } else { "per-table" };
        assert_eq!(auto.wanted, word, "{runs} runs: {auto:?}");
        let again = |a: f64, b: f64| (a - b).abs() < 1e-6 * a;
        assert!(again(auto.per_table_ns, advised.per_table_ns), "{auto:?} {advised:?}");
        assert!(again(auto.global_ns, advised.global_ns), "{auto:?} {advised:?}");
        wanted.push(word);
    }
    assert_eq!(wanted, ["per-table", "global", "global"]);
}

#[test]
fn a_configuration_over_the_budget_is_left_whatever_the_gain() {
    let mut current = Options::default();
    current.keyspace.bits_per_key = 20.0;
    let workload = Workload { empty_gets: 1.0, ..Workload::default() };
    let advice = advise(&calibration(), &data_of(1_000_000), &workload, 1 << 20, &current);
    let change = decide(&advice, &current, 0.9).expect("a change");
    assert!(change.options.keyspace.bits_per_key < 20.0);
}

#[test]
fn a_workload_is_derived_from_counters() {
    for filter in [FilterChoice::BlockedBloom, FilterChoice::None, FilterChoice::Grf] {
        let options = options(filter, CompactionChoice::Tiering);
        let db = filled(&options);
        let before = db.stats();
        for i in 0..4000 {
            assert!(db.get(number(i, 2).to_be_bytes()).unwrap().is_none());
        }
        for i in 0..1000 {
            assert!(db.get(number(i * 59, 1).to_be_bytes()).unwrap().is_some());
        }
        for i in 0..500 {
            db.put(number(i, 1).to_be_bytes(), [8; 32]).unwrap();
        }
        let seen = Observed::between(&before, &db.stats(), &options);
        assert_eq!(seen.operations, 5500);
        close("absent", seen.workload.share(Class::EmptyGet), 4000.0 / 5500.0, 0.05);
        close("present", seen.workload.share(Class::ExistingGet), 1000.0 / 5500.0, 0.2);
        close("puts", seen.workload.share(Class::Put), 500.0 / 5500.0, 1e-9);
        assert_eq!(seen.data.key_bytes, 8.0);
        close("values", seen.data.value_bytes, 32.0, 0.1);
        assert!(!seen.unknown.is_empty());
        let before = db.stats();
        for i in 0..200 {
            assert_eq!(db.range(number(i, 5).to_be_bytes()..).take(100).count(), 100);
        }
        let seen = Observed::between(&before, &db.stats(), &options);
        close("scans", seen.workload.share(Class::Scan), 1.0, 0.05);
        close("entries", seen.workload.scan_entries, 100.0, 0.5);
    }
}

/// Measures with this effort and durability. Every cost must be present and plausible, and no file
/// may be left behind.
fn measured(effort: Effort, durability: Durability) -> Machine {
    let fs = Arc::new(MemFs::new());
    let options = Options { file_system: Some(fs.clone()), durability, ..Options::default() };
    let setup = Setup::new(16, 100).effort(effort).database("/somewhere", &options);
    let machine = Calibration::measure(&setup).expect("measuring").machine;
    for selector in FilterChoice::all().map(apply::selector_of).filter(|selector| *selector != Selector::None)
    {
        let cost = machine.probe(selector).expect("every filter");
        let ProbeCost { point_ns, run_ns, range_ns, seek_ns, build_ns, copy_ns, change_ns, .. } = cost;
        let costs = [point_ns, run_ns, range_ns, seek_ns, build_ns, copy_ns, change_ns];
        assert!(costs.iter().all(|ns| ns.is_finite() && *ns >= 0.0), "{selector:?}: {cost:?}");
        assert!(selector.is_global() || run_ns == 0.0, "{selector:?}: {cost:?}");
    }
    let Machine { digest_ns, get_ns, iterator_ns, put_ns, log_ns, device_ns, background_share, .. } = machine;
    let costs = [digest_ns, get_ns, iterator_ns, put_ns, log_ns, device_ns, background_share];
    assert!(costs.iter().all(|ns| ns.is_finite() && *ns > 0.0), "{machine:?}");
    assert!(background_share <= 1.0, "{machine:?}");
    assert!(machine.latency.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    assert!(tamis::io::FileSystem::list(&*fs, "/somewhere".as_ref()).expect("a directory").is_empty());
    let ranking =
        rank(&machine, &data(), &Workload { puts: 1.0, ..Workload::default() }, &Space::new(1 << 20));
    assert!(ranking.best().expect("a ranking").prediction.mean_ns > 0.0);
    machine
}

#[test]
fn calibration_measures_every_filter_and_leaves_nothing() {
    measured(Effort::Quick, Durability::Buffered);
}

#[test]
fn full_calibration_also_measures_misses_and_larger_memory() {
    let machine = measured(Effort::Full, Durability::Sync);
    // A quick calibration stops at eight megabytes and measures no misses.
    assert!(machine.latency.last().is_some_and(|(bytes, _)| *bytes > 16e6), "{machine:?}");
    let misses = [machine.search_misses, machine.vain_misses, machine.cursor_misses];
    assert!(misses.iter().all(|misses| (0.0..=8.0).contains(misses)), "{machine:?}");
}

/// Fails every operation of measuring a device and a log in turn. Each failure is an error, except
/// for the preallocation hint and for direct reads, which may be unavailable. The file is removed,
/// unless the removal itself failed.
#[test]
fn device_failures_are_errors_not_measurements() {
    let fs = FaultyFs::new(3);
    for durability in [Durability::Buffered, Durability::Sync] {
        let options = Options { file_system: Some(Arc::new(fs.clone())), durability, ..Options::default() };
        let setup = Setup::new(16, 100).effort(Effort::Quick).database("/somewhere", &options);
        let measure = || device::device(&mut Machine::default(), &setup);
        let before = fs.operations();
        measure().expect("nothing fails");
        let operations = fs.operations() - before;
        let mut errors = 0;
        for at in 0..operations {
            let failures = fs.failures();
            fs.plan(FaultPlan { fail_at: Some(fs.operations() + at), ..FaultPlan::none() });
            errors += u64::from(measure().is_err());
            fs.plan(FaultPlan::none());
            assert_eq!(fs.failures(), failures + 1, "operation {at} of {operations}");
            for left in tamis::io::FileSystem::list(&fs, "/somewhere".as_ref()).expect("a directory") {
                assert_eq!(at + 1, operations, "{left:?} stays after operation {at}");
                tamis::io::FileSystem::remove(&fs, &std::path::Path::new("/somewhere").join(left))
                    .expect("removing");
            }
        }
        // The hint, the removal, and the direct reads, a third of all.
        assert!(errors > operations / 2 && errors < operations, "{errors} of {operations}");
    }
}
