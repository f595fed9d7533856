//! [`Expiring`]: a typed keyspace whose entries may each have a time to live.
//!
//! Invariants:
//! * Reads hide what has expired as of their moment, whether or not it is still stored.
//! * A read takes its moment before the state that it reads. The other way round, an entry whose
//!   life is prolonged in between would seem to have expired.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::time::{Duration, SystemTime};

use tamis::{Keyspace, Readable, Snapshot, SnapshotView, Transaction, TransactionView};

use crate::error::Error;
use crate::expiry::{Expiry, NEVER, Stored, has_expired, millis};
use crate::iter::Iter;
use crate::key::Key;
use crate::pending::Pending;
use crate::typed::Typed;
use crate::value::Value;

/// A keyspace whose keys are `K` and whose values are `V`, each with a time to live of its own. It
/// is read and written like a [`Typed`], but what has expired is hidden. [`Expiry`] makes it.
///
/// ```
/// # use std::time::Duration;
/// # use tamis::{KeyspaceOptions, Options};
/// # use tamis_typed::{Expiring, Expiry};
/// let expiry = Expiry::default();
/// let db = expiry.register(Options::in_memory()).open("logins")?;
/// let logins: Expiring<String, u64> = expiry.create(&db, "logins", KeyspaceOptions::default())?;
/// logins.put_for("ada", 1, Duration::from_secs(3600))?;
/// logins.put_for("bob", 2, Duration::ZERO)?;
/// logins.put("kurt", 3)?;
/// assert_eq!(logins.multi_get(&["ada", "bob", "kurt"])?, [Some(1), None, Some(3)]);
/// assert_eq!(logins.iter().count(), 2);
/// # Ok::<(), tamis_typed::Error>(())
/// ```
///
/// **Bytes.** A value is stored as its expiry, then its own bytes. The expiry has eight bytes:
/// big-endian, the milliseconds since 1970, rounded down; all ones: never. An entry is hidden from
/// its expiry on, so never late, and early by less than a millisecond. Times that do not fit become
/// the nearest one that does: a very late one is never.
///
/// **Moments.** Each read goes by the clock as of its call; an iterator as of its creation. What
/// [`at`](Expiring::at) and [`within`](Expiring::within) return goes by the clock as of that call
/// for all of its reads. So a snapshot, which may be old, does not show what has expired by now. To
/// see what was alive when it was taken, read the clock just before, and pass that to
/// [`as_of`](Expiring::as_of).
///
/// Compactions that begin while a snapshot is alive keep what it sees. One that was under way when
/// it was taken may drop what expires before its own end. Then nothing is left to see as of an
/// earlier moment; an older value of the key does not take its place.
///
/// Reads pass over what has expired and is still stored, which costs as much as reading it, and
/// copy the bytes of each value that they return.
pub struct Expiring<K, V, R = Keyspace> {
    stored: Typed<K, Stored<V>, R>,
    expiry: Expiry,
    /// What reads go by instead of the clock.
    moment: Option<u64>,
}

impl<K: Key, V: Value> Expiring<K, V> {
    pub(crate) fn new(keyspace: Keyspace, expiry: Expiry) -> Expiring<K, V> {
        Expiring { stored: Typed::new(keyspace), expiry, moment: None }
    }

    /// Returns the keyspace, for what has no typed method. It hides nothing.
    pub fn keyspace(&self) -> &Keyspace {
        self.stored.keyspace()
    }

    /// Returns the keyspace as `snapshot` sees it, without what has expired by now.
    ///
    /// # Panics
    ///
    /// If the two belong to different open databases.
    pub fn at<'a>(&'a self, snapshot: &'a Snapshot) -> Expiring<K, V, SnapshotView<'a>> {
        self.place(self.stored.at(snapshot))
    }

    /// Returns the keyspace as `transaction` sees it, its own writes included, without what has
    /// expired by now. To write in it, pass it to [`put_for_in`](Expiring::put_for_in). An entry
    /// that expires before the commit is no conflict.
    ///
    /// # Panics
    ///
    /// If the two belong to different open databases.
    pub fn within<'a>(&'a self, transaction: &'a Transaction) -> Expiring<K, V, TransactionView<'a>> {
        self.place(self.stored.within(transaction))
    }

    fn place<R>(&self, stored: Typed<K, Stored<V>, R>) -> Expiring<K, V, R> {
        Expiring { stored, expiry: self.expiry.clone(), moment: Some(self.moment()) }
    }

