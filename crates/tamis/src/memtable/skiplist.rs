//! A skip list of versions, for any number of writers and readers. None waits for another.
//!
//! # Invariants
//! * Level 0 links every version in ascending order; each level links a subset of the level below.
//! * The head has a link on every level. A reader that sees an old height only takes a longer path;
//!   one that sees a new height at worst finds null links.
//! * A node is published from level 0 upwards: a reader that finds it on a level finds it on all
//!   levels below.
//! * Nothing is ever unlinked: a node that was before a version stays before it.
//!
//! # Threads
//! A writer links a node by compare-and-exchange on the link of the node before it: the link must
//! still lead to the node after it. Otherwise another writer linked a node between them, and the
//! search resumes from the node before. The exchange is `Release` and links are followed with
//! `Acquire`, so a thread that reaches a node finds it whole, and finds whole what it leads to. The
//! height is a hint (`Relaxed`). A search finds a concurrently inserted version whole or not at
//! all.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, TryLockError};

use tamis_base::key::{Kind, SeqNo};

use super::arena::Arena;
use super::chunks::ChunkAccount;
use super::node::{MAX_HEIGHT, NODE_ALIGN, NewEntry, Node, NodeRef, Target, write_node};
use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};

/// This many nodes on a level suffice to estimate the number of nodes below.
const ENOUGH: usize = 64;

pub(super) struct SkipList {
    head: NonNull<Node>,
    /// The number of levels in use. A hint.
    height: AtomicUsize,
    /// The head's memory. Separate, so that an unused list takes no chunk.
    head_memory: Arena,
    nodes: Arena,
    values: Arena,
    /// Where the last insertion was. A writer that finds it taken begins at the head.
    last: Mutex<Splice>,
}

// SAFETY: `head` and everything reachable from it belongs to the arenas. It is written before it is
// published, and read through links with the publish protocol of `node`.
unsafe impl Send for SkipList {}
// SAFETY: as above; `&SkipList` hands out only shared views of complete, immutable data.
unsafe impl Sync for SkipList {}

/// The last insertion's neighbours on each level. If the next version lies between them, that level
/// needs no search.
///
/// Invariants: `before` precedes `after`, and the neighbours on all levels above enclose both.
/// Other writers may have linked nodes between them since. Above the list's height at the time, a
/// level is (head, null).
struct Splice {
    before: [NonNull<Node>; MAX_HEIGHT],
    after: [Option<NonNull<Node>>; MAX_HEIGHT],
    /// Whether it marks an insertion. If not, it is (head, null) on every level, and the list may
    /// hold anything.
    placed: bool,
}

// SAFETY: the pointers are followed only while the list lives, and any thread may read its nodes.
unsafe impl Send for Splice {}

/// The way to a cursor's version: on each level a node before the version, mostly the last one.
/// Nodes inserted since may lie between. A step back changes only the levels of one tower, where a
/// search from the head visits all levels.
///
/// Belongs to one cursor.
pub(super) struct Path {
    before: [NonNull<Node>; MAX_HEIGHT],
    /// Whether it leads to the cursor's version.
    placed: bool,
}

impl Path {
    /// Forgets the cursor's version.
    pub(super) fn forget(&mut self) {
        self.placed = false;
    }
}

/// The most nodes to pass on a level in search of a predecessor known to be near. If there are
/// more, they were inserted since.
const NEAR: usize = 64;

impl SkipList {
    /// Creates an empty list that allocates in chunks of up to `chunk_bytes`, counted in `account`.
    pub(super) fn new(chunk_bytes: usize, account: &Arc<ChunkAccount>) -> SkipList {
        let head_memory = Arena::new(1, NODE_ALIGN, Arc::default());
        let nodes = Arena::new(chunk_bytes, NODE_ALIGN, account.clone());
        let values = Arena::new(chunk_bytes, 1, account.clone());
        let nothing = NewEntry { key: &[], seq: 0, kind: Kind::Delete, value: &[] };
        let head = write_node(&head_memory, &values, MAX_HEIGHT, &nothing);
        let last = Mutex::new(Splice::at_head(head));
        SkipList { head, height: AtomicUsize::new(1), head_memory, nodes, values, last }
    }

