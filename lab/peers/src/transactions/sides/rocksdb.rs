//! RocksDB: `OptimisticTransactionDB` and `TransactionDB`, opened with the options of the plain engine.
//!
//! Source: the page "Transactions" of RocksDB's guide, `utilities/optimistic_transaction_db.h`, `transaction_db.h`.
//!
//! * Keys are read with `GetForUpdate`, exclusively: only then does an optimistic transaction validate what it has read,
//!   and a pessimistic one hold others off. Neither takes a snapshot: each key is validated as of its own read.
//! * A transaction that ends as `Busy`, `TryAgain` or `TimedOut` is begun again at once, as RocksDB has no loop of its own.
//! * `TransactionDB` detects deadlocks only if it is asked to (`deadlock_detect`): for transactions of two keys, which
//!   may meet in either order. Without, each deadlock would end by the timeout of a second.
//! * A plain put into `TransactionDB` is a transaction of its own inside, which locks its key. Into
//!   `OptimisticTransactionDB` it goes directly to the engine below.
//! * A read-only transaction is a snapshot with an iterator, as the guide advises.
//! * The C API cannot reuse the memory of a finished transaction (`BeginTransaction` with an old one can in C++).

use ::rocksdb::{
    Cache, DBAccess, Error, ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions, Options,
    ReadOptions, SnapshotWithThreadMode, Transaction, TransactionDB, TransactionDBOptions,
    TransactionOptions, WaitForCompactOptions, WriteOptions,
};

use crate::engines::rocksdb::{failed, options_of};
use crate::engines::{Setup, shared};
use crate::transactions::data::Key;
use crate::transactions::side::{Session, Side, SideError, absent, copy};

/// A kind of database with transactions.
pub(crate) trait Kind: DBAccess + Sync + Sized {
    /// The options of a transaction.
    type Options;

    /// Opens or creates a database.
    fn open(options: &Options, setup: &Setup) -> Result<Self, Error>;
    /// Returns the options of transactions of one key, or of several.
    fn options(several: bool) -> Self::Options;
    /// Begins a transaction.
    fn begin(&self, write: &WriteOptions, options: &Self::Options) -> Transaction<'_, Self>;
    /// Puts a value.
    fn put(&self, key: &Key, value: &[u8], write: &WriteOptions) -> Result<(), Error>;
    /// Flushes memtables, and waits until there is no compaction left.
    fn settle(&self) -> Result<(), Error>;
    /// Writes the log.
    fn flush_log(&self) -> Result<(), Error>;
}

impl Kind for OptimisticTransactionDB {
    type Options = OptimisticTransactionOptions;

    fn open(options: &Options, setup: &Setup) -> Result<Self, Error> {
        OptimisticTransactionDB::open(options, &setup.dir)
    }

    fn options(_: bool) -> OptimisticTransactionOptions {
        OptimisticTransactionOptions::default()
    }

    #[inline]
    fn begin(&self, write: &WriteOptions, options: &Self::Options) -> Transaction<'_, Self> {
        self.transaction_opt(write, options)
    }

    #[inline]
    fn put(&self, key: &Key, value: &[u8], write: &WriteOptions) -> Result<(), Error> {
        self.put_opt(key, value, write)
    }

    fn settle(&self) -> Result<(), Error> {
        self.flush()?;
        self.wait_for_compact(&WaitForCompactOptions::default())
    }

    fn flush_log(&self) -> Result<(), Error> {
        self.flush_wal(false)
    }
}

impl Kind for TransactionDB {
    type Options = TransactionOptions;

    fn open(options: &Options, setup: &Setup) -> Result<Self, Error> {
        TransactionDB::open(options, &TransactionDBOptions::default(), &setup.dir)
    }

    fn options(several: bool) -> TransactionOptions {
        let mut options = TransactionOptions::default();
        options.set_deadlock_detect(several);
        options
    }

