//! What an experiment found: rows, tables for people, and comma-separated text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::elastic::catalogue::{ElasticExperiment, Kind};
use crate::elastic::database::LoadRow;
use crate::measure::Measurement;
use crate::report::{Align, Table, bytes, csv, grouped, json_lines, mean};

/// Memory is told to be another than asked for from this share on.
const TOLERANCE: f64 = 0.15;

/// One side at one point of a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadRow {
    /// `read`.
    pub kind: String,
    /// The side's name.
    pub side: String,
    /// What varies; empty if nothing does.
    pub point: String,
    /// Zipf's exponent.
    pub skew: f64,
    /// Absent keys among those asked for, in percent.
    pub absent_percent: u64,
    /// Keys in a neighbourhood.
    pub locality: u64,
    /// Unmeasured gets before the first round.
    pub warmup: u64,
    /// The fastest round.
    pub min_ns: f64,
    /// The slowest round.
    pub max_ns: f64,
    /// Runs searched in vain, mean of the rounds; `None` for mixes that write.
    pub in_vain_per_op: Option<f64>,
    /// The same in the first round.
    pub in_vain_first: Option<f64>,
    /// The same in the last round.
    pub in_vain_last: Option<f64>,
    /// Data blocks touched, mean of the rounds.
    pub blocks_per_op: f64,
    /// Filters that said "maybe" of a key that was not there, mean of the rounds.
    pub false_positives_mean: f64,
    /// Reads that loaded units, mean of the rounds.
    pub load_reads_per_op: f64,
    /// Whether filter memory follows the heat.
    pub elastic: bool,
    /// Whether a filter was asked for, and none is in memory at the end.
    pub without_filter: bool,
    /// Bytes of filters in memory at the end.
    pub filter_memory: u64,
    /// The same by entries, in bits.
    pub memory_bits_per_key: f64,
    /// Bits a key that the filters may take.
    pub bits_asked: f64,
    /// Elastic filters: what is in memory beside the units.
    pub index_bytes: u64,
    /// Their segments.
    pub segments: u64,
    /// Segments with no unit in memory, with one and so on: `10/20/3/0/0/0/1`.
    pub by_units: String,
    /// Segments that have expired.
    pub expired: u64,
    /// The life time in gets.
    pub life_time: u64,
    /// One get of so many is counted.
    pub sampling: u64,
    /// E\[Extra_IO\] as the engine reckons.
    pub expected_extra_reads: f64,
    /// Units that others took the place of, since opening.
    pub evictions: u64,
    /// Times that nothing had expired to make room.
    pub refused: u64,
    /// Units that were asked for and did not come into use: unreadable, or no room when they came.
    pub failed_loads: u64,
    /// The round of median time, with its counters.
    #[serde(flatten)]
    pub measurement: Measurement,
}

impl ReadRow {
    fn spends_otherwise(&self) -> bool {
        // An elastic filter may well need less than it is given.
        let share = self.memory_bits_per_key / self.bits_asked - 1.0;
        self.bits_asked > 0.0 && !self.without_filter && share > if self.elastic { 0.02 } else { TOLERANCE }
    }
}

/// One window of a shift.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowRow {
    /// `window`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// What varies.
    pub point: String,
    /// Gets up to the window's end.
    pub gets: u64,
    /// Whether the hot keys have moved.
    pub moved: bool,
    /// Runs searched in vain.
    pub in_vain_per_get: f64,
    /// Data blocks touched.
    pub blocks_per_get: f64,
    /// Reads that loaded units.
    pub load_reads_per_get: f64,
    /// Mean nanoseconds.
    pub ns_per_get: f64,
}

/// What a shift did to one side, in reads in vain a get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShiftRow {
    /// `shift`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// What varies.
    pub point: String,
    /// Steady state before.
    pub before: f64,
    /// The first window after.
    pub first: f64,
    /// Steady state at the end.
    pub end: f64,
    /// Gets until nine tenths of the way from `first` to `end` are gone; `None` if there was none to go.
    pub gets_to_recover: Option<u64>,
}

/// How one table was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableRow {
    /// `table`.
    pub kind: String,
    /// The experiment.
    pub experiment: String,
    /// The side's name.
    pub side: String,
    /// What varies.
    pub point: String,
    /// The level.
    pub level: usize,
    /// The run's id.
    pub run: u64,
    /// The table's number.
    pub table: u64,
    /// How often a get asked it.
    pub asked_per_get: f64,
    /// Of so many gets.
    pub gets: u64,
    /// (Most − least) / mean over 64 parts of its keys.
    pub spread: f64,
}

