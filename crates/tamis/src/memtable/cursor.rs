//! Cursors over a memtable, and values that keep it alive.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use tamis_base::key::{Kind, MAX_SEQNO, SeqNo};

use super::Memtable;
use super::node::{Node, NodeRef, Target};
use super::skiplist::Path;

/// A cursor that moves both ways over a memtable while it grows.
///
/// It finds every version whose insertion happened before the move, and may or may not find later
/// ones: snapshot reads skip versions by sequence number. A forward move follows one link. A
/// backward move takes a few steps; the first one takes a search.
pub(crate) struct MemCursor {
    memtable: Arc<Memtable>,
    /// A complete node of `memtable`.
    at: Option<NonNull<Node>>,
    /// The way to `at`, while the cursor moves backward.
    path: Option<Box<Path>>,
}

// SAFETY: the cursor owns a share of the memtable that its pointers lead into, and any thread may
// read a memtable's nodes.
unsafe impl Send for MemCursor {}
// SAFETY: as above; moving takes `&mut self`.
unsafe impl Sync for MemCursor {}

impl MemCursor {
    pub(super) fn new(memtable: Arc<Memtable>) -> MemCursor {
        MemCursor { memtable, at: None, path: None }
    }

    #[inline]
    fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `at` was complete when the cursor met it, and the cursor keeps the memtable, and
        // so the node, alive.
        self.at.map(|node| unsafe { NodeRef::new(node) })
    }

    #[inline]
    fn expect_node(&self) -> NodeRef<'_> {
        self.node().expect("the cursor is on a version")
    }

    /// Returns the memtable.
    pub(crate) fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    /// Reports whether the cursor is on a version. It is not at first, nor after a move beyond
    /// either end.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.at.is_some()
    }

    /// Moves to the first version.
    pub(crate) fn seek_to_first(&mut self) {
        self.go_forward();
        self.at = self.memtable.list().first().map(NodeRef::as_non_null);
    }

    /// Moves to the last version.
    pub(crate) fn seek_to_last(&mut self) {
        let list = self.memtable.list();
        let path = self.path.get_or_insert_with(|| Box::new(list.path()));
        self.at = list.last_along(path).map(NodeRef::as_non_null);
    }

    /// Moves to the first version at or after `(key, seq)` in version order: the newest version of
    /// `key` not newer than `seq`, otherwise the newest one of the next key.
    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) {
        self.go_forward();
        self.at = self.memtable.list().seek(&Target::new(key, seq)).map(NodeRef::as_non_null);
    }

    /// Moves to the last (oldest) version of the last key less than `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) {
        let list = self.memtable.list();
        let path = self.path.get_or_insert_with(|| Box::new(list.path()));
        self.at = list.seek_before_along(&Target::new(key, MAX_SEQNO), path).map(NodeRef::as_non_null);
    }

    /// Moves beyond the last version in either direction.
    pub(crate) fn finish(&mut self) {
        self.go_forward();
        self.at = None;
    }

    /// Returns the largest sequence number of a version in the memtable; see
    /// [`Memtable::max_version`].
    pub(crate) fn max_version(&self) -> SeqNo {
        self.memtable.max_version()
    }

    /// Moves to the next version. Like all methods below, panics if the cursor is not valid.
    #[inline]
    pub(crate) fn next(&mut self) {
        self.go_forward();
        let next = self.expect_node().next(0);
        if let Some(next) = next {
            next.prefetch(0);
        }
        self.at = next.map(NodeRef::as_non_null);
    }

    /// Moves to the previous version.
    pub(crate) fn prev(&mut self) {
        let list = self.memtable.list();
        let at = self.at.expect("the cursor is on a version");
        // SAFETY: `at` was complete when the cursor met it, and lies in this list.
        let node = unsafe { NodeRef::new(at) };
        let path = self.path.get_or_insert_with(|| Box::new(list.path()));
        self.at = list.step_back(node, path).map(NodeRef::as_non_null);
    }

    /// Called by moves that do not keep the way to the current version.
    #[inline]
    fn go_forward(&mut self) {
        if let Some(path) = &mut self.path {
            path.forget();
        }
    }

    /// Returns the user key of the current version.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.expect_node().key()
    }

    /// Returns the current version's sequence number.
    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        self.expect_node().seq()
    }

    /// Returns the current version's kind.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.expect_node().kind()
    }

    /// Returns the current version's key, sequence number and kind.
    #[inline]
    pub(crate) fn head(&self) -> (&[u8], SeqNo, Kind) {
        let node = self.expect_node();
        (node.key(), node.seq(), node.kind())
    }

    /// Returns the current version: key, sequence number, kind, and value (empty for a deletion).
    #[inline]
    pub(crate) fn version(&self) -> (&[u8], SeqNo, Kind, &[u8]) {
        let node = self.expect_node();
        (node.key(), node.seq(), node.kind(), node.value())
    }

    /// Returns the current version's value, pinned beyond the cursor's next move.
    pub(crate) fn pinned_value(&self) -> PinnedMemValue {
        // SAFETY: the node lies in the cursor's memtable.
        unsafe { PinnedMemValue::new(self.memtable.clone(), self.expect_node()) }
    }
}

/// A value pinned in a memtable without a copy. Keeps the whole memtable in memory, so it must be
/// short-lived.
#[derive(Clone)]
pub(crate) struct PinnedMemValue {
    bytes: NonNull<[u8]>,
    /// Keeps `bytes` alive.
    _memtable: Arc<Memtable>,
}

// SAFETY: the bytes are immutable and live as long as the memtable, of which the value has a share.
unsafe impl Send for PinnedMemValue {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemValue {}

impl PinnedMemValue {
    /// # Safety
    /// `node` belongs to `memtable`.
    pub(super) unsafe fn new(memtable: Arc<Memtable>, node: NodeRef<'_>) -> PinnedMemValue {
        PinnedMemValue { bytes: NonNull::from(node.value()), _memtable: memtable }
    }
}

impl Deref for PinnedMemValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie in the arena of the memtable that this value keeps, and never
        // change.
        unsafe { self.bytes.as_ref() }
    }
}

impl std::fmt::Debug for MemCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemCursor").field("valid", &self.valid()).finish_non_exhaustive()
    }
}
