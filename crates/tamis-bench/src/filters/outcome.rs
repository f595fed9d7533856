//! What an experiment found: rows, tables for people, and comma-separated text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::filters::catalogue::{Experiment, Metric};
use crate::measure::Measurement;
use crate::report::{Align, Table, bytes, csv, grouped, json_lines, mean};

/// The side that the others are held against.
const OURS: &str = "grf";

/// One database as it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadRow {
    /// `load`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub filter: String,
    /// What varies: `10 bits`, `2 leveling`; empty if nothing does.
    pub point: String,
    /// Keys put before the first measurement.
    pub keys: u64,
    /// Sorted runs then.
    pub runs: usize,
    /// Sorted runs after the last measurement.
    pub runs_at_end: usize,
    /// Bits a key that the filter was given; 0 without a filter.
    pub bits_asked: f64,
    /// Memory of the filters.
    pub filter_bytes: u64,
    /// The same by entries, in bits.
    pub filter_bits_per_key: f64,
    /// Of loading, flushes and the wait for compaction included.
    pub load_ns_per_key: f64,
    /// Half of the puts took at most so long.
    pub put_p50_ns: u64,
    /// 99 of 100 puts took at most so long.
    pub put_p99_ns: u64,
    /// Half of the flushes took at most so long.
    pub flush_p50_ns: u64,
    /// 99 of 100 flushes took at most so long.
    pub flush_p99_ns: u64,
    /// Bytes written by bytes given, log included, before the first measurement.
    pub load_write_amplification: f64,
    /// The same after the last measurement.
    pub write_amplification: f64,
    /// Whether a filter was asked for, and none is in memory: the figures are those of no filter.
    pub without_filter: bool,
}

/// Memory is told to be another than asked for from this share on.
const TOLERANCE: f64 = 0.15;

impl LoadRow {
    /// Whether a filter takes clearly more or less memory than it was given.
    fn spends_otherwise(&self) -> bool {
        !self.without_filter
            && self.bits_asked > 0.0
            && (self.filter_bits_per_key / self.bits_asked - 1.0).abs() > TOLERANCE
    }
}

/// One side's median of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadRow {
    /// `read`.
    pub kind: String,
    /// The side's name.
    pub side: String,
    /// See [`LoadRow::point`].
    pub point: String,
    /// The fastest round.
    pub min_ns: f64,
    /// The slowest round.
    pub max_ns: f64,
    /// Of an empty get that touches no block, the part that filters take; `None` where it was not measured.
    pub filter_ns: Option<f64>,
    /// The round of median time, with its counters.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// All rows of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    experiment: Experiment,
    setting: String,
    /// Databases, in the order of loading.
    pub loads: Vec<LoadRow>,
    /// Figures, by database.
    pub reads: Vec<ReadRow>,
}

