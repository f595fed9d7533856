//! The catalogue of a database without threads: what an edit publishes, which numbers manifests
//! store, and what is left of a manifest that may never have been in force.

use std::path::Path;

use tamis_files::tree::manifest::ManifestReader;
use tamis_files::tree::times::Sample;
use tamis_testkit::{FaultPlan, FaultyFs};

use super::*;
use crate::catalogue::shaping::Shaping;
use crate::io::{MemFs, Usage};
use crate::options::{Compression, KeyspaceOptions, Options, PerLevel};
use crate::session::Session;
use crate::sync::Mutex;
use crate::tree::tests::table;
use crate::{Db, open};

const DIR: &str = "/db";

/// Opens a database with so many keyspaces that have these options, and starts no threads.
pub(crate) fn session(keyspaces: u32, options: &KeyspaceOptions, fill: impl FnOnce(&Db)) -> Arc<Session> {
    let of_all = Options {
        file_system: Some(Arc::new(MemFs::new())),
        keyspace: options.clone(),
        ..Options::default()
    };
    let db = of_all.clone().open(DIR).unwrap();
    (1..keyspaces).for_each(|i| _ = db.create_keyspace(&i.to_string(), options.clone()).unwrap());
    fill(&db);
    db.close().unwrap();
    open::open(Path::new(DIR), of_all, None).unwrap()
}

#[test]
fn an_edit_publishes_each_keyspace_once() {
    let db = session(3, &KeyspaceOptions::default(), |_| ());
    let state = db.state();
    let added = |keyspace, id| (keyspace, 0, id, table(id, "a", "b"));
    let edit = VersionEdit {
        added: vec![added(2, 10), added(0, 11), added(2, 12)],
        removed: vec![(0, 13)],
        ..VersionEdit::default()
    };
    let mut changed = Vec::new();
    let published = state.catalogue.publish(&edit, &[], |id, memtables| {
        changed.push(id);
        memtables.clone()
    });
    let published: Vec<_> = published.iter().map(|(keyspace, ..)| keyspace.id).collect();
    assert_eq!((changed, published), (vec![0, 2], vec![0, 2]));
}

#[test]
fn a_manifest_stores_the_number_after_its_own() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    for rolls in [false, true] {
        let mut state = db.state();
        if rolls {
            state.catalogue.roll().unwrap();
        }
        let stored = ManifestReader::open(&*db.fs, Path::new(DIR)).unwrap().unwrap();
        let number = state.catalogue.manifest_number();
        assert_eq!(stored.mark().0, number);
        assert_eq!((stored.state().next_file, state.catalogue.tree().next_file), (number + 1, number + 1));
    }
}

/// After a failed switch it is unknown which of two manifests is in force. Once that is known, the
/// other one is no use.
#[test]
fn of_manifests_that_may_be_in_force_one_is_left_when_a_database_is_closed() {
    let mut failed = 0;
    for at in 0.. {
        let fs = FaultyFs::new(at);
        let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        let db = open::open(Path::new(DIR), options, None).unwrap();
        let before = db.state().catalogue.manifest_number();
        fs.plan(FaultPlan { fail_at: Some(fs.operations() + at), ..FaultPlan::none() });
        let failures = fs.failures();
        let rolled = db.state().catalogue.roll();
        let is_over = fs.failures() == failures;
        fs.plan(FaultPlan::none());
        if at % 2 == 0 {
            db.state().catalogue.settle().unwrap();
        }
        open::close::close(&db, &Mutex::new(None)).unwrap();
        let named = ManifestReader::open(&fs, Path::new(DIR)).unwrap().unwrap().mark().0;
        let manifests: Vec<_> = crate::io::FileSystem::list(&fs, Path::new(DIR))
            .unwrap()
            .into_iter()
            .filter(|name| name.starts_with("MANIFEST"))
            .collect();
        assert_eq!(manifests, [tamis_files::tree::files::manifest_name(named)], "{at}: {before}");
        failed += u32::from(rolled.is_err());
        if is_over {
            break;
        }
    }
    assert!(failed > 7, "only {failed} failures");
}

