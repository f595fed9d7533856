//! A writer that acts between any two file operations of a follower, and faults of those
//! operations.

mod catalogue;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tamis_base::ids::LogId;
use tamis_base::key::SeqNo;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::log_path;
use tamis_files::tree::manifest::{Manifest, set_current};
use tamis_files::tree::state::ManifestState;
use tamis_files::wal::ops::GroupHeader;
use tamis_files::wal::{LogHeader, LogKind, LogWriter};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use super::{keeps_changes, left_of, withdraws};
use crate::error::OpenError;
use crate::open::beside::tests::Content;
use crate::open::beside::tests::Interrupted;
use crate::open::beside::tests::Steps;
use crate::open::beside::tests::Work;
use crate::open::beside::tests::compacts;
use crate::open::beside::tests::content;
use crate::open::beside::tests::database;
use crate::open::beside::tests::flushes;
use crate::open::beside::tests::ingests;
use crate::open::beside::tests::options;
use crate::open::beside::tests::puts;
use crate::open::beside::tests::rolls;
use crate::{Db, KeyspaceOptions, Options};

fn beside(machine: &FaultyFs) -> Interrupted {
    Interrupted {
        machine: machine.clone(),
        due: Arc::new(Mutex::new((u64::MAX, None))),
        listed: Arc::default(),
    }
}

fn with_adding(fs: impl crate::io::FileSystem + 'static) -> Options {
    let mut options = options(fs);
    options.keyspace.merge_operator = Some("add".into());
    options
}

fn changes_keyspaces(db: &Db, _: &FaultyFs, done: &mut dyn FnMut()) {
    for round in 0..3 {
        let other = db.get_or_create_keyspace("other", KeyspaceOptions::default()).unwrap();
        other.put("key", "value").unwrap();
        db.put("a", format!("round {round}")).unwrap();
        done();
        if round == 1 {
            db.rename_keyspace("other", "renamed").unwrap();
            db.drop_keyspace("renamed").unwrap();
        }
    }
}

