//! The paper's pictures.

use super::facts::{Facts, blocks, digests, in_vain, probes, rate, time};
use crate::elastic::catalogue::Kind;
use crate::elastic::rounds::TIMED;
use crate::elastic::rows::{ReadRow, TableRow, WindowRow};
use crate::figures::compare::Measured;
use crate::figures::compose::{bars, distinct, lines};
use crate::figures::{Axis, Panel, Point};

/// Extracts a figure from a row, if it has one.
type Of = fn(&ReadRow) -> Option<Measured>;

/// A vertical axis and its figure.
#[derive(Clone, Copy)]
struct Up {
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    of: Of,
}

const RATE: Up = Up { name: "throughput", label: "throughput", unit: "ops/s", of: rate };
const TIME: Up = Up { name: "latency", label: "time of an operation", unit: "ns", of: time };
const BLOCKS: Up = Up { name: "blocks read", label: "blocks read per operation", unit: "", of: blocks };
const DIGESTS: Up = Up { name: "digests", label: "digests per operation", unit: "", of: digests };
const PROBES: Up = Up { name: "probes", label: "probes per operation", unit: "", of: probes };
const IN_VAIN: Up = Up { name: "wasted reads", label: "wasted reads per operation", unit: "", of: in_vain };

/// Returns all panels, those of the paper first, and what came before the first round last.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Panel> {
    let mut panels = of_figure(facts);
    panels.extend(warming_up(facts));
    panels
}

/// Returns wasted reads over the unmeasured gets, of all points.
fn warming_up(facts: &Facts<'_>) -> Option<Panel> {
    let rows = || facts.warmups.iter().filter(|row| !row.side.is_empty());
    let several = distinct(rows().map(|row| row.point.as_str())).len() > 1;
    let name = |row: &WindowRow| match several {
        true => format!("{}, {}", row.side, row.point),
        false => row.side.clone(),
    };
    let placed = rows().map(|row| (name(row), Point::new(row.gets as f64, row.in_vain_per_get)));
    lines(
        "before the first round",
        Axis::new("unmeasured gets", ""),
        Axis::new(IN_VAIN.label, ""),
        false,
        placed,
    )
}

fn of_figure(facts: &Facts<'_>) -> Vec<Panel> {
    let panels: Vec<Option<Panel>> = match facts.experiment.name {
        "elastic-fig2" | "elastic-fig3" => return skew(facts),
        "elastic-fig6" => by_locality(facts, "", |_| true, IN_VAIN, "skew", |row| row.skew),
        "elastic-fig10" => vec![point_bars(facts, RATE), point_bars(facts, TIME), point_bars(facts, BLOCKS)],
        "elastic-fig11" => vec![workload_bars(facts, TIME), workload_bars(facts, BLOCKS)],
        "elastic-fig12" => vec![loading(facts), workload_bars(facts, TIME)],
        "elastic-fig13" => by_tree(facts),
        "elastic-fig14" => {
            let absent_only = |row: &ReadRow| row.absent_percent == 100;
            let (title, skew) = ("absent keys only, ", |row: &ReadRow| row.skew);
            let mut panels = by_locality(facts, title, absent_only, RATE, "skew", skew);
            panels.extend(by_locality(facts, title, absent_only, BLOCKS, "skew", skew));
            let mixed = |row: &ReadRow| row.absent_percent < 100;
            let absent = |row: &ReadRow| row.absent_percent as f64;
            panels.extend(by_locality(
                facts,
                "by absent keys, ",
                mixed,
                RATE,
                "absent keys in percent",
                absent,
            ));
            panels
        }
        "elastic-fig14-large" => {
            let of = |up| by_locality(facts, "", |_| true, up, "skew", |row| row.skew);
            [RATE, BLOCKS].into_iter().flat_map(of).collect()
        }
        "elastic-fig15" => {
            let skews = distinct(facts.reads.iter().map(|row| row.skew));
            let of = |skew: f64| {
                let rows = facts.reads.iter().filter(|row| row.skew == skew);
                workload_bars_of(rows.collect(), format!("throughput, skew {skew}"), RATE)
            };
            skews.into_iter().map(of).collect()
        }
        "elastic-fig16-device" => {
            // Values of devices are far apart.
            vec![device_bars(facts, RATE, true), device_gains(facts), device_bars(facts, BLOCKS, false)]
        }
        "elastic-fig16-absent" => {
            let absent = |row: &ReadRow| row.absent_percent as f64;
            let of = |up| by_locality(facts, "", |_| true, up, "absent keys in percent", absent);
            [RATE, IN_VAIN].into_iter().flat_map(of).collect()
        }
        "elastic-threads" => {
            let threads = |row: &ReadRow| Some(row.measurement.threads as f64);
            vec![over(facts.reads.iter(), RATE.name, Axis::new("threads", "").log(), RATE, threads)]
        }
        "elastic-locality" => {
            let locality = |row: &ReadRow| Some(row.locality as f64);
            let axis = || Axis::new("neighbouring keys that are hot together", "").log();
            [RATE, IN_VAIN].map(|up| over(facts.reads.iter(), up.name, axis(), up, locality)).into()
        }
        "elastic-shift" | "elastic-cold-curve" | "elastic-restart" => return windows(facts),
        "hash-elastic" => [DIGESTS, PROBES, TIME, IN_VAIN].map(|up| point_bars(facts, up)).into(),
        _ => varied(facts),
    };
    panels.into_iter().flatten().collect()
}

