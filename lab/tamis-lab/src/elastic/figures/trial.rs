//! Made-up rows of every figure of the family: measurements as the paper has them, and the same turned round.

use tamis_bench::measure::Measurement;

use super::ElasticFigure;
use crate::elastic::points::Point;
use crate::elastic::rounds::TIMED;
use crate::elastic::rows::{ReadRow, TableRow};
use crate::elastic::{Kind, LoadRow};
use crate::figures::rows::row;
use crate::figures::trial::Trial;
use crate::figures::{Custom, Row, Scale};

/// Returns the trial of a figure; none of those without verdicts.
pub(super) fn of(figure: &ElasticFigure) -> Trial {
    match figure.experiment.kind {
        Kind::TableSkew | Kind::RegionSkew => tables(),
        Kind::Shift | Kind::Cold | Kind::Restart => Trial::default(),
        Kind::Rounds | Kind::Replay | Kind::Loads => Trial {
            good: rows(figure, |row, _| row),
            bad: vec![rows(figure, |row, _| inverse(row)), rows(figure, uneven)],
        },
    }
}

/// Returns the rows of all points at the paper's scale; `change` is told whether a point is not the first of its kind.
fn rows(figure: &ElasticFigure, change: impl Fn(ReadRow, bool) -> ReadRow) -> Vec<Row> {
    let job = figure.job(Scale::Paper, &Custom::default()).unwrap();
    let name = figure.experiment.name;
    let kind = |point: &Point| (point.workload, point.spec.locality);
    let mut rows = Vec::new();
    for (at, point) in job.points.iter().enumerate() {
        let alone = job.points.iter().filter(|other| kind(other) == kind(point)).count() == 1;
        let later = job.points[..at].iter().any(|other| kind(other) == kind(point));
        for side in &job.sides {
            let made = ReadRow {
                device: job.device_name(&point.variant).into(),
                elastic: side.is_elastic(),
                ..read(name, point, side.name(), side.is_elastic())
            };
            rows.push(row(&change(made, later || alone)));
        }
    }
    if figure.experiment.kind == Kind::Loads {
        // Loads vary with the reads.
        let slow = change(read(name, &job.points[0], "elastic", true), true);
        for (filter, ns) in [("bloom", 1e6), ("elastic", slow.measurement.ns_per_op)] {
            rows.push(row(&LoadRow {
                kind: "load".into(),
                filter: filter.into(),
                point: TIMED.into(),
                load_ns_per_key: ns,
                min_ns_per_key: ns,
                max_ns_per_key: ns,
                ..LoadRow::default()
            }));
        }
    }
    rows
}

/// Returns one side's row at a point, with 1000 operations a second for fixed filters.
fn read(name: &str, point: &Point, side: &str, elastic: bool) -> ReadRow {
    let (times, in_vain, blocks) = if elastic { ours(name, point) } else { (1.0, 1.0, 1.0) };
    let (digests, times) = match side {
        "elastic" => (1.0, times),
        "elastic-each" => (5.0, times / 1.2),
        "elastic-independent" => (24.0, times / 1.5),
        "elastic-independent-each" => (120.0, times / 4.0),
        _ => (1.0, times),
    };
    let made = ReadRow {
        kind: "read".into(),
        side: side.into(),
        point: point.label.clone(),
        setting: point.variant.setting,
        skew: point.spec.skew,
        absent_percent: point.spec.absent_percent,
        locality: point.spec.locality,
        in_vain_per_op: Some(in_vain),
        blocks_per_op: blocks,
        load_reads_per_op: blocks / 100.0,
        measurement: Measurement {
            workload: point.workload.name().into(),
            threads: point.threads,
            digests_per_op: digests,
            filter_probes_per_op: 10.0,
            ..Measurement::default()
        },
        ..ReadRow::default()
    };
    at_rate(made, 1000.0 * times)
}

/// Sets operations per second, with rounds that are a thousandth faster and slower.
fn at_rate(mut row: ReadRow, rate: f64) -> ReadRow {
    row.measurement.wall_ops_per_second = rate;
    (row.min_ops_per_second, row.max_ops_per_second) = (rate * 0.999, rate * 1.001);
    row.measurement.ns_per_op = 1e9 / rate;
    (row.min_ns, row.max_ns) = (0.999e9 / rate, 1.001e9 / rate);
    row
}