    #[inline(always)]
    fn head(&self) -> NodeRef<'_> {
        // SAFETY: written in `new`; the arenas live as long as the list.
        unsafe { NodeRef::new(self.head) }
    }

    /// Returns a way that leads nowhere yet.
    pub(super) fn path(&self) -> Path {
        Path { before: [self.head; MAX_HEIGHT], placed: false }
    }

    /// Returns a writer. One writer at a time continues where the last insertion was.
    pub(super) fn writer(&self) -> ListWriter<'_> {
        let splice = match self.last.try_lock() {
            Ok(last) => InsertPosition::Shared(last),
            // A writer can only panic before it links anything (on a key or value that is too
            // long), so its position stays true.
            Err(TryLockError::Poisoned(last)) => InsertPosition::Shared(last.into_inner()),
            Err(TryLockError::WouldBlock) => InsertPosition::Own(Splice::at_head(self.head)),
        };
        ListWriter { list: self, splice }
    }

    /// Returns the bytes of all chunks, beyond those of an empty list.
    pub(super) fn held(&self) -> usize {
        self.nodes.held() + self.values.held()
    }

    /// Returns the bytes of memory taken from chunks.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.head_memory.used() + self.nodes.used() + self.values.used()
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
            // On the way down, one node often bounds several levels and need not be compared again.
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
    #[cfg(all(test, loom))]
    pub(super) fn seek_before(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        self.last_where(|node| node.is_before(target), |_, _| {})
    }

    /// Returns the last version that is before `target`, and the way to it.
    pub(super) fn seek_before_along(&self, target: &Target<'_>, path: &mut Path) -> Option<NodeRef<'_>> {
        let at = self.last_where_along(|node| node.is_before(target), path)?;
        self.retreat(at, path);
        Some(at)
    }

    /// Returns the last version, and the way to it.
    pub(super) fn last_along(&self, path: &mut Path) -> Option<NodeRef<'_>> {
        let at = self.last_where_along(|_| true, path)?;
        self.retreat(at, path);
        Some(at)
    }

    /// Returns the last version before `at`, and the way to it. `path` is the way to `at` if it is
    /// `placed`.
    ///
    /// Cost: a handful of steps on average if `path` is placed, a search otherwise.
    pub(super) fn step_back(&self, at: NodeRef<'_>, path: &mut Path) -> Option<NodeRef<'_>> {
        let target = Target::new(at.key(), at.seq());
        if !path.placed {
            return self.seek_before_along(&target, path);
        }
        // SAFETY: the path holds nodes of this list.
        let from: NodeRef<'_> = unsafe { NodeRef::new(path.before[0]) };
        let Some(before) = from.last_within(0, &target, NEAR) else {
            return self.seek_before_along(&target, path);
        };
        if before == self.head() {
            path.placed = false;
            return None;
        }
        path.before[0] = before.as_non_null();
        self.retreat(before, path);
        Some(before)
    }

    /// Turns the way to `at`'s successor into the way to `at`: only the levels of `at` change.
    fn retreat(&self, at: NodeRef<'_>, path: &mut Path) {
        let target = Target::new(at.key(), at.seq());
        let height = at.height();
        // SAFETY: the path holds nodes of this list.
        let of = |path: &Path, level: usize| unsafe { NodeRef::new(path.before[level]) };
        let mut from = if height < MAX_HEIGHT { of(path, height) } else { self.head() };
        for level in (0..height).rev() {
            // A known node other than `at` precedes `at`'s successor, and so precedes `at`. It is
            // nearer than the node of the level above.
            let known: NodeRef<'_> = of(path, level);
            if known != at {
                from = known;
            }
            let Some(before) = from.last_within(level, &target, NEAR) else {
                // Many were inserted since: the next step searches.
                path.placed = false;
                return;
            };
            path.before[level] = before.as_non_null();
            from = before;
        }
    }

    /// Returns the first version.
    pub(super) fn first(&self) -> Option<NodeRef<'_>> {
        self.head().next(0)
    }

    /// Returns the first version on a level.
    #[cfg(all(test, loom))]
    pub(super) fn first_on(&self, level: usize) -> Option<NodeRef<'_>> {
        self.head().next(level)
    }

    /// Returns the last version.
    #[cfg(all(test, loom))]
    pub(super) fn last(&self) -> Option<NodeRef<'_>> {
        self.last_where(|_| true, |_, _| {})
    }

    /// Returns the last version for which `holds` is true; it must be true for a prefix of the
    /// list. Shows `visit` the last such version of each level.
    #[inline]
    fn last_where(
        &self,
        holds: impl Fn(NodeRef<'_>) -> bool,
        mut visit: impl FnMut(usize, NodeRef<'_>),
    ) -> Option<NodeRef<'_>> {
        let mut at = self.head();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            while let Some(next) = at.next(level)
                && holds(next)
            {
                at = next;
            }
            visit(level, at);
        }
        (at != self.head()).then_some(at)
    }

    /// The same, and makes `path` the way to the successor.
    fn last_where_along(&self, holds: impl Fn(NodeRef<'_>) -> bool, path: &mut Path) -> Option<NodeRef<'_>> {
        *path = Path { before: [self.head; MAX_HEIGHT], placed: true };
        self.last_where(holds, |level, node| path.before[level] = node.as_non_null())
    }

    /// Estimates the number of versions not before `from` and, if given, before `to`. Exact below
    /// [`ENOUGH`].
    ///
    /// Cost: O(log n), and a few hundred steps.
    pub(super) fn estimate(&self, from: &Target<'_>, to: Option<&Target<'_>>) -> usize {
        let mut count = 0;
        let each = self.sample(from, to, |_| count += 1);
        count * each
    }

    /// Passes versions not before `from` and, if given, before `to`, in order: the nodes of the
    /// highest level with enough of them in that range. Each stands for 4 on the level below.
    /// Returns how many versions each stands for.
    ///
    /// Cost: O(log n), and a few hundred steps.
    pub(super) fn sample<'l>(
        &'l self,
        from: &Target<'_>,
        to: Option<&Target<'_>>,
        mut pass: impl FnMut(NodeRef<'l>),
    ) -> usize {
        let mut at = self.head();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            while let Some(next) = at.next(level)
                && next.is_before(from)
            {
                at = next;
            }
            let inside = || {
                std::iter::successors(at.next(level), |node| node.next(level))
                    .take_while(|next| to.is_none_or(|to| next.is_before(to)))
            };
            if level == 0 || inside().take(ENOUGH).count() == ENOUGH {
                inside().for_each(&mut pass);
                return 1 << (2 * level);
            }
        }
        1
    }

    /// Returns the newest version of `key` that is not newer than `snapshot`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], snapshot: SeqNo) -> Option<NodeRef<'_>> {
        self.seek(&Target::new(key, snapshot)).filter(|node| node.key() == key)
    }
}

