//! The words that bytes and decisions share: keys and their order, the numbers of files and runs,
//! epochs, and what is recorded of a table.
//!
//! **No stable interface**: a part of the storage engine `tamis`, which re-exports what its users
//! may rely on.
//!
//! `tamis-files` and `tamis-policy` both stand on this crate and know nothing of each other. So a
//! policy can talk about a table without being able to open one.
//!
//! Invariants:
//! * Plain values: no file, thread, lock or clock.
//! * What a value may be is settled where it is made; nothing here panics on values that came from
//!   a disk.

#![warn(missing_debug_implementations)]
// Whoever reads these pages works on the crate: `cargo doc --document-private-items`.
#![allow(rustdoc::private_intra_doc_links)]

pub mod collections;
pub mod epochs;
pub mod ids;
pub mod key;
pub mod meta;
