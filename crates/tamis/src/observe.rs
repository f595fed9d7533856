//! What a database reports while it works: how long operations take, why writes wait, and events
//! for listeners.
//!
//! The parts of the engine share one [`Observer`]. They record and raise events from any thread and
//! under any lock: recording is a few relaxed additions, and an [event](events) goes into a queue
//! whose lock is a leaf. The program's code runs on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::sync::{self, Process};

pub(crate) mod cost;
pub(crate) mod events;
pub(crate) mod latency;
mod queue;
mod slow;
mod stalls;
pub(crate) mod warnings;
pub(crate) mod write_counters;

use events::{Event, EventListener, SlowOperation};
use latency::{LatencyCounters, Operation};
pub(crate) use queue::EventQueue;
use slow::Slow;
pub use stalls::StallCause;

/// Enters a span of the crate `tracing` until the end of the block, with the feature `tracing`.
/// Without the feature, the fields are not evaluated.
macro_rules! span {
    ($name:literal $(, $($field:tt)*)?) => {
        #[cfg(feature = "tracing")]
        let _span = ::tracing::info_span!(target: "tamis", $name $(, $($field)*)?).entered();
    };
}
pub(crate) use span;

/// How often and how long writes have waited for one cause since the database was opened. Writes
/// queued behind a waiting write are not counted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StallStats {
    /// The cause.
    pub cause: StallCause,
    /// The number of waits; for slowdowns, the number of commits due for a delay.
    pub count: u64,
    /// Their total time in nanoseconds.
    pub nanos: u64,
}

#[derive(Debug, Default)]
struct StallCounter {
    count: AtomicU64,
    nanos: AtomicU64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Observer {
    dir: PathBuf,
    /// The process that opened the database.
    process: Process,
    latencies: LatencyCounters,
    stalls: [StallCounter; StallCause::ALL.len()],
    queue: EventQueue,
    slow: Option<Slow>,
}

impl Observer {
    /// The database's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the process that opened the database.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    pub(crate) fn new(
        dir: &Path,
        listeners: &[Arc<dyn EventListener>],
        slow_threshold: Option<Duration>,
    ) -> Arc<Observer> {
        Arc::new(Observer {
            dir: dir.to_owned(),
            process: Process::current(),
            latencies: LatencyCounters::default(),
            stalls: Default::default(),
            queue: EventQueue::new(listeners),
            slow: slow_threshold.map(Slow::new),
        })
    }

    pub(crate) fn queue(&self) -> &EventQueue {
        &self.queue
    }

    pub(crate) fn latencies(&self) -> &LatencyCounters {
        &self.latencies
    }

    /// Raises an event, which is built only if there is a listener.
    #[inline]
    pub(crate) fn raise(&self, event: impl FnOnce() -> Event) {
        if self.queue.has_listeners() {
            self.queue.push(event());
        }
    }

    /// Reports whether to time every operation.
    #[inline]
    pub(crate) fn times_all(&self) -> bool {
        self.slow.is_some()
    }

    /// Records how long an operation took since `started`. If that reaches the threshold and the
    /// report limit allows it, calls `explain` for what the operation did and reports both to the
    /// program's log and to listeners.
    #[cold]
    pub(crate) fn timed(&self, operation: Operation, started: Instant, explain: impl FnOnce() -> Explained) {
        let took = sync::since(started);
        self.latencies.record(operation, took);
        let Some((slow, unreported)) = self.slow.as_ref().and_then(|slow| Some((slow, slow.admits(took)?)))
        else {
            return;
        };
        let Explained { keyspace, key, explanation } = explain();
        let event = SlowOperation { operation, keyspace, key, took, explanation, unreported };
        log::warn!("{}: {event} (threshold: {:?})", self.dir.display(), slow.threshold());
        #[cfg(feature = "tracing")]
        ::tracing::warn!(
            target: "tamis",
            operation = operation.name(),
            keyspace = %event.keyspace,
            nanos = took.as_nanos() as u64,
            explanation = %event.explanation,
            "slow operation"
        );
        self.raise(|| Event::SlowOperation(event));
    }

    /// Records how long background work took.
    pub(crate) fn record(&self, operation: Operation, took: Duration) {
        self.latencies.record(operation, took);
    }

    /// Counts a write's wait.
    pub(crate) fn waited(&self, cause: StallCause, took: Duration) {
        let counter = &self.stalls[cause as usize];
        counter.count.fetch_add(1, Relaxed);
        counter.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the waits by cause, each cause once.
    pub(crate) fn stalls(&self) -> Vec<StallStats> {
        let read = |&cause: &StallCause| {
            let counter = &self.stalls[cause as usize];
            StallStats { cause, count: counter.count.load(Relaxed), nanos: counter.nanos.load(Relaxed) }
        };
        StallCause::ALL.iter().map(read).collect()
    }
}

/// What a slow operation was about.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    pub(crate) keyspace: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) explanation: String,
}
