//! The control: the same with plain files that are appended to and synced, without the engine.

use std::time::Duration;

use super::Lie;
use super::rig::{Cut, Rig};
use crate::disks::{Entry, Replay, cuts};
use crate::machine::{Setup, Worker, Writeback};
use crate::report::stopped;
use crate::wire::Message;
use crate::worker::{control_path, control_records};

const THREADS: u32 = 3;
const DISKS_OF_A_SESSION: u64 = 16;

/// Judges disks, and returns how many lost acknowledged records.
pub(super) fn test(rig: &mut Rig<'_>, disks: u64, lie: Lie) -> Result<u64, String> {
    let mut rng = fastrand::Rng::with_seed(rig.bench.amount.seed ^ 0xc0_17_20_01);
    let logs = rig.bench.fresh_dir("control")?;
    let mut left = disks;
    let mut lost = 0;
    while left > 0 && !stopped() {
        let entries = write(rig, lie, &logs, &mut rng)?;
        let mut replay = Replay::new(rig.blank.clone(), &entries);
        let mut safe = [0; THREADS as usize];
        for position in cuts(&entries, left.min(DISKS_OF_A_SESSION) as usize, &mut rng) {
            left -= 1;
            replay.advance(position, |message| {
                if let Message::Acked { thread, number, .. } = message {
                    safe[*thread as usize] = *number;
                }
            });
            let survival = lie.survival(replay.is_flushed(), &mut rng);
            let cut = Cut { position, survival };
            let disk = replay.disk(survival, &mut rng).disk;
            let point = rig.point().to_owned();
            let count =
                || (0..THREADS).map(|thread| control_records(&control_path(&point, thread))).collect();
            let there: Option<Vec<u64>> = rig.examine(&disk, cut, lie, || Ok(count()))?;
            let Some(there) = there else { continue };
            let lost_here: u64 = safe.iter().zip(there).map(|(safe, there)| safe.saturating_sub(there)).sum();
            lost += u64::from(lost_here > 0);
            if lie != Lie::None {
                continue;
            }
            rig.count("control: disks", 1);
            rig.count("control: records acknowledged before a cut", safe.iter().sum());
            rig.count("control:    of which lost", lost_here);
            if lost_here == 0 {
                continue;
            }
            let what = format!("the file system lost {lost_here} records");
            match rig.damage() {
                Some(damage) => rig.damaged(&format!("{what}: {damage}"), &cut.to_string(), &disk, cut),
                None => rig.fail(&what, &cut.to_string(), Some(&disk), &[&logs]),
            }
        }
    }
    Ok(lost)
}

fn write(
    rig: &mut Rig<'_>,
    lie: Lie,
    logs: &std::path::Path,
    rng: &mut fastrand::Rng,
) -> Result<Vec<Entry>, String> {
    let dir = rig.point().to_owned();
    let text = dir.to_string_lossy().into_owned();
    let args = ["control", "--dir", &text, "--threads", &THREADS.to_string()].map(str::to_owned);
    let setup = Setup::new(args, logs);
    rig.record(rig.blank.clone(), lie.flushes(), |recorder| {
        let recorder = recorder.clone();
        let worker = Worker::start(&setup, move |message| recorder.tell(message));
        let mut worker = worker.map_err(|error| format!("a worker: {error}"))?;
        let writeback = Writeback::start(&dir, &dir.join("other"), rng.fork());
        std::thread::sleep(Duration::from_millis(rng.u64(20..120)));
        drop(writeback);
        worker.kill();
        Ok(())
    })
}
