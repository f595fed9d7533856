//! External tables.

use std::sync::Mutex;

use jni::JNIEnv;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jbyteArray, jint, jlong};
use tamis::ingest::ExternalTableBuilder;
use tamis_bindings::{Code, Failure, json};

use crate::border::{Range, array, bytes, exclusive, guard, path, signed};
use crate::handle::{self, Object, give};
use crate::options::of_keyspace;

/// A table that is being built. None: it is finished.
pub(crate) type Table = Option<ExternalTableBuilder>;

fn finished() -> Failure {
    Failure::new(Code::Ended, "the table was finished or dropped")
}

fn with<T>(
    table: jlong,
    call: impl FnOnce(&mut ExternalTableBuilder) -> Result<T, Failure>,
) -> Result<T, Failure> {
    call(exclusive(handle::table(table)?, "builder")?.as_mut().ok_or_else(finished)?)
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_tableBuilder(
    env: JNIEnv,
    _: JClass,
    at: JByteArray,
    options: JByteArray,
) -> jlong {
    guard(env, |env| {
        let (path, options) = (path(env, &at)?, of_keyspace(env, &options)?);
        let builder = ExternalTableBuilder::create(path, &options)?;
        Ok(give(Object::Table(Box::new(Mutex::new(Some(builder))))))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_tablePut(
    env: JNIEnv,
    _: JClass,
    table: jlong,
    key: JByteArray,
    value: JByteArray,
) {
    guard(env, |env| {
        let (key, value) = (bytes(env, &key, "key")?, bytes(env, &value, "value")?);
        with(table, |builder| Ok(builder.put(&key, &value)?))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_tableDelete(env: JNIEnv, _: JClass, table: jlong, key: JByteArray) {
    guard(env, |env| {
        let key = bytes(env, &key, "key")?;
        with(table, |builder| Ok(builder.delete(&key)?))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_tableDeleteRange(
    env: JNIEnv,
    _: JClass,
    table: jlong,
    start: JByteArray,
    end: JByteArray,
    bounds: jint,
) {
    guard(env, |env| {
        let range = Range::new(env, &start, &end, bounds)?;
        with(table, |builder| Ok(builder.delete_range::<&[u8]>(range.keys())?))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_tableSize(env: JNIEnv, _: JClass, table: jlong) -> jlong {
    guard(env, |_| with(table, |builder| Ok(signed(builder.entries()))))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_tableFinish(env: JNIEnv, _: JClass, table: jlong) -> jbyteArray {
    guard(env, |env| {
        let builder = exclusive(handle::table(table)?, "builder")?.take().ok_or_else(finished)?;
        array(env, json::text(&builder.finish()?).as_bytes())
    })
}