#[test]
fn a_filter_file_is_gone_once_no_keyspace_names_it() {
    let mut old = ManifestState::new("default", "");
    let edit = VersionEdit {
        create_keyspaces: vec![(1, "other".into(), String::new())],
        added_filters: vec![(0, 5, 10), (0, 6, 10), (1, 7, 10), (1, 8, 10)],
        ..VersionEdit::default()
    };
    old.apply(&edit).unwrap();
    let gone = |edit: VersionEdit| {
        let mut new = old.clone();
        new.apply(&edit).unwrap();
        gone_filters(&old, &new, &edit)
    };
    let removed = |removed: &[(KeyspaceId, FilterFileId)]| VersionEdit {
        removed_filters: removed.to_vec(),
        ..VersionEdit::default()
    };
    assert_eq!(gone(removed(&[(0, 5), (1, 8)])), [5, 8]);
    assert_eq!(gone(removed(&[(0, 99)])), [], "it was not part of the tree");
    let moved = VersionEdit { added_filters: vec![(1, 5, 10)], ..removed(&[(0, 5)]) };
    assert_eq!(gone(moved), [], "another keyspace names it now");
    assert_eq!(gone(VersionEdit { drop_keyspaces: vec![1], ..VersionEdit::default() }), [7, 8]);
}

/// Opens a database on a device that can fail.
fn on_faulty() -> (FaultyFs, Arc<Session>) {
    let fs = FaultyFs::new(1);
    let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    let db = open::open(Path::new(DIR), options, None).unwrap();
    (fs, db)
}

#[test]
fn a_catalogue_that_has_ended_makes_no_edits() {
    let (_, db) = on_faulty();
    let mut state = db.state();
    assert!(state.catalogue.is_open() && state.catalogue.manifest_len().is_some());
    assert!(state.catalogue.end().is_some());
    assert!(!state.catalogue.is_open() && state.catalogue.manifest_len().is_none());
    let edit = VersionEdit::default();
    let refused = state.catalogue.commit(edit, NewTables::default(), |_, _| ()).unwrap_err();
    assert!(refused.to_string().contains("the database is closed"), "{refused}");
}

/// A filter file that no manifest names is removed, but not while it is unknown whether one does.
#[test]
fn the_filter_files_of_failed_edits_are_removed_once_nothing_can_name_them() {
    let (fs, db) = on_faulty();
    let mut state = db.state();
    let path = |id| tamis_files::tree::files::filter_path(Path::new(DIR), id);
    for id in [77, 78] {
        drop(fs.create(&path(id), Usage::Table).unwrap());
    }
    let is_left = |id| {
        db.files.garbage.remove_all(&fs);
        fs.exists(&path(id)).unwrap()
    };
    let adding =
        |id, removed| VersionEdit { added_filters: vec![(0, id, 10)], removed, ..VersionEdit::default() };
    let commit = |catalogue: &mut Catalogue, edit| {
        catalogue.commit(edit, NewTables::default(), |_, _| ()).unwrap_err()
    };
    let unfit = commit(&mut state.catalogue, adding(77, vec![(0, 999)]));
    assert!(matches!(unfit, StorageError::Corrupt(_)), "{unfit}");
    assert_eq!((state.catalogue.unsettled(), is_left(77), is_left(78)), (None, false, true));

    fs.plan(FaultPlan { fail_at: Some(fs.operations()), ..FaultPlan::none() });
    let failed = commit(&mut state.catalogue, adding(78, vec![]));
    fs.plan(FaultPlan::none());
    assert_eq!((state.catalogue.unsettled(), is_left(78)), (Some(&*failed.to_string()), true));
    state.catalogue.settle().unwrap();
    assert_eq!((state.catalogue.unsettled(), is_left(78)), (None, false));
}

/// The file may fill the disk; the caller has to know which one it is.
#[test]
fn a_session_that_does_not_begin_tells_which_manifest_it_has_made() {
    let (fs, db) = on_faulty();
    let mut state = db.state();
    let unfit = VersionEdit { removed: vec![(0, 999)], ..VersionEdit::default() };
    let mut made = None;
    assert!(matches!(state.catalogue.begin(&unfit, &mut made), Err(NotBegun::Unchanged(_))));
    assert_eq!(made, None);
    let next = db.files.numbers.next();
    fs.plan(FaultPlan { fail_at: Some(fs.operations() + 1), ..FaultPlan::none() });
    let failed = state.catalogue.begin(&VersionEdit::default(), &mut made);
    fs.plan(FaultPlan::none());
    assert!(matches!(failed, Err(NotBegun::Unchanged(_))), "{failed:?}");
    assert_eq!(made, Some(next));
}

