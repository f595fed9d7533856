//! Snapshots and transactions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use jni::JNIEnv;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jbyteArray, jlong};
use tamis::transactions::{Isolation, LockOptions, LockTransaction, Savepoint, TransactionOptions};
use tamis::{Iter, Keyspace, Slice, Transaction, TransactionError};
use tamis_bindings::Failure;

use crate::border::{array, bytes, guard, optional_array, packed, signed, unsigned};
use crate::handle::{self, Object, give};
use crate::options::durability;
use crate::place::{Keys, Kind, Place, Source, database};

/// A transaction, and the savepoints that it can return to.
pub(crate) struct Open {
    state: State,
    savepoints: Vec<(u64, Savepoint)>,
}

enum State {
    Optimistic(Box<Transaction>),
    Locking(Box<LockTransaction>),
    Ended,
}

/// The numbers of savepoints, unique in the process, so that one of another transaction is not mistaken.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(1);

/// Calls a method of whichever transaction it is.
macro_rules! on {
    ($open:expr, $method:ident $(::<$generic:ty>)?, $($argument:expr),*) => {
        match &mut $open.state {
            State::Optimistic(transaction) => Ok(transaction.$method$(::<$generic>)?($($argument),*)?),
            State::Locking(transaction) => Ok(transaction.$method$(::<$generic>)?($($argument),*)?),
            State::Ended => Err(Failure::ended()),
        }
    };
}

impl Open {
    pub(crate) fn get(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>, Failure> {
        match &mut self.state {
            State::Optimistic(transaction) => Ok(transaction.keyspace(keyspace).get(key)?),
            State::Locking(transaction) => Ok(transaction.get_in(keyspace, key)?),
            State::Ended => Err(Failure::ended()),
        }
    }

    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>, Failure> {
        match &mut self.state {
            State::Optimistic(transaction) => Ok(transaction.keyspace(keyspace).multi_get(keys)?),
            State::Locking(_) => keys.iter().map(|key| self.get(keyspace, key.as_ref())).collect(),
            State::Ended => Err(Failure::ended()),
        }
    }

    pub(crate) fn range(&mut self, keyspace: &Keyspace, keys: Keys<'_>) -> Result<Iter, Failure> {
        match &mut self.state {
            State::Optimistic(transaction) => Ok(transaction.keyspace(keyspace).range::<&[u8]>(keys)),
            State::Locking(transaction) => Ok(transaction.range_in::<&[u8]>(keyspace, keys)?),
            State::Ended => Err(Failure::ended()),
        }
    }

    pub(crate) fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        on!(self, put_in, keyspace, key, value)
    }

    pub(crate) fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<(), Failure> {
        on!(self, delete_in, keyspace, key)
    }

    pub(crate) fn merge(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> Result<(), Failure> {
        on!(self, merge_in, keyspace, key, operand)
    }

    pub(crate) fn delete_range(&mut self, keyspace: &Keyspace, keys: Keys<'_>) -> Result<(), Failure> {
        on!(self, delete_range_in::<&[u8]>, keyspace, keys)
    }

    fn savepoint(&mut self) -> Result<u64, Failure> {
        let savepoint = match &mut self.state {
            State::Optimistic(transaction) => transaction.savepoint(),
            State::Locking(transaction) => transaction.savepoint(),
            State::Ended => return Err(Failure::ended()),
        };
        let number = SAVEPOINTS.fetch_add(1, Relaxed);
        self.savepoints.push((number, savepoint));
        Ok(number)
    }

    fn rollback_to(&mut self, number: u64) -> Result<(), Failure> {
        if matches!(self.state, State::Ended) {
            return Err(Failure::ended());
        }
        let at = self.savepoints.iter().position(|(known, _)| *known == number);
        let at = at.ok_or(TransactionError::NoSavepoint)?;
        let savepoint = self.savepoints[at].1;
        self.savepoints.truncate(at + 1);
        on!(self, rollback_to, savepoint)
    }

    fn locking(&mut self) -> Result<&mut LockTransaction, Failure> {
        match &mut self.state {
            State::Locking(transaction) => Ok(transaction),
            State::Optimistic(_) => Err(Failure::argument("transaction does not lock")),
            State::Ended => Err(Failure::ended()),
        }
    }

    fn end(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Ended)
    }
}

fn transaction(state: State) -> Kind {
    Kind::Transaction(Mutex::new(Open { state, savepoints: Vec::new() }))
}

