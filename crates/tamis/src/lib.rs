//! An embeddable key-value storage engine in which **a read hashes its key once, asks its filters once, and
//! touches one block**.

mod batch;
mod cache;
mod codec;
mod compaction;
mod db;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod io;
mod key;
mod memtable;
mod options;
mod read;
mod select;
mod slice;
mod table;
mod tree;
mod wal;

pub use batch::WriteBatch;
pub use db::{
    Db, Keyspace, KeyspaceStats, LevelStats, RunStats, Snapshot, SnapshotView, Stats, VerifyReport,
    WriteCost, inspect,
};
pub use error::{
    AdminError, Corruption, Error, IoFailure, OpenError, OptionsError, ReadError, StorageError, WriteError,
};
pub use key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use options::{
    BloomHashing, ChecksumMode, Compression, CompressionPerLevel, Durability, FilterPolicy, KeyspaceOptions,
    OptionClass, OptionInfo, Options, ReadMode,
};
pub use read::{ExplainBlock, ExplainOutcome, ExplainStep, Explanation, FilterAnswer, Iter, ReadCost};
pub use slice::Slice;
