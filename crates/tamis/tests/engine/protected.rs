//! `protect_writes`: records that change in memory are noticed before they get into a table.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tamis::io::{Access, DirLock, FileSystem, MemFs, ReadFile, Usage, WriteFile};
use tamis::{Db, Durability, Error, KeyspaceOptions, Options, WriteBatch, WriteError};

fn options() -> Options {
    let keyspace = KeyspaceOptions { auto_compaction: false, ..KeyspaceOptions::default() };
    Options { protect_writes: true, keyspace, ..Options::default() }
}

/// Flips one bit of this process's memory, as a faulty chip would.
fn flip(byte: *const u8) {
    let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
    let (at, mut held) = (byte as u64, [0]);
    memory.read_exact_at(&mut held, at).unwrap();
    memory.write_all_at(&[held[0] ^ 0x10], at).unwrap();
}

/// A machine whose memory changes while a log is written.
#[derive(Clone, Debug, Default)]
struct Flipping {
    fs: MemFs,
    /// The address of the byte that changes after the next append to a log; 0 for none.
    at: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FlippingFile {
    file: Box<dyn WriteFile>,
    at: Arc<AtomicUsize>,
}

impl WriteFile for FlippingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        let at = self.at.swap(0, SeqCst);
        if at > 0 {
            flip(at as *const u8);
        }
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        self.file.preallocate(bytes)
    }
    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.file.truncate_to_written()
    }
}

impl FileSystem for Flipping {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        let file = self.fs.create(path, usage)?;
        Ok(if usage == Usage::Log { Box::new(FlippingFile { file, at: self.at.clone() }) } else { file })
    }
    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.fs.reuse(old, new)
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

fn is_corrupt(error: &dyn std::error::Error) -> bool {
    error.to_string().contains("memory")
}

#[test]
fn a_value_that_changed_in_a_memtable_does_not_get_into_a_table_and_the_log_has_it() {
    for len in [8, 400] {
        let dir = tempfile::tempdir().unwrap();
        let db = options().open(dir.path()).unwrap();
        for i in 0..100 {
            db.put(format!("key{i:02}"), vec![b'v'; len]).unwrap();
        }
        let value = db.get("key42").unwrap().unwrap();
        flip(&raw const value[5]);
        drop(value);
        let error = db.flush().unwrap_err();
        assert!(is_corrupt(&error), "{error}");
        drop(db);
        let db = Db::open(dir.path()).unwrap();
        for i in 0..100 {
            assert_eq!(db.get(format!("key{i:02}")).unwrap().unwrap(), vec![b'v'; len], "{i}");
        }
    }
}

/// A memtable finds keys by their first bytes, which each node has beside the key. A bit of them
/// changed, and the next version of the key came behind the old one: the flush kept the old one.
/// In a debug build, the merge's own assertion fails first.
#[test]
fn a_key_that_is_not_in_its_place_does_not_hide_its_next_version() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path()).unwrap();
    for i in 0..100 {
        db.put(format!("key{i:02}"), "the old value").unwrap();
    }
    let value = db.get("key42").unwrap().unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let mut before = [0; 64];
    let start = &raw const value[0] as u64 - before.len() as u64;
    memory.read_exact_at(&mut before, start).unwrap();
    let first_bytes = u64::from_be_bytes(*b"key42\0\0\0").to_ne_bytes();
    let at = before.windows(8).position(|bytes| bytes == first_bytes).expect("the node has the first bytes");
    let digit = first_bytes.iter().position(|byte| *byte == b'4').unwrap();
    flip((start + (at + digit) as u64) as *const u8);
    drop(value);
    db.put("key42", "the new value").unwrap();
    let error = db.flush().unwrap_err();
    assert!(is_corrupt(&error) || cfg!(debug_assertions), "{error}");
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.get("key42").unwrap().unwrap(), "the new value");
}

#[test]
fn a_batch_that_changed_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path()).unwrap();
    for (durability, has_range) in
        [(Durability::Buffered, false), (Durability::Buffered, true), (Durability::Sync, true)]
    {
        let mut batch = WriteBatch::protected();
        batch.put("key", "some value").delete("other");
        if has_range {
            batch.delete_range("r".."s");
        }
        flip(&raw const batch.bytes()[9]);
        let error = db.write_with(batch, durability).unwrap_err();
        assert!(matches!(&error, WriteError::Storage(why) if is_corrupt(why)), "{error}");
        assert_eq!(db.get("key").unwrap(), None);
    }
    db.put("key", "later").unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "later");
}

/// Its record in the log or its entries in memory may be wrong: nobody sees it, and nothing follows.
#[test]
fn a_batch_that_changes_while_it_is_committed_stops_writes_for_good() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let fs = Flipping::default();
        let db = Options { file_system: Some(Arc::new(fs.clone())), ..options() }.open("/db").unwrap();
        db.put("key", "before").unwrap();
        // The commit protects it.
        let mut batch = WriteBatch::new();
        batch.put("key", "some value").delete("other");
        fs.at.store((&raw const batch.bytes()[9]).addr(), SeqCst);
        let error = db.write_with(batch, durability).unwrap_err();
        assert!(matches!(&error, WriteError::Poisoned { .. }) && is_corrupt(&error), "{error}");
        assert_eq!(db.get("key").unwrap().unwrap(), "before");
        let error = db.put("key", "later").unwrap_err();
        assert!(matches!(&error, WriteError::Poisoned { .. }) && is_corrupt(&error), "{error}");
        assert_eq!(fs.at.load(SeqCst), 0, "the memory has changed");
    }
}

/// The checks find nothing where nothing is wrong: all kinds of operations, large values, merges.
#[test]
fn nothing_is_found_in_sound_memory() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = KeyspaceOptions {
        merge_operator: Some("append".to_owned()),
        blob_threshold: 2000,
        ..options().keyspace
    };
    let options = Options { keyspace, ..options() };
    for round in 0..3 {
        let db = options.clone().open(dir.path())?;
        for i in 0..300u32 {
            let mut batch = WriteBatch::protected();
            batch.put(format!("p{}", i * 7 % 100), vec![round; i as usize * 20]);
            batch.merge(format!("m{}", i % 10), "x").delete(format!("p{}", i % 9));
            let durability = if i % 50 == 0 { Durability::Sync } else { Durability::Buffered };
            db.write_with(batch, durability)?;
            db.put(format!("q{i}"), vec![round; i as usize * 40])?;
        }
        db.delete_range("p20".."p30")?;
        // Half is left to the recovery of the log.
        if round != 1 {
            db.flush()?;
            db.compact()?;
        }
    }
    let db = options.open(dir.path())?;
    db.compact()?;
    assert_eq!(db.verify()?.problems, [""; 0]);
    assert_eq!(db.get("m3")?.unwrap(), "x".repeat(90));
    assert_eq!(db.get("q299")?.unwrap(), vec![2; 299 * 40]);
    Ok(())
}
