//! Two-phase commit across crashes and failing devices. Commits of single transactions are part of
//! every history ([`history`](crate::history)): every other write is one.

use tamis::transactions::LockOptions;
use tamis::{Db, TransactionError};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::lab::{self, MODES, scale};

/// How far a history has come: what was acknowledged, and what was begun after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Begun,
    /// The old values are acknowledged, and the transaction is being prepared.
    Preparing,
    Prepared,
    Ending,
    Ended,
}

const KEYS: [&str; 3] = ["a", "b", "c"];

/// Writes old values, prepares a transaction that replaces them in two keyspaces, does other work,
/// and commits or aborts. Returns how far it came until something failed.
fn history(fs: &FaultyFs, commits: bool) -> Phase {
    let mut phase = Phase::Begun;
    let run = |phase: &mut Phase| -> Result<(), tamis::Error> {
        let db = lab::open(fs)?;
        let other = db.get_or_create_keyspace("other", lab::tiny_keyspace())?;
        for key in KEYS {
            db.put(key, "old")?;
        }
        other.put("x", "old")?;
        db.sync()?;
        *phase = Phase::Preparing;
        let mut tx = db.lock_transaction()?;
        tx.get("a")?;
        for key in KEYS {
            tx.put(key, "new")?;
        }
        tx.delete_range_in(&other, "x".."y")?;
        let prepared = tx.prepare("one")?;
        *phase = Phase::Prepared;
        // Flushes, rolls and releases logs, so that the transaction is in a table by then.
        for i in 0..30 {
            db.put(format!("fill{i}"), vec![b'v'; 300])?;
        }
        db.flush()?;
        *phase = Phase::Ending;
        if commits {
            prepared.commit()?
        } else {
            prepared.abort()?
        }
        *phase = Phase::Ended;
        Ok(())
    };
    // Nothing but a failed device makes it end early.
    let _ = run(&mut phase);
    phase
}

/// What is visible: the old values, the new ones, or nothing.
fn visible(db: &Db) -> Result<&'static str, String> {
    let error = |error: &dyn std::fmt::Display| error.to_string();
    let mut seen: Vec<String> = Vec::new();
    for key in KEYS {
        let value = db.get(key).map_err(|e| error(&e))?;
        seen.push(value.map_or("none".into(), |value| String::from_utf8_lossy(&value).into_owned()));
    }
    let other = db.keyspace("other").ok().map(|other| other.get("x")).transpose().map_err(|e| error(&e))?;
    let other = other.flatten().is_some();
    let all = |value: &str| seen.iter().all(|seen| seen == value);
    match other {
        true if all("old") => Ok("old"),
        false if all("new") => Ok("new"),
        false if !seen.contains(&"new".to_owned()) => Ok("none"),
        _ => Err(format!("{seen:?} and {other}: a transaction in part")),
    }
}

/// Judges what a crash left, and ends the transaction if it is prepared.
fn judge(fs: &FaultyFs, phase: Phase, commits: bool, commit_now: bool) -> Result<(), String> {
    let db = lab::open(fs).map_err(|e| format!("opening: {e}"))?;
    let prepared = db.prepared_transactions().map_err(|e| e.to_string())?;
    let seen = visible(&db)?;
    let done = if commits { "new" } else { "old" };
    let allowed: &[(&str, usize)] = match phase {
        Phase::Begun => &[("none", 0), ("old", 0)],
        Phase::Preparing => &[("old", 0), ("old", 1)],
        Phase::Prepared => &[("old", 1)],
        Phase::Ending => &[("old", 1), (done, 0)],
        Phase::Ended => &[(done, 0)],
    };
    if !allowed.contains(&(seen, prepared.len())) {
        return Err(format!("{phase:?}: {seen} with {} prepared", prepared.len()));
    }
    let hasty = LockOptions { timeout: std::time::Duration::ZERO, ..LockOptions::default() };
    let locked = |db: &Db, key: &str| {
        let mut tx = db.lock_transaction_with(hasty).map_err(|e| e.to_string())?;
        Ok::<bool, String>(matches!(tx.get_for_update(key), Err(TransactionError::LockTimeout { .. })))
    };
    if locked(&db, "b")? != (prepared.len() == 1) {
        return Err(format!("{phase:?}: the lock of a key is wrong"));
    }
    for prepared in prepared {
        let ended = if commit_now { prepared.commit() } else { prepared.abort() };
        ended.map_err(|e| format!("ending it: {e}"))?;
        let expected = if commit_now { "new" } else { "old" };
        if visible(&db)? != expected || locked(&db, "b")? {
            return Err(format!("{phase:?}: it did not end as {expected}"));
        }
        let after = fs.after_crash(CrashMode::DropUnsynced);
        let db = lab::open(&after).map_err(|e| format!("opening again: {e}"))?;
        if visible(&db)? != expected || !db.prepared_transactions().map_err(|e| e.to_string())?.is_empty() {
            return Err(format!("{phase:?}: its end was not durable"));
        }
    }
    let problems = db.verify().map_err(|e| e.to_string())?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("verify finds {problems:?}")) }
}

#[test]
fn a_crash_at_any_operation_leaves_a_prepared_transaction_whole() {
    lab::listen_for_panics();
    for commits in [true, false] {
        let mut stop = 0;
        let mut met = std::collections::BTreeSet::new();
        loop {
            let fs = FaultyFs::stopping_at(stop, stop);
            let phase = history(&fs, commits);
            met.insert(phase);
            let ended = fs.failures() == 0;
            let machine = fs.after_crash(CrashMode::KeepAll);
            for mode in MODES {
                let after = machine.after_crash(mode);
                judge(&after, phase, commits, stop % 2 == 0)
                    .unwrap_or_else(|e| panic!("stopped at {stop}, {mode:?}: {e}"));
            }
            lab::assert_no_background_panics(&stop);
            if ended {
                break;
            }
            stop += 1;
        }
        assert!(stop > 60 && met.len() == 5, "{stop} operations, {met:?}");
    }
}

#[test]
fn a_failing_operation_leaves_a_prepared_transaction_whole() {
    lab::listen_for_panics();
    let mut at = 0;
    loop {
        let fs = FaultyFs::new(at);
        fs.plan(FaultPlan { fail_at: Some(at), sticky: at % 2 == 1, ..FaultPlan::none() });
        let phase = history(&fs, true);
        let failures = fs.failures();
        fs.plan(FaultPlan::none());
        let machine = fs.crash(CrashMode::KeepAll);
        for mode in MODES {
            // What failed may be on the disk all the same.
            judge(&machine.after_crash(mode), phase, true, true)
                .unwrap_or_else(|e| panic!("failed at {at}, {mode:?}: {e}"));
        }
        if failures == 0 {
            break;
        }
        at += (3 / scale() as u64).max(1);
    }
    assert!(at > 60, "{at} operations");
}
