//! Requests to the comparison program for the figures whose papers have other engines.

use std::path::Path;

use tamis_bench::BenchError;
use tamis_bench::workload::Workload::{self, *};

use crate::figures::peers::program::{Comparison, System};
use crate::figures::{Custom, Scale};

/// The engines that take part beside tamis, if they are compiled in.
const ENGINES: [&str; 2] = ["rocksdb", "leveldb"];

/// Ratio of data size to memtable size, so that small databases have levels, too.
const DATA_BY_MEMTABLE: u64 = 128;

/// Limits of memtable sizes: the program accepts no less, and engines use no more by default.
const MEMTABLE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

/// Filter bits that the program accepts.
const BITS: std::ops::RangeInclusive<u32> = 1..=64;

/// Options without a counterpart in the program; a note is made if one is given.
const UNMATCHED: [&str; 8] =
    ["--key-set", "--filters", "--size-ratio", "--device", "--skew", "--absent", "--locality", "--option"];

/// The configurations of tamis in a comparison besides the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// `tamis-grf`.
    Grf,
    /// Bloom filters, and elastic ones with the same memory; the default filters of tamis are others.
    Elastic,
    /// A digest for every filter.
    NoSharing,
}

/// A paper's claim about other engines, or about filters in them.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The claim in a sentence.
    pub text: &'static str,
    /// The number, as text.
    pub paper: &'static str,
    /// The number; `None` if only the direction is claimed.
    pub ratio: Option<f64>,
    /// The side whose throughput is divided …
    pub side: &'static str,
    /// … by that of this one.
    pub against: &'static str,
    /// The workloads it applies to; all if empty.
    pub workloads: &'static [Workload],
    /// An additional remark.
    pub note: &'static str,
}

/// Sizes at a scale.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    keys: u64,
    ops: u64,
    rounds: u32,
    threads: &'static [usize],
}

/// One figure's comparison.
#[derive(Debug)]
pub struct Setting {
    figure: &'static str,
    suite: &'static str,
    workloads: &'static [Workload],
    variant: Variant,
    key_bytes: usize,
    /// Small, default, paper, as `sizes`.
    value_bytes: [usize; 3],
    bits: u32,
    direct: bool,
    /// The ratio of data size to block cache, which is at most `most_cache`; 0 for no cache. As `sizes`.
    data_by_cache: [u64; 3],
    most_cache: u64,
    /// Small, default, paper.
    sizes: [Sizes; 3],
    pub(super) claim: Claim,
}

const ALL_MIXES: &[Workload] = &[YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF];

/// The paper's mixes have no F.
const GRF_MIXES: &[Workload] = &[YcsbA, YcsbB, YcsbC, YcsbD, YcsbE];

const GRF_CLAIM: Claim = Claim {
    text: "GRF in an LSM engine has more throughput than the local filters that RocksDB has",
    paper: "more",
    ratio: None,
    side: "tamis-grf",
    against: "rocksdb",
    workloads: &[],
    note: "In the paper both are in RocksDB; here engines differ, too.",
};

const ELASTIC_CLAIM: Claim = Claim {
    text: "",
    paper: "",
    ratio: None,
    side: "tamis elastic",
    against: "rocksdb",
    workloads: &[],
    note: "In the paper both are in RocksDB; here engines differ, too. All queried keys exist, except in get-empty, where none does.",
};

const fn sizes(keys: u64, ops: u64, rounds: u32, threads: &'static [usize]) -> Sizes {
    Sizes { keys, ops, rounds, threads }
}