fn over<'f>(
    rows: impl Iterator<Item = &'f ReadRow>,
    title: &str,
    x: Axis,
    up: Up,
    of_x: impl Fn(&ReadRow) -> Option<f64>,
) -> Option<Panel> {
    let points = rows.filter_map(|row| {
        let y = (up.of)(row)?;
        Some((row.side.clone(), Point { x: of_x(row)?, y: y.value, spread: Some(y.spread()) }))
    });
    lines(title, x, Axis::new(up.label, up.unit), false, points)
}

/// Returns lines over a number, a panel for each locality. Uniform gets have none, so they are in all panels.
fn by_locality(
    facts: &Facts<'_>,
    title: &str,
    keep: fn(&ReadRow) -> bool,
    up: Up,
    label: &str,
    of_x: fn(&ReadRow) -> f64,
) -> Vec<Option<Panel>> {
    let skewed = facts.reads.iter().filter(|row| keep(row) && row.skew > 0.0);
    let localities = distinct(skewed.map(|row| row.locality));
    let several = localities.len() > 1;
    let of = |locality: u64| {
        let here = |row: &&ReadRow| keep(row) && (row.skew == 0.0 || row.locality == locality);
        let title = match several {
            true => format!("{title}{}, locality {locality}", up.name),
            false => format!("{title}{}", up.name),
        };
        over(facts.reads.iter().filter(here), &title, Axis::new(label, ""), up, |row| Some(of_x(row)))
    };
    localities.into_iter().map(of).collect()
}

/// Returns bars by point, where the varied setting is not a number.
fn point_bars(facts: &Facts<'_>, up: Up) -> Option<Panel> {
    let bar = |row: &ReadRow| {
        let y = (up.of)(row)?;
        let group = if row.point.is_empty() { row.measurement.workload.clone() } else { row.point.clone() };
        Some((group, row.side.clone(), y.value, Some(y.spread())))
    };
    let axis = Axis::new("point", "");
    bars(up.name, axis, Axis::new(up.label, up.unit), facts.reads.iter().filter_map(bar))
}

/// Returns bars by device.
fn device_bars(facts: &Facts<'_>, up: Up, log: bool) -> Option<Panel> {
    let bar = |row: &ReadRow| {
        let y = (up.of)(row)?;
        Some((place(facts, row), row.side.clone(), y.value, Some(y.spread())))
    };
    let y = Axis::new(up.label, up.unit);
    let y = if log { y.log() } else { y };
    bars(up.name, Axis::new("device", ""), y, facts.reads.iter().filter_map(bar))
}

/// Returns the paper's comparison of devices.
fn device_gains(facts: &Facts<'_>) -> Option<Panel> {
    let pairs = facts.pairs(|_| true);
    let bar = |(row, fixed): &(&ReadRow, &ReadRow)| {
        let gain = rate(row)?.by(rate(fixed)?);
        Some((place(facts, row), row.side.clone(), gain.value, Some(gain.spread())))
    };
    let y = Axis::new("throughput / throughput of the fixed filter", "");
    bars("gain", Axis::new("device", ""), y, pairs.iter().filter_map(bar))
}

/// Returns the device of a row with the other varied settings.
fn place(facts: &Facts<'_>, row: &ReadRow) -> String {
    let point = if row.point.is_empty() { &row.device } else { &row.point };
    match facts.workloads().len() > 1 {
        true => format!("{}, {point}", row.measurement.workload),
        false => point.clone(),
    }
}

/// Returns bars by workload, a panel for each tree.
fn by_tree(facts: &Facts<'_>) -> Vec<Option<Panel>> {
    let points = distinct(facts.reads.iter().map(|row| row.point.as_str()));
    let of = |up: Up, point: &str| {
        let rows = facts.reads.iter().filter(|row| row.point == point);
        let title = if point.is_empty() { up.name.to_owned() } else { format!("{}, {point}", up.name) };
        workload_bars_of(rows.collect(), title, up)
    };
    [RATE, BLOCKS].into_iter().flat_map(|up| points.iter().map(move |point| of(up, point))).collect()
}

