//! One version in arena memory, and its order.
//!
//! ```text
//! | prefix u64 | seq << 8 | kind u64 | value ptr | value len u32 | height << 24 | key len u32 |
//! | link 0 | … | link height-1 | key bytes | value bytes, if the value is short |
//! ```
//!
//! The node holds the key's first eight bytes as a number, so most comparisons do not touch the
//! key. Long values lie in separate chunks, so nodes stay dense and a search touches fewer pages.
//!
//! # Invariants
//! * Everything but the links is written before the node is published and never changes after.
//! * A link is null or points to a node of the same list whose version is greater.
//! * A link is stored with `Release` after its target is complete, and loaded with `Acquire`.

use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;

use tamis_base::key::{Kind, SeqNo, prefix_of};

use super::arena::Arena;
use super::sync::{AtomicPtr, Ordering, Published};

/// The tallest tower: with probability 1/4 per level, enough for 250 million versions.
pub(super) const MAX_HEIGHT: usize = if cfg!(all(test, loom)) { 3 } else { 14 };

/// Values up to this length are stored after their key; longer ones in the value chunks.
const INLINE_VALUE: usize = 32;

const HEIGHT_SHIFT: u32 = 24;

#[cfg(test)]
thread_local! {
    /// Version comparisons made by this thread.
    pub(super) static COMPARISONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The alignment of a node.
pub(super) const NODE_ALIGN: usize = std::mem::align_of::<Node>();

type Link = AtomicPtr<Node>;

#[derive(Clone, Copy)]
pub(super) struct Header {
    prefix: u64,
    seq_kind: u64,
    value: NonNull<u8>,
    value_len: u32,
    height_key_len: u32,
}

/// The fixed part of a node. `height` links and the key follow in the same allocation.
#[repr(C)]
pub(super) struct Node {
    header: Published<Header>,
    tower: [Link; 0],
}

/// The version that a search looks for.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    prefix: u64,
    key: &'k [u8],
    seq: SeqNo,
}

impl<'k> Target<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8], seq: SeqNo) -> Self {
        Target { prefix: prefix_of(key), key, seq }
    }
}

/// A complete node of a list that lives at least as long as `'l`.
///
/// Copies carry the provenance of the whole chunk: links and key lie beyond `Node`'s own size.
#[derive(Clone, Copy)]
pub(super) struct NodeRef<'l> {
    node: NonNull<Node>,
    list: PhantomData<&'l Node>,
}

/// The content of a new node.
pub(super) struct NewEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) seq: SeqNo,
    pub(super) kind: Kind,
    pub(super) value: &'a [u8],
}

/// Writes a node with null links into `nodes`, and a long value into `values`.
///
/// `nodes` aligns to [`NODE_ALIGN`]. `height` is 1 to [`MAX_HEIGHT`]. The key is shorter than 2^24
/// bytes, the value at most `u32::MAX`, and the sequence number below 2^56: [`super::Memtable`]
/// checks all three.
pub(super) fn write_node(
    nodes: &Arena,
    values: &Arena,
    height: usize,
    version: &NewEntry<'_>,
) -> NonNull<Node> {
    let &NewEntry { key, seq, kind, value } = version;
    debug_assert!((1..=MAX_HEIGHT).contains(&height) && key.len() < 1 << HEIGHT_SHIFT);
    let key_at = offset_of!(Node, tower) + height * size_of::<Link>();
    let value_at = key_at + key.len();
    let inline = value.len() <= INLINE_VALUE;
    let piece = nodes.alloc(value_at + if inline { value.len() } else { 0 });
    let value_ptr = if inline {
        // SAFETY: the piece ends `value.len()` bytes after `value_at`.
        unsafe { piece.add(value_at) }
    } else {
        values.alloc(value.len())
    };
    let header = Header {
        prefix: prefix_of(key),
        seq_kind: seq << 8 | kind as u64,
        value: value_ptr,
        value_len: value.len() as u32,
        height_key_len: (height as u32) << HEIGHT_SHIFT | key.len() as u32,
    };
    let node = piece.cast::<Node>();
    // SAFETY: the piece is aligned for a node, holds header, `height` links and the key, and
    // nothing else refers to it yet; `value_ptr` has room for the value. The pieces are new, so
    // they cannot overlap the sources.
    unsafe {
        (&raw mut (*node.as_ptr()).header).write(Published::new(header));
        let tower = (&raw mut (*node.as_ptr()).tower).cast::<Link>();
        for level in 0..height {
            tower.add(level).write(Link::new(std::ptr::null_mut()));
        }
        piece.add(key_at).as_ptr().copy_from_nonoverlapping(key.as_ptr(), key.len());
        value_ptr.as_ptr().copy_from_nonoverlapping(value.as_ptr(), value.len());
    }
    node
}

impl<'l> NodeRef<'l> {
    /// # Safety
    /// `node` came from [`write_node`], that call happened before this one, and its arenas outlive
    /// `'l`.
    #[inline(always)]
    pub(super) unsafe fn new(node: NonNull<Node>) -> Self {
        NodeRef { node, list: PhantomData }
    }

    #[inline(always)]
    pub(super) fn as_non_null(self) -> NonNull<Node> {
        self.node
    }

    #[inline(always)]
    fn header(self) -> Header {
        // SAFETY: the header is complete and never changes (invariants of `NodeRef`).
        unsafe { (*self.node.as_ptr()).header.get() }
    }

