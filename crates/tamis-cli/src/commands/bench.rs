//! `tamis bench`: workloads measured.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tamis::{Durability, Options, ReadMode};
use tamis_bench::bench::{Bench, BenchConfig};
use tamis_bench::report::{bench_table, grouped};
use tamis_bench::sample::Sample;
use tamis_bench::shapes::{self, ShapeChoice};
use tamis_bench::{BenchError, KeySet, Measurement, ValueSizes, Workload};

use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::progress::Reporter;
use crate::values::OptionArgs;

const HELP: &str = "\
Workloads:
  fill-random    put every key once, in random order
  fill-seq       put every key once, ascending
  overwrite      put new values under random existing keys
  get-empty      get absent keys
  get-existing   get existing keys
  get-mixed      get, half of the keys absent
  get-zipf       get existing keys, Zipf-distributed (0.99), scrambled over the key space
  multi-get      32 keys in one call, half of them absent; one operation is one key
  range-empty    the first key of a narrow range (64 neighbours of an existing key) that holds none
  range-absent   the same from an absent key on (at most 64 wide)
  seek           a new iterator on an existing key
  seek-next50    the same, and the 50 entries behind
  seek-next20    the same with 20 entries
  reverse-next50 a seek of an existing key from behind, and the 50 entries before it
  seek-zipf      seek, the keys distributed as in get-zipf
  read-write     half gets of existing keys, half overwrites
  read-mostly    90 % gets of existing keys, 10 % overwrites
  ycsb-a … f     YCSB's mixes: a half updates, b 5 % updates, c gets only, f half reads each followed by an update (all
                 Zipf-distributed); d latest keys, e scans of 1 to 100 entries. The inserts of d and e need keys that are not there: `tamis-lab experiment`
                 holds some back, here they are reads
  mixgraph       RocksDB's mixgraph, with --value-bytes mixed: 83 % gets, 14 % overwrites, 3 % scans (half of them of at most
                 27 entries, a few of thousands) of keys in 30 ranges, of which one gets 79 %

Without a fill, an empty database is filled with fill-random first. Every answer is checked; a wrong one ends
the run with exit code 1.

Examples:
  tamis bench
  tamis bench --workload fill-random,get-empty,get-existing,seek --keys 4000000 --json
  tamis bench --workload get-empty --unsettled --keys 4000000 --no-hash-sharing
  tamis bench --workload mixgraph --value-bytes mixed --key-bytes 48 --keys 4000000
  tamis bench --compaction lazy-leveling --merge partitioned --size-ratio 4
  tamis bench --compaction leveling,tiering,lazy-leveling --size-ratio 2,4,10 --keys 500000 --memtable 1MiB
  tamis bench --key-set geonames --workload get-existing,multi-get
  tamis bench --filter elastic --filter-budget 400KiB --workload get-zipf --direct-io
  tamis bench --db ./big --keys 100000000 --workload fill-seq && tamis bench --db ./big --keys 100000000 --workload seek";

/// Where the keys come from, if not from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeySource {
    /// Random keys of --key-bytes bytes
    Uniform,
    /// Ascending keys of --key-bytes bytes, 128 apart
    Sequential,
    /// The sample that ships with the program: places, 43 bytes on average; a tenth is held out as absent
    Geonames,
}

