//! Merges in several concurrent parts: crashes and failing devices at every operation.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use tamis::{Db, KeyspaceOptions, Options};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::lab::{self, MODES, assert_no_leftovers, scale};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(fs: &FaultyFs, sub_jobs: usize) -> Options {
    let keyspace = KeyspaceOptions { auto_compaction: false, ..lab::tiny_keyspace() };
    Options { sub_jobs: Some(sub_jobs as u64), keyspace, ..lab::tiny(fs) }
}

fn read(db: &Db) -> Content {
    db.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

/// A closed database with overlapping runs and a range tombstone that spans every cut.
fn prepared() -> (FaultyFs, Content) {
    let fs = FaultyFs::new(11);
    let db = options(&fs, 1).open(lab::DIR).unwrap();
    for round in 0..4u8 {
        for i in 0..40u16 {
            let key = format!("key{:03}", (i * 7 + u16::from(round)) % 80);
            // A few of them go to blob files; the others make tables that are large enough to be
            // split.
            let len = if i % 8 == 0 { 400 } else { 340 };
            db.put(key, vec![round; len]).unwrap();
        }
        if round == 1 {
            db.delete_range("key010".."key075").unwrap();
        }
        db.flush().unwrap();
    }
    let content = read(&db);
    db.close().unwrap();
    (fs, content)
}

fn judge(fs: &FaultyFs, expected: &Content, context: &str) {
    let db = options(fs, 4).open(lab::DIR).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(read(&db) == *expected, "{context}: the contents differ");
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new(), "{context}");
    assert_no_leftovers(fs, &db, context);
    db.compact().unwrap_or_else(|e| panic!("{context}: compacting again: {e}"));
    assert!(read(&db) == *expected, "{context}: the contents differ after compacting again");
}

/// Compacts in four parts under a fault plan; reports whether anything failed.
fn compact_with(base: &FaultyFs, expected: &Content, plan: FaultPlan) -> bool {
    let context = format!("{plan:?}");
    let fs = base.after_crash(CrashMode::KeepAll);
    let db = options(&fs, 4).open(lab::DIR).unwrap();
    let sticky = plan.sticky;
    fs.plan(plan);
    let result = db.compact();
    let failed = fs.failures() > 0;
    if !failed {
        result.unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(db.stats().write.sub_jobs >= 4, "{context}: the merge was not split into parts");
    }
    let machines: Vec<_> = MODES.iter().map(|mode| (mode, fs.after_crash(*mode))).collect();
    fs.plan(FaultPlan::none());
    assert!(read(&db) == *expected, "{context}: a read is wrong");
    if !sticky && db.stats().poisoned.is_none() {
        db.compact().unwrap_or_else(|e| panic!("{context}: compacting again: {e}"));
    }
    drop(db);
    judge(&fs, expected, &context);
    for (mode, machine) in machines {
        judge(&machine, expected, &format!("{context}, {mode:?}"));
    }
    lab::assert_no_background_panics(&context);
    failed
}

fn sweep(stride: u64, plan: FaultPlan) {
    lab::listen_for_panics();
    let (base, expected) = prepared();
    let mut at = 0;
    while compact_with(&base, &expected, FaultPlan { fail_at: Some(at), ..plan.clone() }) {
        at += stride;
    }
    assert!(at > 8, "the merge had only {at} operations");
}

#[test]
fn a_crash_at_any_operation_of_a_split_merge_loses_nothing_and_leaves_nothing_behind() {
    let stride = (4 / scale() as u64).max(1);
    sweep(stride, FaultPlan { sticky: true, partial_append: true, ..FaultPlan::none() });
}

#[test]
fn one_failing_operation_of_a_split_merge_loses_nothing_and_leaves_nothing_behind() {
    let stride = (4 / scale() as u64).max(1);
    sweep(stride, FaultPlan { partial_append: true, ..FaultPlan::none() });
}

/// A part that meets a full disk aborts the others, and writes continue.
#[test]
fn a_part_without_room_undoes_the_merge_and_blocks_nothing_else() {
    let (base, expected) = prepared();
    let full = FaultPlan { error: ErrorKind::StorageFull, only: Some(OpClass::Write), ..FaultPlan::none() };
    for at in 0..4 {
        let fs = base.after_crash(CrashMode::KeepAll);
        let db = options(&fs, 4).open(lab::DIR).unwrap();
        fs.plan(FaultPlan { fail_at: Some(at), ..full.clone() });
        let error = db.compact().unwrap_err().to_string();
        assert!(error.contains("could not"), "{error}");
        fs.plan(FaultPlan::none());
        let stats = db.stats();
        assert_eq!((stats.poisoned, stats.write.set_aside, stats.write.compactions), (None, 1, 0));
        assert!(stats.warnings.iter().any(|w| w.contains("will be retried later")), "{:?}", stats.warnings);
        assert_no_leftovers(&fs, &db, "undone");
        db.put("key000", vec![0; 400]).unwrap();
        db.put("key000", &expected[&b"key000"[..]]).unwrap();
        assert!(read(&db) == expected);
        db.compact().unwrap();
        assert!(read(&db) == expected);
        assert!(db.stats().write.compactions > 0);
    }
}
