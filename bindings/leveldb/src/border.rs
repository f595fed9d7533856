//! The border to C: pointers in, memory and errors out, and no panic across.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;

use crate::failure::Failure;

/// Runs `body` and returns what it returns; after an error or a panic, reports it and returns `otherwise`.
///
/// # Safety
///
/// `errptr` is NULL, or as the interface requires.
pub(crate) unsafe fn attempt<T>(
    errptr: *mut *mut c_char,
    otherwise: T,
    body: impl FnOnce() -> Result<T, Failure>,
) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            // SAFETY: as the caller promises.
            unsafe { report(errptr, &failure) };
            otherwise
        }
        Err(_) => {
            // SAFETY: as the caller promises.
            unsafe { report(errptr, &Failure::panicked()) };
            otherwise
        }
    }
}

/// Runs `body`, which has no way to report an error; returns `otherwise` after a panic.
pub(crate) fn shielded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// Hands an error to the caller, and frees the one that it had.
///
/// # Safety
///
/// `errptr` is NULL, or as the interface requires.
pub(crate) unsafe fn report(errptr: *mut *mut c_char, failure: &Failure) {
    if errptr.is_null() {
        return;
    }
    let text = failure.to_string();
    let message = c_string(&text);
    // SAFETY: the caller promises that `errptr` may be read and written and holds NULL or memory from `malloc`.
    unsafe {
        libc::free((*errptr).cast());
        *errptr = message;
    }
}

/// Returns a copy of `bytes` that the caller frees; NULL if there is no memory for it. Not NULL for an empty one.
pub(crate) fn copy_out(bytes: &[u8]) -> *mut c_char {
    // SAFETY: `malloc` may be called with any size.
    let copy = unsafe { libc::malloc(bytes.len().max(1)) }.cast::<u8>();
    if !copy.is_null() {
        // SAFETY: `copy` has room for as many bytes, and is not part of `bytes`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len()) };
    }
    copy.cast()
}

/// Returns a copy of `text` that ends with its first zero byte, which the caller frees.
pub(crate) fn c_string(text: &str) -> *mut c_char {
    let whole = text.split('\0').next().unwrap_or_default();
    let terminated = CString::new(whole).unwrap_or_default();
    copy_out(terminated.as_bytes_with_nul())
}

/// Returns the bytes at `data`.
///
/// # Safety
///
/// If `data` is not NULL, `len` bytes can be read there, and stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_char, len: usize) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::invalid(format!("NULL was given for {len} bytes")));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::invalid(format!("{len} bytes are more than there can be")));
    }
    // SAFETY: not NULL, not too long, and readable, as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// Returns the object behind a handle.
///
/// # Safety
///
/// `handle` is NULL, or came from this library, was not destroyed, and nobody changes it during `'a`.
pub(crate) unsafe fn object<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid(format!("NULL was given for the {name}")))
}

/// Changes an object, if there is one.
///
/// # Safety
///
/// `handle` is NULL, or a handle that nobody else uses during the call.
pub(crate) unsafe fn change<T>(handle: *mut T, change: impl FnOnce(&mut T)) {
    // SAFETY: as the caller promises.
    if let Some(object) = unsafe { handle.as_mut() } {
        change(object);
    }
}

/// Returns the path that a database's name is.
///
/// # Safety
///
/// `name` is NULL or a string that ends with a zero byte and stays as it is for `'a`.
pub(crate) unsafe fn path<'a>(name: *const c_char) -> Result<&'a Path, Failure> {
    if name.is_null() {
        return Err(Failure::invalid("NULL was given for the database's name"));
    }
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(name) };
    if name.is_empty() {
        // The path would be that of the current directory.
        return Err(Failure::invalid("the database's name is empty"));
    }
    Ok(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// Makes an object of which the caller has the handle.
pub(crate) fn hand_out<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes an object back and drops it.
///
/// # Safety
///
/// `handle` is NULL, or came from [`hand_out`] and was not taken back before.
pub(crate) unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as the caller promises.
        let object = unsafe { Box::from_raw(handle) };
        shielded((), || drop(object));
    }
}

/// Frees memory that a function of this library returned: values, property values, error messages, the test directory.
/// NULL does nothing. The same as `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(ptr: *mut c_void) {
    // SAFETY: the caller promises that it came from `malloc` and was not freed before.
    unsafe { libc::free(ptr) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of an error, and frees it.
    fn taken(error: &mut *mut c_char) -> Option<String> {
        if error.is_null() {
            return None;
        }
        // SAFETY: not NULL, and so a string that `report` made.
        let text = unsafe { CStr::from_ptr(*error) }.to_str().unwrap().to_owned();
        // SAFETY: from `malloc`, and not used again.
        unsafe { libc::free((*error).cast()) };
        *error = ptr::null_mut();
        Some(text)
    }

    #[test]
    fn errors_and_panics_reach_the_caller_as_text() {
        let mut error = ptr::null_mut();
        // SAFETY: `error` is NULL or a string of `report`, here and below.
        assert_eq!(unsafe { attempt(&mut error, 0, || Ok(7)) }, 7);
        assert_eq!(taken(&mut error), None);
        // SAFETY: as above.
        assert_eq!(unsafe { attempt(&mut error, 0, || Err(Failure::invalid("first"))) }, 0);
        let failure = Failure::invalid("cut at\0a zero byte");
        // SAFETY: as above. It frees the first error: a leak would be valgrind's to find, and a double free ends the test.
        assert_eq!(unsafe { attempt(&mut error, 0, || Err(failure)) }, 0);
        assert_eq!(taken(&mut error).unwrap(), "Invalid argument: cut at");
        // SAFETY: as above.
        assert_eq!(unsafe { attempt(&mut error, 0, || panic!("for the test")) }, 0);
        assert!(taken(&mut error).unwrap().starts_with("IO error: "));
        // SAFETY: nobody wants the error.
        assert_eq!(unsafe { attempt(ptr::null_mut(), 0, || panic!("for the test")) }, 0);
        assert_eq!(shielded(1, || panic!("for the test")), 1);
    }

    #[test]
    fn lengths_are_checked() {
        // SAFETY: nothing is read: a length of zero, NULL, a length that cannot be.
        unsafe {
            assert_eq!(bytes(ptr::null(), 0).unwrap(), b"");
            assert!(bytes(ptr::null(), 1).is_err());
            assert!(bytes(c"k".as_ptr(), usize::MAX).is_err());
        }
    }
}
