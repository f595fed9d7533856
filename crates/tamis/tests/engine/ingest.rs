//! Ingestion of external tables: readers, snapshots, compactions and reopening against a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::{FileSystem, MemFs};
use tamis::{AdminError, Db, ExternalTableError, Keyspace, KeyspaceOptions, Options, Snapshot, WriteError};

const MOVE: IngestOptions = IngestOptions { move_files: true, verify: true };
const COPY: IngestOptions = IngestOptions { move_files: false, verify: true };

/// An in-memory machine with a place for files beside the database.
#[derive(Clone)]
struct Machine {
    fs: Arc<MemFs>,
    files: Arc<AtomicU64>,
    keyspace: KeyspaceOptions,
}

/// The contents of a table to build.
#[derive(Clone, Debug)]
enum Entry {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

fn put(key: &str, value: &str) -> Entry {
    Entry::Put(key.into(), value.into())
}

fn delete(key: &str) -> Entry {
    Entry::Delete(key.into())
}

fn delete_range(start: &str, end: &str) -> Entry {
    Entry::DeleteRange(start.into(), end.into())
}

impl Machine {
    fn new() -> Machine {
        // A few dozen writes trigger flushes and compactions.
        Machine::with(KeyspaceOptions {
            memtable_bytes: 4 << 10,
            table_bytes: 4 << 10,
            block_bytes: 256,
            level0_runs: 2,
            size_ratio: 2.into(),
            levels: 4,
            ..KeyspaceOptions::default()
        })
    }

    fn with(keyspace: KeyspaceOptions) -> Machine {
        let fs = Arc::new(MemFs::new());
        fs.create_dir_all(Path::new("/out")).unwrap();
        Machine { fs, files: Arc::default(), keyspace }
    }

    fn options(&self) -> Options {
        let file_system: Arc<dyn FileSystem> = self.fs.clone();
        Options {
            keyspace: self.keyspace.clone(),
            file_system: Some(file_system),
            cache_bytes: 64 << 10,
            background_threads: 1,
            ..Options::default()
        }
    }

    fn open(&self) -> Db {
        self.options().open("/db").unwrap()
    }

    /// Builds a table of entries whose keys ascend.
    fn build(&self, entries: &[Entry]) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/out/{number}.tam"));
        let mut table =
            ExternalTableBuilder::create_on(self.fs.clone(), &path, &self.keyspace).expect("a new file");
        for entry in entries {
            match entry {
                Entry::Put(key, value) => table.put(key, value),
                Entry::Delete(key) => table.delete(key),
                Entry::DeleteRange(start, end) => table.delete_range(&start[..]..&end[..]),
            }
            .expect("ascending keys");
        }
        table.finish().expect("a table").path
    }

    /// The tables in the database's directory.
    fn tables(&self) -> usize {
        self.fs.list(Path::new("/db")).unwrap().iter().filter(|name| name.ends_with(".tam")).count()
    }
}

