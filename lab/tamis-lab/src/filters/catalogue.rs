//! The experiments by name: the figures of the GRF paper (Wang, Guo, Yang, Zhang: "GRF: A Global Range Filter for
//! LSM-Trees with Shape Encoding", SIGMOD 2024, section 6), and two of our own with every filter there is.

use tamis::options::CompactionChoice;
use tamis_bench::keys::Distribution;
use tamis_bench::workload::Workload::{self, *};

use super::KeySource;
use super::load::{FEW_TABLES, MANY_TABLES};
use crate::figures::Paper;

/// The varied parameter besides the filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    /// Nothing.
    None,
    /// Filter bits per key.
    Bits(&'static [f64]),
    /// Numbers of threads.
    Threads(&'static [usize]),
    /// Numbers of reads in flight, each on a thread of its own.
    InFlight(&'static [usize]),
    /// Numbers of levels with leveling.
    LevelingLevels(&'static [usize]),
}

/// The quantity by which sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Nanoseconds per operation: less is better.
    Time,
    /// Operations per second over all threads: more is better.
    Throughput,
}

/// One experiment with its defaults.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whose it is.
    pub of: Paper,
    /// The paper's figure; empty for one of our own.
    pub place: &'static str,
    /// The measured quantity, in one line.
    pub title: &'static str,
    /// The result of the paper's figure, or what is expected.
    pub paper: &'static str,
    /// Differences from the paper; empty if there are none.
    pub differs: &'static str,
    /// The sides.
    pub filters: &'static [&'static str],
    /// The varied parameter.
    pub axis: Axis,
    /// The reads and mixes, in order.
    pub workloads: &'static [Workload],
    /// The policy, unless the number of leveling levels varies.
    pub compaction: CompactionChoice,
    /// Whether the number of flushes determines the shapes of all sides, or only of those with a global filter.
    pub counted: bool,
    /// Number of levels, including level 0.
    pub levels: usize,
    /// Their size ratio.
    pub size_ratio: u64,
    /// Whether reads of tables bypass the page cache.
    pub direct: bool,
    /// Size of the block cache in the paper; smaller data has a smaller one.
    pub cache_bytes: u64,
    /// Whether the figure is about cached data, so that reads never bypass the page cache.
    pub cached: bool,
    /// The quantity by which sides are compared.
    pub metric: Metric,
    /// The distribution of the last level's keys, if it differs.
    pub shift_from: Option<Distribution>,
    /// The sources of keys: each has points of its own. With `shift_from`, those of the levels above the last. Places stand alone.
    pub keys: &'static [KeySource],
    /// Number of keys at scale `default`.
    pub default_keys: u64,
    /// Intended number of tables.
    pub tables: u64,
    /// Operations per workload and round.
    pub ops: u64,
    /// Rounds.
    pub repeats: u32,
}

/// The sides of most figures.
const SIDES: &[&str] = &["monkey", "chucky", "remix", "surf-real", "rencoder", "snarf", "grf", "grf-huffman"];
/// For reads that bypass the page cache, no filter is of interest as well.
const SIDES_AND_NONE: &[&str] =
    &["none", "monkey", "chucky", "remix", "surf-real", "rencoder", "snarf", "grf", "grf-huffman"];
const BITS: Axis = Axis::Bits(&[6.0, 10.0, 14.0]);
/// The paper's key sets.
const DRAWN: &[KeySource] = &[
    KeySource::Drawn(Distribution::Uniform50),
    KeySource::Drawn(Distribution::Normal),
    KeySource::Drawn(Distribution::Cells),
    KeySource::Drawn(Distribution::Books),
    KeySource::Drawn(Distribution::Fb),
];
/// The same but `normal`, which is the last level's where key sets shift.
const SHIFTED_TO: &[KeySource] = &[
    KeySource::Drawn(Distribution::Uniform50),
    KeySource::Drawn(Distribution::Cells),
    KeySource::Drawn(Distribution::Books),
    KeySource::Drawn(Distribution::Fb),
];
/// All filters for numbers.
const EVERY: &[&str] = &[
    "none",
    "blocked-bloom",
    "monkey",
    "bloom",
    "ribbon",
    "fuse",
    "xor",
    "cuckoo",
    "surf-real",
    "snarf",
    "rosetta",
    "rencoder",
    "grafite",
    "chucky",
    "remix",
    "grf",
    "grf-huffman",
];
/// Those that are of use with strings. (Filters over integers see eight bytes of a key.)
const OF_STRINGS: &[&str] =
    &["none", "blocked-bloom", "monkey", "ribbon", "surf-real", "surf-mixed", "chucky", "remix", "grf"];
