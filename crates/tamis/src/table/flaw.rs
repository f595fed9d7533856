//! Damage that was met in an open table.
//!
//! Every read that finds bytes which are not what was written notes it here, whoever reads: a get, an iterator, a compaction, an
//! examination. A table with a flaw is left alone by compactions, which could only fail; what can be read of it is read.
//!
//! # Threads
//!
//! Any thread may note a flaw at any time. The flag is for whoever only wants to know that there is none, and publishes nothing
//! (`Relaxed`): the words are behind the mutex, which is a leaf.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::error::StorageError;
use crate::sync::Mutex;

/// The first damage that was met in a table.
#[derive(Debug, Default)]
pub(crate) struct Flaw {
    known: AtomicBool,
    first: Mutex<Option<StorageError>>,
}

impl Flaw {
    /// Notes damage, unless some is known.
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

    /// Forgets it: all of the table was read since, and found to be sound. What was met was damage on the way, or was mended.
    pub(crate) fn forget(&self) {
        *self.first.lock() = None;
        self.known.store(false, Relaxed);
    }
}
