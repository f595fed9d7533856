//! The throttle: every reason for which a write waits before it is logged.
//!
//! | reason | the write |
//! | --- | --- |
//! | the tree's shape forbids writes ([`pressure`](crate::catalogue::pressure)) | stalls until compactions have changed the shape |
//! | compactions lag behind, or the last free memtable fills up | is slowed down to a rate |
//! | its keyspace's memtable is full, and no more may queue for flushing | stalls until one is flushed |
//! | all memtables exceed their budget, or the budget shared with other databases | stalls until flushes have brought them below it |
//! | the logs exceed [`max_log_bytes`](crate::Options::max_log_bytes) | stalls until flushes have made the oldest obsolete |
//!
//! # Invariants
//!
//! * A write stalls only for work that is due, running or in backoff. If that work fails repeatedly
//!   or lacks room, the write gets the reason as an error, and may be retried.
//! * Without pressure in the last 30 s, a group of writes costs a few loads.
//!
//! # Threads and locks
//!
//! [`make_room`](Throttle::make_room) is called by the holder of the log's lock, which takes
//! `state` while it stalls; so other writers wait behind it. All fields are atomics that publish
//! nothing (`Relaxed`). The flush rate is written by the flush thread, the others by the holder of
//! the log's lock.
//!
//! # Failures and poison
//!
//! A stall ends with an error when the database is being closed, or when writes are suspended or
//! stop for good: waiting threads are woken, or check again within a second.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tamis_policy::compaction::policy::Pressure;

use crate::catalogue::filled::Filled;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::monitor::Monitor;
use crate::catalogue::state::State;
use crate::error::{StorageError, WriteError};
use crate::gate::Gate;
use crate::log::{Current, Log};
use crate::memory::writes::{InMemtables, WriteMembership, Writer};
use crate::memtable::ChunkPool;
use crate::observe::events::Event;
use crate::observe::latency::Operation;
use crate::observe::write_counters::WriteCounters;
use crate::observe::{Observer, StallCause};
use crate::options::Options;
use crate::sync;

/// The least rate, in bytes per second, that the first writes to be slowed down have while
/// compactions lag behind.
const SLOWED_BYTES_PER_SECOND: f64 = 32e6;

/// The rate of writes is not measured over less time.
const SHORTEST_MEASUREMENT: Duration = Duration::from_millis(100);

/// How long the limit of writes outlasts the pressure: longer than level 0 takes to fill up again.
const LIMIT_LASTS: Duration = Duration::from_secs(30);

/// The least time that a write sleeps when it is slowed down: each sleep costs a context switch.
const SHORTEST_SLEEP: Duration = Duration::from_micros(250);

/// The longest delay of writes, for example by a sleep that was too long, that they make up for.
const LONGEST_DELAY: Duration = Duration::from_millis(1);

/// Slows writes down, or makes them wait, while background work lags behind.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// The most bytes that all memtables may take.
    budget: u64,
    /// The memory that they take.
    memory: Arc<ChunkPool>,
    filled: Arc<Filled>,
    /// The memory of memtables last reported to the memory shared with other databases.
    told: AtomicU64,
    /// The membership in memory shared with other databases, if any.
    share: Option<WriteMembership>,
    opened: Instant,
    /// While writes are slowed down: when the writes so far should have completed, in nanoseconds
    /// since `opened`. 0 otherwise.
    slowed_until: AtomicU64,
    /// The recent rate of writes, slowed down or not, in bytes per second; 0 if unknown.
    write_rate: AtomicU64,
    /// When that was last updated, in nanoseconds since `opened`, and the bytes written by then.
    measured: (AtomicU64, AtomicU64),
    /// The rate of writes that compactions seem to keep up with, in bytes per second.
    write_limit: AtomicU64,
    /// The recent rate at which flushes turn memtable bytes into tables, in bytes per second; 0 if
    /// unknown.
    flush_rate: AtomicU64,
    monitor: Arc<Monitor>,
    gate: Arc<Gate>,
    counters: Arc<WriteCounters>,
    observer: Arc<Observer>,
}

/// Seals the memtables of keyspaces, so that they are flushed.
pub(crate) type Seal<'s> = &'s dyn Fn(&mut Current, &[Arc<KeyspaceInner>]) -> Result<(), StorageError>;

