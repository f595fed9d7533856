//! Iteration over keys alone.

use super::{Found, Iter};
use crate::error::ReadError;
use crate::slice::Slice;

/// A double-ended iterator over the keys of an [`Iter`] alone: see [`Iter::keys`].
#[must_use = "an iterator reads nothing until it is asked for an item"]
pub struct Keys(Iter);

debug_as!(Keys, "Keys", keys => "iter": keys.0);

impl Iter {
    /// Returns an iterator over the keys that are left, which reads no value: no blob file is
    /// touched, nothing is merged, and of a table's blocks only the parts that hold keys.
    ///
    /// A key whose value would be an error (damaged in its blob file, or refused by the merge
    /// operator) is returned as any other. In a transaction values are read, since what it wrote
    /// may depend on them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// let keys: Vec<_> = db.range("b"..).keys().collect::<Result<_, _>>()?;
    /// assert_eq!(keys, ["b", "c"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(mut self) -> Keys {
        self.reader.keys_only = self.within.is_none();
        Keys(self)
    }
}

impl Keys {
    #[inline]
    fn next_key<const BACK: bool>(&mut self) -> Option<Result<Slice, ReadError>> {
        let iter = &mut self.0;
        if iter.within.is_some() {
            return iter.next_item::<BACK>().map(|item| item.map(|(key, _)| key));
        }
        match iter.find::<BACK>() {
            Ok(Found::Nothing) => None,
            Ok(Found::Here) => Some(Ok(iter.end::<BACK>().here().pinned_key())),
            Ok(Found::Made) => Some(Ok(iter.reader.take_made().0)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Moves the front to the first key at or after `key`. See [`Iter::seek`].
    ///
    /// # Errors
    ///
    /// Those of [`Iter::seek`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<(), ReadError> {
        self.0.seek(key)
    }

    /// Returns the next key from the front, without a copy. See [`Iter::next_ref`].
    #[inline]
    pub fn next_ref(&mut self) -> Option<Result<&[u8], ReadError>> {
        self.0.next_ref().map(|item| item.map(|(key, _)| key))
    }
}

impl Iterator for Keys {
    type Item = Result<Slice, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key::<false>()
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_key::<true>()
    }
}

impl std::iter::FusedIterator for Keys {}
