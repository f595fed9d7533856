//! The experiments by name: the figures of the ElasticBF paper (Li, Tian, Guo, Li, Xu: "ElasticBF: Elastic Bloom Filter
//! with Hotness Awareness for Boosting Read Performance in Large Key-Value Stores", USENIX ATC 2019), hash sharing
//! in elastic filters, and some of our own.

use tamis_bench::workload::Workload::{self, *};

use crate::figures::Paper;

/// The procedure of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs workloads in rounds.
    Rounds,
    /// Runs one sequence of gets again and again: until the placement has settled, then in rounds.
    Replay,
    /// Loads in rounds, then runs workloads in rounds.
    Loads,
    /// Counts the queries of each table.
    TableSkew,
    /// Counts the queries of the parts of each table.
    RegionSkew,
    /// Reads in windows; the hot keys move half-way.
    Shift,
    /// Reads in windows from a cold start on.
    Cold,
    /// Reads in windows before a restart and after it.
    Restart,
}

/// Lists whose combinations are the points of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Exponents of Zipf's law, 0 for uniform.
    pub skews: &'static [f64],
    /// Shares of absent keys in percent.
    pub absents: &'static [u64],
    /// Numbers of keys in a neighbourhood: see [`PatternSpec`](tamis_bench::pattern::PatternSpec).
    pub localities: &'static [u64],
    /// Numbers of threads.
    pub threads: &'static [usize],
}

/// One experiment with its defaults.
#[derive(Clone, Debug)]
pub struct ElasticExperiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper.
    pub source: Paper,
    /// The paper's figure; empty for our own.
    pub place: &'static str,
    /// The measured quantity, in one line.
    pub title: &'static str,
    /// The result of the paper's figure.
    pub paper: &'static str,
    /// Differences from the paper.
    pub differs: &'static str,
    /// The procedure.
    pub kind: Kind,
    /// The sides; the others are compared with the first one that is not elastic.
    pub sides: &'static [&'static str],
    /// The workloads.
    pub workloads: &'static [Workload],
    /// The points.
    pub grids: &'static [Grid],
    /// Whether unmeasured gets come first, so that hotness is known.
    pub warm: bool,
    /// Whether reads of tables bypass the page cache.
    pub direct: bool,
    /// The varied setting.
    pub vary: Option<Vary>,
    /// Bits of filter memory per key.
    pub bits: f64,
    /// Number of keys, in halves of the other experiments' number.
    pub half_keys: u64,
    /// Operations per workload and round.
    pub ops: u64,
    /// Number of rounds.
    pub repeats: u32,
}

/// A varied setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// The share of absent keys (figure 16 b).
    Absent,
    /// The block cache (c).
    Cache,
    /// The size of values (d).
    Value,
    /// The size of a filter unit, and so of a segment (f).
    UnitSize,
    /// The number of gets after which an unqueried segment expires (g).
    LifeTime,
    /// The bits of a unit per key, with 24 for all units together (h).
    UnitBits,
    /// The number of keys (e).
    Keys,
    /// The storage of the tables (a).
    Device,
    /// The distance between hot keys: not in the paper.
    Locality,
    /// The shape of the tree, as of three engines (figure 13).
    Tree,
}

/// YCSB's skew with half of the keys absent: the paper's default.
const DEFAULT: Grid = Grid { skews: &[0.99], absents: &[50], localities: &[1], threads: &[1] };

/// The default with scattered hot keys, and with adjacent hot keys.
const BOTH: Grid = Grid { localities: &[1, 4096], ..DEFAULT };

/// The defaults of most experiments.
const COMMON: ElasticExperiment = ElasticExperiment {
    name: "",
    source: Paper::ElasticBf,
    place: "",
    title: "",
    paper: "",
    differs: "",
    kind: Kind::Rounds,
    sides: &["bloom", "elastic"],
    workloads: &[YcsbC],
    grids: &[DEFAULT],
    warm: true,
    direct: true,
    vary: None,
    bits: 4.0,
    half_keys: 2,
    ops: 20_000,
    repeats: 3,
};

/// The sides of comparisons with divisions of filter memory that do not change while nothing is written. `mnemosyne` goes
/// between the two once the engine has that allocation.
const AGAINST_MONKEY: &[&str] = &["monkey", "elastic"];

const YCSB: &[Workload] = &[YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF];

