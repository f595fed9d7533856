//! Progress of a comparison: a bar on a terminal, and optionally a line per row.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tamis_bench::report::grouped;

use crate::conduct::Audience;
use crate::failure::Failure;
use crate::record::Row;
use crate::rows::Writer;

/// Writes rows to their file, and shows progress on standard error.
pub(crate) struct Show {
    rows: Writer,
    bar: Option<ProgressBar>,
    verbose: bool,
}

impl Show {
    /// Creates it for about `total` rows, which are written to `rows`.
    pub(crate) fn new(rows: Writer, total: u64, verbose: bool) -> Show {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {elapsed}, {eta} left: {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            // Once a second only, since a worker is being measured.
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Show { rows, bar, verbose }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Audience for Show {
    fn doing(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    fn row(&mut self, row: &Row) -> Result<(), Failure> {
        self.rows.append(row)?;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        if self.verbose {
            self.note(&line_of(row));
        }
        Ok(())
    }

    fn note(&mut self, text: &str) {
        // Rows are written even if the message cannot be.
        let tell = || drop(writeln!(std::io::stderr(), "{text}"));
        match &self.bar {
            Some(bar) => bar.suspend(tell),
            None => tell(),
        }
    }
}

/// Formats a row as one line.
fn line_of(row: &Row) -> String {
    let conditions = &row.conditions;
    let threads = match conditions.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    let what = format!("{} {} {}, {threads}", conditions.suite, conditions.workload, row.system);
    match &row.refused {
        Some(why) => format!("{what}: {why}"),
        None => format!(
            "{what}, round {}: {} ns/op, {} ops/s",
            row.round + 1,
            grouped(row.figures.ns_per_op.round() as u64),
            grouped(row.figures.ops_per_second.round() as u64)
        ),
    }
}
