//! Histories of concurrent transactions, judged by a checker that knows nothing of the
//! implementation ([`tamis_testkit::isolation`]), and by a serial oracle; and whether both notice
//! mistakes.

mod groups;
mod histories;
mod history;
mod prepared;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_testkit::Rng;
use tamis_testkit::isolation::{Key, Op, Txn};

use crate::transaction::options::Isolation;
use crate::transaction::options::TransactionOptions;

use crate::io::MemFs;
use crate::transaction::optimistic::Transaction;
use crate::{Db, KeyspaceOptions, Options, TransactionError};

pub(super) const KEYS: Key = 12;

/// A database with memtables that are full after some dozens of writes.
fn open() -> Db {
    let keyspace = KeyspaceOptions { memtable_bytes: 4 << 10, ..KeyspaceOptions::default() };
    let options = Options { file_system: Some(Arc::new(MemFs::new())), keyspace, ..Options::default() };
    options.open("/db").unwrap()
}

fn begin(db: &Db, isolation: Isolation) -> Transaction {
    db.transaction_with(TransactionOptions { isolation, ..TransactionOptions::default() })
}

fn key(key: Key) -> String {
    format!("key{key:02}")
}

/// Values that make memtables full; the number is unique.
fn value(number: u64) -> String {
    format!("{number:0100}")
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// A transaction that is being recorded.
struct Recorded {
    tx: Transaction,
    ops: Vec<Op>,
}

impl Recorded {
    fn begin(db: &Db, isolation: Isolation) -> Recorded {
        Recorded { tx: begin(db, isolation), ops: Vec::new() }
    }

    fn read(&mut self, k: Key) -> Option<u64> {
        let found = self.tx.get(key(k)).unwrap().map(|value| number(&value));
        self.ops.push(Op::Read { key: k, found });
        found
    }

    fn scan(&mut self, from: Key, to: Key, backwards: bool) {
        let range = self.tx.range(key(from)..key(to));
        let item = |item: <crate::Iter as Iterator>::Item| {
            let (key, value) = item.unwrap();
            (number(&key[3..]) as Key, number(&value))
        };
        let found = if backwards { range.rev().map(item).collect() } else { range.map(item).collect() };
        self.ops.push(Op::Scan { from, to, found });
    }

    fn write(&mut self, k: Key, new: Option<u64>) {
        match new {
            Some(new) => self.tx.put(key(k), value(new)).unwrap(),
            None => self.tx.delete(key(k)).unwrap(),
        }
        self.ops.push(Op::Write { key: k, value: new });
    }

    fn delete_range(&mut self, from: Key, to: Key) {
        self.tx.delete_range(key(from)..key(to)).unwrap();
        self.ops.extend((from..to).map(|key| Op::Write { key, value: None }));
    }

    /// Ends the transaction; a reader takes its place just after what it saw, as the checker does
    /// not mind readers.
    fn commit(self) -> Txn {
        let committed = match self.tx.commit() {
            Ok(seq) => Some(seq),
            Err(TransactionError::Conflict { .. } | TransactionError::TooOld { .. }) => None,
            Err(other) => panic!("{other}"),
        };
        Txn { committed, ops: self.ops }
    }
}

/// What random transactions are made of.
#[derive(Clone, Copy, Debug)]
struct Mix {
    isolation: Isolation,
    scans: bool,
    deletes: bool,
}

/// Runs random transactions in several threads and returns their history.
fn run(db: &Db, seed: u64, mix: Mix, threads: u64, each: usize) -> Vec<Txn> {
    let values = AtomicU64::new(1);
    let worker = |thread: u64| {
        let mut random = Rng::new(seed * 31 + thread);
        let mut done = Vec::new();
        for _ in 0..each {
            let mut tx = Recorded::begin(db, mix.isolation);
            for _ in 0..1 + random.below(5) {
                let k = random.below(u64::from(KEYS)) as Key;
                let to = (k + 1 + random.below(5) as Key).min(KEYS);
                match random.below(10) {
                    0..4 => _ = tx.read(k),
                    4..6 if mix.scans => tx.scan(k, to, random.chance(4)),
                    6 if mix.deletes => tx.write(k, None),
                    7 if mix.deletes && random.chance(2) => tx.delete_range(k, to),
                    _ => tx.write(k, Some(values.fetch_add(1, Relaxed))),
                }
                if random.chance(2) {
                    std::thread::yield_now();
                }
            }
            if random.below(20) == 0 {
                done.push(Txn { committed: None, ops: tx.ops });
            } else {
                done.push(tx.commit());
            }
        }
        done
    };
    std::thread::scope(|scope| {
        let worker = &worker;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || worker(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs the committed transactions of a history one after the other, in the order of their commits.
/// Returns the first read that differs.
fn replayed(history: &[Txn]) -> Result<BTreeMap<Key, u64>, String> {
    let mut order: Vec<&Txn> = history.iter().filter(|txn| txn.committed.is_some()).collect();
    // Those that share a number are readers, which come after the write of that number.
    let writes = |txn: &Txn| txn.ops.iter().any(|op| matches!(op, Op::Write { .. }));
    order.sort_by_key(|txn| (txn.committed, !writes(txn)));
    let mut state: BTreeMap<Key, u64> = BTreeMap::new();
    for (place, txn) in order.into_iter().enumerate() {
        for op in &txn.ops {
            match op {
                Op::Read { key, found } => {
                    let expected = state.get(key).copied();
                    if *found != expected {
                        return Err(format!("{place}: key {key} is {expected:?}, not {found:?}: {txn:?}"));
                    }
                }
                Op::Scan { from, to, found } => {
                    let expected: Vec<(Key, u64)> = state.range(from..to).map(|(k, v)| (*k, *v)).collect();
                    let mut found = found.clone();
                    found.sort_unstable();
                    if found != expected {
                        return Err(format!("{place}: {from}..{to} is {expected:?}, not {found:?}: {txn:?}"));
                    }
                }
                Op::Write { key, value: Some(value) } => _ = state.insert(*key, *value),
                Op::Write { key, value: None } => _ = state.remove(key),
            }
        }
    }
    Ok(state)
}

/// The contents of the database.
fn contents(db: &Db) -> BTreeMap<Key, u64> {
    let item = |item: <crate::Iter as Iterator>::Item| {
        let (key, value) = item.unwrap();
        (number(&key[3..]) as Key, number(&value))
    };
    db.iter().map(item).collect()
}