/// Inserts into a list.
pub(super) struct ListWriter<'l> {
    list: &'l SkipList,
    splice: InsertPosition<'l>,
}

/// A writer's position: the shared one of the last insertion, or its own.
#[expect(
    clippy::large_enum_variant,
    reason = "on the stack of one writer, where a box would cost an allocation"
)]
enum InsertPosition<'l> {
    Shared(MutexGuard<'l, Splice>),
    Own(Splice),
}

impl Deref for InsertPosition<'_> {
    type Target = Splice;

    fn deref(&self) -> &Splice {
        match self {
            InsertPosition::Shared(splice) => splice,
            InsertPosition::Own(splice) => splice,
        }
    }
}

impl DerefMut for InsertPosition<'_> {
    fn deref_mut(&mut self) -> &mut Splice {
        match self {
            InsertPosition::Shared(splice) => splice,
            InsertPosition::Own(splice) => splice,
        }
    }
}

impl ListWriter<'_> {
    /// Links a version that the list does not hold yet. Readers may find it before this returns.
    ///
    /// Cost: O(log n) comparisons, or two if it directly follows the last insertion.
    #[inline]
    pub(super) fn insert(&mut self, version: &NewEntry<'_>) {
        self.insert_with_height(version, height_of(version.seq));
    }

    pub(super) fn insert_with_height(&mut self, version: &NewEntry<'_>, height: usize) {
        let list = self.list;
        let mut levels = list.height.load(Ordering::Relaxed);
        if height > levels {
            list.height.fetch_max(height, Ordering::Relaxed);
            levels = height;
        }
        let target = Target::new(version.key, version.seq);
        let splice = &mut *self.splice;
        splice.find(list.head(), &target, levels);
        let node = write_node(&list.nodes, &list.values, height, version);
        // SAFETY: just written; the arenas live as long as the list.
        let node: NodeRef<'_> = unsafe { NodeRef::new(node) };
        let mut overtaken = false;
        for level in 0..height {
            // SAFETY: the splice holds only nodes of this list.
            let (mut before, mut after) = unsafe { splice.at(level) };
            loop {
                node.prepare(level, after);
                if before.publish(level, after, node) {
                    break;
                }
                overtaken = true;
                (before, after) = before.last_before(level, &target);
            }
            splice.before[level] = node.as_non_null();
        }
        if overtaken {
            // The levels were looked up at different times and may no longer enclose each other.
            *splice = Splice::at_head(list.head);
        }
    }
}

