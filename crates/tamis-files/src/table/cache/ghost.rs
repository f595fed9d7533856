//! Estimates how many of the cache's misses would have been hits in a larger cache.
//!
//! The ghost holds the keys, not the contents, of recently evicted blocks: as many as `S` more
//! bytes (the step) would still hold. A miss whose key is here would have been a hit. For an LRU
//! cache this is exact (Mattson et al., "Evaluation techniques for storage hierarchies", IBM
//! Systems Journal 1970: the larger cache holds what the smaller one does, plus the next `S`
//! bytes). Our cache keeps hot blocks in a clock and makes new ones prove themselves first, so here
//! it is an estimate. The tests check its error.
//!
//! Only one in 2^k keys is tracked, chosen by bits of its hash: spatial sampling, as in SHARDS
//! (Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015, section 3). All events
//! of a tracked key are seen, so a list of `S / 2^k` bytes stands for one of `S`, and its counts
//! times 2^k estimate those for all keys.
//!
//! A larger cache gives most of the step to hot blocks and the rest to new ones, as the smaller one
//! does ([`HOT_SHARE`]). So there are two lists: a flood of blocks that are read once passes
//! through the small list and does not wash out the hot blocks that matter. New blocks get the room
//! that hot ones do not fill.
//!
//! Accuracy, for a step of a sixteenth of the cache:
//!
//! * Zipf-distributed reads (exponents 0 to 1.2): 0.6 to 1.15 of the true value; a single list gave
//!   0.45 to 0.9.
//! * With a third of the reads going to blocks that never recur: 0.55 to 0.75; a single list gave
//!   0.2.
//!
//! The estimate is mostly low because a larger cache also recognises more recurring blocks. If most
//! misses are of blocks that never recur, hardly any hot blocks are evicted; the estimate is then a
//! small fraction of a value that is itself small.
//!
//! Threads: any thread may call any method. One mutex guards the lists. Only misses, insertions and
//! evictions of tracked keys (each of which accompanies a file read), capacity changes and reports
//! take it. It is a leaf: no other lock is taken under it, though it may be taken under a shard's.
//! Misses are counted in one word, and nothing depends on its order relative to the lists. A report
//! is therefore not a consistent snapshot, which suffices for rates.
//!
//! Costs: a branch per hit, which is why readers count hits in per-thread counters instead. Memory:
//! some 100 bytes per tracked block, of which there are at least 256 if the step has room for that
//! many.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use tamis_base::collections::HashMap;
use tamis_env::sync::{Mutex, MutexGuard};

use super::key::{CacheKey, ENTRY_OVERHEAD, Mix};

/// The share of a cache's capacity for hot blocks. A new block that is not requested again passes
/// through the rest.
pub(super) const HOT_SHARE: f64 = 0.97;

/// The minimum number of blocks that represent the step, so that the random choice of keys matters
/// little.
const LEAST_FOLLOWED: u64 = 256;

/// The maximum number of sampling bits: at least one key in 2^6 is tracked, as tracking fewer saves
/// nothing measurable.
const MOST_SAMPLING_BITS: u32 = 6;

/// The counts of a cache since its creation. Counters only grow; subtract two readings to get the
/// change in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GhostReport {
    /// Lookups that did not find their entry; exact.
    pub(crate) misses: u64,
    /// Estimated misses that a cache with `step_bytes` more would have answered: the number
    /// observed times `sampling`.
    pub ghost_hits: u64,
    /// Estimated bytes of entries evicted for lack of room, including their overhead, scaled like
    /// `ghost_hits`. After a capacity change, the ghost has adapted once about two steps have been
    /// evicted.
    pub evicted_bytes: u64,
    /// One in this many keys is tracked. `ghost_hits / sampling` misses were actually observed, and
    /// the noise is that of this smaller number.
    pub sampling: u64,
    /// How many bytes larger the hypothetical cache is.
    pub step_bytes: u64,
}

/// An evicted entry of a tracked key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropped {
    pub(super) key: CacheKey,
    /// Its bytes and overhead.
    pub(super) weight: u64,
    /// Whether it was a hot entry.
    pub(super) hot: bool,
}

#[derive(Debug)]
pub(super) struct Ghost {
    step_bytes: u64,
    sampling_bits: u32,
    misses: CachePadded<AtomicU64>,
    lists: Mutex<Lists>,
}

/// The state of the tracked keys, unscaled.
#[derive(Debug)]
struct Lists {
    /// The bytes that both lists together may represent, and the hot list alone.
    followed: u64,
    most_hot: u64,
    hot: Recent,
    cold: Recent,
    hits: u64,
    evicted_bytes: u64,
}

