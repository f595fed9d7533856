//! Times here are those of a clock that only waiting moves, so that they are exact.

use std::path::PathBuf;

use tamis_env::io::MemFs;
use tamis_env::io::batch::{BatchReader, Stretch};

use super::*;
use crate::{FaultPlan, FaultyFs, OpClass};

/// Time that only waits advance.
#[derive(Debug, Default)]
struct StillTime(AtomicU64);

impl Time for StillTime {
    fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn wait_until(&self, end: u64, _alone: bool) -> u64 {
        self.0.fetch_max(end, Relaxed).max(end)
    }
}

/// Time that passes by itself: each reading is this much later.
#[derive(Debug)]
struct RunningTime(AtomicU64, u64);

impl Time for RunningTime {
    fn now(&self) -> u64 {
        self.0.fetch_add(self.1, Relaxed)
    }

    fn wait_until(&self, end: u64, _alone: bool) -> u64 {
        self.0.fetch_max(end, Relaxed).max(end)
    }
}

const SLOW: Device =
    Device { name: "slow", read_ns: 1000, queue_depth: 2, bytes_per_second: 4096 * 1_000_000 };

/// A file of 64 KiB behind a device.
fn file_behind(base: Arc<dyn FileSystem>, device: Device) -> (EmulatedFs, PathBuf) {
    let fs = EmulatedFs::with_time(base, device, Box::new(StillTime::default()));
    let path = PathBuf::from("file");
    let mut file = fs.create(&path, Usage::Table).unwrap();
    file.append(&[7; 64 << 10]).unwrap();
    file.sync().unwrap();
    (fs, path)
}

#[test]
fn a_read_takes_the_devices_time_and_long_ones_their_transfer() {
    let (fs, path) = file_behind(Arc::new(MemFs::new()), SLOW);
    let file = fs.open(&path, Access::Random).unwrap();
    assert_eq!(fs.time(), DeviceTime::default(), "writing and opening cost nothing");
    for (len, ns) in [(1, 1000), (4096, 1000), (4096 + 4096, 2000), (4096 * 11, 11_000)] {
        let before = fs.time();
        let mut buf = vec![0; len];
        file.read_exact_at(&mut buf, 1).unwrap();
        assert!(buf.iter().all(|&byte| byte == 7));
        assert_eq!(fs.time() - before, DeviceTime { reads: 1, bytes: len as u64, ns, late: 0 });
    }
}

#[test]
fn operations_other_than_table_reads_cost_nothing() {
    let (fs, path) = file_behind(Arc::new(MemFs::new()), SLOW);
    let random = fs.open(&path, Access::Random).unwrap();
    let mut buf = [0; 100];
    fs.open(&path, Access::Sequential).unwrap().read_exact_at(&mut buf, 0).unwrap();
    fs.set_on(false);
    random.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!((fs.time(), buf), (DeviceTime::default(), [7; 100]));
    fs.set_on(true);
    random.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(fs.time().ns, 1000);
    assert!(random.map().unwrap().is_none(), "a mapping would be read free of cost");
    assert!(matches!(random.overlap(), Overlap::Submitted(_)), "a descriptor would be read free of cost");
}

#[test]
fn a_device_can_be_exchanged_under_open_files() {
    let (fs, path) = file_behind(Arc::new(MemFs::new()), SLOW);
    let file = fs.open(&path, Access::Random).unwrap();
    for device in Device::EMULATED {
        fs.set_device(device);
        assert_eq!((fs.device(), Device::named(device.name)), (device, Some(device)));
        let before = fs.time();
        file.read_exact_at(&mut [0; 4096], 0).unwrap();
        assert_eq!((fs.time() - before).ns, device.read_ns, "{}", device.name);
    }
    fs.set_device(Device::MEASURED);
    let before = fs.time();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    assert_eq!(fs.time() - before, DeviceTime { reads: 1, bytes: 4096, ns: 0, late: 0 });
    assert_eq!(Device::named("measured"), None, "it is no device that could be asked for");
}

/// The time of the underlying file system is part of the latency and not on top of it; reads for
/// which it is longer are counted.
#[test]
fn underlying_time_counts_towards_the_device_time() {
    for (step, ns, late) in [(400, 1000, 0), (1000, 1000, 0), (1001, 1001, 1), (5000, 5000, 1)] {
        let time = Box::new(RunningTime(AtomicU64::new(0), step));
        let fs = EmulatedFs::with_time(Arc::new(MemFs::new()), SLOW, time);
        fs.create(Path::new("f"), Usage::Table).unwrap().append(&[0; 10]).unwrap();
        let file = fs.open(Path::new("f"), Access::Random).unwrap();
        file.read_exact_at(&mut [0; 10], 0).unwrap();
        assert_eq!(fs.time(), DeviceTime { reads: 1, bytes: 10, ns, late }, "a clock of {step}");
    }
}

