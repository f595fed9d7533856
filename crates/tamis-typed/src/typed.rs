//! [`Typed`]: a keyspace with types.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use tamis::{Durability, Keyspace, Readable, Snapshot, SnapshotView, Transaction, TransactionView};

use crate::error::Error;
use crate::iter::{Iter, bytes_of};
use crate::key::Key;
use crate::pending::Pending;
use crate::tuple::encode_component;
use crate::value::Value;

/// A keyspace whose keys are `K` and whose values are `V`. `R` is where it reads: the keyspace as
/// of now, or what [`at`](Typed::at) and [`within`](Typed::within) return.
///
/// Keys and values are passed as [`Key::Ref`] and [`Value::Ref`] say: a `&str` for a `String`, a
/// number itself, `("fr", 7)` for a `(String, i32)`. They are returned as `K` and `V`;
/// [`Key::borrowed`] turns a key that was returned into one to pass.
///
/// Each call costs what the call of `tamis` costs, and an allocation for the bytes of each key and
/// value that it passes.
///
/// ```
/// # use tamis::Options;
/// # use tamis_typed::Typed;
/// let db = Options::in_memory().open("balances")?;
/// let balances: Typed<String, i64> = Typed::new(db.default_keyspace().clone());
/// balances.put("ada", 100)?;
/// db.transact(|transaction| {
///     let balance = balances.within(transaction).get("ada")?.unwrap_or(0);
///     balances.put_in(transaction, "ada", balance - 30)?;
///     balances.put_in(transaction, "kurt", 30)
/// })?;
/// assert_eq!(balances.get("ada")?, Some(70));
/// # Ok::<(), tamis_typed::Error>(())
/// ```
pub struct Typed<K, V, R = Keyspace> {
    place: R,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Typed<K, V> {
    /// Gives `keyspace` types. Nothing checks that its entries have them, until they are read.
    pub fn new(keyspace: Keyspace) -> Typed<K, V> {
        Typed::from_place(keyspace)
    }

    /// Returns the keyspace, for what has no typed method.
    pub fn keyspace(&self) -> &Keyspace {
        &self.place
    }

    /// Returns the keyspace as `snapshot` sees it.
    ///
    /// # Panics
    ///
    /// If the two belong to different open databases.
    pub fn at<'a>(&'a self, snapshot: &'a Snapshot) -> Typed<K, V, SnapshotView<'a>> {
        Typed::from_place(snapshot.keyspace(&self.place))
    }

    /// Returns the keyspace as `transaction` sees it, its own writes included. To write in it, pass
    /// it to [`put_in`](Typed::put_in).
    ///
    /// # Panics
    ///
    /// If the two belong to different open databases.
    pub fn within<'a>(&'a self, transaction: &'a Transaction) -> Typed<K, V, TransactionView<'a>> {
        Typed::from_place(transaction.keyspace(&self.place))
    }

    /// Sets the value of `key` to `value`, with the database's durability.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`], and [`Error::Value`] if the value has no encoding.
    pub fn put(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        Ok(self.place.put(bytes_of::<K>(key), bytes_of_value::<V>(value)?)?)
    }

    /// Sets the value of `key` to `value` with its own durability.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Typed::put).
    pub fn put_with(&self, key: K::Ref<'_>, value: V::Ref<'_>, durability: Durability) -> Result<(), Error> {
        Ok(self.place.put_with(bytes_of::<K>(key), bytes_of_value::<V>(value)?, durability)?)
    }

    /// Deletes `key`; it need not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`].
    pub fn delete(&self, key: K::Ref<'_>) -> Result<(), Error> {
        Ok(self.place.delete(bytes_of::<K>(key))?)
    }

    /// Deletes all keys in a range, at the cost of one write.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`], also if the range starts after its end.
    pub fn delete_range<'a>(&self, range: impl RangeBounds<K::Ref<'a>>) -> Result<(), Error> {
        Ok(self.place.delete_range(bytes_of_range::<K>(range))?)
    }

    /// Adds to a batch or a transaction: `key` gets the value `value`.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value has no encoding, and from a transaction [`Error::Tamis`]. A
    /// batch keeps such an error until it is committed.
    pub fn put_in(
        &self,
        pending: &mut impl Pending,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<(), Error> {
        Ok(pending.put(&self.place, &bytes_of::<K>(key), &bytes_of_value::<V>(value)?)?)
    }

    /// Adds to a batch or a transaction: `key` is deleted.
    ///
    /// # Errors
    ///
    /// From a transaction, [`Error::Tamis`].
    pub fn delete_in(&self, pending: &mut impl Pending, key: K::Ref<'_>) -> Result<(), Error> {
        Ok(pending.delete(&self.place, &bytes_of::<K>(key))?)
    }
}

impl<K: Key, V: Value, R: Readable> Typed<K, V, R> {
    fn from_place(place: R) -> Typed<K, V, R> {
        Typed { place, types: PhantomData }
    }

