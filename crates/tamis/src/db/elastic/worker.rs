//! The background thread of elastic filters: takes samples, adjusts, loads.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{Elastic, Inner, Known, Shared, Worker};
use crate::hotness::{Adjustment, Load, Outcome, Sample, SegmentId, Unload};
use crate::ids::TableId;
use crate::sync::{self, Mutex, thread};

/// The pause between turns while there is work: samples that arrive meanwhile are batched.
const PAUSE: Duration = Duration::from_millis(2);

/// The longest sleep if a limit is shared.
const NAP: Duration = Duration::from_millis(200);

/// The interval between adjustments of a shared limit's division.
const BETWEEN_DIVISIONS: Duration = Duration::from_millis(20);

/// The number of threads that read files at once. A device completes several reads in little more than the time of one.
const READERS: usize = 4;

/// Reads of this many bytes are not coalesced with the next.
const MOST_AT_ONCE: u64 = 1 << 20;

/// The desired range of samples per second if the sampling interval adapts to the number of gets. Each sample costs the
/// background thread some hundred nanoseconds.
const SAMPLES_A_SECOND: std::ops::Range<f64> = 50_000.0..250_000.0;

/// The longest sampling interval, in gets per sample on average.
const LONGEST_INTERVAL: u32 = 256;

/// Units of one table that are adjacent in its file.
#[derive(Debug)]
struct Job {
    known: Known,
    unit: u32,
    segments: Range<usize>,
    /// One load per segment.
    loads: Vec<Load>,
    /// Their total bytes.
    bytes: u64,
}

impl Elastic {
    /// Allows the background thread to run from now on.
    pub(crate) fn allow_worker(self: &Arc<Self>) {
        {
            let mut worker = self.worker.lock();
            if matches!(*worker, Worker::MayNot) {
                *worker = Worker::May;
            }
        }
        if self.shared.is_some() || !self.inner().tables.is_empty() {
            self.start_if_allowed();
        }
    }

    /// Starts the background thread, unless it runs or may not run. Without it filters stay as they are, which costs reads
    /// but no correctness.
    pub(super) fn start_if_allowed(self: &Arc<Self>) {
        let mut worker = self.worker.lock();
        if matches!(*worker, Worker::May) {
            let elastic = self.clone();
            match thread::spawn("tamis-hotness".into(), move || elastic.work()) {
                Ok(thread) => *worker = Worker::Runs(thread),
                Err(why) => {
                    log::warn!("elastic filters stay as they are, no thread can be started: {why}");
                    self.inner().dead = true;
                }
            }
        }
    }

    /// Stops the background thread and waits for it.
    pub(crate) fn stop(&self) {
        self.leaving.store(true, Relaxed);
        let worker = std::mem::replace(&mut *self.worker.lock(), Worker::MayNot);
        if let Worker::Runs(thread) = worker {
            thread.unpark();
            if thread.join().is_err() {
                log::error!("the background thread of the elastic filters panicked");
            }
        }
        self.settled.notify_all();
    }

    fn work(&self) {
        self.sampler.serve();
        let work = AssertUnwindSafe(|| {
            // Reads wake it, except those that probe no elastic filter but still count if a limit is shared.
            let longest = if self.shared.is_some() { NAP } else { Duration::from_secs(60) };
            let now = sync::now();
            let mut turn = Turn { started: now, divided: now, samples: Vec::new() };
            while !self.leaving.load(Relaxed) {
                match self.turn(&mut turn) {
                    true => thread::park_timeout(PAUSE),
                    false => self.sampler.sleep_unless(|| self.turn(&mut turn), longest),
                }
            }
        });
        if std::panic::catch_unwind(work).is_err() {
            log::error!(
                "elastic filters stay as they are: their background thread panicked; please report it"
            );
            self.inner().dead = true;
            self.settled.notify_all();
        }
    }

    /// Does pending work; `false` if there was none.
    fn turn(&self, turn: &mut Turn) -> bool {
        turn.samples.clear();
        let gets = self.sampler.drain(&mut turn.samples);
        let (jobs, waited) = {
            let mut inner = self.inner();
            let new = gets - inner.gets;
            inner.gets = gets;
            inner.manager.advance(new);
            inner.manager.sample(self.sampler.interval());
            let mut loads = std::mem::take(&mut inner.waiting);
            let waited = loads.len();
            for &Sample { id, weight, held } in &turn.samples {
                let Some(Adjustment { unload, load }) = inner.manager.access(id, weight, held) else {
                    continue;
                };
                inner.unload(unload);
                loads.push(load);
            }
            inner.under_way = loads.len();
            (jobs(loads, |id| inner.tables.get(&id).cloned()), waited)
        };
        self.adapt(turn);
        let worked = !turn.samples.is_empty() || !jobs.is_empty();
        self.load(jobs);
        if waited > 0 {
            self.settled.notify_all();
        }
        if let Some(shared) = &self.shared
            && sync::since(turn.divided) >= BETWEEN_DIVISIONS
        {
            turn.divided = sync::now();
            self.divide(shared);
        }
        worked
    }