fn contents(db: &Db) -> Vec<(String, String)> {
    let text = |slice: tamis::Slice| String::from_utf8(slice.to_vec()).unwrap();
    db.iter().map(|item| item.map(|(k, v)| (text(k), text(v))).unwrap()).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Iterators know where nothing is, and must not jump over what was ingested there.
#[test]
fn an_iterator_does_not_jump_over_what_was_ingested_among_deleted_keys() {
    let machine = Machine::new();
    let db = machine.open();
    let key = |i: u32| format!("{i:04}");
    (0..200).for_each(|i| db.put(key(i), "value").unwrap());
    (1..199).for_each(|i| db.delete(key(i)).unwrap());
    for _ in 0..3 {
        assert_eq!(contents(&db).len(), 2);
    }
    let skipped = db.stats().read.tombstones_skipped;
    assert_eq!(contents(&db).len(), 2);
    assert!(db.stats().read.tombstones_skipped - skipped < 3, "the gap is known");
    let before = db.snapshot();
    let file = machine.build(&[put("0077", "new"), put("0100", "new")]);
    db.default_keyspace().ingest(&[&file], MOVE).unwrap();
    assert_eq!(
        contents(&db),
        pairs(&[("0000", "value"), ("0077", "new"), ("0100", "new"), ("0199", "value")])
    );
    assert_eq!(db.iter().rev().count(), 4);
    assert_eq!(before.iter().count(), 2);
}

#[test]
fn an_ingested_table_is_newer_than_earlier_and_older_than_later_writes() {
    let machine = Machine::new();
    let db = machine.open();
    for (key, value) in [("a", "old"), ("b", "old"), ("c", "old"), ("d", "old"), ("e", "old")] {
        db.put(key, value).unwrap();
    }
    let before = db.snapshot();
    let file = machine.build(&[put("b", "new"), delete("c"), delete_range("d", "e"), put("f", "new")]);
    let report = db.default_keyspace().ingest(&[&file], COPY).unwrap();
    assert_eq!((report.entries, report.seq, report.tables.len()), (3, before.seq() + 1, 1));
    let after = db.snapshot();
    assert_eq!(after.seq(), report.seq);
    db.put("b", "newest").unwrap();
    db.put("c", "newest").unwrap();
    db.delete("f").unwrap();
    let old = pairs(&[("a", "old"), ("b", "old"), ("c", "old"), ("d", "old"), ("e", "old")]);
    let new = pairs(&[("a", "old"), ("b", "new"), ("e", "old"), ("f", "new")]);
    let newest = pairs(&[("a", "old"), ("b", "newest"), ("c", "newest"), ("e", "old")]);
    let seen = |snapshot: &Snapshot| -> Vec<_> {
        let text = |slice: tamis::Slice| String::from_utf8(slice.to_vec()).unwrap();
        let forwards: Vec<_> =
            snapshot.iter().map(|item| item.map(|(k, v)| (text(k), text(v))).unwrap()).collect();
        let mut backwards: Vec<_> =
            snapshot.iter().rev().map(|item| item.map(|(k, v)| (text(k), text(v))).unwrap()).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards);
        for key in ["a", "b", "c", "d", "e", "f", "g"] {
            let listed = forwards.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_bytes());
            assert_eq!(snapshot.get(key).unwrap().as_deref(), listed, "{key}");
            assert_eq!(snapshot.multi_get(&[key]).unwrap()[0].as_deref(), listed, "{key}");
        }
        forwards
    };
    let check = || {
        assert_eq!((seen(&before), seen(&after)), (old.clone(), new.clone()));
        assert_eq!(contents(&db), newest);
        assert_eq!(db.verify().unwrap().problems, [""; 0]);
    };
    check();
    db.flush().unwrap();
    check();
    db.compact().unwrap();
    check();
    assert!(machine.fs.exists(&file).unwrap(), "the source file stays");
    drop((before, after));
    db.compact().unwrap();
    assert_eq!(contents(&db), newest);
    db.close().unwrap();
    assert_eq!(contents(&machine.open()), newest);
}

#[test]
fn a_range_delete_in_a_table_does_not_cover_the_table_itself() {
    let machine = Machine::new();
    let db = machine.open();
    db.put("b", "old").unwrap();
    db.put("c", "old").unwrap();
    let file = machine.build(&[put("b", "new"), delete_range("a", "z")]);
    db.default_keyspace().ingest(&[file], MOVE).unwrap();
    assert_eq!(contents(&db), pairs(&[("b", "new")]));
    db.compact().unwrap();
    assert_eq!(contents(&db), pairs(&[("b", "new")]));
}

