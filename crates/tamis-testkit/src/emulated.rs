//! [`EmulatedFs`]: a file system that emulates the cost of table reads on a given device.
//!
//! The cost of a read determines what filters and hashing are worth ("Reducing Bloom Filter CPU
//! Overhead in LSM-Trees on Modern Storage Devices", Zhu et al., DaMoN 2021, Table 1 and Figure
//! 11). This emulates a device that the machine does not have, and measures the time spent in reads
//! without a timer in the reader.
//!
//! # What is emulated
//!
//! Reads of files opened with [`Access::Random`], which tables are, while the device is
//! [on](EmulatedFs::set_on). A read takes as long as the [`Device`] specifies: at most
//! `queue_depth` overlap, others wait in order, and long ones take transfer time. The time of the
//! underlying file system counts towards it. If that alone takes longer, so does the read, and it
//! is counted as [late](DeviceTime::late). To stay below a microsecond, bytes are copied from a
//! mapping of the underlying file if there is one. Everything else runs at full speed: logs,
//! writes, loading, and all reads while the device is off.
//!
//! With [`Device::MEASURED`] nothing is added: reads go directly to the underlying file system and
//! are timed.
//!
//! # Invariants
//!
//! * Files opened for random access are never mapped, so every block read is a read and pays.
//! * Bytes and errors are those of the underlying file system. Errors pay, too.
//! * [`DeviceTime::ns`] is the sum of the readers' waiting times, from call to return, including
//!   queueing.
//!
//! # Threads
//!
//! Any. A mutex guards the queue; it is held for a few comparisons, never while waiting. The sums
//! are relaxed atomics: each is exact and includes all reads that happened before; concurrent reads
//! may be in one sum and not yet in the next. The on/off switch is relaxed as well: the caller must
//! make sure that no read is in flight, or accept either outcome for it.
//!
//! # Accuracy
//!
//! Long waits sleep up to 0.2 ms before the end, the rest spins. A single reader's waits end within
//! about half a reading of the clock (10–30 ns) of where they should, if it is not scheduled out.
//! The clock and a lock take 60–120 ns of a read, and copying 4 KiB that no cache of the processor
//! holds 200 ns or more: a read that should take less is late, as most of [`Device::MEMORY`] are
//! then. When several wait at once, they yield to each other down to 5 µs, and ends do not move
//! when a thread comes late: on few cores reads still overlap.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tamis_env::io::{
    Access, DirLock, FileSystem, Mapping, Overlap, ReadFile, Submit, Ticket, Usage, WriteFile, slice_at,
};

mod clock;
mod queue;
#[cfg(test)]
mod tests;

use clock::{MachineTime, Time};
use queue::Queue;

/// The read cost of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// A short name: `pcie-ssd`.
    pub name: &'static str,
    /// The latency of a read of up to 4 KiB, in nanoseconds; 0: nothing is emulated, reads are only
    /// timed.
    pub read_ns: u64,
    /// The maximum number of overlapping reads, at least 1.
    pub queue_depth: usize,
    /// The bandwidth of all reads together, in bytes per second.
    pub bytes_per_second: u64,
}

impl Device {
    /// A spinning disk: 4.6 ms, one at a time.
    pub const HDD: Device =
        Device { name: "hdd", read_ns: 4_600_000, queue_depth: 1, bytes_per_second: 200_000_000 };
    /// A SATA SSD: 113 µs.
    pub const SSD: Device =
        Device { name: "ssd", read_ns: 113_000, queue_depth: 32, bytes_per_second: 560_000_000 };
    /// A fast PCIe SSD: 10 µs.
    pub const PCIE_SSD: Device =
        Device { name: "pcie-ssd", read_ns: 10_000, queue_depth: 128, bytes_per_second: 3_200_000_000 };
    /// The same with kernel bypass: 7 µs.
    pub const SPDK: Device =
        Device { name: "spdk", read_ns: 7_000, queue_depth: 128, bytes_per_second: 3_200_000_000 };
    /// Persistent memory: 250 ns.
    pub const NVM: Device =
        Device { name: "nvm", read_ns: 250, queue_depth: 64, bytes_per_second: 20_000_000_000 };
    /// Main memory: 160 ns.
    pub const MEMORY: Device =
        Device { name: "memory", read_ns: 160, queue_depth: 64, bytes_per_second: 40_000_000_000 };
    /// The underlying file system as it is; reads are timed.
    pub const MEASURED: Device =
        Device { name: "measured", read_ns: 0, queue_depth: usize::MAX, bytes_per_second: u64::MAX };

    /// All emulated devices, the slowest first. Latencies are those of the paper's Table 1; depths
    /// and rates are typical ones.
    pub const EMULATED: [Device; 6] =
        [Device::HDD, Device::SSD, Device::PCIE_SSD, Device::SPDK, Device::NVM, Device::MEMORY];

    /// Returns the emulated device of this name.
    pub fn named(name: &str) -> Option<Device> {
        Device::EMULATED.into_iter().find(|device| device.name == name)
    }

    /// Returns the time that this many bytes take on the bus, in nanoseconds.
    fn transfer_ns(&self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// The cumulative cost of table reads; subtract two readings to get the cost in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    /// Reads, failed ones included.
    pub reads: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Nanoseconds from call to return, summed over reads.
    pub ns: u64,
    /// Reads for which the underlying file system alone took longer than the device would have: the
    /// emulation is too slow for them.
    pub late: u64,
}

impl std::ops::Sub for DeviceTime {
    type Output = DeviceTime;

