//! Time to live against a model: an entry never expires early, never much too late, and never gives
//! way to an older one, whatever flushes, merges, snapshots, crashes, option changes and a wrong
//! clock happen meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tamis::clock::{Clock, ManualClock};
use tamis::explain::ExplainOutcome;
use tamis::{Db, Durability, KeyspaceOptions, Options, Snapshot};
use tamis_testkit::{CrashMode, FaultyFs};

const KEYS: u8 = 12;
const START: u64 = 1_700_000_000;

#[derive(Clone, Debug)]
enum Op {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, u8),
    Forward(u64),
    Back(u64),
    Flush,
    Compact,
    Settle,
    Snapshot,
    DropSnapshot(usize),
    Reopen,
    Crash,
    TimeToLive(Option<u64>),
}

fn an_op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    prop_oneof![
        12 => key().prop_map(Op::Put),
        2 => key().prop_map(Op::Delete),
        1 => (key(), key()).prop_map(|(a, b)| Op::DeleteRange(a.min(b), a.max(b))),
        6 => prop_oneof![0..4u64, 0..40u64, 0..400u64, 0..4000u64].prop_map(Op::Forward),
        1 => (0..200u64).prop_map(Op::Back),
        3 => Just(Op::Flush),
        2 => Just(Op::Compact),
        1 => Just(Op::Settle),
        2 => Just(Op::Snapshot),
        1 => (0..8usize).prop_map(Op::DropSnapshot),
        1 => Just(Op::Reopen),
        1 => Just(Op::Crash),
        1 => prop_oneof![Just(None), prop_oneof![1..20u64, 100..5000u64].prop_map(Some)].prop_map(Op::TimeToLive),
    ]
}

/// The newest write of a key.
#[derive(Clone, Debug)]
struct Write {
    value: Option<u64>,
    /// The clock at the time of the write, or the lowest value it was set back to since: the
    /// write's age counts from there.
    at: u64,
    /// The latest time at which the database may assume it was written, up to the precision of its
    /// samples.
    latest: u64,
    /// Whether it may have expired at some time.
    may_be_gone: bool,
    /// Whether it was observed to be gone, and must stay so.
    gone: bool,
}

/// The contents of a snapshot when it was taken.
type Seen = BTreeMap<Vec<u8>, Vec<u8>>;

struct Bench {
    fs: FaultyFs,
    clock: Arc<ManualClock>,
    ttl: Option<u64>,
    db: Option<Db>,
    model: BTreeMap<u8, Write>,
    snapshots: Vec<(Snapshot, Seen)>,
    /// The latest time the clock has shown.
    furthest: u64,
    counter: u64,
    /// Longer values are in blob files; 0: none.
    blob_threshold: u64,
}

fn options(fs: &FaultyFs, clock: &Arc<ManualClock>, ttl: Option<u64>) -> Options {
    Options {
        background_threads: 1,
        durability: Durability::Sync,
        file_system: Some(Arc::new(fs.clone())),
        clock: Some(clock.clone()),
        keyspace: KeyspaceOptions {
            memtable_bytes: 4 << 10,
            table_bytes: 4 << 10,
            block_bytes: 256,
            level0_runs: 2,
            size_ratio: 2.into(),
            levels: 4,
            time_to_live: ttl.map(Duration::from_secs),
            ..KeyspaceOptions::default()
        },
        ..Options::default()
    }
}

impl Bench {
    fn new(seed: u64, ttl: Option<u64>) -> Bench {
        let mut bench = Bench {
            fs: FaultyFs::new(seed),
            clock: Arc::new(ManualClock::new(START)),
            ttl,
            db: None,
            model: BTreeMap::new(),
            snapshots: Vec::new(),
            furthest: START,
            counter: 0,
            blob_threshold: [0, 1, 300][seed as usize % 3],
        };
        bench.open();
        bench
    }

