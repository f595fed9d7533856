//! Atomic changes of one key: a read and a write with nothing in between.
//!
//! A change reads the key as of now, decides, and writes on condition that the key has not been
//! written since. If it has, the change is retried with the new value. It takes no snapshot. A
//! change only ever loses to one that committed, so some thread always makes progress.

use smallvec::smallvec;

use crate::batch::{WriteBatch, check_key};
use crate::conflicts::condition::Condition;
use crate::conflicts::footprint::{KeyspaceFootprint, Point};
use crate::error::{ReadError, TransactionError};
use crate::handles::handle::{Db, Keyspace};
use crate::options::Durability;
use crate::slice::Slice;
use crate::transaction::transact::Backoff;

/// How many times a change of one key is attempted before the conflict is returned.
const MOST_ATTEMPTS: u32 = 1000;

/// [`compare_and_swap`](Keyspace::compare_and_swap) found a value other than the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key has another value than expected")]
#[non_exhaustive]
pub struct Mismatch {
    /// The key's value; `None` if it has none.
    pub current: Option<Slice>,
}

/// What to do with a key.
pub(crate) enum KeyChange<V> {
    Keep,
    Put(V),
    Delete,
}

impl Keyspace {
    /// Changes the value of `key` as `decide` says, given the current one. Returns the last answer
    /// of `decide`.
    fn change<V: AsRef<[u8]>, T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<Slice>) -> Result<(KeyChange<V>, T), TransactionError>,
    ) -> Result<T, TransactionError> {
        check_key(key)?;
        let db = &self.handle.inner;
        let mut backoff = Backoff::new();
        loop {
            let (current, digest, since) = self.lookup_now(key)?;
            let (change, answer) = decide(current)?;
            let mut batch = WriteBatch::with_capacity(key.len() + 64);
            match &change {
                KeyChange::Keep => return Ok(answer),
                KeyChange::Put(value) => batch.put_checked(self.inner.id, key, digest, value.as_ref())?,
                KeyChange::Delete => batch.delete_digested(self.inner.id, key, digest),
            }
            let point = Point { digest, since, key: key.into() };
            let part = KeyspaceFootprint::new(self.inner.clone(), since, smallvec![point], Vec::new());
            let sync = db.options.durability == Durability::Sync;
            match db.write_if(batch, sync, Condition::new(smallvec![part])) {
                Ok(_) => return Ok(answer),
                Err(error) if error.is_retryable() && backoff.attempts() + 1 < MOST_ATTEMPTS => {
                    backoff.pause()
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Replaces the value of `key` with what `change` returns for it, atomically. `None` means no
    /// value, both as argument and as result. Returns the new value. If another write to `key`
    /// comes in between, `change` is called again.
    ///
    /// Costs a get, a put and the check that nothing came between. Like all methods of this kind,
    /// it uses the database's durability.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Read`] and [`TransactionError::Write`], as for [`get`](Keyspace::get)
    /// and [`put`](Keyspace::put); [`TransactionError::Conflict`] after a thousand attempts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// let words = |words: Option<&[u8]>| Some([words.unwrap_or_default(), b"go "].concat());
    /// db.update("said", words)?;
    /// assert_eq!(db.update("said", words)?.unwrap(), b"go go ");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, TransactionError> {
        let mut new = None;
        self.change::<Vec<u8>, ()>(key.as_ref(), |current| {
            new = change(current.as_deref());
            let kept = new.as_deref() == current.as_deref();
            let change = match &new {
                _ if kept => KeyChange::Keep,
                Some(value) => KeyChange::Put(value.clone()),
                None => KeyChange::Delete,
            };
            Ok((change, ()))
        })?;
        Ok(new)
    }

    /// Sets the value of `key` to `new` if it currently is `expected`. `None` means no value, for
    /// both. Atomic.
    ///
    /// # Errors
    ///
    /// Inner: [`Mismatch`] with the current value, if it is not the expected one. Outer: those of
    /// [`update`](Keyspace::update).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// assert!(db.compare_and_swap("owner", None, Some(b"ada"))?.is_ok());
    /// let refused = db.compare_and_swap("owner", None, Some(b"kurt"))?.unwrap_err();
    /// assert_eq!(refused.current.unwrap(), "ada");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), Mismatch>, TransactionError> {
        self.change(key.as_ref(), |current| {
            if current.as_deref() != expected {
                return Ok((KeyChange::Keep, Err(Mismatch { current })));
            }
            let change = match new {
                _ if new == expected => KeyChange::Keep,
                Some(value) => KeyChange::Put(value),
                None => KeyChange::Delete,
            };
            Ok((change, Ok(())))
        })
    }

    /// Deletes `key` and returns the value that it had. If several callers race, one of them gets
    /// it.
    ///
    /// # Errors
    ///
    /// Those of [`update`](Keyspace::update).
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, TransactionError> {
        self.change::<&[u8], _>(key.as_ref(), |current| {
            let change = if current.is_some() { KeyChange::Delete } else { KeyChange::Keep };
            Ok((change, current))
        })
    }

    /// Sets the value of `key` to `value` if it has none; otherwise returns the value that it has.
    /// If several callers race, one of them inserts.
    ///
    /// # Errors
    ///
    /// Those of [`update`](Keyspace::update).
    pub fn insert_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>, TransactionError> {
        let value = value.as_ref();
        self.change(key.as_ref(), |current| {
            let change = if current.is_some() { KeyChange::Keep } else { KeyChange::Put(value) };
            Ok((change, current))
        })
    }

    /// Adds `by` to the counter `key` and returns its new value. A counter is an eight-byte
    /// little-endian number; one that does not exist is 0. Addition wraps modulo 2^64. The merge
    /// operator `add` uses the same format, and is cheaper if you do not need the new value.
    /// # Errors
    ///
    /// [`ReadError::Merge`] if the value is not eight bytes long, and those of
    /// [`update`](Keyspace::update).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// assert_eq!(db.increment("visits", 5)?, 5);
    /// assert_eq!(db.increment("visits", -2)?, 3);
    /// assert_eq!(db.get("visits")?.unwrap(), 3i64.to_le_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, TransactionError> {
        let key = key.as_ref();
        self.change(key, |current| {
            let number =
                current.map_or(Ok(0), |current| <[u8; 8]>::try_from(&current[..]).map(i64::from_le_bytes));
            let number = number.map_err(|_| {
                let what = "a counter that is not eight bytes long".to_owned();
                ReadError::Merge { key: key.to_vec(), what }
            })?;
            let number = number.wrapping_add(by);
            Ok((KeyChange::Put(number.to_le_bytes()), number))
        })
    }
}

impl Db {
    /// [`Keyspace::update`] in the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::update`].
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, TransactionError> {
        self.default_keyspace().update(key, change)
    }

    /// [`Keyspace::compare_and_swap`] in the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::compare_and_swap`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), Mismatch>, TransactionError> {
        self.default_keyspace().compare_and_swap(key, expected, new)
    }

    /// [`Keyspace::take`] in the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::update`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, TransactionError> {
        self.default_keyspace().take(key)
    }

    /// [`Keyspace::insert_if_absent`] in the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::update`].
    pub fn insert_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>, TransactionError> {
        self.default_keyspace().insert_if_absent(key, value)
    }

    /// [`Keyspace::increment`] in the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::increment`].
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, TransactionError> {
        self.default_keyspace().increment(key, by)
    }
}
