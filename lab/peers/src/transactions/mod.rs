//! Transactions compared: tamis, RocksDB, fjall and redb change keys under little and much contention.
//!
//! A *side* ([`sides`]) is one way to run transactions in one engine. A *workload* ([`workload`]) is what its threads do.
//! [`measure`] executes one on the other in a fresh database and checks the result; each measurement has a process of its
//! own ([`worker`]). [`conduct`](mod@conduct) goes through rounds, and [`report`] makes tables of medians.

mod args;
mod conduct;
#[cfg(test)]
mod conformance;
mod data;
mod measure;
mod report;
mod side;
mod sides;
mod worker;
mod workload;

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tamis_bench::report::grouped;

pub(crate) use args::TransactionsArgs;
pub(crate) use sides::Name;
pub(crate) use worker::serve;

use crate::failure::Failure;
use crate::report::{Context, ReportError};
use conduct::{Row, conduct};
use worker::measure_apart;
use workload::Workload;

/// The file of rows.
const ROWS: &str = "transactions.jsonl";

/// The file of tables.
const TABLES: &str = "transactions.md";

/// Measures, prints the tables, and writes rows and tables. `command` is how it was called; databases are made in
/// `databases`, which is below `place`.
pub(crate) fn run(
    args: &TransactionsArgs,
    command: &str,
    place: &Path,
    databases: &Path,
) -> Result<(), Failure> {
    let plan = args.plan()?;
    let path = args.out.join(ROWS);
    let unwritten = |error: std::io::Error| Failure::file("write", &path, &error);
    if path.metadata().is_ok_and(|metadata| metadata.len() > 0) {
        let text = format!("{} already has rows: choose another directory with --out", path.display());
        return Err(Failure::Usage(text));
    }
    let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(unwritten)?;
    let unnoted = |error: ReportError| Failure::System(error.to_string());
    let context = Context::note(&args.out, command, place).map_err(unnoted)?;

    let bar = progress(plan.len());
    let tell = |row: &Row| {
        let mut line = serde_json::to_string(row)
            .map_err(|error| Failure::System(format!("a row cannot be serialised: {error}")))?;
        line.push('\n');
        file.write_all(line.as_bytes()).map_err(unwritten)?;
        bar.inc(1);
        bar.set_message(format!("{} {}", row.workload, row.side));
        if args.verbose {
            // Rows are written even if the message cannot be.
            bar.suspend(|| drop(writeln!(std::io::stderr(), "{}", line_of(row))));
        }
        Ok(())
    };
    let done = conduct(&plan, databases, measure_apart, tell);
    bar.finish_and_clear();
    let (rows, troubles) = done?;
    let tables = report::tables(&rows);
    let path = args.out.join(TABLES);
    std::fs::write(&path, report::markdown(&tables, &plan, &context, command))
        .map_err(|error| Failure::file("write", &path, &error))?;
    crate::print(&report::text(&tables, &plan))?;
    match troubles.is_empty() {
        true => Ok(()),
        false => Err(Failure::System(format!("not everything could be measured:\n{}", troubles.join("\n")))),
    }
}

/// Describes sides and workloads.
pub(crate) fn about() -> String {
    let mut text = String::from("Sides of `transactions`:\n");
    for side in Name::compiled_in() {
        text.push_str(&format!("  {side:19} {}\n", side.about()));
    }
    text.push_str("\nWorkloads of `transactions`:\n");
    for workload in Workload::ALL {
        text.push_str(&format!("  {workload:13} {}\n", workload.about()));
    }
    text
}

/// Returns a bar, which is hidden unless standard error is a terminal.
fn progress(total: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {elapsed}, {eta} left: {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // Once a second only, since a worker is being measured.
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// Formats a row as one line.
fn line_of(row: &Row) -> String {
    let figures = &row.figures;
    format!(
        "{} {} {}, round {}: {} ns/op, {} ops/s, {:.3} retries/op",
        row.workload,
        row.threads,
        row.side,
        row.round + 1,
        grouped(figures.ns_per_op.round() as u64),
        grouped(figures.ops_per_second.round() as u64),
        figures.retries_per_op
    )
}
