//! The number of file descriptors a database holds, and its behaviour when the process runs out of
//! them.
//!
//! Descriptors belong to the process, so each test runs in its own process: this program again,
//! with that test only and with a limit set by a shell.

#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::print_stderr, reason = "tests, which print what they measured")]

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tamis::options::ReadMode;
use tamis::{Db, KeyspaceOptions, Options};

const TABLES: u64 = 220;
const KEYS_PER_TABLE: u64 = 20;
const KEYS: u64 = TABLES * KEYS_PER_TABLE;

/// Open in every database: the directory, lock, log, the prepared next log, manifest and the next
/// manifest.
const FIXED: usize = 6;

/// Per background job or manual compaction: an output, a directory being synced, inputs.
const PER_JOB: usize = 4;

/// Blocks read at a time, each from a different table.
const DEPTH: usize = 4;

/// Per reading thread: the files being read, one that was just opened, and those used for
/// overlapping reads.
const PER_READER: usize = DEPTH + 2;

/// Runs a test in a process of its own.
fn alone(name: &str, limit: usize, test: impl FnOnce()) {
    const RUNS: &str = "TAMIS_DESCRIPTORS_TEST";
    if std::env::var(RUNS).is_ok_and(|runs| runs == name) {
        return test();
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {limit}; exec \"$0\" \"$@\"")).arg(program);
    let ran = command.args(["--exact", name, "--nocapture"]).env(RUNS, name).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    for line in said.lines().filter(|line| line.starts_with("descriptors:")) {
        eprintln!("{name}: {line}");
    }
}

fn descriptors() -> usize {
    // One of them belongs to the directory itself.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn options(read_mode: ReadMode, max_open_files: usize) -> Options {
    let keyspace =
        KeyspaceOptions { memtable_bytes: 64 << 10, auto_compaction: false, ..KeyspaceOptions::default() };
    // A cache that holds next to nothing, so that blocks are read.
    Options { keyspace, read_mode, max_open_files, cache_bytes: 16 << 10, ..Options::default() }
}

fn key(number: u64) -> String {
    // Every table spans all keys.
    format!("key{:06}", (number % KEYS_PER_TABLE) * TABLES + number / KEYS_PER_TABLE)
}

fn value(number: u64) -> String {
    format!("value of {number}")
}

/// A database of [`TABLES`] tables.
fn fill(db: &Db) {
    for number in 0..KEYS {
        db.put(key(number), value(number)).unwrap();
        if number % KEYS_PER_TABLE == KEYS_PER_TABLE - 1 {
            db.flush().unwrap();
        }
    }
    assert_eq!(tables(db), TABLES as usize);
}

fn tables(db: &Db) -> usize {
    db.stats().keyspaces[0].levels.iter().flat_map(|level| &level.runs).map(|run| run.tables).sum()
}

#[track_caller]
fn check_key(db: &Db, number: u64) {
    let found = db.get(key(number)).unwrap_or_else(|error| panic!("key {number}: {error}"));
    assert_eq!(found.as_deref(), Some(value(number).as_bytes()), "key {number}");
}

fn check_all(db: &Db) {
    (0..KEYS).for_each(|number| check_key(db, number));
    check_scan(db, 0, KEYS as usize);
    let keys: Vec<_> = (0..KEYS).step_by(7).map(key).collect();
    let values = db.multi_get(&keys).unwrap().into_iter().map(|value| value.map(|value| value.to_vec()));
    assert!(values.eq((0..KEYS).step_by(7).map(|number| Some(value(number).into_bytes()))));
}

/// Scans from the `from`th key in sorted order. An iterator is positioned in all tables at once.
fn check_scan(db: &Db, from: u64, most: usize) {
    let keys = db.range(format!("key{from:06}").."l".to_owned()).take(most);
    let keys: Vec<_> =
        keys.map(|item| item.unwrap_or_else(|error| panic!("scan from {from}: {error}")).0).collect();
    let wanted = (from..KEYS).take(most).map(|number| format!("key{number:06}").into_bytes());
    assert!(keys.iter().map(|key| &key[..]).eq(wanted), "scan from {from}");
}

