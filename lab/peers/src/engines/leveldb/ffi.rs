//! The part of LevelDB's C API that the adapter needs, wrapped in owners that free their contents.
//!
//! Source: `leveldb/c.h` of LevelDB 1.23, linked as the system's `leveldb`.
//!
//! Invariants: every pointer in an [`Owned`] came from the C function that creates it, and is freed once, by the
//! corresponding one. No pointer leaves this module except as a slice that borrows its owner.
//!
//! Threads: LevelDB's database accepts calls from any thread without external locks (`db.h`), and only reads the
//! options of reads and writes. An iterator belongs to one thread at a time, and so is neither `Send` nor `Sync`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// An opaque type of LevelDB.
        #[repr(C)]
        pub(super) struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque!(RawDb RawOptions RawReadOptions RawWriteOptions RawCache RawFilter RawIterator RawBatch);

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_open(options: *const RawOptions, name: *const c_char, error: *mut *mut c_char) -> *mut RawDb;
    fn leveldb_close(db: *mut RawDb);
    fn leveldb_put(
        db: *mut RawDb,
        options: *const RawWriteOptions,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_write(
        db: *mut RawDb,
        options: *const RawWriteOptions,
        batch: *mut RawBatch,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        db: *mut RawDb,
        options: *const RawReadOptions,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn leveldb_property_value(db: *mut RawDb, name: *const c_char) -> *mut c_char;
    fn leveldb_compact_range(
        db: *mut RawDb,
        low: *const c_char,
        low_len: usize,
        high: *const c_char,
        high_len: usize,
    );
    fn leveldb_create_iterator(db: *mut RawDb, options: *const RawReadOptions) -> *mut RawIterator;
    fn leveldb_iter_destroy(iterator: *mut RawIterator);
    fn leveldb_iter_valid(iterator: *const RawIterator) -> u8;
    fn leveldb_iter_seek(iterator: *mut RawIterator, key: *const c_char, key_len: usize);
    fn leveldb_iter_seek_to_last(iterator: *mut RawIterator);
    fn leveldb_iter_next(iterator: *mut RawIterator);
    fn leveldb_iter_prev(iterator: *mut RawIterator);
    fn leveldb_iter_key(iterator: *const RawIterator, len: *mut usize) -> *const c_char;
    fn leveldb_iter_value(iterator: *const RawIterator, len: *mut usize) -> *const c_char;
    fn leveldb_iter_get_error(iterator: *const RawIterator, error: *mut *mut c_char);
    fn leveldb_writebatch_create() -> *mut RawBatch;
    fn leveldb_writebatch_put(
        batch: *mut RawBatch,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    fn leveldb_writebatch_destroy(batch: *mut RawBatch);
    fn leveldb_options_create() -> *mut RawOptions;
    fn leveldb_options_destroy(options: *mut RawOptions);
    fn leveldb_options_set_filter_policy(options: *mut RawOptions, filter: *mut RawFilter);
    fn leveldb_options_set_create_if_missing(options: *mut RawOptions, value: u8);
    fn leveldb_options_set_write_buffer_size(options: *mut RawOptions, bytes: usize);
    fn leveldb_options_set_max_open_files(options: *mut RawOptions, files: c_int);
    fn leveldb_options_set_cache(options: *mut RawOptions, cache: *mut RawCache);
    fn leveldb_options_set_max_file_size(options: *mut RawOptions, bytes: usize);
    fn leveldb_options_set_compression(options: *mut RawOptions, kind: c_int);
    fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut RawFilter;
    fn leveldb_filterpolicy_destroy(filter: *mut RawFilter);
    fn leveldb_readoptions_create() -> *mut RawReadOptions;
    fn leveldb_readoptions_destroy(options: *mut RawReadOptions);
    fn leveldb_writeoptions_create() -> *mut RawWriteOptions;
    fn leveldb_writeoptions_destroy(options: *mut RawWriteOptions);
    fn leveldb_writeoptions_set_sync(options: *mut RawWriteOptions, value: u8);
    fn leveldb_cache_create_lru(bytes: usize) -> *mut RawCache;
    fn leveldb_cache_destroy(cache: *mut RawCache);
    fn leveldb_free(memory: *mut std::ffi::c_void);
    fn leveldb_major_version() -> c_int;
    fn leveldb_minor_version() -> c_int;
}

const NO_COMPRESSION: c_int = 0;

/// An object created by LevelDB, freed on drop.
struct Owned<T> {
    made: NonNull<T>,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// # Safety
    ///
    /// `made` came from the function whose counterpart is `free`, and nothing else frees it.
    unsafe fn new(made: *mut T, free: unsafe extern "C" fn(*mut T)) -> Owned<T> {
        Owned {
            made: NonNull::new(made).expect("LevelDB makes things with C++'s new, which does not give null"),
            free,
        }
    }

    fn raw(&self) -> *mut T {
        self.made.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that `free` is the counterpart of the function that created it; this is the only
        // call.
        unsafe { (self.free)(self.raw()) }
    }
}

/// Memory allocated by LevelDB.
struct Memory {
    bytes: NonNull<c_char>,
    len: usize,
}

impl Memory {
    /// # Safety
    ///
    /// `bytes` is null, or points to `len` bytes that LevelDB allocated for its caller to free.
    unsafe fn new(bytes: *mut c_char, len: usize) -> Option<Memory> {
        Some(Memory { bytes: NonNull::new(bytes)?, len })
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: `new` was promised `len` bytes, which live until this is dropped.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: LevelDB allocated it for its caller to free, which happens only here.
        unsafe { leveldb_free(self.bytes.as_ptr().cast()) }
    }
}

/// Takes ownership of a null-terminated string.
///
/// # Safety
///
/// `text` is null, or a string that LevelDB allocated for its caller to free.
unsafe fn text(text: *mut c_char) -> Option<String> {
    let len = if text.is_null() {
        0
    } else {
        // SAFETY: it is not null, and so a null-terminated string.
        unsafe { CStr::from_ptr(text) }.to_bytes().len()
    };
    // SAFETY: as promised by the caller; `len` is its length.
    unsafe { Memory::new(text, len) }.map(|memory| String::from_utf8_lossy(memory.as_slice()).into_owned())
}

/// Calls a function that reports errors through its last argument.
fn checked<R>(call: impl FnOnce(*mut *mut c_char) -> R) -> Result<R, String> {
    let mut error = ptr::null_mut();
    let result = call(&mut error);
    // SAFETY: LevelDB left the null or replaced it with an allocated string.
    match unsafe { text(error) } {
        None => Ok(result),
        Some(error) => Err(error),
    }
}

/// Returns the version, such as `1.23`.
pub(super) fn version() -> String {
    // SAFETY: both return a constant.
    unsafe { format!("{}.{}", leveldb_major_version(), leveldb_minor_version()) }
}

/// The options of a database, which has no compression, and is created if missing.
pub(super) struct DbOptions {
    /// 0: no filter.
    pub(super) filter_bits: c_int,
    pub(super) cache_bytes: usize,
    pub(super) write_buffer_size: usize,
    pub(super) max_file_size: usize,
    pub(super) max_open_files: c_int,
}

/// An open database.
pub(super) struct Db {
    // In this order: the database uses the others until it is closed.
    db: Owned<RawDb>,
    _options: Owned<RawOptions>,
    _filter: Option<Owned<RawFilter>>,
    _cache: Owned<RawCache>,
}

// SAFETY: LevelDB's database may be used, and closed, by any thread. The others are only freed.
unsafe impl Send for Db {}
// SAFETY: LevelDB's database accepts concurrent calls from several threads; the others are inaccessible.
unsafe impl Sync for Db {}

impl Db {
    pub(super) fn open(dir: &CStr, told: &DbOptions) -> Result<Db, String> {
        // SAFETY: each is created and freed by counterparts. The setters take newly created objects that outlive the
        // database: fields are dropped in order, and the database is the first one.
        unsafe {
            let options = Owned::new(leveldb_options_create(), leveldb_options_destroy);
            let cache = Owned::new(leveldb_cache_create_lru(told.cache_bytes), leveldb_cache_destroy);
            let filter = (told.filter_bits > 0).then(|| {
                Owned::new(leveldb_filterpolicy_create_bloom(told.filter_bits), leveldb_filterpolicy_destroy)
            });
            leveldb_options_set_cache(options.raw(), cache.raw());
            if let Some(filter) = &filter {
                leveldb_options_set_filter_policy(options.raw(), filter.raw());
            }
            leveldb_options_set_create_if_missing(options.raw(), 1);
            leveldb_options_set_compression(options.raw(), NO_COMPRESSION);
            leveldb_options_set_write_buffer_size(options.raw(), told.write_buffer_size);
            leveldb_options_set_max_file_size(options.raw(), told.max_file_size);
            leveldb_options_set_max_open_files(options.raw(), told.max_open_files);
            let db = checked(|error| leveldb_open(options.raw(), dir.as_ptr(), error))?;
            Ok(Db { db: Owned::new(db, leveldb_close), _options: options, _filter: filter, _cache: cache })
        }
    }

    pub(super) fn put(&self, options: &WriteOptions, key: &[u8], value: &[u8]) -> Result<(), String> {
        let (db, options) = (self.db.raw(), options.0.raw());
        // SAFETY: the database is open, and LevelDB copies key and value before it returns.
        checked(|error| unsafe {
            leveldb_put(
                db,
                options,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                error,
            );
        })
    }

    /// Writes all puts in one batch.
    pub(super) fn write<'b>(
        &self,
        options: &WriteOptions,
        puts: impl std::iter::Iterator<Item = (&'b [u8], &'b [u8])>,
    ) -> Result<(), String> {
        // SAFETY: the batch is created and freed by counterparts, and lives until it is written. It copies the bytes that
        // it is given, whose pointers and lengths are those of slices.
        unsafe {
            let batch = Owned::new(leveldb_writebatch_create(), leveldb_writebatch_destroy);
            for (key, value) in puts {
                leveldb_writebatch_put(
                    batch.raw(),
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr().cast(),
                    value.len(),
                );
            }
            checked(|error| leveldb_write(self.db.raw(), options.0.raw(), batch.raw(), error))
        }
    }

    /// Writes an empty batch, which fails if a flush or a compaction has failed.
    pub(super) fn check(&self) -> Result<(), String> {
        self.write(&WriteOptions::new(false), std::iter::empty())
    }

    pub(super) fn get<R>(
        &self,
        options: &ReadOptions,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, String> {
        let (db, mut len) = (self.db.raw(), 0);
        // SAFETY: the database is open. The result is null, or `len` bytes for the caller to free.
        let value = unsafe {
            let bytes = checked(|error| {
                leveldb_get(db, options.0.raw(), key.as_ptr().cast(), key.len(), &mut len, error)
            })?;
            Memory::new(bytes, len)
        };
        Ok(look(value.as_ref().map(Memory::as_slice)))
    }

    /// Flushes the memtable. Compacting the range that contains only the empty key begins with a flush, and finds no
    /// table to compact unless one contains the empty key.
    pub(super) fn flush(&self) {
        let empty = c"".as_ptr();
        // SAFETY: the database is open. Both ends are the empty key, of zero bytes; null would mean all keys.
        unsafe { leveldb_compact_range(self.db.raw(), empty, 0, empty, 0) }
    }

    /// Flushes the memtable and merges all tables into one level.
    pub(super) fn compact_all(&self) {
        let all = std::ptr::null();
        // SAFETY: the database is open. Null means an open end.
        unsafe { leveldb_compact_range(self.db.raw(), all, 0, all, 0) }
    }

    pub(super) fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the database is open; the result is null or a string for the caller to free.
        unsafe { text(leveldb_property_value(self.db.raw(), name.as_ptr())) }
    }

    pub(super) fn iterator<'s>(&'s self, options: &'s ReadOptions) -> Iterator<'s> {
        // SAFETY: database and options outlive the iterator, as its type requires.
        let made = unsafe {
            Owned::new(leveldb_create_iterator(self.db.raw(), options.0.raw()), leveldb_iter_destroy)
        };
        Iterator { made, alive: PhantomData }
    }
}

/// Options of reads, with their defaults.
pub(super) struct ReadOptions(Owned<RawReadOptions>);

impl ReadOptions {
    pub(super) fn new() -> ReadOptions {
        // SAFETY: counterparts.
        ReadOptions(unsafe { Owned::new(leveldb_readoptions_create(), leveldb_readoptions_destroy) })
    }
}

/// Options of writes.
pub(super) struct WriteOptions(Owned<RawWriteOptions>);

impl WriteOptions {
    pub(super) fn new(sync: bool) -> WriteOptions {
        // SAFETY: counterparts; the setter takes a newly created object.
        unsafe {
            let options = Owned::new(leveldb_writeoptions_create(), leveldb_writeoptions_destroy);
            leveldb_writeoptions_set_sync(options.raw(), u8::from(sync));
            WriteOptions(options)
        }
    }
}

/// A cursor over a snapshot of the database's entries; initially invalid.
pub(super) struct Iterator<'s> {
    made: Owned<RawIterator>,
    alive: PhantomData<&'s Db>,
}

