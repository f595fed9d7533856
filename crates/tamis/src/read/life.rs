//! The life of a transaction, as its iterators see it: they end with it, so that none returns what
//! was rolled back.
//!
//! Any thread may ask. The flag publishes no other memory, and whoever knows of the end by other
//! means sees it: `Relaxed` suffices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The transaction's own part: it ends when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Life(Arc<AtomicBool>);

impl Life {
    /// Returns what an iterator asks.
    pub(crate) fn ended(&self) -> Ended {
        Ended(self.0.clone())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Whether a transaction has ended.
#[derive(Debug)]
pub(crate) struct Ended(Arc<AtomicBool>);

impl Ended {
    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Relaxed)
    }
}
