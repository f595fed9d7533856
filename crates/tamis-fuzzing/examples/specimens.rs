//! Databases for another reader of the formats (`lab/second-reader`), and what the engine reads
//! from them.
//!
//! ```text
//! specimens make DIR   makes databases in DIR; prints a line `NAME NOW` for each
//! specimens read       for each line `NOW DIR` of the input: the entries, then {"entries": N}; or {"error": TEXT}
//! ```
//!
//! `NOW` is the time in seconds since 1970, which decides what has expired. An entry is
//! `{"keyspace": NAME, "key": HEX, "value": HEX}`, in the order of names and keys.
#![allow(clippy::print_stdout, reason = "its output is for another program")]

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tamis::clock::ManualClock;
use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::options::{BloomHashing, Compression, CompressionPerLevel, FilterChoice, PrefixFilter};
use tamis::{Db, Keyspace, KeyspaceOptions, Options};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// When the first write is made.
const START: u64 = 1_700_000_000;
/// When the databases are to be read: some entries have expired, others have not.
const NOW: u64 = START + 250;

fn main() -> Done {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", dir] => make(Path::new(dir)),
        ["read"] => read_all(),
        _ => Err("usage: specimens make DIR | specimens read".into()),
    }
}

fn make(dir: &Path) -> Done {
    fs::create_dir_all(dir)?;
    let made = |name: &str| println!("{name} {NOW}");

    filters(&dir.join("filters"))?;
    made("filters");
    let open = small(&dir.join("closed"), Compression::Lz4)?;
    copy(&dir.join("closed"), &dir.join("killed"))?;
    open.close()?;
    made("closed");
    made("killed");
    copy(&dir.join("killed"), &dir.join("torn"))?;
    tear(&dir.join("torn"))?;
    made("torn");
    aged_later(&dir.join("aged-later"))?;
    made("aged-later");
    if Compression::Zstd.is_built_in() {
        small(&dir.join("zstd"), Compression::Zstd)?.close()?;
        made("zstd");
    }
    Ok(())
}

fn options(keyspace: KeyspaceOptions) -> Options {
    Options { background_threads: 1, cache_bytes: 64 << 10, reserve_bytes: 0, keyspace, ..Options::default() }
}

fn keyspace_options(filter: FilterChoice) -> KeyspaceOptions {
    KeyspaceOptions {
        filter: filter.into(),
        filter_unit_bytes: 128,
        block_bytes: 256,
        table_bytes: 4 << 10,
        memtable_bytes: 16 << 10,
        auto_compaction: false,
        ..KeyspaceOptions::default()
    }
}

/// A keyspace for each kind of filter. Elastic filters have several segments.
fn filters(dir: &Path) -> Done {
    let plain = KeyspaceOptions {
        table_bytes: 64 << 10,
        memtable_bytes: 1 << 20,
        ..keyspace_options(FilterChoice::None)
    };
    let db = options(plain.clone()).open(dir)?;
    for (number, filter) in FilterChoice::all().enumerate() {
        let chosen = KeyspaceOptions { filter: filter.into(), ..plain.clone() };
        let keyspace = db.create_keyspace(&format!("filter-{number:02}"), chosen)?;
        for i in 0..1200u64 {
            match number % 2 {
                0 => keyspace.put(format!("key/{:05}", i * 7), format!("{i}"))?,
                _ => keyspace.put((i * i * 1_000_003).to_be_bytes(), format!("{i}"))?,
            }
        }
        keyspace.flush()?;
        (0..900u64).try_for_each(|i| keyspace.put(format!("key/{:05}", i * 11), "newer"))?;
        keyspace.flush()?;
    }
    db.wait_for_filters()?;
    Ok(db.close()?)
}

