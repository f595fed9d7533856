//! Space on the device held in reserve for work that frees space.
//!
//! On a full disk nothing could be deleted either: a delete is a write, and so is the compaction
//! that drops the deleted data. Two mechanisms keep room for both.
//!
//! * **Before a log grows**, the free space is compared with what would then be needed to flush
//!   everything in memory, to merge afterwards, and to rewrite the manifest. If it is too little,
//!   the disk counts as *full*: only work that frees space is accepted, and all other writes are
//!   refused ([`WriteError::Suspended`]) until half as much again is free. So a flush always fits,
//!   however small the disk is. As space gets scarce, [logs](crate::log) are kept short, so that
//!   little is needed.
//! * **Others may fill the disk** at any time. So a file of zeros, `RESERVE`, holds space. It is
//!   released when a log write, a flush, a keyspace drop or a delayed start runs out of space, or
//!   when a compaction needs it. From then on the disk counts as full, too.
//!
//! The file's size is a sixteenth of the bytes of tables and blob files, or more if the logs hold
//! more, since their contents are flushed first. It is at most
//! [`reserve_bytes`](crate::Options::reserve_bytes), and at most a quarter of the tables' bytes
//! while space is plentiful. The file is created when four times its size is free, and again when
//! the size that it should have has doubled or halved. Nothing depends on its contents, its length,
//! or its existence: it is not synced, and a power failure may lose it.
//!
//! # Threads
//!
//! The flush thread creates the file. It is released by the flush thread, by a thread that begins a
//! delayed session, or by one that drops a keyspace. All hold the mutex. Since the file system may
//! be slow, the mutex is taken with no other lock held, except that of a delayed start. The rest
//! are flags and counters that publish nothing (`Relaxed`). After a panic under the mutex the
//! file's length is unknown, but nothing depends on it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use tamis_files::tree::files::reserve_path;
use tamis_files::wal::ops::BatchOp;

use crate::batch::WriteBatch;
use crate::error::{StorageError, WriteError};
use crate::gate::room::{Room, human};
use crate::io::{FileSystem, Usage};
use crate::observe::warnings::Warnings;
use crate::observe::write_counters::WriteCounters;
use crate::options::Options;
use crate::read::MemtableSlot;
use crate::sync::{self, Mutex};

/// The reserve is the tables' bytes divided by this.
const PART_OF_TABLES: u64 = 16;

/// It may be larger to hold the contents of logs, but while space is plentiful at most the tables'
/// bytes divided by this.
const MOST_OF_TABLES: u64 = 4;

/// Space is plentiful as long as this many times the size of all logs is free.
const MUCH: u64 = 16;

/// Its length is a multiple of this, in bytes.
const STEP: u64 = 64 << 10;

/// It is created when this many times its size is free.
const FREE_TO_MAKE: u64 = 4;

/// At least this much is kept free in addition to the room for a flush: for deletes, and for the
/// merges that drop what they hide.
const KEPT_FREE: u64 = 64 << 10;

/// The free space is compared with what is in memory each time this many bytes have been logged.
pub(crate) const LOOK_AFTER: u64 = 16 << 10;

/// How often its length is checked.
const LOOK: Duration = Duration::from_millis(100);

/// The reserve of an open database.
#[derive(Debug)]
pub(crate) struct Reserve {
    dir: PathBuf,
    fs: Arc<dyn FileSystem>,
    /// The most bytes that it may take.
    most: u64,
    room: Arc<Room>,
    counters: Arc<WriteCounters>,
    warnings: Arc<Warnings>,
    /// The file's length.
    held: AtomicU64,
    /// Whether only work that frees space is accepted.
    full: AtomicBool,
    /// Whether the remaining room is for range deletes and drops only.
    pub(crate) scarce: AtomicBool,
    /// Whether a compaction ran out of room.
    wanted: AtomicBool,
    /// While the disk is full: the bytes that were released, or that must be kept free.
    missing: AtomicU64,
    /// The bytes of the trees when the file was last checked.
    stored: AtomicU64,
    /// The manifest's length at that time.
    manifest: AtomicU64,
    /// The bytes logged by the time the free space was last checked.
    pub(crate) looked: AtomicU64,
    keeping: Mutex<Keeping>,
}

#[derive(Debug, Default)]
struct Keeping {
    looked: Option<Instant>,
    /// Whether the file system cannot reserve space.
    impossible: bool,
}

