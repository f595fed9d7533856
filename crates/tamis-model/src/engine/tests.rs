//! Checks the model against exact small cases, and properties of every ranking.

use proptest::prelude::*;

use super::*;

/// Returns a machine whose numbers are close to those of a small server.
fn machine() -> Machine {
    let probe = |point, range, build, copy| ProbeCost::new(point, range, build, copy);
    let probes = Selector::ALL.into_iter().filter(|selector| *selector != Selector::None).map(|selector| {
        let cost = match selector {
            Selector::BlockedBloom => probe(12.0, 12.0, 10.0, 0.0),
            Selector::Bloom | Selector::Fuse | Selector::Xor | Selector::Cuckoo => {
                probe(20.0, 20.0, 60.0, 0.0)
            }
            Selector::Ribbon => probe(30.0, 30.0, 150.0, 0.0),
            Selector::Elastic => probe(35.0, 35.0, 40.0, 0.0),
            Selector::Grf => probe(70.0, 150.0, 280.0, 5.0),
            Selector::GrfHuffman => probe(80.0, 170.0, 400.0, 9.0),
            Selector::Chucky => probe(60.0, 60.0, 300.0, 23.0),
            Selector::Remix => probe(80.0, 200.0, 40.0, 5.0),
            _ => probe(80.0, 120.0, 60.0, 0.0),
        };
        (selector, cost)
    });
    Machine {
        digest_ns: 3.0,
        get_ns: 60.0,
        search_ns: 300.0,
        vain_ns: 150.0,
        measured_bytes: 1e6,
        iterator_ns: 200.0,
        cursor_ns: 400.0,
        late_open_ns: 200.0,
        next_ns: 60.0,
        merge_step_ns: 15.0,
        page_ns: 900.0,
        device_ns: 80_000.0,
        unpack_ns: 1500.0,
        put_ns: 700.0,
        merge_entry_ns: 150.0,
        merge_byte_ns: 0.8,
        background_share: 0.5,
        latency: vec![(262144.0, 4.0), (1e6, 6.0), (16e6, 30.0), (128e6, 90.0)],
        probes: probes.collect(),
        ..Machine::default()
    }
}

fn data(entries: u64) -> Data {
    Data { memtable_bytes: 1 << 20, ..Data::new(entries, 8.0, 100.0) }
}

fn state_tree(runs: &[f64]) -> Tree {
    Tree { states: vec![State::of(runs.to_vec())], write_amplification: 1.0 }
}

#[test]
fn without_filters_every_run_is_searched() {
    let shape = Shape::new(Policy::Tiering, 10);
    let configuration = Configuration::new(Selector::None, 0.0, shape);
    let tree = state_tree(&[100.0, 300.0, 600.0]);
    let counted = counts(&tree, &data(1000), &Workload::default(), &configuration);
    assert_eq!(counted[Class::EmptyGet as usize].runs_searched, 3.0);
    assert_eq!(counted[Class::EmptyGet as usize].filter_probes, 0.0);
    // 0.1 · 1 + 0.3 · 2 + 0.6 · 3
    assert!((counted[Class::ExistingGet as usize].runs_searched - 2.5).abs() < 1e-12);
    assert_eq!(counted[Class::Seek as usize].cursors, 3.0);
}

/// Enumerates every key of a tree with eleven runs, and every step of a get for it: eight runs at
/// first, then the others.
#[test]
fn gets_of_present_keys_are_counted_exactly() {
    let runs: Vec<f64> = (1..=11).map(f64::from).collect();
    let configuration = Configuration::new(Selector::BlockedBloom, 10.0, Shape::new(Policy::Tiering, 10));
    let rate = blocked_rate(10.0);
    let (mut probes, mut searched, mut keys) = (0.0, 0.0, 0.0);
    for (at, run) in runs.iter().enumerate() {
        for _ in 0..*run as u64 {
            keys += 1.0;
            probes += if at < 8 { 8.0 } else { 11.0 };
            searched += 1.0 + rate * at as f64;
        }
    }
    let counted = counts(&state_tree(&runs), &data(66), &Workload::default(), &configuration);
    let existing = counted[Class::ExistingGet as usize];
    assert!((existing.filter_probes - probes / keys).abs() < 1e-9);
    assert!((existing.runs_searched - searched / keys).abs() < 1e-4, "{existing:?}");
    assert_eq!(existing.digests, 1.0);
    let unshared = Configuration { hash_sharing: false, ..configuration };
    let counted = counts(&state_tree(&runs), &data(66), &Workload::default(), &unshared);
    let one_by_one: f64 = runs.iter().zip(1..).map(|(run, at)| run * f64::from(at)).sum::<f64>() / keys;
    assert!((counted[Class::ExistingGet as usize].digests - one_by_one).abs() < 1e-9);
    assert_eq!(counted[Class::EmptyGet as usize].digests, 11.0);
}

