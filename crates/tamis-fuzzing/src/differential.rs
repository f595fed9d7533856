//! Checks the engine against two maps.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use tamis::io::MemFs;
use tamis::options::{
    CompactionChoice, Compression, CompressionPerLevel, FilterAllocation, FilterChoice, FilterPolicy,
    MergeGranularity, ReadMode,
};
use tamis::{Db, Keyspace, KeyspaceOptions, Options, ReadError, Slice, Snapshot, WriteBatch, WriteError};
use tamis_testkit::fuzz::Input;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
pub(super) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

const SECOND: &str = "second";
const MOST_SNAPSHOTS: usize = 4;

/// Applies a history of operations to an in-memory database and to two maps, which must agree at
/// every step.
///
/// The first bytes choose the options. Each further byte chooses an operation, which takes its
/// arguments from the bytes behind it.
pub fn differential(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.step(&mut input);
    }
    world.compare_all();
    world.reopen();
    world.compare_all();
    let problems = world.db().verify().expect("in-memory read").problems;
    assert_eq!(problems, Vec::<String>::new());
}

struct World {
    options: Options,
    second_options: KeyspaceOptions,
    keys: Keys,
    /// `None` only while the database is being reopened.
    db: Option<Db>,
    models: [Model; 2],
    snapshots: Vec<(Snapshot, [Model; 2])>,
    /// Number of writes; makes every value distinct.
    writes: u32,
}

fn choose<T>(input: &mut Input<'_>, from: impl IntoIterator<Item = T>) -> T {
    let mut from: Vec<T> = from.into_iter().collect();
    from.swap_remove(usize::from(input.byte()) % from.len())
}

/// Policy, granularity, and whether the shape must depend on the flushes alone.
const SHAPES: [(CompactionChoice, MergeGranularity, bool); 10] = [
    (CompactionChoice::Leveling, MergeGranularity::Auto, false),
    (CompactionChoice::Tiering, MergeGranularity::Auto, false),
    (CompactionChoice::LazyLeveling, MergeGranularity::Auto, false),
    (CompactionChoice::Fragmented, MergeGranularity::Auto, false),
    (CompactionChoice::Hybrid(2), MergeGranularity::Partial, false),
    (CompactionChoice::Leveling, MergeGranularity::Full, false),
    (CompactionChoice::Leveling, MergeGranularity::Partitioned, true),
    (CompactionChoice::Tiering, MergeGranularity::Auto, true),
    (CompactionChoice::Fifo, MergeGranularity::Auto, false),
    (CompactionChoice::TimeWindow, MergeGranularity::Auto, false),
];

pub(super) fn keyspace_options(input: &mut Input<'_>) -> KeyspaceOptions {
    let mut options = any_options(input);
    // Elastic filters divide memory by hotness.
    if options.filter.as_slice().iter().any(|choice| choice.is_elastic()) {
        options.filter_allocation = FilterAllocation::Uniform;
    }
    // A filter of the tree is the only one, and is not divided between levels.
    if let Some(global) = options.filter.as_slice().iter().copied().find(|choice| choice.is_of_tree()) {
        options.filter = global.into();
        options.filter_allocation = FilterAllocation::Uniform;
    }
    options
}

fn any_options(input: &mut Input<'_>) -> KeyspaceOptions {
    let (compaction, merge, deterministic) = choose(input, SHAPES);
    KeyspaceOptions {
        compaction,
        merge,
        deterministic,
        memtable_bytes: choose(input, [20 << 10, 17 << 10, 64 << 10]),
        block_bytes: choose(input, [256, 1024]),
        restart_interval: choose(input, [1, 2, 16]),
        blob_threshold: choose(input, [0, 1, 16]),
        compression: CompressionPerLevel::uniform(choose(input, [Compression::None, Compression::Lz4])),
        filter: FilterPolicy::split(
            choose(input, [0, 1]),
            choose(input, FilterChoice::all()),
            choose(input, FilterChoice::all()),
        ),
        filter_allocation: choose(
            input,
            [FilterAllocation::Uniform, FilterAllocation::Monkey, FilterAllocation::Mnemosyne],
        ),
        filter_range: choose(input, [64, 1, 1 << 20]),
        bits_per_key: choose(input, [10.0, 1.0]),
        levels: choose(input, [2, 3, 7]),
        size_ratio: choose(input, [2, 10]).into(),
        table_bytes: 4 << 10,
        level0_runs: choose(input, [1, 2, 4]),
        auto_compaction: input.bit(),
        ..KeyspaceOptions::default()
    }
}

