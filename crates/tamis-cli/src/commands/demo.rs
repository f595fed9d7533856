//! The main job: loads the sample, reads it back, and shows what the reads cost with hash sharing
//! on and off.

mod directory;
mod reads;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use tamis::{Options, WriteBatch};
use tamis_bench::measure::bytes_per_user_byte;
use tamis_bench::random::Permutation;
use tamis_bench::report::{Align, Table, bytes, counted, grouped, mean};
use tamis_bench::sample::Sample;
use tamis_bench::{Measurement, Progress};

use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::progress::Reporter;
use crate::values::{FilterArgs, OptionArgs};
use reads::{Job, Reads};

/// One of this many records in key order is held out of the load.
const HOLD_OUT_EVERY: usize = 10;

/// Records in one write.
const BATCH: usize = 100;

/// Small memtables and tables, so that 20 MB form a tree of several levels.
const MEMTABLE_BYTES: u64 = 1 << 20;

/// This many tenths of the records are loaded with compaction on. It is off for the rest, so that
/// several runs remain in level 0, as in a database under load.
const COMPACTED_TENTHS: usize = 7;

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// The database's directory; a database left by an earlier main job is replaced, anything else
    /// is not
    #[arg(long, value_name = "DIR", default_value = "./tamis-demo")]
    pub(crate) db: PathBuf,
    /// Load only the first N records of the sample
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..))]
    records: Option<u32>,
    /// The number of rounds in which the reads are measured in each mode, alternating; medians are
    /// shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    filter: FilterArgs,
    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// A record as it is stored.
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The sample in two parts, both in ascending key order.
struct Data {
    loaded: Vec<Entry>,
    held_out: Vec<Entry>,
    prefixes: Vec<Vec<u8>>,
}

pub(crate) fn run(args: DemoArgs, out: &mut Out) -> Result<Outcome, Failure> {
    // A wrong filter should be an error before a database is replaced.
    options(&args, true)?;
    let progress = Reporter::new();
    let data = Data::of_sample(args.records);
    directory::prepare(&args.db)?;
    if !args.json {
        let all = data.loaded.len() + data.held_out.len();
        let first = format!(
            "{} places from GeoNames (CC BY 4.0, geonames.org): {} to load, {} held out as absent keys\n",
            grouped(all as u64),
            grouped(data.loaded.len() as u64),
            grouped(data.held_out.len() as u64)
        );
        out.page(&first, 0)?;
        out.flush()?;
    }
    let loaded = load(&args, &data, &progress)?;
    if !args.json {
        out.page(&loaded, 0)?;
        out.flush()?;
    }
    let measurements = measure(&args, &data, &progress)?;
    let kept = settle(&args)?;
    if args.json {
        for measurement in &measurements {
            writeln!(out, "{}", measurement.to_json())?;
        }
        return Ok(Outcome::Done);
    }
    let width = out.width();
    out.page(&page(&measurements, args.rounds, width), 0)?;
    out.page(&suggestions(&args, &data, &kept), 0)?;
    Ok(Outcome::Done)
}

impl Data {
    fn of_sample(limit: Option<u32>) -> Data {
        let sample = Sample::load();
        let mut data = Data { loaded: Vec::new(), held_out: Vec::new(), prefixes: Vec::new() };
        for (i, record) in sample.records().take(limit.map_or(usize::MAX, |n| n as usize)).enumerate() {
            let prefix = record.country_prefix().as_bytes();
            if data.prefixes.last().is_none_or(|last| last != prefix) {
                data.prefixes.push(prefix.to_vec());
            }
            let entry = Entry { key: record.key.as_bytes().to_vec(), value: record.to_json().into_bytes() };
            let held_out = i % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1;
            if held_out { data.held_out.push(entry) } else { data.loaded.push(entry) }
        }
        data
    }
}

fn options(args: &DemoArgs, compaction: bool) -> Result<Options, Failure> {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = MEMTABLE_BYTES;
    options.keyspace.table_bytes = MEMTABLE_BYTES;
    options.keyspace.auto_compaction = compaction;
    // The marker of the main job is there.
    options.create_among_others = true;
    args.filter.among(&OptionArgs::default()).apply(&mut options)?;
    Ok(options)
}

/// Loads the data in random order and closes the database. Returns a few lines that summarize the
/// load.
fn load(args: &DemoArgs, data: &Data, progress: &Reporter) -> Result<String, Failure> {
    let start = Instant::now();
    let count = data.loaded.len();
    let order = Permutation::new(count as u64, 1);
    let order: Vec<usize> = (0..count as u64).map(|i| order.at(i) as usize).collect();
    let (compacted, rest) = order.split_at(count / 10 * COMPACTED_TENTHS);
    let mut written = tamis::stats::WriteCost::default();
    progress.begin("load", count as u64, "records");
    for (part, compaction) in [(compacted, true), (rest, false)] {
        let db = options(args, compaction)?.open(&args.db)?;
        for records in part.chunks(BATCH) {
            let mut batch = WriteBatch::new();
            for &i in records {
                batch.put(&data.loaded[i].key, &data.loaded[i].value);
            }
            db.write(batch)?;
            progress.advance(records.len() as u64);
        }
        db.flush()?;
        if compaction {
            db.wait_for_compaction()?;
        }
        written = written + db.stats().write;
        db.close()?;
    }
    progress.end();
    let seconds = start.elapsed().as_secs_f64();
    let opening = Instant::now();
    let db = options(args, false)?.open(&args.db)?;
    let reopened = opening.elapsed().as_secs_f64() * 1000.0;
    let stats = db.stats();
    db.close()?;
    let tree = stats.keyspaces.first();
    let tree = tree.map(|tree| {
        let levels = tree.levels.iter().filter(|level| !level.runs.is_empty()).count();
        format!(
            "{} in {}, {} of tables",
            counted(tree.runs as u64, "runs"),
            counted(levels as u64, "levels"),
            bytes(tree.table_bytes)
        )
    });
    Ok(format!(
        "loaded in {seconds:.2} s ({:.1} bytes written to files per byte); closed; reopened in {reopened:.1} ms: \
         {}\n\n",
        bytes_per_user_byte(&written),
        tree.unwrap_or_default()
    ))
}

