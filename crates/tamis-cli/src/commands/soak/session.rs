//! The operations of one thread and their expected results.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use tamis::{Db, Durability, Keyspace, ReadError, Slice, Snapshot, WriteBatch};
use tamis_bench::random::Random;

use super::names;
use crate::failure::Failure;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys of one thread in one keyspace.
const KEYS: u64 = 400;

/// Operations between two points at which the database may be closed.
const OPERATIONS: u64 = 300;

/// A value that merges have made longer than this is replaced.
const LONGEST: usize = 2000;

pub(super) struct Session {
    thread: usize,
    random: Random,
    /// The contents of each keyspace under this thread's keys.
    models: Vec<Model>,
    written: u64,
}

impl Session {
    pub(super) fn new(seed: u64, thread: usize, keyspaces: usize) -> Session {
        let random = Random::part(seed, thread as u64);
        Session { thread, random, models: vec![Model::new(); keyspaces], written: 0 }
    }

    /// Runs a few hundred operations. A snapshot is taken before them and read afterwards.
    pub(super) fn run(&mut self, db: &Db, operations: &AtomicU64) -> Result<(), Failure> {
        let keyspaces = keyspaces(db)?;
        // Of one keyspace only: copying all would take longer than the operations.
        let watched = self.random.below(keyspaces.len() as u64) as usize;
        let (snapshot, then) = (db.snapshot(), self.models[watched].clone());
        for _ in 0..OPERATIONS {
            self.operate(db, &keyspaces)?;
        }
        self.look_back(&snapshot, &keyspaces[watched], &then)?;
        operations.fetch_add(OPERATIONS, Ordering::Relaxed);
        Ok(())
    }

    /// Compares all keys of all keyspaces.
    pub(super) fn compare_all(&self, db: &Db) -> Result<(), Failure> {
        for (keyspace, model) in keyspaces(db)?.iter().zip(&self.models) {
            let found = pairs(keyspace.prefix(self.prefix()))?;
            self.same("all of", keyspace.name(), &found, &owned(model.iter()))?;
        }
        Ok(())
    }

    fn prefix(&self) -> Vec<u8> {
        format!("{:02}/", self.thread).into_bytes()
    }

