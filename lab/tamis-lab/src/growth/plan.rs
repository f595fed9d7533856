//! The figures with all settings resolved: points, trees, options, and all checks that do not need loaded data.

use tamis::Options;
use tamis::options::CompactionChoice;
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::report::grouped;

use super::{Over, measure};
use crate::figures::{Custom, Plan, Row, Scale};
use crate::filters::Side;

/// Size of a key in bytes.
pub(super) const KEY_BYTES: usize = 8;

/// Size of a value in bytes, the same at every point of every scale. 100 million pairs, the largest point, then have
/// 2.4 GB and stay in the page cache of a common machine.
pub(super) const VALUE_BYTES: usize = 16;

/// Filter bits per key.
const BITS: f64 = 10.0;

/// The side of `growth-keys`: the engine's default.
const DEFAULT_SIDE: &str = "blocked-bloom";

/// The sides of `growth-runs`: a filter for each run, and one for all.
pub(super) const SIDES: [&str; 2] = [DEFAULT_SIDE, "grf"];

/// Numbers of runs.
const RUNS: [u64; 6] = [1, 2, 5, 10, 20, 40];

/// Maximum overhead of an entry in a memtable.
const ENTRY_OVERHEAD: u64 = 64;

/// The largest memtable that options allow.
const MOST_MEMTABLE_BYTES: u64 = 4 << 30;

/// While compaction is held back, writes must never wait for runs.
const MANY_RUNS: usize = 1 << 20;

/// Fewest keys of a run.
const FEWEST_KEYS: u64 = 100;

/// Options that would contradict a side's name, and what to use instead.
const OWN_OPTIONS: [(&str, &str); 3] = [
    ("keyspace.filter", "--filters, in growth-runs"),
    ("keyspace.filter_allocation", "--filters, in growth-runs"),
    ("keyspace.bits_per_key", "--bits"),
];

/// Settings that depend on the scale.
struct Sizes {
    /// The first and the last number of keys of `growth-keys`; the number of keys of `growth-runs`.
    first: u64,
    last: u64,
    runs_keys: u64,
    runs: &'static [u64],
    /// Operations of a round: of `growth-keys`, of `growth-runs`.
    ops: [u64; 2],
    repeats: u32,
}

fn sizes(scale: Scale) -> Sizes {
    let large = Sizes {
        first: 100_000,
        last: 10_000_000,
        runs_keys: 1_000_000,
        runs: &RUNS,
        ops: [200_000, 100_000],
        repeats: 5,
    };
    match scale {
        Scale::Small => Sizes {
            first: 1_000,
            last: 10_000,
            runs_keys: 5_000,
            runs: &RUNS[..3],
            ops: [1_000, 500],
            repeats: 2,
        },
        Scale::Default => large,
        Scale::Paper => Sizes { last: 100_000_000, runs_keys: 10_000_000, ops: [400_000, 200_000], ..large },
    }
}

/// One point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Number of keys.
    pub(super) keys: u64,
    /// Number of equal runs; 0 for the policy's own tree.
    pub(super) runs: u64,
    /// Number of flushes that load it.
    pub(super) flushes: u64,
}

/// All settings resolved.
pub(super) struct Job {
    pub(super) over: Over,
    pub(super) points: Vec<Point>,
    pub(super) sides: Vec<Side>,
    pub(super) value_bytes: usize,
    pub(super) bits: f64,
    pub(super) ops: u64,
    pub(super) repeats: u32,
    pub(super) seed: u64,
    more_options: Vec<(String, String)>,
    is_small: bool,
}

