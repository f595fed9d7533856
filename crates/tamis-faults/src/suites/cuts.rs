//! Power cuts: a file system is shut down under a database that several threads write to, and
//! mounted again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::trial::{Load, Trial};
use super::{Bench, remove};
use crate::machine::{Ended, Kind, Mounted, Setup, Shutdown, Worker, copy_dir};
use crate::oracle::Stream;
use crate::report::{Failure, stopped};

const SUITE: &str = "cuts";
/// Minimum size for `mkfs.xfs`.
pub(super) const IMAGE_BYTES: u64 = 320 << 20;
const THREADS: u32 = 3;
/// An opening that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    let kinds: Vec<Kind> = bench.amount.on.iter().copied().filter(|kind| *kind != Kind::Tmpfs).collect();
    for (number, kind) in kinds.iter().enumerate() {
        let Some(mut mounted) = bench.mount(*kind, IMAGE_BYTES)? else { continue };
        let cuts = share_of(bench.amount.cuts, kinds.len(), number);
        let mut left = cuts;
        while left > 0 && !stopped() {
            let done = cuts - left;
            let here = left.min(bench.amount.cuts_per_database.max(1));
            Database::new(bench, *kind, done, mounted.point())?.try_out(&mut mounted, here)?;
            left -= here;
        }
    }
    Ok(())
}

/// Returns the share of `all` of the part with this number among `parts`.
pub(super) fn share_of(all: u64, parts: usize, number: usize) -> u64 {
    let (parts, number) = (parts.max(1) as u64, number as u64);
    all / parts + u64::from(number < all % parts)
}

/// Draws the kind of the next cut: mostly one after which nothing is written.
pub(super) fn draw_shutdown(rng: &mut fastrand::Rng) -> Shutdown {
    match rng.u32(..10) {
        0 => Shutdown::Whole,
        1..3 => Shutdown::Journal,
        _ => Shutdown::Nothing,
    }
}

struct Database<'a> {
    bench: &'a Bench<'a>,
    kind: Kind,
    load: Load,
    rng: fastrand::Rng,
    /// On the file system.
    home: PathBuf,
    /// Beside it: logs, and the state before the last opening.
    beside: PathBuf,
    trial: Arc<Mutex<Trial>>,
}

fn lock(trial: &Mutex<Trial>) -> MutexGuard<'_, Trial> {
    trial.lock().unwrap_or_else(|e| e.into_inner())
}

