//! Every byte that the storage engine tamis has on disk: logs, tables, blob files, filter files and
//! the manifest, as they are encoded, written, read and checked.
//!
//! **No stable interface**: a part of `tamis`, which re-exports what its users may rely on.
//!
//! | module | what |
//! | --- | --- |
//! | [`codec`] | numbers and strings in records |
//! | [`wal`] | logs of records: the write-ahead log and the manifest |
//! | [`table`] | sorted tables with index and filters; the block cache |
//! | [`blob`] | files of large values |
//! | [`images`] | filter files |
//! | [`tree`] | names of files, version edits, the manifest, range tombstones |
//! | [`error`] | failed system calls and damage |
//!
//! Invariants:
//! * Decoding is total: bytes from a disk are hostile. Bounds are checked, nothing panics, and
//!   nothing is allocated by a number that was not checked.
//! * No file is changed once it is complete, but logs and manifests, which grow.
//! * The engine is unknown here: none of its locks and threads, no clock. The block cache and open
//!   files have locks of their own, which are leaves; the builder of elastic filters has a helper
//!   thread, which ends with it.

#![warn(missing_debug_implementations)]
// Whoever reads these pages works on the crate: `cargo doc --document-private-items`.
#![allow(rustdoc::private_intra_doc_links)]

pub mod blob;
pub mod codec;
pub mod error;
pub mod images;
pub mod settings;
pub mod table;
pub mod tree;
pub mod wal;
