//! Memory that several databases share.

use jni::JNIEnv;
use jni::objects::JClass;
use jni::sys::{jbyteArray, jlong};
use tamis::options::{SharedReadMemory, SharedWriteMemory};
use tamis_bindings::json;

use crate::border::{array, guard, signed, unsigned};
use crate::handle::{Object, give, object, other};

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedReadMemory(env: JNIEnv, _: JClass, bytes: jlong) -> jlong {
    guard(env, |_| Ok(give(Object::ReadMemory(SharedReadMemory::new(unsigned(bytes, "bytes")?)))))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedWriteMemory(env: JNIEnv, _: JClass, bytes: jlong) -> jlong {
    guard(env, |_| Ok(give(Object::WriteMemory(SharedWriteMemory::new(unsigned(bytes, "bytes")?)))))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedMemoryBytes(env: JNIEnv, _: JClass, memory: jlong) -> jlong {
    guard(env, |_| match object(memory)? {
        Object::ReadMemory(memory) => Ok(signed(memory.bytes())),
        Object::WriteMemory(memory) => Ok(signed(memory.bytes())),
        _ => Err(other()),
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_setSharedMemoryBytes(
    env: JNIEnv,
    _: JClass,
    memory: jlong,
    bytes: jlong,
) {
    guard(env, |_| {
        let bytes = unsigned(bytes, "bytes")?;
        match object(memory)? {
            Object::ReadMemory(memory) => memory.set_bytes(bytes),
            Object::WriteMemory(memory) => memory.set_bytes(bytes),
            _ => return Err(other()),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_sharedMemoryMembers(
    env: JNIEnv,
    _: JClass,
    memory: jlong,
) -> jbyteArray {
    guard(env, |env| {
        let members = match object(memory)? {
            Object::ReadMemory(memory) => json::text(&memory.members()),
            Object::WriteMemory(memory) => json::text(&memory.members()),
            _ => return Err(other()),
        };
        array(env, members.as_bytes())
    })
}
