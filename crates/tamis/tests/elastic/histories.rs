//! Random histories against a map: writes, deletes, flushes, compactions, reopening with other
//! options, snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis::io::{FileSystem, MemFs};
use tamis::options::{BloomHashing, CompactionChoice, FilterChoice, FilterPolicy, ReadMode};
use tamis::{Options, Snapshot};
use tamis_testkit::Rng;

use crate::{open, scale, small};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn some_key(rng: &mut Rng) -> Vec<u8> {
    let i = rng.below(1500);
    match rng.below(4) {
        0 => format!("user{}", i % 97).into_bytes(),
        1 => format!("user{i}/{}", "x".repeat((i % 40) as usize)).into_bytes(),
        2 => vec![0xff; (i % 20) as usize],
        _ => i.to_be_bytes().to_vec(),
    }
}

fn some_options(fs: &Arc<dyn FileSystem>, rng: &mut Rng) -> Options {
    let mut options = small(fs.clone(), [0, 2000, 20_000, u64::MAX][rng.below(4) as usize]);
    options.read_mode = if rng.below(2) == 0 { ReadMode::Mapped } else { ReadMode::Buffered };
    options.heat_sampling = [None, Some(1), Some(3)][rng.below(3) as usize];
    options.filter_life_time = [None, Some(1), Some(50)][rng.below(3) as usize];
    options.heat_inheritance = rng.below(4) > 0;
    options.hash_sharing = rng.below(4) > 0;
    if rng.below(3) == 0 {
        options.read_memory_bytes = 40_000;
    }
    let keyspace = &mut options.keyspace;
    let hashing =
        [BloomHashing::Rotation, BloomHashing::Double, BloomHashing::Independent][rng.below(3) as usize];
    keyspace.filter = match rng.below(6) {
        0 => FilterPolicy::split(1, FilterChoice::BlockedBloom, FilterChoice::Elastic(hashing)),
        1 => FilterPolicy::split(1, FilterChoice::Elastic(hashing), FilterChoice::Ribbon),
        // Tables from an earlier life, with a filter of another kind.
        2 => FilterChoice::Grf.into(),
        _ => FilterChoice::Elastic(hashing).into(),
    };
    keyspace.filter_units = 1 + rng.below(6);
    keyspace.filter_unit_bits = [1.0, 3.5, 4.0][rng.below(3) as usize];
    keyspace.compaction =
        [CompactionChoice::Leveling, CompactionChoice::Tiering, CompactionChoice::LazyLeveling]
            [rng.below(3) as usize];
    keyspace.memtable_bytes = 16 << 10;
    keyspace.table_bytes = 16 << 10;
    options
}

fn check(value: Option<tamis::Slice>, model: &Model, key: &[u8], context: &str) {
    assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice), "{context}, key {key:?}");
}

fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new());
    let mut model = Model::new();
    for life in 0..4 {
        let options = some_options(&fs, &mut rng);
        let context = format!("seed {seed}, life {life}");
        let db = open(&options);
        let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
        for _ in 0..1200 {
            let key = some_key(&mut rng);
            match rng.below(40) {
                0 => db.flush().expect("a flush"),
                1 if rng.below(8) == 0 => db.compact().expect("a compaction"),
                2 => snapshots.push((db.snapshot(), model.clone())),
                3 => drop(snapshots.pop()),
                4 => {
                    let end = [&key[..], &[0xff]].concat();
                    db.delete_range(key.clone()..end.clone()).expect("a delete");
                    model.retain(|k, _| *k < key || *k >= end);
                }
                5..=8 => {
                    db.delete(&key).expect("a delete");
                    model.remove(&key);
                }
                9..=20 => {
                    let value = rng.next_u64().to_le_bytes().repeat(1 + rng.below(8) as usize);
                    db.put(&key, &value).expect("a put");
                    model.insert(key, value);
                }
                21..=24 => {
                    let keys: Vec<_> = (0..20).map(|_| some_key(&mut rng)).collect();
                    let values = db.multi_get(&keys).expect("a multi-get");
                    keys.iter().zip(values).for_each(|(key, value)| check(value, &model, key, &context));
                }
                _ => check(db.get(&key).expect("a get"), &model, &key, &context),
            }
            if let Some((snapshot, then)) = snapshots.last() {
                let key = some_key(&mut rng);
                check(snapshot.get(&key).expect("a get"), then, &key, &context);
            }
        }
        for key in (0..1500).map(|_| some_key(&mut rng)) {
            check(db.get(&key).expect("a get"), &model, &key, &context);
        }
        assert_eq!(db.verify().expect("verifying").problems, [""; 0], "{context}");
        drop(snapshots);
        db.close().expect("closing");
    }
}

#[test]
fn histories_match_a_map() {
    (0..16 * scale()).for_each(history);
}
