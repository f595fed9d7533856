//! Devices by name: emulated or measured, and whether they are available.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::io::{DirectFs, DiskFs, FileSystem};
use tamis_testkit::Device;

use tamis_bench::BenchError;
use tamis_bench::report;

/// Where tables are stored, and how they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// In files on the disk, through the page cache. Emulated devices read from a mapping of them.
    Cached,
    /// In files on the disk, bypassing the page cache.
    Direct,
    /// In a file system in memory.
    Ram,
}

/// How a device with a given name is provided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) medium: Medium,
    pub(crate) device: Device,
}

/// Devices that are measured.
const MEASURED: [(&str, Medium); 3] =
    [("page-cache", Medium::Cached), ("disk", Medium::Direct), ("ram-disk", Medium::Ram)];

/// Usual mount points of file systems in memory.
const RAM_DIRS: [&str; 3] = ["/dev/shm", "/run/shm", "/tmp"];

/// Space left free on a file system in memory.
const RAM_RESERVE: u64 = 256 << 20;

impl Way {
    /// Fails with a list of the known devices if the name is unknown.
    pub(crate) fn of(name: &str) -> Result<Way, BenchError> {
        let measured = MEASURED.into_iter().find(|(known, _)| *known == name);
        let measured = measured.map(|(_, medium)| Way { medium, device: Device::MEASURED });
        let emulated = Device::named(name).map(|device| Way { medium: Medium::Cached, device });
        measured.or(emulated).ok_or_else(|| {
            let known = Device::EMULATED.iter().map(|device| device.name);
            let known: Vec<_> = known.chain(MEASURED.iter().map(|(name, _)| *name)).collect();
            BenchError::Request(format!("no device is called `{name}`; known are {}", known.join(", ")))
        })
    }

    /// Reports whether latency is added.
    pub(crate) fn is_emulated(&self) -> bool {
        self.device.read_ns > 0
    }

    /// Returns the approximate duration of a read in nanoseconds, for planning.
    pub(crate) fn expected_ns(&self) -> f64 {
        match self.medium {
            _ if self.is_emulated() => self.device.read_ns as f64,
            Medium::Direct => 150_000.0,
            Medium::Cached | Medium::Ram => 1500.0,
        }
    }
}

impl Medium {
    /// Returns the underlying file system.
    pub(crate) fn base(self) -> Arc<dyn FileSystem> {
        match self {
            Medium::Cached => Arc::new(DiskFs::new()),
            Medium::Direct => Arc::new(DirectFs::new()),
            Medium::Ram => Arc::new(DiskFs::without_mapping()),
        }
    }

    /// Returns the directory for copies, if they do not go beside the tree, or why there is none. `dir` holds the tree
    /// of `bytes` bytes.
    pub(crate) fn place(self, dir: &Path, bytes: u64) -> Result<Option<PathBuf>, String> {
        match self {
            Medium::Cached => Ok(None),
            Medium::Direct if is_in_memory(dir) => {
                Err("the directory of the databases is in memory; pass another one with --db".to_owned())
            }
            Medium::Direct => Ok(None),
            Medium::Ram => {
                let place = RAM_DIRS.iter().map(Path::new).find(|dir| is_in_memory(dir));
                let place = place.ok_or("no file system in memory was found")?;
                let free = DiskFs::new().available_space(place).ok().flatten().unwrap_or(0);
                let needed = bytes + bytes / 8 + RAM_RESERVE;
                match free >= needed {
                    true => Ok(Some(place.to_owned())),
                    false => Err(format!(
                        "the file system in memory has {} free, but {} are needed",
                        report::bytes(free),
                        report::bytes(needed)
                    )),
                }
            }
        }
    }
}

/// Reports whether a directory is on a file system in memory, as far as the system reveals it.
fn is_in_memory(dir: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else { return false };
    std::fs::read_to_string("/proc/mounts").is_ok_and(|mounts| in_memory_by(&mounts, &dir))
}

/// Does the same with a table of mounts: lines of device, directory, kind. The longest matching directory wins; the
/// last one of equals.
fn in_memory_by(mounts: &str, dir: &Path) -> bool {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (mounted, kind) = (Path::new(words.nth(1)?), words.next()?);
        dir.starts_with(mounted).then(|| (mounted.components().count(), kind))
    });
    mounts.max_by_key(|(depth, _)| *depth).is_some_and(|(_, kind)| matches!(kind, "tmpfs" | "ramfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_devices_are_refused_with_a_list_of_known_ones() {
        for (name, medium, emulated) in [
            ("hdd", Medium::Cached, true),
            ("pcie-ssd", Medium::Cached, true),
            ("memory", Medium::Cached, true),
            ("page-cache", Medium::Cached, false),
            ("disk", Medium::Direct, false),
            ("ram-disk", Medium::Ram, false),
        ] {
            let way = Way::of(name).unwrap();
            assert_eq!((way.medium, way.is_emulated()), (medium, emulated), "{name}");
            assert!(way.expected_ns() > 0.0);
        }
        let refused = Way::of("tape").unwrap_err().to_string();
        assert!(
            refused.contains("`tape`") && refused.contains("nvm") && refused.contains("ram-disk"),
            "{refused}"
        );
    }

    #[test]
    fn the_deepest_mount_determines_the_file_system_of_a_directory() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\ntmpfs /t tmpfs rw\n/dev/b /t/disk xfs rw\nbad\n";
        for (dir, memory) in
            [("/home", false), ("/dev/shm/x", true), ("/t/a", true), ("/t/disk/a", false), ("/tea", false)]
        {
            assert_eq!(in_memory_by(mounts, Path::new(dir)), memory, "{dir}");
        }
        assert!(!in_memory_by("", Path::new("/")));
    }

    #[test]
    fn a_tree_larger_than_memory_has_no_ram_disk() {
        assert!(Medium::Ram.place(Path::new("/"), 1 << 60).is_err());
        assert_eq!(Medium::Cached.place(Path::new("/"), 1 << 60), Ok(None));
    }
}
