//! Handles: the numbers by which Java knows native objects.
//!
//! Java's `Ref` owns each handle. It passes one to a call only between `enter` and `exit`, and to [`free`] once, when no call is
//! inside and none will be again. That is what the two `unsafe` blocks here rely on, and nothing else in this crate does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use jni::sys::jlong;
use tamis::options::{SharedReadMemory, SharedWriteMemory};
use tamis_bindings::Failure;

use crate::cursor::Cursor;
use crate::place::Source;
use crate::table::Table;

/// What a handle stands for.
pub(crate) enum Object {
    Source(Source),
    Cursor(Box<Cursor>),
    ReadMemory(SharedReadMemory),
    WriteMemory(SharedWriteMemory),
    Table(Box<Mutex<Table>>),
}

/// The number of objects that were given and not freed.
static LIVE: AtomicI64 = AtomicI64::new(0);

pub(crate) fn live() -> jlong {
    LIVE.load(Relaxed)
}

/// Hands an object to Java.
pub(crate) fn give(object: Object) -> jlong {
    LIVE.fetch_add(1, Relaxed);
    Box::into_raw(Box::new(object)).expose_provenance() as jlong
}

/// Borrows an object for a call.
pub(crate) fn object<'a>(handle: jlong) -> Result<&'a Object, Failure> {
    let object = std::ptr::with_exposed_provenance::<Object>(handle as usize);
    // SAFETY: null, or given and not freed before the end of the call: see above.
    unsafe { object.as_ref() }.ok_or_else(|| Failure::argument("a handle is null"))
}

/// Frees an object.
pub(crate) fn free(handle: jlong) {
    let object = std::ptr::with_exposed_provenance_mut::<Object>(handle as usize);
    if !object.is_null() {
        // SAFETY: given, and freed once: see above.
        drop(unsafe { Box::from_raw(object) });
        // Not before: with its last object a database is closed, and whoever waits for that may open it again.
        LIVE.fetch_sub(1, Relaxed);
    }
}

pub(crate) fn other() -> Failure {
    Failure::argument("a handle is of another kind")
}

/// A keyspace, snapshot or transaction.
pub(crate) fn source<'a>(handle: jlong) -> Result<&'a Source, Failure> {
    if let Object::Source(source) = object(handle)? { Ok(source) } else { Err(other()) }
}

pub(crate) fn cursor<'a>(handle: jlong) -> Result<&'a Cursor, Failure> {
    if let Object::Cursor(cursor) = object(handle)? { Ok(cursor) } else { Err(other()) }
}

pub(crate) fn read_memory<'a>(handle: jlong) -> Result<&'a SharedReadMemory, Failure> {
    if let Object::ReadMemory(memory) = object(handle)? { Ok(memory) } else { Err(other()) }
}

pub(crate) fn write_memory<'a>(handle: jlong) -> Result<&'a SharedWriteMemory, Failure> {
    if let Object::WriteMemory(memory) = object(handle)? { Ok(memory) } else { Err(other()) }
}

pub(crate) fn table<'a>(handle: jlong) -> Result<&'a Mutex<Table>, Failure> {
    if let Object::Table(table) = object(handle)? { Ok(table) } else { Err(other()) }
}
