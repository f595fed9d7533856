//! The cache of uncompressed blocks and of metadata that is not pinned.
//!
//! Mapped, uncompressed blocks never come here: the operating system's page cache holds them already.
//!
//! Entries are spread over shards by a mix of (table, offset), not by a key's digest: one block serves many
//! keys, and they must all find it in the same shard. Every method may be called from any thread; a shard's
//! lock is held for a table lookup, never across a read from a file.

mod ghost;
#[cfg(test)]
mod tests;

use crate::sync::Mutex;
use std::any::Any;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;

use crate::table::{HeapBlock, Index};

pub(crate) use ghost::GhostReport;
use ghost::{Dropped, Ghost, HOT_SHARE};

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

type Entries = Cache<CacheKey, CacheEntry, ByBytes, Mix, Evictions>;

/// A cache of at most so many bytes; with none it holds nothing and costs a branch.
#[derive(Debug)]
pub(crate) struct BlockCache {
    entries: Option<Entries>,
    ghost: Option<Arc<Ghost>>,
    /// Read by insertions, so that a cache that was turned off stays empty. Nothing depends on its order with the
    /// entries: see [`BlockCache::set_capacity`].
    off: AtomicBool,
    /// What was asked for; only told to whoever asks.
    capacity: AtomicU64,
    /// Held by a change of the capacity from end to end. Shards' locks are taken under it.
    shard: Mutex<ShardSize>,
}

/// How a cache is to be measured and resized while it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resizing {
    /// The least capacity that it will be given, in bytes: its shards are made for that.
    pub(crate) least_bytes: u64,
    /// How much larger it is imagined to be by the estimate of what more of it would be worth, in bytes.
    pub(crate) step_bytes: u64,
}

impl BlockCache {
    /// An empty cache for `capacity` bytes. `block_bytes` is the usual size of an entry, a hint.
    ///
    /// A shard holds at least 4 MiB (or everything, in smaller caches), so that the index of a usual table
    /// fits one; an entry larger than a shard is not cached.
    pub(crate) fn new(capacity: u64, block_bytes: u64) -> BlockCache {
        BlockCache::build(capacity, block_bytes, capacity / SHARD_BYTES, None)
    }

    /// An empty cache that estimates what a step more would be worth ([`BlockCache::ghost_report`]), and whose shards
    /// still hold 512 KiB each when its capacity has fallen to the least.
    pub(crate) fn with_ghost(capacity: u64, block_bytes: u64, resizing: Resizing) -> BlockCache {
        let shards = (capacity / SHARD_BYTES).min(resizing.least_bytes / LEAST_SHARD_BYTES);
        BlockCache::build(capacity, block_bytes, shards, Some(Ghost::new(resizing.step_bytes, block_bytes)))
    }

    fn build(capacity: u64, block_bytes: u64, most_shards: u64, ghost: Option<Ghost>) -> BlockCache {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The cache rounds the number of shards up; halving first keeps them from becoming too small.
        let mut shards = 1u64 << most_shards.max(1).ilog2().min((cores * 4).ilog2());
        let items = (capacity / (block_bytes + ENTRY_OVERHEAD as u64)).clamp(1, 1 << 32);
        // The cache itself would merge shards of fewer, and then `ShardSize` would not know their size.
        while shards > 1 && items / shards < 2 * LEAST_REMEMBERED {
            shards /= 2;
        }
        let shard = ShardSize { bytes: capacity.div_ceil(shards), remembered: (items / shards / 2).max(1) };
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity(usize::try_from(shard.remembered * 2 * shards).unwrap_or(usize::MAX))
            .ghost_allocation(0.5)
            .hot_allocation(HOT_SHARE)
            .weight_capacity(capacity)
            .build()
            .expect("all options are given");
        let ghost = ghost.map(Arc::new);
        let evictions = Evictions { ghost: ghost.clone() };
        BlockCache {
            entries: (capacity > 0).then(|| Cache::with_options(options, ByBytes, Mix, evictions)),
            ghost,
            off: AtomicBool::new(capacity == 0),
            capacity: AtomicU64::new(capacity),
            shard: Mutex::new(shard),
        }
    }

    /// The entry of `key`, if it is here.
    #[inline]
    pub(crate) fn get(&self, key: CacheKey) -> Option<CacheEntry> {
        let found = self.entries.as_ref()?.get(&key);
        if found.is_none()
            && let Some(ghost) = &self.ghost
        {
            ghost.miss(key);
        }
        found
    }

    /// Whether there is an entry of `key`; that it was asked for is not remembered.
    pub(crate) fn contains(&self, key: CacheKey) -> bool {
        self.entries.as_ref().is_some_and(|entries| entries.contains_key(&key))
    }

    /// Keeps `entry`, making room by dropping others.
    pub(crate) fn insert(&self, key: CacheKey, entry: CacheEntry) {
        if let Some(entries) = &self.entries
            && !self.off.load(Relaxed)
        {
            let dropped = entries.insert_with_lifecycle(key, entry);
            if let Some(ghost) = &self.ghost {
                ghost.inserted(key, &dropped.followed);
            }
        }
    }

