//! `tamis checkpoint`: makes a consistent copy.

use std::path::PathBuf;

use clap::Args;

use crate::args::DbArgs;
use crate::failure::{Failure, Outcome};

/// Make a consistent copy of a database, using hard links where the file system supports them
#[derive(Args)]
#[command(after_help = "Example:\n  tamis checkpoint --db ./tamis-demo ./tamis-demo-copy")]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The new directory; must not exist
    target: PathBuf,
}

pub(crate) fn run(args: CheckpointArgs) -> Result<Outcome, Failure> {
    let db = args.db.open_existing()?;
    db.checkpoint(&args.target)?;
    db.close()?;
    Ok(Outcome::Done)
}
