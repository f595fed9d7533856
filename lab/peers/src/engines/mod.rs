//! The engines, one small file each, and what they are all told and asked alike.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tamis_bench::BenchError;
use tamis_bench::store::Store;

#[cfg(test)]
mod conformance;
#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "leveldb")]
pub mod leveldb;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
mod shared;
pub mod system;
pub mod tamis;

/// What every engine is told alike. An engine translates it into its own options as its own documentation advises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The database's directory. Made if it is not there.
    pub dir: PathBuf,
    /// The block cache (redb: the page cache) in bytes.
    pub cache_bytes: u64,
    /// A memtable in bytes; also how large table files grow.
    pub memtable_bytes: u64,
    /// Filter bits for a key.
    pub filter_bits: u32,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Whether every write is synced before it is acknowledged. Otherwise the log is written and not synced.
    pub sync: bool,
    /// Whether tables are read and written past the page cache.
    pub direct_io: bool,
    /// Whether compaction runs, and as it does by default. Otherwise it is held back: every flushed memtable stays a
    /// sorted run of its own, and writers are not slowed down for it.
    pub compaction: bool,
    /// `OPTION=VALUE` in tamis' own words, beyond its defaults. Other engines take none.
    pub overrides: Vec<String>,
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
}

/// What an engine says of itself, in bytes where not said otherwise; `None` where it cannot tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inside {
    /// Sorted runs: tables of level 0 and levels below that hold anything. 1 for a B-tree.
    pub runs: Option<u64>,
    /// Filters in memory.
    pub filter_bytes: Option<u64>,
    /// Indexes in memory.
    pub index_bytes: Option<u64>,
    /// What the block cache holds.
    pub cache_bytes: Option<u64>,
    /// Memtables.
    pub memtable_bytes: Option<u64>,
}

/// An engine that can be compared.
pub trait Engine: Store + Sized {
    /// The name on the command line and in reports.
    const NAME: &'static str;

    /// The engine's own version.
    fn version() -> String;

    /// Why it cannot be set up so, if it cannot. Such a row is left empty and says why.
    fn refuses(setup: &Setup) -> Option<&'static str>;

    /// Opens (or makes) the database, and says which options it was given, in the engine's own words.
    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError>;

    /// Writes memtables out and, if compaction is on, waits until it has nothing left to do by its own rules.
    fn settle(&self) -> Result<(), BenchError>;

    /// What it says of itself.
    fn inside(&self) -> Result<Inside, BenchError>;

    /// Closes it; what was written and not synced may be lost only if the machine fails.
    fn close(self) -> Result<(), BenchError>;
}
