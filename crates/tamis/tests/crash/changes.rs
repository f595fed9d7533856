//! The change feed: a mirror that applies what a consumer reads is what the database holds,
//! whatever crashed or failed meanwhile.

use std::collections::BTreeMap;
use std::ops::Bound;

use tamis::changes::{Change, Changes, ChangesError, OperationKind};
use tamis::{Db, WriteBatch};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass, Rng};

use crate::lab::{self, MODES, scale};

const NAME: &str = "mirror";

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A program that keeps a copy of the default keyspace, which outlives the machine of the database.
#[derive(Clone, Default)]
struct Mirror {
    contents: Contents,
    /// Whether there is a consumer for sure.
    created: bool,
    /// Whether logs may be given up after failed syncs, so that the mirror has to begin anew.
    may_fall_behind: bool,
}

impl Mirror {
    fn apply(&mut self, change: &Change) {
        assert!(change.is_durable());
        for operation in change.operations() {
            assert_eq!(operation.keyspace, Some("default"), "another keyspace is not shown");
            match operation.kind {
                OperationKind::Put { key, value } => _ = self.contents.insert(key.to_vec(), value.to_vec()),
                OperationKind::Delete { key } => _ = self.contents.remove(key),
                OperationKind::DeleteRange { start, end } => {
                    let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
                    let gone: Vec<_> = self.contents.range((Bound::Included(start.to_vec()), end)).collect();
                    let gone: Vec<_> = gone.into_iter().map(|(key, _)| key.clone()).collect();
                    gone.iter().for_each(|key| _ = self.contents.remove(key));
                }
                other => panic!("{other:?} was not written"),
            }
        }
    }

    /// Reads what there is, in order, each change once; or begins anew.
    fn catch_up(&mut self, db: &Db, changes: &mut Changes) -> Result<(), tamis::Error> {
        let drained = self.drain(changes);
        if let Err(ChangesError::FellBehind { wanted, oldest }) = drained {
            assert!(self.may_fall_behind, "{wanted} is gone");
            let snapshot = db.snapshot();
            assert!(wanted < oldest && oldest <= snapshot.seq() + 1, "{wanted}, {oldest}");
            // Nothing is written meanwhile.
            self.contents = contents(db)?;
            db.change_consumer(NAME)?.acknowledge(snapshot.seq())?;
            *changes = db.changes(snapshot.seq())?.durable_only(true);
            return Ok(());
        }
        Ok(drained?)
    }

    fn drain(&mut self, changes: &mut Changes) -> Result<(), ChangesError> {
        let mut last = changes.last_seq();
        while let Some(change) = changes.poll()? {
            assert!(change.first_seq() > last, "{} after {last}", change.first_seq());
            self.apply(&change);
            last = change.last_seq();
        }
        Ok(())
    }
}

/// The consumer's reader of a database that was opened just now.
fn reader(db: &Db, mirror: &mut Mirror) -> Result<Changes, tamis::Error> {
    let consumer = db.change_consumer(NAME)?;
    if !mirror.created {
        mirror.contents = contents(db)?;
        mirror.created = true;
    }
    match consumer.changes() {
        Err(ChangesError::FellBehind { wanted, .. }) => {
            assert!(mirror.may_fall_behind, "{wanted} is gone");
            let snapshot = db.snapshot();
            mirror.contents = contents(db)?;
            consumer.acknowledge(snapshot.seq())?;
            Ok(db.changes(snapshot.seq())?.durable_only(true))
        }
        changes => Ok(changes?.durable_only(true)),
    }
}

fn contents(db: &Db) -> Result<Contents, tamis::ReadError> {
    let item = |item: Result<(tamis::Slice, tamis::Slice), _>| item.map(|(k, v)| (k.to_vec(), v.to_vec()));
    db.iter().map(item).collect()
}

/// Does some hundred things at random. Errors end it early.
fn session(db: &Db, mirror: &mut Mirror, rng: &mut Rng) -> Result<(), tamis::Error> {
    let mut changes = reader(db, mirror)?;
    for _ in 0..50 + rng.index(150) {
        match rng.below(20) {
            0 => db.flush()?,
            1 => mirror.catch_up(db, &mut changes)?,
            2 => {
                mirror.catch_up(db, &mut changes)?;
                db.change_consumer(NAME)?.acknowledge(changes.last_seq())?;
            }
            3 => changes = reader(db, mirror)?,
            4 => db
                .create_keyspace(&format!("k{}", rng.below(256)), lab::tiny_keyspace())
                .map(drop)
                .or_else(|error| match error {
                    tamis::AdminError::KeyspaceExists { .. } => Ok(()),
                    other => Err(other),
                })?,
            kind => {
                let mut batch = WriteBatch::new();
                for _ in 0..1 + rng.index(3) {
                    let key = [rng.below(40) as u8];
                    match rng.below(8) {
                        0 => batch.delete(key),
                        1 => batch.delete_range(key..[key[0].saturating_add(3)]),
                        _ => batch.put(key, vec![rng.below(256) as u8; rng.index(500)]),
                    };
                }
                db.write(batch)?;
                if kind < 8 {
                    db.sync()?;
                }
            }
        }
    }
    Ok(())
}

