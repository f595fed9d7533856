//! Transactions: optimistic ones, ones that lock, and ones that are prepared.

use std::ffi::{c_char, c_void};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tamis::transactions::{
    Isolation, LockOptions, LockTransaction, PreparedTransaction, Savepoint, TransactionOptions,
};
use tamis::{Db, Iter, Keyspace, Slice, Transaction, TransactionError};
use tamis_bindings::{Database, Failure};

use crate::border::{Range, array, bytes, exclusive, free, give, guard, many, object, place, range};
use crate::database::tamis_db;
use crate::error::{tamis_answer, tamis_error};
use crate::iterator::tamis_iter;
use crate::keyspace::tamis_keyspace;
use crate::output::{Out, tamis_list, tamis_slice};
use crate::read::hand_out;
use crate::write::durability;

/// How an optimistic transaction is isolated.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tamis_isolation {
    /// What was read is validated at the commit: the outcome is that of one transaction after the other.
    Serializable = 0,
    /// What was written is: the first committer wins. Write skew is possible.
    Snapshot = 1,
}

/// A transaction: reads and writes across keyspaces that take effect together, at its commit, or not at all. It sees its own writes. For one
/// thread at a time.
#[derive(Debug)]
pub struct tamis_transaction {
    database: Arc<Database>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    kind: Kind,
    savepoints: Vec<(u64, Savepoint)>,
}

#[derive(Debug)]
enum Kind {
    Optimistic(Box<Transaction>),
    Locking(Box<LockTransaction>),
    Ended,
}

/// The numbers of savepoints, unique in the process, so that one of another transaction is not mistaken.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(1);

/// Calls a method of whichever transaction it is, in a keyspace or the default one.
macro_rules! on {
    ($state:expr, $keyspace:expr, $plain:ident, $within:ident $(::<$generic:ty>)?, $($argument:expr),*) => {
        match (&mut $state.kind, $keyspace) {
            (Kind::Optimistic(transaction), None) => transaction.$plain$(::<$generic>)?($($argument),*)?,
            (Kind::Optimistic(transaction), Some(keyspace)) => {
                transaction.$within$(::<$generic>)?(keyspace, $($argument),*)?
            }
            (Kind::Locking(transaction), None) => transaction.$plain$(::<$generic>)?($($argument),*)?,
            (Kind::Locking(transaction), Some(keyspace)) => {
                transaction.$within$(::<$generic>)?(keyspace, $($argument),*)?
            }
            (Kind::Ended, _) => return Err(Failure::ended()),
        }
    };
}

impl State {
    fn get(&mut self, keyspace: Option<&Keyspace>, key: &[u8]) -> Result<Option<Slice>, Failure> {
        Ok(match (&mut self.kind, keyspace) {
            (Kind::Optimistic(transaction), None) => transaction.get(key)?,
            (Kind::Optimistic(transaction), Some(keyspace)) => transaction.keyspace(keyspace).get(key)?,
            (Kind::Locking(transaction), None) => transaction.get(key)?,
            (Kind::Locking(transaction), Some(keyspace)) => transaction.get_in(keyspace, key)?,
            (Kind::Ended, _) => return Err(Failure::ended()),
        })
    }

    fn iter(&mut self, keyspace: Option<&Keyspace>, keys: Range<'_>) -> Result<Iter, Failure> {
        Ok(match (&mut self.kind, keyspace) {
            (Kind::Optimistic(transaction), None) => transaction.range::<&[u8]>(keys),
            (Kind::Optimistic(transaction), Some(keyspace)) => {
                transaction.keyspace(keyspace).range::<&[u8]>(keys)
            }
            (Kind::Locking(transaction), None) => transaction.range::<&[u8]>(keys)?,
            (Kind::Locking(transaction), Some(keyspace)) => transaction.range_in::<&[u8]>(keyspace, keys)?,
            (Kind::Ended, _) => return Err(Failure::ended()),
        })
    }

    fn locking(&mut self) -> Result<&mut LockTransaction, Failure> {
        match &mut self.kind {
            Kind::Locking(transaction) => Ok(transaction),
            Kind::Optimistic(_) => Err(Failure::argument("transaction does not lock")),
            Kind::Ended => Err(Failure::ended()),
        }
    }

    fn end(&mut self) -> Kind {
        std::mem::replace(&mut self.kind, Kind::Ended)
    }
}

/// What a call works with.
type Parts<'a> = (&'a tamis_transaction, MutexGuard<'a, State>, Option<&'a Keyspace>);