static SETTINGS: [Setting; 5] = [
    Setting {
        figure: "ycsb",
        suite: "ycsb",
        workloads: ALL_MIXES,
        variant: Variant::Grf,
        key_bytes: 8,
        value_bytes: [100, 256, 1016],
        bits: 10,
        direct: true,
        data_by_cache: [10; 3],
        most_cache: 1 << 30,
        sizes: [
            sizes(20_000, 500, 2, &[1, 2]),
            sizes(200_000, 2_000, 3, &[1, 2, 4, 8]),
            sizes(10_000_000, 50_000, 3, &[1, 2, 4, 8]),
        ],
        claim: GRF_CLAIM,
    },
    Setting {
        figure: "elastic-fig10",
        suite: "settled",
        workloads: &[GetZipf, GetEmpty],
        variant: Variant::Elastic,
        key_bytes: 16,
        value_bytes: [100, 100, 1008],
        bits: 4,
        direct: true,
        data_by_cache: [1280, 1280, 0],
        most_cache: 8 << 20,
        sizes: [
            sizes(50_000, 500, 2, &[1]),
            sizes(1_000_000, 20_000, 5, &[1]),
            sizes(100_000_000, 2_000_000, 5, &[1, 16]),
        ],
        claim: Claim {
            text: "RocksDB does 2.15 times as many reads with elastic filters as without, with one thread",
            paper: "2.15×",
            ratio: Some(2.15),
            ..ELASTIC_CLAIM
        },
    },
    Setting {
        figure: "elastic-fig13",
        suite: "ycsb",
        workloads: ALL_MIXES,
        variant: Variant::Elastic,
        key_bytes: 16,
        value_bytes: [100, 100, 1008],
        bits: 4,
        direct: true,
        data_by_cache: [1280, 1280, 0],
        most_cache: 8 << 20,
        sizes: [
            sizes(50_000, 500, 2, &[1]),
            sizes(1_000_000, 10_000, 3, &[1]),
            sizes(100_000_000, 3_333_333, 3, &[1]),
        ],
        claim: Claim {
            text: "YCSB C: engines do 1.99 to 2.11 times as many operations with elastic filters as without",
            paper: "1.99–2.11×",
            ratio: Some(2.05),
            workloads: &[YcsbC],
            ..ELASTIC_CLAIM
        },
    },
    Setting {
        figure: "grf-fig13",
        suite: "ycsb",
        workloads: GRF_MIXES,
        variant: Variant::Grf,
        key_bytes: 8,
        value_bytes: [256; 3],
        bits: 10,
        direct: true,
        data_by_cache: [10; 3],
        most_cache: 1 << 30,
        sizes: [
            sizes(20_000, 500, 2, &[1, 2]),
            sizes(400_000, 12_000, 3, &[1, 2, 4]),
            sizes(40_000_000, 100_000, 3, &[4, 8, 16, 32, 64]),
        ],
        claim: GRF_CLAIM,
    },
    Setting {
        figure: "hash-fig11",
        suite: "settled",
        workloads: &[GetEmpty, GetExisting],
        variant: Variant::NoSharing,
        key_bytes: 512,
        value_bytes: [512; 3],
        bits: 10,
        direct: false,
        data_by_cache: [10; 3],
        most_cache: 1 << 30,
        sizes: [
            sizes(23_437, 2_000, 2, &[1]),
            sizes(214_843, 100_000, 5, &[1]),
            sizes(21_484_375, 1_000_000, 5, &[1]),
        ],
        claim: Claim {
            text: "One digest for all filters of a get takes less time than one for each table's, as RocksDB computes them",
            paper: "less time",
            ratio: None,
            side: "tamis",
            against: "rocksdb",
            workloads: &[GetEmpty],
            note: "In the paper both are in one prototype; here engines differ, too.",
        },
    },
];