/// Opens the database, lets the consumer catch up, and compares.
fn judge(fs: &FaultyFs, mirror: &mut Mirror, context: &str) {
    let db = lab::open(fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    let mut changes = reader(&db, mirror).unwrap_or_else(|e| panic!("{context}: {e}"));
    db.put([255], "last").unwrap_or_else(|e| panic!("{context}: {e}"));
    db.sync().unwrap_or_else(|e| panic!("{context}: {e}"));
    mirror.catch_up(&db, &mut changes).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(mirror.contents, contents(&db).expect("a scan"), "{context}");
    db.change_consumer(NAME).and_then(|consumer| consumer.acknowledge(changes.last_seq())).expect("a put");
    db.close().unwrap_or_else(|e| panic!("{context}: {e}"));
}

/// The manifest recorded the number of the last write at each edit, synced or not. After a power
/// failure numbers went on behind it, and a consumer that had missed nothing was told that it fell
/// behind.
#[test]
fn a_mirror_is_right_after_crashes_at_random_moments() {
    lab::listen_for_panics();
    for seed in 0..40 * scale() as u64 {
        let mut rng = Rng::new(seed);
        let mut fs = FaultyFs::new(seed);
        let mut mirror = Mirror::default();
        for life in 0..4 {
            let context = format!("seed {seed}, life {life}");
            let db = lab::open(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
            session(&db, &mut mirror, &mut rng).unwrap_or_else(|e| panic!("{context}: {e}"));
            let mode = MODES[rng.index(3)];
            let after = fs.after_crash(mode);
            let _ = fs.crash(CrashMode::KeepAll);
            drop(db);
            fs = after;
            if rng.chance(4) {
                judge(&fs, &mut mirror, &format!("{context}, {mode:?}"));
            }
        }
        lab::assert_no_background_panics(&format!("seed {seed}"));
    }
}

/// Failed syncs and appends leave records in logs that never took effect; their numbers are given
/// again.
#[test]
fn a_mirror_is_right_after_failing_operations() {
    lab::listen_for_panics();
    let classes = [None, Some(OpClass::Sync), Some(OpClass::Read)];
    for seed in 0..40 * scale() as u64 {
        let mut rng = Rng::new(seed);
        let context = format!("seed {seed}");
        let fs = FaultyFs::new(seed);
        let mut mirror = Mirror { may_fall_behind: true, ..Mirror::default() };
        let only = classes[rng.index(3)];
        for _ in 0..3 {
            let fail_at = Some(fs.operations() + rng.below(400));
            fs.plan(FaultPlan { fail_at, only, partial_append: rng.chance(4), ..FaultPlan::none() });
            if let Ok(db) = lab::open(&fs) {
                for _ in 0..4 {
                    // Writes are suspended, and resume.
                    _ = session(&db, &mut mirror, &mut rng);
                }
                if rng.chance(4) {
                    let mode = MODES[rng.index(3)];
                    let after = fs.after_crash(mode);
                    judge(&after, &mut mirror.clone(), &format!("{context}, {mode:?}"));
                }
            }
        }
        fs.plan(FaultPlan::none());
        judge(&fs, &mut mirror, &context);
        lab::assert_no_background_panics(&context);
    }
}

/// A reader that was open while a sync failed returned the write that was never acknowledged, and
/// passed over the one that got its number.
#[test]
fn a_write_whose_sync_failed_is_no_change() {
    let fs = FaultyFs::new(3);
    let db = lab::open(&fs).unwrap();
    db.put("first", "").unwrap();
    let mut changes = db.changes(0).unwrap();
    assert_eq!(changes.by_ref().count(), 1);
    let mut batch = WriteBatch::new();
    batch.put("failed", "").put("too", "");
    fs.plan(FaultPlan { fail_at: Some(fs.operations()), only: Some(OpClass::Sync), ..FaultPlan::none() });
    db.write_with(batch, tamis::Durability::Sync).unwrap_err();
    fs.plan(FaultPlan::none());
    while db.put("second", "").is_err() {
        std::thread::yield_now();
    }
    let change = changes.poll().unwrap().expect("a change");
    let operations: Vec<_> = change.operations().map(|operation| (operation.seq, operation.kind)).collect();
    assert_eq!(operations, [(2, OperationKind::Put { key: b"second", value: b"" })]);
    assert!(changes.poll().unwrap().is_none());
}

/// With logs kept for a consumer, an opening removed an empty log that had been created ahead;
/// where the disk was full, it then looked for it, and failed.
#[test]
fn a_database_with_a_consumer_opens_on_a_full_disk() {
    let fs = FaultyFs::new(9);
    let db = lab::open(&fs).unwrap();
    db.change_consumer(NAME).unwrap();
    for n in 0..200u8 {
        db.put([n], [n; 100]).unwrap();
    }
    db.flush().unwrap();
    db.put("last", "value").unwrap();
    while fs.files().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "log")).count() < 2 {
        std::thread::yield_now();
    }
    let after = fs.after_crash(CrashMode::KeepAll);
    let _ = fs.crash(CrashMode::KeepAll);
    drop(db);
    after.set_capacity(Some(after.files().iter().map(|(_, len)| len).sum()));
    let db = lab::open(&after).unwrap();
    assert_eq!(db.get("last").unwrap().unwrap(), "value");
    after.set_capacity(None);
    while db.put("more", "").is_err() {
        std::thread::yield_now();
    }
    let changes = db.change_consumer(NAME).unwrap().changes().unwrap();
    let count: usize = changes.map(|change| change.unwrap().operations().count()).sum();
    assert_eq!(count, 202);
}