impl Throttle {
    pub(crate) fn new(
        options: &Options,
        (memory, filled): (&Arc<ChunkPool>, &Arc<Filled>),
        share: Option<WriteMembership>,
        monitor: &Arc<Monitor>,
        gate: &Arc<Gate>,
        counters: &Arc<WriteCounters>,
        observer: &Arc<Observer>,
    ) -> Throttle {
        Throttle {
            budget: options.memtable_budget_bytes,
            memory: memory.clone(),
            filled: filled.clone(),
            told: AtomicU64::new(0),
            share,
            opened: sync::now(),
            slowed_until: AtomicU64::new(0),
            write_rate: AtomicU64::new(0),
            measured: Default::default(),
            write_limit: AtomicU64::new(0),
            flush_rate: AtomicU64::new(0),
            monitor: monitor.clone(),
            gate: gate.clone(),
            counters: counters.clone(),
            observer: observer.clone(),
        }
    }

    /// Records that a memtable of `bytes` bytes was flushed. The cost per byte is averaged with
    /// equal weight on this flush: a slow flush shows at once, and afterwards the rate at most
    /// doubles with each flush.
    pub(crate) fn note_flush(&self, bytes: u64, took: Duration) {
        let rate = rate_after(self.flush_rate.load(Relaxed), bytes, took);
        // Only the single flush thread writes it.
        self.flush_rate.store(rate, Relaxed);
    }

