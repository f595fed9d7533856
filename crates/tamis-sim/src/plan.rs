//! The plan of a simulation, drawn from its seed: plain data, so that a failing plan can be shrunk,
//! saved and replayed.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::disk::{Class, Error, Fault, Loss};
use crate::machine::Strategy;
use crate::settings;

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
    /// Options of the second keyspace.
    pub second: Settings,
    /// The sessions; the database is opened once for each.
    pub sessions: Vec<Session>,
}

/// The events between two openings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Options to open with.
    pub options: Settings,
    /// The operations of each client, in order; clients run concurrently.
    pub clients: Vec<Vec<Op>>,
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

/// A keyspace: 0 for the default one, 1 for the second.
pub type Space = u8;

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
    /// Changes an option.
    SetOption {
        /// The keyspace.
        space: Space,
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Checks all files.
    Verify,
    /// Pauses.
    Pause {
        /// The duration in milliseconds.
        millis: u16,
    },
}

/// Returns the plan of a seed.
pub fn plan(seed: u64) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let rng = &mut rng;
    let clients = rng.usize(1..=4);
    let keys = *pick(rng, &[3, 8, 20, 40]);
    let every = *pick(rng, &[1, 2, 4, 8, 30, 200]);
    let strategy = match rng.bool() {
        true => Strategy::Random { every },
        false => Strategy::Priorities { every: every * 8 },
    };
    let levels = rng.usize(2..6);
    let merges = rng.bool();
    let second = settings::keyspace(rng, levels, merges);
    let first = settings::keyspace(rng, levels, merges);
    let quiet = rng.u8(..3) == 0;
    let sessions = (0..rng.usize(1..=4)).map(|_| session(rng, clients, keys, merges, quiet, &first, levels));
    let sessions = sessions.collect();
    Plan { seed, strategy, keys, merges, second, sessions }
}

pub(crate) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

fn session(
    rng: &mut Rng,
    clients: usize,
    keys: u8,
    merges: bool,
    quiet: bool,
    first: &Settings,
    levels: usize,
) -> Session {
    let mut options = settings::database(rng);
    // Options that are fixed for a keyspace's lifetime come from the first session's settings.
    let mut keyspace = first.clone();
    if rng.bool() {
        settings::reshape(rng, levels, &mut keyspace);
    }
    options.extend(keyspace.into_iter().map(|(name, value)| (format!("keyspace.{name}"), value)));
    let amount = *pick(rng, &[5, 20, 60, 150]);
    let writes = *pick(rng, &[30u8, 60, 85]);
    let clients = (0..clients)
        .map(|_| (0..rng.usize(1..=amount)).map(|_| op(rng, clients as u8, keys, merges, writes)).collect())
        .collect();
    let faults = if quiet { Vec::new() } else { faults(rng) };
    let end = match rng.u8(..6) {
        0 | 1 => End::Close,
        2 => End::Drop,
        3 => End::Crash(Loss::Nothing),
        4 => End::Crash(Loss::Unsynced),
        _ => End::Crash(Loss::Random),
    };
    let lose = (rng.u8(..4) == 0).then(|| rng.u8(..4));
    Session { options, clients, faults, end, lose }
}

fn change(rng: &mut Rng, keys: u8, merges: bool) -> Change {
    let (space, key) = (rng.u8(..2), rng.u8(..keys));
    match rng.u8(..20) {
        0..=11 => Change::Put { space, key, len: *pick(rng, &[0, 10, 60, 200, 900]) },
        12..=14 if merges => Change::Merge { space, key },
        12..=17 => Change::Delete { space, key },
        _ => Change::DeleteRange { space, from: key, to: rng.u8(key..=keys) },
    }
}

fn op(rng: &mut Rng, clients: u8, keys: u8, merges: bool, writes: u8) -> Op {
    let (space, client) = (rng.u8(..2), rng.u8(..clients));
    if rng.u8(..100) < writes {
        let changes = match rng.u8(..3) {
            0 => rng.usize(2..6),
            _ => 1,
        };
        return Op::Write {
            changes: (0..changes).map(|_| change(rng, keys, merges)).collect(),
            synced: rng.u8(..4) == 0,
        };
    }
    match rng.u8(..40) {
        0..=7 => Op::Get { space, client, key: rng.u8(..keys) },
        8..=10 => Op::MultiGet { space, client },
        11..=16 => Op::Scan { space, client: rng.bool().then_some(client), reverse: rng.bool() },
        17 | 18 => Op::Snapshot,
        19 => Op::Versions {
            space,
            key: rng.u8(..keys),
            count: *pick(rng, &[5, 10, 40]),
            len: *pick(rng, &[0, 10, 60, 200]),
        },
        20..=23 => Op::ReadSnapshot { reverse: rng.bool() },
        24 => Op::DropSnapshots,
        25..=27 => Op::Flush,
        28 => Op::Compact { space },
        29 => Op::Checkpoint,
        30 | 31 => Op::ReadOnly,
        32 | 33 => {
            let from = rng.u8(..keys);
            Op::Ingest { space, from, to: rng.u8(from..=keys).max(from + 1) }
        }
        34 => {
            let (name, value) = settings::change(rng);
            Op::SetOption { space, name, value }
        }
        35 => Op::Verify,
        36 => Op::Overwrite { space, times: 400 },
        37 => Op::Sync,
        _ => Op::Pause { millis: *pick(rng, &[1, 30, 1500]) },
    }
}

fn faults(rng: &mut Rng) -> Vec<(u64, Fault)> {
    let spread = *pick(rng, &[60, 400, 3000]);
    (0..rng.usize(..4)).map(|_| (rng.u64(..spread), fault(rng))).collect()
}

fn fault(rng: &mut Rng) -> Fault {
    let operations = *pick(rng, &[1, 10, 100, 1000]);
    match rng.u8(..12) {
        0..=3 => Fault::Fail {
            class: *pick(rng, &[Class::Any, Class::Read, Class::Write, Class::Sync, Class::Name]),
            error: *pick(rng, &[Error::Device, Error::Full]),
            once: rng.bool(),
            operations,
        },
        4 | 5 => Fault::Full { bytes: *pick(rng, &[0, 300, 5000]), operations },
        6 => Fault::Slow { factor: *pick(rng, &[10, 1000]), operations },
        7 => Fault::NoThreads { count: rng.u32(1..3) },
        8 | 9 => Fault::Crash { loss: Loss::Random },
        10 => Fault::Crash { loss: Loss::Unsynced },
        _ => Fault::Crash { loss: Loss::Nothing },
    }
}
