//! Panels and sheets of rows.

use tamis_bench::report;

use super::design::{Across, Design};
use super::rows::{EACH, GainRow, GetRow, Measured, SHARED, Setting};
use crate::figures::compare::memory;
use crate::figures::{Axis, Bar, Kind, Panel, Point, Series, Sheet};

/// The parts of a get from the bottom up.
const PARTS: [&str; 4] = ["hashing", "probing", "data", "rest"];

fn parts(row: &GetRow) -> Vec<f64> {
    vec![row.hash_ns, row.probe_ns, row.data_ns, row.rest_ns]
}

/// Returns the percentage of a get that is hashing.
pub(super) fn hash_share(row: &GetRow) -> f64 {
    // Where the parts exceed the total, their sum counts as the total.
    let whole = parts(row).iter().sum::<f64>().max(row.ns_per_op);
    if whole > 0.0 { 100.0 * row.hash_ns / whole } else { 0.0 }
}

impl Across {
    fn axis(self) -> Axis {
        match self {
            Across::Absent => Axis::new("empty queries (α)", ""),
            Across::KeyBytes => Axis::new("key", "bytes"),
            Across::Levels => Axis::new("levels", ""),
            Across::Device => Axis::new("device", ""),
            Across::Bits => Axis::new("filter", "bits/key"),
        }
    }

    fn value(self, setting: &Setting) -> f64 {
        match self {
            Across::Absent => setting.absent_percent / 100.0,
            Across::KeyBytes => setting.key_bytes as f64,
            Across::Levels => setting.levels as f64,
            Across::Bits => setting.bits_per_key,
            Across::Device => 0.0,
        }
    }

    fn category(self, setting: &Setting) -> String {
        match self {
            Across::Device => setting.device.clone(),
            _ => self.value(setting).to_string(),
        }
    }
}

/// Returns the name of a point's line: the varied parameters other than the horizontal one.
fn series_of(across: Across, all: &Measured, setting: &Setting) -> String {
    let varies =
        |what: fn(&Setting, &Setting) -> bool| all.gains.iter().any(|row| what(&row.setting, setting));
    let mut words = Vec::new();
    if across != Across::Device && varies(|a, b| a.device != b.device) {
        words.push(setting.device.clone());
    }
    if varies(|a, b| a.shape != b.shape) {
        words.push(setting.shape.clone());
    }
    if across != Across::KeyBytes && varies(|a, b| a.key_bytes != b.key_bytes) {
        words.push(format!("{} B keys", setting.key_bytes));
    }
    if varies(|a, b| a.skew != b.skew) {
        words.push(if setting.skew > 0.0 { format!("Zipf {}", setting.skew) } else { "uniform".to_owned() });
    }
    words.join(", ")
}

/// Groups the gains by series, both in the order of measuring.
fn by_series(across: Across, all: &Measured) -> Vec<(String, Vec<&GainRow>)> {
    let mut series: Vec<(String, Vec<&GainRow>)> = Vec::new();
    for row in &all.gains {
        let name = series_of(across, all, &row.setting);
        match series.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => series.push((name, vec![row])),
        }
    }
    for (_, rows) in &mut series {
        // The sort is stable: devices keep their order.
        rows.sort_by(|a, b| across.value(&a.setting).total_cmp(&across.value(&b.setting)));
    }
    series
}

fn titled(what: &str, series: &str) -> String {
    if series.is_empty() { what.to_owned() } else { format!("{what}: {series}") }
}

/// Returns breakdowns as stacked bars, gains as lines (bars where devices are on the horizontal axis), and for shares
/// of empty queries the share of hashing.
pub(super) fn panels(design: &Design, all: &Measured) -> Vec<Panel> {
    let across = design.across;
    let series = by_series(across, all);
    if series.is_empty() {
        return Vec::new();
    }
    let mut panels = Vec::new();
    if across == Across::Absent {
        panels.push(shares(across, &series, all));
    }
    for (name, rows) in &series {
        panels.push(breakdown(across, name, rows, all));
    }
    match across {
        Across::Device => panels.extend(series.iter().map(|(name, rows)| gain_bars(name, rows))),
        _ => panels.push(gain_lines(across, &series)),
    }
    panels
}

fn shares(across: Across, series: &[(String, Vec<&GainRow>)], all: &Measured) -> Panel {
    let line = |(name, rows): &(String, Vec<&GainRow>)| {
        let each = rows.iter().filter_map(|row| all.side(&row.setting, EACH));
        let points = each.map(|row| Point::new(across.value(&row.setting), hash_share(row))).collect();
        Series { name: if name.is_empty() { "a digest each".to_owned() } else { name.clone() }, points }
    };
    Panel {
        title: "time spent on hashing, a digest for each filter".into(),
        x: across.axis(),
        y: Axis::new("hashing", "%"),
        kind: Kind::Lines(series.iter().map(line).collect()),
    }
}

