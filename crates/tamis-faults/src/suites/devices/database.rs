//! A database on a recorded device: sessions, and the judgement of the disks after cuts in them.
//!
//! A session continues from one of the disks of the session before: either as the cut left it, so
//! that the recovery of the file system and of the database are recorded and cut, too, or after
//! both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::super::trial::{Load, Trial};
use super::Lie;
use super::rig::{Cut, Rig};
use crate::disks::{Entry, Image, Replay, cuts};
use crate::machine::{Ended, Recorder, Setup, Worker, Writeback, collect};
use crate::oracle::Stream;
use crate::report::stopped;
use crate::wire::Message;

const THREADS: u32 = 3;
/// An opening that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database under test.
#[derive(Debug)]
pub(super) struct Database {
    load: Load,
    lie: Lie,
    rng: fastrand::Rng,
    /// The number of the last session.
    epoch: u64,
    /// The disk before that session.
    base: Image,
    /// The account before that session.
    trial: Trial,
    /// The directory around it.
    home: PathBuf,
    /// Beside it: logs of the last session, and of the last judgement.
    session_logs: PathBuf,
    look_logs: PathBuf,
}

/// A session.
#[derive(Debug)]
pub(super) struct Worked {
    pub(super) entries: Vec<Entry>,
    pub(super) problems: Vec<String>,
}

/// The result of opening the database on one disk.
enum Look {
    Sound(Box<Trial>),
    Wrong {
        lost: bool,
    },
    /// The file system is unusable.
    None,
}

/// The verdicts on the disks of one session.
#[derive(Debug)]
pub(super) struct Verdicts {
    pub(super) disks: u64,
    /// The disks that lost a promised write.
    pub(super) losses: u64,
    /// Whether there is a sound disk for another session.
    pub(super) may_go_on: bool,
}

impl Database {
    pub(super) fn new(rig: &Rig<'_>, number: u64, lie: Lie) -> Database {
        let seed = rig.bench.amount.seed.wrapping_mul(1_000_003).wrapping_add(number << 8)
            ^ ((rig.kind as u64) << 40);
        let stream = Stream {
            long_keys: number % 4 == 1,
            large_values: number.is_multiple_of(2),
            seldom_synced: number % 3 == 1,
            ..Stream::plain(seed)
        };
        let load = Load { stream, threads: THREADS };
        Database {
            load,
            lie,
            rng: fastrand::Rng::with_seed(seed),
            epoch: 0,
            base: rig.blank.clone(),
            trial: Trial::new(load),
            home: rig.point().join("trial"),
            session_logs: rig.bench.work.join("session"),
            look_logs: rig.bench.work.join("look"),
        }
    }

    /// Returns the number of a set of options.
    fn turn(&self, epoch: u64) -> u64 {
        self.load.stream.seed.wrapping_add(epoch * 17) % 100_000
    }

    /// Counts for the report, in which lies have no place.
    fn count(&self, rig: &Rig<'_>, what: &str, count: u64) {
        if self.lie == Lie::None {
            rig.count(what, count);
        }
    }

    /// Records one session of work.
    pub(super) fn work(&mut self, rig: &mut Rig<'_>) -> Result<Worked, String> {
        self.epoch += 1;
        self.trial.begin(self.epoch);
        self.trial.forget_copies();
        let mut args = self.load.args(&self.home, self.turn(self.epoch), self.epoch, &[]);
        args.push("--wait".into());
        if self.lie == Lie::SkippedSyncs {
            args.push("--skip-syncs".into());
        }
        let setup = fresh_setup(args, &self.session_logs);
        let mut end = None;
        let base = self.base.clone();
        let (home, rng) = (self.home.clone(), &mut self.rng);
        let entries = rig.record(base, self.lie.flushes(), |recorder| {
            end = write(&home, &setup, recorder, rng)?;
            Ok(())
        })?;
        let mut whole = self.trial.clone();
        told(&entries).for_each(|message| whole.hear(message));
        let mut problems = std::mem::take(&mut whole.problems);
        if let Some(end) = end.filter(|_| problems.is_empty()) {
            problems.push(end);
        }
        let number = |kind: fn(&Entry) -> bool| entries.iter().filter(|entry| kind(entry)).count() as u64;
        for (what, count) in [
            ("sessions", 1),
            ("writes acknowledged", whole.acked),
            ("writes sent to the device", number(|entry| matches!(entry, Entry::Write { .. }))),
            ("flushes", number(|entry| matches!(entry, Entry::Flush))),
        ] {
            self.count(rig, what, count);
        }
        Ok(Worked { entries, problems })
    }

