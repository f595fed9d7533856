//! Interactions between parts of the engine, triggered by combinations of options.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tamis::clock::ManualClock;
use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::io::MemFs;
use tamis::options::CompactionChoice;
use tamis::{Db, KeyspaceOptions, Options, ReadError, Slice, Snapshot};
use tamis_testkit::Rng;

const START: u64 = 1_700_000_000;

struct Machine {
    fs: Arc<MemFs>,
    clock: Arc<ManualClock>,
    keyspace: KeyspaceOptions,
}

impl Machine {
    fn new(compaction: CompactionChoice, time_to_live: u64) -> Machine {
        let keyspace = KeyspaceOptions {
            compaction,
            memtable_bytes: 4 << 10,
            table_bytes: 4 << 10,
            block_bytes: 256,
            level0_runs: 2,
            size_ratio: 2.into(),
            levels: 4,
            max_memtables: 4,
            time_to_live: (time_to_live > 0).then(|| Duration::from_secs(time_to_live)),
            ..KeyspaceOptions::default()
        };
        Machine { fs: Arc::new(MemFs::new()), clock: Arc::new(ManualClock::new(START)), keyspace }
    }

    fn open(&self) -> Db {
        let options = Options {
            keyspace: self.keyspace.clone(),
            file_system: Some(self.fs.clone()),
            clock: Some(self.clock.clone()),
            ..Options::default()
        };
        options.open("/db").unwrap()
    }

    fn ingest(&self, db: &Db, keys: &[&str]) {
        let path = "/file.tam";
        let mut table = ExternalTableBuilder::create_on(self.fs.clone(), path, &self.keyspace).unwrap();
        keys.iter().for_each(|key| table.put(key, "ingested").unwrap());
        table.finish().unwrap();
        let options = IngestOptions { move_files: true, verify: true };
        db.ingest(&[(db.default_keyspace(), &[path])], options).unwrap();
    }
}

