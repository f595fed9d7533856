//! Large values that stay in logs: crashes and failing devices at every operation.

use std::collections::BTreeMap;

use tamis::{Db, Durability, KeyspaceOptions, Options, WriteError};
use tamis_testkit::{FaultPlan, FaultyFs};

use crate::lab::{self, MODES, assert_no_leftovers, scale};

const KEYS: u8 = 20;

/// Acknowledged rounds by key, and the last one that was tried.
type Rounds = BTreeMap<u8, (u8, u8)>;

fn options(fs: &FaultyFs) -> Options {
    let keyspace = KeyspaceOptions {
        memtable_bytes: 6 << 10,
        blob_garbage: 0.3,
        auto_compaction: false,
        ..lab::tiny_keyspace()
    };
    Options { recycled_logs: 2, keyspace, ..lab::tiny(fs) }
}

fn value(key: u8, round: u8) -> Vec<u8> {
    [key, round].repeat(400)
}

/// Writes all keys a few times, each put synced, and flushes, compacts and opens again in between.
fn work(fs: &FaultyFs, rounds: &mut Rounds) -> Option<Db> {
    let mut db = options(fs).open(lab::DIR).ok()?;
    for round in 1..=3 {
        for key in 0..KEYS {
            let known = rounds.entry(key).or_default();
            known.1 = round;
            let put: Result<(), WriteError> = db.put_with([key], value(key, round), Durability::Sync);
            match put {
                Ok(()) => known.0 = round,
                Err(_) => return Some(db),
            }
        }
        // What fails is tried again, or leaves writes suspended.
        let _ = db.flush();
        if round == 2 {
            let _ = db.compact();
            let _ = db.close();
            db = options(fs).open(lab::DIR).ok()?;
        }
    }
    Some(db)
}

fn check(db: &Db, rounds: &Rounds, context: &str) {
    for (&key, &(acknowledged, tried)) in rounds {
        let found = db.get([key]).unwrap_or_else(|e| panic!("{context}: {e}"));
        let right = (acknowledged..=tried).any(|round| match round {
            0 => found.is_none(),
            round => found.as_deref() == Some(&value(key, round)),
        });
        let seen = found.as_ref().map(|value| value[1]);
        assert!(right, "{context}: key {key} has {seen:?} of {acknowledged} to {tried}");
    }
}

fn judge(fs: &FaultyFs, rounds: &Rounds, context: &str) {
    let db = options(fs).open(lab::DIR).unwrap_or_else(|e| panic!("{context}: {e}"));
    check(&db, rounds, context);
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new(), "{context}");
    assert_no_leftovers(fs, &db, context);
    db.compact().unwrap();
    check(&db, rounds, context);
}

/// Works under a fault plan; reports whether anything failed.
fn work_with(plan: FaultPlan) -> bool {
    let context = format!("{plan:?}");
    let fs = FaultyFs::new(5);
    fs.plan(plan);
    let mut rounds = Rounds::new();
    let db = work(&fs, &mut rounds);
    let failed = fs.failures() > 0;
    let machines: Vec<_> = MODES.iter().map(|mode| (mode, fs.after_crash(*mode))).collect();
    fs.plan(FaultPlan::none());
    if let Some(db) = db {
        if !failed {
            let write = db.stats().write;
            assert!(write.flushes > 0 && write.blob_write_bytes < write.user_bytes / 3, "{write:?}");
        }
        check(&db, &rounds, &context);
        // A flush that failed behind its link used to find the name taken, again and again.
        if db.put("more", value(1, 1)).is_ok() {
            db.flush().unwrap_or_else(|e| panic!("{context}: {e}"));
        }
    }
    judge(&fs, &rounds, &context);
    for (mode, machine) in machines {
        judge(&machine, &rounds, &format!("{context}, {mode:?}"));
    }
    lab::assert_no_background_panics(&context);
    failed
}

fn sweep(plan: FaultPlan) {
    lab::listen_for_panics();
    let stride = (7 / scale() as u64).max(1);
    let mut at = 0;
    while work_with(FaultPlan { fail_at: Some(at), ..plan.clone() }) {
        at += stride;
    }
    assert!(at > 100, "there were only {at} operations");
}

#[test]
fn a_crash_at_any_operation_loses_no_synced_value() {
    sweep(FaultPlan { sticky: true, partial_append: true, ..FaultPlan::none() });
}

#[test]
fn one_failing_operation_loses_no_synced_value() {
    sweep(FaultPlan { partial_append: true, ..FaultPlan::none() });
}