impl<'a> Database<'a> {
    fn new(bench: &'a Bench<'a>, kind: Kind, number: u64, point: &Path) -> Result<Database<'a>, String> {
        let seed = bench.amount.seed.wrapping_mul(1_000_003).wrapping_add(number) ^ ((kind as u64) << 40);
        let long_keys = (number / bench.amount.cuts_per_database.max(1)) % 2 == 1;
        let home = point.join(format!("trial-{number}"));
        std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        // The trial's own directory is not under test.
        rustix::fs::sync();
        let beside = bench.fresh_dir(&format!("beside-{}", kind.name()))?;
        let load = Load { stream: Stream { long_keys, ..Stream::plain(seed) }, threads: THREADS };
        let trial = Arc::new(Mutex::new(Trial::new(load)));
        let rng = fastrand::Rng::with_seed(seed);
        Ok(Database { bench, kind, load, rng, home, beside, trial })
    }

    fn try_out(mut self, mounted: &mut Mounted, cuts: u64) -> Result<(), String> {
        for epoch in 1..=cuts + 1 {
            // One more opening than cuts, so that the last one is judged, too.
            let cut = (epoch <= cuts).then(|| draw_shutdown(&mut self.rng));
            let sound = self.session(mounted, epoch, cut)?;
            if !sound || stopped() {
                break;
            }
        }
        remove(&self.home);
        Ok(())
    }

    /// Runs one session and the cut at its end. Reports whether the database may continue.
    fn session(&mut self, mounted: &mut Mounted, epoch: u64, cut: Option<Shutdown>) -> Result<bool, String> {
        let turn = self.load.stream.seed.wrapping_add(epoch * 17) % 100_000;
        let setup = self.setup(epoch, turn);
        lock(&self.trial).begin(epoch);
        let trial = self.trial.clone();
        let heard = move |message| lock(&trial).hear(&message);
        let mut worker = Worker::start(&setup, heard).map_err(|error| format!("a worker: {error}"))?;
        // Occasionally the opening, including its recovery, is cut.
        let early = cut.is_some() && self.rng.u32(..8) == 0;
        if early {
            std::thread::sleep(Duration::from_micros(self.rng.u64(1000..60_000)));
        } else if !self.wait_for_writers(&mut worker) {
            lock(&self.trial).problems.push("HUNG: opening takes a minute".into());
        } else if cut.is_some() {
            std::thread::sleep(Duration::from_millis(self.rng.u64(20..250)));
        }
        let ended_before = worker.has_ended();
        if let Some(how) = cut {
            lock(&self.trial).freeze();
            mounted.shut_down(how)?;
            // Acknowledgements from now on show whether the kernel acknowledges syncs that it does
            // not perform.
            std::thread::sleep(Duration::from_millis(self.rng.u64(1..10)));
        }
        let ended = worker.kill();
        if ended_before {
            self.note_end(&ended);
        }
        if cut.is_some() {
            mounted.unmount()?;
            mounted.mount()?;
        }
        self.settle(&setup, cut, early)
    }

    fn setup(&self, epoch: u64, turn: u64) -> Setup {
        let copies = lock(&self.trial).copies(&self.home);
        Setup::new(self.load.args(&self.home, turn, epoch, &copies), &self.beside.join("logs"))
    }

    /// Waits until the writers are working; returns `false` if the worker has ended.
    fn wait_for_writers(&self, worker: &mut Worker) -> bool {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if lock(&self.trial).writing || worker.has_ended() {
                return true;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        false
    }

    fn note_end(&self, ended: &Ended) {
        let mut trial = lock(&self.trial);
        if trial.problems.is_empty() {
            trial.problems.push(format!("the worker ended before the cut: {ended}"));
        }
    }

    /// Counts the results, and keeps evidence of failures: the state before this session and after
    /// it.
    fn settle(&self, setup: &Setup, cut: Option<Shutdown>, early: bool) -> Result<bool, String> {
        let (report, kind) = (self.bench.report, self.kind.name());
        let mut trial = lock(&self.trial);
        if let Some(how) = cut {
            let when = if early { "while opening" } else { "while writing" };
            report.count(SUITE, format!("{kind}: cuts {when}, {how:?} written").to_lowercase(), 1);
        }
        report.count(SUITE, format!("{kind}: writes acknowledged"), trial.acked);
        report.count(SUITE, format!("{kind}: copies judged"), trial.copies_judged);
        if let Some(judged) = trial.judged {
            for (what, count) in [
                ("openings judged", 1),
                ("writes promised: synced and acknowledged before a cut, or before such", judged.safe),
                ("writes so acknowledged after a cut began", judged.in_flight),
                ("   of which lost: acknowledged by the kernel, see the control", judged.in_flight_lost),
                ("acknowledged writes lost that were not synced", judged.lost_buffered),
                ("keys compared", judged.keys),
            ] {
                report.count(SUITE, format!("{kind}: {what}"), count);
            }
        }
        let before = self.beside.join("before");
        let problems = std::mem::take(&mut trial.problems);
        let failure = |what: &String| Failure {
            suite: SUITE,
            what: format!("{kind}: {what}"),
            how: format!("--seed {} cuts; the session: {}", self.bench.amount.seed, setup.command()),
        };
        for what in &problems {
            report.fail(failure(what), &[&before, &self.home, &self.beside.join("logs")]);
        }
        let _ = std::fs::remove_dir_all(&before);
        copy_dir(&self.home, &before).map_err(|error| format!("keeping the state before: {error}"))?;
        Ok(problems.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_up() {
        for (all, parts) in [(1000, 2), (7, 3), (0, 2), (1, 4)] {
            assert_eq!((0..parts).map(|n| share_of(all, parts, n)).sum::<u64>(), all);
        }
    }

    #[test]
    fn every_way_to_cut_is_drawn() {
        let mut rng = fastrand::Rng::with_seed(1);
        let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| draw_shutdown(&mut rng)).collect();
        assert_eq!(drawn.len(), 3);
    }
}
