//! Properties: figures of an open database as text.

use std::fmt::Write as _;

use tamis::Db;
use tamis::stats::{Stats, TableStats};

/// Returns the value of a property; `None` if there is none of this name.
pub(crate) fn value(db: &Db, name: &str) -> Option<String> {
    let name = name.strip_prefix("leveldb.")?;
    if let Some(digits) = name.strip_prefix("num-files-at-level") {
        return files_at_level(db, digits);
    }
    match name {
        "stats" => Some(stats(db)),
        "sstables" => Some(sstables(db)),
        "approximate-memory-usage" => Some(memory(&db.stats()).to_string()),
        _ => None,
    }
}

/// Returns the number of tables of a level, of which there are as many as the options say.
fn files_at_level(db: &Db, digits: &str) -> Option<String> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let level: usize = digits.parse().ok()?;
    let levels = &db.default_keyspace().stats().levels;
    let level = levels.iter().find(|stats| stats.level == level)?;
    Some(level.runs.iter().map(|run| run.tables).sum::<usize>().to_string())
}

/// Returns the bytes in memory: of memtables, cached blocks, filters and indexes.
fn memory(stats: &Stats) -> u64 {
    stats.memtable_bytes + stats.cache_used_bytes + stats.filter_bytes + stats.index_bytes
}

fn stats(db: &Db) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let stats = db.stats();
    let mut text = String::from("Level  Runs  Files   Size(MB)\n");
    let levels = db.default_keyspace().stats().levels;
    for level in levels.iter().filter(|level| !level.runs.is_empty()) {
        let files: usize = level.runs.iter().map(|run| run.tables).sum();
        let bytes: u64 = level.runs.iter().map(|run| run.bytes).sum();
        let (level, runs, size) = (level.level, level.runs.len(), bytes as f64 / MIB);
        // Writing to a string does not fail.
        _ = writeln!(text, "{level:>5} {runs:>5} {files:>6} {size:>10.1}");
    }
    for (title, fields) in
        [("Reads", stats.read.fields().collect::<Vec<_>>()), ("Writes", stats.write.fields().collect())]
    {
        _ = writeln!(text, "{title}");
        fields.iter().for_each(|(name, value)| _ = writeln!(text, "  {name} {value}"));
    }
    let state = [("stopped", &stats.poisoned), ("suspended", &stats.suspended)];
    for (title, cause) in state.iter().filter_map(|(title, cause)| cause.as_ref().map(|cause| (title, cause)))
    {
        _ = writeln!(text, "writes are {title}: {cause}");
    }
    stats.troubles.iter().for_each(|trouble| _ = writeln!(text, "trouble: {trouble}"));
    stats.warnings.iter().for_each(|warning| _ = writeln!(text, "warning: {warning}"));
    text
}

fn sstables(db: &Db) -> String {
    let mut tables = db.default_keyspace().tables();
    tables.sort_by_key(|table| table.level);
    let mut text = String::new();
    let mut level = None;
    for TableStats { id, level: of, bytes, smallest, largest, .. } in &tables {
        if level.replace(of) != Some(of) {
            _ = writeln!(text, "level {of}");
        }
        let smallest = smallest.escape_ascii();
        _ = match largest {
            Some((key, true)) => {
                writeln!(text, "  {id}: {bytes} bytes, '{smallest}' to '{}'", key.escape_ascii())
            }
            Some((key, false)) => {
                writeln!(text, "  {id}: {bytes} bytes, '{smallest}' to before '{}'", key.escape_ascii())
            }
            None => writeln!(text, "  {id}: {bytes} bytes, from '{smallest}'"),
        };
    }
    text
}
