//! Records damage found in an open table.
//!
//! Every read that finds damaged bytes records it here: a get, an iterator, a compaction or a
//! check. Compactions skip a table with an unreadable part, as they could only fail; its other
//! parts stay readable. An unreadable value in a blob file stops no compaction: it carries the
//! reference along to a new table, whose flaw is unset until a get or a check finds the value
//! there.
//!
//! # Threads
//!
//! Any thread may record a flaw at any time. The flags only tell whether there is a flaw and
//! publish nothing (`Relaxed`). The error is behind the mutex, which is a leaf.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tamis_env::sync::Mutex;

use crate::error::StorageError;

/// The first damage found in a table.
#[derive(Debug, Default)]
pub struct Flaw {
    known: AtomicBool,
    /// Whether the table itself is damaged.
    stops_merges: AtomicBool,
    first: Mutex<Option<StorageError>>,
}

impl Flaw {
    /// Records damage to the table itself. Only the first error is kept.
    #[cold]
    pub fn note(&self, error: &StorageError) {
        self.note_value(error);
        self.stops_merges.store(true, Relaxed);
    }

    /// Records that a blob value of the table is damaged or missing. Only the first error is kept.
    #[cold]
    pub fn note_value(&self, error: &StorageError) {
        self.first.lock().get_or_insert_with(|| error.clone());
        self.known.store(true, Relaxed);
    }

    /// Reports whether reading the whole table would fail.
    pub fn stops_merges(&self) -> bool {
        self.stops_merges.load(Relaxed)
    }

    pub fn get(&self) -> Option<StorageError> {
        if self.known.load(Relaxed) { self.first.lock().clone() } else { None }
    }

    /// Clears the flaw after the whole table was read and found intact: the damage was transient or
    /// has been repaired.
    pub fn forget(&self) {
        *self.first.lock() = None;
        self.known.store(false, Relaxed);
        self.stops_merges.store(false, Relaxed);
    }
}
