//! Power cuts below file systems: what a file system sends to its device is recorded while a
//! database works on it. From the log, disks are rebuilt as a cut may leave them, each is mounted,
//! and the database on it is opened and judged.
//!
//! Before, two lies must be found, so that a suite that finds nothing can be believed: a device
//! that ignores most flushes, and syncs that never reach the file system.

mod database;
mod files;
mod rig;

use super::Bench;
use super::cuts::share_of;
use crate::disks::Survival;
use crate::machine::{Device, Flushes, Kind};
use crate::report::{Failure, stopped};
use database::Database;
use rig::Rig;

const SUITE: &str = "devices";
/// The number of disks that are judged after a lie, and up to which it must be found.
const PROOF_DISKS: u64 = 32;
const MOST_PROOF_DISKS: u64 = 128;

/// Why synced writes may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// They may not.
    None,
    /// The engine's syncs succeed without being executed.
    SkippedSyncs,
    /// The device ignores most flushes.
    IgnoredFlushes,
}

impl Lie {
    fn flushes(self) -> Flushes {
        if self == Lie::IgnoredFlushes { Flushes::MostlyIgnored } else { Flushes::Obeyed }
    }

    /// Returns how the writes since the last flush survive.
    fn survival(self, flushed: bool, rng: &mut fastrand::Rng) -> Survival {
        match self {
            _ if flushed => Survival::All,
            // With some of the writes after ignored flushes, most file systems could not be
            // mounted.
            Lie::IgnoredFlushes => Survival::Nothing,
            Lie::None | Lie::SkippedSyncs => Survival::draw(rng),
        }
    }
}

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    let kinds: Vec<Kind> = bench.amount.on.iter().copied().filter(|kind| *kind != Kind::Tmpfs).collect();
    for (number, kind) in kinds.iter().enumerate() {
        if let Some(why) = kind.missing().or_else(Device::missing) {
            bench.report.skip(format!("{SUITE}: {why}"));
            continue;
        }
        let mut rig = Rig::make(bench, *kind)?;
        prove(&mut rig)?;
        let disks = share_of(bench.amount.devices, kinds.len(), number);
        // A quarter is enough, since only the file systems are tested.
        files::test(&mut rig, disks.div_ceil(4), Lie::None)?;
        test(&mut rig, disks)?;
    }
    Ok(())
}

/// Shows that lost writes are found.
fn prove(rig: &mut Rig<'_>) -> Result<(), String> {
    const DISKS_OF_A_SESSION: usize = 8;
    /// The databases whose numbers are multiples of it sync often.
    const SYNCS_OFTEN: u64 = 6;
    for (what, lie) in [("skipped syncs", Lie::SkippedSyncs), ("ignored flushes", Lie::IgnoredFlushes)] {
        let (mut losses, mut disks) = (0, 0);
        // Some disks after a lie are so damaged that the database cannot be opened; only lost
        // writes count.
        let wanted = |losses| if losses == 0 { MOST_PROOF_DISKS } else { PROOF_DISKS };
        while disks < wanted(losses) && !stopped() {
            // A new one each time, since a lie may damage the file system.
            let mut database = Database::new(rig, disks * SYNCS_OFTEN, lie);
            let entries = database.work(rig)?.entries;
            let verdicts = database.judge(rig, &entries, DISKS_OF_A_SESSION)?;
            disks += verdicts.disks;
            losses += verdicts.losses;
        }
        proven(rig, what, disks, losses);
    }
    let losses = files::test(rig, PROOF_DISKS, Lie::IgnoredFlushes)?;
    proven(rig, "ignored flushes, plain files", PROOF_DISKS, losses);
    Ok(())
}

/// Records the disks that were judged after a lie, and how many of them lost something.
fn proven(rig: &Rig<'_>, what: &str, disks: u64, losses: u64) {
    rig.count(&format!("proof: disks with {what}"), disks);
    rig.count(&format!("   of which lost writes ({what})"), losses);
    if losses == 0 && !stopped() {
        let what = format!("{}: losses through {what} are not found", rig.kind.name());
        rig.bench.report.fail(Failure { suite: SUITE, what, how: SUITE.into() }, &[]);
    }
}

fn test(rig: &mut Rig<'_>, disks: u64) -> Result<(), String> {
    /// Cuts in one session.
    const DISKS_OF_A_SESSION: u64 = 12;
    const SESSIONS_OF_A_DATABASE: u64 = 6;
    let mut left = disks;
    for number in 0.. {
        let mut database = Database::new(rig, number, Lie::None);
        for _ in 0..SESSIONS_OF_A_DATABASE {
            if left == 0 || stopped() {
                return Ok(());
            }
            let worked = database.work(rig)?;
            for problem in &worked.problems {
                database.fail(rig, problem);
            }
            if !worked.problems.is_empty() {
                left -= 1;
                break;
            }
            let verdicts = database.judge(rig, &worked.entries, left.min(DISKS_OF_A_SESSION) as usize)?;
            left -= verdicts.disks.min(left);
            if !verdicts.may_go_on {
                break;
            }
        }
    }
    Ok(())
}
