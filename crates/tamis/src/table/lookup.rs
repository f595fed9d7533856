//! Point lookups in a table: index, block, value. In one go, or in steps for many keys at once.

use tamis_filter::Digest;

use super::block::{BlockView, Lookup};
use super::data::PinnedValue;
use super::index::BlockAt;
use super::prefetch::prefetch;
use super::reader::Table;
use super::trace::ReadTrace;
use crate::error::StorageError;
use crate::key::{Kind, SeqNo};

/// What a table knows of a key at a snapshot.
#[derive(Clone, Debug)]
pub(crate) enum TableLookup {
    /// The newest version that the snapshot sees.
    Found {
        /// Its sequence number.
        seq: SeqNo,
        /// What it says.
        kind: Kind,
        /// Its value; empty in a delete.
        value: PinnedValue,
    },
    /// There is none.
    Absent,
}

impl Table {
    /// The first block that may hold `key`, or `None` if the table ends before it. Cost: one search of the
    /// index in memory; no block is touched.
    #[inline]
    pub(crate) fn locate<T: ReadTrace>(
        &self,
        key: &[u8],
        trace: &mut T,
    ) -> Result<Option<BlockAt>, StorageError> {
        let index = self.index(trace)?;
        trace.index_searched();
        Ok(index.find(key).and_then(|i| index.block(i)))
    }

    /// Asks the processor for the lines that a lookup in the block starts with. Does nothing for a file that
    /// is not mapped.
    #[inline]
    pub(crate) fn prefetch_block(&self, at: BlockAt) {
        if let Some(stored) = self.mapped_block(at) {
            prefetch_tail(stored);
        }
    }

    /// The newest version of `key` with a sequence number of at most `snapshot`, looked for from the block
    /// that [`locate`](Self::locate) gave for the key. Touches one block, unless the key has so many newer
    /// versions that they fill it.
    pub(crate) fn get_in_block<T: ReadTrace>(
        &self,
        mut at: BlockAt,
        key: &[u8],
        digest: Option<Digest>,
        snapshot: SeqNo,
        trace: &mut T,
    ) -> Result<TableLookup, StorageError> {
        if snapshot < self.global_seq() {
            return Ok(TableLookup::Absent);
        }
        loop {
            let block = self.block(at, true, trace)?;
            let found = BlockView::parse(&block).and_then(|view| {
                let (lookup, answer) = view.find(key, digest, snapshot)?;
                trace.hash_index_answered(answer);
                Ok(match lookup {
                    Lookup::Found { index } => {
                        let (seq, kind, value) = (
                            view.seq(index)?.max(self.global_seq()),
                            view.kind(index)?,
                            view.value_span(index)?,
                        );
                        Some(Some((seq, kind, value)))
                    }
                    Lookup::NotHere => Some(None),
                    Lookup::ContinueInNextBlock => None,
                })
            });
            match found.map_err(|damage| self.damaged(at.offset, damage))? {
                Some(Some((seq, kind, span))) => {
                    return Ok(TableLookup::Found { seq, kind, value: self.pin(&block, span) });
                }
                Some(None) => return Ok(TableLookup::Absent),
                None => {}
            }
            match self.index(trace)?.block(at.index + 1) {
                Some(next) => at = next,
                None => return Ok(TableLookup::Absent),
            }
        }
    }

    /// The newest version of `key` with a sequence number of at most `snapshot`. With `digest` (the key's)
    /// the block's hash index is used.
    #[inline]
    pub(crate) fn get<T: ReadTrace>(
        &self,
        key: &[u8],
        digest: Option<Digest>,
        snapshot: SeqNo,
        trace: &mut T,
    ) -> Result<TableLookup, StorageError> {
        match self.locate(key, trace)? {
            Some(at) => self.get_in_block(at, key, digest, snapshot, trace),
            None => Ok(TableLookup::Absent),
        }
    }
}

/// Asks for the last lines of a stored block: footer, fingerprints, arrays and keys of a usual block,
/// which otherwise are found one after the other. A sixteenth of a block is what they take with values of
/// a few hundred bytes; beyond sixteen lines the processor would not follow.
#[inline]
pub(super) fn prefetch_tail(block: &[u8]) {
    let tail = (block.len() / 16 + 64).min(1024);
    for line in block[block.len().saturating_sub(tail)..].chunks(64) {
        prefetch(line);
    }
    // The pieces need not start at lines' starts.
    prefetch(&block[block.len().saturating_sub(1)..]);
}
