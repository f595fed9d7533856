//! Options by name and text.

use jni::JNIEnv;
use jni::objects::{JByteArray, JClass};
use jni::sys::jbyteArray;
use tamis::{Durability, KeyspaceOptions};
use tamis_bindings::options::Opening;
use tamis_bindings::{Failure, options};

use crate::border::{Bytes, array, bytes, guard, optional_text, unpacked};

/// Copies packed names and values.
pub(crate) fn given(env: &mut JNIEnv, packed: &JByteArray) -> Result<Bytes, Failure> {
    bytes(env, packed, "options")
}

/// Returns names and values in pairs.
pub(crate) fn pairs(packed: &[u8]) -> Result<Vec<(&str, &str)>, Failure> {
    let texts = unpacked(packed)?;
    let (pairs, rest) = texts.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Failure::argument("an option has no value"));
    }
    Ok(pairs.iter().map(|&[name, value]| (name, value)).collect())
}

pub(crate) fn of_database(env: &mut JNIEnv, packed: &JByteArray) -> Result<Opening, Failure> {
    let mut made = Opening::default();
    for (name, value) in pairs(&given(env, packed)?)? {
        options::set(&mut made, name, value)?;
    }
    Ok(made)
}

pub(crate) fn of_keyspace(env: &mut JNIEnv, packed: &JByteArray) -> Result<KeyspaceOptions, Failure> {
    let mut made = KeyspaceOptions::default();
    for (name, value) in pairs(&given(env, packed)?)? {
        options::set_of_keyspace(&mut made, name, value)?;
    }
    Ok(made)
}

/// A durability as text, or none.
pub(crate) fn durability(env: &mut JNIEnv, text: &JByteArray) -> Result<Option<Durability>, Failure> {
    Ok(optional_text(env, text, "durability")?.map(|text| text.parse()).transpose()?)
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_describeOptions(env: JNIEnv, _: JClass) -> jbyteArray {
    guard(env, |env| array(env, options::describe().as_bytes()))
}
