//! `grf-theory`: rates and code sizes of GRF as derived in section 4 of its paper, compared with the filter of tamis.
//!
//! H. Wang et al., "GRF: A Global Range Filter for LSM-Trees with Shape Encoding" (SIGMOD 2024), sections 4.3.1 and
//! 4.4. One `Partition` stands in for the filter. Four things are measured:
//!
//! * its rate with 6 to 14 bits per key, when it is built and when the tree above the last level is full, against
//!   `2^-(b-5)` and against what the entropy of the runs allows ([`grf::global_rate`]);
//! * the rate while keys arrive between two last-level compactions, T - 1 times, against `2^-(b-5)` times `1 + 1/(2z)`;
//! * code bits in full trees, when entries must be distinguished by the tables of the newest version only, and when versions
//!   since the last merge into the last level but one, or all of the round, can still be read (sections 4.3 and 4.4): the
//!   paper bounds the difference;
//! * code bits in full trees of several shapes, against the paper's digits, a Huffman code, the entropy of the runs, and
//!   plain run numbers.
//!
//! # Codes
//! The paper writes the age of a key as digits, with an indicator and a longer position for each, and sets 2 bits per key
//! aside for them when a filter is built. The codes of tamis have no digits: their lengths follow from how many entries each run
//! has. They take nothing in a tree of one run, and memory is the same in every state; positions have the bits that codes leave.
//!
//! Rates are shares of absent keys that match any entry. Uses one thread, and a few hundred bytes of memory per key of
//! a partition.

mod measure;
mod view;

use serde::{Deserialize, Serialize};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::report::grouped;
use tamis_filter::global::MapChoice;
use tamis_model::grf::{self, Digits};
use tamis_model::lookup::{Policy, Tree};

use crate::figures::{About, Custom, Figure, Needs, Paper, Plan, Row, Scale, View};
use crate::hash_functions::rows;

use measure::{Kept, Measure};

const RATE: &str = "rate";
const ROUND: &str = "round";
const CODE: &str = "code";
const VERSIONS: &str = "versions";

/// The size ratio of the paper's numbers.
const RATIO: u32 = 10;
/// Bits per key where the codes of versions are measured.
const VERSIONS_BITS: f64 = 12.0;
/// Number of levels of its trees.
const LEVELS: u32 = 4;
/// A level of GRF's trees above the last has up to T - 1 runs when no merge is due.
const POLICY: Policy = Policy::TieringAtRest;
const MAPS: [(MapChoice, &str); 2] = [(MapChoice::Learned, "learned"), (MapChoice::Digest, "digest")];
/// Size ratios of the table of codes, followed by its numbers of levels.
const RATIOS: [u32; 5] = [2, 4, 6, 8, 10];
const DEPTHS: [u32; 5] = [2, 3, 4, 5, 6];

/// Returns section 4 of the paper as a figure.
pub fn figures() -> Vec<Box<dyn Figure>> {
    vec![Box::new(GrfTheory {
        about: About {
            name: "grf-theory",
            paper: Paper::Grf,
            place: "section 4",
            title: "GRF's rates and code sizes: derived and measured",
            claim: "With b bits per key the rate is 2^-(b-5) when the filter is built and 1.12 times that on average at T = 10; codes \
                    take 1.6 bits per key.",
            differs: "A partition of about 2^16 keys stands in for the whole filter. Keys are uniform. Codes have lengths by the \
                      shares of the runs instead of digits.",
        },
    })]
}

struct GrfTheory {
    about: About,
}

/// The rate of one filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RateRow {
    /// Requested bits per key.
    bits: f64,
    /// The mapping of keys to positions.
    map: String,
    /// `built`, or `full tree`.
    state: String,
    /// Actual bits per key.
    memory_bits: f64,
    /// The part of these that codes take.
    code_bits: f64,
    keys: u64,
    queries: u64,
    positives: u64,
    /// `2^-(b-5)`.
    theory: f64,
    /// `2^-(b-2.4-H)`, with the entropy H of the runs.
    model: f64,
}

