//! The part of MDBX's C API that the adapter needs, wrapped in owners that free their contents.
//!
//! Source: `mdbx.h` of MDBX 0.14, in the crate `mdbx-sys`.
//!
//! Invariants: the pointers in [`Env`], [`Reader`] and [`Writer`] came from the C function that
//! creates them, and are freed once. No pointer leaves this module except as a slice that borrows
//! its transaction.
//!
//! Threads: an environment accepts calls from any thread. With `MDBX_NOSTICKYTHREADS` a read
//! transaction belongs to no thread, but has one user at a time; a write transaction ends in the
//! thread that began it, and so in [`Env::write`].

use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

use mdbx_sys as c;

/// Permissions of the files.
const MODE: c::mdbx_mode_t = 0o644;

/// Returns the version, such as `0.14.4`.
pub(super) fn version() -> String {
    // SAFETY: a constant of the library.
    let version = unsafe { &c::mdbx_version };
    format!("{}.{}.{}", version.major, version.minor, version.patch)
}

/// Returns the error of a call, if there is one.
fn checked(code: c_int) -> Result<(), String> {
    if code == c::MDBX_SUCCESS || code == c::MDBX_RESULT_TRUE { Ok(()) } else { Err(text(code)) }
}

#[cold]
fn text(code: c_int) -> String {
    let mut buffer = [0; 256];
    // SAFETY: the buffer has the given length.
    let text = unsafe { c::mdbx_strerror_r(code, buffer.as_mut_ptr(), buffer.len()) };
    // SAFETY: it is a constant or the buffer, and ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn val(bytes: &[u8]) -> c::MDBX_val {
    c::MDBX_val { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

const EMPTY: c::MDBX_val = c::MDBX_val { iov_base: ptr::null_mut(), iov_len: 0 };

/// # Safety
///
/// MDBX set it, and its bytes live for `'t`.
unsafe fn bytes<'t>(val: &c::MDBX_val) -> &'t [u8] {
    if val.iov_len == 0 {
        return &[];
    }
    // SAFETY: as promised by the caller.
    unsafe { slice::from_raw_parts(val.iov_base.cast(), val.iov_len) }
}

/// An open environment with its unnamed table.
pub(super) struct Env {
    raw: NonNull<c::MDBX_env>,
    table: c::MDBX_dbi,
}

// SAFETY: an environment is no thread's own (`mdbx.h`).
unsafe impl Send for Env {}
// SAFETY: its calls lock what they share (`mdbx.h`).
unsafe impl Sync for Env {}

impl Env {
    /// Opens or creates an environment of at most so many bytes.
    pub(super) fn open(dir: &Path, flags: c::MDBX_env_flags_t, most_bytes: isize) -> Result<Env, String> {
        let path = CString::new(dir.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: only sets what is logged to standard error: errors, no notices.
        unsafe { c::mdbx_setup_debug(c::MDBX_LOG_ERROR, c::MDBX_DBG_DONTCHANGE, None) };
        let mut raw = ptr::null_mut();
        // SAFETY: it sets the pointer.
        checked(unsafe { c::mdbx_env_create(&mut raw) })?;
        let raw = NonNull::new(raw).ok_or("it made no environment")?;
        // From here on it is closed on drop, as it must be also if opening fails.
        let mut env = Env { raw, table: 0 };
        // SAFETY: a new environment; -1 stands for defaults.
        checked(unsafe { c::mdbx_env_set_geometry(raw.as_ptr(), -1, -1, most_bytes, -1, -1, -1) })?;
        // SAFETY: a new environment and a string.
        checked(unsafe { c::mdbx_env_open(raw.as_ptr(), path.as_ptr(), flags, MODE) })?;
        let mut table = 0;
        env.write(|writer| {
            // SAFETY: a live transaction; no name stands for the unnamed table.
            checked(unsafe {
                c::mdbx_dbi_open(writer.txn.as_ptr(), ptr::null(), c::MDBX_DB_DEFAULTS, &mut table)
            })
        })?;
        env.table = table;
        Ok(env)
    }

    fn begin(&self, flags: c::MDBX_txn_flags_t) -> Result<NonNull<c::MDBX_txn>, String> {
        let mut txn = ptr::null_mut();
        // SAFETY: an open environment; there is no parent and no context.
        checked(unsafe {
            c::mdbx_txn_begin_ex(self.raw.as_ptr(), ptr::null_mut(), flags, &mut txn, ptr::null_mut())
        })?;
        NonNull::new(txn).ok_or_else(|| "it began no transaction".to_owned())
    }

    /// Executes a write transaction, which commits if `change` succeeds. Waits for other writers.
    #[inline]
    pub(super) fn write(&self, change: impl FnOnce(&Writer<'_>) -> Result<(), String>) -> Result<(), String> {
        let txn = self.begin(c::MDBX_TXN_READWRITE)?;
        let writer = Writer { txn, table: self.table, _env: PhantomData };
        change(&writer)?;
        std::mem::forget(writer);
        // SAFETY: a live transaction of this thread, which ends here whatever is returned.
        checked(unsafe { c::mdbx_txn_commit_ex(txn.as_ptr(), ptr::null_mut()) })
    }

    /// Syncs all commits.
    pub(super) fn sync(&self) -> Result<(), String> {
        // SAFETY: an open environment.
        checked(unsafe { c::mdbx_env_sync_ex(self.raw.as_ptr(), true, false) })
    }

    /// Syncs and closes it.
    pub(super) fn close(self) -> Result<(), String> {
        let raw = self.raw;
        std::mem::forget(self);
        // SAFETY: an open environment without users: they would borrow it.
        checked(unsafe { c::mdbx_env_close_ex(raw.as_ptr(), false) })
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: an environment without users: they would borrow it. `close` forgets it.
        unsafe { c::mdbx_env_close_ex(self.raw.as_ptr(), false) };
    }
}

/// A write transaction, aborted on drop.
pub(super) struct Writer<'e> {
    txn: NonNull<c::MDBX_txn>,
    table: c::MDBX_dbi,
    _env: PhantomData<&'e Env>,
}

impl Writer<'_> {
    /// Puts a value under a key.
    #[inline]
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let (key, mut value) = (val(key), val(value));
        // SAFETY: a live transaction of this thread; MDBX copies key and value, and changes
        // neither.
        checked(unsafe { c::mdbx_put(self.txn.as_ptr(), self.table, &key, &mut value, c::MDBX_UPSERT) })
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // SAFETY: a live transaction of this thread; one that commits is forgotten.
        unsafe { c::mdbx_txn_abort_ex(self.txn.as_ptr(), ptr::null_mut()) };
    }
}

/// A key and its value, in the map.
type Entry<'t> = (&'t [u8], &'t [u8]);

/// A position of a cursor to go to.
#[derive(Clone, Copy)]
pub(super) enum Go {
    /// The first key at or after the given one.
    AtOrAfter,
    /// The last key at or before the given one.
    AtOrBefore,
    /// The next key.
    Next,
    /// The previous key.
    Back,
}

/// A read transaction that can end and begin again, with a cursor.
pub(super) struct Reader<'e> {
    txn: NonNull<c::MDBX_txn>,
    cursor: NonNull<c::MDBX_cursor>,
    table: c::MDBX_dbi,
    _env: PhantomData<&'e Env>,
}

