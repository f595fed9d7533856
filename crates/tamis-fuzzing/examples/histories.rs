//! Random histories of seeds, compared with a model: `cargo run --release -p tamis-fuzzing
//! --example histories -- --seeds 0..100000`.
//!
//! `--threads N` runs so many at a time (2), `--patience S` waits so many seconds for one before it
//! counts as hung (60). A history that differs, panics or hangs is printed with its seed, and the
//! exit code is 1. After a difference the others go on; a hung thread cannot be stopped, so a hang
//! ends the program.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tamis_fuzzing::history;

struct Plan {
    seeds: Range<u64>,
    threads: usize,
    patience: Duration,
}

fn plan() -> Result<Plan, String> {
    let mut plan = Plan { seeds: 0..10_000, threads: 2, patience: Duration::from_secs(60) };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{word}: `{text}` is no number"));
        match word.as_str() {
            "--seeds" => {
                let (from, to) = value.split_once("..").ok_or("seeds are a range such as 0..1000")?;
                plan.seeds = number(from)?..number(to)?;
            }
            "--threads" => plan.threads = number(&value)?.max(1) as usize,
            "--patience" => plan.patience = Duration::from_secs(number(&value)?),
            _ => return Err(format!("`{word}` is none of --seeds, --threads, --patience")),
        }
    }
    Ok(plan)
}

/// How often the histories that run are looked at.
const LOOKS: Duration = Duration::from_millis(200);
/// How often the number of histories is printed.
const REPORTS: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let plan = match plan() {
        Ok(plan) => plan,
        Err(what) => {
            eprintln!("histories: {what}");
            return ExitCode::from(2);
        }
    };
    let (next, done, failed) = (AtomicU64::new(plan.seeds.start), AtomicU64::new(0), AtomicU64::new(0));
    let running = AtomicUsize::new(plan.threads);
    // What each thread is at.
    let at: Vec<Mutex<Option<(u64, Instant)>>> = (0..plan.threads).map(|_| Mutex::default()).collect();
    let started = Instant::now();
    let report = || {
        let (done, seconds) = (done.load(Relaxed), started.elapsed().as_secs_f64());
        println!(
            "{done} histories in {seconds:.0} s ({:.0} a second), {} failed",
            done as f64 / seconds,
            failed.load(Relaxed)
        );
    };
    std::thread::scope(|scope| {
        for at in &at {
            let (next, done, failed, running, plan) = (&next, &done, &failed, &running, &plan);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= plan.seeds.end {
                        break;
                    }
                    *at.lock().unwrap_or_else(PoisonError::into_inner) = Some((seed, Instant::now()));
                    // The hook has printed the panic.
                    if catch_unwind(AssertUnwindSafe(|| history(seed))).is_err() {
                        failed.fetch_add(1, Relaxed);
                        println!("seed {seed} failed; again: --seeds {seed}..{}", seed + 1);
                    }
                    done.fetch_add(1, Relaxed);
                }
                *at.lock().unwrap_or_else(PoisonError::into_inner) = None;
                running.fetch_sub(1, Relaxed);
            });
        }
        let mut reported = Instant::now();
        while running.load(Relaxed) > 0 {
            std::thread::sleep(LOOKS);
            for at in &at {
                let at = *at.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((seed, since)) = at
                    && since.elapsed() > plan.patience
                {
                    report();
                    let seconds = plan.patience.as_secs();
                    println!(
                        "seed {seed} hangs: no end after {seconds} s; again: --seeds {seed}..{}",
                        seed + 1
                    );
                    std::process::exit(1);
                }
            }
            if reported.elapsed() > REPORTS {
                reported = Instant::now();
                report();
            }
        }
    });
    report();
    if failed.load(Relaxed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
