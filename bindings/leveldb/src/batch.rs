//! Write batches. They outlive the write and can be read back, so they are kept here, and copied into the engine's form when
//! they are written.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::border::{bytes, hand_out, shielded, take_back};
use crate::failure::Failure;

/// Writes to be applied together, in their order. Changed by one thread at a time.
///
/// The contents are shared with a running iteration, so the functions that it calls may change the batch or even destroy it.
#[derive(Debug, Default)]
pub struct WriteBatch {
    contents: Arc<Contents>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    /// The first argument that could not be added; the batch is not written.
    error: Option<Failure>,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    key_len: usize,
    /// `None`: the key is deleted.
    value_len: Option<usize>,
}

impl Contents {
    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.operations.push(Operation { key_len: key.len(), value_len: value.map(<[u8]>::len) });
    }

    fn append(&mut self, other: &Contents) {
        self.bytes.extend_from_slice(&other.bytes);
        self.operations.extend_from_slice(&other.operations);
        self.error = self.error.take().or_else(|| other.error.clone());
    }

    /// Returns every key and its value; no value for a delete.
    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest = &self.bytes[..];
        self.operations.iter().map(move |operation| {
            let (key, after) = rest.split_at(operation.key_len);
            let (value, after) = after.split_at(operation.value_len.unwrap_or(0));
            rest = after;
            (key, operation.value_len.map(|_| value))
        })
    }
}

impl WriteBatch {
    pub(crate) fn to_engine(&self) -> Result<tamis::WriteBatch, Failure> {
        const OPERATION_BYTES: usize = 6;
        let contents = &self.contents;
        if let Some(error) = &contents.error {
            return Err(error.clone());
        }
        let room = contents.bytes.len() + OPERATION_BYTES * contents.operations.len();
        let mut batch = tamis::WriteBatch::with_capacity(room);
        for (key, value) in contents.iter() {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        Ok(batch)
    }
}

/// Changes the contents of a batch.
///
/// # Safety
///
/// `batch` is NULL, or a handle that nobody else uses during the call.
unsafe fn change(batch: *mut WriteBatch, change: impl FnOnce(&mut Contents) -> Result<(), Failure>) {
    shielded((), || {
        // SAFETY: as the caller promises.
        let Some(batch) = (unsafe { batch.as_mut() }) else { return };
        let contents = Arc::make_mut(&mut batch.contents);
        if let Err(failure) = change(contents) {
            contents.error.get_or_insert(failure);
        }
    });
}

/// Creates an empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut WriteBatch {
    hand_out(WriteBatch::default())
}

/// Destroys a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_destroy(batch: *mut WriteBatch) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(batch) };
}

/// Removes everything from a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_clear(batch: *mut WriteBatch) {
    let clear = |contents: &mut Contents| {
        contents.bytes.clear();
        contents.operations.clear();
        contents.error = None;
        Ok(())
    };
    // SAFETY: a handle of the caller.
    unsafe { change(batch, clear) };
}

/// Adds a put. A key or a value that is too long makes writing the batch fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut WriteBatch,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    let put = |contents: &mut Contents| {
        // SAFETY: bytes of the caller.
        let (key, value) = unsafe { (bytes(key, klen)?, bytes(val, vlen)?) };
        contents.add(key, Some(value));
        Ok(())
    };
    // SAFETY: a handle of the caller.
    unsafe { change(batch, put) };
}

/// Adds a delete. A key that is too long makes writing the batch fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(batch: *mut WriteBatch, key: *const c_char, klen: usize) {
    let delete = |contents: &mut Contents| {
        // SAFETY: bytes of the caller.
        contents.add(unsafe { bytes(key, klen)? }, None);
        Ok(())
    };
    // SAFETY: a handle of the caller.
    unsafe { change(batch, delete) };
}

/// Calls `put` or `deleted` with `state` for everything in a batch, in its order. The bytes that they are given are valid until they
/// return. They may change the batch, which does not change what is iterated over; they must not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const WriteBatch,
    state: *mut c_void,
    put: Option<
        unsafe extern "C" fn(*mut c_void, k: *const c_char, klen: usize, v: *const c_char, vlen: usize),
    >,
    deleted: Option<unsafe extern "C" fn(*mut c_void, k: *const c_char, klen: usize)>,
) {
    shielded((), || {
        // SAFETY: a handle of the caller, which is not used once a function of the caller runs.
        let Some(contents) = (unsafe { batch.as_ref() }).map(|batch| batch.contents.clone()) else { return };
        for (key, value) in contents.iter() {
            match (value, put, deleted) {
                // SAFETY: functions of the caller, which gave the state together with them.
                (Some(value), Some(put), _) => unsafe {
                    put(state, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len());
                },
                // SAFETY: likewise.
                (None, _, Some(deleted)) => unsafe { deleted(state, key.as_ptr().cast(), key.len()) },
                _ => {}
            }
        }
    });
}

/// Adds everything in `source` to `destination`, which may be the same batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(destination: *mut WriteBatch, source: *const WriteBatch) {
    shielded((), || {
        // SAFETY: a handle of the caller, which is not used further: it may be that of `destination`.
        let Some(added) = (unsafe { source.as_ref() }).map(|source| source.contents.clone()) else { return };
        let append = |contents: &mut Contents| {
            contents.append(&added);
            Ok(())
        };
        // SAFETY: a handle of the caller.
        unsafe { change(destination, append) };
    });
}
