//! Iterators over ranges and prefixes, from both ends.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use tamis::{Iter, ReadError, Slice};
use tamis_bindings::{Database, Failure};

use crate::border::{bytes, exclusive, free, give, guard, object, place, range};
use crate::database::{tamis_db, tamis_snapshot};
use crate::error::{tamis_answer, tamis_error};
use crate::keyspace::tamis_keyspace;
use crate::read::Place;

/// An iterator over the keys of a range in order, over exactly the state at the time of its creation. It can be asked from both ends, which
/// meet. It keeps the tables that it reads on disk until it is freed. For one thread at a time.
#[derive(Debug)]
pub struct tamis_iter {
    database: Arc<Database>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    iter: Iter,
    /// The item handed out last, which the caller borrows.
    item: Option<(Slice, Slice)>,
}

impl tamis_iter {
    pub(crate) fn give(database: &Arc<Database>, iter: Iter) -> *mut tamis_iter {
        give(tamis_iter { database: database.clone(), state: Mutex::new(State { iter, item: None }) })
    }
}

/// Creates an iterator over the keys from `start` up to before `end`. It reads nothing yet. Free it with tamis_iter_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_iter_range(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    error: *mut *mut tamis_error,
) -> *mut tamis_iter {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let (db, place, keys) = unsafe {
            (object(db, "db")?, Place::new(db, keyspace, snapshot)?, range(start, start_len, end, end_len)?)
        };
        Ok(tamis_iter::give(&db.database, place.iter::<&[u8]>(keys)))
    })
}

/// Creates an iterator over the keys that start with `prefix`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_iter_prefix(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    prefix: *const c_void,
    prefix_len: usize,
    error: *mut *mut tamis_error,
) -> *mut tamis_iter {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let (db, place, prefix) = unsafe {
            (object(db, "db")?, Place::new(db, keyspace, snapshot)?, bytes(prefix, prefix_len, "prefix")?)
        };
        Ok(tamis_iter::give(&db.database, place.prefix(prefix)))
    })
}

/// Where a step stores its item.
struct Item {
    key: *mut *const c_void,
    key_len: *mut usize,
    value: *mut *const c_void,
    value_len: *mut usize,
}

impl Item {
    /// # Safety
    /// Places that are not null are the caller's to write to.
    unsafe fn store(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        for (data, len, bytes) in [(self.key, self.key_len, key), (self.value, self.value_len, value)] {
            if !data.is_null() {
                // SAFETY: checked, and by contract.
                unsafe {
                    place(len, "a length")?.write(bytes.len());
                    data.write(bytes.as_ptr().cast());
                }
            }
        }
        Ok(())
    }
}

/// Takes a step.
///
/// # Safety
/// All pointers are null or valid for the call.
unsafe fn step(
    iter: *mut tamis_iter,
    to: &Item,
    error: *mut *mut tamis_error,
    take: impl FnOnce(&mut Iter) -> Option<Result<(Slice, Slice), ReadError>>,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        // SAFETY: by contract.
        let iter = unsafe { object(iter, "iter") }?;
        let mut state = exclusive(&iter.state, "iter")?;
        iter.database.db()?;
        let state = &mut *state;
        state.item = take(&mut state.iter).transpose()?;
        let Some((key, value)) = &state.item else { return Ok(tamis_answer::No) };
        // SAFETY: by contract.
        unsafe { to.store(key, value) }?;
        Ok(tamis_answer::Yes)
    })
}

/// Takes the next item from the front, in ascending order: TAMIS_ANSWER_YES and the item, or TAMIS_ANSWER_NO at the end. Key and value are
/// borrowed until the next call with this iterator. `key` and `value` may be NULL if they are not wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_iter_next(
    iter: *mut tamis_iter,
    key: *mut *const c_void,
    key_len: *mut usize,
    value: *mut *const c_void,
    value_len: *mut usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    // SAFETY: by contract.
    unsafe { step(iter, &Item { key, key_len, value, value_len }, error, Iter::next) }
}

/// Takes the next item from the back, in descending order; otherwise like tamis_iter_next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_iter_next_back(
    iter: *mut tamis_iter,
    key: *mut *const c_void,
    key_len: *mut usize,
    value: *mut *const c_void,
    value_len: *mut usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    // SAFETY: by contract.
    unsafe { step(iter, &Item { key, key_len, value, value_len }, error, Iter::next_back) }
}

/// Moves the front to the first key of the range that is not less than `key`, forwards or back. The item handed out last is no longer valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_iter_seek(
    iter: *mut tamis_iter,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (iter, key) = unsafe { (object(iter, "iter")?, bytes(key, key_len, "key")?) };
        let mut state = exclusive(&iter.state, "iter")?;
        iter.database.db()?;
        // The key may be the item's own.
        state.iter.seek(key)?;
        state.item = None;
        Ok(true)
    })
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_iter_free(iter: *mut tamis_iter) {
    // SAFETY: by contract.
    unsafe { free(iter) }
}
