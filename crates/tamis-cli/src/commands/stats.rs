//! `tamis stats`: shows the shape of the tree and its resource use.

mod elastic;
mod map;

use std::fmt::Write as _;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tamis::Keyspace;
use tamis::stats::{
    GlobalFilterStats, KeyMapStats, KeyspaceStats, LatencyHistogram, LevelStats, Operation, QueryStats, Stats,
};
use tamis_bench::measure::{ratio, write_amplification};
use tamis_bench::report::{Align, Table, bytes, counted, grouped, mean};

use crate::args::DbArgs;
use crate::complete;
use crate::failure::{Failure, Outcome};
use crate::json;
use crate::output::Out;
use crate::text::excerpt;

/// The length of the longest bar in characters.
const BAR: usize = 30;

/// There is room for bars beside the levels from this width on.
const WIDE: usize = 120;

/// Where texts begin behind the words at the left.
const INDENT: usize = 16;

/// What of the statistics is shown, and for what width.
#[derive(Clone, Copy)]
struct View {
    /// A line for each run, too.
    runs: bool,
    width: usize,
    /// Whether the database is read with one digest for all filters.
    hash_sharing: bool,
}

/// Show the tree: levels, runs, sizes, filters, memory, amplification
#[derive(Args)]
#[command(after_help = "Example:\n  tamis stats --db ./tamis-demo --runs")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Only this keyspace
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::keyspaces))]
    keyspace: Option<String>,
    /// Also print a line per run
    #[arg(long)]
    runs: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: StatsArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let db = args.db.open_to_look()?;
    db.wait_for_filters()?;
    let mut stats = db.stats();
    if let Some(name) = &args.keyspace {
        db.keyspace(name)?;
        stats.keyspaces.retain(|keyspace| keyspace.name == *name);
    }
    if args.json {
        let mut object = json::stats(&stats);
        object["path"] = db.path().display().to_string().into();
        out.json(&object)?;
    } else {
        let width = out.width();
        let mut pictures = Vec::new();
        for keyspace in &stats.keyspaces {
            pictures.push(map::map(&db.keyspace(&keyspace.name)?.tables(), width));
        }
        let view = View { runs: args.runs, width, hash_sharing: db.options().hash_sharing };
        let head = format!("database        {}\n", db.path().display());
        out.page(&(head + &page(&stats, &pictures, view)), INDENT)?;
    }
    Ok(Outcome::Done)
}

/// Returns a line for each kind of operation that was timed.
fn latencies(stats: &Stats) -> Vec<String> {
    let timed = Operation::ALL.iter().map(|operation| (operation, stats.latencies.of(*operation)));
    let timed = timed.filter(|(_, latency)| latency.samples() > 0);
    let line = |(operation, latency): (&Operation, &LatencyHistogram)| {
        let [median, most, nearly] = [0.5, 0.99, 0.999].map(|share| latency.percentile(share));
        let (name, samples) = (operation.name(), grouped(latency.samples()));
        format!(
            "{name}: {samples} timed, median {median:.1?}, p99 {most:.1?}, p99.9 {nearly:.1?}, max {:.1?}",
            latency.max()
        )
    };
    timed.map(line).collect()
}

