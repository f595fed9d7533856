//! `tamis experiment`: filters side by side, as the figures of the GRF paper show them.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tamis_bench::Workload;
use tamis_bench::filters::{self, Experiment, KeySource, Outcome as Rows, Settings, Side};

use crate::args::OptionArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::progress::Reporter;

const HELP: &str = "\
Every filter gets a temporary database of its own (in TMPDIR, or /tmp), filled alike up to just before the merge into
the last level, when reads meet the most runs. Reads go round the databases in turns; each figure is the median of the
rounds. Every answer is checked; a wrong one ends the run with exit code 1.

Filters: what the option keyspace.filter takes, and `monkey`: blocked-bloom with memory divided by Monkey's rule.
Key sets: uniform50 (50 bits), normal (the same space), cells (Morton codes of real places, scattered around them beyond
the 171,075 of the sample), books-like and fb-like (synthetic), geonames (strings, the sample).

The defaults end within minutes on two cores. At the paper's scale (64-bit keys, 256-byte values, direct I/O):
  tamis experiment grf-fig10 --keys 40000000 --ops 1000000 --direct

Examples:
  tamis experiment --list
  tamis experiment grf-fig10
  tamis experiment grf-fig11 --filters snarf,remix,grf --bits 10 --key-set cells
  tamis experiment grf-fig17 --keys 200000 --size-ratio 4 --repeat 9 --csv fig17.csv";

/// Compare filters as the figures of the GRF paper do
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct ExperimentArgs {
    /// Which one (--list names them)
    name: Option<Experiment>,
    /// Name all experiments with their defaults and end
    #[arg(long)]
    list: bool,
    /// How many keys exist
    #[arg(long, value_name = "N", default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(2..))]
    keys: u64,
    /// The kind of keys [default: the experiment's]
    #[arg(long, value_name = "NAME")]
    key_set: Option<KeySource>,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 256)]
    value_bytes: usize,
    /// The filters, separated by commas [default: the experiment's]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    filters: Vec<Side>,
    /// Bits of filter a key, several where the experiment varies them [default: the experiment's, or 10, 14 for SuRF]
    #[arg(long, value_name = "BITS", value_delimiter = ',')]
    bits: Vec<f64>,
    /// The workloads, as `tamis bench` names them [default: the experiment's]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Threads side by side, several where the experiment varies them [default: the experiment's]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = super::bench::threads)]
    threads: Vec<usize>,
    /// The size ratio of the tree, and the runs of its level 0 [default: the experiment's]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(2..=1000))]
    size_ratio: Option<u64>,
    /// Operations of a workload in a round, over all threads [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Rounds [default: the experiment's]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Read tables past the page cache, with a block cache of 8 MiB
    #[arg(long)]
    direct: bool,
    /// Drives keys and every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object for each database and each figure
    #[arg(long)]
    json: bool,
    /// Write the same rows as comma-separated values to a file, too
    #[arg(long, value_name = "PATH")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    options: OptionArgs,
}

pub(crate) fn run(args: ExperimentArgs, out: &mut Out) -> Result<Outcome, Failure> {
    if args.list {
        return list(out);
    }
    let some = |list: bool| list.then_some(());
    let settings = Settings {
        keys: args.keys,
        source: args.key_set,
        value_bytes: args.value_bytes,
        filters: some(!args.filters.is_empty()).map(|()| args.filters),
        bits: some(!args.bits.is_empty()).map(|()| args.bits),
        workloads: some(!args.workload.is_empty()).map(|()| args.workload),
        threads: some(!args.threads.is_empty()).map(|()| args.threads),
        size_ratio: args.size_ratio,
        ops: args.ops,
        repeats: args.repeat,
        direct: args.direct,
        seed: args.seed,
        options: args.options.set,
    };
    let experiment =
        args.name.ok_or_else(|| Failure::usage("an experiment's name is missing; see --list"))?;
    let rows: Rows = filters::run(&experiment, &settings, &Reporter::new())?;
    if let Some(path) = &args.csv {
        let failed = |error| Failure::usage(format!("could not write {}: {error}", path.display()));
        fs::write(path, rows.to_csv()).map_err(failed)?;
    }
    let text = if args.json { rows.to_json_lines() } else { rows.to_text() };
    out.write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}

fn list(out: &mut Out) -> Result<Outcome, Failure> {
    for experiment in Experiment::all() {
        let names = |list: &[&str]| list.join(",");
        let workloads: Vec<&str> = experiment.workloads.iter().map(|workload| workload.name()).collect();
        writeln!(out, "{}  {}", experiment.name, experiment.title)?;
        writeln!(out, "    filters    {}", names(experiment.filters))?;
        writeln!(out, "    workloads  {}", names(&workloads))?;
        writeln!(out, "    key set    {}", experiment.keys.name())?;
    }
    Ok(Outcome::Done)
}
