//! The catalogue of a database without threads: what an edit publishes, which numbers manifests
//! store, and what is left of a manifest that may never have been in force.

use std::path::Path;

use tamis_files::tree::manifest::ManifestReader;
use tamis_testkit::{FaultPlan, FaultyFs};

use super::*;
use crate::io::MemFs;
use crate::options::{KeyspaceOptions, Options};
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
