//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tamis_bench::Workload;
use tamis_bench::pattern::MAX_SKEW;
use tamis_bench::value::ValueSizes;

use crate::engines::Compression;
use crate::engines::system::{NATIVE, System};
use crate::failure::Failure;
use crate::source::Source;
use crate::suites::{CACHE_BYTES, Sizes, Suite};
use crate::transactions::{Name, TransactionsArgs};
use crate::waits::WaitsArgs;

const ABOUT: &str = "\
tamis side by side with other storage engines: the same operations in the same order on the same data, every answer
checked.";

const RUN_HELP: &str = "\
Every system runs in its own process, and only one works at a time. Systems are interleaved in every round, and the first one
rotates. Figures are medians over rounds; only ratios within a run count. `tamis-peers list` shows suites and systems.

Systems: tamis, tamis-grf (one filter for the whole tree), tamis:OPTION=VALUE,OPTION=VALUE (as `tamis options` lists them), and
the engines that were compiled in with --features rocksdb,leveldb,fjall,tidesdb,surrealkv,lmdb,mdbx,redb,bf-tree
or --features all;
rocksdb-native, RocksDB built for the present processor and with mapped tables, whose worker is another program, see
--native; rocksdb-row-cache. bf-tree and rocksdb-row-cache are measured only if they are named.

Exit codes: 0 everything measured; 1 a wrong answer of a system; 2 invalid arguments; 3 a failure of a system or the machine.

