//! External tables: built outside a database, and ingested whole.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis_bindings::{Code, Failure, json};

use crate::border::{array, bytes, exclusive, free, give, guard, object, path, place, range};
use crate::database::tamis_db;
use crate::error::tamis_error;
use crate::keyspace::tamis_keyspace;
use crate::options::{keyspace_options_of, tamis_keyspace_options};
use crate::output::string;

/// Builds a sorted table in a file. For one thread at a time.
#[derive(Debug)]
pub struct tamis_table_builder {
    /// None: finished.
    builder: Mutex<Option<ExternalTableBuilder>>,
}

/// Begins a table in the new file `path`. `options` may be NULL; they should be those of the keyspace that will ingest it. Free it with
/// tamis_table_builder_free, which removes the file unless it was finished. Errors, among others: TAMIS_CODE_TARGET_EXISTS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_table_builder_new(
    path: *const c_char,
    options: *const tamis_keyspace_options,
    error: *mut *mut tamis_error,
) -> *mut tamis_table_builder {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let (path, options) = unsafe { (self::path(path)?, keyspace_options_of(options)?) };
        let builder = ExternalTableBuilder::create(tamis_bindings::absolute(path), &options)?;
        Ok(give(tamis_table_builder { builder: Mutex::new(Some(builder)) }))
    })
}

/// Adds to a table.
///
/// # Safety
/// `builder` is null or valid for the call.
unsafe fn add(
    builder: *mut tamis_table_builder,
    error: *mut *mut tamis_error,
    add: impl FnOnce(&mut ExternalTableBuilder) -> Result<(), Failure>,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let builder = unsafe { object(builder, "builder") }?;
        let mut builder = exclusive(&builder.builder, "builder")?;
        add(builder.as_mut().ok_or_else(finished)?)?;
        Ok(true)
    })
}

fn finished() -> Failure {
    Failure::new(Code::Ended, "the table was finished or dropped")
}

/// Adds an entry. Keys come in strictly ascending order: TAMIS_CODE_OUT_OF_ORDER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_table_builder_put(
    builder: *mut tamis_table_builder,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        add(builder, error, |builder| {
            Ok(builder.put(bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)?)
        })
    }
}

/// Adds a delete, which hides what the keyspace has under this key. In order with the entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_table_builder_delete(
    builder: *mut tamis_table_builder,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe { add(builder, error, |builder| Ok(builder.delete(bytes(key, key_len, "key")?)?)) }
}

/// Adds a delete of the keys from `start` up to before `end` that the keyspace has; not of the table's own entries. At any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_table_builder_delete_range(
    builder: *mut tamis_table_builder,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        add(builder, error, |builder| {
            Ok(builder.delete_range::<&[u8]>(range(start, start_len, end, end_len)?)?)
        })
    }
}

/// Completes the table and syncs it. `*report`, unless NULL, becomes a JSON object about it, owned. The builder cannot be used any more, and
/// is still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_table_builder_finish(
    builder: *mut tamis_table_builder,
    report: *mut *mut c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let builder = unsafe { object(builder, "builder") }?;
        let builder = exclusive(&builder.builder, "builder")?.take().ok_or_else(finished)?;
        let info = builder.finish()?;
        if !report.is_null() {
            // SAFETY: checked, and the caller's to write to.
            unsafe { place(report, "report")?.write(string(&json::text(&info))?) };
        }
        Ok(true)
    })
}

/// Frees a builder. A table that was not finished is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_table_builder_free(builder: *mut tamis_table_builder) {
    // SAFETY: by contract.
    unsafe { free(builder) }
}

/// Ingests `count` external tables into a keyspace (NULL: the default one), all or none, as if their entries were written now. They are
/// verified first. With `move_files` they are linked instead of copied, where the file system can, and their names are removed. `*entries`
/// and `*report`, unless NULL, become the number of entries and a JSON object with the tables, owned. Errors, among others:
/// TAMIS_CODE_NOT_A_TABLE, TAMIS_CODE_OVERLAP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_ingest(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    paths: *const *const c_char,
    count: usize,
    move_files: bool,
    entries: *mut u64,
    report: *mut *mut c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (at, paths) = unsafe { (tamis_db::place(db, keyspace)?.1, array(paths, count, "paths")?) };
        // SAFETY: by contract.
        let paths: Vec<_> =
            paths.iter().map(|&path| unsafe { self::path(path) }).collect::<Result<_, Failure>>()?;
        let done = at.ingest(&paths, IngestOptions { move_files, ..IngestOptions::default() })?;
        // SAFETY: checked, and the caller's to write to.
        unsafe {
            if !entries.is_null() {
                place(entries, "entries")?.write(done.entries);
            }
            if !report.is_null() {
                place(report, "report")?.write(string(&json::text(&done))?);
            }
        }
        Ok(true)
    })
}