/// Returns the statistics as text; `pictures` are those of the keyspaces' trees.
fn page(stats: &Stats, pictures: &[String], view: View) -> String {
    let mut page = String::new();
    for (i, keyspace) in stats.keyspaces.iter().enumerate() {
        keyspace_page(&mut page, keyspace, pictures.get(i).map_or("", String::as_str), view);
    }
    let mut line = |name: &str, text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "{name:<15} {text}");
    };
    let taken = bytes(stats.log_allocated_bytes);
    let files = counted(stats.log_files as u64, "files");
    line("logs", format!("{files}, {}, {taken} on disk", bytes(stats.log_bytes)));
    line(
        "memory",
        format!(
            "memtables {}, filters {} ({} of it mapped), indexes {}, cached blocks {} of {}, \
             cached records {} of {}",
            bytes(stats.memtable_bytes),
            bytes(stats.filter_bytes),
            bytes(stats.filter_mapped_bytes),
            bytes(stats.index_bytes),
            bytes(stats.cache_used_bytes),
            bytes(stats.cache_capacity_bytes),
            bytes(stats.record_cache_used_bytes),
            bytes(stats.record_cache_capacity_bytes)
        ),
    );
    for (i, text) in stats.elastic.iter().flat_map(elastic::lines).enumerate() {
        line(if i == 0 { "elastic filters" } else { "" }, text);
    }
    let write = &stats.write;
    if write.user_bytes > 0 {
        line(
            "written",
            format!(
                "{} by callers; {} to logs, {} flushed, {} compacted since opening: {} bytes per byte",
                bytes(write.user_bytes),
                bytes(write.log_bytes),
                bytes(write.flush_bytes),
                bytes(write.compaction_write_bytes),
                mean(write_amplification(stats))
            ),
        );
    }
    if write.slowdowns + write.stalls > 0 {
        let waits =
            |count: u64, nanos: u64| format!("{} ({} ms)", grouped(count), grouped(nanos / 1_000_000));
        let slow = waits(write.slowdowns, write.slowdown_nanos);
        let stalls = waits(write.stalls, write.stall_nanos);
        line("write stalls", format!("slowed down {slow}, stalled {stalls}"));
        for stall in stats.stalls.iter().filter(|stall| stall.count > 0) {
            line("", format!("{}: {}", stall.cause.name(), waits(stall.count, stall.nanos)));
        }
    }
    for (i, text) in latencies(stats).into_iter().enumerate() {
        line(if i == 0 { "latencies" } else { "" }, text);
    }
    let snapshots = counted(stats.snapshots as u64, "snapshots");
    line("position", format!("write number {}, {snapshots}", grouped(stats.visible_seq)));
    for snapshot in &stats.snapshots_live {
        line(
            "snapshot",
            format!(
                "of write number {}, {} s old, {}, keeps {} ({} in whole tables)",
                grouped(snapshot.seq),
                grouped(snapshot.age_seconds),
                counted(snapshot.handles as u64, "handles"),
                bytes(snapshot.pinned_bytes),
                bytes(snapshot.pinned_table_bytes)
            ),
        );
    }
    if let Some(oldest) = &stats.oldest_reader {
        line(
            "old readers",
            format!(
                "keep {} of memtables, {} of tables, {} of blob files",
                bytes(stats.readers_memtable_bytes),
                bytes(stats.readers_table_bytes),
                bytes(stats.readers_blob_bytes)
            ),
        );
        line(
            "oldest reader",
            format!(
                "in `{}`, {} to {} s old, keeps {} of memtables, {} of tables, {} of blob files",
                oldest.keyspace,
                grouped(oldest.min_age_seconds),
                grouped(oldest.max_age_seconds),
                bytes(oldest.memtable_bytes),
                bytes(oldest.table_bytes),
                bytes(oldest.blob_bytes)
            ),
        );
    }
    if let Some(cause) = &stats.poisoned {
        line("WRITES STOPPED", cause.clone());
    }
    if let Some(cause) = &stats.suspended {
        line("WRITES SUSPENDED", cause.clone());
    }
    for table in &stats.damaged_tables {
        let is = if table.quarantined { "quarantined" } else { "in use where sound" };
        let (name, level) = (&table.keyspace, table.level);
        let keys = format!("{}..{}", excerpt(&table.smallest, 24), excerpt(&table.largest, 24));
        let entries = counted(table.entries, "entries");
        line(
            "DAMAGED TABLE",
            format!(
                "{} of keyspace {name}, level {level}, {entries}, keys {keys}, {is}: {}",
                table.table, table.what
            ),
        );
    }
    if let Some(scrub) = &stats.scrub {
        let (passes, tables) = (counted(scrub.passes, "passes"), counted(scrub.tables, "tables"));
        let (logs, found) = (counted(scrub.logs, "logs"), counted(scrub.problems.len() as u64, "problems"));
        let read = bytes(scrub.bytes);
        line("scrub", format!("{passes}, {tables} and {logs}, {read} read, {found}"));
        scrub.problems.iter().for_each(|problem| line("SCRUB PROBLEM", problem.clone()));
    }
    for trouble in &stats.troubles {
        line("trouble", trouble.clone());
    }
    for warning in &stats.warnings {
        line("warning", warning.clone());
    }
    page
}

/// Returns the levels and the picture of one keyspace's tree.
pub(crate) fn shape(keyspace: &Keyspace, width: usize) -> String {
    let tree = keyspace.stats();
    let picture = map::map(&keyspace.tables(), width);
    format!("compaction      {}\n\n{}\n{picture}", tree.policy, level_table(&tree.levels, false, width))
}

