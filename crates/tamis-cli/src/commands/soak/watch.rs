//! The process's use of system resources over time.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The number of samples in the whole run, if it is long enough for one per second.
const SAMPLES: u32 = 120;

/// The growth allowed since the second quarter of the time: caches, memtables and open tables vary
/// from moment to moment.
const MORE_MEMORY: u64 = 24 << 20;
const MORE_DESCRIPTORS: u64 = 32;

/// One sample of the process. Figures that the system does not provide are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) operations: u64,
    pub(super) memory: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
}

impl Sample {
    pub(super) fn to_json(self) -> Value {
        json!({
            "seconds": self.at.as_secs_f64(), "operations": self.operations, "resident_bytes": self.memory,
            "descriptors": self.descriptors, "threads": self.threads,
        })
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sample { at, operations, memory, descriptors, threads } = self;
        let (seconds, mib) = (at.as_secs(), *memory as f64 / f64::from(1 << 20));
        write!(
            f,
            "{seconds:>6} s {operations:>12} operations {mib:>8.1} MiB {descriptors:>6} descriptors {threads:>4} threads"
        )
    }
}

pub(super) struct Watch {
    start: Instant,
    time: Duration,
    every: Duration,
    samples: Vec<Sample>,
}

impl Watch {
    pub(super) fn new(start: Instant, time: Duration) -> Watch {
        let every = (time / SAMPLES).max(Duration::from_secs(1));
        Watch { start, time, every, samples: Vec::new() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.start.elapsed() >= self.time
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Takes a sample if one is due.
    pub(super) fn look(&mut self, operations: u64) -> Option<Sample> {
        let at = self.start.elapsed();
        if at < self.every * (self.samples.len() as u32 + 1) {
            return None;
        }
        let sample = Sample {
            at,
            operations,
            memory: status("VmRSS:").unwrap_or(0) << 10,
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            threads: status("Threads:").unwrap_or(0),
        };
        self.samples.push(sample);
        Some(sample)
    }

    /// Fails with a description if anything grew.
    pub(super) fn judge(&self) -> Result<(), String> {
        let quarter = |n: u32| -> Vec<Sample> {
            let within = self.time / 4 * n..self.time / 4 * (n + 1);
            self.samples.iter().filter(|sample| within.contains(&sample.at)).copied().collect()
        };
        let (early, late) = (quarter(1), quarter(3));
        if early.len() < 3 || late.len() < 3 {
            return Ok(());
        }
        let grown = |what: &str, of: fn(&Sample) -> u64, limit: fn(u64) -> u64| {
            let (before, after) = (median(&early, of), median(&late, of));
            if after <= limit(before) {
                return Ok(());
            }
            Err(format!("{what} grew from {before} in the second quarter of the time to {after} in the last"))
        };
        grown("resident bytes", |s| s.memory, |before| before + before / 10 + MORE_MEMORY)?;
        grown("open descriptors", |s| s.descriptors, |before| before + before / 4 + MORE_DESCRIPTORS)?;
        grown("threads", |s| s.threads, |before| before)
    }
}

fn median(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    let mut numbers: Vec<u64> = samples.iter().map(of).collect();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Returns a number from the process's status.
fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(of: impl Fn(u64) -> Sample) -> Result<(), String> {
        let time = Duration::from_secs(40);
        let samples = (0..40).map(of).collect();
        Watch { start: Instant::now(), time, every: Duration::from_secs(1), samples }.judge()
    }

    fn sample(second: u64) -> Sample {
        let noise = second * 7919 % 5;
        Sample {
            at: Duration::from_secs(second),
            operations: second * 1000,
            memory: (100 + noise) << 20,
            descriptors: 200 + noise,
            threads: 9,
        }
    }

    #[test]
    fn steady_use_is_no_leak_and_growth_is_one() {
        assert_eq!(watch(sample), Ok(()));
        // Start-up growth does not count.
        assert_eq!(
            watch(|s| Sample { memory: if s < 10 { 1 << 20 } else { 100 << 20 }, ..sample(s) }),
            Ok(())
        );
        let grown = |of: fn(u64) -> Sample| watch(of).unwrap_err();
        assert!(grown(|s| Sample { memory: (100 + 3 * s) << 20, ..sample(s) }).contains("resident"));
        assert!(grown(|s| Sample { descriptors: 200 + 6 * s, ..sample(s) }).contains("descriptors"));
        assert!(grown(|s| Sample { threads: 9 + s / 20, ..sample(s) }).contains("threads"));
        assert_eq!(watch(|s| Sample { at: Duration::ZERO, ..sample(s) }), Ok(()), "too few samples to tell");
    }
}