/// Pseudo-random numbers.
fn scatter(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn a_mapped_database_of_many_tables_holds_a_handful_of_descriptors() {
    alone("a_mapped_database_of_many_tables_holds_a_handful_of_descriptors", 1024, || {
        let dir = tempfile::tempdir().unwrap();
        let before = descriptors();
        let db = options(ReadMode::Mapped, 1000).open(dir.path()).unwrap();
        fill(&db);
        check_all(&db);
        let open = descriptors() - before;
        eprintln!("descriptors: {open} after {TABLES} flushes");
        assert!(open <= FIXED, "{open} descriptors");
        assert_eq!(db.stats().open_table_files, 0);
        db.close().unwrap();
        assert_eq!(descriptors(), before);

        let db = options(ReadMode::Mapped, 1000).open(dir.path()).unwrap();
        check_all(&db);
        assert_eq!(db.iter().count() as u64, KEYS);
        let open = descriptors() - before;
        eprintln!("descriptors: {open} after opening");
        assert!(open <= FIXED, "{open} descriptors");
        drop(db);
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn files_beyond_the_limit_are_closed_while_everything_is_read_and_written() {
    alone("files_beyond_the_limit_are_closed_while_everything_is_read_and_written", 1024, || {
        const MOST: usize = 16;
        const READERS: usize = 4;
        let dir = tempfile::tempdir().unwrap();
        let before = descriptors();
        let options = Options { read_queue_depth: DEPTH, ..options(ReadMode::Buffered, MOST) };
        let slack = FIXED + READERS * PER_READER + (options.background_threads + 1) * PER_JOB;
        let db = options.open(dir.path()).unwrap();
        fill(&db);
        let (done, most, most_tables) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        let reads = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    most.fetch_max(descriptors() - before, SeqCst);
                    most_tables.fetch_max(db.stats().open_table_files, SeqCst);
                }
            });
            for reader in 0..READERS as u64 {
                let (db, done, reads) = (&db, &done, &reads);
                scope.spawn(move || {
                    let mut state = reader;
                    while !done.load(SeqCst) {
                        for _ in 0..200 {
                            check_key(db, scatter(&mut state) % KEYS);
                        }
                        check_scan(db, scatter(&mut state) % KEYS, 50);
                        reads.fetch_add(250, SeqCst);
                    }
                });
            }
            let _ends = Ends(&done);
            // After all keys that are checked.
            for round in 0..60u64 {
                for number in 0..10 {
                    db.put(format!("more{:06}", round * 10 + number), value(number)).unwrap();
                }
                db.flush().unwrap();
                if round % 20 == 10 {
                    db.compact().unwrap();
                    // Many tables again.
                    (0..KEYS).for_each(|number| {
                        db.put(key(number), value(number)).unwrap();
                        if number % (8 * KEYS_PER_TABLE) == 0 {
                            db.flush().unwrap();
                        }
                    });
                }
            }
        });
        let (most, most_tables) = (most.into_inner(), most_tables.into_inner());
        eprintln!("descriptors: {most} at most, {most_tables} of them of tables; {reads:?} reads");
        assert!(most_tables <= MOST, "{most_tables} files of tables");
        assert!(most <= MOST + slack, "{most} descriptors");
        assert!(most_tables > MOST / 2, "the limit was never reached: {most_tables}");
        check_all(&db);
        // When idle, only those, plus what overlapping reads use, for each thread that has read.
        let (open, of_tables) = (descriptors() - before, db.stats().open_table_files);
        assert!(of_tables <= MOST && open <= of_tables + FIXED + READERS + 1, "{open} and {of_tables}");
        db.close().unwrap();
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn files_of_idle_tables_are_closed_when_the_process_reaches_its_limit() {
    alone("files_of_idle_tables_are_closed_when_the_process_reaches_its_limit", 40, || {
        let dir = tempfile::tempdir().unwrap();
        let db = options(ReadMode::Buffered, 1000).open(dir.path()).unwrap();
        fill(&db);
        check_all(&db);
        let open = db.stats().open_table_files;
        eprintln!("descriptors: {open} of tables, {} in all", descriptors());
        assert!(open > 10 && open < 40, "{open} files of tables");
        // Reads take all that are available; writes, flushes and compactions need some, too.
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let (db, done) = (&db, &done);
                scope.spawn(move || {
                    let mut state = reader;
                    while !done.load(SeqCst) {
                        (0..50).for_each(|_| check_key(db, scatter(&mut state) % KEYS));
                        check_scan(db, scatter(&mut state) % KEYS, 10);
                    }
                });
            }
            let _ends = Ends(&done);
            for round in 0..30u64 {
                for number in 0..200 {
                    db.put(format!("more{:06}", round * 200 + number), [7; 1000]).unwrap();
                }
                db.flush().unwrap();
            }
            db.compact().unwrap();
        });
        check_all(&db);
        let stats = db.stats();
        assert_eq!((stats.suspended, stats.troubles), (None, Vec::new()));
        db.close().unwrap();
        let db = options(ReadMode::Buffered, 1000).open(dir.path()).unwrap();
        check_all(&db);
        assert_eq!(db.prefix("more").count(), 30 * 200);
    });
}

