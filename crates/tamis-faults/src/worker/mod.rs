//! The code of worker processes: everything that uses an engine that may be killed, hang or panic.

mod control;
mod cuts;
mod external;
mod fill;
mod flips;
mod flips_check;
mod limits;
mod readonly;
mod session;
mod session_steps;

pub(crate) use control::{path as control_path, records as control_records};
pub(crate) use fill::{BALLAST, MOST_FLUSHED_WRITES};
pub(crate) use flips::Protect;
pub(crate) use limits::Limit;
pub(crate) use session::stream as session_stream;
pub(crate) use session_steps::step_names;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tamis::{Db, KeyspaceOptions, Options};

use crate::inject::{Kill, Plan};
use crate::oracle::{Space, State, layout};
use crate::turns::{self, Sizes};
use crate::wire::{Message, tell};

/// The job of a worker.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Job {
    /// Write with several threads until killed.
    Cuts(cuts::Args),
    /// Append to plain files and sync them until killed, without an engine.
    Control(control::Args),
    /// Execute a session in which calls fail or that is killed.
    Session(session::Args),
    /// Open a database, report its contents, write to it, close it.
    Check(session::CheckArgs),
    /// Write until the file system is full, and again when it has space.
    Fill(fill::Args),
    /// Write under limits of the process.
    Limits(limits::Args),
    /// Open on a read-only file system.
    ReadOnly(readonly::Args),
    /// Write, flush and compact while the parent flips a bit.
    Flips(flips::Args),
    /// Read everything that a job with a flip left.
    FlipsCheck(flips_check::Args),
}

/// The options that all jobs on databases share.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// The database's directory.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Seed of the writes.
    #[arg(long)]
    pub(crate) seed: u64,
    /// Number of the set of options.
    #[arg(long)]
    pub(crate) turn: u64,
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Executes the job in this process. The exit code only says whether it finished.
pub(crate) fn run(job: Job) -> std::process::ExitCode {
    // The message of a panic is logged with the thread's name, so that no panic goes unnoticed.
    std::panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, SeqCst);
        let thread = std::thread::current();
        tell(&Message::Wrong(format!("PANIC in {}: {info}", thread.name().unwrap_or("a thread"))));
    }));
    // Called once per process, so it cannot fail.
    let _ = log::set_logger(&ToStderr);
    log::set_max_level(log::LevelFilter::Info);
    match job {
        Job::Cuts(args) => cuts::run(&args),
        Job::Control(args) => control::run(&args),
        Job::Session(args) => session::run(&args),
        Job::Check(args) => session::check(&args),
        Job::Fill(args) => fill::run(&args),
        Job::Limits(args) => limits::run(&args),
        Job::ReadOnly(args) => readonly::run(&args),
        Job::Flips(args) => flips::run(&args),
        Job::FlipsCheck(args) => flips_check::run(&args),
    }
    if PANICS.load(SeqCst) > 0 {
        return 101.into();
    }
    tell(&Message::Finished);
    std::process::ExitCode::SUCCESS
}

/// Writes the engine's log messages to standard error, as evidence.
struct ToStderr;

impl log::Log for ToStderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let _ = writeln!(std::io::stderr(), "{} {}: {}", record.level(), record.target(), record.args());
    }

    fn flush(&self) {}
}

/// Returns the options of a keyspace other than the default one.
fn keyspace_options(space: Space, turn: u64, sizes: Sizes) -> KeyspaceOptions {
    let mut options = turns::keyspace(turn.wrapping_mul(7) + space as u64, sizes);
    if space == Space::Sums {
        options.merge_operator = Some("add".into());
    }
    options
}

/// A database and the keyspaces that are written.
struct Spaces {
    db: Db,
    spaces: [tamis::Keyspace; 3],
}

impl Spaces {
    /// Opens the database and creates missing keyspaces.
    fn open(place: &Place, sizes: Sizes, options: Options) -> Result<Spaces, tamis::Error> {
        let db = options.open(&place.dir)?;
        Spaces::of(db, place.turn, sizes)
    }

