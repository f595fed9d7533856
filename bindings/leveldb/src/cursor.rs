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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tamis::{Db, Options};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn assert_at(cursor: &Cursor, at: Option<(&Vec<u8>, &Vec<u8>)>, what: &str) {
        let found = cursor.current.as_ref().map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert_eq!(found, at.map(|(key, value)| (key.clone(), value.clone())), "{what}");
        assert_eq!(cursor.error, None);
    }

    /// Random walks over random states agree with a map.
    #[test]
    fn walks_agree_with_a_map() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let dir = tempfile::tempdir().unwrap();
            let mut options = Options::default();
            options.keyspace.memtable_bytes = 4 << 10;
            let db = options.open(dir.path()).unwrap();
            let mut model = Model::new();
            let key_of = |random: &mut fastrand::Rng| -> Vec<u8> {
                (0..random.usize(0..4)).map(|_| *random.choice(b"\0a\xff").unwrap()).collect()
            };
            for round in 0..10 {
                for _ in 0..random.usize(0..60) {
                    let (key, value) = (key_of(&mut random), vec![round; random.usize(0..200)]);
                    if random.bool() {
                        db.put(&key, &value).unwrap();
                        model.insert(key, value);
                    } else {
                        db.delete(&key).unwrap();
                        model.remove(&key);
                    }
                }
                let mut cursor = Cursor::over(Ok(db.snapshot()));
                // Writes after its creation are not seen.
                db.put("a", "later").unwrap();
                assert_at(&cursor, None, "before it is positioned");
                for step in 0..60 {
                    let what = format!("seed {seed}, round {round}, step {step}");
                    let here = cursor.current.as_ref().map(|(key, _)| key.to_vec());
                    let bounded = |bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)| model.range(bounds);
                    let at = match random.u8(0..10) {
                        0 => cursor.seek(&[]).map(|()| model.first_key_value()),
                        1 => cursor.seek_before(None).map(|()| model.last_key_value()),
                        2 | 3 => {
                            let key = key_of(&mut random);
                            cursor
                                .seek(&key)
                                .map(|()| bounded((Bound::Included(key), Bound::Unbounded)).next())
                        }
                        4..=6 => cursor.next().map(|()| {
                            here.and_then(|key| bounded((Bound::Excluded(key), Bound::Unbounded)).next())
                        }),
                        _ => cursor.prev().map(|()| {
                            here.and_then(|key| bounded((Bound::Unbounded, Bound::Excluded(key))).next_back())
                        }),
                    };
                    assert_at(&cursor, at.unwrap(), &what);
                }
                model.insert(b"a".to_vec(), b"later".to_vec());
            }
        }
    }

    #[test]
    fn the_first_error_stays() {
        let mut cursor = Cursor::over(Err(Failure::invalid("first")));
        // SAFETY: a cursor of this test's.
        unsafe { step(&mut cursor, |_| Err(Failure::invalid("second"))) };
        assert_eq!(cursor.error, Some(Failure::invalid("first")));
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        db.put("a", "1").unwrap();
        let mut cursor = Cursor::over(Ok(db.snapshot()));
        // SAFETY: as above.
        unsafe { step(&mut cursor, |_| panic!("for the test")) };
        assert!(cursor.current.is_none());
        assert_eq!(cursor.error, Some(Failure::panicked()));
        cursor.seek(b"a").unwrap();
        assert!(cursor.current.is_some() && cursor.error.is_some());
    }
}