#[test]
fn a_follower_shows_a_state_that_existed_whatever_the_writer_does_meanwhile() {
    let base = database();
    let works: [Work; 6] = [puts, flushes, compacts, ingests, rolls, changes_keyspaces];
    let mut caught_up = 0;
    for work in works {
        for at in 0.. {
            let machine = base.after_crash(CrashMode::KeepAll);
            let writer = options(machine.clone()).open("/db").unwrap();
            let beside = beside(&machine);
            let follower = options(beside.clone()).open_follower("/db").unwrap();
            let first = content(&writer);
            assert_eq!(content(&follower), first);
            let pinned = follower.snapshot();
            // So that there is something to read.
            puts(&writer, &machine, &mut || ());
            let states = Arc::new(Mutex::new(vec![content(&writer)]));
            let (steps, fs, noted) = (writer.clone(), machine.clone(), states.clone());
            let steps: Steps =
                Box::new(move || work(&steps, &fs, &mut || noted.lock().unwrap().push(content(&steps))));
            *beside.due.lock().unwrap() = (at, Some(steps));
            follower.catch_up().unwrap();
            let seen = content(&follower);
            assert!(states.lock().unwrap().contains(&seen), "at operation {at}: {seen:?}");
            caught_up += 1;
            let files = follower.live_files().unwrap();
            // It may have caught up once more.
            assert_eq!(content(&copy_of(&files)), content(&follower), "at operation {at}");
            let is_over = beside.due.lock().unwrap().1.take().is_some();
            // What it lacked then comes with the next call, and snapshots keep their state.
            flushes(&writer, &machine, &mut || ());
            writer.compact().unwrap();
            follower.catch_up().unwrap();
            assert_eq!(content(&follower), content(&writer), "at operation {at}");
            assert_eq!(follower.keyspaces(), writer.keyspaces());
            let kept: Content =
                pinned.iter().map(|item| item.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
            assert_eq!(kept, first, "at operation {at}");
            if is_over {
                break;
            }
        }
    }
    assert!(caught_up > 60, "only {caught_up} calls");
}

/// A failed operation is an error or is made up for, and the state shown before stays.
#[test]
fn a_failed_operation_leaves_what_was_shown() {
    let machine = database();
    let writer = with_adding(machine.clone()).open("/db").unwrap();
    let reading = FaultyFs::clone(&machine);
    let (mut failed, mut unharmed) = (0, 0);
    for at in 0.. {
        writer.compact().unwrap();
        let follower = with_adding(reading.clone()).open_follower("/db").unwrap();
        let before = content(&follower);
        for i in 0..3u64 {
            writer.merge(format!("counter {}", i % 2), 1u64.to_le_bytes()).unwrap();
            writer.put("a", format!("{at} {i}")).unwrap();
            if i == 1 {
                writer.flush().unwrap();
            }
        }
        let state = content(&writer);
        let done = machine.operations();
        machine.plan(FaultPlan { fail_at: Some(done + at), sticky: at == 9, ..FaultPlan::none() });
        let failures = machine.failures();
        let caught_up = follower.catch_up();
        unharmed += u32::from(machine.failures() == failures);
        machine.plan(FaultPlan::none());
        let shown = content(&follower);
        match caught_up {
            Ok(_) => assert_eq!(shown, state, "{at}"),
            Err(_) => {
                failed += 1;
                assert_eq!(shown, before, "{at}");
            }
        }
        follower.catch_up().unwrap();
        assert_eq!(content(&follower), state, "{at}");
        if unharmed > 3 {
            assert!(at > 15 && failed > 0, "{at} {failed}");
            break;
        }
    }
}

#[test]
fn damage_is_reported_and_not_taken_for_a_writer() {
    let fs = database();
    for (path, len) in fs.files() {
        let is_needed =
            path.extension().is_some_and(|e| e == "tam") || path.to_string_lossy().contains("MANIFEST");
        if !path.starts_with("/db") || !is_needed || len < 60 {
            continue;
        }
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.truncate(&path, 40).unwrap();
        if let Ok(follower) = options(hurt).open_follower("/db") {
            // A manifest that is not in force, or a table that a merge left behind.
            assert_eq!(content(&follower), content(&options(fs.clone()).open_read_only("/db").unwrap()));
        }
    }
    // The first record of the log, which later ones show to be damaged.
    let log = fs
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with("/db") && path.extension().is_some_and(|e| e == "log"));
    for (path, _) in log {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        let writer = options(hurt.clone()).open("/db").unwrap();
        for i in 0..20 {
            writer.put(format!("{i}"), "value").unwrap();
            writer.sync().unwrap();
        }
        let hurt = hurt.after_crash(CrashMode::KeepAll);
        let logs: Vec<_> = hurt
            .files()
            .into_iter()
            .filter(|(path, len)| {
                path.starts_with("/db") && path.extension().is_some_and(|e| e == "log") && *len > 300
            })
            .collect();
        for (path, _) in logs {
            hurt.corrupt(&path, 90, 0x41).unwrap();
        }
        let error = options(hurt).open_follower("/db").map(|db| content(&db)).unwrap_err();
        assert!(matches!(error, OpenError::Storage(_)), "{}: {error}", path.display());
    }
    let missing = options(fs.clone()).open_follower("/nothing").unwrap_err();
    assert!(matches!(missing, OpenError::NotFound { .. }), "{missing}");
    let reader = options(fs).open_read_only("/db").unwrap();
    assert!(matches!(reader.catch_up(), Err(OpenError::NotFollower { .. })));
}

