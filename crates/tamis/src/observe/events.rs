//! Events, and their listeners.

use std::fmt;
use std::time::Duration;

use crate::observe::latency::Operation;
use crate::observe::stalls::StallCause;

/// A callback that is told what a database does. Closures of the same signature are listeners.
///
/// One thread, which does nothing else, calls all listeners of a database one after the other:
/// after what an event reports has happened, in the order of the events, and with none of the
/// database's locks held. So a listener may call the database, wait, or write; the time that it
/// takes delays only later events. Once 16384 events are queued, further ones are
/// [lost](Event::Lost). If a listener panics, it loses that event.
///
/// [`Db::close`](crate::Db::close), or dropping the last handle, waits until all events so far are
/// delivered, unless a listener does it. A listener that keeps a [`Db`](crate::Db) keeps the
/// database open until somebody closes it.
///
/// ```
/// use std::sync::Arc;
/// use tamis::events::Event;
/// use tamis::Options;
///
/// # let dir = tempfile::tempdir()?;
/// let listener = |event: &Event| {
///     if let Event::FlushEnded(flush) = event {
///         println!("{} bytes in {:?}", flush.bytes_written, flush.took);
///     }
/// };
/// let db = Options::default().listeners(vec![Arc::new(listener)]).open(dir.path())?;
/// # db.put("key", "value")?;
/// # db.flush()?;
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait EventListener: Send + Sync {
    /// Called for every event.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> EventListener for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

impl fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}

/// Something that happened in a database. Later versions may add more.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// Memtables are being written to a table.
    FlushBegan(FlushInfo),
    /// A flush has ended; if it failed, it is retried.
    FlushEnded(FlushOutcome),
    /// A compaction has begun.
    CompactionBegan(CompactionInfo),
    /// A compaction has ended.
    CompactionEnded(CompactionOutcome),
    /// A write waits for background work, and others queue behind it.
    StallBegan {
        /// Why.
        cause: StallCause,
    },
    /// The write continues, or got an error instead.
    StallEnded {
        /// Why it waited.
        cause: StallCause,
        /// How long.
        took: Duration,
    },
    /// Background work failed. It is retried later.
    BackgroundError {
        /// What failed: `flush` or `compaction`.
        work: &'static str,
        /// The keyspace.
        keyspace: String,
        /// The error, in words.
        error: String,
    },
    /// Writes are [suspended](crate::WriteError::Suspended) until the logs are replaced.
    WritesSuspended {
        /// Why.
        cause: String,
    },
    /// Writes have resumed after a suspension.
    WritesResumed {
        /// Why they were suspended.
        cause: String,
    },
    /// Writes have stopped [for good](crate::WriteError::Poisoned).
    WritesStopped {
        /// Why.
        cause: String,
    },
    /// External tables were ingested.
    Ingested {
        /// The keyspaces that received them.
        keyspaces: Vec<String>,
        /// The number of tables.
        tables: usize,
        /// Their size in bytes.
        bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// A table joined the tree: by a flush, a compaction or an ingestion.
    TableCreated {
        /// The keyspace.
        keyspace: String,
        /// The table's number, as in its file's name.
        table: u64,
        /// Its level.
        level: usize,
        /// The size of its file.
        bytes: u64,
    },
    /// A table left the tree. Its file is removed once nothing reads it.
    TableRemoved {
        /// The keyspace.
        keyspace: String,
        /// The table's number.
        table: u64,
    },
    /// A warning, as in [`Stats::warnings`](crate::stats::Stats::warnings).
    Warning {
        /// The warning, in words.
        message: String,
    },
    /// An operation took longer than
    /// [`slow_operation_threshold`](crate::Options::slow_operation_threshold).
    SlowOperation(SlowOperation),
    /// Listeners were too slow: events are missing here.
    Lost {
        /// How many are missing.
        events: u64,
    },
}

/// A flush that has begun.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FlushInfo {
    /// The keyspace.
    pub keyspace: String,
    /// The number of memtables.
    pub memtables: usize,
    /// Their size in memory, in bytes.
    pub memtable_bytes: u64,
}

/// A flush that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FlushOutcome {
    /// The keyspace.
    pub keyspace: String,
    /// The number of memtables.
    pub memtables: usize,
    /// Their size in memory, in bytes.
    pub memtable_bytes: u64,
    /// The numbers of the tables written.
    pub tables: Vec<u64>,
    /// Bytes of the tables and blob files written.
    pub bytes_written: u64,
    /// How long it took.
    pub took: Duration,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// A compaction that has begun.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompactionInfo {
    /// Its number, which identifies its end.
    pub job: u64,
    /// The keyspace.
    pub keyspace: String,
    /// Why it was started, as in [`JobStats::reason`](crate::stats::JobStats::reason).
    pub reason: &'static str,
    /// `merge`, `move` or `drop`.
    pub work: &'static str,
    /// The numbers of the tables that it replaces.
    pub inputs: Vec<u64>,
    /// The level of its outputs.
    pub output_level: usize,
    /// The bytes of its input tables.
    pub bytes_in: u64,
}

/// A compaction that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompactionOutcome {
    /// Its number.
    pub job: u64,
    /// The keyspace.
    pub keyspace: String,
    /// Why it was started.
    pub reason: &'static str,
    /// `merge`, `move` or `drop`.
    pub work: &'static str,
    /// The numbers of the tables that replaced its inputs.
    pub outputs: Vec<u64>,
    /// The level of its outputs.
    pub output_level: usize,
    /// The bytes read.
    pub bytes_read: u64,
    /// The bytes written.
    pub bytes_written: u64,
    /// How long it took.
    pub took: Duration,
    /// Whether it was cancelled: nothing has changed.
    pub cancelled: bool,
    /// Why it failed, if it did: nothing has changed, and it is retried later.
    pub error: Option<String>,
}

/// A slow operation.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SlowOperation {
    /// What it was.
    pub operation: Operation,
    /// The keyspace; empty if the operation is not about one.
    pub keyspace: String,
    /// The key of a get, or the target of a seek.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes_or_none"))]
    pub key: Option<Vec<u8>>,
    /// How long it took.
    pub took: Duration,
    /// What it did. To explain a read, it is repeated at the same state, so data that was cold the
    /// first time is warm here.
    pub explanation: String,
    /// How many slow operations were not reported since the last report: at most ten per second are
    /// reported.
    pub unreported: u64,
}

impl fmt::Display for SlowOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slow {}", self.operation.name())?;
        if let Some(key) = &self.key {
            let (start, rest) = key.split_at(key.len().min(64));
            write!(f, " of `{}{}`", start.escape_ascii(), if rest.is_empty() { "" } else { "…" })?;
        }
        if !self.keyspace.is_empty() {
            write!(f, " in keyspace `{}`", self.keyspace)?;
        }
        write!(f, ": {:?}; {}", self.took, self.explanation)?;
        if self.unreported > 0 {
            write!(f, "; {} more were slow since the last report", self.unreported)?;
        }
        Ok(())
    }
}
