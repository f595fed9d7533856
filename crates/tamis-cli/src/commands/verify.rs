//! `tamis verify`: checks every checksum and every invariant.

use std::io::Write;

use clap::Args;
use serde_json::json;
use tamis::maintenance::VerifyReport;
use tamis::options::OnDamage;
use tamis::{OpenError, StorageError};
use tamis_bench::report::{bytes, grouped};

use crate::args::DbArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Check every checksum and every invariant of a database
#[derive(Args)]
#[command(
    after_help = "Reads every byte and changes none. Exits with 1 if it finds a problem.\n\nExample:\n  \
                        tamis verify --db ./tamis-demo"
)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: VerifyArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let report = match args.db.open_unless_damaged()? {
        Ok(db) => db.verify()?,
        Err(damage) => {
            let mut report = VerifyReport::default();
            report.problems.push(damage);
            report
        }
    };
    if args.json {
        let object = json!({
            "tables": report.tables, "blocks": report.blocks, "bytes": report.bytes,
            "filter_files": report.filter_files, "entries": report.entries, "problems": report.problems,
        });
        writeln!(out, "{object}")?;
    } else {
        for problem in &report.problems {
            writeln!(out, "problem: {problem}")?;
        }
        writeln!(
            out,
            "{} tables, {}{} blocks, {} entries, {} read: {}",
            grouped(report.tables as u64),
            match report.filter_files {
                0 => String::new(),
                n => format!("{} filter files, ", grouped(n as u64)),
            },
            grouped(report.blocks),
            grouped(report.entries),
            bytes(report.bytes),
            match report.problems.len() {
                0 => "all sound".to_owned(),
                n => format!("{n} problems"),
            }
        )?;
    }
    Ok(if report.problems.is_empty() { Outcome::Done } else { Outcome::Negative })
}

impl DbArgs {
    /// Opens the database; returns a description of the damage if that keeps it from being opened.
    fn open_unless_damaged(&self) -> Result<Result<tamis::Db, String>, Failure> {
        // A damaged table must not keep the others from being checked.
        let options = self.to_options_with(Some(OnDamage::Quarantine))?;
        match tamis::Db::open_read_only(&self.db, options) {
            Ok(db) => Ok(Ok(db)),
            Err(OpenError::Storage(StorageError::Corrupt(damage))) => Ok(Err(damage.to_string())),
            Err(other) => Err(other.into()),
        }
    }
}