    #[inline]
    fn begin(&self, write: &WriteOptions, options: &Self::Options) -> Transaction<'_, Self> {
        self.transaction_opt(write, options)
    }

    #[inline]
    fn put(&self, key: &Key, value: &[u8], write: &WriteOptions) -> Result<(), Error> {
        self.put_opt(key, value, write)
    }

    /// The binding has no call to wait for compactions; one flushed memtable leads to none.
    fn settle(&self) -> Result<(), Error> {
        self.flush()
    }

    fn flush_log(&self) -> Result<(), Error> {
        self.flush_wal(false)
    }
}

/// An open database of this kind.
pub(crate) struct RocksSide<D> {
    db: D,
    sync: bool,
}

/// A thread's session.
pub(crate) struct RocksSession<'s, D: Kind> {
    db: &'s D,
    read: ReadOptions,
    write: WriteOptions,
    one: D::Options,
    several: D::Options,
}

impl<D: Kind> Side for RocksSide<D> {
    type Session<'s>
        = RocksSession<'s, D>
    where
        D: 's;

    fn open(setup: &Setup) -> Result<Self, SideError> {
        shared::make_dir(setup)?;
        let capacity = shared::size(setup.cache_bytes);
        let cache = (capacity > 0).then(|| Cache::new_hyper_clock_cache(capacity, 0));
        let db = D::open(&options_of(setup, cache.as_ref(), false), setup).map_err(failed)?;
        Ok(RocksSide { db, sync: setup.sync })
    }

    fn settle(&self) -> Result<(), SideError> {
        Ok(self.db.settle().map_err(failed)?)
    }

    fn session(&self) -> RocksSession<'_, D> {
        let mut write = WriteOptions::default();
        write.set_sync(self.sync);
        let (one, several) = (D::options(false), D::options(true));
        RocksSession { db: &self.db, read: ReadOptions::default(), write, one, several }
    }

    fn close(self) -> Result<(), SideError> {
        Ok(self.db.flush_log().map_err(failed)?)
    }
}

/// How an attempt ended.
enum Attempt {
    Committed,
    /// A key was not there.
    Absent(Key),
}

impl<D: Kind> RocksSession<'_, D> {
    fn attempt<const N: usize>(
        &self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        change: &mut impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<Attempt, Error> {
        let options = if N == 1 { &self.one } else { &self.several };
        let transaction = self.db.begin(&self.write, options);
        for (key, value) in keys.iter().zip(&mut *values) {
            let found = transaction.get_pinned_for_update_opt(key, true, &self.read)?;
            if copy(key, found.as_deref(), value).is_err() {
                return Ok(Attempt::Absent(**key));
            }
        }
        change(values);
        for (key, value) in keys.iter().zip(&*values) {
            transaction.put(key, value)?;
        }
        transaction.commit()?;
        Ok(Attempt::Committed)
    }
}

impl<D: Kind> Session for RocksSession<'_, D> {
    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), SideError> {
        Ok(self.db.put(key, value, &self.write).map_err(failed)?)
    }

    #[inline]
    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<(), SideError> {
        copy(key, self.db.get_pinned_opt(key, &self.read).map_err(failed)?.as_deref(), value)
    }

    #[inline]
    fn transact<const N: usize>(
        &mut self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        let mut retries = 0;
        loop {
            match self.attempt(keys, values, &mut change) {
                Ok(Attempt::Committed) => return Ok(retries),
                Ok(Attempt::Absent(key)) => return Err(absent(&key)),
                Err(error) if is_retryable(&error) => retries += 1,
                Err(error) => return Err(failed(error).into()),
            }
        }
    }

    fn scan(&mut self, mut look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError> {
        let snapshot = SnapshotWithThreadMode::new(self.db);
        let mut entries = snapshot.raw_iterator();
        entries.seek_to_first();
        while let Some((key, value)) = entries.item() {
            look(key, value);
            entries.next();
        }
        entries.status().map_err(failed)?;
        Ok(true)
    }
}

/// Reports whether another attempt may succeed.
fn is_retryable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::TimedOut)
}
