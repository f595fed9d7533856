//! Disks that fill up.

use tamis::io::FaultyFs;

use crate::history::{Session, Step, Write, steps, tour};
use crate::lab::{self, MODES, scale};

fn total(fs: &FaultyFs) -> u64 {
    fs.files().iter().map(|(_, len)| len).sum()
}

/// Runs `history` on a disk of `capacity` bytes, then makes room and opens again.
fn fill_and_free(history: &[Step], capacity: u64, seed: u64) {
    let context = format!("capacity {capacity}, seed {seed}");
    let fs = FaultyFs::new(seed);
    fs.set_capacity(Some(capacity));
    let Ok(mut session) = Session::open(&fs) else {
        fs.set_capacity(None);
        lab::open(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
        return;
    };
    for (i, step) in history.iter().enumerate() {
        session.run(step, true).unwrap_or_else(|e| panic!("{context}: step {i} {step:?}: {e}"));
    }
    session.run(&Step::Read, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    for mode in MODES {
        let after = fs.after_crash(mode);
        after.set_capacity(None);
        let mut ledger = session.ledger.clone();
        let promised = ledger.promised(mode);
        let db = lab::open(&after).unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
        ledger.judge(&db, promised).unwrap_or_else(|e| panic!("{context}, {mode:?}: {e}"));
    }
    // Opening on the full disk may fail, but must harm nothing.
    session.run(&Step::Reopen, true).unwrap_or_else(|e| panic!("{context}: {e}"));
    fs.set_capacity(None);
    if session.db.is_none() {
        let acked = session.ledger.acked;
        session = Session::recover(&fs, session.ledger, acked).unwrap_or_else(|e| panic!("{context}: {e}"));
    } else {
        session.run(&Step::Reopen, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    }
    let put = Step::Write { writes: vec![Write::Put { space: 0, key: 0, len: 9 }], synced: true };
    session.run(&put, false).unwrap_or_else(|e| panic!("{context}: {e}"));
    lab::assert_no_background_panics(&context);
}

#[test]
fn a_full_disk_is_an_error_and_freeing_space_is_all_it_takes() {
    let needed = {
        let fs = FaultyFs::new(0);
        let mut session = Session::open(&fs).unwrap();
        let mut most = 0;
        for step in &tour() {
            session.run(step, false).unwrap();
            most = most.max(total(&fs));
        }
        most
    };
    let points = 60 * scale() as u64;
    for i in 0..points {
        fill_and_free(&tour(), needed * i / points, i);
    }
    for seed in 0..20 * scale() as u64 {
        fill_and_free(&lab::sample(&steps(60), seed), 2000 + seed * 1999 % 60_000, seed);
    }
}

#[test]
fn the_error_says_that_the_disk_is_full() {
    let fs = FaultyFs::new(1);
    let db = lab::open(&fs).unwrap();
    fs.set_capacity(Some(total(&fs) + 3000));
    let error = (0..100).find_map(|_| db.put("key", vec![7; 500]).err()).expect("it is full");
    assert!(error.to_string().contains("storage") || error.to_string().contains("space"), "{error}");
}
