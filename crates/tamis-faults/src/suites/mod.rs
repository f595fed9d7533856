//! The suites.

mod control;
mod cuts;
mod devices;
#[cfg(target_arch = "x86_64")]
mod flips;
mod full;
mod injections;
mod kills;
mod limits;
mod sessions;
mod trial;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use crate::machine::{Kind, Mounted};
use crate::report::{Report, stopped};
use crate::worker::Protect;

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// Power cuts on dedicated file systems.
    Cuts,
    /// The same without an engine.
    Control,
    /// Power cuts below dedicated file systems.
    Devices,
    /// Errors of system calls, by number.
    Injections,
    /// Full and read-only file systems.
    Full,
    /// Small file systems that are filled, on which deletes must make room by themselves.
    Deletes,
    /// Limits of the process.
    Limits,
    /// `kill -9` at every call that changes a file.
    Kill,
    /// Single bits flipped in registers and memory.
    Flips,
}

/// The amount of testing.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Amount {
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The number of power cuts over all kinds of file systems.
    #[arg(long, default_value_t = 400)]
    pub(crate) cuts: u64,
    /// The number of disks, over all kinds of file systems, rebuilt as power cuts may leave them.
    #[arg(long, default_value_t = 300)]
    pub(crate) devices: u64,
    /// Kinds of file systems to cut.
    #[arg(long, value_delimiter = ',', default_value = "xfs,ext4")]
    pub(crate) on: Vec<Kind>,
    /// The number of cuts per database.
    #[arg(long, default_value_t = 50)]
    pub(crate) cuts_per_database: u64,
    /// The number of sessions with a failing call.
    #[arg(long, default_value_t = 1000)]
    pub(crate) injections: u64,
    /// The number of small file systems of each kind that are filled.
    #[arg(long, default_value_t = 12)]
    pub(crate) disks: u64,
    /// The number of option sets that are killed at every boundary.
    #[arg(long, default_value_t = 2)]
    pub(crate) kill_turns: u64,
    /// The number of flips.
    #[arg(long, default_value_t = 1000)]
    pub(crate) flips: u64,
    /// Repeat only the flip with this number.
    #[arg(long)]
    pub(crate) flip: Option<u64>,
    /// Whether the engine protects records from end to end while bits are flipped.
    #[arg(long, value_enum, default_value_t = Protect::Off)]
    pub(crate) protect: Protect,
    /// The number of concurrent workers that do not share a file system.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    pub(crate) jobs: usize,
}

/// The context of a suite.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) amount: &'a Amount,
    pub(crate) report: &'a Report,
    /// The directory for databases, images and mount points; removed at the end.
    pub(crate) work: PathBuf,
}

impl Bench<'_> {
    pub(crate) fn run(&self, suite: Suite) -> Result<(), String> {
        let began = Instant::now();
        let name = match suite {
            Suite::Cuts => cuts::run(self).map(|()| "cuts"),
            Suite::Control => control::run(self).map(|()| "control"),
            Suite::Devices => devices::run(self).map(|()| "devices"),
            Suite::Injections => injections::run(self).map(|()| "injections"),
            Suite::Full => full::run(self).map(|()| "full"),
            Suite::Deletes => full::deletes(self).map(|()| "deletes"),
            Suite::Limits => limits::run(self).map(|()| "limits"),
            Suite::Kill => kills::run(self).map(|()| "kill"),
            #[cfg(target_arch = "x86_64")]
            Suite::Flips => flips::run(self).map(|()| "flips"),
            #[cfg(not(target_arch = "x86_64"))]
            Suite::Flips => {
                self.report.skip("flips: only on x86-64");
                Ok("flips")
            }
        }?;
        self.report.took(name, began.elapsed());
        Ok(())
    }

    /// Mounts a dedicated file system; `None`, with the reason noted, if that is impossible.
    fn mount(&self, kind: Kind, bytes: u64) -> Result<Option<Mounted>, String> {
        match kind.missing() {
            Some(why) => {
                self.report.skip(why);
                Ok(None)
            }
            None => Mounted::make(kind, &self.work, bytes).map(Some),
        }
    }

    /// Runs `work` once for every number below `count` on several threads. Ends early on an
    /// interrupt.
    fn share(&self, count: usize, work: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let one = || -> Result<(), String> {
            loop {
                let number = next.fetch_add(1, SeqCst);
                if number >= count || stopped() {
                    return Ok(());
                }
                work(number)?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.amount.jobs.max(1)).map(|_| scope.spawn(one)).collect();
            let ends = threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a panic".into())));
            ends.collect::<Result<Vec<()>, String>>().map(drop)
        })
    }

    /// Creates a new directory with a unique name.
    fn fresh_dir(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.work.join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(dir)
    }
}

fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir) {
        eprintln!("{} stays: {error}", dir.display());
    }
}
