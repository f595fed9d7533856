//! The vocabulary shared by file formats and policies: keys and their order, the ids of files and
//! runs, epochs, and table records.
//!
//! **No stable interface**: a part of the storage engine `tamis`, which re-exports what its users
//! may rely on.
//!
//! `tamis-files` and `tamis-policy` both build on this crate and do not know each other. So a
//! policy can describe a table but cannot open one.
//!
//! Invariants:
//! * Plain values: no file, thread, lock or clock.
//! * A value is validated where it is made; nothing here panics on values read from disk.

#![warn(missing_debug_implementations)]
// Whoever reads these pages works on the crate: `cargo doc --document-private-items`.
#![allow(rustdoc::private_intra_doc_links)]

pub mod collections;
pub mod epochs;
pub mod ids;
pub mod key;
pub mod meta;
