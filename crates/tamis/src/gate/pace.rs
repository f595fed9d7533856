//! The rate limit of background writes: one budget for the flushes and compactions of a database.
//!
//! A token bucket. A writer requests tokens after its writes and waits until they are granted, so
//! the long-run rate holds while single writes may have any size: a grant needs a balance above
//! zero and may leave a debt, which the next grant waits for. Unused tokens accumulate up to a
//! tenth of a second's worth, so that short bursts pass.
//!
//! # Order
//!
//! Flushes go first, since writers stall behind them. But while flushes and compactions both wait,
//! compactions get a tenth of what is granted: flushes that use up the whole rate would otherwise
//! starve them until level 0 is full and writers stall for that. Within a class, the order is first
//! in, first out.
//!
//! # Threads
//!
//! Any thread may wait. The state is behind one mutex, and no other lock is taken while it is held.
//! Waiters sleep on the condition variable in short slices, so that they soon notice a
//! cancellation.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sync::{self, Condvar, Mutex};

/// Unused tokens accumulate up to a second's bytes divided by this.
const BURST_PART: u64 = 10;

/// While both wait, flushes get this many bytes for each byte of compactions.
const FLUSH_SHARE: u64 = 9;

/// The most that a waiter sleeps between checks for cancellation.
const SLICE: Duration = Duration::from_millis(20);

/// The kind of work that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Flush,
    Compaction,
}

/// The budget of one database.
#[derive(Debug)]
pub(crate) struct Pace {
    /// `None`: no limit.
    bucket: Option<Mutex<Bucket>>,
    granted: Condvar,
    origin: Instant,
    /// The most that a waiter sleeps at a time.
    slice: Duration,
}

impl Pace {
    /// Creates a budget of `bytes_per_second`; `u64::MAX` means no limit.
    pub(crate) fn new(bytes_per_second: u64) -> Pace {
        let bucket = (bytes_per_second < u64::MAX).then(|| Mutex::new(Bucket::new(bytes_per_second)));
        Pace { bucket, granted: Condvar::new(), origin: sync::now(), slice: SLICE }
    }

    /// Waits until `bytes` are granted, or until `give_up` returns true (it is called with the
    /// bucket locked and must take no lock). Returns the time waited, zero without a limit.
    pub(crate) fn wait(&self, urgency: Urgency, bytes: u64, give_up: &dyn Fn() -> bool) -> Duration {
        let Some(bucket) = self.bucket.as_ref().filter(|_| bytes > 0) else { return Duration::ZERO };
        let started = sync::now();
        let mut bucket = bucket.lock();
        let ticket = bucket.enter(urgency, bytes);
        while let Err(left) = bucket.grant(ticket, sync::since(self.origin)) {
            if give_up() {
                bucket.leave(ticket);
                break;
            }
            let slice = left.clamp(Duration::from_micros(100), self.slice);
            bucket = self.granted.wait_timeout(bucket, slice);
        }
        drop(bucket);
        self.granted.notify_all();
        sync::since(started)
    }
}

/// A waiter: its ticket, and the bytes that it wants.
type PacedWriter = (u64, u64);

/// The token bucket. Its functions get the time as an argument.
#[derive(Debug)]
struct Bucket {
    /// Bytes per second.
    rate: u64,
    /// In billionths of a byte, so that nothing is lost to rounding; a negative balance is a debt.
    balance: i128,
    most: i128,
    /// When `balance` was last updated.
    at: Duration,
    next_ticket: u64,
    flushes: VecDeque<PacedWriter>,
    compactions: VecDeque<PacedWriter>,
    /// Bytes granted to flushes while compactions waited, less the compensation granted to
    /// compactions.
    passed_by: u64,
}

const BILLION: i128 = 1_000_000_000;

impl Bucket {
    fn new(rate: u64) -> Bucket {
        let most = i128::from((rate / BURST_PART).max(1)) * BILLION;
        Bucket {
            rate,
            balance: most,
            most,
            at: Duration::ZERO,
            next_ticket: 0,
            flushes: VecDeque::new(),
            compactions: VecDeque::new(),
            passed_by: 0,
        }
    }

