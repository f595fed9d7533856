//! Disk space of logs: reserved in steps, bounded, released.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tamis::io::{Access, DirLock, FileSystem, MemFs, ReadFile, Usage, WriteFile};
use tamis::{Db, Durability, Options};
use tamis_testkit::FaultyFs;

const MIB: u64 = 1 << 20;

/// Records the calls on log files other than appends, and fails some of them.
#[derive(Clone, Debug)]
struct Watched {
    fs: MemFs,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    preallocations: AtomicU64,
    truncations: AtomicU64,
    /// The index of the reservation or truncation to fail, counted from 0; later ones fail as well
    /// if `sticky`.
    fail: AtomicU64,
    sticky: AtomicBool,
}

impl Seen {
    fn refuse(&self) -> io::Result<()> {
        let number = self.preallocations.load(SeqCst) + self.truncations.load(SeqCst);
        let fail = self.fail.load(SeqCst);
        match number == fail || self.sticky.load(SeqCst) && number > fail {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl Watched {
    fn new() -> Watched {
        let seen = Seen { fail: AtomicU64::new(u64::MAX), ..Seen::default() };
        Watched { fs: MemFs::new(), seen: Arc::new(seen) }
    }

    fn file(&self, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(WatchedFile { file, seen: self.seen.clone() })
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Box<dyn WriteFile>,
    seen: Arc<Seen>,
}

impl WriteFile for WatchedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        let refused = self.seen.refuse();
        self.seen.preallocations.fetch_add(1, SeqCst);
        refused?;
        self.file.preallocate(bytes)
    }
    fn truncate_to_written(&mut self) -> io::Result<()> {
        let refused = self.seen.refuse();
        self.seen.truncations.fetch_add(1, SeqCst);
        refused?;
        self.file.truncate_to_written()
    }
}

impl FileSystem for Watched {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        let file = self.fs.create(path, usage)?;
        Ok(if usage == Usage::Log { self.file(file) } else { file })
    }
    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(self.file(self.fs.reuse(old, new)?))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.fs.open(path, access)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fs.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.remove_dir_all(path)
    }
    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.link_or_copy(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.fs.list(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.fs.sync_dir(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.fs.exists(path)
    }
    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.fs.file_len(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.fs.lock(path)
    }
    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.fs.available_space(path)
    }
}

fn is_log(path: &Path) -> bool {
    path.extension() == Some("log".as_ref())
}

/// Bytes of all log files in a directory.
fn log_bytes(fs: &dyn FileSystem, dir: &Path) -> u64 {
    let names = fs.list(dir).unwrap();
    let logs = names.iter().map(|name| dir.join(name)).filter(|path| is_log(path));
    // One may be removed meanwhile.
    logs.map(|path| fs.file_len(&path).unwrap_or(0)).sum()
}

/// The disk space of the log files below a directory; each file counts once, however many names it
/// has.
#[cfg(unix)]
fn blocks(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut files: BTreeMap<u64, u64> = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.metadata() {
                Ok(meta) if meta.is_dir() => dirs.push(path),
                Ok(meta) if is_log(&path) => drop(files.insert(meta.ino(), meta.blocks() * 512)),
                _ => {}
            }
        }
    }
    files.values().sum()
}

fn with(fs: Option<Arc<dyn FileSystem>>) -> Options {
    Options { file_system: fs, ..Options::default() }
}

/// Ten rounds of ten small writes, a flush and a checkpoint.
fn flush_and_copy(db: &Db, home: &Path) {
    for round in 0..10 {
        for key in 0..10 {
            db.put(format!("{round}-{key}"), vec![7; 2000]).unwrap();
        }
        db.flush().unwrap();
        db.put("between", format!("{round}")).unwrap();
        db.checkpoint(home.join(format!("copy-{round}"))).unwrap();
    }
    db.wait_for_compaction().unwrap();
}

