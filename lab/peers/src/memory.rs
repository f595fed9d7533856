//! Memory control groups (Linux): a limit for all memory of a worker, its page cache included.
//!
//! Version 2 of control groups is used if it controls memory, otherwise version 1. Groups are made at the top of the
//! hierarchy, which takes the rights of root: a group that has processes, as this program's, can have none below it in
//! version 2. Pages count for the group whose process read or wrote them first, wherever they are used: what is to
//! count must not be in the page cache before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where control groups are mounted, by convention.
const ROOT: &str = "/sys/fs/cgroup";

/// Attempts to remove a group, which is possible some time after its last process has ended.
const ATTEMPTS: u32 = 50;

/// The time between them.
const PAUSE: Duration = Duration::from_millis(20);

/// Number of groups made by this process: their names differ. Relaxed, since nothing else depends on it.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A group for one worker. Dropping it removes it; its processes must have ended.
#[derive(Debug)]
pub(crate) struct Group {
    dir: PathBuf,
    /// The file that counts processes killed because of the limit.
    kills: &'static str,
}

impl Group {
    /// Creates a group whose processes together have so many bytes of memory and no swap.
    pub(crate) fn new(bytes: u64) -> io::Result<Group> {
        Group::below(Path::new(ROOT), bytes)
            .map_err(|error| io::Error::new(error.kind(), format!("no memory control group: {error}")))
    }

    fn below(root: &Path, bytes: u64) -> io::Result<Group> {
        let name = format!("tamis-peers-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let limit = bytes.to_string();
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_whitespace().any(|controller| controller == "memory") {
            write(&root.join("cgroup.subtree_control"), "+memory")?;
            let group = Group::made(root.join(name), "memory.events")?;
            write(&group.dir.join("memory.max"), &limit)?;
            return disable_swap(&group.dir.join("memory.swap.max"), "0").map(|()| group);
        }
        let group = Group::made(root.join("memory").join(name), "memory.oom_control")?;
        write(&group.dir.join("memory.limit_in_bytes"), &limit)?;
        // Memory and swap together.
        disable_swap(&group.dir.join("memory.memsw.limit_in_bytes"), &limit).map(|()| group)
    }

    fn made(dir: PathBuf, kills: &'static str) -> io::Result<Group> {
        fs::create_dir(&dir).map_err(|error| at(&dir, error))?;
        Ok(Group { dir, kills })
    }

    /// Moves a process into the group. What it has used before does not count.
    pub(crate) fn add(&self, process: u32) -> io::Result<()> {
        write(&self.dir.join("cgroup.procs"), &process.to_string())
    }

    /// Returns how many of its processes were killed since they needed more memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join(self.kills)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            match fs::remove_dir(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
                // An empty group that stays has no effect.
                _ => return,
            }
        }
    }
}

/// Writes to a file of a control group, which exists: the kernel makes them.
fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(|error| at(path, error))
}

/// Limits swap, if the kernel counts it.
fn disable_swap(path: &Path, text: &str) -> io::Result<()> {
    if path.exists() { write(path, text) } else { Ok(()) }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The files of a hierarchy are made by the kernel, so in this one only those that are written exist.
    #[test]
    fn both_versions_get_the_limit_in_their_own_files() {
        let root = tempfile::tempdir().unwrap();
        assert!(Group::below(root.path(), 5 << 20).is_err(), "no version is mounted");
        fs::create_dir(root.path().join("memory")).unwrap();
        let read = |group: &Group, name: &str| fs::read_to_string(group.dir.join(name)).unwrap();
        let old = Group::below(root.path(), 5 << 20).unwrap();
        assert_eq!(read(&old, "memory.limit_in_bytes"), "5242880");
        fs::write(old.dir.join("memory.oom_control"), "under_oom 0\noom_kill 2\n").unwrap();
        assert_eq!(old.kills(), 2);
        fs::write(root.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        let new = Group::below(root.path(), 6 << 20).unwrap();
        new.add(77).unwrap();
        assert_eq!((read(&new, "memory.max"), read(&new, "cgroup.procs")), ("6291456".into(), "77".into()));
        assert_eq!((new.kills(), new.dir.parent()), (0, Some(root.path())));
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "says what was not tested")]
    fn a_process_is_killed_beyond_the_limit_and_the_group_is_removed() {
        let group = match Group::new(16 << 20) {
            Ok(group) => group,
            Err(error) => return println!("SKIPPED: {error}"),
        };
        let dir = group.dir.clone();
        // It waits for its group, and then keeps 64 MiB in memory.
        let script = "read line; x=$(head -c 67108864 /dev/zero | tr '\\0' x); echo ${#x}";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        group.add(child.id()).unwrap();
        drop(child.stdin.take());
        assert!(!child.wait().unwrap().success());
        assert!(group.kills() > 0);
        drop(group);
        assert!(!dir.exists());
    }
}