    /// Returns the thread followed by eight significant bytes, so that filters over integers have
    /// something to learn.
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(KEYS) * 0x0001_0001_0000_0003;
        [&self.prefix()[..], &number.to_be_bytes()].concat()
    }

    fn value(&mut self) -> Vec<u8> {
        self.written += 1;
        let len = match self.random.below(20) {
            0 => 0,
            1 => 1000,
            _ => 20 + self.random.below(200) as usize,
        };
        let mark = [self.thread as u64, self.written].map(u64::to_le_bytes).concat();
        mark.into_iter().cycle().take(len).collect()
    }

    fn operate(&mut self, db: &Db, keyspaces: &[Keyspace]) -> Result<(), Failure> {
        let n = self.random.below(keyspaces.len() as u64) as usize;
        let keyspace = &keyspaces[n];
        match self.random.below(100) {
            0..35 => {
                let (key, value) = (self.key(), self.value());
                keyspace.put(&key, &value)?;
                self.models[n].insert(key, value);
            }
            35..45 => {
                let (key, operand) = (self.key(), self.value());
                let known = self.models[n].entry(key.clone()).or_default();
                if known.len() > LONGEST {
                    keyspace.put(&key, &operand)?;
                    *known = operand;
                } else {
                    keyspace.merge(&key, &operand)?;
                    known.extend(operand);
                }
            }
            45..52 => {
                let key = self.key();
                keyspace.delete(&key)?;
                self.models[n].remove(&key);
            }
            52 => {
                let (from, to) = self.bounds(8);
                keyspace.delete_range(&from[..]..&to[..])?;
                self.models[n].retain(|key, _| !(&from..&to).contains(&key));
            }
            53..60 => self.batch(db, keyspaces)?,
            60..85 => {
                let key = self.key();
                let found = keyspace.get(&key)?;
                self.same(
                    "get of",
                    keyspace.name(),
                    &found.as_deref(),
                    &self.models[n].get(&key).map(|v| &v[..]),
                )?;
            }
            85..90 => {
                let keys: Vec<Vec<u8>> = (0..1 + self.random.below(20)).map(|_| self.key()).collect();
                let found = keyspace.multi_get(&keys)?;
                let found: Vec<_> = found.iter().map(Option::as_deref).collect();
                let expected: Vec<_> =
                    keys.iter().map(|key| self.models[n].get(key).map(|v| &v[..])).collect();
                self.same("many of", keyspace.name(), &found, &expected)?;
            }
            90..99 => {
                let (from, to) = self.bounds(60);
                let expected = owned(self.models[n].range(from.clone()..to.clone()));
                let found = pairs(keyspace.range(&from[..]..&to[..]))?;
                self.same("range of", keyspace.name(), &found, &expected)?;
                let mut found = pairs(keyspace.range(&from[..]..&to[..]).rev())?;
                found.reverse();
                self.same("range backwards of", keyspace.name(), &found, &expected)?;
            }
            _ if self.random.chance(5) => keyspace.flush()?,
            _ => db.sync()?,
        }
        Ok(())
    }

    /// Returns the bounds of a range that holds at most `most` keys.
    fn bounds(&mut self, most: u64) -> (Vec<u8>, Vec<u8>) {
        let (from, to) = (self.random.below(KEYS), 1 + self.random.below(most));
        let key = |i: u64| [&self.prefix()[..], &(i * 0x0001_0001_0000_0003).to_be_bytes()].concat();
        (key(from), key(from + to))
    }

    /// Writes one atomic batch of changes to several keyspaces.
    fn batch(&mut self, db: &Db, keyspaces: &[Keyspace]) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + self.random.below(6) {
            let n = self.random.below(keyspaces.len() as u64) as usize;
            let key = self.key();
            if self.random.chance(25) {
                batch.delete_in(&keyspaces[n], &key);
                self.models[n].remove(&key);
            } else {
                let value = self.value();
                batch.put_in(&keyspaces[n], &key, &value);
                self.models[n].insert(key, value);
            }
        }
        let durability = if self.random.chance(10) { Durability::Sync } else { Durability::Buffered };
        Ok(db.write_with(batch, durability)?)
    }

    fn look_back(&self, snapshot: &Snapshot, keyspace: &Keyspace, then: &Model) -> Result<(), Failure> {
        let view = snapshot.keyspace(keyspace);
        let found = pairs(view.prefix(self.prefix()))?;
        self.same("a snapshot of", keyspace.name(), &found, &owned(then.iter()))?;
        for (key, value) in then.iter().step_by(17) {
            let found = view.get(key)?;
            self.same("a snapshot's get of", keyspace.name(), &found.as_deref(), &Some(&value[..]))?;
        }
        Ok(())
    }

    fn same<T: Debug + PartialEq>(
        &self,
        what: &str,
        keyspace: &str,
        found: &T,
        right: &T,
    ) -> Result<(), Failure> {
        if found == right {
            return Ok(());
        }
        let thread = self.thread;
        Err(Failure::Problem(format!(
            "thread {thread}, {what} {keyspace}: found {found:?}, expected {right:?}"
        )))
    }
}

fn keyspaces(db: &Db) -> Result<Vec<Keyspace>, Failure> {
    names().iter().map(|(name, _)| Ok(db.keyspace(name)?)).collect()
}

fn owned<'a>(pairs: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Pairs {
    pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn pairs(iter: impl Iterator<Item = Result<(Slice, Slice), ReadError>>) -> Result<Pairs, Failure> {
    iter.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).map_err(Failure::from)).collect()
}