/// A database with a little of everything else; it stays open.
fn small(dir: &Path, compression: Compression) -> Done<Db> {
    let clock = Arc::new(ManualClock::new(START));
    let plain = KeyspaceOptions {
        compression: CompressionPerLevel::new(vec![Compression::None, compression]).expect("two levels"),
        ..keyspace_options(FilterChoice::BlockedBloom)
    };
    let db = options(plain.clone()).clock(Some(clock.clone())).open(dir)?;
    versions(db.default_keyspace())?;
    for operator in ["add", "append", "max"] {
        let merged = KeyspaceOptions { merge_operator: Some(operator.into()), ..plain.clone() };
        operands(&db.create_keyspace(operator, merged)?)?;
    }
    let blobs = KeyspaceOptions {
        blob_threshold: 60,
        compression: CompressionPerLevel::uniform(compression),
        ..plain.clone()
    };
    large_values(&db.create_keyspace("blobs", blobs)?)?;
    external(&db.create_keyspace("external", plain.clone())?, dir)?;
    for filter in [FilterChoice::Elastic(BloomHashing::Rotation), FilterChoice::Grf] {
        let chosen = KeyspaceOptions {
            filter: filter.into(),
            prefix_filter: PrefixFilter::Length(5),
            memtable_bytes: 64 << 10,
            table_bytes: 64 << 10,
            ..plain.clone()
        };
        let keyspace = db.create_keyspace(&format!("{filter}"), chosen)?;
        (0..700u32).try_for_each(|i| keyspace.put(format!("{i:04}"), ""))?;
        keyspace.flush()?;
        keyspace.put("0007 more", "in a memtable")?;
    }
    aging(&db, &plain, &clock)?;
    db.create_keyspace("old name", plain.clone())?.put("key", "value")?;
    db.rename_keyspace("old name", "new name")?;
    // A checkpoint begins the next log, and flushes nothing.
    let rolls = dir.with_extension("rolled");
    db.checkpoint(&rolls)?;
    fs::remove_dir_all(rolls)?;
    let dropped = db.create_keyspace("dropped", plain.clone())?;
    dropped.put("key", "of nobody")?;
    db.drop_keyspace("dropped")?;
    values_in_logs(&db, &plain, dir)?;
    // In no table yet.
    db.put("key 003", "the newest")?;
    db.delete("key 004")?;
    db.delete_range("key 030".."key 033")?;
    db.delete_prefix([0xFF])?;
    db.sync()?;
    db.put("key 005", "not synced")?;
    db.put("key 006", "not synced either")?;
    db.wait_for_filters()?;
    Ok(db)
}

/// Several versions of keys, deletes and range tombstones, on two levels and in level 0.
fn versions(keyspace: &Keyspace) -> Done {
    let key = |i: u32| format!("key {i:03}");
    keyspace.put("", "the empty key")?;
    keyspace.put([0xFF; 40], [0xEE; 500])?;
    (0..60).try_for_each(|i| keyspace.put(key(i), format!("value {i}, value {i}, value {i}")))?;
    keyspace.compact()?;
    (0..60).step_by(7).try_for_each(|i| keyspace.delete(key(i)))?;
    (0..60).step_by(5).try_for_each(|i| keyspace.put(key(i), "second"))?;
    keyspace.delete_range(key(20)..key(24))?;
    keyspace.flush()?;
    keyspace.put(key(22), "after a range delete")?;
    keyspace.delete_range(key(22)..key(26))?;
    keyspace.put(key(25), "after two")?;
    keyspace.delete_range(key(58)..)?;
    Ok(keyspace.flush()?)
}

/// Operands in tables and in the log, with and without a base, below deletes.
fn operands(keyspace: &Keyspace) -> Done {
    let number = |n: u64| n.to_le_bytes();
    keyspace.put("base", number(1 << 40))?;
    keyspace.put("deleted", number(7))?;
    keyspace.put("range", number(8))?;
    keyspace.flush()?;
    for key in ["base", "deleted", "none", "range"] {
        keyspace.merge(key, number(u64::MAX - 2))?;
    }
    keyspace.delete("deleted")?;
    keyspace.delete_range("ra".."rb")?;
    keyspace.flush()?;
    for key in ["base", "deleted", "none", "range", "logged"] {
        keyspace.merge(key, number(5))?;
        keyspace.merge(key, number(300))?;
    }
    Ok(())
}

/// Values in a blob file, some of which are garbage.
fn large_values(keyspace: &Keyspace) -> Done {
    for i in 0..12u32 {
        keyspace.put(format!("{i}"), format!("large value {i}; ").repeat(3 + i as usize))?;
    }
    keyspace.flush()?;
    (0..12).step_by(4).try_for_each(|i| keyspace.put(format!("{i}"), "small"))?;
    keyspace.compact()?;
    keyspace.put("log", "large value in the log; ".repeat(9))?;
    Ok(())
}

/// Ingested tables: their entries have one number, and replace what a range tombstone deletes.
fn external(keyspace: &Keyspace, dir: &Path) -> Done {
    (0..20u32).try_for_each(|i| keyspace.put(format!("{i:02}"), "before"))?;
    let path = |n: u32| dir.with_extension(format!("{n}.external"));
    let mut table = ExternalTableBuilder::create(path(0), &keyspace.options())?;
    table.delete_range("03".."08")?;
    (5..12u32).try_for_each(|i| table.put(format!("{i:02}"), "external"))?;
    table.delete("13")?;
    table.finish()?;
    let mut table = ExternalTableBuilder::create(path(1), &keyspace.options())?;
    table.put("15", "second")?;
    table.delete_range("18"..)?;
    table.finish()?;
    let moved = IngestOptions { move_files: true, ..IngestOptions::default() };
    keyspace.ingest(&[path(0), path(1)], moved)?;
    keyspace.put("11", "after")?;
    keyspace.put("19", "after")?;
    Ok(())
}

