//! A skip list of versions: one writer at a time, any number of readers, which never wait.
//!
//! # Invariants
//! * Level 0 links every version in ascending order; each level links a subset of the one below.
//! * The head has a link on every level, so a reader that sees an old height only takes a longer path, and one that
//!   sees a new height finds null links at worst.
//! * A node is published from level 0 upwards: a reader that finds it on a level finds it on all levels below.
//!
//! # Threads
//! [`SkipList::lock`] admits one writer. Readers only load links; a version inserted during a search is found whole
//! or not at all.

use std::ptr::NonNull;
use std::sync::PoisonError;

use super::arena::Arena;
use super::node::{MAX_HEIGHT, Node, NodeRef, Target, Version, write_node};
use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, load_as_writer};
use crate::key::{Kind, SeqNo};

/// From this many nodes of a level on, their number is an estimate of those below.
const ENOUGH: usize = 64;

pub(super) struct SkipList {
    head: NonNull<Node>,
    /// The number of levels in use, a hint for readers.
    height: AtomicUsize,
    writer: Mutex<Writer>,
}

// SAFETY: `head` and everything reachable from it belongs to the arenas in `writer`; it is written under the
// mutex and read through links with the publish protocol of `node`.
unsafe impl Send for SkipList {}
// SAFETY: as above; `&SkipList` gives out shared views of complete, immutable data only.
unsafe impl Sync for SkipList {}

/// The state of the writer.
struct Writer {
    /// The head's memory, separate so that an unused list takes no chunk.
    head: Arena,
    nodes: Arena,
    values: Arena,
    splice: Splice,
    /// The state of the height generator. Heights may be predictable: nothing is ever removed, so no order of keys
    /// can select for certain heights.
    random: u64,
}

/// The position of the last insertion: the neighbours on each level below `height`. A next version between them needs
/// no search on that level.
///
/// Invariant: on each level, `before` and `after` are adjacent (`after` follows `before` directly), or the level
/// is above the list's height.
struct Splice {
    before: [NonNull<Node>; MAX_HEIGHT],
    after: [Option<NonNull<Node>>; MAX_HEIGHT],
}

impl SkipList {
    /// Creates an empty list that allocates in chunks of `chunk_bytes`.
    pub(super) fn new(chunk_bytes: usize) -> SkipList {
        let (mut head_memory, nodes, mut values) =
            (Arena::new(1), Arena::new(chunk_bytes), Arena::new(chunk_bytes));
        let nothing = Version { key: &[], seq: 0, kind: Kind::Delete, value: &[] };
        let head = write_node(&mut head_memory, &mut values, MAX_HEIGHT, &nothing);
        let splice = Splice { before: [head; MAX_HEIGHT], after: [None; MAX_HEIGHT] };
        let writer = Writer { head: head_memory, nodes, values, splice, random: 0x2545_F491_4F6C_DD1D };
        SkipList { head, height: AtomicUsize::new(1), writer: Mutex::new(writer) }
    }

    #[inline(always)]
    fn head(&self) -> NodeRef<'_> {
        // SAFETY: written in `new`; the arenas live as long as the list.
        unsafe { NodeRef::new(self.head) }
    }

    /// Waits for the current writer, if there is one.
    pub(super) fn lock(&self) -> ListWriter<'_> {
        // A writer can only panic before it links anything (a key or value that is too long), so the state under a
        // poisoned lock is consistent.
        let state = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        ListWriter { list: self, state }
    }

    /// Returns the first version that is not before `target`.
    #[inline]
    pub(super) fn seek(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        let mut at = self.head();
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        let mut bound = None;
        loop {
            let next = at.next(level);
            if level > 0 {
                at.prefetch(level - 1);
            }
            // On the way down the same node often bounds several levels, and need not be compared again.
            match next {
                Some(node) if next != bound && node.is_before(target) => at = node,
                _ if level == 0 => return next,
                _ => {
                    bound = next;
                    level -= 1;
                }
            }
        }
    }

    /// Returns the last version that is before `target`.
    pub(super) fn seek_before(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        self.last_where(|node| node.is_before(target))
    }

    /// Returns the first version.
    pub(super) fn first(&self) -> Option<NodeRef<'_>> {
        self.head().next(0)
    }

    /// Returns the last version.
    pub(super) fn last(&self) -> Option<NodeRef<'_>> {
        self.last_where(|_| true)
    }

    /// Returns the last version for which `holds` is true; it must be true for a prefix of the list.
    #[inline]
    fn last_where(&self, holds: impl Fn(NodeRef<'_>) -> bool) -> Option<NodeRef<'_>> {
        let mut at = self.head();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            while let Some(next) = at.next(level)
                && holds(next)
            {
                at = next;
            }
        }
        (at != self.head()).then_some(at)
    }

    /// Estimates the number of versions that are not before `from` and, if given, before `to`: counts the nodes of the highest level with
    /// enough of them there, of which each stands for 4 on the level below. Exact below [`ENOUGH`].
    ///
    /// Cost: O(log n), and a few hundred steps.
    pub(super) fn estimate(&self, from: &Target<'_>, to: Option<&Target<'_>>) -> usize {
        let mut at = self.head();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            while let Some(next) = at.next(level)
                && next.is_before(from)
            {
                at = next;
            }
            let (mut inside, mut count) = (at, 0usize);
            while let Some(next) = inside.next(level)
                && to.is_none_or(|to| next.is_before(to))
            {
                (inside, count) = (next, count + 1);
            }
            if count >= ENOUGH || level == 0 {
                return count << (2 * level);
            }
        }
        0
    }

    /// Returns the newest version of `key` that is not newer than `snapshot`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], snapshot: SeqNo) -> Option<NodeRef<'_>> {
        self.seek(&Target::new(key, snapshot)).filter(|node| node.key() == key)
    }
}

