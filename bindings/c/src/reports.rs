//! Statistics, explanations and reports, as JSON.

use std::ffi::{c_char, c_void};

use tamis_bindings::{Failure, json};

use crate::border::{bytes, guard, path};
use crate::database::tamis_db;
use crate::error::tamis_error;
use crate::keyspace::tamis_keyspace;
use crate::options::{options_of, tamis_options};
use crate::output::string;

fn report(error: *mut *mut tamis_error, text: impl FnOnce() -> Result<String, Failure>) -> *mut c_char {
    guard(error, std::ptr::null_mut(), || string(&text()?))
}

/// The statistics of the database and all its keyspaces, as one JSON object. Owned: free it with tamis_free. The names are those of the
/// Rust struct `Stats`, sizes are in bytes, and counters count from the opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_stats(db: *const tamis_db, error: *mut *mut tamis_error) -> *mut c_char {
    // SAFETY: by contract.
    report(error, || Ok(json::stats(unsafe { tamis_db::open(db) }?)))
}

/// The statistics of one keyspace (NULL: the default one), as a JSON object. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_stats(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    // SAFETY: by contract.
    report(error, || Ok(json::keyspace_stats(unsafe { tamis_db::place(db, keyspace) }?.1)))
}

/// The tables of one keyspace (NULL: the default one), as a JSON list, newest run first. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_tables(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    // SAFETY: by contract.
    report(error, || Ok(json::tables(unsafe { tamis_db::place(db, keyspace) }?.1)))
}

/// The segments of the elastic filters of all keyspaces with their hotness, as a JSON list. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_segments(db: *const tamis_db, error: *mut *mut tamis_error) -> *mut c_char {
    // SAFETY: by contract.
    report(error, || Ok(json::segments(unsafe { tamis_db::open(db) }?)))
}

/// Executes one get and returns its path as a JSON object: memtables, runs, filters, blocks, outcome, cost. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_explain(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    report(error, || {
        // SAFETY: by contract.
        let (place, key) = unsafe { (tamis_db::place(db, keyspace)?.1, bytes(key, key_len, "key")?) };
        json::explain(place, key)
    })
}

/// The options that the database was opened with, those of its default keyspace included: lines `name = value`. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_options_in_force(
    db: *const tamis_db,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    // SAFETY: by contract.
    report(error, || Ok(unsafe { tamis_db::open(db) }?.options().to_text()))
}

/// The options of one keyspace (NULL: the default one) as they are now: lines `name = value`. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_options_in_force(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    // SAFETY: by contract.
    report(error, || Ok(unsafe { tamis_db::place(db, keyspace) }?.1.options().to_text()))
}

/// Reads every file of the database and returns what is wrong, as a JSON object with the list "problems". Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_verify(db: *const tamis_db, error: *mut *mut tamis_error) -> *mut c_char {
    // SAFETY: by contract.
    report(error, || json::verify(unsafe { tamis_db::open(db) }?))
}

/// The same of a database that need not be open, nor can be: "unopenable" says why. `options` may be NULL. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_verify_at(
    path: *const c_char,
    options: *const tamis_options,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    report(error, || {
        // SAFETY: by contract.
        let (path, options) = unsafe { (self::path(path)?, options_of(options)?) };
        Ok(json::text(&tamis_doctor::verify(path, options.into_options())?))
    })
}

/// Repairs a damaged database that is not open, as far as its files allow, and returns what was lost and kept as a JSON object; with
/// `dry_run`, only says what it would do. `options` may be NULL. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_salvage(
    path: *const c_char,
    options: *const tamis_options,
    dry_run: bool,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    report(error, || {
        // SAFETY: by contract.
        let (path, options) = unsafe { (self::path(path)?, options_of(options)?) };
        Ok(json::text(&tamis_doctor::salvage(path, options.into_options(), dry_run)?))
    })
}
