//! RocksDB, through the crate `rocksdb` and its C API.
//!
//! Sources: the comments of `rocksdb/options.h`, `table.h` and `cache.h`, the documentation of the crate, and RocksDB's
//! own guides ("Setup options and basic tuning", "RocksDB tuning guide", "RocksDB bloom filter").
//!
//! * Tables: whole-key Bloom filters (not block-based), filters and indexes in memory outside of the cache and all
//!   tables open (both defaults), the default format version, which is the latest of 11.x, checksums verified at every
//!   read from a file (the default). The block cache is the HyperClockCache, "generally recommended over LRUCache",
//!   with its recommended estimate of 0.
//! * One background thread per processor. Three memtables, as tamis has, so that a flush stops no writer (the default
//!   is two). Level 1 is as large as the four runs of level 0 that start a compaction, as the tuning guide advises.
//!   Tables of a memtable's size. `bytes_per_sync` of 1 MiB, as the guide to basic tuning advises.
//! * Values are read in place in the cache (`get_pinned`); several keys go to the batched `MultiGet`; iterators are raw
//!   ones, bounded by `iterate_upper_bound`; `pin_data` and `async_io` stay off, as by default: no workload keeps an
//!   entry while it moves on.
//! * Direct I/O applies to reads, flushes and compactions; the log goes through the page cache in any case.
//!
//! RocksDB's own build targets the present processor (`PORTABLE=0`): only then do its Bloom filters probe with AVX2 and
//! its log's checksums use SSE4.2. The crate passes on Rust's target settings, and so needs
//! `RUSTFLAGS=-Ctarget-cpu=native`. The options of a row contain the instructions used, those of the checksums as RocksDB's
//! own log of events says.
//!
//! * Large values go to blob files if asked for (`enable_blob_files`), collected during compaction (`enable_blob_gc`,
//!   which is off by default and without which nothing is ever given back), files of the default size.
//!
//! [`NativeRocksDb`] is the same, built for the present processor, with tables mapped (`allow_mmap_reads`). RocksDB
//! then reads blocks in the mapping, without copying them into the cache, and would verify their checksums at each
//! read: its documentation says that this is meant for use without verification, so `verify_checksums` is off. Direct
//! I/O is not possible with it. It also has what `OptimizeForPointLookup` sets, and tamis has by default: hash indexes in data blocks, and
//! filters of whole keys in memtables.
//!
//! [`RowCachedRocksDb`] gives half of the memory for caches to a cache of rows (`row_cache`), an LRUCache: the
//! HyperClockCache is for blocks only. The documentation does not say how to divide the memory.
//!
//! Threads: any may use the database; every session has its own options of reads and writes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;

use ::rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    DEFAULT_COLUMN_FAMILY_NAME, DataBlockIndexType, Options, ReadOptions, WaitForCompactOptions, WriteBatch,
    WriteOptions, properties,
};
use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Compression, Engine, Inside, Setup};

const NAME: &str = "rocksdb";

/// More runs of level 0 than any database of a comparison has.
const NEVER_SO_MANY: i32 = 1 << 30;

/// Default number of levels.
const LEVELS: usize = 7;

/// Default number of runs of level 0 that start a compaction.
const LEVEL0_RUNS: u64 = 4;

const MEMTABLES: i32 = 3;

/// The share of a memtable that its filter takes, as in RocksDB's `OptimizeForPointLookup`.
const MEMTABLE_FILTER_SHARE: f64 = 0.02;
/// Ratio of the memory for caches to the cache of rows, if there is one. The documentation gives none.
const ROW_CACHE_SHARE: u64 = 2;

const BYTES_PER_SYNC: u64 = 1 << 20;

/// RocksDB as the crate builds it.
pub type PortableRocksDb = RocksDb<false, false>;

/// RocksDB for the present processor, with mapped tables.
pub type NativeRocksDb = RocksDb<true, false>;

/// RocksDB as the crate builds it, with a cache of rows.
pub type RowCachedRocksDb = RocksDb<false, true>;

/// An open RocksDB.
pub struct RocksDb<const NATIVE: bool, const ROWS: bool> {
    db: DB,
    /// Its caches, to query their usage.
    caches: Vec<Cache>,
    sync: bool,
    compaction: bool,
}

