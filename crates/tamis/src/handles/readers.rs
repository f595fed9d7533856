//! Readers of old states: replaced views that an iterator or another reader still holds.
//!
//! Readers do not register. When a view is replaced, the old one is noted here through a weak
//! reference; as long as that can be upgraded, something reads from it. So iterators pay nothing
//! extra, and the time during which a view was current tells when its readers began.
//!
//! # Threads
//!
//! The list is behind a leaf lock of its keyspace, taken when views are replaced, under `state`,
//! and by statistics. It has an entry for each replaced view that is held; other entries go with
//! the next replacement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tamis_base::collections::HashSet;
use tamis_base::ids::{BlobFileId, TableId};

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::old_views::OldView;
use crate::read::MemtableSlot;
use crate::sync;

/// The oldest state of a keyspace that something still reads: usually an iterator. In a keyspace
/// whose policy drops data, it may also be a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReaderStats {
    /// The keyspace's name.
    pub keyspace: String,
    /// How many seconds ago the state was replaced: its readers are at least this old.
    pub min_age_seconds: u64,
    /// How many seconds ago the state came into being: its readers are at most this old.
    pub max_age_seconds: u64,
    /// The size of memtables that the state has and the tree no longer has. Other readers, and open
    /// transactions, may need them too.
    pub memtable_bytes: u64,
    /// Bytes of table files that the state has and the tree no longer has. Other readers may need
    /// them too.
    pub table_bytes: u64,
    /// Bytes of blob files that the state has and the tree no longer has.
    pub blob_bytes: u64,
}

/// What readers of old states keep alive.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// What readers of the oldest state keep.
    pub(crate) oldest: Option<ReaderStats>,
    /// What all of them keep, with each memtable and file counted once.
    pub(crate) memtable_bytes: u64,
    pub(crate) table_bytes: u64,
    pub(crate) blob_bytes: u64,
}

/// Memtables and files of old views that are not in the current view, with their sizes.
#[derive(Default)]
struct HeldByReaders {
    memtables: BTreeMap<*const MemtableSlot, u64>,
    tables: BTreeMap<TableId, u64>,
    blobs: BTreeMap<BlobFileId, u64>,
}

