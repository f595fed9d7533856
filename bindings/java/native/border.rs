//! The border: what comes in is copied and checked, and no panic goes out.
//!
//! Other threads may change Java's arrays and buffers at any time, so nothing borrows from them.

use std::mem::ManuallyDrop;
use std::ops::{Bound, Deref};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use jni::objects::{
    GlobalRef, JByteArray, JByteBuffer, JClass, JMethodID, JObject, JStaticMethodID, JThrowable, JValue,
};
use jni::signature::{Primitive, ReturnType};
use jni::sys::{jbyteArray, jint, jlong, jsize};
use jni::{JNIEnv, JavaVM};
use tamis::maintenance::interruptible;
use tamis_bindings::{Code, Failure};

/// How exceptions are made: by the static method `TamisException.of`.
struct Exceptions {
    class: GlobalRef,
    of: JStaticMethodID,
    vm: JavaVM,
    thread: GlobalRef,
    current: JStaticMethodID,
    is_interrupted: JMethodID,
}

static EXCEPTIONS: OnceLock<Exceptions> = OnceLock::new();

/// Looks up what exceptions are made by, while the class loader of the library is at hand.
pub(crate) fn prepare(env: &mut JNIEnv) -> jni::errors::Result<()> {
    let class = env.find_class("org/tamis/TamisException")?;
    let of = env.get_static_method_id(&class, "of", "(I[B[B[B)Lorg/tamis/TamisException;")?;
    let class = env.new_global_ref(class)?;
    let thread = env.find_class("java/lang/Thread")?;
    let current = env.get_static_method_id(&thread, "currentThread", "()Ljava/lang/Thread;")?;
    let is_interrupted = env.get_method_id(&thread, "isInterrupted", "()Z")?;
    let (vm, thread) = (env.get_java_vm()?, env.new_global_ref(thread)?);
    EXCEPTIONS.get_or_init(|| Exceptions { class, of, vm, thread, current, is_interrupted });
    Ok(())
}

/// Reports whether this thread, which is in a call from Java, was interrupted. It stays so.
fn is_interrupted() -> bool {
    let asked = || -> jni::errors::Result<bool> {
        let Some(java) = EXCEPTIONS.get() else { return Ok(false) };
        let mut env = java.vm.get_env()?;
        let class: &JClass = java.thread.as_obj().into();
        // SAFETY: the method belongs to the class, and takes and returns objects of these types.
        let thread =
            unsafe { env.call_static_method_unchecked(class, java.current, ReturnType::Object, &[]) }?;
        // Not left to the end of the call, which may ask often.
        let thread = env.auto_local(thread.l()?);
        let answer = ReturnType::Primitive(Primitive::Boolean);
        // SAFETY: as before.
        unsafe { env.call_method_unchecked(&thread, java.is_interrupted, answer, &[]) }?.z()
    };
    asked().unwrap_or(false)
}

/// Runs a call, which ends early once its thread is interrupted if it waits for long. A failure or a panic is thrown as an exception, unless one is pending already: then that is the answer.
pub(crate) fn guard<T: Default>(mut env: JNIEnv, call: impl FnOnce(&mut JNIEnv) -> Result<T, Failure>) -> T {
    // What a panic leaves behind is the engine's to judge: it refuses writes if an invariant may be broken.
    let call = || interruptible(is_interrupted, || call(&mut env));
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(answer)) => return answer,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            // Its destructor could panic again.
            let payload = ManuallyDrop::new(payload);
            Failure::panic(&**payload)
        }
    };
    if !env.exception_check().unwrap_or(true) && throw(&mut env, &failure).is_err() {
        // Java has thrown something else meanwhile: it is out of memory.
        debug_assert!(env.exception_check().unwrap_or(true));
    }
    T::default()
}

fn throw(env: &mut JNIEnv, failure: &Failure) -> jni::errors::Result<()> {
    let Some(exceptions) = EXCEPTIONS.get() else {
        return env.throw_new("java/lang/IllegalStateException", &failure.text);
    };
    let text = env.byte_array_from_slice(failure.text.as_bytes())?;
    let key = match &failure.key {
        Some(key) => env.byte_array_from_slice(key)?.into(),
        None => JObject::null(),
    };
    let keyspace = match &failure.keyspace {
        Some(name) => env.byte_array_from_slice(name.as_bytes())?.into(),
        None => JObject::null(),
    };
    let arguments = [
        JValue::Int(failure.code.number()).as_jni(),
        JValue::Object(&text).as_jni(),
        JValue::Object(&key).as_jni(),
        JValue::Object(&keyspace).as_jni(),
    ];
    let class: &JClass = exceptions.class.as_obj().into();
    // SAFETY: the method belongs to the class, and takes and returns objects of these types.
    let made =
        unsafe { env.call_static_method_unchecked(class, exceptions.of, ReturnType::Object, &arguments) }?;
    env.throw(JThrowable::from(made.l()?))
}

