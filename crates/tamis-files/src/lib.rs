//! The on-disk formats of the storage engine tamis: how logs, tables, blob files, filter files and
//! the manifest are encoded, written, read and checked.
//!
//! **No stable interface.** This crate is a part of `tamis`, which re-exports what users may rely
//! on.
//!
//! | module | what |
//! | --- | --- |
//! | [`codec`] | numbers and strings in records |
//! | [`sums`] | sums of records, to notice faults of memory |
//! | [`wal`] | logs of records: the write-ahead log and the manifest |
//! | [`table`] | sorted tables with index and filters; the block cache |
//! | [`blob`] | files of large values |
//! | [`images`] | filter files |
//! | [`tree`] | names of files, version edits, the manifest, range tombstones |
//! | [`error`] | failed system calls and damage |
//!
//! Invariants:
//! * Decoding is total, as bytes from disk are hostile. Bounds are checked, nothing panics, and no
//!   unchecked number sizes an allocation.
//! * No complete file is ever changed; only logs and manifests grow.
//! * This crate does not know the engine: not its locks, not its threads, no clock. The block cache
//!   and open files have their own locks, which are leaves in the lock order. The builder of
//!   elastic filters has a helper thread, which ends with the builder.

#![warn(missing_debug_implementations)]
// These pages are for people who work on the crate: `cargo doc --document-private-items`.
#![allow(rustdoc::private_intra_doc_links)]

pub mod blob;
pub mod codec;
pub mod error;
pub mod images;
pub mod settings;
pub mod sums;
pub mod table;
pub mod tree;
pub mod wal;
