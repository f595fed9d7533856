//! The layout of a keyspace's tables: the tree as a list.

use tamis_base::key::KeyEnd;

use crate::catalogue::keyspace::KeyspaceInner;

/// One table of the tree on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableStats {
    /// The number of its file.
    pub id: u64,
    /// Its level.
    pub level: usize,
    /// Its run; of two runs in the same level, the one with the larger number is newer.
    pub run: u64,
    /// The smallest key that it covers.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub smallest: Vec<u8>,
    /// The end of its key range: a key, and whether that key is included; `None`: unbounded.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::end"))]
    pub largest: Option<(Vec<u8>, bool)>,
    /// The size of its file in bytes.
    pub bytes: u64,
    /// Bytes of the values in blob files that it refers to.
    pub blob_bytes: u64,
    /// Key versions, including deletes.
    pub entries: u64,
    /// The number of deletes among them.
    pub deletes: u64,
    /// The flush epochs whose data it may hold, as a half-open range.
    pub epochs: (u64, u64),
    /// The number of segments of its key range that differ in their epochs.
    pub epoch_segments: usize,
    /// When its oldest and its newest data were flushed, in seconds since 1970; 0: unknown.
    pub written: (u64, u64),
}

impl TableStats {
    /// Reports whether `key` is in its key range.
    pub fn covers(&self, key: &[u8]) -> bool {
        let reaches = match &self.largest {
            None => true,
            Some((end, true)) => key <= &end[..],
            Some((end, false)) => key < &end[..],
        };
        key >= &self.smallest[..] && reaches
    }
}

/// Returns the tables of a keyspace, newest run first, ordered by key within a run.
pub(crate) fn tables(keyspace: &KeyspaceInner) -> Vec<TableStats> {
    let view = keyspace.view.load();
    let version = &view.version;
    let of_run = |run: &crate::tree::version::Run| {
        let (level, id) = (run.level, run.id);
        version.tables[run.tables.clone()].iter().map(move |table| {
            let meta = &table.meta;
            TableStats {
                id: meta.id,
                level,
                run: id,
                smallest: meta.smallest.to_vec(),
                largest: match &meta.largest {
                    KeyEnd::Included(key) => Some((key.to_vec(), true)),
                    KeyEnd::Excluded(key) => Some((key.to_vec(), false)),
                    KeyEnd::Unbounded => None,
                },
                bytes: meta.file_bytes,
                blob_bytes: meta.blob_bytes(),
                entries: meta.entries,
                deletes: meta.deletes,
                epochs: meta.epochs.hull(),
                epoch_segments: meta.epochs.segments().len(),
                written: meta.extra.written,
            }
        })
    };
    version.runs.iter().flat_map(of_run).collect()
}
