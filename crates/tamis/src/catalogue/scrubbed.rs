//! What the scrub has found and how far it is. See [`scrub`](crate::jobs::scrub).

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::sync::Mutex;

/// The maximum number of problems kept in words.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// What the [scrub](crate::Options::scrub_bytes_per_second) has done since the database was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ScrubStats {
    /// Completed passes over everything.
    pub passes: u64,
    /// Bytes read, including those of the unfinished pass.
    pub bytes: u64,
    /// Tables read in full.
    pub tables: u64,
    /// Logs read in full.
    pub logs: u64,
    /// The damage found by the last complete pass and the current one, in words; the first hundred
    /// problems.
    pub problems: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Scrub {
    pub(crate) seen: Mutex<ScrubbedSoFar>,
}

#[derive(Debug, Default)]
pub(crate) struct ScrubbedSoFar {
    pub(crate) stats: ScrubStats,
    /// Problems of the last complete pass.
    pub(crate) last: BTreeSet<String>,
    /// Problems of the current pass.
    pub(crate) now: BTreeSet<String>,
}

impl Scrub {
    pub(crate) fn stats(&self) -> ScrubStats {
        let seen = self.seen.lock();
        let problems = seen.last.union(&seen.now).take(MAX_PROBLEMS).cloned().collect();
        ScrubStats { problems, ..seen.stats }
    }
}

/// A table that is damaged, or was when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DamagedTable {
    /// The keyspace's name.
    pub keyspace: String,
    /// The table's number.
    pub table: u64,
    /// Its file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::path"))]
    pub path: PathBuf,
    /// The level that it lies in.
    pub level: usize,
    /// The smallest key that it covers.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub smallest: Vec<u8>,
    /// The largest key that it covers (empty if it is unbounded).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub largest: Vec<u8>,
    /// Key versions that it holds, or held.
    pub entries: u64,
    /// Whether it could not be opened, so that every read that needs it is an error. Otherwise only
    /// reads of its damaged parts fail.
    pub quarantined: bool,
    /// What is wrong.
    pub what: String,
}
