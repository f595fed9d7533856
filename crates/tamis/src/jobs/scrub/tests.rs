//! What the scrub finds, what it ignores, and that it terminates.

use std::path::Path;
use std::time::Instant;

use tamis_files::tree::files::table_path;
use tamis_testkit::{CrashMode, FaultyFs};

use super::*;
use crate::catalogue::scrubbed::ScrubStats;
use crate::io::{FileSystem, MemFs, Usage, read_file};
use crate::{Db, Options, WriteError};

const DIR: &str = "db";

fn options(fs: &MemFs) -> Options {
    let mut options = Options {
        scrub_bytes_per_second: 1 << 30,
        file_system: Some(Arc::new(fs.clone())),
        cache_bytes: 0,
        ..Options::default()
    };
    options.keyspace.auto_compaction = false;
    options.keyspace.block_bytes = 256;
    options
}

fn filled(fs: &MemFs) -> Db {
    let db = options(fs).open(DIR).unwrap();
    for table in 0..3 {
        for key in 0..100 {
            db.put(format!("{table} {key:03}"), "value").unwrap();
        }
        db.flush().unwrap();
    }
    db
}

/// Waits until the scrub's statistics satisfy a condition.
fn until(db: &Db, what: &str, is_so: impl Fn(&ScrubStats) -> bool) -> ScrubStats {
    let started = Instant::now();
    loop {
        let stats = db.stats().scrub.expect("it is on");
        if is_so(&stats) {
            return stats;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: {stats:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Flips a bit of a file and keeps the file's identity.
fn flip(fs: &MemFs, path: &Path, at: usize) {
    let mut bytes = read_file(fs, path).unwrap();
    bytes[at] ^= 1;
    overwrite(fs, path, &bytes);
}

fn overwrite(fs: &MemFs, path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    fs.create(&beside, Usage::Log).unwrap().append(bytes).unwrap();
    fs.rename(&beside, path).unwrap();
}

#[test]
fn sound_files_are_read_repeatedly_without_findings() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let stats = until(&db, "two passes", |stats| stats.passes >= 2 && stats.tables >= 6);
    assert_eq!(stats.problems, Vec::<String>::new());
    assert!(stats.bytes > 6000, "{stats:?}");
    assert!(db.stats().damaged_tables.is_empty());
    db.close().unwrap();
    let off = Options { scrub_bytes_per_second: 0, ..options(&fs) };
    assert_eq!(off.open(DIR).unwrap().stats().scrub, None);
}

#[test]
fn a_damaged_block_is_reported_and_left_alone_until_it_is_repaired() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let table = db.default_keyspace().tables().into_iter().max_by_key(|table| table.level).unwrap();
    let path = table_path(Path::new(DIR), table.id);
    let sound = read_file(&fs, &path).unwrap();
    flip(&fs, &path, 700);
    let stats = until(&db, "the damage", |stats| !stats.problems.is_empty() && stats.passes > 0);
    assert!(stats.problems[0].contains(path.to_str().unwrap()), "{stats:?}");
    let damaged = db.stats().damaged_tables;
    assert_eq!(damaged.len(), 1);
    assert_eq!((damaged[0].table, damaged[0].quarantined), (table.id, false));
    assert!(
        db.stats().warnings.iter().any(|warning| warning.starts_with("scrub: ")),
        "{:?}",
        db.stats().warnings
    );
    let warned =
        |db: &Db| db.stats().warnings.iter().filter(|warning| warning.starts_with("scrub: ")).count();
    // A compaction could only fail, and says why.
    let error = db.compact().unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    let (passes, told) = (stats.passes, warned(&db));
    until(&db, "another pass", |stats| stats.passes > passes + 1);
    assert_eq!(warned(&db), told, "it is said once");
    overwrite(&fs, &path, &sound);
    let passes = db.stats().scrub.unwrap().passes;
    until(&db, "all is well again", |stats| stats.passes > passes + 1 && stats.problems.is_empty());
    assert!(db.stats().damaged_tables.is_empty());
    db.compact().unwrap();
}

#[test]
fn damage_to_finished_logs_and_to_the_manifest_is_found() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    let other = db.create_keyspace("other", Default::default()).unwrap();
    other.put("keeps the log", "value").unwrap();
    db.put("key", "value").unwrap();
    // The log is rolled, and `other` needs it.
    db.default_keyspace().flush().unwrap();
    let stats = until(&db, "a log", |stats| stats.logs >= 1 && stats.passes > 0);
    assert!(stats.problems.is_empty(), "{stats:?}");
    let names = fs.list(Path::new(DIR)).unwrap();
    let find =
        |what: &dyn Fn(&str) -> bool| Path::new(DIR).join(names.iter().find(|name| what(name)).unwrap());
    let log = find(&|name| name.ends_with(".log"));
    flip(&fs, &log, 60);
    until(&db, "the log's damage", |stats| {
        stats.problems.iter().any(|what| what.contains(log.to_str().unwrap()))
    });
    let manifest = find(&|name| name.starts_with("MANIFEST"));
    let sound = read_file(&fs, &manifest).unwrap();
    flip(&fs, &manifest, 60);
    until(&db, "the manifest's", |stats| stats.problems.iter().any(|what| what.contains("MANIFEST")));
    overwrite(&fs, &manifest, &sound);
}

#[test]
fn a_slow_scrub_keeps_to_its_rate_and_does_not_delay_closing() {
    let fs = MemFs::new();
    let db = Options { scrub_bytes_per_second: 1 << 10, ..options(&fs) }.open(DIR).unwrap();
    for key in 0..20_000 {
        db.put(format!("{key:05}"), "value").unwrap();
    }
    db.flush().unwrap();
    let stats = until(&db, "something", |stats| stats.bytes > 0);
    assert_eq!(stats.tables, 0, "one step takes a minute: {stats:?}");
    drop(db.close());
}

/// The simulation's seed 3572: a database opened on a full disk still has the log that was in use
/// when the power failed. The scrub took it for a finished log, and its end for damage.
#[test]
fn the_last_log_of_a_crashed_session_is_not_damage_while_the_disk_is_full() {
    let fs = FaultyFs::new(1);
    let on = |fs: &FaultyFs| Options { file_system: Some(Arc::new(fs.clone())), ..options(&MemFs::new()) };
    let db = on(&fs).open(DIR).unwrap();
    db.put("key", "value").unwrap();
    let full = fs.crash(CrashMode::KeepAll);
    full.set_capacity(Some(full.files().iter().map(|file| file.1).sum()));
    let db = on(&full).open(DIR).unwrap();
    assert!(matches!(db.put("key", "newer"), Err(WriteError::Suspended { .. })), "the session has not begun");
    assert!(db.stats().suspended.is_some_and(|cause| cause.contains("space")), "{:?}", db.stats().suspended);
    let stats = until(&db, "two passes", |stats| stats.passes >= 2);
    assert_eq!(stats.problems, Vec::<String>::new());
    full.set_capacity(None);
    while db.put("key", "newer").is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(db.get("key").unwrap().unwrap(), "newer");
    assert_eq!(db.stats().suspended, None);
}
