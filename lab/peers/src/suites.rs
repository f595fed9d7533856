//! The suites: databases, and the order of the operations on them. Plain values; [`conduct`](mod@crate::conduct)
//! executes them.
//!
//! A suite is a list of plans; a plan is one database per system and the steps measured on it. Slow operations are
//! repeated less often, equally for all systems: [`Suite::plans`] decides by the operations, not by the systems.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tamis_bench::Workload;
use tamis_bench::run::Fill;
use tamis_bench::value::ValueSizes;

use crate::engines::{Compression, Setup};
use crate::failure::Failure;
use crate::protocol::{Data, Hot};
use crate::record::Conditions;
use crate::source::Source;

/// Sizes set on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sizes {
    /// Number of keys in a database.
    pub keys: u64,
    /// Size of a key in bytes, except in the suite that varies it.
    pub key_bytes: u64,
    /// Sizes of values, except in `mixgraph`, where they are mixed.
    pub values: ValueSizes,
    /// Operations of the fastest workloads.
    pub ops: u64,
    /// Duration of a round of steady overwrites.
    pub seconds: u64,
    /// Number of measurements of every step.
    pub rounds: u32,
    /// Filter bits per key.
    pub filter_bits: u32,
    /// Size of a memtable in bytes.
    pub memtable_bytes: u64,
    /// Size of the block cache in bytes; `None` for the suite's default.
    pub cache_bytes: Option<u64>,
    /// Limit of all memory of a worker; `None` for the suite's default.
    pub memory_bytes: Option<u64>,
    /// Compression of blocks.
    pub compression: Compression,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// The workloads; `None` for the suite's own.
    pub workloads: Option<Vec<Workload>>,
    /// Whether all suites bypass the page cache, not only `direct`.
    pub direct_io: bool,
    /// Zipf's exponents in `hot-gets`, in hundredths.
    pub skews: Vec<u32>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Where keys come from, except in `real` and `keys`.
    pub source: Source,
    /// A file of keys for the suite `real`, beside the sources that ship with the laboratory.
    pub key_file: Option<PathBuf>,
}

impl Sizes {
    /// Returns the sizes with the keys of a source: as many as it has, at most `keys`.
    fn with_keys_of(&self, source: &Source) -> Result<Sizes, Failure> {
        let keys = source
            .keys(self.keys, self.key_bytes as usize, self.seed)
            .map_err(|error| Failure::Usage(format!("keys of {source}: {error}")))?;
        Ok(Sizes { keys: keys.len(), key_bytes: keys.key_bytes().round() as u64, ..self.clone() })
    }

    fn entry_bytes(&self) -> f64 {
        self.key_bytes as f64 + self.values.mean()
    }
}

/// Default size of the block cache.
pub(crate) const CACHE_BYTES: u64 = 8 << 20;

/// Default size of the block cache in `ycsb`.
pub(crate) const YCSB_CACHE_BYTES: u64 = 1 << 30;

/// Ratio of data size to block cache in `direct`.
const DIRECT_CACHE_SHARE: u64 = 32;

/// Ratio of the larger block cache to the data in `cached`. What engines keep for a block, and B-trees for half-empty pages, counts.
const LARGE_CACHE: u64 = 2;

/// Sizes of the cache in `hot-gets`, in percent of the data.
const HOT_CACHES: [u64; 4] = [1, 5, 25, 50];

/// Shares of the keys in `opening`.
const OPENED: [u64; 4] = [1000, 100, 10, 1];

/// Number of adjacent keys of about the same hotness, where hot keys are together.
const TOGETHER: u64 = 1024;

/// Zipf's exponent in `beyond-memory`, YCSB's, in hundredths.
const ZIPF: u32 = 99;

/// Ratio of the data to all memory in `beyond-memory`.
const BEYOND_MEMORY: u64 = 5;

/// The least memory there, since processes need some for themselves.
const LEAST_MEMORY: u64 = 32 << 20;

/// Ratio of all memory to the block cache there: RocksDB's guide gives it a third, and the rest to the page cache.
const CACHE_OF_MEMORY: u64 = 3;

/// Ratio of measured operations of a step to those that warm up before.
const WARMUP_SHARE: u64 = 10;

/// Intended minimum number of runs where compaction is held back, which limits the size of memtables.
const RUNS: u64 = 16;

/// Sizes of keys in the suite `keys`.
const KEY_LENGTHS: [u64; 4] = [8, 32, 128, 1024];

/// Numbers of writers in the suite `sync`: more of them share a sync.
const SYNC_THREADS: [usize; 3] = [1, 8, 32];

/// Numbers of writers in the suite `writers`; `load` has one.
const WRITERS: [usize; 2] = [2, 8];

/// Number of puts in a batch of the suite `batch`.
const BATCH: usize = 100;

/// Sizes of values in the suite `large`.
const VALUE_LENGTHS: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, 256 << 10];

/// Values of at least so many bytes are separated in the suite `large`: all of them.
const SEPARATED_BYTES: u64 = 1 << 10;

/// Operations of a part of steady overwrites, after each of which the time is checked.
const STEADY_OPS: u64 = 1 << 16;

