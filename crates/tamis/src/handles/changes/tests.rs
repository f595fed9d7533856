use std::time::Duration;

use super::*;
use crate::io::MemFs;
use crate::{KeyspaceOptions, Options};

fn options(fs: &Arc<MemFs>) -> Options {
    let keyspace = KeyspaceOptions { memtable_bytes: 64 << 10, ..KeyspaceOptions::default() };
    Options { file_system: Some(fs.clone()), keyspace, ..Options::default() }
}

/// The operations as text, such as `3 default put a`.
fn shown(change: &Change) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let one = |operation: Operation<'_>| {
        let what = match operation.kind {
            OperationKind::Put { key, .. } => format!("put {}", text(key)),
            OperationKind::Merge { key, .. } => format!("merge {}", text(key)),
            OperationKind::Delete { key } => format!("delete {}", text(key)),
            OperationKind::DeleteRange { start, end } => {
                format!("delete {}..{}", text(start), end.map(text).unwrap_or_default())
            }
            OperationKind::Ingestion => "ingestion".to_owned(),
        };
        format!("{} {} {what}", operation.seq, operation.keyspace.unwrap_or("?"))
    };
    change.operations().map(one).collect()
}

fn all(changes: &mut Changes) -> Vec<Vec<String>> {
    changes.map(|change| shown(&change.unwrap())).collect()
}

