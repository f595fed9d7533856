//! Keyspaces: several ordered maps with options of their own, in one database.

use std::ffi::c_char;
use std::sync::Arc;

use tamis::Keyspace;
use tamis_bindings::{Database, Failure};

use crate::border::{array, free, give, guard, object, text};
use crate::database::tamis_db;
use crate::error::tamis_error;
use crate::options::{keyspace_options_of, tamis_keyspace_options};
use crate::output::tamis_list;

/// A keyspace of a database.
#[derive(Debug)]
pub struct tamis_keyspace {
    pub(crate) database: Arc<Database>,
    pub(crate) keyspace: Keyspace,
}

/// Makes a keyspace's handle by a call of the database.
///
/// # Safety
/// `db` is null or valid, `name` null or a C string.
unsafe fn named(
    db: *const tamis_db,
    name: *const c_char,
    error: *mut *mut tamis_error,
    call: impl FnOnce(&tamis::Db, &str) -> Result<Keyspace, Failure>,
) -> *mut tamis_keyspace {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let (db, name) = unsafe { (object(db, "db")?, text(name, "name")?) };
        let keyspace = call(db.database.db()?, name)?;
        Ok(give(tamis_keyspace { database: db.database.clone(), keyspace }))
    })
}

/// Returns the keyspace of that name. Free it with tamis_keyspace_free. The default one is called "default". Errors:
/// TAMIS_CODE_NO_KEYSPACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_open(
    db: *const tamis_db,
    name: *const c_char,
    error: *mut *mut tamis_error,
) -> *mut tamis_keyspace {
    // SAFETY: by contract.
    unsafe { named(db, name, error, |db, name| Ok(db.keyspace(name)?)) }
}

/// Creates a keyspace; names are 1 to 255 bytes without control characters. `options` may be NULL. Errors, among others:
/// TAMIS_CODE_KEYSPACE_EXISTS, TAMIS_CODE_BAD_NAME, TAMIS_CODE_UNREGISTERED_OPERATOR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_create(
    db: *const tamis_db,
    name: *const c_char,
    options: *const tamis_keyspace_options,
    error: *mut *mut tamis_error,
) -> *mut tamis_keyspace {
    // SAFETY: by contract.
    unsafe { named(db, name, error, |db, name| Ok(db.create_keyspace(name, keyspace_options_of(options)?)?)) }
}

/// Returns the keyspace of that name, or creates it with these options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_get_or_create(
    db: *const tamis_db,
    name: *const c_char,
    options: *const tamis_keyspace_options,
    error: *mut *mut tamis_error,
) -> *mut tamis_keyspace {
    // SAFETY: by contract.
    unsafe {
        named(db, name, error, |db, name| Ok(db.get_or_create_keyspace(name, keyspace_options_of(options)?)?))
    }
}

/// Frees a keyspace's handle. The keyspace itself stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_free(keyspace: *mut tamis_keyspace) {
    // SAFETY: by contract.
    unsafe { free(keyspace) }
}

/// Drops a keyspace with all its contents. Handles of it answer TAMIS_CODE_DROPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_drop(
    db: *const tamis_db,
    name: *const c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (db, name) = unsafe { (tamis_db::open(db)?, text(name, "name")?) };
        db.drop_keyspace(name)?;
        Ok(true)
    })
}

/// Gives a keyspace another name. Handles of it stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_rename(
    db: *const tamis_db,
    name: *const c_char,
    new_name: *const c_char,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (db, name, new_name) =
            unsafe { (tamis_db::open(db)?, text(name, "name")?, text(new_name, "new_name")?) };
        db.rename_keyspace(name, new_name)?;
        Ok(true)
    })
}

/// The names of all keyspaces, in the order of their creation. Owned: free them with tamis_list_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_names(
    db: *const tamis_db,
    error: *mut *mut tamis_error,
) -> *mut tamis_list {
    guard(error, std::ptr::null_mut(), || {
        // SAFETY: by contract.
        let names = unsafe { tamis_db::open(db) }?.keyspaces();
        Ok(tamis_list::give(names.into_iter().map(String::into_bytes).collect()))
    })
}

/// Changes `count` options of an open keyspace (NULL: the default one), all or none. Errors: TAMIS_CODE_UNKNOWN_OPTION,
/// TAMIS_CODE_INVALID_OPTION, TAMIS_CODE_FIXED_OPTION.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_set_options(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    names: *const *const c_char,
    values: *const *const c_char,
    count: usize,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        let (place, names, values) = unsafe {
            (tamis_db::place(db, keyspace)?.1, array(names, count, "names")?, array(values, count, "values")?)
        };
        let pairs = names.iter().zip(values);
        let changes: Vec<(&str, &str)> = pairs
            // SAFETY: by contract.
            .map(|(&name, &value)| unsafe { Ok((text(name, "a name")?, text(value, "a value")?)) })
            .collect::<Result<_, Failure>>()?;
        tamis_bindings::options::change(place, &changes)?;
        Ok(true)
    })
}

/// Deletes everything in a keyspace (NULL: the default one).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tamis_keyspace_clear(
    db: *const tamis_db,
    keyspace: *const tamis_keyspace,
    error: *mut *mut tamis_error,
) -> bool {
    guard(error, false, || {
        // SAFETY: by contract.
        unsafe { tamis_db::place(db, keyspace) }?.1.clear()?;
        Ok(true)
    })
}