#[test]
fn tables_go_to_the_deepest_level_that_fits() {
    let machine = Machine::new();
    let db = machine.open();
    let keyspace = db.default_keyspace();
    let ingest = |entries: &[Entry]| {
        let report = keyspace.ingest(&[machine.build(entries)], COPY).unwrap();
        report.tables[0].level
    };
    assert_eq!(ingest(&[put("b", "1"), put("d", "1")]), 3, "an empty tree takes it in its last level");
    assert_eq!(ingest(&[put("e", "1"), put("g", "1")]), 3, "next to the first");
    assert_eq!(db.default_keyspace().stats().levels[3].runs.len(), 1, "they are one run");
    assert_eq!(ingest(&[put("d", "2")]), 0);
    assert_eq!(ingest(&[delete_range("x", "z")]), 3);
    db.put("m", "1").unwrap();
    assert_eq!(ingest(&[put("n", "1")]), 3, "the memtable holds nothing there");
    assert_eq!(ingest(&[put("l", "1"), put("o", "1")]), 0, "the memtable was flushed");
    assert_eq!(
        contents(&db),
        pairs(&[
            ("b", "1"),
            ("d", "2"),
            ("e", "1"),
            ("g", "1"),
            ("l", "1"),
            ("m", "1"),
            ("n", "1"),
            ("o", "1")
        ])
    );
    let deterministic = Machine::with(KeyspaceOptions {
        deterministic: true,
        merge: tamis::options::MergeGranularity::Full,
        ..machine.keyspace
    });
    let db = deterministic.open();
    let file = deterministic.build(&[put("a", "1")]);
    assert_eq!(db.default_keyspace().ingest(&[file], COPY).unwrap().tables[0].level, 0);
}

/// A range delete that is still in a memtable is older than a table ingested under it. If the table
/// went to the last level with the memtable still above it, a compaction there would reset its
/// number, and the delete would then cover it.
#[test]
fn a_range_delete_in_memory_does_not_cover_tables_ingested_later() {
    let machine = Machine::new();
    let db = machine.open();
    db.delete_range("a".."z").unwrap();
    let file = machine.build(&[put("m", "1")]);
    assert_eq!(db.default_keyspace().ingest(&[file], COPY).unwrap().tables[0].level, 0);
    for _ in 0..2 {
        assert_eq!(contents(&db), pairs(&[("m", "1")]));
        db.compact().unwrap();
    }
}

#[test]
fn several_files_and_keyspaces_are_ingested_atomically() {
    let machine = Machine::new();
    let db = machine.open();
    let other = db.create_keyspace("other", machine.keyspace.clone()).unwrap();
    let first = machine.build(&[put("m", "1")]);
    let second = machine.build(&[put("a", "1"), put("c", "1")]);
    let third = machine.build(&[put("b", "1")]);
    let report = db
        .ingest(&[(db.default_keyspace(), vec![first.clone(), second]), (&other, vec![third])], MOVE)
        .unwrap();
    assert_eq!((report.tables.len(), report.entries), (3, 4));
    assert_eq!(db.snapshot().seq(), report.seq);
    assert_eq!(contents(&db), pairs(&[("a", "1"), ("c", "1"), ("m", "1")]));
    assert_eq!(other.get("b").unwrap().unwrap(), "1");
    assert!(!machine.fs.exists(&first).unwrap(), "the file was moved");
    assert_eq!(report.left, [""; 0].map(PathBuf::from));
    let stats = db.stats();
    assert_eq!((stats.write.ingested_tables, stats.write.ingested_bytes), (3, report.bytes));
}

