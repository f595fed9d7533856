//! The environment, of which there is one: the operating system's files, threads and time.

use std::ffi::c_char;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::ptr;

use crate::border::{copy_out, hand_out, shielded, take_back};

/// The environment of a database.
#[derive(Debug)]
pub struct Env {
    /// So that every handle is memory of its own.
    _unused: u8,
}

/// Returns a handle of the environment. Destroy it with `leveldb_env_destroy`.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut Env {
    hand_out(Env { _unused: 0 })
}

/// Destroys a handle of the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_destroy(env: *mut Env) {
    // SAFETY: a handle of the caller, which gives it up.
    unsafe { take_back(env) };
}

/// Returns a directory for tests, to be freed, and creates it: that of the environment variable `TEST_TMPDIR`, or
/// `leveldbtest-<user id>` in the directory for temporary files. NULL if it cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_get_test_directory(env: *mut Env) -> *mut c_char {
    let _ = env;
    shielded(ptr::null_mut(), || {
        let named = std::env::var_os("TEST_TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let dir = named.unwrap_or_else(|| {
            // SAFETY: a call without arguments that cannot fail.
            let user = unsafe { libc::geteuid() };
            std::env::temp_dir().join(format!("leveldbtest-{user}"))
        });
        match DirBuilder::new().recursive(true).mode(0o755).create(&dir) {
            Ok(()) => copy_out(&[dir.as_os_str().as_bytes(), &[0]].concat()),
            Err(_) => ptr::null_mut(),
        }
    })
}