/// All rows of an experiment.
#[derive(Clone, Debug)]
pub struct ElasticOutcome {
    experiment: ElasticExperiment,
    setting: String,
    /// Databases, each once.
    pub loads: Vec<LoadRow>,
    /// Figures in rounds.
    pub reads: Vec<ReadRow>,
    /// Windows of shifts.
    pub windows: Vec<WindowRow>,
    /// What shifts did.
    pub shifts: Vec<ShiftRow>,
    /// Tables.
    pub tables: Vec<TableRow>,
}

impl ElasticOutcome {
    pub(super) fn new(experiment: &ElasticExperiment, setting: &str) -> ElasticOutcome {
        ElasticOutcome {
            experiment: experiment.clone(),
            setting: setting.to_owned(),
            loads: Vec::new(),
            reads: Vec::new(),
            windows: Vec::new(),
            shifts: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Keeps a base's row, unless it is there.
    pub(super) fn add_load(&mut self, load: LoadRow) {
        let same = |row: &&LoadRow| row.filter == load.filter && row.point == load.point;
        if !self.loads.iter().any(|row| same(&row)) {
            self.loads.push(load);
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
        fn values<T: Serialize>(rows: &[T]) -> impl Iterator<Item = Value> {
            rows.iter().map(|row| serde_json::to_value(row).expect("a row has nothing that JSON cannot say"))
        }
        let rounds = values(&self.loads).chain(values(&self.reads));
        rounds.chain(values(&self.windows)).chain(values(&self.shifts)).chain(values(&self.tables)).collect()
    }

    /// Everything as text for people: what was done, the databases, the figures, and how sides stand to each other.
    pub fn to_text(&self) -> String {
        let ElasticExperiment { name, title, paper, differs, .. } = &self.experiment;
        let mut out = format!("{name}: {title}\n{}\n\nThe paper: {paper}\n", self.setting);
        if !differs.is_empty() {
            out += &format!("Other than there: {differs}\n");
        }
        out += "\nDatabases, loaded alike\n\n";
        out += &self.load_table();
        for workload in self.workloads() {
            out += &format!("\n{workload}: counters are means of the rounds, times medians\n\n");
            out += &self.read_table(&workload);
            self.warnings(&workload).iter().chain(&self.standing(&workload)).for_each(|line| {
                out += line;
                out.push('\n');
            });
        }
        if !self.windows.is_empty() {
            out += "\nRuns searched in vain for each get, by windows\n\n";
            out += &self.window_table();
            self.shift_lines().iter().for_each(|line| out += &format!("{line}\n"));
        }
        if !self.tables.is_empty() {
            out += match self.experiment.kind {
                Kind::RegionSkew => "\n(Most − least) / mean over 64 parts of each table, by level\n\n",
                _ => "\nHow often a table is asked for each thousand gets, by level\n\n",
            };
            out += &self.skew_table();
        }
        out
    }

    fn workloads(&self) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        for row in &self.reads {
            if !seen.contains(&row.measurement.workload) {
                seen.push(row.measurement.workload.clone());
            }
        }
        seen
    }

    fn load_table(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new(&[
            ("at", Left),
            ("filter", Left),
            ("keys", Right),
            ("runs by\nlevel", Left),
            ("tables", Right),
            ("bytes", Right),
            ("load\nns/key", Right),
            ("fastest–slowest\nload", Right),
            ("put p99\nns", Right),
            ("write\namplif.", Right),
            ("", Left),
        ]);
        for row in &self.loads {
            table.row([
                row.point.clone(),
                row.filter.clone(),
                grouped(row.keys),
                row.runs.clone(),
                row.tables.to_string(),
                bytes(row.table_bytes),
                ns(row.load_ns_per_key),
                format!("{}–{}", ns(row.min_ns_per_key), ns(row.max_ns_per_key)),
                grouped(row.put_p99_ns),
                mean(row.write_amplification),
                if row.reused { "loaded before".into() } else { String::new() },
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
            ("in vain\n/op", Right),
            ("first–last\nround", Right),
            ("of the\nfixed", Right),
            ("false\npositives/op", Right),
            ("blocks\nread/op", Right),
            ("of the\nfixed", Right),
            ("unit loads\n/block read", Right),
            ("ns/op", Right),
            ("fastest–slowest\nround", Right),
            ("p50\nns", Right),
            ("p99\nns", Right),
            ("thousand\nops/s", Right),
            ("filter\nmemory", Right),
            ("bits\n/key", Right),
            ("E", Right),
            ("segments by units", Left),
        ]);
        let option = |number: Option<f64>| number.map_or_else(|| "-".into(), mean);
        for row in self.rows_of(workload) {
            let m = &row.measurement;
            let fixed = self.fixed_for(row).filter(|fixed| !std::ptr::eq(*fixed, row));
            let share = |part: Option<f64>, of: Option<f64>| match (part, of) {
                (Some(part), Some(of)) if of > 0.0 => percent(part / of),
                _ => "-".into(),
            };
            table.row([
                row.point.clone(),
                row.side.clone(),
                m.threads.to_string(),
                option(row.in_vain_per_op),
                format!("{}–{}", option(row.in_vain_first), option(row.in_vain_last)),
                share(row.in_vain_per_op, fixed.and_then(|fixed| fixed.in_vain_per_op)),
                mean(row.false_positives_mean),
                mean(row.blocks_per_op),
                share(Some(row.blocks_per_op), fixed.map(|fixed| fixed.blocks_per_op)),
                if row.elastic {
                    share(Some(row.load_reads_per_op), Some(row.blocks_per_op))
                } else {
                    "-".into()
                },
                ns(m.ns_per_op),
                format!("{}–{}", ns(row.min_ns), ns(row.max_ns)),
                grouped(m.p50_ns),
                grouped(m.p99_ns),
                mean(m.wall_ops_per_second / 1000.0),
                bytes(row.filter_memory),
                mean(row.memory_bits_per_key),
                if row.elastic { mean(row.expected_extra_reads) } else { "-".into() },
                if row.elastic { row.by_units.clone() } else { "-".into() },
            ]);
        }
        table.render()
    }

    fn rows_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = &'a ReadRow> {
        self.reads.iter().filter(move |row| row.measurement.workload == workload)
    }

    /// The fixed filter that a row is held against: the first side that is not elastic.
    fn fixed_for(&self, row: &ReadRow) -> Option<&ReadRow> {
        let same = |other: &&ReadRow| {
            other.measurement.workload == row.measurement.workload && other.point == row.point
        };
        self.reads.iter().filter(same).find(|other| !other.elastic)
    }

    /// What makes figures say something else than it seems.
    fn warnings(&self, workload: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for row in self.rows_of(workload) {
            let at = at(&row.point);
            if row.without_filter {
                lines.push(format!(
                    "{at}{} keeps no filter in memory: its figures are those of no filter.",
                    row.side
                ));
            }
            if row.spends_otherwise() {
                lines.push(format!(
                    "{at}{} takes {:.1} bits a key where {} were given: not the same memory as the others.",
                    row.side, row.memory_bits_per_key, row.bits_asked
                ));
            }
            if row.failed_loads > 0 {
                lines.push(format!(
                    "{at}{} did not get {} units that it asked for: unreadable, or no room when they came.",
                    row.side, row.failed_loads
                ));
            }
        }
        lines
    }

    /// How elastic filters stand to the fixed one, at every point.
    fn standing(&self, workload: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for row in self.rows_of(workload).filter(|row| row.elastic) {
            let Some(fixed) = self.fixed_for(row) else { continue };
            let fewer = |of: f64, than: f64, what: &str| {
                let share = 100.0 * (1.0 - of / than.max(f64::MIN_POSITIVE));
                format!("{:.1} % {} {what}", share.abs(), if share < 0.0 { "more" } else { "fewer" })
            };
            let in_vain = match (row.in_vain_per_op, fixed.in_vain_per_op) {
                (Some(of), Some(than)) if than > 0.0 => {
                    format!("{}, ", fewer(of, than, "reads in vain"))
                }
                _ => String::new(),
            };
            lines.push(format!(
                "{}{} against {}: {in_vain}{}, {:.2} times the operations a second",
                at(&row.point),
                row.side,
                fixed.side,
                fewer(row.blocks_per_op, fixed.blocks_per_op, "block reads"),
                row.measurement.wall_ops_per_second
                    / fixed.measurement.wall_ops_per_second.max(f64::MIN_POSITIVE),
            ));
        }
        lines
    }

    fn window_table(&self) -> String {
        use Align::{Left, Right};
        let mut columns: Vec<(&str, &str)> = Vec::new();
        for row in &self.windows {
            if !columns.contains(&(&row.point, &row.side)) {
                columns.push((&row.point, &row.side));
            }
        }
        let headers: Vec<String> = columns
            .iter()
            .map(|(point, side)| if point.is_empty() { (*side).into() } else { format!("{point}\n{side}") })
            .collect();
        let mut table = vec![("gets", Right), ("", Left)];
        table.extend(headers.iter().map(|header| (header.as_str(), Right)));
        let mut table = Table::new(&table);
        let mut gets: Vec<u64> = self.windows.iter().map(|row| row.gets).collect();
        gets.sort_unstable();
        gets.dedup();
        for gets in gets {
            let of = |&(point, side): &(&str, &str)| {
                self.windows.iter().find(|row| row.gets == gets && row.point == point && row.side == side)
            };
            let moved = columns.first().and_then(of).is_some_and(|row| row.moved);
            let mut cells = vec![grouped(gets), if moved { "moved".into() } else { String::new() }];
            cells.extend(
                columns.iter().map(|c| of(c).map_or_else(String::new, |row| mean(row.in_vain_per_get))),
            );
            table.row(cells);
        }
        table.render()
    }

    fn shift_lines(&self) -> Vec<String> {
        let line = |row: &ShiftRow| {
            let recovered = match row.gets_to_recover {
                Some(gets) => format!("nine tenths of the way within {} gets", grouped(gets)),
                None => "nothing to recover from".into(),
            };
            format!(
                "{}{}: {} before, {} in the first window after the move, {} at the end; {recovered}",
                at(&row.point),
                row.side,
                mean(row.before),
                mean(row.first),
                mean(row.end)
            )
        };
        self.shifts.iter().map(line).collect()
    }

    /// Quantiles of the tables of each level.
    fn skew_table(&self) -> String {
        use Align::{Left, Right};
        let regions = self.experiment.kind == Kind::RegionSkew;
        let mut table = Table::new(&[
            ("at", Left),
            ("filter", Left),
            ("level", Right),
            ("tables", Right),
            ("mean", Right),
            ("least", Right),
            ("p10", Right),
            ("p50", Right),
            ("p90", Right),
            ("most", Right),
            (if regions { "above\n10" } else { "hotter than\np10 above" }, Right),
        ]);
        let mut groups: Vec<(&str, &str, usize)> =
            self.tables.iter().map(|row| (&row.point[..], &row.side[..], row.level)).collect();
        groups.dedup();
        let mut seen = Vec::new();
        for group in groups {
            if !seen.contains(&group) {
                seen.push(group);
            }
        }
        seen.sort_by_key(|&(point, side, level)| {
            let first = self.tables.iter().position(|row| row.point == point && row.side == side);
            (first, level)
        });
        let mut above: Option<(&str, &str, f64)> = None;
        for (point, side, level) in seen {
            let rows =
                self.tables.iter().filter(|row| row.point == point && row.side == side && row.level == level);
            let figure = |row: &TableRow| if regions { row.spread } else { row.asked_per_get * 1000.0 };
            let mut figures: Vec<f64> = rows.map(figure).collect();
            figures.sort_by(f64::total_cmp);
            let quantile = |q: f64| figures[((figures.len() - 1) as f64 * q).round() as usize];
            let limit = match (regions, above) {
                (true, _) => Some(10.0),
                (false, Some((p, s, limit))) if (p, s) == (point, side) => Some(limit),
                _ => None,
            };
            let hotter = |limit: f64| figures.iter().filter(|&&figure| figure > limit).count() as f64;
            table.row([
                point.to_owned(),
                side.to_owned(),
                level.to_string(),
                figures.len().to_string(),
                mean(figures.iter().sum::<f64>() / figures.len() as f64),
                mean(quantile(0.0)),
                mean(quantile(0.1)),
                mean(quantile(0.5)),
                mean(quantile(0.9)),
                mean(quantile(1.0)),
                limit.map_or_else(|| "-".into(), |limit| percent(hotter(limit) / figures.len() as f64)),
            ]);
            above = Some((point, side, quantile(0.1)));
        }
        table.render()
    }
}

fn ns(ns: f64) -> String {
    grouped(ns.round() as u64)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn at(point: &str) -> String {
    if point.is_empty() { String::new() } else { format!("{point}: ") }
}
