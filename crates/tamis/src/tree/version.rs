//! Versions: immutable shapes of one keyspace's on-disk tree.
//!
//! A version keeps the table data that reads need in flat arrays, so that reading many runs chases
//! no pointer per run. Tables are numbered `0..tables.len()`; each run owns a contiguous range.
//!
//! # Invariants
//!
//! * Runs are listed newest first: of two versions of one key, the newer is in an earlier run.
//!   Within a level, runs are ordered by descending id; levels follow from 0 downwards.
//! * Tables of one run are sorted and disjoint by user key; all versions of a key in a run are in
//!   one table.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tamis_base::collections::HashSet;
use tamis_base::ids::{BlobFileId, RunId, TableId};
use tamis_base::key::{Cover, SeqNo, prefix_of};
use tamis_files::tree::state::KeyspaceState;

use crate::tree::garbage::OpenBlob;
use crate::tree::open_table::OpenTable;

/// One sorted run of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) level: usize,
    pub(crate) id: RunId,
    /// Its tables, as indexes within the version.
    pub(crate) tables: Range<usize>,
}

/// A blob file that tables of a version refer to.
#[derive(Clone, Debug)]
pub(crate) struct BlobUse {
    pub(crate) file: Arc<OpenBlob>,
    /// The number of tables that refer to it.
    tables: usize,
    /// Bytes of the records that the tables refer to.
    pub(crate) referenced: u64,
}

impl BlobUse {
    /// Returns the bytes of the records that no table refers to.
    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.file.file.data_bytes().saturating_sub(self.referenced)
    }

    /// Returns the share of `garbage_bytes` in the file.
    pub(crate) fn garbage_share(&self) -> f64 {
        self.garbage_bytes() as f64 / self.file.file.data_bytes().max(1) as f64
    }
}

/// Returns the blob files that `tables` refer to, by number, given those of the previous version.
/// O(tables + files + blob files of the tables added and removed).
fn blobs_of(tables: &[Arc<OpenTable>], before: Option<&Version>) -> Vec<BlobUse> {
    let ids = |tables: &[Arc<OpenTable>]| tables.iter().map(|table| table.meta.id).collect::<HashSet<_>>();
    let (old, blobs) = before.map_or((&[][..], &[][..]), |before| (&before.tables[..], &before.blobs[..]));
    if old.is_empty() && tables.iter().all(|table| table.meta.extra.blobs.is_empty()) {
        return Vec::new();
    }
    let (was, is) = (ids(old), ids(tables));
    let mut files: BTreeMap<BlobFileId, BlobUse> =
        blobs.iter().map(|blob| (blob.file.file.id(), blob.clone())).collect();
    for table in old.iter().filter(|table| !is.contains(&table.meta.id)) {
        for &(id, bytes) in &table.meta.extra.blobs {
            let file = files.get_mut(&id).expect("the version before counted it");
            file.referenced = file.referenced.saturating_sub(bytes);
            file.tables -= 1;
        }
    }
    for table in tables.iter().filter(|table| !was.contains(&table.meta.id)) {
        for (blob, &(id, bytes)) in table.blobs.iter().zip(&table.meta.extra.blobs) {
            let unused = || BlobUse { file: blob.clone(), tables: 0, referenced: 0 };
            let file = files.entry(id).or_insert_with(unused);
            file.referenced = file.referenced.saturating_add(bytes);
            file.tables += 1;
        }
    }
    files.into_values().filter(|blob| blob.tables > 0).collect()
}

/// The shape of a keyspace's on-disk tree at one moment.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) runs: Vec<Run>,
    pub(crate) tables: Vec<Arc<OpenTable>>,
    /// The `prefix_of` the smallest and the largest key of each table (all ones for an unbounded
    /// end).
    smallest: Vec<u64>,
    largest: Vec<u64>,
    /// The runs with range tombstones, by number. All tombstones of a table lie within its key
    /// range.
    pub(crate) deleting: Vec<usize>,
    /// The largest sequence number in any table.
    pub(crate) max_seq: SeqNo,
    /// The blob files that the tables refer to, by number.
    pub(crate) blobs: Vec<BlobUse>,
}