/// A writer whose sync fails answers with an error, and the next write gets the number: a follower
/// may have shown the first one, but not both, and never less than what was acknowledged.
#[test]
fn a_write_that_failed_gives_way_to_the_one_that_got_its_number() {
    let machine = FaultyFs::new(7);
    let writer = options(machine.clone()).open("/db").unwrap();
    writer.put("a", "acknowledged").unwrap();
    writer.sync().unwrap();
    let follower = options(machine.clone()).open_follower("/db").unwrap();
    machine.plan(FaultPlan {
        fail_at: Some(0),
        sticky: true,
        only: Some(OpClass::Sync),
        ..FaultPlan::none()
    });
    let mut batch = crate::WriteBatch::new();
    batch.put("b", "failed");
    writer.write_with(batch, crate::Durability::Sync).unwrap_err();
    machine.plan(FaultPlan::none());
    follower.catch_up().unwrap();
    let mut shown = BTreeMap::from([(b"a".to_vec(), b"acknowledged".to_vec())]);
    let seen = content(&follower);
    if seen.len() > 1 {
        assert_eq!(seen[&b"b"[..]], b"failed");
    }
    // Once the writer has resumed.
    let mut tries = 0;
    while writer.put("c", "next").is_err() {
        tries += 1;
        assert!(tries < 1000, "writes are suspended for good");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    follower.catch_up().unwrap();
    shown.insert(b"c".to_vec(), b"next".to_vec());
    assert_eq!(content(&follower), content(&writer));
    assert_eq!(content(&follower), shown);
}

fn copy_of(files: &crate::live_files::LiveFiles) -> Db {
    use crate::io::{FileSystem, Usage};
    let fs = FaultyFs::new(1);
    fs.create_dir_all("/copy".as_ref()).unwrap();
    for file in files.files() {
        let mut bytes = vec![0; file.len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let path = std::path::Path::new("/copy").join(file.name());
        fs.create(&path, Usage::Table).unwrap().append(&bytes).unwrap();
    }
    options(fs).open("/copy").unwrap()
}

/// The writer flushed what the follower had not read, and closed: the follower took the number of
/// its last write for damage, until the next session.
#[test]
fn a_writer_that_flushes_and_closes_is_no_damage() {
    let machine = FaultyFs::new(7);
    let writer = options(machine.clone()).open("/db").unwrap();
    writer.put("a", "1").unwrap();
    let follower = options(machine.clone()).open_follower("/db").unwrap();
    for i in 0..50 {
        writer.put(format!("{i}"), "value").unwrap();
    }
    writer.flush().unwrap();
    writer.close().unwrap();
    assert_eq!(follower.catch_up().unwrap(), 51);
    assert_eq!(follower.iter().count(), 51);
    assert_eq!(content(&copy_of(&follower.live_files().unwrap())), content(&follower));
}

/// Edits of the manifest whose sync failed are not in the next manifest: the follower had dropped
/// the writes that they said were in tables.
#[test]
fn an_edit_that_was_withdrawn_takes_no_writes_along() {
    for at in 0..30 {
        let machine = FaultyFs::new(at);
        let mut options = with_adding(machine.clone());
        options.keyspace.filter = "grf".parse().unwrap();
        let writer = options.clone().open("/db").unwrap();
        writer.merge("counter", 1u64.to_le_bytes()).unwrap();
        writer.flush().unwrap();
        let follower = options.clone().open_follower("/db").unwrap();
        writer.merge("counter", 2u64.to_le_bytes()).unwrap();
        writer.put("a", "b").unwrap();
        let plan = FaultPlan {
            fail_at: Some(machine.operations() + at / 2),
            only: Some(OpClass::Sync),
            sticky: at % 2 == 0,
            ..FaultPlan::none()
        };
        machine.plan(plan);
        let _ = writer.flush();
        let _ = writer.create_keyspace("other", KeyspaceOptions::default());
        let _ = follower.catch_up();
        machine.plan(FaultPlan::none());
        let _ = follower.catch_up();
        assert_eq!(content(&follower), content(&writer), "{at}");
        let mut tries = 0;
        while writer.merge("counter", 4u64.to_le_bytes()).is_err() {
            tries += 1;
            assert!(tries < 1000, "writes are suspended for good");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ = writer.create_keyspace("another", KeyspaceOptions::default());
        for _ in 0..3 {
            follower.catch_up().unwrap();
            assert_eq!(content(&follower), content(&writer), "{at}");
            assert_eq!(follower.keyspaces(), writer.keyspaces(), "{at}");
            writer.flush().unwrap();
            writer.put("late", "value").unwrap();
        }
    }
}

/// A reader that has a former view and the new number walked over deleted keys that have values in
/// the new view, and taught others to jump over them.
#[test]
fn a_reader_with_a_former_view_teaches_no_gap() {
    let machine = FaultyFs::new(7);
    let writer = options(machine.clone()).open("/db").unwrap();
    (0..200u8).for_each(|i| writer.put([i], "value").unwrap());
    writer.flush().unwrap();
    (0..200u8).for_each(|i| writer.delete([i]).unwrap());
    writer.flush().unwrap();
    let follower = options(machine.clone()).open_follower("/db").unwrap();
    let keyspace = follower.default_keyspace().inner.clone();
    let view = keyspace.view.load();
    writer.put([100], "again").unwrap();
    writer.flush().unwrap();
    follower.catch_up().unwrap();
    let seq = follower.stats().visible_seq;
    let reader = crate::read::ReadAt { view, seq, horizon: 0, operator: None, sharing: true, records: None };
    assert_eq!(reader.iter(crate::read::Bounds::default(), keyspace.reads.clone(), None).count(), 0);
    assert_eq!(follower.iter().map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>(), [[100]]);
}

/// Merges to the last level forget the numbers of entries, so a keyspace that was created after a
/// snapshot looked older than it.
#[test]
fn a_snapshot_sees_nothing_of_a_keyspace_that_came_later() {
    let machine = FaultyFs::new(7);
    let writer = options(machine.clone()).open("/db").unwrap();
    writer.put("a", "1").unwrap();
    let follower = options(machine.clone()).open_follower("/db").unwrap();
    let snapshot = follower.snapshot();
    let other = writer.create_keyspace("other", options(machine.clone()).keyspace).unwrap();
    other.put("key", "value").unwrap();
    other.compact().unwrap();
    follower.catch_up().unwrap();
    let other = follower.keyspace("other").unwrap();
    assert_eq!(other.get("key").unwrap().unwrap(), "value");
    assert_eq!(snapshot.keyspace(&other).get("key").unwrap(), None);
    assert_eq!(snapshot.keyspace(&other).iter().count(), 0);
    assert_eq!(snapshot.keyspace(&other).multi_get(&["key"]).unwrap(), [None]);
}

#[test]
fn what_is_left_of_an_interval() {
    let millis = Duration::from_millis;
    assert_eq!(left_of(millis(10), millis(4)), Some(millis(6)));
    assert_eq!(left_of(millis(10), Duration::from_micros(9950)), Some(Duration::from_micros(100)));
    assert_eq!([10, 11, 1000].map(|passed| left_of(millis(10), millis(passed))), [None; 3]);
    assert_eq!(left_of(Duration::ZERO, Duration::ZERO), None);
}

#[test]
fn a_manifest_that_lacks_anything_withdraws() {
    let mut old = ManifestState::new("default", "");
    let edit = VersionEdit {
        create_keyspaces: vec![(1, "other".into(), String::new())],
        log_floor: vec![(0, 5), (1, 7)],
        next_epochs: vec![(0, 5)],
        last_seq: Some(5),
        ..VersionEdit::default()
    };
    old.apply(&edit).unwrap();
    assert!(!withdraws(&old, &old));
    let less = |change: &dyn Fn(&mut VersionEdit)| {
        let mut less = edit.clone();
        change(&mut less);
        let mut new = ManifestState::new("default", "");
        new.apply(&less).unwrap();
        assert!(!withdraws(&new, &old), "{less:?}");
        withdraws(&old, &new)
    };
    assert!(!less(&|_| ()));
    assert!(less(&|edit| edit.log_floor = vec![(0, 4), (1, 7)]));
    assert!(less(&|edit| edit.log_floor = vec![(0, 5), (1, 6)]));
    assert!(less(&|edit| edit.next_epochs = vec![(0, 4)]));
    assert!(less(&|edit| edit.last_seq = Some(4)));
    assert!(less(&|edit| {
        edit.create_keyspaces.clear();
        edit.log_floor.pop();
    }));
}

#[test]
fn a_follower_knows_whether_its_writer_keeps_changes() {
    for (bytes, seconds, keeps) in [(0, None, false), (1, None, true), (0, Some(1), true)] {
        let fs = FaultyFs::new(7);
        let writes = Options {
            changes_keep_bytes: bytes,
            changes_keep_time: seconds.map(Duration::from_secs),
            ..options(fs.clone())
        };
        let writer = writes.open("/db").unwrap();
        let follower = options(fs.clone()).open_follower("/db").unwrap();
        assert_eq!(keeps_changes(follower.inner()), keeps, "{bytes} {seconds:?}");
        drop(writer);
    }
}

/// A handle of a keyspace went on showing what it had been.
#[test]
fn a_keyspace_stays_the_same_under_another_name_or_other_options() {
    let fs = FaultyFs::new(7);
    let writer = options(fs.clone()).open("/db").unwrap();
    let other = writer.create_keyspace("other", KeyspaceOptions::default()).unwrap();
    other.put("key", "1").unwrap();
    let follower = options(fs.clone()).open_follower("/db").unwrap();
    let followed = follower.keyspace("other").unwrap();
    let mut shown = 1;
    let mut shows = |writer: &Db, name: &str| {
        shown += 1;
        writer.keyspace(name).unwrap().put("key", shown.to_string()).unwrap();
        follower.catch_up().unwrap();
        assert_eq!(
            (followed.name(), followed.get("key").unwrap().unwrap().to_vec()),
            (name, shown.to_string().into_bytes())
        );
    };
    shows(&writer, "other");
    // In the same manifest, whatever changes.
    writer.rename_keyspace("other", "renamed").unwrap();
    other.set_options(&[("bits_per_key", "7")]).unwrap();
    shows(&writer, "renamed");
    // In another one, a new name, or new options.
    writer.close().unwrap();
    let writer = options(fs.clone()).open("/db").unwrap();
    writer.rename_keyspace("renamed", "again").unwrap();
    shows(&writer, "again");
    writer.close().unwrap();
    let writer = options(fs.clone()).open("/db").unwrap();
    writer.keyspace("again").unwrap().set_options(&[("bits_per_key", "8")]).unwrap();
    shows(&writer, "again");
}

/// Each call added a memtable to each keyspace, through which every get had to look.
#[test]
fn writes_of_one_log_are_followed_in_one_memtable() {
    let fs = FaultyFs::new(7);
    let writer = options(fs.clone()).open("/db").unwrap();
    let follower = options(fs.clone()).open_follower("/db").unwrap();
    for i in 0..10 {
        writer.put(i.to_string(), "value").unwrap();
        follower.catch_up().unwrap();
        let stats = follower.stats();
        assert_eq!((stats.log_bytes, stats.log_files), (writer.stats().log_bytes, 1));
        let keyspace = follower.default_keyspace().stats();
        assert_eq!((keyspace.memtables, keyspace.memtable_entries), (1, i + 1));
    }
}

/// The visible number never falls: after a write that failed, the next ones stay below it for a
/// while.
#[test]
fn writes_with_numbers_of_failed_ones_are_shown_as_they_come() {
    let machine = FaultyFs::new(7);
    let writer = options(machine.clone()).open("/db").unwrap();
    writer.put("a", "acknowledged").unwrap();
    let follower = options(machine.clone()).open_follower("/db").unwrap();
    let sync = FaultPlan { fail_at: Some(0), sticky: true, only: Some(OpClass::Sync), ..FaultPlan::none() };
    machine.plan(sync);
    let mut batch = crate::WriteBatch::new();
    (0..100).for_each(|i| _ = batch.put(format!("failed {i}"), "value"));
    writer.write_with(batch, crate::Durability::Sync).unwrap_err();
    assert_eq!(follower.catch_up().unwrap(), 101, "an opening would find it");
    machine.plan(FaultPlan::none());
    let mut tries = 0;
    while writer.put("b", "next").is_err() {
        tries += 1;
        assert!(tries < 1000, "writes are suspended for good");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(follower.catch_up().unwrap(), 101);
    assert_eq!(content(&follower), content(&writer));
    for i in 0..10 {
        writer.put("c", i.to_string()).unwrap();
        assert_eq!(follower.catch_up().unwrap(), 101);
        assert_eq!(content(&follower), content(&writer), "{i}");
    }
}

/// What the follower knows of its writer's flushes spares it work on the filter.
#[test]
fn epochs_of_flushes_that_have_ended_are_settled() {
    let fs = FaultyFs::new(7);
    let filtered = || {
        let mut options = options(fs.clone());
        options.keyspace.filter = "grf".parse().unwrap();
        options
    };
    let writer = filtered().open("/db").unwrap();
    let follower = filtered().open_follower("/db").unwrap();
    let settled = || follower_of(&follower).lock().settled[&0].until;
    let mut before = settled();
    for i in 0..3 {
        for _ in 0..2 {
            writer.put(i.to_string(), "value").unwrap();
            writer.flush().unwrap();
            follower.catch_up().unwrap();
            follower.wait_for_filters().unwrap();
        }
        // An edit that brings no table whose keys the filter may lack.
        writer.create_keyspace(&format!("keyspace {i}"), KeyspaceOptions::default()).unwrap();
        follower.catch_up().unwrap();
        assert!(settled() > before, "{i}: {before}");
        before = settled();
    }
    assert!(before <= follower.default_keyspace().stats().next_epoch);
}

/// New tables had no part in the budget of filters.
#[test]
fn elastic_filters_know_the_tables_that_a_follower_gets() {
    let fs = FaultyFs::new(7);
    let elastic = || {
        let mut options = options(fs.clone());
        options.keyspace.filter = "elastic".parse().unwrap();
        options
    };
    let writer = elastic().open("/db").unwrap();
    let follower = elastic().open_follower("/db").unwrap();
    let segments = |db: &Db| db.stats().elastic.map_or(0, |elastic| elastic.segments);
    assert_eq!(segments(&follower), 0);
    for round in 0..2u32 {
        (0..2000u32).for_each(|i| writer.put((2 * i + round).to_be_bytes(), [7; 20]).unwrap());
        writer.flush().unwrap();
        follower.catch_up().unwrap();
        assert!(segments(&writer) > 0);
        assert_eq!(segments(&follower), segments(&writer));
    }
    writer.compact().unwrap();
    follower.catch_up().unwrap();
    assert_eq!(segments(&follower), segments(&writer));
}

/// Writes a database that needs log 5, with these logs: the first numbers of their records, and
/// whether the log is finished.
pub(crate) fn by_hand(logs: &[(LogId, &[SeqNo], bool)], last_seq: SeqNo) -> FaultyFs {
    use crate::io::{FileSystem, Usage};
    let (fs, dir) = (FaultyFs::new(7), Path::new("/db"));
    fs.create_dir_all(dir).unwrap();
    let mut state = ManifestState::new("default", "");
    let edit = VersionEdit {
        log_floor: vec![(0, 5)],
        next_file: Some(10),
        last_seq: Some(last_seq),
        ..VersionEdit::default()
    };
    state.apply(&edit).unwrap();
    Manifest::create(&fs, dir, 1, &state).unwrap();
    set_current(&fs, dir, 1).unwrap();
    for (at, (id, records, is_finished)) in logs.iter().enumerate() {
        let path = log_path(dir, *id);
        let header = LogHeader { kind: LogKind::Writes, id: *id, reused: false };
        let mut log = LogWriter::create(fs.create(&path, Usage::Log).unwrap(), &path, header).unwrap();
        for &first_seq in *records {
            let (mut head, mut batch) = (Vec::new(), crate::WriteBatch::new());
            batch.put(format!("key {first_seq}"), "value");
            GroupHeader { first_seq, count: 1, older_logs_synced: false }.encode(&mut head);
            log.append(&[&head, batch.bytes()]).unwrap();
        }
        if *is_finished {
            log.finish(logs.get(at + 1).map(|next| next.0)).unwrap();
        }
    }
    fs
}

pub(super) fn follower_of(db: &Db) -> &crate::sync::Mutex<super::Follower> {
    db.handle().follower.as_ref().unwrap()
}

pub(super) fn keys(db: &Db) -> Vec<String> {
    content(db).into_keys().map(|key| String::from_utf8(key).unwrap()).collect()
}

/// Only the first record of all may have any number.
#[test]
fn a_gap_between_logs_is_damage_unless_nothing_came_before() {
    let whole = by_hand(&[(5, &[7, 8], true), (6, &[9], false)], 6);
    assert_eq!(keys(&options(whole).open_follower("/db").unwrap()), ["key 7", "key 8", "key 9"]);
    let empty = by_hand(&[(5, &[], true), (6, &[9], false)], 8);
    assert_eq!(keys(&options(empty).open_follower("/db").unwrap()), ["key 9"]);
    let gap = by_hand(&[(5, &[7], true), (6, &[9], false)], 6);
    let error = options(gap).open_follower("/db").unwrap_err();
    assert!(error.to_string().contains("its first write is number 9, expected 8"), "{error}");
    let later = by_hand(&[(5, &[7], true), (6, &[8], true), (7, &[10], false)], 6);
    let error = options(later).open_follower("/db").unwrap_err();
    assert!(error.to_string().contains("its first write is number 10, expected 9"), "{error}");
}

/// A log that is listed and not named may be gone by the time that it is opened, but one that
/// cannot be read may hold acknowledged writes.
#[test]
fn a_log_created_ahead_may_go_but_must_be_readable() {
    use crate::io::FileSystem;
    let ahead = || by_hand(&[(5, &[1, 2], false), (6, &[], false)], 0);
    assert_eq!(keys(&options(ahead()).open_follower("/db").unwrap()), ["key 1", "key 2"]);
    let machine = ahead();
    let beside = beside(&machine);
    let fs = machine.clone();
    let removes: Steps = Box::new(move || _ = fs.remove(&log_path(Path::new("/db"), 6)));
    *beside.listed.lock().unwrap() = Some(removes);
    assert_eq!(keys(&options(beside).open_follower("/db").unwrap()), ["key 1", "key 2"]);
    // The header of a later log.
    let machine = ahead();
    let other = by_hand(&[(5, &[1, 2], false), (7, &[], false)], 0);
    let mut bytes = vec![0; other.file_len(&log_path(Path::new("/db"), 7)).unwrap() as usize];
    let file = other.open(&log_path(Path::new("/db"), 7), crate::io::Access::Sequential).unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    let path = log_path(Path::new("/db"), 6);
    machine.create(&path, crate::io::Usage::Log).unwrap().append(&bytes).unwrap();
    let error = options(machine).open_follower("/db").unwrap_err();
    assert!(error.to_string().contains("it holds log 7, which is a later one"), "{error}");
}

/// A reader walks over deleted keys once, and again only after something new was shown.
#[test]
fn a_call_that_finds_nothing_new_changes_nothing() {
    let fs = FaultyFs::new(7);
    let writer = options(fs.clone()).open("/db").unwrap();
    (0..200u8).for_each(|i| writer.put([i], "value").unwrap());
    writer.flush().unwrap();
    (0..200u8).for_each(|i| writer.delete([i]).unwrap());
    writer.flush().unwrap();
    let follower = options(fs.clone()).open_follower("/db").unwrap();
    let knows_gaps = || !follower.default_keyspace().inner.view.load().gaps.is_empty();
    assert_eq!((follower.iter().count(), knows_gaps()), (0, true));
    let before = follower.default_keyspace().inner.view.load_full();
    assert_eq!(follower.catch_up().unwrap(), 400);
    assert!(knows_gaps() && Arc::ptr_eq(&before, &follower.default_keyspace().inner.view.load()));
    writer.put([100], "value").unwrap();
    assert_eq!((follower.catch_up().unwrap(), knows_gaps()), (401, false));
    assert_eq!(follower.iter().count(), 1);
    assert!(knows_gaps());
}
