//! Runs a program that may do anything: allocate without bound, fill the disk, hang, or start
//! processes of its own.
//!
//! Each runs in a process group, which is killed whole; with limits of memory and of the size of a
//! file; and in a temporary directory that is removed afterwards.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};

/// How often the free space is looked at, and whether the program has ended.
const TICK: Duration = Duration::from_millis(100);

/// A program that leaves less space than this, or than a quarter of a small disk, is stopped.
const FREE_BYTES: u64 = 4 << 30;

/// What a program is run with.
#[derive(Clone, Debug)]
pub struct Program {
    pub executable: PathBuf,
    pub directory: PathBuf,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(&'static str, OsString)>,
    /// Limits in bytes.
    pub memory: u64,
    pub file: u64,
    /// Where its temporary directory is made.
    pub temporary: PathBuf,
}

/// How a program has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status; `None` after a signal.
    Exit(Option<i32>),
    /// Stopped, since the watcher saw what it wanted.
    Enough,
    /// Stopped, since nothing happened until the deadline.
    Hang,
    /// Stopped, since the disk was nearly full.
    Space,
}

/// What the watcher of a program wants.
pub enum Next {
    /// That it goes on, with this much time until the next line.
    Wait(Duration),
    /// That it is stopped.
    Stop,
}

/// Runs the program. Its lines on standard output go to `watch`, which says how long to wait for
/// the next one; `first` is the time for the first.
pub fn run(program: &Program, first: Duration, mut watch: impl FnMut(&str) -> Next) -> io::Result<End> {
    let temporary = tempfile::Builder::new().prefix("mutant").tempdir_in(&program.temporary)?;
    let mut command = Command::new(&program.executable);
    command
        .args(&program.arguments)
        .current_dir(&program.directory)
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn()?;
    limit(&child, program);
    let lines = lines_of(&mut child);
    let end = watch_over(&child, temporary.path(), &lines, first, &mut watch);
    // The group first: once its leader is reaped, its number can be given away.
    let group = Pid::from_child(&child);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let status = child.wait()?;
    // A process that was killed may still be in a system call that makes a file.
    for _ in 0..20 {
        if fs::remove_dir_all(temporary.path()).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(match end? {
        End::Exit(_) => End::Exit(status.code()),
        end => end,
    })
}

fn limit(child: &Child, program: &Program) {
    for (resource, bytes) in [(Resource::As, program.memory), (Resource::Fsize, program.file)] {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        // It may have ended by now.
        let _ = rustix::process::prlimit(Some(Pid::from_child(child)), resource, limit);
    }
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let (send, receive) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if send.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
    }
    receive
}

fn watch_over(
    child: &Child,
    temporary: &Path,
    lines: &Receiver<String>,
    first: Duration,
    watch: &mut impl FnMut(&str) -> Next,
) -> io::Result<End> {
    let mut deadline = Instant::now() + first;
    loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => match watch(&line) {
                Next::Wait(time) => deadline = Instant::now() + time,
                Next::Stop => return Ok(End::Enough),
            },
            Err(RecvTimeoutError::Disconnected) => {
                if has_ended(child)? {
                    return Ok(End::Exit(None));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(RecvTimeoutError::Timeout) => {
                // Processes that it started may keep its output open. What it wrote itself is there.
                if has_ended(child)? {
                    for line in lines.try_iter() {
                        if let Next::Stop = watch(&line) {
                            return Ok(End::Enough);
                        }
                    }
                    return Ok(End::Exit(None));
                }
                let space = rustix::fs::statvfs(temporary)?;
                if space.f_bavail * space.f_frsize < FREE_BYTES.min(space.f_blocks * space.f_frsize / 4) {
                    return Ok(End::Space);
                }
            }
        }
        if Instant::now() > deadline {
            return Ok(End::Hang);
        }
    }
}

/// Reports whether the process has ended, and leaves it to be reaped.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), options)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            executable: "/bin/sh".into(),
            directory: std::env::temp_dir(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            memory: 1 << 30,
            file: 1 << 20,
            temporary: std::env::temp_dir(),
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_and_status_arrive() {
        let mut seen = Vec::new();
        let end = run(&shell("echo one; echo two; exit 3"), LONG, |line| {
            seen.push(line.to_owned());
            Next::Wait(LONG)
        });
        assert_eq!(end.unwrap(), End::Exit(Some(3)));
        assert_eq!(seen, ["one", "two"]);
    }

    #[test]
    fn a_program_that_says_nothing_is_stopped_with_all_it_started() {
        let end = run(&shell("sleep 1000 & sleep 1000"), Duration::ZERO, |_| Next::Wait(LONG));
        assert_eq!(end.unwrap(), End::Hang);
    }

    #[test]
    fn a_program_is_stopped_when_enough_is_seen() {
        let end = run(&shell("echo FAILED; sleep 1000"), LONG, |_| Next::Stop);
        assert_eq!(end.unwrap(), End::Enough);
    }

    #[test]
    fn its_temporary_directory_is_its_own_and_removed() {
        let mut place = String::new();
        run(&shell("echo x > $TMPDIR/file; echo $TMPDIR"), LONG, |line| {
            place = line.to_owned();
            Next::Wait(LONG)
        })
        .unwrap();
        assert!(place.contains("mutant"), "{place}");
        assert!(!Path::new(&place).exists());
    }
}
