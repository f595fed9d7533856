//! An embeddable key-value storage engine: **a get hashes its key once, asks its filters once, and
//! touches one block**.
//!
//! tamis is an LSM-tree: writes go to a log and a memtable, memtables are flushed to sorted tables,
//! and tables are merged in the background. Start with [`Db`].
//!
//! ```
//! use tamis::{Db, Durability, WriteBatch};
//!
//! # let dir = tempfile::tempdir()?;
//! let db = Db::open(dir.path().join("my-data"))?;
//! db.put("fr/lyon", "45.75,4.85")?;
//! let mut batch = WriteBatch::new();
//! batch.put("is/vik", "63.42,-19.01").delete("fr/paris");
//! db.write_with(batch, Durability::Sync)?;
//! assert_eq!(db.get("fr/lyon")?.unwrap(), "45.75,4.85");
//! for item in db.prefix("fr/").rev() {
//!     let (key, value) = item?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Db`]: the default keyspace and operations on the whole database. [`Keyspace`]: one of
//!   several that share a log.
//! * [`WriteBatch`]: several writes, all or none, across keyspaces. [`Durability`]: when a write
//!   survives a power failure.
//! * [`Transaction`]: reads and writes that depend on each other, isolated from everyone else's.
//! * [`Snapshot`]: the state at one point in time. [`Iter`]: ordered iteration from both ends.
//!   [`Readable`]: anything that can be read, for generic functions.
//! * [`Slice`]: bytes returned without a copy.
//! * [`Options`] and [`KeyspaceOptions`]: every option, with default, range and effect; the types
//!   of their values are in [`options`].
//! * [`operators`]: updates without a read; values changed or removed during compaction.
//! * [`stats`] and [`explain`]: what the database does, and what a read costs.
//! * [`ingest`]: sorted tables built elsewhere and ingested atomically.
//! * [`maintenance`]: compactions on request, verification. Salvage, and the contents of single
//!   files, are in the crate `tamis-doctor`.
//! * Errors: a narrow enum per kind of operation, all of which convert into [`Error`].
//! * [`io`] and [`clock`]: the file system and the time as the engine sees them, for tests and
//!   other media.
//!
//! Handles are `Send + Sync` and cheap to clone. Reads do not wait for writers, flushes or
//! compactions.
//!
//! Features: `zstd` adds Zstandard compression and compiles its C library; the default build is
//! Rust only. `tracing` enters the spans of the crate of that name around flushes, compactions,
//! openings and ingestions. `serde` makes the statistics, explanations and reports `Serialize` (see
//! [`stats`]). `unstable-selector` lets the program supply a filter for the whole tree. `measure`
//! adds switches that show what a design saves. `simulation` and `fuzzing` are for programs that
//! test the engine, not for releases.

#![warn(missing_debug_implementations)]

/// Implements `Debug` for a handle: its type and some fields, on one line. Programs print handles
/// in their logs, so the fields are names and counts, never stored data.
macro_rules! debug_as {
    ($type:ty, $name:literal, $self:ident => $($field:literal: $value:expr),+) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $self = self;
                f.debug_struct($name)$(.field($field, &$value))+.finish_non_exhaustive()
            }
        }
    };
}

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod api;
mod batch;
mod catalogue;
mod compaction;
mod conflicts;
mod error;
mod external;
mod gate;
mod handles;
mod idle;
mod interrupt;
pub mod io;
mod jobs;
mod log;
mod open;
mod session;
mod transaction;
mod write;
#[cfg(feature = "simulation")]
pub mod simulation {
    //! The hook for deterministic simulations: a scheduler that decides which of the engine's
    //! threads runs and what time it is.

    pub use tamis_env::sync::simulated::{Point, Scheduler, TaskId, point, run_in};
}
mod memory;
mod memtable;
mod observe;
pub mod operators;
pub mod options;
mod read;
mod records;
// From the documents of the formats, with no word of the engine.
#[cfg(test)]
#[allow(dead_code, unreachable_pub)]
#[path = "../../tamis-fuzzing/src/reseal.rs"]
mod reseal;
mod sampling;
mod select;
#[cfg(feature = "unstable-selector")]
pub mod selector;
#[cfg(not(feature = "unstable-selector"))]
#[allow(unreachable_pub)]
mod selector;
#[cfg(feature = "serde")]
mod serial;
mod slice;
mod tree;

pub(crate) use tamis_env::sync;

pub mod changes {
    //! The change feed: what [`Db::changes`](crate::Db::changes) and
    //! [`Db::change_consumer`](crate::Db::change_consumer) return.

    pub use crate::error::ChangesError;
    pub use crate::handles::changes::Change;
    pub use crate::handles::changes::Changes;
    pub use crate::handles::changes::Operation;
    pub use crate::handles::changes::OperationKind;
    pub use crate::handles::consumers::Consumer;
}

pub mod clock {
    //! The time as the engine sees it, in seconds since 1970: for expiry, and for ages in
    //! statistics.
    //!
    //! [`Options::clock`](crate::Options::clock) takes any [`Clock`].

    pub use tamis_env::clock::{Clock, ManualClock, SystemClock};
}

pub mod events {
    //! What a database reports to the program's [listeners](EventListener) while it works:
    //! [`Options::listeners`](crate::Options::listeners).

    pub use crate::observe::events::{
        CompactionInfo, CompactionOutcome, Event, EventListener, FlushInfo, FlushOutcome, SlowOperation,
    };
}

pub mod explain {
    //! The path of a read, step by step: returned by [`Db::explain_get`](crate::Db::explain_get)
    //! and [`Db::explain_range`](crate::Db::explain_range).

