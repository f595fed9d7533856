//! A table of a version: its manifest record, its reader, its filter and its range tombstones. The
//! file's lifetime is tied to it. In a tree with a global filter, tables have a key list in place
//! of a filter, or neither.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::meta::TableMeta;
use tamis_files::table::cache::{BlockCache, CacheEntry};
use tamis_files::table::{
    ELASTIC, ElasticFilter, GLOBAL, KEY_LIST, PinnedValue, ReadTrace, ReaderConfig, Table, UnitDirectory,
};
use tamis_files::tree::files::table_path;
use tamis_files::tree::tombstones::{EXTERNAL_TOMBSTONE_SEQ, Tombstones};
use tamis_filter::{Filter, FilterKind};

use crate::error::StorageError;
use crate::io::FileSystem;
use crate::tree::accesses::Accesses;
use crate::tree::blobs::TableBlobs;
use crate::tree::garbage::Garbage;
use crate::tree::pinned_filter::PinnedFilter;
use tamis_files::table::{FilterLoadError, read_filter};

/// The filter of one table as the read path uses it.
#[expect(
    clippy::large_enum_variant,
    reason = "one per open table; a box would be one more cache miss a probe"
)]
#[derive(Debug)]
pub(crate) enum TableFilter {
    /// The table was built without one.
    None,
    /// Kept as long as the table is open, in memory or in the file's mapping.
    Pinned(PinnedFilter),
    /// Fetched through the block cache on demand.
    Cached,
    /// In units, of which some are in memory.
    Elastic(Arc<ElasticFilter>),
    /// The table has a key list instead, for a global filter. The list is not read at opening, and
    /// not kept.
    Keys,
    /// The table was written for a global filter that already had its keys: it has nothing of its
    /// own.
    Global,
    /// The bytes are damaged, or of a kind unknown to this version: the table is read without its
    /// filter.
    Unusable,
}

/// One open table. Shared by all versions that contain it; when the last of them is dropped and the
/// table was marked [obsolete](OpenTable::mark_obsolete), its file is removed.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) table: Arc<Table>,
    pub(crate) filter: TableFilter,
    /// The kind of the filter if it answers range queries, as recorded in the table's properties:
    /// other filters need not be fetched to learn that they do not.
    pub(crate) range_filter: Option<FilterKind>,
    pub(crate) tombstones: Option<Arc<Tombstones>>,
    /// The blob files that entries refer to.
    pub(crate) blobs: TableBlobs,
    /// The sampled gets that asked the table, if filter memory is divided by them. Lost when the
    /// table is closed.
    pub(crate) accesses: Accesses,
    path: PathBuf,
    cache: Option<Arc<BlockCache>>,
    garbage: Arc<Garbage>,
    obsolete: AtomicBool,
    /// Whether the filter turned out to be unusable. Never cleared; nothing else depends on it.
    unusable: AtomicBool,
}

