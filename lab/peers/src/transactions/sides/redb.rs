//! redb: one writer at a time, so transactions never conflict; they wait in `begin_write`.
//!
//! It has no writes but transactions: a plain put is one, and `get-put` a read transaction and a write transaction. Without
//! `sync` they commit with `Durability::None`, which is weaker than in the others (see the plain engine). The entries of
//! a new database are put in one transaction.

use ::redb::ReadableTable;

use crate::engines::redb::{Redb, failed};
use crate::engines::{Engine, Setup};
use crate::transactions::data::Key;
use crate::transactions::side::{Session, Side, SideError, absent, copy};

/// A thread's session.
pub(crate) struct RedbSession<'s>(&'s Redb);

impl Side for Redb {
    type Session<'s> = RedbSession<'s>;

    fn open(setup: &Setup) -> Result<Self, SideError> {
        Ok(<Redb as Engine>::open(setup)?.0)
    }

    fn load(&self, entries: impl Iterator<Item = (Key, Vec<u8>)>) -> Result<(), SideError> {
        Ok(self.write(|table| {
            for (key, value) in entries {
                table.insert(&key[..], &value[..]).map_err(failed)?;
            }
            Ok(())
        })?)
    }

    fn settle(&self) -> Result<(), SideError> {
        Ok(Engine::settle(self)?)
    }

    fn session(&self) -> RedbSession<'_> {
        RedbSession(self)
    }

    fn close(self) -> Result<(), SideError> {
        Ok(Engine::close(self)?)
    }
}

impl Session for RedbSession<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), SideError> {
        Ok(self.0.write(|table| {
            table.insert(&key[..], value).map_err(failed)?;
            Ok(())
        })?)
    }

    fn get(&mut self, key: &Key, value: &mut Vec<u8>) -> Result<(), SideError> {
        let found = self.0.read()?.get(&key[..]).map_err(failed)?;
        copy(key, found.as_ref().map(|guard| guard.value()), value)
    }

    fn transact<const N: usize>(
        &mut self,
        keys: [&Key; N],
        values: &mut [Vec<u8>; N],
        mut change: impl FnMut(&mut [Vec<u8>; N]),
    ) -> Result<u64, SideError> {
        let mut missing = None;
        self.0.write(|table| {
            for (key, value) in keys.iter().zip(&mut *values) {
                let found = table.get(&key[..]).map_err(failed)?;
                if copy(key, found.as_ref().map(|guard| guard.value()), value).is_err() {
                    missing = Some(**key);
                    return Ok(());
                }
            }
            change(values);
            for (key, value) in keys.iter().zip(&*values) {
                table.insert(&key[..], &value[..]).map_err(failed)?;
            }
            Ok(())
        })?;
        match missing {
            Some(key) => Err(absent(&key)),
            None => Ok(0),
        }
    }

    fn scan(&mut self, mut look: impl FnMut(&[u8], &[u8])) -> Result<bool, SideError> {
        let table = self.0.read()?;
        for entry in table.iter().map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            look(key.value(), value.value());
        }
        Ok(true)
    }
}
