//! Expiry and snapshots with manually run plans; `tests/engine/expiry.rs` has the histories.

use crate::options::KeyspaceOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tamis_files::tree::edit::Ages;

use tamis_base::meta::TableMeta;
use tamis_policy::compaction::plan::{OutputRun, PlanInput, Work};
use tamis_policy::compaction::policy::{CompactionPolicy, Pressure, Promise};
use tamis_policy::compaction::shape::{KeyRange, Shape, Spot};

use super::*;
use crate::catalogue::shaping::Shaping;
use crate::clock::{Clock, ManualClock};
use crate::io::{FileSystem, MemFs};
use crate::session::Session;
use crate::tree::new_tables::NewTables;
use crate::tree::open_table::OpenTable;
use crate::{Db, Keyspace, Options};

const START: u64 = 1_700_000_000;

struct Bench {
    fs: MemFs,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new() -> Bench {
        Bench { fs: MemFs::new(), clock: Arc::new(ManualClock::new(START)) }
    }

    /// Opens the database; compactions run only when called.
    fn open(&self, ttl: Option<u64>) -> Db {
        let mut options = Options {
            file_system: Some(Arc::new(self.fs.clone())),
            clock: Some(self.clock.clone()),
            ..Options::default()
        };
        options.keyspace.auto_compaction = false;
        options.keyspace.time_to_live = ttl.map(Duration::from_secs);
        options.open("db").unwrap()
    }

