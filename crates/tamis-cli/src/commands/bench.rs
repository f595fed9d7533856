//! `tamis bench`: measures workloads.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use tamis::options::ReadMode;
use tamis::{Durability, Options, OptionsError};
use tamis_bench::bench::{Bench, BenchConfig};
use tamis_bench::pattern::PatternSpec;
use tamis_bench::report::{bench_table, compaction_table, counted, grouped};
use tamis_bench::sample::Sample;
use tamis_bench::shapes::{self, ShapeChoice};
use tamis_bench::workload::ZIPF_EXPONENT;
use tamis_bench::{BenchError, KeySet, Measurement, ValueSizes, Workload};

use crate::complete;
use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::progress::Reporter;
use crate::values::OptionArgs;

const HELP: &str = "\
Workloads:
  fill-random     put every key once, in random order
  fill-seq        put every key once, ascending
  overwrite       put new values under random existing keys
  get-empty       get absent keys
  get-existing    get existing keys
  get-mixed       get, half of the keys absent
  get-zipf        get existing keys, Zipf-distributed (0.99), scrambled over
                  the key space
  multi-get       32 keys in one call, half of them absent; one operation is
                  one key. multi-get-empty, multi-get-existing: one kind only
  range-empty     the first key of a narrow empty range (64 neighbours of an
                  existing key)
  range-absent    the same, starting at an absent key (at most 64 wide)
  seek            a new iterator on an existing key
  seek-next50     the same, and the next 50 entries
  seek-next20     the same, with 20 entries
  seek-next10000  the same, with 10,000 entries: a long scan
  reverse-next50  a reverse seek to an existing key, and the 50 entries before
  seek-zipf       seek, with keys distributed as in get-zipf
  read-write      half gets of existing keys, half overwrites
  read-mostly     90 % gets of existing keys, 10 % overwrites
  ycsb-a … f      YCSB's mixes, Zipf-distributed: a half updates, b 5 %
                  updates, c gets only, f half reads, half
                  read-modify-writes; d latest keys, e scans of 1 to 100
                  entries. d and e insert keys that `tamis-lab experiment`
                  holds back; here these operations are reads
  mixgraph        RocksDB's mixgraph, with --value-bytes mixed: 83 % gets,
                  14 % overwrites, 3 % scans (half of them of at most 27
                  entries, a few of thousands) over 30 key ranges, one of
                  which gets 79 %
  compact         one full compaction of 8 overlapping runs of all keys, in a
                  database of its own that compaction was held back in; one
                  operation is one entry, and a second table has the bytes
                  per second and per core

If no fill is listed, an empty database is first filled with fill-random.
Every answer is checked; a wrong one ends the run with exit code 1.

Examples:
  tamis bench
  tamis bench --workload fill-random,get-empty,seek --keys 4000000 --json
  tamis bench --workload get-empty --unsettled --no-hash-sharing
  tamis bench --workload mixgraph --value-bytes mixed --key-bytes 48
  tamis bench --compaction lazy-leveling --merge partitioned --size-ratio 4
  tamis bench --compaction leveling,tiering --size-ratio 2,4 --memtable 1MiB
  tamis bench --key-set geonames --workload get-existing,multi-get
  tamis bench --db ./big --keys 100000000 --workload fill-seq
  tamis bench --db ./big --keys 100000000 --workload seek

Absent keys, hot ones together:
  tamis bench --filter elastic --filter-budget 1MiB --workload get-zipf \\
    --absent 100 --locality 16384 --key-set sequential --keys 2000000 \\
    --key-bytes 16 --direct-io --cache 4MiB --memtable 8MiB";

/// The source of the keys, unless they come from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeySource {
    /// Random keys of --key-bytes bytes
    Uniform,
    /// Ascending keys of --key-bytes bytes, 128 apart
    Sequential,
    /// The bundled sample: places, 43 bytes on average; a tenth is held out as absent keys
    Geonames,
}

