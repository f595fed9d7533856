//! LevelDB's C interface over tamis: every function of `leveldb/c.h` of LevelDB 1.23, under its own name. A program that was
//! written for that header is compiled against it, or against `tamis/leveldb.h`, and linked with this library instead.
//!
//! The README states what each option comes to and where the two engines differ.
//!
//! # Safety
//!
//! All functions have one contract, that of LevelDB, and so have no section of their own. The caller promises:
//!
//! * a handle came from the function that creates its kind, and was not destroyed;
//! * a length belongs to the pointer beside it, and as many bytes can be read there during the call;
//! * a name is a string that ends with a zero byte;
//! * `errptr` points to NULL or to memory from `malloc`, which the function frees if it replaces it;
//! * an object is not changed or destroyed while another thread uses it; a database may be used by many;
//! * functions that are handed over return, without an exception or a `longjmp`.
//!
//! Beyond LevelDB: NULL is answered by an error, or ignored where there is no place for one. Iterators and snapshots may outlive
//! their database, and caches, filter policies, comparators and snapshots may be destroyed before what was told of them.
//!
//! # Panics
//!
//! None leaves the library: it is caught and becomes an error.

#![warn(missing_debug_implementations)]
#![allow(clippy::missing_safety_doc, reason = "one contract for all, above")]

mod batch;
mod border;
mod calls;
mod cursor;
mod database;
mod directory;
mod env;
mod failure;
mod options;
mod parts;
mod property;

pub use batch::*;
pub use border::leveldb_free;
pub use calls::*;
pub use cursor::*;
pub use database::*;
pub use directory::*;
pub use env::*;
pub use options::*;
pub use parts::*;

/// Returns the major version of the LevelDB whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> std::ffi::c_int {
    1
}

/// Returns the minor version of the LevelDB whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> std::ffi::c_int {
    23
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What callers may do with threads.
    #[test]
    fn databases_are_shared_and_the_rest_moves() {
        fn shared<T: Send + Sync>() {}
        fn moves<T: Send>() {}
        shared::<Database>();
        shared::<Snapshot>();
        shared::<Options>();
        shared::<ReadOptions>();
        shared::<WriteOptions>();
        shared::<Cache>();
        moves::<Cursor>();
        moves::<WriteBatch>();
    }
}
