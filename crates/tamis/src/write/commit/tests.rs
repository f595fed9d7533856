//! What a commit does, in which order, and what becomes of it after a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::catalogue::tests::session;
use crate::io::MemFs;
use crate::{Db, Durability, KeyspaceOptions, Options};

fn options() -> Options {
    Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() }
}

fn open() -> Db {
    options().open("/db").unwrap()
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        sync::thread::sleep(Duration::from_millis(1));
    }
}

fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    batch
}

/// The queue used to wait for a leader that no longer existed.
#[test]
fn a_panic_of_the_leader_stops_writes_but_leaves_no_writer_waiting() {
    let db = open();
    db.put("key", "value").unwrap();
    let inner = db.inner();
    sync::thread::scope(|scope| {
        let leader = scope.spawn("leader".to_owned(), || {
            let mut batch = WriteBatch::new();
            batch.put("key", "lost");
            let commit = |_: &mut Current, _: Members<'_>, _| {
                while inner.committer.queue.lock().pending.len() < 2 {
                    sync::thread::sleep(Duration::from_millis(1));
                }
                panic!("while leading");
            };
            catch_unwind(AssertUnwindSafe(|| {
                inner.committer.submit(batch, false, None, || inner.lock_log(), commit)
            }))
        });
        let leader = leader.unwrap();
        while !inner.committer.queue.lock().leading {
            sync::thread::sleep(Duration::from_millis(1));
        }
        let other = || {
            let mut batch = WriteBatch::new();
            batch.put("key", "other");
            inner.write(batch, true)
        };
        let others = [(); 2].map(|()| scope.spawn("other".to_owned(), other).unwrap());
        for other in others {
            assert!(matches!(other.join().unwrap(), Err(WriteError::Poisoned { .. })));
        }
        assert!(leader.join().unwrap().is_err());
    });
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    assert!(matches!(db.put("key", "later"), Err(WriteError::Poisoned { .. })));
}

/// A thread that took the log used to wait forever for a number that was assigned but never
/// published.
#[test]
fn a_panic_between_a_number_and_its_publication_keeps_nobody_waiting() {
    let db = open();
    db.put("key", "value").unwrap();
    let inner = db.inner();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut log = inner.lock_log();
        log.assign(1);
        panic!("before it is published");
    }));
    assert!(panicked.is_err());
    assert!(matches!(db.put("key", "later"), Err(WriteError::Poisoned { .. })));
    drop(inner.lock_log());
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
}

/// A batch in flight that never lands stops all writes, and the batches waiting for it get an
/// error.
#[test]
fn a_panic_in_flight_stops_writes_and_keeps_nobody_waiting() {
    let db = open();
    db.put("key", "value").unwrap();
    let inner = db.inner();
    let ticket = {
        let mut log = inner.log.lock();
        log.assign(1);
        inner.committer.turns.take()
    };
    sync::thread::scope(|scope| {
        // In flight behind the one that panics.
        let behind = scope.spawn("behind".to_owned(), || db.put("key", "behind")).unwrap();
        while inner.log.lock().last_seq() < 3 {
            sync::thread::sleep(Duration::from_millis(1));
        }
        let in_flight = InFlight { db: inner, ticket: Some(ticket) };
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _in_flight = in_flight;
            panic!("in flight");
        }));
        assert!(panicked.is_err());
        assert_eq!(inner.gate.stopped().unwrap(), PANICKED);
        assert!(matches!(behind.join().unwrap(), Err(WriteError::Poisoned { .. })));
    });
    assert!(matches!(db.put("key", "later"), Err(WriteError::Poisoned { .. })));
    drop(inner.lock_log());
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
}

/// Deletes go ahead of what waits for room, but not of their condition.
#[test]
fn a_transaction_of_deletes_is_judged_while_writes_are_stopped() {
    let db = open();
    db.put("key", "value").unwrap();
    let mut tx = db.transaction();
    assert_eq!(tx.get("key").unwrap().unwrap(), "value");
    tx.delete("key").unwrap();
    db.put("key", "newer").unwrap();
    let _pause = db.pause_compaction();
    // Nothing that ends the stop has room.
    let lacks = db.inner().state().scheduler.note_room(0, Some("no room".to_owned()));
    assert_eq!(lacks, None);
    let pressure = &db.default_keyspace().inner.pressure;
    pressure.set(Pressure::Stop);
    assert!(matches!(tx.commit(), Err(TransactionError::Conflict { .. })));
    assert_eq!(db.get("key").unwrap().unwrap(), "newer");
    db.delete_range("a"..="z").unwrap();
    pressure.set(Pressure::None);
    assert_eq!(db.get("key").unwrap(), None);
}

