//! Measurements as aligned text.

use std::collections::HashSet;
pub use tamis_show::numbers::{bytes, counted, duration, grouped, mean};

use serde_json::Value;

use crate::measure::Measurement;
use crate::workload::Workload;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// What separates two columns.
const GAP: &str = "  ";

/// A table of text: a header of one or more lines, and rows.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(Vec<String>, Align)>,
    rows: Vec<Vec<String>>,
    named_by: usize,
}

impl Table {
    /// Creates a table with these columns. A header may have several lines (a unit below a name,
    /// for example).
    pub fn new(columns: &[(&str, Align)]) -> Table {
        let lines = |header: &str| header.lines().map(str::to_owned).collect();
        let columns = columns.iter().map(|(header, align)| (lines(header), *align)).collect();
        Table { columns, rows: Vec::new(), named_by: 1 }
    }

    /// Says how many columns, from the left, tell the rows apart: 1 unless this is called.
    pub fn named_by(self, columns: usize) -> Table {
        Table { named_by: columns, ..self }
    }

    /// Adds a row; missing cells are empty, extra ones are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Returns the table's lines, each terminated by a newline, without trailing blanks.
    pub fn render(&self) -> String {
        self.within(usize::MAX)
    }

    /// Returns the same in lines of at most `width` characters: columns that do not fit follow in
    /// further tables, each of which begins with the columns that name the rows. A single column
    /// may be wider.
    pub fn within(&self, width: usize) -> String {
        let width_of = |(i, (header, _)): (usize, &(Vec<String>, Align))| {
            let cells = self.rows.iter().map(|row| &row[i]);
            header.iter().chain(cells).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(width_of).collect();
        let names = self.named_by.min(widths.len());
        let lead: usize = widths[..names].iter().map(|width| width + GAP.len()).sum();
        let mut tables: Vec<Vec<usize>> = vec![(0..names).collect()];
        let mut taken = lead;
        for (column, own) in widths.iter().enumerate().skip(names) {
            let last = tables.last_mut().expect("never empty");
            if last.len() > names && taken + own > width {
                tables.push((0..names).collect());
                taken = lead;
            }
            tables.last_mut().expect("never empty").push(column);
            taken = taken.saturating_add(own + GAP.len());
        }
        let tables: Vec<String> = tables.iter().map(|columns| self.part(columns, &widths)).collect();
        tables.join("\n")
    }

    /// Returns the lines of some columns.
    fn part(&self, columns: &[usize], widths: &[usize]) -> String {
        let mut out = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::new();
            for (cell, column) in cells.zip(columns) {
                let padding = " ".repeat(widths[*column] - cell.chars().count());
                match self.columns[*column].1 {
                    Align::Left => text.extend([cell, &padding, GAP]),
                    Align::Right => text.extend([&padding, cell, GAP]),
                }
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        let headers = || columns.iter().map(|column| &self.columns[*column].0);
        for i in 0..headers().map(Vec::len).max().unwrap_or(0) {
            line(&mut headers().map(|header| header.get(i).map_or("", String::as_str)));
        }
        let rules: Vec<String> = columns.iter().map(|column| "─".repeat(widths[*column])).collect();
        line(&mut rules.iter().map(String::as_str));
        for row in &self.rows {
            line(&mut columns.iter().map(|column| row[*column].as_str()));
        }
        out
    }
}

/// Returns JSON objects, one per line.
pub fn json_lines(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("{object}\n")).collect()
}

/// Returns JSON objects as comma-separated values under one header; missing members are empty.
pub fn csv(objects: &[Value]) -> String {
    csv_led_by(&[], objects)
}

/// Like [`csv`], with the columns `first` before all others, if objects have them.
pub fn csv_led_by(first: &[&str], objects: &[Value]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    for key in objects.iter().filter_map(Value::as_object).flat_map(|object| object.keys()) {
        if seen.insert(key.as_str()) {
            columns.push(key);
        }
    }
    let place = |column: &&str| first.iter().position(|name| name == column).unwrap_or(first.len());
    // Stable: the others keep their order.
    columns.sort_by_key(place);
    let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let mut out = columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(",");
    for object in objects {
        out.push('\n');
        let cells = columns.iter().map(|&column| match &object[column] {
            Value::Null => String::new(),
            Value::String(text) => quoted(text),
            // Lists contain commas.
            other => quoted(&other.to_string()),
        });
        out.push_str(&cells.collect::<Vec<_>>().join(","));
    }
    out.push('\n');
    out
}

/// Returns the table that `tamis bench` prints.
pub fn bench_table(measurements: &[Measurement]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("workload", Left),
        ("operations", Right),
        ("threads", Right),
        ("mean\nns/op", Right),
        ("p50\nns", Right),
        ("p99\nns", Right),
        ("thousand\nops/s", Right),
        ("digests\n/op", Right),
        ("filters\nprobed/op", Right),
        ("false\npositives/op", Right),
        ("runs\nsought/op", Right),
        ("blocks\nread/op", Right),
        ("bytes\nread/op", Right),
        ("runs", Right),
        ("filter\nbits/key", Right),
        ("write\namplif.", Right),
    ]);
    for m in measurements {
        let reads = m.digests_per_op + m.block_reads_per_op + m.filter_probes_per_op > 0.0;
        let count = |n: f64| if reads { mean(n) } else { "-".to_owned() };
        table.row([
            m.workload.clone(),
            grouped(m.ops),
            m.threads.to_string(),
            grouped(m.ns_per_op.round() as u64),
            grouped(m.p50_ns),
            grouped(m.p99_ns),
            mean(m.ops_per_second / 1000.0),
            count(m.digests_per_op),
            count(m.filter_probes_per_op),
            count(m.false_positives_per_op),
            count(m.seeks_per_op),
            count(m.block_reads_per_op),
            count(m.bytes_read_per_op),
            m.runs.to_string(),
            mean(m.filter_bits_per_key),
            if m.write_amplification > 0.0 { mean(m.write_amplification) } else { "-".to_owned() },
        ]);
    }
    table
}

