//! Instructions of operations, counted by valgrind's callgrind: unlike times they do not depend on what else the machine does.
//!
//! After the rounds of a plan a worker under callgrind executes a few operations of each of its steps with one thread. Only what the
//! threads of the harness execute in its timed loops is counted: the engine's calls and the checks of answers, which are the same for all
//! engines, but no background threads, no opening and no preparation of keys.
//!
//! Callgrind writes its counts to a file, and begins at 0 again, whenever a worker reaches [`mark`]: a worker does so before and after
//! the operations of each request that measures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::engines::system::System;
use crate::link::Link;

/// The functions of `tamis_bench` around timed operations.
const TIMED: [&str; 2] = ["*run_singles", "*run_batches"];

/// How long a request may take at most: of an engine that is not done by then no more instructions are counted. Valgrind runs one thread at a
/// time, so an engine whose thread spins until another one has worked may take for ever.
const LONGEST: Duration = Duration::from_secs(300);

/// Set for workers under callgrind.
const COUNTING: &str = "TAMIS_PEERS_COUNTS_INSTRUCTIONS";

/// Name of callgrind's files, before their number.
const FILE: &str = "instructions";

/// Lets callgrind write the counts so far. Does nothing otherwise. Its name is known to [`spawn`].
#[inline(never)]
pub(crate) fn mark() {
    std::hint::black_box(());
}

/// Reports whether this is a worker under callgrind, where the kernel's page with the clocks is missing, in which rustix looks.
pub(crate) fn is_counting() -> bool {
    std::env::var_os(COUNTING).is_some()
}

/// A worker under callgrind.
pub(crate) struct Counting {
    /// The worker.
    pub link: Link,
    dir: tempfile::TempDir,
    /// Number of files read.
    read: u32,
}

/// Starts a worker under callgrind.
pub(crate) type Start<'a> = dyn Fn(&System) -> io::Result<Counting> + 'a;

/// Reports whether callgrind can be started.
pub(crate) fn is_possible() -> bool {
    let mut command = Command::new("valgrind");
    let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Starts a program as the worker of `system` under callgrind. A request that takes longer than `limit`, or than five minutes, kills it.
pub(crate) fn spawn(program: &Path, system: &System, limit: Duration) -> io::Result<Counting> {
    let dir = tempfile::tempdir()?;
    let mut command = Command::new("valgrind");
    // Threads take turns in order, so that one that waits for another does not keep it from running.
    command.args(["--quiet", "--fair-sched=try", "--tool=callgrind", "--dump-before=*instructions::mark"]);
    command.args(TIMED.map(|name| format!("--toggle-collect={name}")));
    let mut file = std::ffi::OsString::from("--callgrind-out-file=");
    file.push(dir.path().join(FILE));
    command.env(COUNTING, "1").arg(file).arg(program).args(["worker", "--system", system.name()]);
    Ok(Counting { link: Link::of_command(command, system.name(), limit.min(LONGEST))?, dir, read: 0 })
}

impl Counting {
    /// Returns the instructions of the operations of the last request, which has been answered. Must be called after each one that measures.
    pub(crate) fn of_last_request(&mut self) -> io::Result<u64> {
        // The first of two files has what came before the operations.
        self.read += 2;
        total(&self.dir.path().join(format!("{FILE}.{}", self.read)))
    }
}

fn total(path: &PathBuf) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let mut totals =
        text.lines().filter_map(|line| line.strip_prefix("totals: ")?.trim().parse::<u64>().ok());
    let counted = totals.next_back().filter(|&total| total > 0);
    counted.ok_or_else(|| io::Error::other("callgrind counted nothing: the timed functions have other names"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "version: 1\nevents: Ir\nfn=(1) x\n16 400\ntotals: 400\n").unwrap();
        assert_eq!(total(&path).unwrap(), 400);
        // A row with 0 instructions would be taken for one with times.
        for nothing in ["version: 1\nsummary: 7\n", "totals: 0\n"] {
            fs::write(&path, nothing).unwrap();
            assert!(total(&path).is_err(), "{nothing}");
        }
    }
}
