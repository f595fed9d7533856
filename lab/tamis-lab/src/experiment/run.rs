//! `tamis-lab experiment run`: measures, and prints the results.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tamis_bench::Progress;
use tamis_bench::Workload;
use tamis_cli::failure::{Failure, Outcome};
use tamis_cli::output::note;
use tamis_cli::progress::Reporter;
use tamis_cli::values::OptionArgs;
use tamis_lab::figures::run::{self as runs, Report};
use tamis_lab::figures::{Custom, Figure, Scale, results};
use tamis_lab::filters::KeySource;

use super::{OUT, select, text};

const HELP: &str = "\
Each experiment has a directory for each scale, DIR/NAME/SCALE, with raw rows as JSON lines and as comma-separated
values, a picture of each panel, verdicts on the paper's claims, setting and machine. The same command continues an
interrupted run step by step; once all steps are done, it prints the results again without measuring. Rows of other
settings, versions or machines are never mixed: pass --restart to measure again, or another directory with --out.

Scales: small takes seconds and shows that it works, default takes minutes on a laptop, paper has the paper's own sizes
and takes hours and a large disk. `tamis-lab experiment list` shows the costs; an experiment that does not fit on the disk
is refused. All other options replace settings of the experiment; those without effect are refused.

Databases are created in TMPDIR, or /tmp, and removed at the end; with --db, where an experiment accepts it, they are
created in a directory and kept for runs with the same keys, values and seed. Every answer is checked; a wrong one ends the
run with exit code 1.

Filters: the values of the option keyspace.filter; `monkey`: blocked-bloom with memory divided by Monkey's rule;
`elastic-cold`: elastic filters that do not inherit hotness.
Key sets: uniform50 (50 bits), normal (the same space), cells (Morton codes of real places, scattered around them beyond
the 171,075 of the sample), books-like and fb-like (synthetic), geonames (strings, the sample).

Examples:
  tamis-lab experiment run grf-fig10
  tamis-lab experiment run hash- grf- --scale small
  TMPDIR=/data tamis-lab experiment run all --scale paper --out /data/results
  tamis-lab experiment run grf-fig11 --filters snarf,remix,grf --bits 10 --key-set cells
  tamis-lab experiment run elastic-fig6 --skew 0,0.99,1.2 --locality 1,4096";

#[derive(Args)]
#[command(after_help = HELP)]
pub(super) struct RunArgs {
    /// Experiments (see `tamis-lab experiment list`): names, prefixes of names that end with a dash (grf-), or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Size of the experiments: small, default or paper
    #[arg(long, value_name = "SCALE", default_value_t)]
    scale: Scale,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
    /// Measure again, discarding existing results
    #[arg(long)]
    restart: bool,
    /// Print one JSON object for each row and each verdict
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    custom: CustomArgs,
}

/// Settings that replace the experiment's own.
#[derive(Args)]
#[command(next_help_heading = "In place of the experiment's own")]
struct CustomArgs {
    /// Number of keys
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    keys: Option<u64>,
    /// Kind of keys
    #[arg(long, value_name = "NAME")]
    key_set: Option<KeySource>,
    /// Key sizes in bytes, several where the experiment varies them
    #[arg(long, value_name = "N", value_delimiter = ',')]
    key_bytes: Vec<usize>,
    /// Value size in bytes
    #[arg(long, value_name = "N")]
    value_bytes: Option<usize>,
    /// Filters, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    filters: Vec<String>,
    /// Filter bits per key, several where the experiment varies them
    #[arg(long, value_name = "BITS", value_delimiter = ',')]
    bits: Vec<f64>,
    /// Workloads, by their names in `tamis bench`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Numbers of concurrent threads, several where the experiment varies them
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = tamis_cli::values::threads)]
    threads: Vec<usize>,
    /// Size ratio of the tree, and number of runs in its level 0
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(2..=1000))]
    size_ratio: Option<u64>,
    /// Operations of a workload in a round, over all threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Rounds
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Read tables with direct I/O, with the figure's block cache
    #[arg(long)]
    direct: bool,
    /// Read tables through the page cache where the experiment uses direct I/O
    #[arg(long, conflicts_with = "direct")]
    mapped: bool,
    /// Devices, several where the experiment varies them: hdd, ssd, pcie-ssd, spdk, nvm or memory (emulated),
    /// page-cache, disk or ram-disk (measured)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    device: Vec<String>,
    /// Exponents of Zipf's law, 0 for uniform
    #[arg(long, value_name = "S", value_delimiter = ',')]
    skew: Vec<f64>,
    /// Percentages of gets that ask for absent keys
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    absent: Vec<u64>,
    /// Numbers of neighbouring keys that are hot together
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    locality: Vec<u64>,
    /// Number of unmeasured gets before the first round
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Size of the block cache in bytes
    #[arg(long, value_name = "BYTES", value_parser = tamis_cli::values::bytes)]
    cache: Option<u64>,
    /// Directory for the databases [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Comparison program (tamis-peers), whose engines are measured as well where the paper has them
    #[arg(long, value_name = "PROGRAM")]
    peers: Option<PathBuf>,
    /// Seed of keys and all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    options: OptionArgs,
}

