//! The memory that a process may use.

/// Returns the memory of the machine in bytes, or the lowest limit of the control groups that this
/// process is in, if that is less; 0 if unknown. Reads a few small files of the system.
///
/// Seen are the groups above the process, of either version of control groups, as far as they are
/// mounted below `/sys/fs/cgroup`: of a service of systemd, of a container from inside, and those
/// that were made by hand.
pub fn memory_bytes() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use std::path::Path;
        let info = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "narrower on some machines")]
        let machine = u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit));
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        machine.min(groups::limit(Path::new("/sys/fs/cgroup"), &groups).unwrap_or(u64::MAX))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    0
}

#[cfg(any(target_os = "linux", target_os = "android", test))]
mod groups {
    use std::fs;
    use std::path::{Component, Path};

    /// Returns the lowest limit of the groups that `/proc/self/cgroup` lists, and of those above
    /// them.
    pub(super) fn limit(mount: &Path, listed: &str) -> Option<u64> {
        listed.lines().filter_map(|line| of_line(mount, line)).min()
    }

    /// A line is `NUMBER:CONTROLLERS:PATH`; version 2 is number 0, without controllers.
    fn of_line(mount: &Path, line: &str) -> Option<u64> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (mount, file) = match (number, controllers) {
            ("0", "") => (mount.to_owned(), "memory.max"),
            (_, controllers) if controllers.split(',').any(|known| known == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let path = Path::new(path.strip_prefix('/')?);
        // A path may lead out of the part of the tree that is mounted here (`/../..`): then only
        // its root is seen.
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let path = if plain { path } else { Path::new("") };
        // Of a container the path may be that of the host, and the mount its own group: directories
        // that do not exist are skipped. "max", and no number at all, is no limit.
        let limits = path.ancestors().filter_map(|group| {
            let text = fs::read_to_string(mount.join(group).join(file)).ok()?;
            text.trim().parse().ok().filter(|limit| *limit > 0)
        });
        limits.min()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
            let dir = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = dir.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            dir
        }

        /// Only a limit at the root of version 2 was seen: a service with `MemoryMax=`, and every
        /// limit of version 1, were overlooked, and mapped tables were read ahead of as if they
        /// fitted into memory.
        #[test]
        fn limits_of_all_groups_above_count() {
            let two = tree(&[
                ("memory.max", "max\n"),
                ("a.slice/memory.max", "4096\n"),
                ("a.slice/b/memory.max", "max\n"),
            ]);
            let of = |listed: &str| limit(two.path(), listed);
            assert_eq!(of("0::/a.slice/b\n"), Some(4096));
            assert_eq!(of("0::/a.slice\n"), Some(4096));
            assert_eq!(of("0::/\n"), None);
            assert_eq!(of("0::/other/c\n"), None);
            let one = tree(&[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/x/memory.limit_in_bytes", "8192\n"),
                ("memory.max", "1\n"),
            ]);
            let of = |listed: &str| limit(one.path(), listed);
            assert_eq!(of("9:name=systemd:/\n4:cpu,memory:/x/y\n3:cpuset:/x\n"), Some(8192));
            assert_eq!(of("4:memory:/\n3:cpuset:/x\n"), Some(9223372036854771712));
            assert_eq!(of("4:memory:/x\n0::/\n"), Some(1), "a system with both");
        }

        #[test]
        fn of_a_container_the_mount_is_its_group() {
            let root = tree(&[("memory.max", "1000\n")]);
            assert_eq!(limit(root.path(), "0::/\n"), Some(1000));
            assert_eq!(limit(root.path(), "0::/docker/0123\n"), Some(1000));
            assert_eq!(limit(root.path(), "0::/../other\n"), Some(1000));
        }

        #[test]
        fn anything_else_is_no_limit() {
            let root = tree(&[
                ("memory.max", "some\n"),
                ("memory/memory.limit_in_bytes", "-1\n"),
                ("zero/memory.max", "0\n"),
            ]);
            for listed in [
                "",
                "0::/zero",
                "0",
                "0::",
                "0:memory",
                "::\n",
                "4:memory:x\n",
                "0::/\n4:memory:/\n",
                "\0\u{fffd}:memory:/\n",
            ] {
                assert_eq!(limit(root.path(), listed), None, "{listed:?}");
            }
        }
    }
}
