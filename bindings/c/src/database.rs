//! Databases: opening, closing, and work on the whole of one.

use std::ffi::c_char;
use std::sync::Arc;

use tamis::maintenance::CompactOptions;
use tamis::{Db, Keyspace, Snapshot, WriteError};
use tamis_bindings::{Database, Failure};

use crate::border::{free, give, guard, object, path, range};
use crate::error::tamis_error;
use crate::keyspace::tamis_keyspace;
use crate::options::{options_of, tamis_options};

/// An open database.
#[derive(Debug)]
pub struct tamis_db {
    pub(crate) database: Arc<Database>,
}

impl tamis_db {
    /// The database and the keyspace of a call: the default one if there is none.
    ///
    /// # Safety
    /// Both are null or valid for the call.
    #[inline]
    pub(crate) unsafe fn place<'a>(
        db: *const tamis_db,
        keyspace: *const tamis_keyspace,
    ) -> Result<(&'a tamis_db, &'a Keyspace), Failure> {
        // SAFETY: by contract.
        let db = unsafe { object(db, "db") }?;
        let open = db.database.db()?;
        if keyspace.is_null() {
            return Ok((db, open.default_keyspace()));
        }
        // SAFETY: by contract.
        let keyspace = unsafe { object(keyspace, "keyspace") }?;
        keyspace.of(&db.database).map(|keyspace| (db, keyspace))
    }

    /// The open database.
    ///
    /// # Safety
    /// `db` is null or valid for the call.
    pub(crate) unsafe fn open<'a>(db: *const tamis_db) -> Result<&'a Db, Failure> {
        // SAFETY: by contract.
        unsafe { object(db, "db") }?.database.db()
    }
}

impl tamis_keyspace {
    /// The keyspace, if it belongs to `database`.
    #[inline]
    pub(crate) fn of(&self, database: &Arc<Database>) -> Result<&Keyspace, Failure> {
        if Arc::ptr_eq(&self.database, database) {
            return Ok(&self.keyspace);
        }
        Err(WriteError::ForeignKeyspace { name: self.keyspace.name().to_owned() }.into())
    }
}

/// Opens the database in the directory `path`, or creates it (see the options "create_if_missing" and "error_if_exists"). `options` may be
/// NULL: all defaults. A database is open once: threads share the handle. Close it with tamis_close.
///
/// Errors, among others: TAMIS_CODE_OPEN_HERE (in this process), TAMIS_CODE_LOCKED (in another one), TAMIS_CODE_NO_DATABASE,
/// TAMIS_CODE_DATABASE_EXISTS, TAMIS_CODE_INCOMPATIBLE, TAMIS_CODE_CORRUPT, TAMIS_CODE_IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_open(
    path: *const c_char,
    options: *const tamis_options,
    error: *mut *mut tamis_error,
) -> *mut tamis_db {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let (path, options) = unsafe { (self::path(path)?, options_of(options)?) };
        Ok(give(tamis_db { database: Arc::new(Database::open(path, options)?) }))
    })
}

/// Opens a database for reading, as of now; its writer may have it open. It has no locks, and writes fail with TAMIS_CODE_READ_ONLY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_open_read_only(
    path: *const c_char,
    options: *const tamis_options,
    error: *mut *mut tamis_error,
) -> *mut tamis_db {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let (path, options) = unsafe { (self::path(path)?, options_of(options)?) };
        Ok(give(tamis_db { database: Arc::new(Database::open_read_only(path, options)?) }))
    })
}

/// Ends background work, syncs the log and releases the directory, so that it can be opened again. The handle stays, to be freed with
/// tamis_db_free: it and all objects of the database answer TAMIS_CODE_CLOSED from now on. Calls that run meanwhile in other threads end
/// as they would have, or with that error. Closing again does nothing. An error is the last failure of the log or the
/// manifest; the database is closed all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_close(db: *mut tamis_db, error: *mut *mut tamis_error) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { object(db, "db") }?.database.close()?;
        Ok(true)
    })
}

/// Closes the database, if tamis_close has not, and frees the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_db_free(db: *mut tamis_db) {
    if !db.is_null() {
        // SAFETY: by contract. Who wants to know of an error closes first.
        unsafe {
            tamis_close(db, std::ptr::null_mut());
            free(db);
        }
    }
}

