//! Point reads, as of now or as of a snapshot.

use std::ffi::c_void;

use tamis::{Keyspace, Readable, Slice};
use tamis_bindings::Failure;

use crate::border::{array, bytes, guard, many, object, place, range};
use crate::database::{tamis_db, tamis_snapshot};
use crate::error::{tamis_answer, tamis_error};
use crate::keyspace::tamis_keyspace;
use crate::output::{Out, tamis_slice};

/// Where a call reads.
pub(crate) enum Place<'a> {
    Now(&'a Keyspace),
    Then(&'a tamis_snapshot, &'a Keyspace),
}

impl<'a> Place<'a> {
    /// # Safety
    /// All are null or valid for the call.
    #[inline]
    pub(crate) unsafe fn new(
        db: *const tamis_db,
        keyspace: *const tamis_keyspace,
        snapshot: *const tamis_snapshot,
    ) -> Result<Place<'a>, Failure> {
        // SAFETY: by contract.
        let (db, keyspace) = unsafe { tamis_db::place(db, keyspace) }?;
        if snapshot.is_null() {
            return Ok(Place::Now(keyspace));
        }
        // SAFETY: by contract.
        let snapshot = unsafe { object(snapshot, "snapshot") }?;
        if !std::sync::Arc::ptr_eq(&db.database, &snapshot.database) {
            return Err(Failure::argument("snapshot is one of another database"));
        }
        Ok(Place::Then(snapshot, keyspace))
    }

    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Slice>, Failure> {
        Ok(match self {
            Place::Now(keyspace) => keyspace.get(key)?,
            Place::Then(snapshot, keyspace) => snapshot.snapshot.keyspace(keyspace).get(key)?,
        })
    }

    /// Calls `read` with what [`Readable`] it is.
    pub(crate) fn iter<K: AsRef<[u8]>>(&self, keys: impl std::ops::RangeBounds<K>) -> tamis::Iter {
        match self {
            Place::Now(keyspace) => keyspace.range(keys),
            Place::Then(snapshot, keyspace) => snapshot.snapshot.keyspace(keyspace).range(keys),
        }
    }

    pub(crate) fn prefix(&self, prefix: &[u8]) -> tamis::Iter {
        match self {
            Place::Now(keyspace) => keyspace.prefix(prefix),
            Place::Then(snapshot, keyspace) => snapshot.snapshot.keyspace(keyspace).prefix(prefix),
        }
    }
}

/// Hands out the values of a `multi_get`.
///
/// # Safety
/// `values` has room for them.
pub(crate) unsafe fn hand_out(found: Vec<Option<Slice>>, values: *mut *mut tamis_slice) {
    for (i, value) in found.into_iter().enumerate() {
        let value = value.map_or(std::ptr::null_mut(), tamis_slice::give);
        // SAFETY: by contract.
        unsafe { values.add(i).write(value) };
    }
}

/// Looks up a key, in a keyspace (NULL: the default one) and as of a snapshot (NULL: now). If there is a value, stores a copy of it in
/// `*value`, owned, and its length in `*value_len`, and returns TAMIS_ANSWER_YES. A zero byte follows it that does not count.
/// Costs one hash of the key and at most one block read per filter that answers "maybe".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_get(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_void,
    value_len: *mut usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        let out = Out::new(value, value_len)?;
        // SAFETY: by contract.
        let (place, key) = unsafe { (Place::new(db, keyspace, snapshot)?, bytes(key, key_len, "key")?) };
        let Some(found) = place.get(key)? else { return Ok(tamis_answer::No) };
        // SAFETY: by contract.
        unsafe { out.put(&found) }?;
        Ok(tamis_answer::Yes)
    })
}