    /// Returns the difference of two readings, the later one first.
    fn sub(self, earlier: DeviceTime) -> DeviceTime {
        DeviceTime {
            reads: self.reads - earlier.reads,
            bytes: self.bytes - earlier.bytes,
            ns: self.ns - earlier.ns,
            late: self.late - earlier.late,
        }
    }
}

/// A file system that emulates a device's cost of table reads; see the module documentation. Clones
/// share device and sums.
#[derive(Clone, Debug)]
pub struct EmulatedFs {
    base: Arc<dyn FileSystem>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    time: Box<dyn Time>,
    on: AtomicBool,
    work: Mutex<Work>,
    /// Readers between admission and end.
    waiting: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
    late: AtomicU64,
}

#[derive(Debug)]
struct Work {
    device: Device,
    queue: Queue,
}

impl EmulatedFs {
    /// Emulates `device` for the table reads of `base`, switched on.
    pub fn new(base: Arc<dyn FileSystem>, device: Device) -> EmulatedFs {
        EmulatedFs::with_time(base, device, Box::new(MachineTime::new()))
    }

    /// Times the table reads of `base` without emulation. Costs two clock readings per read.
    pub fn measured(base: Arc<dyn FileSystem>) -> EmulatedFs {
        EmulatedFs::new(base, Device::MEASURED)
    }

    fn with_time(base: Arc<dyn FileSystem>, device: Device, time: Box<dyn Time>) -> EmulatedFs {
        let work = Mutex::new(Work { device, queue: Queue::default() });
        let zero = || AtomicU64::new(0);
        let state = State {
            time,
            on: AtomicBool::new(true),
            work,
            waiting: zero(),
            reads: zero(),
            bytes: zero(),
            ns: zero(),
            late: zero(),
        };
        EmulatedFs { base, state: Arc::new(state) }
    }

    /// Switches emulation and counting on or off. Off, a database is opened at full speed.
    pub fn set_on(&self, on: bool) {
        self.state.on.store(on, Relaxed);
    }

    /// Sets the device from the next read on. Reads in flight end when they would have.
    pub fn set_device(&self, device: Device) {
        self.state.work().device = device;
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.state.work().device
    }

    /// Returns the cost of all table reads so far, over all files.
    pub fn time(&self) -> DeviceTime {
        let State { reads, bytes, ns, late, .. } = &*self.state;
        DeviceTime {
            reads: reads.load(Relaxed),
            bytes: bytes.load(Relaxed),
            ns: ns.load(Relaxed),
            late: late.load(Relaxed),
        }
    }
}

impl State {
    fn work(&self) -> MutexGuard<'_, Work> {
        // Nothing under the lock can panic half-way.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a read in.
    fn admit(&self, len: usize) -> Ticket {
        let begin = self.time.now();
        let mut work = self.work();
        let device = work.device;
        let end = (device.read_ns > 0).then(|| work.queue.admit(&device, begin, len));
        Ticket { begin, end }
    }

    /// Does a read that was taken in, told whether the device is emulated, and returns when the
    /// device would have.
    fn timed<T>(
        &self,
        Ticket { begin, end }: Ticket,
        len: usize,
        read: impl FnOnce(bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let (result, done) = match end {
            None => (read(false), self.time.now()),
            Some(end) => {
                let alone = self.waiting.fetch_add(1, Relaxed) == 0;
                let result = read(true);
                let came = self.time.now();
                let done = match came < end {
                    true => self.time.wait_until(end, alone),
                    false => came,
                };
                self.waiting.fetch_sub(1, Relaxed);
                self.late.fetch_add(u64::from(came > end), Relaxed);
                (result, done)
            }
        };
        self.reads.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len as u64, Relaxed);
        self.ns.fetch_add(done.saturating_sub(begin), Relaxed);
        result
    }
}

/// A file with emulated read costs.
#[derive(Debug)]
struct Reader {
    base: Arc<dyn ReadFile>,
    /// The file below as memory, asked for at the first read that is emulated.
    mapping: OnceLock<Option<Mapping>>,
    state: Arc<State>,
}

impl Reader {
    /// The file below as memory, if it can be that. Only a hint, so an error is none.
    fn mapping(&self) -> Option<&Mapping> {
        self.mapping.get_or_init(|| self.base.map().ok().flatten()).as_ref()
    }
}

impl ReadFile for Reader {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if !self.state.on.load(Relaxed) {
            return self.base.read_exact_at(buf, offset);
        }
        self.complete(self.state.admit(buf.len()), buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.base.len()
    }

    /// Reads through a descriptor would bypass the device.
    fn overlap(&self) -> Overlap<'_> {
        match self.state.on.load(Relaxed) {
            true => Overlap::Submitted(self),
            false => Overlap::Threads,
        }
    }
}

impl Submit for Reader {
    fn submit(&self, len: usize) -> Ticket {
        self.state.admit(len)
    }

    fn complete(&self, ticket: Ticket, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let len = buf.len();
        self.state.timed(ticket, len, |emulated| match emulated.then(|| self.mapping()).flatten() {
            Some(bytes) => slice_at(bytes, offset, len).map(|bytes| buf.copy_from_slice(bytes)),
            None => self.base.read_exact_at(buf, offset),
        })
    }
}

impl FileSystem for EmulatedFs {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        self.base.create(path, usage)
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.base.reuse(old, new)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let base = self.base.open(path, access)?;
        let (mapping, state) = (OnceLock::new(), self.state.clone());
        Ok(match access {
            Access::Random => Arc::new(Reader { base, mapping, state }),
            _ => base,
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.base.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.base.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.base.remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.base.link_or_copy(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.base.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.base.list(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.base.sync_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.base.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.base.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.base.file_len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.base.lock(path)
    }

    fn is_locked_here(&self, path: &Path) -> io::Result<bool> {
        self.base.is_locked_here(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.base.available_space(path)
    }
}
