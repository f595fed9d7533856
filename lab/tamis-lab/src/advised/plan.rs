//! The figure with all settings resolved, and the execution of one step.

use std::time::Instant;

use tamis::{Db, Durability, Options};
use tamis_advisor::{
    Advice, Allocation, Calibration, Class, Data, Effort, Keys, Merge, Policy, Ranked, Selector, Setup,
    Workload, advise, advise_among, recommend,
};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::random::Permutation;
use tamis_bench::report::grouped;
use tamis_bench::value;

use super::CandidateRow;
use super::workloads::{self, KEY_BYTES, Op, TEXTS};
use crate::elastic::memory::bits_per_key;
use crate::figures::rows::row;
use crate::figures::{Custom, Plan, Row, Scale};

/// Size of every value in bytes.
const VALUE_BYTES: usize = 100;

/// Bits per key that the advisor may spend on filters and block cache, plus a small allowance for the overhead of
/// filters.
const BITS: f64 = 10.0;
const SPARE: f64 = 1.15;

/// Size of the data in memtables.
const FLUSHES: u64 = 60;

/// The number of these that are flushed one by one between rounds. A tree has few runs after a large merge and many
/// before it, and the model predicts the mean, so every round measures another moment.
const LATE_FLUSHES: u64 = 10;

/// Repetitions of each candidate in a round. The shortest counts, since other activity on the machine only adds time.
const TURNS: u32 = 3;

/// The candidates: filters of every family that the advisor ranks for 8-byte keys, over the trees that keep all data.
const FILTERS: [Selector; 7] = [
    Selector::None,
    Selector::BlockedBloom,
    Selector::Ribbon,
    Selector::Fuse,
    Selector::Snarf,
    Selector::Rosetta,
    Selector::Grf,
];
const FEW_FILTERS: [Selector; 3] = [Selector::None, Selector::BlockedBloom, Selector::Grf];
const POLICIES: [Policy; 3] = [Policy::Leveling, Policy::LazyLeveling, Policy::Tiering];
const SIZE_RATIO: u64 = 10;

pub(super) struct Job {
    keys: KeySet,
    filters: Vec<Selector>,
    policies: Vec<Policy>,
    ops: usize,
    rounds: u32,
    seed: u64,
    effort: Effort,
}

impl Job {
    pub(super) fn new(scale: Scale, custom: &Custom) -> Result<Job, BenchError> {
        custom.refuse_all_but("advise-ten", &["--keys", "--ops", "--repeat", "--filters"])?;
        let (keys, ops, rounds) = match scale {
            Scale::Small => (4_000, 400, 2),
            Scale::Default => (200_000, 20_000, 5),
            Scale::Paper => (20_000_000, 200_000, 5),
        };
        let small = scale == Scale::Small;
        let mut filters = if small { FEW_FILTERS.to_vec() } else { FILTERS.to_vec() };
        if !custom.filters.is_empty() {
            let known = |name: &String| {
                let unknown = || BenchError::Request(format!("--filters: the advisor knows no `{name}`"));
                Selector::from_word(name).ok_or_else(unknown)
            };
            filters = custom.filters.iter().map(known).collect::<Result<_, _>>()?;
        }
        if !filters.contains(&Selector::BlockedBloom) {
            return Err(BenchError::Request(
                "--filters: blocked-bloom is needed, since the others are compared with it".into(),
            ));
        }
        let keys = custom.keys.unwrap_or(keys);
        if keys < 1_000 {
            return Err(BenchError::Request(format!("{keys} keys make no tree: take --keys 1000 or more")));
        }
        Ok(Job {
            keys: KeySet::uniform(keys, KEY_BYTES, custom.seed)?,
            filters,
            policies: if small { POLICIES[..2].to_vec() } else { POLICIES.to_vec() },
            ops: usize::try_from(custom.ops.unwrap_or(ops)).unwrap_or(usize::MAX).max(1),
            rounds: custom.repeats.unwrap_or(rounds).max(1),
            seed: custom.seed,
            effort: if small { Effort::Quick } else { Effort::Full },
        })
    }

    fn entry_bytes(&self) -> u64 {
        (KEY_BYTES + VALUE_BYTES) as u64
    }

    /// Returns the advisor's memory budget in bytes.
    fn budget(&self) -> u64 {
        (self.keys.len() as f64 * BITS / 8.0 * SPARE) as u64
    }

