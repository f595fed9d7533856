//! Counters of experiments at a tiny scale.

use std::collections::BTreeSet;

use tamis_bench::BenchError;
use tamis_bench::progress::NoProgress;
use tamis_bench::workload::Workload;

use super::database::loaded_of;
use super::plan::Job;
use super::rows::Rows;
use super::*;

fn tiny() -> ElasticSettings {
    ElasticSettings {
        keys: 6_000,
        value_bytes: 64,
        warm_window: 400,
        ops: Some(400),
        options: vec![("keyspace.filter_unit_bytes".into(), "128".into())],
        ..ElasticSettings::default()
    }
}

/// Returns settings with segments so large that their borders and hotness leave most of the memory to units.
fn roomy() -> ElasticSettings {
    let options = vec![("keyspace.filter_unit_bytes".into(), "1024".into())];
    ElasticSettings { keys: 60_000, options, ..tiny() }
}

fn experiment(name: &str) -> ElasticExperiment {
    ElasticExperiment::all().into_iter().find(|experiment| experiment.name == name).unwrap()
}

/// Returns the rows of all steps.
fn run(experiment: &ElasticExperiment, settings: &ElasticSettings) -> Result<Rows, BenchError> {
    let job = Job::new(experiment, settings)?;
    let mut all = Rows::default();
    for step in job.steps() {
        let rows = job.run(&step, &NoProgress)?;
        rows.loads.into_iter().for_each(|load| all.add_load(load));
        all.reads.extend(rows.reads);
        all.warmups.extend(rows.warmups);
        all.windows.extend(rows.windows);
        all.shifts.extend(rows.shifts);
        all.restarts.extend(rows.restarts);
        all.tables.extend(rows.tables);
        all.missing.extend(rows.missing);
    }
    Ok(all)
}

fn sides(names: &str) -> Option<Vec<ElasticSide>> {
    Some(names.split(',').map(|name| name.parse().unwrap()).collect())
}

fn refused(name: &str, settings: ElasticSettings) -> String {
    match Job::new(&experiment(name), &settings).map(|_| ()) {
        Err(BenchError::Request(why)) => why,
        other => panic!("{name}: {other:?}"),
    }
}

/// Counters come from the engine and from the harness: they must agree.
#[test]
fn wasted_reads_are_the_false_positives_of_fixed_filters_and_all_candidates_without() {
    let settings = ElasticSettings {
        sides: sides("none,bloom"),
        skews: Some(vec![0.0]),
        absents: Some(vec![100]),
        localities: Some(vec![1]),
        ops: Some(4000),
        repeats: Some(2),
        ..tiny()
    };
    let outcome = run(&experiment("elastic-fig10"), &settings).unwrap();
    let [none, bloom] = &outcome.reads[..] else { panic!("{outcome:?}") };
    let runs: usize = outcome.loads[0].runs.split('/').map(|runs| runs.parse::<usize>().unwrap()).sum();
    assert_eq!(outcome.loads[0].runs, outcome.loads[1].runs, "all sides have the same tree");
    assert!(outcome.loads[0].runs.starts_with("3/"), "{:?}", outcome.loads[0]);
    let in_vain = |row: &ReadRow| row.in_vain_per_op.unwrap();
    assert!(in_vain(none) > runs as f64 - 0.2 && in_vain(none) <= runs as f64, "{none:?}");
    assert!(none.filter_memory == 0 && !none.without_filter && !bloom.without_filter);
    assert_eq!(in_vain(bloom), bloom.false_positives_mean);
    // Four bits per key have a false positive rate of 15 %.
    let rate = in_vain(bloom) / in_vain(none);
    assert!((0.08..0.25).contains(&rate), "{rate}");
}