#[test]
fn errors_of_the_underlying_file_system_are_passed_on_and_pay() {
    let base = FaultyFs::new(1);
    let (fs, path) = file_behind(Arc::new(base.clone()), SLOW);
    let file = fs.open(&path, Access::Random).unwrap();
    let before = fs.time();
    base.plan(FaultPlan { fail_at: Some(0), sticky: true, only: Some(OpClass::Read), ..FaultPlan::none() });
    assert!(file.read_exact_at(&mut [0; 10], 0).is_err());
    base.plan(FaultPlan::none());
    file.read_exact_at(&mut [0; 10], 0).unwrap();
    assert_eq!(fs.time() - before, DeviceTime { reads: 2, bytes: 20, ns: 2000, late: 0 });
    let beyond = file.read_exact_at(&mut [0; 10], 1 << 40).unwrap_err();
    assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn as_many_reads_overlap_as_the_queue_is_deep_and_others_wait_in_order() {
    let mut queue = Queue::default();
    let wide = Device { bytes_per_second: u64::MAX, ..SLOW };
    let ends: Vec<u64> = (0..6).map(|i| queue.admit(&wide, i, 4096)).collect();
    assert_eq!(ends, [1000, 1001, 2000, 2001, 3000, 3001]);
    assert_eq!(queue.admit(&wide, 3000, 4096), 4000, "the place of one that has just ended is free");
    assert_eq!(queue.admit(&wide, 9000, 4096), 10_000, "an idle device begins at once");
    // A queue that has become shorter waits for all that are too many.
    assert_eq!(queue.admit(&wide, 9500, 4096), 10_500);
    assert_eq!(queue.admit(&Device { queue_depth: 1, ..wide }, 9600, 4096), 11_500);
    // None at all would never begin.
    assert_eq!(Queue::default().admit(&Device { queue_depth: 0, ..wide }, 5, 1), 1005);
}

/// One thread has as many reads in flight as a batch and the queue allow.
#[test]
fn a_batch_waits_for_the_device_once_per_queue() {
    let (fs, path) = file_behind(Arc::new(MemFs::new()), SLOW);
    let file = fs.open(&path, Access::Random).unwrap();
    let stretch = |i: u64| Stretch { file: file.clone(), offset: i * 64, len: 64 };
    let mut batch: Vec<Stretch> = (0..6).map(stretch).collect();
    // Two at a time on the device, whether the caller has more in flight or not.
    for depth in [2, 4, 32] {
        let (before, start) = (fs.time(), fs.state.time.now());
        let read = BatchReader::new(depth, true).read(&batch);
        assert!(read.iter().all(|bytes| **bytes.as_ref().unwrap() == [7; 64]));
        assert_eq!(((fs.time() - before).reads, fs.state.time.now() - start), (6, 3000), "{depth}");
    }
    // An error is that of its range alone.
    batch[2].offset = 1 << 20;
    let read = BatchReader::new(4, true).read(&batch);
    let failed: Vec<usize> = (0..6).filter(|&i| read[i].is_err()).collect();
    assert_eq!(failed, [2]);
}

#[test]
fn all_reads_share_the_bus() {
    let deep = Device { queue_depth: 100, ..SLOW };
    let mut queue = Queue::default();
    // 4 KiB take a microsecond of it.
    let ends: Vec<u64> = (0..4).map(|_| queue.admit(&deep, 0, 4096)).collect();
    assert_eq!(ends, [1000, 2000, 3000, 4000]);
    assert_eq!(queue.admit(&deep, 10_000, 4096), 11_000, "idle time is not saved up");
    assert_eq!(queue.admit(&deep, u64::MAX - 5, usize::MAX), u64::MAX, "no overflow");
}

/// No read is lost or counted twice with several readers; the sums are those of a device that
/// overlaps them.
#[test]
fn threads_add_up() {
    let (fs, path) = file_behind(Arc::new(MemFs::new()), SLOW);
    let file = fs.open(&path, Access::Random).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|i| file.read_exact_at(&mut [0; 64], i).unwrap()));
        }
    });
    let time = fs.time();
    assert_eq!((time.reads, time.bytes), (2000, 2000 * 64));
    // No read ends before its time, and queues make some longer.
    assert!(time.ns >= 2000 * SLOW.read_ns, "{time:?}");
}

/// The machine's own clock: a wait never ends early by more than half a reading, which is below a
/// microsecond.
#[test]
fn a_wait_does_not_end_early() {
    let time = MachineTime::new();
    for (ns, alone) in [(0, true), (160, true), (3000, true), (3000, false), (20_000, false), (600_000, true)]
    {
        let end = time.now() + ns;
        let came = time.wait_until(end, alone);
        assert!(came + 500 >= end, "{ns}: {came} for {end}");
        assert!(time.now() >= came);
    }
}
