//! An open database: reads, writes, snapshots, sizes and compactions.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Bound;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tamis::Db;
use tamis::maintenance::CompactOptions;

use crate::batch::WriteBatch;
use crate::border::{attempt, bytes, c_string, copy_out, hand_out, object, path, shielded, take_back};
use crate::calls::{ReadOptions, WriteOptions};
use crate::cursor::Cursor;
use crate::directory::refuse_foreign;
use crate::failure::{Failure, Kind};
use crate::options::Options;
use crate::property;

/// An open database. All functions that take one, `leveldb_close` excepted, may be called from several threads at once.
#[derive(Debug)]
pub struct Database {
    db: Db,
    /// Tells this opening from all others, in the process.
    opening: u64,
}

static OPENINGS: AtomicU64 = AtomicU64::new(0);

/// The state that a snapshot shows.
#[derive(Debug)]
pub(crate) struct ReadPoint {
    opening: u64,
    snapshot: tamis::Snapshot,
}

/// The state of a database at one moment.
#[derive(Debug)]
pub struct Snapshot {
    point: Arc<ReadPoint>,
}

impl Snapshot {
    /// Returns the state for options of reads, which do not keep it.
    pub(crate) fn point(&self) -> Weak<ReadPoint> {
        Arc::downgrade(&self.point)
    }
}

impl Database {
    /// Returns the snapshot that the options name.
    fn named(&self, options: &ReadOptions) -> Result<Option<Arc<ReadPoint>>, Failure> {
        let Some(point) = &options.snapshot else { return Ok(None) };
        let point = point.upgrade().ok_or_else(|| Failure::invalid("the snapshot was released"))?;
        match point.opening == self.opening {
            true => Ok(Some(point)),
            false => Err(Failure::invalid("the snapshot belongs to another database")),
        }
    }

    fn get(&self, options: &ReadOptions, key: &[u8]) -> Result<Option<tamis::Slice>, Failure> {
        Ok(match self.named(options)? {
            Some(point) => point.snapshot.get(key)?,
            None => self.db.get(key)?,
        })
    }

    /// Returns the snapshot that an iterator reads from.
    pub(crate) fn iterated(&self, options: &ReadOptions) -> Result<tamis::Snapshot, Failure> {
        Ok(match self.named(options)? {
            Some(point) => point.snapshot.clone(),
            None => self.db.snapshot(),
        })
    }
}

/// Opens the database in the directory `name`. Close it with `leveldb_close`.
///
/// Returns NULL and an error if the directory holds no database and the options create none, or it holds one and they exclude
/// that; for a comparator other than LevelDB's own; if the database is open already, here or elsewhere; if it is damaged; or if
/// the directory holds a database of LevelDB, in which nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const Options,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut Database {
    let open = || {
        // SAFETY: a handle and a string of the caller.
        let (options, path) = unsafe { (object(options, "options")?, path(name)?) };
        let options = options.to_engine()?;
        refuse_foreign(path)?;
        // The program may change its current directory while the database is open.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let db = options.open(path)?;
        Ok(hand_out(Database { db, opening: OPENINGS.fetch_add(1, Ordering::Relaxed) }))
    };
    // SAFETY: the interface's rule for `errptr`.
    unsafe { attempt(errptr, ptr::null_mut(), open) }
}

/// Closes a database. Iterators and snapshots that are left keep what they show, and have to be destroyed all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_close(db: *mut Database) {
    if db.is_null() {
        return;
    }
    // SAFETY: a handle of the caller, which gives it up.
    let database = unsafe { Box::from_raw(db) };
    // The interface has no way to report an error, and the next opening recovers what was acknowledged.
    shielded((), || _ = database.db.close());
}

/// Sets the value of a key. Keys have up to 64 KiB, values up to 4 GiB - 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut Database,
    options: *const WriteOptions,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    let put = || {
        // SAFETY: handles and bytes of the caller.
        let (database, options) = unsafe { (object(db, "database")?, object(options, "write options")?) };
        // SAFETY: likewise.
        let (key, value) = unsafe { (bytes(key, keylen)?, bytes(val, vallen)?) };
        let mut batch = tamis::WriteBatch::new();
        batch.put(key, value);
        Ok(database.db.write_with(batch, options.durability())?)
    };
    // SAFETY: the interface's rule for `errptr`.
    unsafe { attempt(errptr, (), put) }
}

/// Deletes a key; it need not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut Database,
    options: *const WriteOptions,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    let delete = || {
        // SAFETY: handles and bytes of the caller.
        let (database, options) = unsafe { (object(db, "database")?, object(options, "write options")?) };
        let mut batch = tamis::WriteBatch::new();
        // SAFETY: likewise.
        batch.delete(unsafe { bytes(key, keylen)? });
        Ok(database.db.write_with(batch, options.durability())?)
    };
    // SAFETY: the interface's rule for `errptr`.
    unsafe { attempt(errptr, (), delete) }
}

/// Applies a batch, all of it or nothing. The batch stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut Database,
    options: *const WriteOptions,
    batch: *mut WriteBatch,
    errptr: *mut *mut c_char,
) {
    let write = || {
        // SAFETY: handles of the caller.
        let (database, options) = unsafe { (object(db, "database")?, object(options, "write options")?) };
        // SAFETY: likewise.
        let batch = unsafe { object(batch, "batch")? }.to_engine()?;
        Ok(database.db.write_with(batch, options.durability())?)
    };
    // SAFETY: the interface's rule for `errptr`.
    unsafe { attempt(errptr, (), write) }
}