/// Size of blocks, the same in all engines.
const BLOCK_BYTES: u64 = 4096;

/// What an index has for a block beside its key: a position, a length, and what leads to them.
const INDEX_ENTRY_BYTES: u64 = 32;

/// Minimum number of operations of a step.
const FEWEST_OPS: u64 = 64;

const READS: [Workload; 9] = [
    Workload::GetEmpty,
    Workload::GetExisting,
    Workload::GetZipf,
    Workload::MultiGetEmpty,
    Workload::MultiGetExisting,
    Workload::RangeEmpty,
    Workload::Seek,
    Workload::SeekNext50,
    Workload::ReverseNext50,
];

const YCSB: [Workload; 6] =
    [Workload::YcsbA, Workload::YcsbB, Workload::YcsbC, Workload::YcsbD, Workload::YcsbE, Workload::YcsbF];

/// A suite by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suite {
    /// Fills.
    Load,
    /// A fill by a caller who makes each value right before its put.
    Inline,
    /// A fill in batches.
    Batch,
    /// Fills by several threads.
    Writers,
    /// A fill, and the size of its files when nothing changes any more.
    Space,
    /// Reads after everything was merged into one run.
    Compacted,
    /// The same with a small block cache, and with one that holds everything.
    Cached,
    /// Reads after compaction has finished.
    Settled,
    /// The same after overwrites.
    Overwritten,
    /// Reads with compaction held back.
    Runs,
    /// YCSB.
    Ycsb,
    /// RocksDB's `mixgraph`.
    Mixgraph,
    /// Reads of files that are not in the page cache.
    Cold,
    /// Openings, by the number of keys.
    Opening,
    /// Reads that bypass the page cache.
    Direct,
    /// Keys of different lengths.
    Keys,
    /// Real keys.
    Real,
    /// Synced writes.
    Sync,
    /// Overwrites for a while.
    Steady,
    /// Large values.
    Large,
    /// Gets of hot keys, with caches of different sizes.
    HotGets,
    /// A database larger than memory.
    BeyondMemory,
}

/// One database per system, and the measurements on it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The suite it belongs to.
    pub suite: Suite,
    /// The keys and values.
    pub data: Data,
    /// Number of keys present at the beginning.
    pub loaded: u64,
    /// Number of overwrites before the first step.
    pub overwrites: u64,
    /// Whether everything is merged before the first step.
    pub compact: bool,
    /// Whether databases are loaded anew for each round: which runs a load leaves is chance.
    pub reload: bool,
    /// See [`Setup`].
    pub cache_bytes: u64,
    /// See [`Setup`].
    pub memtable_bytes: u64,
    /// See [`Setup`].
    pub filter_bits: u32,
    /// See [`Setup`].
    pub compression: Compression,
    /// Whether writes are synced while steps are measured. Loads are never synced.
    pub sync: bool,
    /// Whether steps bypass the page cache. Loads never do.
    pub direct_io: bool,
    /// Whether compaction runs, during the load as well.
    pub compaction: bool,
    /// Number of puts that a fill writes together.
    pub batch: usize,
    /// Whether a fill makes values right before their puts.
    pub inline: bool,
    /// Whether a fill's files must be at rest before they are measured.
    pub rest: bool,
    /// If given, steps that write are repeated for so long; their operations are a part.
    pub seconds: Option<u64>,
    /// See [`Setup`].
    pub separated_bytes: Option<u64>,
    /// Whether the database is closed, evicted from the page cache and opened again before each step.
    pub cold: bool,
    /// Limit of all memory of a worker, its page cache included, while steps are measured. Loads have none.
    pub memory_bytes: Option<u64>,
    /// Ratio of the operations of a step to those of its warm-up.
    pub warmup_share: u64,
    /// Number of operations of the first step that come before all steps, once.
    pub heated: u64,
    /// Whether all entries are read once before the first step, through each engine's cache.
    pub filled: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of measurements of the steps.
    pub rounds: u32,
    /// The steps of each round, in order. Either all or none of them fill empty databases.
    pub steps: Vec<Step>,
}

/// One workload to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The operations.
    pub workload: Workload,
    /// Number of threads.
    pub threads: usize,
    /// Number of operations over all threads; a fill puts every key.
    pub ops: u64,
    /// Which keys are hot; `None`: as the workload says.
    pub hot: Option<Hot>,
    /// The unmeasured workload before each round: see [`Plan::warmup_share`].
    pub warm_with: Option<Workload>,
}

/// Properties in which a database must agree with another one to replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loading {
    data: Data,
    loaded: u64,
    overwrites: u64,
    compact: bool,
    memtable_bytes: u64,
    filter_bits: u32,
    compression: Compression,
    compaction: bool,
    separated_bytes: Option<u64>,
}

impl Suite {
    /// All suites in execution order.
    pub(crate) const ALL: [Suite; 22] = [
        Suite::Load,
        Suite::Inline,
        Suite::Batch,
        Suite::Writers,
        Suite::Space,
        Suite::Compacted,
        Suite::Cached,
        Suite::Settled,
        Suite::Overwritten,
        Suite::Runs,
        Suite::Ycsb,
        Suite::Mixgraph,
        Suite::Cold,
        Suite::Opening,
        Suite::Direct,
        Suite::Keys,
        Suite::Real,
        Suite::Sync,
        Suite::Steady,
        Suite::Large,
        Suite::HotGets,
        Suite::BeyondMemory,
    ];