    /// Slows down, stalls and seals memtables so that `bytes` for the keyspaces `written` have
    /// room. Writes that only free space (`frees`) do not wait for compactions that lack room:
    /// nothing else may ever give these any.
    pub(crate) fn make_room<'k>(
        &self,
        log: &Log,
        current: &mut Current,
        written: impl Iterator<Item = &'k Arc<KeyspaceInner>>,
        bytes: usize,
        frees: &dyn Fn() -> bool,
        seal: Seal<'_>,
    ) -> Result<(), WriteError> {
        let mut rate = None;
        for keyspace in written {
            rate = slower(rate, self.rate(keyspace, frees)?);
            let full = {
                let view = keyspace.view.load();
                !view.memtables.active.memtable.is_empty()
                    && view.memtables.active.memtable.used_bytes() as u64 >= keyspace.options.memtable_bytes
            };
            if full {
                self.measure_writes(keyspace);
                self.wait_for_memtable(keyspace)?;
                seal(current, std::slice::from_ref(keyspace))?;
            }
        }
        self.slow_down(rate, bytes);
        self.keep_budget(current, seal)?;
        self.keep_share(current, seal)?;
        self.keep_log_space(log, current, bytes, seal)
    }

    /// Updates the rate of writes, and their limit, as a memtable of the keyspace is full. Those of
    /// several keyspaces may be full at the same time.
    fn measure_writes(&self, keyspace: &KeyspaceInner) {
        let (now, written) = (sync::since(self.opened), self.counters.user_bytes.get());
        let took = now.saturating_sub(Duration::from_nanos(self.measured.0.load(Relaxed)));
        let bytes = written - self.measured.1.load(Relaxed);
        if let Some(rate) = written_rate(self.write_rate.load(Relaxed), bytes, took) {
            self.measured.0.store(now.as_nanos() as u64, Relaxed);
            self.measured.1.store(written, Relaxed);
            self.write_rate.store(rate, Relaxed);
            if keyspace.limited_at.load(Relaxed) > 0 {
                let limit = next_limit(self.write_limit.load(Relaxed), keyspace.pressure.get());
                self.write_limit.store(limit, Relaxed);
            }
        }
    }

    /// Waits while the tree's shape forbids writes, then returns the maximum write rate, if there
    /// is one.
    fn rate(&self, keyspace: &KeyspaceInner, frees: &dyn Fn() -> bool) -> Result<Option<Limit>, WriteError> {
        let by_memtables = {
            let (view, options) = (keyspace.view.load(), &keyspace.options);
            let is_last =
                !view.memtables.sealed.is_empty() && view.memtables.sealed.len() + 1 >= options.max_memtables;
            let full = || view.memtables.active.memtable.used_bytes() as f64 / options.memtable_bytes as f64;
            if is_last { memtable_rate(full(), self.flush_rate.load(Relaxed)) } else { None }
        };
        if keyspace.pressure.get() == Pressure::Stop {
            let stopped = || keyspace.pressure.get() == Pressure::Stop && !keyspace.is_dropped();
            let check = |state: &State| state.scheduler.check_compactions(keyspace.id);
            match self.stall_while(StallCause::Compactions, stopped, check) {
                Err(WriteError::Suspended { .. }) if self.gate.check_health().is_ok() && frees() => {}
                waited => waited?,
            }
        }
        let by_shape =
            self.severity(keyspace).map(|severity| slowed_rate(severity, self.write_limit.load(Relaxed)));
        let limit = |rate: Option<f64>, cause| rate.map(|rate| Limit { rate, cause });
        Ok(slower(
            limit(by_shape, StallCause::SlowedByCompactions),
            limit(by_memtables, StallCause::SlowedByFlushes),
        ))
    }

    /// Returns how close the writes of a keyspace are to a stop, from 0 to 1; `None` if nothing has
    /// slowed them down lately. A limit begins with the recent rate of writes.
    fn severity(&self, keyspace: &KeyspaceInner) -> Option<f64> {
        let before = keyspace.limited_at.load(Relaxed);
        let pressure = keyspace.pressure.get();
        if before == 0 && pressure == Pressure::None {
            return None;
        }
        let now = sync::since(self.opened).as_nanos() as u64;
        let goes_on = before > 0 && now.saturating_sub(before) < LIMIT_LASTS.as_nanos() as u64;
        match pressure {
            Pressure::Slowdown(severity) => {
                if !goes_on {
                    self.write_limit.store(self.write_rate.load(Relaxed), Relaxed);
                }
                keyspace.limited_at.store(now.max(1), Relaxed);
                Some(severity)
            }
            Pressure::None if goes_on => Some(0.0),
            Pressure::None => {
                keyspace.limited_at.store(0, Relaxed);
                None
            }
            Pressure::Stop => None,
        }
    }

    /// Sleeps until writes at `rate` would have progressed this far. Idle time between writes
    /// counts, so writers slower than the rate do not wait.
    fn slow_down(&self, limit: Option<Limit>, bytes: usize) {
        let Some(Limit { rate, cause }) = limit else {
            self.slowed_until.store(0, Relaxed);
            return;
        };
        let now = sync::since(self.opened);
        let from = match self.slowed_until.load(Relaxed) {
            0 => now,
            until => Duration::from_nanos(until).max(now.saturating_sub(LONGEST_DELAY)),
        };
        let until = from + Duration::from_secs_f64(bytes as f64 / rate.max(1.0));
        self.slowed_until.store(until.as_nanos() as u64, Relaxed);
        if until <= now {
            return;
        }
        self.counters.slowdowns.add(1);
        if until - now < SHORTEST_SLEEP {
            self.observer.waited(cause, Duration::ZERO);
            return;
        }
        // Closing the database waits for the log, so check often whether it is being closed.
        let left = || until.saturating_sub(sync::since(self.opened));
        while !left().is_zero() && self.gate.check_writable().is_ok() {
            sync::thread::sleep(left().min(Duration::from_millis(50)));
        }
        let took = sync::since(self.opened) - now;
        self.counters.slowdown_nanos.add(took.as_nanos() as u64);
        self.observer.waited(cause, took);
    }

    /// Keeps all memtables within their budget. Once the active ones exceed half of it, the largest
    /// are sealed early; beyond the whole budget, the writer waits for flushes.
    fn keep_budget(&self, current: &mut Current, seal: Seal<'_>) -> Result<(), WriteError> {
        let (budget, memory) = (self.budget, &self.memory);
        if memory.active() > budget / 2 {
            // An eighth less, so that many small memtables are sealed together now and then, not
            // one with each write.
            self.seal_largest(current, budget / 2 - budget / 8, seal)?;
        }
        let over = || memory.active() + memory.sealed() > budget && memory.sealed() > 0;
        if over() {
            self.stall_while(StallCause::MemtableBudget, over, |state| state.scheduler.check_all_flushes())?;
        }
        Ok(())
    }

    /// Does the same for the memory shared with other databases. Seals the largest memtable if
    /// asked to, or if the total is exceeded, this database's largest memtable is large enough and
    /// none is sealed. Waits for this database's own flushes while all databases together exceed
    /// the total.
    fn keep_share(&self, current: &mut Current, seal: Seal<'_>) -> Result<(), WriteError> {
        let Some(share) = &self.share else { return Ok(()) };
        let taken = self.memory.taken();
        let look = share.note(taken - self.told.swap(taken, Relaxed));
        let is_over = look.is_some_and(|look| look.is_over);
        let flushes = || {
            let own = in_memtables(&self.memory, &self.filled);
            own.sealed == 0 && look.is_some_and(|look| own.largest > look.most)
        };
        if share.is_asked() || is_over && flushes() {
            self.seal_largest(current, self.memory.active().saturating_sub(1), seal)?;
            share.note_sealed();
        }
        let over = || self.memory.sealed() > 0 && share.is_over();
        if is_over && over() {
            self.stall_while(StallCause::SharedMemory, over, |state| state.scheduler.check_all_flushes())?;
        }
        Ok(())
    }

    /// Seals memtables, the largest first, until the active ones hold no more than `most` bytes.
    fn seal_largest(&self, current: &mut Current, most: u64, seal: Seal<'_>) -> Result<(), WriteError> {
        let mut candidates: Vec<_> =
            self.filled.list().into_iter().map(|keyspace| (active_bytes(&keyspace), keyspace)).collect();
        candidates.retain(|(_, keyspace)| !keyspace.view.load().memtables.active.memtable.is_empty());
        candidates.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let (mut left, mut chosen) = (self.memory.active(), Vec::new());
        for (bytes, keyspace) in candidates {
            if left <= most {
                break;
            }
            self.wait_for_memtable(&keyspace)?;
            left = left.saturating_sub(bytes);
            chosen.push(keyspace);
        }
        if !chosen.is_empty() {
            seal(current, &chosen)?;
        }
        Ok(())
    }

    /// Returns the keyspace whose memtable other databases want flushed, if any. For the flush
    /// thread, in case nobody writes; [`has_sealed`](Self::note_sealed) ends the request.
    pub(crate) fn asked_to_seal(&self) -> Option<Arc<KeyspaceInner>> {
        self.share.as_ref().filter(|share| share.is_asked())?;
        let filled = self.filled.list().into_iter();
        let largest = filled
            .filter(|keyspace| !keyspace.view.load().memtables.active.memtable.is_empty())
            .max_by_key(|keyspace| active_bytes(keyspace));
        if largest.is_none() {
            self.note_sealed();
        }
        largest
    }

    pub(crate) fn note_sealed(&self) {
        self.share.iter().for_each(WriteMembership::note_sealed);
    }

    /// Leaves the memory shared with other databases, at closing.
    pub(crate) fn leave_shared(&self) {
        self.share.iter().for_each(WriteMembership::leave);
    }

    /// Keeps the disk space of logs within its limit. Beyond three quarters of it, the memtables
    /// that hold back the oldest log are sealed; beyond all of it, the writer waits for their
    /// flushes. The log grows regardless once nothing is left to flush.
    fn keep_log_space(
        &self,
        log: &Log,
        current: &mut Current,
        bytes: usize,
        seal: Seal<'_>,
    ) -> Result<(), WriteError> {
        loop {
            let growth = log.growth(current, bytes);
            if growth == 0 {
                return Ok(());
            }
            log.shed(growth);
            let pinning = {
                let state = self.monitor.lock();
                let Some(oldest) = log.oldest_if_near_limit(&state.logs, growth) else { return Ok(()) };
                self.filled.holding_back(oldest)
            };
            if !pinning.is_empty() {
                seal(current, &pinning)?;
            }
            let over = || log.is_over(growth) && self.memory.sealed() > 0;
            if !over() {
                return Ok(());
            }
            self.stall_while(StallCause::LogSpace, over, |state| state.scheduler.check_all_flushes())?;
        }
    }

    /// Waits until the keyspace may queue one more memtable for flushing.
    fn wait_for_memtable(&self, keyspace: &KeyspaceInner) -> Result<(), WriteError> {
        let full = |ks: &KeyspaceInner| ks.view.load().memtables.sealed.len() + 1 >= ks.options.max_memtables;
        if !full(keyspace) {
            return Ok(());
        }
        let full = || full(keyspace) && !keyspace.is_dropped();
        self.stall_while(StallCause::Memtables, full, |state| state.scheduler.check_flushes(keyspace.id))
    }

    /// Waits for background work until the condition no longer holds, `check` reports that the work
    /// fails, or writes are no longer accepted.
    fn stall_while(
        &self,
        cause: StallCause,
        mut condition: impl FnMut() -> bool,
        check: impl Fn(&State) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let started = sync::now();
        self.counters.stalls.add(1);
        self.observer.raise(|| Event::StallBegan { cause });
        let mut waits = || {
            let mut state = self.monitor.lock();
            while condition() {
                self.gate.check_writable()?;
                check(&state)?;
                state = self.monitor.wait(state);
            }
            Ok(())
        };
        let waited = waits();
        let took = sync::since(started);
        self.counters.stall_nanos.add(took.as_nanos() as u64);
        self.observer.waited(cause, took);
        self.observer.record(Operation::Stall, took);
        self.observer.raise(|| Event::StallEnded { cause, took });
        waited
    }
}