/// Whatever the hotness, the budget holds, all segments are accounted for, and the engine's estimate is accurate.
#[test]
fn elastic_filters_keep_their_budget_and_follow_hotness() {
    let settings = ElasticSettings {
        sides: sides("bloom,elastic"),
        skews: Some(vec![1.2]),
        localities: Some(vec![256]),
        absents: Some(vec![100]),
        ops: Some(20_000),
        warmup: Some(0),
        repeats: Some(2),
        direct: Some(false),
        ..roomy()
    };
    let outcome = run(&experiment("elastic-fig10"), &settings).unwrap();
    let [bloom, elastic] = &outcome.reads[..] else { panic!("{outcome:?}") };
    assert!(elastic.elastic && !bloom.elastic);
    assert!(elastic.filter_memory > 0 && elastic.filter_memory <= bloom.filter_memory, "{elastic:?}");
    let by_units: Vec<u64> = elastic.by_units.split('/').map(|count| count.parse().unwrap()).collect();
    assert_eq!(by_units.iter().sum::<u64>(), elastic.segments);
    assert!(
        by_units[0] > 0 && by_units[2..].iter().sum::<u64>() > 0,
        "hot segments have several: {by_units:?}"
    );
    assert!(elastic.load_reads_per_op > 0.0 && bloom.load_reads_per_op == 0.0);
    // The seed is fixed, but the sampled gets depend on time; the difference is large all the same.
    assert!(elastic.in_vain_last.unwrap() < bloom.in_vain_last.unwrap() / 1.5, "{elastic:?} {bloom:?}");
}

#[test]
fn hits_are_distinguished_from_wasted_reads() {
    let settings = ElasticSettings {
        sides: sides("none"),
        absents: Some(vec![0]),
        localities: Some(vec![1]),
        repeats: Some(1),
        ..tiny()
    };
    let outcome = run(&experiment("elastic-fig10"), &settings).unwrap();
    let row = &outcome.reads[0];
    // Each get finds its key in one run, so the other runs were searched without success.
    let in_vain = row.in_vain_per_op.unwrap();
    assert_eq!(in_vain + 1.0, row.measurement.runs_searched_per_op);
}

#[test]
fn a_base_is_reused_only_for_the_same_data_and_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ElasticSettings {
        sides: sides("bloom"),
        workloads: Some(vec![Workload::YcsbD]),
        dir: Some(dir.path().to_owned()),
        repeats: Some(3),
        ..tiny()
    };
    let of = |settings: &ElasticSettings| run(&experiment("elastic-fig13"), settings).unwrap();
    let first = of(&settings);
    assert!(!first.loads[0].reused && first.loads[0].keys == loaded_of(6000));
    // The inserts of the first run went to a copy, so the second run inserts the same keys again.
    let second = of(&settings);
    assert!(second.loads[0].reused);
    assert_eq!(second.loads[0].runs, first.loads[0].runs);
    let other = of(&ElasticSettings { value_bytes: 65, ..settings.clone() });
    assert!(!other.loads[0].reused);
    // An interrupted load leaves no card.
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path().join("loaded.json")).unwrap();
    }
    assert!(!of(&settings).loads[0].reused);
}

#[test]
fn tables_are_queried_evenly_under_a_uniform_load_and_unevenly_under_a_skewed_one() {
    let settings = ElasticSettings {
        skews: Some(vec![0.0, 1.2]),
        localities: Some(vec![256]),
        ops: Some(6000),
        keys: 20_000,
        ..tiny()
    };
    let outcome = run(&experiment("elastic-fig2"), &settings).unwrap();
    let deepest = outcome.tables.iter().map(|row| row.level).max().unwrap();
    let extent = |point: &str| {
        let level = outcome.tables.iter().filter(|row| row.point == point && row.level == deepest);
        let asked: Vec<f64> = level.map(|row| row.asked_per_get).collect();
        let mean = asked.iter().sum::<f64>() / asked.len() as f64;
        // The last level is queried once for each key in it, which is most of them.
        let total: f64 = asked.iter().sum();
        assert!(total > 0.5 && total <= 1.0, "{point}: {total}");
        asked.iter().fold(0.0, |most: f64, &a| most.max(a)) / mean
    };
    assert!(extent("uniform") < 3.0, "{}", extent("uniform"));
    assert!(extent("skew 1.2") > 4.0, "{}", extent("skew 1.2"));
}

#[test]
fn a_shift_has_windows_on_both_sides_of_the_move() {
    let settings = ElasticSettings { sides: sides("bloom"), localities: Some(vec![16]), ..tiny() };
    let outcome = run(&experiment("elastic-shift"), &settings).unwrap();
    let moved: Vec<bool> = outcome.windows.iter().map(|row| row.moved).collect();
    let half = windows::WINDOWS as usize;
    assert_eq!(moved, [vec![false; half], vec![true; half]].concat());
    assert_eq!(outcome.windows.last().unwrap().gets, 400 * 2 * windows::WINDOWS);
    assert_eq!(outcome.shifts.len(), 1);
}

