//! Reads: one implementation for the database, a keyspace, a snapshot, a transaction, and their
//! views of a keyspace.
//!
//! Each of these types names a [`Place`], and all reads happen there. The inherent methods serve
//! users without the trait in scope; they and the trait share one body.

use std::ops::RangeBounds;

use crate::api::place::{HasPlace, Place};
use crate::api::snapshot::{Snapshot, SnapshotView};
use crate::api::view::TransactionView;
use crate::error::ReadError;
use crate::handles::handle::{Db, Keyspace};
use crate::read::{Bounds, Iter, Lookup};
use crate::slice::Slice;
use crate::transaction::optimistic::Transaction;

/// Something to read keys from: a [`Db`] (its default keyspace), a [`Keyspace`], a [`Snapshot`]
/// (the default keyspace at its moment), a [`Transaction`] (the default keyspace with its own
/// writes), a [`SnapshotView`] or a [`TransactionView`].
///
/// All of these types also have the methods themselves; the trait is for functions that accept any
/// of them. It is sealed: no other type can implement it, so later versions may add methods.
///
/// ```
/// use tamis::{Db, ReadError, Readable};
///
/// fn count(from: impl Readable, prefix: &str) -> Result<usize, ReadError> {
///     from.prefix(prefix).try_fold(0, |count, item| item.map(|_| count + 1))
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// db.put("user/ada", "1815")?;
/// let before = db.snapshot();
/// db.put("user/kurt", "1906")?;
/// assert_eq!((count(&db, "user/")?, count(&before, "user/")?), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Readable: HasPlace {
    /// Returns the value of `key`, if it has one. Costs one key digest, one probe of each filter,
    /// and one block read per filter that answers "maybe"; allocates nothing unless many runs hold
    /// candidates or operands are merged.
    ///
    /// # Errors
    ///
    /// [`ReadError::Dropped`] if the keyspace was dropped, [`ReadError::Merge`] if its merge
    /// operator refuses the key's operands, [`ReadError::Storage`] for a failed system call or
    /// damaged bytes.
    #[inline]
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, ReadError> {
        Ok(self.place().lookup(key.as_ref())?.value())
    }

    /// Returns the values of `keys`, in the order of `keys` and as of a single moment. Cheaper than
    /// separate gets, because the cache misses of all keys overlap.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Readable::get), if any of the keys runs into one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// db.put("a", "1")?;
    /// let values = db.multi_get(&["a", "b"])?;
    /// assert_eq!(values[0].as_deref(), Some(&b"1"[..]));
    /// assert_eq!(values[1], None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>, ReadError> {
        self.place().lookup_many(keys)
    }

    /// Reports whether `key` has a value, at the cost of a [`get`](Readable::get).
    ///
    /// # Errors
    ///
    /// Those of [`get`](Readable::get).
    #[inline]
    fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
        Ok(matches!(self.place().lookup(key.as_ref())?, Lookup::Found { .. }))
    }

    /// Iterates over all keys in order, as of this call or of the snapshot. See [`Iter`] for the
    /// costs; errors are items.
    fn iter(&self) -> Iter {
        self.place().scan(Bounds::default())
    }

    /// Iterates over the keys in a range in order, as of this call or of the snapshot. A range that
    /// ends before it starts is empty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// # for key in ["a", "b", "c"] { db.put(key, "value")?; }
    /// let keys: Result<Vec<_>, _> = db.range("a"..="b").rev().map(|item| item.map(|(key, _)| key)).collect();
    /// assert_eq!(keys?, ["b", "a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.place().scan(Bounds::of(&range))
    }

    /// Iterates over the keys that start with `prefix` in order, as of this call or of the
    /// snapshot.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.place().scan(Bounds::prefix(prefix.as_ref()))
    }

    /// Returns the item with the smallest key, if there is one. Costs a seek in every run, and a
    /// step over each deleted key in front of it.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Readable::get).
    fn first(&self) -> Result<Option<(Slice, Slice)>, ReadError> {
        self.iter().next().transpose()
    }

    /// Returns the item with the largest key, if there is one, at the cost of
    /// [`first`](Readable::first).
    ///
    /// # Errors
    ///
    /// Those of [`get`](Readable::get).
    fn last(&self) -> Result<Option<(Slice, Slice)>, ReadError> {
        self.iter().next_back().transpose()
    }

    /// Reports whether there are no keys, at the cost of [`first`](Readable::first).
    ///
    /// # Errors
    ///
    /// Those of [`get`](Readable::get).
    fn is_empty(&self) -> Result<bool, ReadError> {
        Ok(self.first()?.is_none())
    }
}

