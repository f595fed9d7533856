//! Runs successive seeds in separate processes until one fails or the time is over.

use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::plan::plan;
use crate::run::run;

/// The totals of a hunt.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of simulations.
    pub seeds: u64,
    /// The number of decisions in all of them.
    pub steps: u64,
    /// The failed seeds and their failures.
    pub failures: Vec<(u64, String)>,
}

/// The seeds to run and the time limit.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// The first seed.
    pub from: u64,
    /// The maximum number of seeds.
    pub seeds: u64,
    /// The time limit.
    pub limit: Duration,
    /// The number of concurrent processes.
    pub jobs: u64,
    /// Whether to stop at the first failure.
    pub stop: bool,
}

/// A child's messages about a seed, one line each.
const STEPS: &str = "steps";
const FAILED: &str = "failed";

/// The time after which a seed counts as hung. The machine notices what hangs in locks, pauses and
/// file operations; a thread that does none of these keeps the baton for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// In a child: runs every `stride`th seed and reports its result. Ends after a failure, whose
/// threads are still running.
pub fn work(seeds: Range<u64>, stride: u64) {
    let at = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&at));
        run_all(seeds, stride, &at);
        std::process::exit(0);
    });
}

/// Ends the process when one seed takes too long. `at` is one more than the seed.
fn watch(at: &AtomicU64) {
    let mut last = (0, Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = at.load(Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        } else if now > 0 && last.1.elapsed() > PATIENCE {
            println!("{FAILED} {} \"a thread runs on and on\"", now - 1);
            std::process::exit(0);
        }
    }
}

fn run_all(seeds: Range<u64>, stride: u64, at: &AtomicU64) {
    for seed in seeds.step_by(stride as usize) {
        at.store(seed + 1, Relaxed);
        let report = run(&plan(seed));
        match report.failure {
            None => println!("{STEPS} {seed} {}", report.steps),
            Some(failure) => {
                let failure = serde_json::to_string(&failure).unwrap_or_default();
                println!("{FAILED} {seed} {failure}");
                return;
            }
        }
    }
}

/// Runs seeds as specified.
pub fn hunt(what: Hunt, tell: impl Fn(&str) + Sync) -> io::Result<Tally> {
    let tally = std::sync::Mutex::new(Tally::default());
    let (stop, next_report) = (AtomicBool::new(false), AtomicU64::new(1000));
    let deadline = Instant::now() + what.limit;
    let result: io::Result<()> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..what.jobs)
            .map(|job| {
                let (tally, stop, next_report, tell) = (&tally, &stop, &next_report, &tell);
                scope.spawn(move || -> io::Result<()> {
                    let mut from = what.from + job;
                    let last = what.from + what.seeds;
                    while from < last && !stop.load(Relaxed) && Instant::now() < deadline {
                        let mut child = Running::start(from, what.jobs)?;
                        for line in child.lines() {
                            let line = line?;
                            let mut words = line.splitn(3, ' ');
                            let (kind, seed, rest) = (words.next(), words.next(), words.next().unwrap_or(""));
                            let Some(seed) = seed.and_then(|seed| seed.parse::<u64>().ok()) else { continue };
                            let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            tally.seeds += 1;
                            from = seed + what.jobs;
                            if kind == Some(FAILED) {
                                let failure = serde_json::from_str(rest).unwrap_or_else(|_| rest.to_owned());
                                tell(&format!("seed {seed} failed: {failure}"));
                                tally.failures.push((seed, failure));
                                stop.fetch_or(what.stop, Relaxed);
                            } else {
                                tally.steps += rest.parse::<u64>().unwrap_or(0);
                            }
                            if tally.seeds >= next_report.load(Relaxed) {
                                next_report.fetch_add(1000, Relaxed);
                                tell(&format!("{} seeds, {} steps", tally.seeds, tally.steps));
                            }
                            if from >= last || stop.load(Relaxed) || Instant::now() > deadline {
                                break;
                            }
                        }
                        let died =
                            child.end(from < last && !stop.load(Relaxed) && Instant::now() < deadline)?;
                        if let Some(how) = died {
                            let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            tell(&format!("seed {from} ended the process: {how}"));
                            tally.seeds += 1;
                            tally.failures.push((from, how));
                            stop.fetch_or(what.stop, Relaxed);
                            from += what.jobs;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        jobs.into_iter().try_for_each(|job| job.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    });
    result?;
    Ok(tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// A child that runs seeds; killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(from: u64, stride: u64) -> io::Result<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["work", &from.to_string(), &stride.to_string()]);
        Ok(Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?))
    }

    fn lines(&mut self) -> impl Iterator<Item = io::Result<String>> + use<> {
        self.0.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines)
    }

    /// Describes an unexpected end by a signal or an error.
    fn end(&mut self, unexpected: bool) -> io::Result<Option<String>> {
        if !unexpected {
            return Ok(None);
        }
        let status = self.0.wait()?;
        Ok((!status.success()).then(|| status.to_string()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
