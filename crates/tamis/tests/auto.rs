//! Options that choose themselves: what is decided when, what is kept, and that no answer depends on it.

use std::sync::Arc;

use tamis::advise::Workload;
use tamis::io::MemFs;
use tamis::{Db, FilterChoice, KeyspaceOptions, Options, TuningDecision};

const KEYS: u32 = 15_000;

fn key(i: u32) -> [u8; 8] {
    (u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes()
}

fn auto(fs: &MemFs, budget: u64) -> Options {
    let mut options = Options::auto(budget);
    options.file_system = Some(Arc::new(fs.clone()));
    options.keyspace.memtable_bytes = 256 << 10;
    options.keyspace.table_bytes = 256 << 10;
    options.keyspace.read_compaction = false;
    options
}

fn fill(db: &Db, keys: std::ops::Range<u32>) {
    keys.for_each(|i| db.put(key(i), [7; 100]).unwrap());
}

fn check(db: &Db, there: u32) {
    for i in (0..there + 5_000).step_by(7) {
        assert_eq!(db.get(key(i)).unwrap().is_some(), i < there, "{i}");
    }
}

fn chosen(decision: &TuningDecision, name: &str) -> Option<String> {
    decision.changes.iter().find(|(changed, _)| changed == name).map(|(_, value)| value.clone())
}

/// Without memory for filters none is kept, and with it again they come back: both at opening, both stored.
#[test]
fn a_declared_workload_is_decided_on_at_opening() {
    let fs = MemFs::new();
    let absent = Some(Workload { empty_gets: 1.0, ..Workload::default() });
    {
        let db = Db::open("/db", auto(&fs, 64 << 20)).unwrap();
        fill(&db, 0..KEYS);
        db.close().unwrap();
    }
    let mut poor = auto(&fs, 1);
    poor.keyspace.workload = absent;
    let db = Db::open("/db", poor.clone()).unwrap();
    let decisions = db.stats().tuning;
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert_eq!(chosen(&decisions[0], "filter").as_deref(), Some("none"), "{decisions:?}");
    assert!(decisions[0].reason.contains("budget"), "{decisions:?}");
    assert_eq!(db.options().keyspace.filter, FilterChoice::None.into());
    check(&db, KEYS);
    db.close().unwrap();
    let db = Db::open("/db", poor).unwrap();
    assert!(db.stats().tuning.is_empty(), "it was decided before: {:?}", db.stats().tuning);
    assert_eq!(db.options().keyspace.filter, FilterChoice::None.into(), "what was decided is stored");
    db.close().unwrap();
    let mut rich = auto(&fs, 64 << 20);
    rich.keyspace.workload = absent;
    let db = Db::open("/db", rich).unwrap();
    assert_ne!(db.options().keyspace.filter, FilterChoice::None.into());
    check(&db, KEYS);
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Nothing is known at first. What was seen is stored when the database is closed, and decided on when it is opened again.
#[test]
fn what_was_seen_is_known_at_the_next_opening() {
    let fs = MemFs::new();
    let db = Db::open("/db", auto(&fs, 64 << 20)).unwrap();
    assert!(db.stats().tuning.is_empty());
    fill(&db, 0..KEYS);
    for i in 0..20_000 {
        assert!(db.get(key(KEYS + i)).unwrap().is_none());
    }
    db.close().unwrap();
    let db = Db::open("/db", auto(&fs, 64 << 20)).unwrap();
    assert_eq!(db.options().keyspace.workload, None, "it was seen, not declared");
    check(&db, KEYS);
    db.close().unwrap();
    // Under a budget of nothing a decision must follow at once: so the workload is known.
    let db = Db::open("/db", auto(&fs, 1)).unwrap();
    let decisions = db.stats().tuning;
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert!(decisions[0].workload.contains("empty-get"), "{decisions:?}");
    assert_eq!(chosen(&decisions[0], "filter").as_deref(), Some("none"), "{decisions:?}");
}

/// Round after round of the same: two borders must agree before anything changes, and then it stays.
#[test]
fn round_borders_decide_with_hysteresis() {
    let fs = MemFs::new();
    let mut options = auto(&fs, 64 << 20);
    // Hardly any absent key is told by half a bit.
    options.keyspace.bits_per_key = 0.5;
    options.keyspace.workload = Some(Workload { empty_gets: 0.99, puts: 0.01, ..Workload::default() });
    let db = Db::open("/db", options).unwrap();
    fill(&db, 0..KEYS);
    let mut changes = Vec::new();
    for round in 0..8 {
        fill(&db, KEYS + round * 11_000..KEYS + (round + 1) * 11_000);
        db.compact().unwrap();
        changes.push(db.stats().tuning.len());
    }
    let decisions = db.stats().tuning;
    assert!(!decisions.is_empty(), "half a bit a key was kept: {changes:?}");
    assert!(decisions[0].gain > 0.15, "{decisions:?}");
    assert_eq!(changes[0], 0, "one border is chance: {changes:?}");
    assert_eq!(
        changes[4..].iter().collect::<std::collections::HashSet<_>>().len(),
        1,
        "flaps: {decisions:?}"
    );
    check(&db, KEYS + 88_000);
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Each keyspace has its own workload and its part of the memory.
#[test]
fn every_keyspace_is_decided_on_by_itself() {
    let fs = MemFs::new();
    {
        let db = Db::open("/db", auto(&fs, 64 << 20)).unwrap();
        let scans = Workload { scans: 1.0, ..Workload::default() };
        let options = KeyspaceOptions { workload: Some(scans), ..auto(&fs, 1).keyspace };
        let other = db.create_keyspace("other", options).unwrap();
        (0..KEYS).for_each(|i| other.put(key(i), [3; 60]).unwrap());
        fill(&db, 0..KEYS);
        db.close().unwrap();
    }
    let mut options = auto(&fs, 1);
    options.keyspace.workload = Some(Workload { empty_gets: 1.0, ..Workload::default() });
    let db = Db::open("/db", options).unwrap();
    let decisions = db.stats().tuning;
    let names: Vec<&str> = decisions.iter().map(|decision| &decision.keyspace[..]).collect();
    assert_eq!(names, ["default", "other"], "{decisions:?}");
    assert!(decisions[1].workload.starts_with("scan 100"), "{decisions:?}");
    assert_eq!(db.keyspace("other").unwrap().options().filter, FilterChoice::None.into());
    for i in (0..KEYS).step_by(11) {
        assert!(db.keyspace("other").unwrap().get(key(i)).unwrap().is_some());
    }
}

/// Without a budget nothing is measured and nothing changes, whatever is stored.
#[test]
fn nothing_happens_unasked() {
    let fs = MemFs::new();
    let mut options = auto(&fs, 64 << 20);
    options.auto_memory_bytes = 0;
    options.keyspace.workload = Some(Workload { scans: 1.0, ..Workload::default() });
    let before = options.keyspace.clone();
    for _ in 0..2 {
        let db = Db::open("/db", options.clone()).unwrap();
        fill(&db, 0..KEYS / 2);
        db.compact().unwrap();
        assert!(db.stats().tuning.is_empty());
        assert_eq!(db.default_keyspace().options(), before);
        db.close().unwrap();
    }
}
