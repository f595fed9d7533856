//! Global filters under everything that a tree goes through: every answer is compared with a model.
//!
//! Debug builds compare every rejection with the data, so a key that a filter wrongly rejects fails
//! the test even where a newer version of it would hide the mistake. `TAMIS_TEST_SCALE=10` runs ten
//! times as many histories.
//!
//! The program around this module names the filters, so that the same tests serve those that the
//! engine does not ship.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{filters, names_many_runs, operators};
use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::{FileSystem, MemFs};
use tamis::options::{
    CompactionChoice, FilterChoice, KeyMapChoice, MergeGranularity, PrefixFilter, ReadMode,
};
use tamis::stats::{GlobalFilterStats, ReadCost};
use tamis::{Db, Iter, Keyspace, KeyspaceOptions, Options, ReadError, Slice, Snapshot, WriteBatch};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass, Rng};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Pair = (Vec<u8>, Vec<u8>);

pub(crate) fn scale() -> u64 {
    std::env::var("TAMIS_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The distribution of keys.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Neighbouring integers.
    Dense,
    /// Integers over their whole range.
    Spread,
    /// Words with a delimiter, some of them prefixes of others.
    Words,
    /// Zero to forty bytes of three values, so that common prefixes come and go.
    Ragged,
    /// Ever larger or ever smaller.
    Rising,
    Falling,
    /// All of these in one tree.
    Mixed,
}

impl Keys {
    const ALL: [Keys; 7] =
        [Keys::Dense, Keys::Spread, Keys::Words, Keys::Ragged, Keys::Rising, Keys::Falling, Keys::Mixed];

    /// A key of a history at step `now`.
    fn pick(self, rng: &mut Rng, now: u64) -> Vec<u8> {
        match self {
            Keys::Dense => (1_000_000 + rng.below(900)).to_be_bytes().to_vec(),
            Keys::Spread => rng.below(900).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
            Keys::Words => {
                let head = rng.pick(&[
                    "",
                    "a",
                    "user#",
                    "user#x",
                    "users",
                    "zebra#and#more",
                    "a-rather-long-beginning#",
                ]);
                let tail = rng.below(150);
                match rng.below(8) {
                    0 => head.into(),
                    1 => format!("{head}{}", tail % 7).into(),
                    _ => format!("{head}{tail:04}").into(),
                }
            }
            Keys::Ragged => {
                let len = if rng.one_in(4) { rng.below(41) } else { rng.below(6) };
                (0..len).map(|_| rng.pick(&[0, b'a', 0xff])).collect()
            }
            Keys::Rising => (now * 16 + rng.below(64)).to_be_bytes().to_vec(),
            Keys::Falling => (u64::MAX / 3 - now * 16 - rng.below(64)).to_be_bytes().to_vec(),
            Keys::Mixed => {
                let kind = rng.pick(&Keys::ALL[..6]);
                kind.pick(rng, now)
            }
        }
    }

    /// A key that is probably absent.
    fn near(self, rng: &mut Rng, now: u64) -> Vec<u8> {
        let now = if rng.one_in(4) { now } else { rng.below(now + 1) };
        let mut key = self.pick(rng, now);
        match rng.below(5) {
            0 => key.push(rng.pick(&[0, 0xff, b'5'])),
            1 => drop(key.pop()),
            2 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(rng.below(3) as u8);
                }
            }
            _ => {}
        }
        key
    }
}

fn read(item: Result<(Slice, Slice), ReadError>) -> Pair {
    let (key, value) = item.expect("a step");
    (key.to_vec(), value.to_vec())
}

fn pair((key, value): (&Vec<u8>, &Vec<u8>)) -> Pair {
    (key.clone(), value.clone())
}