/// The one writer of a list.
pub(super) struct ListWriter<'l> {
    list: &'l SkipList,
    state: MutexGuard<'l, Writer>,
}

impl ListWriter<'_> {
    /// Links a version that the list does not hold yet. Readers may find it before this returns.
    ///
    /// Cost: O(log n) comparisons, or two if it directly follows the last insertion.
    #[inline]
    pub(super) fn insert(&mut self, version: &Version<'_>) {
        let height = self.random_height();
        self.insert_with_height(version, height);
    }

    /// Returns the bytes of memory taken from chunks.
    pub(super) fn used(&self) -> usize {
        self.state.head.used() + self.state.nodes.used() + self.state.values.used()
    }

    /// Draws a height: 1 + the number of successes in a row, each with probability 1/4.
    fn random_height(&mut self) -> usize {
        let mut x = self.state.random;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.state.random = x;
        let draws = x.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 | 1 << 32;
        (1 + draws.trailing_zeros() as usize / 2).min(MAX_HEIGHT)
    }

    pub(super) fn insert_with_height(&mut self, version: &Version<'_>, height: usize) {
        let list = self.list;
        let Writer { nodes, values, splice, .. } = &mut *self.state;
        let mut levels = load_as_writer!(list.height);
        if height > levels {
            // Above the old height the splice is still (head, null).
            list.height.store(height, Ordering::Relaxed);
            levels = height;
        }
        splice.find(list.head(), &Target::new(version.key, version.seq), levels);
        let node = write_node(nodes, values, height, version);
        // SAFETY: just written; the arenas live as long as the list.
        let node: NodeRef<'_> = unsafe { NodeRef::new(node) };
        for level in 0..height {
            // SAFETY: the splice holds nodes of this list only.
            let (before, after) = unsafe { splice.at(level) };
            node.prepare(level, after);
            before.publish(level, node);
            splice.before[level] = node.as_non_null();
        }
    }
}

impl Splice {
    /// # Safety
    /// The list that the splice belongs to outlives `'l`.
    #[inline(always)]
    unsafe fn at<'l>(&self, level: usize) -> (NodeRef<'l>, Option<NodeRef<'l>>) {
        // SAFETY: all pointers came from `write_node` in the same list, and were written by this writer or one
        // that held the lock before.
        unsafe { (NodeRef::new(self.before[level]), self.after[level].map(|n| NodeRef::new(n))) }
    }

    /// Moves the splice to where `target` belongs, on all of the list's `levels`.
    ///
    /// Climbs from level 0 until the neighbours enclose the target, then searches down from there. An insertion near
    /// the last one stays low; the coarser levels above need no search.
    fn find(&mut self, head: NodeRef<'_>, target: &Target<'_>, levels: usize) {
        // SAFETY: the caller borrows the head, and with it the list.
        let neighbours = |splice: &Splice, level| unsafe { splice.at(level) };
        let (before, after) = neighbours(self, 0);
        let mut level = 1;
        let mut at;
        if let Some(first) = after.filter(|after| after.is_before(target)) {
            at = first;
            while level < levels
                && let Some(after) = neighbours(self, level).1
                && after.is_before(target)
            {
                at = after;
                level += 1;
            }
        } else if before != head && !before.is_before(target) {
            at = head;
            while level < levels {
                let (before, _) = neighbours(self, level);
                if before == head || before.is_before(target) {
                    at = before;
                    break;
                }
                level += 1;
            }
        } else {
            return;
        }
        // `at` is before the target and has a link on each level below `level`.
        let mut bound = None;
        while level > 0 {
            level -= 1;
            let next = loop {
                let next = at.next_as_writer(level);
                if level > 0 {
                    at.prefetch(level - 1);
                }
                match next {
                    Some(node) if next != bound && node.is_before(target) => at = node,
                    _ => break next,
                }
            };
            self.before[level] = at.as_non_null();
            self.after[level] = next.map(NodeRef::as_non_null);
            bound = next;
        }
    }
}