/// Writes memtables to tables, and waits for it: of one keyspace, or of all if `keyspace` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_flush(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (_, place) = unsafe { tamis_db::place(db, keyspace) }?;
        if keyspace.is_null() {
            place.database().flush()?;
        } else {
            place.flush()?;
        }
        Ok(true)
    })
}

/// Compacts a keyspace, or all if `keyspace` is NULL, until each has one sorted run, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_compact(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (_, place) = unsafe { tamis_db::place(db, keyspace) }?;
        if keyspace.is_null() {
            place.database().compact()?;
        } else {
            place.compact()?;
        }
        Ok(true)
    })
}

/// Compacts the keys from `start` up to before `end` of one keyspace (NULL: the default one), and waits for it. Errors, among others:
/// TAMIS_CODE_CANCELLED, by tamis_cancel_compactions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_compact_range(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    start: *const std::ffi::c_void,
    start_len: usize,
    end: *const std::ffi::c_void,
    end_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (place, keys) =
            unsafe { (tamis_db::place(db, keyspace)?.1, range(start, start_len, end, end_len)?) };
        place.compact_range::<&[u8]>(keys, CompactOptions::default())?;
        Ok(true)
    })
}

/// Cancels the running compactions; those that are needed start again later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_cancel_compactions(db: *const tamis_db, error: *mut *mut tamis_error) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { tamis_db::open(db) }?.cancel_compactions();
        Ok(true)
    })
}

/// Waits until no flush or compaction is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_wait_for_compaction(
    db: *const tamis_db,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { tamis_db::open(db) }?.wait_for_compaction()?;
        Ok(true)
    })
}

/// Makes all acknowledged writes survive a power failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_sync(db: *const tamis_db, error: *mut *mut tamis_error) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { tamis_db::open(db) }?.sync()?;
        Ok(true)
    })
}

/// Makes a copy of the database, as of now, in the new directory `path`. Tables are hard links where the file system can.
/// Errors, among others: TAMIS_CODE_TARGET_EXISTS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_checkpoint(
    db: *const tamis_db,
    path: *const c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (db, path) = unsafe { (tamis_db::open(db)?, self::path(path)?) };
        db.checkpoint(path)?;
        Ok(true)
    })
}

/// Changes the memory of elastic filters, in bytes, until the database is closed. Errors: TAMIS_CODE_INVALID_OPTION if they share
/// "read_memory_bytes" with the block cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_set_filter_budget(
    db: *const tamis_db,
    bytes: u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { tamis_db::open(db) }?.set_filter_budget(bytes)?;
        Ok(true)
    })
}

/// Changes the memory that block cache and elastic filters share (option "read_memory_bytes"), in bytes, until the database is closed.
/// Errors: TAMIS_CODE_INVALID_OPTION if it was opened without that option, or for less than an eighth of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_set_read_memory(
    db: *const tamis_db,
    bytes: u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { tamis_db::open(db) }?.set_read_memory(bytes)?;
        Ok(true)
    })
}

/// The state of the database at one moment, in all keyspaces. Keeps old versions on disk until it is freed.
#[derive(Debug)]
pub struct tamis_snapshot {
    pub(crate) database: Arc<Database>,
    pub(crate) snapshot: Snapshot,
}

/// Takes a snapshot. Free it with tamis_snapshot_free. Costs a few hundred nanoseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_snapshot_new(
    db: *const tamis_db,
    error: *mut *mut tamis_error,
) -> *mut tamis_snapshot {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let database = &unsafe { object(db, "db") }?.database;
        let snapshot = database.db()?.snapshot();
        Ok(give(tamis_snapshot { database: database.clone(), snapshot }))
    })
}

/// The sequence number of the last write that a snapshot sees; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_snapshot_seq(snapshot: *const tamis_snapshot) -> u64 {
    // SAFETY: null, or valid by contract.
    unsafe { snapshot.as_ref() }.map_or(0, |snapshot| snapshot.snapshot.seq())
}

/// Frees a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_snapshot_free(snapshot: *mut tamis_snapshot) {
    // SAFETY: by contract.
    unsafe { free(snapshot) }
}