    #[inline(always)]
    pub(super) fn seq(self) -> SeqNo {
        self.header().seq_kind >> 8
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        // The byte is one that `write_node` stores.
        match (self.header().seq_kind & 0xFF) as u8 {
            byte if byte == Kind::Put as u8 => Kind::Put,
            byte if byte == Kind::Merge as u8 => Kind::Merge,
            byte if byte == Kind::PutBlob as u8 => Kind::PutBlob,
            _ => Kind::Delete,
        }
    }

    #[inline(always)]
    pub(super) fn height(self) -> usize {
        (self.header().height_key_len >> HEIGHT_SHIFT) as usize
    }

    #[inline(always)]
    pub(super) fn key(self) -> &'l [u8] {
        let packed = self.header().height_key_len;
        let (height, len) =
            ((packed >> HEIGHT_SHIFT) as usize, (packed & ((1 << HEIGHT_SHIFT) - 1)) as usize);
        let at = offset_of!(Node, tower) + height * size_of::<Link>();
        // SAFETY: `write_node` put `len` bytes of key behind `height` links, in the piece whose
        // provenance `node` has. They are never written again while the list lives.
        unsafe { std::slice::from_raw_parts(self.node.cast::<u8>().add(at).as_ptr(), len) }
    }

    #[inline(always)]
    pub(super) fn value(self) -> &'l [u8] {
        let header = self.header();
        // SAFETY: `write_node` put `value_len` bytes there. They are never written again while the
        // list lives.
        unsafe { std::slice::from_raw_parts(header.value.as_ptr(), header.value_len as usize) }
    }

    /// Returns the link of `level`, which must be below the node's height.
    #[inline(always)]
    fn link(self, level: usize) -> &'l Link {
        debug_assert!(level < self.height());
        // SAFETY: `write_node` made `height` links behind the header. Callers follow a level's
        // links only between nodes of that level, so `level < height`.
        unsafe { &*(&raw const (*self.node.as_ptr()).tower).cast::<Link>().add(level) }
    }

    /// Returns the next node on `level`.
    #[inline(always)]
    pub(super) fn next(self, level: usize) -> Option<NodeRef<'l>> {
        let next = NonNull::new(self.link(level).load(Ordering::Acquire))?;
        // SAFETY: links hold complete nodes of the same list. The `Acquire` load pairs with the
        // `Release` store of `publish`, so the node's writes happened before.
        Some(unsafe { NodeRef::new(next) })
    }

    /// Sets a link of a node that no reader can reach on `level` yet.
    #[inline(always)]
    pub(super) fn prepare(self, level: usize, next: Option<NodeRef<'l>>) {
        self.link(level).store(next.map_or(std::ptr::null_mut(), |n| n.node.as_ptr()), Ordering::Relaxed);
    }

    /// Makes `next`, with everything written to it before, reachable after this node on `level`, if
    /// `after` is still the next node there.
    #[inline(always)]
    pub(super) fn publish(self, level: usize, after: Option<NodeRef<'l>>, next: NodeRef<'l>) -> bool {
        let after = after.map_or(std::ptr::null_mut(), |n| n.node.as_ptr());
        self.link(level)
            .compare_exchange(after, next.node.as_ptr(), Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the last node before `target` on `level`, and its successor there. Starts at this
    /// node, which must be before `target`.
    #[cold]
    pub(super) fn last_before(self, level: usize, target: &Target<'_>) -> (NodeRef<'l>, Option<NodeRef<'l>>) {
        let mut at = self;
        loop {
            match at.next(level) {
                Some(next) if next.is_before(target) => at = next,
                next => return (at, next),
            }
        }
    }

    /// Returns the last node before `target` on `level`; `None` if it is more than `most` steps
    /// away. Starts at this node, which must be before `target`.
    #[inline]
    pub(super) fn last_within(self, level: usize, target: &Target<'_>, most: usize) -> Option<NodeRef<'l>> {
        let mut at = self;
        for _ in 0..=most {
            match at.next(level) {
                Some(next) if next.is_before(target) => at = next,
                _ => return Some(at),
            }
        }
        None
    }

    /// Prefetches the start of the next node on `level`.
    #[inline(always)]
    pub(super) fn prefetch(self, level: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(all(test, loom))))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let next = self.link(level).load(Ordering::Relaxed);
            // SAFETY: a prefetch reads nothing that the program can see and cannot fault, even on
            // null; SSE is part of every x86-64 processor.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(next.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(all(test, loom)))))]
        let _ = level;
    }

    /// Reports whether this version comes before `target`.
    #[inline(always)]
    pub(super) fn is_before(self, target: &Target<'_>) -> bool {
        #[cfg(test)]
        COMPARISONS.with(|count| count.set(count.get() + 1));
        let prefix = self.header().prefix;
        if prefix != target.prefix {
            return prefix < target.prefix;
        }
        self.is_before_in_prefix(target)
    }

    #[inline]
    fn is_before_in_prefix(self, target: &Target<'_>) -> bool {
        let key = self.key();
        // Equal prefixes are padded with zeros: if either key ends within its first eight bytes,
        // the shorter one is a prefix of the other.
        let order = if key.len() <= 8 || target.key.len() <= 8 {
            key.len().cmp(&target.key.len())
        } else {
            key[8..].cmp(&target.key[8..])
        };
        match order {
            Order::Less => true,
            Order::Equal => self.seq() > target.seq,
            Order::Greater => false,
        }
    }
}

impl PartialEq for NodeRef<'_> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}