/// Returns the value of a key, to be freed, and its length in `*vallen`; NULL and 0 if there is none, or with an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut Database,
    options: *const ReadOptions,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    let get = || {
        // SAFETY: handles and bytes of the caller.
        let (database, options) = unsafe { (object(db, "database")?, object(options, "read options")?) };
        // SAFETY: likewise.
        let Some(value) = database.get(options, unsafe { bytes(key, keylen)? })? else {
            return Ok((ptr::null_mut(), 0));
        };
        match copy_out(&value) {
            copy if copy.is_null() => {
                Err(Failure::new(Kind::Io, format!("no memory for a value of {} bytes", value.len())))
            }
            copy => Ok((copy, value.len())),
        }
    };
    // SAFETY: the interface's rule for `errptr`.
    let (value, len) = unsafe { attempt(errptr, (ptr::null_mut(), 0), get) };
    // SAFETY: NULL, or a place for the length.
    if let Some(vallen) = unsafe { vallen.as_mut() } {
        *vallen = len;
    }
    value
}

/// Creates an iterator over the state at this time, or that of the options' snapshot. It stands nowhere until it is told where
/// to. Destroy it with `leveldb_iter_destroy`. An iterator belongs to one thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut Database,
    options: *const ReadOptions,
) -> *mut Cursor {
    let source = shielded(Err(Failure::panicked()), || {
        // SAFETY: handles of the caller.
        let (database, options) = unsafe { (object(db, "database")?, object(options, "read options")?) };
        database.iterated(options)
    });
    hand_out(Cursor::over(source))
}

/// Takes a snapshot of the database, for `leveldb_readoptions_set_snapshot`. Release it with `leveldb_release_snapshot`. NULL
/// only if `db` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut Database) -> *const Snapshot {
    shielded(ptr::null(), || {
        // SAFETY: a handle of the caller.
        let Ok(database) = (unsafe { object(db, "database") }) else { return ptr::null() };
        let point = ReadPoint { opening: database.opening, snapshot: database.db.snapshot() };
        hand_out(Snapshot { point: Arc::new(point) })
    })
}

/// Releases a snapshot, also after its database was closed. Iterators that read from it keep what they show.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(db: *mut Database, snapshot: *const Snapshot) {
    let _ = db;
    // SAFETY: a handle of the caller, made by `hand_out`, which the caller gives up.
    unsafe { take_back(snapshot.cast_mut()) };
}

/// Returns the value of a property, to be freed; NULL if there is no such property. These exist:
/// `leveldb.num-files-at-level<N>`, `leveldb.stats`, `leveldb.sstables` and `leveldb.approximate-memory-usage`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(db: *mut Database, propname: *const c_char) -> *mut c_char {
    shielded(ptr::null_mut(), || {
        // SAFETY: a handle of the caller.
        let Ok(database) = (unsafe { object(db, "database") }) else { return ptr::null_mut() };
        if propname.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: a string of the caller.
        let name = unsafe { CStr::from_ptr(propname) };
        let value = name.to_str().ok().and_then(|name| property::value(&database.db, name));
        value.map_or(ptr::null_mut(), |value| c_string(&value))
    })
}

/// Estimates the bytes that ranges of keys take, each from its start up to but not including its limit. What is in memory only
/// counts as well. A range that ends before it starts takes none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut Database,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
) {
    let missing = range_start_key.is_null()
        || range_start_key_len.is_null()
        || range_limit_key.is_null()
        || range_limit_key_len.is_null();
    if sizes.is_null() || missing {
        return;
    }
    for i in 0..usize::try_from(num_ranges).unwrap_or(0) {
        let size = shielded(None, || {
            // SAFETY: a handle of the caller, and arrays of `num_ranges` elements.
            let (database, start, limit) = unsafe {
                let start = bytes(*range_start_key.add(i), *range_start_key_len.add(i)).ok()?;
                let limit = bytes(*range_limit_key.add(i), *range_limit_key_len.add(i)).ok()?;
                (object(db, "database").ok()?, start, limit)
            };
            database.db.approximate_size(start..limit).ok()
        });
        // SAFETY: an array of `num_ranges` elements.
        unsafe { sizes.add(i).write(size.unwrap_or(0)) };
    }
}

/// Compacts the tables that hold keys from `start_key` to `limit_key`, both included, and waits for it; NULL stands for no bound.
/// An error is not reported: nothing is lost by it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut Database,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    shielded((), || {
        // SAFETY: NULL, or bytes of the caller.
        let bound = |key: *const c_char, len| match key.is_null() {
            true => Some(Bound::Unbounded),
            // SAFETY: not NULL, and so bytes of the caller.
            false => unsafe { bytes(key, len) }.ok().map(Bound::Included),
        };
        let (Some(start), Some(limit)) = (bound(start_key, start_key_len), bound(limit_key, limit_key_len))
        else {
            return;
        };
        // SAFETY: a handle of the caller.
        let Ok(database) = (unsafe { object(db, "database") }) else { return };
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (start, limit);
        _ = database.db.default_keyspace().compact_range::<&[u8]>(range, CompactOptions::default());
    });
}
