//! Writes of one key or range, and atomic changes of one key.

use jni::JNIEnv;
use jni::objects::{JByteArray, JByteBuffer, JClass};
use jni::sys::{jboolean, jbyteArray, jint, jlong};

use crate::border::{Direct, Range, bytes, guard, optional, optional_array};
use crate::place::{Place, keyspace};

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_put(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    key: JByteArray,
    value: JByteArray,
) {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        place.put(&bytes(env, &key, "key")?, &bytes(env, &value, "value")?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_putDirect(
    env: JNIEnv,
    _: JClass,
    to: jlong,
    key: JByteBuffer,
    key_at: jint,
    key_len: jint,
    value: JByteBuffer,
    value_at: jint,
    value_len: jint,
) {
    guard(env, |env| {
        let keyspace = keyspace(to)?;
        let key = Direct::new(env, &key, key_at, key_len)?.bytes()?;
        let value = Direct::new(env, &value, value_at, value_len)?.bytes()?;
        Ok(keyspace.put(&key, &value)?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_delete(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    key: JByteArray,
) {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        place.delete(&bytes(env, &key, "key")?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_merge(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    key: JByteArray,
    operand: JByteArray,
) {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        place.merge(&bytes(env, &key, "key")?, &bytes(env, &operand, "operand")?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_deleteRange(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    start: JByteArray,
    end: JByteArray,
    bounds: jint,
) {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        place.delete_range(Range::new(env, &start, &end, bounds)?.keys())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_increment(
    env: JNIEnv,
    _: JClass,
    at: jlong,
    key: JByteArray,
    by: jlong,
) -> jlong {
    guard(env, |env| Ok(keyspace(at)?.increment(bytes(env, &key, "key")?, by)?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_compareAndSwap(
    env: JNIEnv,
    _: JClass,
    at: jlong,
    key: JByteArray,
    expected: JByteArray,
    value: JByteArray,
) -> jboolean {
    guard(env, |env| {
        let keyspace = keyspace(at)?;
        let key = bytes(env, &key, "key")?;
        let (expected, value) = (optional(env, &expected)?, optional(env, &value)?);
        Ok(keyspace.compare_and_swap(&key, expected.as_deref(), value.as_deref())?.is_ok().into())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_insertIfAbsent(
    env: JNIEnv,
    _: JClass,
    at: jlong,
    key: JByteArray,
    value: JByteArray,
) -> jbyteArray {
    guard(env, |env| {
        let keyspace = keyspace(at)?;
        let (key, value) = (bytes(env, &key, "key")?, bytes(env, &value, "value")?);
        let present = keyspace.insert_if_absent(&key, &value)?;
        optional_array(env, present)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_take(
    env: JNIEnv,
    _: JClass,
    at: jlong,
    key: JByteArray,
) -> jbyteArray {
    guard(env, |env| {
        let keyspace = keyspace(at)?;
        let value = keyspace.take(bytes(env, &key, "key")?)?;
        optional_array(env, value)
    })
}
