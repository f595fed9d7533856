//! The load under power cuts: several writing threads, one that requests background work, and one
//! that reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tamis::{AdminError, Db, OpenError};

use super::external::{ingest, write_batch};
use super::{Place, Spaces, encode, keyspace_options, read_state};
use crate::inject::Injector;
use crate::oracle::{Space, State, Stream, Way, counter_key};
use crate::turns::{self, Sizes};
use crate::wire::{DATABASE, Message, tell, tell_state};

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The session's number.
    #[arg(long)]
    epoch: u64,
    /// The number of writing threads.
    #[arg(long)]
    threads: u32,
    /// Use some long keys.
    #[arg(long)]
    long_keys: bool,
    /// Use some large values.
    #[arg(long)]
    large_values: bool,
    /// Sync few writes.
    #[arg(long)]
    seldom_synced: bool,
    /// Only report the contents, and close the database.
    #[arg(long)]
    look: bool,
    /// Write only after a line was received.
    #[arg(long)]
    wait: bool,
    /// Let syncs succeed without executing them.
    #[arg(long)]
    skip_syncs: bool,
    /// Copies of earlier sessions, to be checked and removed.
    #[arg(long, value_delimiter = ',')]
    copies: Vec<PathBuf>,
}

/// State shared by the threads.
struct Shared {
    args: Args,
    spaces: Spaces,
    /// The last acknowledged write of each thread.
    acked: Vec<AtomicU64>,
}

impl Shared {
    fn seen(&self) -> Vec<u64> {
        self.acked.iter().map(|number| number.load(SeqCst)).collect()
    }

    fn stream(&self, thread: u32) -> Stream {
        let Args { ref place, epoch, long_keys, large_values, seldom_synced, .. } = self.args;
        Stream { seed: place.seed, epoch, thread, long_keys, large_values, seldom_synced }
    }
}

pub(super) fn run(args: &Args) {
    if args.skip_syncs {
        match Injector::install(None, None) {
            Ok(injector) => injector.skip_syncs(),
            Err(error) => return tell(&Message::Wrong(format!("no filter: {error}"))),
        }
    }
    args.copies.iter().for_each(look_at_copy);
    let options = turns::database(args.place.turn, Sizes::CUTS);
    let spaces = match Spaces::open(&args.place, Sizes::CUTS, options) {
        Ok(spaces) => spaces,
        Err(error) => return tell(&Message::Wrong(format!("opening: {error}"))),
    };
    let Some(state) = tell_contents(&spaces.db, DATABASE) else { return };
    if args.look {
        if let Err(error) = spaces.db.close() {
            tell(&Message::Wrong(format!("closing: {error}")));
        }
        return;
    }
    let acked = (0..args.threads).map(|thread| AtomicU64::new(state.number(thread))).collect();
    let shared = Arc::new(Shared { args: args.clone(), spaces, acked });
    tell(&Message::Phase("writing".into()));
    if args.wait {
        // An end of the input is the end of the parent.
        let _ = std::io::stdin().read_line(&mut String::new());
    }
    let mut threads = Vec::new();
    for thread in 0..args.threads {
        let shared = shared.clone();
        threads.push(std::thread::spawn(move || write(&shared, thread)));
    }
    let other = shared.clone();
    threads.push(std::thread::spawn(move || ask_for_work(&other)));
    let other = shared.clone();
    threads.push(std::thread::spawn(move || read(&other)));
    // Panics have already been reported.
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// Reports the contents of a database, and whether it is sound.
fn tell_contents(db: &Db, name: &str) -> Option<State> {
    match db.verify() {
        Ok(report) => {
            for problem in report.problems {
                tell(&Message::Wrong(format!("verify of {name}: {problem}")));
            }
        }
        Err(error) => tell(&Message::Wrong(format!("verify of {name}: {error}"))),
    }
    match read_state(db) {
        Ok(state) => {
            tell_state(name, &state);
            Some(state)
        }
        Err(error) => {
            tell(&Message::Wrong(format!("reading {name}: {error}")));
            None
        }
    }
}

/// Checks a copy, which is either a valid database or absent.
fn look_at_copy(path: &PathBuf) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let options = tamis::Options { create_if_missing: false, ..turns::database(0, Sizes::CUTS) };
    match options.open(path) {
        Ok(db) => {
            tell_contents(&db, &name);
            if let Err(error) = db.close() {
                tell(&Message::Wrong(format!("closing {name}: {error}")));
            }
        }
        Err(OpenError::NotFound { .. }) => tell(&Message::CopyAbsent(name)),
        Err(error) => tell(&Message::Wrong(format!("opening {name}: {error}"))),
    }
    let _ = std::fs::remove_dir_all(path);
}