    /// Samples gets more often if they are rare, and less often if they are frequent.
    fn adapt(&self, turn: &mut Turn) {
        let elapsed = sync::since(turn.started);
        if !self.adapts || elapsed < PAUSE {
            return;
        }
        turn.started += elapsed;
        let rate = turn.samples.len() as f64 / elapsed.as_secs_f64();
        let interval = self.sampler.interval();
        if rate > SAMPLES_A_SECOND.end {
            self.sampler.set_interval((interval * 2).min(LONGEST_INTERVAL));
        } else if rate < SAMPLES_A_SECOND.start {
            self.sampler.set_interval(interval / 2);
        }
    }

    /// Reads units, several files at once, and records those now in use.
    fn load(&self, jobs: Vec<Job>) {
        let jobs = Mutex::new(jobs.into_iter());
        let work = || {
            while !self.leaving.load(Relaxed) {
                let Some(job) = jobs.lock().next() else { break };
                self.load_stretch(job);
            }
        };
        let waiting = jobs.lock().len();
        thread::scope(|scope| {
            for _ in 1..waiting.min(READERS) {
                // If a thread cannot be started, the load runs with fewer.
                let _ = scope.spawn("tamis-load".into(), work);
            }
            work();
        });
        self.inner().under_way = 0;
    }

    /// Reads adjacent units and puts them into use.
    fn load_stretch(&self, Job { known, unit, segments, loads, .. }: Job) {
        // Charged before they are read, so that the budget holds at every moment. Memory that readers have not released yet
        // is still charged, so there may be less than the manager assumes.
        let charges: Vec<_> = loads.iter().map(|load| self.budget.take(load.bytes)).collect();
        if charges.iter().all(Option::is_none) {
            let mut inner = self.inner();
            loads.iter().for_each(|load| inner.loaded(&known, load, Outcome::Skipped));
            return;
        }
        let read = known.filter.directory().read_units(&known.table, unit..unit + 1, segments);
        self.load_reads.fetch_add(read.reads, Relaxed);
        self.load_bytes.fetch_add(read.bytes, Relaxed);
        let mut inner = self.inner();
        for ((load, charge), unit) in loads.iter().zip(charges).zip(read.units) {
            let unit = unit.result.inspect_err(|why| log::warn!("continuing without it: {why}")).ok();
            let SegmentId { table, segment } = load.segment;
            let segment = segment as usize;
            let there = inner.tables.contains_key(&table);
            let outcome = match (unit, charge.filter(|_| there)) {
                (None, _) => Outcome::Unreadable,
                (_, None) => Outcome::Skipped,
                (Some(unit), Some(charge)) => match known.filter.enable(segment, unit, charge) {
                    Ok(()) => Outcome::Done,
                    Err(_) => Outcome::Unreadable,
                },
            };
            inner.loaded(&known, load, outcome);
        }
    }

    /// Moves the border between block cache and units.
    fn divide(&self, shared: &Shared) {
        let mut divider = shared.divider.lock();
        let marginal = self.inner().manager.marginal(divider.step_bytes());
        let ghost = shared.cache.ghost_report().expect("the cache was made for this");
        let Some(split) = divider.turn(shared.counters.read().gets, ghost, marginal) else { return };
        // The shrinking side goes first, so that together they never exceed the limit.
        if split.filters < self.budget.limit() {
            self.budget.set_limit(split.filters);
            let mut inner = self.inner();
            let unload = inner.manager.set_budget(split.filters);
            inner.unload(unload);
            drop(inner);
            shared.cache.set_capacity(split.cache);
        } else {
            shared.cache.set_capacity(split.cache);
            self.budget.set_limit(split.filters);
            self.inner().manager.set_budget(split.filters);
        }
    }
}

impl Inner {
    /// Records the end of a load. Without its unit, the units above it are not in use either, and the manager stops counting
    /// them.
    fn loaded(&mut self, known: &Known, load: &Load, outcome: Outcome) {
        if !self.manager.loaded(load, outcome) {
            known.filter.keep(load.segment.segment as usize, load.unit);
        }
    }

    /// Takes units out of use.
    pub(super) fn unload(&self, unload: Vec<Unload>) {
        for Unload { segment: SegmentId { table, segment }, units } in unload {
            let known = self.tables.get(&table).expect("the manager knows the tables that are known here");
            known.filter.keep(segment as usize, units);
        }
    }
}

/// State that the background thread keeps between turns.
struct Turn {
    started: Instant,
    /// When the shared limit was last divided.
    divided: Instant,
    samples: Vec<Sample>,
}

