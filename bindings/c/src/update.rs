//! Atomic changes of one key. They read, and are worth a transaction each.

use std::ffi::c_void;

use crate::border::{bytes, guard, optional, place};
use crate::database::tamis_db;
use crate::error::{tamis_answer, tamis_error};
use crate::keyspace::tamis_keyspace;
use crate::output::{Out, tamis_slice};

/// Sets a key to a new value if it has the expected one: TAMIS_ANSWER_YES if it had, TAMIS_ANSWER_NO if not. A null `expected` of length 0
/// expects that there is no value; a null `new_value` of length 0 deletes the key. If the answer is no and `current` is not NULL, stores an
/// owned slice there, or NULL if the key has no value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_compare_and_swap(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    expected_len: usize,
    new_value: *const c_void,
    new_value_len: usize,
    current: *mut *mut tamis_slice,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        // SAFETY: by contract.
        let (at, key, expected, new_value) = unsafe {
            (
                tamis_db::place(db, keyspace)?.1,
                bytes(key, key_len, "key")?,
                optional(expected, expected_len, "expected")?,
                optional(new_value, new_value_len, "new_value")?,
            )
        };
        let Err(mismatch) = at.compare_and_swap(key, expected, new_value)? else {
            return Ok(tamis_answer::Yes);
        };
        if !current.is_null() {
            let slice = mismatch.current.map_or(std::ptr::null_mut(), tamis_slice::give);
            // SAFETY: not null, and the caller's to write to.
            unsafe { current.write(slice) };
        }
        Ok(tamis_answer::No)
    })
}

/// Sets a key if it has no value: TAMIS_ANSWER_YES if it was inserted. If not and `current` is not NULL, stores an owned slice there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_insert_if_absent(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    current: *mut *mut tamis_slice,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        // SAFETY: by contract.
        let (at, key, value) = unsafe {
            (tamis_db::place(db, keyspace)?.1, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        let Some(found) = at.insert_if_absent(key, value)? else { return Ok(tamis_answer::Yes) };
        if !current.is_null() {
            // SAFETY: not null, and the caller's to write to.
            unsafe { current.write(tamis_slice::give(found)) };
        }
        Ok(tamis_answer::No)
    })
}

/// Deletes a key and hands out the value that it had, owned: TAMIS_ANSWER_YES, or TAMIS_ANSWER_NO if it had none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_take(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_void,
    value_len: *mut usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        let out = Out::new(value, value_len)?;
        // SAFETY: by contract.
        let (at, key) = unsafe { (tamis_db::place(db, keyspace)?.1, bytes(key, key_len, "key")?) };
        let Some(found) = at.take(key)? else { return Ok(tamis_answer::No) };
        // SAFETY: by contract.
        unsafe { out.put(&found) }?;
        Ok(tamis_answer::Yes)
    })
}

/// Adds `by` to the number that is the key's value, modulo 2^64, and stores the sum in `*sum`, which may be NULL. Numbers are eight bytes,
/// little-endian, as those of the merge operator `add`; a key without a value is 0. Errors, among others: TAMIS_CODE_MERGE if the value is
/// not eight bytes long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_increment(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    by: i64,
    sum: *mut i64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (at, key) = unsafe { (tamis_db::place(db, keyspace)?.1, bytes(key, key_len, "key")?) };
        let new = at.increment(key, by)?;
        if !sum.is_null() {
            // SAFETY: checked, and the caller's to write to.
            unsafe { place(sum, "sum")?.write(new) };
        }
        Ok(true)
    })
}
