//! The objects that the options of a database take: comparators, filter policies, caches, loggers.

use std::ffi::{CStr, c_char, c_int, c_void};

use tamis::options::SharedReadMemory;

use crate::border::{hand_out, take_back};

/// The bits per key where a program sets a policy of its own, or none.
pub(crate) const DEFAULT_BITS: f64 = 10.0;

/// Longer names of comparators are cut in messages.
const MAX_NAME_CHARS: usize = 100;

/// A destructor of the caller, to be called once with the caller's state.
#[derive(Debug)]
struct Callers {
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Drop for Callers {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the caller gave the two together, to be called when the object is destroyed.
            unsafe { destructor(self.state) };
        }
    }
}

/// An order of keys that the program defines. Only its name is ever asked for.
#[derive(Debug)]
pub struct Comparator {
    callers: Callers,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
}

impl Comparator {
    pub(crate) fn name(&self) -> String {
        let Some(name) = self.name else { return "(without a name)".to_owned() };
        // SAFETY: the caller gave the function together with the state, which the destructor has not seen yet.
        let name = unsafe { name(self.callers.state) };
        if name.is_null() {
            return "(without a name)".to_owned();
        }
        // SAFETY: the interface requires a string that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        name.chars().take(MAX_NAME_CHARS).collect()
    }
}

/// Creates a comparator. `compare` is never called: see `leveldb_options_set_comparator`. `destructor` is called once, by
/// `leveldb_comparator_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    compare: Option<
        unsafe extern "C" fn(
            *mut c_void,
            a: *const c_char,
            alen: usize,
            b: *const c_char,
            blen: usize,
        ) -> c_int,
    >,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut Comparator {
    let _ = compare;
    hand_out(Comparator { callers: Callers { state, destructor }, name })
}

/// Destroys a comparator and calls its destructor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut Comparator) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(comparator) };
}

/// What a filter policy comes to: bits per key.
#[derive(Debug)]
pub struct FilterPolicy {
    pub(crate) bits_per_key: f64,
    _callers: Option<Callers>,
}

/// Creates a filter policy of the program's own. It is accepted, and tamis' own filter with 10 bits per key takes its place:
/// `create_filter` and `key_may_match` are never called. `destructor` is called once, by `leveldb_filterpolicy_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    create_filter: Option<
        unsafe extern "C" fn(
            *mut c_void,
            key_array: *const *const c_char,
            key_length_array: *const usize,
            num_keys: c_int,
            filter_length: *mut usize,
        ) -> *mut c_char,
    >,
    key_may_match: Option<
        unsafe extern "C" fn(
            *mut c_void,
            key: *const c_char,
            length: usize,
            filter: *const c_char,
            filter_length: usize,
        ) -> u8,
    >,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut FilterPolicy {
    let _ = (create_filter, key_may_match, name);
    hand_out(FilterPolicy { bits_per_key: DEFAULT_BITS, _callers: Some(Callers { state, destructor }) })
}

/// Creates a policy of this many bits per key, 1 to 64.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy {
    hand_out(FilterPolicy { bits_per_key: bits_per_key.clamp(1, 64).into(), _callers: None })
}

/// Destroys a filter policy and calls its destructor, if it has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(policy) };
}

/// Memory for the block caches of the databases that are opened with it.
#[derive(Debug)]
pub struct Cache {
    pub(crate) memory: SharedReadMemory,
}

/// Creates a cache of `capacity` bytes for decompressed blocks.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut Cache {
    hand_out(Cache { memory: SharedReadMemory::new(capacity as u64) })
}

/// Destroys the handle of a cache. Databases that use it keep its memory until they are closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut Cache) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(cache) };
}

/// A logger, of which there is none.
#[derive(Debug)]
pub struct Logger {
    _private: (),
}
