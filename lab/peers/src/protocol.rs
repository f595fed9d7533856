//! Requests of the conductor and answers of a worker: one JSON object per line, one answer per request.
//!
//! A worker reads requests from its standard input and answers on its standard output, in order. It ends after `quit`
//! and at the end of its input: a worker outlives its conductor by at most one request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tamis_bench::value::ValueSizes;

use crate::engines::Setup;
use crate::record::Figures;
use crate::source::Source;

/// The keys and values of a database, equal for all systems of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// Number of keys in the key set, including those that workloads will insert.
    pub keys: u64,
    /// Size of a key in bytes, or the mean where lengths differ.
    pub key_bytes: u64,
    /// Sizes of values.
    #[serde(with = "as_text")]
    pub values: ValueSizes,
    /// Seed of the keys and of the order of filling.
    pub seed: u64,
    /// Where the keys come from.
    pub source: Source,
    /// The number of keys asked of the source, which may have fewer.
    pub asked: u64,
}

impl Data {
    /// Returns the mean size of a key and its value in bytes.
    pub(crate) fn entry_bytes(&self) -> f64 {
        self.key_bytes as f64 + self.values.mean()
    }
}

/// Sizes in the syntax of the command line.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use tamis_bench::value::ValueSizes;

    pub(super) fn serialize<S: Serializer>(sizes: &ValueSizes, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(sizes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ValueSizes, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Which keys are hot, in place of the workload's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hot {
    /// Zipf's exponent in hundredths.
    pub skew: u32,
    /// Number of adjacent keys that are about equally hot; 1 scatters hot keys.
    pub locality: u64,
}

impl std::fmt::Display for Hot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.locality > 1 { "together" } else { "scattered" };
        write!(f, "skew {}.{:02}, hot keys {place}", self.skew / 100, self.skew % 100)
    }
}

/// The order in which a database is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// The order of [`Fill::random`](tamis_bench::run::Fill::random).
    Random,
    /// Ascending.
    Sequential,
}

/// A request to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub(crate) enum Request {
    /// Checks whether the engine supports a setup.
    Check {
        /// The setup.
        setup: Setup,
    },
    /// Opens or creates the database.
    Open {
        /// The setup.
        setup: Setup,
        /// Its present or future contents.
        data: Data,
        /// Number of keys present: the first ones in the order of filling.
        loaded: u64,
    },
    /// Puts the first `loaded` keys in this order, and waits until the engine is idle.
    Fill {
        /// The order.
        order: Order,
        /// Number of keys. All of them, unless the order is random.
        loaded: u64,
        /// Number of threads; 1 unless all keys are put.
        threads: usize,
        /// Number of puts that are written together.
        batch: usize,
        /// Whether each value is made right before its put, which is timed as well; with one thread only.
        inline: bool,
        /// Whether to wait until the size of the files no longer changes, too.
        rest: bool,
    },
    /// Runs a workload other than a fill, and waits until the engine is idle if it writes.
    Run {
        /// Its name.
        workload: String,
        /// Number of threads.
        threads: usize,
        /// Number of operations over all threads; with `seconds`, of each part.
        ops: u64,
        /// If given, the workload is repeated, with other seeds, until so many seconds have passed.
        seconds: Option<u64>,
        /// Number of unmeasured operations of `warm_with` before them, with another seed.
        warmup: u64,
        /// A workload that does not write.
        warm_with: String,
        /// Which keys are hot.
        hot: Option<Hot>,
        /// Seed of all random choices.
        seed: u64,
    },
    /// Waits until compaction has finished.
    Settle,
    /// Merges everything, by the engine's own command for that.
    Compact,
    /// Reads all files of the open database once, which brings them into the page cache.
    Warm,
    /// Reads all entries of the open database once, in order, which fills the engine's cache as far as it goes.
    ReadAll,
    /// Syncs the files of the closed database and evicts them from the page cache.
    Evict,
    /// Closes the database.
    Close,
    /// Ends the worker.
    Quit,
}

/// A worker's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The database is open.
    Opened {
        /// The options that were set, as the engine spells them.
        options: BTreeMap<String, String>,
        /// Nanoseconds of the engine's own call.
        ns: u64,
    },
    /// The engine does not support the setup.
    Refused {
        /// The reason.
        why: String,
    },
    /// A fill or a run has finished, and the engine is idle if it wrote.
    Measured {
        /// The measured values. Boxed, since they are much larger than the others.
        figures: Box<Figures>,
        /// Number of keys present now.
        loaded: u64,
        /// Remarks for readers of the figures.
        notes: Vec<String>,
    },
    /// The request was executed.
    Done,
    /// The request failed.
    Failed {
        /// The kind of the failure.
        kind: FailureKind,
        /// A message for people.
        text: String,
    },
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FailureKind {
    /// The request is invalid, or does not fit the worker's state.
    Request,
    /// The engine's answer contradicts earlier puts.
    WrongAnswer,
    /// The engine or the system failed.
    System,
}
