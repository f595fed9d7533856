//! Entry points for hostile bytes, one per format that the engine `tamis` reads: for `fuzz/`, for the test of its corpus, and
//! for whoever writes another reader of the formats.
//!
//! Each takes arbitrary bytes, reads them the way the engine would, and panics if something that must hold for *any* bytes
//! does not: an answer that depends on how the file is read, a value that does not survive being written and read again, a
//! table that passes its check and yet loses a key. Every other outcome, errors above all, is fine. `fuzz/README.md` lists
//! what each asserts.
//!
//! Checksums would keep all mutated bytes out of the decoders behind them, so the entry points of checksummed formats read
//! their bytes twice: as they are, and with all checksums made right.
//!
//! Those here need the public API alone. The others need the engine's decoders: they are in the engine, behind its feature
//! `fuzzing`, and only named here. No release of the engine has them.
//!
//! # Invariants
//!
//! * Everything works in memory; no call touches a file of the operating system.
//! * Equal bytes do the same, and a call leaves nothing behind that another one sees.
//!
//! # Threads
//!
//! Any thread may call anything at any time. [`database`] and [`differential`] start the threads of a database and join them.

mod database;
mod differential;
mod external;
mod options;
mod range_filter;

pub use database::database;
pub use differential::differential;
pub use external::external;
pub use options::options;
pub use range_filter::range_filter;
pub use tamis::fuzzing::{
    TableParts, batch, batch_bytes, data_block, elastic, filter, key_list, log, manifest, table, table_parts,
    tombstones,
};

use std::path::Path;

use tamis::io::{FileSystem, MemFs, Usage};

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