/// # Safety
/// Both pointers are null or valid for the call.
unsafe fn parts<'a>(
    transaction: *const tamis_transaction,
    keyspace: *const tamis_keyspace,
) -> Result<Parts<'a>, Failure> {
    // SAFETY: by contract.
    let transaction = unsafe { object(transaction, "transaction") }?;
    let state = exclusive(&transaction.state, "transaction")?;
    transaction.database.db()?;
    if keyspace.is_null() {
        return Ok((transaction, state, None));
    }
    // SAFETY: by contract.
    let keyspace = unsafe { object(keyspace, "keyspace") }?.of(&transaction.database)?;
    Ok((transaction, state, Some(keyspace)))
}

/// # Safety
/// `db` is null or valid for the call.
unsafe fn begin(
    db: *const tamis_db,
    error: *mut *mut tamis_error,
    begin: impl FnOnce(&Db) -> Result<Kind, Failure>,
) -> *mut tamis_transaction {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let database = &unsafe { object(db, "db") }?.database;
        let kind = begin(database.db()?)?;
        let state = Mutex::new(State { kind, savepoints: Vec::new() });
        Ok(give(tamis_transaction { database: database.clone(), state }))
    })
}

/// Begins an optimistic transaction. It locks nothing; its commit fails with TAMIS_CODE_CONFLICT if somebody else has meanwhile written what
/// it depends on, by `isolation`, one of `tamis_isolation`. `durability` as of tamis_write. Free it with tamis_transaction_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_begin(
    db: *const tamis_db,
    isolation: i32,
    durability: *const c_char,
    error: *mut *mut tamis_error,
) -> *mut tamis_transaction {
    // SAFETY: by contract.
    unsafe {
        begin(db, error, |db| {
            let isolation = match isolation {
                0 => Isolation::Serializable,
                1 => Isolation::Snapshot,
                other => {
                    return Err(Failure::argument(format!("isolation is {other}, which is no isolation")));
                }
            };
            let durability = self::durability(durability)?;
            let options = TransactionOptions { isolation, durability, ..TransactionOptions::default() };
            Ok(Kind::Optimistic(Box::new(db.transaction_with(options))))
        })
    }
}

/// Begins a transaction that locks what it reads and writes, and waits up to `timeout_ms` milliseconds for the locks of others
/// (TAMIS_CODE_LOCK_TIMEOUT, TAMIS_CODE_DEADLOCK: free it and begin again).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_begin_locking(
    db: *const tamis_db,
    timeout_ms: u64,
    durability: *const c_char,
    error: *mut *mut tamis_error,
) -> *mut tamis_transaction {
    // SAFETY: by contract.
    unsafe {
        begin(db, error, |db| {
            let (timeout, durability) = (Duration::from_millis(timeout_ms), self::durability(durability)?);
            let options = LockOptions { timeout, durability };
            Ok(Kind::Locking(Box::new(db.lock_transaction_with(options)?)))
        })
    }
}

/// Rolls a transaction back, unless it has ended, and frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_free(transaction: *mut tamis_transaction) {
    // SAFETY: by contract.
    unsafe { free(transaction) }
}

/// Commits a transaction and stores the sequence number of its writes in `*seq`, which may be NULL. It has ended, whatever the answer: all
/// other calls answer TAMIS_CODE_ENDED, and it is still to be freed. tamis_error_is_retryable says whether to try all of it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_commit(
    transaction: *mut tamis_transaction,
    seq: *mut u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let transaction = unsafe { object(transaction, "transaction") }?;
        let ended = exclusive(&transaction.state, "transaction")?.end();
        transaction.database.db()?;
        let committed = match ended {
            Kind::Optimistic(transaction) => transaction.commit()?,
            Kind::Locking(transaction) => transaction.commit()?,
            Kind::Ended => return Err(Failure::ended()),
        };
        if !seq.is_null() {
            // SAFETY: checked, and the caller's to write to.
            unsafe { place(seq, "seq")?.write(committed) };
        }
        Ok(true)
    })
}

/// Forgets a transaction's writes and ends it; it is still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_rollback(
    transaction: *mut tamis_transaction,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let transaction = unsafe { object(transaction, "transaction") }?;
        match exclusive(&transaction.state, "transaction")?.end() {
            Kind::Optimistic(transaction) => transaction.rollback(),
            Kind::Locking(transaction) => transaction.rollback(),
            Kind::Ended => return Err(Failure::ended()),
        }
        Ok(true)
    })
}

