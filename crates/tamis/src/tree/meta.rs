//! What the tree knows of a table without opening it.

use crate::ids::TableId;
use crate::key::{KeyBytes, KeyEnd, SeqNo};
use crate::tree::epochs::EpochMap;

/// One table as the manifest records it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableMeta {
    /// The file's number.
    pub(crate) id: TableId,
    /// The file's length in bytes.
    pub(crate) file_bytes: u64,
    /// The smallest key that the table says something about (a version, or the start of a range tombstone).
    pub(crate) smallest: KeyBytes,
    /// The end of what the table says something about.
    pub(crate) largest: KeyEnd,
    /// Key versions in the table, deletes included, range tombstones not.
    pub(crate) entries: u64,
    /// How many of the entries are deletes.
    pub(crate) deletes: u64,
    /// Range tombstones in the table (after fragmentation).
    pub(crate) range_tombstones: u64,
    /// Bytes of all user keys and values before compression.
    pub(crate) raw_bytes: u64,
    /// The smallest sequence number in the table (0 where the engine forgot it because nobody may ask).
    pub(crate) min_seq: SeqNo,
    /// The largest sequence number in the table.
    pub(crate) max_seq: SeqNo,
    /// Which flushes the table's versions may come from, as a step function over its key range.
    pub(crate) epochs: EpochMap,
    /// What is recorded besides.
    pub(crate) extra: TableExtra,
}

/// Parts of a table's record that not every table has; the default is what their absence means.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TableExtra {
    /// When the oldest and the newest of its data was flushed or ingested, in seconds since 1970; 0: not known.
    pub(crate) written: (u64, u64),
    /// The sequence number that entries stored with number 0 have (a table that was ingested). `min_seq` and
    /// `max_seq` count it already.
    pub(crate) global_seq: Option<SeqNo>,
    /// Bytes of keys and values that were kept for snapshots alone when the table was written: the number of the
    /// snapshot that still needed them, ascending, and how many bytes.
    pub(crate) pinned: Vec<(SeqNo, u64)>,
}

impl TableMeta {
    /// Whether the table's key range may hold `key`.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        key >= &self.smallest[..] && self.largest.reaches(key)
    }

    /// Whether the key ranges of two tables have a key in common.
    pub(crate) fn overlaps(&self, other: &TableMeta) -> bool {
        self.largest.reaches(&other.smallest) && other.largest.reaches(&self.smallest)
    }
}
