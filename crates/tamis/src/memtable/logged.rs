//! The large values of a memtable, which stay in logs.
//!
//! The memtable has a reference to each instead, as tables have to values in blob files
//! ([`Kind::PutBlob`](tamis_base::key::Kind::PutBlob)), and keeps the logs open. A value counts
//! where the memtable's size decides about its flush, since a flush ends the log; it is no memory
//! of the memtable.
//!
//! # Threads
//! A log is added before a reference into it is published, so whoever finds a reference finds the
//! log. One mutex, held for a search among a few logs.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tamis_base::ids::LogId;
use tamis_files::blob::{BlobFile, Reference};
use tamis_files::table::{PinnedValue, ReadTrace};

use crate::error::StorageError;

/// A value of fewer bytes is copied: a reference would hardly be shorter.
const LEAST_BYTES: u64 = 64;
const _: () = assert!(LEAST_BYTES as usize >= Reference::MIN_SPAN);

/// The logs that references of a memtable lead into.
#[derive(Debug)]
pub(super) struct LoggedValues {
    /// Values of at least so many bytes stay in the log.
    threshold: u64,
    logs: Mutex<Vec<Arc<BlobFile>>>,
    /// The bytes of the values.
    bytes: AtomicUsize,
}

/// Where a log has a batch, or the value of a single put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLog<'l> {
    pub(crate) log: &'l Arc<BlobFile>,
    pub(crate) offset: u64,
}

impl LoggedValues {
    /// Values from `threshold` bytes on stay in the log; none do if that is 0.
    pub(super) fn new(threshold: u64) -> LoggedValues {
        let threshold = if threshold == 0 { u64::MAX } else { threshold.max(LEAST_BYTES) };
        LoggedValues { threshold, logs: Mutex::default(), bytes: AtomicUsize::new(0) }
    }

    /// Reports whether a value of so many bytes stays in the log.
    #[inline]
    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes as u64 >= self.threshold
    }

    /// Returns the bytes of the values in logs.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns the reference to a value that the log has at the offset. Cost: a checksum.
    pub(super) fn add(&self, InLog { log, offset }: InLog<'_>, value: &[u8]) -> Reference {
        let reference = Reference::in_log(log.id(), offset, value);
        self.bytes.fetch_add(value.len(), Relaxed);
        let mut logs = self.lock();
        if logs.last().is_none_or(|last| last.id() != log.id())
            && !logs.iter().any(|known| known.id() == log.id())
        {
            logs.push(log.clone());
        }
        reference
    }

    /// Returns the logs.
    pub(super) fn logs(&self) -> Vec<Arc<BlobFile>> {
        self.lock().clone()
    }

    /// Reads the value that a reference of the memtable stands for. Errors: the log cannot be read,
    /// or does not have the value any more.
    pub(super) fn read<T: ReadTrace>(
        &self,
        reference: &[u8],
        trace: &mut T,
    ) -> Result<PinnedValue, StorageError> {
        let at = Reference::decode(reference).expect("the memtable encoded it");
        let log = self.log(at.file).expect("added before the reference");
        log.read(&at, false, trace)
    }

    fn log(&self, id: LogId) -> Option<Arc<BlobFile>> {
        self.lock().iter().find(|log| log.id() == id).cloned()
    }

    /// A push is the only change, so another thread's panic is harmless.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<BlobFile>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