impl From<CustomArgs> for Custom {
    fn from(args: CustomArgs) -> Custom {
        Custom {
            keys: args.keys,
            key_set: args.key_set,
            key_bytes: args.key_bytes,
            value_bytes: args.value_bytes,
            filters: args.filters,
            bits: args.bits,
            workloads: args.workload,
            threads: args.threads,
            size_ratio: args.size_ratio,
            ops: args.ops,
            repeats: args.repeat,
            direct: (args.direct || args.mapped).then_some(args.direct),
            devices: args.device,
            skews: args.skew,
            absents: args.absent,
            localities: args.locality,
            warmup: args.warmup,
            cache_bytes: args.cache,
            dir: args.db,
            seed: args.seed,
            options: args.options.set,
            peers: args.peers,
        }
    }
}

pub(super) fn run(
    args: RunArgs,
    figures: &[Box<dyn Figure>],
    out: &mut impl Write,
) -> Result<Outcome, Failure> {
    let chosen = select(figures, &args.names)?;
    let RunArgs { scale, out: results, restart, json, custom, .. } = args;
    let job = Job { scale, results: &results, restart, json, custom: custom.into() };
    // Invalid settings are refused before anything runs. Space is checked one by one, since others may need less.
    if chosen.len() > 1 {
        chosen.iter().try_for_each(|figure| job.check(*figure).map(drop))?;
    }
    let mut failures = Vec::new();
    for (number, figure) in chosen.iter().enumerate() {
        if number > 0 && !json {
            writeln!(out)?;
        }
        match job.run(*figure, out) {
            Ok(()) => {}
            Err(failure) if chosen.len() == 1 || matches!(failure, Failure::BrokenPipe) => {
                return Err(failure);
            }
            // The remaining ones may succeed.
            Err(failure) => {
                note(&format!("tamis-lab: {}: {failure}", figure.about().name));
                failures.push((figure.about().name, failure));
            }
        }
    }
    // Wrong answers determine the exit code.
    let worst = failures.iter().position(|(_, failure)| matches!(failure, Failure::Problem(_))).unwrap_or(0);
    let names = failures.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let words = format!("{} of {} experiments failed: {names}", failures.len(), chosen.len());
    match failures.into_iter().nth(worst).map(|(_, failure)| failure) {
        None => Ok(Outcome::Done),
        Some(Failure::Problem(_)) => Err(Failure::Problem(words)),
        Some(Failure::Database(_)) => Err(Failure::Database(words)),
        Some(_) => Err(Failure::Usage(words)),
    }
}

struct Job<'j> {
    scale: Scale,
    results: &'j Path,
    restart: bool,
    json: bool,
    custom: Custom,
}