    /// Returns the size of a memtable when it is flushed.
    fn flush_bytes(&self) -> u64 {
        self.keys.len() * (self.entry_bytes() + 44) / FLUSHES
    }

    /// Returns the options shared by all candidates.
    fn common(&self) -> Result<Options, BenchError> {
        let mut options = Options::default();
        options.set("keyspace.compression", "none")?;
        options.durability = Durability::Buffered;
        let keyspace = &mut options.keyspace;
        // Slightly more than a requested flush holds, so that no other flushes happen.
        keyspace.memtable_bytes = (self.flush_bytes() * 5 / 4).max(16 << 10);
        keyspace.table_bytes = (self.keys.len() * self.entry_bytes() / 6).clamp(64 << 10, 64 << 20);
        // The tree must keep the shape that the policy gives it while it is measured.
        keyspace.read_compaction = false;
        Ok(options)
    }

    /// Returns the candidates in the advisor's order.
    fn ranked(&self, workload: &Workload) -> Result<Vec<Ranked>, BenchError> {
        let options = self.common()?;
        let setup = Setup::new(KEY_BYTES, VALUE_BYTES).effort(self.effort);
        let setup = setup.database(std::env::temp_dir(), &options);
        let calibration = Calibration::measure(&setup).map_err(BenchError::Database)?;
        let mut data = Data::new(self.keys.len(), KEY_BYTES as f64, VALUE_BYTES as f64);
        data.keys = Keys::Integers;
        data.memtable_bytes = self.flush_bytes();
        let of_ours = |ranked: &&Ranked| {
            let configuration = &ranked.configuration;
            self.filters.contains(&configuration.selector)
                && configuration.allocation == Allocation::Uniform
                && self.policies.contains(&configuration.shape.policy)
                && configuration.shape.size_ratio == SIZE_RATIO
                && configuration.bits_per_key <= BITS * SPARE
        };
        let mut ranked: Vec<Ranked> = Vec::new();
        let mut add = |advice: &Advice, is_rejected: bool| {
            for one in advice.ranking.ranked.iter().filter(of_ours) {
                // The present configuration may be there twice, once with the optimal bits.
                let same = |other: &Ranked| {
                    (other.configuration.selector, other.configuration.shape.policy)
                        == (one.configuration.selector, one.configuration.shape.policy)
                };
                if !ranked.iter().any(same) {
                    let mut one = one.clone();
                    one.is_current = is_usual(&one);
                    one.is_rejected |= is_rejected;
                    ranked.push(one);
                }
            }
        };
        add(&advise(&calibration, &data, workload, self.budget(), &options), false);
        // The advisor leaves out one of a filter per table and one for the tree, by a rule. They are measured to test it.
        for &selector in &self.filters {
            let only = |other| other == selector;
            add(&advise_among(&calibration, &data, workload, self.budget(), &options, only), true);
        }
        ranked.sort_by(|a, b| a.prediction.mean_ns.total_cmp(&b.prediction.mean_ns));
        Ok(ranked)
    }

    fn options(&self, ranked: &Ranked) -> Result<Options, BenchError> {
        let mut options = self.common()?;
        let configuration = &ranked.configuration;
        tamis_rivals::set_filter(&mut options, configuration.selector.word())?;
        if configuration.selector.is_sized() {
            options.keyspace.bits_per_key = configuration.bits_per_key;
        }
        let compaction = match configuration.shape.policy {
            Policy::Tiering => "tiering",
            Policy::LazyLeveling => "lazy-leveling",
            _ => "leveling",
        };
        options.set("keyspace.compaction", compaction)?;
        options.set("keyspace.size_ratio", &SIZE_RATIO.to_string())?;
        let merge = match configuration.shape.merge {
            Merge::Partial => "partial",
            Merge::Partitioned => "partitioned",
            _ => "full",
        };
        options.set("keyspace.merge", merge)?;
        options.check()?;
        Ok(options)
    }

    fn load(&self, ranked: &Ranked, progress: &dyn Progress) -> Result<Candidate, BenchError> {
        let temporary =
            |source| BenchError::Io { operation: "make a directory in", path: std::env::temp_dir(), source };
        let dir = tempfile::Builder::new().prefix("tamis-advise").tempdir().map_err(temporary)?;
        let db = self.options(ranked)?.open(dir.path().join("db"))?;
        let mut candidate = Candidate {
            db,
            ranked: ranked.clone(),
            times: Vec::new(),
            runs: Vec::new(),
            filter_bits: 0.0,
            flushes: 0,
            _dir: dir,
        };
        self.fill(&mut candidate, FLUSHES - LATE_FLUSHES)?;
        progress.advance(1);
        Ok(candidate)
    }

