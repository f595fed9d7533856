//! Entry points for hostile bytes, one per format that the engine `tamis` reads: for `fuzz/`, for
//! the test of its corpus, and for authors of other readers of the formats.
//!
//! Each takes arbitrary bytes, reads them as the engine would, and panics if something that must
//! hold for *any* bytes does not: for example, if an answer depends on how the file is read, if a
//! value changes when written and read again, or if a table passes its check but loses a key. Every
//! other outcome is acceptable, above all an error. `fuzz/README.md` lists what each asserts.
//!
//! Checksums would keep all mutated bytes away from the decoders behind them. The entry points of
//! checksummed formats therefore read their bytes twice: as they are, and with all checksums
//! corrected.
//!
//! The entry points need only the engine's public API and the decoders of `tamis-files`. No release
//! of the engine contains them.
//!
//! # Invariants
//!
//! * Everything works in memory; no call touches a file of the operating system.
//! * Equal bytes have equal effects, and calls are independent of each other. A [`history`] is
//!   random, and begins with a seed.
//!
//! # Threads
//!
//! Any thread may call anything at any time. [`database`], [`differential`] and [`history`] start
//! the threads of a database and join them.

mod batches;
mod blobs;
mod database;
mod differential;
mod elastic;
mod external;
mod histories;
mod images;
mod logs;
mod manifests;
mod options;
mod parts;
mod range_filter;
pub mod reseal;
mod seeds;
mod tables;

pub use batches::{batch, batch_bytes};
pub use blobs::{blob_file, blobs, logged};
pub use database::database;
pub use differential::differential;
pub use elastic::elastic;
pub use external::external;
pub use histories::history;
pub use images::filter_images;
pub use logs::log;
pub use manifests::manifest;
pub use options::options;
pub use parts::{data_block, filter, key_list, tombstones};
pub use range_filter::range_filter;
pub use seeds::{TableParts, filter_file, table_parts};
pub use tables::table;

use std::io::ErrorKind;
use std::path::Path;

use tamis::StorageError;
use tamis::io::{FileSystem, MemFs, Usage};

/// Creates the file `path` with these bytes. Its directory must exist.
fn put(fs: &MemFs, path: &Path, bytes: &[u8]) {
    let mut file = fs.create(path, Usage::Log).expect("a file in memory");
    file.append(bytes).expect("in-memory write");
}

/// Returns an in-memory file system with an empty directory `db`.
fn empty_fs() -> MemFs {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("db")).expect("a directory in memory");
    fs
}

/// Reports whether an error is about the bytes that were read: damage, or a newer format.
fn is_refusal(error: &StorageError) -> bool {
    match error {
        StorageError::Corrupt(_) => true,
        StorageError::Io(failure) => failure.kind() == ErrorKind::Unsupported,
        _ => false,
    }
}