#[test]
fn changes_come_in_order_with_their_keyspaces_numbers_and_batches() {
    let fs = Arc::new(MemFs::new());
    let mut options = options(&fs);
    options.keyspace.merge_operator = Some("add".into());
    let db = options.open("/db").unwrap();
    let other = db.create_keyspace("other", KeyspaceOptions::default()).unwrap();
    let mut changes = db.changes(0).unwrap();
    assert!(changes.poll().unwrap().is_none());
    db.put("a", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_in(&other, "b", "2").delete("a").delete_range("c".."d").delete_range("e"..);
    batch.merge("f", 1u64.to_le_bytes());
    db.write(batch).unwrap();
    assert_eq!(
        all(&mut changes),
        [
            vec!["1 default put a"],
            vec![
                "2 other put b",
                "3 default delete a",
                "4 default delete c..d",
                "5 default delete e..",
                "6 default merge f"
            ]
        ]
    );
    assert_eq!((changes.last_seq(), changes.poll().unwrap().is_none()), (6, true));
    // From the middle of a batch on, after it was renamed, and after it was dropped.
    db.rename_keyspace("other", "renamed").unwrap();
    assert_eq!(all(&mut db.changes(1).unwrap())[0][0], "2 renamed put b");
    assert_eq!(all(&mut db.changes(4).unwrap()), [["5 default delete e..", "6 default merge f"]]);
    drop(other);
    db.drop_keyspace("renamed").unwrap();
    assert_eq!(all(&mut db.changes(1).unwrap())[0][0], "2 ? put b");
    assert!(matches!(db.changes(7), Err(ChangesError::Ahead { since: 7, last: 6 })));
}

use crate::WriteBatch;

fn fill(db: &Db, rounds: u8) {
    for round in 0..rounds {
        for n in 0..100u8 {
            db.put([round, n], [n; 1000]).unwrap();
        }
    }
    db.flush().unwrap();
}

#[test]
fn who_falls_behind_is_told_from_where_a_snapshot_would_do() {
    let fs = Arc::new(MemFs::new());
    let db = options(&fs).open("/db").unwrap();
    db.put("first", "").unwrap();
    let mut behind = db.changes(0).unwrap();
    fill(&db, 10);
    let error = behind.poll().unwrap_err();
    let ChangesError::FellBehind { wanted: 1, oldest } = error else { panic!("{error}") };
    assert!(oldest > 500, "{oldest}");
    assert!(matches!(db.changes(0), Err(ChangesError::FellBehind { .. })));
    let snapshot = db.snapshot();
    assert!(snapshot.seq() + 1 >= oldest);
    db.put("next", "").unwrap();
    assert_eq!(all(&mut db.changes(snapshot.seq()).unwrap()).len(), 1);
    assert_eq!(db.changes(oldest - 1).unwrap().last_seq(), oldest - 1);
}

#[test]
fn logs_are_kept_by_size_by_time_and_for_the_slowest_consumer_and_go_afterwards() {
    let fs = Arc::new(MemFs::new());
    let clock = Arc::new(crate::clock::ManualClock::new(1_000_000));
    let with = |change: &dyn Fn(&mut Options)| {
        let mut options = options(&fs);
        options.clock = Some(clock.clone());
        change(&mut options);
        options.open("/db").unwrap()
    };
    let db = with(&|options| options.changes_keep_bytes = 300 << 10);
    fill(&db, 10);
    let stats = db.stats();
    assert!(stats.retained_log_bytes > 100 << 10 && stats.retained_log_bytes <= 300 << 10, "{stats:?}");
    let oldest = stats.oldest_change;
    assert!(oldest > 1);
    db.close().unwrap();

    let db = with(&|options| options.changes_keep_bytes = 300 << 10);
    assert!(db.changes(db.stats().oldest_change - 1).unwrap().count() > 100);
    assert_eq!(db.stats().oldest_change, oldest, "they outlive the session");
    db.close().unwrap();

    let db = with(&|options| options.changes_keep_time = Some(Duration::from_secs(60)));
    fill(&db, 3);
    assert_eq!(db.stats().oldest_change, oldest, "they count from the opening");
    clock.advance(61);
    fill(&db, 3);
    assert!(db.stats().oldest_change > 1300, "{}", db.stats().oldest_change);
    db.close().unwrap();

    let db = with(&|_| {});
    let (fast, slow) = (db.change_consumer("fast").unwrap(), db.change_consumer("slow").unwrap());
    let created = slow.position().unwrap();
    fill(&db, 10);
    fast.acknowledge(db.stats().visible_seq).unwrap();
    assert_eq!(slow.changes().unwrap().count(), 1000);
    db.close().unwrap();

    let db = with(&|_| {});
    let slow = db.change_consumer("slow").unwrap();
    assert_eq!(slow.position().unwrap(), created);
    let mut changes = slow.changes().unwrap();
    assert_eq!(changes.by_ref().map(|change| change.unwrap().operations().count()).sum::<usize>(), 1000);
    let names: Vec<_> = db.stats().change_consumers.into_iter().map(|consumer| consumer.name).collect();
    assert_eq!(names, ["fast", "slow"]);
    assert!(db.stats().retained_logs > 5);
    slow.acknowledge(changes.last_seq()).unwrap();
    fill(&db, 2);
    assert!(db.stats().retained_logs > 1);
    let fast = db.change_consumer("fast").unwrap();
    for consumer in [&slow, &fast] {
        consumer.acknowledge(db.stats().visible_seq).unwrap();
    }
    assert!(db.stats().retained_logs > 1, "a power failure may take the acknowledgements back");
    db.sync().unwrap();
    db.put("more", "").unwrap();
    fast.acknowledge(db.stats().visible_seq).unwrap();
    assert_eq!(db.stats().retained_logs, 0);
    assert!(db.drop_change_consumer("slow").unwrap() && !db.drop_change_consumer("slow").unwrap());
    assert!(matches!(slow.changes(), Err(ChangesError::NoConsumer { .. })));
    assert!(matches!(slow.acknowledge(5), Err(ChangesError::NoConsumer { .. })));
    for name in ["", "a\0b"] {
        assert!(matches!(db.change_consumer(name), Err(ChangesError::BadName { .. })), "{name:?}");
    }
    db.close().unwrap();

    let db = with(&|options| options.changes_max_bytes = 200 << 10);
    fill(&db, 10);
    assert!(db.stats().retained_log_bytes <= 200 << 10, "a consumer does not fill the disk");
    let fast = db.change_consumer("fast").unwrap();
    assert!(matches!(fast.changes(), Err(ChangesError::FellBehind { .. })));
}

#[test]
fn without_readers_no_log_is_kept() {
    let fs = Arc::new(MemFs::new());
    let db = options(&fs).open("/db").unwrap();
    fill(&db, 5);
    let stats = db.stats();
    assert_eq!((stats.retained_logs, stats.log_files), (0, 1), "{stats:?}");
    assert_eq!(stats.oldest_change, stats.visible_seq + 1);
}

#[test]
fn a_wait_ends_with_a_change_the_time_or_the_database() {
    let fs = Arc::new(MemFs::new());
    let db = options(&fs).open("/db").unwrap();
    let mut changes = db.changes(0).unwrap();
    assert!(changes.wait(Duration::from_millis(1)).unwrap().is_none());
    std::thread::scope(|scope| {
        let writer = db.clone();
        let waiter = scope.spawn(move || {
            let change = changes.wait(Duration::from_secs(60)).unwrap().unwrap();
            (
                shown(&change),
                changes.wait(Duration::from_secs(60)).map(|change| change.map(|change| shown(&change))),
            )
        });
        std::thread::sleep(Duration::from_millis(20));
        writer.put("a", "").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        writer.close().unwrap();
        let (first, then) = waiter.join().unwrap();
        assert_eq!(first, ["1 default put a"]);
        assert!(matches!(then, Err(ChangesError::Closed)));
    });
}

#[test]
fn durable_changes_are_those_that_were_synced_or_flushed() {
    let fs = Arc::new(MemFs::new());
    let db = options(&fs).open("/db").unwrap();
    let mut durable = db.changes(0).unwrap().durable_only(true);
    db.put("a", "").unwrap();
    assert!(durable.poll().unwrap().is_none());
    assert!(!db.changes(0).unwrap().poll().unwrap().unwrap().is_durable());
    assert!(durable.wait(Duration::from_millis(20)).unwrap().is_none());
    db.sync().unwrap();
    assert_eq!(shown(&durable.poll().unwrap().unwrap()), ["1 default put a"]);
    let mut batch = WriteBatch::new();
    batch.put("b", "").put("c", "");
    db.write_with(batch, crate::Durability::Sync).unwrap();
    let change = durable.poll().unwrap().unwrap();
    assert_eq!((change.first_seq(), change.last_seq(), change.is_durable()), (2, 3, true));
    db.put("d", "").unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().durable_seq, 4);
}

