//! `hash-table2`, `hash-fig3`, `hash-table3`: false positives of one digest with rotation, compared with *k* hashes and
//! theory.
//!
//! Filters of 10,000 keys and queries for absent ones, over several sets of random keys. A step is one set, and its
//! rows are counts; means and errors are computed when they are viewed ([`super::rates_view`]).

use serde::{Deserialize, Serialize};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::random::Random;
use tamis_bench::report::grouped;
use tamis_filter::theory::{bloom_rate, optimal_probes};
use tamis_filter::{Bloom, BloomScheme, Digest, FilterError, IndependentDigests};

use super::functions::Function;
use super::reference::{Reference, Scheme};
use super::rows;
use crate::figures::{About, Custom, Figure, Needs, Plan, Row, Scale, View};

/// Bits per key of the tables.
pub(super) const BITS: f64 = 10.0;

/// Maximum number of probes with a different function each.
const MOST_FUNCTIONS: u32 = Function::SEVEN.len() as u32;

/// Names of independent hashes in rows.
pub(super) const FUNCTIONS: &str = "k functions";
pub(super) const SEEDS: &str = "XXH3 under k seeds";

/// The measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// One filter at 10 bits per key.
    Table2,
    /// One filter over bits per key.
    Figure3,
    /// Seven units of one probe each at 10 bits per key.
    Table3,
}

/// One of the three figures.
pub(super) struct Rates {
    pub(super) about: About,
    pub(super) what: What,
}

/// Positives of one filter over one set of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RateRow {
    /// `MM64 + rotation`.
    pub(super) hashes: String,
    /// Whether each probe has an array of bits of its own.
    pub(super) units: bool,
    /// Bits per key.
    pub(super) bits: f64,
    /// Number of probes.
    pub(super) probes: u32,
    /// The rate by Equation 1.
    pub(super) theory: f64,
    /// Number of keys in the filter.
    pub(super) keys: u64,
    /// Size of a key in bytes.
    pub(super) key_bytes: u64,
    /// Number of the set of keys.
    pub(super) set: u64,
    /// Number of queries for absent keys.
    pub(super) queries: u64,
    /// Number of these that the filter answered positively.
    pub(super) positives: u64,
}

pub(super) const KIND: &str = "rate";

/// Returns the name of a function's digest with rotation.
pub(super) fn rotated(function: Function) -> String {
    format!("{} + rotation", function.name())
}

/// Returns the name of a function doubled with MM64.
pub(super) fn doubled(function: Function) -> String {
    format!("{} + MM64", function.name())
}

impl Figure for Rates {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        let seconds = match (self.what, scale) {
            (_, Scale::Small) => 1,
            (What::Figure3, Scale::Default) => 20,
            (What::Figure3, Scale::Paper) => 60,
            (_, Scale::Default) => 8,
            (_, Scale::Paper) => 25,
        };
        Needs {
            seconds,
            disk_bytes: 0,
            memory_bytes: if scale == Scale::Small { 16 << 20 } else { 160 << 20 },
        }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        let taken = ["--keys", "--key-bytes", "--ops", "--repeat", "--bits"];
        let taken = if self.what == What::Figure3 { &taken[..] } else { &taken[..4] };
        custom.refuse_all_but(self.about.name, taken)?;
        let (sets, queries) = match scale {
            Scale::Small => (2, 10_000),
            Scale::Default => (5, 100_000),
            Scale::Paper => (20, 100_000),
        };
        let bits = match self.what {
            What::Table2 | What::Table3 => vec![BITS],
            What::Figure3 if !custom.bits.is_empty() => custom.bits.clone(),
            What::Figure3 if scale == Scale::Small => [1.0, 4.0, 7.0, BITS, 13.0].to_vec(),
            What::Figure3 => (1..=20).map(f64::from).collect(),
        };
        if let Some(wrong) = bits.iter().find(|bits| !(1.0..=40.0).contains(*bits)) {
            return Err(BenchError::Request(format!(
                "bits per key must be a number from 1 to 40, not {wrong}"
            )));
        }
        let key_bytes = match custom.key_bytes[..] {
            [] => 512,
            // Shorter random keys could collide.
            [bytes @ 8..=4096] => bytes,
            _ => {
                return Err(BenchError::Request("--key-bytes must be one number from 8 to 4096 here".into()));
            }
        };
        let plan = RatesPlan {
            what: self.what,
            scale,
            sets: custom.repeats.unwrap_or(sets),
            queries: custom.ops.unwrap_or(queries),
            keys: custom.keys.unwrap_or(10_000),
            key_bytes,
            bits,
            seed: custom.seed,
        };
        if plan.keys < 100 || plan.queries < 100 || plan.keys.max(plan.queries) > 1 << 24 {
            return Err(BenchError::Request("keys and queries must be from 100 to 16 million here".into()));
        }
        if plan.sets == 0 {
            return Err(BenchError::Request("at least one set of keys is needed".into()));
        }
        Ok(Box::new(plan))
    }

    fn view(&self, rows: &[Row]) -> View {
        super::rates_view::view(self.what, &rows::of_kind(rows, KIND))
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        super::rates_view::tests::trial(self.what)
    }
}

struct RatesPlan {
    what: What,
    scale: Scale,
    sets: u32,
    queries: u64,
    keys: u64,
    key_bytes: usize,
    bits: Vec<f64>,
    seed: u64,
}

/// Concatenated keys.
struct Keys {
    bytes: Vec<u8>,
    key_bytes: usize,
}