/// Like tamis_get, without copying a large value: stores a slice, owned, in `*value`. It stays valid whatever happens to the database, and
/// keeps its block, mapping or memtable in memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_get_slice(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut tamis_slice,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        let value = place(value, "value")?;
        // SAFETY: by contract.
        let (place, key) = unsafe { (Place::new(db, keyspace, snapshot)?, bytes(key, key_len, "key")?) };
        let Some(found) = place.get(key)? else { return Ok(tamis_answer::No) };
        // SAFETY: checked, and by contract.
        unsafe { value.write(tamis_slice::give(found)) };
        Ok(tamis_answer::Yes)
    })
}

/// Like tamis_get, into memory of the caller: copies up to `room` bytes of the value to `buffer`, which may be NULL if `room` is 0, and
/// stores the value's whole length in `*value_len`. Allocates nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_get_into(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    room: usize,
    value_len: *mut usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        let value_len = self::place(value_len, "value_len")?;
        if room > 0 {
            self::place(buffer.cast::<u8>(), "buffer")?;
        }
        // SAFETY: by contract.
        let (place, key) = unsafe { (Place::new(db, keyspace, snapshot)?, bytes(key, key_len, "key")?) };
        let Some(found) = place.get(key)? else { return Ok(tamis_answer::No) };
        // SAFETY: the buffer is not null if there is room, has so much room by contract, and is not the engine's.
        unsafe {
            if room > 0 {
                buffer.cast::<u8>().copy_from_nonoverlapping(found.as_ptr(), room.min(found.len()));
            }
            value_len.write(found.len());
        }
        Ok(tamis_answer::Yes)
    })
}

/// Whether a key has a value, at the cost of tamis_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_contains(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        // SAFETY: by contract.
        let (place, key) = unsafe { (Place::new(db, keyspace, snapshot)?, bytes(key, key_len, "key")?) };
        Ok(place.get(key)?.is_some().into())
    })
}

/// Whether there is no key at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_is_empty(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        // SAFETY: by contract.
        Ok(match unsafe { Place::new(db, keyspace, snapshot) }? {
            Place::Now(keyspace) => keyspace.is_empty()?.into(),
            Place::Then(snapshot, keyspace) => snapshot.snapshot.keyspace(keyspace).is_empty()?.into(),
        })
    })
}

/// Looks up `count` keys as of a single moment, cheaper than one by one. `values` has room for so many slices: each becomes an owned slice,
/// or NULL if the key has no value. After an error all are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_multi_get(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    snapshot: *const tamis_snapshot,
    keys: *const *const c_void,
    key_lens: *const usize,
    count: usize,
    values: *mut *mut tamis_slice,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { array(values, count, "values") }?;
        // SAFETY: checked, and by contract.
        unsafe { hand_out((0..count).map(|_| None).collect(), values) };
        // SAFETY: by contract.
        let (place, keys) =
            unsafe { (Place::new(db, keyspace, snapshot)?, many(keys, key_lens, count, "keys")?) };
        let found = match place {
            Place::Now(keyspace) => keyspace.multi_get(&keys)?,
            Place::Then(snapshot, keyspace) => snapshot.snapshot.keyspace(keyspace).multi_get(&keys)?,
        };
        // SAFETY: checked, and by contract.
        unsafe { hand_out(found, values) };
        Ok(true)
    })
}

/// Estimates the number of keys from `start` up to before `end`, from the tables' indexes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_approximate_len(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    len: *mut u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        let len = place(len, "len")?;
        // SAFETY: by contract.
        let (place, keys) =
            unsafe { (tamis_db::place(db, keyspace)?.1, range(start, start_len, end, end_len)?) };
        // SAFETY: checked, and by contract.
        unsafe { len.write(place.approximate_len::<&[u8]>(keys)?) };
        Ok(true)
    })
}

/// Estimates the bytes that the keys from `start` up to before `end` take on disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_approximate_size(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    size: *mut u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        let size = place(size, "size")?;
        // SAFETY: by contract.
        let (place, keys) =
            unsafe { (tamis_db::place(db, keyspace)?.1, range(start, start_len, end, end_len)?) };
        // SAFETY: checked, and by contract.
        unsafe { size.write(place.approximate_size::<&[u8]>(keys)?) };
        Ok(true)
    })
}
