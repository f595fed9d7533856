//! A block device whose traffic is recorded: a loop device over the only file of a FUSE file
//! system, which this process serves from memory.
//!
//! The file is opened for direct I/O, so that no write stays in its page cache: one that the block
//! layer sends arrives here before it is answered. A flush arrives as `fsync`. The device claims a
//! cache that can be flushed, and no forced writes (FUA); the block layer sends such a write with a
//! flush after it.
//!
//! One thread serves the file, so the log is in the order of the answers. The messages of workers
//! are put into it under the same lock: what precedes a message in the log was answered before the
//! message was received.

use std::ffi::OsStr;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};

use super::loops::Loop;
use crate::disks::{Entry, Image, SECTOR};
use crate::wire::Message;

const NAME: &str = "disk";
const DISK: INodeNo = INodeNo(2);
/// What the kernel knows of the file never changes.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// The largest write that the kernel sends.
const MOST_BYTES: u32 = 1 << 20;
/// `_IO(0x12, 97)`: discards the kernel's copies of a device's contents.
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// What the device makes of flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushes {
    Obeyed,
    /// Most are answered and ignored, as by a device that lies.
    MostlyIgnored,
}

#[derive(Debug)]
struct State {
    image: Image,
    flushes: Flushes,
    /// Present while recording.
    log: Option<Vec<Entry>>,
    asked: u64,
}

/// The device's side that is used by several threads.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    state: Arc<Mutex<State>>,
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Records that a message was received.
    pub(crate) fn tell(&self, message: Message) {
        if let Some(log) = &mut self.lock().log {
            log.push(Entry::Told(message));
        }
    }

    fn write(&self, at: u64, data: &[u8]) -> usize {
        let mut state = self.lock();
        if let Some(log) = &mut state.log {
            log.push(Entry::Write { at, data: data.to_vec() });
        }
        state.image.write(at, data)
    }

    fn flush(&self) {
        let mut state = self.lock();
        state.asked += 1;
        let obeyed = state.flushes == Flushes::Obeyed || state.asked.is_multiple_of(16);
        if let Some(log) = state.log.as_mut().filter(|_| obeyed) {
            log.push(Entry::Flush);
        }
    }
}

/// A recorded device. Its file systems must be unmounted before it is dropped.
#[derive(Debug)]
pub(crate) struct Device {
    recorder: Recorder,
    /// Both are present until the drop.
    looped: Option<Loop>,
    session: Option<BackgroundSession>,
}

impl Device {
    /// Creates a device with an empty disk; the file is in `dir`.
    pub(crate) fn new(dir: &Path, bytes: u64) -> Result<Device, String> {
        let io = |what: &str, error: std::io::Error| format!("FUSE: {what}: {error}");
        let point = dir.join("device");
        std::fs::create_dir_all(&point).map_err(|error| io("mount point", error))?;
        let state = State { image: Image::new(bytes), flushes: Flushes::Obeyed, log: None, asked: 0 };
        let recorder = Recorder { state: Arc::new(Mutex::new(state)) };
        let served = Served { recorder: recorder.clone(), bytes };
        let session = fuser::spawn_mount(served, &point, &Config::default());
        let session = Some(session.map_err(|error| io("mounting", error))?);
        let mut device = Device { recorder, looped: None, session };
        device.looped = Some(Loop::attach(&point.join(NAME))?);
        Ok(device)
    }

    /// Returns why there are no such devices.
    pub(crate) fn missing() -> Option<String> {
        let there = Path::new("/dev/fuse").exists() || super::tools::run("modprobe", &["fuse"]).is_ok();
        (!there).then(|| "there is no FUSE".to_owned())
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> PathBuf {
        self.looped.as_ref().map_or_else(PathBuf::new, |looped| looped.device().into())
    }

    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Inserts another disk. Nothing of the previous one may be mounted.
    pub(crate) fn insert(&self, image: Image) -> Result<(), String> {
        {
            let mut state = self.recorder.lock();
            state.image = image;
            state.log = None;
        }
        let failed = |error: std::io::Error| format!("changing the disk: {error}");
        let device = std::fs::File::open(self.path()).map_err(failed)?;
        // SAFETY: the request takes no argument; the descriptor is open.
        match unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } {
            0 => Ok(()),
            _ => Err(failed(std::io::Error::last_os_error())),
        }
    }