/// The same queries to a database and to a snapshot.
trait Reads {
    fn value(&self, key: &[u8]) -> Option<Vec<u8>>;
    fn values(&self, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>>;
    fn between(&self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Iter;
    fn under(&self, prefix: &[u8]) -> Iter;
}

macro_rules! reads {
    ($type:ty) => {
        impl Reads for $type {
            fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
                self.get(key).expect("a get").map(|value| value.to_vec())
            }

            fn values(&self, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
                let values = self.multi_get(keys).expect("gets");
                values.into_iter().map(|value| value.map(|value| value.to_vec())).collect()
            }

            fn between(&self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Iter {
                self.range(range)
            }

            fn under(&self, prefix: &[u8]) -> Iter {
                self.prefix(prefix)
            }
        }
    };
}

reads!(Keyspace);
reads!(Snapshot);

/// Makes some queries of each kind.
fn ask(from: &dyn Reads, model: &Model, keys: Keys, rng: &mut Rng, now: u64, context: &str) {
    let some = |rng: &mut Rng| keys.near(rng, now);
    for _ in 0..12 {
        let key = some(rng);
        assert_eq!(
            from.value(&key),
            model.get(&key).cloned(),
            "{context}: {:?}",
            key.escape_ascii().to_string()
        );
    }
    let many: Vec<Vec<u8>> = (0..20).map(|_| some(rng)).collect();
    let expected: Vec<_> = many.iter().map(|key| model.get(key).cloned()).collect();
    assert_eq!(from.values(&many), expected, "{context}");
    for _ in 0..4 {
        let (a, b) = (some(rng), some(rng));
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let high =
            if rng.one_in(2) { [&low[..], &[rng.below(4) as u8]].concat().max(low.clone()) } else { high };
        let low = match rng.below(6) {
            0 => Bound::Unbounded,
            1 if low < high => Bound::Excluded(low),
            _ => Bound::Included(low),
        };
        let high = match rng.below(5) {
            0 => Bound::Unbounded,
            1 => Bound::Included(high),
            _ => Bound::Excluded(high),
        };
        let limit = if rng.one_in(5) { usize::MAX } else { 12 };
        let forward: Vec<Pair> = from.between((low.clone(), high.clone())).take(limit).map(read).collect();
        let expected: Vec<Pair> = model.range((low.clone(), high.clone())).take(limit).map(pair).collect();
        assert_eq!(forward, expected, "{context}: {low:?} to {high:?}");
        let backward: Vec<Pair> =
            from.between((low.clone(), high.clone())).rev().take(limit).map(read).collect();
        let expected: Vec<Pair> =
            model.range((low.clone(), high.clone())).rev().take(limit).map(pair).collect();
        assert_eq!(backward, expected, "{context}: {low:?} to {high:?}, backwards");
    }
    let mut prefix = some(rng);
    prefix.truncate(rng.below(9) as usize);
    let expected: Vec<Pair> = model.iter().filter(|(key, _)| key.starts_with(&prefix)).map(pair).collect();
    let forward: Vec<Pair> = from.under(&prefix).map(read).collect();
    assert_eq!(forward, expected, "{context}: prefix {prefix:?}");
    let backward: Vec<Pair> = from.under(&prefix).rev().map(read).collect();
    assert!(backward.iter().rev().eq(&expected), "{context}: prefix {prefix:?}, backwards");
}

/// An iterator over an older version, and the items it has yet to return.
struct Walk {
    iter: Iter,
    left: std::collections::VecDeque<Pair>,
}

impl Walk {
    fn of(db: &Keyspace, model: &Model) -> Walk {
        Walk { iter: db.iter(), left: model.iter().map(pair).collect() }
    }

    fn step(&mut self, rng: &mut Rng, context: &str) {
        for _ in 0..rng.below(30) {
            let (found, expected) = match rng.one_in(2) {
                true => (self.iter.next(), self.left.pop_front()),
                false => (self.iter.next_back(), self.left.pop_back()),
            };
            assert_eq!(found.map(read), expected, "{context}: an iterator of an older version");
        }
    }
}

/// Small memtables, tables and levels, so that much happens soon.
fn small(rng: &mut Rng, filter: FilterChoice) -> KeyspaceOptions {
    use CompactionChoice::*;
    use MergeGranularity::*;
    let (compaction, merge, deterministic) = rng.pick(&[
        (Leveling, Auto, false),
        (Leveling, Partial, false),
        (Leveling, Full, true),
        (Tiering, Auto, false),
        (Tiering, Auto, true),
        (LazyLeveling, Partitioned, false),
        (LazyLeveling, Full, true),
        (Hybrid(2), Partial, false),
        (Fragmented, Auto, false),
        (Fifo, Auto, false),
        (TimeWindow, Auto, false),
    ]);
    let mut options = KeyspaceOptions {
        memtable_bytes: 4 << 10,
        table_bytes: 4 << 10,
        block_bytes: 256,
        level0_runs: rng.pick(&[1, 2, 4]),
        size_ratio: rng.pick(&[2, 3, 10]).into(),
        levels: 4,
        auto_compaction: !rng.one_in(6),
        filter: filter.into(),
        bits_per_key: rng.pick(&[0.5, 4.0, 10.0, 30.0]),
        key_map: rng.pick(&[
            KeyMapChoice::Auto,
            KeyMapChoice::Learned,
            KeyMapChoice::Digest,
            KeyMapChoice::Mixed,
            KeyMapChoice::Local,
        ]),
        prefix_filter: rng.pick(&[
            PrefixFilter::None,
            PrefixFilter::Length(3),
            PrefixFilter::Lengths(1, 6),
            PrefixFilter::Delimiter(b'#'),
        ]),
        compaction,
        merge,
        deterministic,
        ..KeyspaceOptions::default()
    };
    if filter == FilterChoice::Auto {
        // The rule goes to and fro at a few runs, or hardly ever.
        let workload = rng.pick(&["empty-range 1, empty-get 8", "seek 1, get 10, empty-get 10", "get 1"]);
        options.set("workload", workload).expect("a workload");
    }
    options
}

fn database(rng: &mut Rng, fs: &Arc<MemFs>, keyspace: KeyspaceOptions) -> Options {
    let file_system: Arc<dyn FileSystem> = fs.clone();
    Options {
        keyspace,
        file_system: Some(file_system),
        operators: operators(),
        hash_sharing: !rng.one_in(4),
        background_threads: rng.pick(&[1, 2]),
        cache_bytes: 64 << 10,
        max_log_bytes: 64 << 10,
        ..Options::default()
    }
}

/// Writes an external table and ingests it.
fn ingest(db: &Keyspace, model: &mut Model, fs: &Arc<MemFs>, keys: Keys, rng: &mut Rng, now: u64) {
    let mut entries = Model::new();
    for _ in 0..1 + rng.below(60) {
        entries.insert(keys.pick(rng, now), format!("ingested {now}").into());
    }
    if rng.one_in(2) {
        // A file over a short key range, which overlaps little.
        let few = entries.into_iter().take(5).collect();
        entries = few;
    }
    let path = PathBuf::from(format!("/out/{now}.tam"));
    let mut table = ExternalTableBuilder::create_on(fs.clone(), &path, &db.options()).expect("a table");
    for (key, value) in &entries {
        if value.len() % 2 == 0 && rng.one_in(9) {
            table.delete(key).expect("an entry");
            model.remove(key);
        } else {
            table.put(key, value).expect("an entry");
            model.insert(key.clone(), value.clone());
        }
    }
    table.finish().expect("a table");
    db.ingest(&[path], IngestOptions { move_files: true, verify: true }).expect("an ingestion");
}

/// One keyspace of a history with its expected contents.
struct Space {
    db: Keyspace,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    walks: Vec<Walk>,
}

impl Space {
    fn new(db: Keyspace) -> Space {
        Space { db, model: Model::new(), snapshots: Vec::new(), walks: Vec::new() }
    }

    fn write(&mut self, keys: Keys, rng: &mut Rng, now: u64) {
        let count = if rng.one_in(3) { 150 } else { 20 };
        let mut batch = WriteBatch::new();
        for _ in 0..count {
            let key = keys.pick(rng, now);
            if rng.one_in(6) {
                batch.delete_in(&self.db, &key);
                self.model.remove(&key);
            } else {
                let value = format!("{now}-{}", "v".repeat(rng.below(40) as usize));
                batch.put_in(&self.db, &key, &value);
                self.model.insert(key, value.into());
            }
        }
        self.db.database().write(batch).expect("a write");
    }

    fn delete_range(&mut self, keys: Keys, rng: &mut Rng, now: u64) {
        let (a, b) = (keys.near(rng, now), keys.near(rng, now));
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        self.db.delete_range(low.clone()..high.clone()).expect("a write");
        self.model.retain(|key, _| !(low <= *key && *key < high));
    }
}

/// Runs a history determined by its seed.
fn history(seed: u64, filter: FilterChoice, steps: u64) -> (u64, u64) {
    let rng = &mut Rng::new(seed);
    let keys = Keys::ALL[(seed % 7) as usize];
    let fs = Arc::new(MemFs::new());
    fs.create_dir_all(Path::new("/out")).expect("a directory");
    let options = small(rng, filter);
    let context = format!("seed {seed}, {keys:?}, {filter:?}, {:?}", options.compaction);
    let mut db = database(rng, &fs, options).open("/db").expect("opening");
    let mut spaces = vec![Space::new(db.default_keyspace().clone())];
    for now in 0..steps {
        let at = rng.below(spaces.len() as u64) as usize;
        let space = &mut spaces[at];
        match rng.below(100) {
            0..45 => space.write(keys, rng, now),
            45..49 => space.delete_range(keys, rng, now),
            49..60 => space.db.flush().expect("a flush"),
            60..66 => ingest(&space.db, &mut space.model, &fs, keys, rng, now),
            66..68 => space.db.compact().expect("a compaction"),
            68..72 => db.wait_for_compaction().expect("settling"),
            72..76 => db.wait_for_filters().expect("settling"),
            76..80 if space.snapshots.len() < 3 => {
                // Only for the default keyspace: views of others are read through it.
                if at == 0 {
                    space.snapshots.push((db.snapshot(), space.model.clone()));
                }
            }
            76..83 => drop(space.snapshots.pop()),
            83..88 => space.walks.push(Walk::of(&space.db, &space.model)),
            88..90 => space.walks.clear(),
            90..92 if spaces.len() < 3 => {
                let space = db.create_keyspace(&format!("k{now}"), small(rng, filter)).expect("a keyspace");
                spaces.push(Space::new(space));
            }
            92 if at > 0 => {
                // Possibly while its filter is being built.
                let gone = spaces.swap_remove(at);
                db.drop_keyspace(gone.db.name()).expect("dropping");
                assert!(gone.db.put("x", "").is_err(), "{context}");
            }
            93 => {
                let names: Vec<String> = spaces.iter().map(|space| space.db.name().to_owned()).collect();
                let models: Vec<Model> = spaces.drain(..).map(|space| space.model).collect();
                if rng.one_in(2) {
                    db.close().expect("closing");
                } else {
                    drop(db);
                }
                // With any filter: tables of all kinds come together.
                let other = match rng.below(3) {
                    0 => filter,
                    1 => FilterChoice::BlockedBloom,
                    _ => rng.pick(&filters()),
                };
                let options = small(rng, other);
                db = database(rng, &fs, options).open("/db").expect("opening again");
                for (name, model) in names.into_iter().zip(models) {
                    let keyspace = db.keyspace(&name).expect("a keyspace");
                    spaces.push(Space { model, ..Space::new(keyspace) });
                }
            }
            _ => {
                let options = small(rng, filter);
                // Opening a reader fails if the writer removes files at the same time.
                db.wait_for_compaction().expect("waiting until idle");
                let reader =
                    database(rng, &fs, options).open_read_only("/db").expect("reading beside the writer");
                reader.wait_for_filters().expect("settling");
                drop(reader);
            }
        }
        for space in &mut spaces {
            ask(&space.db, &space.model, keys, rng, now, &context);
            if let Some((snapshot, model)) = space.snapshots.first() {
                ask(snapshot, model, keys, rng, now, &format!("{context}, a snapshot"));
            }
            space.walks.iter_mut().for_each(|walk| walk.step(rng, &context));
        }
    }
    db.wait_for_compaction().expect("settling");
    for space in &spaces {
        let found: Vec<Pair> = space.db.iter().map(read).collect();
        assert!(found.iter().eq(space.model.iter().map(pair).collect::<Vec<_>>().iter()), "{context}");
        let backward: Vec<Pair> = space.db.iter().rev().map(read).collect();
        assert!(backward.iter().rev().eq(&found), "{context}");
        assert_eq!(db.verify().expect("verifying").problems, Vec::<String>::new(), "{context}");
        if let Some(filter) = space.db.stats().global_filter {
            // Where nothing was flushed, there is nothing to build.
            let unbuilt = if space.db.stats().entries > 0 { filter.unbuilt } else { 0 };
            assert_eq!((unbuilt, filter.tables_outside), (0, 0), "{context}: {filter:?}");
        }
    }
    assert_eq!(db.stats().poisoned, None, "{context}");
    let filters = spaces.iter().filter_map(|space| space.db.stats().global_filter);
    let changes = filters.fold((0, 0), |sum, filter| (sum.0 + filter.rebuilt.0, sum.1 + filter.collected.0));
    db.close().expect("closing");
    changes
}

/// Returns the numbers of rebuilds and collections in the last sessions of the histories.
pub(crate) fn histories(filter: FilterChoice, first: u64) -> (u64, u64) {
    let changes = (first..first + 14 * scale()).map(|seed| history(seed, filter, 120));
    changes.fold((0, 0), |sum, (rebuilt, collected)| (sum.0 + rebuilt, sum.1 + collected))
}

pub(crate) fn options(filter: FilterChoice) -> Options {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.operators = operators();
    options.keyspace = KeyspaceOptions {
        memtable_bytes: 1 << 20,
        table_bytes: 16 << 10,
        block_bytes: 512,
        level0_runs: 4,
        size_ratio: 4.into(),
        levels: 4,
        compaction: CompactionChoice::Tiering,
        filter: filter.into(),
        ..KeyspaceOptions::default()
    };
    options
}

/// Spread over all 64-bit numbers.
pub(crate) fn spread(n: u64) -> Vec<u8> {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

pub(crate) fn cost<T>(db: &Db, work: impl FnOnce() -> T) -> (T, ReadCost) {
    let before = db.stats().read;
    let result = work();
    (result, db.stats().read - before)
}

pub(crate) fn report(db: &Db) -> GlobalFilterStats {
    db.default_keyspace().stats().global_filter.expect("a global filter")
}

/// A run of all keys below seven runs of some keys.
pub(crate) fn filled(db: &Db, keys: u64) {
    for round in 0..8u64 {
        for n in 0..keys {
            if round == 0 || (n + round) % 16 == 0 {
                db.put(spread(n), [round as u8; 20]).expect("a write");
            }
        }
        match round {
            0 => db.compact().expect("a compaction"),
            _ => db.flush().expect("a flush"),
        }
    }
    db.wait_for_compaction().expect("settling");
    assert_eq!(db.default_keyspace().stats().runs, 8);
}

#[test]
fn a_complete_filter_is_probed_once_and_names_one_run() {
    for filter in filters() {
        let mut options = options(filter);
        options.keyspace.auto_compaction = false;
        let db = options.open("/db").expect("opening");
        filled(&db, 8000);
        assert_eq!(report(&db).unbuilt, 0, "{filter:?}");
        let (found, used) =
            cost(&db, || (0..8000).filter(|n| db.get(spread(*n)).expect("a get").is_some()).count());
        assert_eq!(
            (found, used.filter_probes, used.filter_negatives),
            (8000, 8000, 0),
            "{filter:?}: {used:?}"
        );
        assert!(used.runs_searched < 8000 + 800 || names_many_runs(filter), "{filter:?}: {used:?}");
        assert_eq!(used.runs_searched, 8000 + used.false_positives, "{filter:?}: {used:?}");
        let (found, used) =
            cost(&db, || (8000..16000).filter(|n| db.get(spread(*n)).expect("a get").is_some()).count());
        assert_eq!((found, used.filter_probes), (0, 8000), "{filter:?}: {used:?}");
        assert!(used.filter_negatives > 7200 || names_many_runs(filter), "{filter:?}: {used:?}");
    }
}

/// A database on a disk that can be damaged: five runs of 400 keys, closed.
fn closed(filter: FilterChoice) -> (FaultyFs, Options, Vec<PathBuf>) {
    closed_after(filter, |_| {})
}

/// The same, after some more work.
fn closed_after(filter: FilterChoice, work: impl FnOnce(&Db)) -> (FaultyFs, Options, Vec<PathBuf>) {
    let fs = FaultyFs::new(5);
    let mut options = options(filter);
    options.file_system = Some(Arc::new(fs.clone()));
    options.keyspace.auto_compaction = false;
    let db = options.clone().open("/db").expect("opening");
    for run in 0..5u64 {
        // Each run has its own key range, plus some keys in all ranges.
        for n in 0..400 {
            let n = if n % 4 == 0 { n * 5 } else { run * 400 + n };
            db.put((n * 1000).to_be_bytes(), [run as u8; 20]).expect("a write");
        }
        db.flush().expect("a flush");
    }
    work(&db);
    db.close().expect("closing");
    // Under another filter the images go: the filter has to be built from the tables.
    let mut other = options.clone();
    other.keyspace.filter = FilterChoice::BlockedBloom.into();
    other.open("/db").expect("opening").close().expect("closing");
    let files = fs.files().into_iter().map(|(path, _)| path);
    (fs.clone(), options, files.filter(|path| path.extension().is_some_and(|e| e == "tam")).collect())
}

fn on(options: &Options, fs: &FaultyFs) -> Options {
    Options { file_system: Some(Arc::new(fs.clone())), ..options.clone() }
}

/// The offsets in a table where a damaged byte hits its key list or a data block.
fn weak_points(filter: FilterChoice) -> (FaultyFs, Options, PathBuf, u64, u64) {
    let (fs, options, tables) = closed(filter);
    let path = tables[2].clone();
    let len = fs.files().into_iter().find(|(file, _)| *file == path).expect("a table").1;
    let (mut list, mut data) = (None, None);
    for at in (100..len).step_by(61) {
        let hurt = fs.after_crash(CrashMode::KeepAll);
        hurt.corrupt(&path, at, 4).expect("a byte");
        let Ok(db) = on(&options, &hurt).open("/db") else { continue };
        db.wait_for_filters().expect("settling");
        match db.iter().find_map(Result::err) {
            Some(_) => data = data.or(Some(at)),
            None if db.stats().warnings.iter().any(|warning| warning.contains("key list")) => {
                list = list.or(Some(at))
            }
            None => {}
        }
    }
    (fs, options, path, list.expect("a byte of the key list"), data.expect("a byte of the data"))
}

/// Regression: the warning was repeated with every rebuild of a partition, and was missing entirely
/// under some filters.
#[test]
fn a_damaged_key_list_causes_one_warning_and_no_wrong_answer() {
    for filter in filters() {
        let (fs, options, path, list, _) = weak_points(filter);
        fs.corrupt(&path, list, 4).expect("a byte");
        let db = on(&options, &fs).open("/db").expect("opening");
        db.wait_for_filters().expect("settling");
        assert!(report(&db).damaged_lists >= 1, "{filter:?}");
        assert_eq!(report(&db).unbuilt, 0, "{filter:?}");
        for round in 0..6u64 {
            for n in 0..600u64 {
                db.put((n * 3000 + 1).to_be_bytes(), round.to_be_bytes()).expect("a write");
            }
            db.flush().expect("a flush");
            db.wait_for_filters().expect("settling");
        }
        assert_eq!(db.iter().filter(|item| item.is_ok()).count(), 1600 + 600, "{filter:?}");
        let (found, used) = cost(&db, || {
            (0..2000u64).filter(|n| db.get((n * 1000).to_be_bytes()).expect("a get").is_some()).count()
        });
        assert_eq!((found, used.filter_probes), (1600, 2000), "{filter:?}");
        let warnings = db.stats().warnings;
        assert_eq!(warnings.iter().filter(|w| w.contains("key list")).count(), 1, "{filter:?}: {warnings:?}");
        db.close().expect("closing");
    }
}

/// Regression: one table whose keys could not be read, neither from its list nor from its data,
/// kept every partition from being built, and the attempt was repeated after each flush.
#[test]
fn an_unreadable_table_does_not_affect_the_others() {
    for filter in filters() {
        let (fs, options, path, list, data) = weak_points(filter);
        fs.corrupt(&path, list, 4).expect("a byte");
        fs.corrupt(&path, data, 4).expect("a byte");
        let db = on(&options, &fs).open("/db").expect("opening");
        db.wait_for_filters().expect("settling");
        assert_eq!(report(&db).unbuilt, 0, "{filter:?}: {:?}", db.stats().warnings);
        let rebuilt = report(&db).rebuilt.0;
        for round in 0..6u64 {
            db.put(round.to_be_bytes(), "written later").expect("a write");
            db.flush().expect("a flush");
            db.wait_for_filters().expect("settling");
        }
        let after = report(&db);
        assert_eq!((after.rebuilt.0, after.unbuilt), (rebuilt, 0), "{filter:?}: {after:?}");
        assert!(after.tables_outside <= 1, "{filter:?}: {after:?}");
        let (mut right, mut failed) = (0, 0);
        let ((), used) = cost(&db, || {
            for n in 0..2000u64 {
                match db.get((n * 1000).to_be_bytes()) {
                    Ok(Some(_)) => right += 1,
                    Ok(None) => {}
                    Err(_) => failed += 1,
                }
            }
        });
        // One of its blocks is lost; all other keys are found, and only that table is searched in
        // vain.
        assert!(
            failed > 0 && failed < 400 && right + failed >= 1600,
            "{filter:?}: {right} right, {failed} failed"
        );
        assert!(names_many_runs(filter) || used.runs_searched < 4400, "{filter:?}: {used:?}");
        assert_eq!(db.stats().warnings.len(), 1, "{filter:?}: {:?}", db.stats().warnings);
        drop(db);
    }
}

/// Reads fail while filters are built, from the n-th on, until the disk works again. The keys come
/// from lists, or from the data of merged tables.
#[test]
fn failed_reads_leave_partitions_unbuilt_until_the_tree_changes() {
    for (filter, merged) in filters().into_iter().flat_map(|filter| [(filter, false), (filter, true)]) {
        let (fs, mut options, tables) = closed_after(filter, |db| {
            if merged {
                db.compact().expect("a compaction");
                assert_eq!(db.default_keyspace().stats().runs, 1);
            }
        });
        assert!(tables.len() > 1);
        options.read_mode = ReadMode::Buffered;
        let mut failed = 0;
        for (at, sticky) in (0..80u64).flat_map(|at| [(at, true), (at, false)]) {
            let fs = fs.after_crash(CrashMode::KeepAll);
            fs.plan(FaultPlan { fail_at: Some(at), sticky, only: Some(OpClass::Read), ..FaultPlan::none() });
            let Ok(db) = on(&options, &fs).open("/db") else { continue };
            // May find the database poisoned by then, but does not hang.
            let _ = db.wait_for_filters();
            failed += u64::from(fs.failures() > 0);
            fs.plan(FaultPlan::none());
            if db.stats().poisoned.is_some() {
                continue;
            }
            for n in 0..2000u64 {
                let found = db.get((n * 1000).to_be_bytes()).expect("a get").is_some();
                assert_eq!(found, n % 20 == 0 || n % 4 != 0, "{filter:?}, failing from {at}: {n}");
            }
            db.put("later", "x").expect("a write");
            db.flush().expect("a flush");
            db.wait_for_filters().expect("settling");
            let filter = report(&db);
            assert_eq!((filter.unbuilt, filter.tables_outside), (0, 0), "failing from {at}: {filter:?}");
            let before = db.stats().read;
            assert!(db.get("never there").expect("a get").is_none());
            assert_eq!((db.stats().read - before).filter_probes, 1, "failing from {at}");
        }
        assert!(failed > 3, "{filter:?}: {failed}");
    }
}