/// The failure of a call into the Java machine. If that has thrown an exception, [`guard`] leaves it as the answer.
pub(crate) fn java(error: jni::errors::Error) -> Failure {
    Failure::new(Code::Other, error.to_string())
}

/// Bytes that were copied out of the Java heap: the short ones, as most keys are, without an allocation.
pub(crate) enum Bytes {
    Short([i8; SHORT], usize),
    Long(Vec<i8>),
}

const SHORT: usize = 128;

impl Bytes {
    /// Makes room for `len` bytes, which `fill` copies.
    fn filled(len: usize, fill: impl FnOnce(&mut [i8]) -> Result<(), Failure>) -> Result<Bytes, Failure> {
        if len <= SHORT {
            let mut bytes = [0; SHORT];
            fill(&mut bytes[..len])?;
            return Ok(Bytes::Short(bytes, len));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|error| Failure::new(Code::Other, error.to_string()))?;
        bytes.resize(len, 0);
        fill(&mut bytes)?;
        Ok(Bytes::Long(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = match self {
            Bytes::Short(bytes, len) => &bytes[..*len],
            Bytes::Long(bytes) => bytes,
        };
        // SAFETY: the same bytes, of a type with the same layout.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is null"))
}

/// Copies an array.
pub(crate) fn bytes(env: &mut JNIEnv, given: &JByteArray, what: &str) -> Result<Bytes, Failure> {
    optional(env, given)?.ok_or_else(|| null(what))
}

/// Copies an array; null is none.
pub(crate) fn optional(env: &mut JNIEnv, given: &JByteArray) -> Result<Option<Bytes>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    let len = env.get_array_length(given).map_err(java)?;
    part(env, given, len).map(Some)
}

/// Copies the first `len` bytes of an array that is not null.
pub(crate) fn part(env: &mut JNIEnv, given: &JByteArray, len: jsize) -> Result<Bytes, Failure> {
    let len = usize::try_from(len).map_err(|_| Failure::argument("a length is negative"))?;
    Bytes::filled(len, |room| env.get_byte_array_region(given, 0, room).map_err(java))
}

/// Copies text.
pub(crate) fn text(env: &mut JNIEnv, given: &JByteArray, what: &str) -> Result<String, Failure> {
    optional_text(env, given, what)?.ok_or_else(|| null(what))
}

/// Copies text; null is none.
pub(crate) fn optional_text(
    env: &mut JNIEnv,
    given: &JByteArray,
    what: &str,
) -> Result<Option<String>, Failure> {
    let Some(bytes) = optional(env, given)? else { return Ok(None) };
    let text = String::from_utf8(bytes.to_vec());
    text.map(Some).map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// Splits what Java's `Text.packed` has packed: items, each after its length.
pub(crate) fn unpacked(packed: &[u8]) -> Result<Vec<&str>, Failure> {
    let mut items = Vec::new();
    let mut rest = packed;
    while !rest.is_empty() {
        let damaged = || Failure::argument("packed texts are damaged");
        let (len, after) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| damaged())?;
        let (item, after) = after.split_at_checked(len).ok_or_else(damaged)?;
        items.push(std::str::from_utf8(item).map_err(|_| Failure::argument("a text is not UTF-8"))?);
        rest = after;
    }
    Ok(items)
}

/// Packs items for Java's `Text.unpacked`.
pub(crate) fn packed<T: AsRef<[u8]>>(items: impl Iterator<Item = T>) -> Result<Vec<u8>, Failure> {
    let mut packed = Vec::new();
    for item in items {
        push_len(&mut packed, item.as_ref())?;
        packed.extend_from_slice(item.as_ref());
    }
    Ok(packed)
}

/// Appends the length of some bytes, as Java's `Bytes.getInt` reads it.
pub(crate) fn push_len(packed: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Failure> {
    let len = jint::try_from(bytes.len()).map_err(|_| too_long(bytes.len()))?;
    packed.extend_from_slice(&len.to_le_bytes());
    Ok(())
}

/// Every Java machine can allocate arrays of this length.
const MOST_BYTES: usize = jint::MAX as usize - 8;

fn too_long(len: usize) -> Failure {
    let text = format!("the answer has {len} bytes, and an array of Java at most {MOST_BYTES}");
    Failure::new(Code::ValueTooLong, text)
}

/// Hands out bytes as an array.
pub(crate) fn array(env: &mut JNIEnv, bytes: &[u8]) -> Result<jbyteArray, Failure> {
    new_array(env, bytes).map(|array| array.into_raw())
}

/// Hands out a value as an array; none is null.
pub(crate) fn optional_array(
    env: &mut JNIEnv,
    value: Option<impl AsRef<[u8]>>,
) -> Result<jbyteArray, Failure> {
    value.map_or(Ok(std::ptr::null_mut()), |value| array(env, value.as_ref()))
}

/// Copies bytes into a new array.
pub(crate) fn new_array<'l>(env: &mut JNIEnv<'l>, bytes: &[u8]) -> Result<JByteArray<'l>, Failure> {
    if bytes.len() > MOST_BYTES {
        return Err(too_long(bytes.len()));
    }
    env.byte_array_from_slice(bytes).map_err(java)
}

/// A part of a direct buffer.
pub(crate) struct Direct {
    data: *mut u8,
    len: usize,
}

impl Direct {
    /// Checks the part of `buffer` from `at` on that has `len` bytes.
    pub(crate) fn new(
        env: &mut JNIEnv,
        buffer: &JByteBuffer,
        at: jint,
        len: jint,
    ) -> Result<Direct, Failure> {
        let outside = || Failure::argument("a part of a buffer lies outside of it");
        let at = usize::try_from(at).map_err(|_| outside())?;
        let len = usize::try_from(len).map_err(|_| outside())?;
        if buffer.is_null() {
            return Err(null("a buffer"));
        }
        let not_direct = |_| Failure::argument("a buffer is not direct");
        let capacity = env.get_direct_buffer_capacity(buffer).map_err(not_direct)?;
        if at.checked_add(len).is_none_or(|end| end > capacity) {
            return Err(outside());
        }
        if len == 0 {
            // It may have no address.
            return Ok(Direct { data: std::ptr::null_mut(), len });
        }
        let data = env.get_direct_buffer_address(buffer).map_err(not_direct)?;
        // SAFETY: within the buffer, as checked.
        Ok(Direct { data: unsafe { data.add(at) }, len })
    }

