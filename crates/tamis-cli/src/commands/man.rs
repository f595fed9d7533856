//! `tamis man`: prints the program's manual page, or writes the pages of all commands.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap_mangen::Man;

use crate::args::command;
use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Print the program's manual page, or write those of all commands into a directory
#[derive(Args)]
#[command(after_help = "\
Examples:
  tamis man | man -l -
  tamis man --out ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write tamis.1 and a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, out: &mut Out) -> Result<Outcome, Failure> {
    match &args.out {
        None => {
            // Writing to memory cannot fail; a closed pipe is no failure of the page.
            let mut page = Vec::new();
            Man::new(command()).render(&mut page)?;
            out.write_all(&page)?;
        }
        Some(dir) => {
            let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command(), dir));
            written
                .map_err(|error| Failure::usage(format!("could not write to {}: {error}", dir.display())))?;
        }
    }
    Ok(Outcome::Done)
}
