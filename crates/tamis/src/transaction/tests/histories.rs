//! Random histories without mistakes, and with one of each kind.

use tamis_testkit::isolation::{Kind, Level, anomalies};

use crate::conflicts::bugs::Bug;
use crate::transaction::options::Isolation::Serializable;
use crate::transaction::options::Isolation::Snapshot;
use crate::transaction::tests::Mix;
use crate::transaction::tests::contents;
use crate::transaction::tests::open;
use crate::transaction::tests::replayed;
use crate::transaction::tests::run;

/// As many transactions as the checker judges in a moment, in threads that often meet.
const THREADS: u64 = 4;
const EACH: usize = 40;

fn scale() -> u64 {
    std::env::var("TAMIS_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn serializable_transactions_have_the_outcome_of_one_after_the_other() {
    let (mut committed, mut aborted) = (0, 0);
    for seed in 0..12 * scale() {
        let mix = Mix { isolation: Serializable, scans: seed % 3 > 0, deletes: seed % 2 > 0 };
        let db = open();
        let history = run(&db, seed, mix, THREADS, EACH);
        assert_eq!(anomalies(&history), [], "seed {seed}");
        assert_eq!(replayed(&history).unwrap(), contents(&db), "seed {seed}");
        let done = history.iter().filter(|txn| txn.committed.is_some()).count();
        (committed, aborted) = (committed + done, aborted + history.len() - done);
    }
    assert!(committed > 100 && aborted > 50, "{committed} committed and {aborted} aborted");
}

#[test]
fn snapshot_isolation_admits_write_skew_and_nothing_else() {
    let mut skews = 0;
    for seed in 0..20 * scale() {
        let mix = Mix { isolation: Snapshot, scans: seed % 3 > 0, deletes: seed % 2 > 0 };
        let history = run(&open(), seed, mix, THREADS, EACH);
        for anomaly in anomalies(&history) {
            assert!(Level::Snapshot.admits(anomaly.kind), "seed {seed}: {anomaly}");
            skews += 1;
        }
    }
    assert!(skews > 0, "the histories are too tame to tell the levels apart");
}

/// Runs histories with a mistake until the checker reports an anomaly that the level does not
/// admit; returns it and whether the oracle noticed, too.
fn found(bug: Bug, mix: Mix, level: Level) -> (Kind, bool, bool) {
    for seed in 0..200 {
        let db = open();
        db.inner().transactions.history.bugs.set(bug);
        let history = run(&db, seed, mix, THREADS, EACH);
        let differs = replayed(&history).map_or(true, |state| state != contents(&db));
        if let Some(anomaly) = anomalies(&history).into_iter().find(|anomaly| !level.admits(anomaly.kind)) {
            return (anomaly.kind, anomaly.predicate, differs);
        }
    }
    panic!("{bug:?} was not found");
}

#[test]
fn the_checker_finds_reads_that_are_not_validated() {
    let mix = Mix { isolation: Serializable, scans: false, deletes: false };
    let (kind, _, differs) = found(Bug::Points, mix, Level::Serializable);
    assert!(kind >= Kind::GSingle && differs, "{kind:?}");
}

#[test]
fn the_checker_finds_ranges_that_are_not_validated() {
    let mix = Mix { isolation: Serializable, scans: true, deletes: false };
    let (kind, _, differs) = found(Bug::Ranges, mix, Level::Serializable);
    assert!(kind >= Kind::GSingle && differs, "{kind:?}");
}

#[test]
fn the_checker_finds_writes_that_are_not_validated() {
    let mix = Mix { isolation: Snapshot, scans: false, deletes: false };
    let (kind, ..) = found(Bug::Points, mix, Level::Snapshot);
    assert_eq!(kind, Kind::GSingle, "lost updates");
}

#[test]
fn the_checker_finds_flushed_memtables_that_are_forgotten() {
    let mix = Mix { isolation: Serializable, scans: true, deletes: false };
    let (kind, _, differs) = found(Bug::Flushed, mix, Level::Serializable);
    assert!(kind >= Kind::GSingle && differs, "{kind:?}");
}

#[test]
fn the_checker_finds_refused_writes_that_are_visible() {
    let mix = Mix { isolation: Serializable, scans: false, deletes: false };
    let (kind, ..) = found(Bug::Refused, mix, Level::Serializable);
    assert_eq!(kind, Kind::G1a, "aborted reads");
}

#[test]
fn the_checker_finds_reads_that_are_not_from_the_snapshot() {
    let mix = Mix { isolation: Snapshot, scans: false, deletes: false };
    let (kind, ..) = found(Bug::Unpinned, mix, Level::Snapshot);
    assert!((Kind::G1c..=Kind::GNonadjacent).contains(&kind), "{kind:?}");
}