    /// Changes what it may hold. What is too much is dropped before this returns, shard by shard, under the shard's
    /// lock: so a large cache is better made smaller by steps. The capacity in force is up to two blocks a shard
    /// below what was asked for, never above; below that it is none at all, and the cache is off: an insertion that
    /// was under way then may leave its entry behind, two blocks a shard at most, until the next change.
    ///
    /// A cache made without capacity stays without. The number of shards does not change.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        let Some(entries) = &self.entries else { return };
        let mut shard = self.shard.lock();
        let shards = entries.num_shards() as u64;
        let before = self.capacity.swap(bytes, Relaxed);
        let on = shard.resize(bytes / shards);
        self.off.store(!on, Relaxed);
        entries.set_capacity(shard.bytes * shards);
        if !on {
            entries.clear();
        }
        if let Some(ghost) = &self.ghost
            && bytes > before
        {
            ghost.grown();
        }
    }

    /// What was counted since it was made, and what a step more would have been worth; `None` if it was not made
    /// [to tell](BlockCache::with_ghost). Takes the ghost's lock for a moment.
    pub(crate) fn ghost_report(&self) -> Option<GhostReport> {
        self.ghost.as_ref().map(|ghost| ghost.report())
    }

    /// Bytes held now, the overhead per entry included.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.entries.as_ref().map_or(0, |entries| entries.weight())
    }

    /// The most bytes it holds.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        if self.entries.is_some() { self.capacity.load(Relaxed) } else { 0 }
    }
}

/// A shard of a cache whose size is not to change holds as much, if there is as much.
const SHARD_BYTES: u64 = 4 << 20;

/// A shard of a cache that became smaller holds as much, so that the index of a usual table still fits one.
const LEAST_SHARD_BYTES: u64 = 512 << 10;

/// A shard remembers at least so many keys that it dropped, if there is more than one.
const LEAST_REMEMBERED: u64 = 16;

/// What is known of the size of one shard.
///
/// A shard remembers keys that it dropped, one for every two blocks that it has room for, to admit them as hot if they
/// come back. At each change the cache scales that number with the capacity and cuts it to a whole one, so that a
/// capacity that goes up and down forever would leave no memory at all; and at a capacity of nothing it is lost for
/// good. So a shard is only given sizes at which the number comes out whole, and never nothing.
#[derive(Clone, Copy, Debug)]
struct ShardSize {
    bytes: u64,
    /// Keys remembered beyond those held; at least one.
    remembered: u64,
}

impl ShardSize {
    /// Takes the largest such size that is at most `bytes`; the smallest there is, and `false`, if all are larger.
    fn resize(&mut self, bytes: u64) -> bool {
        if bytes == self.bytes {
            return true;
        }
        let (from, memory) = (u128::from(self.bytes), u128::from(self.remembered));
        // A byte more than the exact size: the cache computes with floats, and must not come out below the number.
        // It costs a part in a million of the memory a change.
        let size_of = |remembered: u128| (remembered * from).div_ceil(memory) + 1;
        let mut remembered = (u128::from(bytes) * memory / from).max(1);
        if remembered > 1 && size_of(remembered) > u128::from(bytes) {
            remembered -= 1;
        }
        let size = size_of(remembered);
        // Neither is larger than what was asked for, or than the present size and a byte.
        (self.bytes, self.remembered) = (size as u64, remembered as u64);
        size <= u128::from(bytes)
    }
}

/// Gathers what an operation on the cache drops. Entries are carried out of the shard's lock to be freed: two of them,
/// more are rare when entries are of one size.
#[derive(Clone, Debug)]
struct Evictions {
    ghost: Option<Arc<Ghost>>,
}

#[derive(Default)]
struct Gathered {
    /// Only to be dropped with this.
    entries: [Option<CacheEntry>; 2],
    followed: SmallVec<[Dropped; 4]>,
}

impl Evictions {
    #[inline]
    fn gather(&self, into: &mut Gathered, key: CacheKey, entry: CacheEntry, hot: bool) {
        if let Some(ghost) = &self.ghost
            && ghost.follows(key)
        {
            into.followed.push(Dropped { key, weight: ByBytes.weight(&key, &entry), hot });
        }
        if let Some(free) = into.entries.iter_mut().find(|place| place.is_none()) {
            *free = Some(entry);
        }
    }
}

impl Lifecycle<CacheKey, CacheEntry> for Evictions {
    type RequestState = Gathered;

    #[inline]
    fn begin_request(&self) -> Gathered {
        Gathered::default()
    }

    #[inline]
    fn on_evict_hot(&self, state: &mut Gathered, key: CacheKey, entry: CacheEntry) {
        self.gather(state, key, entry, true);
    }

    #[inline]
    fn on_evict_cold(&self, state: &mut Gathered, key: CacheKey, entry: CacheEntry) {
        self.gather(state, key, entry, false);
    }

    /// Only comes when the capacity changes; insertions look at what they gathered themselves.
    fn end_request(&self, state: Gathered) {
        if let Some(ghost) = &self.ghost {
            ghost.shrunk(&state.followed);
        }
    }
}