#[test]
fn invalid_settings_are_refused_before_anything_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = || ElasticSettings { dir: Some(dir.path().to_owned()), ..tiny() };
    let with = |name: &str, change: &dyn Fn(&mut ElasticSettings)| {
        let mut settings = tiny();
        change(&mut settings);
        refused(name, settings)
    };
    assert!(with("elastic-fig10", &|s| s.keys = 10).contains("--keys"));
    assert!(with("elastic-fig10", &|s| s.skews = Some(vec![-1.0])).contains("--skew"));
    assert!(with("elastic-fig10", &|s| s.absents = Some(vec![101])).contains("--absent"));
    assert!(with("elastic-fig10", &|s| s.localities = Some(vec![0])).contains("--locality"));
    assert!(with("elastic-fig10", &|s| s.sides = sides("bloom,bloom")).contains("bloom twice"));
    assert!(with("elastic-fig10", &|s| s.sides = sides("grf")).contains("whole tree"));
    assert!(with("elastic-fig10", &|s| s.sides = Some(Vec::new())).contains("--filters"));
    assert!(with("elastic-fig10", &|s| s.threads = Some(Vec::new())).contains("empty"));
    assert!(with("elastic-fig10", &|s| s.workloads = Some(vec![Workload::FillSeq])).contains("fill-seq"));
    assert!(with("elastic-fig10", &|s| s.workloads = Some(vec![Workload::GetEmpty])).contains("get-zipf"));
    assert!(with("elastic-fig13", &|s| s.ops = Some(1_000_000)).contains("more --keys"));
    assert!(with("elastic-shift", &|s| s.repeats = Some(2)).contains("--repeat"));
    assert!(with("elastic-shift", &|s| s.warmup = Some(2)).contains("--warmup"));
    assert!(with("elastic-fig2", &|s| s.warmup = Some(2)).contains("--warmup"));
    assert!(with("elastic-restart", &|s| s.repeats = Some(2)).contains("--repeat"));
    assert!(with("elastic-fig2", &|s| s.threads = Some(vec![2])).contains("--threads"));
    let on = |names: &[&str]| Some(names.iter().map(|name| name.to_string()).collect());
    assert!(with("elastic-fig2", &|s| s.devices = on(&["nvm"])).contains("only counts"));
    assert!(with("elastic-fig12", &|s| s.devices = on(&["ssd"])).contains("measures loading"));
    assert!(with("elastic-fig10", &|s| s.devices = on(&["nvm", "ssd"])).contains("one --device"));
    assert!(with("elastic-fig10", &|s| s.devices = on(&["tape"])).contains("pcie-ssd"));
    for direct in [true, false] {
        let named = with("elastic-fig10", &|s| (s.devices, s.direct) = (on(&["nvm"]), Some(direct)));
        assert!(named.contains("--device nvm determines how tables are read"), "{named}");
        let varied = with("elastic-fig16-device", &|s| s.direct = Some(direct));
        assert!(varied.contains("omit --direct and --mapped"), "{varied}");
    }
    let mapped = || vec![("read_mode".to_owned(), "mapped".to_owned())];
    assert!(with("elastic-fig16-device", &|s| s.options = mapped()).contains("read_mode"));
    for (option, instead) in [("filter_budget_bytes", "--bits"), ("heat_inheritance", "elastic-cold")] {
        let why = with("elastic-fig10", &|s| s.options = vec![(option.into(), "0".into())]);
        assert!(why.contains(instead), "{why}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn default_sides_are_known_and_include_a_fixed_filter() {
    for experiment in ElasticExperiment::all() {
        let sides: Vec<ElasticSide> = experiment.sides.iter().map(|name| name.parse().unwrap()).collect();
        assert!(!sides[0].is_elastic(), "{}", experiment.name);
    }
}

#[test]
fn all_settings_can_be_varied() {
    let fewest = |vary: Vary| match vary {
        Vary::Cache => 3,
        // Localities beyond the number of keys are omitted.
        Vary::Value | Vary::Locality => 4,
        Vary::Keys | Vary::Tree => 3,
        // The tests' directory may be in memory, where `disk` is not available.
        Vary::Device => 4,
        _ => 5,
    };
    for experiment in ElasticExperiment::all() {
        let Some(vary) = experiment.vary else { continue };
        let settings = ElasticSettings {
            sides: sides("bloom"),
            ops: Some(50),
            repeats: Some(1),
            options: Vec::new(),
            ..tiny()
        };
        let outcome = run(&experiment, &settings).unwrap();
        let points: BTreeSet<&str> = outcome.reads.iter().map(|row| &row.point[..]).collect();
        assert!(points.len() >= fewest(vary) && !points.contains(""), "{vary:?}: {points:?}");
        let settings: Vec<f64> = outcome.reads.iter().filter_map(|row| row.setting).collect();
        let numbers = match vary {
            Vary::Absent | Vary::Locality | Vary::Device | Vary::Tree => 0,
            // The engine's own choice is not a number.
            Vary::LifeTime => points.len() - 1,
            _ => points.len(),
        };
        assert_eq!(settings.len(), numbers, "{vary:?}: {settings:?}");
    }
}

fn devices(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Tree, gets and block cache are the same: a device changes times, not counters. Every measured read goes through it,
/// and no other one.
#[test]
fn an_emulated_device_reads_what_direct_io_reads() {
    let settings = |device: &str| ElasticSettings {
        sides: sides("none,bloom"),
        devices: devices(&[device]),
        localities: Some(vec![1]),
        ops: Some(300),
        warmup: Some(200),
        repeats: Some(1),
        ..tiny()
    };
    let on = |device| run(&experiment("elastic-fig10"), &settings(device)).unwrap();
    let (ssd, nvm) = (on("ssd"), on("nvm"));
    let plain =
        run(&experiment("elastic-fig10"), &ElasticSettings { devices: None, ..settings("") }).unwrap();
    for ((ssd, nvm), plain) in ssd.reads.iter().zip(&nvm.reads).zip(&plain.reads) {
        assert_eq!((&ssd.device[..], &nvm.device[..], &plain.device[..]), ("ssd", "nvm", "disk"));
        assert!(ssd.blocks_per_op > 0.1, "{ssd:?}");
        assert_eq!((ssd.blocks_per_op, nvm.blocks_per_op), (plain.blocks_per_op, plain.blocks_per_op));
        assert_eq!(ssd.in_vain_per_op, plain.in_vain_per_op);
        // Blocks read are the cache misses: each is one read of the device, in measured rounds only.
        let blocks = ssd.blocks_per_op - ssd.measurement.cache_hits as f64 / 300.0;
        let reads = ssd.device_reads_per_op.unwrap();
        // With debug assertions the engine also searches runs that a filter rejects, so there are more reads.
        let exact = ssd.side == "none" || !cfg!(debug_assertions);
        assert!(reads >= blocks - 1e-9 && (reads <= blocks + 1e-9 || !exact), "{reads} {blocks} {ssd:?}");
        assert_eq!(ssd.device_reads_per_op, nvm.device_reads_per_op);
        assert!(ssd.device_ns_per_op.unwrap() >= reads * 112_900.0, "{ssd:?}");
        // Every read takes the device's time.
        assert!(ssd.measurement.ns_per_op >= reads * 100_000.0, "{ssd:?}");
        assert_eq!((plain.device_reads_per_op, plain.late_reads_per_op), (None, None));
    }
}

/// The device is on only while measuring: without measured reads it is not used.
#[test]
fn loading_and_warming_up_bypass_the_device() {
    let settings = ElasticSettings {
        sides: sides("bloom,elastic"),
        devices: devices(&["hdd"]),
        absents: Some(vec![0]),
        localities: Some(vec![1]),
        // All of the data.
        cache_bytes: Some(8 << 20),
        ops: Some(1),
        warmup: Some(20_000),
        repeats: Some(1),
        ..tiny()
    };
    let outcome = run(
        &experiment("elastic-fig13"),
        &ElasticSettings { workloads: Some(vec![Workload::YcsbC]), ..settings },
    );
    for row in outcome.unwrap().reads {
        assert!(row.device_reads_per_op.unwrap() <= 4.0, "20,000 gets have filled the cache: {row:?}");
    }
}

#[test]
fn a_slow_device_measures_less_unless_a_number_is_given() {
    let job = |settings: &ElasticSettings| Job::new(&experiment("elastic-fig16-device"), settings).unwrap();
    let ops = |job: &Job| job.points.iter().map(|point| job.ops(&point.variant)).collect::<Vec<_>>();
    let settings = ElasticSettings { ops: None, ..tiny() };
    let all = job(&settings);
    assert_eq!(ops(&all), [2_000, 10_000, 10_000, 10_000, 10_000]);
    assert!(all.describe().contains("hdd (emulated), ssd (emulated)"), "{}", all.describe());
    assert!(all.describe().ends_with("10,000 operations; 2,000 on hdd"), "{}", all.describe());
    assert_eq!(ops(&job(&ElasticSettings { ops: Some(700), ..tiny() })), [700; 5]);
    let two = job(&ElasticSettings { devices: devices(&["disk", "spdk"]), ..tiny() });
    assert_eq!(two.points.iter().map(|point| &point.label[..]).collect::<Vec<_>>(), ["disk", "spdk"]);
    assert_eq!(ops(&job(&ElasticSettings { devices: devices(&["hdd"]), ..settings })), [2_000]);
}

#[test]
fn memory_grows_with_the_size_of_the_database() {
    let settings = ElasticSettings { sides: sides("bloom"), repeats: Some(1), ..tiny() };
    let outcome = run(&experiment("elastic-fig16-size"), &settings).unwrap();
    let keys: Vec<u64> = outcome.loads.iter().map(|load| load.keys).collect();
    assert_eq!(keys, [6_000, 12_000, 24_000].map(loaded_of));
    assert_eq!(outcome.reads.iter().map(|row| row.measurement.keys).collect::<Vec<_>>(), keys);
    assert_eq!(outcome.reads[2].setting, Some(24_000.0));
    let memory = |at: usize| outcome.reads[at].filter_memory as f64;
    assert!((1.7..2.3).contains(&(memory(1) / memory(0))) && (1.7..2.3).contains(&(memory(2) / memory(1))));
    assert_eq!(outcome.reads[1].point, "12,000 keys");
}

/// What elastic filters need besides their units is part of the memory that all sides have.
#[test]
fn memory_is_counted_whole_and_equal_for_all_sides() {
    let settings = ElasticSettings {
        sides: sides("bloom,elastic"),
        ops: Some(2_000),
        repeats: Some(1),
        localities: Some(vec![1]),
        ..roomy()
    };
    let outcome = run(&experiment("elastic-fig10"), &settings).unwrap();
    let [bloom, elastic] = &outcome.reads[..] else { panic!("{outcome:?}") };
    let fixed = bloom.filter_memory;
    assert!((fixed as f64 / (loaded_of(60_000) as f64 / 2.0) - 1.0).abs() < 0.1, "{bloom:?}");
    assert!(elastic.index_bytes > 0 && elastic.index_bytes < elastic.filter_memory, "{elastic:?}");
    // Less than a unit is left.
    assert!((fixed - 1024 - 400..=fixed).contains(&elastic.filter_memory), "{elastic:?} {fixed}");
    let bits = elastic.filter_memory as f64 * 8.0 / loaded_of(60_000) as f64;
    assert!((elastic.memory_bits_per_key - bits).abs() < 1e-9);
}

#[test]
fn warming_up_ends_when_the_placement_has_settled_and_is_the_same_for_all_sides() {
    let settings = |names: &str, warmup| ElasticSettings {
        sides: sides(names),
        repeats: Some(1),
        ops: Some(200),
        skews: Some(vec![1.2]),
        absents: Some(vec![100]),
        localities: Some(vec![64]),
        direct: Some(false),
        warmup,
        ..tiny()
    };
    let all = |names, warmup| run(&experiment("elastic-fig6"), &settings(names, warmup)).unwrap();
    let of = |names, warmup| all(names, warmup).reads;
    let warmed =
        |rows: &[ReadRow]| rows.iter().map(|row| (row.warmup, row.warmup_settled)).collect::<Vec<_>>();
    let outcome = all("bloom,elastic", None);
    let (rows, windows) = (outcome.reads, outcome.warmups);
    let (gets, settled) = warmed(&rows)[0];
    // Every window of both sides is told.
    let ends: Vec<(&str, u64)> = windows.iter().map(|row| (&row.side[..], row.gets)).collect();
    let expected = (1..=gets / 200).flat_map(|n| [("bloom", n * 200), ("elastic", n * 200)]);
    assert_eq!(ends, expected.collect::<Vec<_>>());
    assert!(windows.iter().all(|row| row.kind == "warmup" && row.memory_bits_per_key > 0.0), "{windows:?}");
    assert_eq!(warmed(&rows)[1], (gets, settled));
    // A window of a replay is all of its gets; four are needed to tell.
    assert!(gets % 200 == 0 && (4 * 200..=12 * 200).contains(&gets) && settled.is_some(), "{gets}");
    assert!(gets < 12 * 200 || settled == Some(false) || gets == 12 * 200);
    // Fixed filters have nothing to settle.
    assert_eq!(warmed(&of("bloom", None)), [(200, None)]);
    let given = all("bloom,elastic", Some(300));
    assert_eq!((warmed(&given.reads), given.warmups.len()), (vec![(300, None); 2], 0));
}

/// Every replay asks for the same keys, so fixed filters waste the same reads each time.
#[test]
fn a_replay_repeats_its_gets() {
    let settings = ElasticSettings {
        sides: sides("bloom"),
        repeats: Some(3),
        ops: Some(3_000),
        skews: Some(vec![0.99]),
        localities: Some(vec![1]),
        direct: Some(false),
        ..tiny()
    };
    let of = |name: &str| run(&experiment(name), &settings).unwrap().reads.remove(0);
    let replayed = of("elastic-fig6");
    assert!(replayed.in_vain_first.unwrap() > 0.0);
    assert_eq!(replayed.in_vain_first, replayed.in_vain_last);
    let drawn = of("elastic-fig10");
    assert_ne!(drawn.in_vain_first, drawn.in_vain_last, "other experiments draw new ones");
}

#[test]
fn a_cold_curve_begins_without_hotness_and_nothing_moves() {
    // How often reads are sampled follows the time that they take: few of them are over before any is.
    let settings = ElasticSettings {
        skews: Some(vec![1.2]),
        localities: Some(vec![64]),
        direct: Some(false),
        ops: Some(8_000),
        ..tiny()
    };
    let outcome = run(&experiment("elastic-cold-curve"), &settings).unwrap();
    let of = |side: &str| outcome.windows.iter().filter(|row| row.side == side).collect::<Vec<_>>();
    let (monkey, elastic) = (of("monkey"), of("elastic"));
    assert_eq!((monkey.len(), elastic.len() as u64), (elastic.len(), windows::count(Kind::Cold)));
    assert!(outcome.windows.iter().all(|row| !row.moved && row.memory_bits_per_key > 0.0));
    assert!(outcome.shifts.is_empty());
    let wasted = |rows: &[&WindowRow]| rows.iter().map(|row| row.in_vain_per_get).sum::<f64>();
    assert!(wasted(&elastic[25..]) < wasted(&elastic[..5]), "{elastic:?}");
}

/// What is known survives closing, and a crash as far as it was saved; a fixed filter has nothing to lose.
#[test]
fn a_restart_costs_little_unless_nothing_is_known() {
    let settings = ElasticSettings {
        sides: sides("bloom,elastic"),
        skews: Some(vec![1.2]),
        absents: Some(vec![100]),
        localities: Some(vec![64]),
        direct: Some(false),
        warmup: Some(20_000),
        ops: Some(1_000),
        ..roomy()
    };
    let outcome = run(&experiment("elastic-restart"), &settings).unwrap();
    let of = |side: &str, way: &str| {
        outcome.restarts.iter().find(|row| row.side == side && row.way == way).unwrap()
    };
    assert_eq!(outcome.restarts.len(), 2 * restart::WAYS.len());
    assert_eq!(outcome.windows.len() as u64, 2 * restart::WINDOWS);
    let restarted = outcome.windows.iter().filter(|row| row.moved).count() as u64;
    assert_eq!(restarted, 2 * 3 * restart::AFTER);
    let [closed, crashed, cold] = restart::WAYS.map(|way| of("elastic", way));
    assert!(closed.first < cold.first && crashed.first < cold.first, "{:?}", outcome.restarts);
    assert!(closed.more_wasted < cold.more_wasted / 2.0, "{:?}", outcome.restarts);
    assert!(crashed.more_wasted < cold.more_wasted / 2.0, "{:?}", outcome.restarts);
    assert!(closed.gets_until_back < Some(5_000), "{closed:?}");
    assert!(of("bloom", "cold").gets_until_back < Some(5_000), "{:?}", outcome.restarts);
}

/// Leveled trees are the same for all sides, and the three kinds differ.
#[test]
fn three_kinds_of_trees_are_loaded() {
    let settings = ElasticSettings {
        keys: 90_000,
        workloads: Some(vec![Workload::YcsbC]),
        ops: Some(100),
        warmup: Some(0),
        repeats: Some(1),
        direct: Some(false),
        ..tiny()
    };
    let outcome = run(&experiment("elastic-fig13"), &settings).unwrap();
    let points: BTreeSet<&str> = outcome.reads.iter().map(|row| &row.point[..]).collect();
    assert_eq!(points, BTreeSet::from(["tree as of leveldb", "tree as of pebblesdb", "tree as of rocksdb"]));
    let runs = |point: &str| -> Vec<&str> {
        outcome.loads.iter().filter(|row| row.point == point).map(|row| &row.runs[..]).collect()
    };
    for leveled in ["tree as of leveldb", "tree as of rocksdb"] {
        assert!(
            matches!(runs(leveled)[..], [bloom, elastic] if bloom == elastic),
            "{leveled}: {:?}",
            runs(leveled)
        );
    }
    // Its levels overflow by bytes, of which elastic filters have more in their tables.
    let count = |runs: &str| runs.split('/').map(|runs| runs.parse::<usize>().unwrap()).sum::<usize>();
    assert!(count(runs("tree as of pebblesdb")[0]) > count(runs("tree as of leveldb")[0]), "{outcome:?}");
    let compactions: BTreeSet<&str> =
        outcome.reads.iter().map(|row| &row.measurement.compaction[..]).collect();
    assert_eq!(compactions, BTreeSet::from(["fragmented", "leveling"]));
    let of = |side: &str| {
        outcome
            .loads
            .iter()
            .filter(|row| row.filter == side)
            .map(|row| row.write_amplification)
            .collect::<Vec<_>>()
    };
    let amplification = of("bloom");
    assert!(amplification[0] != amplification[1] && amplification[2] < amplification[1], "{amplification:?}");
    let given = ElasticSettings { options: vec![("keyspace.merge".into(), "full".into())], ..tiny() };
    assert!(refused("elastic-fig13", given).contains("depends on the tree"));
}

/// Counters: with sharing one digest serves all runs and units; without, each filter that is asked needs its own.
#[test]
fn elastic_filters_share_digests_across_runs_and_units() {
    let settings = ElasticSettings { ops: Some(2_000), warmup: Some(2_000), repeats: Some(1), ..roomy() };
    let outcome = run(&experiment("hash-elastic"), &settings).unwrap();
    let of = |side: &str| outcome.reads.iter().find(|row| row.side == side).unwrap();
    let digests = |side: &str| of(side).measurement.digests_per_op;
    assert_eq!((digests("bloom"), digests("elastic")), (1.0, 1.0));
    assert!(digests("bloom-each") > 2.0 && digests("elastic-each") > 2.0, "{outcome:?}");
    assert!(digests("elastic-independent") > digests("elastic"));
    assert!(digests("elastic-independent-each") > 2.0 * digests("elastic-independent"));
    // Sharing across runs answers the same.
    assert_eq!(of("bloom").in_vain_per_op, of("bloom-each").in_vain_per_op);
}

/// The engine decides whether it has the allocation; until then it says so.
#[test]
fn mnemosyne_is_a_side_of_figure_14() {
    let given = ElasticSettings { sides: sides("monkey,mnemosyne,elastic"), ..tiny() };
    match Job::new(&experiment("elastic-fig14"), &given) {
        Ok(job) => assert_eq!(job.sides.len(), 3),
        Err(why) => assert!(why.to_string().contains("filter_allocation"), "{why}"),
    }
    assert_eq!(experiment("elastic-fig14").sides, ["monkey", "elastic"]);
}
