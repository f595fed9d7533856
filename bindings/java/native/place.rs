//! Where calls read and write: a keyspace as of now, as of a snapshot, or within a transaction.

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use jni::sys::jlong;
use tamis::{Db, Iter, Keyspace, Slice, Snapshot, WriteError};
use tamis_bindings::{Database, Failure};

use crate::border::exclusive;
use crate::handle;
use crate::transaction::Open;

/// What Java calls a source: a database or keyspace, a snapshot, a transaction.
pub(crate) struct Source {
    pub(crate) database: Arc<Database>,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Keyspace(Keyspace),
    Snapshot(Snapshot),
    Transaction(Mutex<Open>),
}

/// A range of keys.
pub(crate) type Keys<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A keyspace of a source.
pub(crate) struct Place<'a> {
    pub(crate) source: &'a Source,
    pub(crate) keyspace: &'a Keyspace,
}

impl<'a> Place<'a> {
    /// The place of a call: keyspace 0 is the source's own, or the default one.
    pub(crate) fn new(source: jlong, keyspace: jlong) -> Result<Place<'a>, Failure> {
        let source = handle::source(source)?;
        let db = source.database.db()?;
        let keyspace = match (&source.kind, keyspace) {
            (Kind::Keyspace(own), _) => own,
            (_, 0) => db.default_keyspace(),
            (_, other) => keyspace_of(other, &source.database)?,
        };
        Ok(Place { source, keyspace })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slice>, Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.get(key)?),
            Kind::Snapshot(snapshot) => Ok(snapshot.keyspace(self.keyspace).get(key)?),
            Kind::Transaction(open) => taken(open)?.get(self.keyspace, key),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool, Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.contains_key(key)?),
            Kind::Snapshot(snapshot) => Ok(snapshot.keyspace(self.keyspace).contains_key(key)?),
            Kind::Transaction(_) => Ok(self.get(key)?.is_some()),
        }
    }

    pub(crate) fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>, Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.multi_get(keys)?),
            Kind::Snapshot(snapshot) => Ok(snapshot.keyspace(self.keyspace).multi_get(keys)?),
            Kind::Transaction(open) => taken(open)?.multi_get(self.keyspace, keys),
        }
    }

    pub(crate) fn range(&self, keys: Keys<'_>) -> Result<Iter, Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.range::<&[u8]>(keys)),
            Kind::Snapshot(snapshot) => Ok(snapshot.keyspace(self.keyspace).range::<&[u8]>(keys)),
            Kind::Transaction(open) => taken(open)?.range(self.keyspace, keys),
        }
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.put(key, value)?),
            Kind::Transaction(open) => taken(open)?.put(self.keyspace, key, value),
            Kind::Snapshot(_) => Err(not_written()),
        }
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.delete(key)?),
            Kind::Transaction(open) => taken(open)?.delete(self.keyspace, key),
            Kind::Snapshot(_) => Err(not_written()),
        }
    }

    pub(crate) fn merge(&self, key: &[u8], operand: &[u8]) -> Result<(), Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.merge(key, operand)?),
            Kind::Transaction(open) => taken(open)?.merge(self.keyspace, key, operand),
            Kind::Snapshot(_) => Err(not_written()),
        }
    }

    pub(crate) fn delete_range(&self, keys: Keys<'_>) -> Result<(), Failure> {
        match &self.source.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace.delete_range::<&[u8]>(keys)?),
            Kind::Transaction(open) => taken(open)?.delete_range(self.keyspace, keys),
            Kind::Snapshot(_) => Err(not_written()),
        }
    }
}

fn not_written() -> Failure {
    Failure::argument("a snapshot cannot be written to")
}

fn taken(open: &Mutex<Open>) -> Result<MutexGuard<'_, Open>, Failure> {
    exclusive(open, "transaction")
}

/// The keyspace of a handle, if it belongs to `database`.
fn keyspace_of<'a>(keyspace: jlong, database: &Arc<Database>) -> Result<&'a Keyspace, Failure> {
    let source = handle::source(keyspace)?;
    let keyspace = source.keyspace()?;
    if Arc::ptr_eq(&source.database, database) {
        return Ok(keyspace);
    }
    Err(WriteError::ForeignKeyspace { name: keyspace.name().to_owned() }.into())
}

impl Source {
    /// The keyspace that it is.
    pub(crate) fn keyspace(&self) -> Result<&Keyspace, Failure> {
        match &self.kind {
            Kind::Keyspace(keyspace) => Ok(keyspace),
            Kind::Snapshot(_) | Kind::Transaction(_) => Err(Failure::argument("it is no keyspace")),
        }
    }

    /// The transaction that it is, of a database that is open.
    pub(crate) fn transaction(&self) -> Result<MutexGuard<'_, Open>, Failure> {
        match &self.kind {
            Kind::Transaction(open) => {
                let open = taken(open)?;
                self.database.db()?;
                Ok(open)
            }
            Kind::Keyspace(_) | Kind::Snapshot(_) => Err(Failure::argument("it is no transaction")),
        }
    }
}

/// The open database of a handle.
pub(crate) fn database<'a>(handle: jlong) -> Result<&'a Db, Failure> {
    handle::source(handle)?.database.db()
}

/// The keyspace of a handle, of a database that is open.
pub(crate) fn keyspace<'a>(handle: jlong) -> Result<&'a Keyspace, Failure> {
    let source = handle::source(handle)?;
    source.database.db()?;
    source.keyspace()
}
