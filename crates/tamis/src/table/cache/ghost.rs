//! How many of the cache's misses a larger cache would have answered.
//!
//! The ghost holds the names of blocks that were dropped lately, as many as a step of `S` bytes more would still hold,
//! and no bytes of theirs. A miss that finds its name here would have been a hit. Of a cache that drops what was unused
//! longest this is exact (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 1970:
//! the larger cache holds what the smaller one does, and the next `S` bytes below); of ours, whose hot blocks go round
//! a clock and whose new ones must first prove themselves, it is an estimate, which the tests hold to the truth.
//!
//! Only one of 2^k keys is followed, chosen by bits of the key's mixed hash: spatial sampling, as in SHARDS
//! (Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015, section 3). What is followed is followed
//! wholly, so a list of `S / 2^k` bytes stands for one of `S`, and counts times 2^k for all.
//!
//! A larger cache gives most of the step to its hot blocks and the rest to the new ones, as its smaller self does
//! ([`HOT_SHARE`]). So there are two lists: a flood of blocks that are read once passes through the small one, and does
//! not wash out those whose return the step is about. What the hot ones do not fill the others have.
//!
//! How near it comes, for a step of a sixteenth of the cache: on draws from Zipf's distribution (exponents 0 to 1.2)
//! between 0.6 and 1.15 of the truth, where one list gave 0.45 to 0.9; with a third of the reads to blocks that never
//! come again between 0.55 and 0.75, where one list gave 0.2. Mostly below, for a larger cache also recognises more of
//! what comes back. Where most misses are of blocks that never come again hardly anything hot is dropped, and the
//! estimate is a small part of a truth that is small itself.
//!
//! Threads: every method may be called from any. The lists are behind one mutex that only misses, insertions and
//! evictions of followed keys take, each of which goes with a read from a file; it is a leaf: no other lock is taken
//! under it, but it may be taken under a shard's. The number of misses is one word that every miss adds to, and nothing
//! depends on its order with the lists: a report is not a cut through time, which suffices for rates.
//!
//! Costs: a hit costs a branch; that is why hits are not counted here but by whoever reads, in counters of its own
//! thread. Memory: some 100 bytes per followed block, for at least 256 of them if the step has as many.

use crate::collections::HashMap;
use crate::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use super::{CacheKey, ENTRY_OVERHEAD, Mix};

/// How much of its capacity a cache gives to hot blocks; a new one that is not asked for again passes through the rest.
pub(super) const HOT_SHARE: f64 = 0.97;

/// The lists stand for their step by at least this many blocks, so that a chance choice of keys matters little.
const LEAST_FOLLOWED: u64 = 256;

/// At most one of 2^6 keys is followed: fewer save nothing that could be measured.
const MOST_SAMPLING_BITS: u32 = 6;

/// What a cache counted since it was made. All counters only grow; subtract two readings to get what happened in
/// between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GhostReport {
    /// Lookups that did not find their entry. Exact.
    pub(crate) misses: u64,
    /// Misses that a cache of `step_bytes` more would have answered: an estimate, the number seen times `sampling`.
    pub(crate) ghost_hits: u64,
    /// Bytes of entries dropped for want of room, their overhead included: an estimate, scaled as `ghost_hits` is.
    /// After a change of the capacity the ghost knows the new one when about two steps have passed through.
    pub(crate) evicted_bytes: u64,
    /// One of so many keys is followed: `ghost_hits / sampling` misses were really seen, and their noise is that of
    /// this smaller number.
    pub(crate) sampling: u64,
    /// How much larger the cache is imagined to be.
    pub(crate) step_bytes: u64,
}

/// An entry of a followed key that the cache dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropped {
    pub(super) key: CacheKey,
    /// Its bytes and overhead.
    pub(super) weight: u64,
    /// It was one of the hot ones.
    pub(super) hot: bool,
}

#[derive(Debug)]
pub(super) struct Ghost {
    step_bytes: u64,
    sampling_bits: u32,
    misses: CachePadded<AtomicU64>,
    lists: Mutex<Lists>,
}

/// What was seen of followed keys; not scaled.
#[derive(Debug)]
struct Lists {
    /// Bytes that both lists may stand for, and the first alone.
    followed: u64,
    most_hot: u64,
    hot: Recent,
    cold: Recent,
    hits: u64,
    evicted_bytes: u64,
}

impl Ghost {
    /// Estimates what `step_bytes` more would be worth to a cache whose entries are usually of `block_bytes`.
    pub(super) fn new(step_bytes: u64, block_bytes: u64) -> Ghost {
        let blocks = step_bytes / (block_bytes + ENTRY_OVERHEAD as u64).max(1);
        Ghost::sampled(step_bytes, (blocks / LEAST_FOLLOWED).max(1).ilog2().min(MOST_SAMPLING_BITS))
    }

