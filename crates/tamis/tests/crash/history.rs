//! Histories: sequences of steps, and a session that executes them and keeps the ledger.

use std::path::PathBuf;

use proptest::prelude::*;
use tamis::transactions::TransactionOptions;
use tamis::{
    AdminError, Db, Durability, Error, Keyspace, OpenError, Transaction, TransactionError, WriteBatch,
    WriteError,
};
use tamis_testkit::FaultyFs;

use crate::lab;
use crate::ledger::{Batch, Checkpoint, Ledger, Op, Presence, differences, read_all};

pub(crate) const KEYS: u8 = 24;

const NAMES: [&str; 3] = ["default", "a", "b"];

pub(crate) fn key(i: u8) -> Vec<u8> {
    format!("key{i:02}").into_bytes()
}

/// One write of a batch. Missing keyspaces are replaced by the default one.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Put { space: usize, key: u8, len: usize },
    Delete { space: usize, key: u8 },
    DeleteRange { space: usize, from: u8, to: u8 },
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write {
        writes: Vec<Write>,
        synced: bool,
    },
    Sync,
    Flush,
    FlushOne(usize),
    Compact(usize),
    Settle,
    Create(usize),
    Drop(usize),
    /// Renames one of the two keyspaces that are not the default one to the other's name, if that
    /// is free.
    Rename(usize),
    Checkpoint,
    Reopen,
    /// Reads and compares all contents.
    Read,
}

fn write() -> impl Strategy<Value = Write> {
    let space = || 0..NAMES.len();
    prop_oneof![
        8 => (space(), 0..KEYS, 0usize..700).prop_map(|(space, key, len)| Write::Put { space, key, len }),
        2 => (space(), 0..KEYS).prop_map(|(space, key)| Write::Delete { space, key }),
        1 => (space(), 0..KEYS, 0u8..8)
            .prop_map(|(space, from, n)| Write::DeleteRange { space, from, to: (from + n).min(KEYS) }),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (prop::collection::vec(write(), 1..4), prop::bool::weighted(0.15))
            .prop_map(|(writes, synced)| Step::Write { writes, synced }),
        3 => Just(Step::Sync),
        2 => Just(Step::Flush),
        2 => (0..NAMES.len()).prop_map(Step::FlushOne),
        1 => (0..NAMES.len()).prop_map(Step::Compact),
        1 => Just(Step::Settle),
        2 => (1..NAMES.len()).prop_map(Step::Create),
        1 => (1..NAMES.len()).prop_map(Step::Drop),
        1 => (1..NAMES.len()).prop_map(Step::Rename),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        2 => Just(Step::Read),
    ]
}

pub(crate) fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), count)
}

/// A short history in which every kind of step occurs.
pub(crate) fn tour() -> Vec<Step> {
    let put = |space, key, len| Write::Put { space, key, len };
    let mut steps = vec![Step::Create(1)];
    let fill = |steps: &mut Vec<Step>, from: u8, synced_every: u8| {
        for i in from..from + 9 {
            steps.push(Step::Write {
                writes: vec![put(usize::from(i % 2), i % KEYS, 600), put(0, (i * 7) % KEYS, 300)],
                synced: i % synced_every == 0,
            });
        }
    };
    fill(&mut steps, 0, 100);
    steps.push(Step::Write { writes: vec![Write::DeleteRange { space: 0, from: 3, to: 6 }], synced: false });
    steps.push(Step::Sync);
    steps.push(Step::FlushOne(1));
    fill(&mut steps, 9, 4);
    steps.push(Step::Checkpoint);
    steps.push(Step::Create(2));
    steps
        .push(Step::Write { writes: vec![put(2, 1, 100), Write::Delete { space: 0, key: 1 }], synced: true });
    fill(&mut steps, 18, 100);
    steps.push(Step::Drop(2));
    steps.push(Step::Read);
    steps.push(Step::Rename(1));
    steps.push(Step::Write { writes: vec![put(2, 3, 50)], synced: false });
    steps.push(Step::Reopen);
    fill(&mut steps, 5, 100);
    steps.push(Step::Rename(2));
    steps.push(Step::Flush);
    steps.push(Step::Compact(0));
    steps.push(Step::Read);
    fill(&mut steps, 11, 3);
    steps
}

/// Writes that become one.
enum Made {
    Batch(WriteBatch),
    Transaction(Transaction),
}

/// A database in use, with its ledger. `db` is `None` where it could not be reopened.
pub(crate) struct Session {
    pub(crate) fs: FaultyFs,
    pub(crate) db: Option<Db>,
    pub(crate) ledger: Ledger,
    serial: usize,
}

impl Session {
    pub(crate) fn open(fs: &FaultyFs) -> Result<Session, OpenError> {
        lab::listen_for_panics();
        Ok(Session { db: Some(lab::open(fs)?), fs: fs.clone(), ledger: Ledger::default(), serial: 0 })
    }

    /// Opens what a crash left, judges it, and continues from there.
    pub(crate) fn recover(fs: &FaultyFs, mut ledger: Ledger, promised: usize) -> Result<Session, String> {
        let db = lab::open(fs).map_err(|e| format!("opening after a crash: {e}"))?;
        ledger.judge(&db, promised)?;
        Ok(Session { fs: fs.clone(), db: Some(db), ledger, serial: 1_000_000 })
    }