/// Measure the time and read cost of workloads
#[derive(Args)]
#[command(after_help = HELP)]
pub struct BenchArgs {
    /// Workloads to run in order, separated by commas (listed below)
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "fill-random,get-empty,get-existing,multi-get,seek,seek-next50",
        add = ArgValueCandidates::new(|| Workload::ALL.map(|workload| CompletionCandidate::new(workload.name())).into())
    )]
    pub(crate) workload: Vec<Workload>,
    /// The number of existing keys [default: 1000000, or all keys of a list]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Bytes per key
    #[arg(long, value_name = "N", default_value_t = 8)]
    key_bytes: usize,
    /// Bytes per value; `mixed` gives each key its own length, 10 to 1024, mostly small, as in
    /// mixgraph
    #[arg(long, value_name = "N|mixed", default_value = "256", value_parser = value_sizes)]
    pub(crate) value_bytes: ValueSizes,
    /// Concurrent threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::values::threads)]
    threads: usize,
    /// Operations per workload over all threads, except fills [default: the number of keys, at most
    /// 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Unmeasured operations before each read-only workload [default: a tenth of the operations]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Run each workload this many times, except fills, and report the run with the median time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// The seed for keys, values and every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The database's directory, kept [default: a temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// The tables' filter: none, bloom, blocked-bloom, ribbon, fuse, xor, cuckoo, elastic, surf,
    /// snarf, rosetta, rencoder or grafite; or one per level from level 0 down, separated by
    /// commas; or one for the whole tree: grf; or auto, the engine's choice of blocked-bloom or grf
    /// (`tamis options filter` lists the variants)
    #[arg(long, value_name = "NAMES", add = ArgValueCompleter::new(complete::filters))]
    filter: Option<String>,
    /// How filter memory is divided between tables: uniform, monkey or mnemosyne
    #[arg(long, value_name = "NAME")]
    filter_allocation: Option<String>,
    /// Filter bits per key
    #[arg(long, value_name = "B")]
    bits_per_key: Option<String>,
    /// Memory budget for all units of elastic filters (67108864, 64MiB)
    #[arg(long, value_name = "BYTES")]
    filter_budget: Option<String>,
    /// One memory budget shared by the block cache and the units of elastic filters, in place of a
    /// limit for each
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["filter_budget", "cache"])]
    read_memory: Option<String>,
    /// The shape of the tree: leveling, tiering, lazy-leveling, hybrid:N, fragmented, fifo or
    /// time-window. Several shapes, separated by commas, are compared in one table; so are several
    /// values of --merge and --size-ratio
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    compaction: Vec<String>,
    /// The granularity of a merge: auto, full, partial or partitioned
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    merge: Vec<String>,
    /// The size ratio between adjacent levels; also the number of runs that level 0 collects
    #[arg(long, value_name = "T", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..=1000))]
    size_ratio: Vec<u64>,
    /// Draw keys by Zipf's law with this exponent, 0 (uniform) to 4, in place of the workloads'
    /// distributions; needs --key-set sequential, as do the next two, and 0.99 if only these are
    /// given
    #[arg(long, value_name = "S")]
    skew: Option<f64>,
    /// The percentage of gets that are for absent keys, each next to a key that is drawn
    #[arg(long, value_name = "PERCENT")]
    absent: Option<u64>,
    /// The number of adjacent keys that are hot together; 1 scatters hot keys
    #[arg(long, value_name = "KEYS")]
    locality: Option<u64>,
    /// Hash the key again for every filter
    #[arg(long)]
    no_hash_sharing: bool,
    /// Bytes of the block cache (8388608, 8MiB)
    #[arg(long, value_name = "BYTES")]
    cache: Option<String>,
    /// Bytes of a memtable (67108864, 64MiB)
    #[arg(long, value_name = "BYTES")]
    memtable: Option<String>,
    /// Read tables with direct I/O, bypassing the page cache
    #[arg(long)]
    direct_io: bool,
    /// Sync every write
    #[arg(long)]
    sync: bool,
    /// Wait until compaction is idle before reading (the default)
    #[arg(long, conflicts_with = "unsettled")]
    settled: bool,
    /// Disable compaction, so that many runs remain
    #[arg(long)]
    pub(crate) unsettled: bool,
    /// The kind of keys
    #[arg(long, value_enum, default_value = "uniform", conflicts_with = "keys_from")]
    key_set: KeySource,
    /// Read the keys from a file, one per line; a tenth of them is held out as absent
    #[arg(long, value_name = "FILE")]
    keys_from: Option<PathBuf>,
    #[command(flatten)]
    options: OptionArgs,
    /// Print one JSON object per measurement
    #[arg(long)]
    json: bool,
}

