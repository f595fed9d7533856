//! How a merge or a flush writes its tables, and the control that it consults while doing so.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tamis_base::epochs::EpochMap;
use tamis_base::ids::{KeyspaceId, TableId};
use tamis_base::key::{KeyBytes, KeyEnd, SeqNo};
use tamis_files::codec::Encode;
use tamis_files::table::{Merged, Origin};
use tamis_policy::compaction::deletes::DeleteTimes;

use crate::compaction::blobs::BlobInputs;
use crate::compaction::filters::{FilterBits, NewKeys};
use crate::compaction::versions::Rules;
use crate::io::FileSystem;
use crate::options::{FilterChoice, KeyspaceOptions};
use crate::tree::garbage::Garbage;
use crate::tree::open_table::OpenTable;

/// Where and how tables are written.
#[derive(Clone, Copy)]
pub(crate) struct TableSink<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) dir: &'a std::path::Path,
    /// Takes the files if they are not published.
    pub(crate) garbage: &'a Arc<Garbage>,
    pub(crate) next_file: &'a AtomicU64,
    pub(crate) options: &'a KeyspaceOptions,
    pub(crate) level: usize,
    /// The kind of filter.
    pub(crate) filter: FilterChoice,
    /// Bits per key in the filters.
    pub(crate) filter_bits: &'a FilterBits,
    /// What the tables bring to a filter of the whole tree.
    pub(crate) new_keys: NewKeys,
    /// A table ends at the first new key after this many bytes.
    pub(crate) max_table_bytes: u64,
    /// Keys before which a table ends, ascending.
    pub(crate) borders: &'a [KeyBytes],
    /// Keys before which a table ends if it is half full, ascending.
    pub(crate) edges: &'a [KeyBytes],
    /// Sequence numbers of live snapshots, ascending.
    pub(crate) snapshots: &'a [SeqNo],
    /// The newest sequence number visible to readers.
    pub(crate) visible: SeqNo,
    /// A table ends before each key whose digest ends in this many zero bits.
    pub(crate) guard_bits: Option<u32>,
    /// When the oldest and the newest of the written data were flushed, in seconds since 1970.
    pub(crate) written: (u64, u64),
    /// What is known of when the deletes among the data were written.
    pub(crate) deletes: &'a DeleteTimes,
    /// The keyspace's rules for versions.
    pub(crate) rules: Rules<'a>,
    /// What the tables record about their origin.
    pub(crate) lineage: Lineage<'a>,
    /// The blob files, or logs, that the inputs refer to.
    pub(crate) blobs: &'a BlobInputs,
    /// Whether records are checked on their way: [`Options::protect_writes`](crate::Options).
    pub(crate) protect: bool,
    /// Consulted at intervals.
    pub(crate) control: &'a dyn JobControl,
}

/// The origin of tables being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lineage<'a> {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) keyspace_name: &'a str,
    /// The merge; `None` for a flush.
    pub(crate) merge: Option<MergeLineage<'a>>,
}

/// See [`Merged`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeLineage<'a> {
    pub(crate) mark: u64,
    pub(crate) inputs: &'a [Arc<OpenTable>],
    pub(crate) before: &'a [TableId],
}

impl Lineage<'_> {
    /// The origin recorded by a table that holds the entire key range [`from`, `to`).
    pub(crate) fn origin(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        epochs: &dyn Fn(&KeyBytes, &KeyEnd) -> EpochMap,
        written: (u64, u64),
        max_seq: SeqNo,
    ) -> Origin {
        let origin = Origin {
            keyspace: Some(self.keyspace),
            keyspace_name: self.keyspace_name.to_owned(),
            written,
            flushed: max_seq,
            merged: None,
        };
        let Some(MergeLineage { mark, inputs, before }) = self.merge else { return origin };
        let mut ids: Vec<TableId> = inputs.iter().map(|t| t.meta.id).collect();
        ids.sort_unstable();
        let flushed = inputs.iter().map(|t| t.table.properties().origin.flushed).max().unwrap_or(0);
        let end = to.map_or(KeyEnd::Unbounded, |to| KeyEnd::Excluded(to.into()));
        let merged = Merged {
            mark,
            from: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
            epochs: encode_epochs(&epochs(&from.into(), &end)),
            inputs: ids,
            before: before.to_vec(),
        };
        Origin { flushed, merged: Some(merged), ..origin }
    }
}

/// Encodes the record of epochs for a table's properties.
pub(crate) fn encode_epochs(epochs: &EpochMap) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in epochs.segments() {
        bytes.put_bytes(&segment.start);
        bytes.put_varint(segment.lo);
        bytes.put_varint(segment.hi);
    }
    bytes
}

/// A control that may pause or cancel a job.
pub(crate) trait JobControl: Sync {
    /// Called after every few thousand versions and every few blocks, with the bytes written since
    /// the last call. Blocks while the job has to wait (rate limit, pause); returns `false` to
    /// cancel the job.
    fn go_on(&self, written: u64) -> bool;
}

/// What the writer needs to know about data outside the merge.
pub(crate) trait Older {
    /// Reports whether older versions of `key` may exist outside the merge. Keys are passed in
    /// ascending order.
    fn may_hold(&mut self, key: &[u8]) -> bool;
    /// Reports whether anything older may exist anywhere in the merge's range.
    fn any(&self) -> bool;
}

/// Assumes older data everywhere: a flush knows nothing of the levels below.
pub(crate) struct Everything;

impl Older for Everything {
    fn may_hold(&mut self, _key: &[u8]) -> bool {
        true
    }
    fn any(&self) -> bool {
        true
    }
}

impl TableSink<'_> {
    /// Returns the sequence numbers at which reads may happen, ascending: those of snapshots, and
    /// the newest.
    pub(crate) fn readers(&self) -> Vec<SeqNo> {
        self.snapshots.iter().copied().chain([self.visible]).collect()
    }

    /// Reports whether a value goes to a blob file.
    #[inline]
    pub(crate) fn separates(&self, value: &[u8]) -> bool {
        let threshold = self.options.blob_threshold;
        threshold > 0 && value.len() as u64 >= threshold
    }
}
