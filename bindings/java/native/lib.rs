//! The native library of the Java package `org.tamis`: the methods that `org.tamis.Native` declares, which documents them.
//!
//! Each is a thin shell: it copies its arguments out of the Java heap, makes one call of the engine inside `border::guard`, and hands out
//! what it returns. Java's `Ref` sees to it that a handle is valid during the call (see `handle`).

#![allow(non_snake_case, reason = "functions have the names that the Java machine looks for")]

mod batch;
mod border;
mod cursor;
mod database;
mod handle;
mod keyspace;
mod memory;
mod options;
mod place;
mod read;
mod table;
mod transaction;
mod write;

use std::ffi::c_void;

use jni::objects::JClass;
use jni::sys::{JNI_ERR, JNI_VERSION_1_8, jbyteArray, jint, jlong};
use jni::{JNIEnv, JavaVM};

use crate::border::{array, guard, prepare};

/// Called once, when the library is loaded.
#[unsafe(no_mangle)]
extern "system" fn JNI_OnLoad(machine: JavaVM, _reserved: *mut c_void) -> jint {
    let prepared = machine.get_env().and_then(|mut env| prepare(&mut env));
    // The exception, if there is one, is thrown by what loads the library.
    if prepared.is_ok() { JNI_VERSION_1_8 } else { JNI_ERR }
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_version(env: JNIEnv, _: JClass) -> jbyteArray {
    guard(env, |env| array(env, env!("CARGO_PKG_VERSION").as_bytes()))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_free(env: JNIEnv, _: JClass, handle: jlong) {
    guard(env, |_| {
        handle::free(handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_live(_: JNIEnv, _: JClass) -> jlong {
    handle::live()
}
