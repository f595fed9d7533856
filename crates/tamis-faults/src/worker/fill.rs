//! A file system that fills up under a database, and later has space again.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::Place;
use super::session::{Cause, Session};
use crate::oracle::Way;
use crate::turns::Sizes;
use crate::wire::{Message, tell};

/// Additional bytes in each write.
pub(crate) const BALLAST: usize = 4000;
/// Number of writes after which a file system is considered impossible to fill.
const MOST_WRITES: u64 = 80_000;
/// The same with frequent flushes: these writes use a small part of the space, which must suffice.
pub(crate) const MOST_FLUSHED_WRITES: u64 = 2000;
/// With frequent flushes, a copy is also made after this many writes.
const COPY_EVERY: u64 = 200;
/// A write that takes longer is considered to be waiting for space, such as for a compaction that
/// has none.
const STALLED: Duration = Duration::from_secs(8);
/// Time for retrying writes when there is space again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Close and reopen on the full file system instead of continuing with the same handle.
    #[arg(long)]
    reopen: bool,
    /// Use default memtables and logs, and flush after this many writes.
    #[arg(long)]
    flush_every: Option<u64>,
    /// Use default memtables and logs.
    #[arg(long)]
    defaults: bool,
    /// Delete once the file system is full, and expect that to make room.
    #[arg(long)]
    frees: bool,
}

pub(super) fn run(args: &Args) {
    let defaults = args.defaults || args.flush_every.is_some();
    let sizes = if defaults { Sizes::DEFAULT } else { Sizes::CUTS };
    let mut session = Session::new(&args.place, sizes, Cause::Surroundings, BALLAST);
    if !session.open() {
        return tell(&Message::Wrong("a new database cannot be opened while there is space".into()));
    }
    let watch = Watch::start();
    let mut written = 0;
    let most = if args.flush_every.is_some() { MOST_FLUSHED_WRITES } else { MOST_WRITES };
    while written < most && session.write(1, Way::Batch) && !watch.stalled() {
        written += 1;
        watch.written.store(written, SeqCst);
        if args.flush_every.is_some_and(|every| written % every == 0) && !session.flush() {
            break;
        }
        if args.flush_every.is_some() && written % COPY_EVERY == 0 {
            session.copy();
        }
    }
    watch.over.store(true, SeqCst);
    count("writes until full", written);
    if !session.look() {
        tell(&Message::Wrong("reads do not continue while the file system is full".into()));
    }
    if args.frees {
        free(&mut session);
        session.look();
        session.close();
        return;
    }
    if watch.stalled() {
        // There is space again now, and the waiting write was acknowledged.
    } else if args.reopen {
        session.close();
        let opened = session.open();
        count(if opened { "opened while full" } else { "not opened while full" }, 1);
    } else {
        let deleted = session.delete_ballast();
        count(if deleted { "deletes taken while full" } else { "deletes refused while full" }, 1);
    }
    if !watch.stalled() {
        tell(&Message::Phase("full".into()));
    }
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
        tell(&Message::Wrong("reopening failed despite free space".into()));
    }
    if !session.write(10, Way::Batch) {
        tell(&Message::Wrong("writing after reopening failed despite free space".into()));
    }
    session.look();
    session.close();
}

/// Deletes what fills the file system, and waits until writes are accepted again.
fn free(session: &mut Session) {
    let within = |session: &mut Session, what: &str, try_it: &dyn Fn(&mut Session) -> bool| {
        let began = Instant::now();
        while !try_it(session) {
            if began.elapsed() > 3 * PATIENCE {
                tell(&Message::Wrong(format!("on a full file system {what}")));
                return false;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        true
    };
    if within(session, "a range delete is refused", &|session| session.delete_ballast())
        && within(session, "a range delete frees nothing", &|session| session.write(1, Way::Batch))
    {
        count("disks freed by deletes", 1);
    }
}

fn count(what: &str, count: u64) {
    tell(&Message::Count { what: what.to_owned(), count });
}

/// Detects from outside that a write is waiting.
#[derive(Debug, Default)]
struct Watch {
    written: AtomicU64,
    over: AtomicBool,
    stalled: AtomicBool,
}

impl Watch {
    fn start() -> Arc<Watch> {
        let watch = Arc::<Watch>::default();
        let seen = watch.clone();
        std::thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            while !seen.over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(100));
                let now = seen.written.load(SeqCst);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > STALLED && !seen.stalled.swap(true, SeqCst) {
                    count("writes wait while full", 1);
                    tell(&Message::Phase("full".into()));
                }
            }
        });
        watch
    }

    fn stalled(&self) -> bool {
        self.stalled.load(SeqCst)
    }
}