/// Measure workloads: time, and what the reads cost
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct BenchArgs {
    /// Workloads in order, separated by commas (listed below)
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "fill-random,get-empty,get-existing,multi-get,seek,seek-next50"
    )]
    pub(crate) workload: Vec<Workload>,
    /// How many keys exist [default: 1000000, or all of a list]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Bytes of a key
    #[arg(long, value_name = "N", default_value_t = 8)]
    key_bytes: usize,
    /// Bytes of a value; `mixed` gives each key a length of its own, 10 to 1024 with many small ones, as mixgraph has them
    #[arg(long, value_name = "N|mixed", default_value = "256", value_parser = value_sizes)]
    pub(crate) value_bytes: ValueSizes,
    /// Threads side by side
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::values::threads)]
    threads: usize,
    /// Operations per workload over all threads, fills aside [default: the number of keys, at most 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Unmeasured operations before each workload that only reads [default: a tenth of the operations]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Run each workload so often, fills aside, and report the run of median time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Drives keys, values and every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The database's directory, kept; without it a temporary one, removed at the end
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// The tables' filter: none, bloom, blocked-bloom, ribbon, fuse, xor, cuckoo, elastic, surf, snarf, rosetta, rencoder or
    /// grafite, or one for each level from 0 on, separated by commas; or one for the whole tree: grf, grf-huffman,
    /// chucky or remix (`tamis options filter` has the variants)
    #[arg(long, value_name = "NAMES")]
    filter: Option<String>,
    /// How filter memory is divided between the levels: uniform or monkey
    #[arg(long, value_name = "NAME")]
    filter_allocation: Option<String>,
    /// Bits of filter for each key
    #[arg(long, value_name = "B")]
    bits_per_key: Option<String>,
    /// Bytes for all units of elastic filters (67108864, 64MiB)
    #[arg(long, value_name = "BYTES")]
    filter_budget: Option<String>,
    /// Bytes for the block cache and the units of elastic filters together, in place of a limit for each
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["filter_budget", "cache"])]
    read_memory: Option<String>,
    /// The shape of the tree: leveling, tiering, lazy-leveling, hybrid:N, fragmented, fifo or time-window. Several,
    /// separated by commas, are compared in one table, as are several of --merge and --size-ratio
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    compaction: Vec<String>,
    /// How much one merge takes: auto, full, partial or partitioned
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    merge: Vec<String>,
    /// How many times larger each level is than the one above, from level 0 on, which collects as many runs
    #[arg(long, value_name = "T", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..=1000))]
    size_ratio: Vec<u64>,
    /// Hash the key anew for every filter
    #[arg(long)]
    no_hash_sharing: bool,
    /// Bytes of the block cache (8388608, 8MiB)
    #[arg(long, value_name = "BYTES")]
    cache: Option<String>,
    /// Bytes of a memtable (67108864, 64MiB)
    #[arg(long, value_name = "BYTES")]
    memtable: Option<String>,
    /// Read tables past the page cache
    #[arg(long)]
    direct_io: bool,
    /// Sync every write
    #[arg(long)]
    sync: bool,
    /// Let compaction finish before reading (the default)
    #[arg(long, conflicts_with = "unsettled")]
    settled: bool,
    /// Hold compaction back, so that many runs stay
    #[arg(long)]
    pub(crate) unsettled: bool,
    /// The kind of keys
    #[arg(long, value_enum, default_value = "uniform", conflicts_with = "keys_from")]
    key_set: KeySource,
    /// Take the keys from a file, one a line; a tenth of them is held out as absent
    #[arg(long, value_name = "FILE")]
    keys_from: Option<PathBuf>,
    #[command(flatten)]
    options: OptionArgs,
    /// Print one JSON object for each measurement
    #[arg(long)]
    json: bool,
}

const DEFAULT_KEYS: u64 = 1_000_000;

/// Sizes of values that a database takes.
fn value_sizes(text: &str) -> Result<ValueSizes, String> {
    match text.parse::<ValueSizes>() {
        Ok(ValueSizes::Fixed(bytes)) if bytes > tamis::MAX_VALUE_BYTES => {
            Err(format!("a value has at most {} bytes", tamis::MAX_VALUE_BYTES))
        }
        other => other.map_err(|error| error.to_string()),
    }
}

pub(crate) fn run(args: BenchArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let mut options = args.database_options()?;
    let grid = args.shapes(&mut options)?;
    let keys = args.key_set()?;
    let values = args.value_bytes;
    let config = BenchConfig {
        experiment: "bench".to_owned(),
        workloads: args.workload,
        keys,
        value_bytes: values,
        threads: args.threads,
        ops: args.ops,
        warmup: args.warmup,
        repeats: args.repeat,
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
            // Whoever reads along should have each one when it is there.
            writeln!(out, "{}", measurement.to_json())?;
            out.flush()?;
        }
        Ok(())
    };
    let measurements = Bench::open(config, &progress)?.run(done)?;
    if !args.json {
        if let Some(m) = measurements.first() {
            writeln!(
                out,
                "{} {} keys of {} bytes, values of {}, {}, {} filter, hash sharing {}\n",
                grouped(m.keys),
                m.key_set,
                m.key_bytes,
                values.describe(),
                if m.settled { "settled" } else { "unsettled" },
                m.filter,
                if m.hash_sharing { "on" } else { "off" },
            )?;
        }
        out.write_all(bench_table(&measurements).as_bytes())?;
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
    writeln!(
        out,
        "{} {} keys of {} bytes, values of {}, written twice; reads: medians of {} rounds\n",
        grouped(config.keys.len()),
        config.keys.name(),
        config.keys.key_bytes().round(),
        config.value_bytes.describe(),
        config.repeats.max(1),
    )?;
    out.write_all(shapes::shapes_table(&rows).as_bytes())?;
    Ok(Outcome::Done)
}

impl BenchArgs {
    /// The shapes asked for. One is put into `options`; several are to be compared.
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
                let why = "several shapes are compared on databases of their own, settled: leave out --unsettled and --db";
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

    fn database_options(&self) -> Result<Options, Failure> {
        let mut options = Options::default();
        self.options.apply(&mut options)?;
        let named = [
            ("keyspace.filter", &self.filter),
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
            options.durability = Durability::Synced;
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
