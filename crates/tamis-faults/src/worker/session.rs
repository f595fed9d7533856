//! A session in which calls fail, or that ends by a kill: its state, its writes, and their
//! judgement.

use std::path::PathBuf;

use tamis::{Db, OpenError, Options};

use super::external::{ingest, write_batch};
use super::{Place, Spaces, Unreadable, parse_kill, parse_plan, read_state, session_steps};
use crate::inject::{Injector, Kill, Plan};
use crate::oracle::{Journal, Stream, Way, ballast_key, done_key, layout};
use crate::turns::{self, Sizes};
use crate::wire::{DATABASE, Message, tell, tell_state};

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) place: Place,
    /// Calls that fail
    #[arg(long, value_parser = parse_plan)]
    plan: Option<Plan>,
    /// Call before which the process is killed
    #[arg(long, value_parser = parse_kill)]
    kill: Option<Kill>,
}

/// The arguments of a worker that checks the files of a session.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    place: Place,
    /// Copies that may be present
    #[arg(long, value_delimiter = ',')]
    copies: Vec<PathBuf>,
}

/// Returns the source of a session's writes; odd turns have long keys.
pub(crate) fn stream(seed: u64, turn: u64) -> Stream {
    Stream { long_keys: turn % 2 == 1, ..Stream::plain(seed) }
}

/// The source of failures.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// Injected failures of system calls.
    Calls(Injector),
    /// The file system, or limits of the process.
    Surroundings,
}

/// The state of a session.
pub(super) struct Session {
    pub(super) place: Place,
    sizes: Sizes,
    cause: Cause,
    /// Additional bytes in every write, so that a database grows.
    ballast: usize,
    pub(super) spaces: Option<Spaces>,
    journal: Journal,
    /// The number of the last attempted write.
    last: u64,
    /// Whether the state of doubtful writes has been determined since the last opening.
    settled: bool,
    /// Copies, with their required contents, and whether they were reported as complete.
    copies: Vec<(PathBuf, Journal, bool)>,
}

pub(super) fn run(args: &Args) {
    let injector = match Injector::install(args.plan, args.kill.clone()) {
        Ok(injector) => injector,
        Err(error) => return wrong(format!("system calls cannot be caught: {error}")),
    };
    let mut session = Session::new(&args.place, Sizes::SESSION, Cause::Calls(injector), 0);
    injector.arm();
    session_steps::all(&mut session, &injector);
    injector.disarm();
    injector.phase("after");
    for (name, calls) in injector.calls().filter(|(_, calls)| *calls > 0) {
        tell(&Message::Count { what: format!("calls {name}"), count: calls });
    }
    tell(&Message::Count { what: "fired".into(), count: injector.fired() });
    session.after();
}

pub(super) fn wrong(what: String) {
    tell(&Message::Wrong(what));
}

impl Session {
    pub(super) fn new(place: &Place, sizes: Sizes, cause: Cause, ballast: usize) -> Session {
        let journal = Journal::new(stream(place.seed, place.turn));
        let place = place.clone();
        Session {
            place,
            sizes,
            cause,
            ballast,
            spaces: None,
            journal,
            last: 0,
            settled: true,
            copies: Vec::new(),
        }
    }

    fn options(&self) -> Options {
        turns::database(self.place.turn, self.sizes)
    }

    /// Accepts an error, if its source is known.
    pub(super) fn failed(&self, what: &str, error: &dyn std::fmt::Display) {
        tell(&Message::Failed(format!("{what}: {error}")));
        if let Cause::Calls(injector) = self.cause
            && injector.fired() == 0
        {
            wrong(format!("{what} failed, but no call had failed: {error}"));
        }
    }

    /// Opens the database if it is closed. Reports whether it is open now.
    pub(super) fn open(&mut self) -> bool {
        if self.spaces.is_none() {
            self.settled = false;
            match Spaces::open(&self.place, self.sizes, self.options()) {
                Ok(spaces) => self.spaces = Some(spaces),
                Err(error) => self.failed("open", &error),
            }
        }
        if !self.settled {
            self.look();
        }
        self.spaces.is_some()
    }