fn begun(of: jlong, kind: Kind) -> Result<jlong, Failure> {
    let database = handle::source(of)?.database.clone();
    Ok(give(Object::Source(Source { database, kind })))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_snapshot(env: JNIEnv, _: JClass, of: jlong) -> jlong {
    guard(env, |_| begun(of, Kind::Snapshot(database(of)?.snapshot())))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_snapshotSeq(env: JNIEnv, _: JClass, snapshot: jlong) -> jlong {
    guard(env, |_| match &handle::source(snapshot)?.kind {
        Kind::Snapshot(snapshot) => Ok(signed(snapshot.seq())),
        Kind::Keyspace(_) | Kind::Transaction(_) => Err(Failure::argument("it is no snapshot")),
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_transaction(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    serializable: jboolean,
    durable: JByteArray,
) -> jlong {
    guard(env, |env| {
        let isolation = if serializable != 0 { Isolation::Serializable } else { Isolation::Snapshot };
        let durability = durability(env, &durable)?;
        let options = TransactionOptions { isolation, durability, ..TransactionOptions::default() };
        let begins = database(of)?.transaction_with(options);
        begun(of, transaction(State::Optimistic(Box::new(begins))))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_lockTransaction(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    millis: jlong,
    durable: JByteArray,
) -> jlong {
    guard(env, |env| {
        let timeout = Duration::from_millis(unsigned(millis, "timeout")?);
        let options = LockOptions { timeout, durability: durability(env, &durable)? };
        let begins = database(of)?.lock_transaction_with(options)?;
        begun(of, transaction(State::Locking(Box::new(begins))))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_commit(env: JNIEnv, _: JClass, transaction: jlong) -> jlong {
    guard(env, |_| {
        let ended = handle::source(transaction)?.transaction()?.end();
        match ended {
            State::Optimistic(transaction) => Ok(signed(transaction.commit()?)),
            State::Locking(transaction) => Ok(signed(transaction.commit()?)),
            State::Ended => Err(Failure::ended()),
        }
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_rollback(env: JNIEnv, _: JClass, transaction: jlong) {
    guard(env, |_| {
        let ended = handle::source(transaction)?.transaction()?.end();
        match ended {
            State::Optimistic(transaction) => transaction.rollback(),
            State::Locking(transaction) => transaction.rollback(),
            State::Ended => return Err(Failure::ended()),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_savepoint(env: JNIEnv, _: JClass, transaction: jlong) -> jlong {
    guard(env, |_| Ok(signed(handle::source(transaction)?.transaction()?.savepoint()?)))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_rollbackTo(
    env: JNIEnv,
    _: JClass,
    transaction: jlong,
    savepoint: jlong,
) {
    guard(env, |_| {
        let savepoint = unsigned(savepoint, "savepoint")?;
        handle::source(transaction)?.transaction()?.rollback_to(savepoint)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_getForUpdate(
    env: JNIEnv,
    _: JClass,
    transaction: jlong,
    place: jlong,
    key: JByteArray,
) -> jbyteArray {
    guard(env, |env| {
        let place = Place::new(transaction, place)?;
        let key = bytes(env, &key, "key")?;
        let value = place.source.transaction()?.locking()?.get_for_update_in(place.keyspace, &key)?;
        optional_array(env, value)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_prepare(
    env: JNIEnv,
    _: JClass,
    transaction: jlong,
    name: JByteArray,
) {
    guard(env, |env| {
        let name = bytes(env, &name, "name")?;
        let mut open = handle::source(transaction)?.transaction()?;
        open.locking()?;
        if let State::Locking(transaction) = open.end() {
            // It stays prepared without this handle.
            drop(transaction.prepare(&name)?);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_preparedTransactions(
    env: JNIEnv,
    _: JClass,
    of: jlong,
) -> jbyteArray {
    guard(env, |env| {
        let prepared = database(of)?.prepared_transactions()?;
        let names = packed(prepared.iter().map(|one| one.name()))?;
        array(env, &names)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_endPrepared(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    name: JByteArray,
    commit: jboolean,
) {
    guard(env, |env| {
        let name = bytes(env, &name, "name")?;
        let all = database(of)?.prepared_transactions()?;
        let Some(prepared) = all.into_iter().find(|one| one.name() == &*name) else {
            return Err(TransactionError::NotPrepared { name: name.to_vec() }.into());
        };
        if commit != 0 {
            prepared.commit()?;
        } else {
            prepared.abort()?;
        }
        Ok(())
    })
}
