//! Point lookups in a table, from index to block to value: in one call, or in steps for many keys
//! at once.

use tamis_base::key::{Entry, SeqNo};
use tamis_env::io::Touch;
use tamis_filter::Digest;

use super::block::{BlockView, InBlock};
use super::data::{BlockRef, HeapBlock, PinnedValue};
use super::index::BlockAt;
use super::reader::Table;
use super::trace::{BlockSource, BlockTouch, ReadTrace};
use crate::error::StorageError;
use crate::table::reader::prefetch_tail;

impl Table {
    /// The first block that may hold `key`, or `None` if the table ends before it. Cost: one search
    /// of the in-memory index; no block is touched.
    #[inline]
    pub fn locate<T: ReadTrace>(&self, key: &[u8], trace: &mut T) -> Result<Option<BlockAt>, StorageError> {
        let index = self.index(trace)?;
        trace.index_searched();
        Ok(index.find(key).and_then(|i| index.block(i)))
    }

    /// Prefetches the cache lines that a lookup in the block starts with. Does nothing if the file
    /// is not mapped.
    #[inline]
    pub fn prefetch_block(&self, at: BlockAt) {
        if let Some(stored) = self.mapped_block(at) {
            prefetch_tail(stored);
        }
    }

    /// Returns the newest version of `key` with a sequence number of at most `snapshot`, searching
    /// from the block that [`locate`](Self::locate) returned for the key. Uses the block's hash
    /// index if given the key's `digest`. Touches one block, unless newer versions of the key reach
    /// its end.
    #[inline]
    pub fn get_in_block<T: ReadTrace>(
        &self,
        at: BlockAt,
        key: &[u8],
        digest: Option<Digest>,
        snapshot: SeqNo,
        trace: &mut T,
    ) -> Result<Option<Entry<PinnedValue>>, StorageError> {
        if snapshot < self.global_seq() {
            return Ok(None);
        }
        let block = self.block(at, true, Touch::Next, trace)?;
        self.search_from(block, at, key, digest, snapshot, trace)
    }

    /// Like [`get_in_block`](Self::get_in_block), for a block that was [fetched](super::fetch)
    /// before and is thus verified.
    #[inline]
    pub fn get_in_fetched<T: ReadTrace>(
        &self,
        (at, block, source): (BlockAt, HeapBlock, BlockSource),
        key: &[u8],
        digest: Option<Digest>,
        snapshot: SeqNo,
        trace: &mut T,
    ) -> Result<Option<Entry<PinnedValue>>, StorageError> {
        if snapshot < self.global_seq() {
            return Ok(None);
        }
        trace.block_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
        self.search_from(BlockRef::Heap(block), at, key, digest, snapshot, trace)
    }

    #[inline]
    fn search_from<'t, T: ReadTrace>(
        &'t self,
        mut block: BlockRef<'t>,
        mut at: BlockAt,
        key: &[u8],
        digest: Option<Digest>,
        snapshot: SeqNo,
        trace: &mut T,
    ) -> Result<Option<Entry<PinnedValue>>, StorageError> {
        loop {
            let found = BlockView::parse(&block).and_then(|view| {
                let (found, answer) = view.find(key, digest, snapshot)?;
                trace.hash_index_answered(answer);
                Ok(match found {
                    InBlock::Here(i) => {
                        let (kind, span) = (view.kind(i)?, view.value_span(i)?);
                        Some(Some(Entry { seq: view.seq(i)?.max(self.global_seq()), kind, value: span }))
                    }
                    InBlock::Absent => Some(None),
                    InBlock::PerhapsNext => None,
                })
            });
            if let Some(found) = found.map_err(|damage| self.damaged(at.offset, damage))? {
                return Ok(found.map(|Entry { seq, kind, value }| Entry {
                    seq,
                    kind,
                    value: self.pin(&block, value),
                }));
            }
            match self.block_with(at, key, snapshot, trace)? {
                Some(next) => at = next,
                None => return Ok(None),
            }
            block = self.block(at, true, Touch::Next, trace)?;
        }
    }

    /// Returns the block in which to continue a search that found only newer versions of `key` at
    /// the end of `block`. These may fill many blocks; this reads a logarithmic number of them.
    #[cold]
    fn block_with<T: ReadTrace>(
        &self,
        block: BlockAt,
        key: &[u8],
        snapshot: SeqNo,
        trace: &mut T,
    ) -> Result<Option<BlockAt>, StorageError> {
        let behind = self.index(trace)?.behind_all_of(block.index, key);
        let (mut low, mut high) = (block.index + 1, behind);
        // Find the first block whose last entry is not a newer version, or else the block after all
        // those that may end with a version of `key`.
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(at) = self.index(trace)?.block(middle) else { break };
            let bytes = self.block(at, true, Touch::Next, trace)?;
            let all_newer = BlockView::parse(&bytes)
                .and_then(|view| Ok(view.lower_bound(key, snapshot)? == view.len()))
                .map_err(|damage| self.damaged(at.offset, damage))?;
            if all_newer {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(self.index(trace)?.block(low))
    }

    /// Returns the newest version of `key` with a sequence number of at most `snapshot`. Uses the
    /// block's hash index if given the key's `digest`.
    #[inline]
    pub fn get<T: ReadTrace>(
        &self,
        key: &[u8],
        digest: Option<Digest>,
        snapshot: SeqNo,
        trace: &mut T,
    ) -> Result<Option<Entry<PinnedValue>>, StorageError> {
        match self.locate(key, trace)? {
            Some(at) => self.get_in_block(at, key, digest, snapshot, trace),
            None => Ok(None),
        }
    }
}
