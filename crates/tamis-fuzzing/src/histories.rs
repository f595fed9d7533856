//! Random histories of a database, compared with a model that keeps all versions.
//!
//! Beside [`differential`](super::differential), whose input is a fuzzer's bytes, with one snapshot
//! more or less and two keyspaces: here a seed decides, and draws what bytes seldom come to: keys
//! with many versions that snapshots keep, iterators that are held over writes, flushes and
//! compactions and turn around, up to a hundred keyspaces, every read mode, tiny blocks, and other
//! options at each opening.
//!
//! A seed fixes the operations, but not when background threads run between them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::MemFs;
use tamis::options::{AsyncReads, ChecksumMode, ReadMode};
use tamis::{
    AdminError, Db, Iter, Keyspace, KeyspaceOptions, Options, ReadError, Slice, Snapshot, WriteBatch,
};
use tamis_testkit::Rng;
use tamis_testkit::fuzz::Input;

use crate::differential::{KeyRange, keyspace_options, number, string};

type Value = Arc<[u8]>;
type Item = (Vec<u8>, Value);
/// An item in the place where it is.
type Lent<'i> = Result<(&'i [u8], &'i [u8]), ReadError>;
/// A number of writes: the state after them.
type Moment = u64;

/// The most snapshots that are kept.
const MOST_SNAPSHOTS: usize = 100;
/// The most iterators that are held.
const MOST_ITERATORS: usize = 4;

/// Carries out the history of `seed`.
///
/// # Panics
///
/// If the database and the model differ.
pub fn history(seed: u64) {
    let mut world = World::new(Rng::named("histories", seed));
    let ops = world.rng.pick(&[20, 60, 150, 400]);
    for _ in 0..ops {
        world.step();
    }
    world.compare_all();
    world.reopen();
    world.compare_all();
    world.settle();
    world.compare_all();
    let problems = world.db().verify().expect("in-memory read").problems;
    assert_eq!(problems, Vec::<String>::new());
}

/// All versions of all keys of a keyspace.
#[derive(Debug, Default)]
struct Model(BTreeMap<Vec<u8>, Vec<(Moment, Option<Value>)>>);

impl Model {
    fn set(&mut self, key: &[u8], at: Moment, value: Option<Value>) {
        self.0.entry(key.to_vec()).or_default().push((at, value));
    }

    fn get(&self, key: &[u8], at: Moment) -> Option<Value> {
        Model::version(self.0.get(key)?, at)
    }

    fn version(versions: &[(Moment, Option<Value>)], at: Moment) -> Option<Value> {
        versions[..versions.partition_point(|(moment, _)| *moment <= at)].last()?.1.clone()
    }

    /// Returns what is in a range, which may be reversed.
    fn within(&self, range: &KeyRange, at: Moment) -> Vec<Item> {
        let inside = |key: &[u8]| {
            let above = match &range.0 {
                Bound::Included(low) => key >= &low[..],
                Bound::Excluded(low) => key > &low[..],
                Bound::Unbounded => true,
            };
            above
                && match &range.1 {
                    Bound::Included(high) => key <= &high[..],
                    Bound::Excluded(high) => key < &high[..],
                    Bound::Unbounded => true,
                }
        };
        let items = self.0.iter().filter(|(key, _)| inside(key));
        items.filter_map(|(key, versions)| Some((key.clone(), Model::version(versions, at)?))).collect()
    }
}

/// The kind of keys.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Text,
    Strings,
    Numbers,
}

/// The operators of keyspaces: none rejects an operand.
const OPERATORS: [&str; 2] = ["append", "max"];

#[derive(Debug)]
struct Space {
    name: String,
    options: KeyspaceOptions,
    operator: &'static str,
    model: Model,
}

/// An iterator that is held, and what it has left: `front..back` of `items`.
struct Held {
    iter: Iter,
    items: Vec<Item>,
    front: usize,
    back: usize,
}

struct World {
    rng: Rng,
    fs: MemFs,
    options: Options,
    /// `None` only while the database is being reopened.
    db: Option<Db>,
    /// The first is the default keyspace.
    spaces: Vec<Space>,
    snapshots: VecDeque<(Snapshot, Moment)>,
    held: Vec<Held>,
    now: Moment,
    keys: Keys,
    /// The number of keys.
    most: usize,
    /// The lengths of values.
    lens: &'static [usize],
    /// How many operations of a hundred are writes.
    writes: u64,
    external: u64,
}

