//! Draws the plan of a seed.

use fastrand::Rng;

use super::{Change, Copying, End, Op, Plan, Session, Settings, Space};
use crate::disk::{Class, Error, Fault, Loss};
use crate::machine::Strategy;
use crate::oracle::FIXED_SPACES;
use crate::settings;

/// What all sessions of a plan have in common.
struct Common {
    clients: u8,
    keys: u8,
    /// The number of keyspaces that come and go.
    others: Space,
    merges: bool,
    /// Whether no faults are injected.
    quiet: bool,
    /// Levels of the trees.
    levels: usize,
    /// Options of the default keyspace.
    first: Settings,
}

/// With more keyspaces that come and go than this, clients do little else than create, drop and
/// write them.
const FEW: Space = 10;

/// Returns the plan of a seed.
pub fn plan(seed: u64) -> Plan {
    let rng = &mut Rng::with_seed(seed);
    let clients = rng.u8(1..=4);
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
    let others = match rng.u8(..40) {
        0 => *pick(rng, &[100, 300, 1000]),
        1..=12 => rng.u16(1..8),
        _ => 0,
    };
    let quiet = quiet || (others > FEW && rng.bool());
    let common = Common { clients, keys, others, merges, quiet, levels, first };
    let mut sessions: Vec<Session> = (0..rng.usize(1..=4)).map(|_| session(rng, &common)).collect();
    if others > FEW {
        sessions[0].clients[0].insert(0, Op::Create { from: FIXED_SPACES, count: others });
    }
    let others = if others == 0 { 0 } else { 3 };
    let others = (0..others).map(|_| settings::keyspace(rng, levels, merges)).collect();
    let copy =
        rng.bool().then(|| Copying { durable: rng.u8(..4) > 0, acknowledges: *pick(rng, &[1, 5, 40]) });
    Plan { seed, strategy, keys, merges, second, others, copy, sessions }
}

/// Draws one of several values.
pub fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}

fn session(rng: &mut Rng, common: &Common) -> Session {
    let mut options = settings::database(rng);
    // Options that are fixed for a keyspace's lifetime come from the first session's settings.
    let mut keyspace = common.first.clone();
    if rng.bool() {
        // An opening that allows fewer levels than are in use is refused.
        let levels = if rng.u8(..4) == 0 { rng.usize(2..7) } else { common.levels };
        settings::reshape(rng, levels, &mut keyspace);
    }
    options.extend(keyspace.into_iter().map(|(name, value)| (format!("keyspace.{name}"), value)));
    let second = (0..rng.usize(..4)).map(|_| settings::change(rng)).collect();
    let overlaps = rng.bool();
    let amount = *pick(rng, if common.others > FEW { &[5, 20] } else { &[5, 20, 60, 150] });
    let writes = *pick(rng, &[30u8, 60, 85]);
    let clients = (0..common.clients)
        .map(|_| (0..rng.usize(1..=amount)).map(|_| op(rng, common, writes)).collect())
        .collect();
    let listener = match rng.bool() {
        true => (0..rng.usize(1..=12)).map(|_| op(rng, common, writes)).collect(),
        false => Vec::new(),
    };
    let faults = if common.quiet { Vec::new() } else { faults(rng) };
    let end = match rng.u8(..6) {
        0 | 1 => End::Close,
        2 => End::Drop,
        3 => End::Crash(Loss::Nothing),
        4 => End::Crash(Loss::Unsynced),
        _ => End::Crash(Loss::Random),
    };
    let lose = (rng.u8(..4) == 0).then(|| rng.u8(..4));
    Session { options, second, overlaps, clients, listener, faults, end, lose }
}

fn space(rng: &mut Rng, common: &Common) -> Space {
    match common.others {
        others if others > FEW && rng.u8(..3) > 0 => FIXED_SPACES + rng.u16(..others),
        others if others > 0 && rng.u8(..3) == 0 => FIXED_SPACES + rng.u16(..others),
        _ => rng.u16(..FIXED_SPACES),
    }
}

fn change(rng: &mut Rng, common: &Common) -> Change {
    let Common { keys, merges, .. } = *common;
    let (space, key) = (space(rng, common), rng.u8(..keys));
    match rng.u8(..20) {
        0..=11 => Change::Put { space, key, len: *pick(rng, &[0, 10, 60, 200, 900]) },
        12..=14 if merges => Change::Merge { space, key },
        12..=17 => Change::Delete { space, key },
        _ => Change::DeleteRange { space, from: key, to: rng.u8(key..=keys) },
    }
}

fn op(rng: &mut Rng, common: &Common, writes: u8) -> Op {
    let (space, client, keys) = (space(rng, common), rng.u8(..common.clients), common.keys);
    let fixed = rng.u16(..FIXED_SPACES);
    if common.others > 0 && rng.u8(..5) == 0 {
        return of_spaces(rng, common.others);
    }
    if rng.u8(..100) < writes {
        let changes = match rng.u8(..3) {
            0 => rng.usize(2..6),
            _ => 1,
        };
        return Op::Write {
            changes: (0..changes).map(|_| change(rng, common)).collect(),
            synced: rng.u8(..4) == 0,
        };
    }
    match rng.u8(..44) {
        0..=7 => Op::Get { space, client, key: rng.u8(..keys) },
        8..=10 => Op::MultiGet { space, client },
        11..=16 => Op::Scan { space, client: rng.bool().then_some(client), reverse: rng.bool() },
        17 | 18 => Op::Snapshot,
        19 => Op::Versions {
            space: fixed,
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
        // It asks for the statistics of all keyspaces again and again.
        36 if common.others <= FEW => Op::Overwrite { space: fixed, times: 400 },
        36 | 37 => Op::Sync,
        38..=41 => Op::Follow { by_itself: rng.u8(..3) == 0 },
        42 => Op::Unfollow,
        _ => Op::Pause { millis: *pick(rng, &[1, 30, 1500]) },
    }
}

/// Draws an operation on some of the keyspaces that come and go.
fn of_spaces(rng: &mut Rng, others: Space) -> Op {
    let from = rng.u16(..others);
    let count = match others {
        0..=FEW => 1,
        _ => rng.u16(1..=(others - from).min(300)),
    };
    let from = FIXED_SPACES + from;
    match rng.u8(..8) {
        0..=3 => Op::Create { from, count },
        4..=6 => Op::Drop { from, count },
        _ => Op::List,
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
