//! The figure as a whole, at a tiny scale.

use tamis_bench::progress::NoProgress;
use tamis_bench::workload::Workload;

use super::*;
use crate::figures::Finding;

fn tiny() -> Custom {
    Custom {
        keys: Some(4_000),
        value_bytes: Some(64),
        ops: Some(200),
        repeats: Some(2),
        threads: vec![1, 2],
        filters: ["bloom", "grf", "bloom@4", "elastic@4"].map(str::to_owned).to_vec(),
        ..Custom::default()
    }
}

fn run_all(custom: &Custom) -> (Vec<String>, Vec<Row>) {
    let mut plan = Ycsb.plan(Scale::Small, custom).unwrap();
    let steps = plan.steps();
    let rows = (0..steps.len()).flat_map(|step| plan.run(step, &NoProgress).unwrap()).collect();
    (steps, rows)
}

fn refused(custom: Custom) -> String {
    match Ycsb.plan(Scale::Small, &custom) {
        Err(BenchError::Request(why)) => why,
        Err(other) => panic!("{other:?}"),
        Ok(plan) => panic!("accepted: {}", plan.setting()),
    }
}

#[test]
fn every_mix_is_measured_for_every_side_on_the_same_tree() {
    let (steps, rows) = run_all(&tiny());
    assert_eq!(steps.len(), 12);
    assert_eq!((&steps[0][..], &steps[11][..]), ("ycsb-a 1 thread", "ycsb-f 2 threads"));
    let loads: Vec<&Row> = rows.iter().filter(|row| row["kind"] == "load").collect();
    assert_eq!(loads.len(), 4, "each side is loaded once");
    assert!(
        loads.iter().all(|row| row["runs"] == loads[0]["runs"] && row["keys"] == loads[0]["keys"]),
        "{loads:?}"
    );
    let mixes = rows::mixes(&rows);
    assert_eq!(mixes.len(), 12 * 4);
    for row in &mixes {
        let m = &row.measurement;
        assert!(
            row.min_ops_per_second <= m.wall_ops_per_second
                && m.wall_ops_per_second <= row.max_ops_per_second
        );
        assert!(row.min_p99_ns <= m.p99_ns && m.p99_ns <= row.max_p99_ns && m.p50_ns <= m.p99_ns, "{row:?}");
        assert_eq!((m.repeats, row.memory_bytes > 0), (2, true), "{row:?}");
        assert_eq!(m.ops, if m.workload == "ycsb-e" { 40 } else { 200 });
        assert_eq!(m.read_mode, "direct");
    }
    // The writes of a mix do not reach the next step.
    let before = |row: &&rows::MixRow| row.measurement.workload == "ycsb-c";
    let keys: Vec<u64> = mixes.iter().filter(before).map(|row| row.measurement.keys).collect();
    assert!(keys.iter().all(|&n| n == keys[0] && loads[0]["keys"] == n), "{keys:?}");
    let view = Ycsb.view(&rows);
    assert_eq!((view.panels.len(), view.sheets[0].rows.len(), view.verdicts.len()), (18, 48, 7));
    assert!(view.verdicts.iter().all(|verdict| !verdict.ours.is_empty()), "{:?}", view.verdicts);
}

#[test]
fn rows_of_an_unfinished_run_are_viewed() {
    let custom = Custom { workloads: vec![Workload::YcsbC], threads: vec![2], ..tiny() };
    let (steps, rows) = run_all(&custom);
    assert_eq!(steps, ["ycsb-c 2 threads"]);
    let view = Ycsb.view(&rows);
    assert_eq!(view.panels.len(), 3);
    let open =
        view.verdicts.iter().filter(|verdict| verdict.finding == Finding::Open && verdict.ours.is_empty());
    assert_eq!(open.count(), 5, "all mixes but C");
}

#[test]
fn all_selectors_of_the_engine_take_part() {
    let plan = plan::Job::new(Scale::Default, &Custom::default()).unwrap();
    let filter_of = |side: &YcsbSide| plan.options(side).unwrap().keyspace.filter.at(0);
    let kinds: Vec<_> = plan.sides.iter().map(|side| std::mem::discriminant(&filter_of(side))).collect();
    // `auto` is one of the others at any time.
    let others = tamis::options::FilterChoice::all();
    for choice in others.filter(|choice| *choice != tamis::options::FilterChoice::Auto) {
        assert!(kinds.contains(&std::mem::discriminant(&choice)), "{choice:?}");
    }
    assert!(plan.sides.iter().any(|side| side.filter() == "monkey"));
    assert_eq!(Plan::steps(&plan).len(), 6 * 4);
}

#[test]
fn every_side_of_the_default_scale_returns_correct_answers() {
    let custom = Custom {
        filters: Vec::new(),
        workloads: vec![Workload::YcsbD],
        ops: Some(100),
        repeats: Some(1),
        threads: vec![1],
        size_ratio: Some(4),
        ..tiny()
    };
    let mut plan = Ycsb.plan(Scale::Default, &custom).unwrap();
    let rows = rows::mixes(&plan.run(0, &NoProgress).unwrap());
    assert_eq!(rows.len(), 20);
    let without: Vec<&str> =
        rows.iter().filter(|row| row.memory_bytes == 0).map(|row| &row.side[..]).collect();
    assert_eq!(without, ["none"]);
}

#[test]
fn databases_are_kept_in_the_given_directory_and_reused() {
    let dir = tempfile::tempdir().unwrap();
    let custom = Custom {
        dir: Some(dir.path().to_owned()),
        workloads: vec![Workload::YcsbA],
        threads: vec![1],
        ..tiny()
    };
    let loads = |rows: &[Row]| rows.iter().filter(|row| row["kind"] == "load").count();
    let (_, first) = run_all(&custom);
    let (_, again) = run_all(&custom);
    assert_eq!((loads(&first), loads(&again)), (4, 0));
    // More writes reserve more space for them: another tree.
    let (_, other) = run_all(&Custom { ops: Some(400), ..custom });
    assert_eq!(loads(&other), 4);
}

#[test]
fn invalid_settings_are_refused_before_anything_is_loaded() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert!(refused(Custom { filters: names(&["grf", "grf"]), ..tiny() }).contains("grf twice"));
    assert!(refused(Custom { filters: names(&["sieve"]), ..tiny() }).contains("`sieve`"));
    assert!(refused(Custom { filters: names(&["bloom@0"]), ..tiny() }).contains("bloom@0"));
    assert!(refused(Custom { bits: vec![4.0, 8.0], ..tiny() }).contains("NAME@BITS"));
    assert!(refused(Custom { workloads: vec![Workload::GetEmpty], ..tiny() }).contains("get-empty"));
    assert!(refused(Custom { threads: vec![2, 2], ..tiny() }).contains("twice"));
    assert!(refused(Custom { ops: Some(10_000_000), ..tiny() }).contains("more --keys"));
    assert!(refused(Custom { keys: Some(10), ..tiny() }).contains("too few"));
    assert!(refused(Custom { skews: vec![1.2], ..tiny() }).contains("--skew"));
    let options = vec![("keyspace.filter".to_owned(), "none".to_owned())];
    assert!(refused(Custom { options, ..tiny() }).contains("--filters"));
}
