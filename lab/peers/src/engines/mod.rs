//! The engines, one small file each, and their common interface.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tamis_bench::store::Store;
use tamis_bench::{BenchError, Workload};

pub use batch::Batch;

mod batch;
#[cfg(feature = "bf-tree")]
pub mod bf_tree;
#[cfg(test)]
mod conformance;
#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "leveldb")]
pub mod leveldb;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "mdbx")]
pub mod mdbx;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub(crate) mod shared;
#[cfg(feature = "surrealkv")]
pub mod surrealkv;
pub mod system;
pub mod tamis;
#[cfg(feature = "tidesdb")]
pub mod tidesdb;

/// The common setup of all engines. Each engine translates it into its own options as its documentation advises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The database's directory. Created if missing.
    pub dir: PathBuf,
    /// Size of the block cache (redb: the page cache) in bytes.
    pub cache_bytes: u64,
    /// Estimated size of the filters and indexes of all tables, 0 if unknown. Engines that keep these in
    /// their block cache get so much more of it, since the others have them outside.
    pub metadata_bytes: u64,
    /// Size of a memtable, and of table files, in bytes.
    pub memtable_bytes: u64,
    /// Filter bits per key.
    pub filter_bits: u32,
    /// Compression of blocks.
    pub compression: Compression,
    /// Whether every write is synced before it is acknowledged. Otherwise the log is written but not synced.
    pub sync: bool,
    /// Whether reads and writes of tables bypass the page cache.
    pub direct_io: bool,
    /// Whether compaction runs, as it does by default. Otherwise it is held back: every flushed memtable stays a sorted
    /// run, and writers are not slowed down because of it.
    pub compaction: bool,
    /// Values of at least so many bytes go to files of their own, in engines that have this.
    pub separated_bytes: Option<u64>,
    /// `OPTION=VALUE` as tamis spells them, beyond its defaults. Other engines accept none.
    pub overrides: Vec<String>,
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4.
    Lz4,
}

/// Statistics of an engine, in bytes unless otherwise noted; `None` where it reports none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Inside {
    /// Sorted runs: tables of level 0, and levels below that are not empty. 1 for a B-tree.
    pub runs: Option<u64>,
    /// Filters in memory.
    pub filter_bytes: Option<u64>,
    /// Indexes in memory.
    pub index_bytes: Option<u64>,
    /// Contents of the block cache.
    pub cache_bytes: Option<u64>,
    /// Memtables.
    pub memtable_bytes: Option<u64>,
}

/// An engine that can be compared.
pub trait Engine: Store + Sized {
    /// The name on the command line and in reports.
    const NAME: &'static str;

    /// Returns the engine's own version.
    fn version() -> String;

    /// Returns the reason if this setup is not supported. Such a row has no figures, only the reason.
    fn refuses(setup: &Setup) -> Option<&'static str>;

    /// Returns the reason if it has no such operations, or cannot write `batch` puts together. The row has only the
    /// reason then.
    fn lacks(_workload: Workload, _batch: usize) -> Option<&'static str> {
        None
    }

    /// Returns where a put is when it returns, in a few words without a subject.
    fn durability(setup: &Setup) -> &'static str {
        if setup.sync { shared::ON_DEVICE } else { shared::WITH_SYSTEM }
    }

    /// Opens or creates the database, and returns the options that were set, as the engine spells them.
    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError>;

    /// Writes all puts of a batch, all or none, by the engine's own call for that, as durably as single puts.
    fn write(session: &mut Self::Session<'_>, batch: &Batch) -> Result<(), BenchError>;

    /// Flushes memtables and, if compaction is on, waits until it has nothing left to do by its own rules.
    fn settle(&self) -> Result<(), BenchError>;

    /// Flushes memtables and merges everything into one sorted run, by the engine's own command for that. B-trees have nothing to merge.
    fn compact(&self) -> Result<(), BenchError> {
        self.settle()
    }

    /// Returns its statistics.
    fn inside(&self) -> Result<Inside, BenchError>;

    /// Closes the database; unsynced writes may be lost only if the machine fails.
    fn close(self) -> Result<(), BenchError>;
}
