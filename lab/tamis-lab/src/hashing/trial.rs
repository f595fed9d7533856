//! Made-up rows of every figure: gains and parts of a get as the paper has them, and the same turned round.

use super::HashFigure;
use super::design::Point;
use super::rows::{EACH, GainRow, GetRow, SHARED, Setting, to_row};
use crate::figures::trial::Trial;
use crate::figures::{Custom, Row, Scale};

/// Returns the trial of a figure.
pub(super) fn of(figure: &HashFigure) -> Trial {
    Trial { good: rows(figure, false), bad: vec![rows(figure, true)] }
}

/// Returns the rows of all points; turned round, they lose what they gained and each side has the other's counters.
fn rows(figure: &HashFigure, turned: bool) -> Vec<Row> {
    let points = figure.design.points(Scale::Default, &Custom::default()).unwrap();
    let rows = points.iter().flat_map(|point| {
        let setting = setting(point);
        let share = if turned { 100.0 - share(point) } else { share(point) };
        let get = |side: &str, hash_ns: f64, digests_per_op: f64| {
            to_row(&GetRow {
                kind: "get".into(),
                setting: setting.clone(),
                side: side.into(),
                ns_per_op: 1000.0,
                min_ns: 1000.0,
                max_ns: 1000.0,
                hash_ns,
                rest_ns: 1000.0 - hash_ns,
                digests_per_op,
                filters_per_op: 1.0,
                false_positives_per_op: if (point.skew > 0.0) != turned { 0.0008 } else { 0.008 },
                ..GetRow::default()
            })
        };
        let levels = point.shape.levels as f64;
        let [each, shared] = match turned {
            false => [get(EACH, 10.0 * share, levels), get(SHARED, 2.0 * share, 1.0)],
            true => [get(EACH, 10.0 * share, 1.0), get(SHARED, 12.0 * share, levels)],
        };
        let gain = if turned { -gain(figure.about.name, point) } else { gain(figure.about.name, point) };
        let gain = GainRow {
            kind: "gain".into(),
            setting: setting.clone(),
            gain_percent: gain,
            min_percent: gain - 0.1,
            max_percent: gain + 0.1,
            digests_percent: gain,
            digests_min_percent: gain - 0.1,
            digests_max_percent: gain + 0.1,
            ..GainRow::default()
        };
        [each, shared, to_row(&gain)]
    });
    rows.collect()
}

fn setting(point: &Point) -> Setting {
    let shape = &point.shape;
    Setting {
        point: point.name.clone(),
        device: point.device.clone(),
        emulated: true,
        absent_percent: point.absent as f64,
        skew: point.skew,
        key_bytes: shape.key_bytes as u64,
        bits_per_key: shape.bits,
        shape: shape.policy().into(),
        levels: shape.levels as u64,
        size_ratio: shape.size_ratio,
        ..Setting::default()
    }
}

/// The faster a device, the larger is its number.
fn speed(device: &str) -> f64 {
    match device {
        "ssd" => 0.0,
        "pcie-ssd" => 1.0,
        "spdk" => 2.0,
        _ => 3.0,
    }
}

/// Returns the percentage of a get that is hashing.
fn share(point: &Point) -> f64 {
    let alpha = point.absent as f64 / 100.0;
    let tiering = if point.shape.tiering { 3.0 } else { 0.0 };
    9.0 + speed(&point.device) * 6.0 + alpha * 62.0 + tiering
}

/// Returns the percentage of a get that sharing saves.
fn gain(figure: &str, point: &Point) -> f64 {
    let alpha = point.absent as f64 / 100.0;
    let long = ((point.shape.key_bytes as f64 / 8.0).log2() / 7.0).max(0.0);
    let fast = speed(&point.device) * 15.0;
    match figure {
        "hash-fig8b" => 10.0 + point.shape.levels as f64,
        "hash-fig10" if point.skew > 0.0 => 0.5 + 65.0 * long,
        "hash-fig8a" | "hash-fig9" | "hash-fig10" => 0.5 + 22.0 * long,
        "hash-fig12" => fast + point.shape.bits,
        "hash-fig13" => 17.0 * alpha,
        "hash-fig14" => 10.0 + 35.0 * alpha,
        _ => 3.0 + fast,
    }
}
