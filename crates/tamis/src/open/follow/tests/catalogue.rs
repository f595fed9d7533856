//! What a follower takes over besides writes: keyspaces, tables, ages, and logs that are kept.

use std::sync::atomic::Ordering;

use tamis_files::tree::manifest::ManifestReader;

use super::*;
use crate::clock::ManualClock;
use crate::live_files::LiveFileKind;

fn logs(db: &Db) -> Vec<(String, u64)> {
    let files = db.live_files().unwrap();
    let logs = files.files().iter().filter(|file| file.kind() == LiveFileKind::Log);
    logs.map(|file| (file.name().to_owned(), file.len())).collect()
}

#[test]
fn live_files_have_the_logs_kept_for_readers_of_changes() {
    let fs = FaultyFs::new(7);
    let writer = Options { changes_keep_bytes: 1 << 20, ..options(fs.clone()) }.open("/db").unwrap();
    for i in 0..3 {
        writer.put(i.to_string(), "value").unwrap();
        writer.flush().unwrap();
    }
    let follower = options(fs.clone()).open_follower("/db").unwrap();
    assert!(logs(&writer).len() > 3);
    assert_eq!(logs(&follower), logs(&writer), "the current log is empty");
    writer.put("a", "value").unwrap();
    follower.catch_up().unwrap();
    assert_eq!(logs(&follower), logs(&writer));
    assert_eq!(content(&copy_of(&follower.live_files().unwrap())), content(&follower));
}

fn creates(db: &Db) {
    db.create_keyspace("late", KeyspaceOptions::default()).unwrap().put("key", "value").unwrap();
}

fn drops(db: &Db) {
    db.drop_keyspace("other").unwrap();
}

#[test]
fn keyspaces_may_come_and_go_during_a_call() {
    let mut calls = 0;
    for work in [creates, drops] {
        for at in 0.. {
            let machine = FaultyFs::new(7);
            let writer = options(machine.clone()).open("/db").unwrap();
            let beside = beside(&machine);
            let follower = options(beside.clone()).open_follower("/db").unwrap();
            creates_other(&writer, KeyspaceOptions::default());
            let steps = writer.clone();
            *beside.due.lock().unwrap() = (at, Some(Box::new(move || work(&steps))));
            follower.catch_up().unwrap();
            if beside.due.lock().unwrap().1.take().is_some() {
                break;
            }
            calls += 1;
            follower.catch_up().unwrap();
            assert_eq!(follower.keyspaces(), writer.keyspaces(), "at operation {at}");
            for name in follower.keyspaces() {
                let get = |db: &Db| db.keyspace(&name).unwrap().get("key").unwrap();
                assert_eq!(get(&follower), get(&writer), "{name} at operation {at}");
            }
        }
    }
    assert!(calls > 10, "only {calls} calls");
}

fn creates_other(db: &Db, options: KeyspaceOptions) -> crate::Keyspace {
    let other = db.create_keyspace("other", options).unwrap();
    other.put("key", "value").unwrap();
    other
}

/// A memtable of a keyspace that was dropped stayed for good.
#[test]
fn nothing_is_left_of_a_keyspace_that_was_dropped() {
    for filter in ["grf", "elastic"] {
        let fs = FaultyFs::new(7);
        let writer = options(fs.clone()).open("/db").unwrap();
        let follower = options(fs.clone()).open_follower("/db").unwrap();
        let mut filtered = options(fs.clone()).keyspace;
        filtered.filter = filter.parse().unwrap();
        let other = creates_other(&writer, filtered);
        (0..2000u32).for_each(|i| other.put(i.to_be_bytes(), [7; 20]).unwrap());
        other.flush().unwrap();
        other.put("key", "again").unwrap();
        follower.catch_up().unwrap();
        let followed = follower.keyspace("other").unwrap();
        assert_eq!(followed.get("key").unwrap().unwrap(), "again");
        let segments = |db: &Db| db.stats().elastic.map_or(0, |elastic| elastic.segments);
        assert_eq!(segments(&follower), segments(&writer));
        assert_eq!(segments(&follower) > 0, filter == "elastic");
        let knows = || {
            let follower = follower_of(&follower).lock();
            (follower.logs.knows(followed.inner.id), follower.settled.contains_key(&followed.inner.id))
        };
        assert_eq!(knows(), (true, filter == "grf"));
        writer.drop_keyspace("other").unwrap();
        follower.catch_up().unwrap();
        assert_eq!((follower.keyspaces(), knows()), (writer.keyspaces(), (false, false)));
        assert!(follower.keyspace("other").is_err() && followed.get("key").is_err());
        assert_eq!(follower.inner().keyspaces.directory.load().len(), 1);
        assert_eq!((segments(&follower), segments(&writer)), (0, 0));
    }
}