const DEFAULT_KEYS: u64 = 1_000_000;

/// Parses value sizes that a database accepts.
fn value_sizes(text: &str) -> Result<ValueSizes, String> {
    match text.parse::<ValueSizes>() {
        Ok(ValueSizes::Fixed(bytes)) if bytes > tamis::MAX_VALUE_BYTES => {
            Err(format!("a value has at most {} bytes", tamis::MAX_VALUE_BYTES))
        }
        other => other.map_err(|error| error.to_string()),
    }
}

/// Sets the default keyspace's filter by its name.
pub type SetFilter = fn(&mut Options, &str) -> Result<(), OptionsError>;

/// Runs the benchmark.
///
/// # Errors
///
/// For arguments that contradict each other, and whatever the database reports.
pub fn run(args: BenchArgs, set_filter: SetFilter, out: &mut Out) -> Result<Outcome, Failure> {
    let mut options = args.database_options(set_filter)?;
    let grid = args.shapes(&mut options)?;
    let keys = args.key_set()?;
    let values = args.value_bytes;
    let pattern = args.pattern();
    let config = BenchConfig {
        experiment: "bench".to_owned(),
        workloads: args.workload,
        keys,
        value_bytes: values,
        threads: args.threads,
        ops: args.ops,
        warmup: args.warmup,
        repeats: args.repeat,
        pattern,
        seed: args.seed,
        settled: !args.unsettled,
        options,
        dir: args.db,
    };
    let progress = Reporter::new();
    if grid.len() > 1 {
        return compare_shapes(&config, &grid, args.json, &progress, out);
    }
    let done = |measurement: &Measurement| -> Result<(), Failure> {
        if args.json {
            // A reader following the output should get each measurement at once.
            writeln!(out, "{}", measurement.to_json())?;
            out.flush()?;
        }
        Ok(())
    };
    let measurements = Bench::open(config, &progress)?.run(done)?;
    if !args.json {
        if let Some(m) = measurements.first() {
            let head = format!(
                "{} {} keys of {} bytes, values of {}, {}, {} filter, hash sharing {}\n\n",
                grouped(m.keys),
                m.key_set,
                m.key_bytes,
                values.describe(),
                if m.settled { "settled" } else { "unsettled" },
                m.filter,
                if m.hash_sharing { "on" } else { "off" },
            );
            out.page(&head, 0)?;
        }
        let width = out.width();
        out.write_all(bench_table(&measurements).within(width).as_bytes())?;
        if let Some(compactions) = compaction_table(&measurements) {
            write!(out, "\n{}", compactions.within(width))?;
        }
    }
    Ok(Outcome::Done)
}

fn compare_shapes(
    config: &BenchConfig,
    grid: &[ShapeChoice],
    json: bool,
    progress: &Reporter,
    out: &mut Out,
) -> Result<Outcome, Failure> {
    let rows = shapes::compare(config, grid, progress)?;
    if json {
        for row in &rows {
            writeln!(out, "{}", serde_json::to_string(row).expect("numbers and names"))?;
        }
        return Ok(Outcome::Done);
    }
    let head = format!(
        "{} {} keys of {} bytes, values of {}, written twice; reads: medians of {}\n\n",
        grouped(config.keys.len()),
        config.keys.name(),
        config.keys.key_bytes().round(),
        config.value_bytes.describe(),
        counted(config.repeats.max(1).into(), "rounds"),
    );
    out.page(&head, 0)?;
    let width = out.width();
    out.write_all(shapes::shapes_table(&rows).within(width).as_bytes())?;
    Ok(Outcome::Done)
}

impl BenchArgs {
    fn pattern(&self) -> Option<PatternSpec> {
        let given = self.skew.is_some() || self.absent.is_some() || self.locality.is_some();
        given.then(|| PatternSpec {
            skew: self.skew.unwrap_or(ZIPF_EXPONENT),
            absent_percent: self.absent.unwrap_or(0),
            locality: self.locality.unwrap_or(1),
        })
    }

