//! A file system that fills up under a database, and has space again later.

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use super::Place;
use super::session::{Cause, Session};
use crate::oracle::Way;
use crate::turns::Sizes;
use crate::wire::{Message, tell};

/// Bytes that each write puts besides others.
pub(crate) const BALLAST: usize = 4000;
/// Writes after which a file system that is still not full is not going to be.
const MOST_WRITES: u64 = 200_000;
/// How long writes are tried anew when there is space again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the worker is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Close on the full file system and open there, instead of going on with the same handle.
    #[arg(long)]
    reopen: bool,
    /// Memtables and logs as they are by default, and a flush after so many writes.
    #[arg(long)]
    flush_every: Option<u64>,
}

pub(super) fn run(args: &Args) {
    let sizes = if args.flush_every.is_some() { Sizes::DEFAULT } else { Sizes::CUTS };
    let mut session = Session::new(&args.place, sizes, Cause::Surroundings, BALLAST);
    if !session.open() {
        return tell(&Message::Wrong("a new database cannot be opened while there is space".into()));
    }
    let mut written = 0;
    while written < MOST_WRITES && session.write(1, Way::Batch) {
        written += 1;
        if args.flush_every.is_some_and(|every| written % every == 0) && !session.flush() {
            break;
        }
    }
    count("writes until full", written);
    if !session.look() {
        tell(&Message::Wrong("reads do not go on while the file system is full".into()));
    }
    if args.reopen {
        session.close();
        let opened = session.open();
        count(if opened { "opened while full" } else { "not opened while full" }, 1);
    } else {
        let deleted = session.delete_ballast();
        count(if deleted { "deletes taken while full" } else { "deletes refused while full" }, 1);
    }
    tell(&Message::Phase("full".into()));
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).is_err() {
        return;
    }
    if !args.reopen {
        let began = Instant::now();
        let mut resumed = session.write(1, Way::Batch);
        while !resumed && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
            resumed = session.write(1, Way::Batch);
        }
        count(if resumed { "writes resumed" } else { "writes did not resume" }, 1);
        session.look();
    }
    session.close();
    if !session.open() {
        tell(&Message::Wrong("opening anew failed though there is space".into()));
    }
    if !session.write(10, Way::Batch) {
        tell(&Message::Wrong("writing after opening anew failed though there is space".into()));
    }
    session.look();
    session.close();
}

fn count(what: &str, count: u64) {
    tell(&Message::Count { what: what.to_owned(), count });
}