    /// Judges disks after `count` cuts in a session.
    pub(super) fn judge(
        &mut self,
        rig: &mut Rig<'_>,
        entries: &[Entry],
        count: usize,
    ) -> Result<Verdicts, String> {
        let mut verdicts = Verdicts { disks: 0, losses: 0, may_go_on: false };
        let mut replay = Replay::new(self.base.clone(), entries);
        let mut before = self.trial.clone();
        let mut next = None;
        let mut candidates = 0;
        for position in self.cuts(entries, count) {
            if stopped() {
                break;
            }
            replay.advance(position, |message| before.hear(message));
            let survival = self.lie.survival(replay.is_flushed(), &mut self.rng);
            let rebuilt = replay.disk(survival, &mut self.rng);
            for (what, count) in [
                ("disks", true),
                ("   cut right after a flush", replay.is_flushed()),
                ("   with some of the writes since the last flush", rebuilt.is_partial()),
                ("   with torn writes", rebuilt.torn > 0),
                ("   cut before the writers began", !before.writing),
            ] {
                self.count(rig, what, count.into());
            }
            verdicts.disks += 1;
            let cut = Cut { position, survival };
            let after_cut = cut_trial(&before, &entries[position..]);
            let sound = match self.look(rig, &rebuilt.disk, cut, after_cut.clone())? {
                Look::Sound(trial) => trial,
                Look::Wrong { lost } => {
                    verdicts.losses += u64::from(lost);
                    continue;
                }
                Look::None => continue,
            };
            // A file system with torn blocks may be damaged where nobody has looked.
            if survival.tears_blocks() {
                continue;
            }
            candidates += 1;
            if self.rng.u32(..candidates) == 0 {
                next = Some(match self.rng.bool() {
                    true => (rebuilt.disk, after_cut),
                    false => (rig.device.image(), *sound),
                });
            }
        }
        if let Some(next) = next {
            verdicts.may_go_on = true;
            (self.base, self.trial) = next;
        }
        Ok(verdicts)
    }