/// Stops other threads, even if this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Takes every descriptor available to the process.
fn take_all(taken: &mut Vec<File>) {
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
}

#[test]
fn writes_resume_when_other_descriptors_are_released() {
    alone("writes_resume_when_other_descriptors_are_released", 64, || {
        let dir = tempfile::tempdir().unwrap();
        for read_mode in [ReadMode::Buffered, ReadMode::Mapped] {
            starve(&dir.path().join(format!("{read_mode:?}")), read_mode);
        }
    });
}

fn starve(dir: &Path, read_mode: ReadMode) {
    let db = options(read_mode, 1000).open(dir).unwrap();
    fill(&db);
    let name = |number: u64| format!("more{number:06}");
    let (mut next, mut refused) = (0, Vec::new());
    for _ in 0..3 {
        let mut taken = Vec::new();
        let mut errors = Vec::new();
        // Far more than the memtables hold; descriptors freed meanwhile are taken, too.
        for _ in 0..400 {
            take_all(&mut taken);
            if read_mode == ReadMode::Mapped {
                check_key(&db, next % KEYS);
            }
            let number = next;
            next += 1;
            if let Err(error) = db.put(name(number), [7; 2000]) {
                errors.push(error.to_string());
                refused.push(number);
                if errors.len() == 20 {
                    break;
                }
            }
        }
        take_all(&mut taken);
        let flushed = db.flush();
        if let Err(error) = &flushed {
            errors.push(error.to_string());
        }
        eprintln!(
            "descriptors: {} taken, {next} writes, {} refused: {:?}",
            taken.len(),
            refused.len(),
            errors.last()
        );
        // If tables have files open, closing them may free just enough.
        let none_to_close = read_mode == ReadMode::Mapped;
        assert!(!none_to_close || !errors.is_empty(), "writes and a flush succeeded without a descriptor");
        assert!(errors.iter().all(|error| error.contains("Too many open files")), "{errors:?}");
        assert!(taken.len() > 30, "{} descriptors", taken.len());
        drop(taken);
        let begun = Instant::now();
        while let Err(error) = db.put("again", "and again") {
            assert!(begun.elapsed() < Duration::from_secs(60), "writes do not resume: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        db.flush().unwrap();
        assert_eq!(db.stats().suspended, None);
        check_all(&db);
    }
    db.close().unwrap();
    let db = options(read_mode, 1000).open(dir).unwrap();
    check_all(&db);
    for number in (0..next).filter(|number| !refused.contains(number)) {
        assert_eq!(
            db.get(name(number)).unwrap().as_deref(),
            Some(&[7; 2000][..]),
            "{number} was acknowledged"
        );
    }
    for number in refused {
        assert!(db.get(name(number)).unwrap().is_none(), "{number} was refused");
    }
}