impl<'e> Reader<'e> {
    /// Begins a transaction.
    pub(super) fn begin(env: &'e Env) -> Result<Reader<'e>, String> {
        // SAFETY: it allocates a cursor that belongs to no transaction yet, without a context.
        let cursor = NonNull::new(unsafe { c::mdbx_cursor_create(ptr::null_mut()) });
        let cursor = cursor.ok_or("it made no cursor")?;
        match env.begin(c::MDBX_TXN_RDONLY) {
            Ok(txn) => Ok(Reader { txn, cursor, table: env.table, _env: PhantomData }),
            Err(error) => {
                // SAFETY: the cursor that was just created.
                unsafe { c::mdbx_cursor_close(cursor.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Ends the transaction: the pages that it sees may be used again.
    pub(super) fn end(&mut self) -> Result<(), String> {
        // SAFETY: a read transaction; no slice borrows it.
        checked(unsafe { c::mdbx_txn_reset(self.txn.as_ptr()) })
    }

    /// Begins it again after [`Reader::end`].
    pub(super) fn begin_again(&mut self) -> Result<(), String> {
        // SAFETY: a read transaction that was reset.
        checked(unsafe { c::mdbx_txn_renew(self.txn.as_ptr()) })
    }

    /// Returns the value of a key.
    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, String> {
        let (key, mut value) = (val(key), EMPTY);
        // SAFETY: a read transaction; MDBX refuses one that has ended.
        match unsafe { c::mdbx_get(self.txn.as_ptr(), self.table, &key, &mut value) } {
            c::MDBX_NOTFOUND => Ok(None),
            // SAFETY: on success the value is set, and in the map until the transaction ends, for
            // which it is borrowed.
            code => checked(code).map(|()| Some(unsafe { bytes(&value) })),
        }
    }

    /// Makes the cursor one of the present transaction.
    #[inline]
    pub(super) fn rewind(&mut self) -> Result<(), String> {
        // SAFETY: a read transaction, and a cursor of it or of none; MDBX refuses one that has
        // ended.
        checked(unsafe { c::mdbx_cursor_bind(self.txn.as_ptr(), self.cursor.as_ptr(), self.table) })
    }

    /// Moves the cursor, and returns the entry there. Must come after [`Reader::rewind`] in the
    /// same transaction.
    #[inline]
    pub(super) fn go(&mut self, go: Go, key: &[u8]) -> Result<Option<Entry<'_>>, String> {
        let (mut key, mut value) = (val(key), EMPTY);
        let operation = match go {
            Go::AtOrAfter => c::MDBX_SET_RANGE,
            Go::AtOrBefore => c::MDBX_TO_KEY_LESSER_OR_EQUAL,
            Go::Next => c::MDBX_NEXT,
            Go::Back => c::MDBX_PREV,
        };
        // SAFETY: a cursor of this reader; MDBX refuses one whose transaction has ended.
        match unsafe { c::mdbx_cursor_get(self.cursor.as_ptr(), &mut key, &mut value, operation) } {
            c::MDBX_NOTFOUND | c::MDBX_ENODATA => Ok(None),
            code => {
                checked(code)?;
                // SAFETY: on success both are set, and in the map until the transaction ends, for
                // which they are borrowed.
                Ok(Some(unsafe { (bytes(&key), bytes(&value)) }))
            }
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // SAFETY: the cursor and the read transaction of this reader, which nothing borrows.
        unsafe {
            c::mdbx_cursor_close(self.cursor.as_ptr());
            c::mdbx_txn_abort_ex(self.txn.as_ptr(), ptr::null_mut());
        }
    }
}