/// A thread's session.
pub struct RocksDbSession<'s> {
    db: &'s DB,
    keyspace: &'s ColumnFamily,
    read: ReadOptions,
    /// Whether blocks are verified at each read.
    verify: bool,
    write: WriteOptions,
    /// The first key after the scanned range.
    bound: Vec<u8>,
}

impl<const NATIVE: bool, const ROWS: bool> Engine for RocksDb<NATIVE, ROWS> {
    const NAME: &'static str = match (NATIVE, ROWS) {
        (true, _) => "rocksdb-native",
        (false, true) => "rocksdb-row-cache",
        (false, false) => NAME,
    };

    /// Returns the version of the bundled source. It is not available from a library that was linked instead.
    fn version() -> String {
        let sys = shared::locked_version("librocksdb-sys");
        sys.split_once('+').map_or(sys.clone(), |(_, rocksdb)| rocksdb.to_owned())
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        if !setup.overrides.is_empty() {
            Some(shared::NO_OVERRIDES)
        } else if NATIVE && setup.direct_io {
            Some("tables are either mapped or read by direct I/O")
        } else if NATIVE && !IS_NATIVE {
            Some("this program was not built for the present processor")
        } else {
            None
        }
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let dir = shared::make_dir(setup)?;
        // Each database has its own cache; RocksDB keeps it as long as necessary.
        let of_rows = if ROWS { shared::size(setup.cache_bytes / ROW_CACHE_SHARE) } else { 0 };
        let capacity = shared::size(setup.cache_bytes) - of_rows;
        let cache = (capacity > 0).then(|| Cache::new_hyper_clock_cache(capacity, 0));
        let mut options = options_of(setup, cache.as_ref(), NATIVE);
        let rows = (of_rows > 0).then(|| Cache::new_lru_cache(of_rows));
        if let Some(rows) = &rows {
            options.set_row_cache(rows);
        }
        options.set_allow_mmap_reads(NATIVE);
        // Only a named column family gives the handle that the batched `MultiGet` needs.
        let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
        let db = DB::open_cf_descriptors(&options, dir, [family]).map_err(failed)?;
        let fast_checksums = has_fast_checksums(dir)?;
        if NATIVE && !fast_checksums {
            let text = "the linked RocksDB was built for the oldest processor: its log has no fast CRC-32C";
            return Err(BenchError::Store { system: Self::NAME, source: text.into() });
        }
        let mut told = told([
            ("block_cache", format!("HyperClockCache, {capacity}")),
            ("row_cache", if of_rows > 0 { format!("LRUCache, {of_rows}") } else { "none".into() }),
            ("filter_policy", format!("bloomfilter:{}:false", setup.filter_bits)),
            ("whole_key_filtering", "true".into()),
            ("cache_index_and_filter_blocks", "false".into()),
            ("max_open_files", "-1".into()),
            ("max_background_jobs", shared::cores().to_string()),
            ("write_buffer_size", setup.memtable_bytes.to_string()),
            ("max_write_buffer_number", MEMTABLES.to_string()),
            ("target_file_size_base", setup.memtable_bytes.to_string()),
            ("max_bytes_for_level_base", level_base(setup).to_string()),
            ("compression", format!("{:?} on all levels", compression(setup))),
            ("bytes_per_sync", BYTES_PER_SYNC.to_string()),
            ("use_direct_reads", setup.direct_io.to_string()),
            ("use_direct_io_for_flush_and_compaction", setup.direct_io.to_string()),
            ("disable_auto_compactions", (!setup.compaction).to_string()),
            ("WriteOptions::sync", setup.sync.to_string()),
            ("allow_mmap_reads", NATIVE.to_string()),
            ("data_block_index_type", if NATIVE { "BinaryAndHash" } else { "BinarySearch" }.into()),
            (
                "memtable_prefix_bloom_size_ratio",
                if NATIVE { MEMTABLE_FILTER_SHARE } else { 0.0 }.to_string(),
            ),
            ("ReadOptions::verify_checksums", (!NATIVE).to_string()),
            (
                "blob files",
                setup.separated_bytes.map_or("none".into(), |least| format!("min_blob_size {least}, gc")),
            ),
            ("instructions", instructions(fast_checksums)),
        ]);
        if !setup.compaction {
            for name in ["level0_slowdown_writes_trigger", "level0_stop_writes_trigger"] {
                told.insert(name.into(), NEVER_SO_MANY.to_string());
            }
        }
        let caches = cache.into_iter().chain(rows).collect();
        Ok((RocksDb { db, caches, sync: setup.sync, compaction: setup.compaction }, told))
    }

    fn write(session: &mut RocksDbSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        let mut writes = WriteBatch::default();
        for (key, value) in batch.iter() {
            writes.put(key, value);
        }
        session.db.write_opt(writes, &session.write).map_err(failed)
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.db.flush().map_err(failed)?;
        match self.compaction {
            true => self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed),
            false => Ok(()),
        }
    }

    fn compact(&self) -> Result<(), BenchError> {
        self.db.flush().map_err(failed)?;
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        self.settle()
    }

    /// Filters have the same size in memory as in their files; the remaining memory of table readers is approximately
    /// indexes.
    fn inside(&self) -> Result<Inside, BenchError> {
        let readers = self.number(properties::ESTIMATE_TABLE_READERS_MEM)?;
        let tables = self.db.property_value(properties::AGGREGATED_TABLE_PROPERTIES).map_err(failed)?;
        let filters = tables.as_deref().and_then(|text| property(text, "filter block size"));
        let mut runs = Some(0);
        for level in 0..LEVELS {
            let files = self.db.property_value(properties::num_files_at_level(level)).map_err(failed)?;
            let files = files.and_then(|text| text.parse::<u64>().ok());
            let count = |files: u64| if level == 0 { files } else { files.min(1) };
            runs = runs.and_then(|runs| Some(runs + count(files?)));
        }
        Ok(Inside {
            runs,
            filter_bytes: filters,
            index_bytes: readers.and_then(|readers| Some(readers.saturating_sub(filters?))),
            cache_bytes: Some(self.caches.iter().map(|cache| cache.get_usage() as u64).sum()),
            memtable_bytes: self.number(properties::CUR_SIZE_ALL_MEM_TABLES)?,
        })
    }

    fn close(self) -> Result<(), BenchError> {
        self.db.flush_wal(false).map_err(failed)
    }
}