#[test]
fn one_refused_file_cancels_the_whole_ingestion() {
    let machine = Machine::new();
    let db = machine.open();
    db.put("x", "1").unwrap();
    let seq = db.snapshot().seq();
    let good = machine.build(&[put("a", "1"), put("c", "1")]);
    let within = machine.build(&[put("b", "1")]);
    let touching = machine.build(&[delete_range("c", "d")]);
    let keyspace = db.default_keyspace();
    for bad in [&within, &touching, &good] {
        let error = keyspace.ingest(&[&good, bad], MOVE).unwrap_err();
        assert!(matches!(&error, AdminError::External(ExternalTableError::Overlap { .. })), "{error}");
    }
    let error = keyspace.ingest(&[&good, Path::new("/out/none.tam")], MOVE).unwrap_err();
    assert!(matches!(error, AdminError::External(ExternalTableError::Storage(_))), "{error}");
    db.flush().unwrap();
    let own =
        machine.fs.list(Path::new("/db")).unwrap().into_iter().find(|name| name.ends_with(".tam")).unwrap();
    let error = keyspace.ingest(&[good.clone(), Path::new("/db").join(own)], MOVE).unwrap_err();
    assert!(matches!(error, AdminError::External(ExternalTableError::NotExternal { .. })), "{error}");
    assert_eq!((contents(&db), db.snapshot().seq()), (pairs(&[("x", "1")]), seq));
    assert_eq!(machine.tables(), 1, "only the flushed table");
    assert!(machine.fs.exists(&good).unwrap());
    assert_eq!(keyspace.ingest::<&str>(&[], MOVE).unwrap().tables, []);
    keyspace.ingest(&[good], MOVE).unwrap();
}

#[test]
fn ingestion_requires_write_access() {
    let machine = Machine::new();
    let file = machine.build(&[put("a", "1")]);
    let db = machine.open();
    let other = db.create_keyspace("other", machine.keyspace.clone()).unwrap();
    db.drop_keyspace("other").unwrap();
    let refused = |keyspace: &Keyspace| keyspace.ingest(&[&file], MOVE).unwrap_err();
    assert!(matches!(refused(&other), AdminError::Write(WriteError::Dropped { .. })));
    let stranger = Machine::new().open();
    let error = stranger.ingest(&[(db.default_keyspace(), [&file])], MOVE).unwrap_err();
    assert!(matches!(error, AdminError::Write(WriteError::ForeignKeyspace { .. })));
    let keyspace = db.default_keyspace().clone();
    db.close().unwrap();
    assert!(matches!(refused(&keyspace), AdminError::Write(WriteError::Closed)));
    drop(keyspace);
    drop(other);
    let reader = machine.options().open_read_only("/db").unwrap();
    assert!(matches!(refused(reader.default_keyspace()), AdminError::Write(WriteError::ReadOnly)));
    assert!(machine.fs.exists(&file).unwrap());
}

/// The number of an ingestion is stored only in the manifest. Anything that copies or rereads the
/// manifest must keep it: with another number, the older snapshot or the later write would read the
/// wrong data.
#[test]
fn checkpoints_reopening_and_salvage_keep_the_sequence_number() {
    let mut machine = Machine::new();
    machine.keyspace.auto_compaction = false;
    let db = machine.open();
    db.put("a", "old").unwrap();
    db.put("b", "old").unwrap();
    db.flush().unwrap();
    let file = machine.build(&[put("a", "new"), delete_range("b", "c"), put("z", "new")]);
    let report = db.default_keyspace().ingest(&[file], MOVE).unwrap();
    db.put("z", "newest").unwrap();
    let expected = pairs(&[("a", "new"), ("z", "newest")]);
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    for (dir, salvage) in [("/copy", false), ("/db", false), ("/db", true), ("/copy", true)] {
        if salvage {
            assert!(!tamis_doctor::salvage(dir, machine.options(), false).unwrap().is_needed());
        }
        let db = machine.options().open(dir).unwrap();
        assert_eq!(contents(&db), expected, "{dir}");
        assert_eq!(db.verify().unwrap().problems, [""; 0]);
        assert_eq!(db.snapshot().seq(), report.seq + 1);
        assert_eq!(db.stats().warnings, [""; 0]);
        let mut out = Vec::new();
        let manifests = machine
            .fs
            .list(Path::new(dir))
            .unwrap()
            .into_iter()
            .filter(|n| n.starts_with("MANIFEST") && !n.contains("aside"));
        for manifest in manifests {
            tamis_doctor::inspect::dump_manifest(&*machine.fs, &Path::new(dir).join(manifest), &mut out)
                .unwrap();
        }
        let (dump, number) = (String::from_utf8(out).unwrap(), format!("ingested @ {}", report.seq));
        assert!(dump.contains(&number), "{dump}");
    }
}