#[test]
fn rates_match_the_tables() {
    let near =
        |value: f64, printed: f64| assert!((value / printed - 1.0).abs() < 0.1, "{value} for {printed}");
    near(bloom_rate(10.0), 0.00819);
    near(blocked_rate(10.0), 0.00966);
    near(counts::blocked_rate_of(10.1), 0.0093);
    let of = |selector: Selector, near, width| selector.rates(14.0, Keys::Integers, near, width);
    near(Selector::Ribbon.rates(10.0, Keys::Integers, 0.0, 1.0).point, 0.00137);
    near(Selector::Fuse.rates(10.0, Keys::Integers, 0.0, 1.0).point, 0.0039);
    near(Selector::Xor.rates(10.0, Keys::Integers, 0.0, 1.0).point, 0.0039);
    near(Selector::Cuckoo.rates(10.0, Keys::Integers, 0.0, 1.0).point, 0.0142);
    near(of(Selector::Grafite, 0.0, 64.0).range, 0.016);
    near(of(Selector::Grafite, 1.0, 64.0).range, 0.016);
    near(of(Selector::Rosetta, 0.0, 64.0).range, 0.073);
    near(of(Selector::Snarf, 1.0, 64.0).range, 1.0);
    assert!(of(Selector::Snarf, 0.0, 64.0).range < 0.0004);
    assert_eq!(of(Selector::BlockedBloom, 0.0, 64.0).range, 1.0);
    // Runs searched in vain by gets of absent keys, from the engine's counters, with one filter for
    // the whole tree.
    let about = |selector: Selector, bits: f64, shares: &[f64], seen: f64| {
        let value = selector.named_runs(bits, Keys::Integers, 0.0, shares).point;
        assert!(
            value / seen < 1.6 && seen / value < 1.6,
            "{selector:?} {bits} {shares:?}: {value} for {seen}"
        )
    };
    let (one, eight) = ([1.0], [0.125; 8]);
    for (selector, bits, of_one, of_eight) in [
        (Selector::Grf, 8.0, 0.0259, 0.3295),
        (Selector::Grf, 10.0, 0.0081, 0.0844),
        (Selector::Grf, 12.0, 0.0021, 0.0219),
        (Selector::Grf, 14.0, 0.0004, 0.0059),
        (Selector::GrfHuffman, 10.0, 0.0186, 0.1583),
        (Selector::GrfHuffman, 14.0, 0.0014, 0.0117),
        (Selector::Chucky, 8.0, 0.18, 0.223),
        (Selector::Chucky, 10.0, 0.18, 0.223),
        (Selector::Chucky, 12.0, 0.093, 0.11),
        (Selector::Chucky, 13.0, 0.0061, 0.055),
        (Selector::Chucky, 14.0, 0.0034, 0.0275),
        (Selector::Chucky, 16.0, 0.0034, 0.007),
    ] {
        about(selector, bits, &one, of_one);
        about(selector, bits, &eight, of_eight);
    }
    // Nine tenths in one run, the rest in ten.
    let shares: Vec<f64> = [0.01; 10].into_iter().chain([0.9]).collect();
    about(Selector::Grf, 8.0, &shares, 0.0712);
    about(Selector::Grf, 10.0, &shares, 0.0179);
    about(Selector::Grf, 12.0, &shares, 0.0053);
    // Three levels of ten runs, the last of one.
    let shares: Vec<f64> = [0.001; 10].into_iter().chain([0.009; 10]).chain([0.9]).collect();
    about(Selector::Remix, 4.0, &shares, 3.623);
}

/// Monkey's closed form against a fine grid over two runs.
#[test]
fn monkey_is_the_optimal_division() {
    let runs = [100.0, 1000.0];
    for bits in [1.0, 4.0, 10.0] {
        let sum = |given: &[f64]| given.iter().map(|bits| (-bits * 0.480453f64).exp()).sum::<f64>();
        let given = counts::monkey(&runs, bits);
        let spent: f64 = given.iter().zip(runs).map(|(bits, run)| bits * run).sum();
        assert!((spent / (bits * 1100.0) - 1.0).abs() < 1e-9);
        let best = (0..=10_000)
            .map(|i| {
                let small = f64::from(i) / 10_000.0 * (bits * 1100.0 / 100.0).min(64.0);
                sum(&[small, (bits * 1100.0 - small * 100.0) / 1000.0])
            })
            .fold(f64::INFINITY, f64::min);
        assert!(sum(&given) <= best * 1.0001, "{bits}: {} against {best}", sum(&given));
    }
}

