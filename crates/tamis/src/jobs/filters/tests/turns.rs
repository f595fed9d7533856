//! `filter = auto` step by step: a tree grows from one run to twenty and is merged into one again,
//! and at every step of the changes of its filter all of it is read, here and by whoever opens it
//! after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tamis_testkit::{CrashMode, FaultyFs, Rng};

use crate::session::Session;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::options::FilterChoice;
use crate::select::{Switch, Task};
use crate::{Db, Options, Snapshot};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that may exist: even ones. Odd ones never do.
const KEYS: u64 = 600;

fn key(n: u64) -> Vec<u8> {
    (n << 20).to_be_bytes().to_vec()
}

fn options(fs: &FaultyFs) -> Options {
    let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    options.set("keyspace.workload", "get 10, empty-get 10, seek 1").expect("a workload");
    options.keyspace.filter = FilterChoice::Auto.into();
    options.keyspace.auto_compaction = false;
    options.keyspace.read_compaction = false;
    options.keyspace.table_bytes = 8 << 10;
    options.keyspace.block_bytes = 512;
    options
}

/// Does the next work on the keyspace's filter, which no other thread may do meanwhile.
fn step(db: &Session, keyspace: &KeyspaceInner) -> Option<Task> {
    let global = keyspace.filter.global().expect("a choice");
    let task = {
        let _state = db.state();
        global.task(&keyspace.view.load().version, false)?
    };
    assert_ne!(task, Task::Save, "images are not asked for");
    assert!(db.work_on(keyspace, global, task.clone()).expect("the work"));
    Some(task)
}

fn in_force(db: &Db) -> String {
    db.default_keyspace().stats().auto_filter.expect("a choice").in_force
}