    pub use crate::read::{
        ExplainBlock, ExplainOutcome, ExplainStep, ExplainUnits, Explanation, FilterAnswer, RangeExplanation,
        RangeSource,
    };
}

pub mod ingest {
    //! External tables: sorted tables built outside a database, and their ingestion with
    //! [`Db::ingest`](crate::Db::ingest) or [`Keyspace::ingest`](crate::Keyspace::ingest).

    pub use crate::external::{ExternalTableBuilder, ExternalTableInfo};
    pub use crate::jobs::ingest::IngestOptions;
    pub use crate::jobs::ingest::IngestReport;
    pub use crate::jobs::ingest::IngestedTable;
}

pub mod maintenance {
    //! Work on request: compactions, their pauses and cancellation, and the report of
    //! [`Db::verify`](crate::Db::verify).

    pub use crate::interrupt::{interruptible, is_interrupted};
    pub use crate::jobs::control::CancelToken;
    pub use crate::jobs::control::CompactOptions;
    pub use crate::jobs::control::CompactionPause;
    pub use crate::jobs::verify::VerifiedFile;
    pub use crate::jobs::verify::VerifiedKind;
    pub use crate::jobs::verify::VerifyReport;
}

pub mod live_files {
    //! The files that make up a database at one moment: see
    //! [`Db::live_files`](crate::Db::live_files).

    pub use crate::handles::live_files::LiveFile;
    pub use crate::handles::live_files::LiveFileKind;
    pub use crate::handles::live_files::LiveFiles;
}

#[doc(hidden)]
pub mod repair {
    //! What the crate `tamis-doctor` needs of the engine. **No stable interface.**

    pub use crate::api::doctor::DEFAULT_NAME;
    pub use crate::api::doctor::Plan;
    pub use crate::api::doctor::Repair;
    pub use crate::api::doctor::check_trees;
    pub use crate::api::doctor::file_system;
    pub use crate::api::doctor::free_name;
    pub use crate::api::doctor::in_words;
    pub use crate::api::doctor::keyspace_options;
    pub use crate::api::doctor::locked;
    pub use crate::api::doctor::open;
    pub use crate::api::doctor::open_read_only;
    pub use crate::api::doctor::open_to_check;
}

pub mod stats {
    //! The counters and the shape of a database: returned by [`Db::stats`](crate::Db::stats),
    //! [`Keyspace::stats`](crate::Keyspace::stats), [`Keyspace::tables`](crate::Keyspace::tables)
    //! and [`Db::segments`](crate::Db::segments).
    //!
    //! Counters start at zero when the database is opened. New versions may add fields.
    //!
    //! With the feature `serde` these types, and those of [`explain`](crate::explain), and the
    //! reports of ingestions and verification implement `Serialize`: fields have the names
    //! and units that they have here, and enums are `snake_case`, with their fields beside a field
    //! `kind`. Keys and paths are strings: text as it is, but backslashes and control characters
    //! escaped (`\\`, `\t`, `\n`, `\r`, `\x00`), and bytes that are not UTF-8 as `\xff`; different
    //! bytes give different strings.

    pub use crate::catalogue::scrubbed::DamagedTable;
    pub use crate::catalogue::scrubbed::ScrubStats;
    pub use crate::catalogue::tuning::TuningDecision;
    pub use crate::handles::layout::TableStats;
    pub use crate::handles::memory_report::MemoryReport;
    pub use crate::handles::readers::ReaderStats;
    pub use crate::handles::stats::ConsumerStats;
    pub use crate::handles::stats::KeyspaceStats;
    pub use crate::handles::stats::LevelStats;
    pub use crate::handles::stats::OverlapStats;
    pub use crate::handles::stats::RunStats;
    pub use crate::handles::stats::SnapshotStats;
    pub use crate::handles::stats::Stats;
    pub use crate::jobs::control::JobStats;
    pub use crate::memory::ReadMemoryShare;
    pub use crate::memory::writes::WriteMemoryUse;
    pub use crate::observe::cost::ReadCost;
    pub use crate::observe::latency::{Latencies, LatencyHistogram, Operation};
    pub use crate::observe::write_counters::WriteCost;
    pub use crate::observe::{StallCause, StallStats};
    pub use crate::select::{AutoFilterStats, GlobalFilterStats, KeyMapStats, QueryStats};
    pub use crate::session::elastic::report::ElasticStats;
    pub use crate::session::elastic::report::SegmentStats;
    pub use tamis_policy::compaction::Promise;
}

pub mod transactions {
    //! The options of [transactions](crate::Transaction), and other types that only they need.

    pub use crate::api::atomic::Mismatch;
    pub use crate::error::WaitsFor;
    pub use crate::transaction::lock_transaction::LockOptions;
    pub use crate::transaction::lock_transaction::LockTransaction;
    pub use crate::transaction::options::Isolation;
    pub use crate::transaction::options::TransactionOptions;
    pub use crate::transaction::prepared::PreparedTransaction;
    pub use crate::transaction::savepoint::Savepoint;
}

pub use api::readable::Readable;
pub use api::snapshot::{Snapshot, SnapshotView};
pub use api::view::TransactionView;
pub use batch::WriteBatch;
pub use error::{
    AdminError, Corruption, Error, ExternalTableError, IoFailure, OpenError, OptionsError, ReadError,
    StorageError, TransactionError, WriteError,
};
pub use handles::approximate::KeyRange;
pub use handles::handle::{Db, Keyspace};
pub use options::definition::{KeyspaceOptions, Options};
pub use options::values::Durability;
pub use read::{Iter, Keys};
#[doc(hidden)]
pub use select::without_rejection_checks;
pub use slice::Slice;
pub use tamis_base::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use transaction::optimistic::Transaction;
