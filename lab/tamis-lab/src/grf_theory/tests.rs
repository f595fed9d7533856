use tamis_bench::progress::NoProgress;

use super::*;
use crate::figures::Finding;

#[test]
fn every_step_runs_and_is_shown() {
    let figure = figures().remove(0);
    let custom = Custom { keys: Some(6_000), ops: Some(10_000), bits: vec![8.0, 10.0], ..Custom::default() };
    let mut plan = figure.plan(Scale::Small, &custom).unwrap();
    let steps = plan.steps();
    assert_eq!(steps, ["rate at 8 bits", "rate at 10 bits", "rounds", "codes"]);
    let rows: Vec<Row> = (0..steps.len()).flat_map(|step| plan.run(step, &NoProgress).unwrap()).collect();
    let view = figure.view(&rows);
    assert_eq!((view.panels.len(), view.sheets.len(), view.verdicts.len()), (3, 3, 6));
    let rounds: Vec<RoundRow> = rows::of_kind(&rows, ROUND);
    assert_eq!(rounds.len(), 2 * 3);
    for row in rounds.iter().filter(|row| !row.longer) {
        let factor = row.mean_rate / row.begin_rate;
        assert!((factor / row.theory_factor - 1.0).abs() < 0.05, "{row:?}");
    }
    // A longer position matches fewer keys.
    for (one, longer) in rounds[..3].iter().zip(&rounds[3..]) {
        assert!(longer.mean_rate / longer.begin_rate < one.mean_rate / one.begin_rate, "{one:?} {longer:?}");
    }
    let codes: Vec<CodeRow> = rows::of_kind(&rows, CODE);
    assert_eq!(codes.len(), 25);
    let measured: Vec<&CodeRow> = codes.iter().filter(|row| row.measured.is_some()).collect();
    assert!(measured.len() > 5);
    for row in &measured {
        let bits = row.measured.unwrap();
        assert!(bits > row.fractional - 0.25 && bits < row.whole + 0.4, "{row:?}");
    }
    for n in 0..rows.len() {
        figure.view(&rows[..n]);
    }
}

/// The printed value at T = 10 differs from the sum, and the verdict's note says so.
#[test]
fn the_mean_over_rounds_is_distinguished_from_the_printed_value() {
    let rounds: Vec<RoundRow> = (1..10)
        .map(|round| RoundRow {
            size_ratio: 10,
            round,
            longer: false,
            begin_rate: 0.01,
            mean_rate: 0.01 * grf::round_factor(round),
            end_rate: 0.01 * (1.0 + 1.0 / f64::from(round)),
            theory_factor: grf::round_factor(round),
        })
        .collect();
    let verdict = |rows: &[RoundRow]| view::view(&[], rows, &[]).verdicts[2].clone();
    let all = verdict(&rounds);
    assert_eq!((all.ours.as_str(), all.finding), ("1.157× at T = 10", Finding::Holds));
    assert!(all.note.contains("0.157") && all.note.contains("0.122"), "{}", all.note);
    assert_eq!(verdict(&rounds[1..]).finding, Finding::Open, "a round is missing");
}

#[test]
fn rates_make_verdicts() {
    let row = |bits: f64, times: f64| RateRow {
        bits,
        map: "digest".into(),
        state: "built".into(),
        memory_bits: bits,
        code_bits: 1.0,
        keys: 1000,
        queries: 1_000_000,
        positives: (grf::rate(bits) * times * 1e6) as u64,
        theory: grf::rate(bits),
    };
    let findings = |rows: &[RateRow]| {
        view::view(rows, &[], &[]).verdicts[..2].iter().map(|v| v.finding).collect::<Vec<_>>()
    };
    assert_eq!(findings(&[row(10.0, 0.9), row(11.0, 0.9)]), [Finding::Holds; 2]);
    assert_eq!(findings(&[row(10.0, 2.0), row(11.0, 4.0)]), [Finding::Fails; 2]);
    assert_eq!(findings(&[]), [Finding::Open; 2]);
}

#[test]
fn invalid_settings_are_refused() {
    let figure = figures().remove(0);
    for custom in [
        Custom { bits: vec![1.0], ..Custom::default() },
        Custom { keys: Some(10), ..Custom::default() },
        Custom { ops: Some(0), ..Custom::default() },
        Custom { threads: vec![2], ..Custom::default() },
    ] {
        assert!(figure.plan(Scale::Small, &custom).is_err(), "{custom:?}");
    }
}
