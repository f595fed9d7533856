//! `tamis advise`: recommends a filter and a tree shape for the data, the workload and the machine.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};
use tamis::Options;
use tamis_advisor::{
    Advice, Calibration, Class, Data, Effort, Keys, Observed, Ranked, Setup, Workload, advise,
};
use tamis_bench::report::{Align, Table, bytes, grouped, mean};

use crate::args::{DEFAULT, stored_options};
use crate::complete;
use crate::failure::{Failure, Outcome};
use crate::output::{Out, note};
use crate::values::OptionArgs;

mod costs;

const HELP: &str = "\
The unit costs are measured on this machine: T_H, the digest of a key; T_P, a probe of each kind of filter; T_D, a block
read, from memory and from the database's device; puts, flushes, merges. From them the model predicts the cost of an
operation with every filter and shape whose filters (and block cache, if used) fit into --memory. See docs/advisor.md.

A workload lists the shares of the operations and how their keys are distributed:
  get, empty-get, empty-range, seek, scan, put    shares, relative to their sum
  scan-entries N    entries of a scan (50)           range-width N   integers in an empty range (64)
  skew S            exponent of Zipf's law (0)       near X          share of absent keys right after present ones (0)
  clustered         hot keys lie together
The default is the workload that the database observed when it was last open with `auto_memory_bytes` (tamis_advisor::auto).

Examples:
  tamis advise --db ./data --workload \"get 60, empty-get 30, put 10, skew 0.99\"
  tamis advise --keys 50000000 --key-bytes 16 --value-bytes 200 --memory 64MiB --workload \"empty-get 90, put 10\"
  tamis advise --db ./data --workload \"scan 80, put 20, scan-entries 20\" --explain
  tamis advise --keys 1e9 --workload \"get 90, put 10\" --save-costs costs.json
  tamis advise --keys 2e9 --workload \"get 90, put 10\" --costs costs.json";

/// Recommend a filter, bits per key and tree shape for the data, the workload and this machine, and
/// say why
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct AdviseArgs {
    /// The database, opened read-only; without it, --keys describes the data
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// The keyspace to advise on
    #[arg(long, value_name = "NAME", default_value = DEFAULT, requires = "db", add = ArgValueCompleter::new(complete::keyspaces))]
    keyspace: String,
    #[command(flatten)]
    options: OptionArgs,
    /// The expected number of entries, in place of a database: 50000000 or 5e7
    #[arg(long, value_name = "N", required_unless_present = "db", conflicts_with = "db", value_parser = entries)]
    keys: Option<u64>,
    /// Bytes per key, with --keys
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "db",
          value_parser = clap::value_parser!(u64).range(1..=65_536))]
    key_bytes: u64,
    /// Bytes per value, with --keys
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "db",
          value_parser = clap::value_parser!(u64).range(0..=1 << 30))]
    value_bytes: u64,
    /// The expected workload [default: what the database observed]
    #[arg(long, value_name = "TEXT")]
    workload: Option<Workload>,
    /// Memory for filters and block cache [default: 10 bits per entry, plus the configured block
    /// cache if one is used]
    #[arg(long, value_name = "BYTES", value_parser = crate::values::bytes)]
    memory: Option<u64>,
    /// Show every term of the recommended configuration, in symbols and in numbers
    #[arg(long)]
    explain: bool,
    /// The number of configurations to list
    #[arg(long, value_name = "N", default_value_t = 12)]
    top: usize,
    /// Measure the machine for a tenth of a second only; costs may be off by a third
    #[arg(long)]
    quick: bool,
    /// Take the machine's costs from a file, in place of measuring them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "save_costs"])]
    costs: Option<PathBuf>,
    /// Write the measured costs to a file, for --costs there or on another machine
    #[arg(long, value_name = "FILE")]
    save_costs: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Parses a number of entries.
fn entries(text: &str) -> Result<u64, String> {
    match crate::values::count(text)? {
        entries @ 1..=MOST_ENTRIES => Ok(entries),
        _ => Err(format!("expected a number from 1 to {MOST_ENTRIES}")),
    }
}

const MOST_ENTRIES: u64 = 1 << 44;

/// The data, workload and memory to advise on.
struct Case {
    options: Options,
    data: Data,
    workload: Workload,
    /// The source of the workload.
    known: &'static str,
    memory: u64,
}

