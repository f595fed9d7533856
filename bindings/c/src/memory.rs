//! Memory that several databases of one process share.

use std::ffi::c_char;

use tamis::options::{SharedReadMemory, SharedWriteMemory};
use tamis_bindings::json;

use crate::border::{exclusive, free, give, guard, object};
use crate::error::tamis_error;
use crate::options::tamis_options;
use crate::output::string;

/// Memory for the block caches and elastic filters of several databases in this process: it goes to where it saves most block reads.
/// Any number of threads may use it at once.
#[derive(Debug)]
pub struct tamis_shared_read_memory {
    memory: SharedReadMemory,
}

/// Memory for the memtables of several databases in this process: beyond half of it the largest memtable is flushed, also that of an
/// idle database, and beyond all of it writers wait for flushes of their database. Any number of threads may use it at once.
#[derive(Debug)]
pub struct tamis_shared_write_memory {
    memory: SharedWriteMemory,
}

/// Creates memory of this many bytes, which no database uses yet. Free it with tamis_shared_read_memory_free, at any time: options and
/// databases keep what they need of it.
#[unsafe(no_mangle)]
pub extern "C" fn tamis_shared_read_memory_new(bytes: u64) -> *mut tamis_shared_read_memory {
    give(tamis_shared_read_memory { memory: SharedReadMemory::new(bytes) })
}

/// Changes the total. What exceeds a smaller one is evicted before this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_shared_read_memory_set_bytes(
    memory: *const tamis_shared_read_memory,
    bytes: u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { object(memory, "memory") }?.memory.set_bytes(bytes);
        Ok(true)
    })
}

/// The shares of all databases that are open with it, as a JSON list of objects with the names of the Rust struct `ReadMemoryShare`. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_shared_read_memory_members(
    memory: *const tamis_shared_read_memory,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        string(&json::text(&unsafe { object(memory, "memory") }?.memory.members()))
    })
}

/// Makes databases that are opened with `options` share this memory, in place of the options cache_bytes, filter_budget_bytes and
/// read_memory_bytes, which tamis_open refuses beside it (TAMIS_CODE_INVALID_OPTION). NULL: they share none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_options_share_read_memory(
    options: *mut tamis_options,
    memory: *const tamis_shared_read_memory,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let options = unsafe { object(options, "options") }?;
        let memory = match memory.is_null() {
            true => None,
            // SAFETY: by contract.
            false => Some(unsafe { object(memory, "memory") }?.memory.clone()),
        };
        exclusive(&options.options, "options")?.shared_read_memory = memory;
        Ok(true)
    })
}

/// Frees the handle. Databases that are open with the memory go on sharing it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_shared_read_memory_free(memory: *mut tamis_shared_read_memory) {
    // SAFETY: by contract.
    unsafe { free(memory) }
}

/// Creates memory of this many bytes, which no database uses yet. Free it with tamis_shared_write_memory_free, at any time: options and
/// databases keep what they need of it.
#[unsafe(no_mangle)]
pub extern "C" fn tamis_shared_write_memory_new(bytes: u64) -> *mut tamis_shared_write_memory {
    give(tamis_shared_write_memory { memory: SharedWriteMemory::new(bytes) })
}

/// Changes the total. What exceeds a smaller one is flushed as databases are written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_shared_write_memory_set_bytes(
    memory: *const tamis_shared_write_memory,
    bytes: u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { object(memory, "memory") }?.memory.set_bytes(bytes);
        Ok(true)
    })
}

/// What the memtables of all databases that are open with it take, as a JSON list of objects with the names of the Rust struct
/// `WriteMemoryUse`. Owned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_shared_write_memory_members(
    memory: *const tamis_shared_write_memory,
    error: *mut *mut tamis_error,
) -> *mut c_char {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        string(&json::text(&unsafe { object(memory, "memory") }?.memory.members()))
    })
}

/// Makes databases that are opened with `options` share this memory, besides their own memtable_budget_bytes. NULL: they share none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_options_share_write_memory(
    options: *mut tamis_options,
    memory: *const tamis_shared_write_memory,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let options = unsafe { object(options, "options") }?;
        let memory = match memory.is_null() {
            true => None,
            // SAFETY: by contract.
            false => Some(unsafe { object(memory, "memory") }?.memory.clone()),
        };
        exclusive(&options.options, "options")?.shared_write_memory = memory;
        Ok(true)
    })
}

/// Frees the handle. Databases that are open with the memory go on sharing it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_shared_write_memory_free(memory: *mut tamis_shared_write_memory) {
    // SAFETY: by contract.
    unsafe { free(memory) }
}
