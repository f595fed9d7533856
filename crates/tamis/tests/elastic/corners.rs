//! Random histories of rare cases: shapes of units, several keyspaces that come and go, ingested
//! tables, operands, tables of deletes alone, keys of all lengths, snapshots and iterators that
//! outlive their tables, checkpoints, and read-only opens.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::{FileSystem, MemFs};
use tamis::options::{BloomHashing, CompactionChoice, FilterChoice, FilterPolicy, ReadMode};
use tamis::{Db, Iter, Keyspace, KeyspaceOptions, Options, Snapshot};
use tamis_testkit::Rng;

use crate::{fits, open, scale, small, small_keyspace};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Empty keys, keys that differ only in trailing zeros, keys whose common prefix is longer than any
/// directory compares, and long keys.
fn some_key(rng: &mut Rng) -> Vec<u8> {
    let i = rng.below(600);
    match rng.below(16) {
        0 => vec![0; (i % 12) as usize],
        1 => vec![0xff; (i % 12) as usize],
        2..=5 => format!("{}{i}", "the same for all of them/".repeat(4)).into_bytes(),
        6 if i < 12 => [&vec![b'k'; (64 << 10) - 1 - (i % 3) as usize][..], &[b'a' + i as u8]].concat(),
        7 => format!("u{}\0{}", i % 10, "\0".repeat((i / 10 % 8) as usize)).into_bytes(),
        _ => (i * 7919 % 600).to_be_bytes().to_vec(),
    }
}

fn some_keyspace(rng: &mut Rng) -> KeyspaceOptions {
    let hashing =
        [BloomHashing::Rotation, BloomHashing::Double, BloomHashing::Independent][rng.below(3) as usize];
    let elastic = FilterChoice::Elastic(hashing);
    let filter = match rng.below(8) {
        0 => FilterPolicy::split(1, FilterChoice::BlockedBloom, elastic),
        1 => FilterPolicy::split(1, elastic, FilterChoice::Grafite),
        2 => FilterChoice::None.into(),
        _ => elastic.into(),
    };
    let (mut units, mut bits) =
        ([1, 2, 6, 16][rng.below(4) as usize], [0.5, 1.0, 4.0, 16.0][rng.below(4) as usize]);
    if hashing == BloomHashing::Independent {
        (units, bits) = ([1, 2, 6][rng.below(3) as usize], [0.5, 4.0][rng.below(2) as usize]);
    }
    KeyspaceOptions {
        filter,
        filter_units: units,
        filter_unit_bits: bits,
        filter_unit_bytes: [128, 129, 1000, 4096, 16 << 20][rng.below(5) as usize],
        memtable_bytes: 16 << 10,
        table_bytes: 16 << 10,
        merge_operator: Some("append".into()),
        compaction: [CompactionChoice::Leveling, CompactionChoice::Tiering, CompactionChoice::Fragmented]
            [rng.below(3) as usize],
        ..small_keyspace()
    }
}

fn some_options(fs: &Arc<dyn FileSystem>, rng: &mut Rng) -> Options {
    let mut options = small(fs.clone(), [0, 100, 2000, 30_000, u64::MAX][rng.below(5) as usize]);
    options.read_mode = if rng.below(2) == 0 { ReadMode::Mapped } else { ReadMode::Buffered };
    options.heat_sampling = [None, Some(1), Some(7)][rng.below(3) as usize];
    options.filter_life_time = [None, Some(1), Some(50), Some(u64::MAX)][rng.below(4) as usize];
    options.heat_inheritance = rng.below(4) > 0;
    options.hash_sharing = rng.below(4) > 0;
    options.pin_metadata = rng.below(4) > 0;
    if rng.below(4) == 0 {
        options.read_memory_bytes = [1, 5000, 60_000][rng.below(3) as usize];
    }
    options.keyspace = some_keyspace(rng);
    options
}

struct History {
    fs: Arc<dyn FileSystem>,
    rng: Rng,
    models: BTreeMap<String, Model>,
    files: u64,
    context: String,
}

impl History {
    fn check(&self, found: Option<tamis::Slice>, model: &Model, key: &[u8]) {
        assert_eq!(
            found.as_deref(),
            model.get(key).map(Vec::as_slice),
            "{}, key {:?} of {} bytes",
            self.context,
            &key[..key.len().min(120)],
            key.len()
        );
    }

    fn ingest(&mut self, keyspace: &Keyspace, name: &str) {
        self.files += 1;
        let path = PathBuf::from(format!("/out/{}.tam", self.files));
        self.fs.create_dir_all(path.parent().unwrap()).expect("a directory");
        let mut new: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..1 + self.rng.below(500) {
            let value = (self.rng.below(5) > 0).then(|| self.rng.next_u64().to_le_bytes().to_vec());
            new.insert(some_key(&mut self.rng), value);
        }
        let options = keyspace.options();
        let mut builder = ExternalTableBuilder::create_on(self.fs.clone(), &path, &options).expect("a file");
        for (key, value) in &new {
            match value {
                Some(value) => builder.put(key, value).expect("a put"),
                None => builder.delete(key).expect("a delete"),
            }
        }
        builder.finish().expect("a table");
        let how = IngestOptions { move_files: self.rng.below(2) == 0, verify: true };
        keyspace.ingest(&[&path], how).expect("an ingestion");
        let model = self.models.get_mut(name).expect("a model");
        for (key, value) in new {
            match value {
                Some(value) => _ = model.insert(key, value),
                None => _ = model.remove(&key),
            }
        }
    }

