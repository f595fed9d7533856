//! The paper's pictures.

use super::facts::{Facts, SCAN, rate, sought, time};
use crate::figures::compare::Measured;
use crate::figures::compose::{OneBar, bars, lines, stacked};
use crate::figures::{Axis, Bar, Panel, Point};
use crate::filters::{Axis as Varies, LoadRow, ReadRow};

/// Returns all panels, key set by key set, those of the paper first.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Panel> {
    let of_set = |(name, facts): (Option<&str>, Facts<'_>)| {
        let mut panels = of_one_set(&facts);
        for panel in &mut panels {
            if let Some(name) = name {
                panel.title = format!("{}, {name}", panel.title);
            }
        }
        panels
    };
    facts.by_key_set().into_iter().flat_map(of_set).collect()
}

fn of_one_set(facts: &Facts<'_>) -> Vec<Panel> {
    match facts.experiment.axis {
        Varies::Bits(_) => over_numbers(facts, "bits per key"),
        Varies::LevelingLevels(_) => {
            let mut panels = over_numbers(facts, "leveling levels");
            panels.extend(loading_over(facts, "leveling levels"));
            panels
        }
        // Two numbers of threads do not make a curve.
        Varies::InFlight(_) if facts.threads().len() > 2 => in_flight(facts),
        Varies::Threads(_) if facts.threads().len() > 2 => over_threads(facts),
        Varies::Threads(_) | Varies::InFlight(_) => {
            let threads = facts.threads().into_iter();
            threads.filter_map(|threads| throughput_bars(facts, Some(threads))).collect()
        }
        Varies::None => single(facts),
    }
}

fn point(x: f64, y: Measured) -> Point {
    Point { x, y: y.value, spread: Some(y.spread()) }
}

/// Returns for each workload the time over a number, followed by wasted reads.
fn over_numbers(facts: &Facts<'_>, label: &str) -> Vec<Panel> {
    let mut panels = Vec::new();
    for workload in facts.workloads() {
        let over = |title: String, y: Axis, of: &dyn Fn(&ReadRow) -> Option<Measured>| {
            let points = facts
                .rows_of(workload)
                .filter_map(|row| Some((row.side.clone(), point(facts.x(row)?, of(row)?))));
            lines(title, Axis::new(label, ""), y, false, points)
        };
        let shaded = facts.rows_of(workload).any(|row| facts.shade(row).is_some());
        if shaded && matches!(facts.experiment.axis, Varies::Bits(_)) {
            panels.extend(shaded_bars(facts, workload));
        } else {
            let y = Axis::new("time of an operation", "ns").log();
            panels.extend(over(workload.to_owned(), y, &|row| Some(time(row))));
        }
        if in_vain(workload) {
            let false_positives =
                |row: &ReadRow| Some(Measured::exact(row.measurement.false_positives_per_op));
            panels.extend(over(
                format!("{workload}, false positives"),
                Axis::new("false positives per operation", "").log(),
                &false_positives,
            ));
        } else if !workload.contains("next") {
            panels.extend(over(
                format!("{workload}, runs searched"),
                Axis::new("runs searched per operation", ""),
                &|row| Some(sought(row)),
            ));
        }
    }
    panels
}

/// Returns the time of an operation by bits per key, with the shaded part of the paper.
fn shaded_bars(facts: &Facts<'_>, workload: &str) -> Option<Panel> {
    let parts = match workload {
        SCAN => ["seek and 20 steps", "30 more steps"],
        _ => ["asking filters", "the rest"],
    };
    let bar = |row: &ReadRow| {
        let (all, shade) = (time(row), facts.shade(row).unwrap_or(0.0));
        let parts = vec![shade, all.value - shade];
        (row.point.clone(), Bar { name: row.side.clone(), parts, spread: Some(all.spread()) })
    };
    let (x, y) = (Axis::new("bits per key", ""), Axis::new("time of an operation", "ns"));
    stacked(workload, x, y, parts.map(str::to_owned).to_vec(), facts.rows_of(workload).map(bar))
}

/// Reports whether a workload asks for absent keys or ranges.
pub(super) fn in_vain(workload: &str) -> bool {
    matches!(workload, "get-empty" | "range-absent" | "range-empty" | "multi-get-empty")
}

