//! `filter-bench table`: costs and false positives of every filter, over every key set and class of queries.

mod rates;
mod render;
mod speeds;

use std::error::Error;

use clap::Args;
use serde_json::json;
use tamis_lab::machine::Machine;

use crate::args::{Common, parse_bits};
use crate::filters::{Filter, Kind};
use crate::keysets::{KeySet, Name, Sources};
use crate::progress::Progress;
use crate::queries::Width;
use crate::report::Report;

pub(crate) use rates::Rate;
pub(crate) use speeds::Speed;

/// Options of `table`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Key sets: uniform, normal, cells, ips, words, paths, places, or all
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = key_sets)]
    pub key_set: Vec<Names>,
    /// Number of keys in a filter; a real set may have fewer, and 0 means all of it
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: usize,
    /// Filters: names, or points, ranges, all
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = Kinds::parse)]
    pub kind: Vec<Kinds>,
    /// Bits per key
    #[arg(long, value_delimiter = ',', default_value = "8,10,12,16,20", value_parser = parse_bits)]
    pub bits: Vec<f64>,
    /// Number of queries of each class and width
    #[arg(long, default_value_t = 100_000)]
    pub queries: usize,
    /// Widths of ranges in integers; 1 is a point. For strings all above 1 mean prefixes
    #[arg(long, value_delimiter = ',', default_value = "1,2,16,64,1024,1048576")]
    pub ranges: Vec<u64>,
    /// Maximum width of ranges for Rosetta
    #[arg(long, default_value_t = crate::filters::ROSETTA_RANGE)]
    pub rosetta_range: u64,
    /// Measure only this part
    #[arg(long, value_enum)]
    pub only: Option<Only>,
    /// Number of keys in the filter that fits the cache
    #[arg(long, default_value_t = 10_000)]
    pub hot_keys: usize,
    /// Width of the ranges whose probing is timed
    #[arg(long, default_value_t = 64)]
    pub speed_range: u64,
    /// Number of probes in a round
    #[arg(long, default_value_t = 1_000_000)]
    pub probes: usize,
    /// Also probe many filters that together are far larger than the cache
    #[arg(long)]
    pub large: bool,
    /// Memory of the many filters in MiB, for each kind [default: eight times the largest cache]
    #[arg(long, value_name = "MIB")]
    pub large_mib: Option<usize>,
    #[command(flatten)]
    pub sources: Sources,
    #[command(flatten)]
    pub common: Common,
}

/// The parts of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Only {
    /// False positives.
    Rates,
    /// Times.
    Speeds,
}

/// The key sets that one word of `--key-set` selects.
#[derive(Clone, Debug)]
pub(crate) struct Names(Vec<Name>);

fn key_sets(word: &str) -> Result<Names, String> {
    if word == "all" {
        return Ok(Names(Name::ALL.to_vec()));
    }
    <Name as clap::ValueEnum>::from_str(word, false).map(|name| Names(vec![name]))
}

/// The kinds that one word of `--kind` selects.
#[derive(Clone, Debug)]
pub(crate) struct Kinds(Vec<Kind>);

impl Kinds {
    fn parse(word: &str) -> Result<Self, String> {
        Kind::named(word).map(Kinds)
    }
}

/// Flattens the groups in order, without duplicates.
fn flattened<T: PartialEq>(groups: impl IntoIterator<Item = Vec<T>>) -> Vec<T> {
    let mut all = Vec::new();
    for item in groups.into_iter().flatten() {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// A filter to measure: the kind and the requested bits per key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// The kind.
    pub kind: Kind,
    /// The requested bits per key.
    pub bits: f64,
}

/// Runs the command. A false negative is an error.
pub(crate) fn run(
    options: &Options,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Box<dyn Error>> {
    let names = flattened(options.key_set.iter().map(|names| names.0.clone()));
    let kinds = flattened(options.kind.iter().map(|kinds| kinds.0.clone()));
    let kinds = kinds.into_iter().map(|kind| kind.for_ranges(options.rosetta_range));
    let subjects: Vec<Subject> =
        kinds.flat_map(|kind| options.bits.iter().map(move |&bits| Subject { kind, bits })).collect();

    let mut report = Report::new("Filters: false positives and costs");
    let (mut rates, mut speeds) = (Vec::new(), Vec::new());
    report.text(preamble(options));
    for name in names {
        progress.phase(&format!("{}: loading keys", name.text()));
        let set = KeySet::load(name, options.keys, options.common.seed, &options.sources)?;
        let widths = Width::of_set(&set, &options.ranges);
        let mut of_set = Vec::new();
        if options.only != Some(Only::Speeds) {
            of_set = rates::measure(&set, &subjects, &widths, options, progress)?;
        }
        let mut times = Vec::new();
        if options.only != Some(Only::Rates) {
            times = speeds::measure(&set, &subjects, options, machine, progress)?;
        }
        render::set(&mut report, &set, &of_set, &times, options);
        rates.extend(of_set);
        speeds.extend(times);
    }
    report.data = json!({ "rates": rates, "speeds": speeds });
    Ok(report)
}

fn preamble(options: &Options) -> String {
    let mut text = format!(
        "Rates are for queries that contain no key, checked against the sorted keys; up to {} queries of each class and \
         width. uniform: anywhere between the smallest and the largest key (strings: random letters). held-out: keys \
         of the same source that are not in the filter, each at most once. key+delta: an existing key plus 1 to 1024 \
         (strings: last byte changed, or one appended). gap: a gap between neighbours chosen by rank, and a point in \
         it. ",
        options.queries
    );
    text.push_str(
        "A range starts at such a point. Ranges on strings are prefixes: the string truncated where it is no key's \
         prefix any more, or at a random place after that.",
    );
    if options.only != Some(Only::Speeds) {
        text.push_str(
            " Every filter was queried for all of its keys, as points and in ranges: there were no false negatives.",
        );
    }
    text
}

/// Returns an error that reports a false negative.
fn denied(set: &KeySet, subject: &Subject, filter: &Filter, what: &str, key: &[u8]) -> Box<dyn Error> {
    let shown = if set.integers { hex(key) } else { String::from_utf8_lossy(key).into_owned() };
    format!(
        "FALSE NEGATIVE: {} at {} bits per key (actual {:.2}) over {} denies {what} of key {shown}",
        subject.kind.name,
        subject.bits,
        filter.bits_per_key(),
        set.name
    )
    .into()
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