    fn open(&mut self) {
        let mut options = options(&self.fs, &self.clock, self.ttl);
        (options.keyspace.blob_threshold, options.keyspace.blob_file_bytes) = (self.blob_threshold, 4 << 10);
        self.db = Some(options.open("/db").unwrap());
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn wrote(&mut self, key: u8, value: Option<u64>) {
        let at = self.clock.now();
        let write = Write { value, at, latest: self.furthest, may_be_gone: false, gone: false };
        self.model.insert(key, write);
    }

    /// The recorded ages may have been lost: everything may count as written now.
    fn forget_ages(&mut self) {
        let now = self.furthest;
        self.model.values_mut().for_each(|write| (write.latest, write.gone) = (now, false));
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Put(key) => {
                self.counter += 1;
                // Some fill a memtable on their own.
                let value = format!("{:>width$}", self.counter, width = 20 << (self.counter % 8));
                self.db().put([*key], value).unwrap();
                self.wrote(*key, Some(self.counter));
            }
            Op::Delete(key) => {
                self.db().delete([*key]).unwrap();
                self.wrote(*key, None);
            }
            Op::DeleteRange(from, to) => {
                self.db().delete_range([*from]..[*to]).unwrap();
                (*from..*to).for_each(|key| self.wrote(key, None));
            }
            Op::Forward(seconds) => {
                self.clock.advance(*seconds);
                self.furthest = self.furthest.max(self.clock.now());
            }
            Op::Back(seconds) => {
                let now = self.clock.now() - seconds;
                self.clock.set(now);
                // Time passes again from here on: nothing is younger than that.
                self.model.values_mut().for_each(|write| write.at = write.at.min(now));
            }
            Op::Flush => self.db().flush().unwrap(),
            Op::Compact => self.db().compact().unwrap(),
            Op::Settle => self.db().wait_for_compaction().unwrap(),
            Op::Snapshot => {
                let snapshot = self.db().snapshot();
                let seen = snapshot.iter().map(|item| item.unwrap());
                let seen = seen.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                self.snapshots.push((snapshot, seen));
            }
            Op::DropSnapshot(which) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(which % self.snapshots.len());
                }
            }
            Op::Reopen => {
                self.snapshots.clear();
                self.db.take().unwrap().close().unwrap();
                if self.clock.now() < self.furthest {
                    self.model.values_mut().for_each(|write| write.gone = false);
                }
                self.open();
            }
            Op::Crash => {
                self.snapshots.clear();
                let after = self.fs.crash(CrashMode::DropUnsynced);
                drop(self.db.take());
                self.fs = after;
                self.forget_ages();
                self.open();
            }
            Op::TimeToLive(ttl) => {
                self.snapshots.clear();
                self.db.take().unwrap().close().unwrap();
                self.ttl = *ttl;
                self.forget_ages();
                self.open();
            }
        }
    }

    fn check(&mut self) {
        let now = self.clock.now();
        let items =
            |iter: &mut dyn Iterator<Item = Result<(tamis::Slice, tamis::Slice), tamis::ReadError>>| {
                iter.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
                    .collect::<Seen>()
            };
        let db = self.db.as_ref().unwrap();
        let seen = items(&mut db.iter());
        assert_eq!(items(&mut db.iter().rev()), seen, "backwards");
        let keys: Vec<[u8; 1]> = (0..KEYS).map(|key| [key]).collect();
        let many = db.multi_get(&keys).unwrap();
        for key in 0..KEYS {
            let value = seen.get(&[key][..]).map(|value| &value[..]);
            assert_eq!(db.get([key]).unwrap().as_deref(), value, "get {key}");
            assert_eq!(many[usize::from(key)].as_deref(), value, "multi_get {key}");
            assert_eq!(db.contains_key([key]).unwrap(), value.is_some(), "contains {key}");
            let outcome = db.explain_get([key]).unwrap().outcome;
            assert_eq!(matches!(outcome, ExplainOutcome::Found { .. }), value.is_some(), "{outcome:?}");
            let Some(write) = self.model.get_mut(&key) else {
                assert_eq!(value, None, "key {key} was never written");
                continue;
            };
            let number = value.map(|value| std::str::from_utf8(value).unwrap().trim().parse().unwrap());
            if let Some(number) = number {
                assert_eq!(Some(number), write.value, "key {key} has an old value");
            }
            if let Some(ttl) = self.ttl {
                write.may_be_gone |= now > write.at + ttl;
                let slack = (ttl / 128).max(1);
                if now >= write.latest + ttl + slack {
                    assert_eq!(value, None, "key {key} has outlived its time: {write:?} at {now}");
                }
            }
            if !write.may_be_gone {
                assert_eq!(number, write.value, "key {key} is gone before its time: {write:?} at {now}");
            }
            if write.gone {
                assert_eq!(value, None, "key {key} came back: {write:?} at {now}");
            }
            write.gone = value.is_none();
        }
        for (snapshot, seen) in &self.snapshots {
            assert_eq!(items(&mut snapshot.iter()), *seen, "snapshot {}", snapshot.seq());
            assert_eq!(items(&mut snapshot.iter().rev()), *seen, "snapshot {}", snapshot.seq());
            let many = snapshot.multi_get(&keys).unwrap();
            for key in 0..KEYS {
                let value = seen.get(&[key][..]).map(|value| &value[..]);
                assert_eq!(snapshot.get([key]).unwrap().as_deref(), value, "snapshot {}", snapshot.seq());
                assert_eq!(many[usize::from(key)].as_deref(), value, "snapshot {}", snapshot.seq());
            }
        }
    }
}

