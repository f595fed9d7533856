//! The reads of the main job. Keys, bounds and expected answers are stored in the order of the
//! reads, so that fetching them adds little to the timed loop.

use std::time::Instant;

use tamis::Db;
use tamis_bench::measure::Labels;
use tamis_bench::random::{Permutation, Random};
use tamis_bench::run::Timing;
use tamis_bench::{Measurement, Progress};

use crate::commands::demo::{Data, Entry};
use crate::failure::Failure;
use crate::text::printable;

/// Records in one range.
const RANGE_RECORDS: usize = 100;

/// Ranges read in one round.
const RANGES: usize = 2000;

/// Reads between two that are timed individually, and between two progress reports.
const SAMPLING: usize = 16;
const CHUNK: usize = 256;

/// One kind of read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Every loaded key, in random order.
    Existing,
    /// Every held-out key, in random order.
    Absent,
    /// Ranges of 100 records.
    Ranges,
    /// All places of each country.
    Prefixes,
}

impl Job {
    pub(super) const ALL: [Job; 4] = [Job::Existing, Job::Absent, Job::Ranges, Job::Prefixes];

    fn name(self) -> &'static str {
        match self {
            Job::Existing => "existing keys",
            Job::Absent => "absent keys",
            Job::Ranges => "ranges of 100",
            Job::Prefixes => "prefixes (countries)",
        }
    }
}

/// One scan and its expected result.
struct Scan {
    low: Vec<u8>,
    /// The last key; `None` for a prefix.
    high: Option<Vec<u8>>,
    entries: usize,
    first: Vec<u8>,
    last: Vec<u8>,
}

/// All reads of one round.
pub(super) struct Reads {
    existing: Vec<Entry>,
    absent: Vec<Vec<u8>>,
    ranges: Vec<Scan>,
    prefixes: Vec<Scan>,
    labels: Labels,
}

impl Reads {
    pub(super) fn prepare(data: &Data) -> Reads {
        let loaded = &data.loaded;
        let shuffled = |len: usize, seed| {
            let order = Permutation::new(len as u64, seed);
            (0..len as u64).map(move |i| order.at(i) as usize)
        };
        let copy = |e: &Entry| Entry { key: e.key.clone(), value: e.value.clone() };
        let mut random = Random::new(4);
        let scan = |low: Vec<u8>, high: Option<Vec<u8>>, found: &[Entry]| Scan {
            low,
            high,
            entries: found.len(),
            first: found.first().map_or_else(Vec::new, |e| e.key.clone()),
            last: found.last().map_or_else(Vec::new, |e| e.key.clone()),
        };
        let span = RANGE_RECORDS.min(loaded.len());
        let range = |_| {
            let start = random.below((loaded.len() - span + 1) as u64) as usize;
            let found = &loaded[start..start + span];
            scan(found[0].key.clone(), Some(found[span - 1].key.clone()), found)
        };
        let ranges = (0..RANGES.min(loaded.len())).map(range).collect();
        let prefix = |prefix: &Vec<u8>| {
            let start = loaded.partition_point(|e| e.key < *prefix);
            let len = loaded[start..].partition_point(|e| e.key.starts_with(prefix));
            scan(prefix.clone(), None, &loaded[start..start + len])
        };
        let mean = |part: fn(&Entry) -> &Vec<u8>| {
            loaded.iter().map(|e| part(e).len()).sum::<usize>() as f64 / loaded.len().max(1) as f64
        };
        Reads {
            existing: shuffled(loaded.len(), 2).map(|i| copy(&loaded[i])).collect(),
            absent: shuffled(data.held_out.len(), 3).map(|i| data.held_out[i].key.clone()).collect(),
            ranges,
            prefixes: data.prefixes.iter().map(prefix).collect(),
            labels: Labels {
                experiment: "main".to_owned(),
                workload: String::new(),
                key_set: "geonames".to_owned(),
                keys: loaded.len() as u64,
                key_bytes: mean(|e| &e.key),
                value_bytes: mean(|e| &e.value),
                threads: 1,
                settled: false,
            },
        }
    }

    fn ops(&self, job: Job) -> usize {
        match job {
            Job::Existing => self.existing.len(),
            Job::Absent => self.absent.len(),
            Job::Ranges => self.ranges.len(),
            Job::Prefixes => self.prefixes.len(),
        }
    }

    pub(super) fn ops_per_round(&self) -> u64 {
        Job::ALL.iter().map(|&job| self.ops(job) as u64).sum()
    }

    /// Touches every table once, so that neither mode pays for the first access after opening.
    pub(super) fn warm_up(&self, db: &Db) -> Result<(), Failure> {
        for entry in db.iter() {
            entry?;
        }
        for i in (0..self.existing.len()).step_by(10) {
            self.read(Job::Existing, db, i)?;
        }
        Ok(())
    }

    /// Runs one kind of read once and checks every answer.
    pub(super) fn measure(&self, job: Job, db: &Db, progress: &dyn Progress) -> Result<Measurement, Failure> {
        let before = db.stats();
        let mut timing = Timing::default();
        let ops = self.ops(job);
        for start in (0..ops).step_by(CHUNK) {
            let end = (start + CHUNK).min(ops);
            let chunk = Instant::now();
            for i in start..end {
                if i % SAMPLING == 0 {
                    let one = Instant::now();
                    self.read(job, db, i)?;
                    timing.latency.record(one.elapsed().as_nanos() as u64);
                } else {
                    self.read(job, db, i)?;
                }
            }
            timing.busy_ns += chunk.elapsed().as_nanos() as u64;
            progress.advance((end - start) as u64);
        }
        timing.ops = ops as u64;
        timing.ops_per_second = 1e9 / timing.ns_per_op().max(1e-9);
        let labels = Labels { workload: job.name().to_owned(), ..self.labels.clone() };
        Ok(Measurement::new(labels, &timing, &before, db))
    }

    #[inline]
    fn read(&self, job: Job, db: &Db, i: usize) -> Result<(), Failure> {
        match job {
            Job::Existing => {
                let Entry { key, value } = &self.existing[i];
                match db.get(key)? {
                    Some(found) if found[..] == value[..] => Ok(()),
                    found => Err(wrong(key, &format!("{} bytes found", found.map_or(0, |v| v.len())))),
                }
            }
            Job::Absent => match db.get(&self.absent[i])? {
                None => Ok(()),
                Some(_) => Err(wrong(&self.absent[i], "found, but it was never loaded")),
            },
            Job::Ranges => scan(db, &self.ranges[i]),
            Job::Prefixes => scan(db, &self.prefixes[i]),
        }
    }
}

fn scan(db: &Db, scan: &Scan) -> Result<(), Failure> {
    let entries = match &scan.high {
        Some(high) => db.range(&scan.low[..]..=&high[..]),
        None => db.prefix(&scan.low),
    };
    let mut seen = 0;
    let mut last = None;
    for entry in entries {
        let (key, _) = entry?;
        if seen == 0 && key[..] != scan.first[..] {
            return Err(wrong(&scan.low, "its range starts with another key"));
        }
        seen += 1;
        last = Some(key);
    }
    if seen != scan.entries || last.is_some_and(|key| key[..] != scan.last[..]) {
        return Err(wrong(&scan.low, &format!("its range holds {seen} records instead of {}", scan.entries)));
    }
    Ok(())
}

fn wrong(key: &[u8], what: &str) -> Failure {
    Failure::Problem(format!("wrong answer for {}: {what}", printable(key)))
}
