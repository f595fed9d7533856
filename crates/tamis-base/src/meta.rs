//! What the tree knows about a table without opening it.

use crate::epochs::{Epoch, EpochMap};
use crate::ids::{BlobFileId, TableId};
use crate::key::{KeyBytes, KeyEnd, SeqNo};

/// One table as the manifest records it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableMeta {
    /// The file's number.
    pub id: TableId,
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// The smallest key that the table covers (by a version, or the start of a range tombstone).
    pub smallest: KeyBytes,
    /// The end of the keys that the table covers.
    pub largest: KeyEnd,
    /// The number of key versions, including deletes but not range tombstones.
    pub entries: u64,
    /// The number of deletes among the entries.
    pub deletes: u64,
    /// Range tombstones in the table (after fragmentation).
    pub range_tombstones: u64,
    /// Bytes of all user keys and values before compression.
    pub raw_bytes: u64,
    /// The smallest sequence number in the table (0 where the engine dropped it because no reader
    /// can need it).
    pub min_seq: SeqNo,
    /// The largest sequence number in the table.
    pub max_seq: SeqNo,
    /// The flushes that the table's versions may come from, as a step function over its key range.
    pub epochs: EpochMap,
    /// Optional parts of the record.
    pub extra: TableExtra,
}

/// The parts of a table's record that not every table has; the default is the meaning of their
/// absence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableExtra {
    /// When the oldest and the newest of its data was flushed or ingested, in seconds since 1970;
    /// 0: unknown.
    pub written: (u64, u64),
    /// The sequence number of entries stored with number 0 (in an ingested table). `min_seq` and
    /// `max_seq` already include it.
    pub global_seq: Option<SeqNo>,
    /// Bytes of keys and values that were kept only for snapshots when the table was written: the
    /// sequence number of the snapshot that still needed them, ascending, and the number of bytes.
    pub pinned: Vec<(SeqNo, u64)>,
    /// In the last level of a deterministic tree: how much longer blocks of flushes are than the
    /// size ratio says.
    pub stretch: Option<Stretch>,
    /// The oldest of its deletes and range tombstones, where that is recorded.
    pub oldest_delete: Option<OldestDelete>,
    /// The blob files that its entries refer to, by ascending number, with the bytes of the records
    /// referred to.
    pub blobs: Vec<(BlobFileId, u64)>,
}

/// The oldest of the deletes and range tombstones of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestDelete {
    /// Its sequence number.
    pub seq: SeqNo,
    /// It was not written before this time, in seconds since 1970.
    pub since: u64,
}

/// Blocks of flushes that are longer than the size ratio says, since updates and deletes keep
/// levels small. In force from the merge that wrote the table until the next merge into its level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Blocks are counted from behind this flush.
    pub from: Epoch,
    /// Per level from level 0: the length of its block divided by the length without superseded
    /// entries, in units of 1/[`UNIT`](Stretch::UNIT). Levels beyond the end are not stretched.
    pub factors: Vec<u64>,
}

impl Stretch {
    /// A factor of 1.
    pub const UNIT: u64 = 256;
}

impl TableMeta {
    /// The memory of this value.
    pub fn memory_bytes(&self) -> usize {
        let largest = match &self.largest {
            KeyEnd::Included(key) | KeyEnd::Excluded(key) => key.len(),
            KeyEnd::Unbounded => 0,
        };
        let extra = self.extra.pinned.len() * size_of::<(SeqNo, u64)>()
            + self.extra.blobs.len() * size_of::<(BlobFileId, u64)>();
        size_of::<TableMeta>() + self.smallest.len() + largest + self.epochs.memory_bytes() + extra
    }

    /// Reports whether the table's key range may hold `key`.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        key >= &self.smallest[..] && self.largest.reaches(key)
    }

    /// Bytes of the records in blob files that the table refers to.
    #[inline]
    pub fn blob_bytes(&self) -> u64 {
        self.extra.blobs.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Returns the oldest of the deletes and range tombstones, if there are any. Where it is not
    /// recorded, it counts as written with the oldest of the entries, and these as written when
    /// they were flushed.
    #[inline]
    pub fn oldest_delete(&self) -> Option<OldestDelete> {
        let has_any = self.deletes > 0 || self.range_tombstones > 0;
        let unrecorded = OldestDelete { seq: self.min_seq, since: self.extra.written.0 };
        has_any.then(|| self.extra.oldest_delete.unwrap_or(unrecorded))
    }

    /// Bytes of the file and of the values in blob files that it refers to.
    #[inline]
    pub fn whole_bytes(&self) -> u64 {
        self.file_bytes.saturating_add(self.blob_bytes())
    }

    /// Reports whether the key ranges of two tables overlap.
    #[inline]
    pub fn overlaps(&self, other: &TableMeta) -> bool {
        self.largest.reaches(&other.smallest) && other.largest.reaches(&self.smallest)
    }
}
