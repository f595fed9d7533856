//! One limit for reads and writes of several databases together.
//!
//! Memtables take what they need, up to half of the limit. Block caches and elastic filters get the
//! rest, which follows the memtables in steps of a 32nd of the limit. So if databases are only
//! read, all memory is for reads.
//!
//! # Threads and locks
//!
//! [`balance`](SharedWriteMemory::balance) counts all memtables without a lock, and then changes
//! the total of the memory for reads. This takes that memory's lock under the lock of the limit, so
//! `balance` must be called with no database lock held. Flush threads call it before each flush and
//! once a second. In between, memtables may grow beyond the step left to them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::memory::SharedReadMemory;
use crate::memory::balance::{Balance, reads_bytes};
use crate::memory::writes::SharedWriteMemory;
use crate::sync::Mutex;

/// One limit for the memory of several databases of one process: memtables, block caches and the
/// units of elastic filters together. A handle: clones share the same limit.
///
/// A database falls under the limit if opened with its [`reads`](Self::reads) and its
/// [`writes`](Self::writes). Memtables take up to half of the limit and are flushed as in any
/// [`SharedWriteMemory`]. Reads get the rest, in steps of a 32nd. The balance is updated before
/// each flush and once a second, so memtables that fill quickly may exceed the limit for that long.
/// Other memory (indexes, non-elastic filters) is not included: see
/// [`Db::memory_report`](crate::Db::memory_report).
///
/// ```
/// use tamis::options::MemoryLimit;
/// use tamis::Options;
///
/// # let dir = tempfile::tempdir()?;
/// let limit = MemoryLimit::new(256 << 20);
/// let options = Options::default()
///     .shared_read_memory(Some(limit.reads()))
///     .shared_write_memory(Some(limit.writes()));
/// let users = options.clone().open(dir.path().join("users"))?;
/// let events = options.open(dir.path().join("events"))?;
/// assert!(limit.reads().bytes() + limit.writes().used_bytes() <= limit.bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryLimit(Arc<Balance>, SharedWriteMemory);

debug_as!(MemoryLimit, "MemoryLimit", limit => "bytes": limit.bytes());

impl MemoryLimit {
    /// Creates a limit of this many bytes, with no databases yet.
    pub fn new(bytes: u64) -> MemoryLimit {
        let given = reads_bytes(bytes, 0);
        let balance = Arc::new(Balance {
            bytes: AtomicU64::new(bytes),
            given: Mutex::new(given),
            reads: SharedReadMemory::new(given),
        });
        MemoryLimit(balance.clone(), SharedWriteMemory::within(bytes / 2, Some(balance)))
    }

    /// Returns the limit in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    /// Changes the limit. Read memory beyond a smaller limit is evicted before this returns;
    /// memtables are flushed as databases are written to.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.bytes.store(bytes, Relaxed);
        self.1.set_bytes(bytes / 2);
        self.1.balance();
    }

    /// Returns the part for block caches and elastic filters. Do not change its total.
    pub fn reads(&self) -> SharedReadMemory {
        self.0.reads.clone()
    }

    /// Returns the part for memtables. Do not change its total.
    pub fn writes(&self) -> SharedWriteMemory {
        self.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_get_what_memtables_leave_in_steps() {
        assert_eq!(reads_bytes(3200, 0), 3100);
        assert_eq!(reads_bytes(3200, 1), 3000);
        assert_eq!(reads_bytes(3200, 100), 3000);
        assert_eq!(reads_bytes(3200, 1600), 1500);
        assert_eq!(reads_bytes(3200, u64::MAX), 0);
        assert_eq!(reads_bytes(0, 5), 0);
        for used in 0..3200 {
            let reads = reads_bytes(3200, used);
            assert!(reads + used <= 3200 && reads + used + 200 >= 3100, "{used}");
        }
    }

    #[test]
    fn a_changed_limit_changes_both_parts() {
        let limit = MemoryLimit::new(3200);
        assert_eq!((limit.reads().bytes(), limit.writes().bytes()), (3100, 1600));
        limit.set_bytes(6400);
        assert_eq!((limit.reads().bytes(), limit.writes().bytes()), (6200, 3200));
        limit.0.follow(1000);
        assert_eq!(limit.reads().bytes(), 5200);
    }
}