pub(crate) fn run(args: &AdviseArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let case = args.case()?;
    let calibration = match &args.costs {
        Some(file) => costs::read(file, &case.data)?,
        None => measure(args, &case)?,
    };
    if let Some(file) = &args.save_costs {
        costs::write(file, &calibration, &case.data)?;
    }
    let advice = advise(&calibration, &case.data, &case.workload, case.memory, &case.options);
    if args.json {
        out.json(&object(&case, &calibration, &advice, args.top))?;
    } else {
        let page = page(&case, &calibration, &advice, args, out.width());
        out.page(&page, 0)?;
    }
    Ok(Outcome::Done)
}

fn measure(args: &AdviseArgs, case: &Case) -> Result<Calibration, Failure> {
    let (key_bytes, value_bytes) = costs::lengths(&case.data);
    let mut setup = Setup::new(key_bytes, value_bytes);
    setup = setup.effort(if args.quick { Effort::Quick } else { Effort::Full });
    setup.options = case.options.clone();
    // The database's device may not be writable for this program; then the temporary directory's
    // device is timed.
    let scratch = tempfile::tempdir().ok();
    let places = [args.db.clone(), scratch.as_ref().map(|dir| dir.path().to_owned())];
    let mut measured = None;
    for place in places.into_iter().flatten() {
        if let Some(Err(error)) = &measured {
            note(&format!("timing the device of the temporary directory instead: {error}"));
        }
        setup.directory = Some(place);
        measured = Some(Calibration::measure(&setup));
        if matches!(measured, Some(Ok(_))) {
            break;
        }
    }
    Ok(measured.unwrap_or_else(|| Calibration::measure(&setup))?)
}

impl AdviseArgs {
    fn case(&self) -> Result<Case, Failure> {
        let (options, data, seen) = match (&self.db, self.keys) {
            (Some(dir), _) => {
                let mut options = stored_options(dir)?;
                let (given, own) = match self.keyspace == DEFAULT {
                    true => (self.options.clone(), Vec::new()),
                    false => self.options.split(),
                };
                given.apply(&mut options)?;
                // A read-only opening changes nothing, but adopts what `auto_memory_bytes` has
                // chosen.
                let db = options.open_read_only(dir)?;
                let mut options = db.options().clone();
                options.auto_memory_bytes = 0;
                let mut stats = db.stats();
                if self.keyspace != DEFAULT {
                    options.keyspace = db.keyspace(&self.keyspace)?.options();
                    for (name, value) in &own {
                        options.keyspace.set(name, value)?;
                    }
                    stats.keyspaces.retain(|keyspace| keyspace.name == self.keyspace);
                }
                let entries = stats
                    .keyspaces
                    .first()
                    .map_or(0, |keyspace| keyspace.entries + keyspace.memtable_entries);
                if entries == 0 {
                    return Err(Failure::usage(
                        "the keyspace is empty: describe its future data with --keys",
                    ));
                }
                let seen = stats.keyspaces.first().and_then(|keyspace| keyspace.workload);
                (options.clone(), Observed::between(&stats, &stats, &options).data, seen)
            }
            (None, keys) => {
                let mut options = Options::default();
                self.options.apply(&mut options)?;
                let mut data = Data::new(keys.unwrap_or(1), self.key_bytes as f64, self.value_bytes as f64);
                data.keys = if self.key_bytes <= 8 { Keys::Integers } else { Keys::Strings };
                data.memtable_bytes = options.keyspace.memtable_bytes;
                data.block_bytes = options.keyspace.block_bytes;
                data.read_path = Observed::read_path(&options);
                data.compressed = Observed::compresses(&options);
                (options, data, None)
            }
        };
        let (workload, known) = match (self.workload, seen) {
            (Some(declared), _) => (declared, "declared"),
            (None, Some(seen)) => (seen, "observed by the database"),
            (None, None) => {
                return Err(Failure::usage(
                    "the workload is unknown: give --workload, for example \"get 60, empty-get 30, put 10\", or open the \
                     database with tamis_advisor::auto, which observes it",
                ));
            }
        };
        let cached = data.compressed || data.read_path != tamis_advisor::ReadPath::Mapped;
        let usual = data.entries.saturating_mul(10) / 8 + if cached { options.cache_bytes } else { 0 };
        Ok(Case { options, data, workload, known, memory: self.memory.unwrap_or(usual) })
    }
}

