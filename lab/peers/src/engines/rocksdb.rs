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
//! `RUSTFLAGS=-Ctarget-cpu=native`. The options of a row contain the instructions used.
//!
//! Threads: any may use the database; every session has its own options of reads and writes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ::rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    DEFAULT_COLUMN_FAMILY_NAME, Options, ReadOptions, WaitForCompactOptions, WriteOptions, properties,
};
use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Compression, Engine, Inside, Setup};

const NAME: &str = "rocksdb";

/// More runs of level 0 than any database of a comparison has.
const NEVER_SO_MANY: i32 = 1 << 30;

/// Default number of levels.
const LEVELS: usize = 7;

/// Default number of runs of level 0 that start a compaction.
const LEVEL0_RUNS: u64 = 4;

const MEMTABLES: i32 = 3;
const BYTES_PER_SYNC: u64 = 1 << 20;

/// An open RocksDB.
pub struct RocksDb {
    db: DB,
    /// The block cache, to query its usage.
    cache: Option<Cache>,
    sync: bool,
    compaction: bool,
}

/// A thread's session.
pub struct RocksDbSession<'s> {
    db: &'s DB,
    keyspace: &'s ColumnFamily,
    read: ReadOptions,
    write: WriteOptions,
    /// The first key after the scanned range.
    bound: Vec<u8>,
}

impl Engine for RocksDb {
    const NAME: &'static str = NAME;

    /// Returns the version of the bundled source. It is not available from a library that was linked instead.
    fn version() -> String {
        let sys = shared::locked_version("librocksdb-sys");
        sys.split_once('+').map_or(sys.clone(), |(_, rocksdb)| rocksdb.to_owned())
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        (!setup.overrides.is_empty()).then_some(shared::NO_OVERRIDES)
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let dir = shared::make_dir(setup)?;
        // Each database has its own cache; RocksDB keeps it as long as necessary.
        let capacity = shared::size(setup.cache_bytes);
        let cache = (capacity > 0).then(|| Cache::new_hyper_clock_cache(capacity, 0));
        let options = options_of(setup, cache.as_ref());
        // Only a named column family gives the handle that the batched `MultiGet` needs.
        let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
        let db = DB::open_cf_descriptors(&options, dir, [family]).map_err(failed)?;
        let mut told = told([
            ("block_cache", format!("HyperClockCache, {capacity}")),
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
            ("instructions", instructions().into()),
        ]);
        if !setup.compaction {
            for name in ["level0_slowdown_writes_trigger", "level0_stop_writes_trigger"] {
                told.insert(name.into(), NEVER_SO_MANY.to_string());
            }
        }
        Ok((RocksDb { db, cache, sync: setup.sync, compaction: setup.compaction }, told))
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.db.flush().map_err(failed)?;
        match self.compaction {
            true => self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed),
            false => Ok(()),
        }
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
            cache_bytes: Some(self.cache.as_ref().map_or(0, |cache| cache.get_usage() as u64)),
            memtable_bytes: self.number(properties::CUR_SIZE_ALL_MEM_TABLES)?,
        })
    }

    fn close(self) -> Result<(), BenchError> {
        self.db.flush_wal(false).map_err(failed)
    }
}

impl RocksDb {
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
pub(crate) fn options_of(setup: &Setup, cache: Option<&Cache>) -> Options {
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
    if !setup.compaction {
        options.set_disable_auto_compactions(true);
        options.set_level_zero_slowdown_writes_trigger(NEVER_SO_MANY);
        options.set_level_zero_stop_writes_trigger(NEVER_SO_MANY);
    }
    options
}

/// Returns the instructions that RocksDB was compiled with.
fn instructions() -> &'static str {
    if option_env!("ROCKSDB_LIB_DIR").is_some() {
        "unknown: the library was built separately"
    } else if cfg!(not(target_arch = "x86_64")) {
        "the target's"
    } else if cfg!(target_feature = "avx2") {
        "with AVX2 and SSE4.2"
    } else {
        "the oldest x86-64's: without AVX2 in filters"
    }
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

impl Store for RocksDb {
    type Session<'s> = RocksDbSession<'s>;

    fn session(&self) -> Result<RocksDbSession<'_>, BenchError> {
        let keyspace = self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME).expect("it was opened by this name");
        let mut write = WriteOptions::default();
        write.set_sync(self.sync);
        Ok(RocksDbSession { db: &self.db, keyspace, read: ReadOptions::default(), write, bound: Vec::new() })
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
        let mut read = ReadOptions::default();
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
        let mut entries = self.db.raw_iterator_opt(ReadOptions::default());
        entries.seek_for_prev(high);
        look_at(&mut entries, &mut look, |entries| entries.prev())
    }
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
