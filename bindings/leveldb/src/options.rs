//! The options of a database.
//!
//! They hold what was set by value: no object that was set has to outlive the call.

use std::ffi::c_int;

use tamis::Durability;
use tamis::options::{ChecksumMode, Compression, CompressionPerLevel, SharedReadMemory};

use crate::border::{change, hand_out, take_back};
use crate::env::Env;
use crate::failure::{Failure, Kind};
use crate::parts::{Cache, Comparator, DEFAULT_BITS, FilterPolicy, Logger};

const MIB: u64 = 1 << 20;

/// The only order of keys that there is, by the name that LevelDB has for it.
const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// LevelDB's constant for no compression.
const NO_COMPRESSION: c_int = 0;

/// Options of a database. Made by `leveldb_options_create`, and changed by `leveldb_options_set_*` before they are used.
#[derive(Clone, Debug)]
pub struct Options {
    create_if_missing: bool,
    error_if_exists: bool,
    paranoid_checks: bool,
    write_buffer_size: usize,
    max_open_files: c_int,
    block_size: usize,
    block_restart_interval: c_int,
    /// `None`: as the engine has it.
    max_file_size: Option<usize>,
    compressed: bool,
    bits_per_key: f64,
    cache: Option<SharedReadMemory>,
    comparator: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: false,
            error_if_exists: false,
            paranoid_checks: false,
            write_buffer_size: 4 << 20,
            max_open_files: 1000,
            block_size: 4096,
            block_restart_interval: 16,
            max_file_size: None,
            compressed: true,
            bits_per_key: DEFAULT_BITS,
            cache: None,
            comparator: None,
        }
    }
}

impl Options {
    /// Returns the engine's options; an error for an order of keys that it does not have. Sizes are brought within
    /// LevelDB's limits, as LevelDB does it.
    pub(crate) fn to_engine(&self) -> Result<tamis::Options, Failure> {
        if let Some(name) = self.comparator.as_ref().filter(|name| *name != BYTEWISE) {
            let what =
                format!("the comparator `{name}`: tamis orders keys by their bytes, as {BYTEWISE} does");
            return Err(Failure::new(Kind::NotSupported, what));
        }
        let mut options = tamis::Options {
            create_if_missing: self.create_if_missing,
            // As LevelDB does. The files of a database of LevelDB are refused all the same.
            create_among_others: true,
            error_if_exists: self.error_if_exists,
            durability: Durability::Buffered,
            max_open_files: self.max_open_files.clamp(74, 50_000) as usize,
            ..tamis::Options::default()
        };
        if self.paranoid_checks {
            options.verify_checksums = ChecksumMode::Always;
        }
        match &self.cache {
            Some(memory) => options.shared_read_memory = Some(memory.clone()),
            None => options.cache_bytes = 8 * MIB,
        }
        let keyspace = &mut options.keyspace;
        keyspace.memtable_bytes = (self.write_buffer_size as u64).clamp(MIB / 16, 1024 * MIB);
        keyspace.block_bytes = (self.block_size as u64).clamp(1024, 4 * MIB);
        keyspace.restart_interval = self.block_restart_interval.clamp(1, 255) as usize;
        if let Some(size) = self.max_file_size {
            keyspace.table_bytes = (size as u64).clamp(MIB, 1024 * MIB);
        }
        let compression = if self.compressed { Compression::Lz4 } else { Compression::None };
        keyspace.compression = CompressionPerLevel::uniform(compression);
        keyspace.bits_per_key = self.bits_per_key;
        // Large write buffers are filled before they are written, as the program asked.
        let buffers = keyspace.memtable_bytes * (keyspace.max_memtables as u64 + 1);
        options.memtable_budget_bytes = options.memtable_budget_bytes.max(buffers);
        options.max_log_bytes = options.max_log_bytes.max(2 * buffers);
        Ok(options)
    }
}

/// Creates options with their defaults: those of LevelDB for what limits memory (4 MiB of write buffer, 8 MiB of cache), those of
/// tamis for the rest. Destroy them with `leveldb_options_destroy`; databases opened with them do not need them any more.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut Options {
    hand_out(Options::default())
}

/// Destroys options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_destroy(options: *mut Options) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(options) };
}

/// Sets the order of keys. One whose name is `leveldb.BytewiseComparator`, or NULL, is the order that there is; with any other
/// `leveldb_open` fails. The name is asked for in this call, and the comparator is not used after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_comparator(options: *mut Options, comparator: *mut Comparator) {
    // SAFETY: handles of the caller.
    let name = unsafe { comparator.as_ref() }.map(Comparator::name);
    // SAFETY: likewise.
    unsafe { change(options, |options| options.comparator = name) };
}

/// Sets the filter. A Bloom filter of LevelDB sets the bits per key of tamis' own filter; another policy, or NULL, stands for
/// 10 bits. The policy is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_filter_policy(options: *mut Options, policy: *mut FilterPolicy) {
    // SAFETY: handles of the caller.
    let bits = unsafe { policy.as_ref() }.map_or(DEFAULT_BITS, |policy| policy.bits_per_key);
    // SAFETY: likewise.
    unsafe { change(options, |options| options.bits_per_key = bits) };
}

