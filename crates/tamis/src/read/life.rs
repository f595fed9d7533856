//! A transaction's life, as its iterators see it. They end with it, so none returns rolled-back
//! data.
//!
//! Any thread may ask. The flag publishes no other memory, and a thread that knows of the end by
//! other means sees it: `Relaxed` suffices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The transaction's part. The life ends when this drops.
#[derive(Debug, Default)]
pub(crate) struct Life(Arc<AtomicBool>);

impl Life {
    /// Returns the part that iterators ask.
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