/// Reads with sharing on and off, alternating. Returns the medians, with each job's two modes
/// adjacent.
fn measure(args: &DemoArgs, data: &Data, progress: &Reporter) -> Result<Vec<Measurement>, Failure> {
    let reads = Reads::prepare(data);
    let mut all: Vec<(Job, bool, Vec<Measurement>)> =
        Job::ALL.into_iter().flat_map(|job| [(job, true, Vec::new()), (job, false, Vec::new())]).collect();
    progress.begin("read", u64::from(args.rounds) * 2 * reads.ops_per_round(), "operations");
    for round in 0..args.rounds {
        // The first mode alternates, so that neither always finds the caches warmed by the other.
        for sharing in [round % 2 == 0, round % 2 == 1] {
            let mut options = options(args, false)?;
            options.hash_sharing = sharing;
            let db = options.open(&args.db)?;
            reads.warm_up(&db)?;
            for (job, mode, runs) in &mut all {
                if *mode == sharing {
                    runs.push(reads.measure(*job, &db, progress)?);
                }
            }
            db.close()?;
        }
    }
    progress.end();
    Ok(all.into_iter().filter_map(|(_, _, runs)| Measurement::median(runs)).collect())
}

/// Leaves the database as any other: with the default options, by which compaction has caught up.
/// Returns a phrase about its tree.
fn settle(args: &DemoArgs) -> Result<String, Failure> {
    let mut options = Options::default();
    args.filter.among(&OptionArgs::default()).apply(&mut options)?;
    let db = options.open(&args.db)?;
    db.wait_for_compaction()?;
    let stats = db.stats();
    db.close()?;
    let runs = stats.keyspaces.first().map_or(0, |tree| tree.runs as u64);
    Ok(format!("with the default options, by which compaction has left {}", counted(runs, "runs")))
}

fn page(measurements: &[Measurement], rounds: u32, width: usize) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("read", Left),
        ("hash\nsharing", Left),
        ("operations", Right),
        ("\nns/op", Right),
        ("digests\n/op", Right),
        ("filters\nprobed/op", Right),
        ("false\npositives/op", Right),
        ("blocks\nread/op", Right),
        ("bytes\nread/op", Right),
    ])
    .named_by(2);
    for m in measurements {
        table.row([
            if m.hash_sharing { m.workload.clone() } else { String::new() },
            if m.hash_sharing { "on" } else { "off" }.to_owned(),
            grouped(m.ops),
            grouped(m.ns_per_op.round() as u64),
            mean(m.digests_per_op),
            mean(m.filter_probes_per_op),
            mean(m.false_positives_per_op),
            mean(m.block_reads_per_op),
            mean(m.bytes_read_per_op),
        ]);
    }
    let runs = measurements.first().map_or(0, |m| m.runs);
    format!(
        "{}\n{}; medians of {}, modes alternating; every answer was checked against the sample\n\n",
        table.within(width),
        counted(runs as u64, "sorted runs"),
        counted(rounds.into(), "rounds")
    )
}

fn suggestions(args: &DemoArgs, data: &Data, kept: &str) -> String {
    let dir = quoted(&args.db.to_string_lossy());
    let key = |entries: &[Entry]| {
        let at = entries.len() / 2;
        entries.get(at).map_or(String::new(), |e| quoted(&String::from_utf8_lossy(&e.key)))
    };
    let (there, absent) = (key(&data.loaded), key(&data.held_out));
    format!(
        "The database is kept in {dir}, {kept}. Try:\n  \
         tamis stats --db {dir} --runs\n  \
         tamis explain --db {dir} {there}\n  \
         tamis explain --db {dir} {absent}\n  \
         tamis scan --db {dir} --prefix IS/ --limit 5\n  \
         tamis verify --db {dir}\n\
         (from the repository: cargo run --release -- stats --db {dir})\n"
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "./_-@,+=:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dividing_the_sample_loses_no_record() {
        let data = Data::of_sample(Some(1000));
        assert_eq!((data.loaded.len(), data.held_out.len()), (900, 100));
        assert!(data.loaded.is_sorted_by(|a, b| a.key < b.key));
        let loaded = |key: &[u8]| data.loaded.binary_search_by(|e| e.key[..].cmp(key)).is_ok();
        assert!(!data.held_out.iter().any(|e| loaded(&e.key)));
        assert!(data.prefixes.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn quoted_words_survive_a_shell() {
        assert_eq!(quoted("./tamis-demo"), "./tamis-demo");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("l'eau"), "'l'\\''eau'");
    }
}