impl OpenTable {
    pub(crate) fn open(
        fs: &dyn FileSystem,
        dir: &std::path::Path,
        meta: Arc<TableMeta>,
        config: &ReaderConfig,
        garbage: &Arc<Garbage>,
    ) -> Result<Arc<OpenTable>, StorageError> {
        let path = table_path(dir, meta.id);
        let mut table = Table::open(fs, &path, meta.id, config.clone())?;
        if table.properties().entries != meta.entries || table.file_bytes() != meta.file_bytes {
            let what = format!(
                "the manifest records {} entries in {} bytes, the table has {} in {}",
                meta.entries,
                meta.file_bytes,
                table.properties().entries,
                table.file_bytes()
            );
            return Err(StorageError::corrupt(&path, None, what));
        }
        let global_seq = meta.extra.global_seq;
        let properties = table.properties();
        if global_seq.is_some() != (properties.external > 0)
            || global_seq.is_some() && (properties.min_seq, properties.max_seq) != (0, 0)
        {
            let what = "the manifest and the table disagree on whether it was ingested";
            return Err(StorageError::corrupt(&path, None, what));
        }
        if properties.blobs != meta.extra.blobs || table.footer().blobs == properties.blobs.is_empty() {
            let what = "the manifest and the table disagree on the blob files that it refers to";
            return Err(StorageError::corrupt(&path, None, what));
        }
        if let Some(seq) = global_seq {
            Arc::get_mut(&mut table).expect("not shared yet").set_global_seq(seq);
        }
        let filter = match table.has_filter() {
            false if table.properties().filter_kind == GLOBAL => TableFilter::Global,
            false => TableFilter::None,
            true if table.properties().filter_kind == KEY_LIST => TableFilter::Keys,
            true if table.properties().filter_kind == ELASTIC => match UnitDirectory::read(&table) {
                Ok(directory) => TableFilter::Elastic(Arc::new(ElasticFilter::new(directory))),
                Err(why) => {
                    log::warn!("{}: reading without its filter: {why}", path.display());
                    TableFilter::Unusable
                }
            },
            true if !config.pin_metadata => TableFilter::Cached,
            true => match PinnedFilter::open(&table) {
                Ok(filter) => TableFilter::Pinned(filter),
                Err(why) => {
                    log::warn!("{}: reading without its filter: {why}", path.display());
                    TableFilter::Unusable
                }
            },
        };
        let tombstones = match table.tombstone_bytes()? {
            None => None,
            Some(bytes) => {
                let stored = Tombstones::decode(&bytes);
                let tombstones = match global_seq {
                    Some(seq) => stored.and_then(|stored| stored.renumbered(EXTERNAL_TOMBSTONE_SEQ, seq)),
                    None => stored,
                };
                Some(Arc::new(tombstones.ok_or_else(|| {
                    StorageError::corrupt(&path, None, "its range tombstones do not decode")
                })?))
            }
        };
        let blobs = TableBlobs::open(fs, dir, &meta, config, garbage)?;
        let cache = config.cache.clone();
        let (garbage, obsolete) = (garbage.clone(), AtomicBool::new(false));
        let kind = FilterKind::from_name(&table.properties().filter_kind);
        let range_filter = kind.filter(|kind| kind.is_range());
        if let Some(why) = blobs.iter().find_map(|blob| blob.file.why_lost()) {
            table.flaw().note_value(why);
        }
        let unusable = AtomicBool::new(matches!(filter, TableFilter::Unusable));
        Ok(Arc::new(OpenTable {
            meta,
            table,
            filter,
            range_filter,
            tombstones,
            blobs,
            accesses: Accesses::default(),
            path,
            cache,
            garbage,
            obsolete,
            unusable,
        }))
    }

    /// Creates a stand-in for a table that cannot be opened because of `why`. Its key range is
    /// still known, so that reads which need the table fail. As with any table, its file is not
    /// removed before it is obsolete.
    pub(crate) fn lost(
        fs: &dyn FileSystem,
        dir: &std::path::Path,
        meta: Arc<TableMeta>,
        why: StorageError,
        config: &ReaderConfig,
        garbage: &Arc<Garbage>,
    ) -> Arc<OpenTable> {
        let path = table_path(dir, meta.id);
        Arc::new(OpenTable {
            table: Table::lost(&path, meta.id, why),
            blobs: TableBlobs::of_lost(fs, dir, &meta, config, garbage),
            meta,
            filter: TableFilter::None,
            range_filter: None,
            tombstones: None,
            accesses: Accesses::default(),
            path,
            cache: None,
            garbage: garbage.clone(),
            obsolete: AtomicBool::new(false),
            unusable: AtomicBool::new(false),
        })
    }

    /// Turns this table into an ingested one: all its entries get the number in `meta`. Panics if
    /// the table is already shared, or is not a table for ingestion.
    pub(crate) fn ingested(mut self: Arc<Self>, meta: TableMeta) -> Arc<OpenTable> {
        let table = Arc::get_mut(&mut self).expect("an ingested table is not shared yet");
        let (from, to) = table.meta.extra.global_seq.zip(meta.extra.global_seq).expect("a global number");
        Arc::get_mut(&mut table.table).expect("its reader is not shared either").set_global_seq(to);
        if let Some(tombstones) = &mut table.tombstones {
            let renumbered = Tombstones::clone(tombstones).renumbered(from, to);
            *tombstones = Arc::new(renumbered.expect("all got one number when the table was opened"));
        }
        table.meta = Arc::new(meta);
        self
    }