    /// Draws cuts; a quarter of them comes before the writers begin.
    fn cuts(&mut self, entries: &[Entry], count: usize) -> Vec<usize> {
        let begins = |entry: &Entry| matches!(entry, Entry::Told(Message::Phase(_)));
        let opened = entries.iter().position(begins).unwrap_or(entries.len());
        let mut positions = cuts(&entries[..opened], count / 4, &mut self.rng);
        positions.extend(cuts(entries, count - positions.len(), &mut self.rng));
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Opens the database on a disk and judges it. Records what is wrong, unless there was a lie.
    fn look(&mut self, rig: &mut Rig<'_>, disk: &Image, cut: Cut, mut trial: Trial) -> Result<Look, String> {
        let epoch = self.epoch + 1;
        trial.begin(epoch);
        let other_options = self.rng.u64(..1000);
        let turn = self.turn(epoch + other_options);
        let mut args = self.load.args(&self.home, turn, epoch, &trial.copies(&self.home));
        args.push("--look".into());
        let setup = fresh_setup(args, &self.look_logs);
        let looked = rig.examine(disk, cut, self.lie, || {
            // The cut may have come before it was durable.
            make_dir(&self.home)?;
            collect(&setup, PATIENCE).map_err(|error| format!("a worker: {error}"))
        })?;
        let Some((ended, messages)) = looked else { return Ok(Look::None) };
        messages.iter().for_each(|message| trial.hear(message));
        let mut problems = std::mem::take(&mut trial.problems);
        if problems.is_empty() && (ended != Ended::Exited(0) || trial.judged.is_none()) {
            problems.push(format!("the worker ended without a result: {ended}"));
        }
        let judged = trial.judged.unwrap_or_default();
        self.count(rig, "promised writes checked", judged.safe);
        self.count(rig, "keys compared", judged.keys);
        self.count(rig, "copies judged", trial.copies_judged);
        if problems.is_empty() {
            return Ok(Look::Sound(Box::new(trial)));
        }
        let lost = problems.iter().any(|what| what.contains("LOST"));
        if self.lie != Lie::None {
            return Ok(Look::Wrong { lost });
        }
        let how = format!("{cut}; mount disk.image there, then: {}", setup.command());
        if let Some(damage) = rig.damage() {
            let what = format!("the file system is damaged: {}; {damage}", problems.join("; "));
            rig.damaged(&what, &how, disk, cut);
            return Ok(Look::None);
        }
        rig.count("disks that lost a promised write", lost.into());
        for what in problems {
            rig.fail(&what, &how, Some(disk), &[&self.session_logs, &self.look_logs]);
        }
        Ok(Look::Wrong { lost })
    }

    /// Records what went wrong in a session.
    pub(super) fn fail(&self, rig: &Rig<'_>, what: &str) {
        rig.fail(what, "the session", None, &[&self.session_logs]);
    }
}

fn make_dir(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}

/// Returns a worker's parameters, with an empty directory for its logs.
fn fresh_setup(args: Vec<String>, logs: &Path) -> Setup {
    let _ = std::fs::remove_dir_all(logs);
    Setup::new(args, logs)
}

fn told(entries: &[Entry]) -> impl Iterator<Item = &Message> {
    entries.iter().filter_map(|entry| match entry {
        Entry::Told(message) => Some(message),
        _ => None,
    })
}

/// Returns the account after a cut. What was acknowledged later is not promised, but may be there.
fn cut_trial(before: &Trial, later: &[Entry]) -> Trial {
    let mut trial = before.clone();
    trial.problems.clear();
    trial.freeze();
    // Before the database was open, nothing of this session can be there.
    if before.judged.is_some() {
        told(later).for_each(|message| trial.hear(message));
    }
    trial
}

/// Lets a worker write for some time. Returns its end if it ended by itself.
fn write(
    home: &Path,
    setup: &Setup,
    recorder: &Recorder,
    rng: &mut fastrand::Rng,
) -> Result<Option<String>, String> {
    make_dir(home)?;
    remove_copies(home);
    let writeback = Writeback::start(&home.join("db"), &home.join("other"), rng.fork());
    let writing = Arc::new(AtomicBool::new(false));
    let (began, recorder) = (writing.clone(), recorder.clone());
    let mut worker = Worker::start(setup, move |message| {
        let begins = matches!(&message, Message::Phase(name) if name == "writing");
        recorder.tell(message);
        began.fetch_or(begins, SeqCst);
    })
    .map_err(|error| format!("a worker: {error}"))?;
    let asked = Instant::now();
    while !writing.load(SeqCst) && !worker.has_ended() {
        if asked.elapsed() > PATIENCE {
            return Ok(Some("HUNG: opening takes a minute".into()));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    // All that was told before is in the log, so a write in the log is one of this session.
    worker.say("write");
    std::thread::sleep(Duration::from_millis(rng.u64(20..400)));
    drop(writeback);
    let ended = worker.has_ended();
    let how = worker.kill();
    Ok(ended.then(|| format!("the worker ended before the cut: {how}")))
}

/// Removes the copies of earlier sessions, which have been judged.
fn remove_copies(home: &Path) {
    let names = std::fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_copy =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("copy-"));
    for copy in names.filter(is_copy) {
        let _ = std::fs::remove_dir_all(copy);
    }
}