fn loading_over(facts: &Facts<'_>, label: &str) -> Option<Panel> {
    let points = facts.loads.iter().filter_map(|row| {
        Some((row.filter.clone(), Point::new(row.leveling_levels? as f64, row.load_ns_per_key)))
    });
    lines("loading", Axis::new(label, ""), loading_axis(), false, points)
}

fn loading_axis() -> Axis {
    Axis::new("loading time per key, including merges", "ns")
}

/// Returns for each workload throughput over threads, and time against throughput.
fn over_threads(facts: &Facts<'_>) -> Vec<Panel> {
    let mut panels = Vec::new();
    for workload in facts.workloads() {
        let rows = || facts.rows_of(workload);
        let throughput = || Axis::new("throughput", "ops/s");
        let by_threads =
            rows().map(|row| (row.side.clone(), point(row.measurement.threads as f64, rate(row))));
        panels.extend(lines(workload, Axis::new("threads", "").log(), throughput(), false, by_threads));
        let curve = rows().map(|row| (row.side.clone(), point(rate(row).value, time(row))));
        panels.extend(lines(
            format!("{workload}, time against throughput"),
            throughput(),
            Axis::new("time of an operation", "ns"),
            true,
            curve,
        ));
    }
    panels
}

/// Returns for each workload the throughput over the reads in flight.
fn in_flight(facts: &Facts<'_>) -> Vec<Panel> {
    let of_workload = |workload: &str| {
        let points = facts.rows_of(workload);
        let points = points.map(|row| (row.side.clone(), point(row.measurement.threads as f64, rate(row))));
        let x = Axis::new("reads in flight (threads)", "").log();
        lines(workload, x, Axis::new("throughput", "ops/s"), false, points)
    };
    facts.workloads().into_iter().filter_map(of_workload).collect()
}

/// Returns throughput by workload, for one number of threads or for all.
fn throughput_bars(facts: &Facts<'_>, threads: Option<usize>) -> Option<Panel> {
    let of_these =
        facts.reads.iter().filter(|row| threads.is_none_or(|threads| row.measurement.threads == threads));
    let title = match threads {
        Some(1) => "one thread".to_owned(),
        Some(threads) => format!("{threads} threads"),
        None => "throughput".to_owned(),
    };
    let bar = |row: &ReadRow| read_bar(row, rate(row));
    bars(title, Axis::new("workload", ""), Axis::new("throughput", "ops/s"), of_these.map(bar))
}

fn read_bar(row: &ReadRow, height: Measured) -> OneBar {
    (row.measurement.workload.clone(), row.side.clone(), height.value, Some(height.spread()))
}

/// Returns the panels of figures in which only the filter varies.
fn single(facts: &Facts<'_>) -> Vec<Panel> {
    use crate::filters::Metric;
    let mut panels: Vec<Option<Panel>> = Vec::new();
    let workloads = || Axis::new("workload", "");
    if facts.experiment.metric == Metric::Throughput {
        panels.push(throughput_bars(facts, None));
    } else {
        let times = facts.reads.iter().map(|row| read_bar(row, time(row)));
        panels.push(bars("reads", workloads(), Axis::new("time of an operation", "ns").log(), times));
        let runs = facts.reads.iter().map(|row| read_bar(row, sought(row)));
        panels.push(bars("runs searched", workloads(), Axis::new("runs searched per operation", ""), runs));
    }
    let of_loads = |of: fn(&LoadRow) -> f64, group: &'static str| {
        facts.loads.iter().map(move |row| (group.to_owned(), row.filter.clone(), of(row), None))
    };
    if facts.experiment.shift_from.is_some() {
        let load = of_loads(|row| row.load_ns_per_key, "loading");
        panels.push(bars("loading", Axis::default(), loading_axis(), load));
    }
    if facts.experiment.metric == Metric::Throughput {
        let written = of_loads(|row| row.write_amplification, "all writes");
        let axis = Axis::new("bytes written / bytes put", "");
        panels.push(bars("write amplification", Axis::default(), axis, written));
    }
    panels.into_iter().flatten().collect()
}