    /// Closes the database, whatever the result.
    pub(super) fn close(&mut self) -> bool {
        let Some(Spaces { db, spaces }) = self.spaces.take() else { return true };
        let what = if db.stats().poisoned.is_some() { "writes had ended" } else { "writes went on" };
        tell(&Message::Count { what: format!("closings: {what}"), count: 1 });
        drop(spaces);
        self.settled = false;
        db.close().map_err(|error| self.failed("close", &error)).is_ok()
    }

    /// Attempts `count` writes. Reports whether all were acknowledged.
    pub(super) fn write(&mut self, count: u64, way: Way) -> bool {
        // Doubtful writes must be resolved first, since the next writes would make their state
        // unknowable.
        if !self.open() || !self.settled {
            return false;
        }
        let mut all = true;
        for _ in 0..count {
            self.last += 1;
            all &= self.write_one(self.last, way);
        }
        all
    }

    fn write_one(&mut self, number: u64, way: Way) -> bool {
        let Some(spaces) = &self.spaces else { return false };
        let write = self.journal.write(number, way);
        let mut besides = vec![(done_key(number), Vec::new())];
        if self.ballast > 0 {
            besides.push((ballast_key(number), ballast(number, self.ballast)));
        }
        self.journal.begin(number, way);
        tell(&Message::Began { number, ingested: way == Way::Ingestion });
        let result = match way {
            Way::Batch => write_batch(spaces, &write, besides).map_err(tamis::Error::from),
            Way::Ingestion => ingest(spaces, &write, besides, &self.place.dir.with_file_name("external")),
        };
        match &result {
            Ok(()) => {
                self.journal.acknowledge(number);
                tell(&Message::Acked { thread: 0, number, synced: write.synced });
            }
            Err(error) => self.failed("write", error),
        }
        result.is_ok()
    }

    pub(super) fn is_open(&self) -> bool {
        self.spaces.is_some()
    }

    pub(super) fn flush(&mut self) -> bool {
        let Some(spaces) = &self.spaces else { return false };
        spaces.db.flush().map_err(|error| self.failed("flush", &error)).is_ok()
    }

    /// Deletes the ballast, as a user would to free space. Reports whether that succeeded.
    pub(super) fn delete_ballast(&mut self) -> bool {
        let Some(spaces) = &self.spaces else { return false };
        spaces.db.delete_prefix(layout::BALLAST).map_err(|error| self.failed("delete", &error)).is_ok()
    }

    /// Makes a copy.
    pub(super) fn copy(&mut self) {
        let Some(spaces) = &self.spaces else { return };
        let name = format!("copy-{}", self.copies.len());
        let path = self.place.dir.with_file_name(&name);
        tell(&Message::CopyBegan { name: name.clone(), seen: Vec::new() });
        let made = spaces.db.checkpoint(&path);
        self.copies.push((path, self.journal.clone(), made.is_ok()));
        match made {
            Ok(()) => tell(&Message::CopyDone(name)),
            Err(error) => self.failed("checkpoint", &error),
        }
    }

    /// Reads and judges everything. Reports whether it could be read.
    pub(super) fn look(&mut self) -> bool {
        let Some(spaces) = &self.spaces else { return false };
        let over = matches!(self.cause, Cause::Calls(injector) if injector.is_over());
        let state = match read_state(&spaces.db) {
            Ok(state) => state,
            Err(Unreadable::Failed(error)) => {
                self.failed("reading", &error);
                if over {
                    wrong(format!("reads do not continue after the last failed call: {error}"));
                }
                return false;
            }
            Err(Unreadable::Wrong(what)) => {
                wrong(what);
                return false;
            }
        };
        if self.settled {
            self.journal.judge_open(&state).unwrap_or_else(|what| wrong(format!("reading: {what}")));
            return true;
        }
        let before = self.journal.held();
        self.journal.judge_reopened(&state).unwrap_or_else(|what| wrong(format!("after opening: {what}")));
        for number in self.journal.held_since(before) {
            tell(&Message::Acked { thread: 0, number, synced: false });
        }
        self.settled = true;
        true
    }