/// Entries that expire 100 seconds after they were written.
fn aging(db: &Db, plain: &KeyspaceOptions, clock: &ManualClock) -> Done {
    let options = KeyspaceOptions {
        time_to_live: Some(Duration::from_secs(100)),
        merge_operator: Some("append".into()),
        ..plain.clone()
    };
    let keyspace = db.create_keyspace("aging", options)?;
    for age in ["at 0", "at 60", "at 120", "at 190"] {
        keyspace.put(format!("{age} put"), age)?;
        keyspace.merge("merged", age)?;
        if age == "at 60" {
            db.flush()?;
        }
        clock.advance(if age == "at 120" { 70 } else { 60 });
    }
    Ok(())
}

/// A database whose entries expire since its second session only: those of the first one count as
/// written when that began.
fn aged_later(dir: &Path) -> Done {
    let clock = Arc::new(ManualClock::new(START));
    let open = |ttl: Option<Duration>| {
        let keyspace = KeyspaceOptions { time_to_live: ttl, ..keyspace_options(FilterChoice::BlockedBloom) };
        options(keyspace).clock(Some(clock.clone())).open(dir)
    };
    let db = open(None)?;
    db.put("first session", "without a time to live")?;
    db.compact()?;
    db.put("first session, in the log", "")?;
    db.close()?;
    clock.advance(100);
    let db = open(Some(Duration::from_millis(99_500)))?;
    db.put("second session", "")?;
    clock.advance(50);
    db.put("second session, later", "")?;
    Ok(db.close()?)
}

/// Flushes that leave their values in a log, which becomes a blob file.
fn values_in_logs(db: &Db, plain: &KeyspaceOptions, dir: &Path) -> Done {
    db.flush()?;
    let keyspace = db.create_keyspace("logged", KeyspaceOptions { blob_threshold: 200, ..plain.clone() })?;
    for round in 0..2 {
        for i in 0..24u32 {
            keyspace.put(format!("{i:02}"), format!("{round} {i} and so on; ").repeat(30))?;
        }
        db.flush()?;
    }
    let is_log = |path: PathBuf| {
        path.extension().is_some_and(|end| end == "blb")
            && fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"TAMISLOG"))
    };
    let found = fs::read_dir(dir)?.filter_map(Result::ok).any(|entry| is_log(entry.path()));
    if found { Ok(()) } else { Err("no log became a blob file".into()) }
}

/// Copies the files as they are now, as if the process had been killed.
fn copy(from: &Path, to: &Path) -> Done {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        match fs::copy(entry.path(), to.join(entry.file_name())) {
            // Obsolete files are removed in the background.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => _ = copied?,
        }
    }
    Ok(())
}

/// Cuts the last record of the logs in two.
fn tear(dir: &Path) -> Done {
    let mut logs: Vec<PathBuf> = fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    logs.retain(|path| path.extension().is_some_and(|end| end == "log"));
    logs.sort_unstable();
    for path in logs.iter().rev() {
        let bytes = fs::read(path)?;
        // Zeros follow the records; the header has 32 bytes.
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if end > 32 {
            return Ok(fs::write(path, &bytes[..end - 3])?);
        }
    }
    Err("no log holds a record".into())
}

fn read_all() -> Done {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (now, dir) = line.split_once(' ').ok_or("a line without a time")?;
        match read(Path::new(dir), now.parse()?) {
            Ok((lines, entries)) => writeln!(out, "{lines}{{\"entries\": {entries}}}")?,
            Err(error) => writeln!(out, "{{\"error\": {:?}}}", error.to_string())?,
        }
        out.flush()?;
    }
    Ok(())
}

/// Returns all entries as lines, and their number. A get must find what a scan finds.
fn read(dir: &Path, now: u64) -> Done<(String, usize)> {
    // The options that an opening gives the default keyspace count, not those in the manifest.
    let stored = Options::stored_in(dir)?.unwrap_or_default();
    let options = options(stored.keyspace).clock(Some(Arc::new(ManualClock::new(now))));
    let db = Options { create_if_missing: false, ..options }.open_read_only(dir)?;
    let (mut lines, mut entries) = (String::new(), 0);
    let mut names = db.keyspaces();
    names.sort_unstable();
    for name in names {
        let keyspace = db.keyspace(&name)?;
        for item in keyspace.iter() {
            let (key, value) = item?;
            if keyspace.get(&key)?.as_deref() != Some(&value[..]) {
                return Err(format!("a get of {} differs from the scan", hex(&key)).into());
            }
            writeln!(
                lines,
                "{{\"keyspace\": {name:?}, \"key\": \"{}\", \"value\": \"{}\"}}",
                hex(&key),
                hex(&value)
            )?;
            entries += 1;
        }
    }
    Ok((lines, entries))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
