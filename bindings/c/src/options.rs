//! Options of databases and keyspaces.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use tamis::KeyspaceOptions;
use tamis_bindings::Failure;
use tamis_bindings::options::Opening;

use crate::border::{exclusive, free, give, guard, object, text};
use crate::error::tamis_error;
use crate::merge::{CMerge, tamis_merge_operator};
use crate::output::string;

/// The options of a database, among them those of its default keyspace.
#[derive(Debug)]
pub struct tamis_options {
    pub(crate) options: Mutex<Opening>,
}

/// The options of a keyspace, or of an external table.
#[derive(Debug)]
pub struct tamis_keyspace_options {
    options: Mutex<KeyspaceOptions>,
}

/// The options of a nullable object, or the defaults.
///
/// # Safety
/// `options` is null or valid for the call.
pub(crate) unsafe fn options_of(options: *const tamis_options) -> Result<Opening, Failure> {
    if options.is_null() {
        return Ok(Opening::default());
    }
    // SAFETY: by contract.
    Ok(exclusive(&unsafe { object(options, "options") }?.options, "options")?.clone())
}

/// The options of a nullable object, or the defaults.
///
/// # Safety
/// `options` is null or valid for the call.
pub(crate) unsafe fn keyspace_options_of(
    options: *const tamis_keyspace_options,
) -> Result<KeyspaceOptions, Failure> {
    if options.is_null() {
        return Ok(KeyspaceOptions::default());
    }
    // SAFETY: by contract.
    Ok(exclusive(&unsafe { object(options, "options") }?.options, "options")?.clone())
}

/// Creates options with their defaults. Free them with tamis_options_free, at any time: an opening copies them.
#[unsafe(no_mangle)]
pub extern "C" fn tamis_options_new() -> *mut tamis_options {
    give(tamis_options { options: Mutex::default() })
}

/// Sets an option by its name and value as text: "cache_bytes", "64 MiB". Options of the default keyspace are named like
/// "keyspace.filter", or without the prefix. tamis_options_describe and `tamis options` list all. Errors: TAMIS_CODE_UNKNOWN_OPTION,
/// TAMIS_CODE_INVALID_OPTION; the options are unchanged then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_options_set(
    options: *mut tamis_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (options, name, value) =
            unsafe { (object(options, "options")?, text(name, "name")?, text(value, "value")?) };
        tamis_bindings::options::set(&mut *exclusive(&options.options, "options")?, name, value)?;
        Ok(true)
    })
}

/// Registers a merge operator, so that keyspaces can name it in their option "merge_operator". It is copied. `add`, `append` and `max` are
/// built in: tamis_open refuses options that have another one of such a name, with TAMIS_CODE_INVALID_OPTION.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_options_add_merge_operator(
    options: *mut tamis_options,
    merge_operator: *const tamis_merge_operator,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (options, given) =
            unsafe { (object(options, "options")?, object(merge_operator, "merge_operator")?) };
        let mut options = exclusive(&options.options, "options")?;
        // SAFETY: by contract.
        let merge = unsafe { CMerge::new(given) }?;
        options.operators = std::mem::take(&mut options.operators).with_merge(Arc::new(merge));
        Ok(true)
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_options_free(options: *mut tamis_options) {
    // SAFETY: by contract.
    unsafe { free(options) }
}

/// Creates options of a keyspace with their defaults. Free them with tamis_keyspace_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn tamis_keyspace_options_new() -> *mut tamis_keyspace_options {
    give(tamis_keyspace_options { options: Mutex::default() })
}

/// Sets an option of a keyspace, with or without the prefix "keyspace.". Errors: as of tamis_options_set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_options_set(
    options: *mut tamis_keyspace_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (options, name, value) =
            unsafe { (object(options, "options")?, text(name, "name")?, text(value, "value")?) };
        tamis_bindings::options::set_of_keyspace(&mut *exclusive(&options.options, "options")?, name, value)?;
        Ok(true)
    })
}

/// Frees options of a keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_options_free(options: *mut tamis_keyspace_options) {
    // SAFETY: by contract.
    unsafe { free(options) }
}

/// All options as JSON: a list of objects {name, class, takes, default, doc}, all strings. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_options_describe(error: *mut *mut tamis_error) -> *mut c_char {
    guard(error, std::ptr::null_mut(), || string(&tamis_bindings::options::describe()))
}