Examples:
  tamis-peers run --quick
  tamis-peers run --suites settled,runs --keys 4000000 --systems tamis,rocksdb,leveldb,fjall --out results
  tamis-peers run --suites settled --systems tamis,tamis:keyspace.merge=partitioned
  tamis-peers run --keys 4000000 --out results --resume
  tamis-peers report results";

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(name = "tamis-peers", version, about = ABOUT)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure, and write the report
    Run(Box<RunArgs>),
    /// Write the report of existing rows
    Report {
        /// Directory with rows.jsonl, and for report.html, report.md and summary.md
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Write the rows of a run in the form that the repository keeps
    Condense {
        /// Directory with rows.jsonl
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Directory for condensed rows and machine.json
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
    /// Make the tables of the documents from the rows in lab/results again
    Tables {
        /// Directory of the project
        #[arg(value_name = "ROOT")]
        root: PathBuf,
        /// Change nothing, and fail if a table differs from its rows
        #[arg(long)]
        check: bool,
    },
    /// Compare transactions under contention, and print tables
    Transactions(Box<TransactionsArgs>),
    /// Find out what the slowest puts wait for
    Waits(Box<WaitsArgs>),
    /// List suites, their workloads, and systems
    List,
    /// Serve requests on the standard input
    #[command(hide = true)]
    Worker {
        /// The system.
        #[arg(long)]
        system: System,
    },
    /// Measure one task of `transactions`, read from the standard input
    #[command(hide = true)]
    TransactionsWorker {
        /// The side.
        #[arg(long)]
        side: Name,
    },
}

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// Suites, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub suites: Vec<Suite>,
    /// Workloads that replace those of the suites, separated by commas: fills for load, inline, batch, writers and space, any for
    /// large, all others for other suites
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workloads: Vec<Workload>,
    /// Systems, separated by commas [default: all compiled in]
    #[arg(long, value_name = "LIST")]
    pub systems: Option<String>,
    /// Use tiny sizes, to check within about a minute that everything works; explicit sizes still apply
    #[arg(long)]
    pub quick: bool,
    /// Number of keys in a database [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1 << 36))]
    pub keys: Option<u64>,
    /// Size of a key, except in the suite `keys`
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u64).range(4..=4096))]
    pub key_bytes: u64,
    /// Size of a value, or `mixed`: 10 to 1024 bytes, most of them short. In mixgraph they are always mixed
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = value_sizes)]
    pub value_bytes: ValueSizes,
    /// Number of operations of the fastest workloads; slow ones have fewer [default: 500000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub ops: Option<u64>,
    /// Duration of each round of `steady` [default: 90]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub seconds: Option<u64>,
    /// Number of rounds; fewer than 5 are not significant [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Filter bits per key
    #[arg(long, value_name = "BITS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub filter_bits: u32,
    /// Size of a memtable and of table files [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memtable: Option<u64>,
    /// Size of the block cache [default: 8MiB; in ycsb 1GiB; in direct always 1/32 of the data; in hot-gets 1, 5, 25
    /// and 50 % of it; in beyond-memory a third of all memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub cache: Option<u64>,
    /// Limit of all memory of a system's process, its page cache included, while it is measured, by a control group:
    /// takes the rights of root [default: none; in beyond-memory a fifth of the data]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Bypass the page cache for tables in all suites, not only in `direct`
    #[arg(long)]
    pub direct: bool,
    /// Compression of blocks
    #[arg(long, value_enum, default_value = "none")]
    pub compression: CompressionArg,
    /// Numbers of threads, separated by commas; load, inline, batch, space, cold, opening, keys, real, steady and
    /// large use one, writers 2 and 8, sync 1, 8 and 32
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Vec<u16>,
    /// Zipf's exponents in hot-gets, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.8,0.99,1.2", value_parser = skew)]
    pub skew: Vec<u32>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Keys of all suites but `real` and `keys`: uniform, places, words, addresses, cells, or a file with one a line.
    /// Suites that insert keys have uniform ones
    #[arg(long, value_name = "NAME|FILE", default_value = "uniform")]
    pub key_set: Source,
    /// File of keys, one a line, for the suite `real`, beside the samples that it has
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Directory for databases, which are removed at the end [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Directory for rows and the report
    #[arg(long, value_name = "DIR", default_value = "tamis-peers-results")]
    pub out: PathBuf,
    /// This program built for the present processor, to measure rocksdb-native [default: tamis-peers-native beside this
    /// program]
    #[arg(long, value_name = "PROGRAM")]
    pub native: Option<PathBuf>,
    /// Continue an interrupted run with the same arguments: complete suites are kept, others start again
    #[arg(long)]
    pub resume: bool,
    /// Count the instructions of operations, too, with valgrind [default: yes, and no with --quick]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    pub instructions: Option<bool>,
    /// Maximum duration of one step of one system
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Print a line for every row
    #[arg(long, short)]
    pub verbose: bool,
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CompressionArg {
    /// No compression
    None,
    /// LZ4
    Lz4,
}

/// Defaults of normal and of quick runs.
struct Defaults {
    keys: u64,
    ops: u64,
    seconds: u64,
    rounds: u32,
    memtable_bytes: u64,
    cache_bytes: Option<u64>,
}

const EARNEST: Defaults = Defaults {
    keys: 1_000_000,
    ops: 500_000,
    seconds: 90,
    rounds: 5,
    memtable_bytes: 64 << 20,
    cache_bytes: None,
};

const QUICK: Defaults = Defaults {
    keys: 20_000,
    ops: 4000,
    seconds: 2,
    rounds: 2,
    memtable_bytes: 1 << 20,
    cache_bytes: Some(CACHE_BYTES),
};

impl RunArgs {
    /// Returns the sizes of the suites.
    pub(crate) fn sizes(&self) -> Result<Sizes, Failure> {
        let defaults = if self.quick { QUICK } else { EARNEST };
        let memtable_bytes = self.memtable.unwrap_or(defaults.memtable_bytes);
        if memtable_bytes < 64 << 10 {
            return Err(Failure::Usage("--memtable: a memtable needs at least 64KiB".to_owned()));
        }
        let mut threads: Vec<usize> = self.threads.iter().map(|&threads| threads.into()).collect();
        threads.sort_unstable();
        threads.dedup();
        Ok(Sizes {
            keys: self.keys.unwrap_or(defaults.keys),
            key_bytes: self.key_bytes,
            values: self.value_bytes,
            ops: self.ops.unwrap_or(defaults.ops),
            seconds: self.seconds.unwrap_or(defaults.seconds),
            rounds: self.rounds.unwrap_or(defaults.rounds),
            filter_bits: self.filter_bits,
            memtable_bytes,
            cache_bytes: self.cache.or(defaults.cache_bytes),
            memory_bytes: self.memory,
            compression: match self.compression {
                CompressionArg::None => Compression::None,
                CompressionArg::Lz4 => Compression::Lz4,
            },
            threads,
            workloads: self.workloads()?,
            direct_io: self.direct,
            skews: self.skew.clone(),
            seed: self.seed,
            source: self.key_set.clone(),
            key_file: self.key_file.clone(),
        })
    }

    /// Returns the workloads, if they replace those of the suites.
    fn workloads(&self) -> Result<Option<Vec<Workload>>, Failure> {
        for (i, workload) in self.workloads.iter().enumerate() {
            if self.workloads[..i].contains(workload) {
                return Err(Failure::Usage(format!("--workloads: `{workload}` is given twice")));
            }
            if let Some(suite) = self.suites().into_iter().find(|suite| !suite.accepts(*workload)) {
                return Err(Failure::Usage(format!(
                    "--workloads: `{workload}` does not fit the suite `{suite}`"
                )));
            }
        }
        Ok((!self.workloads.is_empty()).then(|| self.workloads.clone()))
    }

    /// Returns the systems to compare; without a choice, `rocksdb-native` among them if there is a program for it.
    pub(crate) fn systems(&self, native: bool) -> Result<Vec<System>, Failure> {
        let native = (native && cfg!(feature = "rocksdb")).then_some(NATIVE);
        let all = || System::by_default().into_iter().chain(native).collect::<Vec<_>>().join(",");
        let list = self.systems.clone().unwrap_or_else(all);
        let systems =
            System::parse_list(&list).map_err(|error| Failure::Usage(format!("--systems: {error}")))?;
        for (i, system) in systems.iter().enumerate() {
            if systems[..i].iter().any(|other| other.name() == system.name()) {
                return Err(Failure::Usage(format!("--systems: `{system}` is given twice")));
            }
        }
        Ok(systems)
    }

    /// Reports whether instructions are to be counted.
    pub(crate) fn counts_instructions(&self) -> bool {
        self.instructions.unwrap_or(!self.quick)
    }

    /// Returns the suites to run, each once, in the order of [`Suite::ALL`].
    pub(crate) fn suites(&self) -> Vec<Suite> {
        let asked = |suite: &Suite| self.suites.is_empty() || self.suites.contains(suite);
        Suite::ALL.into_iter().filter(asked).collect()
    }
}

/// Parses an exponent, in hundredths.
fn skew(text: &str) -> Result<u32, String> {
    let skew: Option<f64> = text.parse().ok().filter(|skew| (0.0..=MAX_SKEW).contains(skew));
    skew.map(|skew| (skew * 100.0).round() as u32).ok_or_else(|| format!("expected 0 to {MAX_SKEW}"))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("expected `yes` or `no`".to_owned()),
    }
}