    /// One that follows one of `2^sampling_bits` keys.
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

    /// Whether `key` is one of those that are followed. The bits are others than those that choose a shard, unless
    /// there are more than 2^16 of these.
    #[inline]
    pub(super) fn follows(&self, key: CacheKey) -> bool {
        (Mix.hash_one(key) >> 48) & ((1 << self.sampling_bits) - 1) == 0
    }

    pub(super) fn miss(&self, key: CacheKey) {
        self.misses.fetch_add(1, Relaxed);
        if self.follows(key) {
            let mut lists = self.lists();
            // The name stays until the block is back: a second reader that misses it before would have hit, too.
            if lists.hot.holds(key) || lists.cold.holds(key) {
                lists.hits += 1;
            }
        }
    }

    /// `key` is in the cache, and those of `dropped` made room for it. If `key` is among them it was replaced, or is
    /// too large for the cache, and would be for a larger one.
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

    /// `dropped` made room because the capacity fell.
    pub(super) fn shrunk(&self, dropped: &[Dropped]) {
        if !dropped.is_empty() {
            self.lists().take(dropped.iter());
        }
    }

    /// The capacity grew. The names held are of those that the cache itself has room for now; each will be missed once
    /// more, and that says nothing about a further step.
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

    /// Nothing under the lock panics half way through a change, so a poisoned one is as good as any.
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

/// Names dropped lately, in that order, and the bytes that they stand for.
///
/// Every name held is once in `order` under the number that `held` says; names that were removed leave a stale entry
/// behind, and after a `shrink_to` there are never more of these than of the others and a few.
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

    /// Appends a name that is not held.
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

    /// Forgets the oldest until the rest stands for at most `bytes`.
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
    fn the_names_dropped_last_are_held_up_to_the_bytes_of_the_step() {
        let ghost = Ghost::sampled(10_000, 0);
        (0..200).for_each(|i| ghost.inserted(key(1000 + i), &[dropped(i, true)]));
        let held = (0..200).filter(|&i| ghost_hits(&ghost, i) == 1).collect::<Vec<_>>();
        assert_eq!(held, (103..200).collect::<Vec<_>>(), "97 of 100 that the step has room for");
        let report = ghost.report();
        assert_eq!((report.misses, report.ghost_hits, report.evicted_bytes), (200, 97, 20_000));
    }

    #[test]
    fn a_flood_of_new_blocks_leaves_the_hot_ones_their_room_but_has_what_they_do_not_fill() {
        let ghost = Ghost::sampled(10_000, 0);
        (0..1000).for_each(|i| ghost.inserted(key(5000 + i), &[dropped(i, false)]));
        assert_eq!((0..1000).map(|i| ghost_hits(&ghost, i)).sum::<u64>(), 100, "nothing hot: all of it");
        (0..97).for_each(|i| ghost.inserted(key(6000 + i), &[dropped(2000 + i, true)]));
        (0..1000).for_each(|i| ghost.inserted(key(7000 + i), &[dropped(i, false)]));
        assert_eq!((0..97).map(|i| ghost_hits(&ghost, 2000 + i)).sum::<u64>(), 97);
        assert_eq!((0..1000).map(|i| ghost_hits(&ghost, i)).sum::<u64>(), 3);
    }

    /// Two readers that miss the same block both insert it, and the cache reports the first copy as dropped.
    #[test]
    fn a_block_that_is_replaced_by_itself_was_not_dropped() {
        let ghost = Ghost::sampled(10_000, 0);
        ghost.inserted(key(1), &[dropped(1, true)]);
        assert_eq!((ghost_hits(&ghost, 1), ghost.report().evicted_bytes), (0, 0));
    }

    #[test]
    fn names_leave_when_their_block_is_back_or_the_cache_grew() {
        let ghost = Ghost::sampled(10_000, 0);
        ghost.shrunk(&[dropped(1, true), dropped(2, false)]);
        assert_eq!((ghost_hits(&ghost, 1), ghost_hits(&ghost, 1), ghost_hits(&ghost, 2)), (1, 1, 1));
        ghost.inserted(key(1), &[]);
        assert_eq!((ghost_hits(&ghost, 1), ghost_hits(&ghost, 2)), (0, 1));
        ghost.grown();
        assert_eq!(ghost_hits(&ghost, 2), 0);
    }

    #[test]
    fn names_that_come_and_go_leave_no_heap_behind() {
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
    fn the_list_of_a_large_step_follows_few_keys_that_stand_for_all() {
        let (small, large) = (Ghost::new(1 << 20, 4000), Ghost::new(1 << 34, 4000));
        assert_eq!((small.report().sampling, large.report().sampling), (1, 64));
        let followed = (0..64_000).filter(|&i| large.follows(key(i * 4096))).count();
        assert!((800..1200).contains(&followed), "{followed}");
    }
}