    /// Returns the name on the command line and in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::Load => "load",
            Suite::Inline => "inline",
            Suite::Batch => "batch",
            Suite::Writers => "writers",
            Suite::Space => "space",
            Suite::Compacted => "compacted",
            Suite::Cached => "cached",
            Suite::Settled => "settled",
            Suite::Overwritten => "overwritten",
            Suite::Runs => "runs",
            Suite::Ycsb => "ycsb",
            Suite::Mixgraph => "mixgraph",
            Suite::Cold => "cold",
            Suite::Opening => "opening",
            Suite::Direct => "direct",
            Suite::Keys => "keys",
            Suite::Real => "real",
            Suite::Sync => "sync",
            Suite::Steady => "steady",
            Suite::Large => "large",
            Suite::HotGets => "hot-gets",
            Suite::BeyondMemory => "beyond-memory",
        }
    }

    /// Returns a description in one sentence.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Suite::Load => "fills of empty databases, repeated in each round",
            Suite::Inline => "a fill whose values are made right before their puts, which is timed as well",
            Suite::Batch => "a fill in batches of 100 puts",
            Suite::Writers => "fills by 2 and 8 threads",
            Suite::Space => "a fill, and the size of its files until they have been at rest for seconds",
            Suite::Compacted => {
                "reads after everything was merged into one run, by each engine's own command"
            }
            Suite::Cached => {
                "the same with the block cache of `compacted` and with one of twice the data, once all has been read through it"
            }
            Suite::Settled => {
                "the same after compaction has finished by its own rules; loaded anew in each round"
            }
            Suite::Overwritten => {
                "the same after as many overwrites as keys, and compaction after these; loaded anew in each round"
            }
            Suite::Runs => "the same with compaction held back, so that there are 16 sorted runs or more",
            Suite::Ycsb => "the standard mixes A to F with a cache of 1 GiB",
            Suite::Mixgraph => "RocksDB's model of a social graph's store, values of 10 to 1024 bytes",
            Suite::Cold => "a few reads after opening, with none of the files in the page cache",
            Suite::Opening => {
                "the time of such an opening: a thousandth, a hundredth, a tenth of the keys, and all of them"
            }
            Suite::Direct => "direct I/O with a block cache of 1/32 of the data",
            Suite::Keys => "keys of 8, 32, 128 and 1024 bytes, fewer of the longer ones",
            Suite::Real => {
                "real keys: places, words, IPv4 addresses, cells of places, and those of --key-file"
            }
            Suite::Sync => "overwrites, each synced before it is acknowledged, by 1, 8 and 32 threads",
            Suite::Steady => "overwrites without a pause, with the puts of each second",
            Suite::Large => {
                "values of 1, 4, 16 and 256 KiB, fewer of the longer ones, separated from their keys"
            }
            Suite::HotGets => {
                "gets of hot keys, scattered and together, with caches of 1, 5, 25 and 50 % of the data"
            }
            Suite::BeyondMemory => {
                "data of five times all memory, the page cache included; everything merged into one run"
            }
        }
    }

    /// Returns its workloads.
    pub(crate) fn workloads(self) -> Vec<Workload> {
        use Workload::*;
        match self {
            Suite::Load => vec![FillRandom, FillSeq],
            Suite::Inline | Suite::Batch | Suite::Writers | Suite::Space => vec![FillRandom],
            Suite::Compacted | Suite::Cached | Suite::Settled | Suite::Overwritten | Suite::Runs => {
                READS.to_vec()
            }
            Suite::Ycsb => YCSB.to_vec(),
            Suite::Mixgraph => vec![Mixgraph],
            Suite::Cold => vec![GetExisting, GetEmpty, Seek],
            Suite::Opening => vec![GetExisting],
            Suite::Direct => vec![GetEmpty, GetExisting, Seek, SeekNext50, MultiGetExisting],
            Suite::Keys => vec![GetEmpty, GetExisting, Seek],
            Suite::Real => vec![GetEmpty, GetExisting, Seek, SeekNext50],
            Suite::Sync | Suite::Steady => vec![Overwrite],
            Suite::Large => vec![FillRandom, Overwrite, GetExisting, SeekNext50],
            Suite::HotGets => vec![GetZipf],
            Suite::BeyondMemory => {
                vec![GetEmpty, GetExisting, GetZipf, Seek, SeekNext50, YcsbB, YcsbC, YcsbD]
            }
        }
    }

    /// Reports whether a workload fits its databases.
    pub(crate) fn accepts(self, workload: Workload) -> bool {
        match self {
            Suite::Inline => workload == Workload::FillRandom,
            Suite::Load | Suite::Batch | Suite::Writers | Suite::Space => workload.is_fill(),
            Suite::Large => true,
            _ => !workload.is_fill(),
        }
    }

    /// Returns the plans of the suite for the given sizes.
    ///
    /// # Errors
    ///
    /// A file of keys cannot be used.
    pub(crate) fn plans(self, sizes: &Sizes) -> Result<Vec<Plan>, Failure> {
        if sizes.source == Source::Uniform || matches!(self, Suite::Real | Suite::Keys) {
            return self.plans_of_uniform(sizes);
        }
        let mut plans = self.plans_of_uniform(&sizes.with_keys_of(&sizes.source)?)?;
        for plan in &mut plans {
            if plan.data.keys > plan.loaded {
                let text = format!("--key-set: `{self}` inserts keys, and `{}` has no others", sizes.source);
                return Err(Failure::Usage(text));
            }
            (plan.data.source, plan.data.asked) = (sizes.source.clone(), sizes.keys);
        }
        Ok(plans)
    }

    /// Returns the plans with random keys, except in `real`.
    fn plans_of_uniform(self, sizes: &Sizes) -> Result<Vec<Plan>, Failure> {
        let workloads = sizes.workloads.clone().unwrap_or_else(|| self.workloads());
        let plan = |threads: &[usize]| Plan::new(self, sizes, &workloads, threads);
        Ok(match self {
            Suite::Load => vec![plan(&[1])],
            Suite::Inline => vec![Plan { inline: true, ..plan(&[1]) }],
            Suite::Batch => vec![Plan { batch: BATCH, ..plan(&[1]) }],
            Suite::Writers => vec![plan(&WRITERS)],
            Suite::Space => vec![Plan { rest: true, ..plan(&[1]) }],
            Suite::Ycsb | Suite::Mixgraph => vec![plan(&sizes.threads)],
            Suite::Compacted | Suite::Direct => vec![Plan { compact: true, ..plan(&sizes.threads) }],
            Suite::Cached => {
                let small = Plan { compact: true, filled: true, ..plan(&sizes.threads) };
                let large = Plan { cache_bytes: LARGE_CACHE * small.loaded_bytes(), ..small.clone() };
                vec![small, large]
            }
            Suite::Settled => vec![Plan { reload: true, ..plan(&sizes.threads) }],
            Suite::Overwritten => {
                let reads = plan(&sizes.threads);
                vec![Plan { overwrites: reads.loaded, reload: true, ..reads }]
            }
            Suite::Runs => {
                let mut runs = plan(&sizes.threads);
                runs.compaction = false;
                runs.memtable_bytes = runs.memtable_bytes_for_runs();
                vec![runs]
            }
            Suite::Cold => vec![Plan { cold: true, compact: true, ..plan(&[1]) }],
            Suite::Opening => {
                let of_share = |share: u64| {
                    let fewer = Sizes { keys: (sizes.keys / share).max(1), ops: FEWEST_OPS, ..sizes.clone() };
                    Plan { cold: true, ..Plan::new(self, &fewer, &workloads, &[1]) }
                };
                OPENED.map(of_share).to_vec()
            }
            Suite::Keys => {
                let of_length = |&key_bytes: &u64| {
                    let mut longer = Sizes { key_bytes, ..sizes.clone() };
                    let fewer = sizes.keys as f64 * sizes.entry_bytes() / longer.entry_bytes();
                    longer.keys = (fewer as u64).max(1);
                    Plan { compact: true, ..Plan::new(self, &longer, &workloads, &[1]) }
                };
                KEY_LENGTHS.iter().map(of_length).collect()
            }
            Suite::Real => {
                let file = sizes.key_file.clone().map(Source::File);
                let of_source = |source: Source| {
                    let own = sizes.with_keys_of(&source)?;
                    let mut plan = Plan::new(self, &own, &workloads, &[1]);
                    (plan.data.source, plan.data.asked) = (source, sizes.keys);
                    plan.compact = true;
                    // Some of these sets are so small that they would fit into one memtable.
                    plan.memtable_bytes = plan.memtable_bytes_for_runs();
                    Ok(plan)
                };
                Source::SHIPPED.into_iter().chain(file).map(of_source).collect::<Result<_, Failure>>()?
            }
            Suite::Sync => vec![Plan { sync: true, ..plan(&SYNC_THREADS) }],
            Suite::Steady => vec![Plan { seconds: Some(sizes.seconds), ..plan(&[1]) }],
            Suite::Large => {
                let (fills, others): (Vec<Workload>, Vec<Workload>) =
                    workloads.iter().partition(|workload| workload.is_fill());
                let of_length = |&bytes: &usize| {
                    let mut larger = Sizes { values: bytes.into(), ..sizes.clone() };
                    let fewer = sizes.keys as f64 * sizes.entry_bytes() / larger.entry_bytes();
                    larger.keys = (fewer as u64).max(1);
                    larger.ops = sizes.ops.min(larger.keys);
                    let plan = |workloads: &[Workload]| {
                        let separated_bytes = Some(SEPARATED_BYTES);
                        Plan { separated_bytes, ..Plan::new(self, &larger, workloads, &[1]) }
                    };
                    [plan(&fills), plan(&others)]
                };
                VALUE_LENGTHS.iter().flat_map(of_length).filter(|plan| !plan.steps.is_empty()).collect()
            }
            Suite::HotGets => {
                let plain = Plan { compact: true, ..plan(&sizes.threads) };
                let shares = HOT_CACHES.map(|percent| plain.loaded_bytes() * percent / 100);
                let caches = sizes.cache_bytes.map_or(shares.to_vec(), |bytes| vec![bytes]);
                let mut plans = Vec::new();
                for cache_bytes in caches {
                    for &skew in &sizes.skews {
                        for locality in [1, TOGETHER.min(plain.data.keys)] {
                            let mut hot = Plan { cache_bytes, heated: plain.loaded, ..plain.clone() };
                            hot.steps.iter_mut().for_each(|step| step.hot = Some(Hot { skew, locality }));
                            plans.push(hot);
                        }
                    }
                }
                plans
            }
            Suite::BeyondMemory => {
                // Reads have a database that nothing changes.
                let (mixes, reads): (Vec<Workload>, Vec<Workload>) =
                    workloads.iter().partition(|workload| workload.writes() || YCSB.contains(workload));
                let of = |workloads: &[Workload]| {
                    let mut plan = Plan::new(self, sizes, workloads, &[1]);
                    let memory = (plan.loaded_bytes() / BEYOND_MEMORY).max(LEAST_MEMORY);
                    let memory = sizes.memory_bytes.unwrap_or(memory);
                    plan.memory_bytes = Some(memory);
                    plan.cache_bytes = sizes.cache_bytes.unwrap_or(memory / CACHE_OF_MEMORY);
                    Plan { compact: true, warmup_share: 1, ..plan }
                };
                [reads, mixes]
                    .iter()
                    .map(|workloads| of(workloads))
                    .filter(|plan| !plan.steps.is_empty())
                    .collect()
            }
        })
    }

    fn default_cache_bytes(self, sizes: &Sizes) -> u64 {
        match self {
            Suite::Ycsb => sizes.cache_bytes.unwrap_or(YCSB_CACHE_BYTES),
            Suite::Direct => (sizes.keys as f64 * sizes.entry_bytes()) as u64 / DIRECT_CACHE_SHARE,
            _ => sizes.cache_bytes.unwrap_or(CACHE_BYTES),
        }
    }

    /// Returns the factor by which a slow workload has fewer operations.
    fn share(self, workload: Workload) -> u64 {
        use Workload::*;
        let seeks = matches!(workload, RangeEmpty | Seek);
        // `Mixgraph` has a few scans, some of them of thousands of entries.
        let scans = matches!(workload, SeekNext50 | ReverseNext50 | YcsbE | Mixgraph);
        match self {
            _ if workload == SeekNext10000 => 1000,
            Suite::Cold => 250,
            Suite::Sync => 100,
            Suite::Large if scans => 50,
            Suite::BeyondMemory if seeks || scans => 50,
            Suite::BeyondMemory => 10,
            Suite::Direct if seeks || scans => 250,
            Suite::Direct => 25,
            Suite::Runs if seeks || scans => 20,
            _ if scans => 10,
            _ if seeks => 5,
            _ => 1,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Suite {
    type Err = String;

    fn from_str(name: &str) -> Result<Suite, String> {
        let known = Suite::ALL.into_iter().find(|suite| suite.name() == name);
        let names = || Suite::ALL.map(Suite::name).join(", ");
        known.ok_or_else(|| format!("no suite is called `{name}`; known are {}", names()))
    }
}

impl Plan {
    fn new(suite: Suite, sizes: &Sizes, workloads: &[Workload], threads: &[usize]) -> Plan {
        let step = |threads: usize, workload: Workload| Step {
            workload,
            threads,
            ops: match suite {
                Suite::Steady if workload.writes() => sizes.ops.min(STEADY_OPS),
                _ => (sizes.ops / suite.share(workload)).max(FEWEST_OPS),
            },
            // Without a pattern, each seed has hot keys of its own, and a warm-up others than what it is for.
            hot: (suite == Suite::BeyondMemory && workload == Workload::GetZipf)
                .then_some(Hot { skew: ZIPF, locality: 1 }),
            warm_with: match suite {
                Suite::Load | Suite::Cold | Suite::Opening | Suite::Sync => None,
                // Loads the hot keys of all mixes except the latest ones of D.
                Suite::Ycsb => Some(Workload::YcsbC),
                Suite::BeyondMemory if YCSB.contains(&workload) => Some(Workload::YcsbC),
                _ if workload.writes() => None,
                _ => Some(workload),
            },
        };
        let steps_of = |&threads: &usize| workloads.iter().map(move |&workload| step(threads, workload));
        let steps: Vec<Step> = threads.iter().flat_map(steps_of).collect();
        let inserts: u64 = steps.iter().map(|step| Fill::inserts(step.workload, step.ops)).sum();
        let keys = sizes.keys + inserts * u64::from(sizes.rounds);
        let data = Data {
            keys,
            key_bytes: sizes.key_bytes,
            values: if suite == Suite::Mixgraph { ValueSizes::Pareto } else { sizes.values },
            seed: sizes.seed,
            source: Source::Uniform,
            asked: keys,
        };
        Plan {
            suite,
            data,
            loaded: sizes.keys,
            overwrites: 0,
            compact: false,
            reload: false,
            cache_bytes: suite.default_cache_bytes(sizes),
            memtable_bytes: sizes.memtable_bytes,
            filter_bits: sizes.filter_bits,
            compression: sizes.compression,
            sync: false,
            direct_io: suite == Suite::Direct || sizes.direct_io,
            compaction: true,
            batch: 1,
            inline: false,
            rest: false,
            seconds: None,
            separated_bytes: None,
            cold: false,
            memory_bytes: sizes.memory_bytes,
            warmup_share: WARMUP_SHARE,
            heated: 0,
            filled: false,
            seed: sizes.seed,
            rounds: sizes.rounds,
            steps,
        }
    }

    /// Reports whether every step fills an empty database.
    pub(crate) fn fills(&self) -> bool {
        self.steps.iter().all(|step| step.workload.is_fill())
    }

    /// Returns the setup of a system's database for loading.
    pub(crate) fn setup_of_load(&self, dir: PathBuf, overrides: &[String]) -> Setup {
        Setup { sync: false, direct_io: false, ..self.setup(dir, overrides) }
    }

    /// Returns the setup of a system's database for measuring.
    pub(crate) fn setup(&self, dir: PathBuf, overrides: &[String]) -> Setup {
        Setup {
            dir,
            cache_bytes: self.cache_bytes,
            metadata_bytes: self.metadata_bytes(),
            memtable_bytes: self.memtable_bytes,
            filter_bits: self.filter_bits,
            compression: self.compression,
            sync: self.sync,
            direct_io: self.direct_io,
            compaction: self.compaction,
            separated_bytes: self.separated_bytes,
            overrides: overrides.to_vec(),
        }
    }

    /// Returns the properties for sharing its database with other plans, if its steps do not modify it.
    pub(crate) fn shared_loading(&self) -> Option<Loading> {
        let unchanged = !self.reload && self.steps.iter().all(|step| !step.workload.writes());
        unchanged.then(|| Loading {
            data: self.data.clone(),
            loaded: self.loaded,
            overwrites: self.overwrites,
            compact: self.compact,
            memtable_bytes: self.memtable_bytes,
            filter_bits: self.filter_bits,
            compression: self.compression,
            compaction: self.compaction,
            separated_bytes: self.separated_bytes,
        })
    }

    /// Returns the conditions of a step's rows.
    pub(crate) fn conditions(&self, step: &Step) -> Conditions {
        Conditions {
            suite: self.suite.name().to_owned(),
            workload: step.workload.name().to_owned(),
            keys: self.loaded,
            key_bytes: self.data.key_bytes,
            key_set: self.data.source.to_string(),
            value_bytes: self.data.values.mean().round() as u64,
            threads: step.threads,
            cache_bytes: self.cache_bytes,
            filter_bits: self.filter_bits,
            direct_io: self.direct_io,
            cold: self.cold,
            sync: self.sync,
            settled: self.compaction,
            compression: match self.compression {
                Compression::None => "none".to_owned(),
                Compression::Lz4 => "lz4".to_owned(),
            },
            hot_keys: step.hot.map_or(String::new(), |hot| hot.to_string()),
            memory_bytes: self.memory_bytes,
        }
    }

    /// Returns the seed of a step in a round, equal for every system. Seeds are two apart, since a warm-up uses the one
    /// before.
    pub(crate) fn seed_of(&self, round: u32) -> u64 {
        self.seed.wrapping_add(1 + 2 * u64::from(round))
    }

    /// Returns the size of memtables with which at least [`RUNS`] of them are flushed.
    fn memtable_bytes_for_runs(&self) -> u64 {
        // Engines differ in what they count towards a full memtable.
        self.memtable_bytes.min(self.loaded_bytes() / RUNS).max(16 << 10)
    }

    /// Reports whether the block cache is larger than all that is loaded.
    pub(crate) fn cache_holds_all(&self) -> bool {
        self.cache_bytes > self.loaded_bytes()
    }

    /// Returns about how much memory the filters and the indexes of all keys take: a key and what leads to
    /// its block, for each block.
    fn metadata_bytes(&self) -> u64 {
        let filters = self.data.keys * u64::from(self.filter_bits) / 8;
        let blocks = (self.data.keys as f64 * self.data.entry_bytes()) as u64 / BLOCK_BYTES;
        filters + blocks * (self.data.key_bytes + INDEX_ENTRY_BYTES)
    }

    fn loaded_bytes(&self) -> u64 {
        (self.loaded as f64 * self.data.entry_bytes()) as u64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sizes() -> Sizes {
        Sizes {
            keys: 4_000_000,
            key_bytes: 8,
            values: 256.into(),
            ops: 500_000,
            seconds: 1,
            rounds: 5,
            filter_bits: 10,
            memtable_bytes: 64 << 20,
            cache_bytes: None,
            memory_bytes: None,
            compression: Compression::None,
            threads: vec![1, 2],
            workloads: None,
            direct_io: false,
            skews: vec![80, 99, 120],
            seed: 1,
            source: Source::Uniform,
            key_file: None,
        }
    }

    fn only(suite: Suite) -> Plan {
        let mut plans = suite.plans(&sizes()).unwrap();
        assert_eq!(plans.len(), 1);
        plans.remove(0)
    }

    #[test]
    fn names_parse_back_and_others_are_refused() {
        for suite in Suite::ALL {
            assert_eq!(suite.name().parse(), Ok(suite));
            assert!(!suite.plans(&sizes()).unwrap().is_empty());
        }
        let refused = "fast".parse::<Suite>().unwrap_err();
        assert!(refused.contains("`fast`") && refused.contains("settled"), "{refused}");
    }

    #[test]
    fn keys_are_held_back_for_all_inserts_and_no_more() {
        let plan = only(Suite::Ycsb);
        assert_eq!(plan.loaded, 4_000_000);
        // Rounds, thread counts; a twentieth of D's 500,000 and of E's 50,000 operations.
        assert_eq!(plan.data.keys - plan.loaded, 5 * 2 * (25_000 + 2_500));
        assert_eq!((plan.cache_bytes, plan.steps.len()), (1 << 30, 12));
        assert!(plan.shared_loading().is_none());
        assert!(plan.steps.iter().all(|step| !step.warm_with.unwrap().writes()));
        let given = Sizes { cache_bytes: Some(77), ..sizes() };
        assert_eq!(Suite::Ycsb.plans(&given).unwrap()[0].cache_bytes, 77);
    }

    #[test]
    fn openings_are_of_databases_ten_times_as_large_as_the_one_before() {
        let plans = Suite::Opening.plans(&sizes()).unwrap();
        let keys: Vec<u64> = plans.iter().map(|plan| plan.loaded).collect();
        assert_eq!(keys, [4_000, 40_000, 400_000, 4_000_000]);
        assert!(plans.iter().all(|plan| plan.cold && !plan.compact && plan.steps.len() == 1));
    }

    #[test]
    fn unmodified_databases_are_loaded_once() {
        let [compacted, cold, direct] = [Suite::Compacted, Suite::Cold, Suite::Direct].map(only);
        assert!(compacted.shared_loading().is_some());
        assert_eq!(compacted.shared_loading(), cold.shared_loading());
        assert_eq!(compacted.shared_loading(), direct.shared_loading());
        assert_ne!(compacted.shared_loading(), only(Suite::Runs).shared_loading());
        assert_eq!(only(Suite::Settled).shared_loading(), None, "they are loaded in each round");
        assert!(cold.cold && direct.direct_io && direct.cache_bytes == 4_000_000 * 264 / 32);
        let load = direct.setup_of_load("x".into(), &[]);
        assert!(!load.direct_io && direct.setup("x".into(), &[]).direct_io);
        assert!(only(Suite::Sync).setup("x".into(), &[]).sync);
    }

    #[test]
    fn caches_are_compared_on_the_same_databases_once_they_are_filled() {
        let [small, large] = &Suite::Cached.plans(&sizes()).unwrap()[..] else { panic!("two caches") };
        assert_eq!((small.cache_bytes, large.cache_bytes), (CACHE_BYTES, 2 * 4_000_000 * 264));
        assert!(small.filled && large.filled && small.compact && !small.cold);
        assert!(large.cache_holds_all() && !small.cache_holds_all());
        assert!(small.shared_loading().is_some());
        assert_eq!(small.shared_loading(), large.shared_loading());
    }

    #[test]
    fn workloads_and_direct_io_can_be_chosen() {
        let workloads = vec![Workload::YcsbD, Workload::YcsbC];
        let chosen = Sizes { workloads: Some(workloads.clone()), direct_io: true, ..sizes() };
        let plan = Suite::Ycsb.plans(&chosen).unwrap().remove(0);
        let asked: Vec<Workload> = plan.steps.iter().map(|step| step.workload).collect();
        assert_eq!(asked, [&workloads[..], &workloads[..]].concat(), "for each number of threads");
        assert_eq!(plan.data.keys - plan.loaded, 5 * 2 * 25_000, "for the inserts of D alone");
        assert!(plan.direct_io && plan.conditions(&plan.steps[0]).direct_io);
        assert!(!plan.setup_of_load("x".into(), &[]).direct_io);
    }

    #[test]
    fn held_back_compaction_leaves_many_runs_at_any_size() {
        assert_eq!(only(Suite::Runs).memtable_bytes, 66_000_000);
        let small = Suite::Runs.plans(&Sizes { keys: 100_000, ..sizes() }).unwrap().remove(0);
        assert_eq!(small.memtable_bytes, 100_000 * 264 / 16);
        assert!(!small.compaction && !small.conditions(&small.steps[0]).settled);
    }

    #[test]
    fn longer_keys_are_fewer() {
        for plan in Suite::Keys.plans(&sizes()).unwrap() {
            let bytes = plan.loaded_bytes() as f64;
            assert!((bytes / (4e6 * 264.0) - 1.0).abs() < 0.001, "{bytes}");
        }
    }

    #[test]
    fn larger_values_are_fewer_and_separated() {
        let plans = Suite::Large.plans(&sizes()).unwrap();
        assert_eq!(plans.len(), 8);
        for plan in &plans {
            let bytes = plan.loaded_bytes() as f64;
            assert!((bytes / (4e6 * 264.0) - 1.0).abs() < 0.001, "{bytes}");
            assert_eq!(plan.setup("x".into(), &[]).separated_bytes, Some(1024));
            assert_eq!(plan.fills(), plan.steps.len() == 1, "a fill has databases of its own");
        }
        let reads = Sizes { workloads: Some(vec![Workload::GetExisting]), ..sizes() };
        assert!(Suite::Large.plans(&reads).unwrap().iter().all(|plan| !plan.fills()));
    }

    #[test]
    fn real_keys_are_as_many_as_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names.txt");
        let lines: Vec<String> = (0..50).map(|i| format!("name of the number {i}")).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let with = |key_file| Suite::Real.plans(&Sizes { key_file, ..sizes() });
        let plans = with(Some(path)).unwrap();
        let keys: Vec<(String, u64)> =
            plans.iter().map(|plan| (plan.data.source.to_string(), plan.loaded)).collect();
        let name = |at: usize| keys[at].0.as_str();
        assert_eq!(
            [name(0), name(1), name(2), name(3), name(4)],
            ["places", "words", "addresses", "cells", "names"]
        );
        // A tenth of a list is held out.
        assert_eq!((keys[1].1, keys[3].1, keys[4].1), (108_000, 4_000_000, 45));
        assert!(plans.iter().all(|plan| plan.memtable_bytes <= (plan.loaded_bytes() / RUNS).max(16 << 10)));
        let absent = with(Some(dir.path().join("absent"))).unwrap_err();
        assert!(matches!(&absent, Failure::Usage(text) if text.contains("absent")), "{absent:?}");
    }

    #[test]
    fn other_suites_have_real_keys_on_demand() {
        let with = |suite: Suite, source| suite.plans(&Sizes { source, ..sizes() });
        let plan = with(Suite::Overwritten, Source::Words).unwrap().remove(0);
        // A tenth of the list is held out.
        assert_eq!((plan.loaded, plan.overwrites, plan.data.asked), (108_000, 108_000, 4_000_000));
        assert_eq!(plan.conditions(&plan.steps[0]).key_set, "words");
        assert_eq!(with(Suite::Real, Source::Words).unwrap(), with(Suite::Real, Source::Uniform).unwrap());
        let inserts = with(Suite::Ycsb, Source::Cells).unwrap_err();
        assert!(matches!(&inserts, Failure::Usage(text) if text.contains("`ycsb` inserts")), "{inserts:?}");
    }

    #[test]
    fn hot_keys_are_read_with_caches_of_shares_of_the_same_data() {
        let plans = Suite::HotGets.plans(&sizes()).unwrap();
        assert_eq!(plans.len(), 4 * 3 * 2);
        let caches: Vec<u64> = plans.iter().map(|plan| plan.cache_bytes).collect();
        // Bf-Tree needs a buffer as large as it had when it was closed.
        assert!(
            caches.is_sorted() && caches[0] == 4_000_000 * 264 / 100 && caches[23] == 4_000_000 * 264 / 2
        );
        assert!(plans.iter().all(|plan| plan.shared_loading() == plans[0].shared_loading()));
        let hot: Vec<String> =
            plans[2..4].iter().map(|plan| plan.conditions(&plan.steps[0]).hot_keys).collect();
        assert_eq!(hot, ["skew 0.99, hot keys scattered", "skew 0.99, hot keys together"]);
        let one = Sizes { cache_bytes: Some(7), skews: vec![99], ..sizes() };
        assert_eq!(Suite::HotGets.plans(&one).unwrap().len(), 2);
    }

    #[test]
    fn data_is_five_times_all_memory_unless_it_is_given() {
        let [reads, mixes] = &Suite::BeyondMemory.plans(&sizes()).unwrap()[..] else {
            panic!("two databases")
        };
        let memory = 4_000_000 * 264 / 5;
        assert_eq!((reads.memory_bytes, reads.cache_bytes), (Some(memory), memory / 3));
        assert!(reads.shared_loading().is_some());
        assert_eq!(
            mixes.steps.iter().map(|step| step.workload).collect::<Vec<_>>(),
            [YCSB[1], YCSB[2], YCSB[3]]
        );
        assert_eq!(reads.conditions(&reads.steps[0]).memory_bytes, Some(memory));
        let given = Sizes { memory_bytes: Some(1 << 30), workloads: Some(vec![Workload::Seek]), ..sizes() };
        let plans = Suite::BeyondMemory.plans(&given).unwrap();
        assert_eq!((plans.len(), plans[0].memory_bytes), (1, Some(1 << 30)));
        assert_eq!(Suite::Ycsb.plans(&given).unwrap()[0].memory_bytes, Some(1 << 30));
    }

    #[test]
    fn steps_of_a_plan_have_conditions_of_their_own() {
        for suite in Suite::ALL {
            let plans = suite.plans(&sizes()).unwrap();
            let all: Vec<_> =
                plans.iter().flat_map(|p| p.steps.iter().map(|step| p.conditions(step))).collect();
            let different: std::collections::BTreeSet<_> = all.iter().collect();
            assert_eq!(all.len(), different.len(), "{suite}");
        }
    }
}
