//! Batches: the operations that Java's `WriteBatch` has packed into one array.

use jni::JNIEnv;
use jni::objects::{JByteArray, JClass, JLongArray};
use jni::sys::{jint, jlong};
use tamis::{Keyspace, WriteBatch};
use tamis_bindings::Failure;

use crate::border::{guard, java, keys, part};
use crate::handle;
use crate::options::durability;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const MERGE: u8 = 2;
const DELETE_RANGE: u8 = 3;
/// The bits of the kind itself; the others say what a range is.
const KIND: u8 = 3;
const BOUNDS_SHIFT: u32 = 2;
const HAS_START: u8 = 1 << 4;
const HAS_END: u8 = 1 << 5;

/// One operation: its kind, the number of its keyspace, and two byte strings.
type Operation<'a> = (u8, usize, &'a [u8], &'a [u8]);

/// Splits off the first operation. The array is another thread's to change while it is copied, so that nothing is certain.
fn split(packed: &[u8]) -> Option<(Operation<'_>, &[u8])> {
    let (&kind, rest) = packed.split_first()?;
    let (numbers, rest) = rest.split_first_chunk::<12>()?;
    let number = |i: usize| {
        let bytes = numbers[4 * i..].first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let (first, rest) = rest.split_at_checked(number(1)?)?;
    let (second, rest) = rest.split_at_checked(number(2)?)?;
    Some(((kind, number(0)?, first, second), rest))
}

/// Fills a batch. Keyspace 0 is the default one of the database that it is written to.
fn batch(packed: &[u8], keyspaces: &[&Keyspace]) -> Result<WriteBatch, Failure> {
    let damaged = || Failure::argument("the batch was changed while it was written");
    let mut batch = WriteBatch::with_capacity(packed.len());
    let mut rest = packed;
    while !rest.is_empty() {
        let (kind, keyspace, first, second);
        ((kind, keyspace, first, second), rest) = split(rest).ok_or_else(damaged)?;
        let keyspace = match keyspace.checked_sub(1) {
            None => None,
            Some(at) => Some(*keyspaces.get(at).ok_or_else(damaged)?),
        };
        match (kind & KIND, keyspace) {
            (PUT, None) => batch.put(first, second),
            (PUT, Some(keyspace)) => batch.put_in(keyspace, first, second),
            (DELETE, None) => batch.delete(first),
            (DELETE, Some(keyspace)) => batch.delete_in(keyspace, first),
            (MERGE, None) => batch.merge(first, second),
            (MERGE, Some(keyspace)) => batch.merge_in(keyspace, first, second),
            (DELETE_RANGE.., keyspace) => {
                let start = (kind & HAS_START != 0).then_some(first);
                let end = (kind & HAS_END != 0).then_some(second);
                let keys = keys(start, end, jint::from(kind >> BOUNDS_SHIFT));
                match keyspace {
                    None => batch.delete_range::<&[u8]>(keys),
                    Some(keyspace) => batch.delete_range_in::<&[u8]>(keyspace, keys),
                }
            }
        };
    }
    Ok(batch)
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_write(
    env: JNIEnv,
    _: JClass,
    database: jlong,
    operations: JByteArray,
    len: jint,
    keyspaces: JLongArray,
    durable: JByteArray,
) {
    guard(env, |env| {
        let db = crate::place::database(database)?;
        let durability = durability(env, &durable)?;
        let mut handles =
            vec![0; usize::try_from(env.get_array_length(&keyspaces).map_err(java)?).unwrap_or(0)];
        env.get_long_array_region(&keyspaces, 0, &mut handles).map_err(java)?;
        let keyspaces: Vec<&Keyspace> = handles
            .into_iter()
            .map(|handle| handle::source(handle)?.keyspace())
            .collect::<Result<_, Failure>>()?;
        let batch = batch(&part(env, &operations, len)?, &keyspaces)?;
        match durability {
            Some(durability) => db.write_with(batch, durability)?,
            None => db.write(batch)?,
        }
        Ok(())
    })
}