impl HasPlace for Db {
    #[inline]
    fn place(&self) -> Place<'_> {
        self.default_keyspace().place()
    }
}

impl HasPlace for Keyspace {
    #[inline]
    fn place(&self) -> Place<'_> {
        Place::now(self)
    }
}

impl HasPlace for Snapshot {
    #[inline]
    fn place(&self) -> Place<'_> {
        self.default_place()
    }
}

impl HasPlace for SnapshotView<'_> {
    #[inline]
    fn place(&self) -> Place<'_> {
        self.pinned_place()
    }
}

impl<R: HasPlace + ?Sized> HasPlace for &R {
    #[inline]
    fn place(&self) -> Place<'_> {
        (**self).place()
    }
}

impl Iter {
    /// Moves the iterator to the state that a new iterator of `of` would show: the state as of now,
    /// or a snapshot's. `of` must be the keyspace that the iterator is from, or a snapshot of it.
    /// Both ends keep their positions: the front continues with the keys after the last one it
    /// returned (or from the last [`seek`](Iter::seek) on), even if it had reached the end or
    /// failed.
    ///
    /// Releases the memtables and files of the old state. An iterator that stays open keeps them
    /// from being freed; refresh it now and then to release them. Costs as much as a new iterator.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// db.put("a", "1")?;
    /// let mut iter = db.iter();
    /// assert_eq!(iter.next().expect("an item")?.0, "a");
    /// db.put("b", "2")?;
    /// assert!(iter.next().is_none());
    /// iter.refresh(&db);
    /// assert_eq!(iter.next().expect("an item")?.0, "b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refresh(&mut self, of: &impl Readable) {
        let fresh = of.place().scan(self.take_bounds());
        self.go_on_as(fresh);
    }
}

impl<R: Readable + ?Sized> Readable for &R {}

/// Gives a type the trait, the same methods without it, and `for item in &it`.
macro_rules! readable {
    ($($type:ty),*) => {$(
        impl Readable for $type {}

        impl $type {
            /// Returns the value of `key`, if it has one. Costs one key digest, one probe of each
            /// filter, and one block read per filter that answers "maybe"; allocates nothing unless
            /// many runs hold candidates or operands are merged.
            ///
            /// # Errors
            ///
            /// Those of [`Readable::get`].
            #[inline]
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, ReadError> {
                Readable::get(self, key)
            }

            /// Returns the values of `keys`, in the order of `keys` and as of a single moment.
            /// Cheaper than separate gets.
            ///
            /// # Errors
            ///
            /// Those of [`Readable::multi_get`].
            pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>, ReadError> {
                Readable::multi_get(self, keys)
            }

            /// Reports whether `key` has a value, at the cost of a get.
            ///
            /// # Errors
            ///
            /// Those of [`Readable::get`].
            #[inline]
            pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
                Readable::contains_key(self, key)
            }

            /// Iterates over all keys in order, as of this call or of the snapshot. See
            /// [`Readable::iter`].
            pub fn iter(&self) -> Iter {
                Readable::iter(self)
            }

            /// Iterates over the keys in a range in order, as of this call or of the snapshot. See
            /// [`Readable::range`].
            pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
                Readable::range(self, range)
            }

            /// Iterates over the keys that start with `prefix` in order, as of this call or of the
            /// snapshot.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
                Readable::prefix(self, prefix)
            }

            /// Returns the item with the smallest key, if there is one. See [`Readable::first`].
            ///
            /// # Errors
            ///
            /// Those of [`Readable::get`].
            pub fn first(&self) -> Result<Option<(Slice, Slice)>, ReadError> {
                Readable::first(self)
            }

            /// Returns the item with the largest key, if there is one. See [`Readable::first`].
            ///
            /// # Errors
            ///
            /// Those of [`Readable::get`].
            pub fn last(&self) -> Result<Option<(Slice, Slice)>, ReadError> {
                Readable::last(self)
            }

            /// Reports whether there are no keys. See [`Readable::first`].
            ///
            /// # Errors
            ///
            /// Those of [`Readable::get`].
            pub fn is_empty(&self) -> Result<bool, ReadError> {
                Readable::is_empty(self)
            }
        }

        impl IntoIterator for &$type {
            type Item = <Iter as Iterator>::Item;
            type IntoIter = Iter;

            fn into_iter(self) -> Iter {
                Readable::iter(self)
            }
        }
    )*};
}

readable!(Db, Keyspace, Snapshot, SnapshotView<'_>, Transaction, TransactionView<'_>);
