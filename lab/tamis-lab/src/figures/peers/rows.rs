//! Conversion of the comparison program's rows into a figure's.
//!
//! The program writes one row per round; here one row is the median of all rounds. Rows are read leniently, so that
//! versions of the program with more or fewer fields work as well. Unreadable lines, such as truncated ones, are
//! counted and noted; only a system without any row is an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::Row;
use crate::figures::peers::FROM;
use crate::figures::peers::program::{Comparison, System};
use crate::figures::rows::row;

/// The `kind` of rows with figures, and of those with text.
pub(super) const READ: &str = "read";
pub(super) const NOTE: &str = "note";

/// The fields read from a line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    conditions: Conditions,
    system: String,
    version: String,
    refused: Option<String>,
    figures: Figures,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    workload: String,
    keys: u64,
    key_bytes: u64,
    value_bytes: u64,
    threads: usize,
    cache_bytes: u64,
    filter_bits: u32,
    direct_io: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Figures {
    ops: u64,
    ns_per_op: f64,
    ops_per_second: f64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    cpu_ns_per_op: f64,
    read_bytes_per_op: f64,
    write_amplification: f64,
}

/// One system in one workload with one number of threads: the round of median throughput, and the spread of all. Of an
/// even number of rounds, the two in the middle, times and rates half-way between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PeerRow {
    pub(super) kind: String,
    pub(super) from: String,
    /// The system's name here.
    pub(super) side: String,
    /// The side that others are compared to: tamis in the same run.
    pub(super) reference: String,
    pub(super) version: String,
    /// The system's name in the program.
    pub(super) system: String,
    pub(super) workload: String,
    pub(super) threads: usize,
    pub(super) keys: u64,
    pub(super) key_bytes: u64,
    pub(super) value_bytes: u64,
    pub(super) cache_bytes: u64,
    pub(super) filter_bits: u32,
    pub(super) direct_io: bool,
    pub(super) ops: u64,
    pub(super) ns_per_op: f64,
    pub(super) ops_per_second: f64,
    pub(super) min_ops_per_second: f64,
    pub(super) max_ops_per_second: f64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p999_ns: u64,
    pub(super) cpu_ns_per_op: f64,
    pub(super) read_bytes_per_op: f64,
    pub(super) write_amplification: f64,
    pub(super) repeats: u32,
    /// The text of a note.
    pub(super) text: String,
}

impl PeerRow {
    fn note(side: &str, text: String) -> PeerRow {
        PeerRow { kind: NOTE.into(), from: FROM.1.into(), side: side.into(), text, ..PeerRow::default() }
    }

    /// Reports whether its figures can be compared.
    pub(super) fn is_sound(&self) -> bool {
        let numbers = [self.ops_per_second, self.min_ops_per_second, self.max_ops_per_second];
        self.kind == READ && !self.side.is_empty() && numbers.iter().all(|n| n.is_finite() && *n > 0.0)
    }
}

impl Line {
    fn read(line: &[u8]) -> Option<Line> {
        let line: Line = serde_json::from_slice(line).ok()?;
        let per_second = line.figures.ops_per_second;
        let measured = line.refused.is_some() || (per_second.is_finite() && per_second > 0.0);
        (measured && !line.system.is_empty() && !line.conditions.workload.is_empty()).then_some(line)
    }
}

/// Parses a file of rows; fails with a message if a requested system has none.
pub(super) fn of(bytes: &[u8], comparison: &Comparison) -> Result<Vec<Row>, String> {
    let lines: Vec<&[u8]> =
        bytes.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    let read: Vec<Line> = lines.iter().filter_map(|line| Line::read(line)).collect();
    let mut rows = Vec::new();
    if read.len() < lines.len() {
        let text = format!(
            "{} of {} rows could not be read and are omitted.",
            lines.len() - read.len(),
            lines.len()
        );
        rows.push(PeerRow::note("", text));
    }
    let reference = comparison.systems.first().map_or("", |system| &system.side);
    for system in &comparison.systems {
        let of: Vec<&Line> = read.iter().filter(|line| line.system == system.name).collect();
        if of.is_empty() {
            return Err(format!("it has no rows of {}", system.name));
        }
        rows.extend(of_system(&of, system, reference));
    }
    Ok(rows.iter().map(row).collect())
}

fn of_system(lines: &[&Line], system: &System, reference: &str) -> Vec<PeerRow> {
    let mut rows = Vec::new();
    let mut why: Vec<&str> = lines.iter().filter_map(|line| line.refused.as_deref()).collect();
    why.sort_unstable();
    why.dedup();
    rows.extend(why.into_iter().map(|why| PeerRow::note(&system.side, format!("{}: {why}", system.side))));
    let mut points: BTreeMap<(&str, usize), Vec<&Line>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.refused.is_none()) {
        points.entry((&line.conditions.workload, line.conditions.threads)).or_default().push(line);
    }
    for mut rounds in points.into_values() {
        rounds.sort_by(|a, b| a.figures.ops_per_second.total_cmp(&b.figures.ops_per_second));
        let (median, last) = (rounds[rounds.len() / 2], rounds.len() - 1);
        let (of, figures) = (&median.conditions, &median.figures);
        let lower = &rounds[(rounds.len() - 1) / 2].figures;
        rows.push(PeerRow {
            kind: READ.into(),
            from: FROM.1.into(),
            side: system.side.clone(),
            reference: reference.into(),
            version: median.version.clone(),
            system: system.name.clone(),
            workload: of.workload.clone(),
            threads: of.threads,
            keys: of.keys,
            key_bytes: of.key_bytes,
            value_bytes: of.value_bytes,
            cache_bytes: of.cache_bytes,
            filter_bits: of.filter_bits,
            direct_io: of.direct_io,
            ops: figures.ops,
            ns_per_op: figures.ns_per_op.midpoint(lower.ns_per_op),
            ops_per_second: figures.ops_per_second.midpoint(lower.ops_per_second),
            min_ops_per_second: rounds[0].figures.ops_per_second,
            max_ops_per_second: rounds[last].figures.ops_per_second,
            p50_ns: figures.p50_ns.midpoint(lower.p50_ns),
            p99_ns: figures.p99_ns.midpoint(lower.p99_ns),
            p999_ns: figures.p999_ns.midpoint(lower.p999_ns),
            cpu_ns_per_op: figures.cpu_ns_per_op.midpoint(lower.cpu_ns_per_op),
            read_bytes_per_op: figures.read_bytes_per_op,
            write_amplification: figures.write_amplification,
            repeats: u32::try_from(rounds.len()).unwrap_or(u32::MAX),
            text: String::new(),
        });
    }
    rows
}
