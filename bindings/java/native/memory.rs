//! Memory that several databases share.

use jni::JNIEnv;
use jni::objects::JClass;
use jni::sys::jlong;
use tamis::options::SharedReadMemory;

use crate::border::{guard, signed, unsigned};
use crate::handle::{Object, give, read_memory};

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedReadMemory(env: JNIEnv, _: JClass, bytes: jlong) -> jlong {
    guard(env, |_| Ok(give(Object::ReadMemory(SharedReadMemory::new(unsigned(bytes, "bytes")?)))))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedReadMemoryBytes(
    env: JNIEnv,
    _: JClass,
    memory: jlong,
) -> jlong {
    guard(env, |_| Ok(signed(read_memory(memory)?.bytes())))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_setSharedReadMemoryBytes(
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
