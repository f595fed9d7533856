//! A database in memory, its backups, and what it held at each of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tamis::io::{FileSystem, MemFs};
use tamis::{Db, Options};
use tamis_remote::{
    BackupOptions, Directory, Error, Pinned, Repository, RestoreOptions, Restored, Source, State, Transfer,
    Written,
};
use tamis_testkit::Rng;

use crate::faulty::Faulty;

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Small pieces, so that small tables are sent in several; short waits.
pub(crate) fn transfer() -> Transfer {
    let mut transfer = Transfer::default();
    transfer.parallel = 3;
    transfer.piece_bytes = 4 << 10;
    transfer.attempts = 6;
    transfer.backoff = Duration::from_micros(10);
    transfer.timeout = Duration::from_secs(20);
    transfer
}

/// With one attempt for each request, so that faults come through; those that hang must end soon.
pub(crate) fn impatient() -> Transfer {
    let mut transfer = transfer();
    transfer.attempts = 1;
    transfer.timeout = Duration::from_millis(100);
    transfer
}

pub(crate) fn repository(store: &Faulty, transfer: Transfer) -> Repository {
    Repository::with_store(Arc::new(store.clone()), "some/where", transfer)
}

/// Options for small trees.
pub(crate) fn options(fs: &Arc<dyn FileSystem>) -> Options {
    let mut options = Options { file_system: Some(fs.clone()), ..Options::default() };
    options.keyspace.memtable_bytes = 64 << 10;
    options
}

/// Of every second world with blob files, most values stay in logs.
pub(crate) fn garbage(seed: u64) -> f64 {
    if seed % 4 == 1 { 0.8 } else { 0.4 }
}

/// Reports whether tables refer to values that were never copied from their log.
pub(crate) fn has_values_in_logs(db: &Db) -> bool {
    db.default_keyspace().stats().blob_bytes > db.stats().write.blob_write_bytes
}

pub(crate) struct World {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
    pub(crate) db: Db,
    pub(crate) model: Map,
    pub(crate) rng: Rng,
    copies: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
        World::over(fs, "/db".as_ref(), Map::new(), seed)
    }

    /// Continues with what is in a directory.
    pub(crate) fn over(fs: Arc<dyn FileSystem>, dir: &Path, model: Map, seed: u64) -> World {
        let mut options = options(&fs);
        // Of every second world, larger values are in blob files.
        options.keyspace.blob_threshold = 100 * (seed % 2);
        options.keyspace.blob_garbage = garbage(seed);
        let db = options.open(dir).unwrap();
        World { fs, dir: dir.to_owned(), db, model, rng: Rng::new(seed), copies: 0 }
    }

    /// Puts and deletes at random; ends, now and then, with a flush.
    pub(crate) fn write(&mut self, operations: u64) {
        for _ in 0..operations {
            let key = format!("key {:04}", self.rng.below(2000)).into_bytes();
            match self.rng.one_in(5) {
                true => {
                    self.db.delete(&key).unwrap();
                    self.model.remove(&key);
                }
                false => {
                    let len = self.rng.up_to(300);
                    let value: Vec<u8> = (0..len).map(|_| self.rng.next_u64() as u8).collect();
                    self.db.put(&key, &value).unwrap();
                    self.model.insert(key, value);
                }
            }
        }
        if self.rng.one_in(2) {
            self.db.flush().unwrap();
        }
    }

    pub(crate) fn backup_options(&self) -> BackupOptions {
        BackupOptions { cache: Some(self.dir.join("backup-cache.json")), ..BackupOptions::default() }
    }

    pub(crate) fn backup(&mut self, repo: &Repository) -> Result<Written, Error> {
        self.backup_with(repo, self.backup_options())
    }

    pub(crate) fn backup_with(
        &mut self,
        repo: &Repository,
        options: BackupOptions,
    ) -> Result<Written, Error> {
        let copy = self.copy();
        let result = repo.backup_with(&copy, options, self.fs.clone());
        self.fs.remove_dir_all(&copy.1).unwrap();
        result
    }

    /// Makes a checkpoint.
    pub(crate) fn copy(&mut self) -> Copy {
        self.copies += 1;
        let dir = self.dir.with_extension(format!("copy-{}", self.copies));
        self.db.checkpoint(&dir).unwrap();
        Copy(Directory::new(&dir, options(&self.fs)), dir)
    }
}

/// A checkpoint and its directory.
pub(crate) struct Copy(pub(crate) Directory, pub(crate) PathBuf);

impl Source for Copy {
    fn pin(&self) -> Result<Pinned, Error> {
        self.0.pin()
    }
}

pub(crate) fn restore(
    repo: &Repository,
    state: &State,
    fs: &Arc<dyn FileSystem>,
    to: &Path,
) -> Result<Restored, Error> {
    let mut options = RestoreOptions::default();
    options.file_system = Some(fs.clone());
    repo.restore(state, to, &options)
}

/// Restores to a file system of its own, and returns what the database holds.
pub(crate) fn contents(repo: &Repository, state: &State) -> Map {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let restored = restore(repo, state, &fs, "/restored".as_ref()).unwrap();
    assert_eq!(restored.number, state.number);
    contents_of(&fs, "/restored".as_ref())
}

pub(crate) fn contents_of(fs: &Arc<dyn FileSystem>, dir: &Path) -> Map {
    let db = options(fs).open(dir).unwrap();
    db.verify().unwrap();
    let all = db.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    all.collect::<Result<_, _>>().unwrap()
}
