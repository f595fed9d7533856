//! The control of the cuts: the same with plain files that are appended to and synced, without the
//! engine. It shows the losses of the test itself, and that the file systems keep what the test
//! considers promised.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Bench;
use super::cuts::{IMAGE_BYTES, draw_shutdown, share_of};
use crate::machine::{Kind, Setup, Worker};
use crate::report::{Failure, stopped};
use crate::wire::Message;
use crate::worker::{control_path, control_records};

const SUITE: &str = "control";
const THREADS: u32 = 3;

/// The acknowledgements of one thread.
#[derive(Clone, Copy, Debug)]
struct Told {
    acked: u64,
    /// Before the cut began.
    safe: u64,
}

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    let kinds: Vec<Kind> = bench.amount.on.iter().copied().filter(|kind| *kind != Kind::Tmpfs).collect();
    // A quarter is enough, since only the file systems are tested.
    let all = bench.amount.cuts.div_ceil(4);
    for (number, kind) in kinds.iter().enumerate() {
        let Some(mut mounted) = bench.mount(*kind, IMAGE_BYTES)? else { continue };
        let mut rng = fastrand::Rng::with_seed(bench.amount.seed ^ 0xc0_17_20_01);
        let dir = mounted.point().to_owned();
        let name = kind.name();
        let logs = bench.fresh_dir(&format!("control-{name}"))?;
        let mut base = [0; THREADS as usize];
        for _ in 0..share_of(all, kinds.len(), number) {
            if stopped() {
                break;
            }
            let told = Arc::new(Mutex::new(base.map(|there| Told { acked: there, safe: there })));
            let heard = told.clone();
            let dir_text = dir.to_string_lossy().into_owned();
            let args = ["control", "--dir", &dir_text, "--threads", &THREADS.to_string()].map(str::to_owned);
            let mut worker = Worker::start(&Setup::new(args, &logs), move |message| {
                if let Message::Acked { thread, number, .. } = message {
                    heard.lock().unwrap_or_else(|e| e.into_inner())[thread as usize].acked = number;
                }
            })
            .map_err(|error| format!("a worker: {error}"))?;
            std::thread::sleep(Duration::from_millis(rng.u64(20..120)));
            let lock = || told.lock().unwrap_or_else(|e| e.into_inner());
            lock().iter_mut().for_each(|told| told.safe = told.acked);
            mounted.shut_down(draw_shutdown(&mut rng))?;
            std::thread::sleep(Duration::from_millis(rng.u64(1..10)));
            worker.kill();
            mounted.unmount()?;
            mounted.mount()?;
            bench.report.count(SUITE, format!("{name}: cuts"), 1);
            let mut lost_here = false;
            for (thread, told) in lock().iter().enumerate() {
                let there = control_records(&control_path(&dir, thread as u32));
                let count = |what: &str, count| bench.report.count(SUITE, format!("{name}: {what}"), count);
                count("records acknowledged before a cut", told.safe - base[thread]);
                count("   of which lost", told.safe.saturating_sub(there));
                count("records acknowledged after a cut began", told.acked - told.safe);
                count("   of which lost (in flight)", told.acked.saturating_sub(there.max(told.safe)));
                lost_here |= told.acked > there;
                base[thread] = there;
                if there < told.safe {
                    let what = format!(
                        "{name}: the file system lost {} of {} records",
                        told.safe - there,
                        told.safe
                    );
                    bench.report.fail(Failure { suite: SUITE, what, how: "control".into() }, &[&logs]);
                }
            }
            bench.report.count(
                SUITE,
                format!("{name}: cuts that lost an fdatasync in flight"),
                u64::from(lost_here),
            );
        }
    }
    Ok(())
}