impl Iterator<'_> {
    /// Moves to the first entry not before `key`.
    pub(super) fn seek(&mut self, key: &[u8]) {
        // SAFETY: the iterator is alive, and LevelDB copies the key if it needs it longer.
        unsafe { leveldb_iter_seek(self.made.raw(), key.as_ptr().cast(), key.len()) }
    }

    /// Moves to the last entry not after `key`.
    pub(super) fn seek_back(&mut self, key: &[u8]) {
        self.seek(key);
        match self.entry().map(|(found, _)| found > key) {
            Some(true) => self.prev(),
            Some(false) => {}
            // SAFETY: the iterator is alive.
            None => unsafe { leveldb_iter_seek_to_last(self.made.raw()) },
        }
    }

    /// Returns the current entry, valid until the next move; `None` at an end or after an error.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        let raw = self.made.raw();
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: key and value of a valid iterator are available until it moves, which needs `&mut`. They are never
        // null, even if empty: `Slice` always points somewhere.
        unsafe {
            if leveldb_iter_valid(raw) == 0 {
                return None;
            }
            let key = leveldb_iter_key(raw, &mut key_len);
            let value = leveldb_iter_value(raw, &mut value_len);
            Some((slice::from_raw_parts(key.cast(), key_len), slice::from_raw_parts(value.cast(), value_len)))
        }
    }

    /// Moves to the next entry. Must be at an entry.
    pub(super) fn next(&mut self) {
        debug_assert!(self.entry().is_some());
        // SAFETY: the iterator is alive, and valid as required of the caller.
        unsafe { leveldb_iter_next(self.made.raw()) }
    }

    /// Moves to the previous entry. Must be at an entry.
    pub(super) fn prev(&mut self) {
        debug_assert!(self.entry().is_some());
        // SAFETY: the iterator is alive, and valid as required of the caller.
        unsafe { leveldb_iter_prev(self.made.raw()) }
    }

    /// Returns the error if the end was one.
    pub(super) fn status(&self) -> Result<(), String> {
        // SAFETY: the iterator is alive.
        checked(|error| unsafe { leveldb_iter_get_error(self.made.raw(), error) })
    }
}

/// Converts a directory to a C string.
pub(super) fn path(dir: &std::path::Path) -> Result<CString, std::ffi::NulError> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(dir.as_os_str().as_bytes())
}
