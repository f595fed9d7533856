//! Entry points for hostile bytes that need the engine itself: batches, and the replay of logs. The
//! others, and all of them together, are in the crate `tamis-fuzzing`. Compiled with the feature
//! `fuzzing` and for unit tests, so no release contains them.
//!
//! Each takes arbitrary bytes, reads them as the engine would, and panics if something that must
//! hold for *any* bytes does not: for example, if an answer depends on how the file is read, if a
//! value changes when written and read again, or if a table passes its check but loses a key. Every
//! other outcome is acceptable, above all an error. `fuzz/README.md` lists what each asserts.
//!
//! Checksums would keep all mutated bytes away from the decoders behind them. The entry points of
//! checksummed formats therefore read their bytes twice: as they are, and with all checksums
//! corrected (`reseal`).
//!
//! Everything works in memory; calls are independent of each other.

mod batches;
mod logs;
pub mod reseal;

pub use batches::{batch, batch_bytes};
pub use logs::log;

use std::path::Path;

use crate::io::{FileSystem, MemFs, Usage};

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
