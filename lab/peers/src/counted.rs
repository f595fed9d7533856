//! A store that counts and times every put. Threads count separately; the counts are added when their sessions end.
//!
//! A sample would miss the slowest puts, so each one is timed: two readings of the clock, some 50 ns, which are part of
//! every engine's figures. With batches a session collects puts and hands them to the engine together; the time of such
//! a write, from the first entry given to the engine's batch until the engine returns, is that of one put.

use std::ops::{AddAssign, ControlFlow};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tamis_bench::BenchError;
use tamis_bench::histogram::Histogram;
use tamis_bench::store::{Session, Store};

use crate::engines::{Batch, Engine};

/// The puts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Puts {
    /// Size of the keys and values of all successful puts.
    pub bytes: u64,
    /// Durations of all puts, or of all batches.
    pub latency: Histogram,
    /// The longest of them in nanoseconds.
    pub slowest_ns: u64,
    /// Number of puts that returned in each second since the store was wrapped.
    pub seconds: Vec<u32>,
    /// Those that took longer than [`with_slow`](Counted::with_slow) says.
    pub slow: Vec<Slow>,
}

/// A slow put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    /// The kernel's number of its thread.
    pub thread: u32,
    /// When it was called.
    pub begun: Instant,
    /// When it returned.
    pub ended: Instant,
}

impl Puts {
    fn record(&mut self, (since, slow): (Instant, Duration), begun: Instant, puts: u32) {
        let ended = Instant::now();
        if ended - begun > slow {
            let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            self.slow.push(Slow { thread, begun, ended });
        }
        let ns = u64::try_from((ended - begun).as_nanos()).unwrap_or(u64::MAX);
        self.latency.record(ns);
        self.slowest_ns = self.slowest_ns.max(ns);
        let second = (ended - since).as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += puts;
    }
}

impl AddAssign<&Puts> for Puts {
    fn add_assign(&mut self, other: &Puts) {
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.slowest_ns = self.slowest_ns.max(other.slowest_ns);
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), 0);
        }
        self.seconds.iter_mut().zip(&other.seconds).for_each(|(mine, theirs)| *mine += theirs);
        self.slow.extend_from_slice(&other.slow);
    }
}

/// A store, and the puts of its sessions that have ended.
pub(crate) struct Counted<'e, E> {
    store: &'e E,
    batch_puts: usize,
    since: Instant,
    /// Puts that take longer are kept one by one.
    slow: Duration,
    ended: Mutex<Ended>,
}

#[derive(Default)]
struct Ended {
    puts: Puts,
    /// The error of an incomplete last batch, which was written as its session ended.
    error: Option<BenchError>,
}

impl<'e, E> Counted<'e, E> {
    /// Wraps a store: puts are handed to it in batches of so many, or one by one if it is 1.
    pub(crate) fn new(store: &'e E, batch_puts: usize) -> Self {
        Counted { store, batch_puts, since: Instant::now(), slow: Duration::MAX, ended: Mutex::default() }
    }

    /// Keeps all puts that take longer than this.
    pub(crate) fn with_slow(self, slow: Duration) -> Self {
        Counted { slow, ..self }
    }

    /// Returns the puts of all sessions.
    ///
    /// # Errors
    ///
    /// An incomplete last batch could not be written.
    pub(crate) fn puts(self) -> Result<Puts, BenchError> {
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        ended.error.map_or(Ok(ended.puts), Err)
    }
}

impl<E: Engine> Store for Counted<'_, E> {
    type Session<'s>
        = CountedSession<'s, E>
    where
        Self: 's;

    fn session(&self) -> Result<Self::Session<'_>, BenchError> {
        Ok(CountedSession {
            session: self.store.session()?,
            batch: Batch::default(),
            batch_puts: self.batch_puts,
            since: (self.since, self.slow),
            puts: Puts::default(),
            ended: &self.ended,
        })
    }
}

/// One thread's session.
pub(crate) struct CountedSession<'s, E: Engine + 's> {
    session: E::Session<'s>,
    batch: Batch,
    batch_puts: usize,
    /// The time of the first second, and that of a slow put.
    since: (Instant, Duration),
    puts: Puts,
    ended: &'s Mutex<Ended>,
}

impl<E: Engine> CountedSession<'_, E> {
    fn write(&mut self) -> Result<(), BenchError> {
        let begun = Instant::now();
        E::write(&mut self.session, &self.batch)?;
        self.puts.record(self.since, begun, self.batch.puts() as u32);
        self.batch.clear();
        Ok(())
    }
}

impl<E: Engine> Drop for CountedSession<'_, E> {
    fn drop(&mut self) {
        let written = if self.batch.puts() > 0 { self.write() } else { Ok(()) };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.puts += &self.puts;
        ended.error = ended.error.take().or(written.err());
    }
}

impl<E: Engine> Session for CountedSession<'_, E> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        if self.batch_puts > 1 {
            self.batch.push(key, value);
            if self.batch.puts() == self.batch_puts {
                self.write()?;
            }
        } else {
            let begun = Instant::now();
            self.session.put(key, value)?;
            self.puts.record(self.since, begun, 1);
        }
        self.puts.bytes += (key.len() + value.len()) as u64;
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