impl Version {
    /// Builds the version of the durable shape `state`. `open` returns its tables; `before` is the
    /// previous version, if any.
    pub(crate) fn build(
        state: &KeyspaceState,
        before: Option<&Version>,
        mut open: impl FnMut(TableId) -> Arc<OpenTable>,
    ) -> Arc<Version> {
        let (mut runs, mut tables) = (Vec::new(), Vec::<Arc<OpenTable>>::new());
        let mut newest_first: Vec<_> = state.runs.iter().collect();
        newest_first.sort_by_key(|((level, run), _)| (*level, std::cmp::Reverse(*run)));
        for (&(level, id), metas) in newest_first {
            let first = tables.len();
            tables.extend(metas.iter().map(|meta| open(meta.id)));
            runs.push(Run { level: level as usize, id, tables: first..tables.len() });
        }
        let deletes = |run: &Run| tables[run.tables.clone()].iter().any(|table| table.tombstones.is_some());
        Arc::new(Version {
            smallest: tables.iter().map(|t| prefix_of(&t.meta.smallest)).collect(),
            largest: tables.iter().map(|t| largest_prefix(t)).collect(),
            blobs: blobs_of(&tables, before),
            deleting: (0..runs.len()).filter(|&run| deletes(&runs[run])).collect(),
            max_seq: tables.iter().map(|table| table.meta.max_seq).max().unwrap_or(0),
            runs,
            tables,
        })
    }

    /// Returns the table of `run` whose key range contains `key`; `prefix` is the key's
    /// [`prefix_of`]. Costs a binary search over eight-byte prefixes; keys are compared only if
    /// prefixes are equal.
    #[inline]
    pub(crate) fn table_for(&self, run: &Run, key: &[u8], prefix: u64) -> Option<usize> {
        let table =
            if run.tables.len() == 1 { run.tables.start } else { self.last_starting_by(run, key, prefix)? };
        let (low, high) = (self.smallest[table], self.largest[table]);
        if low < prefix && prefix < high {
            return Some(table);
        }
        self.tables[table].meta.covers(key).then_some(table)
    }

    /// Returns the first of `tables` whose range reaches `key`, or their end.
    #[inline]
    pub(crate) fn first_reaching(&self, tables: &Range<usize>, key: &[u8]) -> usize {
        let prefix = prefix_of(key);
        let ends = &self.largest[tables.clone()];
        // The largest keys ascend, and so do their prefixes: keys are compared only among equal
        // prefixes.
        let first = tables.start + ends.partition_point(|&end| end < prefix);
        let ties = self.largest[first..tables.end].partition_point(|&end| end == prefix);
        first + self.tables[first..first + ties].partition_point(|t| !t.meta.largest.reaches(key))
    }

    /// Reports whether the range of `table` starts after `key`.
    #[inline]
    pub(crate) fn starts_after(&self, table: usize, key: &[u8]) -> bool {
        let (start, prefix) = (self.smallest[table], prefix_of(key));
        start > prefix || (start == prefix && self.tables[table].meta.smallest[..] > *key)
    }

    /// Returns the number of the newest range tombstone over `key` that a reader at `snapshot`
    /// sees, or 0. O(log n) for each run with range tombstones.
    #[inline]
    pub(crate) fn cover(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        if self.deleting.is_empty() { 0 } else { self.cover_of_runs(key, snapshot) }
    }

    fn cover_of_runs(&self, key: &[u8], snapshot: SeqNo) -> SeqNo {
        let (mut cover, prefix) = (0, prefix_of(key));
        for &run in &self.deleting {
            if let Some(table) = self.table_for(&self.runs[run], key, prefix)
                && let OpenTable { meta, tombstones: Some(tombstones), .. } = &*self.tables[table]
                && meta.max_seq > cover
            {
                cover = cover.max(tombstones.cover(key, snapshot));
            }
        }
        cover
    }

    /// Like `cover` for one run, along with the range of keys around `key` that share the answer.
    pub(crate) fn cover_around(&self, run: usize, key: &[u8], snapshot: SeqNo) -> Cover {
        let run = &self.runs[run];
        let table = self.last_starting_by(run, key, prefix_of(key));
        let next = table.map_or(run.tables.start, |table| table + 1);
        let start_of = |table: usize| self.tables[table].meta.smallest.clone();
        let mut cover = Cover {
            from: table.map(start_of),
            until: (next < run.tables.end).then(|| start_of(next)),
            seq: 0,
        };
        if let Some(tombstones) = table.and_then(|table| self.tables[table].tombstones.as_ref()) {
            cover.meet(&tombstones.cover_around(key, snapshot));
        }
        cover
    }

    fn last_starting_by(&self, run: &Run, key: &[u8], prefix: u64) -> Option<usize> {
        let starts = &self.smallest[run.tables.clone()];
        let below = starts.partition_point(|&s| s < prefix);
        let ties = starts[below..].iter().take_while(|&&s| s == prefix).count();
        let tables = &self.tables[run.tables.start + below..][..ties];
        let after = below + tables.partition_point(|t| t.meta.smallest[..] <= *key);
        after.checked_sub(1).map(|i| run.tables.start + i)
    }

    pub(crate) fn table_bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.meta.file_bytes).sum()
    }
}

fn largest_prefix(table: &OpenTable) -> u64 {
    use tamis_base::key::KeyEnd::*;
    match &table.meta.largest {
        Included(key) | Excluded(key) => prefix_of(key),
        Unbounded => u64::MAX,
    }
}
