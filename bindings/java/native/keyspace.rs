//! Keyspaces, and work on the whole of one.

use jni::JNIEnv;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jbyteArray, jint, jlong};
use tamis::KeyspaceOptions;
use tamis::ingest::IngestOptions;
use tamis::maintenance::CompactOptions;
use tamis_bindings::{Failure, json, options};

use crate::border::{Range, array, bytes, guard, packed, text, unpacked};
use crate::handle::{self, Object, give};
use crate::options::{given, of_keyspace, pairs};
use crate::place::{Kind, Source, database, keyspace};

const EXISTING: jint = 0;
const NEW: jint = 1;

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_keyspace(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    name: JByteArray,
    which: jint,
    options: JByteArray,
) -> jlong {
    guard(env, |env| {
        let name = text(env, &name, "name")?;
        let options: KeyspaceOptions = of_keyspace(env, &options)?;
        let db = database(of)?;
        let keyspace = match which {
            EXISTING => db.keyspace(&name)?,
            NEW => db.create_keyspace(&name, options)?,
            _ => db.get_or_create_keyspace(&name, options)?,
        };
        let database = handle::source(of)?.database.clone();
        Ok(give(Object::Source(Source { database, kind: Kind::Keyspace(keyspace) })))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_name(env: JNIEnv, _: JClass, of: jlong) -> jbyteArray {
    guard(env, |env| array(env, keyspace(of)?.name().as_bytes()))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_keyspaces(env: JNIEnv, _: JClass, of: jlong) -> jbyteArray {
    guard(env, |env| {
        let names = packed(database(of)?.keyspaces().into_iter())?;
        array(env, &names)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_dropKeyspace(env: JNIEnv, _: JClass, of: jlong, name: JByteArray) {
    guard(env, |env| Ok(database(of)?.drop_keyspace(&text(env, &name, "name")?)?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_renameKeyspace(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    name: JByteArray,
    new_name: JByteArray,
) {
    guard(env, |env| {
        let (name, new_name) = (text(env, &name, "name")?, text(env, &new_name, "newName")?);
        Ok(database(of)?.rename_keyspace(&name, &new_name)?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_setOptions(env: JNIEnv, _: JClass, of: jlong, changes: JByteArray) {
    guard(env, |env| options::change(keyspace(of)?, &pairs(&given(env, &changes)?)?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_clear(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| Ok(keyspace(of)?.clear()?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_flush(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| Ok(keyspace(of)?.flush()?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_compact(env: JNIEnv, _: JClass, of: jlong) {
    guard(env, |_| Ok(keyspace(of)?.compact()?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_compactRange(
    env: JNIEnv,
    _: JClass,
    of: jlong,
    start: JByteArray,
    end: JByteArray,
    bounds: jint,
) {
    guard(env, |env| {
        let range = Range::new(env, &start, &end, bounds)?;
        Ok(keyspace(of)?.compact_range::<&[u8]>(range.keys(), CompactOptions::default())?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_ingest(
    env: JNIEnv,
    _: JClass,
    into: jlong,
    paths: JByteArray,
    move_files: jboolean,
) -> jlong {
    guard(env, |env| {
        let paths = bytes(env, &paths, "files")?;
        let options = IngestOptions { move_files: move_files != 0, ..IngestOptions::default() };
        let done = keyspace(into)?.ingest(&unpacked(&paths)?, options)?;
        Ok(crate::border::signed(done.entries))
    })
}

const STATS: jint = 0;
const KEYSPACE_STATS: jint = 1;
const TABLES: jint = 2;
const SEGMENTS: jint = 3;
const DATABASE_OPTIONS: jint = 4;
const KEYSPACE_OPTIONS: jint = 5;
const VERIFY: jint = 6;

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_report(env: JNIEnv, _: JClass, of: jlong, what: jint) -> jbyteArray {
    guard(env, |env| {
        let (db, keyspace) = (database(of)?, keyspace(of)?);
        let report = match what {
            STATS => json::stats(db),
            KEYSPACE_STATS => json::keyspace_stats(keyspace),
            TABLES => json::tables(keyspace),
            SEGMENTS => json::segments(db),
            DATABASE_OPTIONS => db.options().to_text(),
            KEYSPACE_OPTIONS => keyspace.options().to_text(),
            VERIFY => json::verify(db)?,
            other => return Err(Failure::argument(format!("there is no report {other}"))),
        };
        array(env, report.as_bytes())
    })
}