    /// Checks that reads continue once nothing fails any more, and that everything works after
    /// reopening.
    fn after(&mut self) {
        if self.spaces.is_some() {
            if !self.look() {
                wrong("reads do not continue when no call fails any more".into());
            }
            self.last += 1;
            let went_on = self.write_one(self.last, Way::Batch);
            let what = if went_on {
                "sessions that could write at the end"
            } else {
                "sessions whose writes had ended"
            };
            tell(&Message::Count { what: what.into(), count: 1 });
            self.look();
        }
        self.close();
        for round in ["reopening", "reopening again"] {
            if !self.open() {
                return wrong(format!("{round} failed when no call fails any more"));
            }
            match self.spaces.as_ref().map(|spaces| spaces.db.verify()) {
                Some(Ok(report)) => {
                    report
                        .problems
                        .into_iter()
                        .for_each(|problem| wrong(format!("{round}: verify: {problem}")));
                }
                Some(Err(error)) => wrong(format!("{round}: verify: {error}")),
                None => {}
            }
            if !self.write(1, Way::Batch) {
                wrong(format!("{round}: a write failed"));
            }
            if !self.close() {
                wrong(format!("{round}: closing failed"));
            }
        }
        self.look_at_copies();
    }

    fn look_at_copies(&mut self) {
        for (path, mut journal, done) in std::mem::take(&mut self.copies) {
            let at = path.display();
            let options = Options { create_if_missing: false, ..self.options() };
            match options.open(&path) {
                Ok(db) => match read_state(&db) {
                    Ok(state) => {
                        journal.judge_reopened(&state).unwrap_or_else(|what| wrong(format!("{at}: {what}")));
                    }
                    Err(error) => wrong(format!("{at}: {error}")),
                },
                Err(OpenError::NotFound { .. }) if !done => {}
                Err(error) => wrong(format!("{at}: {error}")),
            }
        }
    }
}

/// Returns incompressible bytes.
fn ballast(number: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Opens the files of a session, reports their contents, and does what must be possible.
pub(super) fn check(args: &CheckArgs) {
    let options = turns::database(args.place.turn, Sizes::SESSION);
    for path in &args.copies {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match options.clone().create_if_missing(false).open(path) {
            Ok(db) => tell_sound(&db, &name),
            Err(OpenError::NotFound { .. }) => tell(&Message::CopyAbsent(name)),
            Err(error) => wrong(format!("opening {name}: {error}")),
        }
    }
    let spaces = match Spaces::open(&args.place, Sizes::SESSION, options) {
        Ok(spaces) => spaces,
        Err(error) => return wrong(format!("opening: {error}")),
    };
    tell_sound(&spaces.db, DATABASE);
    let Spaces { db, spaces } = spaces;
    let probe = |what: &str, result: Result<(), tamis::Error>| {
        result.unwrap_or_else(|error| wrong(format!("{what} afterwards: {error}")));
    };
    let sync = || db.put("probe", "value").and_then(|()| db.sync()).and_then(|()| db.delete("probe"));
    probe("writing", sync().map_err(tamis::Error::from));
    probe("flushing", db.flush().map_err(tamis::Error::from));
    probe("copying", db.checkpoint(args.place.dir.with_file_name("probe")).map_err(tamis::Error::from));
    probe("compacting", db.compact().map_err(tamis::Error::from));
    drop(spaces);
    probe("closing", db.close().map_err(tamis::Error::from));
}

fn tell_sound(db: &Db, name: &str) {
    match db.verify() {
        Ok(report) => {
            report.problems.into_iter().for_each(|problem| wrong(format!("verify of {name}: {problem}")))
        }
        Err(error) => wrong(format!("verify of {name}: {error}")),
    }
    match read_state(db) {
        Ok(state) => tell_state(name, &state),
        Err(error) => wrong(format!("reading {name}: {error}")),
    }
}
