//! The cache of uncompressed blocks and unpinned metadata.
//!
//! Mapped, uncompressed blocks are never cached here: the operating system's page cache already
//! holds them.
//!
//! Entries are spread over shards by a hash of (table, offset), not by a key's digest: one block
//! serves many keys, and all of them must find it in the same shard. Any thread may call any
//! method. A shard's lock is held for a hash table lookup, never across a file read.

mod ghost;
mod key;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use ghost::{Dropped, Ghost, HOT_SHARE};
use key::{ENTRY_OVERHEAD, Mix};
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;
use tamis_env::sync::Mutex;

use crate::table::{HeapBlock, Index};

pub(crate) use ghost::GhostReport;
pub use key::CacheKey;

/// A cached object; cheap to clone.
#[derive(Clone, Debug)]
pub enum CacheEntry {
    /// A data block.
    Block(HeapBlock),
    /// The index of a table.
    Index(Arc<Index>),
    /// A filter, in whatever form its user stores it, and its memory in bytes.
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

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<CacheKey, CacheEntry> for ByBytes {
    fn weight(&self, _: &CacheKey, entry: &CacheEntry) -> u64 {
        (entry.bytes() + ENTRY_OVERHEAD) as u64
    }
}

type Entries = Cache<CacheKey, CacheEntry, ByBytes, Mix, Evictions>;

/// A cache with a capacity in bytes. With capacity 0 it holds nothing and costs a branch.
#[derive(Debug)]
pub struct BlockCache {
    entries: Option<Entries>,
    ghost: Option<Arc<Ghost>>,
    /// Insertions check this, so that a cache that was turned off stays empty. Nothing depends on
    /// its order relative to the entries; see [`BlockCache::set_capacity`].
    off: AtomicBool,
    /// The requested capacity, kept for reports and to tell growth from shrinking.
    capacity: AtomicU64,
    /// Held throughout a capacity change. Shard locks are taken under it.
    shard: Mutex<ShardSize>,
}

/// How a cache in use is measured and resized.
#[derive(Clone, Copy, Debug)]
pub struct Resizing {
    /// The minimum capacity that it will be given, in bytes. Its shards are sized for that.
    pub least_bytes: u64,
    /// The additional bytes of the larger cache whose value the ghost estimates.
    pub step_bytes: u64,
}

impl BlockCache {
    /// Creates an empty cache of `capacity` bytes. `block_bytes` hints at the usual size of an
    /// entry.
    ///
    /// A shard holds at least 4 MiB (or everything, in smaller caches), so that the index of a
    /// typical table fits. An entry larger than a shard is not cached.
    pub fn new(capacity: u64, block_bytes: u64) -> BlockCache {
        BlockCache::build(capacity, block_bytes, capacity / SHARD_BYTES, None)
    }

    /// Creates an empty cache that estimates the value of `step_bytes` more
    /// ([`BlockCache::ghost_report`]). Its shards still hold 512 KiB each at the minimum capacity.
    pub fn with_ghost(capacity: u64, block_bytes: u64, resizing: Resizing) -> BlockCache {
        let shards = (capacity / SHARD_BYTES).min(resizing.least_bytes / LEAST_SHARD_BYTES);
        BlockCache::build(capacity, block_bytes, shards, Some(Ghost::new(resizing.step_bytes, block_bytes)))
    }

