//! Errors.

use std::ffi::{CString, c_char, c_void};

use tamis_bindings::Failure;

use crate::border::{free, give};

/// The answer of a function that looks for something.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tamis_answer {
    /// The call failed.
    Error = -1,
    /// There is none, or it is not so.
    No = 0,
    /// There is one, or it is so.
    Yes = 1,
}

impl From<bool> for tamis_answer {
    fn from(yes: bool) -> tamis_answer {
        if yes { tamis_answer::Yes } else { tamis_answer::No }
    }
}

/// Why a call failed. Belongs to the caller.
#[derive(Debug)]
pub struct tamis_error {
    failure: Failure,
    name: CString,
    text: CString,
    keyspace: Option<CString>,
}

/// Text as a C string: it ends at the first zero byte, which no message should have.
pub(crate) fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

impl tamis_error {
    pub(crate) fn from(failure: Failure) -> *mut tamis_error {
        give(tamis_error {
            name: c_text(failure.code.name()),
            text: c_text(&failure.text),
            keyspace: failure.keyspace.as_deref().map(c_text),
            failure,
        })
    }
}

/// The kind of an error, one of the `tamis_code`s. 0 for NULL. Numbers never change their meaning, and new ones are added.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_error_code(error: *const tamis_error) -> i32 {
    // SAFETY: null, or valid by contract.
    unsafe { error.as_ref() }.map_or(0, |error| error.failure.code.number())
}

/// The name of the error's kind, like "no-database". Borrowed from the error; "" for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_error_name(error: *const tamis_error) -> *const c_char {
    // SAFETY: null, or valid by contract.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.name.as_ptr())
}

/// The message, in English, for people. It names files and says what can be done. Borrowed from the error; "" for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_error_text(error: *const tamis_error) -> *const c_char {
    // SAFETY: null, or valid by contract.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.text.as_ptr())
}

/// The name of the keyspace concerned, or NULL. Borrowed from the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_error_keyspace(error: *const tamis_error) -> *const c_char {
    // SAFETY: null, or valid by contract.
    let keyspace = unsafe { error.as_ref() }.and_then(|error| error.keyspace.as_ref());
    keyspace.map_or(std::ptr::null(), |keyspace| keyspace.as_ptr())
}

/// The key concerned, of conflicts, deadlocks, lock timeouts and merges that failed; otherwise NULL. `len` may be NULL. Borrowed from the
/// error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_error_key(error: *const tamis_error, len: *mut usize) -> *const c_void {
    // SAFETY: null, or valid by contract.
    let key = unsafe { error.as_ref() }.and_then(|error| error.failure.key.as_deref());
    if !len.is_null() {
        // SAFETY: not null, and the caller's to write to.
        unsafe { len.write(key.map_or(0, <[u8]>::len)) };
    }
    key.map_or(std::ptr::null(), |key| key.as_ptr().cast())
}

/// Whether another attempt of the same transaction may succeed: after a conflict, a deadlock, a lock timeout, or if it took too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_error_is_retryable(error: *const tamis_error) -> bool {
    // SAFETY: null, or valid by contract.
    unsafe { error.as_ref() }.is_some_and(|error| error.failure.code.is_retryable())
}

/// Frees an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_error_free(error: *mut tamis_error) {
    // SAFETY: by contract.
    unsafe { free(error) }
}