/// Looks up a key within a transaction; otherwise like tamis_get. One that locks takes a shared lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_get(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_void,
    value_len: *mut usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        let out = Out::new(value, value_len)?;
        // SAFETY: by contract.
        let ((_, mut state, keyspace), key) =
            unsafe { (parts(transaction, keyspace)?, bytes(key, key_len, "key")?) };
        let Some(found) = state.get(keyspace, key)? else { return Ok(tamis_answer::No) };
        // SAFETY: by contract.
        unsafe { out.put(&found) }?;
        Ok(tamis_answer::Yes)
    })
}

/// Looks up a key and locks it for writing. Only for transactions that lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_get_for_update(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut c_void,
    value_len: *mut usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        let out = Out::new(value, value_len)?;
        // SAFETY: by contract.
        let ((_, mut state, keyspace), key) =
            unsafe { (parts(transaction, keyspace)?, bytes(key, key_len, "key")?) };
        let locking = state.locking()?;
        let found = match keyspace {
            Some(keyspace) => locking.get_for_update_in(keyspace, key)?,
            None => locking.get_for_update(key)?,
        };
        let Some(found) = found else { return Ok(tamis_answer::No) };
        // SAFETY: by contract.
        unsafe { out.put(&found) }?;
        Ok(tamis_answer::Yes)
    })
}

/// Whether a key has a value, within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_contains(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> tamis_answer {
    guard(error, tamis_answer::Error, || {
        // SAFETY: by contract.
        let ((_, mut state, keyspace), key) =
            unsafe { (parts(transaction, keyspace)?, bytes(key, key_len, "key")?) };
        Ok(state.get(keyspace, key)?.is_some().into())
    })
}

/// Looks up `count` keys within a transaction; otherwise like tamis_multi_get. One that locks takes their locks in turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_multi_get(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    keys: *const *const c_void,
    key_lens: *const usize,
    count: usize,
    values: *mut *mut tamis_slice,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { array(values, count, "values") }?;
        // SAFETY: checked, and by contract.
        unsafe { hand_out((0..count).map(|_| None).collect(), values) };
        // SAFETY: by contract.
        let ((_, mut state, keyspace), keys) =
            unsafe { (parts(transaction, keyspace)?, many(keys, key_lens, count, "keys")?) };
        let found = match (&mut state.kind, keyspace) {
            (Kind::Optimistic(transaction), None) => transaction.multi_get(&keys)?,
            (Kind::Optimistic(transaction), Some(keyspace)) => {
                transaction.keyspace(keyspace).multi_get(&keys)?
            }
            _ => keys.iter().map(|key| state.get(keyspace, key)).collect::<Result<_, _>>()?,
        };
        // SAFETY: checked, and by contract.
        unsafe { hand_out(found, values) };
        Ok(true)
    })
}

/// Creates an iterator over the keys from `start` up to before `end` as the transaction sees them now; otherwise like tamis_iter_range. One
/// that locks takes a shared lock of the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_iter_range(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    error: *mut *mut tamis_error,
) -> *mut tamis_iter {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let ((transaction, mut state, keyspace), keys) =
            unsafe { (parts(transaction, keyspace)?, range(start, start_len, end, end_len)?) };
        Ok(tamis_iter::give(&transaction.database, state.iter(keyspace, keys)?))
    })
}

/// Creates an iterator over the keys that start with `prefix`, as tamis_transaction_iter_range does for a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_iter_prefix(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    prefix: *const c_void,
    prefix_len: usize,
    error: *mut *mut tamis_error,
) -> *mut tamis_iter {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let ((transaction, mut state, keyspace), prefix) =
            unsafe { (parts(transaction, keyspace)?, bytes(prefix, prefix_len, "prefix")?) };
        // The first key after all that have the prefix: its last byte that is not the largest, plus one.
        let end = prefix.iter().rposition(|byte| *byte != u8::MAX).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        });
        let keys = (Bound::Included(prefix), end.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
        Ok(tamis_iter::give(&transaction.database, state.iter(keyspace, keys)?))
    })
}

/// Puts a value within a transaction. One that locks takes the key's lock. Otherwise like tamis_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_put(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let ((_, mut state, keyspace), key, value) = unsafe {
            (parts(transaction, keyspace)?, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        on!(state, keyspace, put, put_in, key, value);
        Ok(true)
    })
}

/// Deletes a key within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_delete(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let ((_, mut state, keyspace), key) =
            unsafe { (parts(transaction, keyspace)?, bytes(key, key_len, "key")?) };
        on!(state, keyspace, delete, delete_in, key);
        Ok(true)
    })
}

