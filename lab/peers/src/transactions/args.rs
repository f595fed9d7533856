//! The command line of `transactions`.

use std::path::PathBuf;

use clap::Args;

use super::conduct::Plan;
use super::data::LEAST_VALUE_BYTES;
use super::sides::Name;
use super::workload::Workload;
use crate::args::bytes;
use crate::failure::Failure;

const HELP: &str = "\
Sides: tamis, tamis-snapshot, tamis-locking, tamis-update, and those of engines that were compiled in: rocksdb-optimistic,
rocksdb-locking, fjall, fjall-single-writer, redb. `tamis-peers list` describes them and the workloads.

Every measurement has a process and a fresh database of its own, and ends after --ops operations or --seconds, whichever is
first. Its result is checked: no increment may be lost, and the total of all accounts never changes.

Exit codes: 0 everything measured; 1 a wrong answer of a side; 2 invalid arguments; 3 a failure of a side or the machine.

Examples:
  tamis-peers transactions --quick
  tamis-peers transactions --out results
  tamis-peers transactions --systems tamis,rocksdb-locking --workloads modify-hot --threads 1,2,4,8 --out results";

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct TransactionsArgs {
    /// Sides, separated by commas [default: all compiled in]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) systems: Vec<Name>,
    /// Workloads, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) workloads: Vec<Workload>,
    /// Numbers of threads, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,8",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Vec<u16>,
    /// Number of keys of put, get-put and modify [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) keys: Option<u64>,
    /// Size of a value
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(LEAST_VALUE_BYTES as i64..=1 << 20))]
    pub(crate) value_bytes: u32,
    /// Maximum number of operations of a measurement, over all threads [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) ops: Option<u64>,
    /// Maximum duration of a measurement in seconds [default: 0.8]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Number of rounds; fewer than 5 are not significant [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Use tiny sizes, to check that everything works; explicit sizes still apply
    #[arg(long)]
    pub(crate) quick: bool,
    /// Size of a memtable and of table files
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = bytes)]
    pub(crate) memtable: u64,
    /// Size of the block cache (redb: of the page cache)
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes)]
    pub(crate) cache: u64,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for databases, which are removed at the end [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for transactions.jsonl and transactions.md
    #[arg(long, value_name = "DIR", default_value = "tamis-peers-results")]
    pub(crate) out: PathBuf,
    /// Print a line for every measurement
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Keys, operations, seconds and rounds.
type Sizes = (u64, u64, f64, u32);

const EARNEST: Sizes = (100_000, 1_000_000, 0.8, 5);
const QUICK: Sizes = (2000, 2000, 0.2, 2);

impl TransactionsArgs {
    /// Returns what to compare.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let (keys, ops, seconds, rounds) = if self.quick { QUICK } else { EARNEST };
        let mut threads: Vec<usize> = self.threads.iter().map(|&threads| threads.into()).collect();
        threads.sort_unstable();
        threads.dedup();
        if self.memtable < 64 << 10 {
            return Err(Failure::Usage("--memtable: a memtable needs at least 64KiB".to_owned()));
        }
        Ok(Plan {
            sides: chosen("--systems", &self.systems, Name::compiled_in())?,
            workloads: chosen("--workloads", &self.workloads, Workload::ALL.to_vec())?,
            threads,
            rounds: self.rounds.unwrap_or(rounds),
            keys: self.keys.unwrap_or(keys),
            value_bytes: self.value_bytes as usize,
            ops: self.ops.unwrap_or(ops),
            seconds: self.seconds.unwrap_or(seconds),
            seed: self.seed,
            memtable_bytes: self.memtable,
            cache_bytes: self.cache,
        })
    }
}

/// Returns those that were asked for, or all, in the order of reports.
fn chosen<T: Copy + Ord + std::fmt::Display>(
    option: &str,
    asked: &[T],
    all: Vec<T>,
) -> Result<Vec<T>, Failure> {
    if asked.is_empty() {
        return Ok(all);
    }
    let mut chosen = asked.to_vec();
    chosen.sort();
    match chosen.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::Usage(format!("{option}: `{}` is given twice", pair[0]))),
        None => Ok(chosen),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| (0.001..=3600.0).contains(seconds))
        .ok_or_else(|| "expected seconds from 0.001 to 3600".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Result<TransactionsArgs, clap::Error> {
        let line = format!("p transactions {line}");
        Cli::try_parse_from(line.split_whitespace()).map(|cli| match cli.command {
            Command::Transactions(args) => *args,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_defaults_are_all_sides_and_workloads_in_the_order_of_reports() {
        let plan = parse("").unwrap().plan().unwrap();
        assert_eq!(plan.sides, Name::compiled_in());
        assert_eq!(plan.workloads, Workload::ALL);
        assert_eq!((plan.threads, plan.rounds, plan.keys), (vec![1, 2, 8], 5, 100_000));
        let text =
            "--quick --keys 77 --threads 4,1,4 --workloads transfer+scan,put --systems tamis-update,tamis";
        let plan = parse(text).unwrap().plan().unwrap();
        assert_eq!(plan.workloads, [Workload::Put, Workload::TransferScan]);
        assert_eq!(plan.sides, [Name::Tamis, Name::TamisUpdate]);
        assert_eq!((plan.threads.clone(), plan.keys, plan.rounds), (vec![1, 4], 77, 2));
        // An update has one key, so this side does not transfer.
        assert_eq!(plan.len(), 2 * 2 * (1 + 2));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for line in [
            "--systems rocksdb",
            "--systems tamis,",
            "--workloads move",
            "--threads 0",
            "--keys 0",
            "--value-bytes 7",
            "--seconds 0",
            "--seconds inf",
            "--rounds 0",
            "--ops 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["--systems tamis,tamis", "--workloads put,put", "--memtable 1KiB"] {
            assert!(matches!(parse(line).unwrap().plan(), Err(Failure::Usage(_))), "{line}");
        }
    }
}
