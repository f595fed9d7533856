//! The border: what comes in is checked, and no panic goes out.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};

use tamis_bindings::Failure;

use crate::error::tamis_error;

/// Runs a call. A failure or a panic is stored in `error`, if there is one, and answered with `failed`.
pub(crate) fn guard<T>(
    error: *mut *mut tamis_error,
    failed: T,
    call: impl FnOnce() -> Result<T, Failure>,
) -> T {
    // What a panic leaves behind is the engine's to judge: it refuses writes if an invariant may be broken.
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(answer)) => return answer,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let failure = Failure::panic(&*payload);
            // Its destructor could panic again.
            std::mem::forget(payload);
            failure
        }
    };
    if !error.is_null() {
        // SAFETY: not null, and the caller's to write to.
        unsafe { error.write(tamis_error::from(failure)) };
    }
    failed
}

/// Frees an object that the caller owns.
///
/// # Safety
/// `object` is null, or came from [`give`] and was not freed.
pub(crate) unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: by contract.
        let object = unsafe { Box::from_raw(object) };
        guard(std::ptr::null_mut(), (), || {
            drop(object);
            Ok(())
        });
    }
}

/// Hands an object to the caller.
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

fn is_valid<T>(pointer: *const T) -> bool {
    !pointer.is_null() && pointer.is_aligned()
}

/// Borrows an object.
///
/// # Safety
/// `object` is null or valid for the call.
pub(crate) unsafe fn object<'a, T>(object: *const T, what: &str) -> Result<&'a T, Failure> {
    if is_valid(object) {
        // SAFETY: not null, aligned, and valid by contract.
        return Ok(unsafe { &*object });
    }
    Err(Failure::argument(format!("{what} is a null pointer")))
}

/// Checks a place for an answer.
pub(crate) fn place<T>(pointer: *mut T, what: &str) -> Result<*mut T, Failure> {
    if is_valid(pointer) { Ok(pointer) } else { Err(Failure::argument(format!("{what} is a null pointer"))) }
}

/// Borrows bytes.
///
/// # Safety
/// `data` is null or valid for `len` bytes during the call.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    match (data.is_null(), len) {
        (true, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format!("{what} is a null pointer of length {len}"))),
        // SAFETY: not null, valid by contract, and not longer than any object can be.
        (false, 0..=MOST_BYTES) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
        (false, _) => Err(Failure::argument(format!("{what} has the impossible length {len}"))),
    }
}

const MOST_BYTES: usize = isize::MAX as usize;

/// Borrows an array of `count` elements.
///
/// # Safety
/// `data` is null or valid for `count` elements during the call.
pub(crate) unsafe fn array<'a, T>(data: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    match count {
        0 => Ok(&[]),
        _ if !is_valid(data) => Err(Failure::argument(format!("{what} is a null pointer"))),
        _ if count > MOST_BYTES / size_of::<T>().max(1) => {
            Err(Failure::argument(format!("{what} has the impossible length {count}")))
        }
        // SAFETY: not null, aligned, and valid by contract.
        _ => Ok(unsafe { std::slice::from_raw_parts(data, count) }),
    }
}

/// Borrows several byte strings.
///
/// # Safety
/// Both arrays are null or valid for `count` elements, and each pair as in [`bytes`].
pub(crate) unsafe fn many<'a>(
    data: *const *const c_void,
    lens: *const usize,
    count: usize,
    what: &str,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: by contract.
    let (data, lens) = unsafe { (array(data, count, what)?, array(lens, count, what)?) };
    // SAFETY: by contract.
    data.iter().zip(lens).map(|(&data, &len)| unsafe { bytes(data, len, what) }).collect()
}

/// The bytes of an optional value: null is none, whatever the length.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn optional<'a>(
    data: *const c_void,
    len: usize,
    what: &str,
) -> Result<Option<&'a [u8]>, Failure> {
    // SAFETY: by contract.
    if data.is_null() && len == 0 { Ok(None) } else { unsafe { bytes(data, len, what) }.map(Some) }
}