    /// Sets the value of `key` to `value`, which never expires, with the database's durability. (A
    /// [`WriteBatch`](tamis::WriteBatch) can be written with its own.)
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`], and [`Error::Value`] if the value has no encoding.
    pub fn put(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        self.stored.put(key, (NEVER, value))
    }

    /// Sets the value of `key` to `value`, which expires when `life` has passed from now on.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Expiring::put).
    pub fn put_for(&self, key: K::Ref<'_>, value: V::Ref<'_>, life: Duration) -> Result<(), Error> {
        self.stored.put(key, (self.expiry.after(life), value))
    }

    /// Sets the value of `key` to `value`, which expires at `expiry`.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Expiring::put).
    pub fn put_until(&self, key: K::Ref<'_>, value: V::Ref<'_>, expiry: SystemTime) -> Result<(), Error> {
        self.stored.put(key, (millis(expiry), value))
    }

    /// Adds [`put`](Expiring::put) to a batch or a transaction.
    ///
    /// # Errors
    ///
    /// Those of [`Typed::put_in`].
    pub fn put_in(
        &self,
        pending: &mut impl Pending,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<(), Error> {
        self.stored.put_in(pending, key, (NEVER, value))
    }

    /// Adds [`put_for`](Expiring::put_for) to a batch or a transaction. The life begins with this
    /// call, not with the commit.
    ///
    /// # Errors
    ///
    /// Those of [`Typed::put_in`].
    pub fn put_for_in(
        &self,
        pending: &mut impl Pending,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        life: Duration,
    ) -> Result<(), Error> {
        self.stored.put_in(pending, key, (self.expiry.after(life), value))
    }

    /// Adds [`put_until`](Expiring::put_until) to a batch or a transaction.
    ///
    /// # Errors
    ///
    /// Those of [`Typed::put_in`].
    pub fn put_until_in(
        &self,
        pending: &mut impl Pending,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expiry: SystemTime,
    ) -> Result<(), Error> {
        self.stored.put_in(pending, key, (millis(expiry), value))
    }

    /// Deletes `key`: see [`Typed::delete`].
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`].
    pub fn delete(&self, key: K::Ref<'_>) -> Result<(), Error> {
        self.stored.delete(key)
    }

    /// Deletes all keys in a range: see [`Typed::delete_range`].
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`].
    pub fn delete_range<'a>(&self, range: impl RangeBounds<K::Ref<'a>>) -> Result<(), Error> {
        self.stored.delete_range(range)
    }

    /// Adds to a batch or a transaction: `key` is deleted.
    ///
    /// # Errors
    ///
    /// From a transaction, [`Error::Tamis`].
    pub fn delete_in(&self, pending: &mut impl Pending, key: K::Ref<'_>) -> Result<(), Error> {
        self.stored.delete_in(pending, key)
    }
}

impl<K: Key, V: Value, R: Readable> Expiring<K, V, R> {
    /// Returns the same, but its reads go by `moment` instead of the clock. What had already
    /// expired by the clock may be gone.
    #[must_use]
    pub fn as_of(self, moment: SystemTime) -> Expiring<K, V, R> {
        Expiring { moment: Some(millis(moment)), ..self }
    }

    fn moment(&self) -> u64 {
        self.moment.unwrap_or_else(|| self.expiry.now())
    }

    /// Returns the value of `key`, if it has one that has not expired.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`], and [`Error::Value`] if its bytes are no expiry and `V`.
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V>, Error> {
        let moment = self.moment();
        visible(self.stored.get(key)?, moment)
    }

    /// Returns the values of `keys`, in the order of `keys` and as of a single moment. Cheaper than
    /// separate gets.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Expiring::get), if any of the keys runs into one.
    pub fn multi_get(&self, keys: &[K::Ref<'_>]) -> Result<Vec<Option<V>>, Error> {
        let moment = self.moment();
        self.stored.multi_get(keys)?.into_iter().map(|stored| visible(stored, moment)).collect()
    }

    /// Reports whether `key` has a value that has not expired; it is not decoded.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`], and [`Error::Value`] if there are too few bytes for an expiry.
    pub fn contains_key(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        let moment = self.moment();
        Ok(self.stored.get(key)?.is_some_and(|stored| !has_expired(stored.expiry, moment)))
    }

    /// Iterates over all entries in order.
    pub fn iter(&self) -> Unexpired<K, V> {
        self.unexpired(Typed::iter)
    }

    /// Iterates over the entries whose keys are in a range, in order. A range that ends before it
    /// starts is empty.
    pub fn range<'a>(&self, range: impl RangeBounds<K::Ref<'a>>) -> Unexpired<K, V> {
        self.unexpired(|stored| stored.range(range))
    }

    /// Returns the entry with the smallest key, if there is one.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Expiring::get), and [`Error::Key`] if the bytes of the key are no `K`.
    pub fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.iter().next().transpose()
    }

    /// Returns the entry with the largest key, if there is one.
    ///
    /// # Errors
    ///
    /// Those of [`first`](Expiring::first).
    pub fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.iter().next_back().transpose()
    }

    /// Reports whether there are no entries.
    ///
    /// # Errors
    ///
    /// Those of [`first`](Expiring::first).
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.first()?.is_none())
    }

    /// Returns the bytes that `key` is stored under, for calls that have no typed method.
    pub fn key_bytes(&self, key: K::Ref<'_>) -> Vec<u8> {
        self.stored.key_bytes(key)
    }

    /// Hides what has expired from an iterator that is yet to be created.
    fn unexpired(&self, read: impl FnOnce(&Typed<K, Stored<V>, R>) -> Iter<K, Stored<V>>) -> Unexpired<K, V> {
        let moment = self.moment();
        Unexpired { stored: read(&self.stored), moment }
    }
}

