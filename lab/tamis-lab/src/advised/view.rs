//! Tables and figures: the advised candidate against the others, and prediction errors.

use tamis_bench::report::{grouped, mean};

use super::CandidateRow;
use crate::figures::compare::{first_memory, median, memory};
use crate::figures::compose::{self, distinct};
use crate::figures::rows::records;
use crate::figures::{Axis, Finding, Row, Sheet, Verdict, View};

/// Tolerated slowdown of the recommended configuration over the best one.
const MARGIN: f64 = 0.10;

/// Number of workloads.
const WORKLOADS: usize = super::workloads::TEXTS.len();

/// The candidates of one workload.
struct Case<'r> {
    rows: Vec<&'r CandidateRow>,
    advised: &'r CandidateRow,
    best: &'r CandidateRow,
}

impl Case<'_> {
    /// Returns the time of the advised candidate divided by the time of the best one.
    fn ratio(&self) -> f64 {
        self.advised.ns / self.best.ns
    }

    /// Reports whether the rounds of the two overlap, so that their difference is not significant.
    fn tied(&self) -> bool {
        self.advised.min_ns <= self.best.max_ns
    }
}

pub(super) fn view(rows: &[Row]) -> View {
    let all: Vec<CandidateRow> = records(rows, "candidate");
    let all: Vec<CandidateRow> = all.into_iter().filter(|row| row.ns > 0.0).collect();
    let cases: Vec<Case<'_>> = distinct(all.iter().map(|row| row.number))
        .into_iter()
        .filter_map(|number| {
            let rows: Vec<&CandidateRow> = all.iter().filter(|row| row.number == number).collect();
            let advised = *rows.iter().find(|row| row.advised)?;
            let best = *rows.iter().min_by(|a, b| a.ns.total_cmp(&b.ns))?;
            Some(Case { rows, advised, best })
        })
        .collect();
    View {
        panels: panel(&cases).into_iter().collect(),
        sheets: if cases.is_empty() {
            Vec::new()
        } else {
            vec![standing(&cases), errors(&all), candidates(&cases)]
        },
        verdicts: vec![within(&cases)],
    }
}

fn panel(cases: &[Case<'_>]) -> Option<crate::figures::Panel> {
    let bars = cases.iter().flat_map(|case| {
        let usual = case.rows.iter().find(|row| row.usual).copied();
        let sides = [("advised", Some(case.advised)), ("best", Some(case.best)), ("default", usual)];
        sides.into_iter().filter_map(move |(name, row)| {
            let row = row?;
            let by = |ns: f64| ns / case.best.ns;
            let group = format!("{}: {}", row.number, row.workload);
            Some((group, name.to_owned(), by(row.ns), Some((by(row.min_ns), by(row.max_ns)))))
        })
    });
    let bars: Vec<_> = bars.collect();
    compose::bars(
        "time / time of the best candidate",
        Axis::new("workload", ""),
        Axis::new("time / best time", ""),
        bars,
    )
}

fn standing(cases: &[Case<'_>]) -> Sheet {
    let mut sheet = Sheet::new(
        "The advised candidate compared with the best one measured",
        &[
            "<workload",
            "<advised",
            "predicted ns",
            "measured ns",
            "bits/key",
            "<best measured",
            "its ns",
            "its bits/key",
            "ratio",
            "default's ratio",
        ],
    );
    for case in cases {
        let usual = case.rows.iter().find(|row| row.usual);
        sheet.row([
            format!("{}: {}", case.advised.number, case.advised.workload),
            case.advised.side.clone(),
            ns(case.advised.predicted_ns),
            ns(case.advised.ns),
            memory(case.advised.filter_bits_per_key, case.advised.filter_bits_per_key),
            if case.best == case.advised { "the same".to_owned() } else { case.best.side.clone() },
            ns(case.best.ns),
            memory(case.best.filter_bits_per_key, case.advised.filter_bits_per_key),
            mean(case.ratio()),
            usual.map_or_else(String::new, |row| mean(row.ns / case.best.ns)),
        ]);
    }
    sheet
}

/// Returns the prediction errors by filter.
fn errors(all: &[CandidateRow]) -> Sheet {
    let mut sheet = Sheet::new(
        "Prediction errors: predicted / measured time over all workloads and trees",
        &["<filter", "candidates", "median", "10th percentile", "90th percentile"],
    );
    for filter in distinct(all.iter().map(|row| row.filter.clone())) {
        let mut ratios: Vec<f64> =
            all.iter().filter(|row| row.filter == filter).map(|row| row.predicted_ns / row.ns).collect();
        ratios.retain(|ratio| ratio.is_finite());
        ratios.sort_by(f64::total_cmp);
        let at = |part: f64| ratios.get(((ratios.len() as f64 - 1.0) * part).round() as usize).copied();
        let middle = median(ratios.iter().copied()).map_or_else(String::new, mean);
        let cell = |part| at(part).map_or_else(String::new, mean);
        sheet.row([filter, ratios.len().to_string(), middle, cell(0.1), cell(0.9)]);
    }
    sheet
}

fn candidates(cases: &[Case<'_>]) -> Sheet {
    let mut sheet = Sheet::new(
        "All candidates, in the advisor's order",
        &[
            "<workload",
            "<candidate",
            "predicted ns",
            "measured ns",
            "fastest–slowest round",
            "runs",
            "bits/key",
        ],
    );
    for case in cases {
        let first = first_memory(case.rows.iter().map(|row| row.filter_bits_per_key));
        for row in &case.rows {
            sheet.row([
                row.number.to_string(),
                row.side.clone(),
                ns(row.predicted_ns),
                ns(row.ns),
                format!("{}–{}", ns(row.min_ns), ns(row.max_ns)),
                mean(row.runs),
                memory(row.filter_bits_per_key, first),
            ]);
        }
    }
    sheet
}

fn ns(ns: f64) -> String {
    grouped(ns.round() as u64)
}

fn within(cases: &[Case<'_>]) -> Verdict {
    let claim = "On ten different workloads the advised filter and tree take at most 10 % more time than the best measured.";
    let verdict = Verdict::open(claim, "10 of 10");
    if cases.is_empty() {
        return verdict;
    }
    let good = cases.iter().filter(|case| case.ratio() <= 1.0 + MARGIN).count();
    let tied = cases.iter().filter(|case| case.ratio() > 1.0 + MARGIN && case.tied()).count();
    let worst = cases.iter().map(Case::ratio).fold(1.0, f64::max);
    let mut ours = format!("{good} of {}, the worst {worst:.2} times the best", cases.len());
    if tied > 0 {
        ours += &format!("; {tied} of the others within the spread of rounds");
    }
    let mut verdict =
        verdict.with(ours, Some(2 * good > cases.len()), None, Some(good as f64 / WORKLOADS as f64));
    verdict.finding = match good {
        good if good == WORKLOADS => Finding::Holds,
        _ if cases.len() < WORKLOADS => Finding::Open,
        // Half of the advice wrong is no better than chance among two.
        good if 2 * good <= WORKLOADS => Finding::Fails,
        _ => Finding::Partly,
    };
    verdict
}
