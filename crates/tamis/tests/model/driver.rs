//! Executes a history on the engine and on the model at once, and compares all results.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::explain::ExplainOutcome;
use tamis::io::{FileSystem, MemFs};
use tamis::options::{FilterChoice, ReadMode};
use tamis::stats::ReadCost;
use tamis::{AdminError, Db, Keyspace, Options, Snapshot, WriteBatch, WriteError};
use tamis_testkit::{CrashMode, FaultyFs};

use crate::moves::{Move, Walk, show};
use crate::ops::{Change, KEYSPACES, Op};
use crate::oracle::{Contents, Cursor, Range};
use crate::settings::{Settings, value_for};

/// Where the database lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Memory,
    /// In memory, on a machine that a process crash leaves a copy of.
    Crashable,
    Disk(ReadMode),
}

#[derive(Debug)]
struct Home {
    fs: Option<Arc<dyn FileSystem>>,
    machine: Option<FaultyFs>,
    read_mode: ReadMode,
    root: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

impl Home {
    fn new(place: Place) -> Home {
        let root = PathBuf::from("/tamis");
        let read_mode = ReadMode::Mapped;
        match place {
            Place::Memory => {
                Home { fs: Some(Arc::new(MemFs::new())), machine: None, read_mode, root, _dir: None }
            }
            Place::Crashable => {
                let machine = FaultyFs::new(1);
                Home {
                    fs: Some(Arc::new(machine.clone())),
                    machine: Some(machine),
                    read_mode,
                    root,
                    _dir: None,
                }
            }
            Place::Disk(read_mode) => {
                let dir = tempfile::tempdir().expect("a directory");
                Home { fs: None, machine: None, read_mode, root: dir.path().to_owned(), _dir: Some(dir) }
            }
        }
    }
}

/// A keyspace that exists, in the engine and in the model.
#[derive(Clone)]
struct Pair {
    engine: Keyspace,
    model: Contents,
}

/// A snapshot, with all keyspaces at its creation.
struct Held {
    snapshot: Snapshot,
    keyspaces: [Option<Pair>; KEYSPACES],
}

pub(crate) struct Driver {
    home: Home,
    settings: Settings,
    db: Option<Db>,
    keyspaces: [Option<Pair>; KEYSPACES],
    snapshots: Vec<Held>,
    /// Iterators, and whether each keeps a snapshot (and with it the database) alive.
    walks: Vec<(Walk, bool)>,
    keys: Vec<Vec<u8>>,
    /// The number of values written: it makes each value unique.
    written: u64,
    /// The cost of all reads of databases that were closed.
    cost: ReadCost,
    copies: u64,
    /// A checkpoint that is opened only after many changes to the original.
    old_copy: Option<(PathBuf, [Option<Contents>; KEYSPACES])>,
}

fn name(slot: usize) -> &'static str {
    ["default", "one", "two"][slot]
}

impl Driver {
    /// Executes a history and, at its end, checks everything again: before and after closing and
    /// compacting. Returns the cost of the reads.
    pub(crate) fn run(place: Place, settings: &Settings, history: &[Op]) -> ReadCost {
        let mut driver = Driver {
            home: Home::new(place),
            settings: settings.clone(),
            db: None,
            keyspaces: [const { None }; KEYSPACES],
            snapshots: Vec::new(),
            walks: Vec::new(),
            keys: settings.universe.keys(),
            written: 0,
            cost: ReadCost::default(),
            copies: 0,
            old_copy: None,
        };
        driver.open(0);
        driver.keyspaces[0] =
            Some(Pair { engine: driver.db().default_keyspace().clone(), model: Contents::default() });
        for op in history {
            driver.carry_out(op);
            assert_eq!(driver.db().stats().poisoned, None, "after {op:?}");
        }
        driver.end()
    }

    fn end(mut self) -> ReadCost {
        self.check_all();
        self.verify();
        self.open_old_copy();
        for held in std::mem::take(&mut self.snapshots) {
            for pair in held.keyspaces.iter().flatten() {
                self.read_snapshot(&held.snapshot, pair, &Range::all());
            }
        }
        for (walk, _) in std::mem::take(&mut self.walks) {
            walk.finish(&self.keys);
        }
        self.reopen(true, 0);
        self.check_all();
        for slot in 0..KEYSPACES {
            self.compact(slot);
        }
        self.check_all();
        self.verify();
        self.add_cost();
        self.cost
    }