    /// Executes one step. `Err` means a broken promise; a failed step is not one if `failing` says
    /// that the device may fail.
    pub(crate) fn run(&mut self, step: &Step, failing: bool) -> Result<(), String> {
        let Some(db) = self.db.clone() else { return Ok(()) };
        let failures = self.fs.failures();
        let result = match step {
            Step::Write { writes, synced } => self.write(&db, writes, *synced),
            Step::Sync => self.sync(&db),
            Step::Flush => self.flushed(db.flush()),
            Step::FlushOne(space) => self.space(&db, *space).0.flush().map_err(Into::into),
            Step::Compact(space) => self.space(&db, *space).0.compact().map_err(Into::into),
            Step::Settle => db.wait_for_compaction().map_err(Into::into),
            Step::Create(space) => self.create(&db, NAMES[*space]),
            Step::Drop(space) => self.drop_keyspace(&db, NAMES[*space]),
            Step::Rename(space) => self.rename(&db, NAMES[*space], NAMES[3 - *space]),
            Step::Checkpoint => self.checkpoint(&db),
            Step::Reopen => {
                drop(db);
                return self.reopen(failing);
            }
            Step::Read => return self.read(&db, failures),
        };
        if let Some(cause) = db.stats().poisoned {
            return Err(format!("{step:?}: writes stopped for good: {cause}"));
        }
        match result {
            Ok(()) => Ok(()),
            Err(_) if failing => Ok(()),
            Err(error) => Err(format!("{step:?}: {error}")),
        }
    }

