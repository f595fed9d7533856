//! The range tombstones of a memtable.
//!
//! They are kept twice. The *list* has them as written, oldest first. The *map* has the newest one
//! over each key: a balanced tree (a treap) of disjoint fragments. A new tombstone cuts the
//! fragments at its borders and replaces all between them. Nodes are immutable: an insertion makes
//! a new root that shares all but O(log n) nodes with the old one. Each insertion adds at most
//! three fragments, however tombstones are nested, and a kept root has the tombstones up to then
//! without a copy.
//!
//! A reader older than the fragment over its key needs what the fragment replaced. It walks back
//! through the list: one by one to a multiple of [`BLOCK`], then by blocks of growing size, each
//! with its own map. A block's map is made when a reader first needs it, so only readers at
//! snapshots pay, in time and in memory.
//!
//! # Invariants
//! * Numbers ascend in the list. So a reader sees a prefix of it, and the last of several
//!   tombstones over a key is the newest.
//! * The map of the first `n` tombstones has the newest of them over each key. Its fragments are
//!   not empty, do not overlap, and ascend by key; only the last may have no end. There are at most
//!   `2n - 1`.
//! * A node's priority is not below its children's.
//!
//! # Cost
//! An insertion and a look at the map: O(log n). A reader that the map cannot serve: O(log² n), and
//! O(n log n) once for all such readers together. Memory: O(n), and with such readers O(n log n)
//! with a small constant.
//!
//! # Threads
//! One writer at a time, which the commit path guarantees: a leader commits range deletes with the
//! log's lock held and nothing in flight. Any number of readers. The list is under a lock; readers
//! that the map serves do not take it. The writer appends to the list before it stores the root,
//! and does both before the number becomes visible: a reader that loads the visible number and then
//! the root finds all that it must see in either.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use tamis_base::key::{Cover, KeyBytes, KeyEnd, RangeTombstone, SeqNo};

/// The most tombstones that a reader of old ones passes one by one.
const BLOCK: usize = if cfg!(any(test, debug_assertions)) { 4 } else { 64 };

/// A block has this many blocks of the next smaller size.
const FAN: usize = if cfg!(any(test, debug_assertions)) { 3 } else { 16 };

type Link = Option<Arc<Node>>;

/// A fragment in a map, with its children in the tree.
#[derive(Debug)]
struct Node {
    tombstone: RangeTombstone,
    priority: u64,
    left: Link,
    right: Link,
}

impl Node {
    fn with(&self, left: Link, right: Link) -> Link {
        let (tombstone, priority) = (self.tombstone.clone(), self.priority);
        Some(Arc::new(Node { tombstone, priority, left, right }))
    }
}

/// The newest of some tombstones over each key. A value: no insertion changes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeMap {
    root: Link,
}

impl RangeMap {
    /// Adds a non-empty tombstone newer than all others. `priorities` returns a new one with each
    /// call.
    fn insert(&mut self, tombstone: RangeTombstone, priorities: &mut impl FnMut() -> u64) {
        let (before, rest) = split(&self.root, &tombstone.start, priorities);
        let after = tombstone.end.as_ref().and_then(|end| split(&rest, end, priorities).1);
        let node = Node { tombstone, priority: priorities(), left: None, right: None };
        self.root = join(join(before, Some(Arc::new(node))), after);
    }

    fn of(tombstones: &[RangeTombstone]) -> RangeMap {
        let (mut map, mut state) = (RangeMap::default(), 0);
        tombstones.iter().for_each(|t| map.insert(t.clone(), &mut || next_priority(&mut state)));
        map
    }

    /// Returns the tombstone over `key`, and the keys around it under the same tombstone or under
    /// none.
    fn around(&self, key: &[u8]) -> Cover {
        let mut cover = Cover::default();
        let mut at = self.root.as_deref();
        while let Some(node) = at {
            if cover.narrow(&node.tombstone, key) {
                break;
            }
            at = if *key < *node.tombstone.start { node.left.as_deref() } else { node.right.as_deref() };
        }
        cover
    }