/// Reads everything in every way.
fn check(db: impl crate::Readable, model: &Model, what: &str) {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let many = db.multi_get(&keys).expect("gets");
    for (key, many) in keys.iter().zip(many) {
        let expected = model.get(key).map(|value| &value[..]);
        assert_eq!(db.get(key).expect("a get").as_deref(), expected, "{what}: {key:?}");
        assert_eq!(many.as_deref(), expected, "{what}: {key:?}");
    }
    let pair = |item: Result<(crate::Slice, crate::Slice), _>| {
        item.map(|(key, value)| (key.to_vec(), value.to_vec())).expect("an item")
    };
    let all: Vec<_> = model.clone().into_iter().collect();
    assert!(db.iter().map(pair).eq(all.iter().cloned()), "{what}");
    assert!(db.iter().rev().map(pair).eq(all.iter().rev().cloned()), "{what}");
    for from in (0..KEYS).step_by(37) {
        let (start, end) = (key(from), key(from + from % 5));
        let expected: Vec<_> =
            model.range(start.clone()..end.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(db.range(start.clone()..end.clone()).map(pair).eq(expected.iter().cloned()), "{what}");
        assert!(db.range(start.clone()..end).rev().map(pair).eq(expected.iter().rev().cloned()), "{what}");
        let next = model.range(start.clone()..).next().map(|(k, v)| (k.clone(), v.clone()));
        assert_eq!(db.range(start..).next().map(pair), next, "{what}");
    }
}

/// Opens what a crash leaves now, and reads it while its filter is built and after.
fn check_after_crash(fs: &FaultyFs, model: &Model, what: &str) {
    for mode in [CrashMode::KeepAll, CrashMode::DropUnsynced] {
        let db = options(&fs.after_crash(mode)).open("/db").expect("opening again");
        check(&db, model, what);
        db.wait_for_filters().expect("settling");
        check(&db, model, what);
        assert_eq!(db.verify().expect("verifying").problems, Vec::<String>::new(), "{what}");
        let reader = fs.after_crash(mode);
        drop(db);
        let reader = options(&reader).open_read_only("/db").expect("a reader");
        check(&reader, model, what);
        reader.wait_for_filters().expect("settling");
        check(&reader, model, what);
    }
}

struct Tree {
    fs: FaultyFs,
    db: Db,
    model: Model,
    rng: Rng,
    old: Vec<(Snapshot, Model)>,
    stages: BTreeSet<String>,
    turns: Vec<Switch>,
}

impl Tree {
    fn new(seed: u64) -> Tree {
        let fs = FaultyFs::new(seed);
        let db = options(&fs).open("/db").expect("opening");
        // This thread does all the work on filters.
        db.inner().state().filters.working.insert(db.default_keyspace().inner.id);
        let (model, rng) = (Model::new(), Rng::new(seed));
        Tree { fs, db, model, rng, old: Vec::new(), stages: BTreeSet::new(), turns: Vec::new() }
    }

    fn write(&mut self, keys: u64) {
        for _ in 0..keys {
            let key = key(self.rng.below(KEYS / 2) * 2);
            if self.rng.one_in(8) {
                self.db.delete(&key).expect("a delete");
                self.model.remove(&key);
            } else {
                let value = self.rng.below(1 << 40).to_be_bytes().repeat(6);
                self.db.put(&key, &value).expect("a write");
                self.model.insert(key, value);
            }
        }
        self.db.flush().expect("a flush");
    }

    /// Works on the filter until nothing is due, and reads everything before each step and at the
    /// end.
    fn settle(&mut self, what: &str) {
        for steps in 0.. {
            assert!(steps < 20, "no end of changes: {:?}", self.turns);
            let stage = in_force(&self.db);
            let what = format!("{what}, {stage}, {:?}", self.turns);
            check(&self.db, &self.model, &what);
            for (snapshot, model) in &self.old {
                check(snapshot, model, &format!("{what}, an older version"));
            }
            if self.stages.insert(stage.clone()) || steps > 0 {
                check_after_crash(&self.fs, &self.model, &what);
                if self.old.len() < 6 {
                    self.old.push((self.db.snapshot(), self.model.clone()));
                }
            }
            // An iteration that began under one filter goes on under the next.
            let expected: Vec<Vec<u8>> = self.model.keys().cloned().collect();
            let mut iter = self.db.iter();
            let mut found: Vec<Vec<u8>> = iter
                .by_ref()
                .take(expected.len() / 2)
                .map(|item| item.expect("an item").0.to_vec())
                .collect();
            let task = step(self.db.inner(), &self.db.default_keyspace().inner);
            found.extend(iter.map(|item| item.expect("an item").0.to_vec()));
            assert_eq!(found, expected, "{what}");
            match task {
                None => return,
                Some(Task::Switch(turn)) => self.turns.push(turn),
                Some(_) => {}
            }
        }
    }

    fn runs(&self) -> usize {
        self.db.default_keyspace().stats().runs
    }
}

#[test]
fn every_read_is_right_while_the_filter_changes_to_and_fro() {
    let mut tree = Tree::new(7);
    for round in 0..2 {
        while tree.runs() < 20 {
            tree.write(60);
            tree.settle(&format!("round {round}, {} runs", tree.runs()));
        }
        assert_eq!(in_force(&tree.db), "global");
        let stats = tree.db.default_keyspace().stats();
        assert!(stats.tables_with_key_list > 5, "{stats:?}");
        assert!(stats.global_filter.is_some_and(|filter| filter.unbuilt == 0));
        tree.old.clear();
        tree.db.compact().expect("a compaction");
        tree.settle(&format!("round {round}, merged"));
        assert_eq!((tree.runs(), &in_force(&tree.db)[..]), (1, "per-table"));
        let stats = tree.db.default_keyspace().stats();
        assert_eq!((stats.tables_with_key_list, &stats.global_filter), (0, &None));
        assert!(stats.filter_bytes > 0, "{stats:?}");
    }
    use Switch::{Answer, Begin, Leave};
    assert_eq!(tree.turns, [Begin, Answer, Leave, Begin, Answer, Leave]);
    assert_eq!(tree.stages.len(), 3, "{:?}", tree.stages);
    let reason = tree.db.explain_get(key(0)).expect("an explanation").filter;
    assert!(reason.starts_with("per table (auto: 1 runs take "), "{reason}");
}

/// Flushes and ingestions between the steps of a build: their keys must be in the filter when it
/// takes over.
#[test]
fn what_is_written_while_the_filter_is_built_is_in_it() {
    for seed in 0..4 {
        let mut tree = Tree::new(seed);
        (0..8).for_each(|_| tree.write(60));
        let mut between = 0;
        loop {
            let task = step(tree.db.inner(), &tree.db.default_keyspace().inner);
            if task == Some(Task::Switch(Switch::Answer)) {
                break;
            }
            assert!(task.is_some());
            if between < 4 {
                between += 1;
                tree.write(25);
                if seed % 2 == 1 {
                    ingest(&mut tree, between);
                }
            }
            check(&tree.db, &tree.model, "between");
        }
        assert!(between > 0 && in_force(&tree.db) == "global");
        tree.settle("built");
    }
}

/// An external table has a filter of its own or, if its builder was told so, a key list: that needs
/// the global filter.
fn ingest(tree: &mut Tree, number: u64) {
    use crate::ingest::{ExternalTableBuilder, IngestOptions};
    let mut keyspace = options(&tree.fs).keyspace;
    keyspace.filter = if number.is_multiple_of(2) { FilterChoice::Grf } else { FilterChoice::Auto }.into();
    let path = format!("/external-{number}");
    let fs = Arc::new(tree.fs.clone());
    let mut table = ExternalTableBuilder::create_on(fs, &path, &keyspace).expect("a table");
    for n in (number * 2..KEYS).step_by(26) {
        let value = format!("ingested {number}").into_bytes();
        table.put(key(n), &value).expect("a put");
        tree.model.insert(key(n), value);
    }
    table.finish().expect("finishing");
    tree.db.default_keyspace().ingest(&[path], IngestOptions::default()).expect("an ingestion");
}

/// A single run with a key list, as a tree that was read through a global filter has it: reads go
/// on through one, whatever the rule says, until a merge has written a filter.
#[test]
fn tables_without_a_filter_of_their_own_keep_the_global_one() {
    let mut tree = Tree::new(3);
    tree.write(300);
    tree.settle("one run");
    assert_eq!(in_force(&tree.db), "per-table");
    ingest(&mut tree, 2);
    tree.settle("with a key list");
    assert_eq!(in_force(&tree.db), "global");
    let choice = tree.db.default_keyspace().stats().auto_filter.expect("a choice");
    assert_eq!((&choice.wanted[..], choice.tables_without_own_filter), ("per-table", 1), "{choice:?}");
    // New tables have filters meanwhile.
    tree.write(20);
    assert_eq!(tree.db.default_keyspace().stats().tables_with_key_list, 1);
    tree.settle("leaving");
    tree.db.compact().expect("a compaction");
    tree.settle("merged");
    assert_eq!(in_force(&tree.db), "per-table");
    assert_eq!(tree.turns, [Switch::Begin, Switch::Answer, Switch::Leave]);
}