    fn enter(&mut self, urgency: Urgency, bytes: u64) -> u64 {
        self.next_ticket += 1;
        let queue = match urgency {
            Urgency::Flush => &mut self.flushes,
            Urgency::Compaction => &mut self.compactions,
        };
        queue.push_back((self.next_ticket, bytes));
        self.next_ticket
    }

    fn leave(&mut self, ticket: u64) {
        self.flushes.retain(|waiter| waiter.0 != ticket);
        self.compactions.retain(|waiter| waiter.0 != ticket);
    }

    /// Returns the next waiter.
    fn first(&self) -> Option<(Urgency, PacedWriter)> {
        let flush = self.flushes.front().map(|&waiter| (Urgency::Flush, waiter));
        let compaction = self.compactions.front().map(|&waiter| (Urgency::Compaction, waiter));
        match (flush, compaction) {
            (Some(_), Some((_, (_, bytes)))) if self.passed_by / FLUSH_SHARE >= bytes => compaction,
            (flush, compaction) => flush.or(compaction),
        }
    }

    /// Grants a waiter its bytes if it is next and the balance allows. Otherwise returns how long to
    /// sleep at most: until the balance allows, or until it is woken because others went before.
    fn grant(&mut self, ticket: u64, now: Duration) -> Result<(), Duration> {
        let gained = i128::try_from(now.saturating_sub(self.at).as_nanos()).unwrap_or(i128::MAX);
        let gained = gained.saturating_mul(i128::from(self.rate));
        self.balance = self.balance.saturating_add(gained).min(self.most);
        self.at = self.at.max(now);
        if self.balance <= 0 {
            let nanos = -self.balance / i128::from(self.rate.max(1)) + 1;
            return Err(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        }
        let Some((urgency, (first, bytes))) = self.first().filter(|(_, (first, _))| *first == ticket) else {
            return Err(Duration::MAX);
        };
        match urgency {
            Urgency::Flush if self.compactions.is_empty() => self.passed_by = 0,
            Urgency::Flush => self.passed_by = self.passed_by.saturating_add(bytes),
            Urgency::Compaction if self.flushes.is_empty() => self.passed_by = 0,
            Urgency::Compaction => {
                self.passed_by = self.passed_by.saturating_sub(bytes.saturating_mul(FLUSH_SHARE));
            }
        }
        self.balance -= i128::from(bytes) * BILLION;
        self.leave(first);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn empty(rate: u64) -> Bucket {
        let mut bucket = Bucket::new(rate);
        bucket.balance = 0;
        bucket
    }

    /// Admits waiters with `ask` after every grant, a millisecond at a time, and returns the bytes
    /// granted to flushes and compactions.
    fn run(bucket: &mut Bucket, until: Duration, mut ask: impl FnMut(&mut Bucket)) -> (u64, u64) {
        let (mut flushed, mut compacted) = (0, 0);
        let mut now = bucket.at;
        while now < until {
            now += MS;
            ask(bucket);
            while let Some((urgency, (ticket, bytes))) = bucket.first() {
                if bucket.grant(ticket, now).is_err() {
                    break;
                }
                match urgency {
                    Urgency::Flush => flushed += bytes,
                    Urgency::Compaction => compacted += bytes,
                }
                ask(bucket);
            }
        }
        (flushed, compacted)
    }

    fn keep_waiting(bucket: &mut Bucket, flushes: bool, compactions: bool) {
        if flushes && bucket.flushes.is_empty() {
            bucket.enter(Urgency::Flush, 1000);
        }
        if compactions && bucket.compactions.is_empty() {
            bucket.enter(Urgency::Compaction, 1000);
        }
    }

    /// What flushes take while no compaction waits is not owed to any.
    #[test]
    fn flushes_owe_compactions_only_what_they_took_from_them() {
        let mut bucket = Bucket::new(1_000_000);
        bucket.passed_by = 10;
        let flush = bucket.enter(Urgency::Flush, 1000);
        bucket.grant(flush, MS).unwrap();
        assert_eq!(bucket.passed_by, 0, "nobody waited");
        let compaction = bucket.enter(Urgency::Compaction, 10);
        let flush = bucket.enter(Urgency::Flush, 1000);
        bucket.grant(flush, 2 * MS).unwrap();
        assert_eq!(bucket.passed_by, 1000);
        let flush = bucket.enter(Urgency::Flush, 1000);
        bucket.grant(compaction, 3 * MS).unwrap();
        assert_eq!(bucket.passed_by, 1000 - 10 * FLUSH_SHARE);
        bucket.leave(flush);
        let compaction = bucket.enter(Urgency::Compaction, 10);
        bucket.grant(compaction, 4 * MS).unwrap();
        assert_eq!(bucket.passed_by, 0, "nobody waits");
    }

    #[test]
    fn the_rate_holds_over_time() {
        for (flushes, compactions) in [(true, false), (false, true), (true, true)] {
            let mut bucket = empty(1_000_000);
            let (a, b) = run(&mut bucket, 2000 * MS, |b| keep_waiting(b, flushes, compactions));
            assert!((1_999_000..=2_001_000).contains(&(a + b)), "{a} + {b}");
        }
    }

    #[test]
    fn a_burst_passes_and_is_no_more_than_a_tenth_of_a_second() {
        let mut bucket = Bucket::new(1_000_000);
        let later = Duration::from_secs(100);
        let mut granted = 0;
        loop {
            let ticket = bucket.enter(Urgency::Compaction, 1000);
            if bucket.grant(ticket, later).is_err() {
                break;
            }
            granted += 1000;
        }
        assert_eq!(granted, 100_000);
    }

    #[test]
    fn a_waiting_flush_goes_before_an_earlier_compaction() {
        let mut bucket = empty(1_000_000);
        let compaction = bucket.enter(Urgency::Compaction, 1000);
        let flush = bucket.enter(Urgency::Flush, 1000);
        assert!(bucket.grant(flush, Duration::ZERO).is_err(), "nothing is there yet");
        assert!(bucket.grant(compaction, MS / 2).is_err(), "not its turn");
        assert_eq!(bucket.grant(flush, MS / 2), Ok(()));
        assert!(bucket.grant(compaction, MS / 2).is_err(), "the flush left a debt");
        assert_eq!(bucket.grant(compaction, 2 * MS), Ok(()));
    }

    #[test]
    fn endless_flushes_leave_compactions_a_tenth() {
        let mut bucket = empty(1_000_000);
        let (flushed, compacted) = run(&mut bucket, 2000 * MS, |b| keep_waiting(b, true, true));
        assert!(compacted * 9 <= flushed + 9000 && flushed <= compacted * 9 + 9000, "{flushed} {compacted}");
    }

    /// Nine bytes of flushes are owed one byte of compactions, counted from the first one.
    #[test]
    fn a_compaction_goes_first_once_flushes_took_nine_times_its_bytes() {
        let mut bucket = Bucket::new(1_000_000);
        let next = |bucket: &Bucket| bucket.first().map(|(urgency, _)| urgency);
        bucket.enter(Urgency::Compaction, 1);
        let flush = bucket.enter(Urgency::Flush, 8);
        bucket.grant(flush, MS).unwrap();
        let flush = bucket.enter(Urgency::Flush, 1);
        assert_eq!(next(&bucket), Some(Urgency::Flush));
        bucket.grant(flush, MS).unwrap();
        bucket.enter(Urgency::Flush, 1);
        assert_eq!(next(&bucket), Some(Urgency::Compaction));
    }

    #[test]
    fn the_lowest_rates_grant_a_byte_at_once_and_then_what_they_allow() {
        for rate in [0, 1, 9, 10, 19] {
            let mut bucket = Bucket::new(rate);
            let ticket = bucket.enter(Urgency::Flush, 1);
            assert_eq!(bucket.grant(ticket, Duration::ZERO), Ok(()), "{rate}");
            let ticket = bucket.enter(Urgency::Flush, 1);
            assert!(bucket.grant(ticket, Duration::ZERO).is_err(), "{rate}");
        }
        // The balance is a billionth of a byte after a nanosecond, and that is above zero.
        let mut bucket = empty(1);
        let ticket = bucket.enter(Urgency::Flush, 5);
        assert_eq!(bucket.grant(ticket, Duration::ZERO), Err(Duration::from_nanos(1)));
        assert_eq!(bucket.grant(ticket, Duration::from_nanos(1)), Ok(()));
        let ticket = bucket.enter(Urgency::Flush, 5);
        assert_eq!(bucket.grant(ticket, Duration::from_nanos(1)), Err(Duration::from_secs(5)));
    }

    #[test]
    fn a_debt_is_paid_before_anything_else_is_granted() {
        let mut bucket = empty(1000);
        let large = bucket.enter(Urgency::Flush, 5000);
        assert_eq!(bucket.grant(large, MS), Ok(()));
        let next = bucket.enter(Urgency::Flush, 1);
        assert_eq!(bucket.grant(next, MS), Err(Duration::from_nanos(4_999_000_000 + 1)));
        assert_eq!(bucket.grant(next, Duration::from_millis(5001)), Ok(()));
    }

    #[test]
    fn a_cancelled_waiter_delays_no_other() {
        let pace = Pace::new(64 << 10);
        // A debt that would take hours to repay.
        pace.wait(Urgency::Compaction, 1 << 30, &|| false);
        let asked = AtomicU64::new(0);
        pace.wait(Urgency::Flush, 1, &|| asked.fetch_add(1, SeqCst) > 1);
        assert!(asked.load(SeqCst) > 1);
        assert_eq!(pace.wait(Urgency::Flush, 0, &|| panic!("never asked")), Duration::ZERO);
        let bucket = pace.bucket.as_ref().unwrap().lock();
        assert!(bucket.flushes.is_empty() && bucket.compactions.is_empty());
    }

    fn until(what: impl Fn() -> bool) {
        let started = Instant::now();
        while !what() {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(MS);
        }
    }

    /// Whoever waits sleeps, and others can ask meanwhile.
    #[test]
    fn a_waiter_lets_others_ask() {
        const MOST: u64 = 10_000;
        let pace = Pace::new(64 << 10);
        pace.wait(Urgency::Compaction, 1 << 30, &|| false);
        let (asked, others_asked) = (AtomicU64::new(0), AtomicBool::new(false));
        let give_up = || asked.fetch_add(1, SeqCst) > MOST || others_asked.load(SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| pace.wait(Urgency::Compaction, 1, &give_up));
            until(|| asked.load(SeqCst) > 0);
            pace.wait(Urgency::Flush, 1, &|| true);
            others_asked.store(true, SeqCst);
        });
        assert!(asked.load(SeqCst) < MOST, "it asked again and again with the bucket locked");
    }

