//! A comparison: every side in every round, one after the other, for each workload and number of threads.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::measure::{Figures, Task};
use super::sides::Name;
use super::workload::Workload;
use crate::engines::{Compression, Setup};
use crate::failure::Failure;

/// Filter bits per key.
const FILTER_BITS: u32 = 10;

/// What to compare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) sides: Vec<Name>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) threads: Vec<usize>,
    pub(crate) rounds: u32,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) cache_bytes: u64,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The side's name.
    pub(crate) side: String,
    /// The workload.
    pub(crate) workload: Workload,
    /// Number of threads, without the one that scans.
    pub(crate) threads: usize,
    /// Number of the round, from 0.
    pub(crate) round: u32,
    /// Number of keys in the database.
    pub(crate) keys: u64,
    /// Size of a value in bytes.
    pub(crate) value_bytes: usize,
    /// The measured values.
    pub(crate) figures: Figures,
}

impl Plan {
    /// Returns the sides of a round in their order: another one is first each time, and every other round goes
    /// backwards.
    pub(crate) fn order(&self, round: u32) -> Vec<Name> {
        let mut sides = self.sides.clone();
        let first = round as usize % sides.len().max(1);
        sides.rotate_left(first);
        if round % 2 == 1 {
            sides.reverse();
        }
        sides
    }

    /// Returns the measurements of a side: it may not be capable of all workloads.
    fn is_measured(side: Name, workload: Workload) -> bool {
        workload.keys_at_once() <= side.most_keys()
    }

    /// Returns the number of measurements.
    pub(crate) fn len(&self) -> u64 {
        let pairs =
            self.sides.iter().flat_map(|&side| self.workloads.iter().map(move |&workload| (side, workload)));
        let measured = pairs.filter(|&(side, workload)| Plan::is_measured(side, workload)).count() as u64;
        measured * self.threads.len() as u64 * u64::from(self.rounds)
    }

    fn task(&self, workload: Workload, threads: usize, round: u32, dir: &Path) -> Task {
        let setup = Setup {
            dir: dir.to_owned(),
            cache_bytes: self.cache_bytes,
            metadata_bytes: 0,
            memtable_bytes: self.memtable_bytes,
            filter_bits: FILTER_BITS,
            compression: Compression::None,
            sync: false,
            direct_io: false,
            compaction: true,
            separated_bytes: None,
            overrides: Vec::new(),
        };
        let (keys, value_bytes, ops, seconds) = (self.keys, self.value_bytes, self.ops, self.seconds);
        let seed = self.seed.wrapping_add(u64::from(round));
        Task { workload, threads, keys, value_bytes, ops, seconds, seed, setup }
    }
}

/// Measures everything. `measure` gets a directory that does not exist yet, which is removed afterwards; each row is
/// passed to `tell` at once. A wrong answer ends the comparison. Whatever else fails is not tried again by that side, and
/// is returned beside the rows.
pub(crate) fn conduct(
    plan: &Plan,
    dir: &Path,
    measure: impl Fn(Name, &Task) -> Result<Figures, Failure>,
    mut tell: impl FnMut(&Row) -> Result<(), Failure>,
) -> Result<(Vec<Row>, Vec<String>), Failure> {
    let (mut rows, mut troubles, mut failed) = (Vec::new(), Vec::new(), BTreeSet::new());
    for round in 0..plan.rounds {
        for &workload in &plan.workloads {
            for &threads in &plan.threads {
                for side in plan.order(round) {
                    if !Plan::is_measured(side, workload) || failed.contains(&(side, workload)) {
                        continue;
                    }
                    let database = dir.join(side.name());
                    let task = plan.task(workload, threads, round, &database);
                    let measured = measure(side, &task);
                    remove(&database)?;
                    let figures = match measured {
                        Ok(figures) => figures,
                        Err(Failure::System(text)) => {
                            failed.insert((side, workload));
                            troubles.push(text);
                            continue;
                        }
                        Err(failure) => return Err(failure),
                    };
                    let keys = workload.data(plan.keys, plan.value_bytes).keys;
                    let (side, value_bytes) = (side.name().to_owned(), plan.value_bytes);
                    let row = Row { side, workload, threads, round, keys, value_bytes, figures };
                    tell(&row)?;
                    rows.push(row);
                }
            }
        }
    }
    Ok((rows, troubles))
}

/// Removes a database, of which there may be nothing yet.
fn remove(dir: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::file("remove", dir, &error)),
        _ => Ok(()),
    }
}
