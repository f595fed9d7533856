//! Reads.

use jni::JNIEnv;
use jni::objects::{JByteArray, JByteBuffer, JClass, JObject, JObjectArray};
use jni::sys::{jboolean, jbyteArray, jint, jlong, jobjectArray, jsize};
use tamis_bindings::{Failure, json};

use crate::border::{Direct, Range, array, bytes, guard, java, new_array, optional_array, signed};
use crate::place::{Place, keyspace};

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_get(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    key: JByteArray,
) -> jbyteArray {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        let value = place.get(&bytes(env, &key, "key")?)?;
        optional_array(env, value)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_getDirect(
    env: JNIEnv,
    _: JClass,
    from: jlong,
    key: JByteBuffer,
    key_at: jint,
    key_len: jint,
    value: JByteBuffer,
    value_at: jint,
    room: jint,
) -> jint {
    guard(env, |env| {
        let keyspace = keyspace(from)?;
        let key = Direct::new(env, &key, key_at, key_len)?.bytes()?;
        let to = Direct::new(env, &value, value_at, room)?;
        let Some(value) = keyspace.get(&key)? else { return Ok(-1) };
        let len = jint::try_from(value.len()).map_err(|_| Failure::argument("no buffer holds the value"))?;
        to.store(&value);
        Ok(len)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_containsKey(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    key: JByteArray,
) -> jboolean {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        Ok(place.contains(&bytes(env, &key, "key")?)?.into())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_multiGet(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    keys: JObjectArray,
) -> jobjectArray {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        if keys.is_null() {
            return Err(Failure::argument("keys is null"));
        }
        let count = env.get_array_length(&keys).map_err(java)?;
        let mut copied = Vec::new();
        for i in 0..count {
            let key = env.get_object_array_element(&keys, i).map_err(java)?;
            let key = env.auto_local(JByteArray::from(key));
            copied.push(bytes(env, &key, "key")?);
        }
        let values = place.multi_get(&copied)?;
        let answer = env.new_object_array(count, "[B", JObject::null()).map_err(java)?;
        for (i, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let value = new_array(env, value)?;
            let value = env.auto_local(value);
            // As many as the keys, whose number is of this type.
            env.set_object_array_element(&answer, i as jsize, &value).map_err(java)?;
        }
        Ok(answer.into_raw())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_approximateCount(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    start: JByteArray,
    end: JByteArray,
    bounds: jint,
) -> jlong {
    guard(env, |env| {
        let range = Range::new(env, &start, &end, bounds)?;
        Ok(signed(keyspace(of)?.approximate_len::<&[u8]>(range.keys())?))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_approximateSize(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    start: JByteArray,
    end: JByteArray,
    bounds: jint,
) -> jlong {
    guard(env, |env| {
        let range = Range::new(env, &start, &end, bounds)?;
        Ok(signed(keyspace(of)?.approximate_size::<&[u8]>(range.keys())?))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_explainGet(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    key: JByteArray,
) -> jbyteArray {
    guard(env, |env| {
        let keyspace = keyspace(of)?;
        let explained = json::explain(keyspace, &bytes(env, &key, "key")?)?;
        array(env, explained.as_bytes())
    })
}
