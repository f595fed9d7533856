//! The plan of a simulation, drawn from its seed: plain data, so that a failing plan can be shrunk,
//! saved and replayed.

use serde::{Deserialize, Serialize};

use crate::disk::{Fault, Loss};
use crate::machine::Strategy;

mod draw;

pub use draw::{pick, plan};

/// Options by name.
pub type Settings = Vec<(String, String)>;

/// A whole simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed of every decision of machine and disk.
    pub seed: u64,
    /// The scheduling strategy.
    pub strategy: Strategy,
    /// The number of keys of each client in each keyspace.
    pub keys: u8,
    /// Merge operator of all keyspaces: `append` or `none`.
    pub merges: bool,
    /// Options that the second keyspace is created with.
    pub second: Settings,
    /// Options of the keyspaces that come and go, each for every so many of them.
    #[serde(default)]
    pub others: Vec<Settings>,
    /// Whether a copy follows the changes of the database, and how.
    #[serde(default)]
    pub copy: Option<Copying>,
    /// The sessions; the database is opened once for each.
    pub sessions: Vec<Session>,
}

/// How a copy follows the changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Copying {
    /// Whether it takes only durable changes, and so outlives power failures.
    pub durable: bool,
    /// It acknowledges one in so many changes.
    pub acknowledges: u8,
}

/// The events between two openings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Options to open with.
    pub options: Settings,
    /// Options of the second keyspace to change then.
    #[serde(default)]
    pub second: Settings,
    /// Whether files take in several reads before they complete one, and mapped pages are scarce.
    #[serde(default)]
    pub overlaps: bool,
    /// The operations of each client, in order; clients run concurrently.
    pub clients: Vec<Vec<Op>>,
    /// The operations of a listener, each at an event.
    #[serde(default)]
    pub listener: Vec<Op>,
    /// The disk faults, by file operation of the session.
    pub faults: Vec<(u64, Fault)>,
    /// The end of the session, if not by a crash.
    pub end: End,
    /// The index of a log to remove from a copy of the files afterwards, as a test.
    #[serde(default)]
    pub lose: Option<u8>,
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum End {
    /// The database is closed.
    Close,
    /// Its handle is dropped.
    Drop,
    /// The machine crashes.
    Crash(Loss),
}

/// A keyspace: 0 for the default one, 1 for the second, more for those that come and go.
pub type Space = u16;

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Puts a value.
    Put {
        /// The keyspace.
        space: Space,
        /// The client's key.
        key: u8,
        /// The length of the value in bytes.
        len: u16,
    },
    /// Merges an operand.
    Merge {
        /// The keyspace.
        space: Space,
        /// The client's key.
        key: u8,
    },
    /// Deletes a key.
    Delete {
        /// The keyspace.
        space: Space,
        /// The client's key.
        key: u8,
    },
    /// Deletes a key range.
    DeleteRange {
        /// The keyspace.
        space: Space,
        /// The first key.
        from: u8,
        /// The end of the range (excluded).
        to: u8,
    },
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Writes one batch.
    Write {
        /// Its changes.
        changes: Vec<Change>,
        /// Whether it must survive a power cut.
        synced: bool,
    },
    /// Ingests external tables with a range of the client's keys.
    Ingest {
        /// The keyspace.
        space: Space,
        /// The first key.
        from: u8,
        /// The end of the range (excluded).
        to: u8,
    },
    /// Syncs all earlier writes.
    Sync,
    /// Gets one key of any client.
    Get {
        /// The keyspace.
        space: Space,
        /// The client.
        client: u8,
        /// Its key.
        key: u8,
    },
    /// Gets all keys of a client in one call.
    MultiGet {
        /// The keyspace.
        space: Space,
        /// The client.
        client: u8,
    },
    /// Scans all keys of one client or of all, in either direction.
    Scan {
        /// The keyspace.
        space: Space,
        /// The client.
        client: Option<u8>,
        /// Whether the direction is reverse.
        reverse: bool,
    },
    /// Overwrites the client's keys without a pause, and looks how much space is in use.
    Overwrite {
        /// The keyspace.
        space: Space,
        /// The number of writes.
        times: u16,
    },
    /// Takes a snapshot, beside those that the client has.
    Snapshot,
    /// Writes one key so many times, with a snapshot after each.
    Versions {
        /// The keyspace.
        space: Space,
        /// The client's key.
        key: u8,
        /// The number of writes.
        count: u8,
        /// The length of the values in bytes.
        len: u16,
    },
    /// Reads everything at one of the snapshots, in turn.
    ReadSnapshot {
        /// Whether the direction is reverse.
        reverse: bool,
    },
    /// Drops half of the snapshots, those read longest ago.
    DropSnapshots,
    /// Flushes memtables.
    Flush,
    /// Compacts a keyspace to the bottom.
    Compact {
        /// The keyspace.
        space: Space,
    },
    /// Makes a checkpoint and opens it.
    Checkpoint,
    /// Opens the database a second time, read-only.
    ReadOnly,
    /// Opens a follower; if the client has one, lets it catch up.
    Follow {
        /// Whether a new one also catches up by itself.
        by_itself: bool,
    },
    /// Closes the follower.
    Unfollow,
    /// Changes an option.
    SetOption {
        /// The keyspace.
        space: Space,
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Creates keyspaces, as far as they do not exist, and puts a key into some.
    Create {
        /// The first.
        from: Space,
        /// Their number.
        count: u16,
    },
    /// Drops keyspaces, as far as they exist.
    Drop {
        /// The first.
        from: Space,
        /// Their number.
        count: u16,
    },
    /// Lists the keyspaces.
    List,
    /// Checks all files.
    Verify,
    /// Pauses.
    Pause {
        /// The duration in milliseconds.
        millis: u16,
    },
}
