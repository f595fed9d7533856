//! Writes: one by one, and in batches.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

use tamis::{Durability, Keyspace, WriteBatch};
use tamis_bindings::{Database, Failure};

use crate::border::{bytes, exclusive, free, give, guard, object, optional_text, range};
use crate::database::tamis_db;
use crate::error::tamis_error;
use crate::keyspace::tamis_keyspace;

/// Puts a value, in a keyspace (NULL: the default one), with the database's durability.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_put(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (place, key, value) = unsafe {
            (tamis_db::place(db, keyspace)?.1, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        place.put(key, value)?;
        Ok(true)
    })
}

/// Deletes a key; one without a value is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_delete(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (place, key) = unsafe { (tamis_db::place(db, keyspace)?.1, bytes(key, key_len, "key")?) };
        place.delete(key)?;
        Ok(true)
    })
}

/// Merges an operand into a key's value by the keyspace's merge operator, without reading it. Errors, among others:
/// TAMIS_CODE_NO_MERGE_OPERATOR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_merge(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (place, key, operand) = unsafe {
            (
                tamis_db::place(db, keyspace)?.1,
                bytes(key, key_len, "key")?,
                bytes(operand, operand_len, "operand")?,
            )
        };
        place.merge(key, operand)?;
        Ok(true)
    })
}

/// Deletes the keys from `start` up to before `end`, at the cost of one write. Errors, among others: TAMIS_CODE_REVERSED_RANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_delete_range(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (place, keys) =
            unsafe { (tamis_db::place(db, keyspace)?.1, range(start, start_len, end, end_len)?) };
        place.delete_range::<&[u8]>(keys)?;
        Ok(true)
    })
}

/// Deletes the keys that start with `prefix`, at the cost of one write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_delete_prefix(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    prefix: *const c_void,
    prefix_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (place, prefix) =
            unsafe { (tamis_db::place(db, keyspace)?.1, bytes(prefix, prefix_len, "prefix")?) };
        place.delete_prefix(prefix)?;
        Ok(true)
    })
}

/// Several writes that become visible and durable together, or not at all. For one thread at a time.
#[derive(Debug, Default)]
pub struct tamis_batch {
    writes: Mutex<Writes>,
}

#[derive(Debug, Default)]
struct Writes {
    batch: WriteBatch,
    /// The databases of the keyspaces that the batch names, so that their handles can be freed before it is written.
    keyspaces: Vec<Arc<Database>>,
}

impl Writes {
    fn holds(&mut self, database: &Arc<Database>) {
        if !self.keyspaces.iter().any(|held| Arc::ptr_eq(held, database)) {
            self.keyspaces.push(database.clone());
        }
    }
}

/// Adds a write to a batch.
///
/// # Safety
/// The pointers are null or valid for the call.
unsafe fn add(
    batch: *mut tamis_batch,
    keyspace: *const tamis_keyspace,
    error: *mut *mut tamis_error,
    write: impl FnOnce(&mut WriteBatch, Option<&Keyspace>) -> Result<(), Failure>,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let batch = unsafe { object(batch, "batch") }?;
        let mut writes = exclusive(&batch.writes, "batch")?;
        if keyspace.is_null() {
            write(&mut writes.batch, None)?;
        } else {
            // SAFETY: by contract.
            let keyspace = unsafe { object(keyspace, "keyspace") }?;
            writes.holds(&keyspace.database);
            write(&mut writes.batch, Some(&keyspace.keyspace))?;
        }
        Ok(true)
    })
}

/// Creates an empty batch. Free it with tamis_batch_free.
#[unsafe(no_mangle)]
pub extern "C" fn tamis_batch_new() -> *mut tamis_batch {
    give(tamis_batch::default())
}

