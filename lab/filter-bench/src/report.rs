//! The results of a command: text, tables, plots and data, for the terminal, as Markdown, as JSON and as SVG.

use std::fmt::Write as _;

use serde_json::Value;
use tamis_lab::machine::Machine;

use crate::plots::Plot;

/// Whether times of this build are meaningful.
const OPTIMISED: bool = !cfg!(debug_assertions);

/// Returns the machine. No disk is involved.
pub(crate) fn this_machine() -> Machine {
    Machine::read(None)
}

fn machine_lines(machine: &Machine) -> Vec<String> {
    let caches = if machine.caches.is_empty() { "unknown".to_owned() } else { machine.caches.join(", ") };
    let mut lines = vec![format!(
        "Machine: {}, {} threads (one used), data caches {caches}, {}.",
        machine.cpu, machine.cores, machine.system
    )];
    if !OPTIMISED {
        lines.push("This is a debug build: rates are valid, times are meaningless.".to_owned());
    }
    lines
}

/// A table of formatted words and numbers. The first `names` columns are names, which are left-aligned.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<String>,
    names: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table.
    pub(crate) fn new<S: Into<String>>(names: usize, columns: impl IntoIterator<Item = S>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), names, rows: Vec::new() }
    }

    /// Appends a row, which must have as many cells as there are columns.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.columns.len(), "a row of {row:?} under {:?}", self.columns);
        self.rows.push(row);
    }

    /// Reports whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn widths(&self) -> Vec<usize> {
        let cells = |at: usize| self.rows.iter().map(move |row| row[at].chars().count());
        let widths = self.columns.iter().enumerate();
        widths.map(|(at, name)| cells(at).max().unwrap_or(0).max(name.chars().count())).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize], between: &str) -> String {
        let padded = cells.iter().zip(widths).enumerate().map(|(at, (cell, &width))| {
            if at < self.names { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join(between)
    }

    fn text(&self, out: &mut String) {
        let widths = self.widths();
        for cells in [&self.columns].into_iter().chain(&self.rows) {
            let _ = writeln!(out, "  {}", self.line(cells, &widths, "  ").trim_end());
        }
    }

    fn markdown(&self, out: &mut String) {
        let widths = self.widths();
        let _ = writeln!(out, "| {} |", self.line(&self.columns, &widths, " | "));
        let rule = (0..self.columns.len()).map(|at| if at < self.names { "---" } else { "---:" });
        let _ = writeln!(out, "| {} |", rule.collect::<Vec<_>>().join(" | "));
        for row in &self.rows {
            let _ = writeln!(out, "| {} |", self.line(row, &widths, " | "));
        }
    }
}

/// A piece of a report.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Begins a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
}

/// The results of a command.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The title.
    pub title: String,
    /// The parts in order.
    pub parts: Vec<Part>,
    /// The results as JSON.
    pub data: Value,
    /// Plots.
    pub plots: Vec<Plot>,
}

impl Report {
    /// Creates an empty report.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), parts: Vec::new(), data: Value::Null, plots: Vec::new() }
    }

    /// Begins a section.
    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Heading(text.into()));
    }

    /// Adds a paragraph.
    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Text(text.into()));
    }

    /// Adds a table, unless it is empty.
    pub(crate) fn table(&mut self, table: Table) {
        if !table.is_empty() {
            self.parts.push(Part::Table(table));
        }
    }

    /// Formats it for a terminal.
    pub(crate) fn to_text(&self, machine: &Machine) -> String {
        let mut out = format!("{}\n{}\n", self.title, machine_lines(machine).join("\n"));
        for part in &self.parts {
            out.push('\n');
            match part {
                Part::Heading(text) => {
                    let _ = writeln!(out, "{text}\n{}", "-".repeat(text.chars().count()));
                }
                Part::Text(text) => {
                    let _ = writeln!(out, "{text}");
                }
                Part::Table(table) => table.text(&mut out),
            }
        }
        out
    }

    /// Formats it as Markdown.
    pub(crate) fn to_markdown(&self, machine: &Machine) -> String {
        let mut out = format!("## {}\n\n{}\n", self.title, machine_lines(machine).join(" "));
        for part in &self.parts {
            out.push('\n');
            match part {
                Part::Heading(text) => {
                    let _ = writeln!(out, "### {text}");
                }
                Part::Text(text) => {
                    let _ = writeln!(out, "{text}");
                }
                Part::Table(table) => table.markdown(&mut out),
            }
        }
        out
    }

    /// Returns it as JSON.
    pub(crate) fn to_json(&self, machine: &Machine) -> Value {
        serde_json::json!({ "title": self.title, "machine": machine, "optimised": OPTIMISED, "data": self.data })
    }
}

/// Formats a rate: percent with three significant digits, or a power of ten below 0.001 %.
pub(crate) fn rate(rate: f64) -> String {
    let percent = rate * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        p if p >= 99.95 => "100 %".to_owned(),
        p if p >= 10.0 => format!("{p:.1} %"),
        p if p >= 1.0 => format!("{p:.2} %"),
        p if p >= 0.001 => format!("{p:.3} %"),
        _ => format!("{rate:.1e}"),
    }
}

/// Formats nanoseconds with three significant digits.
pub(crate) fn ns(ns: f64) -> String {
    match ns {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_are_sound_markdown() {
        let mut table = Table::new(1, ["name", "n"]);
        table.row(["a", "1"]);
        table.row(["long name", "100"]);
        let mut text = String::new();
        table.text(&mut text);
        assert_eq!(text, "  name         n\n  a            1\n  long name  100\n");
        let mut markdown = String::new();
        table.markdown(&mut markdown);
        assert!(
            markdown.starts_with("| name      |   n |\n| --- | ---: |\n| a         |   1 |\n"),
            "{markdown}"
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(rate(0.008_194), "0.819 %");
        assert_eq!(rate(0.25), "25.0 %");
        assert_eq!(rate(1.0), "100 %");
        assert_eq!(rate(0.000_004), "4.0e-6");
        assert_eq!(rate(0.0), "0 %");
        assert_eq!((ns(3.456), ns(34.56), ns(345.6)), ("3.46".into(), "34.6".into(), "346".into()));
    }
}
