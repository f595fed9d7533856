//! The background thread of elastic filters: takes samples, adjusts, loads.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tamis_base::ids::TableId;
use tamis_files::table::{Retired, retire};
use tamis_policy::hotness::{Adjustment, Load, Outcome, Sample, SegmentId, Unload};

use crate::session::elastic::{Elastic, Inner, Known, Worker};
use crate::sync::{self, Mutex, thread};

/// The pause between turns while there is work: samples that arrive meanwhile are batched.
const PAUSE: Duration = Duration::from_millis(2);

/// The longest sleep otherwise. In tests, no work is found by a timeout.
const LONG_NAP: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 60 });

/// The longest sleep if a limit is shared.
const NAP: Duration = Duration::from_millis(200);

/// The interval between reports to a shared limit.
const BETWEEN_REPORTS: Duration = Duration::from_millis(20);

/// The number of threads that read files at once. A device completes several reads in little more
/// than the time of one.
const READERS: usize = 4;

/// Evicted units still held by gets do not delay loads below this many bytes.
const LEAST_SLACK: u64 = 64 << 10;

/// Reads of this many bytes are not coalesced with the next.
const MOST_AT_ONCE: u64 = 1 << 20;

/// The desired range of samples per second if the sampling interval adapts to the number of gets.
/// Each sample costs the background thread some hundred nanoseconds.
const SAMPLES_A_SECOND: std::ops::Range<f64> = 50_000.0..250_000.0;

/// The longest sampling interval, in gets per sample on average.
const LONGEST_INTERVAL: u32 = 256;

/// The same units of neighbouring segments of one table. Units of one number are adjacent in its
/// file.
#[derive(Debug)]
struct Job {
    known: Known,
    units: Range<u32>,
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

    /// Starts the background thread, unless it runs or may not run. Without it, filters stay as
    /// they are, which costs reads but not correctness.
    pub(crate) fn start_if_allowed(self: &Arc<Self>) {
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
        self.leave_shared();
    }