#[test]
fn tables_that_are_open_stay_open() {
    let fs = FaultyFs::new(7);
    let writer = options(fs.clone()).open("/db").unwrap();
    let follower = options(fs.clone()).open_follower("/db").unwrap();
    let tables = || follower.default_keyspace().inner.view.load().version.tables.clone();
    let mut before = tables();
    for i in 0..3 {
        writer.put(i.to_string(), "value").unwrap();
        writer.flush().unwrap();
        follower.catch_up().unwrap();
        let now = tables();
        assert_eq!(now.len(), before.len() + 1);
        assert!(before.iter().all(|table| now.iter().any(|other| Arc::ptr_eq(table, other))));
        assert!(follower_of(&follower).lock().opened.is_empty());
        before = now;
    }
    // Nor is the manifest reopened.
    let operations = || {
        let before = fs.operations();
        follower.catch_up().unwrap();
        fs.operations() - before
    };
    let kept = operations();
    follower_of(&follower).lock().manifest = None;
    assert!(kept < operations());
    assert_eq!(kept, operations());
}

const START: u64 = 1_700_000_000;

/// Options of one side, whose clock is its own.
fn timed(fs: &FaultyFs, clock: &Arc<ManualClock>, ttl: Option<u64>) -> Options {
    let mut options = Options { clock: Some(clock.clone()), ..options(fs.clone()) };
    options.keyspace.time_to_live = ttl.map(Duration::from_secs);
    options
}

/// An entry's age counts from the writer's clock if the manifest has its time, otherwise from the
/// call that showed it.
#[test]
fn entries_expire_in_a_follower_as_in_its_writer() {
    let (fs, clock) = (FaultyFs::new(7), Arc::new(ManualClock::new(START)));
    let writer = timed(&fs, &clock, Some(100)).open("/db").unwrap();
    let follower = timed(&fs, &clock, Some(100)).open_follower("/db").unwrap();
    writer.put("flushed", "value").unwrap();
    writer.flush().unwrap();
    clock.set(START + 50);
    assert_eq!(follower.catch_up().unwrap(), 1);
    writer.put("logged", "value").unwrap();
    assert_eq!(follower.catch_up().unwrap(), 2);
    for (passed, left) in [(90, 2), (105, 1), (140, 1), (155, 0)] {
        clock.set(START + passed);
        assert_eq!(follower.iter().count(), left, "after {passed} s");
    }
}

/// A merge may have dropped what hides older versions, so the writer's horizon counts whatever the
/// follower's clock says.
#[test]
fn the_horizon_of_the_writer_is_that_of_the_follower() {
    let fs = FaultyFs::new(7);
    let [ahead, behind] = [START, START].map(|now| Arc::new(ManualClock::new(now)));
    let writer = timed(&fs, &ahead, Some(100)).open("/db").unwrap();
    let follower = timed(&fs, &behind, Some(100)).open_follower("/db").unwrap();
    writer.put("old", "value").unwrap();
    writer.flush().unwrap();
    follower.catch_up().unwrap();
    ahead.advance(200);
    writer.put("new", "value").unwrap();
    let view = follower.default_keyspace().inner.view.load_full();
    writer.compact().unwrap();
    follower.catch_up().unwrap();
    drop(view);
    let horizon = |db: &Db| db.default_keyspace().inner.age.expired.load(Ordering::Relaxed);
    assert_eq!((horizon(&writer), horizon(&follower)), (1, 1));
    assert_eq!(keys(&follower), ["new"]);
}