/// Options of a keyspace; those that it keeps for life are the caller's to set.
fn any_keyspace(rng: &mut Rng) -> KeyspaceOptions {
    let bytes: Vec<u8> = (0..64).map(|_| rng.next_u64() as u8).collect();
    KeyspaceOptions {
        block_bytes: rng.pick(&[128, 128, 256, 512, 4096]),
        blob_threshold: rng.pick(&[0, 0, 1, 16, 100]),
        table_bytes: rng.pick(&[4 << 10, 8 << 10, 64 << 10]),
        memtable_bytes: rng.pick(&[16 << 10, 32 << 10, 64 << 10]),
        ..keyspace_options(&mut Input::new(&bytes))
    }
}

fn any_database(rng: &mut Rng, fs: &MemFs) -> Options {
    Options {
        file_system: Some(Arc::new(fs.clone())),
        read_mode: rng.pick(&[ReadMode::Mapped, ReadMode::Buffered, ReadMode::Direct]),
        async_reads: rng.pick(&[AsyncReads::Off, AsyncReads::Threads, AsyncReads::Threads]),
        read_queue_depth: rng.pick(&[1, 2, 8, 32]),
        cache_bytes: rng.pick(&[0, 2 << 10, 1 << 16, 8 << 20]),
        pin_metadata: rng.chance(4),
        hash_sharing: rng.chance(4),
        verify_checksums: rng.pick(&[ChecksumMode::Once, ChecksumMode::Always]),
        max_log_bytes: rng.pick(&[4 << 10, 64 << 10, 1 << 20]),
        background_threads: rng.pick(&[1, 1, 2]),
        ..Options::default()
    }
}

fn pair(item: Result<(Slice, Slice), ReadError>) -> Item {
    let (key, value) = item.expect("in-memory read");
    (key.to_vec(), value.to_vec().into())
}

impl World {
    fn new(mut rng: Rng) -> World {
        let fs = MemFs::new();
        let options = any_database(&mut rng, &fs);
        let count = match rng.below(100) {
            0..50 => 1,
            50..80 => 2,
            80..99 => 3 + rng.index(8),
            _ => 100,
        };
        let mut spaces: Vec<Space> = Vec::new();
        for i in 0..count {
            let operator = OPERATORS[i % 2];
            let mut options = any_keyspace(&mut rng);
            options.merge_operator = Some(operator.into());
            let name = if i == 0 { "default".to_owned() } else { format!("space {i}") };
            spaces.push(Space { name, options, operator, model: Model::default() });
        }
        let mut world = World {
            fs,
            options,
            db: None,
            spaces,
            snapshots: VecDeque::new(),
            held: Vec::new(),
            now: 0,
            keys: rng.pick(&[Keys::Text, Keys::Text, Keys::Strings, Keys::Numbers]),
            most: rng.pick(&[2, 8, 50, 200]),
            lens: rng.pick(&[&[0, 10][..], &[20, 100], &[0, 20, 300, 1500], &[1, 200]]),
            writes: rng.pick(&[40, 60, 85]),
            external: 0,
            rng,
        };
        world.open();
        for i in 1..world.spaces.len() {
            let Space { name, options, .. } = &world.spaces[i];
            world.db().create_keyspace(name, options.clone()).expect("in-memory write");
        }
        world
    }

    fn open(&mut self) {
        self.options.keyspace = self.spaces[0].options.clone();
        self.db = Some(self.options.clone().open("db").expect("a closed database opens"));
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open between steps")
    }

    fn keyspace(&self, n: usize) -> Keyspace {
        self.db().keyspace(&self.spaces[n].name).expect("it was made")
    }

    fn any_space(&mut self) -> usize {
        self.rng.index(self.spaces.len())
    }

    fn key(&mut self) -> Vec<u8> {
        let i = self.rng.index(self.most);
        match self.keys {
            Keys::Text => format!("user/{i:03}/{}", i % 50).into_bytes(),
            Keys::Strings => string(i as u8),
            Keys::Numbers => number(i as u8).to_be_bytes().to_vec(),
        }
    }