    /// Inserts keys up to the given number of flushes. Each is merged before the next one, so that trees depend on
    /// sizes alone.
    fn fill(&self, candidate: &mut Candidate, flushes: u64) -> Result<(), BenchError> {
        let order = Permutation::new(self.keys.len(), self.seed);
        let (db, mut key) = (&candidate.db, Vec::new());
        for flush in candidate.flushes..flushes {
            for place in self.keys.len() * flush / FLUSHES..self.keys.len() * (flush + 1) / FLUSHES {
                key.clear();
                self.keys.existing(order.at(place), &mut key);
                db.put(&key, value_of(&key))?;
            }
            db.flush()?;
            db.wait_for_compaction()?;
        }
        candidate.flushes = flushes;
        db.wait_for_filters()?;
        let stats = db.stats();
        let tree = stats.keyspaces.first().cloned().unwrap_or_default();
        candidate.filter_bits = bits_per_key(&stats);
        candidate.runs.push(tree.runs as f64);
        Ok(())
    }

    /// Draws operations on the keys that exist after the given number of flushes.
    fn ops(&self, workload: &Workload, flushes: u64, seed: u64) -> Vec<Op> {
        let order = Permutation::new(self.keys.len(), self.seed);
        let loaded = self.keys.len() * flushes / FLUSHES;
        workloads::draw(workload, &self.keys, self.ops, seed, loaded, |place| order.at(place))
    }
}

/// Reports whether this is the default configuration.
fn is_usual(ranked: &Ranked) -> bool {
    let configuration = &ranked.configuration;
    configuration.selector == Selector::BlockedBloom && configuration.shape.policy == Policy::Leveling
}

fn mean_of(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / (numbers.len() as f64).max(1.0)
}

/// Returns the value of a key, which depends on nothing else.
fn value_of(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(VALUE_BYTES);
    value::fill(value::tag_of(key), 0, VALUE_BYTES, &mut bytes);
    bytes
}

/// One candidate's database and its measurements.
struct Candidate {
    db: Db,
    ranked: Ranked,
    /// The shortest turn of each round.
    times: Vec<f64>,
    /// The number of runs before each round.
    runs: Vec<f64>,
    filter_bits: f64,
    flushes: u64,
    /// Dropped after the database.
    _dir: tempfile::TempDir,
}

impl Candidate {
    /// Executes all operations, checks each answer against its key, and returns nanoseconds per operation.
    fn ask(&self, ops: &[Op], scan_entries: usize) -> Result<f64, BenchError> {
        let values: Vec<Option<Vec<u8>>> =
            ops.iter().map(|op| (op.class == Class::Put).then(|| value_of(&op.key))).collect();
        let begun = Instant::now();
        for (op, value) in ops.iter().zip(&values) {
            let right = match op.class {
                Class::EmptyGet => self.db.get(op.key)?.is_none(),
                Class::ExistingGet => self.db.get(op.key)?.is_some_and(|value| value.len() == VALUE_BYTES),
                Class::EmptyRange => self.db.range(op.key..=op.end).next().transpose()?.is_none(),
                Class::Seek => {
                    let first = self.db.range(op.key..).next().transpose()?;
                    first.is_some_and(|(key, _)| key[..] == op.key)
                }
                Class::Scan => {
                    let mut first = None;
                    for entry in self.db.range(op.key..).take(scan_entries) {
                        let (key, _) = entry?;
                        first.get_or_insert(key);
                    }
                    first.is_some_and(|key| key[..] == op.key)
                }
                Class::Put => {
                    self.db.put(op.key, value.as_deref().unwrap_or_default())?;
                    true
                }
            };
            if !right {
                return Err(self.wrong(op));
            }
        }
        Ok(begun.elapsed().as_nanos() as f64 / ops.len().max(1) as f64)
    }

