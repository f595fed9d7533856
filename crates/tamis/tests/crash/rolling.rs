//! Files that succeed one another: replaced manifests, recycled logs.

use std::path::PathBuf;

use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use crate::history::{Session, Step, Write};
use crate::lab::{self, MODES, scale};

/// The manifests that are there.
fn manifests(fs: &FaultyFs) -> Vec<PathBuf> {
    let files = fs.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.to_string_lossy().contains("MANIFEST")).collect()
}

/// Makes two edits.
fn edit_twice(session: &Session) {
    let (db, name) = (session.db.clone().unwrap(), "n".repeat(255));
    db.create_keyspace(&name, lab::tiny_keyspace()).unwrap();
    db.drop_keyspace(&name).unwrap();
}

/// Returns after how many times two edits a new manifest replaces the first. Its file does not
/// tell: space is reserved ahead.
fn until_replaced() -> usize {
    let fs = FaultyFs::new(1);
    let session = Session::open(&fs).unwrap();
    let old = manifests(&fs);
    let edits = std::iter::repeat_with(|| edit_twice(&session));
    1 + edits.take_while(|()| manifests(&fs) == old).count()
}

/// Makes so many times two edits.
fn grown(seed: u64, times: usize) -> Session {
    let session = Session::open(&FaultyFs::new(seed)).unwrap();
    (0..times).for_each(|_| edit_twice(&session));
    session
}

/// Work that makes more edits than fit before the manifest is replaced.
fn work() -> Vec<Step> {
    let mut steps = Vec::new();
    for i in 0..15 {
        steps.push(Step::Write {
            writes: vec![Write::Put { space: 0, key: i, len: 100 }],
            synced: i % 2 == 0,
        });
        steps.push(if i % 3 == 0 { Step::Create(1) } else { Step::FlushOne(0) });
        steps.push(if i % 3 == 2 { Step::Drop(1) } else { Step::Sync });
    }
    steps
}

#[test]
fn a_crash_at_any_operation_while_the_manifest_is_replaced_is_survived() {
    let times = until_replaced() - 1;
    let old = manifests(&grown(1, times).fs);
    let (mut stop, mut replaced) = (0, 0);
    loop {
        // Opening would replace the manifest: the same work is repeated on a newly grown machine.
        let mut session = grown(stop, times);
        let fs = session.fs.clone();
        let stop_at = fs.operations() + stop;
        fs.plan(FaultPlan {
            fail_at: Some(stop_at),
            sticky: true,
            partial_append: true,
            ..FaultPlan::none()
        });
        for step in &work() {
            session.run(step, true).unwrap_or_else(|e| panic!("stopped at {stop}: {e}"));
            if fs.failures() > 0 {
                break;
            }
        }
        let done = fs.failures() == 0;
        replaced += u32::from(manifests(&fs) != old);
        for mode in MODES {
            for _ in 0..if mode == CrashMode::Random { 2 } else { 1 } {
                let ledger = session.ledger.clone();
                let promised = ledger.order.promised(mode);
                Session::recover(&fs.after_crash(mode), ledger, promised)
                    .unwrap_or_else(|e| panic!("stopped at {stop}, {mode:?}: {e}"));
            }
        }
        let _ = fs.crash(CrashMode::KeepAll);
        if done {
            break;
        }
        stop += 3 / (scale() as u64).min(3);
    }
    assert!(replaced > 3, "the manifest was replaced in {replaced} of {stop} runs");
    lab::assert_no_background_panics(&"replacing the manifest");
}

/// Logs are overwritten by their successors: their old contents must not reappear, in any crash.
#[test]
fn a_recycled_log_shows_none_of_its_old_contents() {
    for seed in 0..10 * scale() as u64 {
        let fs = FaultyFs::new(seed);
        let mut session = Session::open(&fs).unwrap();
        let mut reused = 0;
        for i in 0..60u8 {
            // Larger values would stay in their logs.
            let put = Step::Write {
                writes: (0..3).map(|j| Write::Put { space: 0, key: (i + j) % 5, len: 300 }).collect(),
                synced: i % 5 == 0,
            };
            session.run(&put, false).unwrap();
            if i % 6 == 0 {
                session.run(&Step::FlushOne(0), false).unwrap();
            }
            reused += u32::from(
                fs.files().iter().filter(|(p, _)| p.extension() == Some("log".as_ref())).count() > 1,
            );
            for mode in MODES {
                let ledger = session.ledger.clone();
                let promised = ledger.order.promised(mode);
                Session::recover(&fs.after_crash(mode), ledger, promised)
                    .unwrap_or_else(|e| panic!("seed {seed}, write {i}, {mode:?}: {e}"));
            }
        }
        assert!(reused > 10, "no log was ever kept");
    }
}

/// Overwritten logs, including short ones in the files of long ones, are truncated at their end:
/// whatever part of that reaches the disk, wherever the world stops.
#[test]
fn a_crash_at_any_operation_while_logs_are_rolled_and_truncated_is_survived() {
    let put = |key, synced| {
        let writes = (0..3).map(|i| Write::Put { space: 0, key: key + i, len: 280 }).collect();
        Step::Write { writes, synced }
    };
    let small = |key| Step::Write { writes: vec![Write::Put { space: 0, key, len: 20 }], synced: false };
    let mut steps = Vec::new();
    for round in 0..5u8 {
        // Some reserve space more than once, some leave most of the file unused.
        let writes = [4, 1, 5, 1, 2][usize::from(round)];
        steps.extend((0..writes).map(|i| put(round + i, i % 2 == 0)));
        steps.push(Step::FlushOne(0));
        if round == 3 {
            steps.extend([small(9), Step::Checkpoint, small(8)]);
        }
    }
    let mut stop = 0;
    loop {
        let fs = FaultyFs::new(stop);
        let mut session = Session::open(&fs).unwrap();
        let fail_at = Some(fs.operations() + stop);
        fs.plan(FaultPlan { fail_at, sticky: true, partial_append: true, ..FaultPlan::none() });
        for step in &steps {
            session.run(step, true).unwrap_or_else(|e| panic!("stopped at {stop}: {e}"));
            if fs.failures() > 0 {
                break;
            }
        }
        let done = fs.failures() == 0;
        for mode in MODES {
            for round in 0..if mode == CrashMode::Random { 3 * scale() } else { 1 } {
                let (after, ledger) = (fs.after_crash(mode), session.ledger.clone());
                let promised = ledger.order.promised(mode);
                ledger
                    .judge_checkpoints(&after)
                    .and_then(|()| Session::recover(&after, ledger, promised).map(drop))
                    .unwrap_or_else(|e| panic!("stopped at {stop}, {mode:?}, round {round}: {e}"));
            }
        }
        let _ = fs.crash(CrashMode::KeepAll);
        if done {
            break;
        }
        stop += 1;
    }
    assert!(stop > 100, "the work had only {stop} operations");
    lab::assert_no_background_panics(&"cutting logs");
}
