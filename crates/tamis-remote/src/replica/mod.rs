//! Read replicas: a database that is read where its states are shipped to.
//!
//! A replica is a [follower](Options::open_follower) over a file system that shows one state's
//! files. Catching up is: look for a newer state, fetch the metadata of its new tables, show its
//! files, and have the follower read what has been added to manifest and logs. So a replica sees
//! states that the writer had, in their order, and each of them whole.
//!
//! # Cost
//!
//! Filters and indexes are in the replica's memory and in its cache directory. A get of an absent
//! key makes no request, except for a filter's false positives; one of a key that is there makes
//! one, for a block, unless a cache has it. A look for a newer state that is not there is one
//! request for an object that does not exist: the cheapest there is.
//!
//! # Threads
//!
//! [`Replica`] may be shared. One thread at a time catches up; readers do not wait for it. After a
//! takeover the numbers of files begin anew, so that the database is opened again: [`Replica::db`]
//! then returns another handle.

mod blocks;
mod fs;
mod kept;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tamis::io::{DirLock, DiskFs, FileSystem};
use tamis::options::ReadMode;
use tamis::{Db, OpenError, Options, StorageError};

use crate::error::Error;
use crate::parallel::locked;
use crate::repository::Repository;
use crate::state::State;
use crate::store::{Requests, Transfer};
use blocks::Blocks;
use fs::RemoteFs;
use kept::Kept;

/// States in a row that are fetched one by one; a replica that is further behind lists them and
/// takes the newest.
const IN_A_ROW: usize = 4;

/// Looks without success after which states are listed: the next number may be missing because it
/// was pruned.
const LOOKS: u32 = 20;

/// So they are after the first look without success, if they have not been for so long.
const LIST_EVERY: Duration = Duration::from_secs(60);

/// How a replica is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplicaOptions {
    /// The bytes of blocks that are kept in local files: 1 GiB. Metadata and logs come on top of
    /// it.
    pub cache_bytes: u64,
    /// How often it catches up by itself; `None`, the default, for when it is told to.
    pub follow_interval: Option<Duration>,
    /// Operators, memory, cache sizes and so on. What says where files are and how they are read is
    /// replaced.
    pub options: Options,
    /// Where the cache is; the operating system's files by default.
    pub cache_file_system: Option<Arc<dyn FileSystem>>,
}

impl Default for ReplicaOptions {
    fn default() -> ReplicaOptions {
        ReplicaOptions {
            cache_bytes: 1 << 30,
            follow_interval: None,
            options: Options::default(),
            cache_file_system: None,
        }
    }
}

/// What a replica has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStats {
    /// The state that it shows.
    pub state: u64,
    /// When that was written, by its writer's clock.
    pub created: Option<SystemTime>,
    /// Requests since it was opened.
    pub requests: Requests,
    /// Reads of blocks that the local cache had.
    pub cache_hits: u64,
    /// Reads of blocks that it did not have.
    pub cache_misses: u64,
    /// Bytes of blocks in the local cache.
    pub cache_bytes: u64,
}

/// A database that is read from a repository.
#[derive(Debug)]
pub struct Replica {
    shared: Arc<Shared>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    repo: Repository,
    fs: RemoteFs,
    path: PathBuf,
    options: Options,
    db: RwLock<Db>,
    progress: Mutex<Progress>,
    shown: Mutex<(u64, SystemTime)>,
    /// Of the cache directory.
    _lock: Box<dyn DirLock>,
}

/// Held by whoever catches up.
#[derive(Debug)]
struct Progress {
    /// The state whose files are shown.
    number: u64,
    epoch: u64,
    created: SystemTime,
    /// That of the database.
    db_epoch: u64,
    /// Looks since a newer state was found.
    looks: u32,
    /// When states were listed last, by a look.
    listed: Option<Instant>,
    /// Whether the database has not got to this state yet.
    behind: bool,
}

/// Opens a replica of the database whose states are in the repository at `url`.
///
/// # Errors
///
/// As [`Repository::open_replica`].
pub fn open_replica(url: &str, cache_dir: &Path, options: ReplicaOptions) -> Result<Replica, Error> {
    Repository::open(url, Transfer::default())?.open_replica(cache_dir, options)
}