/// Maximum size of values of one length.
const LONGEST_VALUE: usize = 1 << 20;

pub(crate) fn value_sizes(text: &str) -> Result<ValueSizes, String> {
    match text.parse::<ValueSizes>() {
        Ok(ValueSizes::Fixed(bytes)) if bytes > LONGEST_VALUE => {
            Err(format!("values of {bytes} bytes are too long: at most {LONGEST_VALUE}"))
        }
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses a number of bytes, optionally with the suffix `KiB`, `MiB` or `GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number.zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes
        .filter(|&bytes| bytes <= 1 << 44)
        .ok_or_else(|| "expected a number of bytes like 65536, 64MiB or 1GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    fn run(line: &str) -> RunArgs {
        match parse(line).unwrap().command {
            Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn explicit_sizes_apply_to_quick_runs_too() {
        let quick = run("p run --quick --keys 500 --cache 2MiB --threads 2,1,2").sizes().unwrap();
        assert_eq!((quick.keys, quick.ops, quick.cache_bytes), (500, QUICK.ops, Some(2 << 20)));
        assert_eq!(quick.threads, [1, 2]);
        let earnest = run("p run").sizes().unwrap();
        assert_eq!((earnest.keys, earnest.rounds, earnest.memtable_bytes), (1_000_000, 5, 64 << 20));
        assert_eq!(run("p run --suites ycsb,load,ycsb").suites(), [Suite::Load, Suite::Ycsb]);
        assert_eq!(run("p run").suites().len(), Suite::ALL.len());
        let given = run("p run --skew 0,0.99,1.2 --memory 64MiB").sizes().unwrap();
        assert_eq!((given.skews, given.memory_bytes), (vec![0, 99, 120], Some(64 << 20)));
    }

    #[test]
    fn workloads_must_fit_the_suites() {
        let sizes = run("p run --suites ycsb,settled --workloads ycsb-c,get-empty --direct").sizes().unwrap();
        assert_eq!(sizes.workloads, Some(vec![Workload::YcsbC, Workload::GetEmpty]));
        assert!(sizes.direct_io);
        let sizes = run("p run --suites load --workloads fill-seq").sizes().unwrap();
        assert_eq!((sizes.workloads, sizes.direct_io), (Some(vec![Workload::FillSeq]), false));
        for line in [
            "p run --workloads get-empty",
            "p run --suites ycsb --workloads fill-seq",
            "p run --suites load --workloads get-empty",
            "p run --suites ycsb --workloads ycsb-c,ycsb-c",
        ] {
            let refused = run(line).sizes().unwrap_err();
            assert!(
                matches!(&refused, Failure::Usage(text) if text.contains("--workloads")),
                "{line}: {refused:?}"
            );
        }
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for line in [
            "p run --suites ycsb --workloads ycsb-z",
            "p run --suites fast",
            "p run --keys 0",
            "p run --threads 0",
            "p run --rounds 0",
            "p run --cache 8MB",
            "p run --cache -1",
            "p run --cache 99999999999GiB",
            "p run --compression snappy",
            "p run --filter-bits 65",
            "p run --value-bytes 9999999",
            "p run --value-bytes many",
            "p run --instructions maybe",
            "p run --skew 4.5",
            "p run --skew flat",
            "p run --memory 1MB",
            "p worker",
            "p worker --system rockdb",
            "p",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in
            ["p run --systems rockdb", "p run --systems tamis,tamis", "p run --systems tamis:no.option=1"]
        {
            let refused = run(line).systems(false).unwrap_err();
            assert!(
                matches!(&refused, Failure::Usage(text) if text.contains("--systems")),
                "{line}: {refused:?}"
            );
        }
        assert!(run("p run --memtable 1KiB").sizes().is_err());
    }

    #[test]
    fn bytes_have_units() {
        for (text, expected) in [("0", 0), ("7", 7), ("3KiB", 3072), ("64MiB", 64 << 20), ("1 GiB", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "KiB", "1kb", "1.5MiB", "x", "17592186044417"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