impl Reserve {
    pub(crate) fn new(
        dir: PathBuf,
        fs: &Arc<dyn FileSystem>,
        options: &Options,
        room: &Arc<Room>,
        counters: &Arc<WriteCounters>,
        warnings: &Arc<Warnings>,
    ) -> Reserve {
        Reserve {
            dir,
            fs: fs.clone(),
            most: options.reserve_bytes,
            room: room.clone(),
            counters: counters.clone(),
            warnings: warnings.clone(),
            held: AtomicU64::new(0),
            full: AtomicBool::new(false),
            scarce: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            missing: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            manifest: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            keeping: Mutex::default(),
        }
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Reports whether only work that frees space is accepted.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Accepts only work that frees space from now on, until one and a half times `bytes` are free.
    pub(crate) fn fill(&self, bytes: u64, why: &str) {
        self.missing.fetch_max(bytes, Relaxed);
        if !self.full.swap(true, Relaxed) {
            self.warnings.add(format!("{why}: {}", self.trouble()));
        }
    }

    /// Records that compactions need the reserved space.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Relaxed);
    }

    /// Returns an error if the batch is refused.
    #[inline]
    pub(crate) fn admit(&self, batch: &WriteBatch) -> Result<(), WriteError> {
        if !self.is_full() || frees_room(batch) {
            return Ok(());
        }
        self.refuse()
    }

    /// Returns an error if a group of batches that makes the log grow is refused.
    pub(crate) fn admit_growth(&self, batches: &[&WriteBatch]) -> Result<(), WriteError> {
        let frees = if self.scarce.load(Relaxed) { frees_much } else { frees_room };
        if !self.is_full() || batches.iter().all(|batch| frees(batch)) { Ok(()) } else { self.refuse() }
    }

    /// Returns an error if writes that use space permanently are refused.
    #[cold]
    pub(crate) fn refuse(&self) -> Result<(), WriteError> {
        match self.is_full() {
            true => Err(WriteError::Suspended { cause: self.trouble() }),
            false => Ok(()),
        }
    }

    pub(crate) fn trouble(&self) -> String {
        let what = if self.scarce.load(Relaxed) { "range deletes and drops" } else { "deletes" };
        let bytes = human(self.needed());
        format!("no storage space is left for more: only {what} are accepted until {bytes} are free")
    }

    /// Returns the bytes that must be free before all writes are accepted again.
    fn needed(&self) -> u64 {
        let bytes = self.missing.load(Relaxed);
        bytes.saturating_add(bytes / 2).saturating_add(STEP)
    }

    /// Returns the bytes to keep free, in the file or outside it, after `to_flush` bytes in memory
    /// are flushed: as much as the file would have, and room for the manifest's successor.
    pub(crate) fn kept(&self, to_flush: u64) -> u64 {
        let part = self.stored.load(Relaxed).saturating_add(to_flush) / PART_OF_TABLES;
        part.saturating_add(self.manifest.load(Relaxed)).min(self.most).max(KEPT_FREE)
    }

    /// Returns the length that the file should have for this many bytes of tables and logs.
    fn target(&self, tables: u64, logs: u64, free: Option<u64>) -> u64 {
        // The contents of logs must reach tables before anything else can continue.
        let is_much = free.is_none_or(|free| free >= logs.saturating_mul(MUCH));
        let logs = if is_much { logs.min(tables / MOST_OF_TABLES) } else { logs };
        let target = (tables / PART_OF_TABLES).next_multiple_of(STEP).min(tables / MOST_OF_TABLES);
        target.max(logs).min(self.most) / STEP * STEP
    }

    /// At opening: accounts for the file left by an earlier session, and releases it if less than
    /// its size is free.
    pub(crate) fn find(&self) {
        let held = self.fs.file_len(&reserve_path(&self.dir)).unwrap_or(0);
        self.held.store(held, Relaxed);
        let free = self.fs.available_space(&self.dir).unwrap_or_default();
        if free.is_some_and(|free| free < held) {
            self.spend();
        }
    }

