//! Where the tables of a keyspace lie: the tree as a list.

use crate::db::inner::KeyspaceInner;
use crate::key::KeyEnd;

/// One table of the tree on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// The number of its file.
    pub id: u64,
    /// Its level.
    pub level: usize,
    /// Its run; of two runs of a level the one with the larger number is newer.
    pub run: u64,
    /// The smallest key that it says something about.
    pub smallest: Vec<u8>,
    /// The end of what it says something about: a key, and whether that belongs to it; `None`: there is no end.
    pub largest: Option<(Vec<u8>, bool)>,
    /// Bytes of its file.
    pub bytes: u64,
    /// Key versions, deletes included.
    pub entries: u64,
    /// How many of them are deletes.
    pub deletes: u64,
    /// The flushes it may hold data of: from the first to before the second.
    pub epochs: (u64, u64),
    /// In how many steps its epochs change over its key range.
    pub epoch_segments: usize,
    /// When the oldest and the newest of its data was flushed, in seconds since 1970; 0: not known.
    pub written: (u64, u64),
}

impl TableStats {
    /// Whether its key range holds `key`.
    pub fn covers(&self, key: &[u8]) -> bool {
        let reaches = match &self.largest {
            None => true,
            Some((end, true)) => key <= &end[..],
            Some((end, false)) => key < &end[..],
        };
        key >= &self.smallest[..] && reaches
    }
}

/// The tables of a keyspace, newest run first, within a run by key.
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
