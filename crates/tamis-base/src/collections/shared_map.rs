//! An ordered map whose copies share unchanged entries.
//!
//! Entries are in chunks of a few dozen, and a list holds the chunks. A copy shares both; a change
//! copies the list and one chunk, if they are shared. So a copy costs nothing, and a change to a
//! map of *n* entries that has copies costs about *n* / 64 reference counts. Data with many readers
//! and rare changes, like the keyspaces of a database, is published as a copy.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// A chunk is split beyond this many entries.
const MOST: usize = 64;

/// See the module documentation.
pub struct SharedMap<K, V> {
    /// Ascending, and none of them is empty.
    chunks: Arc<Vec<Chunk<K, V>>>,
    len: usize,
}

type Chunk<K, V> = Arc<Vec<(K, V)>>;

impl<K, V> SharedMap<K, V> {
    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reports whether there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over the entries in the order of their keys.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (key, value)))
    }

    /// Iterates over the keys, ascending.
    #[inline]
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    /// Iterates over the values in the order of their keys.
    #[inline]
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> SharedMap<K, V> {
    /// Returns the chunk that has `key` if any has: the first that does not end before it.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|(last, _)| last.borrow() < key))
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        Some(&chunk[at].1)
    }

    /// Reports whether there is an entry of this key.
    #[inline]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Iterates over the entries whose keys are greater than `key`.
    pub fn after<'m>(&'m self, key: &K) -> impl Iterator<Item = (&'m K, &'m V)> {
        let first = self.chunk_of(key);
        let skipped =
            self.chunks.get(first).map_or(0, |chunk| chunk.partition_point(|(known, _)| known <= key));
        self.chunks[first..]
            .iter()
            .flat_map(|chunk| chunk.iter())
            .skip(skipped)
            .map(|(key, value)| (key, value))
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Returns the value of a key, to be changed.
    #[inline]
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = self.chunk_of(key);
        let at = self.chunks.get(place)?.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        Some(&mut Arc::make_mut(&mut Arc::make_mut(&mut self.chunks)[place])[at].1)
    }

    /// Iterates over all values, to change them.
    #[inline]
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let chunks = Arc::make_mut(&mut self.chunks).iter_mut();
        chunks.flat_map(|chunk| Arc::make_mut(chunk).iter_mut().map(|(_, value)| value))
    }

    /// Adds an entry; returns the value that the key had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let place = self.chunk_of(&key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let end = place == chunks.len();
        if end && chunks.last().is_none_or(|last| last.len() >= MOST) {
            // Ascending keys fill each chunk.
            chunks.push(Arc::new(vec![(key, value)]));
            self.len += 1;
            return None;
        }
        let place = place - usize::from(end);
        let chunk = Arc::make_mut(&mut chunks[place]);
        match chunk.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => return Some(std::mem::replace(&mut chunk[at].1, value)),
            Err(at) => chunk.insert(at, (key, value)),
        }
        self.len += 1;
        if chunk.len() > MOST {
            let rest = chunk.split_off(MOST / 2);
            chunks.insert(place + 1, Arc::new(rest));
        }
        None
    }

    /// Removes an entry; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let place = self.chunk_of(key);
        let at = self.chunks.get(place)?.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let (_, value) = Arc::make_mut(&mut chunks[place]).remove(at);
        self.len -= 1;
        if chunks[place].is_empty() {
            chunks.remove(place);
        } else {
            // The list stays short.
            join(chunks, place);
            place.checked_sub(1).iter().for_each(|&before| join(chunks, before));
        }
        Some(value)
    }
}

/// Joins a chunk and the next one if they are small.
fn join<K: Clone, V: Clone>(chunks: &mut Vec<Chunk<K, V>>, place: usize) {
    let small = |next: &Chunk<K, V>| chunks[place].len() + next.len() <= MOST / 2;
    if chunks.get(place + 1).is_some_and(small) {
        let next = chunks.remove(place + 1);
        Arc::make_mut(&mut chunks[place]).extend(next.iter().cloned());
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        SharedMap { chunks: Arc::default(), len: 0 }
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        SharedMap { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord, V> Index<&K> for SharedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("an entry of the key")
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for SharedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| drop(self.insert(key, value)));
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = SharedMap::default();
        map.extend(entries);
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_an_ordered_map_whose_copies_do_not_change(
            steps in proptest::collection::vec((0u32..400, any::<bool>(), 0u32..20), 1..800)
        ) {
            let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (at, (key, inserts, copy)) in steps.into_iter().enumerate() {
                match inserts {
                    true => prop_assert_eq!(map.insert(key, at), model.insert(key, at)),
                    false => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                }
                if copy == 0 {
                    copies.push((map.clone(), model.clone()));
                }
                if let (Some(value), Some(expected)) = (map.get_mut(&(key / 2)), model.get_mut(&(key / 2))) {
                    (*value, *expected) = (at + 1000, at + 1000);
                }
                prop_assert_eq!((map.get(&key), map.len()), (model.get(&key), model.len()));
                prop_assert!(map.after(&key).eq(model.range(key + 1..)));
            }
            copies.push((map, model));
            for (map, model) in copies {
                prop_assert!(map.iter().eq(&model) && map.iter().rev().eq(model.iter().rev()));
            }
        }
    }

    #[test]
    fn a_change_beside_a_copy_copies_one_chunk() {
        let map: SharedMap<u32, u32> = (0..10_000).map(|i| (i, i)).collect();
        assert!(map.chunks.len() <= 10_000 / MOST + 1, "ascending keys fill the chunks");
        let mut changed = map.clone();
        changed.insert(5000, 7);
        let shared = map.chunks.iter().zip(&*changed.chunks).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, map.chunks.len() - 1);
        (0..10_000).filter(|i| i % 64 != 0).for_each(|i| _ = changed.remove(&i));
        assert_eq!((changed.len(), map.len()), (157, 10_000));
        assert!(changed.chunks.len() < 20, "{} chunks for 157 entries", changed.chunks.len());
    }
}