    /// Allows the file to be removed once the table is dropped. Called when the durable version no
    /// longer names it.
    pub(crate) fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Relaxed) {
            self.blobs.unname();
        }
    }

    /// Reads the value of an entry that refers to a blob file, and puts it into the block cache if
    /// `fill_cache`. Damage found counts as the table's, too.
    pub(crate) fn read_blob<T: ReadTrace>(
        &self,
        reference: &[u8],
        fill_cache: bool,
        trace: &mut T,
    ) -> Result<PinnedValue, StorageError> {
        let read = self.blobs.read(&self.path, reference, fill_cache, trace);
        read.inspect_err(|error| self.note_damage(error))
    }

    /// Records damage of a blob file that the table refers to.
    #[cold]
    pub(crate) fn note_damage(&self, error: &StorageError) {
        if matches!(error, StorageError::Corrupt(_)) {
            self.table.flaw().note_value(error);
        }
    }

    /// Reports whether the table's filter is known to be unusable.
    pub(crate) fn filter_is_unusable(&self) -> bool {
        self.unusable.load(Relaxed)
    }

    /// Applies `ask` to the filter; `None` if there is no usable filter, or it is elastic.
    #[inline]
    pub(crate) fn with_filter<T>(&self, ask: impl FnOnce(&Filter) -> T) -> Option<T> {
        match &self.filter {
            TableFilter::None
            | TableFilter::Elastic(_)
            | TableFilter::Keys
            | TableFilter::Global
            | TableFilter::Unusable => None,
            TableFilter::Pinned(filter) => filter.get().map(ask),
            TableFilter::Cached => self.cached_filter().map(|filter| ask(&filter)),
        }
    }

    /// Reads the table's key list and checks its block's checksum; `None` if the table has no list.
    /// Errors: a failed system call, or damage.
    pub(crate) fn key_list(&self) -> Result<Option<PinnedValue>, StorageError> {
        match self.filter {
            TableFilter::Keys => self.table.filter_bytes(),
            _ => Ok(None),
        }
    }

    /// Returns a filter that is not pinned, through the block cache; `None` if it is unusable.
    fn cached_filter(&self) -> Option<Arc<Filter>> {
        if self.filter_is_unusable() {
            return None;
        }
        let cache = self.cache.as_ref()?;
        let key = self.table.filter_cache_key();
        if let Some(filter) = cached(cache.get(key)) {
            return Some(filter);
        }
        match read_filter(&self.table) {
            Ok(filter) => {
                let bytes = filter.memory_bytes();
                let filter = Arc::new(filter);
                cache.insert(key, CacheEntry::Filter(filter.clone(), bytes));
                Some(filter)
            }
            // A failed read may succeed later; a filter that could not be decoded stays unusable.
            Err(FilterLoadError::Storage(StorageError::Io(why))) => {
                log::warn!("{}: reading without its filter: {why}", self.path.display());
                None
            }
            Err(why) => {
                if !self.unusable.swap(true, Relaxed) {
                    log::warn!("{}: no longer using its filter: {why}", self.path.display());
                }
                None
            }
        }
    }

    /// Copies a pinned filter from the file's mapping to memory if memory is
    /// [scarce](Table::is_scarce). Returns whether selectors need to be rebuilt because of that.
    pub(crate) fn keep_filter_in_memory(&self) -> bool {
        let TableFilter::Pinned(filter) = &self.filter else { return false };
        filter.copy_if_scarce(&self.table).unwrap_or_else(|why| {
            log::warn!("{}: no longer using its filter: {why}", self.path.display());
            self.unusable.store(true, Relaxed);
            true
        })
    }

    /// Returns the length of a fixed-size filter, in memory or not; 0 if the table has no usable
    /// one of its own.
    pub(crate) fn fixed_filter_bytes(&self) -> u64 {
        match &self.filter {
            TableFilter::Pinned(_) | TableFilter::Cached if !self.filter_is_unusable() => {
                self.table.filter_len()
            }
            _ => 0,
        }
    }

    /// Returns the memory of the pinned filter, in the file's mapping or outside it, or of an
    /// elastic filter's directory, in bytes.
    pub(crate) fn filter_memory(&self) -> usize {
        match &self.filter {
            TableFilter::Pinned(filter) => filter.memory_bytes(),
            TableFilter::Elastic(filter) => filter.memory_bytes() as usize,
            _ => 0,
        }
    }

    /// Returns the memory of what is known of the table besides its index and its filter.
    pub(crate) fn metadata_memory(&self) -> usize {
        let tombstones = self.tombstones.as_ref().map_or(0, |tombstones| tombstones.memory_bytes());
        // The properties repeat the keys and the epochs, and so does the tree in memory.
        size_of::<OpenTable>() + 2 * self.path.as_os_str().len() + 3 * self.meta.memory_bytes() + tombstones
    }

    /// Returns how much of the filter memory lies in the file's mapping.
    pub(crate) fn mapped_filter_memory(&self) -> usize {
        match &self.filter {
            TableFilter::Pinned(filter) => filter.in_place_bytes(),
            _ => 0,
        }
    }
}

fn cached(entry: Option<CacheEntry>) -> Option<Arc<Filter>> {
    match entry? {
        CacheEntry::Filter(filter, _) => filter.downcast().ok(),
        _ => None,
    }
}

