//! The memory that writes leave for reads. See [`limit`](super::limit).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::memory::SharedReadMemory;
use crate::sync::Mutex;

/// A step is the limit divided by this.
const STEPS: u64 = 32;

/// The memory that writes leave for reads.
#[derive(Debug)]
pub(crate) struct Balance {
    pub(crate) bytes: AtomicU64,
    /// The last total set for reads. Locked while setting it, so that this matches the total set
    /// last.
    pub(crate) given: Mutex<u64>,
    pub(crate) reads: SharedReadMemory,
}

impl Balance {
    /// Gives reads what memtables of `used` bytes leave. Do not call with a database lock held.
    pub(super) fn follow(&self, used: u64) {
        let mut given = self.given.lock();
        let bytes = reads_bytes(self.bytes.load(Relaxed), used);
        if *given != bytes {
            self.reads.set_bytes(bytes);
            *given = bytes;
        }
    }
}

/// Returns what reads may have of a limit while memtables take `used` bytes. Leaves memtables room
/// to grow by one more step.
pub(crate) fn reads_bytes(limit: u64, used: u64) -> u64 {
    let step = (limit / STEPS).max(1);
    limit.saturating_sub(used.div_ceil(step).saturating_add(1).saturating_mul(step))
}