    /// Passes the fragments in key order.
    #[cfg(test)]
    pub(crate) fn for_each(&self, mut pass: impl FnMut(&RangeTombstone)) {
        let mut above = Vec::new();
        let mut at = self.root.as_deref();
        while at.is_some() || !above.is_empty() {
            while let Some(node) = at {
                above.push(node);
                at = node.left.as_deref();
            }
            let Some(node) = above.pop() else { break };
            pass(&node.tombstone);
            at = node.right.as_deref();
        }
    }

    /// Reports whether a fragment has a key from `smallest` up to `largest`.
    pub(crate) fn touches(&self, smallest: &[u8], largest: &KeyEnd) -> bool {
        let cover = self.around(smallest);
        // If no fragment covers the key, the stretch ends at the next fragment.
        cover.seq > 0 || cover.until.is_some_and(|next| largest.reaches(&next))
    }

    /// Returns the first key of the first fragment and the end of the last one; `None` without
    /// fragments.
    pub(crate) fn hull(&self) -> Option<(KeyBytes, Option<KeyBytes>)> {
        let (mut first, mut last) = (self.root.as_deref()?, self.root.as_deref()?);
        while let Some(left) = first.left.as_deref() {
            first = left;
        }
        while let Some(right) = last.right.as_deref() {
            last = right;
        }
        Some((first.tombstone.start.clone(), last.tombstone.end.clone()))
    }
}

/// Splits a map into the part before `key` and the rest.
fn split(link: &Link, key: &KeyBytes, priorities: &mut impl FnMut() -> u64) -> (Link, Link) {
    let mut tail = None;
    let (before, behind) = part(link, key, &mut tail);
    // Joined here rather than on the way: its priority may be above any node's.
    let tail = tail.map(|tombstone| Node { tombstone, priority: priorities(), left: None, right: None });
    (before, join(tail.map(Arc::new), behind))
}

/// The same, without the tail of the fragment that `key` cuts in two.
fn part(link: &Link, key: &KeyBytes, tail: &mut Option<RangeTombstone>) -> (Link, Link) {
    let Some(node) = link else { return (None, None) };
    let fragment = &node.tombstone;
    if *fragment.start >= **key {
        let (before, behind) = part(&node.left, key, tail);
        return (before, node.with(behind, node.right.clone()));
    }
    if !fragment.ends_behind(key) {
        let (before, behind) = part(&node.right, key, tail);
        return (node.with(node.left.clone(), before), behind);
    }
    *tail = Some(RangeTombstone { start: key.clone(), ..fragment.clone() });
    let head = RangeTombstone { end: Some(key.clone()), ..fragment.clone() };
    let head = Node { tombstone: head, priority: node.priority, left: node.left.clone(), right: None };
    (Some(Arc::new(head)), node.right.clone())
}

/// Joins two maps. The first lies before the second.
fn join(before: Link, behind: Link) -> Link {
    match (before, behind) {
        (Some(a), Some(b)) if a.priority >= b.priority => {
            a.with(a.left.clone(), join(a.right.clone(), Some(b)))
        }
        (Some(a), Some(b)) => b.with(join(Some(a), b.left.clone()), b.right.clone()),
        (one, None) | (None, one) => one,
    }
}

/// SplitMix64: independent of the keys, and the same in each run.
fn next_priority(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// The length of the list.
    count: AtomicUsize,
    map: ArcSwapOption<Node>,
    list: Mutex<TombstoneList>,
    /// The maps of blocks, by end and length.
    blocks: Mutex<HashMap<(usize, usize), RangeMap>>,
}

#[derive(Debug, Default)]
struct TombstoneList {
    tombstones: Vec<RangeTombstone>,
    /// The state of the priorities.
    priorities: u64,
}

