//! `tamis-lab experiment keep` and `tables`: results in the repository, and the documents made from them.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tamis_cli::failure::{Failure, Outcome};
use tamis_cli::output::note;
use tamis_lab::figures::{pages, results};

use super::OUT;

#[derive(Args)]
pub(super) struct KeepArgs {
    /// Directory to copy them to; what it has of other experiments stays
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Directory of the results
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

#[derive(Args)]
pub(super) struct TablesArgs {
    /// Directory of the project
    #[arg(value_name = "ROOT", default_value = ".")]
    root: PathBuf,
    /// Write nothing, and exit with code 1 if a file differs from its results
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &KeepArgs, out: &mut impl Write) -> Result<Outcome, Failure> {
    if !args.out.is_dir() {
        return Err(Failure::usage(format!(
            "there are no results in {}: measure some with `tamis-lab experiment run`, or pass another --out",
            args.out.display()
        )));
    }
    let (kept, omitted) = results::keep(&args.out, &args.to)?;
    for name in &kept {
        writeln!(out, "{name}")?;
    }
    for reason in omitted {
        note(&format!("omitted: {reason}"));
    }
    Ok(Outcome::Done)
}

pub(super) fn tables(args: &TablesArgs, out: &mut impl Write) -> Result<Outcome, Failure> {
    let failed = |error: tamis_lab::documents::DocumentError| Failure::usage(error.to_string());
    let found: Vec<PathBuf> = match args.check {
        true => pages::outdated(&args.root).map_err(failed)?.into_iter().map(|(path, _)| path).collect(),
        false => pages::refresh(&args.root).map_err(failed)?,
    };
    for path in &found {
        let what = if args.check { "differs from its results: " } else { "" };
        writeln!(out, "{what}{}", path.display())?;
    }
    Ok(if args.check && !found.is_empty() { Outcome::Negative } else { Outcome::Done })
}