/// Between an ingestion and the next write the log holds only the ingestion's number. Closing then
/// compares the ends of log and manifest.
#[test]
fn an_ingestion_may_be_the_last_step_before_closing_and_the_first_after_opening() {
    let machine = Machine::new();
    for round in 0..4 {
        let db = machine.open();
        assert_eq!(db.iter().count(), round);
        let file = machine.build(&[put(&format!("key{round}"), "value")]);
        db.default_keyspace().ingest(&[file], MOVE).unwrap();
        db.close().unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    DeleteRange(u8, u8),
    /// Entries by key (a value, or none for a delete) and ranges, split into this many files.
    Ingest {
        entries: BTreeMap<u8, Option<u8>>,
        ranges: Vec<(u8, u8)>,
        files: usize,
        moved: bool,
    },
    Flush,
    Compact,
    Snapshot,
    Forget,
    Reopen,
    Checkpoint,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..60u8;
    let ingest = (
        prop::collection::btree_map(key(), prop::option::weighted(0.7, any::<u8>()), 0..12),
        prop::collection::vec((key(), 1..15u8).prop_map(|(a, n)| (a, a + n)), 0..3),
        1..4usize,
        any::<bool>(),
    );
    prop_oneof![
        8 => (key(), any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
        3 => key().prop_map(Step::Delete),
        2 => (key(), 1..20u8).prop_map(|(a, n)| Step::DeleteRange(a, a + n)),
        6 => ingest.prop_map(|(entries, ranges, files, moved)| Step::Ingest { entries, ranges, files, moved }),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Forget),
        1 => Just(Step::Reopen),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::Read),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(n: u8) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

fn value(n: u8) -> Vec<u8> {
    // Enough of them fill a memtable.
    vec![n; 40 + n as usize]
}

/// Deletes the ranges first: they do not cover the other entries of their table.
fn ingest_into(model: &mut Model, entries: &BTreeMap<u8, Option<u8>>, ranges: &[(u8, u8)]) {
    for (from, to) in ranges {
        model.retain(|k, _| !(key(*from)..key(*to)).contains(k));
    }
    for (k, v) in entries {
        match v {
            Some(v) => _ = model.insert(key(*k), value(*v)),
            None => _ = model.remove(&key(*k)),
        }
    }
}

fn assert_same(
    what: &str,
    model: &Model,
    iter: impl Fn() -> tamis::Iter,
    get: impl Fn(&[u8]) -> Option<Vec<u8>>,
) {
    let listed = |iter: &mut dyn Iterator<Item = Result<(tamis::Slice, tamis::Slice), tamis::ReadError>>| {
        iter.map(|item| item.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect::<Vec<_>>()
    };
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(listed(&mut iter()), expected, "{what}");
    let mut backwards = listed(&mut iter().rev());
    backwards.reverse();
    assert_eq!(backwards, expected, "{what}, backwards");
    for k in (0..60).map(key) {
        assert_eq!(get(&k), model.get(&k).cloned(), "{what}: {}", k.escape_ascii());
    }
}

struct Run {
    machine: Machine,
    db: Db,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    checkpoints: usize,
}

impl Run {
    fn check(&self) {
        let get = |k: &[u8]| self.db.get(k).unwrap().map(|v| v.to_vec());
        assert_same("now", &self.model, || self.db.iter(), get);
        for (snapshot, model) in &self.snapshots {
            let get = |k: &[u8]| snapshot.get(k).unwrap().map(|v| v.to_vec());
            assert_same(&format!("at {}", snapshot.seq()), model, || snapshot.iter(), get);
        }
    }

    fn step(&mut self, step: &Step) {
        let (db, model) = (&self.db, &mut self.model);
        match step {
            Step::Put(k, v) => {
                db.put(key(*k), value(*v)).unwrap();
                model.insert(key(*k), value(*v));
            }
            Step::Delete(k) => {
                db.delete(key(*k)).unwrap();
                model.remove(&key(*k));
            }
            Step::DeleteRange(from, to) => {
                db.delete_range(key(*from)..key(*to)).unwrap();
                model.retain(|k, _| !(key(*from)..key(*to)).contains(k));
            }
            Step::Ingest { entries, ranges, files, moved } => {
                // Each file takes a key range, and the parts of the ranges within it.
                let width = 80_u8.div_ceil(*files as u8);
                let mut paths = Vec::new();
                for n in 0..*files as u8 {
                    let (low, high) = (n * width, (n + 1) * width);
                    let mut list: Vec<Entry> = ranges
                        .iter()
                        .map(|(from, to)| ((*from).max(low), (*to).min(high)))
                        .filter(|(from, to)| from < to)
                        .map(|(from, to)| Entry::DeleteRange(key(from), key(to)))
                        .collect();
                    list.extend(entries.range(low..high).map(|(k, v)| match v {
                        Some(v) => Entry::Put(key(*k), value(*v)),
                        None => Entry::Delete(key(*k)),
                    }));
                    if !list.is_empty() {
                        paths.push(self.machine.build(&list));
                    }
                }
                let options = IngestOptions { move_files: *moved, ..IngestOptions::default() };
                let report = db.default_keyspace().ingest(&paths, options).unwrap();
                assert_eq!(report.tables.len(), paths.len());
                ingest_into(model, entries, ranges);
            }
            Step::Flush => db.flush().unwrap(),
            Step::Compact => db.compact().unwrap(),
            Step::Snapshot => self.snapshots.push((db.snapshot(), model.clone())),
            Step::Forget => self.snapshots.clear(),
            Step::Reopen => {
                self.snapshots.clear();
                self.db.clone().close().unwrap();
                self.db = self.machine.open();
            }
            Step::Checkpoint => {
                self.checkpoints += 1;
                let path = format!("/copy{}", self.checkpoints);
                db.checkpoint(&path).unwrap();
                let copy = self.machine.options().open(&path).unwrap();
                let get = |k: &[u8]| copy.get(k).unwrap().map(|v| v.to_vec());
                assert_same("a checkpoint", model, || copy.iter(), get);
            }
            Step::Read => self.check(),
        }
    }
}

fn scale() -> u32 {
    std::env::var("TAMIS_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn history(machine: Machine, steps: &[Step]) {
    let db = machine.open();
    let mut run = Run { machine, db, model: Model::new(), snapshots: Vec::new(), checkpoints: 0 };
    for step in steps {
        run.step(step);
    }
    run.check();
    assert_eq!(run.db.verify().unwrap().problems, [""; 0]);
    run.db.compact().unwrap();
    run.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60 * scale(), ..ProptestConfig::default() })]

    #[test]
    fn histories_with_ingestions_agree_with_the_model(steps in prop::collection::vec(step(), 1..80)) {
        history(Machine::new(), &steps);
    }

    #[test]
    fn histories_with_ingestions_agree_under_any_shape_and_filter(
        steps in prop::collection::vec(step(), 1..60),
        shape in prop::sample::select(vec!["leveling", "tiering", "lazy-leveling", "fragmented", "fifo"]),
        filter in prop::sample::select(vec!["blocked-bloom", "grafite", "surf", "none"]),
        auto_compaction in any::<bool>(),
        blob_threshold in prop::sample::select(vec![0, 1, 200]),
    ) {
        let mut machine = Machine::new();
        (machine.keyspace.blob_threshold, machine.keyspace.blob_file_bytes) = (blob_threshold, 4 << 10);
        machine.keyspace.auto_compaction = auto_compaction;
        machine.keyspace.set("compaction", shape).unwrap();
        machine.keyspace.set("filter", filter).unwrap();
        history(machine, &steps);
    }
}

/// Writers set all keys of a table to one value in a batch, ingestions do the same with a table,
/// and readers must never see two values at once. A clock in another key tells which came later.
#[test]
fn readers_see_an_ingestion_entirely_or_not_at_all() {
    const KEYS: u8 = 20;
    let machine = Machine::new();
    let db = machine.open();
    let (next, done) = (AtomicU64::new(1), AtomicBool::new(false));
    let write = |value: u64| {
        let mut batch = tamis::WriteBatch::new();
        (0..KEYS).for_each(|k| _ = batch.put(key(k), value.to_be_bytes()));
        db.write(batch).unwrap();
    };
    write(0);
    db.put("key~clock", 0u64.to_be_bytes()).unwrap();
    // Each writer takes the number and its turn together, so that values never go back.
    let turn = std::sync::Mutex::new(());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..150 * scale() {
                let _turn = turn.lock().unwrap();
                write(next.fetch_add(1, Ordering::Relaxed));
            }
        });
        // A writer to other keys, at any time.
        scope.spawn(|| {
            let mut n = 0u64;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                db.put(format!("other{:04}", n % 500), vec![1; 50]).unwrap();
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (db, done) = (&db, &done);
                scope.spawn(move || {
                    let (mut last, mut rounds) = (0, 0u64);
                    while !done.load(Ordering::Relaxed) || rounds < 10 {
                        rounds += 1;
                        let mut keys: Vec<_> = (0..KEYS).map(key).collect();
                        keys.push(b"key~clock".to_vec());
                        let number = |v: &tamis::Slice| u64::from_be_bytes(v[..].try_into().unwrap());
                        let mut values: Vec<u64> = match (rounds + reader) % 3 {
                            0 => db
                                .multi_get(&keys)
                                .unwrap()
                                .iter()
                                .map(|v| number(v.as_ref().unwrap()))
                                .collect(),
                            1 => db.prefix("key").map(|item| number(&item.unwrap().1)).collect(),
                            _ => {
                                let snapshot = db.snapshot();
                                keys.iter().map(|k| number(&snapshot.get(k).unwrap().unwrap())).collect()
                            }
                        };
                        // Written after every ingestion: a reader that sees it must see the data
                        // before it.
                        let clock = values.pop().unwrap();
                        assert_eq!(values.len(), usize::from(KEYS));
                        assert!(
                            clock <= values[0],
                            "clock {clock} is newer than the visible values: {values:?}"
                        );
                        assert!(values.iter().all(|v| *v == values[0]), "half of an ingestion: {values:?}");
                        assert!(values[0] >= last, "back from {last} to {}", values[0]);
                        last = values[0];
                    }
                })
            })
            .collect();
        for n in 0..60 * scale() {
            let _turn = turn.lock().unwrap();
            let value = next.fetch_add(1, Ordering::Relaxed);
            let list: Vec<_> = (0..KEYS).map(|k| Entry::Put(key(k), value.to_be_bytes().to_vec())).collect();
            let files: Vec<_> = list.chunks(7).map(|part| machine.build(part)).collect();
            let options = IngestOptions { move_files: n % 2 == 0, ..IngestOptions::default() };
            db.default_keyspace().ingest(&files, options).unwrap();
            assert_eq!(db.get(key(3)).unwrap().unwrap(), value.to_be_bytes());
            db.put("key~clock", value.to_be_bytes()).unwrap();
        }
        drop(turn.lock().unwrap());
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(db.verify().unwrap().problems, [""; 0]);
}