/// The growth of the rate between two last-level compactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RoundRow {
    size_ratio: u32,
    /// z: the number of keys at the beginning of the round, divided by the number that arrive in it.
    round: u32,
    begin_rate: f64,
    mean_rate: f64,
    end_rate: f64,
    /// `1 + 1/(2z)`.
    theory_factor: f64,
    /// `2^-(b-5)` for the bits per key that were requested.
    theory_rate: f64,
    /// The mean of `2^-(b-2.4-H)`, with the entropy H of the runs at each moment.
    model_rate: f64,
}

/// Code bits in a full tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CodeRow {
    size_ratio: u32,
    levels: u32,
    /// The paper's digits, with the exact shares of levels, digits in fractions of a bit.
    fractional: f64,
    /// The same with digits in whole bits.
    whole: f64,
    /// The paper's closed form.
    paper: f64,
    /// The run's number in binary, in a Huffman code, and its entropy.
    fixed: u32,
    huffman: f64,
    entropy: f64,
    /// The filter of tamis, full and collected, if measured.
    measured: Option<f64>,
}

/// Codes of the filter of a full tree by the versions that can still be read, in bits per entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct VersionsRow {
    size_ratio: u32,
    levels: u32,
    /// Only the newest.
    newest: f64,
    /// Those since the last merge into the last level but one, which collects everything.
    since_low_merge: f64,
    /// All since the last merge into the last level: nothing is ever collected.
    all: f64,
    /// The paper's bound of the second less the first.
    bound: f64,
}

impl Figure for GrfTheory {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        Needs {
            seconds: [2, 20, 90][scale as usize],
            disk_bytes: 0,
            memory_bytes: 200 * KEYS[scale as usize],
        }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        custom.refuse_all_but(self.about.name, &["--keys", "--bits", "--ops"])?;
        let bits = match &custom.bits[..] {
            [] if scale == Scale::Small => vec![6.0, 10.0, 14.0],
            [] => (6..=14).map(f64::from).collect(),
            bits => bits.to_vec(),
        };
        if let Some(wrong) = bits.iter().find(|bits| !(4.0..=40.0).contains(*bits)) {
            return Err(BenchError::Request(format!("bits per key must be from 4 to 40 here, not {wrong}")));
        }
        let keys = custom.keys.unwrap_or(KEYS[scale as usize]);
        let queries = custom.ops.unwrap_or([20_000, 1_000_000, 4_000_000][scale as usize]);
        if !(2000..=1 << 22).contains(&keys) || queries < 1000 {
            return Err(BenchError::Request(
                "--keys must be from 2000 to four million, --ops at least 1000 here".into(),
            ));
        }
        let measure = Measure { keys, queries, seed: custom.seed };
        Ok(Box::new(TheoryPlan {
            scale,
            bits,
            measure,
            ratio: if scale == Scale::Small { 4 } else { RATIO },
        }))
    }

    fn view(&self, rows: &[Row]) -> View {
        view::view(
            &rows::of_kind(rows, RATE),
            &rows::of_kind(rows, ROUND),
            &rows::of_kind(rows, CODE),
            &rows::of_kind(rows, VERSIONS),
        )
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial()
    }
}

/// By scale: number of keys of a partition.
const KEYS: [u64; 3] = [1 << 13, 1 << 16, 1 << 17];

struct TheoryPlan {
    scale: Scale,
    bits: Vec<f64>,
    measure: Measure,
    /// The size ratio whose rounds are measured.
    ratio: u32,
}

impl Plan for TheoryPlan {
    fn setting(&self) -> String {
        format!(
            "Partitions of {} uniform keys, {} queries for absent keys; {} levels of ratio {RATIO}; rounds of ratio {}.",
            grouped(self.measure.keys),
            grouped(self.measure.queries),
            LEVELS,
            self.ratio
        )
    }

    fn scaled(&self) -> Vec<String> {
        let mut scaled = Vec::new();
        if self.ratio != RATIO {
            scaled.push(format!("rounds of a tree of ratio {} instead of {RATIO}", self.ratio));
        }
        if self.scale == Scale::Small {
            scaled.push("a few thousand keys per partition: its fixed parts weigh more".into());
        }
        scaled
    }

    fn steps(&self) -> Vec<String> {
        let rates = self.bits.iter().map(|bits| format!("rate at {bits} bits"));
        rates.chain(["rounds", "codes", "versions"].map(str::to_owned)).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        if let Some(&bits) = self.bits.get(step) {
            return self.rates(bits, progress);
        }
        match step - self.bits.len() {
            0 => self.rounds(progress),
            1 => self.codes(progress),
            2 => self.versions(progress),
            _ => Ok(Vec::new()),
        }
    }
}