    fn of(db: Db, turn: u64, sizes: Sizes) -> Result<Spaces, tamis::Error> {
        let space = |space: Space| match db.keyspace(space.name()) {
            Err(tamis::AdminError::NoKeyspace { .. }) => {
                db.create_keyspace(space.name(), keyspace_options(space, turn, sizes))
            }
            there => there,
        };
        let spaces = [space(Space::Default)?, space(Space::Wide)?, space(Space::Sums)?];
        Ok(Spaces { db, spaces })
    }

    fn get(&self, space: Space) -> &tamis::Keyspace {
        &self.spaces[space as usize]
    }
}

/// The reason why a state could not be read.
#[derive(Debug)]
enum Unreadable {
    /// A read failed, as it may when calls fail.
    Failed(tamis::ReadError),
    /// Two ways of reading disagreed, which must never happen.
    Wrong(String),
}

impl From<tamis::ReadError> for Unreadable {
    fn from(error: tamis::ReadError) -> Unreadable {
        Unreadable::Failed(error)
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::Failed(error) => write!(f, "a read failed: {error}"),
            Unreadable::Wrong(what) => write!(f, "{what}"),
        }
    }
}

/// Reads everything forwards, backwards, and key by key, and checks that the results agree.
fn read_state(db: &Db) -> Result<State, Unreadable> {
    let mut state = State::default();
    let names = db.keyspaces();
    for space in Space::ALL.into_iter().filter(|space| names.iter().any(|name| name == space.name())) {
        let keyspace = db.keyspace(space.name()).map_err(|e| Unreadable::Wrong(e.to_string()))?;
        let mut keys = Vec::new();
        for item in keyspace.iter() {
            let (key, value) = item?;
            match keyspace.get(&key)? {
                Some(got) if got == value => {}
                got => {
                    let got = got.map(|value| space.fingerprint(&value));
                    let (name, key) = (space.name(), crate::oracle::shown(&key));
                    let why = format!("iterator and get differ in {name} at `{key}`: get gives {got:x?}");
                    return Err(Unreadable::Wrong(why));
                }
            }
            file(&mut state, space, &key, &value)?;
            keys.push(key.to_vec());
        }
        let mut backwards = keyspace.iter().rev();
        for key in keys.iter().rev() {
            match backwards.next().transpose()? {
                Some((found, _)) if found == *key => {}
                other => {
                    let other = other.map(|(key, _)| crate::oracle::shown(&key));
                    let (name, key) = (space.name(), crate::oracle::shown(key));
                    let why = format!("backwards in {name}, `{key}` was expected but {other:?} found");
                    return Err(Unreadable::Wrong(why));
                }
            }
        }
    }
    Ok(state)
}

/// Classifies an entry as data or as bookkeeping of a thread.
fn file(state: &mut State, space: Space, key: &[u8], value: &[u8]) -> Result<(), Unreadable> {
    let text = if space == Space::Default { std::str::from_utf8(key).unwrap_or("") } else { "" };
    let strange = || Unreadable::Wrong(format!("a key that was never written: `{}`", key.escape_ascii()));
    if let Some(number) = text.strip_prefix(layout::DONE) {
        state.done.insert(number.parse().map_err(|_| strange())?);
    } else if text.starts_with(layout::BALLAST) {
        // Deleted as a whole, and not part of the journal.
    } else if let Some(thread) = text.strip_prefix(layout::COUNTERS) {
        let numbers =
            value.chunks_exact(8).filter_map(|part| Some(u64::from_le_bytes(part.try_into().ok()?)));
        state.counters.insert(thread.parse().map_err(|_| strange())?, numbers.collect());
    } else {
        state.model.insert(space, key.to_vec(), space.fingerprint(value));
    }
    Ok(())
}

/// Encodes a counter.
fn encode(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn parse_plan(text: &str) -> Result<Plan, String> {
    text.parse()
}

fn parse_kill(text: &str) -> Result<Kill, String> {
    text.parse()
}
