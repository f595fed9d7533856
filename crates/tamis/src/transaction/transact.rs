//! Beginning transactions, and retrying them after a conflict.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::error::TransactionError;
use crate::handles::handle::Db;
use crate::sync;
use crate::transaction::optimistic::Transaction;
use crate::transaction::options::TransactionOptions;

/// The maximum pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The pauses between attempts: each is drawn from a range that doubles, so that colliding
/// transactions spread out. The first attempts do not pause: the winner has committed already.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    random: u64,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        static SEEDS: AtomicU64 = AtomicU64::new(1);
        let seed = SEEDS.fetch_add(1, Relaxed);
        Backoff { attempts: 0, random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// Returns how many attempts have failed so far.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Pauses after a failed attempt.
    pub(crate) fn pause(&mut self) {
        self.attempts += 1;
        let Some(doublings) = self.attempts.checked_sub(3) else { return };
        // Xorshift: any numbers that differ between threads will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let longest = Duration::from_micros(1 << doublings.min(20)).min(LONGEST_PAUSE);
        sync::thread::sleep(longest.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64));
    }
}

impl Db {
    /// Begins a serializable transaction. It costs as much as a [snapshot](Db::snapshot).
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(TransactionOptions::default())
    }

    /// Begins a transaction with its own isolation and durability.
    pub fn transaction_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::begin(self, options)
    }

    /// Calls `body` with a serializable transaction and commits it. After a conflict, all of this
    /// is repeated with a new transaction, after a pause that grows. So `body` should have no
    /// effects other than through the transaction.
    ///
    /// # Errors
    ///
    /// That of `body`: nothing is committed, and `body` is not retried. Otherwise that of
    /// [`Transaction::commit`]. A conflict is returned after 100 attempts; [`Db::transact_with`]
    /// sets another limit.
    ///
    /// ```
    /// use tamis::{Db, Error};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let db = Db::open(dir.path())?;
    /// let number = db.transact(|transaction| {
    ///     let last = transaction.get("last")?.map_or(0, |last| last[0]);
    ///     transaction.put("last", [last + 1])?;
    ///     Ok::<_, Error>(last + 1)
    /// })?;
    /// assert_eq!(number, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transact<T, E: From<TransactionError>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_with(TransactionOptions::default(), body)
    }

    /// Like [`transact`](Db::transact), with other options.
    ///
    /// # Errors
    ///
    /// Those of [`transact`](Db::transact).
    pub fn transact_with<T, E: From<TransactionError>>(
        &self,
        options: TransactionOptions,
        mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut backoff = Backoff::new();
        loop {
            let mut transaction = self.transaction_with(options);
            let result = body(&mut transaction)?;
            match transaction.commit() {
                Ok(_) => return Ok(result),
                Err(error) if error.is_retryable() && backoff.attempts() + 1 < options.attempts => {
                    backoff.pause();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