impl<const NATIVE: bool, const ROWS: bool> RocksDb<NATIVE, ROWS> {
    fn number(&self, property: &properties::PropName) -> Result<Option<u64>, BenchError> {
        self.db.property_int_value(property).map_err(failed)
    }
}

/// Returns the number after a name in `name=number; name=number; …`.
fn property(text: &str, name: &str) -> Option<u64> {
    let named = text.split(';').filter_map(|part| part.split_once('='));
    named.filter(|(key, _)| key.trim() == name).find_map(|(_, value)| value.trim().parse().ok())
}

/// Returns the options for a setup.
pub(crate) fn options_of(setup: &Setup, cache: Option<&Cache>, for_points: bool) -> Options {
    let mut tables = BlockBasedOptions::default();
    match cache {
        Some(cache) => tables.set_block_cache(cache),
        None => tables.disable_cache(),
    }
    if setup.filter_bits > 0 {
        tables.set_bloom_filter(f64::from(setup.filter_bits), false);
    }
    tables.set_whole_key_filtering(true);
    tables.set_cache_index_and_filter_blocks(false);

    let mut options = Options::default();
    if for_points {
        tables.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_SHARE);
        options.set_memtable_whole_key_filtering(true);
    }
    options.create_if_missing(true);
    options.set_block_based_table_factory(&tables);
    options.set_max_open_files(-1);
    options.increase_parallelism(i32::try_from(shared::cores()).unwrap_or(i32::MAX));
    options.set_write_buffer_size(shared::size(setup.memtable_bytes));
    options.set_max_write_buffer_number(MEMTABLES);
    options.set_target_file_size_base(setup.memtable_bytes);
    options.set_max_bytes_for_level_base(level_base(setup));
    options.set_compression_type(compression(setup));
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    options.set_use_direct_reads(setup.direct_io);
    options.set_use_direct_io_for_flush_and_compaction(setup.direct_io);
    if let Some(least) = setup.separated_bytes {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(least);
        options.set_blob_compression_type(compression(setup));
        options.set_enable_blob_gc(true);
    }
    if !setup.compaction {
        options.set_disable_auto_compactions(true);
        options.set_level_zero_slowdown_writes_trigger(NEVER_SO_MANY);
        options.set_level_zero_stop_writes_trigger(NEVER_SO_MANY);
    }
    options
}

/// Whether this program, and with it a RocksDB that the crate built, is for a processor with AVX2.
const IS_NATIVE: bool = cfg!(target_feature = "avx2") || cfg!(not(target_arch = "x86_64"));