    /// It does not wait for the end of its slice, which is an hour here.
    #[test]
    fn a_waiter_is_woken_when_its_turn_has_come() {
        let mut pace = Pace::new(1 << 40);
        pace.slice = Duration::from_secs(3600);
        let bucket = pace.bucket.as_ref().unwrap();
        let first = bucket.lock().enter(Urgency::Compaction, 1);
        let asked = AtomicU64::new(0);
        let give_up = || {
            asked.fetch_add(1, SeqCst);
            false
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pace.wait(Urgency::Compaction, 1, &give_up));
            until(|| asked.load(SeqCst) > 0);
            bucket.lock().leave(first);
            // A flush goes first, and wakes others when it has what it wants.
            pace.wait(Urgency::Flush, 1, &|| panic!("it is next"));
        });
        assert!(bucket.lock().compactions.is_empty());
    }

    #[test]
    fn all_concurrent_waiters_get_what_they_asked_for() {
        let pace = Pace::new(64 << 20);
        let granted = AtomicU64::new(0);
        let gave_up = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for i in 0..4 {
                let (pace, granted, gave_up) = (&pace, &granted, &gave_up);
                let urgency = if i == 0 { Urgency::Flush } else { Urgency::Compaction };
                scope.spawn(move || {
                    for _ in 0..50 {
                        pace.wait(urgency, 64 << 10, &|| gave_up.load(SeqCst));
                        granted.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(granted.into_inner(), 200);
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let pace = Pace::new(u64::MAX);
        assert_eq!(pace.wait(Urgency::Compaction, u64::MAX, &|| panic!("never asked")), Duration::ZERO);
    }
}