/// Returns throughput, wasted reads and blocks of elastic filters relative to fixed ones, as in the paper.
fn ours(name: &str, point: &Point) -> (f64, f64, f64) {
    let (skew, absent) = (point.spec.skew, point.spec.absent_percent as f64);
    let setting = point.variant.setting.unwrap_or(0.0);
    let workload = point.workload.name();
    let rate = match name {
        "elastic-fig10" if point.threads > 1 => 2.45,
        "elastic-fig10" => 2.12,
        "elastic-fig11" => 1.75,
        "elastic-fig13" => match workload {
            "ycsb-a" => 1.2,
            "ycsb-b" => 1.6,
            "ycsb-c" => 2.05,
            "ycsb-d" => 1.7,
            "ycsb-f" => 1.3,
            _ => 1.0,
        },
        "elastic-fig14" if absent < 100.0 => 1.18 + absent / 400.0,
        "elastic-fig14" | "elastic-fig14-large" => 1.4 + (skew - 0.8) * 1.2,
        "elastic-fig15" => match (workload, skew > 1.0) {
            ("ycsb-c", false) => 1.29,
            ("ycsb-d", false) => 1.20,
            ("ycsb-c", true) => 1.99,
            ("ycsb-d", true) => 1.89,
            ("ycsb-e", _) => 1.0,
            _ => 1.02,
        },
        "elastic-fig16-device" if point.variant.label == "hdd" => 2.34,
        "elastic-fig16-device" => 2.12,
        "elastic-fig16-absent" => 1.65 + absent * 0.014,
        "elastic-fig16-cache" => 1.8,
        "elastic-fig16-life-time" => 1.5,
        // The best is the paper's size; the largest loses 17.8 %.
        "elastic-fig16-unit-size" if setting == 2048.0 => 1.178,
        "elastic-fig16-unit-size" if setting > 2048.0 * 15.0 => 1.0,
        "elastic-fig16-unit-size" => 1.1,
        "elastic-fig16-unit-bits" => 2.0 - (setting - 4.0).abs() / 10.0,
        "elastic-fig12" | "hash-elastic" => 1.0,
        _ => 2.05,
    };
    let in_vain = if name == "hash-elastic" { 1.0 } else { 0.4 - skew / 10.0 };
    (rate, in_vain, 0.4)
}

/// Turns every order round: what was fast is slow, what was rare is frequent.
fn inverse(row: ReadRow) -> ReadRow {
    let rate = row.measurement.wall_ops_per_second;
    let mut row = at_rate(row, 1e6 / rate);
    row.in_vain_per_op = row.in_vain_per_op.map(|in_vain| 1.0 / in_vain);
    row.blocks_per_op = 1.0 / row.blocks_per_op;
    row.load_reads_per_op = row.blocks_per_op / 2.0;
    row.measurement.digests_per_op = 1000.0 / row.measurement.digests_per_op;
    row
}

/// Breaks equality: of sides, and of points.
fn uneven(row: ReadRow, later: bool) -> ReadRow {
    if !later {
        return row;
    }
    let times = if row.side == "elastic" { 3.0 } else { 1.0 };
    let rate = row.measurement.wall_ops_per_second;
    let mut row = at_rate(row, rate * times);
    row.measurement.filter_probes_per_op *= times;
    let vary = row.side == "elastic" || !row.elastic;
    ReadRow { in_vain_per_op: row.in_vain_per_op.map(|n| if vary { n * 3.0 } else { n }), ..row }
}

/// Returns the trial of the two figures about tables: a level above the last, whose tables differ less.
fn tables() -> Trial {
    let table = |skew: f64, level: usize, asked_per_get: f64, spread: f64| TableRow {
        kind: "table".into(),
        side: "bloom".into(),
        point: if skew > 0.0 { String::new() } else { "uniform".into() },
        skew,
        locality: 1,
        level,
        asked_per_get,
        spread,
        ..TableRow::default()
    };
    let made = |skew: f64, turned: bool| {
        let (above, below, spread) = if turned { (0.01, 0.5, 1.0) } else { (1.0, 0.05, 20.0) };
        let level = |level: usize, asked: f64| {
            (1..=10).map(move |n| table(skew, level, asked * f64::from(n) / 10.0, spread))
        };
        // A fifth of the last level is hotter than the coldest above it, or none if turned round.
        let hot = (0..2).map(move |_| table(skew, 2, if turned { 0.5 } else { 0.6 }, 15.0));
        let cold = level(2, below).take(8);
        level(1, above).chain(cold).chain(hot).collect::<Vec<TableRow>>()
    };
    let rows = |tables: Vec<TableRow>| tables.iter().map(row).collect::<Vec<Row>>();
    let level = |skew: f64| (1..=10).map(move |_| table(skew, 1, 1.0, 1.0));
    let even = |skew: f64| level(skew).chain((1..=10).map(move |_| table(skew, 2, 0.5, 1.0))).collect();
    Trial { good: rows(made(0.99, false)), bad: vec![rows(made(0.99, true)), rows(even(0.99))] }
}
