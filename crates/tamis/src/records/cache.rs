//! The cache: its shards, and what they tell of it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_filter::Digest;

use super::seen::Seen;
use super::shard::{Name, Shard, Sight};
use crate::slice::Slice;
use crate::sync;

/// Larger values are not cached: each would displace many others.
const MAX_VALUE_BYTES: usize = 4 << 10;

/// A huge page. The ring of a shard is a multiple of it, if it is not smaller.
const PAGE: usize = 2 << 20;

/// A larger capacity counts as this much: tables of slots take a tenth of it from the start.
const MOST_BYTES: u64 = 1 << 30;

/// There are at most this many shards.
const MOST_SHARDS: usize = 64;

/// The records of all keyspaces of a database.
#[derive(Debug)]
pub(crate) struct RecordCache {
    shards: Box<[Shard]>,
    seen: Seen,
    capacity: AtomicU64,
    step_bytes: u64,
}

/// What the cache tells of a smaller one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordReport {
    /// Hits so far that a cache with `step_bytes` less would not have had.
    pub(crate) last_hits: u64,
    /// Bytes evicted so far.
    pub(crate) evicted_bytes: u64,
    pub(crate) step_bytes: u64,
}

impl RecordCache {
    /// An empty cache of `capacity` bytes, everything included, that may grow to `most`. It counts
    /// the hits that it owes to its last `step_bytes`.
    pub(crate) fn new(capacity: u64, most: u64, step_bytes: u64) -> RecordCache {
        let most = most.min(MOST_BYTES);
        let seen = Seen::for_capacity(most);
        let rest = most.saturating_sub(seen.memory_bytes()) as usize;
        let shards = (rest / Shard::bytes_for(PAGE)).clamp(1, MOST_SHARDS);
        let cache = RecordCache {
            shards: (0..shards).map(|_| Shard::new(0, step_bytes as usize / shards)).collect(),
            seen,
            step_bytes,
            capacity: AtomicU64::new(0),
        };
        cache.set_capacity(capacity);
        cache
    }

    #[inline]
    fn shard(&self, digest: Digest) -> &Shard {
        let low = digest.get() as u32;
        // Below the number of shards.
        &self.shards[((u64::from(low) * self.shards.len() as u64) >> 32) as usize]
    }

    #[inline]
    pub(super) fn covers(&self, digest: Digest) -> bool {
        self.shard(digest).covers(digest)
    }

    #[inline]
    pub(super) fn get(&self, name: Name<'_>, sight: Sight) -> Option<(SeqNo, Slice)> {
        let shard = self.shard(name.digest);
        if !shard.covers(name.digest) {
            return None;
        }
        shard.get(name, |record| {
            (sight.floor..=sight.edition).contains(&record.edition) && record.seq <= sight.seq
        })
    }

    #[inline]
    pub(super) fn found(
        &self,
        name: Name<'_>,
        sight: Sight,
        (seq, value): (SeqNo, &[u8]),
        allowed: impl FnOnce() -> bool,
    ) {
        let shard = self.shard(name.digest);
        if value.len() <= MAX_VALUE_BYTES && shard.covers(name.digest) && self.seen.is_second(name.digest) {
            sync::point();
            shard.insert(name, sight, (seq, value), allowed);
        }
    }

    pub(super) fn forget(&self, keyspace: KeyspaceId, digest: Digest) {
        self.shard(digest).forget(keyspace, digest);
    }

    /// Changes the capacity. Keeps the newest entries that fit.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        let capacity = capacity.min(MOST_BYTES);
        self.capacity.store(capacity, Relaxed);
        let rest = capacity.saturating_sub(self.seen.memory_bytes()) as usize / self.shards.len();
        let ring = rest.saturating_sub(Shard::bytes_for(rest) - rest);
        let ring = if ring >= PAGE { ring / PAGE * PAGE } else { ring };
        self.shards.iter().for_each(|shard| shard.resize(ring));
    }

    /// The bytes that it may hold.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    /// The bytes held, everything included.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.seen.memory_bytes() + self.shards.iter().map(|shard| shard.used_bytes() as u64).sum::<u64>()
    }

    pub(crate) fn report(&self) -> RecordReport {
        let start = RecordReport { last_hits: 0, evicted_bytes: 0, step_bytes: self.step_bytes };
        self.shards.iter().fold(start, |sum, shard| {
            let (last_hits, evicted_bytes) = shard.report();
            RecordReport {
                last_hits: sum.last_hits + last_hits,
                evicted_bytes: sum.evicted_bytes + evicted_bytes,
                ..sum
            }
        })
    }
}
