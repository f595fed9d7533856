//! Damage found in an open table.
//!
//! Every read that finds damaged bytes records it here: a get, an iterator, a compaction, an
//! examination. Compactions skip a table of which a part cannot be read, as they could only fail;
//! its readable parts stay readable. A value in a blob file that cannot be read stops none: they
//! carry the reference along, to a table without a flaw, until a get or an examination meets it
//! there.
//!
//! # Threads
//!
//! Any thread may record a flaw at any time. The flag serves callers that only need to know whether
//! there is one, and publishes nothing (`Relaxed`): the text is behind the mutex, which is a leaf.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tamis_env::sync::Mutex;

use crate::error::StorageError;

/// The first damage found in a table.
#[derive(Debug, Default)]
pub struct Flaw {
    known: AtomicBool,
    /// Whether it is one of the table itself.
    stops_merges: AtomicBool,
    first: Mutex<Option<StorageError>>,
}

impl Flaw {
    /// Records damage of the table, unless some is already recorded.
    #[cold]
    pub fn note(&self, error: &StorageError) {
        self.note_value(error);
        self.stops_merges.store(true, Relaxed);
    }

    /// Records that a value which the table refers to is damaged or missing, unless damage is
    /// already recorded.
    #[cold]
    pub fn note_value(&self, error: &StorageError) {
        self.first.lock().get_or_insert_with(|| error.clone());
        self.known.store(true, Relaxed);
    }

    /// Reports whether reading all of the table would fail.
    pub fn stops_merges(&self) -> bool {
        self.stops_merges.load(Relaxed)
    }

    pub fn get(&self) -> Option<StorageError> {
        if self.known.load(Relaxed) { self.first.lock().clone() } else { None }
    }

    /// Clears the flaw after the whole table was read and found intact: the damage was transient,
    /// or has been repaired.
    pub fn forget(&self) {
        *self.first.lock() = None;
        self.known.store(false, Relaxed);
        self.stops_merges.store(false, Relaxed);
    }
}