/// Compares shares of a Zipf law with sums over items.
#[test]
fn shares_of_skewed_items() {
    for exponent in [0.0, 0.5, 0.99, 1.0, 1.3] {
        let weights: Vec<f64> = (1..=1000).map(|i| f64::from(i).powf(-exponent)).collect();
        let all: f64 = weights.iter().sum();
        for top in [1usize, 10, 100, 500, 1000] {
            let exact = weights[..top].iter().sum::<f64>() / all;
            let share = counts::zipf_share(top as f64, 1000.0, exponent);
            assert!((share - exact).abs() < 0.07, "{exponent} {top}: {share} for {exact}");
        }
    }
}

#[test]
fn elastic_memory_goes_where_it_saves_most() {
    let tree = state_tree(&[1e5, 1e6, 1e7]);
    let workload = Workload { empty_gets: 1.0, ..Workload::default() };
    let shape = Shape::new(Policy::Tiering, 10);
    let rate = |selector, allocation, bits, workload: &Workload| {
        let configuration = Configuration { allocation, ..Configuration::new(selector, bits, shape) };
        counts(&tree, &data(11_100_000), workload, &configuration)[Class::EmptyGet as usize].runs_searched
    };
    let uniform = rate(Selector::BlockedBloom, Allocation::Uniform, 4.0, &workload);
    let monkey = rate(Selector::BlockedBloom, Allocation::Monkey, 4.0, &workload);
    let elastic = rate(Selector::Elastic, Allocation::Uniform, 4.0, &workload);
    assert!(monkey < elastic && elastic < uniform, "{monkey} {elastic} {uniform}");
    let hot = Workload { skew: 0.99, clustered: true, ..workload };
    assert!(rate(Selector::Elastic, Allocation::Uniform, 4.0, &hot) < 0.7 * elastic);
    assert_eq!(rate(Selector::Elastic, Allocation::Uniform, 0.0, &workload), 3.0);
}

#[test]
fn trees_match_their_policies() {
    for ratio in [2, 4, 10] {
        for (policy, merges) in [
            (Policy::Leveling, &[Merge::Full, Merge::Partial, Merge::Partitioned][..]),
            (Policy::Tiering, &[Merge::Full]),
            (Policy::LazyLeveling, &[Merge::Full, Merge::Partial, Merge::Partitioned]),
            (Policy::Hybrid(2), &[Merge::Full, Merge::Partial]),
        ] {
            for &merge in merges {
                let shape = Shape { merge, ..Shape::new(policy, ratio) };
                let mut writes = 0.0;
                for flushes in [1.0, 4.0, 17.0, 100.0, 1000.0, 9999.0] {
                    let tree = grow_from(&shape, flushes * 100.0, 100.0, 400.0, false);
                    for state in &tree.states {
                        assert!((state.entries() / (flushes * 100.0) - 1.0).abs() < 1e-6);
                        let levels = (shape.levels - 1) as f64;
                        let a_level = if policy == Policy::Leveling { 1.0 } else { (ratio - 1) as f64 };
                        let most = 3.0 + levels * a_level;
                        assert!(state.runs.len() as f64 <= most, "{shape:?}: {} runs", state.runs.len());
                    }
                    assert!(tree.write_amplification >= writes * 0.8 && tree.write_amplification >= 1.0);
                    writes = tree.write_amplification;
                }
            }
        }
    }
    let grown = |policy| grow_from(&Shape::new(policy, 10), 1e6, 1e3, 4e3, false);
    let (leveling, tiering) = (grown(Policy::Leveling), grown(Policy::Tiering));
    assert!(leveling.write_amplification > 1.5 * tiering.write_amplification);
    assert!(leveling.mean_runs() < tiering.mean_runs());
    assert_eq!(
        grow_from(&Shape::new(Policy::Leveling, 10), 1e6, 1e3, 4e3, true).states,
        [State::of(vec![1e6])]
    );
}