impl Repository {
    /// Opens a replica. `cache_dir` is its own; it is created, may be lost at any time when no
    /// replica has it open.
    ///
    /// # Errors
    ///
    /// When there is no state, the store cannot be reached, or the cache directory cannot be used,
    /// or is in use.
    pub fn open_replica(&self, cache_dir: &Path, options: ReplicaOptions) -> Result<Replica, Error> {
        let local: Arc<dyn FileSystem> =
            options.cache_file_system.unwrap_or_else(|| Arc::new(DiskFs::without_mapping()));
        local.create_dir_all(cache_dir).map_err(Error::io(cache_dir.display()))?;
        let lock = local.lock(&cache_dir.join("LOCK")).map_err(Error::io(cache_dir.display()))?;
        let Some(lock) = lock else {
            let used = std::io::Error::new(std::io::ErrorKind::ResourceBusy, "another replica has it open");
            return Err(Error::io(cache_dir.display())(used));
        };
        let blocks = Blocks::open(local.clone(), cache_dir, options.cache_bytes)?;
        // A name for messages; nothing is there.
        let path = cache_dir.join("replica");
        let fs = RemoteFs::new(self, &path, blocks, Kept::new(local, cache_dir));
        let mut db_options = options.options;
        db_options.file_system = Some(Arc::new(fs.clone()));
        db_options.read_mode = ReadMode::Buffered;
        db_options.follow_interval = None;
        db_options.recover_to = None;
        let (state, db) = self.first(&fs, &path, &db_options)?;
        let progress = Progress {
            number: state.number,
            epoch: state.epoch,
            created: state.created,
            db_epoch: state.epoch,
            looks: 0,
            listed: None,
            behind: false,
        };
        let shared = Arc::new(Shared {
            repo: self.clone(),
            fs,
            path,
            options: db_options,
            db: RwLock::new(db),
            progress: Mutex::new(progress),
            shown: Mutex::new((state.number, state.created)),
            _lock: lock,
        });
        let mut replica = Replica { shared, end: None, thread: None };
        if let Some(interval) = options.follow_interval {
            let (end, ended) = mpsc::channel();
            let shared = replica.shared.clone();
            let thread = std::thread::Builder::new().name("tamis-replica".into());
            let thread = thread.spawn(move || {
                while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    if let Err(error) = shared.catch_up() {
                        log::warn!("the replica could not catch up: {error}");
                    }
                }
            });
            replica.thread = Some(thread.map_err(Error::io("thread tamis-replica"))?);
            replica.end = Some(end);
        }
        Ok(replica)
    }

    /// Opens the newest state. Once more if a prune removed it meanwhile.
    fn first(&self, fs: &RemoteFs, path: &Path, options: &Options) -> Result<(State, Db), Error> {
        let (mut attempts, mut forgot) = (0, false);
        loop {
            let state = self.newest()?.ok_or_else(|| Error::NoState { what: "state".into() })?;
            let opened = fs.prepare(&state).and_then(|()| {
                fs.show(&state);
                Ok(options.clone().open_follower(path)?)
            });
            match opened {
                Ok(db) => return Ok((state, db)),
                Err(error) if is_damage(&error) && !forgot => {
                    log::warn!("state {} is fetched again: {error}", state.number);
                    fs.forget();
                    forgot = true;
                }
                Err(error) if attempts < 3 && self.newest_number()? != Some(state.number) => {
                    log::info!("state {} could not be opened: {error}", state.number);
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Replica {
    /// Returns the database. The handle stays good, and follows, until a takeover; after one it
    /// shows the state before it for ever.
    pub fn db(&self) -> Db {
        self.shared.db.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Looks for a newer state and shows it; returns the last sequence number shown.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached, or a state is damaged. What was shown stays, and a later
    /// call may succeed.
    pub fn catch_up(&self) -> Result<u64, Error> {
        self.shared.catch_up()
    }

    /// Forgets what the cache directory holds, so that it is fetched again. For when a read reports
    /// damage: what was damaged on its way from the store would otherwise be in the cache for as
    /// long as it is read. If the damage is in the store, it is there again.
    pub fn forget_cache(&self) {
        self.shared.fs.forget();
    }

    /// Returns what the replica shows, and what it has cost.
    pub fn stats(&self) -> ReplicaStats {
        let (state, created) = *locked(&self.shared.shown);
        let (cache_hits, cache_misses, cache_bytes) = self.shared.fs.blocks().counts();
        let requests = self.shared.repo.requests();
        ReplicaStats { state, created: Some(created), requests, cache_hits, cache_misses, cache_bytes }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether the engine found damage, which may be that of the cache.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Open(OpenError::Storage(StorageError::Corrupt(_))))
}

impl Shared {
    fn catch_up(&self) -> Result<u64, Error> {
        let result = self.catch_up_once();
        if result.as_ref().is_err_and(is_damage) {
            // The next call fetches again.
            self.fs.forget();
        }
        result
    }

    fn catch_up_once(&self) -> Result<u64, Error> {
        let mut progress = locked(&self.progress);
        if let Some(state) = self.look(&mut progress)? {
            self.fs.prepare(&state)?;
            self.fs.show(&state);
            (progress.number, progress.epoch, progress.created) = (state.number, state.epoch, state.created);
            progress.behind = true;
        }
        let db = self.db.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        if !progress.behind {
            return Ok(db.snapshot().seq());
        }
        // If this fails, readers have what they had: what is open stays the file that it was.
        let seq = if progress.epoch == progress.db_epoch {
            db.catch_up()?
        } else {
            let db = self.options.clone().open_follower(&self.path)?;
            let seq = db.snapshot().seq();
            *self.db.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = db;
            progress.db_epoch = progress.epoch;
            seq
        };
        progress.behind = false;
        *locked(&self.shown) = (progress.number, progress.created);
        Ok(seq)
    }

    /// Looks for a state newer than the one that is shown.
    fn look(&self, progress: &mut Progress) -> Result<Option<State>, Error> {
        let mut found: Option<State> = None;
        let shown = progress.number;
        let number = |found: &Option<State>| found.as_ref().map_or(shown, |state| state.number);
        let long_ago = progress.listed.is_none_or(|listed| listed.elapsed() >= LIST_EVERY);
        for _ in 0..IN_A_ROW {
            match self.repo.state_if_there(number(&found) + 1)? {
                Some(state) => found = Some(state),
                None if found.is_none() && (long_ago || progress.looks >= LOOKS) => break,
                None => {
                    progress.looks = if found.is_some() { 0 } else { progress.looks + 1 };
                    return Ok(found);
                }
            }
        }
        // There may be many more, or the next one is missing.
        progress.looks = 0;
        let states = self.repo.states_after(number(&found))?;
        progress.listed = Some(Instant::now());
        match states.last() {
            Some(newest) => Ok(self.repo.state_if_there(newest.number)?.or(found)),
            None => Ok(found),
        }
    }
}