impl Drop for OpenTable {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() && self.garbage.is_ours() {
            self.garbage.push(std::mem::take(&mut self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tamis_filter::{BlockedBloom, Digest, PointFilter, PointSpec, Verify};

    use super::*;
    use crate::io::{DiskFs, MemFs, Usage};
    use tamis_base::epochs::EpochMap;
    use tamis_base::key::{KeyEnd, Kind};
    use tamis_files::table::{ExtraProperties, TableBuilder, TableOptions};

    const KEY: &[u8] = b"key";

    /// A table of one key with `filter` as its filter bytes.
    fn table(filter: Vec<u8>, pin_metadata: bool) -> Arc<OpenTable> {
        let (fs, dir) = (MemFs::new(), Path::new("/t"));
        fs.create_dir_all(dir).unwrap();
        table_in(&fs, dir, filter, ReaderConfig { pin_metadata, ..ReaderConfig::default() })
    }

    fn table_in(fs: &dyn FileSystem, dir: &Path, filter: Vec<u8>, config: ReaderConfig) -> Arc<OpenTable> {
        let path = table_path(dir, 1);
        let file = fs.create(&path, Usage::Table).unwrap();
        let mut builder = TableBuilder::new(file, path, TableOptions::default());
        builder.add(KEY, Digest::of(KEY), 5, Kind::Put, b"value").unwrap();
        let finished = builder.finish(Some(filter), None, ExtraProperties::default()).unwrap();
        let meta = TableMeta {
            id: 1,
            file_bytes: finished.file_bytes,
            smallest: KEY.into(),
            largest: KeyEnd::Included(KEY.into()),
            entries: 1,
            deletes: 0,
            range_tombstones: 0,
            raw_bytes: 8,
            min_seq: 5,
            max_seq: 5,
            epochs: EpochMap::flush(KEY.into(), 1),
            extra: Default::default(),
        };
        let cache = Some(Arc::new(BlockCache::new(1 << 20, 4096)));
        let config = ReaderConfig { cache, ..config };
        OpenTable::open(fs, dir, Arc::new(meta), &config, &Arc::default()).unwrap()
    }

    #[test]
    #[cfg_attr(target_endian = "big", ignore = "filters are not used in place there")]
    fn the_filter_of_a_mapped_table_stays_in_the_file() {
        let digests: Vec<Digest> = (0..5000u64).map(Digest::from_u64).collect();
        let built = PointFilter::from(BlockedBloom::build(&digests, 10.0, 1).unwrap());
        let ribbon = PointFilter::build(PointSpec::Ribbon, &digests, 10.0, 1, Verify::No).unwrap();
        let small = PointFilter::from(BlockedBloom::build(&digests[..9], 10.0, 1).unwrap());
        let (plain, calls) = (DiskFs::new().with_memory(1 << 30), DiskFs::without_mapping());
        let (pinned, cached) = (true, false);
        let cases: [(&dyn FileSystem, _, _, _); 5] = [
            (&plain, pinned, &built, true),
            (&plain, pinned, &ribbon, false),
            (&plain, pinned, &small, false),
            // The cache counts what its entries hold, so the entries hold the filter.
            (&plain, cached, &built, false),
            (&calls, pinned, &built, false),
        ];
        for (i, (fs, pin_metadata, filter, in_place)) in cases.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let config = ReaderConfig { map: true, pin_metadata, ..ReaderConfig::default() };
            let table = table_in(fs, dir.path(), filter.to_bytes(), config);
            assert_eq!(table.table.is_mapped(), i < 4);
            let expected = if in_place { filter.memory_bytes() - size_of::<BlockedBloom>() } else { 0 };
            assert_eq!(table.mapped_filter_memory(), expected, "case {i}");
            assert_eq!(table.filter_memory(), if pin_metadata { filter.memory_bytes() } else { 0 });
            assert_eq!(table.fixed_filter_bytes(), filter.encoded_len() as u64);
            let same = |found: &Filter| {
                let Filter::Point(found) = found else { panic!("a point filter") };
                (0..20_000).map(Digest::from_u64).all(|d| found.contains(d) == filter.contains(d))
            };
            assert_eq!(table.with_filter(same), Some(true), "case {i}");
            // A selector's filter outlives the table and its file.
            let kept = match &table.filter {
                TableFilter::Pinned(filter) => filter.get().cloned(),
                _ => None,
            };
            table.mark_obsolete();
            drop((table, dir));
            assert!(kept.is_none_or(|kept| same(&kept)));
        }
    }

    /// Returns a file system that maps, on which two tables exceed half of the memory, and the
    /// filter bytes, path and handle of the first table.
    fn a_table_before_memory_is_scarce(dir: &Path) -> (DiskFs, ReaderConfig, PointFilter, Arc<OpenTable>) {
        let digests: Vec<Digest> = (0..50_000u64).map(Digest::from_u64).collect();
        let filter = PointFilter::from(BlockedBloom::build(&digests, 10.0, 1).unwrap());
        let fs = DiskFs::new().with_memory(200 << 10);
        let config = ReaderConfig { map: true, pin_metadata: true, ..ReaderConfig::default() };
        let table = table_in(&fs, dir, filter.to_bytes(), config.clone());
        assert!(!table.table.is_scarce() && table.mapped_filter_memory() > 0);
        assert!(!table.keep_filter_in_memory() && table.mapped_filter_memory() > 0, "there is room");
        (fs, config, filter, table)
    }

    #[test]
    #[cfg_attr(target_endian = "big", ignore = "filters are not used in place there")]
    fn a_filter_is_copied_once_memory_is_scarce() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (fs, config, filter, table) = a_table_before_memory_is_scarce(dirs[0].path());
        let before = table.filter_memory();
        let other = table_in(&fs, dirs[1].path(), filter.to_bytes(), config.clone());
        assert!(table.table.is_scarce());
        assert_eq!(other.mapped_filter_memory(), 0, "opened when it was");
        assert!(table.keep_filter_in_memory());
        assert_eq!((table.mapped_filter_memory(), table.filter_memory()), (0, before));
        assert!(!table.keep_filter_in_memory() && !other.keep_filter_in_memory(), "once");
        let same = |found: &Filter| {
            let Filter::Point(found) = found else { panic!("a point filter") };
            (0..100_000).map(Digest::from_u64).all(|d| found.contains(d) == filter.contains(d))
        };
        assert_eq!((table.with_filter(same), other.with_filter(same)), (Some(true), Some(true)));
        drop(other);
        let third = tempfile::tempdir().unwrap();
        let small = PointFilter::from(BlockedBloom::build(&[Digest::of(KEY)], 10.0, 1).unwrap());
        let small = table_in(&fs, third.path(), small.to_bytes(), ReaderConfig { map: true, ..config });
        assert!(!small.table.is_scarce() && !table.table.is_scarce(), "there is room again");
        assert_eq!((table.mapped_filter_memory(), table.filter_memory()), (0, before), "and the copy stays");
    }

