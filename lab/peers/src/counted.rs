//! A store that counts the bytes put into it. Threads count separately; the counts are added when their sessions end.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

/// A store, and the number of bytes of keys and values put into it.
///
/// Sessions add with relaxed ordering as they end. [`put_bytes`](Counted::put_bytes) takes `&mut self`: no session is
/// alive then, and joining their threads ordered their additions before.
pub(crate) struct Counted<'e, E> {
    store: &'e E,
    put_bytes: AtomicU64,
}

impl<'e, E> Counted<'e, E> {
    /// Wraps a store, with a count of 0.
    pub(crate) fn new(store: &'e E) -> Self {
        Counted { store, put_bytes: AtomicU64::new(0) }
    }

    /// Returns the size of the keys and values of all successful puts.
    pub(crate) fn put_bytes(&mut self) -> u64 {
        *self.put_bytes.get_mut()
    }
}

impl<E: Store> Store for Counted<'_, E> {
    type Session<'s>
        = CountedSession<'s, E::Session<'s>>
    where
        Self: 's;

    fn session(&self) -> Result<Self::Session<'_>, BenchError> {
        Ok(CountedSession { session: self.store.session()?, put_bytes: 0, total: &self.put_bytes })
    }
}

/// One thread's session.
pub(crate) struct CountedSession<'s, S> {
    session: S,
    put_bytes: u64,
    total: &'s AtomicU64,
}

impl<S> Drop for CountedSession<'_, S> {
    fn drop(&mut self) {
        self.total.fetch_add(self.put_bytes, Ordering::Relaxed);
    }
}

impl<S: Session> Session for CountedSession<'_, S> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.session.put(key, value)?;
        self.put_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        self.session.get(key, look)
    }

    #[inline]
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        self.session.multi_get(keys, look)
    }

    #[inline]
    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        self.session.scan(low, high, look)
    }

    #[inline]
    fn scan_back(
        &mut self,
        high: &[u8],
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        self.session.scan_back(high, look)
    }
}