    fn wrong(&self, op: &Op) -> BenchError {
        let there = !matches!(op.class, Class::EmptyGet | Class::EmptyRange);
        let word = |there: bool| if there { "it is there" } else { "nothing is there" }.to_owned();
        BenchError::WrongAnswer {
            workload: format!("{} with {}", op.class.name(), self.ranked.configuration.describe()),
            key: op.key.iter().map(|byte| format!("{byte:02x}")).collect(),
            expected: word(there),
            got: word(!there),
        }
    }

    fn row(&self, number: usize, advised: bool) -> CandidateRow {
        let configuration = &self.ranked.configuration;
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let usual = is_usual(&self.ranked);
        CandidateRow {
            kind: "candidate".into(),
            number: number + 1,
            workload: TEXTS[number].into(),
            side: configuration.describe(),
            filter: configuration.selector.word().into(),
            advised,
            usual,
            predicted_ns: self.ranked.prediction.mean_ns,
            // Each round has another tree; the model predicts their mean.
            ns: mean_of(&times),
            min_ns: times.first().copied().unwrap_or_default(),
            max_ns: times.last().copied().unwrap_or_default(),
            runs: mean_of(&self.runs[1.min(self.runs.len())..]),
            filter_bits_per_key: self.filter_bits,
        }
    }
}

impl Plan for Job {
    fn setting(&self) -> String {
        format!(
            "{} keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}, mapped through the page cache, {FLUSHES} memtables' worth, the \
             last {LATE_FLUSHES} of them between rounds; {} filters over {} trees, at most {BITS} bits per key; {} rounds of {} \
             operations, each the best of {TURNS} repetitions, one thread",
            grouped(self.keys.len()),
            self.filters.len(),
            self.policies.len(),
            self.rounds,
            grouped(self.ops as u64)
        )
    }

    fn scaled(&self) -> Vec<String> {
        vec![
            "Candidates have size ratio 10 and at most ten bits per key; the advisor itself looks at more."
                .to_owned(),
        ]
    }

    fn steps(&self) -> Vec<String> {
        TEXTS.iter().enumerate().map(|(i, text)| format!("{}: {text}", i + 1)).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let workload = workloads::all()[step];
        let ranked = self.ranked(&workload)?;
        progress.begin("load", ranked.len() as u64, "databases");
        // Otherwise the advised candidate would always be the first to be loaded and measured.
        let order = Permutation::new(ranked.len() as u64, self.seed ^ step as u64);
        let mut candidates = (0..ranked.len() as u64)
            .map(|place| self.load(&ranked[order.at(place) as usize], progress))
            .collect::<Result<Vec<_>, _>>()?;
        progress.end();
        let turns = u64::from(self.rounds) * candidates.len() as u64;
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        progress.begin(TEXTS[step], turns, "turns");
        for round in 0..u64::from(self.rounds) {
            let flushes = FLUSHES - LATE_FLUSHES + LATE_FLUSHES * (round + 1) / u64::from(self.rounds);
            let ops = self.ops(&workload, flushes, self.seed ^ (round << 32) ^ step as u64);
            for candidate in &mut candidates {
                self.fill(candidate, flushes)?;
                candidate.times.push(f64::INFINITY);
            }
            for turn in 0..TURNS {
                // Varies which candidate comes first, and whose traces in the caches it finds.
                let seed = self.seed ^ (round << 16) ^ (u64::from(turn) << 8) ^ step as u64;
                let order = Permutation::new(candidates.len() as u64, seed);
                for place in 0..candidates.len() as u64 {
                    let candidate = &mut candidates[order.at(place) as usize];
                    let asked = candidate.ask(&ops, workload.scan_entries as usize)?;
                    // This candidate's merges must not run during the next one's turn. The remaining ones would have
                    // taken processor time from later operations.
                    let begun = Instant::now();
                    candidate.db.wait_for_compaction()?;
                    let left = begun.elapsed().as_nanos() as f64 / (cores * ops.len().max(1) as f64);
                    if let Some(least) = candidate.times.last_mut() {
                        *least = least.min(asked + left);
                    }
                }
            }
            progress.advance(candidates.len() as u64);
        }
        progress.end();
        let advised = recommend(&ranked, self.budget());
        // Rows keep the advisor's order.
        candidates.sort_by(|a, b| a.ranked.prediction.mean_ns.total_cmp(&b.ranked.prediction.mean_ns));
        Ok(candidates
            .iter()
            .map(|candidate| row(&candidate.row(step, advised == Some(&candidate.ranked))))
            .collect())
    }
}