fn write(shared: &Shared, thread: u32) {
    let stream = shared.stream(thread);
    let beside = shared.args.place.dir.with_file_name(format!("external-{thread}"));
    let acked = &shared.acked[thread as usize];
    let mut pace = stream.aside();
    loop {
        let number = acked.load(SeqCst) + 1;
        let write = stream.write(number);
        let besides = vec![(counter_key(thread), encode(std::iter::once(number).chain(shared.seen())))];
        let result = match write.way {
            Way::Batch => write_batch(&shared.spaces, &write, besides).map_err(tamis::Error::from),
            Way::Ingestion => ingest(&shared.spaces, &write, besides, &beside),
        };
        if let Err(error) = result {
            return tell(&Message::Failed(format!("write {number} of thread {thread}: {error}")));
        }
        acked.store(number, SeqCst);
        tell(&Message::Acked { thread, number, synced: write.synced });
        match pace.u32(..400) {
            0 => std::thread::sleep(Duration::from_millis(pace.u64(1..10))),
            // This sync makes all of the thread's acknowledged writes durable.
            1 if shared.spaces.db.sync().is_ok() => tell(&Message::Acked { thread, number, synced: true }),
            _ => {}
        }
    }
}

fn ask_for_work(shared: &Shared) {
    let (args, spaces) = (&shared.args, &shared.spaces);
    let mut rng = shared.stream(args.threads).aside();
    let mut copies = 0;
    for round in 0.. {
        std::thread::sleep(Duration::from_micros(rng.u64(200..12_000)));
        let space = Space::ALL[rng.usize(..3)];
        let keyspace = spaces.get(space);
        let result = match rng.u32(..20) {
            0..7 => keyspace.flush(),
            7..10 => keyspace.compact(),
            10..12 => {
                let stream = shared.stream(rng.u32(..args.threads));
                let keys: Vec<_> = stream.keys(space).collect();
                let from = rng.usize(..keys.len() / 2);
                keyspace.compact_range(
                    keys[from].clone()..keys[from + keys.len() / 3].clone(),
                    Default::default(),
                )
            }
            12..15 if copies < 2 => {
                copies += 1;
                let name = format!("copy-{}-{copies}", args.epoch);
                tell(&Message::CopyBegan { name: name.clone(), seen: shared.seen() });
                let made = spaces.db.checkpoint(args.place.dir.with_file_name(&name));
                made.map(|()| tell(&Message::CopyDone(name)))
            }
            15 => spaces.db.flush(),
            16 => {
                let options = keyspace_options(space, rng.u64(..500), Sizes::CUTS);
                let changes = [("compaction", options.compaction.to_string()), ("merge", "auto".to_owned())];
                let changes: Vec<_> = changes.iter().map(|(name, value)| (*name, value.as_str())).collect();
                // A deterministic keyspace rejects some.
                match keyspace.set_options(&changes) {
                    Err(AdminError::Options(_)) => Ok(()),
                    other => other,
                }
            }
            17 => passing_keyspace(&spaces.db, round),
            18 => {
                let pause = spaces.db.pause_compaction();
                std::thread::sleep(Duration::from_millis(5));
                drop(pause);
                Ok(())
            }
            _ => {
                spaces.db.cancel_compactions();
                Ok(())
            }
        };
        match result {
            Ok(()) | Err(AdminError::Cancelled | AdminError::NoRoom { .. }) => {}
            Err(error) => return tell(&Message::Failed(format!("work: {error}"))),
        }
    }
}

/// Creates, uses and drops a keyspace, so that cuts also interrupt this.
fn passing_keyspace(db: &Db, round: u64) -> Result<(), AdminError> {
    let left = db.keyspaces().into_iter().filter(|name| name.starts_with("passing"));
    for name in left {
        db.drop_keyspace(&name)?;
    }
    let keyspace = db.create_keyspace(&format!("passing-{round}"), turns::keyspace(round, Sizes::CUTS))?;
    for number in 0..20u64 {
        keyspace.put(number.to_be_bytes(), [7; 200])?;
    }
    keyspace.flush()
}

fn read(shared: &Shared) {
    let mut rng = shared.stream(args_thread(shared)).aside();
    loop {
        let space = Space::ALL[rng.usize(..3)];
        let keyspace = shared.spaces.get(space);
        let stream = shared.stream(rng.u32(..shared.args.threads));
        for place in 0..20 {
            // Answers are judged after the writes have ended; here they only exercise filters and
            // caches.
            if let Err(error) = keyspace.get(stream.key(space, (place * 37 + rng.u64(..50)) % 200)) {
                return tell(&Message::Failed(format!("get: {error}")));
            }
        }
        let from = stream.key(space, rng.u64(..199));
        if let Some(error) = keyspace.range(from..).take(30).find_map(Result::err) {
            return tell(&Message::Failed(format!("range: {error}")));
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Returns the reader's number, whose stream no writer uses.
fn args_thread(shared: &Shared) -> u32 {
    shared.args.threads + 1
}
