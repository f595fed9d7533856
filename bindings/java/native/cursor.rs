//! Cursors, which hand out items in groups.

use std::sync::{Arc, Mutex};

use jni::JNIEnv;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jbyteArray, jint, jlong};
use tamis::{Iter, ReadError, Slice};
use tamis_bindings::{Database, Failure};

use crate::border::{Range, array, bytes, exclusive, guard, optional, push_len};
use crate::handle::{self, Object, give};
use crate::place::{Kind, Place};

/// A group grows while the iteration goes on, up to this many items or bytes: whoever wants one item does not pay for many.
const MOST_ITEMS: usize = 128;
const MOST_BYTES: usize = 256 << 10;

pub(crate) struct Cursor {
    database: Arc<Database>,
    state: Mutex<State>,
}

struct State {
    iter: Iter,
    reversed: bool,
    keys_only: bool,
    /// The items of the next group.
    group: usize,
    /// The most items of a group.
    most: usize,
    /// Whether the iteration has come to its end, by an error or not.
    finished: bool,
    /// What ended the iteration after the items of the last group.
    error: Option<Failure>,
}

impl State {
    /// Returns the next group: a byte that says whether more may follow, and the items.
    fn fetch(&mut self) -> Result<Vec<u8>, Failure> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut items = vec![0];
        let mut count = 0;
        while !self.finished && count < self.group && items.len() < MOST_BYTES {
            match if self.reversed { self.iter.next_back() } else { self.iter.next() } {
                Some(Ok(item)) => {
                    self.push(&mut items, &item)?;
                    count += 1;
                }
                Some(Err(error)) if count == 0 => {
                    self.finished = true;
                    return Err(error.into());
                }
                end => {
                    self.finished = true;
                    self.error = end.and_then(Result::err).map(Failure::from);
                }
            }
        }
        self.group = (2 * self.group).min(self.most);
        items[0] = u8::from(!self.finished || self.error.is_some());
        Ok(items)
    }

    fn push(&self, items: &mut Vec<u8>, (key, value): &(Slice, Slice)) -> Result<(), Failure> {
        let value: &[u8] = if self.keys_only { &[] } else { value };
        push_len(items, key)?;
        push_len(items, value)?;
        items.extend_from_slice(key);
        items.extend_from_slice(value);
        Ok(())
    }

    /// Moves the front, and forgets how the iteration ended.
    fn seek(&mut self, key: &[u8]) -> Result<(), ReadError> {
        (self.group, self.finished, self.error) = (1, false, None);
        self.iter.seek(key)
    }
}

/// A cursor of a database that is open.
fn with<T>(cursor: jlong, call: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
    let cursor = handle::cursor(cursor)?;
    let mut state = exclusive(&cursor.state, "cursor")?;
    cursor.database.db()?;
    call(&mut state)
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_cursor(
    env: JNIEnv,
    _: JClass,
    source: jlong,
    place: jlong,
    start: JByteArray,
    end: JByteArray,
    bounds: jint,
    reversed: jboolean,
    keys_only: jboolean,
) -> jlong {
    guard(env, |env| {
        let place = Place::new(source, place)?;
        let range = Range::new(env, &start, &end, bounds)?;
        // A transaction depends on all that it has read: nothing is fetched before it is asked for.
        let precise = matches!(place.source.kind, Kind::Transaction(_));
        let state = State {
            iter: place.range(range.keys())?,
            reversed: reversed != 0,
            keys_only: keys_only != 0,
            group: 1,
            most: if precise { 1 } else { MOST_ITEMS },
            finished: false,
            error: None,
        };
        let database = place.source.database.clone();
        Ok(give(Object::Cursor(Box::new(Cursor { database, state: Mutex::new(state) }))))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_fetch(env: JNIEnv, _: JClass, cursor: jlong) -> jbyteArray {
    guard(env, |env| {
        let items = with(cursor, State::fetch)?;
        array(env, &items)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_nextBack(
    env: JNIEnv,
    _: JClass,
    cursor: jlong,
    front: JByteArray,
) -> jbyteArray {
    guard(env, |env| {
        let front = optional(env, &front)?;
        let items = with(cursor, |state| {
            // From now on both ends see where the other one is.
            (state.group, state.most) = (1, 1);
            if let Some(front) = front {
                state.seek(&front)?;
            }
            let mut items = vec![1];
            if let Some(item) = state.iter.next_back().transpose()? {
                state.push(&mut items, &item)?;
            }
            Ok(items)
        })?;
        array(env, &items)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_tamis_Native_seek(env: JNIEnv, _: JClass, cursor: jlong, key: JByteArray) {
    guard(env, |env| {
        let key = bytes(env, &key, "key")?;
        with(cursor, |state| Ok(state.seek(&key)?))
    })
}
