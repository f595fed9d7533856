//! Savepoints: the state before each change since the first savepoint, so that changes can be
//! undone in reverse.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::TransactionError;
use crate::read::pending::Before;

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A point in a transaction to roll back to: see
/// [`Transaction::savepoint`](crate::Transaction::savepoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Unique in the process.
    number: u64,
}

/// The savepoints of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Savepoints {
    /// Each savepoint with the number of changes before it.
    set: Vec<(Savepoint, usize)>,
    /// The changes since the first savepoint: the keyspace's place, and the state before the
    /// change.
    changes: Vec<(usize, Before)>,
}

impl Savepoints {
    /// Reports whether changes may have to be undone.
    pub(crate) fn any(&self) -> bool {
        !self.set.is_empty()
    }

    /// Notes a change that may have to be undone.
    pub(crate) fn note(&mut self, place: usize, before: Before) {
        self.changes.push((place, before));
    }

    pub(crate) fn set(&mut self) -> Savepoint {
        let savepoint = Savepoint { number: NUMBERS.fetch_add(1, Relaxed) };
        self.set.push((savepoint, self.changes.len()));
        savepoint
    }

    /// Returns the changes since a savepoint, latest first, and forgets them and the savepoints
    /// after it.
    pub(crate) fn undone(&mut self, savepoint: Savepoint) -> Result<Vec<(usize, Before)>, TransactionError> {
        let found = self.set.iter().position(|(set, _)| *set == savepoint);
        let place = found.ok_or(TransactionError::NoSavepoint)?;
        self.set.truncate(place + 1);
        let mut undone = self.changes.split_off(self.set[place].1);
        undone.reverse();
        Ok(undone)
    }
}
