//! Iteration over keys alone.

use super::{Item, Iter};
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
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// let keys: Vec<_> = db.range("b"..).keys().collect::<Result<_, _>>()?;
    /// assert_eq!(keys, ["b", "c"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(mut self) -> Keys {
        self.keys_only = self.within.is_none();
        Keys(self)
    }
}

fn key_of(item: Option<Item>) -> Option<Result<Slice, ReadError>> {
    item.map(|item| item.map(|(key, _)| key))
}

impl Keys {
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
        if self.0.within.is_some() {
            return key_of(self.0.next());
        }
        self.0.find().map(|found| found.key(&self.0.front)).transpose()
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.0.within.is_some() {
            return key_of(self.0.next_back());
        }
        self.0.find_back().map(|found| found.key(&self.0.back)).transpose()
    }
}

impl std::iter::FusedIterator for Keys {}
