//! The cache of uncompressed blocks and of metadata that is not pinned.
//!
//! Mapped, uncompressed blocks never come here: the operating system's page cache holds them already.
//!
//! Entries are spread over shards by a mix of (table, offset), not by a key's digest: one block serves many
//! keys, and they must all find it in the same shard. Every method may be called from any thread; a shard's
//! lock is held for a table lookup, never across a read from a file.

use std::any::Any;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::table::{HeapBlock, Index};

/// Names a block: the table's number and the block's offset in its file. Tables' numbers are never used
/// twice, so entries of deleted tables are harmless and age out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    /// The table's number.
    pub(crate) table: u64,
    /// The block's offset in the file.
    pub(crate) offset: u64,
}

/// What the cache holds; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum CacheEntry {
    /// A data block.
    Block(HeapBlock),
    /// The index of a table.
    Index(Arc<Index>),
    /// A filter, in whatever form its user wants it back, and its memory in bytes.
    Filter(Arc<dyn Any + Send + Sync>, usize),
}

impl CacheEntry {
    fn bytes(&self) -> usize {
        match self {
            CacheEntry::Block(block) => block.bytes.len(),
            CacheEntry::Index(index) => index.memory_bytes(),
            CacheEntry::Filter(_, bytes) => *bytes,
        }
    }
}

/// What an entry costs beyond its bytes: the cache's own slot and the allocation's head.
const ENTRY_OVERHEAD: usize = 96;

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<CacheKey, CacheEntry> for ByBytes {
    fn weight(&self, _: &CacheKey, entry: &CacheEntry) -> u64 {
        (entry.bytes() + ENTRY_OVERHEAD) as u64
    }
}

#[derive(Clone, Debug)]
struct Mix;

impl BuildHasher for Mix {
    type Hasher = MixHasher;

    fn build_hasher(&self) -> MixHasher {
        MixHasher(0)
    }
}

/// Multiplies and folds every number that it is given: few cycles, and all bits reach all bits.
struct MixHasher(u64);

impl Hasher for MixHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9E37_79B9_7F4A_7C15) * 0xD1B5_4A32_D192_ED03;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A cache of at most so many bytes; with none it holds nothing and costs a branch.
#[derive(Debug)]
pub(crate) struct BlockCache {
    entries: Option<Cache<CacheKey, CacheEntry, ByBytes, Mix>>,
    capacity: u64,
}

impl BlockCache {
    /// An empty cache for `capacity` bytes. `block_bytes` is the usual size of an entry, a hint.
    ///
    /// A shard holds at least 4 MiB (or everything, in smaller caches), so that the index of a usual table
    /// fits one; an entry larger than a shard is not cached.
    pub(crate) fn new(capacity: u64, block_bytes: u64) -> BlockCache {
        const SHARD_BYTES: u64 = 4 << 20;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The cache rounds the number of shards up; halving first keeps them from becoming too small.
        let by_size = (capacity / SHARD_BYTES).max(1);
        let shards = 1usize << by_size.ilog2().min((cores * 4).ilog2());
        let items = (capacity / (block_bytes + ENTRY_OVERHEAD as u64)).clamp(1, 1 << 32);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(usize::try_from(items).unwrap_or(usize::MAX))
            .weight_capacity(capacity)
            .build()
            .expect("all options are given");
        BlockCache {
            entries: (capacity > 0)
                .then(|| Cache::with_options(options, ByBytes, Mix, DefaultLifecycle::default())),
            capacity,
        }
    }

    /// The entry of `key`, if it is here.
    #[inline]
    pub(crate) fn get(&self, key: CacheKey) -> Option<CacheEntry> {
        self.entries.as_ref()?.get(&key)
    }

    /// Keeps `entry`, making room by dropping others.
    pub(crate) fn insert(&self, key: CacheKey, entry: CacheEntry) {
        if let Some(entries) = &self.entries {
            entries.insert(key, entry);
        }
    }

    /// Bytes held now, the overhead per entry included.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.entries.as_ref().map_or(0, |entries| entries.weight())
    }

    /// The most bytes it holds.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(len: usize) -> CacheEntry {
        CacheEntry::Block(HeapBlock { bytes: vec![7; len].into(), start: 0, len })
    }

    #[test]
    fn a_cache_stays_within_its_bytes_and_gives_back_what_it_holds() {
        let cache = BlockCache::new(1 << 20, 4096);
        for offset in 0..1000 {
            cache.insert(CacheKey { table: 1, offset }, block(4096));
        }
        assert!(cache.used_bytes() <= 1 << 20);
        assert!(cache.used_bytes() > 1 << 19);
        let held = (0..1000).filter(|&offset| cache.get(CacheKey { table: 1, offset }).is_some()).count();
        assert!(held > 100, "{held}");
        assert!(cache.get(CacheKey { table: 2, offset: 999 }).is_none());
    }

    #[test]
    fn without_capacity_nothing_is_held() {
        let cache = BlockCache::new(0, 4096);
        let key = CacheKey { table: 1, offset: 0 };
        cache.insert(key, block(1));
        assert!(cache.get(key).is_none());
        assert_eq!((cache.used_bytes(), cache.capacity_bytes()), (0, 0));
    }

    #[test]
    fn neighbouring_offsets_spread_over_all_bits() {
        let mut seen = [0u64; 64];
        for i in 0..4096u64 {
            let hash = Mix.hash_one(CacheKey { table: 3, offset: i * 4096 });
            (0..64).for_each(|bit| seen[bit] += hash >> bit & 1);
        }
        assert!(seen.iter().all(|&ones| (1700..2400).contains(&ones)), "{seen:?}");
    }
}