    fn add_cost(&mut self) {
        let cost = self.db().stats().read;
        assert!(cost.filter_negatives <= cost.filter_probes, "{cost:?}");
        // A global filter names several runs at once, and an elastic one without loaded units
        // rejects nothing.
        let keyspaces = self.settings.options.iter().map(|options| &options.keyspace);
        let keyspaces = keyspaces.chain([&self.settings.keyspace]);
        let any = |is: fn(FilterChoice) -> bool| {
            keyspaces.clone().any(|keyspace| keyspace.filter.as_slice().iter().any(|&filter| is(filter)))
        };
        let (global, elastic) = (any(FilterChoice::is_of_tree), any(FilterChoice::is_elastic));
        let maybe = cost.filter_probes - cost.filter_negatives;
        assert!(
            cost.false_positives <= if global || elastic { cost.runs_searched } else { maybe },
            "{cost:?}"
        );
        assert!(cost.range_negatives <= cost.range_probes, "{cost:?}");
        let asked = if global { cost.seeks } else { cost.range_probes.min(cost.seeks) };
        assert!(cost.range_false_positives <= asked, "{cost:?}");
        self.cost = self.cost + cost;
    }

    /// The current contents of every keyspace.
    fn contents(&self) -> [Option<Contents>; KEYSPACES] {
        self.keyspaces.each_ref().map(|pair| pair.as_ref().map(|pair| pair.model.clone()))
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn options(&self, number: usize) -> Options {
        let options = &self.settings.options[number % self.settings.options.len()];
        Options { file_system: self.home.fs.clone(), read_mode: self.home.read_mode, ..options.clone() }
    }

    fn path(&self) -> PathBuf {
        self.home.root.join("db")
    }

    fn open(&mut self, settings: usize) {
        let db = self.options(settings).open(self.path()).expect("opening");
        assert_eq!(warnings(&db), Vec::<String>::new(), "nothing was torn");
        self.db = Some(db);
    }

    fn reopen(&mut self, close: bool, settings: usize) {
        if !close {
            // The last handle must be dropped, and everything that holds one.
            self.snapshots.clear();
            self.walks.retain(|(_, pinned)| !pinned);
        }
        self.add_cost();
        let contents = self.contents();
        self.keyspaces = [const { None }; KEYSPACES];
        let db = self.db.take().expect("open");
        if close {
            db.close().expect("closing");
        } else {
            drop(db);
        }
        self.open(settings);
        for (slot, contents) in contents.into_iter().enumerate() {
            match (contents, self.db().keyspace(name(slot))) {
                (Some(model), Ok(engine)) => self.keyspaces[slot] = Some(Pair { engine, model }),
                (None, Err(AdminError::NoKeyspace { .. })) => {}
                (model, engine) => panic!("keyspace {slot}: {engine:?} where the model has {model:?}"),
            }
        }
    }

    fn carry_out(&mut self, op: &Op) {
        match op {
            Op::Change(slot, change) => self.write(&[(*slot, change.clone())], false),
            Op::Batch(changes) => self.write(changes, true),
            &Op::Fill { keyspace, from, count, len } => {
                for i in from..from + count {
                    let key = i % self.keys.len();
                    self.write(&[(keyspace, Change::Put(key, len))], false);
                }
            }
            &Op::Drain { keyspace, from, count, backward } => {
                let to = self.keys.len().min(from + count);
                for i in from..to {
                    let key = if backward { from + to - 1 - i } else { i };
                    self.write(&[(keyspace, Change::Delete(key))], false);
                }
                self.scan(keyspace, &Range::all());
            }
            &Op::Rewrite { keyspace, key, count, kinds, snapshot } => {
                for i in 0..count {
                    if i == snapshot {
                        self.carry_out(&Op::TakeSnapshot);
                    }
                    let change = match kinds >> (2 * (i % 32)) & 3 {
                        0 | 1 => Change::Put(key, 10),
                        2 => Change::Merge(key, 3),
                        _ => Change::Delete(key),
                    };
                    self.write(&[(keyspace, change)], false);
                }
            }
            Op::Get(slot, key) => self.get(*slot, *key),
            Op::MultiGet(slot, keys) => self.multi_get(*slot, keys),
            Op::Scan(slot, span) => self.scan(*slot, &span.of(&self.keys)),
            &Op::Prefix { keyspace, key, cut } => self.prefix(keyspace, key, cut),
            Op::CheckAll => self.check_all(),
            Op::Verify => self.verify(),
            Op::TakeSnapshot => {
                self.snapshots.truncate(7);
                let (snapshot, keyspaces) = (self.db().snapshot(), self.keyspaces.clone());
                self.snapshots.push(Held { snapshot, keyspaces });
            }
            Op::ReadSnapshot(which, slot, span) => {
                if let Some(held) = nth(&self.snapshots, *which)
                    && let Some(pair) = &held.keyspaces[*slot]
                {
                    self.read_snapshot(&held.snapshot, pair, &span.of(&self.keys));
                }
            }
            Op::DropSnapshot(which) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(which % self.snapshots.len());
                }
            }
            Op::OpenIter { keyspace, span, snapshot } => {
                self.open_iter(*keyspace, &span.of(&self.keys), *snapshot)
            }
            Op::StepIter(which, steps) => {
                let count = self.walks.len().max(1);
                if let Some((walk, _)) = self.walks.get_mut(which % count) {
                    steps.iter().for_each(|step| walk.step(*step, &self.keys));
                }
            }
            Op::RefreshIter(which) => {
                let count = self.walks.len().max(1);
                if let Some((walk, false)) = self.walks.get_mut(which % count)
                    && let Some(pair) = &self.keyspaces[walk.slot]
                {
                    walk.iter.refresh(&pair.engine);
                    walk.model.refresh(pair.model.clone());
                }
            }
            Op::DropIter(which) => {
                if !self.walks.is_empty() {
                    let (walk, _) = self.walks.remove(which % self.walks.len());
                    walk.finish(&self.keys);
                }
            }
            Op::Flush(None) => self.db().flush().expect("a flush"),
            Op::Flush(Some(slot)) => {
                if let Some(pair) = &self.keyspaces[*slot] {
                    pair.engine.flush().expect("a flush");
                    assert_eq!(pair.engine.stats().memtable_entries, 0);
                }
            }
            Op::Compact(slot) => self.compact(*slot),
            Op::Settle => self.db().wait_for_compaction().expect("settling"),
            Op::Reshape(slot, settings) => self.reshape(*slot, *settings),
            Op::Reopen { close, settings } => self.reopen(*close, *settings),
            Op::ReadOnly => {
                // Files that a reader is opening must not be compacted away meanwhile.
                self.db().wait_for_compaction().expect("waiting until idle");
                self.compare_copy(&self.options(0).open_read_only(self.path()).expect("opening to read"));
            }
            Op::Crash => self.crash(),
            Op::Checkpoint => self.checkpoint(),
            Op::CreateKeyspace(slot) => self.create_keyspace(*slot),
            Op::DropKeyspace(slot) => self.drop_keyspace(*slot),
        }
    }

    fn write(&mut self, changes: &[(usize, Change)], as_batch: bool) {
        let mut batch = WriteBatch::new();
        let mut after = self.keyspaces.clone();
        let mut reversed = false;
        let mut single = None;
        for (slot, change) in changes {
            let Some(pair) = &mut after[*slot] else { continue };
            match change {
                Change::Put(key, len) => {
                    self.written += 1;
                    let operator = self.settings.operator(*slot);
                    let (key, value) = (&self.keys[*key], value_for(operator, self.written, *len));
                    match as_batch {
                        true => _ = batch.put_in(&pair.engine, key, &value),
                        false => single = Some(pair.engine.put(key, &value)),
                    }
                    pair.model.put(key, value.into());
                }
                Change::Merge(key, len) => {
                    self.written += 1;
                    let operator = self.settings.operator(*slot);
                    let (key, operand) = (&self.keys[*key], value_for(operator, self.written, *len));
                    match as_batch {
                        true => _ = batch.merge_in(&pair.engine, key, &operand),
                        false => single = Some(pair.engine.merge(key, &operand)),
                    }
                    pair.model.merge(operator, key, &operand);
                }
                Change::Delete(key) => {
                    let key = &self.keys[*key];
                    match as_batch {
                        true => _ = batch.delete_in(&pair.engine, key),
                        false => single = Some(pair.engine.delete(key)),
                    }
                    pair.model.delete(key);
                }
                Change::DeleteRange(span) => {
                    let range = span.of(&self.keys);
                    reversed |= range.is_reversed();
                    match as_batch {
                        true => _ = batch.delete_range_in(&pair.engine, range.clone()),
                        false => single = Some(pair.engine.delete_range(range.clone())),
                    }
                    pair.model.delete_range(&range);
                }
            }
        }
        match if as_batch { self.db().write(batch) } else { single.unwrap_or(Ok(())) } {
            Err(WriteError::ReversedRange) if reversed => {}
            Ok(()) if !reversed => self.keyspaces = after,
            other => panic!("{other:?} (reversed: {reversed})"),
        }
    }

    fn get(&self, slot: usize, key: usize) {
        if let Some(pair) = &self.keyspaces[slot] {
            check_get(pair, &self.keys[key]);
        }
    }

    fn multi_get(&self, slot: usize, keys: &[usize]) {
        let Some(pair) = &self.keyspaces[slot] else { return };
        let keys: Vec<_> = keys.iter().map(|&i| &self.keys[i]).collect();
        let found = pair.engine.multi_get(&keys).expect("a multi_get");
        let found: Vec<_> = found.iter().map(|value| value.as_deref().map(show)).collect();
        let expected: Vec<_> = keys.iter().map(|key| pair.model.get(key).map(show)).collect();
        assert_eq!(found, expected, "multi_get of {} keys", keys.len());
    }

    fn scan(&self, slot: usize, range: &Range) {
        let Some(pair) = &self.keyspaces[slot] else { return };
        let expected = pair.model.range(range);
        check_scan(pair.engine.range(range.clone()), pair.engine.range(range.clone()), &expected);
        let keys = || pair.engine.range(range.clone()).keys().map(|key| show(&key.expect("a key")));
        let expected: Vec<_> = expected.iter().map(|(key, _)| show(key)).collect();
        assert_eq!(keys().collect::<Vec<_>>(), expected, "keys (found, then expected)");
        assert!(keys().rev().eq(expected.into_iter().rev()), "keys backwards");
    }

    fn prefix(&self, slot: usize, key: usize, cut: usize) {
        let Some(pair) = &self.keyspaces[slot] else { return };
        let prefix = &self.keys[key][..cut.min(self.keys[key].len())];
        let mut expected = pair.model.range(&Range::all());
        expected.retain(|(key, _)| key.starts_with(prefix));
        check_scan(pair.engine.prefix(prefix), pair.engine.prefix(prefix), &expected);
    }

    fn check_all(&self) {
        for slot in 0..KEYSPACES {
            let all: Vec<_> = (0..self.keys.len()).collect();
            all.iter().for_each(|&key| self.get(slot, key));
            self.multi_get(slot, &all);
            self.scan(slot, &Range::all());
            self.short_ranges(slot);
        }
    }

    /// Ranges between neighbouring keys, and results of seeks: these are what range filters are
    /// probed for.
    fn short_ranges(&self, slot: usize) {
        let Some(pair) = &self.keyspaces[slot] else { return };
        for (i, key) in self.keys.iter().enumerate() {
            let behind = self.keys.get(i + 1 + i % 3);
            let end = behind.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
            self.scan(slot, &Range(Bound::Excluded(key.clone()), end));
        }
        // Back and forth, over all keys and within bounds.
        let bounded = Range(Bound::Included(self.keys[9].clone()), Bound::Excluded(self.keys[30].clone()));
        for range in [Range::all(), bounded] {
            let iter = pair.engine.range(range.clone());
            let mut walk = Walk { iter, model: Cursor::new(pair.model.clone(), &range), slot };
            for i in 0..self.keys.len() {
                walk.step(Move::Seek(i * 19 % self.keys.len()), &self.keys);
                (0..1 + i % 2).for_each(|_| walk.step(Move::Next, &self.keys));
            }
        }
    }

    fn verify(&self) {
        let report = self.db().verify().expect("verifying");
        assert_eq!(report.problems, Vec::<String>::new());
    }

    fn read_snapshot(&self, snapshot: &Snapshot, pair: &Pair, range: &Range) {
        let view = snapshot.keyspace(&pair.engine);
        if is_dropped(&view) {
            return;
        }
        let found = view.multi_get(&self.keys).expect("a multi_get");
        for (key, many) in self.keys.iter().zip(&found) {
            let expected = pair.model.get(key).map(show);
            let one = view.get(key).expect("a get").as_deref().map(show);
            assert_eq!(one, expected, "get of {} in a snapshot", show(key));
            assert_eq!(many.as_deref().map(show), expected, "multi_get of {} in a snapshot", show(key));
            assert_eq!(view.contains_key(key).expect("a get"), expected.is_some());
        }
        check_scan(view.range(range.clone()), view.range(range.clone()), &pair.model.range(range));
    }

    fn open_iter(&mut self, slot: usize, range: &Range, snapshot: Option<usize>) {
        let held = snapshot.and_then(|which| nth(&self.snapshots, which));
        let (pair, iter) = match held {
            Some(held) => match &held.keyspaces[slot] {
                Some(pair) => {
                    let view = held.snapshot.keyspace(&pair.engine);
                    if is_dropped(&view) {
                        return;
                    }
                    (pair, view.range(range.clone()))
                }
                None => return,
            },
            None => match &self.keyspaces[slot] {
                Some(pair) => (pair, pair.engine.range(range.clone())),
                None => return,
            },
        };
        let walk = Walk { iter, model: Cursor::new(pair.model.clone(), range), slot };
        let pinned = held.is_some();
        self.walks.truncate(7);
        self.walks.push((walk, pinned));
    }

    fn compact(&self, slot: usize) {
        let Some(pair) = &self.keyspaces[slot] else { return };
        pair.engine.compact().expect("a compaction");
        let stats = pair.engine.stats();
        assert_eq!(stats.memtable_entries, 0);
        use tamis::options::CompactionChoice::{Fifo, TimeWindow};
        if matches!(pair.engine.options().compaction, Fifo | TimeWindow) {
            return;
        }
        assert!(stats.runs <= 1, "everything is in one run: {stats:#?}");
        if self.db().stats().snapshots == 0 {
            let entries = pair.model.range(&Range::all()).len() as u64;
            assert_eq!(
                (stats.deletes, stats.range_tombstones, stats.entries),
                (0, 0, entries),
                "deletes, range tombstones and entries after a full compaction: {stats:#?}"
            );
        }
    }

    fn reshape(&self, slot: usize, settings: usize) {
        let Some(pair) = &self.keyspaces[slot] else { return };
        let text = self.options(settings).keyspace.to_text();
        let names = ["compaction", "merge", "picker", "deterministic", "size_ratio", "level0_runs"];
        let limits = ["slowdown_runs", "stop_runs", "table_bytes"];
        let changes: Vec<(&str, &str)> = text
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .filter(|(name, _)| names.contains(name) || limits.contains(name))
            .collect();
        assert_eq!(changes.len(), names.len() + limits.len());
        pair.engine.set_options(&changes).expect("a new shape");
    }

    fn compare_copy(&self, copy: &Db) {
        self.compare(copy, &self.contents());
    }

    /// Checks that a copy holds exactly these keyspaces.
    fn compare(&self, copy: &Db, keyspaces: &[Option<Contents>; KEYSPACES]) {
        assert_eq!(warnings(copy), Vec::<String>::new());
        let names: Vec<_> = (0..KEYSPACES).filter(|slot| keyspaces[*slot].is_some()).map(name).collect();
        let mut found = copy.keyspaces();
        found.sort();
        assert_eq!(found, names);
        for (slot, model) in keyspaces.iter().enumerate() {
            let Some(model) = model.clone() else { continue };
            let pair = Pair { engine: copy.keyspace(name(slot)).expect("it is listed"), model };
            let expected = pair.model.range(&Range::all());
            check_scan(pair.engine.iter(), pair.engine.iter(), &expected);
            self.keys.iter().for_each(|key| check_get(&pair, key));
        }
        assert_eq!(copy.verify().expect("verifying").problems, Vec::<String>::new());
    }

    /// The process dies now; another one reads, then opens for writing, and compacts.
    fn crash(&mut self) {
        let Some(machine) = &self.home.machine else { return };
        let after = machine.after_crash(CrashMode::KeepAll);
        let options = Options { file_system: Some(Arc::new(after)), ..self.options(0) };
        self.compare_copy(&options.clone().open_read_only(self.path()).expect("opening to read"));
        let db = options.open(self.path()).expect("opening after a crash");
        self.compare_copy(&db);
        db.compact().expect("a compaction");
        self.compare_copy(&db);
    }

    /// A checkpoint keeps the state of the database, whatever is done to either afterwards.
    fn checkpoint(&mut self) {
        self.open_old_copy();
        self.copies += 1;
        let later = self.home.root.join("later");
        self.db().checkpoint(&later).expect("a checkpoint");
        self.old_copy = Some((later, self.contents()));
        let path = self.home.root.join(format!("copy{}", self.copies));
        self.db().checkpoint(&path).expect("a checkpoint");
        let options = self.options(self.copies as usize);
        {
            let copy = options.clone().open(&path).expect("opening a checkpoint");
            self.compare_copy(&copy);
            copy.delete_range(Range::all()).expect("a write");
            copy.put("only in the copy", "").expect("a write");
            copy.compact().expect("a compaction");
        }
        self.check_all();
        let copy = options.open(&path).expect("opening a checkpoint again");
        assert_eq!(copy.iter().count(), 1);
        drop(copy);
        self.remove(&path);
    }

    fn open_old_copy(&mut self) {
        let Some((path, keyspaces)) = self.old_copy.take() else { return };
        {
            let copy = self.options(0).open(&path).expect("opening an old checkpoint");
            self.compare(&copy, &keyspaces);
        }
        self.remove(&path);
    }

    fn remove(&self, path: &Path) {
        match &self.home.fs {
            Some(fs) => fs.remove_dir_all(path).expect("removing a copy"),
            None => std::fs::remove_dir_all(path).expect("removing a copy"),
        }
    }

    fn create_keyspace(&mut self, slot: usize) {
        match (self.db().create_keyspace(name(slot), self.settings.keyspace.clone()), &self.keyspaces[slot]) {
            (Ok(engine), None) => self.keyspaces[slot] = Some(Pair { engine, model: Contents::default() }),
            (Err(AdminError::KeyspaceExists { .. }), Some(_)) => {}
            (other, _) => panic!("{other:?}"),
        }
    }

    fn drop_keyspace(&mut self, slot: usize) {
        match (self.db().drop_keyspace(name(slot)), self.keyspaces[slot].take()) {
            (Ok(()), Some(pair)) => {
                assert!(matches!(pair.engine.put("a", "b"), Err(WriteError::Dropped { .. })));
            }
            (Err(AdminError::NoKeyspace { .. }), None) => {}
            (other, _) => panic!("{other:?}"),
        }
    }
}