#[test]
fn the_time_of_a_delete_is_noted_where_deletes_have_a_maximum_age() {
    for age in [None, Some(Duration::from_secs(3600))] {
        let mut options = options();
        options.keyspace.max_tombstone_age = age;
        let db = options.open("/db").unwrap();
        let noted = || db.default_keyspace().inner.view.load().memtables.active.first_delete();
        for durability in [Durability::Buffered, Durability::Sync] {
            db.put("key", "value").unwrap();
            assert_eq!(noted(), None);
            let mut batch = WriteBatch::new();
            batch.delete("key");
            db.write_with(batch, durability).unwrap();
            assert_eq!(noted().is_some(), age.is_some());
            db.flush().unwrap();
        }
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_key_is_hashed_once_when_its_operation_is_added_and_never_under_a_lock() {
    let db = open();
    let computed = tamis_filter::digest::computed_on_this_thread;
    let before = computed();
    let mut batch = WriteBatch::new();
    batch.put("a", "1").merge("b", "2").delete_range("c".."d").delete("e");
    assert_eq!(computed() - before, 3);
    let mut batch = WriteBatch::new();
    batch.put("a", "1").delete_range("c".."d").delete("e").put("f", "2");
    let before = computed();
    db.write(batch).unwrap();
    assert_eq!(computed(), before);
    let read = |key: &str| db.get(key).unwrap().map(|value| value.to_vec());
    assert_eq!((read("a"), read("e"), read("f")), (Some(b"1".to_vec()), None, Some(b"2".to_vec())));
}

#[test]
fn a_batch_that_commits_alone_counts_with_its_operations_and_bytes() {
    let db = open();
    let cost = |write: &dyn Fn()| {
        let before = db.stats().write;
        write();
        let cost = db.stats().write - before;
        (cost.writes, cost.user_bytes)
    };
    let mut batch = put("a", "1");
    batch.delete("b");
    assert_eq!(cost(&|| db.write(batch.clone()).unwrap()), (2, batch.byte_len() as u64));
    // The length of a large value counts as the five bytes that it takes at most.
    let (value, without) = (vec![0; 10_000], put("a", "").byte_len());
    assert_eq!(cost(&|| db.put("a", &value).unwrap()), (1, (without + 4 + value.len()) as u64));
}

#[test]
fn a_group_is_one_record_and_one_sync_and_all_its_values_are_found_in_the_log() {
    let mut options = options();
    options.keyspace.blob_threshold = 1000;
    let db = options.open("/db").unwrap();
    let batch = |i: u8| {
        let mut batch = put([i, 0], vec![i; 2000]);
        batch.put([i, 1], [i]).put([i, 2], vec![i; 3000]);
        batch
    };
    let (inner, before) = (db.inner(), db.stats().write);
    let log = inner.log.lock();
    sync::thread::scope(|scope| {
        let write = |i| db.write_with(batch(i), Durability::Sync);
        let writers = [1, 2, 3].map(|i| scope.spawn("writer".to_owned(), move || write(i)).unwrap());
        // One leads, and waits for the log.
        wait_until(|| inner.committer.queued() == 2);
        drop(log);
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    let cost = db.stats().write - before;
    let bytes = 3 * batch(1).byte_len() as u64;
    assert_eq!((cost.writes, cost.user_bytes, cost.groups, cost.log_syncs), (9, bytes, 1, 1));
    assert!(inner.log.lock().has_values());
    for i in 1..=3 {
        for (at, len) in [(0, 2000), (1, 1), (2, 3000)] {
            assert_eq!(db.get([i, at]).unwrap().unwrap(), vec![i; len]);
        }
    }
}

/// A log that is open for reading is not overwritten later.
#[test]
fn a_log_is_opened_for_values_only_if_one_stays_there() {
    for threshold in [0, 1000] {
        let options = KeyspaceOptions { blob_threshold: threshold, ..KeyspaceOptions::default() };
        let db = session(1, &options, |_| ());
        let mut small = WriteBatch::new();
        (0..20).for_each(|i| _ = small.put([i], [0; 100]));
        for sync in [false, true] {
            db.write(small.clone(), sync).unwrap();
            db.write(put("key", [0; 999]), sync).unwrap();
        }
        db.put_large(&put("key", ""), &[0; 999]).unwrap();
        assert!(!db.log.lock().has_values());
        db.put_large(&put("key", ""), &[0; 1000]).unwrap();
        assert_eq!(db.log.lock().has_values(), threshold > 0);
    }
}

#[test]
fn commits_in_groups_are_timed_and_a_sample_of_the_others_or_all() {
    for threshold in [None, Some(Duration::from_secs(3600))] {
        let db = Options { slow_operation_threshold: threshold, ..options() }.open("/db").unwrap();
        (0..100).for_each(|_| db.put("large", vec![0; 5000]).unwrap());
        // At least one in 32 is part of the sample.
        let expected = if threshold.is_some() { 100..=100 } else { 3..=99 };
        let timed = db.stats().latencies.write.samples();
        assert!(expected.contains(&timed), "{timed}");
        for _ in 0..40 {
            db.write_with(put("key", "synced"), Durability::Sync).unwrap();
            let mut tx = db.transaction();
            tx.put("key", "judged").unwrap();
            tx.commit().unwrap();
        }
        assert_eq!(db.stats().latencies.group_write.samples(), 80);
    }
}

#[test]
fn a_full_disk_takes_deletes_and_a_scarce_one_range_deletes_if_the_log_has_to_grow() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    let is_refused = |result: Result<(), WriteError>| matches!(result, Err(WriteError::Suspended { .. }));
    let grows = |batch: &WriteBatch| db.log.growth(&db.log.lock(), batch.byte_len()) > 0;
    db.write(put("key", "value"), false).unwrap();
    let (mut delete, mut deletes, mut ranges) = (WriteBatch::new(), WriteBatch::new(), WriteBatch::new());
    delete.delete("key");
    while !grows(&deletes) || !grows(&ranges) {
        deletes.delete([0; 1000]);
        ranges.delete_range([0; 1000]..[1; 1000]);
    }
    let reserve = &db.space.reserve;
    reserve.fill(1, "a test");
    assert!(!grows(&put("key", "value")) && !grows(&delete));
    assert!(is_refused(db.write(put("key", "value"), false)));
    assert!(is_refused(db.write(put("key", "value"), true)));
    assert!(is_refused(db.put_large(&put("key", ""), &[0; 100])));
    db.write(delete.clone(), false).unwrap();
    reserve.scarce.store(true, Ordering::Relaxed);
    db.write(delete, false).unwrap();
    let looked = reserve.looked.load(Ordering::Relaxed);
    assert!(is_refused(db.write(deletes, false)));
    db.write(ranges, false).unwrap();
    assert!(reserve.looked.load(Ordering::Relaxed) > looked, "the free space was not looked at");
}

/// In a group with writes that wait, they would fail as these do.
#[test]
fn deletes_stay_out_of_groups_while_the_shape_of_their_tree_stops_writes() {
    for (pressure, joins) in [(Pressure::Stop, false), (Pressure::None, true)] {
        let (db, other) = (open(), session(1, &KeyspaceOptions::default(), |_| ()));
        let inner = db.inner();
        let _pause = db.pause_compaction();
        assert_eq!(inner.state().scheduler.note_room(0, Some("no room".to_owned())), None);
        db.default_keyspace().inner.pressure.set(pressure);
        let [leads, queued, done] = [(); 3].map(|()| AtomicBool::new(false));
        sync::thread::scope(|scope| {
            let leader = scope.spawn("leader".to_owned(), || {
                let commit = |_: &mut Current, _: Members<'_>, _| {
                    leads.store(true, Ordering::SeqCst);
                    wait_until(|| done.load(Ordering::SeqCst) || inner.committer.queued() > 0);
                    queued.store(inner.committer.queued() > 0, Ordering::SeqCst);
                    Ok(())
                };
                // Not the log of the database, which the delete needs.
                inner.committer.submit(WriteBatch::new(), true, None, || other.lock_log(), commit)
            });
            wait_until(|| leads.load(Ordering::SeqCst));
            db.delete_range("a".."z").unwrap();
            done.store(true, Ordering::SeqCst);
            leader.unwrap().join().unwrap().unwrap();
        });
        assert_eq!(queued.into_inner(), joins, "{pressure:?}");
    }
}

#[test]
fn a_writer_that_finds_no_turn_left_waits_for_those_in_flight() {
    let db = open();
    let inner = db.inner();
    let mut in_flight = Vec::new();
    {
        let mut log = inner.log.lock();
        while !inner.committer.turns.are_taken() {
            in_flight.push((inner.committer.turns.take(), log.assign(1)));
        }
    }
    sync::thread::scope(|scope| {
        let writer = scope.spawn("writer".to_owned(), || db.put("key", "value")).unwrap();
        // It waits with the log taken.
        wait_until(|| inner.log.try_lock().is_none());
        in_flight.into_iter().for_each(|(ticket, last)| assert!(inner.committer.land(ticket, last)));
        writer.join().unwrap().unwrap();
    });
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
}

#[test]
fn a_memtable_needs_the_logs_from_its_first_write_on() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    let slot = db.keyspaces.directory.load()[&0].view.load().memtables.active.clone();
    let first = || slot.first_log.load(Ordering::Relaxed);
    let roll = || {
        let mut log = db.lock_log();
        db.seal(&mut log, &[]).unwrap();
        log.id()
    };
    let before = first();
    let begun = roll();
    db.write(put("a", "1"), false).unwrap();
    assert!(before < begun && first() == begun);
    assert!(roll() > begun);
    db.write(put("b", "2"), false).unwrap();
    assert_eq!(first(), begun);
}

#[test]
fn a_range_delete_is_told_to_readers_if_the_memtable_has_enough_entries() {
    for entries in [WORTH - 1, WORTH] {
        let db = session(1, &KeyspaceOptions::default(), |_| ());
        (0..entries).for_each(|i| db.write(put([i as u8], "value"), false).unwrap());
        let mut batch = WriteBatch::new();
        batch.delete_range([0]..[200]);
        db.write(batch, false).unwrap();
        assert_eq!(db.keyspaces.directory.load()[&0].view.load().gaps.is_empty(), entries < WORTH);
    }
}