impl Job<'_> {
    fn check(&self, figure: &dyn Figure) -> Result<runs::State, Failure> {
        Ok(runs::check(figure, self.scale, &self.custom, self.results, self.restart)?)
    }

    fn run(&self, figure: &dyn Figure, out: &mut impl Write) -> Result<(), Failure> {
        let state = self.check(figure)?;
        if !state.is_complete() {
            runs::room(figure, self.scale, &self.custom)?;
        }
        let progress = Reporter::new();
        progress.note(&self.before(figure, state));
        let report = runs::run(figure, self.scale, &self.custom, self.results, self.restart, &progress)?;
        if self.json {
            for line in objects(&report) {
                writeln!(out, "{line}")?;
            }
        } else {
            text::results(&report.loaded, out)?;
            let names = report.files.iter().filter_map(|file| Some(file.file_name()?.to_string_lossy()));
            let (plots, others): (Vec<_>, Vec<_>) = names.partition(|name| name.ends_with(".svg"));
            let plots = match plots.len() {
                0 => String::new(),
                count => format!(", {count} plots (plot-*.svg)"),
            };
            let dir = report.dir.display();
            writeln!(out, "\nIn {dir}: setup.json, rows.jsonl, {}{plots}", others.join(", "))?;
        }
        // Output is flushed before the next experiment begins.
        Ok(out.flush()?)
    }

    /// Returns a message on the upcoming run.
    fn before(&self, figure: &dyn Figure, state: runs::State) -> String {
        let (name, scale) = (figure.about().name, self.scale);
        let runs::State { done, steps } = state;
        if state.is_complete() {
            let dir = results::directory(self.results, name, scale);
            let dir = dir.display();
            return format!(
                "{name}: all {steps} steps are done in {dir}, nothing is measured; --restart measures again"
            );
        }
        let takes = match runs::has_other_sizes(&self.custom) {
            true => "costs are unknown for custom sizes".to_owned(),
            false => format!("takes about {} of disk", text::needs(figure.needs(scale))),
        };
        let begun = if done > 0 { format!(", {done} of them already done") } else { String::new() };
        let place = self.custom.place();
        format!("{name}: scale {scale}, {steps} steps{begun}; {takes} (in {})", place.display())
    }
}