fn sum<K>(sizes: &BTreeMap<K, u64>) -> u64 {
    sizes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

impl Readers {
    /// O(tables of all views held).
    pub(crate) fn of<'k>(keyspaces: impl Iterator<Item = &'k Arc<KeyspaceInner>>) -> Readers {
        let mut readers = Readers::default();
        let mut oldest: Option<(Instant, ReaderStats)> = None;
        let now = sync::now();
        for keyspace in keyspaces {
            let current = keyspace.view.load();
            let memtables: HashSet<_> = current.memtables.iter().map(Arc::as_ptr).collect();
            let tables: HashSet<TableId> = current.version.tables.iter().map(|table| table.meta.id).collect();
            let blobs: HashSet<BlobFileId> =
                current.version.blobs.iter().map(|blob| blob.file.file.id()).collect();
            let mut all = HeldByReaders::default();
            for (view, OldView { from, until, .. }) in keyspace.old_views.held() {
                let mut kept = HeldByReaders::default();
                let gone = view.memtables.iter().filter(|slot| !memtables.contains(&Arc::as_ptr(slot)));
                kept.memtables
                    .extend(gone.map(|slot| (Arc::as_ptr(slot), slot.memtable.memory_bytes() as u64)));
                for table in view.version.tables.iter().filter(|table| !tables.contains(&table.meta.id)) {
                    kept.tables.insert(table.meta.id, table.meta.file_bytes);
                    let gone = table.blobs.iter().filter(|blob| !blobs.contains(&blob.file.id()));
                    kept.blobs.extend(gone.map(|blob| (blob.file.id(), blob.file.file_bytes())));
                }
                if oldest.as_ref().is_none_or(|oldest| until < oldest.0) {
                    let seconds = |at: Instant| now.saturating_duration_since(at).as_secs();
                    let stats = ReaderStats {
                        keyspace: keyspace.name().to_owned(),
                        min_age_seconds: seconds(until),
                        max_age_seconds: seconds(from),
                        memtable_bytes: sum(&kept.memtables),
                        table_bytes: sum(&kept.tables),
                        blob_bytes: sum(&kept.blobs),
                    };
                    oldest = Some((until, stats));
                }
                all.memtables.extend(kept.memtables);
                all.tables.extend(kept.tables);
                all.blobs.extend(kept.blobs);
            }
            readers.memtable_bytes += sum(&all.memtables);
            readers.table_bytes += sum(&all.tables);
            readers.blob_bytes += sum(&all.blobs);
        }
        readers.oldest = oldest.map(|oldest| oldest.1);
        readers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemFs;
    use crate::{Db, KeyspaceOptions, Options};

    fn open() -> Db {
        let keyspace =
            KeyspaceOptions { auto_compaction: false, blob_threshold: 1000, ..KeyspaceOptions::default() };
        let fs: Option<Arc<dyn crate::io::FileSystem>> = Some(Arc::new(MemFs::new()));
        Options { keyspace, file_system: fs, ..Options::default() }.open("/db").unwrap()
    }

    fn write(db: &Db, from: u32) {
        for key in from..from + 100 {
            db.put(key.to_be_bytes(), [7; 50]).unwrap();
        }
        db.put((from + 50).to_be_bytes(), [7; 5000]).unwrap();
    }

    #[test]
    fn an_iterator_is_reported_with_what_it_keeps_until_it_ends() {
        let db = open();
        write(&db, 0);
        let tables = |db: &Db| {
            let stats = db.stats();
            (stats.keyspaces[0].table_bytes, stats.keyspaces[0].blob_bytes)
        };
        let mut early = db.iter();
        early.next().unwrap().unwrap();
        assert_eq!(db.stats().oldest_reader, None, "its state is the current one");
        let memtable = db.stats().keyspaces[0].memtable_bytes;
        db.flush().unwrap();
        let oldest = db.stats().oldest_reader.expect("the iterator");
        assert_eq!((&*oldest.keyspace, oldest.memtable_bytes), ("default", memtable));
        assert_eq!((oldest.table_bytes, oldest.blob_bytes), (0, 0));
        assert!(oldest.min_age_seconds <= oldest.max_age_seconds);

        let late = db.iter();
        let first = tables(&db);
        write(&db, 0);
        db.compact().unwrap();
        let stats = db.stats();
        let oldest = stats.oldest_reader.unwrap();
        assert_eq!((oldest.memtable_bytes, oldest.table_bytes), (memtable, 0), "still the first");
        assert!(stats.readers_memtable_bytes > memtable, "the second sees the memtable written to since");
        assert_eq!((stats.readers_table_bytes, stats.readers_blob_bytes), first);
        assert!(first.0 > 0 && first.1 > 5000);

        drop(early);
        let oldest = db.stats().oldest_reader.unwrap();
        assert_eq!((oldest.table_bytes, oldest.blob_bytes), first, "now the second is the oldest");
        drop(late);
        let stats = db.stats();
        assert_eq!((stats.oldest_reader, stats.readers_memtable_bytes), (None, 0));
        assert_eq!((stats.readers_table_bytes, stats.readers_blob_bytes), (0, 0));
    }

    #[test]
    fn what_several_readers_keep_counts_once_and_views_without_readers_are_forgotten() {
        let db = open();
        for round in 0..20 {
            write(&db, round);
            db.flush().unwrap();
        }
        let noted = |db: &Db| db.default_keyspace().inner.old_views.0.lock().old.len();
        assert!(noted(&db) <= 2, "{}", noted(&db));
        let bytes = db.stats().keyspaces[0].table_bytes;
        let iters: Vec<_> = (0..10)
            .map(|round| {
                let iter = db.iter();
                write(&db, 1000 + round);
                db.flush().unwrap();
                iter
            })
            .collect();
        assert!(noted(&db) >= 10);
        db.compact().unwrap();
        let stats = db.stats();
        let flushed: u64 = stats.readers_table_bytes;
        assert_eq!(stats.oldest_reader.unwrap().table_bytes, bytes);
        assert!(flushed > bytes && flushed < 2 * bytes, "{flushed} {bytes}");
        drop(iters);
        assert_eq!(db.stats().oldest_reader, None);
        write(&db, 0);
        db.flush().unwrap();
        assert!(noted(&db) <= 2);
    }
}
