//! `tamis experiment`: filters side by side, as the figures of the GRF and ElasticBF papers show them.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tamis_bench::Workload;
use tamis_bench::figures::{self, Custom, Figure, Row, Scale};
use tamis_bench::filters::KeySource;
use tamis_bench::report;

use crate::args::OptionArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::progress::Reporter;

const HELP: &str = "\
Two families: grf-… compares filters of any kind at the shapes of the GRF paper, elastic-… elastic filters with fixed ones
of the same memory, as the ElasticBF paper does. Every answer is checked; a wrong one ends the run with exit code 1.

grf-…: every filter gets a temporary database of its own (in TMPDIR, or /tmp), filled alike up to just before the merge into
the last level, when reads meet the most runs. Reads go round the databases in turns; each figure is the median of the
rounds.

elastic-…: databases have 163 flushes' worth of data, all sides the same tree, and are read with direct I/O unless the
experiment is about data in memory. With --db they are kept and used again by other experiments of the same --keys,
--value-bytes and --seed; disk: about 1.1 times the data for each filter, and more while one is loaded or written to.
Gets follow Zipf's law (--skew), a share of them (--absent) asks for keys that do not exist, and --locality says how many
neighbouring keys are hot together (1: hot keys are scattered). More filters: elastic-cold, which does not inherit heat.

Filters: what the option keyspace.filter takes, and `monkey`: blocked-bloom with memory divided by Monkey's rule.
Key sets: uniform50 (50 bits), normal (the same space), cells (Morton codes of real places, scattered around them beyond
the 171,075 of the sample), books-like and fb-like (synthetic), geonames (strings, the sample).

The defaults end within minutes on two cores. At the paper's scale (64-bit keys, 256-byte values, direct I/O):
  tamis experiment grf-fig10 --keys 40000000 --ops 1000000 --direct
  tamis experiment elastic-fig10 --keys 10000000 --value-bytes 1000 --ops 1000000 --db /data/elastic      (10 GB)

Examples:
  tamis experiment --list
  tamis experiment grf-fig10
  tamis experiment grf-fig11 --filters snarf,remix,grf --bits 10 --key-set cells
  tamis experiment grf-fig17 --keys 200000 --size-ratio 4 --repeat 9 --csv fig17.csv
  tamis experiment elastic-fig6 --skew 0,0.99,1.2 --locality 1,4096
  tamis experiment elastic-fig16-unit-bits --filters bloom,elastic --csv fig16h.csv";