impl Ghost {
    /// Creates an estimator for a step of `step_bytes` in a cache whose entries are usually
    /// `block_bytes` long.
    pub(super) fn new(step_bytes: u64, block_bytes: u64) -> Ghost {
        let blocks = step_bytes / (block_bytes + ENTRY_OVERHEAD as u64).max(1);
        Ghost::sampled(step_bytes, (blocks / LEAST_FOLLOWED).max(1).ilog2().min(MOST_SAMPLING_BITS))
    }

    /// Creates an estimator that tracks one in `2^sampling_bits` keys.
    pub(super) fn sampled(step_bytes: u64, sampling_bits: u32) -> Ghost {
        let followed = step_bytes >> sampling_bits;
        Ghost {
            step_bytes,
            sampling_bits,
            misses: CachePadded::default(),
            lists: Mutex::new(Lists {
                followed,
                most_hot: (followed as f64 * HOT_SHARE) as u64,
                hot: Recent::default(),
                cold: Recent::default(),
                hits: 0,
                evicted_bytes: 0,
            }),
        }
    }

    /// Reports whether `key` is tracked. It uses other hash bits than those that choose a shard,
    /// unless there are more than 2^16 shards.
    #[inline]
    pub(super) fn follows(&self, key: CacheKey) -> bool {
        (Mix.hash_one(key) >> 48) & ((1 << self.sampling_bits) - 1) == 0
    }

    pub(super) fn miss(&self, key: CacheKey) {
        self.misses.fetch_add(1, Relaxed);
        if self.follows(key) {
            let mut lists = self.lists();
            // The key stays until the block is back: a second reader that misses before then would
            // have hit too.
            if lists.hot.holds(key) || lists.cold.holds(key) {
                lists.hits += 1;
            }
        }
    }

    /// Records that `key` is in the cache and that `dropped` made room for it. If `key` is among
    /// them, it was replaced, or is too large for this cache and a larger one.
    pub(super) fn inserted(&self, key: CacheKey, dropped: &[Dropped]) {
        let follows = self.follows(key);
        if !follows && dropped.is_empty() {
            return;
        }
        let mut lists = self.lists();
        lists.take(dropped.iter().filter(|entry| entry.key != key));
        if follows {
            lists.hot.remove(key);
            lists.cold.remove(key);
        }
    }

    /// Records that `dropped` were evicted because the capacity fell.
    pub(super) fn shrunk(&self, dropped: &[Dropped]) {
        if !dropped.is_empty() {
            self.lists().take(dropped.iter());
        }
    }

    /// Records that the capacity grew. The cache itself now has room for the keys held here. Each
    /// will be missed once more, which says nothing about a further step.
    pub(super) fn grown(&self) {
        let mut lists = self.lists();
        lists.hot.clear();
        lists.cold.clear();
    }

    pub(super) fn report(&self) -> GhostReport {
        let lists = self.lists();
        GhostReport {
            misses: self.misses.load(Relaxed),
            ghost_hits: lists.hits << self.sampling_bits,
            evicted_bytes: lists.evicted_bytes << self.sampling_bits,
            sampling: 1 << self.sampling_bits,
            step_bytes: self.step_bytes,
        }
    }

    /// Nothing panics halfway through a change under this lock, so its data is valid even if the
    /// lock is poisoned.
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock()
    }
}

impl Lists {
    fn take<'a>(&mut self, dropped: impl Iterator<Item = &'a Dropped>) {
        for entry in dropped {
            self.evicted_bytes += entry.weight;
            self.hot.remove(entry.key);
            self.cold.remove(entry.key);
            if entry.hot { &mut self.hot } else { &mut self.cold }.push(entry.key, entry.weight);
        }
        self.hot.shrink_to(self.most_hot);
        self.cold.shrink_to(self.followed - self.hot.bytes);
    }
}

/// Recently evicted keys, oldest first, and the bytes they represent.
///
/// Every key held is in `order` once, under its number in `held`. A removed key leaves a stale
/// entry behind; after a `shrink_to`, stale entries never far outnumber live ones.
#[derive(Debug)]
struct Recent {
    bytes: u64,
    next: u64,
    order: VecDeque<(u64, CacheKey)>,
    held: HashMap<CacheKey, (u64, u64), Mix>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { bytes: 0, next: 0, order: VecDeque::new(), held: HashMap::with_hasher(Mix) }
    }
}

impl Recent {
    fn holds(&self, key: CacheKey) -> bool {
        self.held.contains_key(&key)
    }

    /// Appends a key that is not held.
    fn push(&mut self, key: CacheKey, weight: u64) {
        self.next += 1;
        self.bytes += weight;
        self.held.insert(key, (self.next, weight));
        self.order.push_back((self.next, key));
    }