    fn work(&self) {
        self.sampler.serve();
        let work = AssertUnwindSafe(|| {
            // Reads wake it, unless they probe no elastic filter; these still count if a limit is
            // shared.
            let longest = if self.shared.is_some() { NAP } else { LONG_NAP };
            let now = sync::now();
            let mut turn = Turn { started: now, reported: now, samples: Vec::new() };
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
        let (jobs, retired) = {
            let mut inner = self.inner();
            let new = gets - inner.gets;
            inner.gets = gets;
            inner.manager.advance(new);
            inner.manager.sample(self.sampler.interval());
            turn.samples.iter().for_each(|sample| inner.manager.access(sample));
            let adjustment = match inner.manager.adjusts() && self.has_slack(&inner) {
                true => inner.manager.adjust(),
                false => Adjustment::default(),
            };
            let retired = inner.unload(adjustment.unload);
            inner.under_way = adjustment.load.len();
            (jobs(adjustment.load, |id| inner.tables.get(&id).cloned()), retired)
        };
        retire(retired, &self.retired);
        self.adapt(turn);
        let worked = !turn.samples.is_empty() || !jobs.is_empty();
        self.load(jobs);
        self.settled.notify_all();
        if let Some(shared) = &self.shared
            && sync::since(turn.reported) >= BETWEEN_REPORTS
        {
            turn.reported = sync::now();
            self.report_to(shared);
        }
        worked
    }

    /// Reports whether gets hold few evicted bytes.
    fn has_slack(&self, inner: &Inner) -> bool {
        let slack = (inner.manager.budget() / crate::session::elastic::SLACK).max(LEAST_SLACK);
        inner.dead || self.retired.load(Relaxed) <= slack
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
    fn load_stretch(&self, Job { known, units, segments, loads, .. }: Job) {
        let read = known.filter.directory().read_units(&known.table, units.clone(), segments);
        self.load_reads.fetch_add(read.reads, Relaxed);
        self.load_bytes.fetch_add(read.bytes, Relaxed);
        // Units come first, segments second.
        let mut of_segments: Vec<Vec<_>> = loads.iter().map(|_| Vec::with_capacity(units.len())).collect();
        for (at, unit) in read.units.into_iter().enumerate() {
            of_segments[at % loads.len()].push(unit.result);
        }
        let mut retired = Vec::new();
        {
            let mut inner = self.inner();
            for (load, read) in loads.iter().zip(of_segments) {
                if !inner.manager.wants(load) {
                    continue;
                }
                let (mut good, mut outcome) = (Vec::with_capacity(read.len()), Outcome::Done);
                for result in read {
                    match result {
                        Ok(unit) => good.push(unit),
                        Err(why) => {
                            log::warn!("continuing without it: {why}");
                            outcome = Outcome::Unreadable(load.from + good.len() as u8);
                            break;
                        }
                    }
                }
                if !good.is_empty() {
                    match known.filter.grow(load.segment.segment as usize, &good) {
                        Ok(old) => retired.extend(old),
                        Err(_) => outcome = Outcome::Unreadable(load.from),
                    }
                }
                inner.manager.loaded(load, outcome);
            }
        }
        retire(retired, &self.retired);
    }
}

impl Inner {
    /// Takes units out of use, and returns them.
    pub(crate) fn unload(&self, unload: Vec<Unload>) -> Vec<Retired> {
        let keep = |Unload { segment: SegmentId { table, segment }, units }| {
            let known = self.tables.get(&table).expect("the manager knows the tables that are known here");
            known.filter.keep(segment as usize, units)
        };
        unload.into_iter().filter_map(keep).collect()
    }
}

/// State that the background thread keeps between turns.
struct Turn {
    started: Instant,
    /// When a shared limit was last reported to.
    reported: Instant,
    samples: Vec<Sample>,
}

/// Coalesces loads of adjacent units: by table, units and segment.
fn jobs(mut loads: Vec<Load>, known: impl Fn(TableId) -> Option<Known>) -> Vec<Job> {
    loads.sort_unstable_by_key(|load| (load.segment.table, load.from, load.to, load.segment.segment));
    let mut jobs: Vec<Job> = Vec::new();
    for load in loads {
        let segment = load.segment.segment as usize;
        let known = known(load.segment.table).expect("loads of tables that went are forgotten");
        let bytes = known.filter.bytes(segment, load.to) - known.filter.bytes(segment, load.from);
        if let Some(last) = jobs.last_mut() {
            let neighbour = last.loads.last().is_some_and(|other| {
                (other.segment.table, other.from, other.to) == (load.segment.table, load.from, load.to)
                    && other.segment.segment + 1 == load.segment.segment
            });
            if neighbour && last.bytes + bytes <= MOST_AT_ONCE {
                last.segments.end = segment + 1;
                last.bytes += bytes;
                last.loads.push(load);
                continue;
            }
        }
        let (segments, units) = (segment..segment + 1, load.from.into()..load.to.into());
        jobs.push(Job { known, units, segments, loads: vec![load], bytes });
    }
    jobs
}

#[cfg(test)]
mod tests {
    use crate::Options;
    use crate::io::MemFs;
    use crate::options::FilterPolicy;

    use super::*;

    /// A dropped keyspace left something to decide, but the deciding thread slept on:
    /// `wait_for_filters` took a minute.
    #[test]
    fn a_dropped_keyspace_wakes_the_thread_that_decides() {
        let fs = Arc::new(MemFs::new());
        let mut options = Options { file_system: Some(fs), ..Options::default() };
        options.keyspace.filter = FilterPolicy::elastic();
        let db = options.clone().open("/db").unwrap();
        let other = db.create_keyspace("other", options.keyspace).unwrap();
        for i in 0..100u64 {
            db.put(i.to_be_bytes(), b"value").unwrap();
            other.put(i.to_be_bytes(), b"value").unwrap();
        }
        db.flush().unwrap();
        other.flush().unwrap();
        db.wait_for_filters().unwrap();
        db.drop_keyspace("other").unwrap();
        let started = std::time::Instant::now();
        while db.inner().elastic.inner().manager.is_due() {
            assert!(started.elapsed() < Duration::from_secs(60), "it sleeps");
            std::thread::sleep(Duration::from_millis(1));
        }
        db.wait_for_filters().unwrap();
        assert_eq!(db.segments().len(), 1);
    }

    /// A panic with the lock held made the next flush panic with the `state` lock held, which ended
    /// all writes.
    #[test]
    fn after_a_panic_the_database_goes_on_without_adjusting() {
        let fs = Arc::new(MemFs::new());
        let mut options = Options { file_system: Some(fs), ..Options::default() };
        options.keyspace.filter = FilterPolicy::elastic();
        let db = options.clone().open("/db").unwrap();
        let fill = |keys: Range<u64>| {
            keys.for_each(|i| db.put(i.to_be_bytes(), b"value").unwrap());
            db.flush().unwrap();
            db.wait_for_filters().unwrap();
        };
        fill(0..100);
        let units = || {
            let stats = db.stats().elastic.unwrap();
            stats.used_bytes - stats.index_bytes
        };
        let used = units();
        assert!(used > 0);
        let elastic = db.handle().inner.elastic.clone();
        let panicked = std::thread::spawn(move || {
            let _inner = elastic.inner();
            panic!("this panic is part of the test");
        });
        panicked.join().unwrap_err();
        fill(50..200);
        assert_eq!(units(), used);
        assert_eq!(db.segments().len(), 1, "later tables have no units, but are known");
        db.compact().unwrap();
        assert_eq!(units(), 0);
        (0..200u64).for_each(|i| assert!(db.get(i.to_be_bytes()).unwrap().is_some()));
        db.close().unwrap();
        let db = options.open("/db").unwrap();
        db.wait_for_filters().unwrap();
        assert!(db.stats().elastic.unwrap().used_bytes > 0);
    }
}