fn page(case: &Case, calibration: &Calibration, advice: &Advice, args: &AdviseArgs, width: usize) -> String {
    let Case { data, workload, known, memory, .. } = case;
    let machine = &calibration.machine;
    let ns = |ns: f64| format!("{} ns", mean(ns));
    let source = match &args.costs {
        Some(file) => format!("from {}", file.display()),
        None => format!("measured in {} ms", calibration.took_ns / 1_000_000),
    };
    let mut text = format!(
        "machine   T_H {} (digest), T_D {} (a run searched in memory), {} (a block from the device), a put {}; {source}\n",
        ns(machine.digest_ns),
        ns(machine.search_ns),
        ns(machine.device_ns),
        ns(machine.put_ns + machine.log_ns)
    );
    text += &format!(
        "data      {} entries of {} + {} bytes, {}\n",
        grouped(data.entries),
        data.key_bytes.round(),
        data.value_bytes.round(),
        bytes(data.bytes() as u64)
    );
    text += &format!("workload  {} ({known})\n", workload.in_percent());
    text += &format!("memory    {} for filters and block cache\n\n", bytes(*memory));
    text += &table(advice, machine, args.top, width);
    text.push('\n');
    text += &advice.explain();
    if args.explain {
        text += "\nEvery term of the recommendation\n\n";
        text += &advice.formulas();
    }
    text += match advice.changes.is_empty() {
        true => "\nThe options already match the recommendation.\n",
        false => "\nOptions to change\n\n",
    };
    text += &advice.changes;
    text
}

/// Returns the best configurations and the current one as a table.
fn table(advice: &Advice, machine: &tamis_advisor::Machine, top: usize, width: usize) -> String {
    use Align::{Left, Right};
    let classes: Vec<Class> =
        Class::ALL.into_iter().filter(|class| advice.workload.share(*class) > 0.0).collect();
    let headers: Vec<String> = classes.iter().map(|class| format!("{}\nns", class.name())).collect();
    let mut columns = vec![("", Right), ("configuration", Left), ("T_P\nns", Right), ("mean\nns/op", Right)];
    columns.extend(headers.iter().map(|header| (&header[..], Right)));
    columns.extend([("runs", Right), ("filters", Right), ("write\namplif.", Right)]);
    let mut table = Table::new(&columns).named_by(2);
    for (place, ranked) in advice.ranking.ranked.iter().enumerate() {
        if place >= top && !ranked.is_current {
            continue;
        }
        let Ranked { configuration, prediction, is_current, .. } = ranked;
        let now = if *is_current { " (now)" } else { "" };
        let probe = machine.probe(configuration.selector).map_or(0.0, |cost| cost.point_ns);
        let mut row = vec![
            (place + 1).to_string(),
            format!("{}{now}", configuration.describe()),
            mean(probe),
            grouped(prediction.mean_ns.round() as u64),
        ];
        row.extend(classes.iter().map(|class| grouped(prediction.ns(*class).round() as u64)));
        row.extend([
            mean(prediction.runs),
            bytes(prediction.filter_bytes as u64),
            mean(prediction.write_amplification),
        ]);
        table.row(row);
    }
    table.within(width)
}

fn object(case: &Case, calibration: &Calibration, advice: &Advice, top: usize) -> Value {
    let machine = &calibration.machine;
    let ranked = |ranked: &Ranked| {
        let Ranked { configuration, prediction, is_current, reasons, .. } = ranked;
        let classes =
            Class::ALL.into_iter().map(|class| (class.name().to_owned(), prediction.ns(class).into()));
        json!({
            "filter": configuration.selector.word(),
            "bits_per_key": configuration.bits_per_key,
            "configuration": configuration.describe(),
            "mean_ns": prediction.mean_ns,
            "class_ns": classes.collect::<serde_json::Map<String, Value>>(),
            "filter_bytes": prediction.filter_bytes,
            "memory_bytes": prediction.memory_bytes,
            "runs": prediction.runs,
            "write_amplification": prediction.write_amplification,
            "current": is_current,
            "reasons": reasons,
        })
    };
    let listed = advice.ranking.ranked.iter().enumerate().filter(|(place, r)| *place < top || r.is_current);
    let refused = advice
        .ranking
        .refused
        .iter()
        .map(|refused| (refused.selector.word().to_owned(), refused.reason.clone().into()));
    json!({
        "entries": case.data.entries,
        "key_bytes": case.data.key_bytes,
        "value_bytes": case.data.value_bytes,
        "workload": case.workload.in_percent().to_string(),
        "workload_is": case.known,
        "memory_bytes": case.memory,
        "digest_ns": machine.digest_ns,
        "search_ns": machine.search_ns,
        "device_ns": machine.device_ns,
        "ranking": listed.map(|(_, r)| ranked(r)).collect::<Vec<_>>(),
        "refused": refused.collect::<serde_json::Map<String, Value>>(),
        "explanation": advice.explain(),
        "changes": advice.changes.lines().collect::<Vec<_>>(),
    })
}