const SMALL_CACHE: u64 = 8 << 20;
const LARGE_CACHE: u64 = 1 << 30;

/// The defaults of most experiments.
const COMMON: Experiment = Experiment {
    name: "",
    of: Paper::Grf,
    place: "",
    title: "",
    paper: "",
    differs: "",
    filters: SIDES,
    axis: Axis::None,
    workloads: &[],
    compaction: CompactionChoice::LazyLeveling,
    counted: true,
    levels: 3,
    size_ratio: 10,
    direct: false,
    cache_bytes: SMALL_CACHE,
    cached: false,
    metric: Metric::Time,
    shift_from: None,
    keys: DRAWN,
    default_keys: 200_000,
    tables: FEW_TABLES,
    ops: 20_000,
    repeats: 5,
};

/// The defaults of our own.
const OWN: Experiment =
    Experiment { of: Paper::Ours, cached: true, default_keys: 500_000, ops: 10_000, ..COMMON };

impl Experiment {
    /// Returns all experiments.
    pub fn all() -> Vec<Experiment> {
        vec![
            Experiment {
                name: "grf-fig10",
                place: "Figure 10",
                title: "gets of absent keys, by bits per key",
                paper: "GRF was the fastest at every size, only Chucky came near; most of the time went into querying \
                        filters, and both had the fewest false positives.",
                differs: "Data in the page cache instead of on an Optane disk. The shaded part is a pass of its own that asks \
                          only the filters.",
                axis: BITS,
                workloads: &[GetEmpty],
                ..COMMON
            },
            Experiment {
                name: "grf-fig11",
                place: "Figure 11",
                title: "empty short ranges, seeks and scans, by bits per key",
                paper: "GRF was the fastest at empty ranges and took half the time of REMIX and SNARF for a seek; \
                        scans of 50 were about equal for GRF, REMIX, SNARF and SuRF, and REncoder made them slower.",
                differs: "Data in the page cache instead of on an Optane disk. The shaded part is a pass of its own that asks \
                          only the filters, for scans of 50 the time of scans of 20. range-empty lies directly behind an existing key, which is harder for \
                          learned filters than the paper's, range-absent.",
                axis: BITS,
                workloads: &[RangeAbsent, RangeEmpty, Seek, SeekNext20, SeekNext50],
                ops: 5_000,
                repeats: 3,
                ..COMMON
            },
            Experiment {
                name: "grf-fig12",
                place: "Figure 12",
                title: "absent keys, empty short ranges and seeks with direct I/O, by bits per key",
                paper: "On a slower disk filters' own time hardly counts: GRF stayed clearly ahead for empty queries \
                        and slightly ahead of SNARF for seeks; REMIX and SuRF fell back, as they had wasted reads more \
                        often.",
                differs: "The paper has its books set only, of which the one here is a synthetic imitation.",
                filters: SIDES_AND_NONE,
                axis: BITS,
                workloads: &[GetEmpty, RangeAbsent, Seek],
                direct: true,
                ops: 300,
                repeats: 3,
                ..COMMON
            },
            Experiment {
                name: "grf-fig13",
                place: "Figure 13",
                title: "YCSB A to F, by threads",
                paper: "GRF had more throughput at less latency than all others in every mix and with every number of \
                        threads.",
                differs: "All mixes run on one database per filter, which they fill up, so rounds find different \
                          numbers of runs. Flushes while a mix runs depend on memtable sizes, with one more at its \
                          end. F is ours.",
                axis: Axis::Threads(&[1, 2, 4, 8]),
                workloads: &[YcsbC, YcsbB, YcsbD, YcsbE, YcsbA, YcsbF],
                direct: true,
                cache_bytes: LARGE_CACHE,
                metric: Metric::Throughput,
                ops: 4_000,
                repeats: 3,
                ..COMMON
            },
            Experiment {
                name: "grf-fig14",
                place: "Figure 14",
                title: "YCSB A under leveling",
                paper: "GRF was the fastest although merges at fixed numbers of flushes made it rewrite more than the \
                        others, which merge by size.",
                differs: "Counted full merges for the four global filters, at T' batches of a level, which follows from the \
                          share of updates; partial merges by size for the others.",
                workloads: &[YcsbA],
                compaction: CompactionChoice::Leveling,
                counted: false,
                tables: MANY_TABLES,
                direct: true,
                cache_bytes: LARGE_CACHE,
                metric: Metric::Throughput,
                // Three rounds of inserts, then two of updates, after the first of which T' is known.
                default_keys: 500_000,
                ops: 80_000,
                ..COMMON
            },
            Experiment {
                name: "grf-fig15",
                place: "Figure 15",
                title: "throughput by reads in flight, direct I/O",
                paper: "With asynchronous I/O GRF and Chucky left all others far behind, also for keys that exist: \
                        less processor time per read allows more reads in flight.",
                differs: "Single gets, ranges and seeks have no asynchronous form here. Reads in flight are threads, each with \
                          one operation: 1 is synchronous, and more pay for context switches that asynchronous reads do \
                          not have. A range or a seek also overlaps the reads of the runs that it opens, through io_uring \
                          where the system allows it, and multi-get those of 32 keys.",
                axis: Axis::InFlight(&[1, 8, 32]),
                workloads: &[GetEmpty, GetExisting, RangeAbsent, Seek, MultiGetEmpty, MultiGetExisting],
                direct: true,
                metric: Metric::Throughput,
                ops: 1_500,
                repeats: 3,
                ..COMMON
            },
            Experiment {
                name: "grf-fig16",
                place: "Figure 16",
                title: "one to three leveling levels of four",
                paper: "GRF read fastest under every policy and was written as fast as local filters; the Huffman-coded \
                        variant was much slower to write, as merges change its run numbers. GRF with one leveling \
                        level beat the others with three, but for scans.",
                differs: "Size ratio 4 (--size-ratio 10 needs at least four million keys to be significant).",
                axis: Axis::LevelingLevels(&[1, 2, 3]),
                workloads: &[GetEmpty, GetExisting, RangeAbsent, Seek, SeekNext50],
                levels: 4,
                size_ratio: 4,
                ops: 5_000,
                repeats: 3,
                ..COMMON
            },
            Experiment {
                name: "grf-fig17",
                place: "Figure 17",
                title: "Zipf-distributed gets and seeks, all data cached",
                paper: "GRF was two to ten times as fast as local filters, which then save no more than the search of \
                        a block in memory; for seeks only REMIX and GRF gained, GRF twice as much.",
                differs: "Data in the page cache instead of a block cache.",
                filters: SIDES_AND_NONE,
                workloads: &[GetZipf, SeekZipf],
                cached: true,
                ..COMMON
            },
            Experiment {
                name: "grf-fig18",
                place: "Figure 18",
                title: "last level from one key set, levels above from another",
                paper: "GRF was the slowest to write, about 1 µs per key, as keys of another distribution crowd into few \
                        blocks of the filter; it was still the fastest for all reads.",
                differs: "The last level's keys are normal ones, the others those of each other key set.",
                workloads: &[GetEmpty, GetExisting, MultiGet, RangeAbsent, Seek, SeekNext50, ReverseNext50],
                shift_from: Some(Distribution::Normal),
                keys: SHIFTED_TO,
                ops: 10_000,
                ..COMMON
            },
            Experiment {
                name: "filters-numbers",
                title: "every filter over the same tree of numbers, by bits per key",
                paper: "A get hashes its key once, whichever filter answers. Of filters of single tables the default answers \
                        for absent keys fastest, and grf answers for empty ranges and seeks fastest of all.",
                filters: EVERY,
                axis: Axis::Bits(&[10.0, 14.0]),
                workloads: &[GetEmpty, GetExisting, MultiGet, RangeAbsent, RangeEmpty, Seek, SeekNext50],
                keys: &[KeySource::Drawn(Distribution::Uniform50), KeySource::Drawn(Distribution::Cells)],
                ..OWN
            },
            Experiment {
                name: "filters-strings",
                title: "filters over the same tree of names, by bits per key",
                paper: "A get hashes its key once, whichever filter answers. Of filters of single tables the default answers \
                        for absent keys fastest.",
                filters: OF_STRINGS,
                axis: Axis::Bits(&[10.0, 14.0]),
                workloads: &[GetEmpty, GetExisting, MultiGet, RangeAbsent, Seek, SeekNext50],
                keys: &[KeySource::Places],
                ..OWN
            },
        ]
    }
}