    /// Bytes read from the device again may differ from those that were checked.
    #[test]
    #[cfg_attr(target_endian = "big", ignore = "filters are not used in place there")]
    fn a_filter_that_is_damaged_by_the_time_of_the_copy_is_not_used() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (fs, config, filter, table) = a_table_before_memory_is_scarce(dirs[0].path());
        let path = table_path(dirs[0].path(), 1);
        let mut bytes = std::fs::read(&path).unwrap();
        let stored = filter.to_bytes();
        let at = bytes.windows(64).position(|part| part == &stored[..64]).unwrap();
        bytes[at + 1000] ^= 1;
        // The mapping shows the change: the file is overwritten in place.
        std::fs::write(&path, bytes).unwrap();
        let other = table_in(&fs, dirs[1].path(), filter.to_bytes(), config);
        assert!(table.keep_filter_in_memory(), "readers must be told");
        assert!(table.filter_is_unusable() && !other.filter_is_unusable());
        assert_eq!(table.with_filter(|_| ()), None);
        assert_eq!(
            (table.filter_memory(), table.mapped_filter_memory(), table.fixed_filter_bytes()),
            (0, 0, 0)
        );
        assert!(!table.keep_filter_in_memory());
    }

    #[test]
    fn a_filter_of_an_unknown_or_newer_kind_is_ignored() {
        let good = PointFilter::from(BlockedBloom::build(&[Digest::of(KEY)], 10.0, 1).unwrap()).to_bytes();
        let with = |at_from_end: usize, value: u8| {
            let mut bytes = good.clone();
            let at = bytes.len() - at_from_end;
            bytes[at] = value;
            let body = bytes.len() - 8;
            let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..body]).to_le_bytes();
            bytes[body..].copy_from_slice(&checksum);
            bytes
        };
        for pin_metadata in [true, false] {
            let usable = table(good.clone(), pin_metadata);
            assert_eq!(usable.with_filter(|_| ()), Some(()));
            assert!(!usable.filter_is_unusable());
            // A wrong kind, a wrong version, and no filter at all.
            for bytes in [with(15, 200), with(13, 2), b"something else".to_vec()] {
                let table = table(bytes, pin_metadata);
                assert_eq!(table.with_filter(|_| ()), None);
                assert!(table.filter_is_unusable(), "and statistics report it");
                assert_eq!(table.with_filter(|_| ()), None);
            }
        }
    }
}