    /// Releases the reserve. Returns `false` if there is none. Called with no lock of the engine
    /// held.
    pub(crate) fn spend(&self) -> bool {
        let _keeping = self.keeping.lock();
        let held = self.held();
        if held == 0 {
            return false;
        }
        let path = reserve_path(&self.dir);
        match self.fs.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                log::warn!("could not release {}: {e}", path.display());
                return false;
            }
            _ => {}
        }
        self.held.store(0, Relaxed);
        self.counters.reserves_spent.add(1);
        self.room.outdated();
        self.fill(held, &format!("the reserve of {} was released", human(held)));
        true
    }

    pub(crate) fn spend_if_wanted(&self) -> bool {
        self.wanted.swap(false, Relaxed) && self.spend()
    }

    /// Creates the file, or changes its length to follow the `bytes` of tables, manifest and logs,
    /// if that is due and there is room. Accepts all writes again once there is enough room.
    pub(crate) fn follow(&self, bytes: impl FnOnce() -> (u64, u64, u64)) {
        let mut keeping = self.keeping.lock();
        if keeping.looked.is_some_and(|at| sync::since(at) < LOOK) {
            return;
        }
        keeping.looked = Some(sync::now());
        let (tables, manifest, logs) = bytes();
        self.stored.store(tables, Relaxed);
        self.manifest.store(manifest, Relaxed);
        let free = self.fs.available_space(&self.dir).unwrap_or_default();
        let (target, held) = (self.target(tables, logs, free), self.held());
        let has = |needed: u64| free.is_none_or(|free| free.saturating_add(held) >= needed);
        let was_full = self.is_full();
        if was_full && !has(self.needed().saturating_add(for_tables(logs))) {
            return;
        }
        let fits = held / 2 < target && target < held.saturating_mul(2) || held == target;
        if !keeping.impossible && !fits && (was_full || has(target.saturating_mul(FREE_TO_MAKE))) {
            match self.make_reserve(target) {
                Ok(made) => {
                    // A database that has shrunk meanwhile needs none.
                    keeping.impossible = made < target;
                    self.held.store(made, Relaxed);
                }
                Err(error) => {
                    log::debug!("{}: no reserve: {error}", self.dir.display());
                    let _ = self.fs.remove(&reserve_path(&self.dir));
                    self.held.store(0, Relaxed);
                    return;
                }
            }
            self.room.outdated();
        }
        if was_full {
            self.missing.store(0, Relaxed);
            self.full.store(false, Relaxed);
            self.scarce.store(false, Relaxed);
            self.warnings.add("there is room again: all writes are accepted".to_owned());
        }
    }

    /// Creates the file with `bytes` bytes, replacing any existing one. Returns its length, or 0 if
    /// the file system cannot reserve space.
    fn make_reserve(&self, bytes: u64) -> Result<u64, StorageError> {
        let path: PathBuf = reserve_path(&self.dir);
        let io = |operation, e| StorageError::io(operation, &path, e);
        if bytes == 0 {
            return match self.fs.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io("remove", e)),
                _ => Ok(0),
            };
        }
        let mut file = self.fs.create(&path, Usage::Log).map_err(|e| io("create", e))?;
        file.preallocate(bytes).map_err(|e| io("reserve room in", e))?;
        drop(file);
        let made = self.fs.file_len(&path).map_err(|e| io("read", e))?;
        if made < bytes {
            self.fs.remove(&path).map_err(|e| io("remove", e))?;
            return Ok(0);
        }
        Ok(made)
    }
}

/// Reports whether a batch holds nothing but deletes.
pub(crate) fn frees_room(batch: &WriteBatch) -> bool {
    let frees = |op: BatchOp<'_>| matches!(op, BatchOp::Delete { .. } | BatchOp::DeleteRange { .. });
    batch.ops().flatten().all(frees)
}

/// Reports whether a batch holds nothing but range deletes.
fn frees_much(batch: &WriteBatch) -> bool {
    batch.ops().flatten().all(|op| matches!(op, BatchOp::DeleteRange { .. }))
}

/// Returns the space for tables of this many bytes, including the file system's overhead.
pub(crate) fn for_tables(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}

/// Returns an upper bound on the bytes of the table and blob files that a memtable will become.
pub(crate) fn bytes_of(slot: &Arc<MemtableSlot>) -> u64 {
    /// A head, a filter's bits, and a part of the index.
    const OF_ENTRY: u64 = 24;
    slot.memtable.data_bytes() as u64 + slot.memtable.entries() as u64 * OF_ENTRY
}

#[cfg(test)]
mod tests;
