//! `tamis compact`: merges everything, or runs the compactions that are due.

use clap::Args;

use crate::args::{DbArgs, KeyspaceArgs};
use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::json;
use crate::output::Out;
use crate::values::PublishArgs;

/// Merge a keyspace into one run, or run the compactions that its policy finds due
#[derive(Args)]
#[command(
    after_help = "Options given here are stored, so this can also change the shape of a tree.\n\nExamples:\n  \
                  tamis compact --db ./tamis-demo\n  \
                  tamis compact --db ./tamis-demo --due -o keyspace.compaction=lazy-leveling"
)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    publish: PublishArgs,
    /// Run only the compactions that are due
    #[arg(long)]
    due: bool,
    /// Print one JSON object: the keyspace, as in `tamis stats --json`
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: CompactArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let keyspace = args.keyspace.open_existing(&args.db)?;
    let db = keyspace.database();
    let publisher = args.publish.start(&db)?;
    if args.due {
        db.flush()?;
        db.wait_for_compaction()?;
    } else {
        keyspace.compact()?;
    }
    let width = out.width();
    match args.json {
        true => out.json(&json::keyspace(&keyspace.stats()))?,
        false => out.page(&stats::shape(&keyspace, width), 16)?,
    }
    drop((publisher, keyspace));
    db.close()?;
    Ok(Outcome::Done)
}