#[test]
fn entries_of_a_keyspace_that_came_later_expire() {
    let (fs, clock) = (FaultyFs::new(7), Arc::new(ManualClock::new(START)));
    let writer = timed(&fs, &clock, None).open("/db").unwrap();
    let follower = timed(&fs, &clock, None).open_follower("/db").unwrap();
    let other = creates_other(&writer, timed(&fs, &clock, Some(100)).keyspace);
    follower.catch_up().unwrap();
    clock.set(START + 50);
    other.put("later", "value").unwrap();
    follower.catch_up().unwrap();
    let followed = follower.keyspace("other").unwrap();
    for (passed, left) in [(90, 2), (155, 0)] {
        clock.set(START + passed);
        assert_eq!(followed.iter().count(), left, "after {passed} s");
    }
}

/// The next session gave the number to another keyspace.
#[test]
fn the_tables_of_a_withdrawn_keyspace_have_no_part_in_the_budget_of_filters() {
    let fs = FaultyFs::new(7);
    let writer = options(fs.clone()).open("/db").unwrap();
    let mut elastic = options(fs.clone()).keyspace;
    elastic.filter = "elastic".parse().unwrap();
    let other = creates_other(&writer, elastic);
    (0..2000u32).for_each(|i| other.put(i.to_be_bytes(), [7; 20]).unwrap());
    other.flush().unwrap();
    let follower = options(fs.clone()).open_follower("/db").unwrap();
    let segments = || follower.stats().elastic.map_or(0, |elastic| elastic.segments);
    assert!(segments() > 0);
    let (dir, id) = (Path::new("/db"), other.inner.id);
    let manifest = ManifestReader::open(&fs, dir).unwrap().unwrap();
    let mut state = manifest.state().clone();
    let edit = VersionEdit {
        rename_keyspaces: vec![(id, "another".into())],
        set_options: vec![(id, KeyspaceOptions::default().to_text())],
        removed: state.keyspaces[&id].tables().map(|meta| (id, meta.id)).collect(),
        ..VersionEdit::default()
    };
    state.apply(&edit).unwrap();
    let number = manifest.mark().0 + 1;
    Manifest::create(&fs, dir, number, &state).unwrap();
    set_current(&fs, dir, number).unwrap();
    follower.catch_up().unwrap();
    assert_eq!((follower.keyspaces(), segments()), (vec!["default".to_owned(), "another".to_owned()], 0));
}

/// While a table waits for its keys to be added to the filter, the one that replaces it must count
/// as unseen, too.
#[test]
fn no_epochs_are_settled_while_a_table_is_unseen() {
    let fs = FaultyFs::new(7);
    let filtered = || {
        let mut options = Options { follow_interval: None, ..options(fs.clone()) };
        options.keyspace.filter = "grf".parse().unwrap();
        options
    };
    let writer = filtered().open("/db").unwrap();
    let follower = filtered().open_follower("/db").unwrap();
    let settled = || {
        let follower = follower_of(&follower).lock();
        (follower.settled[&0].until, follower.settled[&0].pending.len())
    };
    // One mark for all manifests until the next flush.
    for name in ["a", "b", "c"] {
        assert_eq!(settled(), (0, 1));
        writer.create_keyspace(name, KeyspaceOptions::default()).unwrap();
        follower.catch_up().unwrap();
    }
    for i in 0..3 {
        writer.put(i.to_string(), "value").unwrap();
        writer.flush().unwrap();
        follower.catch_up().unwrap();
        assert_eq!(settled().0, 0, "{i}");
        follower.wait_for_filters().unwrap();
    }
    writer.create_keyspace("d", KeyspaceOptions::default()).unwrap();
    follower.catch_up().unwrap();
    // The last flush may not have been the only one of its time.
    assert!(settled().0 > 0 && settled().0 < writer.default_keyspace().stats().next_epoch);
}
