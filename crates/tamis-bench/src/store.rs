//! What a workload asks of an engine, whichever it is.

use std::ops::ControlFlow;

use tamis::Db;

use crate::error::BenchError;

/// An open store that workloads run against. Threads share it; each asks through a [`Session`] of its own.
pub trait Store: Sync {
    /// What one thread holds on to between operations: options, buffers, transactions that the engine wants.
    type Session<'s>: Session
    where
        Self: 's;

    /// A session for the calling thread.
    fn session(&self) -> Result<Self::Session<'_>, BenchError>;
}

/// The operations of one thread. Answers go to a closure, so that an engine that hands out borrowed bytes need not
/// copy them; they are only valid there.
pub trait Session {
    /// Puts a value under a key, as durably as the store was told to.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError>;

    /// Asks for a key's value.
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError>;

    /// Asks for the values of several keys at once, by the engine's own call for it if it has one. `look` gets the
    /// place of each key, once and in order, and its value, until it breaks.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError>;

    /// A new iterator over keys from `low` (included) on, to `high` (included) if there is one, in ascending order, until
    /// `look` breaks.
    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError>;

    /// A new iterator over keys from `high` (included) on in descending order, until `look` breaks.
    fn scan_back(
        &mut self,
        high: &[u8],
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError>;
}

impl Store for Db {
    type Session<'s> = &'s Db;

    fn session(&self) -> Result<&Db, BenchError> {
        Ok(self)
    }
}

impl Session for &Db {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        Ok(Db::put(self, key, value)?)
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Ok(look(Db::get(self, key)?.as_deref()))
    }

    #[inline]
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        for (place, answer) in Db::multi_get(self, keys)?.iter().enumerate() {
            if look(place, answer.as_deref()).is_break() {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        match high {
            Some(high) => look_at(self.range(low..=high), look),
            None => look_at(self.range(low..), look),
        }
    }

    #[inline]
    fn scan_back(
        &mut self,
        high: &[u8],
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        look_at(self.range(..=high).rev(), look)
    }
}

#[inline]
fn look_at(
    entries: impl Iterator<Item = Result<(tamis::Slice, tamis::Slice), tamis::ReadError>>,
    mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), BenchError> {
    for entry in entries {
        let (key, value) = entry?;
        if look(&key, &value).is_break() {
            break;
        }
    }
    Ok(())
}
