//! Views of rows: panels and tables. The first panel of each figure has all of its times.

use tamis_bench::report::{bytes, grouped};
use tamis_bench::workload::Workload;

use super::measure::{PUT, READS};
use super::rows::{LoadRow, OpRow};
use super::verdicts::{self, memory_of_first};
use crate::figures::compare::memory;
use crate::figures::compose::{distinct, lines};
use crate::figures::{Axis, Kind, Panel, Point, Series, Sheet, View};

/// Returns the words for an operation.
pub(super) fn name_of(op: Workload) -> &'static str {
    match op {
        Workload::GetEmpty => "get, absent key",
        Workload::GetExisting => "get, existing key",
        Workload::Overwrite => "put",
        other => other.name(),
    }
}

/// Formats a counter.
pub(super) fn number(value: f64) -> String {
    if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.3}") }
}

fn words(row: &OpRow) -> String {
    let named = READS.into_iter().chain([PUT]).find(|op| op.name() == row.measurement.workload);
    named.map_or_else(|| row.measurement.workload.clone(), |op| name_of(op).to_owned())
}

fn time_axis() -> Axis {
    Axis::new("time of an operation", "ns").log()
}

fn timed(x: f64, row: &OpRow) -> Point {
    Point { spread: Some((row.min_ns, row.max_ns)), ..Point::new(x, row.measurement.ns_per_op) }
}

pub(super) fn keys(ops: &[OpRow], loads: &[LoadRow]) -> View {
    let x = || Axis::new("keys", "").log();
    let at = |row: &OpRow| row.measurement.keys as f64;
    let points = ops.iter().map(|row| (words(row), timed(at(row), row)));
    let mut times = lines("Time of an operation by the number of keys", x(), time_axis(), false, points);
    if let Some(Panel { kind: Kind::Lines(series), .. }) = &mut times {
        let marks = marks(ops, series);
        series.extend(marks);
    }
    let counters = ops.iter().flat_map(|row| {
        let m = &row.measurement;
        let point = |name: &str, y| (name.to_owned(), Point::new(at(row), y));
        match READS.into_iter().find(|op| op.name() == m.workload) {
            None => Vec::new(),
            Some(Workload::GetEmpty) => vec![
                point("runs", m.runs as f64),
                point("filters asked for an absent key", m.filter_probes_per_op),
                point("blocks read for an absent key", m.block_reads_per_op),
            ],
            Some(Workload::GetExisting) => {
                vec![point("blocks read for an existing key", m.block_reads_per_op)]
            }
            _ => vec![point("blocks read by a seek", m.block_reads_per_op)],
        }
    });
    let counters = lines(
        "Runs, filters and blocks of an operation",
        x(),
        Axis::new("number for each operation", ""),
        false,
        counters,
    );
    let loaded = loads.iter().flat_map(|row| {
        let (flush, all) = (row.put_ns + row.flush_ns, row.put_ns + row.flush_ns + row.compaction_ns);
        [("call", row.put_ns), ("with flush", flush), ("with flush and compaction", all)]
            .map(|(name, ns)| (name.to_owned(), Point::new(row.keys as f64, ns)))
    });
    let loaded =
        lines("Loading, one put after the other", x(), Axis::new("time of a put", "ns"), false, loaded);
    View {
        panels: [times, counters, loaded].into_iter().flatten().collect(),
        sheets: sheets(ops, loads).into_iter().chain([caches(ops)]).filter(has_rows).collect(),
        verdicts: verdicts::keys(ops),
    }
}

pub(super) fn runs(ops: &[OpRow], loads: &[LoadRow]) -> View {
    let x = || Axis::new("runs", "").log();
    let at = |row: &OpRow| row.runs_asked as f64;
    // A legend has five names at most. Gets of existing keys are the same with every filter: the second panel has them.
    let first = ops.first().map(|row| &row.side);
    let shown =
        |row: &&OpRow| row.measurement.workload != Workload::GetExisting.name() || Some(&row.side) == first;
    let all =
        ops.iter().filter(shown).map(|row| (format!("{}, {}", words(row), row.side), timed(at(row), row)));
    let all = lines("Time of an operation by the number of runs", x(), time_axis(), false, all);
    let of = |op: Workload| {
        let of = ops.iter().filter(|row| row.measurement.workload == op.name());
        let points = of.map(|row| (row.side.clone(), timed(at(row), row)));
        lines(format!("{}, by runs", name_of(op)), x(), time_axis(), false, points)
    };
    View {
        panels: [all].into_iter().chain(READS.map(of)).flatten().collect(),
        sheets: sheets(ops, loads).into_iter().filter(has_rows).collect(),
        verdicts: verdicts::runs(ops),
    }
}

fn has_rows(sheet: &Sheet) -> bool {
    !sheet.rows.is_empty()
}

/// The numbers of keys from which on something is larger than a cache of the processor.
struct Outgrown {
    cache: &'static str,
    bytes: u64,
    /// Filters with indexes, which every get reads.
    lookup_keys: f64,
    tables_keys: f64,
}

