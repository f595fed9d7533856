//! Counters of experiments at a tiny scale.

use tamis_bench::BenchError;
use tamis_bench::progress::NoProgress;

use super::job::{Job, key_set};
use super::load::Plan;
use super::*;

fn tiny() -> Settings {
    Settings {
        keys: 3_000,
        value_bytes: 64,
        filters: Some(sides("monkey,snarf")),
        ops: Some(200),
        repeats: Some(1),
        size_ratio: Some(3),
        source: Some(KeySource::Drawn(Distribution::Uniform50)),
        ..Settings::default()
    }
}

fn sides(names: &str) -> Vec<Side> {
    names.split(',').map(|name| name.parse().unwrap()).collect()
}

fn experiment(name: &str) -> Experiment {
    Experiment::all().into_iter().find(|experiment| experiment.name == name).unwrap()
}

/// The rows of all points.
#[derive(Debug, Default)]
struct Rows {
    loads: Vec<LoadRow>,
    reads: Vec<ReadRow>,
}

fn run(experiment: &Experiment, settings: &Settings) -> Result<Rows, BenchError> {
    let job = Job::new(experiment, settings)?;
    let mut rows = Rows::default();
    for point in &job.points {
        let (loads, reads) = job.run_point(point, &NoProgress)?;
        rows.loads.extend(loads);
        rows.reads.extend(reads);
    }
    Ok(rows)
}

fn refused(name: &str, settings: Settings) -> String {
    match Job::new(&experiment(name), &settings).map(|_| ()) {
        Err(BenchError::Request(why)) => why,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn default_filters_are_all_known() {
    for experiment in Experiment::all() {
        assert!(experiment.filters.iter().all(|name| name.parse::<Side>().is_ok()), "{}", experiment.name);
        assert!(experiment.filters.contains(&"grf"));
    }
}

#[test]
fn sides_are_loaded_equally_and_have_the_most_runs() {
    let outcome = run(&experiment("grf-fig17"), &tiny()).unwrap();
    // Two runs in level 0, two in level 1, one in the last.
    assert_eq!(outcome.loads.iter().map(|row| row.runs).collect::<Vec<_>>(), [5, 5]);
    assert!(outcome.loads.iter().all(|row| row.keys == 3_000 && !row.without_filter && row.filter_bytes > 0));
    assert!(outcome.loads.iter().all(|row| row.runs_at_end == row.runs));
}

#[test]
fn without_filters_every_run_is_searched_and_filters_take_no_time() {
    let settings = Settings { filters: Some(sides("none,blocked-bloom")), bits: Some(vec![16.0]), ..tiny() };
    let outcome = run(&experiment("grf-fig10"), &settings).unwrap();
    let [none, bloom] = &outcome.reads[..] else { panic!("{outcome:?}") };
    assert!(none.filter_ns.is_none() && bloom.filter_ns.is_some());
    assert_eq!(none.measurement.filter_probes_per_op, 0.0);
    // All five runs, except for keys outside the range of a small run.
    let sought = none.measurement.runs_searched_per_op;
    assert!(sought > 4.5 && sought <= 5.0, "{sought}");
    assert!(bloom.measurement.runs_searched_per_op < 0.1 && bloom.measurement.digests_per_op == 1.0);
}

#[test]
fn mixes_end_before_the_last_merge_and_insert_the_keys_held_back() {
    let settings = Settings { keys: 8_000, threads: Some(vec![1, 2]), ..tiny() };
    let outcome = run(&experiment("grf-fig13"), &settings).unwrap();
    for row in &outcome.loads {
        assert!(row.keys < 8_000 && row.runs_at_end <= 5, "{row:?}");
        assert!(row.write_amplification > 1.0);
    }
}

#[test]
fn a_shifted_set_has_the_first_set_in_the_last_level() {
    let plan = Plan::new(3_000, 3, 3).unwrap();
    let source = KeySource::Drawn(Distribution::Fb);
    let keys = key_set(&experiment("grf-fig18"), source, &plan, 1).unwrap();
    assert_eq!((keys.name(), keys.len()), ("normal-then-fb-like", 3_000));
    let number = |i| {
        let mut key = Vec::new();
        keys.existing(i, &mut key);
        u64::from_be_bytes(key.try_into().unwrap())
    };
    let last = plan.keys_in_last_level();
    // Ids are below 2^21 (except for the outliers), normal numbers around 2^49.
    let small = |from, to| (from..to).filter(|&i| number(i) < 1 << 24).count();
    assert_eq!(small(0, last), 0);
    assert!(small(last, 3_000) > (3_000 - last as usize) * 9 / 10);
}

#[test]
fn strings_are_read_too() {
    let settings = Settings { source: Some(KeySource::Places), filters: Some(sides("monkey")), ..tiny() };
    let outcome = run(&experiment("grf-fig17"), &settings).unwrap();
    assert_eq!(outcome.reads[0].measurement.key_set, "geonames");
}

#[test]
fn invalid_settings_are_refused_before_anything_is_loaded() {
    let lists = Settings { bits: Some(vec![8.0, 10.0]), ..tiny() };
    assert!(refused("grf-fig17", lists).contains("--bits"));
    let lists = Settings { threads: Some(vec![1, 2]), ..tiny() };
    assert!(refused("grf-fig10", lists).contains("--threads"));
    let twice = Settings { filters: Some(sides("snarf,snarf")), ..tiny() };
    assert!(refused("grf-fig10", twice).contains("snarf twice"));
    assert!(refused("grf-fig10", Settings { filters: Some(Vec::new()), ..tiny() }).contains("--filters"));
    assert!(refused("grf-fig10", Settings { keys: 10, ..tiny() }).contains("too few"));
    let fills = Settings { workloads: Some(vec![Workload::FillSeq]), ..tiny() };
    assert!(refused("grf-fig10", fills).contains("fill-seq"));
    let many = Settings { ops: Some(1_000_000), ..tiny() };
    assert!(refused("grf-fig13", many).contains("more --keys"));
    for (source, why) in [(KeySource::Places, "numbers"), (KeySource::Drawn(Distribution::Normal), "normal")]
    {
        // Without another kind of keys in the last level there would be no shift.
        assert!(refused("grf-fig18", Settings { source: Some(source), ..tiny() }).contains(why));
    }
    let options = vec![("keyspace.filter".to_owned(), "none".to_owned())];
    assert!(refused("grf-fig10", Settings { options, ..tiny() }).contains("--filters"));
    let twice = Settings { bits: Some(vec![8.0, 8.0]), ..tiny() };
    assert!(refused("grf-fig10", twice).contains("8 bits twice"));
    assert!("osm".parse::<KeySource>().unwrap_err().contains("cells"));
}

/// Regression: rates summed over threads suggested that four threads on two cores do more than twice the work of two,
/// since each was timed while the others generated keys.
#[test]
fn throughput_is_measured_in_wall_clock_time() {
    let outcome = run(&experiment("grf-fig15"), &tiny()).unwrap();
    for row in &outcome.reads {
        let m = &row.measurement;
        assert!(m.wall_ops_per_second > 0.0 && m.wall_ops_per_second <= m.ops_per_second, "{m:?}");
    }
}