    /// Begins a log.
    pub(crate) fn record(&self, flushes: Flushes) {
        let mut state = self.recorder.lock();
        state.log = Some(Vec::new());
        state.flushes = flushes;
    }

    /// Ends the log and returns it.
    pub(crate) fn stop(&self) -> Vec<Entry> {
        self.recorder.lock().log.take().unwrap_or_default()
    }

    /// Returns the disk as it is now.
    pub(crate) fn image(&self) -> Image {
        self.recorder.lock().image.clone()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The loop device holds the file open, which would keep its file system mounted.
        self.looped = None;
        let Some(session) = self.session.take() else { return };
        if let Err(error) = session.umount_and_join() {
            eprintln!("unmounting the device's file: {error}");
        }
    }
}

/// The file system: a directory with one file.
#[derive(Debug)]
struct Served {
    recorder: Recorder,
    bytes: u64,
}

impl Served {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let (kind, size) = match ino {
            DISK => (FileType::RegularFile, self.bytes),
            _ => (FileType::Directory, 0),
        };
        let time = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: size / SECTOR as u64,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: SECTOR as u32,
            flags: 0,
        }
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A smaller limit of the kernel is as good.
        let _ = config.set_max_write(MOST_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&FOREVER, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let len = self.recorder.lock().image.read(offset, &mut bytes);
        reply.data(&bytes[..len]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(self.recorder.write(offset, data) as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.recorder.flush();
        reply.ok();
    }

    /// Called when a descriptor is closed, which changes nothing.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// The block layer writes zeros instead.
    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(Errno::EOPNOTSUPP);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    /// A buffer for direct I/O must be aligned.
    #[repr(align(4096))]
    struct Aligned([u8; 4096]);

    #[test]
    #[ignore = "needs root, loop devices and FUSE"]
    fn writes_and_flushes_are_recorded_in_order_as_they_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let device = Device::new(dir.path(), 16 << 20).unwrap();
        device.record(Flushes::Obeyed);
        let mut direct = std::fs::File::options();
        let mut file = direct.write(true).custom_flags(libc::O_DIRECT).open(device.path()).unwrap();
        let mut expected = Vec::new();
        for number in 1..=3u8 {
            file.seek(SeekFrom::Start(u64::from(number) << 16)).unwrap();
            file.write_all(&Aligned([number; 4096]).0).unwrap();
            expected.push(format!("{number} at {}", u64::from(number) << 16));
            device.recorder().tell(Message::Done(number.into()));
            expected.push(format!("told {number}"));
            file.sync_data().unwrap();
            expected.push("flush".to_owned());
        }
        let words = |entry: &Entry| match entry {
            Entry::Write { at, data } => format!("{} at {at}", data[0]),
            Entry::Flush => "flush".to_owned(),
            Entry::Told(Message::Done(number)) => format!("told {number}"),
            Entry::Told(other) => other.to_string(),
        };
        assert_eq!(device.stop().iter().map(words).collect::<Vec<_>>(), expected);

        // A buffered write, which is then forced through the kernel's cache of the loop device.
        device.record(Flushes::Obeyed);
        let mut buffered = std::fs::File::options().write(true).open(device.path()).unwrap();
        buffered.write_all(&[7; 4096]).unwrap();
        assert!(device.stop().is_empty());
        device.record(Flushes::Obeyed);
        buffered.sync_all().unwrap();
        assert_eq!(device.stop().iter().map(words).collect::<Vec<_>>(), ["7 at 0", "flush"]);
        drop((file, buffered));

        // Another disk is seen at once, although the kernel has read the previous one.
        let mut cached = std::fs::File::open(device.path()).unwrap();
        let mut bytes = [0; 4096];
        cached.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [7; 4096]);
        let mut image = Image::new(16 << 20);
        image.write(0, &[8; 4096]);
        device.insert(image).unwrap();
        cached.seek(SeekFrom::Start(0)).unwrap();
        cached.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [8; 4096]);
    }
}