#[test]
fn no_selector_is_published_for_a_keyspace_that_is_gone() {
    let filled = || {
        session(2, &KeyspaceOptions::default(), |db| {
            let keyspace = db.keyspace("1").unwrap();
            keyspace.put("key", "value").unwrap();
            keyspace.flush().unwrap();
        })
    };
    let db = filled();
    let state = db.state();
    let keyspace = state.catalogue.keyspaces().get(&1).unwrap();
    let before = keyspace.view.load_full();
    state.catalogue.publish_selector(keyspace);
    assert!(!Arc::ptr_eq(&before, &keyspace.view.load_full()));
    assert_eq!(keyspace.view.load().version.tables.len(), 1);
    // It was dropped, and the tree still has it.
    keyspace.let_go();
    state.catalogue.publish_selector(keyspace);
    assert_eq!(keyspace.view.load().version.tables.len(), 0);

    // A follower's tree no longer has it, and it is still open.
    let db = filled();
    let mut state = db.state();
    let keyspace = state.catalogue.keyspaces().get(&1).unwrap().clone();
    let number = state.catalogue.manifest_number();
    state.catalogue.follow(ManifestState::new("default", ""), number);
    let before = keyspace.view.load_full();
    state.catalogue.publish_selector(&keyspace);
    assert!(Arc::ptr_eq(&before, &keyspace.view.load_full()));
}

#[test]
fn a_keyspace_is_listed_by_what_its_policy_does_now() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    let mut state = db.state();
    let keyspace = state.catalogue.keyspaces().get(&0).unwrap().clone();
    let published = state.catalogue.published();
    for (compaction, drops) in [("fifo", true), ("leveling", false), ("fifo", true)] {
        let options =
            KeyspaceOptions { compaction: compaction.parse().unwrap(), ..KeyspaceOptions::default() };
        keyspace.shaping.store(Arc::new(Shaping::new(options)));
        state.catalogue.policy_changed(keyspace.id);
        assert_eq!(state.catalogue.keyspaces().dropping.contains_key(&0), drops, "{compaction}");
        assert_eq!(published.load().dropping.contains_key(&0), drops, "{compaction}");
        assert!(published.load().contains_key(&0));
    }
}

#[test]
fn the_times_of_writes_that_are_gone_are_forgotten() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    let mut state = db.state();
    let mut tree = ManifestState::new("default", "");
    let times = [(100, 20), (200, 70)].map(|(time, seq)| Sample { time, seq });
    tree.apply(&VersionEdit { times: times.to_vec(), ..VersionEdit::default() }).unwrap();
    state.catalogue.follow(tree, 1);
    state.catalogue.cut_times_at(70);
    assert_eq!(state.catalogue.tree().times.samples(), times);
    state.catalogue.cut_times_at(69);
    assert_eq!(state.catalogue.tree().times.samples(), &times[..1]);
}

/// Level 0 decides, where a flush would write them.
#[test]
fn large_values_stay_in_the_log_unless_a_flush_compresses_them() {
    let (none, lz4) = (Compression::None, Compression::Lz4);
    for (compression, stays) in [
        (PerLevel::split(1, none, lz4), true),
        (PerLevel::split(1, lz4, none), false),
        (PerLevel::uniform(none), true),
        (PerLevel::uniform(lz4), false),
    ] {
        let options = KeyspaceOptions { compression, blob_threshold: 1000, ..KeyspaceOptions::default() };
        let db = session(1, &options, |_| ());
        let slot = db.state().catalogue.keyspaces().get(&0).unwrap().fresh_memtable(1);
        assert_eq!(slot.memtable.leaves_in_log(1000), stays);
        assert!(!slot.memtable.leaves_in_log(999));
    }
}

/// A scrub counts the bytes that it has read.
#[test]
fn checking_a_filter_file_reads_all_of_it() {
    let options = KeyspaceOptions { filter: "grf".parse().unwrap(), ..KeyspaceOptions::default() };
    let db = session(1, &options, |db| {
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.wait_for_filters().unwrap();
    });
    let tree = db.state().catalogue.tree().clone();
    let (&id, &bytes) = tree.keyspaces[&0].filter_files.first_key_value().expect("a filter file");
    let mut read = Vec::new();
    let mut check = |keyspace, most: usize| {
        read.clear();
        let mut go_on = |bytes| {
            read.push(bytes);
            read.len() < most
        };
        let whole = db.files.filter_files.check(&*db.fs, keyspace, id, &mut go_on);
        (whole.ok(), read.len(), read.iter().sum::<u64>())
    };
    assert_eq!(check(1, 9), (None, 0, 0), "it is another keyspace's");
    let (whole, parts, sum) = check(0, usize::MAX);
    assert_eq!((whole, sum), (Some(true), bytes));
    assert!(parts > 1);
    for most in 1..=parts {
        let (whole, count, sum) = check(0, most);
        assert_eq!((whole, count), (Some(false), most));
        assert!(sum < bytes || most == parts);
    }
}
