//! Where a read happens: in a keyspace as of now, as of a snapshot, or within a transaction.

use std::sync::Arc;

use crate::error::ReadError;
use crate::handles::handle::Keyspace;
use crate::handles::pin::SnapshotPin;
use crate::read::{Bounds, Iter, Lookup};
use crate::slice::Slice;
use crate::transaction::optimistic::Transaction;

/// Where a read happens: in a keyspace as of now, as of a snapshot, or within a transaction.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    keyspace: &'a Keyspace,
    pin: Option<&'a Arc<SnapshotPin>>,
    transaction: Option<&'a Transaction>,
}

debug_as!(Place<'_>, "Place", place => "keyspace": place.keyspace, "transaction": place.transaction);

impl<'a> Place<'a> {
    /// A keyspace as of now.
    #[inline]
    pub(crate) fn now(keyspace: &'a Keyspace) -> Place<'a> {
        Place { keyspace, pin: None, transaction: None }
    }

    /// A keyspace as of a snapshot.
    #[inline]
    pub(crate) fn pinned(keyspace: &'a Keyspace, pin: &'a Arc<SnapshotPin>) -> Place<'a> {
        Place { keyspace, pin: Some(pin), transaction: None }
    }

    /// A keyspace as a transaction sees it.
    #[inline]
    pub(crate) fn within(keyspace: &'a Keyspace, transaction: &'a Transaction) -> Place<'a> {
        Place { keyspace, pin: None, transaction: Some(transaction) }
    }

    #[inline]
    pub(crate) fn lookup(&self, key: &[u8]) -> Result<Lookup, ReadError> {
        match self.transaction {
            None => self.keyspace.lookup(key, self.pin.map(|pin| &**pin)),
            Some(transaction) => transaction.lookup(self.keyspace, key),
        }
    }

    pub(crate) fn lookup_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>, ReadError> {
        match self.transaction {
            None => self.keyspace.lookup_many(keys, self.pin.map(|pin| &**pin)),
            Some(transaction) => transaction.lookup_many(self.keyspace, keys),
        }
    }

    pub(crate) fn scan(&self, bounds: Bounds) -> Iter {
        match self.transaction {
            None => self.keyspace.scan(bounds, self.pin),
            Some(transaction) => transaction.scan(self.keyspace, bounds),
        }
    }
}

/// Seals [`Readable`](crate::Readable) to the types of this crate.
pub trait HasPlace {
    #[doc(hidden)]
    fn place(&self) -> Place<'_>;
}
