//! Iterators that decode what the iterators of `tamis` return.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use tamis::{ReadError, Slice};

use crate::error::Error;
use crate::key::Key;
use crate::value::Value;

/// A double-ended iterator over keys and values in the order of the keys. It sees exactly the state
/// at its creation: see [`tamis::Iter`].
///
/// A key or a value that cannot be decoded is an error as an item, and the iteration goes on behind
/// it. An error of the database ends the iteration.
#[must_use = "an iterator reads nothing until it is asked for an item"]
pub struct Iter<K, V> {
    stored: tamis::Iter,
    types: PhantomData<fn() -> (K, V)>,
}

/// A double-ended iterator over the keys of an [`Iter`] alone: see [`Iter::keys`].
#[must_use = "an iterator reads nothing until it is asked for an item"]
pub struct Keys<K> {
    stored: tamis::Keys,
    types: PhantomData<fn() -> K>,
}

impl<K: Key, V: Value> Iter<K, V> {
    pub(crate) fn new(stored: tamis::Iter) -> Iter<K, V> {
        Iter { stored, types: PhantomData }
    }

    /// Returns an iterator over the keys that are left, which reads no value.
    pub fn keys(self) -> Keys<K> {
        Keys { stored: self.stored.keys(), types: PhantomData }
    }

    /// Moves the front to the first key at or after `key`: see [`tamis::Iter::seek`].
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`].
    pub fn seek(&mut self, key: K::Ref<'_>) -> Result<(), Error> {
        Ok(self.stored.seek(bytes_of::<K>(key))?)
    }
}

/// Returns the bytes of a key.
pub(crate) fn bytes_of<K: Key>(key: K::Ref<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    K::encode(key, &mut bytes);
    bytes
}

/// Decodes an item.
fn entry<K: Key, V: Value>(item: Result<(Slice, Slice), ReadError>) -> Result<(K, V), Error> {
    let (key, value) = item?;
    Ok((K::decode(&key).map_err(Error::Key)?, V::decode(&value)?))
}

fn key<K: Key>(item: Result<Slice, ReadError>) -> Result<K, Error> {
    K::decode(&item?).map_err(Error::Key)
}

impl<K: Key, V: Value> Iterator for Iter<K, V> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.stored.next().map(entry)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Iter<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.stored.next_back().map(entry)
    }
}

impl<K: Key, V: Value> FusedIterator for Iter<K, V> {}

impl<K: Key> Iterator for Keys<K> {
    type Item = Result<K, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.stored.next().map(key)
    }
}

impl<K: Key> DoubleEndedIterator for Keys<K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.stored.next_back().map(key)
    }
}

impl<K: Key> FusedIterator for Keys<K> {}

impl<K, V> fmt::Debug for Iter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("stored", &self.stored).finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for Keys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("stored", &self.stored).finish_non_exhaustive()
    }
}