fn keyspace_page(page: &mut String, tree: &KeyspaceStats, picture: &str, view: View) {
    let _ = writeln!(page, "keyspace        {}\ncompaction      {}\n", tree.name, tree.policy);
    page.push_str(&level_table(&tree.levels, view.runs, view.width));
    let _ = writeln!(page);
    if !picture.is_empty() {
        let _ = writeln!(page, "{picture}");
    }
    let mut line = |name: &str, text: String| {
        let _ = writeln!(page, "{name:<15} {text}");
    };
    line(
        "in memory",
        format!(
            "{}, {}, {}",
            counted(tree.memtables as u64, "memtables"),
            counted(tree.memtable_entries, "entries"),
            bytes(tree.memtable_bytes)
        ),
    );
    line(
        "in tables",
        format!(
            "{} ({}, {}) in {}, of {}",
            counted(tree.entries, "entries"),
            counted(tree.deletes, "deletes"),
            counted(tree.range_tombstones, "range deletes"),
            counted(tree.runs as u64, "runs"),
            counted(tree.next_epoch.saturating_sub(1), "flushes")
        ),
    );
    line(
        "filters",
        format!(
            "{}, {} bits per key, {} without",
            bytes(tree.filter_bytes),
            mean(tree.filter_bits_per_key),
            counted(tree.tables_without_filter as u64, "tables")
        ),
    );
    if let Some(filter) = &tree.global_filter {
        line("global filter", global_filter(filter));
        for map in &filter.maps {
            line("key map", key_map(map));
        }
    }
    if let Some(choice) = &tree.auto_filter {
        line("filter = auto", format!("{}; {}", choice.in_force, choice.reason));
    }
    if let Some(mix) = &tree.queries {
        line("reads", queries(mix));
    }
    if tree.tables_with_key_list > 0 {
        let text = format!(
            "{}, for the filter of the whole tree",
            counted(tree.tables_with_key_list as u64, "tables")
        );
        line("key lists", text);
    }
    if tree.blob_files > 0 {
        let (count, garbage) = (grouped(tree.blob_files as u64), bytes(tree.blob_garbage_bytes));
        line("blob files", format!("{count}, {}, of which {garbage} are garbage", bytes(tree.blob_bytes)));
    }
    if tree.filter_files > 0 {
        let text = format!("{}, {}", grouped(tree.filter_files as u64), bytes(tree.filter_file_bytes));
        line("filter files", text);
    }
    if tree.tables_with_unusable_filter > 0 {
        let text = format!(
            "{}, read without their filters",
            counted(tree.tables_with_unusable_filter as u64, "tables")
        );
        line("FILTERS DAMAGED", text);
    }
    let last = tree.levels.iter().rev().find(|level| !level.runs.is_empty());
    let last_bytes = last.map_or(0, level_bytes);
    let blobs = match tree.blob_bytes {
        0 => String::new(),
        n => format!(" and {} of blob files", bytes(n)),
    };
    line(
        "space",
        format!(
            "{} of tables{blobs} for {} of keys and values ({} bytes per byte); all levels by the last: {}",
            bytes(tree.table_bytes),
            bytes(tree.raw_bytes),
            mean(ratio(tree.table_bytes + tree.blob_bytes, tree.raw_bytes)),
            mean(ratio(tree.table_bytes, last_bytes))
        ),
    );
    if tree.reclaimable_bytes > 0 {
        let text = format!("{} kept for released snapshots", bytes(tree.reclaimable_bytes));
        line("reclaimable", text);
    }
    if tree.expired_seq > 0 {
        line("expired", format!("everything up to write number {}", grouped(tree.expired_seq)));
    }
    let or_any = |number: Option<String>| number.unwrap_or_else(|| "any".to_owned());
    line(
        "promised",
        format!(
            "with no compaction due, at most {}, {}, {} bytes per live byte, {} bytes written per byte flushed",
            tree.promise.runs().map_or_else(|| "any runs".to_owned(), |runs| counted(runs as u64, "runs")),
            tree.promise.tables.map_or_else(|| "any tables".to_owned(), |n| counted(n as u64, "tables")),
            or_any(tree.promise.space_amplification.map(mean)),
            or_any(tree.promise.write_amplification.map(mean))
        ),
    );
    line(
        "a get probes",
        format!(
            "at most {} and {}, with {}",
            counted(tree.memtables as u64, "memtables"),
            counted(tree.runs as u64, "runs"),
            match view.hash_sharing {
                true => "one digest for all of them",
                false => "a digest for each of them: hash_sharing is off",
            }
        ),
    );
}