impl Outcome {
    pub(super) fn new(experiment: &Experiment, setting: &str) -> Outcome {
        Outcome {
            experiment: experiment.clone(),
            setting: setting.to_owned(),
            loads: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// A JSON object for each row, databases first, each on a line.
    pub fn to_json_lines(&self) -> String {
        json_lines(&self.objects())
    }

    /// The same rows as comma-separated values under one header; what a row does not have is empty.
    pub fn to_csv(&self) -> String {
        csv(&self.objects())
    }

    fn objects(&self) -> Vec<Value> {
        let loads = self.loads.iter().map(serde_json::to_value);
        let reads = self.reads.iter().map(serde_json::to_value);
        loads.chain(reads).map(|row| row.expect("a row has nothing that JSON cannot say")).collect()
    }

    /// Everything as text for people: what was done, the databases, a table for each workload, and how GRF stands.
    pub fn to_text(&self) -> String {
        let Experiment { name, title, paper, differs, .. } = &self.experiment;
        let mut out = format!("{name}: {title}\n{}\n\nThe paper: {paper}\n", self.setting);
        if !differs.is_empty() {
            out += &format!("Other than there: {differs}\n");
        }
        out += "\nDatabases, loaded alike up to just before the merge into the last level\n\n";
        out += &self.load_table();
        for row in self.loads.iter().filter(|row| row.without_filter) {
            let at = if row.point.is_empty() { String::new() } else { format!(" ({})", row.point) };
            out += &format!(
                "{}{at} keeps no filter in memory: its figures are those of no filter.\n",
                row.filter
            );
        }
        for row in self.loads.iter().filter(|row| row.spends_otherwise()) {
            out += &format!(
                "{}{} takes {:.1} bits a key where {} were asked for: not the same memory as the others.\n",
                row.filter,
                if row.point.is_empty() { String::new() } else { format!(" ({})", row.point) },
                row.filter_bits_per_key,
                row.bits_asked
            );
        }
        for workload in self.workloads() {
            out += &format!("\n{workload}: medians of the rounds\n\n");
            out += &self.read_table(workload);
            for line in self.standing(workload) {
                out += &line;
                out.push('\n');
            }
        }
        out
    }

    fn workloads(&self) -> Vec<&str> {
        let mut seen: Vec<&str> = Vec::new();
        for row in &self.reads {
            if !seen.contains(&row.measurement.workload.as_str()) {
                seen.push(&row.measurement.workload);
            }
        }
        seen
    }

    fn load_table(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new(&[
            ("at", Left),
            ("filter", Left),
            ("runs", Right),
            ("runs at\nthe end", Right),
            ("filter\nmemory", Right),
            ("bits\n/key", Right),
            ("load\nns/key", Right),
            ("put p50\nns", Right),
            ("put p99\nns", Right),
            ("flush p50\nµs", Right),
            ("flush p99\nµs", Right),
            ("write amplif.\nof the load", Right),
            ("of all", Right),
        ]);
        for row in &self.loads {
            table.row([
                row.point.clone(),
                row.filter.clone(),
                row.runs.to_string(),
                row.runs_at_end.to_string(),
                bytes(row.filter_bytes),
                mean(row.filter_bits_per_key),
                grouped(row.load_ns_per_key.round() as u64),
                grouped(row.put_p50_ns),
                grouped(row.put_p99_ns),
                grouped(row.flush_p50_ns / 1000),
                grouped(row.flush_p99_ns / 1000),
                mean(row.load_write_amplification),
                mean(row.write_amplification),
            ]);
        }
        table.render()
    }

    fn read_table(&self, workload: &str) -> String {
        use Align::{Left, Right};
        let mut table = Table::new(&[
            ("at", Left),
            ("filter", Left),
            ("threads", Right),
            ("ns/op", Right),
            ("fastest–slowest\nround", Right),
            ("filter\nns", Right),
            ("p99\nns", Right),
            ("thousand\nops/s", Right),
            ("digests\n/op", Right),
            ("filters\nprobed/op", Right),
            ("runs\nsought/op", Right),
            ("false\npositives/op", Right),
            ("blocks\nread/op", Right),
            ("reads from\ndisk/op", Right),
        ]);
        let ns = |ns: f64| grouped(ns.round() as u64);
        for row in self.rows_of(workload) {
            let m = &row.measurement;
            table.row([
                row.point.clone(),
                row.side.clone(),
                m.threads.to_string(),
                ns(m.ns_per_op),
                format!("{}–{}", ns(row.min_ns), ns(row.max_ns)),
                row.filter_ns.map_or_else(|| "-".to_owned(), ns),
                grouped(m.p99_ns),
                mean(m.wall_ops_per_second / 1000.0),
                mean(m.digests_per_op),
                mean(m.filter_probes_per_op),
                mean(m.runs_searched_per_op + m.seeks_per_op),
                mean(m.false_positives_per_op),
                mean(m.block_reads_per_op),
                mean(m.io_reads_per_op),
            ]);
        }
        table.render()
    }

    fn rows_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = &'a ReadRow> {
        self.reads.iter().filter(move |row| row.measurement.workload == workload)
    }

    /// How GRF stands to the best of those that are no GRF, for each point and number of threads.
    fn standing(&self, workload: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for ours in self.rows_of(workload).filter(|row| row.side == OURS) {
            let threads = ours.measurement.threads;
            let others = self.rows_of(workload).filter(|row| {
                !row.side.starts_with(OURS) && row.point == ours.point && row.measurement.threads == threads
            });
            let speed = |row: &ReadRow| match self.experiment.metric {
                Metric::Time => 1.0 / row.measurement.ns_per_op.max(f64::MIN_POSITIVE),
                Metric::Throughput => row.measurement.wall_ops_per_second,
            };
            let Some(best) = others.max_by(|a, b| speed(a).total_cmp(&speed(b))) else { continue };
            let mut at = ours.point.clone();
            if self.reads.iter().any(|row| row.measurement.threads != threads) {
                at = format!("{at}{}{threads} threads", if at.is_empty() { "" } else { ", " });
            }
            let at = if at.is_empty() { at } else { format!("{at}: ") };
            let without = self.loads.iter().any(|row| {
                row.without_filter
                    && row.point == ours.point
                    && (row.filter == OURS || row.filter == best.side)
            });
            let warn = if without { " (one of them without its filter: says nothing)" } else { "" };
            let ratio = speed(ours) / speed(best);
            lines.push(match self.experiment.metric {
                Metric::Time => format!(
                    "{at}grf takes {:.2} times as long as the best other, {}{warn}",
                    1.0 / ratio,
                    best.side
                ),
                Metric::Throughput => {
                    format!("{at}grf does {ratio:.2} times as many as the best other, {}{warn}", best.side)
                }
            });
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let experiment: Experiment = "grf-fig10".parse().unwrap();
        let mut outcome = Outcome::new(&experiment, "setting");
        for (side, ns, bits) in
            [("grf", 50.0, 10.1), ("monkey", 200.0, 14.0), ("chucky", 100.0, 10.0), ("none", 900.0, 0.0)]
        {
            outcome.loads.push(LoadRow {
                filter: side.into(),
                filter_bits_per_key: bits,
                bits_asked: if side == "none" { 0.0 } else { 10.0 },
                ..LoadRow::default()
            });
            let measurement = Measurement {
                workload: "get-empty".into(),
                ns_per_op: ns,
                wall_ops_per_second: 1e9 / ns,
                threads: 1,
                ..Measurement::default()
            };
            outcome.reads.push(ReadRow { side: side.into(), measurement, ..ReadRow::default() });
        }
        outcome
    }

    /// SNARF once looked good at "10 bits" with 14: small tables have dear filters.
    #[test]
    fn a_filter_that_takes_other_memory_than_asked_is_named() {
        let text = outcome().to_text();
        assert!(text.contains("monkey takes 14.0 bits a key where 10 were asked for"), "{text}");
        for fair in ["grf takes 10", "chucky takes 10", "none takes"] {
            assert!(!text.contains(fair), "{fair} in {text}");
        }
    }

    #[test]
    fn grf_is_held_against_the_best_other_by_what_counts() {
        let mut outcome = outcome();
        let line = "grf takes 0.50 times as long as the best other, chucky\n";
        assert!(outcome.to_text().contains(line), "{}", outcome.to_text());
        outcome.loads[0].without_filter = true;
        let text = outcome.to_text();
        assert!(text.contains("chucky (one of them without its filter: says nothing)"), "{text}");
        assert!(text.contains("grf keeps no filter in memory"), "{text}");
        outcome.experiment.metric = Metric::Throughput;
        assert!(outcome.to_text().contains("grf does 2.00 times as many as the best other, chucky"));
    }

    #[test]
    fn comma_separated_rows_have_as_many_cells_as_the_header() {
        let mut outcome = outcome();
        outcome.reads[0].filter_ns = Some(1.5);
        outcome.reads[0].measurement.filter = "a,b".into();
        let csv = outcome.to_csv();
        assert!(csv.contains("\"a,b\""));
        let columns = csv.lines().next().unwrap().split(',').count();
        assert!(csv.replace("\"a,b\"", "ab").lines().all(|line| line.split(',').count() == columns), "{csv}");
    }
}
