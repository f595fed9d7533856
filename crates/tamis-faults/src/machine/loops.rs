//! Dedicated file systems: images behind loop devices, and memory. They are unmounted and detached
//! on drop, whatever happened.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::tools::{is_root, missing_tool, run};

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    /// XFS in an image.
    Xfs,
    /// ext4 in an image.
    Ext4,
    /// Memory, of a fixed size.
    Tmpfs,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Xfs => "xfs",
            Kind::Ext4 => "ext4",
            Kind::Tmpfs => "tmpfs",
        }
    }

    /// Returns why this kind is not available.
    pub(crate) fn missing(self) -> Option<String> {
        if !is_root() {
            return Some(format!("{}: mounting needs root", self.name()));
        }
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let (program, package) = match self {
            Kind::Xfs => ("mkfs.xfs", "xfsprogs"),
            Kind::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Kind::Tmpfs => return None,
        };
        if !known.split_whitespace().any(|name| name == self.name())
            && run("modprobe", &[self.name()]).is_err()
        {
            return Some(format!("{}: the kernel does not know it", self.name()));
        }
        if !Path::new("/dev/loop-control").exists() && run("modprobe", &["loop"]).is_err() {
            return Some(format!("{}: there are no loop devices", self.name()));
        }
        missing_tool(program, package)
            .or_else(|| missing_tool("losetup", "mount"))
            .map(|why| format!("{}: {why}", self.name()))
    }
}

/// What the kernel still writes when a file system is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shutdown {
    /// Everything: nothing may be lost.
    Whole = 0,
    /// The journal, but no data.
    Journal = 1,
    /// Nothing, as in a power cut.
    Nothing = 2,
}

/// `_IOR('X', 125, __u32)`: `XFS_IOC_GOINGDOWN`, and `EXT4_IOC_SHUTDOWN`.
const GOING_DOWN: libc::c_ulong = 0x8004_587d;

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Mounted {
    kind: Kind,
    device: Option<String>,
    image: Option<PathBuf>,
    point: PathBuf,
    mounted: bool,
}

impl Mounted {
    /// Creates and mounts a file system of `bytes` with its image and mount point in `dir`.
    pub(crate) fn make(kind: Kind, dir: &Path, bytes: u64) -> Result<Mounted, String> {
        let io = |what: &str, error: std::io::Error| format!("{}: {what}: {error}", kind.name());
        let point = dir.join(format!("mount-{}", kind.name()));
        std::fs::create_dir_all(&point).map_err(|e| io("mount point", e))?;
        let mut made = Mounted { kind, device: None, image: None, point, mounted: false };
        if kind != Kind::Tmpfs {
            let image = dir.join(format!("{}.image", kind.name()));
            let file = File::create(&image).map_err(|e| io("image", e))?;
            made.image = Some(image.clone());
            file.set_len(bytes).map_err(|e| io("image", e))?;
            let image = image.to_string_lossy().into_owned();
            match kind {
                Kind::Xfs => run("mkfs.xfs", &["-q", "-f", &image])?,
                // Deferred initialisation is disabled, since a cut is to interrupt the engine's
                // work instead.
                _ => run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &image])?,
            };
            made.device = Some(run("losetup", &["--find", "--show", &image])?);
        }
        let size = format!("size={bytes}");
        made.mount_with(if kind == Kind::Tmpfs { &size } else { "" })?;
        Ok(made)
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// Mounts it, which replays its journal.
    pub(crate) fn mount(&mut self) -> Result<(), String> {
        self.mount_with("")
    }

    fn mount_with(&mut self, data: &str) -> Result<(), String> {
        let source = self.device.as_deref().unwrap_or("tmpfs");
        let data = std::ffi::CString::new(data).unwrap_or_default();
        mount(source, &self.point, self.kind.name(), MountFlags::empty(), data.as_c_str())
            .map_err(|error| format!("mounting {source}: {error}"))?;
        self.mounted = true;
        Ok(())
    }

    /// Unmounts it. Processes that used it must have exited; the kernel may need a moment to
    /// notice.
    pub(crate) fn unmount(&mut self) -> Result<(), String> {
        for _ in 0..500 {
            match unmount(&self.point, UnmountFlags::empty()) {
                Ok(()) => {
                    self.mounted = false;
                    return Ok(());
                }
                Err(rustix::io::Errno::BUSY) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(format!("unmounting {}: {error}", self.point.display())),
            }
        }
        Err(format!("unmounting {}: it stays busy", self.point.display()))
    }

    /// Remounts it read-only or writable.
    pub(crate) fn set_read_only(&self, read_only: bool) -> Result<(), String> {
        let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        mount_remount(&self.point, flags, c"").map_err(|error| format!("remounting: {error}"))
    }

    /// Shuts it down while in use: from now on every call fails.
    pub(crate) fn shut_down(&self, how: Shutdown) -> Result<(), String> {
        let root = File::open(&self.point).map_err(|e| format!("opening {}: {e}", self.point.display()))?;
        let flags = how as u32;
        // SAFETY: the request reads one `u32` from the address, which is that of `flags`.
        let done = unsafe { libc::ioctl(root.as_raw_fd(), GOING_DOWN, &flags) };
        match done {
            0 => Ok(()),
            _ => Err(format!("shutting {} down: {}", self.kind.name(), std::io::Error::last_os_error())),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            let _ = unmount(&self.point, UnmountFlags::DETACH);
        }
        if let Some(device) = &self.device
            && let Err(error) = run("losetup", &["--detach", device])
        {
            eprintln!("{error}");
        }
        if let Some(image) = &self.image {
            let _ = std::fs::remove_file(image);
        }
    }
}