/// Regression: every log reserved and kept what a full memtable may need, 72 MiB; ten of them took
/// 650 MB for 0.2 MB of records.
#[test]
fn small_flushes_and_checkpoints_need_little_log_space() {
    let fs = FaultyFs::new(1);
    let home = PathBuf::from("/home");
    fs.create_dir_all(&home).unwrap();
    let db = with(Some(Arc::new(fs.clone()))).open(home.join("db")).unwrap();
    flush_and_copy(&db, &home);
    let taken: u64 = fs.files().iter().filter(|(path, _)| is_log(path)).map(|(_, len)| len).sum();
    assert!(taken < 2 * MIB, "{taken} bytes of logs");
    let stats = db.stats();
    assert!(stats.log_bytes <= stats.log_allocated_bytes && stats.log_allocated_bytes < MIB, "{stats:?}");
    db.close().unwrap();
    let taken: u64 = fs.files().iter().filter(|(path, _)| is_log(path)).map(|(_, len)| len).sum();
    assert!(taken < MIB, "{taken} bytes of logs once it is closed");
}

#[cfg(unix)]
#[test]
fn small_flushes_and_checkpoints_need_few_log_blocks() {
    let home = tempfile::tempdir().unwrap();
    let db = with(None).open(home.path().join("db")).unwrap();
    flush_and_copy(&db, home.path());
    let taken = blocks(home.path());
    assert!(taken < 2 * MIB, "{taken} bytes of logs");
    db.close().unwrap();
    let closed = blocks(home.path());
    assert!(closed < MIB, "{closed} bytes of logs once it is closed");
    for round in 0..10 {
        let copy = with(None).open(home.path().join(format!("copy-{round}"))).unwrap();
        assert_eq!(copy.get("between").unwrap().unwrap(), format!("{round}"));
        assert_eq!(copy.iter().count(), 10 * (round + 1) + 1);
    }
}

/// A log is at most one step longer than its records, and steps are few.
///
/// On a busy machine the background thread creates the next log late, or between two looks at the
/// sizes. The test counted no next log, and failed when there was one.
#[test]
fn space_is_reserved_in_growing_steps() {
    let fs = Watched::new();
    let db = with(Some(Arc::new(fs.clone()))).open("/db").unwrap();
    let mut most = 0;
    for i in 0..10_000u64 {
        db.put(i.to_be_bytes(), vec![7; 4000]).unwrap();
        let began = std::time::Instant::now();
        let stats = loop {
            // A log that is being created has a file before it is counted.
            let (files, stats) = (log_bytes(&fs, Path::new("/db")), db.stats());
            if files == stats.log_allocated_bytes {
                break stats;
            }
            assert!(began.elapsed().as_secs() < 60, "{files} and {} at {i}", stats.log_allocated_bytes);
            std::thread::yield_now();
        };
        let unused = stats.log_allocated_bytes - stats.log_bytes;
        let (first, record) = (256 << 10, 8 << 10);
        let step = first.max(stats.log_bytes / 2).min(4 * MIB);
        let next =
            if fs.list(Path::new("/db")).unwrap().iter().filter(|name| is_log(Path::new(name))).count() > 1 {
                first
            } else {
                0
            };
        assert!(unused <= step + next + record, "{unused} at {i}");
        most = most.max(unused);
    }
    assert!(most > 2 * MIB, "large logs take large steps: {most}");
    let steps = fs.seen.preallocations.load(SeqCst);
    assert!((5..40).contains(&steps), "{steps} steps for 40 MB");
}

/// Regression: only bytes of records were counted, and besides the current log only rolled logs.
#[test]
fn logs_exceed_their_limit_by_at_most_one_step() {
    for (max, memtable, keyspaces, size) in [
        (MIB, 64 * MIB, 1, 4000),
        (MIB, 256 << 10, 1, 1000),
        (2 * MIB, MIB, 3, 3000),
        (64 << 10, 16 << 10, 2, 500),
        (4 << 10, 4 << 10, 1, 100),
    ] {
        let fs = MemFs::new();
        let mut options = with(Some(Arc::new(fs.clone())));
        (options.max_log_bytes, options.keyspace.memtable_bytes) = (max, memtable);
        let others = options.keyspace.clone();
        let db = options.open("/db").unwrap();
        let mut spaces = vec![db.default_keyspace().clone()];
        spaces.extend((1..keyspaces).map(|i| db.create_keyspace(&format!("{i}"), others.clone()).unwrap()));
        let step = (max / 8).min(256 << 10);
        for i in 0..8 * max / size as u64 {
            // The other keyspaces hold back logs with an occasional write.
            let space = if i % 50 == 49 { i as usize / 50 % spaces.len() } else { 0 };
            spaces[space].put(i.to_be_bytes(), vec![7; size]).unwrap();
            let stats = db.stats();
            let limit = max + step + size as u64;
            assert!(stats.log_allocated_bytes <= limit, "{} of {max} at {i}", stats.log_allocated_bytes);
            // Obsolete logs that waited to be removed were not counted: 157 MiB were found where 64
            // were allowed.
            let files = log_bytes(&fs, Path::new("/db"));
            assert!(files <= limit, "{files} of {max} at {i}");
        }
        db.wait_for_compaction().unwrap();
        let stats = db.stats();
        assert!(log_bytes(&fs, Path::new("/db")) <= max + step, "{max}");
        assert!(stats.write.flushes > 3, "{max}: {} flushes", stats.write.flushes);
        drop((db, spaces));
    }
}