    /// Writes until a write is acknowledged, as a caller may do after freeing space or repairing
    /// the device, without reopening.
    pub(crate) fn write_until_it_goes_on(&mut self) -> Result<(), String> {
        let Some(db) = self.db.clone() else { return Ok(()) };
        let writes = [Write::Put { space: 0, key: 1, len: 9 }];
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while let Err(error) = self.write(&db, &writes, true) {
            let refused = matches!(&error, Error::Write(WriteError::Suspended { .. }));
            if !refused || std::time::Instant::now() > deadline {
                return Err(format!("writes do not resume: {error}; {:?}", db.stats().troubles));
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Ok(())
    }

    fn space(&self, db: &Db, space: usize) -> (Keyspace, u32) {
        let name = match self.ledger.names.get(NAMES[space]) {
            Some((_, Presence::There)) => NAMES[space],
            _ => NAMES[0],
        };
        (db.keyspace(name).expect("the ledger says it is there"), self.ledger.names[name].0)
    }

    fn write(&mut self, db: &Db, writes: &[Write], synced: bool) -> Result<(), Error> {
        self.serial += 1;
        let mut noted = Batch::new();
        // Every other write is a transaction, which reads what it writes.
        let mut made = match self.serial % 2 {
            0 => Made::Batch(WriteBatch::new()),
            _ => Made::Transaction(db.transaction_with(TransactionOptions {
                durability: Some(if synced { Durability::Sync } else { Durability::Buffered }),
                ..TransactionOptions::default()
            })),
        };
        for write in writes {
            match *write {
                Write::Put { space, key: k, len } => {
                    let (keyspace, id) = self.space(db, space);
                    let value = format!("{}:{}", self.serial, "v".repeat(len)).into_bytes();
                    match &mut made {
                        Made::Batch(batch) => _ = batch.put_in(&keyspace, key(k), &value),
                        Made::Transaction(tx) => {
                            // A failing device may fail this, too.
                            let _ = tx.keyspace(&keyspace).get(key(k));
                            tx.put_in(&keyspace, key(k), &value)?;
                        }
                    }
                    noted.push(Op::Put(id, key(k), value));
                }
                Write::Delete { space, key: k } => {
                    let (keyspace, id) = self.space(db, space);
                    match &mut made {
                        Made::Batch(batch) => _ = batch.delete_in(&keyspace, key(k)),
                        Made::Transaction(tx) => tx.delete_in(&keyspace, key(k))?,
                    }
                    noted.push(Op::Delete(id, key(k)));
                }
                Write::DeleteRange { space, from, to } => {
                    let (keyspace, id) = self.space(db, space);
                    match &mut made {
                        Made::Batch(batch) => _ = batch.delete_range_in(&keyspace, key(from)..key(to)),
                        Made::Transaction(tx) => {
                            let _ = tx.keyspace(&keyspace).range(key(from)..key(to)).count();
                            tx.delete_range_in(&keyspace, key(from)..key(to))?;
                        }
                    }
                    noted.push(Op::DeleteRange(id, key(from), key(to)));
                }
            }
        }
        let result = match made {
            Made::Batch(batch) => {
                let durability = if synced { Durability::Sync } else { Durability::Buffered };
                db.write_with(batch, durability)
            }
            Made::Transaction(tx) => match tx.commit() {
                Ok(_) => Ok(()),
                Err(TransactionError::Write(error)) => Err(error),
                Err(other) => panic!("nobody else writes: {other}"),
            },
        };
        let ledger = &mut self.ledger;
        match result {
            Ok(()) => {
                ledger.order.acknowledge(noted);
                if synced {
                    ledger.order.all_is_safe();
                }
                Ok(())
            }
            Err(error) => {
                // It may be in the log, or was refused before it got there. If this write was tried
                // at all, one that failed before it is lost for good.
                if matches!(error, WriteError::Storage(_)) {
                    ledger.order.doubt(noted);
                }
                Err(error.into())
            }
        }
    }

    fn sync(&mut self, db: &Db) -> Result<(), Error> {
        db.sync()?;
        self.ledger.order.all_is_safe();
        Ok(())
    }

    fn flushed(&mut self, result: Result<(), AdminError>) -> Result<(), Error> {
        result?;
        self.ledger.order.all_is_safe();
        Ok(())
    }

    fn create(&mut self, db: &Db, name: &str) -> Result<(), Error> {
        if self.ledger.names.contains_key(name) {
            return Ok(());
        }
        let id = self.ledger.next;
        self.ledger.next += 1;
        let result = db.create_keyspace(name, lab::tiny_keyspace());
        let presence = if result.is_ok() { Presence::There } else { Presence::Unknown };
        self.ledger.names.insert(name.to_owned(), (id, presence));
        result.map(drop).map_err(Into::into)
    }

    fn drop_keyspace(&mut self, db: &Db, name: &str) -> Result<(), Error> {
        match self.ledger.names.get_mut(name) {
            Some(entry) if entry.1 == Presence::There => entry.1 = Presence::Unknown,
            _ => return Ok(()),
        }
        db.drop_keyspace(name)?;
        self.ledger.names.remove(name);
        Ok(())
    }

    fn rename(&mut self, db: &Db, from: &str, to: &str) -> Result<(), Error> {
        let Some(&(id, Presence::There)) = self.ledger.names.get(from) else { return Ok(()) };
        if self.ledger.names.contains_key(to) {
            return Ok(());
        }
        let result = db.rename_keyspace(from, to);
        match &result {
            Ok(()) => {
                self.ledger.names.remove(from);
                self.ledger.names.insert(to.to_owned(), (id, Presence::There));
            }
            Err(_) => {
                for name in [from, to] {
                    self.ledger.names.insert(name.to_owned(), (id, Presence::OneOf));
                }
            }
        }
        result.map_err(Into::into)
    }

    fn checkpoint(&mut self, db: &Db) -> Result<(), Error> {
        self.serial += 1;
        let path = PathBuf::from(format!("/copy{}", self.serial));
        let (state, names) = (self.ledger.order.visible(), self.ledger.names.clone());
        self.ledger.checkpoints.push(Checkpoint { path: path.clone(), state, names, done: false });
        db.checkpoint(&path)?;
        self.ledger.checkpoints.last_mut().expect("just pushed").done = true;
        Ok(())
    }

    /// Closes and reopens. Everything that the operating system received is there again, whatever
    /// failed.
    fn reopen(&mut self, failing: bool) -> Result<(), String> {
        let closed = self.db.take().expect("checked by the caller").close();
        match closed {
            Ok(()) => self.ledger.order.all_is_safe(),
            Err(error) if failing => drop(error),
            Err(error) => return Err(format!("closing: {error}")),
        }
        let failures = self.fs.failures();
        match lab::open(&self.fs) {
            Ok(db) => {
                self.db = Some(db);
                let mut judged = self.ledger.clone();
                match judged.judge(self.db.as_ref().expect("just opened"), self.ledger.order.acknowledged()) {
                    Ok(_) => self.ledger = judged,
                    // A failed read proves nothing.
                    Err(_) if self.fs.failures() > failures => {
                        let db = self.db.as_ref().expect("just opened");
                        match judged_quietly(&mut self.ledger, db) {
                            Ok(()) => {}
                            Err(_) if failing => self.db = None,
                            Err(e) => return Err(e),
                        }
                    }
                    Err(e) => return Err(format!("after reopening: {e}")),
                }
                Ok(())
            }
            Err(_) if failing => Ok(()),
            Err(error) => Err(format!("reopening: {error}")),
        }
    }

    fn read(&mut self, db: &Db, failures: u64) -> Result<(), String> {
        let found = match read_all(db) {
            Ok(found) => found,
            Err(_) if self.fs.failures() > failures => return Ok(()),
            Err(e) => return Err(format!("reading: {e}")),
        };
        let state = self.ledger.order.visible();
        for (name, content) in &found {
            let Some((id, _)) = self.ledger.names.get(name) else {
                return Err(format!("keyspace `{name}` should not be there"));
            };
            if let Some(difference) = differences(state.get(id), content, *id).first() {
                return Err(format!("a read is wrong: {difference}"));
            }
        }
        Ok(())
    }
}

/// Judges again after a failing device disturbed the first attempt.
fn judged_quietly(ledger: &mut Ledger, db: &Db) -> Result<(), String> {
    let acked = ledger.order.acknowledged();
    ledger.judge(db, acked).map(drop)
}
