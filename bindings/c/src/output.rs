//! What is handed out: buffers, strings, slices, lists.

use std::ffi::{c_char, c_void};

use tamis::Slice;
use tamis_bindings::Failure;

use crate::border::{free, give, place};

/// Bytes that stay where the engine has them: in a block, a mapping or a memtable, which they keep in memory. Never changes.
#[derive(Debug)]
pub struct tamis_slice {
    bytes: Slice,
}

impl tamis_slice {
    pub(crate) fn give(bytes: Slice) -> *mut tamis_slice {
        give(tamis_slice { bytes })
    }
}

/// The bytes of a slice: borrowed until it is freed, and not null. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_slice_data(slice: *const tamis_slice) -> *const c_void {
    // SAFETY: null, or valid by contract.
    unsafe { slice.as_ref() }.map_or(std::ptr::null(), |slice| slice.bytes.as_ptr().cast())
}

/// The number of bytes of a slice; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_slice_len(slice: *const tamis_slice) -> usize {
    // SAFETY: null, or valid by contract.
    unsafe { slice.as_ref() }.map_or(0, |slice| slice.bytes.len())
}

/// Frees a slice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_slice_free(slice: *mut tamis_slice) {
    // SAFETY: by contract.
    unsafe { free(slice) }
}

/// A list of byte strings: names, for example.
#[derive(Debug)]
pub struct tamis_list {
    items: Vec<Vec<u8>>,
}

impl tamis_list {
    pub(crate) fn give(items: Vec<Vec<u8>>) -> *mut tamis_list {
        give(tamis_list { items })
    }
}

/// The number of items; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_list_len(list: *const tamis_list) -> usize {
    // SAFETY: null, or valid by contract.
    unsafe { list.as_ref() }.map_or(0, |list| list.items.len())
}

/// One item, from 0, with its length in `len` (which may be NULL). Borrowed until the list is freed. NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_list_item(
    list: *const tamis_list,
    index: usize,
    len: *mut usize,
) -> *const c_void {
    // SAFETY: null, or valid by contract.
    let Some(item) = unsafe { list.as_ref() }.and_then(|list| list.items.get(index)) else {
        return std::ptr::null();
    };
    if !len.is_null() {
        // SAFETY: not null, and the caller's to write to.
        unsafe { len.write(item.len()) };
    }
    item.as_ptr().cast()
}

/// Frees a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_list_free(list: *mut tamis_list) {
    // SAFETY: by contract.
    unsafe { free(list) }
}

/// Frees an owned buffer or string that a function of this library returned. Accepts NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_free(buffer: *mut c_void) {
    // SAFETY: null, or from `malloc` below.
    unsafe { libc::free(buffer) }
}

/// The library's version, like "0.1.0". Static.
#[unsafe(no_mangle)]
pub extern "C" fn tamis_version() -> *const c_char {
    const VERSION: &std::ffi::CStr =
        match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version without zero bytes"),
        };
    VERSION.as_ptr()
}

/// Copies `bytes` into a buffer that belongs to the caller, with a zero byte after it.
fn copied(bytes: &[u8]) -> Result<*mut c_void, Failure> {
    // SAFETY: any size is allowed; a failure is null.
    let buffer = unsafe { libc::malloc(bytes.len() + 1) };
    if buffer.is_null() {
        return Err(Failure::new(tamis_bindings::Code::Other, "out of memory"));
    }
    // SAFETY: the buffer has room for the bytes and one more, and is new.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        buffer.cast::<u8>().add(bytes.len()).write(0);
    }
    Ok(buffer)
}

/// A JSON text for the caller, without zero bytes in it.
pub(crate) fn string(text: &str) -> Result<*mut c_char, Failure> {
    copied(text.as_bytes()).map(|buffer| buffer.cast())
}

/// Where a function stores a buffer of the caller's and its length.
pub(crate) struct Out {
    data: *mut *mut c_void,
    len: *mut usize,
}

impl Out {
    pub(crate) fn new(data: *mut *mut c_void, len: *mut usize) -> Result<Out, Failure> {
        Ok(Out { data: place(data, "value")?, len: place(len, "value_len")? })
    }

    /// Stores a copy of the bytes.
    ///
    /// # Safety
    /// The places are the caller's to write to.
    pub(crate) unsafe fn put(&self, bytes: &[u8]) -> Result<(), Failure> {
        let buffer = copied(bytes)?;
        // SAFETY: checked in `new`, and by contract.
        unsafe {
            self.data.write(buffer);
            self.len.write(bytes.len());
        }
        Ok(())
    }
}