    fn build(capacity: u64, block_bytes: u64, most_shards: u64, ghost: Option<Ghost>) -> BlockCache {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The cache library rounds the number of shards up to a power of two. Rounding down first
        // keeps shards from becoming too small.
        let mut shards = 1u64 << most_shards.max(1).ilog2().min((cores * 4).ilog2());
        let items = (capacity / (block_bytes + ENTRY_OVERHEAD as u64)).clamp(1, 1 << 32);
        // With fewer items per shard the cache library would merge shards itself, and `ShardSize`
        // would not know their size.
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

    /// Returns the entry of `key`, if present.
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<CacheEntry> {
        let found = self.entries.as_ref()?.get(&key);
        if found.is_none()
            && let Some(ghost) = &self.ghost
        {
            ghost.miss(key);
        }
        found
    }

    /// Reports whether `key` has an entry, without marking it as used.
    pub(crate) fn contains(&self, key: CacheKey) -> bool {
        self.entries.as_ref().is_some_and(|entries| entries.contains_key(&key))
    }

    /// Inserts `entry`, evicting others to make room.
    pub fn insert(&self, key: CacheKey, entry: CacheEntry) {
        if let Some(entries) = &self.entries
            && !self.off.load(Relaxed)
        {
            let dropped = entries.insert_with_lifecycle(key, entry);
            if let Some(ghost) = &self.ghost {
                ghost.inserted(key, &dropped.followed);
            }
        }
    }

    /// Changes the capacity. Excess entries are evicted before this returns, shard by shard, under
    /// the shard's lock, so shrink a large cache in steps. The effective capacity is up to two
    /// blocks per shard below the requested one, never above. If the request is smaller than that,
    /// the cache is off and empty. An insertion in flight may then leave its entry behind, at most
    /// two blocks per shard, until the next change.
    ///
    /// A cache created with capacity 0 stays off. The number of shards never changes.
    pub fn set_capacity(&self, bytes: u64) {
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

    /// Returns the counts since creation and the estimated value of another step; `None` for a
    /// cache created without [a ghost](BlockCache::with_ghost). Takes the ghost's lock briefly.
    pub fn ghost_report(&self) -> Option<GhostReport> {
        self.ghost.as_ref().map(|ghost| ghost.report())
    }

    /// Bytes held now, including the overhead per entry.
    pub fn used_bytes(&self) -> u64 {
        self.entries.as_ref().map_or(0, |entries| entries.weight())
    }

    /// The requested capacity in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        if self.entries.is_some() { self.capacity.load(Relaxed) } else { 0 }
    }
}

/// The minimum size of a shard in a cache of fixed size, if the cache is that large.
const SHARD_BYTES: u64 = 4 << 20;

/// The minimum size of a shard in a shrunken cache, so that the index of a typical table still
/// fits.
const LEAST_SHARD_BYTES: u64 = 512 << 10;

/// The minimum number of evicted keys that each shard remembers, if there are several shards.
const LEAST_REMEMBERED: u64 = 16;

/// The size of one shard.
///
/// A shard remembers evicted keys, one for every two blocks of capacity, to admit them as hot if
/// they come back. At each capacity change the cache library scales that number with the capacity
/// and truncates it. A capacity that keeps going up and down would wear the number down to nothing,
/// and capacity 0 would lose it for good. So a shard is only given sizes at which the number is
/// whole and not 0.
#[derive(Clone, Copy, Debug)]
struct ShardSize {
    bytes: u64,
    /// The number of keys remembered beyond those held; at least one.
    remembered: u64,
}

impl ShardSize {
    /// Takes the largest such size up to `bytes`. If all are larger, takes the smallest and returns
    /// `false`.
    fn resize(&mut self, bytes: u64) -> bool {
        if bytes == self.bytes {
            return true;
        }
        let (from, memory) = (u128::from(self.bytes), u128::from(self.remembered));
        // One byte more than the exact size: the cache library computes with floats and must not
        // round below the number. Each change loses a millionth of the memory to this.
        let size_of = |remembered: u128| (remembered * from).div_ceil(memory) + 1;
        let mut remembered = (u128::from(bytes) * memory / from).max(1);
        if remembered > 1 && size_of(remembered) > u128::from(bytes) {
            remembered -= 1;
        }
        let size = size_of(remembered);
        // Neither exceeds the request, or else the present size plus one byte.
        (self.bytes, self.remembered) = (size as u64, remembered as u64);
        size <= u128::from(bytes)
    }
}

/// Collects what a cache operation evicts. Up to two entries are moved out of the shard's lock to
/// be freed; more are rare if entries have similar sizes.
#[derive(Clone, Debug)]
struct Evictions {
    ghost: Option<Arc<Ghost>>,
}

#[derive(Default)]
struct Gathered {
    /// Kept only to be dropped with this value.
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

    /// Only called when the capacity changes; insertions process what they gathered themselves.
    fn end_request(&self, state: Gathered) {
        if let Some(ghost) = &self.ghost {
            ghost.shrunk(&state.followed);
        }
    }
}
