//! Entry points for hostile bytes, one per format. Not part of the API: for `fuzz/`, for the test of its corpus,
//! and for whoever writes another reader of the formats.
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

mod database;
mod differential;
mod elastic;
mod external;
mod logs;
mod parts;
mod range_filter;
pub(crate) mod reseal;
mod seeds;
mod tables;

pub use database::database;
pub use differential::differential;
pub use elastic::elastic;
pub use external::external;
pub use logs::{log, manifest};
pub use parts::{batch, data_block, filter, key_list, options, tombstones};
pub use range_filter::range_filter;
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

/// Reads small decisions off the front of the fuzzer's bytes; zeros when they run out.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Input { rest }
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                byte
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn bit(&mut self) -> bool {
        self.byte() & 1 == 1
    }
}