#[test]
fn terms_sum_to_the_prediction() {
    let machine = machine();
    let workload = Workload {
        empty_gets: 0.2,
        existing_gets: 0.2,
        empty_ranges: 0.2,
        seeks: 0.1,
        scans: 0.1,
        puts: 0.2,
        skew: 0.9,
        near: 0.3,
        ..Workload::default()
    };
    for selector in Selector::ALL {
        for path in [ReadPath::Mapped, ReadPath::Buffered, ReadPath::Direct] {
            let data = Data { read_path: path, compressed: path == ReadPath::Buffered, ..data(300_000) };
            let configuration = Configuration::new(selector, 10.0, Shape::new(Policy::LazyLeveling, 4));
            let predicted = predict(&machine, &data, &workload, &configuration);
            let mean: f64 =
                predicted.terms.iter().map(|term| workload.share(term.class) * term.value_ns).sum();
            assert!(predicted.mean_ns.is_finite() && (mean / predicted.mean_ns - 1.0).abs() < 1e-9);
            assert!(predicted.terms.iter().all(|term| term.value_ns >= 0.0 && !term.formula.is_empty()));
        }
    }
}

#[test]
fn a_budget_of_nothing_buys_nothing() {
    let workload = Workload { empty_gets: 1.0, ..Workload::default() };
    let ranking = rank(&machine(), &data(100_000), &workload, &Space::new(0));
    assert_eq!(ranking.best().unwrap().configuration.selector, Selector::None);
    assert!(ranking.ranked.iter().all(|ranked| ranked.configuration.selector == Selector::None));
    assert_eq!(ranking.refused.len(), Selector::ALL.len() - 1);
}

#[test]
fn nothing_over_budget_is_recommended() {
    let workload = Workload { empty_gets: 0.9, puts: 0.1, ..Workload::default() };
    let shape = Shape::new(Policy::Tiering, 10);
    let mut space = Space::of_shape(50_000, shape);
    space.current = Some(Configuration::new(Selector::Ribbon, 20.0, shape));
    let ranking = rank(&machine(), &data(100_000), &workload, &space);
    let best = ranking.best().unwrap();
    assert!(!best.is_current && best.prediction.filter_bytes <= 50_000.0);
    assert!(ranking.current().is_some());
}

/// Many filters cost nearly the same. "Equal within a distance" is not an order, and sorting by it
/// used to panic.
#[test]
fn nearly_equal_configurations_have_an_order() {
    let mut machine = machine();
    for (at, (_, cost)) in machine.probes.iter_mut().enumerate() {
        *cost = ProbeCost::new(15.0 + at as f64 * 1e-5, 15.0, 30.0, 0.0);
    }
    for step in 0..40 {
        let puts = 0.3 + f64::from(step) / 100.0;
        let workload = Workload { puts, empty_gets: 1.0 - puts, ..Workload::default() };
        let ranking = rank(&machine, &data(1_000_000), &workload, &Space::new(4 << 20));
        let means: Vec<f64> = ranking.ranked.iter().map(|ranked| ranked.prediction.mean_ns).collect();
        assert!(means.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 2e-6)));
    }
}

#[test]
fn scans_pay_for_no_point_filter() {
    let workload = Workload { scans: 1.0, ..Workload::default() };
    for shape in [Shape::new(Policy::Tiering, 10), Shape::new(Policy::Leveling, 10)] {
        let ranking = rank(&machine(), &data(500_000), &workload, &Space::of_shape(1 << 30, shape));
        let best = ranking.best().unwrap().configuration.selector;
        assert!(best == Selector::None || best.keeps_order(), "{best:?}");
    }
}

#[test]
fn many_runs_and_absent_keys_favour_filters_and_puts_favour_tiering() {
    let machine = machine();
    let absent = Workload { empty_gets: 0.9, puts: 0.1, ..Workload::default() };
    let best = rank(&machine, &data(1_000_000), &absent, &Space::new(4 << 20));
    assert_ne!(best.best().unwrap().configuration.selector, Selector::None);
    assert!(!best.best().unwrap().reasons.is_empty());
    let puts = Workload { puts: 1.0, ..Workload::default() };
    let best = rank(&machine, &data(1_000_000), &puts, &Space::new(4 << 20));
    let shape = best.best().unwrap().configuration.shape;
    assert!(matches!(shape.policy, Policy::Tiering | Policy::Fragmented), "{shape:?}");
    assert_eq!(best.best().unwrap().configuration.selector, Selector::None);
}

