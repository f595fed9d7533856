//! Failing devices: each operation of a history fails in turn, once or permanently, by class of
//! operation.

use std::io::ErrorKind;

use tamis::options::FilterChoice;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

use crate::history::{Session, Step, tour};
use crate::lab::{self, MODES, scale};

/// Runs the tour with a plan, then clears the fault and checks the contents: after closing and
/// reopening, and after crashes at the end. Returns the number of failed operations.
fn run_with(plan: FaultPlan, context: &str) -> u64 {
    let fs = FaultyFs::new(7);
    fs.plan(plan);
    let Ok(mut session) = Session::open(&fs) else {
        let failures = fs.failures();
        fs.plan(FaultPlan::none());
        assert!(failures > 0, "{context}: opening failed without a fault");
        let db = lab::open(&fs).unwrap_or_else(|e| panic!("{context}: opening again: {e}"));
        assert!(db.iter().next().is_none());
        return failures;
    };
    for (i, step) in tour().iter().enumerate() {
        session.run(step, true).unwrap_or_else(|e| panic!("{context}: step {i}: {e}"));
    }
    let failures = fs.failures();
    fs.plan(FaultPlan::none());
    session.run(&Step::Read, false).unwrap_or_else(|e| panic!("{context}: at the end: {e}"));
    judge_crashes(&session, &fs, context);
    // Without reopening.
    session.write_until_it_goes_on().unwrap_or_else(|e| panic!("{context}: {e}"));
    session.run(&Step::Read, false).unwrap_or_else(|e| panic!("{context}: after going on: {e}"));
    judge_crashes(&session, &fs, &format!("{context}, after going on"));
    if session.db.is_none() {
        let (acked, ledger) = (session.ledger.order.acknowledged(), session.ledger.clone());
        Session::recover(&fs, ledger, acked).unwrap_or_else(|e| panic!("{context}: {e}"));
    } else {
        session.run(&Step::Reopen, true).unwrap_or_else(|e| panic!("{context}: reopening: {e}"));
        assert!(session.db.is_some(), "{context}: reopening after the fault was cleared");
        let put = Step::Write {
            writes: vec![crate::history::Write::Put { space: 0, key: 0, len: 9 }],
            synced: true,
        };
        session.run(&put, false).unwrap_or_else(|e| panic!("{context}: writing after reopening: {e}"));
    }
    let _ = fs.crash(CrashMode::KeepAll);
    lab::assert_no_background_panics(&context);
    failures
}

/// Opens what crashes of each kind would leave now, and checks the promises.
fn judge_crashes(session: &Session, fs: &FaultyFs, context: &str) {
    for mode in MODES {
        let after = fs.after_crash(mode);
        let mut ledger = session.ledger.clone();
        let promised = ledger.order.promised(mode);
        ledger.judge_checkpoints(&after).unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
        let db = lab::open(&after).unwrap_or_else(|e| panic!("{context}, {mode:?}: opening: {e}"));
        ledger.judge(&db, promised).unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
    }
}

/// Fails every `stride`-th operation until the history ends before it.
fn sweep(first: u64, stride: u64, plan: FaultPlan) {
    let mut at = first;
    loop {
        let plan = FaultPlan { fail_at: Some(at), ..plan.clone() };
        let context = format!("{plan:?}");
        if run_with(plan, &context) == 0 {
            break;
        }
        at += stride;
    }
    assert!(at > 100, "the sweep ended at operation {at}");
}

fn stride(of: u64) -> u64 {
    (of / scale() as u64).max(1)
}

#[test]
fn one_failing_operation_causes_no_wrong_answer_and_no_lost_write() {
    sweep(0, stride(4), FaultPlan { partial_append: true, ..FaultPlan::none() });
}

#[test]
fn one_failing_operation_under_any_shape_causes_no_wrong_answer_and_no_lost_write() {
    for shape in 1..lab::SHAPES.len() {
        lab::set_shape(shape);
        sweep(shape as u64, stride(31), FaultPlan { partial_append: true, ..FaultPlan::none() });
    }
    lab::set_shape(0);
}

#[test]
fn one_failing_operation_under_another_filter_causes_no_wrong_answer_and_no_lost_write() {
    for (number, filter) in lab::FILTERS.into_iter().enumerate() {
        lab::set_filter(filter);
        sweep(number as u64, stride(13), FaultPlan { partial_append: true, ..FaultPlan::none() });
        sweep(
            number as u64,
            stride(29),
            FaultPlan { only: Some(OpClass::Read), sticky: true, ..FaultPlan::none() },
        );
    }
    lab::set_filter(FilterChoice::BlockedBloom);
}

#[test]
fn a_permanently_failing_device_causes_no_wrong_answer_and_no_lost_write() {
    sweep(0, stride(6), FaultPlan { sticky: true, ..FaultPlan::none() });
}

#[test]
fn a_failing_sync_causes_no_wrong_answer_and_no_lost_write() {
    sweep(1, stride(6), FaultPlan { only: Some(OpClass::Sync), ..FaultPlan::none() });
}

#[test]
fn a_device_that_rejects_writes_causes_errors_and_nothing_worse() {
    let full = FaultPlan { error: ErrorKind::StorageFull, partial_append: true, ..FaultPlan::none() };
    sweep(2, stride(8), FaultPlan { only: Some(OpClass::Write), sticky: true, ..full.clone() });
    sweep(5, stride(8), FaultPlan { only: Some(OpClass::Name), sticky: true, ..full });
}

#[test]
fn failed_reads_are_errors_and_work_again_afterwards() {
    sweep(0, stride(8), FaultPlan { only: Some(OpClass::Read), sticky: true, ..FaultPlan::none() });
}

/// A failed sync cannot be repaired by a later successful one: the operating system has discarded
/// the pages by then. So nothing may be acknowledged until the database is reopened.
#[test]
fn while_syncs_fail_nothing_is_acknowledged_and_reads_continue() {
    let fs = FaultyFs::new(3);
    let db = lab::open(&fs).unwrap();
    db.put("before", "1").unwrap();
    db.sync().unwrap();
    db.put("buffered", "2").unwrap();
    fs.plan(FaultPlan { fail_at: Some(0), only: Some(OpClass::Sync), sticky: true, ..FaultPlan::none() });
    assert!(db.sync().is_err());
    for _ in 0..3 {
        let refused = db.put("after", "3").unwrap_err().to_string();
        assert!(refused.contains("suspended"), "{refused}");
        assert!(db.sync().is_err() && db.flush().is_err() && db.compact().is_err());
        assert!(db.create_keyspace("more", lab::tiny_keyspace()).is_err());
        assert!(db.checkpoint("/copy").is_err());
    }
    assert_eq!(db.get("before").unwrap().unwrap(), "1");
    assert_eq!(db.get("buffered").unwrap().unwrap(), "2");
    assert_eq!(db.get("after").unwrap(), None);
    assert_eq!(db.iter().count(), 2);
    assert!(db.stats().suspended.is_some() && db.stats().poisoned.is_none());
    fs.plan(FaultPlan::none());
    drop(db);
    let db = lab::open(&fs).unwrap();
    assert_eq!((db.iter().count(), db.stats().suspended), (2, None));
    db.put("after", "3").unwrap();
}