/// The kind of keys.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Short strings over few letters, so that operations often hit the same key; includes the
    /// empty string and strings of 0xFF.
    Strings,
    /// Integers of eight bytes, half of them close together and half in groups far apart: range
    /// filters treat them as numbers.
    Numbers,
}

impl Keys {
    fn key(self, input: &mut Input<'_>) -> Vec<u8> {
        match self {
            Keys::Strings => string(input.byte()),
            Keys::Numbers => number(input.byte()).to_be_bytes().to_vec(),
        }
    }

    fn bound(self, input: &mut Input<'_>) -> Bound<Vec<u8>> {
        match input.byte() % 5 {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key(input)),
            _ => Bound::Excluded(self.key(input)),
        }
    }

    fn range(self, input: &mut Input<'_>) -> KeyRange {
        (self.bound(input), self.bound(input))
    }
}

pub(super) fn number(byte: u8) -> u64 {
    let (near, group) = (u64::from(byte & 7), u64::from(byte >> 3 & 7));
    match byte {
        0..128 => 5_000_000_000 + u64::from(byte),
        _ => (group * (u64::MAX / 7))
            .saturating_add([0, 1, 2, 40, 300, 1 << 16, 1 << 33, 1 << 50][near as usize]),
    }
}

pub(super) fn string(byte: u8) -> Vec<u8> {
    let letters = [b'a', b'b', 0, 0xFF];
    let letter = |shift: u8| letters[usize::from(byte >> shift & 3)];
    match byte & 3 {
        0 => vec![letter(2)],
        1 => vec![letter(2), letter(4)],
        2 => vec![letter(2), letter(4), letter(6)],
        _ if byte == 3 => Vec::new(),
        _ => [&b"common prefix "[..], &[letter(2), byte >> 4]].concat(),
    }
}

/// The operator of each keyspace: neither rejects an operand, so no read may fail.
const OPERATORS: [&str; 2] = ["append", "max"];

fn merge(models: &mut [Model; 2], n: usize, key: Vec<u8>, operand: &[u8]) {
    let value = models[n].entry(key).or_default();
    match OPERATORS[n] {
        "append" => value.extend_from_slice(operand),
        _ => *value = std::mem::take(value).max(operand.to_vec()),
    }
}

fn is_reversed(range: &KeyRange) -> bool {
    use Bound::{Excluded, Included};
    matches!(range, (Included(a) | Excluded(a), Included(b) | Excluded(b)) if a > b)
}

