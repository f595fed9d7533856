//! Made-up rows of every figure of the family: measurements as the paper has them, and the same turned round.

use tamis_bench::measure::Measurement;

use super::GrfFigure;
use super::facts::{HUFFMAN, OURS, is_local};
use crate::figures::rows::row;
use crate::figures::trial::Trial;
use crate::figures::{Custom, Row, Scale};
use crate::filters::{LoadRow, ReadRow};

/// Returns the trial of a figure.
pub(super) fn of(figure: &GrfFigure) -> Trial {
    Trial {
        good: rows(figure, |of| of),
        bad: vec![
            rows(figure, |of| Of { ns: 1e5 / of.ns, rare: 1.0 / of.rare, share: 0.5, digests: 19.0, ..of }),
            rows(figure, uneven),
        ],
    }
}

/// What a side has at a point: times of an operation and of loading, what it does in vain, and what it writes.
#[derive(Clone, Copy)]
struct Of<'a> {
    side: &'a str,
    ns: f64,
    rare: f64,
    /// The filters' part of the time.
    share: f64,
    /// Digests that an operation computes.
    digests: f64,
}

/// Breaks equality.
fn uneven(of: Of<'_>) -> Of<'_> {
    let times = if [OURS, "none"].contains(&of.side) { 3.0 } else { 1.0 };
    Of { ns: of.ns * times, ..of }
}

/// Returns the rows of all points.
fn rows(figure: &GrfFigure, change: impl for<'a> Fn(Of<'a>) -> Of<'a>) -> Vec<Row> {
    let job = figure.job(Scale::Default, &Custom::default()).unwrap();
    let name = figure.experiment.name;
    let mut rows = Vec::new();
    for point in &job.points {
        for side in job.sides.iter().map(|side| side.name()) {
            let loading = change(Of { side, ns: loading(name, side), rare: 1.0, share: 0.0, digests: 0.0 });
            rows.push(row(&LoadRow {
                kind: "load".into(),
                filter: side.into(),
                key_set: point.source.to_string(),
                point: point.label.clone(),
                bits: point.bits,
                leveling_levels: point.leveling_levels,
                load_ns_per_key: loading.ns,
                write_amplification: loading.ns / 100.0,
                ..LoadRow::default()
            }));
            for (workload, &threads) in job
                .workloads
                .iter()
                .flat_map(|workload| job.threads.iter().map(move |threads| (workload, threads)))
            {
                let rare = if side == OURS { 0.01 } else { rare(side) };
                let lazy = point.leveling_levels.unwrap_or(0) as f64;
                let share = if name == "grf-fig12" { 0.05 } else { 0.5 };
                let ns = time(name, workload.name(), side, threads) - lazy;
                let of = change(Of { side, ns, rare, share, digests: 1.0 });
                let rate = 1e9 / of.ns;
                rows.push(row(&ReadRow {
                    kind: "read".into(),
                    side: side.into(),
                    point: point.label.clone(),
                    bits: point.bits,
                    leveling_levels: point.leveling_levels,
                    min_ns: of.ns * 0.999,
                    max_ns: of.ns * 1.001,
                    min_ops_per_second: rate * 0.999,
                    max_ops_per_second: rate * 1.001,
                    filter_ns: Some(of.ns * of.share),
                    measurement: Measurement {
                        workload: workload.name().into(),
                        key_set: point.source.to_string(),
                        threads,
                        ns_per_op: of.ns,
                        wall_ops_per_second: rate,
                        digests_per_op: of.digests,
                        false_positives_per_op: of.rare,
                        block_reads_per_op: of.rare,
                        runs_searched_per_op: of.rare,
                        ..Measurement::default()
                    },
                }));
            }
        }
    }
    rows
}

/// Returns a side's loading time per key.
fn loading(name: &str, side: &str) -> f64 {
    match (name, side) {
        (_, HUFFMAN) => 3000.0,
        // GRF is the slowest after a shift, and writes most where merges are counted.
        ("grf-fig14" | "grf-fig18", OURS) => 2000.0,
        _ => 1000.0,
    }
}

/// Returns what sides other than GRF do in vain.
fn rare(side: &str) -> f64 {
    match side {
        "chucky" => 0.02,
        "snarf" => 0.1,
        "none" => 19.0,
        _ => 0.2,
    }
}

/// Returns the time of an operation.
fn time(name: &str, workload: &str, side: &str, threads: usize) -> f64 {
    let times = match (side, workload) {
        (OURS, _) => 1.0,
        (HUFFMAN, _) => 1.04,
        ("blocked-bloom", "get-empty") => 5.0,
        ("rencoder", "seek-next50") => 2.0,
        (_, "seek-next50") if name == "grf-fig11" => 1.03,
        ("snarf", "seek") if name == "grf-fig12" => 1.05,
        ("remix" | "snarf", "seek" | "seek-zipf") => 2.0,
        (side, "get-zipf") if is_local(side) || side == "none" => 4.0,
        (side, "get-empty" | "range-absent") if name != "grf-fig15" && is_local(side) => 10.0,
        // More reads in flight help GRF most.
        (side, _) if name == "grf-fig15" && is_local(side) => {
            if threads > 1 {
                5.0
            } else {
                2.0
            }
        }
        _ => 3.0,
    };
    100.0 * times
}
