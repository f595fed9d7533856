//! A keyspace's part in the record cache: who may add records, and when.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(not(all(test, loom)))]
use AtomicU64 as GateCell;
#[cfg(all(test, loom))]
use loom::sync::atomic::AtomicU64 as GateCell;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_filter::Digest;

use super::cache::RecordCache;
use super::shard::{Name, Sight};
use crate::slice::Slice;

/// The records of one keyspace. See the [module documentation](super).
#[derive(Debug)]
pub(crate) struct KeyspaceRecords {
    keyspace: KeyspaceId,
    cache: Arc<RecordCache>,
    gate: Gate,
    /// The floor of the last version. Written under the `state` lock.
    floor: AtomicU64,
    /// Whether a pass has removed the keys of the flush that is about to be published. Read and
    /// written under the `state` lock.
    passed: AtomicBool,
}

impl KeyspaceRecords {
    pub(crate) fn new(keyspace: KeyspaceId, cache: Arc<RecordCache>) -> KeyspaceRecords {
        KeyspaceRecords {
            keyspace,
            cache,
            gate: Gate::new(),
            floor: AtomicU64::new(0),
            passed: AtomicBool::new(false),
        }
    }

    /// Reports whether records of this digest are cached at present.
    #[inline]
    pub(crate) fn covers(&self, digest: Digest) -> bool {
        self.cache.covers(digest)
    }

    /// Returns the newest version of the key in the runs that `sight` sees, if it is cached.
    #[inline]
    pub(crate) fn get(&self, sight: Sight, digest: Digest, key: &[u8]) -> Option<(SeqNo, Slice)> {
        self.cache.get(Name { keyspace: self.keyspace, digest, key }, sight)
    }

    /// Takes note that a read found this version, the newest of the runs that it saw. One that is
    /// found again soon is cached.
    #[inline]
    pub(crate) fn found(&self, sight: Sight, digest: Digest, key: &[u8], record: (SeqNo, &[u8])) {
        let name = Name { keyspace: self.keyspace, digest, key };
        self.cache.found(name, sight, record, || self.gate.is_open(sight.edition));
    }

    /// Begins a change of what the runs hold, other than by a merge. `edition` returns the version
    /// in force.
    pub(crate) fn pass<E: Fn() -> u64>(&self, edition: E) -> Pass<'_, E> {
        self.gate.close();
        Pass { records: self, edition }
    }

    /// Returns the floor of the next version, `edition`. `change` is what distinguishes its runs from
    /// those before. Called under the `state` lock.
    pub(crate) fn next_floor(&self, edition: u64, change: RunsChange) -> u64 {
        let passed = self.passed.swap(false, Relaxed);
        match change {
            RunsChange::Merged => {}
            RunsChange::Flushed if passed => {}
            RunsChange::Flushed | RunsChange::Other => self.floor.store(edition, Relaxed),
        }
        self.floor.load(Relaxed)
    }
}

/// What changed from one version's runs to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunsChange {
    /// They have the same newest versions of all keys.
    Merged,
    /// They have what was in memtables, too.
    Flushed,
    /// Anything.
    Other,
}

/// A pass through the keys of a flush. It begins before the first record is removed, and is dropped
/// under the `state` lock once the version is published, or will not be.
pub(crate) struct Pass<'k, E: Fn() -> u64> {
    records: &'k KeyspaceRecords,
    edition: E,
}

impl<E: Fn() -> u64> Pass<'_, E> {
    /// Removes the record of a key, or of another one with its digest.
    pub(crate) fn forget(&self, digest: Digest) {
        self.records.cache.forget(self.records.keyspace, digest);
    }

    /// Says that every key of the version that is published next was forgotten. Called under the
    /// `state` lock.
    pub(crate) fn complete(&self) {
        self.records.passed.store(true, Relaxed);
    }
}

impl<E: Fn() -> u64> fmt::Debug for Pass<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("records", self.records).finish_non_exhaustive()
    }
}

impl<E: Fn() -> u64> Drop for Pass<'_, E> {
    fn drop(&mut self) {
        self.records.passed.store(false, Relaxed);
        self.records.gate.reopen((self.edition)());
    }
}

/// Whether reads may add records. Asked under the lock of the record's shard.
#[derive(Debug)]
struct Gate {
    /// The number of passes in progress. Reads add no records meanwhile.
    passes: GateCell,
    /// The version that the last pass published.
    since: GateCell,
}

impl Gate {
    fn new() -> Gate {
        Gate { passes: GateCell::new(0), since: GateCell::new(0) }
    }

    /// Reports whether a read of version `edition` may add what it finds: no pass has begun since
    /// that version.
    fn is_open(&self, edition: u64) -> bool {
        // A pass that has come to the shard before is seen, by the shard's lock: either in
        // progress, or at its end, which published `since` first.
        self.passes.load(Acquire) == 0 && self.since.load(Relaxed) <= edition
    }

    fn close(&self) {
        self.passes.fetch_add(1, Relaxed);
    }

    /// `edition` is the version in force.
    fn reopen(&self, edition: u64) {
        self.since.fetch_max(edition, Relaxed);
        self.passes.fetch_sub(1, Release);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::atomic::AtomicU64;
    use loom::sync::atomic::Ordering::{Acquire, Release};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::Gate;

    /// A key is in the run of version 0, and a flush brings a newer one in version 1. Whatever a
    /// reader adds, what stays is of version 1.
    #[test]
    fn what_an_old_reader_found_does_not_outlive_a_flush() {
        loom::model(|| {
            let gate = Arc::new(Gate::new());
            let version = Arc::new(AtomicU64::new(0));
            let shard: Arc<Mutex<Option<u64>>> = Arc::new(Mutex::new(None));
            let flush = {
                let (gate, version, shard) = (gate.clone(), version.clone(), shard.clone());
                thread::spawn(move || {
                    gate.close();
                    *shard.lock().unwrap() = None;
                    version.store(1, Release);
                    gate.reopen(1);
                })
            };
            let read = {
                let (gate, version, shard) = (gate.clone(), version.clone(), shard.clone());
                thread::spawn(move || {
                    let edition = version.load(Acquire);
                    let mut shard = shard.lock().unwrap();
                    if gate.is_open(edition) {
                        *shard = Some(edition);
                    }
                })
            };
            flush.join().unwrap();
            read.join().unwrap();
            assert_ne!(*shard.lock().unwrap(), Some(0));
        });
    }
}
