//! Concurrent transactions under the schedules that seeds draw: validation, publishing, and what
//! flushes and ingestions of the engine do meanwhile. Judged by the graph of dependencies
//! ([`tamis_testkit::isolation`]); the disk is sound.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use fastrand::Rng;
use tamis::transactions::{Isolation, TransactionOptions};
use tamis::{Db, KeyspaceOptions, Options, TransactionError};
use tamis_testkit::FaultyFs;
use tamis_testkit::isolation::{Key, Level, Op, Txn, anomalies};

use crate::machine::{Machine, Report, Strategy};

const KEYS: Key = 8;
const CLIENTS: u64 = 3;
const EACH: usize = 12;

/// The steps after which a seed is considered hung.
const MOST_STEPS: u64 = 1_000_000;

/// Runs the transactions of a seed.
pub fn run(seed: u64) -> Report {
    let mut rng = Rng::with_seed(seed);
    let every = [1, 2, 4, 8, 30][rng.usize(..5)];
    let strategy = match rng.bool() {
        true => Strategy::Random { every },
        false => Strategy::Priorities { every: every * 8 },
    };
    let machine = Machine::new(seed, strategy, MOST_STEPS);
    let inside = machine.clone();
    machine.run(move || {
        if let Err(what) = history(&inside, seed, rng) {
            inside.fail(what);
        }
    })
}

fn history(machine: &Arc<Machine>, seed: u64, mut rng: Rng) -> Result<(), String> {
    let (isolation, level) = match rng.u8(..3) {
        0 => (Isolation::Snapshot, Level::Snapshot),
        _ => (Isolation::Serializable, Level::Serializable),
    };
    let options = Options {
        file_system: Some(Arc::new(FaultyFs::new(seed))),
        // Some histories outlive it.
        transaction_history_bytes: [0, 6 << 10, 64 << 20][rng.usize(..3)],
        keyspace: KeyspaceOptions { memtable_bytes: 4 << 10, level0_runs: 2, ..KeyspaceOptions::default() },
        ..Options::default()
    };
    let db = options.open("/db").map_err(|error| format!("opening: {error}"))?;
    let done: Arc<Mutex<Vec<Txn>>> = Arc::default();
    let values = Arc::new(AtomicU64::new(1));
    let mut threads = Vec::new();
    for client in 0..CLIENTS {
        let (db, done, values, machine) = (db.clone(), done.clone(), values.clone(), machine.clone());
        let rng = Rng::with_seed(seed * CLIENTS + client);
        let work = {
            let inside = machine.clone();
            move || {
                if let Err(what) = work(&db, rng, isolation, &values, &done) {
                    inside.fail(format!("client {client}: {what}"));
                }
            }
        };
        threads.push(machine.start(&format!("client-{client}"), work).map_err(|error| error.to_string())?);
    }
    threads.into_iter().for_each(crate::machine::Handle::join);
    let history = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
    if db.stats().transaction_history_bytes > 0 {
        return Err("memtables are kept although no transaction is open".to_owned());
    }
    match anomalies(&history).into_iter().find(|anomaly| !level.admits(anomaly.kind)) {
        Some(anomaly) => Err(format!("{isolation:?} transactions show {anomaly}")),
        None => Ok(()),
    }
}

fn key(k: Key) -> String {
    format!("key{k}")
}

fn work(
    db: &Db,
    mut rng: Rng,
    isolation: Isolation,
    values: &AtomicU64,
    done: &Mutex<Vec<Txn>>,
) -> Result<(), String> {
    let wrong = |error: &dyn std::fmt::Display| error.to_string();
    let number = |bytes: &[u8]| -> Result<u64, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| wrong(&error))?;
        text.trim_end_matches('.').parse().map_err(|_| format!("`{text}` is no value"))
    };
    for _ in 0..EACH {
        let mut tx = db.transaction_with(TransactionOptions { isolation, ..TransactionOptions::default() });
        let mut ops = Vec::new();
        for _ in 0..rng.usize(1..5) {
            let k = rng.u32(..KEYS);
            match rng.u8(..8) {
                0..3 => {
                    let found = tx.get(key(k)).map_err(|error| wrong(&error))?;
                    ops.push(Op::Read { key: k, found: found.map(|value| number(&value)).transpose()? });
                }
                3 => {
                    let mut found = Vec::new();
                    for item in tx.range(key(k)..key(KEYS)) {
                        let (name, value) = item.map_err(|error| wrong(&error))?;
                        found.push((number(&name[3..])? as Key, number(&value)?));
                    }
                    ops.push(Op::Scan { from: k, to: KEYS, found });
                }
                _ => {
                    let value = values.fetch_add(1, Relaxed);
                    // Long, so that memtables are flushed and forgotten.
                    tx.put(key(k), format!("{value}{}", ".".repeat(400))).map_err(|error| wrong(&error))?;
                    ops.push(Op::Write { key: k, value: Some(value) });
                }
            }
        }
        let committed = match tx.commit() {
            Ok(seq) => Some(seq),
            Err(TransactionError::Conflict { .. } | TransactionError::TooOld { .. }) => None,
            Err(error) => return Err(format!("a commit: {error}")),
        };
        done.lock().unwrap_or_else(PoisonError::into_inner).push(Txn { committed, ops });
    }
    Ok(())
}

/// Runs seeds from `from` on until one fails or the time is over. Returns the number of seeds, and
/// the failure.
pub fn hunt(from: u64, seeds: u64, limit: std::time::Duration) -> (u64, Option<(u64, String)>) {
    let started = std::time::Instant::now();
    let mut ran = 0;
    while ran < seeds && started.elapsed() < limit {
        let seed = from + ran;
        ran += 1;
        if let Some(failure) = run(seed).failure {
            return (ran, Some((seed, failure)));
        }
    }
    (ran, None)
}
