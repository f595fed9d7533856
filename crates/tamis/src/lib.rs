//! An embeddable key-value storage engine in which **a read hashes its key once, asks its filters once, and
//! touches one block**.
//!
//! tamis is an LSM-tree: writes go to a log and a memtable, memtables are flushed to sorted tables, and tables are
//! merged in the background. Start with [`Db`].
//!
//! ```
//! use tamis::{Db, Durability, Options, WriteBatch};
//!
//! # let dir = tempfile::tempdir()?;
//! let db = Db::open(dir.path().join("my-data"), Options::default())?;
//! db.put("fr/lyon", "45.75,4.85")?;
//! let mut batch = WriteBatch::new();
//! batch.put("is/vik", "63.42,-19.01").delete("fr/paris");
//! db.write_with(batch, Durability::Synced)?;
//! assert_eq!(db.get("fr/lyon")?.unwrap(), "45.75,4.85");
//! for item in db.prefix("fr/").rev() {
//!     let (key, value) = item?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Db`]: the default keyspace and operations on the whole database. [`Keyspace`]: one of several that share a
//!   log.
//! * [`WriteBatch`]: several writes, all or none, across keyspaces. [`Durability`]: when a write survives a power
//!   cut.
//! * [`Snapshot`]: the state at one point in time. [`Iter`]: ordered iteration from both ends.
//! * [`MergeOperator`], [`CompactionFilter`]: updates without a read; values changed or removed during compaction.
//! * [`Options`]: every option, with default, range and consequence.
//! * [`Stats`], [`ReadCost`], [`Explanation`]: the database's activity, and the cost of a read.
//! * [`Slice`]: bytes returned without a copy.
//! * [`ExternalTableBuilder`], [`Keyspace::ingest`]: sorted tables built elsewhere and ingested atomically.
//! * Errors: a narrow enum per kind of operation, all of which convert into [`Error`].
//! * [`io`]: the file system interface of the engine, for tests and other media.
//!
//! Handles are `Send + Sync` and cheap to clone. Reads take no lock and never wait for writers.
//!
//! Features: `zstd` adds Zstandard compression and compiles its C library; the default build is Rust only.
//! `unstable-selector` lets the program supply a filter for the whole tree. `simulation` and `fuzzing` are for programs
//! that test the engine, not for releases.

mod batch;
mod codec;
mod collections;
mod compaction;
mod db;
mod error;
mod external;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod heat;
mod ids;
pub mod io;
#[cfg(feature = "simulation")]
pub mod simulation {
    //! The hook for deterministic simulations: a scheduler that decides which of the engine's threads runs and what
    //! time it is.

    pub use tamis_env::sync::simulated::{Point, Scheduler, TaskId, point, run_in};
}
mod key;
mod memtable;
mod operators;
mod options;
mod read;
mod select;
#[cfg(feature = "unstable-selector")]
pub mod selector;
#[cfg(not(feature = "unstable-selector"))]
#[allow(unreachable_pub)]
mod selector;
mod slice;
mod table;
mod tree;
mod wal;

pub(crate) use tamis_env::{clock, sync};

pub use batch::WriteBatch;
pub use compaction::Promise;
pub use db::{
    CancelToken, CompactOptions, CompactionPause, DamagedTable, Db, ElasticStats, IngestOptions,
    IngestReport, IngestedTable, JobStats, Keyspace, KeyspaceStats, LevelStats, OverlapStats, RunStats,
    SalvageReport, SalvagedKeyspace, SalvagedLog, SalvagedTable, ScrubStats, SegmentStats, Snapshot,
    SnapshotStats, SnapshotView, Stats, TableFate, TableStats, TuningDecision, VerifyReport, WriteCost,
    inspect,
};
pub use error::{
    AdminError, Corruption, Error, ExternalTableError, IoFailure, OpenError, OptionsError, ReadError,
    StorageError, WriteError,
};
pub use external::{ExternalTableBuilder, ExternalTableInfo};
pub use key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use operators::{CompactionFilter, Decision, MergeError, MergeOperator, Operators};
pub use options::{
    AsyncReads, BloomHashing, ChecksumMode, CompactionChoice, Compression, CompressionPerLevel, Durability,
    FilePicker, FilterAllocation, FilterChoice, FilterPolicy, KeyMapChoice, KeyspaceOptions,
    MergeGranularity, OnDamage, OptionClass, OptionInfo, Options, PerLevel, PrefixFilter, Proposal, ReadMode,
    SelectorName, SurfSuffix, Tuner, TuningCase,
};
pub use read::{ExplainBlock, ExplainOutcome, ExplainStep, ExplainUnits, Explanation, FilterAnswer, Iter};
pub use select::{GlobalFilterStats, KeyMapStats, without_rejection_checks};
pub use slice::Slice;
pub use table::ReadCost;
pub use tamis_env::clock::{Clock, ManualClock};

/// A default build has no entry points for fuzzers:
///
/// ```compile_fail,E0433
/// tamis::fuzzing::log(b"");
/// ```
#[cfg(all(doctest, not(feature = "fuzzing")))]
struct WithoutFuzzing;