    fn life(&mut self, db: &Db) {
        let mut snapshots: Vec<(Snapshot, BTreeMap<String, Model>)> = Vec::new();
        let mut iters: Vec<(Iter, Model)> = Vec::new();
        for _ in 0..900 {
            let names: Vec<String> = self.models.keys().cloned().collect();
            let name = names[self.rng.below(names.len() as u64) as usize].clone();
            let keyspace = db.keyspace(&name).expect("a keyspace");
            let key = some_key(&mut self.rng);
            match self.rng.below(60) {
                0 => keyspace.flush().expect("a flush"),
                1 if self.rng.below(4) == 0 => keyspace.compact().expect("a compaction"),
                2 => snapshots.push((db.snapshot(), self.models.clone())),
                3 => drop(snapshots.pop()),
                4 => {
                    let end = [&key[..key.len().min((64 << 10) - 1)], &[0x7f]].concat();
                    keyspace.delete_range(key.clone()..end.clone()).expect("a delete");
                    self.models.get_mut(&name).unwrap().retain(|k, _| *k < key || *k >= end);
                    if self.rng.below(2) == 0 {
                        keyspace.flush().expect("a flush");
                    }
                }
                5 => self.ingest(&keyspace, &name),
                6 => iters.push((keyspace.iter(), self.models[&name].clone())),
                7 if self.rng.below(4) == 0 && names.len() < 4 => {
                    let name = format!("ks{}", self.rng.below(5));
                    if !self.models.contains_key(&name) {
                        db.create_keyspace(&name, some_keyspace(&mut self.rng)).expect("a keyspace");
                        self.models.insert(name, Model::new());
                    }
                }
                8 if self.rng.below(3) == 0 && name != "default" => {
                    db.drop_keyspace(&name).expect("dropping");
                    self.models.remove(&name);
                    snapshots.clear();
                }
                9..=12 => {
                    keyspace.delete(&key).expect("a delete");
                    self.models.get_mut(&name).unwrap().remove(&key);
                }
                13..=16 => {
                    let operand = [b'a' + self.rng.below(26) as u8];
                    keyspace.merge(&key, operand).expect("a merge");
                    self.models.get_mut(&name).unwrap().entry(key).or_default().extend(operand);
                }
                17..=29 => {
                    let value = self.rng.next_u64().to_le_bytes().repeat(1 + self.rng.below(8) as usize);
                    keyspace.put(&key, &value).expect("a put");
                    self.models.get_mut(&name).unwrap().insert(key, value);
                }
                30..=34 => {
                    let keys: Vec<_> = (0..40).map(|_| some_key(&mut self.rng)).collect();
                    let values = keyspace.multi_get(&keys).expect("a multi-get");
                    let model = &self.models[&name];
                    keys.iter().zip(values).for_each(|(key, value)| self.check(value, model, key));
                }
                _ => self.check(keyspace.get(&key).expect("a get"), &self.models[&name], &key),
            }
            if let Some((snapshot, then)) = snapshots.first()
                && let Some(model) = then.get(&name)
                && let Ok(keyspace) = db.keyspace(&name)
            {
                let key = some_key(&mut self.rng);
                self.check(snapshot.keyspace(&keyspace).get(&key).expect("a get"), model, &key);
            }
            if let Some(stats) = db.stats().elastic {
                assert!(fits(&stats, stats.budget_bytes), "{}: {stats:?}", self.context);
            }
        }
        for (iter, model) in iters {
            let found: Vec<(Vec<u8>, Vec<u8>)> =
                iter.map(|entry| entry.expect("an entry")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            assert!(found.iter().map(|(k, v)| (k, v)).eq(&model), "{}", self.context);
        }
        for (name, model) in &self.models {
            let keyspace = db.keyspace(name).expect("a keyspace");
            for key in model.keys().cloned().chain((0..300).map(|_| some_key(&mut self.rng))) {
                let found = keyspace.get(&key).expect("a get");
                assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{}", self.context);
            }
        }
        db.wait_for_filters().expect("settling");
        for segment in db.segments() {
            assert!(self.models.contains_key(&segment.keyspace), "{}: {segment:?}", self.context);
        }
        assert_eq!(db.verify().expect("verifying").problems, [""; 0], "{}", self.context);
    }

    /// Checks that a database opened at `dir`, read-only or not, finds all keys.
    fn same_elsewhere(&mut self, dir: &str, read_only: bool) {
        let options = some_options(&self.fs, &mut self.rng);
        let db = match read_only {
            true => options.open_read_only(dir),
            false => options.open(dir),
        };
        let db = db.expect("opening");
        db.wait_for_filters().expect("settling");
        for (name, model) in &self.models {
            let keyspace = db.keyspace(name).expect("a keyspace");
            for key in model.keys() {
                let found = keyspace.get(key).expect("a get");
                assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice), "{}", self.context);
            }
        }
    }
}

fn history(seed: u64) {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let models = BTreeMap::from([("default".to_owned(), Model::new())]);
    let mut history = History { fs, rng: Rng::new(seed), models, files: 0, context: String::new() };
    for life in 0..3 {
        history.context = format!("seed {seed}, life {life}");
        let options = some_options(&history.fs, &mut history.rng);
        let db = open(&options);
        history.life(&db);
        let copy = format!("/copy{life}");
        db.checkpoint(&copy).expect("a checkpoint");
        match history.rng.below(3) {
            0 => drop(db),
            _ => db.close().expect("closing"),
        }
        history.same_elsewhere(&copy, false);
        history.same_elsewhere("/db", true);
    }
}

#[test]
fn rare_cases_match_a_map() {
    (0..6 * scale()).for_each(history);
}