/// Returns the instructions that RocksDB was compiled with.
fn instructions(fast_checksums: bool) -> String {
    let filters = match (option_env!("ROCKSDB_LIB_DIR"), IS_NATIVE) {
        (None, true) => "AVX2 in filters",
        (None, false) => "no AVX2 in filters",
        (Some(_), _) => "filters unknown, since the library was built separately",
    };
    let checksums = if fast_checksums { "the processor's CRC-32C" } else { "CRC-32C by tables" };
    format!("{checksums}, {filters}")
}

/// Reports whether checksums use the processor's instructions, as the open database's log of events says.
fn has_fast_checksums(dir: &Path) -> Result<bool, BenchError> {
    let path = dir.join("LOG");
    let failed = |source| BenchError::Io { operation: "read", path: path.clone(), source };
    for line in BufReader::new(std::fs::File::open(&path).map_err(failed)?).lines() {
        if let Some((_, answer)) = line.map_err(failed)?.split_once("Fast CRC32 supported: ") {
            return Ok(answer.starts_with("Supported"));
        }
    }
    Ok(false)
}

fn level_base(setup: &Setup) -> u64 {
    setup.memtable_bytes.saturating_mul(LEVEL0_RUNS)
}

fn compression(setup: &Setup) -> DBCompressionType {
    match setup.compression {
        Compression::None => DBCompressionType::None,
        Compression::Lz4 => DBCompressionType::Lz4,
    }
}

impl<const NATIVE: bool, const ROWS: bool> Store for RocksDb<NATIVE, ROWS> {
    type Session<'s> = RocksDbSession<'s>;

    fn session(&self) -> Result<RocksDbSession<'_>, BenchError> {
        let keyspace = self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME).expect("it was opened by this name");
        let mut write = WriteOptions::default();
        write.set_sync(self.sync);
        let (read, verify) = (read_options(!NATIVE), !NATIVE);
        Ok(RocksDbSession { db: &self.db, keyspace, read, verify, write, bound: Vec::new() })
    }
}

impl Session for RocksDbSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.db.put_opt(key, value, &self.write).map_err(failed)
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Ok(look(self.db.get_pinned_opt(key, &self.read).map_err(failed)?.as_deref()))
    }

    #[inline]
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let keys = keys.iter().copied();
        let answers = self.db.batched_multi_get_cf_opt(self.keyspace, keys, false, &self.read);
        for (place, answer) in answers.into_iter().enumerate() {
            if look(place, answer.map_err(failed)?.as_deref()).is_break() {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let mut read = read_options(self.verify);
        if let Some(high) = high {
            if high < low {
                return Ok(());
            }
            // The bound is exclusive: this is the first key after `high`.
            self.bound.clear();
            self.bound.extend_from_slice(high);
            self.bound.push(0);
            read.set_iterate_upper_bound(&self.bound[..]);
        }
        let mut entries = self.db.raw_iterator_opt(read);
        entries.seek(low);
        look_at(&mut entries, &mut look, |entries| entries.next())
    }

    #[inline]
    fn scan_back(
        &mut self,
        high: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let mut entries = self.db.raw_iterator_opt(read_options(self.verify));
        entries.seek_for_prev(high);
        look_at(&mut entries, &mut look, |entries| entries.prev())
    }
}

fn read_options(verify: bool) -> ReadOptions {
    let mut read = ReadOptions::default();
    read.set_verify_checksums(verify);
    read
}

#[inline]
fn look_at<'db>(
    entries: &mut DBRawIterator<'db>,
    look: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    step: impl Fn(&mut DBRawIterator<'db>),
) -> Result<(), BenchError> {
    while let Some((key, value)) = entries.item() {
        if look(key, value).is_break() {
            return Ok(());
        }
        step(entries);
    }
    entries.status().map_err(failed)
}

/// Returns the error of a call.
pub(crate) fn failed(source: ::rocksdb::Error) -> BenchError {
    BenchError::Store { system: NAME, source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_among_the_properties_of_tables() {
        let text =
            "# data blocks=3; # entries=90; index block size (user-key? 1)=20; filter block size=1093; x=y;";
        assert_eq!(property(text, "filter block size"), Some(1093));
        assert_eq!(property(text, "x"), None);
        assert_eq!(property(text, "block size"), None);
    }
}