/// The memtables of a database as the shared memory sees them.
#[derive(Debug)]
pub(crate) struct OwnMemtables {
    memory: Arc<ChunkPool>,
    filled: Arc<Filled>,
    monitor: Arc<Monitor>,
}

impl OwnMemtables {
    pub(crate) fn new(memory: &Arc<ChunkPool>, filled: &Arc<Filled>, monitor: &Arc<Monitor>) -> OwnMemtables {
        OwnMemtables { memory: memory.clone(), filled: filled.clone(), monitor: monitor.clone() }
    }
}

impl Writer for OwnMemtables {
    fn in_memtables(&self) -> InMemtables {
        in_memtables(&self.memory, &self.filled)
    }

    fn wake(&self) {
        self.monitor.notify();
    }
}

/// Counts the memory of all memtables, in bytes.
fn in_memtables(memory: &ChunkPool, filled: &Filled) -> InMemtables {
    let largest = filled.list().iter().map(|keyspace| active_bytes(keyspace)).max().unwrap_or(0);
    InMemtables { active: memory.active(), largest, sealed: memory.sealed() }
}

fn active_bytes(keyspace: &KeyspaceInner) -> u64 {
    keyspace.view.load().memtables.active.memtable.memory_bytes() as u64
}

/// A maximum write rate in bytes per second, and the reason for it.
#[derive(Clone, Copy, Debug)]
struct Limit {
    rate: f64,
    cause: StallCause,
}