/// Returns the height of the tower of version `seq`: 1 + the number of successes in a row, each
/// with probability 1/4. Heights may be predictable: nothing is ever removed, so no order of keys
/// can select for certain heights.
fn height_of(seq: SeqNo) -> usize {
    let mut x = seq.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let draws = x >> 32 | 1 << 32;
    (1 + draws.trailing_zeros() as usize / 2).min(MAX_HEIGHT)
}

impl Splice {
    fn at_head(head: NonNull<Node>) -> Splice {
        Splice { before: [head; MAX_HEIGHT], after: [None; MAX_HEIGHT], placed: false }
    }

    /// # Safety
    /// The list that the splice belongs to outlives `'l`.
    #[inline(always)]
    unsafe fn at<'l>(&self, level: usize) -> (NodeRef<'l>, Option<NodeRef<'l>>) {
        // SAFETY: all pointers came from `write_node` in the same list, and were followed by this
        // writer or by an earlier holder of the splice's lock.
        unsafe { (NodeRef::new(self.before[level]), self.after[level].map(|n| NodeRef::new(n))) }
    }

    /// Moves the splice to where `target` belongs, on all of the list's `levels`.
    ///
    /// Climbs from level 0 until the neighbours enclose the target, then searches down from there.
    /// An insertion near the last one stays low: the coarser levels above need no search.
    fn find(&mut self, head: NodeRef<'_>, target: &Target<'_>, levels: usize) {
        // SAFETY: the caller borrows the head, and with it the list.
        let neighbours = |splice: &Splice, level| unsafe { splice.at(level) };
        let (before, after) = neighbours(self, 0);
        let mut level = 1;
        let mut at;
        if !self.placed {
            // The head and the end enclose it, but everything may lie between.
            (at, level) = (head, levels);
            self.placed = true;
        } else if let Some(first) = after.filter(|after| after.is_before(target)) {
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
                let next = at.next(level);
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