    fn range(&mut self) -> KeyRange {
        let mut bound = || match self.rng.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        };
        (bound(), bound())
    }

    /// Returns a range that does not begin behind its end.
    fn forward_range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (a, b) = (self.key(), self.key());
        if a <= b { (a, b) } else { (b, a) }
    }

    /// Returns a value unlike any other, unless it is short.
    fn value(&mut self) -> Value {
        let len = self.rng.pick(self.lens);
        self.now.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    fn step(&mut self) {
        if self.rng.below(100) < self.writes {
            return self.write();
        }
        let n = self.any_space();
        match self.rng.below(40) {
            0..5 => self.read(n),
            5..9 => self.scan(n),
            9..13 => self.walk_anew(n),
            13..17 => self.hold(n),
            17..22 => self.walk_on(),
            22..24 => self.take_snapshot(),
            24 => self.drop_snapshots(),
            25..29 => self.db().flush().expect("in-memory write"),
            29..31 => self.keyspace(n).compact().expect("in-memory write"),
            31 => self.settle(),
            32..34 => self.ingest(n),
            34 => self.recreate(),
            35 | 36 => self.change_option(n),
            37 => self.reopen(),
            _ => self.read_many(n),
        }
    }

    fn write(&mut self) {
        let n = self.any_space();
        match self.rng.below(40) {
            0 | 1 => self.many_versions(n),
            2 | 3 => {
                let (from, to) = self.forward_range();
                self.keyspace(n).delete_range(from.clone()..to.clone()).expect("in-memory write");
                self.now += 1;
                self.model_delete(n, &from, &to);
            }
            4..8 => self.batch(),
            8..12 => {
                let key = self.key();
                self.keyspace(n).delete(&key).expect("in-memory write");
                self.now += 1;
                self.spaces[n].model.set(&key, self.now, None);
            }
            12..15 => {
                let (key, operand) = (self.key(), self.value());
                self.keyspace(n).merge(&key, &operand).expect("in-memory write");
                self.now += 1;
                self.model_merge(n, &key, &operand);
            }
            _ => {
                let key = self.key();
                self.put(n, &key);
            }
        }
    }

    fn put(&mut self, n: usize, key: &[u8]) {
        let value = self.value();
        self.keyspace(n).put(key, &value).expect("in-memory write");
        self.now += 1;
        self.spaces[n].model.set(key, self.now, Some(value));
    }

    fn model_merge(&mut self, n: usize, key: &[u8], operand: &[u8]) {
        let Space { operator, model, .. } = &mut self.spaces[n];
        let before = model.get(key, self.now).unwrap_or_default();
        let value: Value = match *operator {
            "append" => [&before, operand].concat().into(),
            _ => before.max(operand.into()),
        };
        model.set(key, self.now, Some(value));
    }

    fn model_delete(&mut self, n: usize, from: &[u8], to: &[u8]) {
        let keys = self.spaces[n].model.0.iter_mut();
        for (_, versions) in keys.filter(|(key, _)| (from..to).contains(&&key[..])) {
            versions.push((self.now, None));
        }
    }

    /// Writes one key over and over, with snapshots that keep what it was.
    fn many_versions(&mut self, n: usize) {
        let key = self.key();
        let snapshots = self.rng.pick(&[1, 1, 3, 20]);
        for _ in 0..self.rng.pick(&[5, 20, 60]) {
            self.put(n, &key);
            if self.rng.one_in(snapshots) {
                self.take_snapshot();
            }
        }
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        self.now += 1;
        for _ in 0..1 + self.rng.index(8) {
            let (n, key) = (self.any_space(), self.key());
            let keyspace = self.keyspace(n);
            match self.rng.below(8) {
                0 => {
                    let operand = self.value();
                    batch.merge_in(&keyspace, &key, &operand);
                    self.model_merge(n, &key, &operand);
                }
                1 => {
                    batch.delete_in(&keyspace, &key);
                    self.spaces[n].model.set(&key, self.now, None);
                }
                2 => {
                    let (from, to) = self.forward_range();
                    batch.delete_range_in(&keyspace, from.clone()..to.clone());
                    self.model_delete(n, &from, &to);
                }
                _ => {
                    let value = self.value();
                    batch.put_in(&keyspace, &key, &value);
                    self.spaces[n].model.set(&key, self.now, Some(value));
                }
            }
        }
        self.db().write(batch).expect("in-memory write");
    }

    fn ingest(&mut self, n: usize) {
        let mut keys: Vec<Vec<u8>> = (0..1 + self.rng.index(30)).map(|_| self.key()).collect();
        keys.sort();
        keys.dedup();
        self.external += 1;
        let path = format!("external-{}", self.external);
        let path = Path::new(&path);
        let keyspace = self.keyspace(n);
        let fs = Arc::new(self.fs.clone());
        let mut builder =
            ExternalTableBuilder::create_on(fs, path, &keyspace.options()).expect("in-memory write");
        let values: Vec<Value> = keys.iter().map(|_| self.value()).collect();
        for (key, value) in keys.iter().zip(&values) {
            builder.put(key, value).expect("in-memory write");
        }
        builder.finish().expect("in-memory write");
        keyspace.ingest(&[path], IngestOptions::default()).expect("in-memory write");
        self.now += 1;
        for (key, value) in keys.into_iter().zip(values) {
            self.spaces[n].model.set(&key, self.now, Some(value));
        }
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() == MOST_SNAPSHOTS {
            self.snapshots.pop_front();
        }
        self.snapshots.push_back((self.db().snapshot(), self.now));
    }

    fn drop_snapshots(&mut self) {
        for _ in 0..self.rng.up_to(self.snapshots.len()) {
            let at = self.rng.index(self.snapshots.len());
            self.snapshots.remove(at);
        }
    }

    /// Does something with a keyspace, as of now or as of a snapshot.
    fn at_some_moment<T>(
        &mut self,
        n: usize,
        now: impl FnOnce(&Keyspace) -> T,
        then: impl FnOnce(&tamis::SnapshotView<'_>) -> T,
    ) -> (T, Moment) {
        let keyspace = self.keyspace(n);
        if self.snapshots.is_empty() || self.rng.chance(3) {
            return (now(&keyspace), self.now);
        }
        let (snapshot, at) = &self.snapshots[self.rng.index(self.snapshots.len())];
        (then(&snapshot.keyspace(&keyspace)), *at)
    }

    fn read(&mut self, n: usize) {
        let key = self.key();
        let (found, at) = self.at_some_moment(n, |now| now.get(&key), |then| then.get(&key));
        let expected = self.spaces[n].model.get(&key, at);
        assert_eq!(found.expect("in-memory read").as_deref(), expected.as_deref(), "{key:?} at {at}");
    }

    fn read_many(&mut self, n: usize) {
        let keys: Vec<Vec<u8>> = (0..self.rng.index(30)).map(|_| self.key()).collect();
        let (found, at) = self.at_some_moment(n, |now| now.multi_get(&keys), |then| then.multi_get(&keys));
        let found = found.expect("in-memory read");
        let model = &self.spaces[n].model;
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found.as_deref(), model.get(key, at).as_deref(), "{key:?} of many at {at}");
        }
    }

    fn scan(&mut self, n: usize) {
        let (range, back) = (self.range(), self.rng.chance(4));
        let (iter, at) =
            self.at_some_moment(n, |now| now.range(range.clone()), |then| then.range(range.clone()));
        let mut expected = self.spaces[n].model.within(&range, at);
        let found: Vec<Item> = if back { iter.rev().map(pair).collect() } else { iter.map(pair).collect() };
        if back {
            expected.reverse();
        }
        assert_eq!(found, expected, "{range:?} at {at}, backwards: {back}");
    }

    fn iterator(&mut self, n: usize) -> Held {
        let range = self.range();
        let (iter, at) =
            self.at_some_moment(n, |now| now.range(range.clone()), |then| then.range(range.clone()));
        let items = self.spaces[n].model.within(&range, at);
        Held { iter, front: 0, back: items.len(), items }
    }

    fn walk_anew(&mut self, n: usize) {
        let mut held = self.iterator(n);
        self.walk(&mut held);
    }

    fn hold(&mut self, n: usize) {
        if self.held.len() == MOST_ITERATORS {
            self.held.swap_remove(self.rng.index(MOST_ITERATORS));
        }
        let mut held = self.iterator(n);
        if self.rng.chance(4) {
            self.walk(&mut held);
        }
        self.held.push(held);
    }

    fn walk_on(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.rng.index(self.held.len());
        let mut held = self.held.swap_remove(at);
        self.walk(&mut held);
        self.held.push(held);
    }

    /// Moves an iterator at both ends.
    fn walk(&mut self, held: &mut Held) {
        let lent = |item: Option<Lent<'_>>| {
            item.map(|item| item.expect("in-memory read")).map(|(key, value)| (key.to_vec(), value.into()))
        };
        for _ in 0..self.rng.pick(&[1, 5, 20, 100]) {
            let Held { iter, items, front, back } = held;
            match self.rng.below(9) {
                step @ 0..4 => {
                    let found = if step > 0 { iter.next().map(pair) } else { lent(iter.next_ref()) };
                    assert_eq!(found.as_ref(), items[..*back].get(*front), "next");
                    *front += usize::from(found.is_some());
                }
                step @ 4..8 => {
                    let found =
                        if step > 4 { iter.next_back().map(pair) } else { lent(iter.next_back_ref()) };
                    assert_eq!(found.as_ref(), items.get(*front..*back).and_then(<[_]>::last), "next_back");
                    *back -= usize::from(found.is_some());
                }
                _ => {
                    let key = self.key();
                    iter.seek(&key).expect("in-memory read");
                    *front = items.partition_point(|(other, _)| *other < key).min(*back);
                }
            }
        }
    }

    /// Changes an option of an open keyspace.
    fn change_option(&mut self, n: usize) {
        let (name, values): (&str, &[&str]) = match self.rng.below(6) {
            0 => ("blob_threshold", &["0", "1", "16", "100"]),
            1 => ("level0_runs", &["1", "2", "4"]),
            2 => ("size_ratio", &["2", "3", "10"]),
            3 => ("compaction", &["leveling", "tiering", "lazy-leveling", "fragmented"]),
            4 => ("block_bytes", &["128", "512", "4096"]),
            _ => ("auto_compaction", &["true", "false"]),
        };
        match self.keyspace(n).set_options(&[(name, self.rng.pick(values))]) {
            // One that does not fit the others is refused.
            Ok(()) | Err(AdminError::Options(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Closes the database and opens it with other options.
    fn reopen(&mut self) {
        self.snapshots.clear();
        self.held.clear();
        self.db.take().expect("open between steps").close().expect("in-memory write");
        self.options = any_database(&mut self.rng, &self.fs);
        if self.rng.chance(4) {
            let Space { options, operator, .. } = &mut self.spaces[0];
            let levels = options.levels;
            *options = any_keyspace(&mut self.rng);
            (options.levels, options.merge_operator) = (levels, Some((*operator).into()));
        }
        self.open();
    }

    /// Drops a keyspace, and makes another of the same name.
    fn recreate(&mut self) {
        if self.spaces.len() == 1 {
            return;
        }
        // A snapshot of a dropped keyspace returns errors, by contract.
        self.snapshots.clear();
        let n = 1 + self.rng.index(self.spaces.len() - 1);
        self.db().drop_keyspace(&self.spaces[n].name).expect("it is there");
        if self.rng.chance(2) {
            self.reopen();
        }
        let mut options = any_keyspace(&mut self.rng);
        options.merge_operator = Some(self.spaces[n].operator.into());
        self.db().create_keyspace(&self.spaces[n].name, options.clone()).expect("in-memory write");
        (self.spaces[n].options, self.spaces[n].model) = (options, Model::default());
    }

    fn settle(&mut self) {
        self.db().wait_for_compaction().expect("in-memory write");
        self.check_shape();
    }

    /// Checks the policies' promise about tables, which says how many small ones there may be.
    fn check_shape(&self) {
        for stats in self.db().stats().keyspaces {
            let options = self.db().keyspace(&stats.name).expect("it is there").options();
            if !options.auto_compaction {
                continue;
            }
            let runs = stats.levels.iter().flat_map(|level| &level.runs);
            let tables: u64 = runs.map(|run| run.tables as u64).sum();
            let most = stats.promise.tables.expect("all policies promise a number") as u64;
            assert!(
                tables <= most,
                "{} ({:?}): {tables} tables of {} bytes together, {most} promised",
                stats.name,
                options.compaction,
                stats.table_bytes
            );
        }
    }

    fn compare_all(&mut self) {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        for n in 0..self.spaces.len() {
            let (keyspace, model) = (self.keyspace(n), &self.spaces[n].model);
            let compare = |iter: Iter, back: Iter, at: Moment| {
                let expected = model.within(&everything, at);
                assert_eq!(iter.map(pair).collect::<Vec<_>>(), expected, "all of {n} at {at}");
                let mut found: Vec<_> = back.rev().map(pair).collect();
                found.reverse();
                assert_eq!(found, expected, "all of {n} at {at}, backwards");
                expected
            };
            let expected = compare(keyspace.iter(), keyspace.iter(), self.now);
            for (snapshot, at) in &self.snapshots {
                let view = snapshot.keyspace(&keyspace);
                compare(view.iter(), view.iter(), *at);
            }
            for (key, value) in &expected {
                let read = keyspace.get(key).expect("in-memory read");
                assert_eq!(read.as_deref(), Some(&value[..]), "{key:?} of {n}");
            }
        }
        for mut held in std::mem::take(&mut self.held) {
            self.walk(&mut held);
        }
    }
}
