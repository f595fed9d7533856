use tamis_bench::progress::NoProgress;

use super::*;
use crate::figures::Finding;
use crate::figures::trial::Trial;

fn count_row(sharing: bool, probes: f64) -> CountRow {
    CountRow {
        shape: "leveling L=3 T=4".into(),
        policy: "leveling".into(),
        levels: 3,
        size_ratio: 4,
        runs: 3,
        keys: 1000,
        sharing,
        absent_percent: 50,
        ops: 1_000_000,
        digests_model: if sharing { 1.0 } else { 2.8 },
        probes_model: 2.8,
        false_positives_model: 0.023,
        blocks_model: 0.523,
        probes_in_steps: if sharing { 3.0 } else { 2.8 },
        false_positives_by_run: 0.023,
        digests: if sharing { 1.0 } else { probes },
        probes,
        false_positives: 0.0232,
        blocks: 0.5232,
    }
}

fn time_row(predicted_ns: f64, ns: f64) -> TimeRow {
    TimeRow {
        shape: "leveling L=3 T=4".into(),
        policy: "leveling".into(),
        levels: 3,
        size_ratio: 4,
        device: "nvm".into(),
        sharing: true,
        absent_percent: 50,
        filter_bits_per_key: Some(10.0),
        hash_ns: 10.0,
        probe_ns: 20.0,
        access_ns: 300.0,
        base_ns: 50.0,
        equations_ns: predicted_ns - 50.0,
        predicted_ns,
        ns_per_op: ns,
        min_ns: ns,
        max_ns: ns,
        rounds: 3,
        ops: 100,
    }
}

/// Turned round, the engine does and takes twice as much as predicted.
pub(super) fn trial() -> Trial {
    let made = |times: f64| {
        let counts = [count_row(false, 2.8), count_row(true, 3.0)].map(|row| CountRow {
            digests: row.digests * times,
            probes: row.probes * times,
            false_positives: row.false_positives * times,
            blocks: row.blocks * times,
            ..row
        });
        let counts = counts.iter().map(|row| rows::row(COUNT, row));
        let devices = ["mapped", "nvm"].map(|device| {
            rows::row(TIME, &TimeRow { device: device.into(), ..time_row(250.0, 250.0 * times) })
        });
        counts.chain(devices).collect()
    };
    Trial { good: made(1.0), bad: vec![made(2.0)] }
}

#[test]
fn verdicts_follow_from_errors() {
    let findings = |view: View| view.verdicts.into_iter().map(|verdict| verdict.finding).collect::<Vec<_>>();
    let good = view::view(&[count_row(false, 2.81), count_row(true, 3.0)], &[time_row(250.0, 245.0)]);
    assert_eq!(findings(good), [Finding::Holds; 6]);
    let bad = view::view(&[count_row(false, 3.5), count_row(true, 2.5)], &[time_row(250.0, 900.0)]);
    let (open, wrong) = (Finding::Holds, Finding::Fails);
    assert_eq!(findings(bad), [wrong, wrong, wrong, open, open, wrong]);
    assert_eq!(findings(view::view(&[], &[])), [Finding::Open; 6]);
    // Nonsensical rows are shown without a verdict.
    let odd = view::view(&[count_row(true, 0.0)], &[time_row(250.0, 0.0)]);
    assert_eq!((odd.sheets[0].rows.len(), odd.sheets[1].rows.len()), (1, 1));
}

#[test]
fn runs_grow_by_the_ratio() {
    let shape = Shape::new(Policy::Tiering, 3, 4);
    let runs = shape.runs(84_000);
    assert_eq!(runs.len(), 12);
    assert_eq!((runs[0], runs[4], runs[8]), (1000, 4000, 16_000));
    assert!(Shape::new(Policy::Leveling, 5, 10).runs(1000).iter().all(|&run| run > 0));
    assert_eq!(shape.name(), "tiering L=3 T=4");
}

#[test]
fn steps_are_asked_whole() {
    assert_eq!([0, 7, 8, 39, 40].map(|run| step_end(run, 100)), [8, 8, 40, 40, 72]);
    assert_eq!(step_end(3, 5), 5);
    // If all keys are absent, all runs are queried. If all are in the oldest of ten, all runs as well.
    assert_eq!(probes_in_steps(&[1; 10], 1.0), 10.0);
    assert_eq!(probes_in_steps(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 5], 0.0), 10.0);
    assert!((probes_in_steps(&[1; 10], 0.0) - 8.4).abs() < 1e-9);
}

/// Counters of the engine match the shape, exactly where nothing is left to chance.
#[test]
fn counts_of_the_engine_are_those_of_the_model() {
    let figure = figures().remove(0);
    let devices = vec!["mapped".to_owned(), "nvm".to_owned()];
    let custom =
        Custom { keys: Some(8_000), ops: Some(3_000), repeats: Some(1), devices, ..Custom::default() };
    let mut plan = figure.plan(Scale::Small, &custom).unwrap();
    let steps = plan.steps();
    assert_eq!(steps, ["leveling L=3 T=4", "tiering L=2 T=5"]);
    let mut rows = Vec::new();
    for step in 0..steps.len() {
        rows.extend(plan.run(step, &NoProgress).unwrap());
    }
    let counts: Vec<CountRow> = rows::of_kind(&rows, COUNT);
    assert_eq!(counts.len(), 2 * 3 * 2);
    for row in &counts {
        assert_eq!(row.digests, if row.sharing { 1.0 } else { row.probes }, "{row:?}");
        if row.absent_percent == 100 {
            assert_eq!((row.probes, row.probes_model), (row.runs as f64, row.runs as f64), "{row:?}");
            assert_eq!(row.blocks, row.false_positives, "{row:?}");
        }
        let expected = if row.sharing { row.probes_in_steps } else { row.probes_model };
        assert!((row.probes / expected - 1.0).abs() < 0.05, "{row:?}");
        let hits = 1.0 - row.absent_percent as f64 / 100.0;
        assert!((row.blocks - row.false_positives - hits).abs() < 0.05, "{row:?}");
    }
    let times: Vec<TimeRow> = rows::of_kind(&rows, TIME);
    assert_eq!(times.len(), 2 * 2 * 3 * 2);
    assert!(times.iter().all(|row| row.ns_per_op > 0.0 && row.predicted_ns > 0.0));
    let view = figure.view(&rows);
    assert_eq!((view.panels.len(), view.sheets[0].rows.len(), view.sheets[1].rows.len()), (3, 12, 24));
    let exact = ["Digests computed", "Filters asked where each has a digest of its own"];
    for verdict in view.verdicts.iter().filter(|verdict| exact.contains(&verdict.claim.as_str())) {
        assert_eq!(verdict.finding, Finding::Holds, "{verdict:?}");
    }
}

#[test]
fn invalid_settings_are_refused() {
    let figure = figures().remove(0);
    let refuse = |custom: Custom| figure.plan(Scale::Small, &custom).err().expect("refused").to_string();
    assert!(refuse(Custom { devices: vec!["disk".into()], ..Custom::default() }).contains("mapped, hdd"));
    refuse(Custom { keys: Some(10), ..Custom::default() });
    refuse(Custom { absents: vec![101], ..Custom::default() });
    refuse(Custom { bits: vec![10.0, 12.0], ..Custom::default() });
    refuse(Custom { key_bytes: vec![1], ..Custom::default() });
}
