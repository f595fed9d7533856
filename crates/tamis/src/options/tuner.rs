//! The hook for whoever chooses options while a database is in use.

use std::fmt::Debug;
use std::path::Path;

use tamis_model::engine::Workload;

use super::{KeyspaceOptions, Options};

/// Chooses filter and tree shape of a keyspace for its data and workload. The engine asks at
/// opening and whenever a compaction leaves a tree idle, provides hysteresis, and puts changes into
/// effect; see `docs/advisor.md`. The crate `tamis-advisor` has one that goes by a cost model.
///
/// Any thread may call; no lock of the engine is held meanwhile, and a panic is only a warning.
pub trait Tuner: Send + Sync + Debug {
    /// Returns the options that save more than the part `case.margin` of an operation's time;
    /// `None` to leave them as they are. Only these options may differ: `filter`,
    /// `filter_allocation`, `bits_per_key`, `compaction`, `merge` and `size_ratio`.
    fn propose(&self, case: &TuningCase<'_>) -> Option<Proposal>;
}

/// A keyspace that may be tuned.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TuningCase<'a> {
    /// The database's directory.
    pub dir: &'a Path,
    /// The current options, with those of the keyspace as `keyspace`.
    pub options: &'a Options,
    /// Entries in its tables.
    pub entries: u64,
    /// The mean length of a key, in bytes.
    pub key_bytes: f64,
    /// The mean length of an entry, in bytes, before compression.
    pub entry_bytes: f64,
    /// The operations to tune for.
    pub workload: &'a Workload,
    /// Memory for the keyspace's filters, in bytes.
    pub budget_bytes: u64,
    /// Whether the database is being opened. Only then a filter for the whole tree may be added,
    /// replaced or removed.
    pub opening: bool,
    /// The part of an operation's time that a change must save.
    pub margin: f64,
}

/// A worthwhile change.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The options to change to.
    pub options: KeyspaceOptions,
    /// The predicted saving, as a part of an operation's time.
    pub gain: f64,
    /// Why, in words.
    pub reason: String,
}