    fn remove(&mut self, key: CacheKey) {
        if let Some((_, weight)) = self.held.remove(&key) {
            self.bytes -= weight;
        }
    }

    /// Removes the oldest keys until the rest represents at most `bytes`.
    fn shrink_to(&mut self, bytes: u64) {
        while self.bytes > bytes
            && let Some((number, key)) = self.order.pop_front()
        {
            if self.held.get(&key).is_some_and(|held| held.0 == number) {
                self.remove(key);
            }
        }
        if self.order.len() > 2 * self.held.len() + 16 {
            let held = &self.held;
            self.order.retain(|(number, key)| held.get(key).is_some_and(|held| held.0 == *number));
        }
    }

    fn clear(&mut self) {
        self.order.clear();
        self.held.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: u64) -> CacheKey {
        CacheKey { table: 1, offset }
    }

    fn dropped(offset: u64, hot: bool) -> Dropped {
        Dropped { key: key(offset), weight: 100, hot }
    }

    fn ghost_hits(ghost: &Ghost, offset: u64) -> u64 {
        let before = ghost.report().ghost_hits;
        ghost.miss(key(offset));
        ghost.report().ghost_hits - before
    }

    #[test]
    fn the_most_recently_evicted_keys_are_held_up_to_the_step() {
        let ghost = Ghost::sampled(10_000, 0);
        (0..200).for_each(|i| ghost.inserted(key(1000 + i), &[dropped(i, true)]));
        let held = (0..200).filter(|&i| ghost_hits(&ghost, i) == 1).collect::<Vec<_>>();
        assert_eq!(held, (103..200).collect::<Vec<_>>(), "97 of 100 that the step has room for");
        let report = ghost.report();
        assert_eq!((report.misses, report.ghost_hits, report.evicted_bytes), (200, 97, 20_000));
    }

    #[test]
    fn a_flood_of_new_blocks_uses_only_the_room_that_hot_ones_leave() {
        let ghost = Ghost::sampled(10_000, 0);
        (0..1000).for_each(|i| ghost.inserted(key(5000 + i), &[dropped(i, false)]));
        assert_eq!((0..1000).map(|i| ghost_hits(&ghost, i)).sum::<u64>(), 100, "nothing hot: all of it");
        (0..97).for_each(|i| ghost.inserted(key(6000 + i), &[dropped(2000 + i, true)]));
        (0..1000).for_each(|i| ghost.inserted(key(7000 + i), &[dropped(i, false)]));
        assert_eq!((0..97).map(|i| ghost_hits(&ghost, 2000 + i)).sum::<u64>(), 97);
        assert_eq!((0..1000).map(|i| ghost_hits(&ghost, i)).sum::<u64>(), 3);
    }

    /// Two readers that miss the same block both insert it, and the cache reports the first copy as
    /// evicted.
    #[test]
    fn a_block_replaced_by_itself_was_not_evicted() {
        let ghost = Ghost::sampled(10_000, 0);
        ghost.inserted(key(1), &[dropped(1, true)]);
        assert_eq!((ghost_hits(&ghost, 1), ghost.report().evicted_bytes), (0, 0));
    }

    #[test]
    fn keys_leave_when_their_block_is_back_or_the_cache_grew() {
        let ghost = Ghost::sampled(10_000, 0);
        ghost.shrunk(&[dropped(1, true), dropped(2, false)]);
        assert_eq!((ghost_hits(&ghost, 1), ghost_hits(&ghost, 1), ghost_hits(&ghost, 2)), (1, 1, 1));
        ghost.inserted(key(1), &[]);
        assert_eq!((ghost_hits(&ghost, 1), ghost_hits(&ghost, 2)), (0, 1));
        ghost.grown();
        assert_eq!(ghost_hits(&ghost, 2), 0);
    }

    #[test]
    fn keys_that_come_and_go_do_not_accumulate() {
        let ghost = Ghost::sampled(10_000, 0);
        ghost.inserted(key(0), &[dropped(1, true)]);
        for _ in 0..10_000 {
            ghost.inserted(key(0), &[dropped(2, true)]);
            ghost.inserted(key(2), &[]);
        }
        assert!(ghost.lists().hot.order.len() < 32);
        assert_eq!((ghost_hits(&ghost, 1), ghost.lists().hot.bytes), (1, 100));
    }

    #[test]
    fn the_list_of_a_large_step_tracks_a_sample_of_the_keys() {
        let (small, large) = (Ghost::new(1 << 20, 4000), Ghost::new(1 << 34, 4000));
        assert_eq!((small.report().sampling, large.report().sampling), (1, 64));
        let followed = (0..64_000).filter(|&i| large.follows(key(i * 4096))).count();
        assert!((800..1200).contains(&followed), "{followed}");
    }
}
