//! Crashes: at every operation of a short history, at every step of long ones, and repeatedly.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use tamis::options::FilterChoice;
use tamis_testkit::{CrashMode, FaultyFs};

use crate::history::{Session, Step, steps, tour};
use crate::lab::{self, MODES, scale};
use crate::ledger::Ledger;

/// Takes a machine that crashed in `mode` through recovery, judges it, continues the work and
/// crashes it again, `depth` times. Consumes the machine.
fn survive(
    fs: &FaultyFs,
    ledger: Ledger,
    mode: CrashMode,
    more: &[Step],
    depth: usize,
) -> Result<(), String> {
    let promised = ledger.order.promised(mode);
    ledger.judge_checkpoints(fs)?;
    let mut session = Session::recover(fs, ledger, promised)?;
    session.ledger.checkpoints.clear();
    for (i, step) in more.iter().enumerate() {
        session.run(step, false).map_err(|e| format!("step {i} after the crash: {e}"))?;
    }
    if depth > 0 {
        for mode in MODES {
            let after = session.fs.after_crash(mode);
            survive(&after, session.ledger.clone(), mode, &more[..more.len().min(2)], depth - 1)
                .map_err(|e| format!("then {mode:?}: {e}"))?;
        }
    }
    Ok(())
}

/// Stops the world at operation `stop`: nothing later reaches the disk. Returns the machine at that
/// point and the ledger, or `None` if the history ended before.
fn stopped_at(steps: &[Step], stop: u64, seed: u64) -> Result<Option<(FaultyFs, Ledger)>, String> {
    let fs = FaultyFs::stopping_at(seed, stop);
    let Ok(mut session) = Session::open(&fs) else { return Ok(Some((fs, Ledger::default()))) };
    for step in steps {
        session.run(step, true)?;
        if fs.failures() > 0 {
            break;
        }
    }
    if fs.failures() == 0 {
        return Ok(None);
    }
    let machine = fs.after_crash(CrashMode::KeepAll);
    // So that closing can do nothing.
    let _ = fs.crash(CrashMode::KeepAll);
    Ok(Some((machine, session.ledger)))
}

#[test]
fn a_crash_at_any_operation_leaves_a_prefix_with_all_promised_writes() {
    let steps = tour();
    let mut stop = 0;
    loop {
        let context = format!("stopped at operation {stop}");
        let Some((fs, ledger)) = stopped_at(&steps, stop, stop).unwrap_or_else(|e| panic!("{context}: {e}"))
        else {
            break;
        };
        for mode in MODES {
            for round in 0..if mode == CrashMode::Random { 2 * scale() } else { 1 } {
                let after = fs.after_crash(mode);
                let result = survive(&after, ledger.clone(), mode, &steps[1..3], 0);
                result.unwrap_or_else(|e| panic!("{context}, {mode:?}, round {round}: {e}"));
            }
        }
        lab::assert_no_background_panics(&context);
        stop += 1;
    }
    assert!(stop > 300, "the history had only {stop} operations");
}

/// The same under every other tree shape, at some of the operations; recovery uses yet another
/// shape.
#[test]
fn a_crash_under_any_shape_leaves_a_prefix_with_all_promised_writes() {
    let steps = tour();
    for shape in 1..lab::SHAPES.len() {
        let mut stops = 0;
        for stop in (shape as u64..).step_by(23 / scale().min(23)) {
            lab::set_shape(shape);
            let context = format!("shape {:?} stopped at operation {stop}", lab::SHAPES[shape]);
            let Some((fs, ledger)) =
                stopped_at(&steps, stop, stop).unwrap_or_else(|e| panic!("{context}: {e}"))
            else {
                break;
            };
            let mode = MODES[(stop % 3) as usize];
            lab::set_shape(shape + stop as usize % 2 * (1 + shape));
            let result = survive(&fs.after_crash(mode), ledger, mode, &steps[1..3], 0);
            result.unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
            lab::assert_no_background_panics(&context);
            stops += 1;
        }
        assert!(stops > 8, "the history had only {stops} stops under {:?}", lab::SHAPES[shape]);
    }
    lab::set_shape(0);
}