/// Returns the slower of two rates, where `None` is unlimited.
fn slower(a: Option<Limit>, b: Option<Limit>) -> Option<Limit> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.rate <= b.rate { a } else { b }),
        (one, other) => one.or(other),
    }
}

/// Returns the maximum write rate into the last free memtable, in bytes per second: unlimited until
/// it is half full, then falling from twice the flush rate to the flush rate. Writers slower than
/// flushing never wait.
fn memtable_rate(full: f64, flushed_per_second: u64) -> Option<f64> {
    (full >= 0.5 && flushed_per_second > 0).then(|| flushed_per_second as f64 * (3.0 - 2.0 * full.min(1.0)))
}

/// Returns the maximum rate of writes while compactions lag behind, in bytes per second. `limit` is
/// the rate that compactions seem to keep up with, or 0. In the second half of the way to a stop
/// writes are slower.
fn slowed_rate(severity: f64, limit: u64) -> f64 {
    let beyond_half = (2.0 * severity - 1.0).clamp(0.0, 0.95);
    let least = SLOWED_BYTES_PER_SECOND * (1.0 - severity.clamp(0.0, 0.95));
    least.max(limit as f64 * (1.0 - beyond_half * beyond_half))
}

/// Returns the rate of writes, in bytes per second, that compactions seem to keep up with, after one
/// more memtable.
///
/// Level 0 grows during each of its merges and shrinks at their end. A limit that followed it would
/// let writes alternate between all and little. So it changes by a few percent with each memtable:
/// down the more, the closer writes are to a stop; up while nothing slows them down.
fn next_limit(limit: u64, pressure: Pressure) -> u64 {
    let factor = match pressure {
        Pressure::None => 1.03,
        Pressure::Slowdown(severity) => 1.0 - severity * severity / 10.0,
        Pressure::Stop => 0.9,
    };
    // Less than the least rate would have no effect, and take long to grow again.
    (limit as f64 * factor).max(SLOWED_BYTES_PER_SECOND) as u64
}

/// Returns the rate of writes after one more measurement, in bytes per second: an average over about
/// eight. `None` if too little time has passed.
fn written_rate(before: u64, bytes: u64, took: Duration) -> Option<u64> {
    if took < SHORTEST_MEASUREMENT {
        return None;
    }
    let now = bytes as f64 / took.as_secs_f64();
    let rate = if before == 0 { now } else { before as f64 + (now - before as f64) / 8.0 };
    Some(rate.max(1.0) as u64)
}

