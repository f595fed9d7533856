//! Limits of the process: descriptors, address space, file size.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Place;
use super::session::{Cause, Session};
use crate::oracle::Way;
use crate::turns::Sizes;
use crate::wire::{Message, tell};

/// Number of writes under the limit.
const WRITES: u64 = 1500;

/// The kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Limit {
    /// Open descriptors.
    Nofile,
    /// Address space, in MiB beyond the process's initial size.
    As,
    /// File size in KiB; the signal is ignored, so that calls fail.
    Fsize,
    /// The same, but the signal ends the process.
    FsizeSignal,
}

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(long)]
    limit: Limit,
    #[arg(long)]
    value: u64,
}

pub(super) fn run(args: &Args) {
    let (resource, value) = match args.limit {
        Limit::Nofile => (Resource::Nofile, args.value),
        Limit::As => (Resource::As, address_space() + (args.value << 20)),
        Limit::Fsize | Limit::FsizeSignal => (Resource::Fsize, args.value << 10),
    };
    if args.limit == Limit::Fsize {
        // SAFETY: no handler is installed; the call takes numbers only.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
    let before = getrlimit(resource);
    let set = |current| setrlimit(resource, Rlimit { current, ..before });
    if let Err(error) = set(Some(value)) {
        return tell(&Message::Wrong(format!("the limit could not be set: {error}")));
    }
    let sizes = if args.limit == Limit::Nofile { Sizes::MANY_TABLES } else { Sizes::CUTS };
    let mut session = Session::new(&args.place, sizes, Cause::Surroundings, 1000);
    let (mut written, mut most_open) = (0, 0);
    while written < WRITES && session.write(1, Way::Batch) {
        written += 1;
        if written % 10 == 0 {
            most_open = most_open.max(open_descriptors().unwrap_or(value));
        }
        if written % 100 == 0 {
            session.look();
        }
    }
    count("writes within the limit", written);
    count("most descriptors open", most_open);
    session.look();
    if let Err(error) = set(before.current) {
        return tell(&Message::Wrong(format!("the limit could not be lifted: {error}")));
    }
    if session.is_open() {
        if !session.look() {
            tell(&Message::Wrong("reads do not continue when the limit is lifted".into()));
        }
        if written < WRITES {
            let resumed = session.write(1, Way::Batch);
            count(if resumed { "writes resumed" } else { "writes did not resume" }, 1);
        }
    }
    session.close();
    if !session.open() || !session.write(10, Way::Batch) {
        tell(&Message::Wrong("reopening and writing failed after the limit was lifted".into()));
    }
    session.look();
    session.close();
}

fn count(what: &str, count: u64) {
    tell(&Message::Count { what: what.to_owned(), count });
}

fn open_descriptors() -> Option<u64> {
    // One of them is the descriptor of the directory itself.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64 - 1)
}

/// Returns the address space in bytes.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
