use tamis_bench::progress::NoProgress;

use super::*;
use crate::figures::Finding;
use crate::figures::trial::Trial;

#[test]
fn every_step_runs_and_is_shown() {
    let figure = figures().remove(0);
    let custom = Custom { keys: Some(6_000), ops: Some(10_000), bits: vec![8.0, 10.0], ..Custom::default() };
    let mut plan = figure.plan(Scale::Small, &custom).unwrap();
    let steps = plan.steps();
    assert_eq!(steps, ["rate at 8 bits", "rate at 10 bits", "rounds", "codes", "versions"]);
    let rows: Vec<Row> = (0..steps.len()).flat_map(|step| plan.run(step, &NoProgress).unwrap()).collect();
    let view = figure.view(&rows);
    assert_eq!((view.panels.len(), view.sheets.len(), view.verdicts.len()), (3, 4, 7));
    let rounds: Vec<RoundRow> = rows::of_kind(&rows, ROUND);
    assert_eq!(rounds.len(), 3);
    for row in &rounds {
        // The less of the tree is new, the fewer bits codes take from positions.
        assert!(row.begin_rate < row.mean_rate && row.mean_rate < row.end_rate, "{row:?}");
        let times = row.mean_rate / row.model_rate;
        assert!((0.8..2.5).contains(&times), "{times}: {row:?}");
    }
    assert!(rounds[0].mean_rate > rounds[2].mean_rate, "{rounds:?}");
    let rates: Vec<RateRow> = rows::of_kind(&rows, RATE);
    for row in &rates {
        // One run takes no codes, only what fills up bytes.
        assert_eq!(row.code_bits < 0.05, row.state == "built", "{row:?}");
        // The list of what codes stand for weighs more in a small partition.
        assert!(row.memory_bits < row.bits + if row.state == "built" { 0.5 } else { 1.5 }, "{row:?}");
        // No code is shorter than the entropy.
        let rate = row.positives as f64 / row.queries as f64;
        assert!(rate > row.model * 0.8, "{row:?}");
    }
    let codes: Vec<CodeRow> = rows::of_kind(&rows, CODE);
    assert_eq!(codes.len(), 25);
    let measured: Vec<&CodeRow> = codes.iter().filter(|row| row.measured.is_some()).collect();
    assert!(measured.len() > 5);
    for row in &measured {
        let bits = row.measured.unwrap();
        assert!(bits >= row.entropy - 0.05 && bits < row.huffman + 0.5, "{row:?}");
    }
    let versions: Vec<VersionsRow> = rows::of_kind(&rows, VERSIONS);
    assert_eq!(versions.len(), 4);
    for row in &versions {
        // The more versions there are to distinguish, the longer are codes; the paper's bound holds.
        assert!(row.newest < row.since_low_merge + 0.01 && row.since_low_merge < row.all, "{row:?}");
        assert!(row.since_low_merge - row.newest < row.bound, "{row:?}");
    }
    for n in 0..rows.len() {
        figure.view(&rows[..n]);
    }
}

fn round_rows(mean_rate: impl Fn(u32) -> f64) -> Vec<RoundRow> {
    let row = |round| RoundRow {
        size_ratio: 10,
        round,
        begin_rate: 0.01,
        mean_rate: mean_rate(round),
        end_rate: 0.02,
        theory_factor: grf::round_factor(round),
        theory_rate: 0.03,
        model_rate: 0.01,
    };
    (1..10).map(row).collect()
}

/// Turned round, all rates are higher and fall within a round, another bit does not halve them, and codes are long.
pub(super) fn trial() -> Trial {
    let made = |turned: bool| {
        let rate = |state: &str, bits: f64| {
            // The full tree as in the paper, and twice that.
            let times = if turned { 2.0 * (bits - 8.0) } else { 1.0 };
            RateRow {
                state: state.into(),
                code_bits: if turned { 4.0 } else { 1.6 },
                ..rate_row(bits, times)
            }
        };
        let rates =
            ["built", "full tree"].into_iter().flat_map(|state| [10.0, 11.0].map(|bits| rate(state, bits)));
        let rounds = (1..10).map(|round| RoundRow {
            begin_rate: if turned { 0.09 } else { 0.027 },
            mean_rate: if turned { 0.06 } else { 0.027 * grf::round_factor(round) },
            theory_rate: 0.027,
            ..round_rows(|_| 0.0).remove(round as usize - 1)
        });
        let code = CodeRow {
            size_ratio: RATIO,
            levels: LEVELS,
            fractional: 1.6,
            whole: 1.7,
            paper: 1.6,
            fixed: 5,
            huffman: 1.7,
            entropy: 1.5,
            measured: Some(if turned { 4.0 } else { 1.6 }),
        };
        let versions = VersionsRow {
            size_ratio: RATIO,
            levels: LEVELS,
            newest: 1.6,
            since_low_merge: if turned { 2.6 } else { 1.7 },
            all: 3.0,
            bound: 0.2,
        };
        let rates = rates.map(|row| rows::row(RATE, &row));
        let rounds = rounds.map(|row| rows::row(ROUND, &row));
        rates.chain(rounds).chain([rows::row(CODE, &code), rows::row(VERSIONS, &versions)]).collect()
    };
    Trial { good: made(false), bad: vec![made(true)] }
}

fn rate_row(bits: f64, times: f64) -> RateRow {
    RateRow {
        bits,
        map: "digest".into(),
        state: "built".into(),
        memory_bits: bits,
        code_bits: 1.0,
        keys: 1000,
        queries: 1_000_000,
        positives: (grf::rate(bits) * times * 1e6) as u64,
        theory: grf::rate(bits),
        model: grf::global_rate(bits, &[1.0]),
    }
}

/// The printed value at T = 10 differs from the sum, and the verdict's note says so.
#[test]
fn the_mean_over_rounds_is_distinguished_from_the_printed_value() {
    let rounds = round_rows(|round| 0.01 * grf::round_factor(round));
    let verdict = |rows: &[RoundRow]| view::view(&[], rows, &[], &[]).verdicts[2].clone();
    let all = verdict(&rounds);
    assert_eq!((all.ours.as_str(), all.finding), ("1.157× at T = 10", Finding::Holds));
    assert!(all.note.ends_with("= 0.122") && all.note.contains("0.157"), "{}", all.note);
    let more = verdict(&round_rows(|_| 0.02));
    assert_eq!(more.finding, Finding::Partly);
    assert!(more.note.contains("without codes"), "{}", more.note);
    assert_eq!(verdict(&rounds[1..]).finding, Finding::Open, "a round is missing");
}

#[test]
fn the_mean_rate_is_compared_with_the_formula() {
    let verdict = |rows: &[RoundRow]| view::view(&[], rows, &[], &[]).verdicts[3].clone();
    let same = verdict(&round_rows(|_| 0.03));
    assert_eq!((same.ours.as_str(), same.finding), ("1.00× at T = 10", Finding::Holds));
    assert!(same.note.starts_with("3.00 times"), "{}", same.note);
    assert_eq!(verdict(&round_rows(|_| 0.015)).finding, Finding::Partly, "lower than claimed");
    assert_eq!(verdict(&round_rows(|_| 0.06)).finding, Finding::Fails);
    assert_eq!(verdict(&round_rows(|_| 0.03)[..8]).finding, Finding::Open, "a round is missing");
}

#[test]
fn rates_make_verdicts() {
    let row = rate_row;
    let findings = |rows: &[RateRow]| {
        view::view(rows, &[], &[], &[]).verdicts[..2].iter().map(|v| v.finding).collect::<Vec<_>>()
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