/// The same with a global or an elastic filter; recovery sometimes uses another one.
#[test]
fn a_crash_under_another_filter_leaves_a_prefix_with_all_promised_writes() {
    let steps = tour();
    for (number, filter) in lab::FILTERS.into_iter().enumerate() {
        let mut stops = 0;
        for stop in (number as u64..).step_by(11 / scale().min(11)) {
            lab::set_filter(filter);
            let context = format!("{filter:?} stopped at operation {stop}");
            let Some((fs, ledger)) =
                stopped_at(&steps, stop, stop).unwrap_or_else(|e| panic!("{context}: {e}"))
            else {
                break;
            };
            let mode = MODES[(stop % 3) as usize];
            match stop % 4 {
                0 => lab::set_filter(FilterChoice::BlockedBloom),
                1 => lab::set_filter(lab::FILTERS[(number + 1) % lab::FILTERS.len()]),
                _ => {}
            }
            let result = survive(&fs.after_crash(mode), ledger, mode, &steps[1..3], 0);
            result.unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
            lab::assert_no_background_panics(&context);
            stops += 1;
        }
        assert!(stops > 20, "the history had only {stops} stops under {filter:?}");
    }
    lab::set_filter(FilterChoice::BlockedBloom);
}

/// Runs a history and examines a crash after each step, at whatever point background work has
/// reached. Every opening has another shape.
fn crash_after_each_step(history: &[Step], more: &[Step], seed: u64) -> Result<(), String> {
    lab::set_shape(seed as usize % 64);
    let fs = FaultyFs::new(seed);
    let mut session = Session::open(&fs).map_err(|e| e.to_string())?;
    for (i, step) in history.iter().enumerate() {
        session.run(step, false).map_err(|e| format!("step {i}: {e}"))?;
        let mode = MODES[(i + seed as usize) % 3];
        let depth = if i % 16 == 0 { 2 } else { usize::from(i % 4 == 0) };
        let after = fs.after_crash(mode);
        lab::set_shape(seed as usize % 64 + i);
        survive(&after, session.ledger.clone(), mode, more, depth)
            .map_err(|e| format!("{mode:?} after step {i} ({step:?}): {e}"))?;
    }
    Ok(())
}

#[test]
fn random_histories_survive_repeated_crashes_of_all_kinds() {
    lab::listen_for_panics();
    let config = Config { cases: 12 * scale() as u32, max_shrink_iters: 200, ..Config::default() };
    let strategy = (steps(70), steps(5), any::<u64>());
    let result = lab::runner(0xC4A5, config).run(&strategy, |(history, more, seed)| {
        crash_after_each_step(&history, &more, seed).map_err(TestCaseError::fail)
    });
    result.unwrap_or_else(|e| panic!("{e}"));
    lab::assert_no_background_panics(&"random histories");
}

#[test]
fn random_histories_under_other_filters_survive_crashes() {
    lab::listen_for_panics();
    for (number, filter) in lab::FILTERS.into_iter().enumerate() {
        lab::set_filter(filter);
        let config = Config { cases: 3 * scale() as u32, max_shrink_iters: 100, ..Config::default() };
        let strategy = (steps(70), steps(5), any::<u64>());
        let result = lab::runner(0x61F0 + number as u64, config).run(&strategy, |(history, more, seed)| {
            crash_after_each_step(&history, &more, seed).map_err(TestCaseError::fail)
        });
        result.unwrap_or_else(|e| panic!("{filter:?}: {e}"));
    }
    lab::set_filter(FilterChoice::BlockedBloom);
    lab::assert_no_background_panics(&"random histories under other filters");
}