fn visible<V: Value>(stored: Option<Stored<V>>, moment: u64) -> Result<Option<V>, Error> {
    Ok(stored.map_or(Ok(None), |stored| stored.as_of(moment))?)
}

/// The prefixes that [`Typed`] has for each type of key.
macro_rules! prefixes {
    ($(
        [$($parameter:ident)*] $key:ty: $(#[doc = $doc:literal] $name:ident($($part:ident: $type:ty),*);)*
    )*) => {$(
        impl<$($parameter: Key,)* V: Value, R: Readable> Expiring<$key, V, R> {$(
            #[doc = $doc]
            pub fn $name(&self, $($part: $type),*) -> Unexpired<$key, V> {
                self.unexpired(|stored| stored.$name($($part),*))
            }
        )*}
    )*};
}

prefixes! {
    [] String:
        /// Iterates over the entries whose keys start with `start`, in order.
        prefix(start: &str);
    [] Vec<u8>:
        /// Iterates over the entries whose keys start with `start`, in order.
        prefix(start: &[u8]);
    [A B] (A, B):
        /// Iterates over the entries whose keys have the first component `a`, in order.
        prefix(a: A::Ref<'_>);
    [A B C] (A, B, C):
        /// Iterates over the entries whose keys have the first component `a`, in order.
        prefix(a: A::Ref<'_>);
        /// Iterates over the entries whose keys begin with the components `a` and `b`, in order.
        prefix2(a: A::Ref<'_>, b: B::Ref<'_>);
}

/// A double-ended iterator over the entries of an [`Expiring`] that have not expired as of one
/// moment: see [`Iter`].
#[must_use = "an iterator reads nothing until it is asked for an item"]
pub struct Unexpired<K, V> {
    stored: Iter<K, Stored<V>>,
    moment: u64,
}

impl<K: Key, V: Value> Unexpired<K, V> {
    /// Moves the front to the first key at or after `key`: see [`tamis::Iter::seek`].
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`].
    pub fn seek(&mut self, key: K::Ref<'_>) -> Result<(), Error> {
        self.stored.seek(key)
    }
}

/// Returns an item to be seen; of an entry that has expired, none.
fn item<K, V: Value>(entry: Result<(K, Stored<V>), Error>, moment: u64) -> Option<Result<(K, V), Error>> {
    entry.and_then(|(key, stored)| Ok(stored.as_of(moment)?.map(|value| (key, value)))).transpose()
}

impl<K: Key, V: Value> Iterator for Unexpired<K, V> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.stored.find_map(|entry| item(entry, self.moment))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Unexpired<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.stored.by_ref().rev().find_map(|entry| item(entry, self.moment))
    }
}

impl<K: Key, V: Value> FusedIterator for Unexpired<K, V> {}

// Derived, these would ask something of `K` and `V`.
impl<K, V, R: Clone> Clone for Expiring<K, V, R> {
    fn clone(&self) -> Expiring<K, V, R> {
        Expiring { stored: self.stored.clone(), expiry: self.expiry.clone(), moment: self.moment }
    }
}

impl<K, V, R: fmt::Debug> fmt::Debug for Expiring<K, V, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiring").field("stored", &self.stored).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for Unexpired<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unexpired").field("stored", &self.stored).finish_non_exhaustive()
    }
}
