//! `multi_get` returns the same as single gets, at the same cost, whatever tables and memtables
//! hold.

use std::sync::Arc;
use std::time::Duration;

use tamis::io::MemFs;
use tamis::options::{AsyncReads, ChecksumMode, ReadMode};
use tamis::stats::ReadCost;
use tamis::{Db, Options, Slice};
use tamis_testkit::Rng;

/// A database whose tree keeps every flush as a separate run.
fn open(seed: u64, bits_per_key: f64) -> Db {
    let mut options = Options {
        file_system: Some(Arc::new(MemFs::new())),
        read_mode: if seed.is_multiple_of(3) { ReadMode::Buffered } else { ReadMode::Mapped },
        async_reads: AsyncReads::Off,
        cache_bytes: 0,
        // Otherwise the first access to a block would cost more than the others.
        verify_checksums: ChecksumMode::Always,
        ..Options::default()
    };
    options.keyspace.block_bytes = 256;
    options.keyspace.table_bytes = 4 << 10;
    options.keyspace.auto_compaction = false;
    options.keyspace.bits_per_key = bits_per_key;
    options.keyspace.merge_operator = Some("append".into());
    options.keyspace.slowdown_runs = 1000;
    options.keyspace.stop_runs = 1001;
    if seed.is_multiple_of(5) {
        options.keyspace.time_to_live = Some(Duration::from_secs(3600));
    }
    options.open("/db").unwrap()
}

fn key(i: u64) -> Vec<u8> {
    // The empty key, keys that are prefixes of others, keys that share their first eight bytes.
    match i % 4 {
        _ if i == 0 => Vec::new(),
        0 => vec![b'a'; i as usize % 20],
        1 => format!("samestart{i}").into_bytes(),
        2 => (i as u32).to_be_bytes().to_vec(),
        _ => [&[0xff; 9][..], &i.to_be_bytes()].concat(),
    }
}

fn write(db: &Db, rng: &mut Rng, keys: u64, value: u64) {
    let place = key(rng.below(keys));
    match rng.below(20) {
        0..3 => db.delete(place).unwrap(),
        3..11 => db.merge(place, format!("+{value}")).unwrap(),
        11 => {
            let (a, b) = (key(rng.below(keys)), key(rng.below(keys)));
            if a < b {
                db.delete_range(a..b).unwrap();
            }
        }
        _ => db.put(place, vec![value as u8; rng.below(100) as usize]).unwrap(),
    }
}

fn cost<T>(db: &Db, work: impl FnOnce() -> T) -> (T, ReadCost) {
    let before = db.stats().read;
    let result = work();
    (result, db.stats().read - before)
}

#[test]
fn multi_get_returns_the_same_as_single_gets_at_the_same_cost() {
    for (seed, runs, bits) in [
        (1, 1, 10.0),
        (2, 7, 1.0),
        (3, 8, 10.0),
        (4, 9, 1.0),
        (5, 41, 1.0),
        (6, 41, 10.0),
        (10, 90, 1.0),
        (11, 90, 10.0),
    ] {
        let db = open(seed, bits);
        let mut rng = Rng::new(seed);
        let keys = 300;
        let mut snapshots = Vec::new();
        for run in 0..runs {
            for _ in 0..1 + rng.below(60) {
                write(&db, &mut rng, keys, run);
            }
            if rng.below(runs / 3 + 1) == 0 {
                snapshots.push(db.snapshot());
            }
            if run + 1 < runs || seed % 2 == 0 {
                db.flush().unwrap();
            }
        }
        for count in [0, 1, 2, 31, 32, 33, 64, 65, 500] {
            let asked: Vec<_> = (0..count).map(|_| key(rng.below(keys + 30))).collect();
            let (many, all) = cost(&db, || db.multi_get(&asked).unwrap());
            let (single, each) =
                cost(&db, || asked.iter().map(|key| db.get(key).unwrap()).collect::<Vec<Option<Slice>>>());
            assert_eq!(many, single, "{seed} {count}");
            assert_eq!(all, each, "{seed} {count}");
            for snapshot in &snapshots {
                let (many, all) = cost(&db, || snapshot.multi_get(&asked).unwrap());
                let (single, each) = cost(&db, || {
                    asked.iter().map(|key| snapshot.get(key).unwrap()).collect::<Vec<Option<Slice>>>()
                });
                assert_eq!(many, single, "{seed} {count}");
                assert_eq!(all, each, "{seed} {count}");
            }
        }
    }
}