fn workload_bars(facts: &Facts<'_>, up: Up) -> Option<Panel> {
    workload_bars_of(facts.reads.iter().collect(), up.name.to_owned(), up)
}

fn workload_bars_of(rows: Vec<&ReadRow>, title: String, up: Up) -> Option<Panel> {
    let key = |row: &&ReadRow| (row.measurement.workload.clone(), row.side.clone());
    let several = distinct(rows.iter().map(key)).len() < rows.len();
    let bar = |row: &&ReadRow| {
        let y = (up.of)(row)?;
        let workload = &row.measurement.workload;
        let group = match several {
            true => format!("{workload}, {}", row.point),
            false => workload.clone(),
        };
        Some((group, row.side.clone(), y.value, Some(y.spread())))
    };
    bars(title, Axis::new("workload", ""), Axis::new(up.label, up.unit), rows.iter().filter_map(bar))
}

fn loading(facts: &Facts<'_>) -> Option<Panel> {
    let timed = facts.loads.iter().filter(|row| row.point == TIMED);
    let bar = timed.map(|row| {
        let spread = Some((row.min_ns_per_key, row.max_ns_per_key));
        ("loading".to_owned(), row.filter.clone(), row.load_ns_per_key, spread)
    });
    bars("loading", Axis::default(), Axis::new("loading time per key, including merges", "ns"), bar)
}

/// Returns lines over the varied setting, or bars where it is not always a number.
fn varied(facts: &Facts<'_>) -> Vec<Option<Panel>> {
    if facts.reads.iter().any(|row| row.setting.is_none()) {
        return vec![point_bars(facts, RATE), point_bars(facts, IN_VAIN)];
    }
    let axis = match facts.experiment.name {
        "elastic-fig16-size" => Axis::new("keys", "").log(),
        "elastic-fig16-cache" => Axis::new("block cache", "B"),
        "elastic-fig16-value" => Axis::new("value", "B").log(),
        "elastic-fig16-unit-size" => Axis::new("filter unit", "B").log(),
        "elastic-fig16-unit-bits" => Axis::new("bits of a unit for each key", ""),
        _ => Axis::new("setting", ""),
    };
    [RATE, IN_VAIN].map(|up| over(facts.reads.iter(), up.name, axis.clone(), up, |row| row.setting)).into()
}

/// Returns tables in the order of hotness, a line for each level, or their internal skew.
fn skew(facts: &Facts<'_>) -> Vec<Panel> {
    let regions = facts.experiment.kind == Kind::RegionSkew;
    let points = distinct(facts.tables.iter().map(|row| (row.point.as_str(), row.side.as_str())));
    let sides = distinct(points.iter().map(|(_, side)| *side)).len();
    let panel = |(point, side): (&str, &str)| {
        let rows = facts.tables.iter().filter(|row| row.point == point && row.side == side);
        let levels = {
            let mut levels = distinct(rows.clone().map(|row| row.level));
            levels.sort_unstable();
            levels
        };
        let figure = |row: &TableRow| if regions { row.spread } else { row.asked_per_get * 1000.0 };
        let mut placed = Vec::new();
        let mut at = 0;
        for level in levels {
            let mut of_level: Vec<f64> = rows.clone().filter(|row| row.level == level).map(figure).collect();
            of_level.sort_by(|a, b| b.total_cmp(a));
            for y in of_level {
                at += 1;
                placed.push((format!("level {level}"), Point::new(f64::from(at), y)));
            }
        }
        let point = if point.is_empty() { "all gets" } else { point };
        let title = if sides > 1 { format!("{point}, {side}") } else { point.to_owned() };
        let x = Axis::new("tables, upper levels first, by hotness", "");
        let y = match regions {
            true => Axis::new("(most − least) / mean over 64 parts", ""),
            false => Axis::new("queries per thousand gets", "").log(),
        };
        lines(title, x, y, false, placed)
    };
    points.into_iter().filter_map(panel).collect()
}

/// Returns wasted reads over gets, a panel for each point.
fn windows(facts: &Facts<'_>) -> Vec<Panel> {
    let x = match facts.experiment.kind {
        Kind::Cold => "gets from a cold start on",
        Kind::Restart => "gets; a restart where the line ends",
        _ => "gets; hot keys move half-way",
    };
    let points = distinct(facts.windows.iter().map(|row| row.point.as_str()));
    let panel = |point: &str| {
        let rows = facts.windows.iter().filter(|row| row.point == point && !row.side.is_empty());
        let placed = rows.map(|row| (row.side.clone(), Point::new(row.gets as f64, row.in_vain_per_get)));
        let title = if point.is_empty() { "all gets" } else { point };
        lines(title, Axis::new(x, ""), Axis::new(IN_VAIN.label, ""), false, placed)
    };
    points.into_iter().filter_map(panel).collect()
}
