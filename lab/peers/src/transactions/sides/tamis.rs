//! tamis: four ways to change a key, over the same plain reads and writes.
//!
//! | side | change of keys | read-only transaction |
//! | --- | --- | --- |
//! | `tamis` | `transact`: optimistic, serializable, repeated with growing pauses | a transaction, committed |
//! | `tamis-snapshot` | the same with snapshot isolation | the same |
//! | `tamis-locking` | a locking transaction that gets for update, repeated at once after a deadlock or a timeout | a snapshot |
//! | `tamis-update` | `update`, which has one key only | a snapshot |
//!
//! `transact` gives up after 100 attempts, and is then called again.

use std::marker::PhantomData;

use tamis::transactions::{Isolation, TransactionOptions};
use tamis::{Db, TransactionError};
use tamis_bench::BenchError;

use crate::engines::{Engine, Setup, tamis::Tamis};
use crate::transactions::data::Key;
use crate::transactions::side::{Session, Side, SideError, absent, copy};

/// A way to run transactions.
pub(crate) trait Way: Sync {
    /// See [`Session::transact`].
    fn transact<const N: usize>(
        db: &Db,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError>;

    /// See [`Session::scan`]. Reads from a snapshot, unless it is overridden.
    fn scan(db: &Db, mut look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError> {
        for entry in db.snapshot().iter() {
            let (key, value) = entry.map_err(failed)?;
            look(&key, &value);
        }
        Ok(true)
    }
}

/// Optimistic transactions, serializable or (`SERIALIZABLE` is false) with snapshot isolation.
pub(crate) struct Optimistic<const SERIALIZABLE: bool>;
/// Locking transactions.
pub(crate) struct Locking;
/// Atomic changes of one key.
pub(crate) struct Update;

/// tamis with one way to run transactions.
pub(crate) struct TamisSide<W> {
    engine: Tamis,
    way: PhantomData<W>,
}

/// A thread's session.
pub(crate) struct TamisSession<'s, W> {
    db: &'s Db,
    way: PhantomData<W>,
}

impl<W: Way> Side for TamisSide<W> {
    type Session<'s>
        = TamisSession<'s, W>
    where
        W: 's;

    fn open(setup: &Setup) -> Result<Self, SideError> {
        let (engine, _) = Tamis::open(setup)?;
        Ok(TamisSide { engine, way: PhantomData })
    }

    fn settle(&self) -> Result<(), SideError> {
        Ok(self.engine.settle()?)
    }

    fn session(&self) -> TamisSession<'_, W> {
        TamisSession { db: self.engine.db(), way: PhantomData }
    }

    fn close(self) -> Result<(), SideError> {
        Ok(self.engine.close()?)
    }
}

impl<W: Way> Session for TamisSession<'_, W> {
    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), SideError> {
        self.db.put(key, value).map_err(failed)
    }

    #[inline]
    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<(), SideError> {
        copy(key, self.db.get(key).map_err(failed)?.as_deref(), value)
    }

    #[inline]
    fn transact<const N: usize>(
        &mut self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        W::transact(self.db, keys, values, change)
    }

    fn scan(&mut self, look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError> {
        W::scan(self.db, look)
    }
}

impl<const SERIALIZABLE: bool> Optimistic<SERIALIZABLE> {
    fn options() -> TransactionOptions {
        let isolation = if SERIALIZABLE { Isolation::Serializable } else { Isolation::Snapshot };
        TransactionOptions { isolation, ..TransactionOptions::default() }
    }
}

impl<const SERIALIZABLE: bool> Way for Optimistic<SERIALIZABLE> {
    #[inline]
    fn transact<const N: usize>(
        db: &Db,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        let mut attempts = 0;
        loop {
            let done = db.transact_with(Self::options(), |transaction| {
                attempts += 1;
                for (key, value) in keys.iter().zip(&mut *values) {
                    copy(key, transaction.get(key).map_err(failed)?.as_deref(), value)?;
                }
                change(values);
                for (key, value) in keys.iter().zip(&*values) {
                    transaction.put(key, value).map_err(failed)?;
                }
                Ok::<_, SideError>(())
            });
            match done {
                Ok(()) => return Ok(attempts - 1),
                Err(error) if is_retryable(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn scan(db: &Db, mut look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError> {
        let transaction = db.transaction_with(Self::options());
        for entry in transaction.iter() {
            let (key, value) = entry.map_err(failed)?;
            look(&key, &value);
        }
        unless_retryable(transaction.commit())
    }
}

impl Way for Locking {
    #[inline]
    fn transact<const N: usize>(
        db: &Db,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        let mut attempt = || -> Result<(), SideError> {
            let mut transaction = db.lock_transaction()?;
            for (key, value) in keys.iter().zip(&mut *values) {
                copy(key, transaction.get_for_update(key)?.as_deref(), value)?;
            }
            change(values);
            for (key, value) in keys.iter().zip(&*values) {
                transaction.put(key, value)?;
            }
            transaction.commit()?;
            Ok(())
        };
        let mut retries = 0;
        loop {
            match attempt() {
                Ok(()) => return Ok(retries),
                Err(error) if is_retryable(&error) => retries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Way for Update {
    #[inline]
    fn transact<const N: usize>(
        db: &Db,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        let [key] = keys[..] else {
            return Err(BenchError::Request("an update has one key".to_owned()).into());
        };
        let mut attempts = 0;
        loop {
            let done = db.update(key, |current| {
                attempts += 1;
                copy(key, current, &mut values[0]).ok()?;
                change(values);
                Some(values[0].clone())
            });
            match done {
                Ok(Some(_)) => return Ok(attempts - 1),
                Ok(None) => return Err(absent(key)),
                // After a thousand attempts.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl From<TransactionError> for SideError {
    fn from(error: TransactionError) -> SideError {
        failed(error)
    }
}

fn failed(error: impl Into<tamis::Error>) -> SideError {
    SideError::Engine(BenchError::Database(error.into()))
}

fn is_retryable(error: &SideError) -> bool {
    match error {
        SideError::Engine(BenchError::Database(tamis::Error::Transaction(error))) => error.is_retryable(),
        _ => false,
    }
}

fn unless_retryable<T>(result: Result<T, TransactionError>) -> Result<bool, SideError> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