/// Reports whether the keyspace was dropped since the snapshot was taken.
fn is_dropped(view: &tamis::SnapshotView<'_>) -> bool {
    matches!(view.get(""), Err(tamis::ReadError::Dropped { .. }))
}

fn nth<T>(items: &[T], which: usize) -> Option<&T> {
    items.get(which % items.len().max(1))
}

fn check_get(pair: &Pair, key: &[u8]) {
    let expected = pair.model.get(key).map(show);
    let found = pair.engine.get(key).expect("a get");
    assert_eq!(found.as_deref().map(show), expected, "get of {}", show(key));
    assert_eq!(pair.engine.contains_key(key).expect("a get"), expected.is_some());
    let explanation = pair.engine.explain_get(key).expect("an explanation");
    let explained = match explanation.outcome {
        ExplainOutcome::Found { value_bytes, .. } => Some(value_bytes),
        _ => None,
    };
    assert_eq!(explained, found.map(|value| value.len()), "explain of {}: {explanation:#?}", show(key));
}

fn check_scan(forwards: tamis::Iter, backwards: tamis::Iter, expected: &[(Vec<u8>, Vec<u8>)]) {
    let read = |items: &mut dyn Iterator<Item = _>| -> Vec<(String, String)> {
        let items = items.map(|item: Result<(tamis::Slice, tamis::Slice), _>| item.expect("an item"));
        items.map(|(key, value)| (show(&key), show(&value))).collect()
    };
    let mut expected: Vec<_> = expected.iter().map(|(key, value)| (show(key), show(value))).collect();
    assert_eq!(read(&mut { forwards }), expected, "forwards (found, then expected)");
    expected.reverse();
    assert_eq!(read(&mut backwards.rev()), expected, "backwards (found, then expected)");
}

/// Returns the warnings of a database, but not that of a machine without io_uring, such as an
/// emulator or a container that forbids it.
fn warnings(db: &Db) -> Vec<String> {
    let mut warnings = db.stats().warnings;
    warnings.retain(|warning| !warning.starts_with("io_uring is unavailable"));
    warnings
}
