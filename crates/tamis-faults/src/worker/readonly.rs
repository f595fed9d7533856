//! A file system that is mounted read-only.

use super::{Place, read_state};
use crate::turns::{self, Sizes};
use crate::wire::{DATABASE, Message, tell, tell_state};

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &Args) {
    let options = turns::database(args.place.turn, Sizes::CUTS);
    let wrong = |what: String| tell(&Message::Wrong(what));
    match options.clone().open_read_only(&args.place.dir) {
        Ok(db) => {
            match read_state(&db) {
                Ok(state) => tell_state(DATABASE, &state),
                Err(error) => wrong(format!("reading: {error}")),
            }
            match db.verify() {
                Ok(report) => {
                    report.problems.into_iter().for_each(|problem| wrong(format!("verify: {problem}")))
                }
                Err(error) => wrong(format!("verify: {error}")),
            }
            if db.put("key", "value").is_ok() {
                wrong("a write was acknowledged on a read-only file system".into());
            }
            db.close().unwrap_or_else(|error| wrong(format!("closing: {error}")));
        }
        Err(error) => wrong(format!("opening read-only: {error}")),
    }
    match options.open(&args.place.dir) {
        Ok(_) => {
            tell(&Message::Count { what: "opened for writing on a read-only file system".into(), count: 1 })
        }
        Err(error) => tell(&Message::Failed(format!("open for writing: {error}"))),
    }
}