/// With buffered writes only, the process dies: not one acknowledged write may be lost.
#[test]
fn a_killed_process_loses_no_acknowledged_write() {
    for seed in 0..20 * scale() as u64 {
        let mut history = lab::sample(&steps(60), seed);
        history.retain(|step| {
            matches!(step, Step::Write { .. } | Step::Create(_) | Step::Drop(_) | Step::FlushOne(_))
        });
        history.iter_mut().for_each(|step| {
            if let Step::Write { synced, .. } = step {
                *synced = false;
            }
        });
        let fs = FaultyFs::new(seed);
        let mut session = Session::open(&fs).unwrap();
        for step in &history {
            session.run(step, false).unwrap();
            let mut ledger = session.ledger.clone();
            let db = lab::open(&fs.after_crash(CrashMode::KeepAll)).unwrap();
            let acked = ledger.order.acknowledged();
            let kept = ledger.judge(&db, acked).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{history:#?}"));
            assert_eq!(kept, acked);
        }
    }
}

/// Many writers at once: group commit may put their batches into one record in any order, but each
/// writer's own order holds, a batch is atomic, and synced writes are present.
#[test]
fn concurrent_writers_each_find_their_own_prefix_after_a_crash() {
    use std::sync::Mutex;
    use tamis::{Durability, WriteBatch};
    for seed in 0..6 * scale() as u64 {
        let fs = FaultyFs::new(seed);
        let db = lab::open(&fs).unwrap();
        let side = db.create_keyspace("side", lab::tiny_keyspace()).unwrap();
        // The crash happens while no thread is between "acknowledged" and "noted": notes are made
        // under the lock that the crash takes, and only those from before it are read.
        let noted = Mutex::new([0u32; 4]);
        let mut images = Vec::new();
        std::thread::scope(|scope| {
            for writer in 0..4usize {
                let (db, side, noted) = (&db, &side, &noted);
                scope.spawn(move || {
                    for i in 1..=60u32 {
                        let mut batch = WriteBatch::new();
                        let value = format!("{i:08}{}", "x".repeat(150));
                        batch.put(format!("w{writer}"), &value).put_in(side, format!("w{writer}"), &value);
                        let synced = i % 7 == 0;
                        let durability = if synced { Durability::Sync } else { Durability::Buffered };
                        db.write_with(batch, durability).unwrap();
                        if synced {
                            noted.lock().unwrap()[writer] = i;
                        }
                    }
                });
            }
            for mode in MODES.iter().cycle().take(24) {
                std::thread::yield_now();
                let promised = *noted.lock().unwrap();
                images.push((*mode, promised, fs.after_crash(*mode)));
            }
        });
        for (mode, promised, image) in images {
            let db = lab::open(&image).unwrap();
            let side = db.keyspace("side").unwrap();
            for (writer, promised) in promised.into_iter().enumerate() {
                let here = db.get(format!("w{writer}")).unwrap().map(|v| v.to_vec());
                let there = side.get(format!("w{writer}")).unwrap().map(|v| v.to_vec());
                assert_eq!(here, there, "half a batch: seed {seed} {mode:?} writer {writer}");
                let found = here.map_or(0, |v| std::str::from_utf8(&v[..8]).unwrap().parse().unwrap());
                assert!(found >= promised, "seed {seed} {mode:?} writer {writer}: {found} < {promised}");
            }
        }
    }
    lab::assert_no_background_panics(&"concurrent writers");
}

/// A batch of more than 1 MiB is written to the log in several writes, so a crash may fall between
/// them.
#[test]
fn a_crash_within_a_large_batch_leaves_it_whole_or_absent() {
    let put = |space, key, len| crate::history::Write::Put { space, key, len };
    let steps = [
        Step::Create(1),
        Step::Write { writes: vec![put(0, 1, 50)], synced: true },
        Step::Write {
            writes: vec![put(0, 1, 1_200_000), put(1, 2, 1_100_000), put(0, 3, 10)],
            synced: false,
        },
        Step::Write { writes: vec![put(1, 4, 1_100_000), put(0, 4, 1_500_000)], synced: true },
        Step::Write { writes: vec![put(1, 1, 20)], synced: false },
    ];
    for stop in (12..).step_by(2) {
        let Some((fs, ledger)) = stopped_at(&steps, stop, stop).unwrap_or_else(|e| panic!("at {stop}: {e}"))
        else {
            break;
        };
        for mode in MODES {
            let after = fs.after_crash(mode);
            let result = survive(&after, ledger.clone(), mode, &steps[4..], 0);
            result.unwrap_or_else(|e| panic!("stopped at {stop}, {mode:?}: {e}"));
        }
    }
}

/// With `durability = every …`, a write survives a power failure after a while, though nobody calls
/// anything.
#[test]
fn writes_become_durable_by_themselves_if_they_are_synced_periodically() {
    let fs = FaultyFs::new(1);
    let period = std::time::Duration::from_millis(1);
    let options = tamis::Options { durability: tamis::Durability::Every(period), ..lab::tiny(&fs) };
    let db = options.open(lab::DIR).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "value").unwrap();
        // The state is waited for, not the period.
        while lab::open(&fs.after_crash(CrashMode::DropUnsynced)).unwrap().get(key).unwrap().is_none() {
            std::thread::sleep(period);
        }
    }
}