fn cases() -> u32 {
    let scale = std::env::var("TAMIS_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    32 * scale
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_live_for_their_time_and_hardly_longer(
        seed in any::<u64>(),
        ttl in prop_oneof![Just(None), (1..30u64).prop_map(Some), (100..2000u64).prop_map(Some)],
        ops in prop::collection::vec(an_op(), 1..80),
    ) {
        let mut bench = Bench::new(seed, ttl);
        for op in &ops {
            bench.apply(op);
            bench.check();
        }
        bench.db().verify().map(|report| assert_eq!(report.problems, Vec::<String>::new())).unwrap();
    }
}

/// One map of samples serves two keyspaces with different times to live.
#[test]
fn keyspaces_have_independent_times_to_live() {
    let (fs, clock) = (FaultyFs::new(1), Arc::new(ManualClock::new(START)));
    let db = options(&fs, &clock, None).open("/db").unwrap();
    let with = |ttl: u64| KeyspaceOptions {
        time_to_live: Some(Duration::from_secs(ttl)),
        ..KeyspaceOptions::default()
    };
    let short = db.create_keyspace("short", with(10)).unwrap();
    let long = db.create_keyspace("long", with(100_000)).unwrap();
    let all = [&short, &long, db.default_keyspace()];
    let seen = || all.map(|keyspace| keyspace.contains_key("key").unwrap());
    all.iter().for_each(|keyspace| keyspace.put("key", "value").unwrap());
    clock.advance(10);
    assert_eq!(seen(), [true; 3]);
    clock.advance(1);
    assert_eq!(seen(), [false, true, true]);
    // Enough writes that the old samples are thinned out.
    for _ in 0..3000 {
        clock.advance(33);
        short.put("other", "value").unwrap();
    }
    let written = START;
    clock.set(written + 100_000);
    assert_eq!(seen(), [false, true, true]);
    clock.set(written + 100_000 + 100_000 / 128);
    assert_eq!(seen(), [false, false, true]);
}

#[test]
fn an_iterator_sees_the_state_at_its_creation() {
    let (fs, clock) = (FaultyFs::new(1), Arc::new(ManualClock::new(START)));
    let db = options(&fs, &clock, Some(10)).open("/db").unwrap();
    for key in ["a", "b", "c", "d"] {
        db.put(key, "value").unwrap();
    }
    db.flush().unwrap();
    let mut iter = db.iter();
    assert_eq!(iter.next().unwrap().unwrap().0, "a");
    clock.advance(20);
    assert_eq!(db.iter().count(), 0);
    db.wait_for_compaction().unwrap();
    assert_eq!(db.stats().keyspaces[0].runs, 0, "everything has expired and nothing pins it");
    assert_eq!(iter.next_back().unwrap().unwrap().0, "d");
    assert_eq!(iter.map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>(), [b"b", b"c"]);
}

#[test]
fn explain_distinguishes_expired_from_absent() {
    let (fs, clock) = (FaultyFs::new(1), Arc::new(ManualClock::new(START)));
    let db = options(&fs, &clock, Some(10)).open("/db").unwrap();
    db.put("key", "value").unwrap();
    assert!(matches!(db.explain_get("key").unwrap().outcome, ExplainOutcome::Found { .. }));
    clock.advance(20);
    let outcome = |key: &str| db.explain_get(key).unwrap().outcome;
    assert_eq!(outcome("key"), ExplainOutcome::Expired { horizon: 2 });
    assert_eq!(outcome("other"), ExplainOutcome::Absent);
    db.delete("key").unwrap();
    db.delete_range("l".."z").unwrap();
    assert_eq!(outcome("key"), ExplainOutcome::Deleted { seq: 2 });
    assert_eq!(outcome("m"), ExplainOutcome::DeletedByRange { seq: 3 });
}

/// A clock that does something once when it is read, before it answers.
#[derive(Default)]
struct Interrupted {
    time: std::sync::atomic::AtomicU64,
    once: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interrupted")
    }
}