    /// Copies the bytes.
    pub(crate) fn bytes(&self) -> Result<Bytes, Failure> {
        Bytes::filled(self.len, |room| {
            if !room.is_empty() {
                // SAFETY: the buffer, an argument of the call, has that many bytes for as long as the call runs; `room` is new.
                unsafe { std::ptr::copy_nonoverlapping(self.data.cast(), room.as_mut_ptr(), room.len()) };
            }
            Ok(())
        })
    }

    /// Stores bytes if there is room for all of them.
    pub(crate) fn store(&self, bytes: &[u8]) {
        if !bytes.is_empty() && bytes.len() <= self.len {
            // SAFETY: the buffer has room for as long as the call runs, and lies outside of the engine's memory.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data, bytes.len()) };
        }
    }
}

/// A range of keys, with the bounds that Java's `Range.bounds` says.
pub(crate) struct Range {
    start: Option<Bytes>,
    end: Option<Bytes>,
    bounds: jint,
}

const START_INCLUDED: jint = 1;
const END_INCLUDED: jint = 2;

impl Range {
    pub(crate) fn new(
        env: &mut JNIEnv,
        start: &JByteArray,
        end: &JByteArray,
        bounds: jint,
    ) -> Result<Range, Failure> {
        Ok(Range { start: optional(env, start)?, end: optional(env, end)?, bounds })
    }

    pub(crate) fn keys(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        keys(self.start.as_deref(), self.end.as_deref(), self.bounds)
    }
}

pub(crate) fn keys<'a>(
    start: Option<&'a [u8]>,
    end: Option<&'a [u8]>,
    bounds: jint,
) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let bound = |key: Option<&'a [u8]>, included| match key {
        None => Bound::Unbounded,
        Some(key) if bounds & included != 0 => Bound::Included(key),
        Some(key) => Bound::Excluded(key),
    };
    (bound(start, START_INCLUDED), bound(end, END_INCLUDED))
}

/// A path, which Java has made absolute.
pub(crate) fn path(env: &mut JNIEnv, given: &JByteArray) -> Result<Box<Path>, Failure> {
    Ok(Path::new(&text(env, given, "path")?).into())
}

/// A number that cannot be negative.
pub(crate) fn unsigned(number: jlong, what: &str) -> Result<u64, Failure> {
    u64::try_from(number).map_err(|_| Failure::argument(format!("{what} is negative: {number}")))
}

/// A count or sequence number for Java, which has no unsigned numbers.
pub(crate) fn signed(number: u64) -> jlong {
    jlong::try_from(number).unwrap_or(jlong::MAX)
}

/// Locks what belongs to one thread at a time. To wait would hide a mistake of the caller, so it is an error.
pub(crate) fn exclusive<'a, T>(owned: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>, Failure> {
    match owned.try_lock() {
        Ok(guard) => Ok(guard),
        // A panic in an earlier call was reported there.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::argument(format!("{what} is in use by another thread, and is for one at a time")))
        }
    }
}
