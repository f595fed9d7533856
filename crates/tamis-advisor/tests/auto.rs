//! Self-tuned options: when decisions are made, what is kept, and that no answer depends on it.

use std::sync::Arc;

use tamis::io::MemFs;
use tamis::options::FilterChoice;
use tamis::stats::TuningDecision;
use tamis::{Db, KeyspaceOptions, Options};
use tamis_advisor::Workload;

const KEYS: u32 = 15_000;

fn key(i: u32) -> [u8; 8] {
    (u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes()
}

fn auto(fs: &MemFs, budget: u64) -> Options {
    let mut options = tamis_advisor::auto(budget);
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

/// Without memory for filters none is kept, and with memory they come back: both at opening, both
/// stored.
#[test]
fn a_declared_workload_leads_to_a_decision_at_opening() {
    let fs = MemFs::new();
    let absent = Some(Workload { empty_gets: 1.0, ..Workload::default() });
    {
        let db = auto(&fs, 64 << 20).open("/db").unwrap();
        fill(&db, 0..KEYS);
        db.close().unwrap();
    }
    let mut poor = auto(&fs, 1);
    poor.keyspace.workload = absent;
    let db = poor.clone().open("/db").unwrap();
    let decisions = db.stats().tuning;
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert_eq!(chosen(&decisions[0], "filter").as_deref(), Some("none"), "{decisions:?}");
    assert!(decisions[0].reason.contains("budget"), "{decisions:?}");
    assert_eq!(db.options().keyspace.filter, FilterChoice::None.into());
    check(&db, KEYS);
    db.close().unwrap();
    let db = poor.open("/db").unwrap();
    assert!(db.stats().tuning.is_empty(), "it was already decided: {:?}", db.stats().tuning);
    assert_eq!(db.options().keyspace.filter, FilterChoice::None.into(), "the decision is stored");
    db.close().unwrap();
    let mut rich = auto(&fs, 64 << 20);
    rich.keyspace.workload = absent;
    let db = rich.open("/db").unwrap();
    assert_ne!(db.options().keyspace.filter, FilterChoice::None.into());
    check(&db, KEYS);
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Nothing is known at first. Observations are stored when the database is closed and used for a
/// decision when it is reopened.
#[test]
fn observations_are_known_at_the_next_opening() {
    let fs = MemFs::new();
    let db = auto(&fs, 64 << 20).open("/db").unwrap();
    assert!(db.stats().tuning.is_empty());
    fill(&db, 0..KEYS);
    for i in 0..20_000 {
        assert!(db.get(key(KEYS + i)).unwrap().is_none());
    }
    db.close().unwrap();
    let db = auto(&fs, 64 << 20).open("/db").unwrap();
    assert_eq!(db.options().keyspace.workload, None, "it was observed, not declared");
    check(&db, KEYS);
    db.close().unwrap();
    // Under a zero budget, a decision at once means that the workload is known.
    let db = auto(&fs, 1).open("/db").unwrap();
    let decisions = db.stats().tuning;
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert!(decisions[0].workload.contains("empty-get"), "{decisions:?}");
    assert_eq!(chosen(&decisions[0], "filter").as_deref(), Some("none"), "{decisions:?}");
}

/// The same workload in every round: two round ends must agree before anything changes, and then it
/// stays.
#[test]
fn decisions_at_round_ends_have_hysteresis() {
    let fs = MemFs::new();
    let mut options = auto(&fs, 64 << 20);
    // Half a bit per key rejects hardly any absent key.
    options.keyspace.bits_per_key = 0.5;
    options.keyspace.workload = Some(Workload { empty_gets: 0.99, puts: 0.01, ..Workload::default() });
    let db = options.open("/db").unwrap();
    fill(&db, 0..KEYS);
    let (mut rounds, mut first) = (0, None);
    // An inspection continues after the merge that ended its round, and measures the machine first.
    while rounds < 40 && first.is_none_or(|first| rounds < first + 5) {
        fill(&db, KEYS + rounds * 11_000..KEYS + (rounds + 1) * 11_000);
        db.compact().unwrap();
        rounds += 1;
        match (first, db.stats().tuning.is_empty()) {
            (None, false) => first = Some(rounds),
            (None, true) => std::thread::sleep(std::time::Duration::from_millis(50)),
            _ => {}
        }
    }
    let decisions = db.stats().tuning;
    assert_eq!(
        decisions.len(),
        1,
        "half a bit per key was kept, or the choice flaps: {decisions:?}, {:?}",
        db.stats().warnings
    );
    assert!(decisions[0].gain > 0.15, "{decisions:?}");
    assert_ne!(first, Some(1), "a single round end may be chance");
    check(&db, KEYS + rounds * 11_000);
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Each keyspace has its own workload and its share of the memory.
#[test]
fn every_keyspace_is_tuned_independently() {
    let fs = MemFs::new();
    {
        let db = auto(&fs, 64 << 20).open("/db").unwrap();
        let scans = Workload { scans: 1.0, ..Workload::default() };
        let options = KeyspaceOptions { workload: Some(scans), ..auto(&fs, 1).keyspace };
        let other = db.create_keyspace("other", options).unwrap();
        (0..KEYS).for_each(|i| other.put(key(i), [3; 60]).unwrap());
        fill(&db, 0..KEYS);
        db.close().unwrap();
    }
    let mut options = auto(&fs, 1);
    options.keyspace.workload = Some(Workload { empty_gets: 1.0, ..Workload::default() });
    let db = options.open("/db").unwrap();
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
fn nothing_is_tuned_without_a_budget() {
    let fs = MemFs::new();
    let mut options = auto(&fs, 64 << 20);
    options.auto_memory_bytes = 0;
    options.keyspace.workload = Some(Workload { scans: 1.0, ..Workload::default() });
    let before = options.keyspace.clone();
    for _ in 0..2 {
        let db = options.clone().open("/db").unwrap();
        fill(&db, 0..KEYS / 2);
        db.compact().unwrap();
        assert!(db.stats().tuning.is_empty());
        assert_eq!(db.default_keyspace().options(), before);
        db.close().unwrap();
    }
}

/// Regression: every cost was measured with entries as long as the database's; values of one
/// gibibyte took all memory at opening.
#[test]
fn costs_can_be_measured_for_entries_of_any_length() {
    use tamis_advisor::{Calibration, Effort, Setup};
    let calibration = Calibration::measure(&Setup::new(1 << 16, 1 << 40).effort(Effort::Quick)).unwrap();
    assert!(calibration.machine.get_ns > 0.0);
}

/// Regression: the model never chooses a policy that drops data, so a stored one is not its choice.
/// It was once resumed and went on dropping data that the opener wanted to keep.
#[test]
fn a_stored_policy_that_drops_data_is_never_resumed() {
    let fs = MemFs::new();
    let mut fifo = auto(&fs, 64 << 20);
    fifo.set("keyspace.compaction", "fifo").unwrap();
    {
        let db = fifo.clone().open("/db").unwrap();
        fill(&db, 0..KEYS);
        assert_eq!(db.options().keyspace.compaction, tamis::options::CompactionChoice::Fifo);
    }
    let db = auto(&fs, 64 << 20).open("/db").unwrap();
    assert_eq!(db.options().keyspace.compaction, tamis::options::CompactionChoice::Leveling);
    db.close().unwrap();
    let db = fifo.open("/db").unwrap();
    assert_eq!(db.options().keyspace.compaction, tamis::options::CompactionChoice::Fifo);
}

/// Options that wait for the end of a round are stored. Regression: closing stored the workload
/// beside the options still in effect, and so reverted them.
#[test]
fn options_waiting_for_a_round_survive_closing() {
    let fs = MemFs::new();
    let db = auto(&fs, 64 << 20).open("/db").unwrap();
    let options = KeyspaceOptions { deterministic: true, ..auto(&fs, 1).keyspace };
    let other = db.create_keyspace("other", options).unwrap();
    (0..KEYS).for_each(|i| other.put(key(i), [3; 60]).unwrap());
    db.flush().unwrap();
    other.set_options(&[("size_ratio", "4")]).unwrap();
    for i in 0..20_000 {
        assert!(other.get(key(KEYS + i)).unwrap().is_none());
    }
    drop(other);
    db.close().unwrap();
    let mut plain = auto(&fs, 64 << 20);
    plain.auto_memory_bytes = 0;
    let db = plain.open("/db").unwrap();
    assert_eq!(db.keyspace("other").unwrap().options().size_ratio.at(1), 4);
    assert!(db.stats().keyspaces[1].workload.is_some(), "the observed workload is stored, too");
}

/// An empty iterator polled at both ends counts as two empty scans, and one that returned an item
/// as none.
#[test]
fn empty_scans_are_counted_at_each_end() {
    let fs = MemFs::new();
    let db = auto(&fs, 64 << 20).open("/db").unwrap();
    fill(&db, 0..100);
    let counted = |scan: &dyn Fn()| {
        let before = db.stats().read;
        scan();
        let used = db.stats().read - before;
        (used.scans, used.empty_scans, used.entries)
    };
    let nothing = || db.range(b"\xff\xff\xff\xff\xff\xff\xff\xff\x00".to_vec()..);
    assert_eq!(counted(&|| assert!(nothing().next().is_none())), (1, 1, 0));
    assert_eq!(
        counted(&|| {
            let mut both = nothing();
            assert!(both.next().is_none() && both.next_back().is_none());
        }),
        (2, 2, 0)
    );
    assert_eq!(counted(&|| assert_eq!(db.iter().count(), 100)), (1, 0, 100));
}
