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

/// A loop device. It is detached on drop.
#[derive(Debug)]
pub(super) struct Loop {
    device: String,
}

impl Loop {
    /// Attaches a file.
    pub(super) fn attach(file: &Path) -> Result<Loop, String> {
        let device = run("losetup", &["--find", "--show", &file.to_string_lossy()])?;
        Ok(Loop { device })
    }

    pub(super) fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", &["--detach", &self.device]) {
            eprintln!("{error}");
        }
    }
}

/// A file system's image and its device.
#[derive(Debug)]
struct Backing {
    looped: Option<Loop>,
    image: PathBuf,
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.looped = None;
        let _ = std::fs::remove_file(&self.image);
    }
}

/// Checks the file system on an unmounted device; the error describes the damage.
pub(crate) fn check_file_system(kind: Kind, device: &Path) -> Result<(), String> {
    let device = device.to_string_lossy();
    match kind {
        Kind::Xfs => run("xfs_repair", &["-n", &device]),
        _ => run("e2fsck", &["-f", "-n", &device]),
    }
    .map(drop)
}

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Mounted {
    kind: Kind,
    /// What is mounted.
    source: String,
    point: PathBuf,
    mounted: bool,
    _backing: Option<Backing>,
}

/// Creates a file system in a new file of `bytes`.
pub(crate) fn make_image(kind: Kind, image: &Path, bytes: u64) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: image: {error}", kind.name());
    File::create(image).and_then(|file| file.set_len(bytes)).map_err(io)?;
    let image = image.to_string_lossy();
    match kind {
        Kind::Xfs => run("mkfs.xfs", &["-q", "-f", &image]),
        // Deferred initialisation is disabled, since a cut is to interrupt the engine's work
        // instead.
        _ => run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &image]),
    }
    .map(drop)
}

impl Mounted {
    /// Creates and mounts a file system of `bytes` with its image and mount point in `dir`.
    pub(crate) fn make(kind: Kind, dir: &Path, bytes: u64) -> Result<Mounted, String> {
        if kind == Kind::Tmpfs {
            let mut made = Mounted::on("tmpfs", kind, dir)?;
            made.mount_with(&format!("size={bytes}"))?;
            return Ok(made);
        }
        let mut backing = Backing { looped: None, image: dir.join(format!("{}.image", kind.name())) };
        make_image(kind, &backing.image, bytes)?;
        let looped = backing.looped.insert(Loop::attach(&backing.image)?);
        let mut made = Mounted::on(looped.device(), kind, dir)?;
        made._backing = Some(backing);
        made.mount()?;
        Ok(made)
    }

    /// Prepares to mount a device; the mount point is in `dir`.
    pub(crate) fn on(device: &str, kind: Kind, dir: &Path) -> Result<Mounted, String> {
        let point = dir.join(format!("mount-{}", kind.name()));
        std::fs::create_dir_all(&point).map_err(|error| format!("{}: {error}", point.display()))?;
        Ok(Mounted { kind, source: device.to_owned(), point, mounted: false, _backing: None })
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// Mounts it, which replays its journal.
    pub(crate) fn mount(&mut self) -> Result<(), String> {
        self.mount_with("")
    }

    fn mount_with(&mut self, data: &str) -> Result<(), String> {
        let data = std::ffi::CString::new(data).unwrap_or_default();
        mount(&self.source, &self.point, self.kind.name(), MountFlags::empty(), data.as_c_str())
            .map_err(|error| format!("mounting {}: {error}", self.source))?;
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
    }
}