/// Returns the table of the rows of `compact`, if there are any. Rates are by the bytes of the
/// tables merged.
pub fn compaction_table(measurements: &[Measurement]) -> Option<Table> {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("compaction", Left),
        ("entries", Right),
        ("MB in", Right),
        ("MB out", Right),
        ("seconds", Right),
        ("MB/s", Right),
        ("MB/s\nand core", Right),
        ("processor\nns/entry", Right),
        ("thousand\nentries/s", Right),
    ]);
    let compactions: Vec<_> =
        measurements.iter().filter(|m| m.workload == Workload::Compact.name()).collect();
    for m in &compactions {
        let seconds = m.ns_per_op * m.ops as f64 / 1e9;
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let processor = |figure: f64| if m.processor_ns > 0 { mean(figure) } else { "-".to_owned() };
        table.row([
            m.workload.clone(),
            grouped(m.ops),
            mean(megabytes(m.compaction_read_bytes)),
            mean(megabytes(m.compaction_written_bytes)),
            mean(seconds),
            mean(megabytes(m.compaction_read_bytes) / seconds.max(1e-9)),
            processor(megabytes(m.compaction_read_bytes) * 1e9 / m.processor_ns as f64),
            processor(m.processor_ns as f64 / m.ops.max(1) as f64),
            mean(m.ops_per_second / 1000.0),
        ]);
    }
    (!compactions.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("name", Align::Left), ("ns\nper op", Align::Right)]);
        table.row(["größer".to_owned(), "7".to_owned()]);
        table.row(["b".to_owned(), "12345678".to_owned()]);
        let expected = "\
name          ns
          per op
──────  ────────
größer         7
b       12345678
";
        assert_eq!(table.render(), expected);
    }

    /// The table of `tamis bench` has 190 columns; a terminal broke each of its lines twice.
    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let mut table = Table::new(&[
            ("name", Align::Left),
            ("one", Align::Right),
            ("two", Align::Right),
            ("three", Align::Left),
        ]);
        table.row(["a", "1", "2", "3"].map(str::to_owned));
        let expected = "\
name  one  two
────  ───  ───
a       1    2

name  three
────  ─────
a     3
";
        assert_eq!(table.within(18), expected);
        assert_eq!(table.within(21), table.render());
        assert_eq!(table.within(0).lines().filter(|line| line.starts_with("name")).count(), 3);
        let by_two = table.named_by(2).within(0);
        assert!(
            by_two.starts_with("name  one  two\n") && by_two.contains("\n\nname  one  three\n"),
            "{by_two}"
        );
        let wide = bench_table(&[Measurement::default()]).within(80);
        assert!(wide.lines().all(|line| line.chars().count() <= 80), "{wide}");
    }

    #[test]
    fn a_bench_row_shows_one_digest_as_one() {
        let m = Measurement {
            workload: "get-existing".into(),
            ops: 1_000_000,
            ns_per_op: 812.4,
            digests_per_op: 1.0,
            ..Measurement::default()
        };
        let table = bench_table(&[m]).render();
        let row = table.lines().last().unwrap();
        assert!(
            row.starts_with("get-existing") && row.contains(" 812 ") && row.contains(" 1.00 "),
            "{table}"
        );
    }
}