/// Regression: a waiting memtable becomes a newer run than a file ingested meanwhile, though its
/// data is older. When it expired, the file was dropped with it as one of the older runs, long
/// before its time.
#[test]
fn an_ingested_file_outlives_an_older_write_that_was_flushed_later() {
    for policy in [CompactionChoice::Fifo, CompactionChoice::TimeWindow] {
        let machine = Machine::new(policy, 1000);
        let db = machine.open();
        db.put("a", "written").unwrap();
        machine.clock.advance(900);
        let pause = db.pause_compaction();
        machine.ingest(&db, &["m"]);
        db.flush().unwrap();
        machine.clock.advance(200);
        drop(pause);
        db.wait_for_compaction().unwrap();
        db.compact().unwrap();
        assert_eq!(db.get("a").unwrap(), None);
        assert_eq!(db.get("m").unwrap().expect("it has lived for 200 of 1000 seconds"), "ingested");
        machine.clock.advance(900);
        db.compact().unwrap();
        assert_eq!((db.get("m").unwrap(), db.default_keyspace().tables().len()), (None, 0));
        db.verify().unwrap();
    }
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn collect(items: impl Iterator<Item = Result<(Slice, Slice), ReadError>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    items.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn some_key(rng: &mut Rng) -> Vec<u8> {
    format!("key{:02}", rng.below(60)).into_bytes()
}

/// Checks all kinds of reads against the model.
fn check(db: &Db, content: &Content, snapshots: &[(Snapshot, Content)], when: &str) {
    let keys: Vec<Vec<u8>> = (0..60).map(|i| format!("key{i:02}").into_bytes()).collect();
    let now = |content: &Content| content.clone().into_iter().collect::<Vec<_>>();
    assert_eq!(collect(db.iter()), now(content), "{when}: forwards");
    let mut backwards = collect(db.iter().rev());
    backwards.reverse();
    assert_eq!(backwards, now(content), "{when}: backwards");
    let together = db.multi_get(&keys).unwrap();
    for (key, value) in keys.iter().zip(together) {
        assert_eq!(value.map(|v| v.to_vec()), content.get(key).cloned(), "{when}: together");
        assert_eq!(db.get(key).unwrap().map(|v| v.to_vec()), content.get(key).cloned(), "{when}: alone");
    }
    for (snapshot, content) in snapshots {
        assert_eq!(collect(snapshot.iter()), now(content), "{when}: a snapshot");
        let mut backwards = collect(snapshot.iter().rev());
        backwards.reverse();
        assert_eq!(backwards, now(content), "{when}: a snapshot backwards");
        for (key, value) in keys.iter().zip(snapshot.multi_get(&keys).unwrap()) {
            assert_eq!(value.map(|v| v.to_vec()), content.get(key).cloned(), "{when}: a snapshot together");
        }
    }
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new(), "{when}");
}

/// Everything that changes a tree at once, while the policy changes again and again.
#[test]
fn operands_files_deletes_and_snapshots_survive_policy_changes() {
    const SHAPES: [[&str; 3]; 9] = [
        ["leveling", "auto", "false"],
        ["tiering", "auto", "false"],
        ["fragmented", "auto", "false"],
        ["leveling", "full", "true"],
        ["lazy-leveling", "partitioned", "false"],
        ["hybrid:2", "partial", "false"],
        ["tiering", "auto", "true"],
        ["fifo", "auto", "false"],
        ["time-window", "auto", "false"],
    ];
    let seeds = std::env::var("TAMIS_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1) * 12;
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let mut machine = Machine::new(CompactionChoice::Leveling, 0);
        machine.keyspace.merge_operator = Some("append".into());
        if seed % 3 == 1 {
            // Sequence numbers are kept, and nothing expires.
            machine.keyspace.time_to_live = Some(Duration::from_secs(1 << 30));
        }
        let mut db = machine.open();
        let (mut content, mut snapshots) = (Content::new(), Vec::<(Snapshot, Content)>::new());
        for step in 0..600 {
            let when = format!("seed {seed}, step {step}");
            match rng.below(100) {
                0..40 => {
                    let key = some_key(&mut rng);
                    let value = format!("{step}{}", "v".repeat(rng.below(120) as usize)).into_bytes();
                    db.put(&key, &value).unwrap();
                    content.insert(key, value);
                }
                40..60 => {
                    let (key, operand) = (some_key(&mut rng), format!("+{step}").into_bytes());
                    db.merge(&key, &operand).unwrap();
                    content.entry(key).or_default().extend(operand);
                }
                60..68 => {
                    let key = some_key(&mut rng);
                    db.delete(&key).unwrap();
                    content.remove(&key);
                }
                68..71 => {
                    let (a, b) = (some_key(&mut rng), some_key(&mut rng));
                    let (from, to) = (a.clone().min(b.clone()), a.max(b));
                    db.delete_range(&from[..]..&to[..]).unwrap();
                    content.retain(|key, _| !(from <= *key && *key < to));
                }
                71..77 => {
                    let first = rng.below(60);
                    let path = "/ingested.tam";
                    let mut table =
                        ExternalTableBuilder::create_on(machine.fs.clone(), path, &machine.keyspace).unwrap();
                    let deletes = rng.below(2) == 0;
                    let (from, to) = (format!("key{first:02}"), format!("key{:02}", first + 3));
                    if deletes {
                        table.delete_range(from.as_str()..to.as_str()).unwrap();
                        content.retain(|k, _| !(from.as_bytes() <= &k[..] && &k[..] < to.as_bytes()));
                    }
                    for i in first..(first + 1 + rng.below(8)).min(60) {
                        let key = format!("key{i:02}").into_bytes();
                        if rng.below(4) == 0 {
                            table.delete(&key).unwrap();
                            content.remove(&key);
                        } else {
                            table.put(&key, &when).unwrap();
                            content.insert(key, when.clone().into_bytes());
                        }
                    }
                    table.finish().unwrap();
                    let options = IngestOptions { move_files: rng.below(2) == 0, verify: true };
                    db.ingest(&[(db.default_keyspace(), &[path])], options).unwrap();
                    let _ = tamis::io::FileSystem::remove(&*machine.fs, std::path::Path::new(path));
                }
                77..82 => db.flush().unwrap(),
                82..84 => db.compact().unwrap(),
                84..87 => {
                    let (a, b) = (some_key(&mut rng), some_key(&mut rng));
                    let (from, to) = (a.clone().min(b.clone()), a.max(b));
                    let range = &from[..]..=&to[..];
                    db.default_keyspace().compact_range(range, Default::default()).unwrap();
                }
                87..91 => snapshots.push((db.snapshot(), content.clone())),
                91..94 if !snapshots.is_empty() => {
                    let gone = rng.below(snapshots.len() as u64) as usize;
                    drop(snapshots.swap_remove(gone));
                }
                94..98 => {
                    let [compaction, merge, deterministic] = SHAPES[rng.below(9) as usize];
                    let changes =
                        [("compaction", compaction), ("merge", merge), ("deterministic", deterministic)];
                    db.default_keyspace().set_options(&changes).unwrap();
                }
                98 => {
                    snapshots.clear();
                    let options = db.default_keyspace().options();
                    db.close().unwrap();
                    machine.keyspace = options;
                    db = machine.open();
                }
                _ => check(&db, &content, &snapshots, &when),
            }
            if step % 40 == 0 {
                check(&db, &content, &snapshots, &when);
            }
        }
        snapshots.clear();
        db.wait_for_compaction().unwrap();
        check(&db, &content, &snapshots, "settled");
        db.compact().unwrap();
        check(&db, &content, &snapshots, "compacted");
    }
}

/// The smallest and oddest option values, all policies, and a jumping clock, one after the other on
/// the same tree: every write can be read at once.
#[test]
fn the_oddest_options_open_write_merge_and_close() {
    const TEXTS: [&[(&str, &str)]; 7] = [
        &[("levels", "2"), ("level0_runs", "1"), ("slowdown_runs", "1"), ("stop_runs", "1")],
        &[("size_ratio", "2"), ("max_memtables", "2"), ("memtable_bytes", "4096"), ("table_bytes", "4096")],
        &[("table_bytes", "18446744073709551615"), ("size_ratio", "2,3,4,5,6,7,8,9")],
        &[("slowdown_debt_bytes", "4096")],
        &[("retain_bytes", "4096"), ("time_window", "1 s"), ("time_to_live", "1 s")],
        &[("time_to_live", "1 s"), ("level0_runs", "1")],
        &[("block_bytes", "256"), ("filter_allocation", "monkey"), ("level0_runs", "1"), ("size_ratio", "2")],
    ];
    let policies = ["leveling", "tiering", "lazy-leveling", "hybrid:15", "fragmented", "fifo", "time-window"];
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut machine = Machine::new(CompactionChoice::Leveling, 0);
        for round in 0..4 {
            let mut keyspace = machine.keyspace.clone();
            keyspace.set("compaction", policies[rng.below(7) as usize]).unwrap();
            for (name, value) in TEXTS[rng.below(7) as usize] {
                keyspace.set(name, value).unwrap();
            }
            if keyspace.levels < machine.keyspace.levels && round > 0 {
                keyspace.levels = machine.keyspace.levels;
            }
            if keyspace.check().is_err() {
                continue;
            }
            machine.keyspace = keyspace;
            let db = machine.open();
            for i in 0..30 {
                let key = if rng.below(10) == 0 { vec![b'k'; 64 << 10] } else { some_key(&mut rng) };
                let value = vec![b'v'; rng.below(3000) as usize];
                db.put(&key, &value).unwrap();
                if machine.keyspace.retain_bytes == u64::MAX {
                    assert_eq!(db.get(&key).unwrap().unwrap(), value, "seed {seed}, round {round}, {i}");
                }
                if i % 10 == 0 {
                    machine.clock.advance(rng.below(5));
                }
            }
            db.delete_range("key10".."key20").unwrap();
            db.flush().unwrap();
            db.wait_for_compaction().unwrap();
            assert_eq!(db.range("key10".."key20").count(), 0);
            db.compact().unwrap();
            assert_eq!(db.range("key10".."key20").count(), 0);
            assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
            db.close().unwrap();
        }
    }
}