impl Setting {
    /// Returns the comparison of the figure with this name, if its paper has other engines.
    pub fn of(figure: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.figure == figure)
    }

    /// Returns the request, given the systems `there` that the program has, and one sentence for each difference from
    /// the figure.
    ///
    /// Fails with [`BenchError::Request`] if the program does not support the custom settings.
    pub fn comparison(
        &self,
        scale: Scale,
        custom: &Custom,
        program: &Path,
        there: &[String],
    ) -> Result<(Comparison, Vec<String>), BenchError> {
        let mut said = vec![
            "Other engines have trees of their own shape, set up as their documentation advises; keys are numbers drawn at \
             random, loaded in random order, mixes follow each other on one database, and throughput is the sum of what \
             each thread did in its own time."
                .to_owned(),
        ];
        let at = scale as usize;
        let (sizes, value_bytes) = (self.sizes[at], self.value_bytes[at]);
        let (key_bytes, value_bytes) = (
            first(&custom.key_bytes, self.key_bytes, "--key-bytes", &mut said),
            custom.value_bytes.unwrap_or(value_bytes),
        );
        let bits = first(&custom.bits, f64::from(self.bits), "--bits", &mut said);
        let whole = (bits.round() as u32).clamp(*BITS.start(), *BITS.end());
        if f64::from(whole) != bits {
            said.push(format!("Other engines have {whole} bits per key instead of {bits}."));
        }
        let workloads = if custom.workloads.is_empty() { self.workloads } else { &custom.workloads };
        if let Some(fill) = workloads.iter().find(|workload| workload.is_fill()) {
            return Err(BenchError::Request(format!(
                "{fill} fills a database; with --peers, choose workloads of full ones"
            )));
        }
        for flag in custom.given().into_iter().filter(|flag| UNMATCHED.contains(flag)) {
            said.push(format!("{flag} has no effect on other engines."));
        }
        let keys = custom.keys.unwrap_or(sizes.keys);
        let data = keys.saturating_mul((key_bytes + value_bytes) as u64);
        let cache = data.checked_div(self.data_by_cache[at]).unwrap_or(0);
        let mut systems = self.variant.systems(whole, keys);
        for engine in ENGINES {
            match there.iter().any(|name| name == engine) {
                true => systems.push(System { side: engine.to_owned(), name: engine.to_owned() }),
                false => said.push(format!("{engine} is not compiled into the comparison program.")),
            }
        }
        let comparison = Comparison {
            program: program.to_owned(),
            suite: self.suite,
            suite_workloads: workloads == self.workloads && self.workloads == ALL_MIXES,
            workloads: workloads.to_vec(),
            systems,
            keys,
            key_bytes,
            value_bytes,
            ops: custom.ops.unwrap_or(sizes.ops),
            rounds: custom.repeats.unwrap_or(sizes.rounds).max(1),
            threads: if custom.threads.is_empty() { sizes.threads.to_vec() } else { custom.threads.clone() },
            filter_bits: whole,
            memtable_bytes: (data / DATA_BY_MEMTABLE).clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end()),
            cache_bytes: custom.cache_bytes.unwrap_or(cache.min(self.most_cache)),
            direct: custom.direct.unwrap_or(self.direct),
            seed: custom.seed,
            dir: custom.dir.clone(),
        };
        Ok((comparison, said))
    }
}

impl Variant {
    /// Returns the systems; tamis, which the others are compared to, comes first.
    fn systems(self, bits: u32, keys: u64) -> Vec<System> {
        let system = |side: &str, name: String| System { side: side.to_owned(), name };
        match self {
            Variant::Grf => vec![system("tamis", "tamis".into()), system("tamis-grf", "tamis-grf".into())],
            Variant::Elastic => {
                let budget = u64::from(bits) * keys / 8;
                vec![
                    system("tamis", "tamis:keyspace.filter=bloom".into()),
                    system(
                        "tamis elastic",
                        format!("tamis:keyspace.filter=elastic,filter_budget_bytes={budget}"),
                    ),
                ]
            }
            Variant::NoSharing => vec![
                system("tamis", "tamis".into()),
                system("tamis without sharing", "tamis:hash_sharing=false".into()),
            ],
        }
    }
}

/// Returns the first given value, or the figure's own; adds a note if there are more.
fn first<T: Copy>(given: &[T], own: T, flag: &str, said: &mut Vec<String>) -> T {
    if given.len() > 1 {
        said.push(format!("Other engines use only the first value of {flag}."));
    }
    given.first().copied().unwrap_or(own)
}