/// Merges an operand within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_merge(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let ((_, mut state, keyspace), key, operand) = unsafe {
            (
                parts(transaction, keyspace)?,
                bytes(key, key_len, "key")?,
                bytes(operand, operand_len, "operand")?,
            )
        };
        on!(state, keyspace, merge, merge_in, key, operand);
        Ok(true)
    })
}

/// Deletes the keys from `start` up to before `end` within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_delete_range(
    transaction: *mut tamis_transaction,
    keyspace: *const tamis_keyspace,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let ((_, mut state, keyspace), keys) =
            unsafe { (parts(transaction, keyspace)?, range(start, start_len, end, end_len)?) };
        on!(state, keyspace, delete_range, delete_range_in::<&[u8]>, keys);
        Ok(true)
    })
}

/// Stores a point to return to in `*savepoint`: a number that no other transaction of the process has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_savepoint(
    transaction: *mut tamis_transaction,
    savepoint: *mut u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        let savepoint = place(savepoint, "savepoint")?;
        // SAFETY: by contract.
        let (_, mut state, _) = unsafe { parts(transaction, std::ptr::null()) }?;
        let point = match &mut state.kind {
            Kind::Optimistic(transaction) => transaction.savepoint(),
            Kind::Locking(transaction) => transaction.savepoint(),
            Kind::Ended => return Err(Failure::ended()),
        };
        let number = SAVEPOINTS.fetch_add(1, Relaxed);
        state.savepoints.push((number, point));
        // SAFETY: checked, and by contract.
        unsafe { savepoint.write(number) };
        Ok(true)
    })
}

/// Undoes the writes since a savepoint, and forgets the savepoints after it. Locks stay. Errors, among others: TAMIS_CODE_NO_SAVEPOINT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_rollback_to(
    transaction: *mut tamis_transaction,
    savepoint: u64,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (_, mut state, _) = unsafe { parts(transaction, std::ptr::null()) }?;
        let at = state.savepoints.iter().position(|(number, _)| *number == savepoint);
        let point = at.map(|at| state.savepoints[at].1);
        match (&mut state.kind, point) {
            (Kind::Ended, _) => return Err(Failure::ended()),
            (_, None) => return Err(TransactionError::NoSavepoint.into()),
            (Kind::Optimistic(transaction), Some(point)) => transaction.rollback_to(point)?,
            (Kind::Locking(transaction), Some(point)) => transaction.rollback_to(point)?,
        }
        state.savepoints.truncate(at.map_or(0, |at| at + 1));
        Ok(true)
    })
}

/// Prepares a transaction that locks, under a name of any bytes: it survives a crash with its locks, until tamis_prepared_commit or
/// tamis_prepared_abort. The transaction has ended, whatever the answer. Errors, among others: TAMIS_CODE_PREPARED_EXISTS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_transaction_prepare(
    transaction: *mut tamis_transaction,
    name: *const c_void,
    name_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let ((_, mut state, _), name) =
            unsafe { (parts(transaction, std::ptr::null())?, bytes(name, name_len, "name")?) };
        state.locking()?;
        if let Kind::Locking(transaction) = state.end() {
            // It stays prepared without this handle.
            drop(transaction.prepare(name)?);
        }
        Ok(true)
    })
}

/// The names of the prepared transactions, in order. Owned: free them with tamis_list_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_prepared_names(
    db: *const tamis_db,
    error: *mut *mut tamis_error,
) -> *mut tamis_list {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let prepared = unsafe { tamis_db::open(db) }?.prepared_transactions()?;
        Ok(tamis_list::give(prepared.iter().map(|one| one.name().to_vec()).collect()))
    })
}

/// # Safety
/// The pointers are null or valid for the call.
unsafe fn prepared(
    db: *const tamis_db,
    name: *const c_void,
    name_len: usize,
) -> Result<PreparedTransaction, Failure> {
    // SAFETY: by contract.
    let (db, name) = unsafe { (tamis_db::open(db)?, bytes(name, name_len, "name")?) };
    let found = db.prepared_transactions()?.into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| TransactionError::NotPrepared { name: name.to_vec() }.into())
}

/// Commits a prepared transaction. Errors, among others: TAMIS_CODE_NOT_PREPARED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_prepared_commit(
    db: *const tamis_db,
    name: *const c_void,
    name_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { prepared(db, name, name_len) }?.commit()?;
        Ok(true)
    })
}

/// Aborts a prepared transaction: its writes are forgotten. Errors, among others: TAMIS_CODE_NOT_PREPARED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_prepared_abort(
    db: *const tamis_db,
    name: *const c_void,
    name_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { prepared(db, name, name_len) }?.abort()?;
        Ok(true)
    })
}