/// Adds a put. Keys and values are copied, and checked when the batch is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_put(
    batch: *mut tamis_batch,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        add(batch, keyspace, error, |batch, keyspace| {
            let (key, value) = (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?);
            match keyspace {
                Some(keyspace) => batch.put_in(keyspace, key, value),
                None => batch.put(key, value),
            };
            Ok(())
        })
    }
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_delete(
    batch: *mut tamis_batch,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        add(batch, keyspace, error, |batch, keyspace| {
            let key = bytes(key, key_len, "key")?;
            match keyspace {
                Some(keyspace) => batch.delete_in(keyspace, key),
                None => batch.delete(key),
            };
            Ok(())
        })
    }
}

/// Adds a merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_merge(
    batch: *mut tamis_batch,
    keyspace: *const tamis_keyspace,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        add(batch, keyspace, error, |batch, keyspace| {
            let (key, operand) = (bytes(key, key_len, "key")?, bytes(operand, operand_len, "operand")?);
            match keyspace {
                Some(keyspace) => batch.merge_in(keyspace, key, operand),
                None => batch.merge(key, operand),
            };
            Ok(())
        })
    }
}

/// Adds a delete of the keys from `start` up to before `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_delete_range(
    batch: *mut tamis_batch,
    keyspace: *const tamis_keyspace,
    start: *const c_void,
    start_len: usize,
    end: *const c_void,
    end_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        add(batch, keyspace, error, |batch, keyspace| {
            let keys = range(start, start_len, end, end_len)?;
            match keyspace {
                Some(keyspace) => batch.delete_range_in::<&[u8]>(keyspace, keys),
                None => batch.delete_range::<&[u8]>(keys),
            };
            Ok(())
        })
    }
}

/// Adds a delete of the keys that start with `prefix`; an empty one is that of every key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_delete_prefix(
    batch: *mut tamis_batch,
    keyspace: *const tamis_keyspace,
    prefix: *const c_void,
    prefix_len: usize,
    error: *mut *mut tamis_error,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        add(batch, keyspace, error, |batch, keyspace| {
            let prefix = bytes(prefix, prefix_len, "prefix")?;
            match keyspace {
                Some(keyspace) => batch.delete_prefix_in(keyspace, prefix),
                None => batch.delete_prefix(prefix),
            };
            Ok(())
        })
    }
}

/// Empties a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_clear(batch: *mut tamis_batch, error: *mut *mut tamis_error) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        *exclusive(&unsafe { object(batch, "batch") }?.writes, "batch")? = Writes::default();
        Ok(true)
    })
}

/// The number of writes in a batch; 0 for NULL, or while another thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_len(batch: *const tamis_batch) -> usize {
    guard(std::ptr::null_mut(), 0, || {
        // SAFETY: null, or valid by contract.
        Ok(exclusive(&unsafe { object(batch, "batch") }?.writes, "batch")?.batch.len())
    })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_batch_free(batch: *mut tamis_batch) {
    // SAFETY: by contract.
    unsafe { free(batch) }
}

/// A durability as text, or none.
///
/// # Safety
/// `text` is null or a C string.
pub(crate) unsafe fn durability(text: *const c_char) -> Result<Option<Durability>, Failure> {
    // SAFETY: by contract.
    let given = unsafe { optional_text(text, "durability") }?;
    Ok(given.map(str::parse).transpose()?)
}

/// Writes a batch, and empties it, whatever the answer (but not after TAMIS_CODE_INVALID_ARGUMENT). `durability` is the text of the option of
/// that name: "buffered", "sync" or "every 100 ms"; NULL: as the database's option says.
/// Operations on a keyspace that was dropped since they were added to the batch are left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_write(
    db: *const tamis_db,
    batch: *mut tamis_batch,
    durability: *const c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (db, batch, durability) =
            unsafe { (object(db, "db")?, object(batch, "batch")?, self::durability(durability)?) };
        let writes = std::mem::take(&mut *exclusive(&batch.writes, "batch")?);
        let db = db.database.db()?;
        match durability {
            Some(durability) => db.write_with(writes.batch, durability)?,
            None => db.write(writes.batch)?,
        }
        Ok(true)
    })
}