fn level_table(levels: &[LevelStats], runs: bool, width: usize) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("level", Left),
        ("runs", Right),
        ("tables", Right),
        ("entries", Right),
        ("size", Right),
        ("target", Right),
        ("filters", Right),
        ("of kind", Left),
        ("", Left),
    ]);
    let largest = levels.iter().map(level_bytes).max().unwrap_or(0);
    for level in levels {
        let sum = |of: fn(&tamis::stats::RunStats) -> u64| level.runs.iter().map(of).sum::<u64>();
        table.row([
            level.level.to_string(),
            level.runs.len().to_string(),
            sum(|run| run.tables as u64).to_string(),
            grouped(sum(|run| run.entries)),
            bytes(level_bytes(level)),
            if level.target_bytes == 0 { "-".to_owned() } else { bytes(level.target_bytes) },
            bytes(sum(|run| run.filter_bytes)),
            filter_kinds(level.runs.iter()),
            if width < WIDE { String::new() } else { bar(level_bytes(level), largest) },
        ]);
        for run in level.runs.iter().filter(|_| runs) {
            table.row([
                format!("  run {}", run.run),
                String::new(),
                run.tables.to_string(),
                grouped(run.entries),
                bytes(run.bytes),
                String::new(),
                bytes(run.filter_bytes),
                filter_kinds(std::iter::once(run)),
                format!(
                    "epochs {}–{}, {} … {}",
                    run.epochs.0,
                    run.epochs.1,
                    excerpt(&run.smallest, 24),
                    excerpt(&run.largest, 24)
                ),
            ]);
        }
    }
    table.within(width)
}

/// Returns a line about a global filter.
fn global_filter(filter: &GlobalFilterStats) -> String {
    let mut text =
        format!("{}: {} in {}", filter.kind, counted(filter.entries, "entries"), bytes(filter.bytes));
    if filter.partitions > 0 {
        let _ = write!(
            text,
            ", {}, {} code bits per entry, {} % of absent keys pass",
            counted(filter.partitions as u64, "partitions"),
            mean(filter.code_bits),
            mean(filter.expected_rate * 100.0)
        );
    }
    if filter.old_bytes > 0 {
        let _ = write!(text, "; {} for readers of older versions", bytes(filter.old_bytes));
    }
    if filter.unbuilt > 0 {
        let _ = write!(text, "; {} not built yet", counted(filter.unbuilt as u64, "partitions"));
    }
    if filter.tables_outside > 0 {
        let _ = write!(text, "; {} not in it yet", counted(filter.tables_outside as u64, "tables"));
    }
    if filter.images_loaded > 0 {
        let _ = write!(text, "; {} from filter files", counted(filter.images_loaded, "key ranges"));
    }
    if filter.keys_from_lists > 0 {
        let _ = write!(text, "; {} read from key lists", counted(filter.keys_from_lists, "keys"));
    }
    if filter.keys_from_data > 0 {
        let _ = write!(text, "; {} read from data", counted(filter.keys_from_data, "keys"));
    }
    text
}

/// Returns a line about what reads ask for.
fn queries(mix: &QueryStats) -> String {
    let percent = |share: f64| mean(share * 100.0);
    let mut text = format!(
        "{} % gets of absent keys, {} % of present ones, {} % ranges ({} % empty), {} % seeks",
        percent(mix.absent_gets),
        percent(mix.found_gets),
        percent(mix.ranges),
        percent(mix.empty_ranges),
        percent(mix.seeks)
    );
    let _ = match mix.observed {
        0 => write!(text, ": expected, as none were observed"),
        reads => write!(
            text,
            "; {} observed, {} tables searched in vain per get",
            grouped(reads),
            mean(mix.false_positives_per_get)
        ),
    };
    text
}

/// Returns a line about the partitions of a global filter with one kind of key map, and why they
/// use it.
fn key_map(map: &KeyMapStats) -> String {
    let parts = counted(map.partitions as u64, "partitions");
    let ideal = mean(map.ideal_rate * 100.0);
    match map.holdout_rate {
        Some(rate) => format!(
            "{} in {parts}: on held-out keys a learned map lets {} % pass, {ideal} % at best",
            map.map,
            mean(rate * 100.0)
        ),
        None => format!("{} in {parts}, as the options say; {ideal} % pass at best", map.map),
    }
}

