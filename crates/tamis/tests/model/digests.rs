//! A read hashes its key once, whatever the shape of the tree: counted in the hash function itself.

#![cfg(debug_assertions)]

use std::sync::Arc;

use tamis::io::MemFs;
use tamis::options::{BloomHashing, FilterChoice};
use tamis::{Db, Options};
use tamis_filter::digest::computed_on_this_thread;

const KEYS: u32 = 20;

/// Keys of one run lie between those of all others, so that every run covers nearly every key.
fn key(i: u32, run: u32) -> String {
    format!("key{i:04}-{run:02}")
}

fn counted<T>(what: impl FnOnce() -> T) -> u64 {
    let before = computed_on_this_thread();
    what();
    computed_on_this_thread() - before
}

fn check(db: &Db, runs: u32, what: &str) {
    let present: Vec<_> = (0..KEYS).map(|i| key(i, i % runs)).collect();
    let absent: Vec<_> = (0..KEYS).map(|i| key(i, 99)).collect();
    for key in present.iter().chain(&absent) {
        assert_eq!(counted(|| db.get(key).expect("a get")), 1, "get of {key}, {what}");
        assert_eq!(counted(|| db.contains_key(key).expect("a get")), 1, "contains of {key}, {what}");
        assert_eq!(counted(|| db.snapshot().get(key).expect("a get")), 1, "get in a snapshot, {what}");
    }
    assert!(present.iter().all(|key| db.contains_key(key).expect("a get")), "{what}");
    assert!(!absent.iter().any(|key| db.contains_key(key).expect("a get")), "{what}");
    let both: Vec<_> = present.iter().chain(&absent).collect();
    let many = counted(|| db.multi_get(&both).expect("a multi_get"));
    assert_eq!(many, u64::from(2 * KEYS), "multi_get, {what}");
    assert_eq!(counted(|| db.iter().count() + db.iter().rev().count()), 0, "iterators, {what}");
    assert_eq!(
        counted(|| db.prefix("key00").count() + db.range("key0003"..).count()),
        0,
        "iterators, {what}"
    );
    let mut iter = db.iter();
    assert_eq!(counted(|| iter.seek("key0007").map(|()| iter.next().is_some())), 0, "seek, {what}");
}

#[test]
fn a_read_computes_one_digest_per_key_and_an_iterator_none() {
    let how = BloomHashing::Independent;
    let independent = [FilterChoice::Bloom(how), FilterChoice::Elastic(how)];
    for filter in FilterChoice::all().filter(|filter| !independent.contains(filter)) {
        for pin_metadata in [true, false] {
            let mut options =
                Options { file_system: Some(Arc::new(MemFs::new())), pin_metadata, ..Options::default() };
            options.keyspace.auto_compaction = false;
            options.keyspace.filter = filter.into();
            let db = options.open("/db").expect("opening");
            for runs in 1..=40 {
                for i in 0..KEYS {
                    db.put(key(i, runs - 1), "value").expect("a write");
                }
                let what = format!("{filter:?}, pinned {pin_metadata}, {runs} runs");
                if [1, 2, 7, 8, 9, 16, 17, 40].contains(&runs) {
                    check(&db, runs, &format!("{what}, the newest in memory"));
                }
                db.flush().expect("a flush");
                assert_eq!(db.stats().keyspaces[0].runs, runs as usize);
                if [1, 2, 7, 8, 9, 16, 17, 40].contains(&runs) {
                    check(&db, runs, &what);
                }
            }
        }
    }
}

/// The reference: without sharing, each probed filter costs a digest; so does each hash function of
/// a filter with separate ones. (If these returned 1, the test above would prove nothing.)
#[test]
fn without_sharing_every_filter_costs_digests() {
    for (hash_sharing, filter) in
        [(false, FilterChoice::BlockedBloom), (true, FilterChoice::Bloom(BloomHashing::Independent))]
    {
        let mut options =
            Options { file_system: Some(Arc::new(MemFs::new())), hash_sharing, ..Options::default() };
        options.keyspace.auto_compaction = false;
        options.keyspace.filter = filter.into();
        let db = options.open("/db").expect("opening");
        for run in 0..5 {
            (0..KEYS).for_each(|i| db.put(key(i, run), "value").expect("a write"));
            db.flush().expect("a flush");
        }
        let digests = counted(|| db.get(key(5, 99)).expect("a get"));
        assert!(digests >= 5, "{digests} digests for {filter:?}, sharing {hash_sharing}");
    }
}
