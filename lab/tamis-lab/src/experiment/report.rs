//! `tamis-lab experiment report`: all results as one page.

use std::path::PathBuf;

use clap::Args;
use tamis::io::{DiskFs, write_file_atomically};
use tamis_cli::failure::{Failure, Outcome};
use tamis_cli::output::note;
use tamis_lab::figures::{report, results};

use super::OUT;

#[derive(Args)]
pub(super) struct ReportArgs {
    /// Directory of the results
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
    /// File to write the page to [default: report.html beside the results]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &ReportArgs, out: &mut impl std::io::Write) -> Result<Outcome, Failure> {
    let none = || {
        let out = args.out.display();
        Failure::usage(format!(
            "there are no results in {out}: measure some with `tamis-lab experiment run`, or pass another --out"
        ))
    };
    if !args.out.is_dir() {
        return Err(none());
    }
    let present = results::load_all(&args.out)?;
    if present.loaded.is_empty() && present.unreadable.is_empty() {
        return Err(none());
    }
    let path = args.html.clone().unwrap_or_else(|| args.out.join("report.html"));
    let page = report::html(&present.loaded, &present.unreadable);
    let written = write_file_atomically(&DiskFs::without_mapping(), &path, page.as_bytes());
    written.map_err(|error| Failure::usage(format!("could not write {}: {error}", path.display())))?;
    writeln!(out, "{}: {} experiments", path.display(), present.loaded.len())?;
    for reason in &present.unreadable {
        note(&format!("omitted: {reason}"));
    }
    Ok(if present.unreadable.is_empty() { Outcome::Done } else { Outcome::Negative })
}
