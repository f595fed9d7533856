use tamis_bench::progress::NoProgress;

use super::*;
use crate::figures::Finding;
use crate::figures::rows::{records, row};
use crate::figures::trial::Trial;

fn plan<'f>(
    figure: &'f dyn Figure,
    change: impl FnOnce(&mut Custom),
) -> Result<Box<dyn Plan + 'f>, BenchError> {
    let mut custom = Custom { keys: Some(2_000), ops: Some(60), repeats: Some(1), ..Custom::default() };
    change(&mut custom);
    figure.plan(Scale::Small, &custom)
}

/// Reads, writes, ranges and scans return correct answers, and one candidate of each workload is advised.
#[test]
fn every_workload_runs_over_every_candidate() {
    let figure = &figures()[0];
    let mut plan = plan(&**figure, |_| {}).unwrap();
    let mut rows = Vec::new();
    for step in 0..plan.steps().len() {
        rows.extend(plan.run(step, &NoProgress).unwrap());
    }
    let found: Vec<CandidateRow> = records(&rows, "candidate");
    assert_eq!(found.len(), 10 * 3 * 2);
    assert!(found.iter().all(|row| row.ns > 0.0 && row.predicted_ns > 0.0 && row.runs > 0.0), "{found:?}");
    assert_eq!(found.iter().filter(|row| row.advised).count(), 10);
    assert_eq!(found.iter().filter(|row| row.usual).count(), 10);
    assert!(found.iter().filter(|row| row.filter == "none").all(|row| row.filter_bits_per_key == 0.0));
    let view = figure.view(&rows);
    assert_eq!((view.panels.len(), view.sheets[0].rows.len()), (1, 10));
}

#[test]
fn unknown_candidates_are_refused() {
    let figure = &figures()[0];
    let refused = |change: fn(&mut Custom)| plan(&**figure, change).err().unwrap().to_string();
    assert!(refused(|c| c.filters = vec!["sieve".into()]).contains("`sieve`"));
    assert!(refused(|c| c.filters = vec!["grf".into()]).contains("blocked-bloom"));
    assert!(refused(|c| c.keys = Some(5)).contains("--keys 1000"));
    assert!(refused(|c| c.threads = vec![2]).contains("--threads"));
}

fn candidate(number: usize, side: &str, ns: f64, advised: bool) -> Row {
    row(&CandidateRow {
        kind: "candidate".into(),
        number,
        workload: "w".into(),
        side: side.into(),
        filter: side.into(),
        advised,
        predicted_ns: ns * 2.0,
        ns,
        min_ns: ns * 0.99,
        max_ns: ns * 1.01,
        ..CandidateRow::default()
    })
}

/// Returns rows of all workloads, with the times of the advised candidates; the others' are 100 ns.
fn advice(advised: [f64; 10]) -> Vec<Row> {
    let of = |i: usize| [candidate(i + 1, "a", advised[i], true), candidate(i + 1, "b", 100.0, false)];
    (0..10).flat_map(of).collect()
}

/// Turned round, half of the advice is wrong.
pub(super) fn trial() -> Trial {
    let half = std::array::from_fn(|i| if i % 2 == 0 { 150.0 } else { 100.0 });
    Trial { good: advice([105.0; 10]), bad: vec![advice(half)] }
}

#[test]
fn only_choices_within_the_margin_count() {
    let finding = |advised: [f64; 10]| {
        let verdict = Ten.view(&advice(advised)).verdicts.remove(0);
        (verdict.finding, verdict.ours)
    };
    assert_eq!(finding([109.0; 10]).0, Finding::Holds);
    let mut one = [90.0; 10];
    one[3] = 150.0;
    let (found, ours) = finding(one);
    assert_eq!(found, Finding::Partly);
    assert!(ours.starts_with("9 of 10, the worst 1.50"), "{ours}");
    assert_eq!(finding([150.0; 10]).0, Finding::Fails);
    assert_eq!(
        Ten.view(&[candidate(1, "a", 1.0, true)]).verdicts[0].finding,
        Finding::Open,
        "not all measured"
    );
}
