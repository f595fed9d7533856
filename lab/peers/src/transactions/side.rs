//! What each side implements.

use tamis_bench::BenchError;

use super::data::{Key, hex};
use crate::engines::Setup;

/// One way to run transactions in one engine. Threads share it; each has a session of its own.
pub(crate) trait Side: Sized + Sync {
    /// The state of one thread between operations.
    type Session<'s>: Session
    where
        Self: 's;

    /// Creates the database.
    fn open(setup: &Setup) -> Result<Self, SideError>;

    /// Puts entries into the empty database.
    fn load(&self, entries: impl Iterator<Item = (Key, Vec<u8>)>) -> Result<(), SideError> {
        let mut session = self.session();
        for (key, value) in entries {
            session.put(&key, &value)?;
        }
        Ok(())
    }

    /// Flushes memtables, and waits until there is no background work left.
    fn settle(&self) -> Result<(), SideError>;

    /// Returns a session for the calling thread.
    fn session(&self) -> Self::Session<'_>;

    /// Closes the database.
    fn close(self) -> Result<(), SideError>;
}

/// The operations of one thread.
pub(crate) trait Session {
    /// Puts a value in the engine's cheapest way, outside of any transaction if it has such a way.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), SideError>;

    /// Copies a key's value into `value`, outside of any transaction.
    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<(), SideError>;

    /// Reads `keys`, which differ, into `values`, changes these, and writes them back, as one transaction. It is
    /// repeated in the engine's own way until it commits. Returns the number of failed attempts.
    fn transact<const N: usize>(
        &mut self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError>;

    /// Passes all entries to `look`, in order, within one read-only transaction. Returns whether that succeeded;
    /// otherwise others have interfered.
    fn scan(&mut self, look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError>;
}

/// The reason why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SideError {
    /// What was read contradicts what was acknowledged.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// The engine or the system failed.
    #[error(transparent)]
    Engine(#[from] BenchError),
}

/// Copies what was found under a key that exists.
#[inline]
pub(crate) fn copy(key: &Key, found: Option<&[u8]>, into: &mut Vec<u8>) -> Result<(), SideError> {
    let Some(found) = found else { return Err(absent(key)) };
    into.clear();
    into.extend_from_slice(found);
    Ok(())
}

/// Returns the error of a key that is absent though it was never deleted.
#[cold]
pub(crate) fn absent(key: &Key) -> SideError {
    SideError::Wrong(format!("key {} is absent", hex(key)))
}
