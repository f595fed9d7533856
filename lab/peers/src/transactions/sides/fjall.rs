//! fjall: `OptimisticTxDatabase` and `SingleWriterTxDatabase`, opened with the options of the plain engine.
//!
//! Source: the documentation of its crate.
//!
//! * An optimistic transaction that conflicts is begun again at once, as its own `update_fetch` does. A transaction of
//!   the single writer holds a lock from its beginning, and never conflicts.
//! * A plain put is a transaction of its own inside, of the same kind; a plain get is not.
//! * A read-only transaction is a snapshot.

use ::fjall::{
    Keyspace, OptimisticTxDatabase, OptimisticTxKeyspace, Readable, SingleWriterTxDatabase,
    SingleWriterTxKeyspace, Snapshot,
};

use crate::engines::fjall::{Fjall, KEYSPACE, builder, failed, keyspace_options};
use crate::engines::{Engine, Setup};
use crate::transactions::data::Key;
use crate::transactions::side::{Session, Side, SideError, copy};

/// A kind of database with transactions.
pub(crate) trait Kind: Sync + Sized {
    /// Creates a database. Also returns the engine below.
    fn open(setup: &Setup) -> Result<(Self, Fjall), SideError>;
    /// Returns the keyspace for plain reads.
    fn keyspace(&self) -> &Keyspace;
    /// Puts a value.
    fn put(&self, key: &Key, value: &[u8]) -> ::fjall::Result<()>;
    /// Begins a read-only transaction.
    fn snapshot(&self) -> Snapshot;
    /// See [`Session::transact`].
    fn transact<const N: usize>(
        &self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError>;
}

/// Optimistic transactions.
pub(crate) struct Optimistic {
    keyspace: OptimisticTxKeyspace,
    database: OptimisticTxDatabase,
}

/// Transactions one after the other.
pub(crate) struct SingleWriter {
    keyspace: SingleWriterTxKeyspace,
    database: SingleWriterTxDatabase,
}

impl Kind for Optimistic {
    fn open(setup: &Setup) -> Result<(Self, Fjall), SideError> {
        let database = builder!(OptimisticTxDatabase, setup).open().map_err(failed)?;
        let keyspace = database.keyspace(KEYSPACE, || keyspace_options(setup)).map_err(failed)?;
        let engine = Fjall::of(database.inner().clone(), keyspace.inner().clone(), setup)?;
        Ok((Optimistic { keyspace, database }, engine))
    }

    #[inline]
    fn keyspace(&self) -> &Keyspace {
        self.keyspace.inner()
    }

    #[inline]
    fn put(&self, key: &Key, value: &[u8]) -> ::fjall::Result<()> {
        self.keyspace.insert(*key, value)
    }

    fn snapshot(&self) -> Snapshot {
        self.database.read_tx()
    }

    #[inline]
    fn transact<const N: usize>(
        &self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        let mut retries = 0;
        loop {
            let mut transaction = self.database.write_tx().map_err(failed)?;
            for (key, value) in keys.iter().zip(&mut *values) {
                copy(key, transaction.get(&self.keyspace, key).map_err(failed)?.as_deref(), value)?;
            }
            change(values);
            for (key, value) in keys.iter().zip(&*values) {
                transaction.insert(&self.keyspace, **key, value.as_slice());
            }
            match transaction.commit().map_err(failed)? {
                Ok(()) => return Ok(retries),
                Err(_) => retries += 1,
            }
        }
    }
}

impl Kind for SingleWriter {
    fn open(setup: &Setup) -> Result<(Self, Fjall), SideError> {
        let database = builder!(SingleWriterTxDatabase, setup).open().map_err(failed)?;
        let keyspace = database.keyspace(KEYSPACE, || keyspace_options(setup)).map_err(failed)?;
        let engine = Fjall::of(database.inner().clone(), keyspace.inner().clone(), setup)?;
        Ok((SingleWriter { keyspace, database }, engine))
    }

    #[inline]
    fn keyspace(&self) -> &Keyspace {
        self.keyspace.inner()
    }

    #[inline]
    fn put(&self, key: &Key, value: &[u8]) -> ::fjall::Result<()> {
        self.keyspace.insert(*key, value)
    }

    fn snapshot(&self) -> Snapshot {
        self.database.read_tx()
    }

    #[inline]
    fn transact<const N: usize>(
        &self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        let mut transaction = self.database.write_tx();
        for (key, value) in keys.iter().zip(&mut *values) {
            copy(key, transaction.get(&self.keyspace, key).map_err(failed)?.as_deref(), value)?;
        }
        change(values);
        for (key, value) in keys.iter().zip(&*values) {
            transaction.insert(&self.keyspace, **key, value.as_slice());
        }
        transaction.commit().map_err(failed)?;
        Ok(0)
    }
}

/// An open database of this kind.
pub(crate) struct FjallSide<K> {
    kind: K,
    // Dropped after the keyspace above, since it waits for the database's threads.
    engine: Fjall,
}

/// A thread's session.
pub(crate) struct FjallSession<'s, K>(&'s K);

impl<K: Kind> Side for FjallSide<K> {
    type Session<'s>
        = FjallSession<'s, K>
    where
        K: 's;

    fn open(setup: &Setup) -> Result<Self, SideError> {
        let (kind, engine) = K::open(setup)?;
        Ok(FjallSide { kind, engine })
    }

    fn settle(&self) -> Result<(), SideError> {
        Ok(self.engine.settle()?)
    }

    fn session(&self) -> FjallSession<'_, K> {
        FjallSession(&self.kind)
    }

    fn close(self) -> Result<(), SideError> {
        drop(self.kind);
        Ok(self.engine.close()?)
    }
}

impl<K: Kind> Session for FjallSession<'_, K> {
    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), SideError> {
        Ok(self.0.put(key, value).map_err(failed)?)
    }

    #[inline]
    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<(), SideError> {
        copy(key, self.0.keyspace().get(key).map_err(failed)?.as_deref(), value)
    }

    #[inline]
    fn transact<const N: usize>(
        &mut self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        self.0.transact(keys, values, change)
    }

    fn scan(&mut self, mut look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError> {
        for entry in self.0.snapshot().iter(self.0.keyspace()) {
            let (key, value) = entry.into_inner().map_err(failed)?;
            look(&key, &value);
        }
        Ok(true)
    }
}