/// Compare filters as the figures of the GRF and ElasticBF papers do
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct ExperimentArgs {
    /// Which one (--list names them)
    name: Option<String>,
    /// Name all experiments with their defaults and end
    #[arg(long)]
    list: bool,
    /// How many keys exist [default: grf-…: 400000, elastic-…: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    keys: Option<u64>,
    /// grf-…: the kind of keys [default: the experiment's]
    #[arg(long, value_name = "NAME")]
    key_set: Option<KeySource>,
    /// Bytes of a value [default: grf-…: 256, elastic-…: 100]
    #[arg(long, value_name = "N")]
    value_bytes: Option<usize>,
    /// The filters, separated by commas [default: the experiment's]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    filters: Vec<String>,
    /// Bits of filter a key, several where the experiment varies them [default: the experiment's, or
    /// 10, 14 for SuRF; elastic-…: 4]
    #[arg(long, value_name = "BITS", value_delimiter = ',')]
    bits: Vec<f64>,
    /// The workloads, as `tamis bench` names them [default: the experiment's]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Threads side by side, several where the experiment varies them [default: the experiment's]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = super::bench::threads)]
    threads: Vec<usize>,
    /// grf-…: the size ratio of the tree, and the runs of its level 0 [default: the experiment's]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(2..=1000))]
    size_ratio: Option<u64>,
    /// Operations of a workload in a round, over all threads [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Rounds [default: the experiment's]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Read tables past the page cache
    #[arg(long)]
    direct: bool,
    /// elastic-…: exponents of Zipf's law, 0 for uniform [default: the experiment's]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    skew: Vec<f64>,
    /// elastic-…: of a hundred gets so many ask for absent keys [default: the experiment's]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    absent: Vec<u64>,
    /// elastic-…: how many neighbouring keys are hot together [default: the experiment's]
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    locality: Vec<u64>,
    /// elastic-…: unmeasured gets before the first round [default: as many as a round has, or none]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Bytes of the block cache [default: as large a part of the data as in the paper; elastic-…: the data by 1280, at
    /// most 8 MiB]
    #[arg(long, value_name = "BYTES", value_parser = super::bench::bytes)]
    cache: Option<u64>,
    /// Read tables through the page cache where the experiment reads past it
    #[arg(long, conflicts_with = "direct")]
    mapped: bool,
    /// elastic-…: a directory that keeps the databases; without it a temporary one, removed at the end
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
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

/// What is printed, and what is written to the file of `--csv`.
struct Texts {
    printed: String,
    csv: String,
}

pub(crate) fn run(args: ExperimentArgs, out: &mut Out) -> Result<Outcome, Failure> {
    if args.list {
        return list(out);
    }
    let Some(name) = &args.name else {
        return Err(Failure::usage("an experiment's name is missing; see --list"));
    };
    let texts = args.figure(&*figures::catalogue::find(name).map_err(Failure::usage)?)?;
    if let Some(path) = &args.csv {
        let failed = |error| Failure::usage(format!("could not write {}: {error}", path.display()));
        fs::write(path, texts.csv).map_err(failed)?;
    }
    out.write_all(texts.printed.as_bytes())?;
    Ok(Outcome::Done)
}

impl ExperimentArgs {
    fn figure(&self, figure: &dyn Figure) -> Result<Texts, Failure> {
        let mut plan = figure.plan(Scale::Default, &self.custom())?;
        let reporter = Reporter::new();
        let mut rows: Vec<Row> = Vec::new();
        for step in 0..plan.steps().len() {
            rows.extend(plan.run(step, &reporter)?);
        }
        let about = figure.about();
        let view = figure.view(&rows);
        let mut text =
            format!("{}: {}\n{}\n\nThe paper: {}\n", about.name, about.title, plan.setting(), about.claim);
        if !about.differs.is_empty() {
            text += &format!("Other than there: {}\n", about.differs);
        }
        for sheet in &view.sheets {
            text += &format!("\n{}\n\n{}", sheet.title, sheet.to_text());
        }
        if !view.verdicts.is_empty() {
            text += "\nThe claims\n\n";
        }
        for verdict in &view.verdicts {
            let ours = if verdict.ours.is_empty() { "not measured" } else { &verdict.ours };
            let name = verdict.finding.name();
            text += &format!("{name:6}  paper: {}, here: {ours}  {}\n", verdict.paper, verdict.claim);
        }
        let rows: Vec<_> = rows.into_iter().map(serde_json::Value::Object).collect();
        let printed = if self.json { report::json_lines(&rows) } else { text };
        Ok(Texts { printed, csv: report::csv(&rows) })
    }

    fn custom(&self) -> Custom {
        Custom {
            keys: self.keys,
            key_set: self.key_set,
            value_bytes: self.value_bytes,
            filters: self.filters.clone(),
            bits: self.bits.clone(),
            workloads: self.workload.clone(),
            threads: self.threads.clone(),
            size_ratio: self.size_ratio,
            ops: self.ops,
            repeats: self.repeat,
            direct: (self.direct || self.mapped).then_some(self.direct),
            skews: self.skew.clone(),
            absents: self.absent.clone(),
            localities: self.locality.clone(),
            warmup: self.warmup,
            cache_bytes: self.cache,
            dir: self.db.clone(),
            seed: self.seed,
            options: self.options.set.clone(),
            ..Custom::default()
        }
    }
}

fn list(out: &mut Out) -> Result<Outcome, Failure> {
    for figure in figures::catalogue::all() {
        let about = figure.about();
        writeln!(out, "{:24}  {}", about.name, about.title)?;
    }
    Ok(Outcome::Done)
}