impl Clock for Interrupted {
    fn now(&self) -> u64 {
        let once = self.once.lock().unwrap().take();
        if let Some(once) = once {
            once();
        }
        self.time.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// A reader that had loaded the view before a flush, and the time after it, missed a key that was
/// renewed in between: its view lacked the new memtable, and its horizon hid the old value.
#[test]
fn a_reader_that_a_flush_overtakes_finds_the_renewed_key() {
    let (fs, clock) = (FaultyFs::new(1), Arc::new(Interrupted::default()));
    let forward = |clock: &Interrupted| clock.time.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    clock.time.store(START, std::sync::atomic::Ordering::SeqCst);
    let mut options = options(&fs, &Arc::new(ManualClock::new(START)), Some(1));
    options.clock = Some(clock.clone());
    let db = options.open("/db").unwrap();
    db.put("key", "old").unwrap();
    let overtake = || {
        let (db, clock) = (db.clone(), clock.clone());
        move || {
            db.flush().unwrap();
            forward(&clock);
            db.put("key", "renewed").unwrap();
            forward(&clock);
        }
    };
    type Read = fn(&Db) -> usize;
    let reads: [Read; 3] = [
        |db| usize::from(db.contains_key("key").unwrap()),
        |db| db.iter().count(),
        |db| db.multi_get(&["key"]).unwrap().iter().flatten().count(),
    ];
    for read in reads {
        *clock.once.lock().unwrap() = Some(Box::new(overtake()));
        assert_eq!(read(&db), 1);
    }
}

/// A key that is written again before it expires is always present: a reader whose horizon is later
/// than the sequence number up to which it sees writes would miss it.
#[test]
fn a_key_that_is_renewed_in_time_is_never_missed() {
    let (fs, clock) = (FaultyFs::new(1), Arc::new(ManualClock::new(START)));
    let db = options(&fs, &clock, Some(1)).open("/db").unwrap();
    db.put("key", "0").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(db.contains_key("key").unwrap());
                    assert_eq!(db.iter().count(), 1);
                    assert_eq!(db.snapshot().iter().count(), 1);
                }
            });
        }
        for i in 0..2000 {
            db.put("key", i.to_string()).unwrap();
            clock.advance(1);
            if i % 50 == 0 {
                db.flush().unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