impl Job {
    /// Fails with [`BenchError::Request`] if the custom settings do not fit.
    pub(super) fn new(name: &str, over: Over, scale: Scale, custom: &Custom) -> Result<Job, BenchError> {
        let taken = ["--keys", "--value-bytes", "--bits", "--ops", "--repeat", "--option", "--filters"];
        let taken = if over == Over::Runs { &taken[..] } else { &taken[..6] };
        custom.refuse_all_but(name, taken)?;
        for (option, instead) in OWN_OPTIONS {
            if custom.options.iter().any(|(given, _)| given == option) {
                return Err(BenchError::Request(format!("{name} does not take {option}; use {instead}")));
            }
        }
        let sizes = sizes(scale);
        let names: Vec<&str> = match (over, &custom.filters[..]) {
            (Over::Keys, _) => vec![DEFAULT_SIDE],
            (Over::Runs, []) => SIDES.to_vec(),
            (Over::Runs, names) => names.iter().map(String::as_str).collect(),
        };
        let sides = names.iter().map(|name| name.parse::<Side>());
        let sides: Vec<Side> = sides.collect::<Result<_, _>>().map_err(request)?;
        if let Some(twice) = (1..sides.len()).find(|&at| sides[..at].contains(&sides[at])) {
            return Err(request(format!("--filters names {} twice", sides[twice])));
        }
        let bits = match custom.bits[..] {
            [] => BITS,
            [bits] => bits,
            _ => return Err(request(format!("{name} takes one number of --bits"))),
        };
        let mut job = Job {
            over,
            points: Vec::new(),
            sides,
            value_bytes: custom.value_bytes.unwrap_or(VALUE_BYTES),
            bits,
            ops: custom.ops.unwrap_or(sizes.ops[over as usize]).max(1),
            repeats: custom.repeats.unwrap_or(sizes.repeats).max(1),
            seed: custom.seed,
            more_options: custom.options.clone(),
            is_small: scale == Scale::Small,
        };
        job.points = match over {
            Over::Keys => {
                let last = custom.keys.unwrap_or(sizes.last);
                let counts = half_decades(sizes.first.min(last), last);
                let point = |keys| Ok(Point { keys, runs: 0, flushes: job.flushes_of(keys)? });
                counts.into_iter().map(point).collect::<Result<_, BenchError>>()?
            }
            Over::Runs => {
                let keys = custom.keys.unwrap_or(sizes.runs_keys);
                sizes.runs.iter().map(|&runs| Point { keys, runs, flushes: runs }).collect()
            }
        };
        for point in &job.points {
            if point.keys / point.flushes < FEWEST_KEYS {
                return Err(request(format!(
                    "{} keys are too few for {} flushes: {name} needs {FEWEST_KEYS} keys for each",
                    point.keys, point.flushes
                )));
            }
            if over == Over::Runs && job.memtable_bytes(point) > MOST_MEMTABLE_BYTES {
                return Err(request(format!("{} keys do not fit into one memtable", grouped(point.keys))));
            }
            KeySet::uniform(point.keys, KEY_BYTES, job.seed)?;
            for side in &job.sides {
                job.options(point, side, job.bits)?.check()?;
            }
        }
        Ok(job)
    }

    fn entry_bytes(&self) -> u64 {
        (KEY_BYTES + self.value_bytes) as u64
    }

    /// Returns the least number of flushes that no memtable overflows before, and after which level 0 has as many runs
    /// as it may have at rest: one more would be merged.
    fn flushes_of(&self, keys: u64) -> Result<u64, BenchError> {
        let keyspace = self.with_more(Options::default())?.keyspace;
        let fitting = (keyspace.memtable_bytes / (self.entry_bytes() + ENTRY_OVERHEAD)).max(1);
        let round = keyspace.level0_runs as u64;
        Ok(((keys.div_ceil(fitting) + 1).div_ceil(round) * round - 1).max(1))
    }

    /// Returns the size of a memtable that holds a run.
    fn memtable_bytes(&self, point: &Point) -> u64 {
        (point.keys.div_ceil(point.runs.max(1)) + 1).saturating_mul(self.entry_bytes() + 2 * ENTRY_OVERHEAD)
    }

    /// Returns the options of a database with this many filter bits per key.
    pub(super) fn options(&self, point: &Point, side: &Side, bits: f64) -> Result<Options, BenchError> {
        let mut options = Options::default();
        options.set("keyspace.compression", "none")?;
        // It would change the tree while it is read.
        options.keyspace.read_compaction = false;
        match self.over {
            Over::Keys => options.keyspace.compaction = CompactionChoice::Leveling,
            Over::Runs => {
                let keyspace = &mut options.keyspace;
                keyspace.auto_compaction = false;
                (keyspace.slowdown_runs, keyspace.stop_runs) = (MANY_RUNS, MANY_RUNS);
                // A run is one memtable, and one table.
                keyspace.memtable_bytes = keyspace.memtable_bytes.max(self.memtable_bytes(point));
                keyspace.table_bytes = keyspace.table_bytes.max(keyspace.memtable_bytes);
                options.memtable_budget_bytes =
                    options.memtable_budget_bytes.max(4 * keyspace.memtable_bytes);
            }
        }
        side.apply(bits, &mut options)?;
        self.with_more(options)
    }

