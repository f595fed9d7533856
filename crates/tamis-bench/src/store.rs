//! The interface between workloads and engines.

use std::ops::ControlFlow;

use tamis::Db;

use crate::error::BenchError;

/// An open store that workloads run against. Threads share it; each uses its own [`Session`].
pub trait Store: Sync {
    /// The state of one thread between operations: options, buffers, transactions.
    type Session<'s>: Session
    where
        Self: 's;

    /// Returns a session for the calling thread.
    fn session(&self) -> Result<Self::Session<'_>, BenchError>;
}

/// The operations of one thread. Answers are passed to a closure and are valid only there, so that
/// an engine that lends bytes need not copy them.
pub trait Session {
    /// Puts a value under a key, as durably as the store is configured.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError>;

    /// Gets a key's value.
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError>;

    /// Gets the values of several keys, by the engine's own call for that if it has one. `look` is
    /// called with the index of each key, once and in order, and its value, until it breaks.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError>;

    /// Scans keys with a new iterator from `low` (included) to `high` (included, if given) in
    /// ascending order, until `look` breaks.
    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError>;

    /// Scans keys with a new iterator from `high` (included) in descending order, until `look`
    /// breaks.
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
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let mut iter = match high {
            Some(high) => self.range(low..=high),
            None => self.range(low..),
        };
        while let Some(item) = iter.next_ref() {
            let (key, value) = item?;
            if look(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn scan_back(
        &mut self,
        high: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let mut iter = self.range(..=high);
        while let Some(item) = iter.next_back_ref() {
            let (key, value) = item?;
            if look(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}