impl Keys {
    fn random(count: u64, key_bytes: usize, random: &mut Random) -> Keys {
        Keys { bytes: random_bytes(count as usize * key_bytes, random), key_bytes }
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.bytes.chunks_exact(self.key_bytes)
    }

    fn digests(&self, function: Function) -> Vec<Digest> {
        self.iter().map(|key| Digest::from_u64(function.hash(key))).collect()
    }
}

/// Returns `count` random bytes.
pub(super) fn random_bytes(count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

pub(super) fn refused(error: FilterError) -> BenchError {
    BenchError::Request(format!("a filter could not be built: {error}"))
}

impl Plan for RatesPlan {
    fn setting(&self) -> String {
        let RatesPlan { sets, queries, keys, key_bytes, .. } = self;
        let units = if self.what == What::Table3 { " in units of one probe each" } else { "" };
        format!(
            "Filters{units} of {} keys of {key_bytes} bytes, {} queries for absent keys, {sets} sets of keys.",
            grouped(*keys),
            grouped(*queries)
        )
    }

    fn scaled(&self) -> Vec<String> {
        let mut scaled = Vec::new();
        if self.scale == Scale::Small {
            scaled.push(format!("{} queries a set instead of 100,000", grouped(self.queries)));
        }
        if self.scale == Scale::Small && self.what == What::Figure3 {
            scaled.push(format!("{} numbers of bits instead of 13", self.bits.len()));
        }
        scaled
    }

    fn steps(&self) -> Vec<String> {
        (1..=self.sets).map(|set| format!("set {set}")).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let mut random = Random::part(self.seed, step as u64);
        // Random keys of eight bytes and more are distinct except with a probability of one in millions: queries
        // contain no member.
        let members = Keys::random(self.keys, self.key_bytes, &mut random);
        let others = Keys::random(self.queries, self.key_bytes, &mut random);
        let set = Set { plan: self, number: step as u64, members, others };
        let rows = match self.what {
            What::Table3 => set.units(progress),
            What::Table2 | What::Figure3 => set.filters(progress).map_err(refused)?,
        };
        Ok(rows.iter().map(|found| rows::row(KIND, found)).collect())
    }
}

struct Set<'p> {
    plan: &'p RatesPlan,
    number: u64,
    members: Keys,
    others: Keys,
}

impl Set<'_> {
    fn row(&self, hashes: &str, units: bool, bits: f64, probes: u32, positives: usize) -> RateRow {
        RateRow {
            hashes: hashes.to_owned(),
            units,
            bits,
            probes,
            theory: bloom_rate(bits, probes),
            keys: self.plan.keys,
            key_bytes: self.plan.key_bytes as u64,
            set: self.number,
            queries: self.plan.queries,
            positives: positives as u64,
        }
    }

    fn filters(&self, progress: &dyn Progress) -> Result<Vec<RateRow>, FilterError> {
        let bits = &self.plan.bits;
        let steps = Function::ALL.len() + 2;
        progress.begin(&format!("set {}", self.number + 1), steps as u64, "hashes");
        let mut rows = Vec::new();
        for function in Function::ALL {
            let (members, others) = (self.members.digests(function), self.others.digests(function));
            for &bits in bits {
                let filter = Bloom::build(&members, bits, BloomScheme::Rotation, 0)?;
                let positives = others.iter().filter(|&&digest| filter.contains(digest)).count();
                rows.push(self.row(&rotated(function), false, bits, optimal_probes(bits), positives));
            }
            progress.advance(1);
        }
        for &bits in bits {
            let probes = optimal_probes(bits);
            if probes <= MOST_FUNCTIONS {
                let filter = Reference::build(self.members.iter(), bits, probes, Scheme::SevenLazy, false);
                let positives = self.others.iter().filter(|key| filter.contains(key)).count();
                rows.push(self.row(FUNCTIONS, false, bits, probes, positives));
            }
        }
        progress.advance(1);
        let most = bits.iter().map(|&bits| optimal_probes(bits)).max().unwrap_or(1);
        let seeds: Vec<_> = self.members.iter().map(|key| IndependentDigests::of(key, most)).collect();
        let other_seeds: Vec<_> = self.others.iter().map(|key| IndependentDigests::of(key, most)).collect();
        for &bits in bits {
            let filter = Bloom::build_independent(seeds.iter().copied(), bits, 0)?;
            let mut positives = 0;
            for seeds in &other_seeds {
                positives += usize::from(filter.contains_independent(seeds)?);
            }
            rows.push(self.row(SEEDS, false, bits, optimal_probes(bits), positives));
        }
        progress.advance(1);
        progress.end();
        Ok(rows)
    }

    fn units(&self, progress: &dyn Progress) -> Vec<RateRow> {
        let rotations = super::UNIT_FUNCTIONS.map(|(f, _)| (rotated(f), Scheme::Rotation(f)));
        let doubles = super::DOUBLE_FUNCTIONS.map(|(f, _)| (doubled(f), Scheme::Double(f, Function::Mm64)));
        let schemes = rotations.into_iter().chain(doubles);
        progress.begin(&format!("set {}", self.number + 1), schemes.clone().count() as u64, "hashes");
        let mut rows = Vec::new();
        for (name, scheme) in schemes {
            let filter = Reference::build(self.members.iter(), BITS, MOST_FUNCTIONS, scheme, true);
            let positives = self.others.iter().filter(|key| filter.contains(key)).count();
            rows.push(self.row(&name, true, BITS, MOST_FUNCTIONS, positives));
            progress.advance(1);
        }
        progress.end();
        rows
    }
}