/// Obsolete logs that were synced are kept for reuse only as long as there is plenty of room.
#[test]
fn kept_logs_are_released_when_the_disk_fills_up() {
    let fs = FaultyFs::new(1);
    let mut options = with(Some(Arc::new(fs.clone())));
    options.keyspace.memtable_bytes = MIB;
    options.keyspace.auto_compaction = false;
    let db = options.open("/db").unwrap();
    let used = || fs.files().iter().map(|(_, len)| len).sum::<u64>();
    let kept = || {
        let stats = db.stats();
        stats.log_allocated_bytes - stats.log_bytes
    };
    let fill = |syncs: bool| {
        for i in 0..4_000u64 {
            db.put((i % 100).to_be_bytes(), vec![7; 1000]).unwrap();
            if syncs && i % 40 == 0 {
                db.sync().unwrap();
            }
        }
        db.flush().unwrap();
    };
    fill(false);
    // What nobody synced is not kept: it is space reserved for what is written next.
    let reserved = kept();
    fill(true);
    assert!(kept() > reserved + MIB / 2, "logs are kept: {}, and {reserved} without", kept());
    let before = kept();
    // Room for part of the next memtable besides the kept logs: writes continue in the space these
    // took.
    fs.set_capacity(Some(used() + 200_000));
    for i in 0..700u64 {
        db.put((i % 100).to_be_bytes(), vec![8; 1000]).unwrap();
    }
    assert!(kept() < before);
    assert_eq!(db.get(5u64.to_be_bytes()).unwrap().unwrap(), vec![8; 1000]);
}

/// Reserving and releasing space only affect speed and space: if they fail, everything continues.
#[test]
fn failed_reservations_and_truncations_do_no_harm() {
    let run = |fail: u64, sticky: bool| -> u64 {
        let fs = Watched::new();
        fs.seen.fail.store(fail, SeqCst);
        fs.seen.sticky.store(sticky, SeqCst);
        let mut options = with(Some(Arc::new(fs.clone())));
        options.keyspace.memtable_bytes = 64 << 10;
        options.max_log_bytes = 256 << 10;
        let mut wanted = BTreeMap::new();
        for session in 0..2 {
            let db = options.clone().open("/home/db").unwrap();
            for i in 0..150u64 {
                let (key, value) = (format!("{}", i % 40), format!("{session}-{i}-{}", "v".repeat(1500)));
                let mut batch = tamis::WriteBatch::new();
                batch.put(&key, &value);
                db.write_with(batch, if i % 7 == 0 { Durability::Sync } else { Durability::Buffered })
                    .unwrap();
                wanted.insert(key.into_bytes(), value.into_bytes());
                if i % 60 == 59 {
                    db.checkpoint(format!("/home/copy-{session}-{i}")).unwrap();
                }
                if i == 70 {
                    db.flush().unwrap();
                }
            }
            assert_eq!(db.stats().poisoned, None);
            assert!(db.verify().unwrap().problems.is_empty());
            db.close().unwrap();
            let db = options.clone().open_read_only("/home/db").unwrap();
            let found: BTreeMap<_, _> =
                db.iter().map(|item| item.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
            assert!(found == wanted, "session {session}, {fail}");
        }
        fs.seen.preallocations.load(SeqCst) + fs.seen.truncations.load(SeqCst)
    };
    let calls = run(u64::MAX, false);
    assert!(calls > 20, "{calls} calls");
    for fail in 0..calls {
        run(fail, false);
    }
    for fail in [0, 1, 5] {
        run(fail, true);
    }
}