#[test]
fn a_slow_device_favours_the_fewest_reads() {
    let device = Data { read_path: ReadPath::Direct, ..data(1_000_000) };
    let workload = Workload { empty_gets: 1.0, puts: 0.01, ..Workload::default() };
    let shape = Shape::new(Policy::Tiering, 10);
    let ranking = rank(&machine(), &device, &workload, &Space::of_shape(2 << 20, shape));
    let fewest = |ranked: &&Ranked| ranked.prediction.counts[0].blocks;
    let best = ranking.best().unwrap();
    let least = ranking.ranked.iter().map(|ranked| fewest(&ranked)).fold(f64::INFINITY, f64::min);
    assert!(fewest(&best) < 2.0 * least + 0.01, "{} against {least}", fewest(&best));
}

fn selector() -> impl Strategy<Value = Selector> {
    (0..Selector::ALL.len()).prop_map(|at| Selector::ALL[at])
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Leveling),
        Just(Policy::Tiering),
        Just(Policy::LazyLeveling),
        Just(Policy::Hybrid(2)),
        Just(Policy::Fragmented),
        Just(Policy::Fifo),
        Just(Policy::TimeWindow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the input, the outputs are numbers, and none is negative.
    #[test]
    fn predictions_are_numbers(
        selector in selector(), policy in policy(), ratio in 2u64..20, entries in 0u64..3_000_000, bits in 0.0f64..70.0,
        shares in prop::array::uniform6(0.0f64..1.0), skew in 0.0f64..2.0, clustered: bool, near in 0.0f64..1.0,
        compressed: bool, monkey: bool, memtable in 1u64..(64 << 20),
    ) {
        let [empty_gets, existing_gets, empty_ranges, seeks, scans, puts] = shares;
        let workload = Workload {
            empty_gets, existing_gets, empty_ranges, seeks, scans, puts, skew, clustered, near, ..Workload::default()
        };
        let data = Data { memtable_bytes: memtable, compressed, ..data(entries) };
        let mut configuration = Configuration::new(selector, bits, Shape::new(policy, ratio));
        if monkey {
            configuration.allocation = Allocation::Monkey;
        }
        let predicted = predict(&machine(), &data, &workload, &configuration);
        prop_assert!(predicted.mean_ns.is_finite() && predicted.mean_ns >= 0.0);
        prop_assert!(predicted.class_ns.iter().all(|ns| ns.is_finite() && *ns >= 0.0));
        prop_assert!(predicted.write_amplification.is_finite() && predicted.runs >= 1.0);
        for counts in predicted.counts {
            prop_assert!(counts.false_positives <= counts.runs_searched + 1e-9);
            prop_assert!(counts.runs_searched <= counts.runs.max(1.0) + 1e-9);
        }
    }

    /// More gets of absent keys never make having no filter look better compared to a filter.
    #[test]
    fn absent_keys_never_favour_no_filter(
        selector in selector(), policy in policy(), part in 0.0f64..0.9, more in 0.0f64..0.1, entries in 10_000u64..1_000_000,
    ) {
        prop_assume!(selector != Selector::None && selector != Selector::Remix);
        let shape = Shape { read_compaction: false, ..Shape::new(policy, 10) };
        let gain = |absent: f64| {
            let workload = Workload { empty_gets: absent, existing_gets: 1.0 - absent, ..Workload::default() };
            let mean = |selector| predict(&machine(), &data(entries), &workload, &Configuration::new(selector, 12.0, shape)).mean_ns;
            mean(Selector::None) - mean(selector)
        };
        // A get of a present key has to search its run in any case, so a filter saves at most what
        // it saves for an absent key.
        let (before, after) = (gain(part), gain(part + more));
        prop_assert!(after >= before - 1e-6 * before.abs() - 0.5, "{before} {after}");
    }

    /// A better device or more memory never makes anything slower.
    #[test]
    fn more_resources_are_never_worse(selector in selector(), cache in 0u64..(64 << 20), bits in 1.0f64..20.0, slow in 0.0f64..1e6) {
        let workload = Workload { empty_gets: 0.5, existing_gets: 0.5, ..Workload::default() };
        let data = Data { read_path: ReadPath::Direct, ..data(500_000) };
        let ns = |cache_bytes, device_ns| {
            let machine = Machine { device_ns, ..machine() };
            let configuration = Configuration { cache_bytes, ..Configuration::new(selector, bits, Shape::new(Policy::Tiering, 4)) };
            predict(&machine, &data, &workload, &configuration).mean_ns
        };
        prop_assert!(ns(cache + (1 << 20), slow) <= ns(cache, slow) + 1e-9);
        prop_assert!(ns(cache, slow) <= ns(cache, slow + 1000.0) + 1e-9);
    }
}