/// A range of keys, with its start and without its end.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Borrows a range of keys.
///
/// # Safety
/// As [`bytes`], both times.
pub(crate) unsafe fn range<'a>(
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
) -> Result<Range<'a>, Failure> {
    // SAFETY: by contract.
    let (start, end) = unsafe { (optional(start, start_len, "start")?, optional(end, end_len, "end")?) };
    Ok((start.map_or(Bound::Unbounded, Bound::Included), end.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// The bytes of a C string.
///
/// # Safety
/// `text` is null or a C string that is valid for the call.
unsafe fn c_string<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is a null pointer")));
    }
    // SAFETY: not null, and a C string by contract.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Borrows text.
///
/// # Safety
/// As [`c_string`].
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: by contract.
    let text = unsafe { c_string(text, what) }?;
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// Borrows text that may be left out.
///
/// # Safety
/// As [`c_string`].
pub(crate) unsafe fn optional_text<'a>(given: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    // SAFETY: by contract.
    if given.is_null() { Ok(None) } else { unsafe { text(given, what) }.map(Some) }
}

/// Borrows a path.
///
/// # Safety
/// As [`c_string`].
pub(crate) unsafe fn path<'a>(given: *const c_char) -> Result<&'a Path, Failure> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        // SAFETY: by contract.
        let bytes = unsafe { c_string(given, "path") }?.to_bytes();
        Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }
    // SAFETY: by contract.
    #[cfg(not(unix))]
    unsafe {
        text(given, "path").map(Path::new)
    }
}

/// Locks what belongs to one thread at a time. To wait would hide a mistake of the caller, so it is an error.
pub(crate) fn exclusive<'a, T>(owned: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>, Failure> {
    match owned.try_lock() {
        Ok(guard) => Ok(guard),
        // A panic in an earlier call was reported there.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::argument(format!("{what} is in use by another thread, and is for one at a time")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{tamis_error_code, tamis_error_free};
    use tamis_bindings::Code;

    /// The code of the error that `call` leaves.
    fn code_of(call: impl FnOnce() -> Result<i32, Failure>) -> (i32, i32) {
        let mut error = std::ptr::null_mut();
        let answer = guard(&mut error, -1, call);
        // SAFETY: null, or given by `guard`; freed once.
        unsafe {
            let code = tamis_error_code(error);
            tamis_error_free(error);
            (answer, code)
        }
    }

    #[test]
    fn panics_stop_at_the_border() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("a payload that panics again");
            }
        }
        assert_eq!(code_of(|| Ok(7)), (7, 0));
        assert_eq!(code_of(|| panic!("text")), (-1, Code::Panic.number()));
        assert_eq!(code_of(|| std::panic::panic_any(Bomb)), (-1, Code::Panic.number()));
        assert_eq!(guard(std::ptr::null_mut(), -1, || panic!("nobody asks why")), -1);
        // SAFETY: given, and freed once.
        unsafe { free(give(Bomb)) };
    }

    #[test]
    fn what_is_in_use_is_an_error_and_does_not_wait() {
        let owned = Mutex::new(1);
        let held = exclusive(&owned, "it").expect("it is free");
        assert_eq!(exclusive(&owned, "it").expect_err("it is held").code, Code::InvalidArgument);
        drop(held);
        // A call that panicked reported it, and the next one goes on.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let _held = owned.lock();
            panic!("poisons it");
        }));
        assert_eq!(*exclusive(&owned, "it").expect("it is free again"), 1);
    }

    #[test]
    fn a_range_tells_an_empty_key_from_no_bound() {
        let (empty, none) = (c"".as_ptr().cast::<c_void>(), std::ptr::null::<c_void>());
        // SAFETY: null, or valid for no byte.
        unsafe {
            let bounds = (Bound::Included(&b""[..]), Bound::Excluded(&b""[..]));
            assert_eq!(range(empty, 0, empty, 0).expect("two keys"), bounds);
            assert_eq!(range(none, 0, none, 0).expect("no bound"), (Bound::Unbounded, Bound::Unbounded));
            assert!(range(none, 1, none, 0).is_err());
        }
    }
}