/// Returns the part of the model in a range, which may be reversed.
fn within(model: &Model, range: &KeyRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = model.iter().filter(|(key, _)| range.contains(*key));
    inside.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn pair(item: Result<(Slice, Slice), ReadError>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = item.expect("in-memory read");
    (key.to_vec(), value.to_vec())
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let mut options = Options {
            file_system: Some(Arc::new(MemFs::new())),
            keyspace: keyspace_options(input),
            read_mode: choose(input, [ReadMode::Mapped, ReadMode::Buffered]),
            hash_sharing: input.bit(),
            pin_metadata: input.bit(),
            cache_bytes: choose(input, [0, 1 << 16]),
            background_threads: 1,
            ..Options::default()
        };
        // Uses no input, so that stored inputs keep their meaning.
        options.read_queue_depth = if options.pin_metadata { 32 } else { 2 };
        options.record_cache_bytes = if options.cache_bytes == 0 { 1 << 14 } else { 0 };
        options.max_log_bytes = choose(input, [1 << 20, 4 << 10]);
        options.keyspace.merge_operator = Some(OPERATORS[0].into());
        let mut second_options = keyspace_options(input);
        second_options.merge_operator = Some(OPERATORS[1].into());
        let db = options.clone().open("db").expect("in-memory write");
        db.create_keyspace(SECOND, second_options.clone()).expect("in-memory write");
        let models = [Model::new(), Model::new()];
        let keys = choose(input, [Keys::Strings, Keys::Numbers]);
        World { options, second_options, keys, db: Some(db), models, snapshots: Vec::new(), writes: 0 }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open between steps")
    }

    fn keyspace(&self, n: usize) -> Keyspace {
        match n {
            0 => self.db().default_keyspace().clone(),
            _ => self.db().keyspace(SECOND).expect("it was made"),
        }
    }

    fn value(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        self.writes += 1;
        let len = match input.byte() {
            0 => 0,
            byte if byte < 224 => usize::from(byte) % 40,
            byte => usize::from(byte - 223) * 100,
        };
        self.writes.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let byte = input.byte();
        let n = usize::from(byte >> 7);
        match byte & 0x1F {
            0..=6 => {
                let (key, value) = (self.keys.key(input), self.value(input));
                self.keyspace(n).put(&key, &value).expect("in-memory write");
                self.models[n].insert(key, value);
            }
            7..=9 => {
                let key = self.keys.key(input);
                self.keyspace(n).delete(&key).expect("in-memory write");
                self.models[n].remove(&key);
            }
            10 | 11 => {
                let range = self.keys.range(input);
                match self.keyspace(n).delete_range(range.clone()) {
                    Ok(()) => self.models[n].retain(|key, _| !range.contains(key)),
                    Err(WriteError::ReversedRange) => assert!(is_reversed(&range), "{range:?}"),
                    Err(other) => panic!("{other}"),
                }
            }
            12..=14 => self.batch(input),
            15 | 16 => {
                let key = self.keys.key(input);
                let (found, expected) = (self.keyspace(n).get(&key), self.models[n].get(&key));
                assert_eq!(found.expect("in-memory read").as_deref(), expected.map(|v| &v[..]), "{key:?}");
            }
            17 => self.get_many(n, input),
            18..=20 => self.scan(n, input),
            21 => self.both_ends(n, input),
            22 => self.db().flush().expect("in-memory write"),
            23 => self.keyspace(n).compact().expect("in-memory write"),
            24 => self.db().wait_for_compaction().expect("in-memory write"),
            25 | 26 if self.snapshots.len() < MOST_SNAPSHOTS => {
                self.snapshots.push((self.db().snapshot(), self.models.clone()));
            }
            25..=27 => self.look_back(input),
            28 => self.reopen(),
            29 => self.recreate_second(input),
            30 => {
                let (key, operand) = (self.keys.key(input), self.value(input));
                self.keyspace(n).merge(&key, &operand).expect("in-memory write");
                merge(&mut self.models, n, key, &operand);
            }
            _ => {
                let explanation = self.keyspace(n).explain_get(self.keys.key(input)).expect("in-memory read");
                assert!(
                    explanation.cost.digests > 0
                        || !explanation.steps.is_empty()
                        || self.models[n].is_empty()
                );
            }
        }
    }

    fn batch(&mut self, input: &mut Input<'_>) {
        let mut batch = WriteBatch::new();
        let mut after = self.models.clone();
        let mut refused = false;
        for _ in 0..1 + input.byte() % 8 {
            let byte = input.byte();
            let n = usize::from(byte >> 7);
            let keyspace = self.keyspace(n);
            match byte & 7 {
                4 => {
                    let (key, operand) = (self.keys.key(input), self.value(input));
                    batch.merge_in(&keyspace, &key, &operand);
                    merge(&mut after, n, key, &operand);
                }
                0..=3 => {
                    let (key, value) = (self.keys.key(input), self.value(input));
                    batch.put_in(&keyspace, &key, &value);
                    after[n].insert(key, value);
                }
                5 | 6 => {
                    let key = self.keys.key(input);
                    batch.delete_in(&keyspace, &key);
                    after[n].remove(&key);
                }
                _ => {
                    let range = self.keys.range(input);
                    refused |= is_reversed(&range);
                    batch.delete_range_in(&keyspace, range.clone());
                    after[n].retain(|key, _| !range.contains(key));
                }
            }
        }
        match self.db().write(batch) {
            Ok(()) => {
                assert!(!refused, "a batch with a reversed range was accepted");
                self.models = after;
            }
            Err(WriteError::ReversedRange) => assert!(refused, "a batch was refused without reason"),
            Err(other) => panic!("{other}"),
        }
    }

    fn get_many(&self, n: usize, input: &mut Input<'_>) {
        let keys: Vec<Vec<u8>> = (0..input.byte() % 20).map(|_| self.keys.key(input)).collect();
        let found = self.keyspace(n).multi_get(&keys).expect("in-memory read");
        let found: Vec<_> = found.iter().map(|value| value.as_deref()).collect();
        let expected: Vec<_> = keys.iter().map(|key| self.models[n].get(key).map(|v| &v[..])).collect();
        assert_eq!(found, expected, "{keys:?}");
    }

    fn scan(&self, n: usize, input: &mut Input<'_>) {
        let (range, model) = (self.keys.range(input), &self.models[n]);
        let keyspace = self.keyspace(n);
        let expected = within(model, &range);
        let found: Vec<_> = keyspace.range(range.clone()).map(pair).collect();
        assert_eq!(found, expected, "{range:?}");
        let mut found: Vec<_> = keyspace.range(range.clone()).rev().map(pair).collect();
        found.reverse();
        assert_eq!(found, expected, "{range:?} backwards");
        let prefix = self.keys.key(input);
        let found: Vec<_> = keyspace.prefix(&prefix).map(pair).collect();
        let expected: Vec<_> = within(model, &(Bound::Unbounded, Bound::Unbounded));
        let expected: Vec<_> = expected.into_iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
        assert_eq!(found, expected, "prefix {prefix:?}");
    }

    /// Moves one iterator at both ends.
    fn both_ends(&self, n: usize, input: &mut Input<'_>) {
        let range = self.keys.range(input);
        let all = within(&self.models[n], &range);
        let mut iter = self.keyspace(n).range(range.clone());
        // The remaining items are `front..back` of `all`.
        let (mut front, mut back) = (0, all.len());
        for _ in 0..input.byte() % 16 {
            match input.byte() % 8 {
                0..=2 => {
                    let expected = (front < back).then(|| all[front].clone());
                    front += usize::from(front < back);
                    assert_eq!(iter.next().map(pair), expected, "next in {range:?}");
                }
                3..=5 => {
                    let expected = (front < back).then(|| all[back - 1].clone());
                    back -= usize::from(front < back);
                    assert_eq!(iter.next_back().map(pair), expected, "next_back in {range:?}");
                }
                _ => {
                    let key = self.keys.key(input);
                    iter.seek(&key).expect("in-memory read");
                    front = all.partition_point(|(other, _)| *other < key).min(back);
                }
            }
        }
    }

    fn look_back(&mut self, input: &mut Input<'_>) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = usize::from(input.byte()) % self.snapshots.len();
        let (snapshot, models) = &self.snapshots[at];
        for (n, model) in models.iter().enumerate() {
            let keyspace = self.keyspace(n);
            let view = snapshot.keyspace(&keyspace);
            let key = self.keys.key(input);
            assert_eq!(view.get(&key).expect("in-memory read").as_deref(), model.get(&key).map(|v| &v[..]));
            let range = self.keys.range(input);
            let found: Vec<_> = view.range(range.clone()).map(pair).collect();
            assert_eq!(found, within(model, &range), "{range:?} in a snapshot");
            let mut found: Vec<_> = view.range(range.clone()).rev().map(pair).collect();
            found.reverse();
            assert_eq!(found, within(model, &range), "{range:?} in a snapshot, backwards");
        }
        if input.bit() {
            self.snapshots.remove(at);
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db.take().expect("open between steps").close().expect("in-memory write");
        self.db = Some(self.options.clone().open("db").expect("a closed database opens"));
    }

    fn recreate_second(&mut self, input: &mut Input<'_>) {
        // A snapshot of a dropped keyspace returns errors, by contract.
        self.snapshots.clear();
        self.db().drop_keyspace(SECOND).expect("it is there");
        if input.bit() {
            self.reopen();
        }
        self.db().create_keyspace(SECOND, self.second_options.clone()).expect("in-memory write");
        self.models[1].clear();
    }

    fn compare_all(&self) {
        for (n, model) in self.models.iter().enumerate() {
            let keyspace = self.keyspace(n);
            let expected = within(model, &(Bound::Unbounded, Bound::Unbounded));
            let found: Vec<_> = keyspace.iter().map(pair).collect();
            assert_eq!(found, expected, "keyspace {n}");
            let mut found: Vec<_> = keyspace.iter().rev().map(pair).collect();
            found.reverse();
            assert_eq!(found, expected, "keyspace {n} backwards");
            for (key, value) in model {
                let read = keyspace.get(key).expect("in-memory read");
                assert_eq!(read.as_deref(), Some(&value[..]), "{key:?} in keyspace {n}");
            }
        }
    }
}