impl Ranges {
    fn list(&self) -> MutexGuard<'_, TombstoneList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a non-empty tombstone newer than all others.
    pub(super) fn insert(&self, tombstone: RangeTombstone) {
        let mut list = self.list();
        let newest = list.tombstones.last().map_or(0, |last| last.seq);
        assert!(tombstone.seq > newest, "range tombstone {} comes after {newest}", tombstone.seq);
        let mut map = self.map();
        map.insert(tombstone.clone(), &mut || next_priority(&mut list.priorities));
        list.tombstones.push(tombstone);
        self.map.store(map.root);
        self.count.store(list.tombstones.len(), Ordering::Release);
    }

    /// Returns the approximate memory of a tombstone in bytes, including the map nodes that it
    /// adds.
    pub(super) fn bytes_of(tombstone: &RangeTombstone) -> usize {
        /// The counts of an `Arc`.
        const COUNTS: usize = 2 * size_of::<usize>();
        let keys = tombstone.start.len() + tombstone.end.as_ref().map_or(0, |end| end.len()) + 2 * COUNTS;
        keys + size_of::<RangeTombstone>() + 2 * (size_of::<Node>() + COUNTS)
    }

    /// Returns the number of tombstones. One load.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns all tombstones, oldest first. Copies the list but not the keys.
    pub(super) fn all(&self) -> Vec<RangeTombstone> {
        self.list().tombstones.clone()
    }

    /// Passes the tombstones after `since`, newest first, to `ask` until it answers.
    pub(super) fn newest<T>(&self, since: SeqNo, ask: impl FnMut(&RangeTombstone) -> Option<T>) -> Option<T> {
        self.list().tombstones.iter().rev().take_while(|tombstone| tombstone.seq > since).find_map(ask)
    }

    /// Returns the newest tombstone over each key.
    pub(super) fn map(&self) -> RangeMap {
        RangeMap { root: self.map.load_full() }
    }

    /// Returns the number of the newest tombstone over `key` that a reader at `snapshot` sees, or
    /// 0.
    #[inline]
    pub(super) fn cover(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        let root = self.map.load();
        let mut at = root.as_deref();
        while let Some(node) = at {
            at = match &node.tombstone {
                fragment if *key < *fragment.start => node.left.as_deref(),
                fragment if !fragment.ends_behind(key) => node.right.as_deref(),
                fragment if fragment.seq <= snapshot => return fragment.seq,
                _ => return self.history(key, snapshot).seq,
            };
        }
        0
    }

    /// The same, with the keys around `key` under the same tombstone or under none. `map` has all
    /// that the reader sees.
    pub(super) fn around(&self, map: &RangeMap, key: &[u8], snapshot: SeqNo) -> Cover {
        let cover = map.around(key);
        if cover.seq <= snapshot { cover } else { self.history(key, snapshot) }
    }

    /// The same, if no map serves the reader.
    #[cold]
    fn history(&self, key: &[u8], snapshot: SeqNo) -> Cover {
        let mut cover = Cover::default();
        let mut end = {
            let list = self.list();
            let mut end = list.tombstones.partition_point(|tombstone| tombstone.seq <= snapshot);
            while !end.is_multiple_of(BLOCK) {
                end -= 1;
                if cover.narrow(&list.tombstones[end], key) {
                    return cover;
                }
            }
            end
        };
        while end > 0 {
            let mut len = BLOCK;
            while end.is_multiple_of(len * FAN) {
                len *= FAN;
            }
            let found = self.block(end, len).around(key);
            cover.meet(&found);
            if found.seq > 0 {
                break;
            }
            end -= len;
        }
        cover
    }

    /// Returns the map of the `len` tombstones before index `end` of the list.
    fn block(&self, end: usize, len: usize) -> RangeMap {
        let blocks = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = blocks().get(&(end, len)) {
            return map.clone();
        }
        // Made without a lock: another reader may make the same one.
        let tombstones = self.list().tombstones[end - len..end].to_vec();
        let map = RangeMap::of(&tombstones);
        blocks().insert((end, len), map.clone());
        map
    }
}

#[cfg(test)]
mod tests;