/// Returns rows and verdicts, each with its figure.
fn objects(report: &Report) -> Vec<Value> {
    let loaded = &report.loaded;
    let with_figure = |mut row: serde_json::Map<String, Value>| {
        row.insert("figure".to_owned(), loaded.about.name.into());
        row.insert("scale".to_owned(), loaded.scale.name().into());
        Value::Object(row)
    };
    let verdicts = loaded.view.verdicts.iter().map(|found| {
        let mut object = json!({"kind": "verdict"});
        if let (Some(to), Value::Object(from)) = (object.as_object_mut(), runs::verdict(found)) {
            to.extend(from);
        }
        object.as_object().cloned().unwrap_or_default()
    });
    loaded.rows.iter().cloned().chain(verdicts).map(with_figure).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tamis::io::{DiskFs, FileSystem};

    use super::super::synthetic;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parse(line: &str) -> Result<RunArgs, clap::Error> {
        Ok(Line::try_parse_from(["run"].into_iter().chain(line.split_whitespace()))?.run)
    }

    fn ran(line: &str, out: &Path) -> Result<String, String> {
        let mut args = parse(line).map_err(|error| error.to_string())?;
        args.out = out.to_owned();
        let mut text = Vec::new();
        run(args, &synthetic::figures(), &mut text).map_err(|failure| failure.to_string())?;
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn every_option_becomes_a_setting() {
        let line = "x --keys 5 --key-set cells --key-bytes 8,16 --value-bytes 3 --filters a,b --bits 4.5,10 \
                    --workload get-empty,seek --threads 1,2 --size-ratio 4 --ops 6 --repeat 7 --mapped --device nvm,ssd \
                    --skew 0,0.99 --absent 0,50 --locality 1,64 --warmup 8 --cache 1KiB --db d \
                    --peers p --seed 9 -o a=1 --option b=2";
        let custom = Custom::from(parse(line).unwrap().custom);
        let given: Vec<String> =
            custom.arguments().iter().map(|(flag, value)| format!("{flag} {value}")).collect();
        let expected = "--keys 5, --key-set cells, --key-bytes 8,16, --value-bytes 3, --filters a,b, --bits 4.5,10, \
                        --workload get-empty,seek, --threads 1,2, --size-ratio 4, --ops 6, --repeat 7, --mapped , \
                        --device nvm,ssd, --skew 0,0.99, --absent 0,50, --locality 1,64, --warmup 8, --cache 1024, \
                        --db DIR, --option a=1, --option b=2, --peers PROGRAM";
        assert_eq!(given.join(", "), expected);
        assert_eq!((custom.seed, custom.dir), (9, Some("d".into())));
        assert!(Custom::from(parse("x").unwrap().custom).given().is_empty());
    }

    #[test]
    fn invalid_input_is_refused_with_a_message() {
        for (line, part) in [
            ("", "NAME"),
            ("x --scale huge", "small, default and paper"),
            ("x --direct --mapped", "--direct"),
            ("x --bits ten", "ten"),
            ("x --keys 1", "2.."),
            ("x --workload nothing", "nothing"),
            ("x --key-set osm", "cells"),
            ("x --threads 0", "1024"),
            ("x --cache much", "much"),
        ] {
            let refused = parse(line).err().unwrap().to_string();
            assert!(refused.contains(part), "{part:?} not in {refused:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        let refused = |line: &str| ran(line, &dir.path().join("out")).unwrap_err();
        assert!(refused("two-b").contains("one-a, one-b, two-a"));
        assert_eq!(refused("one- --ops 5"), "one-a does not take --ops");
        let room = refused("one-a --scale paper");
        assert!(
            room.contains("one-a takes 16384.0 PiB of disk space at scale paper") && room.contains("--db"),
            "{room}"
        );
        assert!(!dir.path().join("out").exists(), "what is refused leaves nothing behind");
    }

    #[test]
    fn results_are_printed_again_without_measuring() {
        let dir = tempfile::tempdir().unwrap();
        let text = ran("one-a two-a --scale small", dir.path()).unwrap();
        for part in [
            "one-a  Hash sharing, Figure 1: What is counted\nTwo rows.\n* Rows are few.\n",
            "Counts\nwhat  n\n────  ─\nrows  2\n",
            "holds   paper: 2×  here: 2.1×  It grows\n        Of course.\n",
            "one-a/small: setup.json, rows.jsonl, rows.csv, verdicts.json\n\ntwo-a  Beyond the papers: What is counted\n",
        ] {
            assert!(text.contains(part), "{part:?} not in {text}");
        }
        assert_eq!(ran("one-a two-a --scale small", dir.path()).unwrap(), text);
        let refused = ran("one-a --scale small --keys 5", dir.path()).unwrap_err();
        assert!(
            refused.contains("--keys: not given there, 5 now") && refused.contains("--restart"),
            "{refused}"
        );
        ran("one-a --scale small --keys 5 --restart", dir.path()).unwrap();

        let lines = ran("one-b --scale small --json", dir.path()).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[1]["n"], &lines[1]["figure"]), (3, &1.into(), &"one-b".into()));
        assert_eq!((&lines[2]["kind"], &lines[2]["finding"]), (&"verdict".into(), &"holds".into()));
    }

    /// One failing experiment must not stop a batch that runs overnight.
    #[test]
    fn a_failing_experiment_does_not_stop_the_others() {
        let dir = tempfile::tempdir().unwrap();
        // Another process runs it: this is detected only when it is to begin.
        let place = results::directory(dir.path(), "one-a", Scale::Small);
        std::fs::create_dir_all(&place).unwrap();
        let _held = DiskFs::without_mapping().lock(&place.join("lock")).unwrap().unwrap();
        let failed = ran("one- --scale small", dir.path()).unwrap_err();
        assert_eq!(failed, "1 of 2 experiments failed: one-a");
        assert!(dir.path().join("one-b/small/rows.csv").exists());
    }
}
