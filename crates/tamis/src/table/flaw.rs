//! Damage found in an open table.
//!
//! Every read that finds damaged bytes records it here: a get, an iterator, a compaction, an examination. Compactions skip a
//! table with a flaw, as they could only fail; its readable parts stay readable.
//!
//! # Threads
//!
//! Any thread may record a flaw at any time. The flag serves callers that only need to know whether there is one, and publishes
//! nothing (`Relaxed`): the text is behind the mutex, which is a leaf.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::error::StorageError;
use crate::sync::Mutex;

/// The first damage found in a table.
#[derive(Debug, Default)]
pub(crate) struct Flaw {
    known: AtomicBool,
    first: Mutex<Option<StorageError>>,
}

impl Flaw {
    /// Records damage, unless some is already recorded.
    #[cold]
    pub(crate) fn note(&self, error: &StorageError) {
        self.first.lock().get_or_insert_with(|| error.clone());
        self.known.store(true, Relaxed);
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }

    pub(crate) fn get(&self) -> Option<StorageError> {
        if self.is_known() { self.first.lock().clone() } else { None }
    }

    /// Clears the flaw after the whole table was read and found intact: the damage was transient, or has been repaired.
    pub(crate) fn forget(&self) {
        *self.first.lock() = None;
        self.known.store(false, Relaxed);
    }
}