/// Coalesces loads of adjacent units: by table, unit and segment.
fn jobs(mut loads: Vec<Load>, known: impl Fn(TableId) -> Option<Known>) -> Vec<Job> {
    loads.sort_unstable_by_key(|load| (load.segment.table, load.unit, load.segment.segment));
    let mut jobs: Vec<Job> = Vec::new();
    for load in loads {
        let segment = load.segment.segment as usize;
        if let Some(last) = jobs.last_mut() {
            let neighbour = last.loads.last().is_some_and(|other| {
                (other.segment.table, other.unit) == (load.segment.table, load.unit)
                    && other.segment.segment + 1 == load.segment.segment
            });
            if neighbour && last.bytes + load.bytes <= MOST_AT_ONCE {
                last.segments.end = segment + 1;
                last.bytes += load.bytes;
                last.loads.push(load);
                continue;
            }
        }
        let known = known(load.segment.table).expect("loads of tables that went are forgotten");
        let (segments, bytes) = (segment..segment + 1, load.bytes);
        jobs.push(Job { known, unit: load.unit.into(), segments, loads: vec![load], bytes });
    }
    jobs
}

#[cfg(test)]
mod tests {
    use crate::io::MemFs;
    use crate::options::FilterPolicy;
    use crate::{Db, Options};

    use super::*;

    /// Several units of a segment may be loading at once, and finish in any order. If there was no memory left for a lower
    /// one, those above it that had finished earlier stayed in use. The manager did not know of them: they took uncounted
    /// memory, and when it requested them again they were taken for permanently unreadable.
    #[test]
    fn a_unit_without_room_also_disables_those_above_it() {
        let mut options = Options {
            file_system: Some(Arc::new(MemFs::new())),
            filter_budget_bytes: 1 << 20,
            ..Options::default()
        };
        options.keyspace.filter = FilterPolicy::elastic();
        let db = Db::open("/db", options).unwrap();
        (0..100u64).for_each(|i| db.put(i.to_be_bytes(), b"value").unwrap());
        db.flush().unwrap();
        db.settle_filters().unwrap();
        // From here on the test acts as the background thread.
        let elastic = &db.handle().inner.elastic;
        elastic.stop();
        elastic.leaving.store(false, Relaxed);
        let (known, mut loads) = {
            let mut inner = elastic.inner();
            let (&id, known) = inner.tables.iter().next().unwrap();
            let known = known.clone();
            known.filter.clear();
            let bytes = known.filter.charge_of(0);
            inner.manager.set_budget(0);
            inner.manager.set_budget(1 << 20);
            let loads = inner.manager.fill(&[id]);
            assert_eq!((loads.len(), loads[0].unit, loads[0].bytes), (6, 0, bytes));
            (known, loads)
        };
        let job = |load: Load| Job {
            known: known.clone(),
            unit: load.unit.into(),
            segments: 0..1,
            bytes: load.bytes,
            loads: vec![load],
        };
        let lowest = loads.remove(0);
        loads.drain(..).for_each(|load| elastic.load_stretch(job(load)));
        assert_eq!(known.filter.enabled(0), 5);
        // As if readers had not released the units used before.
        let others = elastic.budget.take(elastic.budget.limit() - elastic.budget.used()).unwrap();
        elastic.load_stretch(job(lowest));
        assert_eq!((known.filter.enabled(0), elastic.inner().manager.report().used), (0, 0));
        drop(others);
        let again = elastic.inner().manager.fill(&[lowest.segment.table]);
        assert_eq!(again.len(), 6);
        again.into_iter().for_each(|load| elastic.load_stretch(job(load)));
        assert_eq!((known.filter.enabled(0), elastic.inner().manager.report().by_units[6]), (6, 1));
    }

    /// A panic with the lock held made the next flush panic as well, with the `state` lock held, which ended all writes.
    #[test]
    fn after_a_panic_the_database_goes_on_without_adjusting() {
        let fs = Arc::new(MemFs::new());
        let mut options = Options { file_system: Some(fs), ..Options::default() };
        options.keyspace.filter = FilterPolicy::elastic();
        let db = Db::open("/db", options.clone()).unwrap();
        let fill = |keys: Range<u64>| {
            keys.for_each(|i| db.put(i.to_be_bytes(), b"value").unwrap());
            db.flush().unwrap();
            db.settle_filters().unwrap();
        };
        fill(0..100);
        let used = db.stats().elastic.unwrap().used_bytes;
        assert!(used > 0);
        let elastic = db.handle().inner.elastic.clone();
        let panicked = std::thread::spawn(move || {
            let _inner = elastic.inner();
            panic!("this panic is part of the test");
        });
        panicked.join().unwrap_err();
        fill(50..200);
        assert_eq!(db.stats().elastic.unwrap().used_bytes, used);
        assert_eq!(db.segments().len(), 1, "later tables have no units, but are known");
        db.compact().unwrap();
        assert_eq!(db.stats().elastic.unwrap().used_bytes, 0);
        (0..200u64).for_each(|i| assert!(db.get(i.to_be_bytes()).unwrap().is_some()));
        db.close().unwrap();
        let db = Db::open("/db", options).unwrap();
        db.settle_filters().unwrap();
        assert!(db.stats().elastic.unwrap().used_bytes > 0);
    }
}
