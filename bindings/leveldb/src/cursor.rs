//! Iterators that move both ways.
//!
//! The engine's iterators read forwards from one end and backwards from the other, so a cursor has one for each direction, over
//! one snapshot, and positions the other when it turns around.

use std::ffi::c_char;
use std::ops::Bound;
use std::ptr;

use tamis::{Iter, Slice};

use crate::border::{bytes, report, shielded, take_back};
use crate::failure::Failure;

/// A position in the keys of one state of a database.
///
/// Its first error stays until it is destroyed. An error leaves it without a position; it can be positioned again.
#[derive(Debug)]
pub struct Cursor {
    /// `None`: it could not be created.
    snapshot: Option<tamis::Snapshot>,
    /// Reads on from the position. Kept when the direction changes, as it can be repositioned.
    forward: Option<Iter>,
    /// Reads back from the position.
    backward: Option<Iter>,
    current: Option<(Slice, Slice)>,
    direction: Direction,
    error: Option<Failure>,
}

/// The iterator that the position came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Cursor {
    /// Creates a cursor without a position; with the error of a snapshot that could not be had, it will never have one.
    pub(crate) fn over(snapshot: Result<tamis::Snapshot, Failure>) -> Cursor {
        let (snapshot, error) = match snapshot {
            Ok(snapshot) => (Some(snapshot), None),
            Err(failure) => (None, Some(failure)),
        };
        Cursor {
            snapshot,
            forward: None,
            backward: None,
            current: None,
            direction: Direction::Forward,
            error,
        }
    }

    /// Moves to the first key from `key` on.
    fn seek(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.current = None;
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let forward = self.forward.get_or_insert_with(|| snapshot.iter());
        forward.seek(key)?;
        self.direction = Direction::Forward;
        self.current = forward.next().transpose()?;
        Ok(())
    }

    /// Moves to the last key before `bound`; without one to the last of all.
    fn seek_before(&mut self, bound: Option<&[u8]>) -> Result<(), Failure> {
        self.current = None;
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let end = bound.map_or(Bound::Unbounded, Bound::Excluded);
        let backward = self.backward.insert(snapshot.range::<&[u8]>((Bound::Unbounded, end)));
        self.direction = Direction::Backward;
        self.current = backward.next_back().transpose()?;
        Ok(())
    }

    fn next(&mut self) -> Result<(), Failure> {
        let Some((key, _)) = self.current.take() else { return Ok(()) };
        match (self.direction, &mut self.forward) {
            (Direction::Forward, Some(forward)) => {
                self.current = forward.next().transpose()?;
                Ok(())
            }
            _ => self.seek(&[&key, &[0][..]].concat()),
        }
    }

    fn prev(&mut self) -> Result<(), Failure> {
        let Some((key, _)) = self.current.take() else { return Ok(()) };
        match (self.direction, &mut self.backward) {
            (Direction::Backward, Some(backward)) => {
                self.current = backward.next_back().transpose()?;
                Ok(())
            }
            _ => self.seek_before(Some(&key)),
        }
    }
}

/// Moves a cursor; keeps the first error, and what led to it is not used again.
///
/// # Safety
///
/// `cursor` is NULL, or a handle that nobody else uses during the call.
unsafe fn step(cursor: *mut Cursor, step: impl FnOnce(&mut Cursor) -> Result<(), Failure>) {
    // SAFETY: as the caller promises.
    let Some(cursor) = (unsafe { cursor.as_mut() }) else { return };
    let moved = shielded(Err(Failure::panicked()), || step(cursor));
    if let Err(failure) = moved {
        shielded((), || (cursor.current, cursor.forward, cursor.backward) = (None, None, None));
        cursor.error.get_or_insert(failure);
    }
}

/// Destroys an iterator, also after its database was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iter: *mut Cursor) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(iter) };
}

/// Reports whether an iterator stands on a key. Without a position it has no key and no value, and does not move by
/// `leveldb_iter_next` and `leveldb_iter_prev`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iter: *const Cursor) -> u8 {
    // SAFETY: a handle of the caller.
    unsafe { iter.as_ref() }.is_some_and(|cursor| cursor.current.is_some()).into()
}

/// Moves to the first key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_first(iter: *mut Cursor) {
    // SAFETY: a handle of the caller.
    unsafe { step(iter, |cursor| cursor.seek(&[])) };
}

/// Moves to the last key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_last(iter: *mut Cursor) {
    // SAFETY: a handle of the caller.
    unsafe { step(iter, |cursor| cursor.seek_before(None)) };
}

/// Moves to the first key that is not less than `k`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(iter: *mut Cursor, k: *const c_char, klen: usize) {
    // SAFETY: bytes of the caller. Copied, as they may be those that the iterator shows, which change when it moves.
    let key = shielded(Err(Failure::panicked()), || unsafe { bytes(k, klen) }.map(<[u8]>::to_vec));
    // SAFETY: a handle of the caller.
    unsafe { step(iter, |cursor| cursor.seek(&key?)) };
}

/// Moves to the next key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_next(iter: *mut Cursor) {
    // SAFETY: a handle of the caller.
    unsafe { step(iter, Cursor::next) };
}

/// Moves to the key before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_prev(iter: *mut Cursor) {
    // SAFETY: a handle of the caller.
    unsafe { step(iter, Cursor::prev) };
}

/// Returns the key that an iterator stands on, and its length; valid until the iterator moves. NULL and 0 without a position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(iter: *const Cursor, klen: *mut usize) -> *const c_char {
    // SAFETY: a handle of the caller, and a place for the length.
    unsafe { shown(iter, klen, |(key, _)| key) }
}

/// Returns the value that an iterator stands on, and its length; valid until the iterator moves. NULL and 0 without a position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(iter: *const Cursor, vlen: *mut usize) -> *const c_char {
    // SAFETY: a handle of the caller, and a place for the length.
    unsafe { shown(iter, vlen, |(_, value)| value) }
}

/// # Safety
///
/// `iter` is NULL or a handle, and stays where it is while the result is used; `len` is NULL or may be written.
unsafe fn shown(
    iter: *const Cursor,
    len: *mut usize,
    part: impl FnOnce(&(Slice, Slice)) -> &Slice,
) -> *const c_char {
    // SAFETY: as the caller promises.
    let shown = unsafe { iter.as_ref() }.and_then(|cursor| cursor.current.as_ref()).map(part);
    // SAFETY: as the caller promises.
    if let Some(len) = unsafe { len.as_mut() } {
        *len = shown.map_or(0, |part| part.len());
    }
    shown.map_or(ptr::null(), |part| part.as_ptr().cast())
}

/// Returns the iterator's first error, if it has met one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(iter: *const Cursor, errptr: *mut *mut c_char) {
    // SAFETY: a handle of the caller.
    let Some(cursor) = (unsafe { iter.as_ref() }) else { return };
    if let Some(failure) = &cursor.error {
        // SAFETY: the interface's rule for `errptr`.
        shielded((), || unsafe { report(errptr, failure) });
    }
}
