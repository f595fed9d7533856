//! What the conductor asks of a worker and what it answers: one JSON object a line, one answer to each request.
//!
//! A worker reads requests from its standard input and answers on its standard output, in order. It ends after `quit`, and
//! when its input ends: a worker outlives its conductor by one request at most.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tamis_bench::value::ValueSizes;

use crate::engines::Setup;
use crate::record::Figures;

/// The keys and values of a database: all systems of a comparison get the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// Keys in the key set, those that workloads will insert included.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: u64,
    /// How long values are.
    #[serde(with = "as_text")]
    pub values: ValueSizes,
    /// Drives which keys they are and the order of filling.
    pub seed: u64,
}

impl Data {
    /// Bytes of a key and its value, on average.
    pub(crate) fn entry_bytes(&self) -> f64 {
        self.key_bytes as f64 + self.values.mean()
    }
}

/// Lengths as the command line has them.
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

/// In which order a database is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// That of [`Fill::random`](tamis_bench::run::Fill::random).
    Random,
    /// Ascending.
    Sequential,
}

/// What a worker is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub(crate) enum Request {
    /// Say whether the engine can be set up so.
    Check {
        /// How.
        setup: Setup,
    },
    /// Open the database, or make it.
    Open {
        /// How.
        setup: Setup,
        /// What it holds, or will hold.
        data: Data,
        /// The first so many keys in the order of filling are there.
        loaded: u64,
    },
    /// Put the first `loaded` keys in this order, by one thread, and settle.
    Fill {
        /// The order.
        order: Order,
        /// How many keys. All of them where the order is not random.
        loaded: u64,
    },
    /// Run a workload other than a fill, and settle if it writes.
    Run {
        /// Its name.
        workload: String,
        /// Threads side by side.
        threads: usize,
        /// Operations over all threads.
        ops: u64,
        /// Operations before them that are not measured, of `warm_with` with another seed.
        warmup: u64,
        /// A workload that changes nothing.
        warm_with: String,
        /// Drives every random choice.
        seed: u64,
    },
    /// Wait until compaction is done.
    Settle,
    /// Read all files of the open database once, so that the page cache has them.
    Warm,
    /// Sync the files of the closed database and drop them from the page cache.
    Evict,
    /// Close the database.
    Close,
    /// End.
    Quit,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The database is open.
    Opened {
        /// The options it was given, in its own words.
        options: BTreeMap<String, String>,
    },
    /// The engine cannot be set up so.
    Refused {
        /// Why.
        why: String,
    },
    /// A fill or a run is done, and the database settled if it wrote.
    Measured {
        /// What it took. Boxed, as it is much larger than the others.
        figures: Box<Figures>,
        /// Keys that are there now.
        loaded: u64,
        /// What a reader of the figures must know.
        notes: Vec<String>,
    },
    /// It is done.
    Done,
    /// It could not be done.
    Failed {
        /// Whose fault it is.
        kind: FailureKind,
        /// What happened, for people.
        text: String,
    },
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FailureKind {
    /// The request cannot be understood, or cannot be met in the state that the worker is in.
    Request,
    /// The engine gave an answer that contradicts what was put.
    WrongAnswer,
    /// The engine or the system failed.
    System,
}