    /// Waits until the files of all but so many tables are removed: a background thread may hold a
    /// version for a moment.
    fn wait_for_table_files(&self, db: &Db, count: usize) {
        let begun = Instant::now();
        loop {
            inner(db).files.garbage.remove_all(&*inner(db).fs);
            let names = self.fs.list(Path::new("db")).unwrap();
            let left = names.iter().filter(|name| name.ends_with(".tam")).count();
            if left == count {
                return;
            }
            assert!(left > count && begun.elapsed() < Duration::from_secs(60), "{left} files are left");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn inner(db: &Db) -> &Session {
    &db.handle().inner
}

fn default(db: &Db) -> &KeyspaceInner {
    &db.default_keyspace().inner
}

fn metas(db: &Db) -> Vec<Arc<TableMeta>> {
    default(db).view.load().version.tables.iter().map(|table| table.meta.clone()).collect()
}

fn shape(db: &Db) -> Shape {
    let db_inner = inner(db);
    db_inner.shape(&db_inner.state(), default(db))
}

fn run(db: &Db, plan: &Plan) {
    let job = inner(db).start(&mut inner(db).state(), default(db), plan);
    inner(db).run_plan(default(db), plan, &job, None).unwrap();
}

/// Builds a plan for some of the runs of level 0, newest first.
fn plan(db: &Db, runs: &[usize], work: Work) -> Plan {
    let shape = shape(db);
    let runs = || runs.iter().map(|&run| &shape.runs(0)[run]);
    let input = |run: &tamis_policy::compaction::shape::RunShape| PlanInput {
        level: 0,
        run: run.id,
        tables: run.tables.iter().map(TableShape::id).collect(),
    };
    Plan {
        inputs: runs().map(input).collect(),
        output_level: 1,
        output: OutputRun::New,
        range: KeyRange::hull(runs().flat_map(|run| &run.tables)).unwrap(),
        max_table_bytes: u64::MAX,
        borders: Vec::new(),
        edges: Vec::new(),
        reason: Reason::Manual,
        work,
        guard_bits: None,
        bottommost: false,
        stretch: None,
    }
}

fn put_flushed(db: &Db, key: &str, value: &str) {
    db.put(key, value).unwrap();
    db.flush().unwrap();
}

fn text(value: Option<crate::Slice>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// The table of a newer version may be dropped while that of an older one stays for its other
/// contents. The older version reappeared when the horizon went back: after the time to live was
/// lengthened or removed, or the clock was set back.
#[test]
fn versions_replaced_by_an_expired_entry_stay_gone() {
    for (ttl, clock) in [(Some(100), 111), (Some(1000), 111), (None, 111), (Some(100), 5), (None, 5)] {
        let bench = Bench::new();
        let db = bench.open(Some(100));
        put_flushed(&db, "key", "old");
        bench.clock.advance(1);
        put_flushed(&db, "key", "new");
        bench.clock.advance(59);
        put_flushed(&db, "other", "young");
        // The oldest and the newest run are merged; nothing has expired yet.
        run(&db, &plan(&db, &[0, 2], Work::Merge));
        assert_eq!(text(db.get("key").unwrap()), Some("new".into()));
        bench.clock.advance(50);
        let expired = expired_tables(&shape(&db)).expect("the table of the new version");
        assert_eq!(expired.tables().count(), 1);
        run(&db, &expired);
        assert_eq!(metas(&db).len(), 1);
        assert_eq!(db.get("key").unwrap(), None);
        assert!(db.contains_key("other").unwrap());
        db.close().unwrap();

        bench.clock.set(START + clock);
        let db = bench.open(ttl);
        assert_eq!(db.get("key").unwrap(), None, "time to live {ttl:?}, clock {clock}");
        assert!(db.contains_key("other").unwrap(), "time to live {ttl:?}, clock {clock}");
        // Also once everything has been rewritten, which must keep the sequence numbers.
        db.put("key", "again").unwrap();
        db.delete("key").unwrap();
        db.compact().unwrap();
        assert_eq!(db.get("key").unwrap(), None);
        assert!(db.contains_key("other").unwrap(), "time to live {ttl:?}, clock {clock}");
        assert!(metas(&db).iter().all(|meta| meta.max_seq > 0));
    }
}

/// Merges had removed the sequence numbers before the keyspace got its time to live: number 0
/// looked like the oldest of all, and the entries expired at once.
#[test]
fn entries_of_unknown_age_count_as_written_when_time_to_live_began() {
    let bench = Bench::new();
    let db = bench.open(None);
    for key in ["a", "b"] {
        db.put(key, "old").unwrap();
    }
    db.compact().unwrap();
    assert!(metas(&db).iter().all(|meta| (meta.min_seq, meta.max_seq) == (0, 0)));
    db.close().unwrap();

    bench.clock.advance(1000);
    let db = bench.open(Some(100));
    bench.clock.advance(10);
    db.put("a", "new").unwrap();
    db.compact().unwrap();
    bench.clock.advance(90);
    let seen = |db: &Db| ["a", "b"].map(|key| text(db.get(key).unwrap()));
    assert_eq!(seen(&db), [Some("new".into()), Some("old".into())]);
    bench.clock.advance(1);
    assert_eq!(seen(&db), [Some("new".into()), None]);
    bench.clock.advance(10);
    assert_eq!(seen(&db), [None, None]);
    db.compact().unwrap();
    assert_eq!((seen(&db), metas(&db).len()), ([None, None], 0));
}

#[test]
fn a_table_goes_when_all_in_it_has_expired_and_no_snapshot_sees_it() {
    let bench = Bench::new();
    let db = bench.open(Some(100));
    put_flushed(&db, "a", "first");
    let snapshot = db.snapshot();
    bench.clock.advance(1);
    put_flushed(&db, "b", "second");
    bench.clock.advance(1);
    put_flushed(&db, "c", "third");
    assert_eq!(expired_tables(&shape(&db)), None);
    bench.clock.advance(100);
    let plan = expired_tables(&shape(&db)).unwrap();
    assert_eq!(plan.tables().collect::<Vec<_>>(), [metas(&db)[1].id], "the snapshot sees the oldest");
    run(&db, &plan);
    assert_eq!(text(snapshot.get("a").unwrap()), Some("first".into()));
    assert_eq!(db.iter().count(), 1);
    drop(snapshot);
    // A snapshot taken now does not see expired data.
    let late = db.snapshot();
    assert_eq!((late.iter().count(), text(late.get("a").unwrap())), (1, None));
    drop(late);
    let plan = expired_tables(&shape(&db)).unwrap();
    let job = inner(&db).start(&mut inner(&db).state(), default(&db), &plan);
    assert_eq!(expired_tables(&shape(&db)), None, "it is taken");
    inner(&db).run_plan(default(&db), &plan, &job, None).unwrap();
    assert_eq!(metas(&db).len(), 1);
    assert_eq!(inner(&db).observed.write_counters.read().dropped_tables, 2);
}

/// A policy that drops tables on command.
#[derive(Debug)]
struct Dropping;

impl CompactionPolicy for Dropping {
    fn plan(&self, _shape: &Shape) -> Option<Plan> {
        None
    }
    fn write_pressure(&self, _shape: &Shape) -> Pressure {
        Pressure::None
    }
    fn debt(&self, _shape: &Shape) -> u64 {
        0
    }
    fn level_targets(&self, _shape: &Shape) -> Vec<u64> {
        vec![0]
    }
    fn promise(&self, _shape: &Shape) -> Promise {
        Promise::default()
    }
    fn manual(&self, _shape: &Shape, _range: Option<&KeyRange>) -> Option<Plan> {
        None
    }
    fn deepen(&self, _shape: &Shape, _spot: &Spot<'_>, _reason: Reason) -> Option<Plan> {
        None
    }
    fn ends_round(&self, _shape: &Shape, _plan: &Plan) -> bool {
        true
    }
    fn drops_data(&self) -> bool {
        true
    }
    fn name(&self) -> String {
        "dropping".into()
    }
}

fn let_drop(keyspace: &Keyspace) {
    let options = keyspace.options();
    keyspace.inner.shaping.store(Arc::new(Shaping { options, policy: Box::new(Dropping) }));
    // Snapshots pin the views of those keyspaces alone that the catalogue lists.
    keyspace.handle.inner.state().catalogue.policy_changed(keyspace.inner.id);
}

#[test]
fn a_snapshot_reads_dropped_tables() {
    // The policy is set before or after the snapshot is taken.
    for before in [true, false] {
        let bench = Bench::new();
        let db = bench.open(None);
        if before {
            let_drop(db.default_keyspace());
        }
        put_flushed(&db, "a", "in a table");
        db.put("b", "in memory").unwrap();
        let snapshot = db.snapshot();
        if !before {
            let_drop(db.default_keyspace());
            let _state = inner(&db).state();
            inner(&db).hold_for_snapshots(default(&db));
        }
        db.put("a", "later").unwrap();
        db.put("c", "later").unwrap();
        db.flush().unwrap();
        let bytes = metas(&db)[1].file_bytes;
        assert_eq!(db.stats().snapshots_live[0].pinned_table_bytes, 0);
        run(&db, &plan(&db, &[0, 1], Work::Drop));
        assert_eq!((db.iter().count(), db.get("b").unwrap()), (0, None));
        let clone = snapshot.clone();
        drop(snapshot);
        let items = |item: Result<(crate::Slice, crate::Slice), _>| {
            item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
        };
        let expected = [(b"a".to_vec(), b"in a table".to_vec()), (b"b".to_vec(), b"in memory".to_vec())];
        assert_eq!(clone.iter().map(items).collect::<Vec<_>>(), expected);
        assert!(clone.iter().rev().map(items).eq(expected.into_iter().rev()));
        let values = clone.multi_get(&["b", "a", "c"]).unwrap().into_iter().map(text);
        assert!(values.eq([Some("in memory".into()), Some("in a table".into()), None]));
        bench.wait_for_table_files(&db, 1);
        assert_eq!(text(clone.get("a").unwrap()), Some("in a table".into()));
        let stats = &db.stats().snapshots_live[0];
        assert_eq!((stats.pinned_table_bytes, stats.pinned_bytes, stats.handles), (bytes, bytes, 1));
        drop(clone);
        bench.wait_for_table_files(&db, 0);
        assert_eq!(db.stats().snapshots_live, vec![]);
    }
}

/// A batch over two keyspaces, one of which is read through a pinned view: the view and the number
/// must match.
#[test]
fn pinned_and_current_views_show_one_moment() {
    let bench = Bench::new();
    let db = bench.open(None);
    let other = db.create_keyspace("other", db.options().keyspace.clone()).unwrap();
    let_drop(&other);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let snapshot = db.snapshot();
                let both = [snapshot.get("key").unwrap(), snapshot.keyspace(&other).get("key").unwrap()];
                assert_eq!(both[0].as_deref(), both[1].as_deref());
                drop(snapshot);
                std::thread::yield_now();
            }
        });
        for i in 0..60 {
            let mut batch = crate::WriteBatch::new();
            batch.put("key", i.to_string()).put_in(&other, "key", i.to_string());
            db.write(batch).unwrap();
            if i % 3 == 0 {
                other.flush().unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn statistics_show_what_snapshots_keep() {
    let bench = Bench::new();
    let db = bench.open(None);
    put_flushed(&db, "a", "value");
    let snapshot = db.snapshot();
    let again = db.snapshot();
    db.put("b", "value").unwrap();
    bench.clock.advance(7);
    let later = db.snapshot();
    bench.clock.advance(2);
    // As if a merge had kept something for these two snapshots, and for one that is gone.
    let mut meta = (*metas(&db)[0]).clone();
    meta.extra.pinned = vec![(1, 100), (2, 30), (77, 5)];
    let db_of = inner(&db);
    let table = OpenTable::open(
        &*db_of.fs,
        &db_of.dir,
        Arc::new(meta.clone()),
        &db_of.files.reader_config,
        &db_of.files.garbage,
    );
    let mut opened = NewTables::default();
    opened.push(table.unwrap());
    let (run, id) = (default(&db).view.load().version.runs[0].id, meta.id);
    let edit =
        VersionEdit { removed: vec![(0, id)], added: vec![(0, 0, run, meta)], ..VersionEdit::default() };
    inner(&db).commit_edit(&mut inner(&db).state(), edit, opened, |_, old| old.clone()).unwrap();
    let stats = db.stats();
    let numbers = |stats: &crate::stats::SnapshotStats| {
        (stats.seq, stats.age_seconds, stats.handles, stats.pinned_bytes)
    };
    assert_eq!(stats.snapshots_live.iter().map(numbers).collect::<Vec<_>>(), [(1, 9, 2, 100), (2, 2, 1, 30)]);
    assert_eq!((stats.snapshots, stats.oldest_snapshot), (2, Some(1)));
    assert_eq!(stats.keyspaces[0].reclaimable_bytes, 5);
    drop((snapshot, again.clone(), again));
    assert_eq!(db.stats().keyspaces[0].reclaimable_bytes, 105);
    drop(later);
    db.close().unwrap();
    let db = bench.open(None);
    assert_eq!((db.stats().snapshots_live, db.stats().keyspaces[0].reclaimable_bytes), (vec![], 135));
}

/// Writes may stay in the log for days, and after a crash all of them counted as written at the
/// opening.
#[test]
fn samples_are_stored_without_a_flush() {
    let bench = Bench::new();
    let db = bench.open(Some(3200));
    let stored =
        |db: &Db| inner(db).state().catalogue.tree().times.newest().map(|sample| sample.time - START);
    for second in (0..400).step_by(40) {
        bench.clock.set(START + second);
        db.put("key", "value").unwrap();
        inner(&db).save_times(&mut inner(&db).state());
    }
    // Every 200 s, a sixteenth of the time to live. The background thread may have been a step
    // earlier or later.
    assert!(stored(&db).is_some_and(|time| time >= 200), "{:?}", stored(&db));
    assert_eq!(metas(&db).len(), 0);
}

/// The first sample of all covered the deletes, when a background thread took it before the close
/// that stored it: none was older, and the deletes in the log counted as written at the next
/// opening.
#[test]
fn deletes_in_a_log_are_as_old_as_the_first_sample_that_covers_them() {
    let bench = Bench::new();
    let open = || {
        let mut options = Options {
            file_system: Some(Arc::new(bench.fs.clone())),
            clock: Some(bench.clock.clone()),
            ..Options::default()
        };
        options.keyspace.auto_compaction = false;
        options.keyspace.max_tombstone_age = Some(Duration::from_secs(1000));
        options.open("db").unwrap()
    };
    let db = open();
    put_flushed(&db, "a", "value");
    db.delete("a").unwrap();
    inner(&db).save_times(&mut inner(&db).state());
    db.close().unwrap();
    bench.clock.set(START + 500);
    let db = open();
    db.flush().unwrap();
    assert_eq!(db.stats().keyspaces[0].oldest_delete_seconds, Some(500));
}

/// Otherwise every commit would read the clock, and every manifest would grow.
#[test]
fn without_time_to_live_there_are_no_samples() {
    let bench = Bench::new();
    let db = bench.open(None);
    put_flushed(&db, "a", "value");
    let state = inner(&db).state();
    assert_eq!(state.catalogue.tree().times.samples(), []);
    assert_eq!(state.catalogue.tree().keyspaces[&0].ages, None);
    drop(state);
    let keyspace = db
        .create_keyspace(
            "aged",
            KeyspaceOptions { time_to_live: Some(Duration::from_secs(1000)), ..KeyspaceOptions::default() },
        )
        .unwrap();
    keyspace.put("a", "value").unwrap();
    db.flush().unwrap();
    let state = inner(&db).state();
    assert_eq!(state.catalogue.tree().times.samples(), [Sample { time: START, seq: 2 }]);
    assert_eq!(state.catalogue.tree().keyspaces[&1].ages, Some(Ages::default()));
    assert_eq!((state.catalogue.tree().keyspaces[&0].ages, bench.clock.now()), (None, START));
}
