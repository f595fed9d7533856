//! Options, and the objects that options refer to: caches, filter policies, comparators, loggers.
//!
//! An options object holds what was set by value: nothing that it refers to has to outlive the call that set it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Weak;

use tamis::Durability;
use tamis::options::{ChecksumMode, Compression, CompressionPerLevel, SharedReadMemory};

use crate::border::{hand_out, take_back};
use crate::database::{ReadPoint, Snapshot};
use crate::env::Env;
use crate::failure::{Failure, Kind};

const MIB: u64 = 1 << 20;

/// The only order of keys that there is, by the name that LevelDB has for it.
const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// Longer names are cut in messages.
const MAX_NAME_CHARS: usize = 100;

/// LevelDB's constant for no compression.
const NO_COMPRESSION: c_int = 0;

/// The bits per key where a program sets a policy of its own, or none.
const DEFAULT_BITS: f64 = 10.0;

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

/// Changes options, if there are any.
///
/// # Safety
///
/// `options` is NULL, or a handle that nobody else uses during the call.
unsafe fn change<T>(options: *mut T, change: impl FnOnce(&mut T)) {
    // SAFETY: as the caller promises.
    if let Some(options) = unsafe { options.as_mut() } {
        change(options);
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

/// A destructor of the caller, to be called once with the caller's state.
#[derive(Debug)]
struct Callers {
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Drop for Callers {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the caller gave the two together, to be called when the object is destroyed.
            unsafe { destructor(self.state) };
        }
    }
}

/// An order of keys that the program defines. Only its name is ever asked for.
#[derive(Debug)]
pub struct Comparator {
    callers: Callers,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
}

impl Comparator {
    fn name(&self) -> String {
        let Some(name) = self.name else { return "(without a name)".to_owned() };
        // SAFETY: the caller gave the function together with the state, which the destructor has not seen yet.
        let name = unsafe { name(self.callers.state) };
        if name.is_null() {
            return "(without a name)".to_owned();
        }
        // SAFETY: the interface requires a string that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        name.chars().take(MAX_NAME_CHARS).collect()
    }
}

/// Creates a comparator. `compare` is never called: see `leveldb_options_set_comparator`. `destructor` is called once, by
/// `leveldb_comparator_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    compare: Option<
        unsafe extern "C" fn(
            *mut c_void,
            a: *const c_char,
            alen: usize,
            b: *const c_char,
            blen: usize,
        ) -> c_int,
    >,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut Comparator {
    let _ = compare;
    hand_out(Comparator { callers: Callers { state, destructor }, name })
}

/// Destroys a comparator and calls its destructor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut Comparator) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(comparator) };
}

/// What a filter policy comes to: bits per key.
#[derive(Debug)]
pub struct FilterPolicy {
    bits_per_key: f64,
    _callers: Option<Callers>,
}

/// Creates a filter policy of the program's own. It is accepted, and tamis' own filter with 10 bits per key takes its place:
/// `create_filter` and `key_may_match` are never called. `destructor` is called once, by `leveldb_filterpolicy_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    create_filter: Option<
        unsafe extern "C" fn(
            *mut c_void,
            key_array: *const *const c_char,
            key_length_array: *const usize,
            num_keys: c_int,
            filter_length: *mut usize,
        ) -> *mut c_char,
    >,
    key_may_match: Option<
        unsafe extern "C" fn(
            *mut c_void,
            key: *const c_char,
            length: usize,
            filter: *const c_char,
            filter_length: usize,
        ) -> u8,
    >,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut FilterPolicy {
    let _ = (create_filter, key_may_match, name);
    hand_out(FilterPolicy { bits_per_key: DEFAULT_BITS, _callers: Some(Callers { state, destructor }) })
}

/// Creates a policy of this many bits per key, 1 to 64.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy {
    hand_out(FilterPolicy { bits_per_key: bits_per_key.clamp(1, 64).into(), _callers: None })
}

/// Destroys a filter policy and calls its destructor, if it has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(policy) };
}

/// Memory for the block caches of the databases that are opened with it.
#[derive(Debug)]
pub struct Cache {
    memory: SharedReadMemory,
}

/// Creates a cache of `capacity` bytes for decompressed blocks.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut Cache {
    hand_out(Cache { memory: SharedReadMemory::new(capacity as u64) })
}

/// Destroys the handle of a cache. Databases that use it keep its memory until they are closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut Cache) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(cache) };
}

/// A logger, of which there is none.
#[derive(Debug)]
pub struct Logger {
    _private: (),
}

/// Options of a read.
#[derive(Debug, Default)]
pub struct ReadOptions {
    /// The snapshot to read from, which may have been released since.
    pub(crate) snapshot: Option<Weak<ReadPoint>>,
}

/// Creates options of reads.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut ReadOptions {
    hand_out(ReadOptions::default())
}

/// Destroys options of reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut ReadOptions) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(options) };
}

/// Accepted: tamis verifies a block's checksum at its first read whatever is set here, and at every read under
/// `leveldb_options_set_paranoid_checks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_verify_checksums(options: *mut ReadOptions, on: u8) {
    let _ = (options, on);
}

/// Accepted: the cache of tamis resists scans by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_fill_cache(options: *mut ReadOptions, on: u8) {
    let _ = (options, on);
}

/// Sets the snapshot to read from; NULL stands for the state at the time of the read. Reads from a snapshot that was released
/// fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut ReadOptions,
    snapshot: *const Snapshot,
) {
    // SAFETY: handles of the caller.
    let point = unsafe { snapshot.as_ref() }.map(Snapshot::point);
    // SAFETY: likewise.
    unsafe { change(options, |options| options.snapshot = point) };
}

/// Options of a write.
#[derive(Debug, Default)]
pub struct WriteOptions {
    sync: bool,
}

impl WriteOptions {
    pub(crate) fn durability(&self) -> Durability {
        if self.sync { Durability::Synced } else { Durability::Buffered }
    }
}

/// Creates options of writes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut WriteOptions {
    hand_out(WriteOptions::default())
}

/// Destroys options of writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut WriteOptions) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(options) };
}

/// Sets whether a write returns only when it would survive a power failure (default: no).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, on: u8) {
    // SAFETY: a handle of the caller.
    unsafe { change(options, |options| options.sync = on != 0) };
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
        let open = |name| Db::open(dir.path().join(name), options.to_engine().unwrap()).unwrap();
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