/// Returns the known caches; sizes per key are those of the largest point.
fn outgrown(ops: &[OpRow]) -> Vec<Outgrown> {
    let Some(largest) = ops.last() else { return Vec::new() };
    let per_key = largest.table_bytes as f64 / largest.measurement.keys as f64;
    [("L2", largest.l2_bytes), ("L3", largest.l3_bytes)]
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(cache, bytes)| Outgrown {
            cache,
            bytes,
            lookup_keys: bytes as f64 / largest.lookup_bytes_per_key(),
            tables_keys: bytes as f64 / per_key,
        })
        .collect()
}

/// Returns vertical lines where filters with indexes (`filters`, for short), or tables, outgrow a cache, if that is among the points. They are
/// computed from sizes, which the prefix `model` of their names says.
fn marks(ops: &[OpRow], lines: &[Series]) -> Vec<Series> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let ends = |point: &Point| point.spread.unwrap_or((point.y, point.y));
    let low = points().map(|point| ends(point).0).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| ends(point).1).fold(0.0, f64::max);
    let (first, last) =
        points().fold((f64::INFINITY, 0.0f64), |(a, b), point| (a.min(point.x), b.max(point.x)));
    let mark = |what: &str, of: &Outgrown, keys: f64| {
        let name = format!("model: {what} > {}", of.cache);
        let points = vec![Point::new(keys, low), Point::new(keys, high)];
        (first < keys && keys < last && low < high).then_some(Series { name, points })
    };
    let caches = outgrown(ops);
    let lookups = caches.iter().filter_map(|of| mark("filters", of, of.lookup_keys));
    let tables = caches.iter().filter_map(|of| mark("tables", of, of.tables_keys));
    lookups.chain(tables).collect()
}

fn caches(ops: &[OpRow]) -> Sheet {
    let columns = ["<cache", "size", "filters and indexes fill it at, keys", "tables at, keys"];
    let mut sheet = Sheet::new("The processor's caches", &columns);
    let keys = |keys: f64| {
        if keys.is_finite() { grouped(keys.round() as u64) } else { "-".to_owned() }
    };
    for of in outgrown(ops) {
        sheet.row([of.cache.to_owned(), bytes(of.bytes), keys(of.lookup_keys), keys(of.tables_keys)]);
    }
    sheet
}

/// Returns the tables of operations, trees and loads.
fn sheets(ops: &[OpRow], loads: &[LoadRow]) -> [Sheet; 3] {
    let ns = |ns: f64| grouped(ns.round() as u64);
    let runs_of = |runs: u64| if runs == 0 { "-".to_owned() } else { runs.to_string() };
    let mut times = Sheet::new(
        "Operations",
        &[
            "keys",
            "runs",
            "<filter",
            "<operation",
            "ns",
            "least",
            "most",
            "mean",
            "p50",
            "p99",
            "filters asked",
            "false positives",
            "blocks read",
            "runs searched",
            "settled, ns a put",
        ],
    );
    for row in ops {
        let m = &row.measurement;
        times.row([
            grouped(m.keys),
            m.runs.to_string(),
            row.side.clone(),
            words(row),
            ns(m.ns_per_op),
            ns(row.min_ns),
            ns(row.max_ns),
            ns(row.mean_ns),
            grouped(m.p50_ns),
            grouped(m.p99_ns),
            number(m.filter_probes_per_op),
            format!("{:.4}", m.false_positives_per_op),
            number(m.block_reads_per_op),
            number(m.runs_searched_per_op + m.seeks_per_op),
            if m.workload == PUT.name() { ns(row.settle_ns_per_op) } else { String::new() },
        ]);
    }
    let mut trees = Sheet::new(
        "Trees and memory",
        &[
            "keys",
            "runs asked",
            "<filter",
            "<runs by level",
            "bits asked",
            "filter bits/key",
            "index bits/key",
            "tables",
            "database",
            "process",
            "not files",
            "<fits the page cache",
        ],
    );
    let place = |row: &OpRow| (row.side.clone(), row.measurement.keys, row.runs_asked);
    for at in distinct(ops.iter().map(place)) {
        let Some(row) = ops.iter().find(|row| place(row) == at) else { continue };
        trees.row([
            grouped(row.measurement.keys),
            runs_of(row.runs_asked),
            row.side.clone(),
            row.shape.clone(),
            format!("{:.2}", row.bits_asked),
            memory(row.memory_bits_per_key, memory_of_first(ops, row)),
            format!("{:.2}", row.index_bits_per_key),
            bytes(row.table_bytes),
            bytes(row.database_bytes),
            bytes(row.resident_bytes),
            bytes(row.anonymous_bytes),
            row.fits_page_cache.map_or("unknown", |fits| if fits { "yes" } else { "no" }).to_owned(),
        ]);
    }
    let mut load = Sheet::new(
        "Loading, per put",
        &[
            "keys",
            "runs asked",
            "<filter",
            "flushes",
            "call ns",
            "flush ns",
            "compaction ns",
            "bytes written per byte",
        ],
    );
    for row in loads {
        load.row([
            grouped(row.keys),
            runs_of(row.runs_asked),
            row.side.clone(),
            row.flushes.to_string(),
            ns(row.put_ns),
            ns(row.flush_ns),
            ns(row.compaction_ns),
            format!("{:.2}", row.write_amplification),
        ]);
    }
    [times, trees, load]
}