    fn with_more(&self, mut options: Options) -> Result<Options, BenchError> {
        for (name, value) in &self.more_options {
            options.set(name, value)?;
        }
        Ok(options)
    }
}

impl Plan for Job {
    fn setting(&self) -> String {
        let points: Vec<String> = self.points.iter().map(|point| name_of(self.over, point)).collect();
        let tree = match self.over {
            Over::Keys => {
                "leveling with the engine's defaults, level 0 with as many runs as it may have at rest"
                    .to_owned()
            }
            Over::Runs => {
                let keys = self.points.first().map_or(0, |point| point.keys);
                let sides: Vec<String> = self.sides.iter().map(Side::to_string).collect();
                format!("{} keys in equal runs without compaction, {}", grouped(keys), sides.join(" and "))
            }
        };
        format!(
            "{}; {tree}; keys of {KEY_BYTES} bytes, uniform, values of {}, {} filter bits per key, in the page cache if they \
             fit; {} rounds of {} operations of each kind, one thread",
            points.join(", "),
            self.value_bytes,
            self.bits,
            self.repeats,
            grouped(self.ops),
        )
    }

    fn scaled(&self) -> Vec<String> {
        match self.is_small {
            true => vec!["So few keys that everything is in the processor's caches.".into()],
            false => Vec::new(),
        }
    }

    fn steps(&self) -> Vec<String> {
        self.points.iter().map(|point| name_of(self.over, point)).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let point = self.points.get(step).ok_or_else(|| request(format!("there is no step {step}")))?;
        measure::point(self, point, progress)
    }
}

fn name_of(over: Over, point: &Point) -> String {
    match over {
        Over::Keys => format!("{} keys", grouped(point.keys)),
        Over::Runs if point.runs == 1 => "1 run".to_owned(),
        Over::Runs => format!("{} runs", point.runs),
    }
}

/// Returns numbers half a decade apart from `first` to below `last`, then `last`.
pub(super) fn half_decades(first: u64, last: u64) -> Vec<u64> {
    let nth = |n: i32| (first as f64 * 10f64.powf(f64::from(n) / 2.0)).round() as u64;
    let mut numbers: Vec<u64> = (0..40).map(nth).take_while(|&number| number < last).collect();
    numbers.push(last);
    numbers
}

pub(super) fn request(why: impl ToString) -> BenchError {
    BenchError::Request(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_keys_are_half_a_decade_apart() {
        assert_eq!(half_decades(100_000, 1_000_000), [100_000, 316_228, 1_000_000]);
        assert_eq!(half_decades(100_000, 400_000), [100_000, 316_228, 400_000]);
        assert_eq!(half_decades(5, 5), [5]);
        assert_eq!(half_decades(100_000, 100_000_000).len(), 7);
    }

    #[test]
    fn every_number_of_flushes_leaves_level_0_full() {
        for scale in Scale::ALL {
            let job = Job::new("growth-keys", Over::Keys, scale, &Custom::default()).unwrap();
            let memtable = Options::default().keyspace.memtable_bytes;
            for point in &job.points {
                assert_eq!((point.flushes + 1) % 4, 0, "{point:?}");
                let bytes = point.keys.div_ceil(point.flushes) * (24 + ENTRY_OVERHEAD);
                assert!(bytes <= memtable, "{point:?}");
                // Four fewer would not do.
                assert!(
                    point.flushes == 3
                        || point.keys.div_ceil(point.flushes - 4) * (24 + ENTRY_OVERHEAD) > memtable
                );
            }
        }
        let options = vec![("keyspace.level0_runs".to_owned(), "2".to_owned())];
        let custom = Custom { options, ..Custom::default() };
        let job = Job::new("growth-keys", Over::Keys, Scale::Small, &custom).unwrap();
        assert_eq!(job.points[0].flushes, 1);
    }
}