    /// Returns the value of `key`, if it has one.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`], and [`Error::Value`] if its bytes are no `V`.
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V>, Error> {
        let stored = self.place.get(bytes_of::<K>(key))?;
        Ok(stored.as_ref().map(V::decode).transpose()?)
    }

    /// Returns the values of `keys`, in the order of `keys` and as of a single moment. Cheaper than
    /// separate gets.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Typed::get), if any of the keys runs into one.
    pub fn multi_get(&self, keys: &[K::Ref<'_>]) -> Result<Vec<Option<V>>, Error> {
        let keys: Vec<_> = keys.iter().map(|key| bytes_of::<K>(*key)).collect();
        let stored = self.place.multi_get(&keys)?;
        stored.iter().map(|stored| Ok(stored.as_ref().map(V::decode).transpose()?)).collect()
    }

    /// Reports whether `key` has a value, which is not decoded.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`].
    pub fn contains_key(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.place.contains_key(bytes_of::<K>(key))?)
    }

    /// Iterates over all entries in order.
    pub fn iter(&self) -> Iter<K, V> {
        Iter::new(self.place.iter())
    }

    /// Iterates over the entries whose keys are in a range, in order. A range that ends before it
    /// starts is empty.
    pub fn range<'a>(&self, range: impl RangeBounds<K::Ref<'a>>) -> Iter<K, V> {
        Iter::new(self.place.range(bytes_of_range::<K>(range)))
    }

    /// Returns the entry with the smallest key, if there is one.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Typed::get), and [`Error::Key`] if the bytes of the key are no `K`.
    pub fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.iter().next().transpose()
    }

    /// Returns the entry with the largest key, if there is one.
    ///
    /// # Errors
    ///
    /// Those of [`first`](Typed::first).
    pub fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.iter().next_back().transpose()
    }

    /// Reports whether there are no entries.
    ///
    /// # Errors
    ///
    /// [`Error::Tamis`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.place.is_empty()?)
    }

    /// Returns the bytes that `key` is stored under, for calls that have no typed method.
    pub fn key_bytes(&self, key: K::Ref<'_>) -> Vec<u8> {
        bytes_of::<K>(key)
    }
}

impl<V: Value, R: Readable> Typed<String, V, R> {
    /// Iterates over the entries whose keys start with `start`, in order.
    pub fn prefix(&self, start: &str) -> Iter<String, V> {
        Iter::new(self.place.prefix(start))
    }
}

impl<V: Value, R: Readable> Typed<Vec<u8>, V, R> {
    /// Iterates over the entries whose keys start with `start`, in order.
    pub fn prefix(&self, start: &[u8]) -> Iter<Vec<u8>, V> {
        Iter::new(self.place.prefix(start))
    }
}

impl<A: Key, B: Key, V: Value, R: Readable> Typed<(A, B), V, R> {
    /// Iterates over the entries whose keys have the first component `a`, in order.
    pub fn prefix(&self, a: A::Ref<'_>) -> Iter<(A, B), V> {
        Iter::new(self.place.prefix(component::<A>(a)))
    }
}

impl<A: Key, B: Key, C: Key, V: Value, R: Readable> Typed<(A, B, C), V, R> {
    /// Iterates over the entries whose keys have the first component `a`, in order.
    pub fn prefix(&self, a: A::Ref<'_>) -> Iter<(A, B, C), V> {
        Iter::new(self.place.prefix(component::<A>(a)))
    }

    /// Iterates over the entries whose keys begin with the components `a` and `b`, in order.
    pub fn prefix2(&self, a: A::Ref<'_>, b: B::Ref<'_>) -> Iter<(A, B, C), V> {
        let mut start = component::<A>(a);
        encode_component::<B>(b, &mut start);
        Iter::new(self.place.prefix(start))
    }
}

/// Returns the bytes of a tuple's first component.
fn component<K: Key>(key: K::Ref<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_component::<K>(key, &mut bytes);
    bytes
}

fn bytes_of_value<V: Value>(value: V::Ref<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    V::encode(value, &mut bytes)?;
    Ok(bytes)
}

fn bytes_of_range<'a, K: Key>(range: impl RangeBounds<K::Ref<'a>>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let bytes = |bound: Bound<&K::Ref<'a>>| bound.map(|key| bytes_of::<K>(*key));
    (bytes(range.start_bound()), bytes(range.end_bound()))
}

impl<K: Key, V: Value, R: Readable> IntoIterator for &Typed<K, V, R> {
    type Item = Result<(K, V), Error>;
    type IntoIter = Iter<K, V>;

    fn into_iter(self) -> Iter<K, V> {
        self.iter()
    }
}

// Derived, these would ask something of `K` and `V`.
impl<K, V, R: Clone> Clone for Typed<K, V, R> {
    fn clone(&self) -> Typed<K, V, R> {
        Typed { place: self.place.clone(), types: PhantomData }
    }
}

impl<K, V, R: fmt::Debug> fmt::Debug for Typed<K, V, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("place", &self.place).finish_non_exhaustive()
    }
}
