//! Databases: opening, closing, and work on the whole of one.

use std::sync::Arc;

use jni::JNIEnv;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jbyteArray, jlong};
use tamis_bindings::{Database, json};

use crate::border::{array, guard, path, unsigned};
use crate::handle::{self, Object, give, read_memory, write_memory};
use crate::options::of_database;
use crate::place::{Kind, Source, database};

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_open(
    env: JNIEnv,
    _: JClass,
    at: JByteArray,
    options: JByteArray,
    reads: jlong,
    writes: jlong,
    read_only: jboolean,
) -> jlong {
    guard(env, |env| {
        let (path, mut options) = (path(env, &at)?, of_database(env, &options)?);
        if reads != 0 {
            options.shared_read_memory = Some(read_memory(reads)?.clone());
        }
        if writes != 0 {
            options.shared_write_memory = Some(write_memory(writes)?.clone());
        }
        let open = if read_only != 0 { Database::open_read_only } else { Database::open };
        let database = Arc::new(open(path, options)?);
        let keyspace = database.db()?.default_keyspace().clone();
        Ok(give(Object::Source(Source { database, kind: Kind::Keyspace(keyspace) })))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_close(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| handle::source(of)?.database.close())
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_verify(
    env: JNIEnv,
    _: JClass,
    at: JByteArray,
    options: JByteArray,
) -> jbyteArray {
    guard(env, |env| {
        let (path, options) = (path(env, &at)?, of_database(env, &options)?);
        array(env, json::text(&tamis_doctor::verify(path, options.into_options())?).as_bytes())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_salvage(
    env: JNIEnv,
    _: JClass,
    at: JByteArray,
    options: JByteArray,
    dry_run: jboolean,
) -> jbyteArray {
    guard(env, |env| {
        let (path, options) = (path(env, &at)?, of_database(env, &options)?);
        array(env, json::text(&tamis_doctor::salvage(path, options.into_options(), dry_run != 0)?).as_bytes())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_flushAll(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| Ok(database(of)?.flush()?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_compactAll(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| Ok(database(of)?.compact()?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_cancelCompactions(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| {
        database(of)?.cancel_compactions();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sync(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| Ok(database(of)?.sync()?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_waitForCompaction(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| Ok(database(of)?.wait_for_compaction()?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_checkpoint(env: JNIEnv, _: JClass, of: jlong, to: JByteArray) {
    guard(env, |env| Ok(database(of)?.checkpoint(path(env, &to)?)?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_setFilterBudget(env: JNIEnv, _: JClass, of: jlong, bytes: jlong) {
    guard(env, |_| Ok(database(of)?.set_filter_budget(unsigned(bytes, "bytes")?)?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_setReadMemory(env: JNIEnv, _: JClass, of: jlong, bytes: jlong) {
    guard(env, |_| Ok(database(of)?.set_read_memory(unsigned(bytes, "bytes")?)?))
}