impl ElasticExperiment {
    /// Returns all experiments.
    pub fn all() -> Vec<ElasticExperiment> {
        vec![
            ElasticExperiment {
                name: "elastic-fig2",
                place: "Figure 2",
                title: "how often tables are queried, by level",
                paper: "Tables of upper levels were queried more often than those of lower ones, but tables of one level \
                        differed widely: 21 % of the tables of level 4 were hotter than 11 % of those of level 3.",
                differs: "Counted from the paths of the gets, with any filter.",
                kind: Kind::TableSkew,
                sides: &["bloom"],
                grids: &[Grid { skews: &[0.0, 0.99], absents: &[0], localities: &[1, 4096], threads: &[1] }],
                direct: false,
                ops: 200_000,
                repeats: 1,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig3",
                place: "Figure 3",
                title: "how often 64 parts of each table are queried: (most − least) / mean",
                paper: "The ratio was greater than 10 for 73 % of the tables.",
                differs: "A part is a 64th of the keys between a table's first and last key.",
                kind: Kind::RegionSkew,
                sides: &["bloom"],
                grids: &[Grid { skews: &[0.0, 0.99], absents: &[0], localities: &[1, 4096], threads: &[1] }],
                direct: false,
                ops: 200_000,
                repeats: 1,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig6",
                place: "Figure 6",
                title: "wasted reads, by skew",
                paper: "At equal memory, units by hotness had 55.9 to 89.7 % fewer wasted reads than fixed filters, more \
                        with greater skew.",
                differs: "The paper counted how often each table is queried, set units by these counts, and replayed the same \
                          gets; here the engine learns hotness from the sequence, replayed until its placement has settled, \
                          and the next replays are measured. A segment's units are set by its own hotness, not its table's.",
                kind: Kind::Replay,
                grids: &[Grid { skews: &[0.0, 0.8, 0.99, 1.2, 1.4], ..BOTH }],
                ops: 50_000,
                repeats: 2,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig10",
                place: "Figure 10",
                title: "reads: throughput, latency, blocks read",
                paper: "Throughput 2.08 to 2.17 times that of fixed filters with one thread and 2.34 to 2.58 times with \
                        16, latency 52 to 56 % and block reads 59 to 64 % less; loading units was 1 % of all reads.",
                differs: "Below the paper's scale unmeasured gets come first, until the placement of filters has settled: the paper \
                          begins cold, but has a hundred times as many gets, few of which are before that.",
                grids: &[BOTH],
                repeats: 5,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig11",
                place: "Figure 11",
                title: "half and a tenth writes: does hotness survive compaction?",
                paper: "Reads took 28 to 55 % less time with half writes and 39 to 52 % less with a tenth; block reads of \
                        gets were 47 to 73 % fewer.",
                differs: "elastic-cold does not inherit hotness, which the paper did not show separately. Writes follow the same \
                          distribution as gets.",
                sides: &["bloom", "elastic", "elastic-cold"],
                workloads: &[ReadWrite, ReadMostly],
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig12",
                place: "Figure 12",
                title: "loading and scans: the costs of elastic filters",
                paper: "Less than 1 % difference for both.",
                differs: "Scans are seeks followed by 50 entries.",
                kind: Kind::Loads,
                workloads: &[SeekNext50],
                grids: &[Grid { absents: &[0], ..DEFAULT }],
                ops: 2_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig13",
                place: "Figure 13",
                title: "YCSB A to F, in trees as of three engines",
                paper: "C gained most, 1.99 to 2.11 times; B 53 to 72 %, D 48 to 93 %, A 7 to 37 %, F 8 to 47 %; E, which \
                        scans, nothing.",
                differs: "One engine with three kinds of trees instead of LevelDB, RocksDB and PebblesDB: leveling with partial merges \
                          that take tables in turn (LevelDB), or those that overlap the next level least (RocksDB), and \
                          fragmented (PebblesDB). Half of the gets are for absent keys, as everywhere; a read-modify-write's \
                          key exists.",
                vary: Some(Vary::Tree),
                workloads: YCSB,
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig14",
                place: "Figure 14",
                title: "against Monkey, by skew and by share of absent keys",
                paper: "With absent keys only, 1.39 to 2.20 times the throughput and 37 to 81 % fewer block reads, growing \
                        with skew, while Monkey was flat; 1.16 to 1.39 times by share of absent keys.",
                differs: "monkey is blocked-bloom.",
                sides: AGAINST_MONKEY,
                grids: &[
                    Grid { skews: &[0.8, 0.99, 1.2, 1.4], absents: &[100], ..BOTH },
                    Grid { absents: &[0, 25, 50, 75], ..DEFAULT },
                ],
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig14-large",
                place: "Figure 14d",
                title: "against Monkey, by skew, absent keys only, four times the keys",
                paper: "1.36 to 2.15 times the throughput with 400 GB: about as with 100 GB.",
                differs: "monkey is blocked-bloom. By default also four times the gets of Figure 14: hotness is known by segments, of \
                          which there are four times as many.",
                sides: AGAINST_MONKEY,
                grids: &[Grid { skews: &[0.8, 0.99, 1.2, 1.4], absents: &[100], ..BOTH }],
                half_keys: 8,
                ops: 40_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig15",
                place: "Figure 15",
                title: "YCSB A to F against Monkey, four threads",
                paper: "Skew 0.99: C 1.29 and D 1.20 times; skew 1.2: 1.99 and 1.89 times. Little for A, B and F, whose \
                        updates bring the hot keys to the upper levels, and nothing for E.",
                differs: "monkey is blocked-bloom. Half of the gets are for absent keys.",
                sides: AGAINST_MONKEY,
                workloads: YCSB,
                grids: &[Grid { skews: &[0.99, 1.2], threads: &[4], ..DEFAULT }],
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-device",
                place: "Figure 16a",
                title: "gains by the device of the tables",
                paper: "2.31 to 2.38 times the throughput on an HDD, about as on an SSD (2.08 to 2.17 times).",
                differs: "All devices but the disk are emulated: reads of tables take the time of the device; the paper had \
                          one HDD and one SSD. Unmeasured gets, loading and merges are not slowed down.",
                vary: Some(Vary::Device),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-absent",
                place: "Figure 16b",
                title: "gains by the share of absent keys",
                paper: "1.65 to 3.08 times the throughput from no to only absent keys.",
                vary: Some(Vary::Absent),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-cache",
                place: "Figure 16c",
                title: "gains by the block cache",
                paper: "1.43 to 2.08 times the throughput without a block cache and with 8 and 64 MiB for 100 GB.",
                vary: Some(Vary::Cache),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-value",
                place: "Figure 16d",
                title: "gains by the size of values",
                paper: "1.99 to 2.08 times the throughput for pairs of 128 bytes to 1 KiB.",
                differs: "The same number of keys for every size instead of the same number of bytes.",
                vary: Some(Vary::Value),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-size",
                place: "Figure 16e",
                title: "gains by the size of the database",
                paper: "2.00 to 2.08 times the throughput for 100, 200 and 400 GB.",
                differs: "The given number of keys is the smallest of three sizes. Filters and block cache grow with the data.",
                vary: Some(Vary::Keys),
                half_keys: 1,
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-unit-size",
                place: "Figure 16f",
                title: "throughput by the size of a filter unit, and so of a segment",
                paper: "Best with segments of 4 MB, whose units are about a block of the device: 17.8 % more throughput than \
                        with one segment per table. Smaller units waste reads, larger segments know less about hotness.",
                differs: "A segment is identified by the size of its unit: 2 KiB are 4,096 keys at 4 bits, the paper's 4 MB.",
                vary: Some(Vary::UnitSize),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-life-time",
                place: "Figure 16g",
                title: "throughput by the life time of segments",
                paper: "No big difference.",
                differs: "\"auto\" is the engine's choice.",
                vary: Some(Vary::LifeTime),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-fig16-unit-bits",
                place: "Figure 16h",
                title: "throughput by the bits of a filter unit, 24 of all units together",
                paper: "Best with 4 bits: fewer mean more loads for the same filter, more mean fewer degrees of hotness.",
                vary: Some(Vary::UnitBits),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-locality",
                source: Paper::Ours,
                title: "gains by the number of adjacent hot keys",
                paper: "Not in the paper. Hotness is known by segments, so adjacent hot keys gain more.",
                vary: Some(Vary::Locality),
                ops: 10_000,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-shift",
                source: Paper::Ours,
                title: "the hot keys move: how soon do filters follow?",
                paper: "Not in the paper.",
                differs: "",
                kind: Kind::Shift,
                grids: &[BOTH],
                ops: 1_500,
                repeats: 1,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-cold-curve",
                source: Paper::Ours,
                title: "wasted reads from a cold start on, against Monkey",
                paper: "Not in the paper, which measures from a cold start and says that ten million gets are enough.",
                kind: Kind::Cold,
                sides: AGAINST_MONKEY,
                grids: &[Grid { skews: &[0.99, 1.2, 1.4], absents: &[100], ..BOTH }],
                ops: 10_000,
                repeats: 1,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-restart",
                source: Paper::Ours,
                title: "wasted reads before a restart, and after closing, after a crash, and without known hotness",
                paper: "Not in the paper, whose hotness is in memory only.",
                differs: "",
                kind: Kind::Restart,
                grids: &[BOTH],
                ops: 10_000,
                repeats: 1,
                ..COMMON
            },
            ElasticExperiment {
                name: "hash-elastic",
                source: Paper::HashSharing,
                place: "Section 4.3",
                title: "hash sharing in a tree of elastic filters, absent keys only: digests, probes and time of a get",
                paper: "One digest a get serves the filters of all levels, with elastic filters as well; it then also serves all units \
                        of a filter, which saves another factor of their number, without harming the false positive rate.",
                differs: "The paper says so without a figure. A side that ends in -each computes digests for every filter of a get; \
                          elastic-independent has digests of its own for every unit and probe, elastic derives those of \
                          all units from one. Ten bits per key, so that filters have three units and more. Data is in the page \
                          cache, keys have 16 bytes.",
                sides: &[
                    "bloom",
                    "bloom-each",
                    "elastic",
                    "elastic-each",
                    "elastic-independent",
                    "elastic-independent-each",
                ],
                grids: &[Grid { absents: &[100], ..DEFAULT }],
                direct: false,
                bits: 10.0,
                ops: 200_000,
                repeats: 5,
                ..COMMON
            },
            ElasticExperiment {
                name: "elastic-threads",
                source: Paper::Ours,
                title: "gets by threads, data in the page cache: the cost of counting",
                paper: "Not in the paper, which shows 16 threads on a disk.",
                differs: "",
                sides: &["blocked-bloom", "elastic"],
                grids: &[Grid { threads: &[1, 2, 4], ..DEFAULT }],
                direct: false,
                ops: 400_000,
                repeats: 5,
                ..COMMON
            },
        ]
    }
}