fn filter_kinds<'a>(runs: impl Iterator<Item = &'a tamis::stats::RunStats>) -> String {
    let kinds: std::collections::BTreeSet<&str> =
        runs.flat_map(|run| &run.filters).map(String::as_str).collect();
    kinds.into_iter().collect::<Vec<_>>().join(", ")
}

fn level_bytes(level: &LevelStats) -> u64 {
    level.runs.iter().map(|run| run.bytes).sum()
}

/// Returns a bar proportional to the share of the largest; a nonzero share is never empty.
fn bar(part: u64, largest: u64) -> String {
    if part == 0 || largest == 0 {
        return String::new();
    }
    let cells = (part as f64 / largest as f64 * BAR as f64).round() as usize;
    "█".repeat(cells.clamp(1, BAR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis::stats::RunStats;

    fn level(level: usize, sizes: &[u64]) -> LevelStats {
        let run = |(run, &bytes): (usize, &u64)| {
            filled!(RunStats {
                run: run as u64,
                tables: 2,
                entries: bytes / 100,
                bytes,
                filter_bytes: bytes / 80,
                filters: vec!["blocked-bloom".to_owned()],
                smallest: b"a\x00".to_vec(),
                largest: b"zz".to_vec(),
                epochs: (3, 4),
                ..RunStats::default()
            })
        };
        filled!(LevelStats {
            level,
            runs: sizes.iter().enumerate().map(run).collect(),
            target_bytes: 1 << 20,
            ..LevelStats::default()
        })
    }

    const VIEW: View = View { runs: false, width: usize::MAX, hash_sharing: true };

    #[test]
    fn bars_show_the_share_of_the_largest_level() {
        assert_eq!(bar(0, 10), "");
        assert_eq!(bar(10, 10).chars().count(), BAR);
        assert_eq!(bar(5, 10).chars().count(), BAR / 2);
        assert_eq!(bar(1, 1_000_000).chars().count(), 1);
    }

    #[test]
    fn each_level_is_a_line_and_runs_are_shown_on_request() {
        let levels = [level(0, &[1000, 2000]), level(1, &[]), level(2, &[1 << 20])];
        let table = level_table(&levels, false, usize::MAX);
        assert_eq!(table.lines().count(), 2 + 3, "{table}");
        assert!(table.lines().last().unwrap().ends_with(&"█".repeat(BAR)), "{table}");
        let table = level_table(&levels, true, usize::MAX);
        assert_eq!(table.lines().count(), 2 + 3 + 3, "{table}");
        assert!(table.contains("epochs 3–4, a\\x00 … zz"), "{table}");
    }

    #[test]
    fn elastic_filters_are_on_the_page_and_in_the_object() {
        let elastic = filled!(tamis::stats::ElasticStats {
            budget_bytes: 4096,
            used_bytes: 512,
            keys: 1024,
            segments: 2,
            by_units: vec![1, 1],
            ..Default::default()
        });
        let stats = filled!(Stats { elastic: Some(elastic), ..Stats::default() });
        let text = page(&stats, &[], VIEW);
        assert!(text.contains("elastic filters 512 B of 4.0 KiB, 4.00 bits per key"), "{text}");
        let object = json::stats(&stats);
        assert_eq!(object["elastic"]["by_units"], serde_json::json!([1, 1]));
        assert_eq!(
            (&object["elastic"]["bits_per_key"], &object["elastic"]["evictions"]),
            (&4.0.into(), &0.into())
        );
        let without = Stats::default();
        assert!(!page(&without, &[], VIEW).contains("elastic"));
        assert!(json::stats(&without)["elastic"].is_null());
    }

    #[test]
    fn problems_are_on_the_page() {
        let stats = filled!(Stats {
            poisoned: Some("a panic".into()),
            suspended: Some("sync failed".into()),
            troubles: vec!["flushes of keyspace `default` are being retried: no room".into()],
            warnings: vec!["log 7 was cut".into()],
            ..Stats::default()
        });
        let page = page(&stats, &[], VIEW);
        for line in ["WRITES STOPPED  a panic", "WRITES SUSPENDED", "no room", "log 7 was cut"] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }
}