/// Sets whether a database that does not exist is created (default: no).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_create_if_missing(options: *mut Options, on: u8) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.create_if_missing = on != 0) };
}

/// Sets whether it is an error that the database exists (default: no).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_error_if_exists(options: *mut Options, on: u8) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.error_if_exists = on != 0) };
}

/// Sets whether checksums are verified at every read of a block, not at the first only (default: no).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_paranoid_checks(options: *mut Options, on: u8) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.paranoid_checks = on != 0) };
}

/// Accepted; there is only one environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_env(options: *mut Options, env: *mut Env) {
    let _ = (options, env);
}

/// Accepted and ignored: no function of the interface makes a logger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_info_log(options: *mut Options, logger: *mut Logger) {
    let _ = (options, logger);
}

/// Sets the bytes of writes that are collected in memory before they are written to a table (default: 4 MiB). Up to three such
/// buffers are in memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_write_buffer_size(options: *mut Options, bytes: usize) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.write_buffer_size = bytes) };
}

/// Sets the most open table files (default: 1000). Tables that are mapped into memory, as they usually are, need none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_open_files(options: *mut Options, files: c_int) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.max_open_files = files) };
}

/// Sets the block cache; NULL stands for one of 8 MiB that the database has for itself. The databases opened with one cache
/// divide its capacity by use, and hold no more together; of its share, a database begins with half. The cache may be destroyed
/// before them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_cache(options: *mut Options, cache: *mut Cache) {
    // SAFETY: handles of the caller.
    let memory = unsafe { cache.as_ref() }.map(|cache| cache.memory.clone());
    // SAFETY: likewise.
    unsafe { change(options, |options| options.cache = memory) };
}

/// Sets the bytes of a block before compression (default: 4 KiB).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_size(options: *mut Options, bytes: usize) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.block_size = bytes) };
}

/// Sets the entries between two keys that a block stores in full, 1 to 255 (default: 16).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_restart_interval(options: *mut Options, entries: c_int) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.block_restart_interval = entries) };
}

/// Sets the bytes of a table (default: 64 MiB).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_file_size(options: *mut Options, bytes: usize) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.max_file_size = Some(bytes)) };
}

/// Sets whether blocks are compressed: `leveldb_no_compression`, or with LZ4 for `leveldb_snappy_compression` (the default) and any
/// other number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_compression(options: *mut Options, compression: c_int) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.compressed = compression != NO_COMPRESSION) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis::Db;

    #[test]
    fn defaults_are_those_of_the_readme() {
        let options = Options::default().to_engine().unwrap();
        options.check().unwrap();
        assert!(!options.create_if_missing && !options.error_if_exists);
        assert_eq!(options.durability, Durability::Buffered);
        assert_eq!(options.verify_checksums, ChecksumMode::Once);
        assert_eq!((options.cache_bytes, options.max_open_files), (8 * MIB, 1000));
        let (keyspace, own) = (options.keyspace, tamis::KeyspaceOptions::default());
        assert_eq!((keyspace.memtable_bytes, keyspace.block_bytes), (4 * MIB, 4096));
        assert_eq!((keyspace.restart_interval, keyspace.max_memtables), (16, 3));
        assert_eq!((keyspace.table_bytes, keyspace.filter), (own.table_bytes, own.filter));
        assert_eq!((keyspace.bits_per_key, keyspace.compression.at(6)), (10.0, Compression::Lz4));
    }

    #[test]
    fn the_engine_accepts_whatever_is_set() {
        for size in [0, 1, 5000, 1 << 20, usize::MAX] {
            for number in [c_int::MIN, -1, 0, 1, 300, c_int::MAX] {
                let options = Options {
                    write_buffer_size: size,
                    block_size: size,
                    max_file_size: Some(size),
                    max_open_files: number,
                    block_restart_interval: number,
                    compressed: number % 2 == 0,
                    paranoid_checks: true,
                    cache: (number > 0).then(|| SharedReadMemory::new(size as u64)),
                    comparator: Some(BYTEWISE.to_owned()),
                    ..Options::default()
                };
                let options = options.to_engine().unwrap();
                options.check().unwrap_or_else(|error| panic!("{size}, {number}: {error}"));
                assert!(options.memtable_budget_bytes > 3 * options.keyspace.memtable_bytes);
            }
        }
    }

    #[test]
    fn databases_divide_a_cache() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            create_if_missing: true,
            cache: Some(SharedReadMemory::new(8 << 20)),
            ..Options::default()
        };
        let open = |name| options.to_engine().unwrap().open(dir.path().join(name)).unwrap();
        let share = |db: &Db| db.stats().read_memory_bytes;
        let first = open("first");
        assert_eq!(share(&first), 8 << 20);
        let second = open("second");
        assert!(share(&first) + share(&second) <= 8 << 20);
        assert!(share(&first).min(share(&second)) > 3 << 20);
        let cache = second.stats().cache_capacity_bytes;
        assert!(cache > 0 && cache <= share(&second));
        second.close().unwrap();
        assert_eq!(share(&first), 8 << 20);
    }
}
