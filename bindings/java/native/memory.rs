//! Memory that several databases share.

use jni::JNIEnv;
use jni::objects::JClass;
use jni::sys::{jbyteArray, jlong};
use tamis::options::SharedReadMemory;
use tamis_bindings::json;

use crate::border::{array, guard, signed, unsigned};
use crate::handle::{Object, give, read_memory};

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedReadMemory(env: JNIEnv, _: JClass, bytes: jlong) -> jlong {
    guard(env, |_| Ok(give(Object::ReadMemory(SharedReadMemory::new(unsigned(bytes, "bytes")?)))))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedMemoryBytes(env: JNIEnv, _: JClass, memory: jlong) -> jlong {
    guard(env, |_| Ok(signed(read_memory(memory)?.bytes())))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_setSharedMemoryBytes(
    env: JNIEnv,
    _: JClass,
    memory: jlong,
    bytes: jlong,
) {
    guard(env, |_| {
        read_memory(memory)?.set_bytes(unsigned(bytes, "bytes")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedMemoryMembers(
    env: JNIEnv,
    _: JClass,
    memory: jlong,
) -> jbyteArray {
    guard(env, |env| array(env, json::text(&read_memory(memory)?.members()).as_bytes()))
}