    /// Returns the requested shapes if there are several; a single one is set in `options`.
    fn shapes(&self, options: &mut Options) -> Result<Vec<ShapeChoice>, Failure> {
        let each = |name: &str, values: &[String]| -> Result<Vec<Options>, Failure> {
            let mut with = |value: &String| {
                let mut options = options.clone();
                options.set(name, value).map(|()| options)
            };
            Ok(values.iter().map(&mut with).collect::<Result<_, _>>()?)
        };
        let compactions = each("keyspace.compaction", &self.compaction)?;
        let merges = each("keyspace.merge", &self.merge)?;
        let or_default = |ratios: &[u64]| match ratios {
            [] => vec![options.keyspace.size_ratio.at(1)],
            some => some.to_vec(),
        };
        let (mut compactions, mut merges): (Vec<_>, Vec<_>) = (
            compactions.iter().map(|o| o.keyspace.compaction).collect(),
            merges.iter().map(|o| o.keyspace.merge).collect(),
        );
        if compactions.len().max(1) * merges.len().max(1) * self.size_ratio.len().max(1) > 1 {
            if self.unsettled || self.db.is_some() {
                let why = "several shapes are compared on separate databases with compaction on: leave out --unsettled and --db";
                return Err(Failure::Usage(why.to_owned()));
            }
            if compactions.is_empty() {
                compactions.push(options.keyspace.compaction);
            }
            if merges.is_empty() {
                merges.push(options.keyspace.merge);
            }
            let grid = ShapeChoice::grid(&compactions, &merges, &or_default(&self.size_ratio));
            for shape in &grid {
                let mut options = options.clone();
                shape.apply(&mut options);
                options.check()?;
            }
            return Ok(grid);
        }
        if let [ratio] = self.size_ratio[..] {
            let shape = ShapeChoice {
                compaction: options.keyspace.compaction,
                merge: options.keyspace.merge,
                size_ratio: ratio,
            };
            shape.apply(options);
        }
        if let [compaction] = compactions[..] {
            options.keyspace.compaction = compaction;
        }
        if let [merge] = merges[..] {
            options.keyspace.merge = merge;
        }
        options.check()?;
        Ok(Vec::new())
    }

    fn database_options(&self, set_filter: SetFilter) -> Result<Options, Failure> {
        let mut options = Options::default();
        self.options.apply(&mut options)?;
        if let Some(filter) = &self.filter {
            set_filter(&mut options, filter)?;
        }
        let named = [
            ("keyspace.filter_allocation", &self.filter_allocation),
            ("keyspace.bits_per_key", &self.bits_per_key),
            ("cache_bytes", &self.cache),
            ("filter_budget_bytes", &self.filter_budget),
            ("read_memory_bytes", &self.read_memory),
            ("keyspace.memtable_bytes", &self.memtable),
        ];
        for (name, value) in named {
            if let Some(value) = value {
                options.set(name, value)?;
            }
        }
        if self.filter_budget.is_some()
            && !(0..options.keyspace.levels).any(|level| options.keyspace.filter.at(level).is_elastic())
        {
            let why = "--filter-budget is for --filter elastic; others take --bits-per-key";
            return Err(Failure::Usage(why.to_owned()));
        }
        if self.no_hash_sharing {
            options.hash_sharing = false;
        }
        if self.direct_io {
            options.read_mode = ReadMode::Direct;
        }
        if self.sync {
            options.durability = Durability::Sync;
        }
        Ok(options)
    }

    fn key_set(&self) -> Result<KeySet, Failure> {
        if let Some(path) = &self.keys_from {
            let failed = |source| BenchError::Io { operation: "read", path: path.clone(), source };
            let file = File::open(path).map_err(failed)?;
            let lines = BufReader::with_capacity(256 << 10, file);
            return Ok(KeySet::from_lines(&path.display().to_string(), lines, self.keys.unwrap_or(0))?);
        }
        let count = self.keys.unwrap_or(DEFAULT_KEYS);
        let made = match self.key_set {
            KeySource::Uniform => KeySet::uniform(count, self.key_bytes, self.seed),
            KeySource::Sequential => KeySet::sequential(count, self.key_bytes),
            KeySource::Geonames => Sample::load().key_set(self.keys.unwrap_or(0)),
        };
        Ok(made.map_err(BenchError::from)?)
    }
}
