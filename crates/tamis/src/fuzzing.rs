//! Entry points for hostile bytes that need the engine's own decoders; the others, and all of them together, are in the crate
//! `tamis-fuzzing`. Compiled with the feature `fuzzing` and for unit tests, so no release has them.
//!
//! Each takes arbitrary bytes, reads them the way the engine would, and panics if something that must hold for
//! *any* bytes does not: an answer that depends on how the file is read, a value that does not survive being
//! written and read again, a table that passes its check and yet loses a key. Every other outcome, errors above
//! all, is fine. `fuzz/README.md` lists what each asserts.
//!
//! Checksums would keep all mutated bytes out of the decoders behind them, so the entry points of checksummed
//! formats read their bytes twice: as they are, and with all checksums made right (`reseal`).
//!
//! Everything here works in memory; calls are independent of each other.

mod elastic;
mod logs;
mod parts;
pub mod reseal;
mod seeds;
mod tables;

pub use elastic::elastic;
pub use logs::{log, manifest};
pub use parts::{batch, data_block, filter, key_list, tombstones};
pub use seeds::{TableParts, batch_bytes, table_parts};
pub use tables::table;

use std::path::Path;

use crate::io::{FileSystem, MemFs, Usage};

/// Makes the file `path` of `bytes`. Its directory must be there.
fn put(fs: &MemFs, path: &Path, bytes: &[u8]) {
    let mut file = fs.create(path, Usage::Log).expect("a file in memory");
    file.append(bytes).expect("memory takes it");
}

/// A file system in memory with an empty directory `db`.
fn empty_fs() -> MemFs {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("db")).expect("a directory in memory");
    fs
}