/// Draws a breakdown. Devices differ by powers of ten, so for them the total without sharing is 100.
fn breakdown(across: Across, name: &str, rows: &[&GainRow], all: &Measured) -> Panel {
    let relative = across == Across::Device;
    let group = |row: &&GainRow| {
        let whole = all.side(&row.setting, EACH).map_or(0.0, |each| each.ns_per_op);
        let scale = if relative && whole > 0.0 { 100.0 / whole } else { 1.0 };
        let bar = |(side, label): (&str, &str)| {
            all.side(&row.setting, side).map(|row| Bar {
                name: label.to_owned(),
                parts: parts(row).iter().map(|part| (part * scale).max(0.0)).collect(),
                spread: Some((row.min_ns * scale, row.max_ns * scale)),
            })
        };
        let bars = [(EACH, "a digest each"), (SHARED, "shared")].into_iter().filter_map(bar).collect();
        (across.category(&row.setting), bars)
    };
    Panel {
        title: titled("breakdown", name),
        x: across.axis(),
        y: if relative { Axis::new("time, 100 without sharing", "%") } else { Axis::new("get", "ns") },
        kind: Kind::Bars {
            parts: PARTS.iter().map(|&part| part.to_owned()).collect(),
            groups: rows.iter().map(group).collect(),
        },
    }
}

fn gain_lines(across: Across, series: &[(String, Vec<&GainRow>)]) -> Panel {
    let mut lines = Vec::new();
    for (name, rows) in series {
        let line = |label: &str, y: fn(&GainRow) -> f64, spread: bool| Series {
            name: if name.is_empty() { label.to_owned() } else { format!("{label}, {name}") },
            points: rows
                .iter()
                .map(|row| Point {
                    x: across.value(&row.setting),
                    y: y(row),
                    spread: spread.then_some((row.min_percent, row.max_percent)),
                })
                .collect(),
        };
        lines.push(line("measured", |row| row.gain_percent, true));
        lines.push(line("of digests", |row| row.digests_percent, false));
        lines.push(line("model", |row| row.model_percent, false));
        lines.push(line("model with rest", |row| row.model_with_rest_percent, false));
    }
    Panel {
        title: "gain".into(),
        x: across.axis(),
        y: Axis::new("time saved by sharing", "%"),
        kind: Kind::Lines(lines),
    }
}

fn gain_bars(name: &str, rows: &[&GainRow]) -> Panel {
    let bar =
        |name: &str, value: f64, spread| Bar { name: name.to_owned(), parts: vec![value.max(0.0)], spread };
    let group = |row: &&GainRow| {
        let spread = Some((row.min_percent.max(0.0), row.max_percent.max(0.0)));
        let bars = vec![
            bar("measured", row.gain_percent, spread),
            bar("of digests", row.digests_percent, None),
            bar("model with rest", row.model_with_rest_percent, None),
            bar("model", row.model_percent, None),
        ];
        (row.setting.device.clone(), bars)
    };
    Panel {
        title: titled("gain", name),
        x: Across::Device.axis(),
        y: Axis::new("time saved by sharing", "%"),
        kind: Kind::Bars { parts: vec!["gain".into()], groups: rows.iter().map(group).collect() },
    }
}

/// Formats a number with as many digits as it needs.
fn number(value: f64) -> String {
    match value.abs() {
        abs if abs >= 100.0 => {
            let rounded = report::grouped(abs.round() as u64);
            if value < 0.0 { format!("-{rounded}") } else { rounded }
        }
        abs if abs >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns both sides with their counters, the gains with predictions, and the devices not available.
pub(super) fn sheets(all: &Measured) -> Vec<Sheet> {
    let mut sides = Sheet::new(
        "Gets, a digest for each filter and shared",
        &[
            "<point",
            "<side",
            "bits/key",
            "ns/get",
            "least",
            "most",
            "hashing ns",
            "probing ns",
            "data ns",
            "rest ns",
            "digests",
            "filters asked",
            "false positives",
            "blocks",
            "T_H ns",
            "T_P ns",
            "T_D ns",
        ],
    );
    for row in &all.gets {
        let numbers = [
            row.ns_per_op,
            row.min_ns,
            row.max_ns,
            row.hash_ns,
            row.probe_ns,
            row.data_ns,
            row.rest_ns,
            row.digests_per_op,
            row.filters_per_op,
        ];
        let rare = [row.false_positives_per_op, row.blocks_per_op].map(|value| format!("{value:.4}"));
        let times = [row.digest_ns, row.filter_ns, row.read_ns];
        let first = all.side(&row.setting, EACH).map_or(0.0, |each| each.filter_bits_per_key);
        let memory = memory(row.filter_bits_per_key, first);
        let words = [row.setting.point.clone(), row.side.clone(), memory];
        let numbers = numbers.into_iter().map(number).chain(rare).chain(times.into_iter().map(number));
        sides.row(words.into_iter().chain(numbers));
    }
    let mut gains = Sheet::new(
        "Time saved by sharing, and the prediction of Equation 8 from the measured times",
        &[
            "<point",
            "<device",
            "gain %",
            "least",
            "most",
            "of digests %",
            "model %",
            "model with rest %",
            "of digests − model with rest",
        ],
    );
    for row in &all.gains {
        let device = if row.setting.emulated { "emulated" } else { "measured" };
        let numbers = [
            row.gain_percent,
            row.min_percent,
            row.max_percent,
            row.digests_percent,
            row.model_percent,
            row.model_with_rest_percent,
            row.digests_percent - row.model_with_rest_percent,
        ];
        let words = [row.setting.point.clone(), device.to_owned()];
        gains.row(words.into_iter().chain(numbers.map(|percent| format!("{percent:.1}"))));
    }
    let mut missing = Sheet::new("Not available", &["<point", "<device", "<why"]);
    all.missing.iter().for_each(|row| missing.row([row.point.clone(), row.device.clone(), row.why.clone()]));
    [sides, gains, missing].into_iter().filter(|sheet| !sheet.rows.is_empty()).collect()
}