impl TheoryPlan {
    fn rates(&self, bits: f64, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        progress.begin(&format!("rate at {bits} bits"), 2 * MAPS.len() as u64, "filters");
        let tree = Tree { levels: LEVELS, size_ratio: RATIO };
        for (map, map_name) in MAPS {
            for (state, full) in [("built", false), ("full tree", true)] {
                let shares = if full { grf::run_shares(tree, POLICY) } else { vec![1.0] };
                let partition = self.measure.tree(bits, tree, map, full)?;
                let positives = self.measure.positives(&partition);
                let found = RateRow {
                    bits,
                    map: map_name.into(),
                    state: state.into(),
                    memory_bits: partition.memory_bytes() as f64 * 8.0 / partition.entries().max(1) as f64,
                    code_bits: partition.code_bits(),
                    keys: partition.entries(),
                    queries: self.measure.queries,
                    positives,
                    theory: grf::rate(bits),
                    model: grf::global_rate(bits, &shares),
                };
                rows.push(rows::row(RATE, &found));
                progress.advance(1);
            }
        }
        progress.end();
        Ok(rows)
    }

    fn rounds(&self, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        progress.begin("rounds", u64::from(self.ratio - 1), "rounds");
        for round in 1..self.ratio {
            let measured = self.measure.round(self.ratio, round)?;
            let found = RoundRow {
                size_ratio: self.ratio,
                round,
                begin_rate: measured.begin,
                mean_rate: measured.mean,
                end_rate: measured.end,
                theory_factor: grf::round_factor(round),
                theory_rate: grf::rate(measure::ROUND_BITS),
                model_rate: measured.model,
            };
            rows.push(rows::row(ROUND, &found));
            progress.advance(1);
        }
        progress.end();
        Ok(rows)
    }

    fn versions(&self, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        let trees =
            [(4, 3), (4, 4), (10, 3), (10, 4)].map(|(size_ratio, levels)| Tree { levels, size_ratio });
        progress.begin("versions", 3 * trees.len() as u64, "filters");
        for tree in trees {
            let bits = |kept| {
                let partition = self.measure.versions(VERSIONS_BITS, tree, kept)?;
                progress.advance(1);
                Ok::<f64, BenchError>(partition.code_bits())
            };
            let digit = Digits::Whole.bits(grf::radix(tree, POLICY));
            let found = VersionsRow {
                size_ratio: tree.size_ratio,
                levels: tree.levels,
                newest: bits(Kept::Newest)?,
                since_low_merge: bits(Kept::SinceLowMerge)?,
                all: bits(Kept::All)?,
                bound: grf::paper_uncollected_bits(tree, digit),
            };
            rows.push(rows::row(VERSIONS, &found));
        }
        progress.end();
        Ok(rows)
    }

    fn codes(&self, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        progress.begin("codes", (RATIOS.len() * DEPTHS.len()) as u64, "trees");
        for size_ratio in RATIOS {
            for levels in DEPTHS {
                let tree = Tree { levels, size_ratio };
                let shares = grf::run_shares(tree, POLICY);
                let digit = Digits::Fractional.bits(grf::radix(tree, POLICY));
                // A flush should have several keys.
                let flushes = u64::from(size_ratio).pow(levels - 1);
                let measured = (flushes * 4 <= self.measure.keys && size_ratio > 2)
                    .then(|| self.measure.tree(12.0, tree, MapChoice::Digest, true));
                let found = CodeRow {
                    size_ratio,
                    levels,
                    fractional: grf::mean_code_bits(tree, POLICY, Digits::Fractional),
                    whole: grf::mean_code_bits(tree, POLICY, Digits::Whole),
                    paper: grf::paper_code_bits(size_ratio, digit),
                    fixed: grf::fixed_bits(shares.len() as u64),
                    huffman: grf::huffman_bits(&shares),
                    entropy: grf::entropy_bits(&shares),
                    measured: measured.transpose()?.map(|partition| partition.code_bits()),
                };
                rows.push(rows::row(CODE, &found));
                progress.advance(1);
            }
        }
        progress.end();
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