#[test]
fn who_opens_read_only_has_no_changes() {
    let fs = Arc::new(MemFs::new());
    options(&fs).open("/db").unwrap().close().unwrap();
    let db = options(&fs).open_read_only("/db").unwrap();
    assert!(matches!(db.changes(0), Err(ChangesError::ReadOnly)));
}

/// A consumer whose entry cannot be read was created anew, at the end of what it had yet to read.
#[test]
fn a_consumer_that_cannot_be_read_is_not_created_anew() {
    let fs = Arc::new(MemFs::new());
    let db = options(&fs).open("/db").unwrap();
    let good = db.change_consumer("good").unwrap().position().unwrap();
    db.change_consumer("bad").unwrap();
    let keyspace = db.hidden_keyspace(crate::catalogue::keyspace::CONSUMERS_KEYSPACE).unwrap();
    keyspace.put("bad", [0xff; 3]).unwrap();
    fill(&db, 3);
    db.close().unwrap();
    let db = options(&fs).open("/db").unwrap();
    assert_eq!(db.change_consumer("good").unwrap().position().unwrap(), good);
    for failed in [db.change_consumer("bad").map(drop), db.drop_change_consumer("bad").map(drop)] {
        assert!(matches!(failed, Err(ChangesError::Storage(_))), "{failed:?}");
    }
    db.change_consumer("good").unwrap().acknowledge(db.stats().visible_seq).unwrap();
    fill(&db, 3);
    assert!(db.stats().retained_logs > 5, "somebody may need them: {:?}", db.stats());
    assert!(db.stats().warnings.iter().any(|warning| warning.contains("all logs are kept")));
}

#[test]
fn acknowledgements_do_not_hold_back_the_logs() {
    let fs = Arc::new(MemFs::new());
    let db = options(&fs).open("/db").unwrap();
    let consumer = db.change_consumer("one").unwrap();
    for _ in 0..20 {
        for n in 0..100u8 {
            db.put([n], [n; 1000]).unwrap();
        }
        consumer.acknowledge(db.stats().visible_seq).unwrap();
    }
    db.wait_for_compaction().unwrap();
    assert!(db.stats().log_files < 5, "{:?}", db.stats());
}