/// Returns the flush rate after one more flush, in bytes per second.
fn rate_after(before: u64, bytes: u64, took: Duration) -> u64 {
    let now = (bytes as f64 / took.as_secs_f64().max(1e-6)).max(1.0);
    let rate = match before {
        0 => now,
        before => 2.0 / (1.0 / before as f64 + 1.0 / now),
    };
    (rate as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_memtable_slows_writes_down_to_the_speed_of_flushes() {
        assert_eq!(memtable_rate(0.4, 1000), None);
        assert_eq!(memtable_rate(0.9, 0), None, "nothing was flushed yet");
        assert_eq!(memtable_rate(0.5, 1000), Some(2000.0));
        assert_eq!(memtable_rate(1.0, 1000), Some(1000.0));
        assert_eq!(memtable_rate(1.2, 1000), Some(1000.0));
    }

    #[test]
    fn writes_are_slower_than_the_limit_only_close_to_a_stop() {
        let rates = |limit| [0.0, 0.5, 0.75, 1.0].map(|severity| slowed_rate(severity, limit) / 1e6);
        let rounded = |limit| rates(limit).map(|rate: f64| (rate * 10.0).round() / 10.0);
        assert_eq!(rounded(0), [32.0, 16.0, 8.0, 1.6], "no memtable was full yet");
        assert_eq!(rounded(10_000_000), [32.0, 16.0, 8.0, 1.6]);
        assert_eq!(rounded(100_000_000), [100.0, 100.0, 75.0, 9.8]);
    }

    /// Level 0 grows during each of its merges, and shrinks at their end.
    #[test]
    fn the_limit_settles_at_the_rate_that_compactions_keep_up_with() {
        let (mut limit, mut runs, mut rate) = (0, 0.0, 300e6);
        let mut rates = Vec::new();
        for second in 0..600 {
            let severity = (runs - 20.0) / 16.0;
            let pressure = if severity >= 0.0 { Pressure::Slowdown(severity) } else { Pressure::None };
            limit = match (limit, pressure) {
                (0, Pressure::None) => 0,
                (0, _) => rate as u64,
                (limit, pressure) => next_limit(limit, pressure),
            };
            rate = match limit {
                0 => 300e6,
                limit => slowed_rate(severity.max(0.0), limit).min(300e6),
            };
            rates.push(rate);
            runs += rate / 100e6;
            if second % 9 == 8 {
                runs = f64::max(runs - 18.0, 0.0);
            }
        }
        let settled = &rates[200..];
        let [least, most] = [f64::min, f64::max].map(|of| settled.iter().copied().reduce(of).unwrap());
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        assert!((180e6..205e6).contains(&mean), "{mean} of 200e6");
        assert!(least > 0.75 * mean && most < 1.25 * mean, "{least} to {most}");
    }

    #[test]
    fn the_limit_never_falls_below_the_least_rate() {
        let mut limit = 100_000_000;
        (0..300).for_each(|_| limit = next_limit(limit, Pressure::Slowdown(0.7)));
        assert_eq!(slowed_rate(0.0, limit), SLOWED_BYTES_PER_SECOND);
        assert_eq!(next_limit(limit, Pressure::None), 32_960_000);
    }

    #[test]
    fn the_rate_of_writes_is_that_of_the_last_measurements() {
        let second = Duration::from_secs(1);
        let mut rate = written_rate(0, 64 << 20, second).unwrap();
        assert_eq!(rate, 64 << 20);
        (0..40).for_each(|_| rate = written_rate(rate, 64 << 20, 2 * second).unwrap());
        assert!(((32 << 20)..(33 << 20)).contains(&rate), "{rate}");
        // Two memtables that were full at the same time were taken for terabytes a second.
        assert_eq!(written_rate(rate, 64 << 20, Duration::from_micros(1)), None);
        assert_eq!(written_rate(0, 0, second), Some(1), "0 is unknown");
    }

    #[test]
    fn one_slow_flush_lowers_the_rate_at_once() {
        let rate = rate_after(0, 1 << 20, Duration::from_millis(1));
        assert_eq!(rate, 1000 << 20);
        let rate = rate_after(rate, 1 << 20, Duration::from_secs(1));
        assert!(((1 << 20)..=(2 << 20)).contains(&rate), "{rate}");
        let rate = rate_after(rate, 1 << 20, Duration::from_millis(1));
        assert!(((2 << 20)..=(4 << 20)).contains(&rate), "{rate}");
    }
}
