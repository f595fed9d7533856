//! Batches against single reads, by every method.

use std::os::fd::AsFd as _;
use std::path::Path;

use super::*;
use crate::io::{Access, DirectFs, DiskFs, FileSystem, MemFs, Usage};

const BYTES: usize = 300_000;

fn content() -> Vec<u8> {
    (0..BYTES).map(|i| ((i * 31) ^ (i >> 7)) as u8).collect()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

fn stored(fs: &dyn FileSystem, dir: &Path) -> Arc<dyn ReadFile> {
    let path = dir.join("f");
    let mut file = fs.create(&path, Usage::Table).unwrap();
    file.append(&content()).unwrap();
    file.sync().unwrap();
    drop(file);
    fs.open(&path, Access::Random).unwrap()
}

fn threads(depth: usize) -> BatchReader {
    BatchReader::of(Method::Threads(threads::Pool::new(depth - 1)), depth)
}

/// Every method available here, at several depths.
fn readers() -> Vec<BatchReader> {
    let mut readers = vec![threads(2), threads(8), BatchReader::new(3, true)];
    if uring::allowed() {
        for depth in [2, 5, 32, 256] {
            readers.push(BatchReader::of(Method::Rings(uring::Rings::new(depth)), depth));
            // Transfers of a block at most: longer reads come out short and are continued.
            let short = uring::Rings::with_short_transfers(depth, 1);
            readers.push(BatchReader::of(Method::Rings(short), depth));
        }
    }
    readers
}

/// Pseudo-random byte ranges, some beyond the file's end.
fn places(seed: u64, count: usize) -> Vec<(u64, usize)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let lens = [0, 1, 100, 4096, 4105, 20_000, 120_000];
    (0..count).map(|_| (next(BYTES as u64 + 3000), lens[next(7) as usize])).collect()
}

fn check(reader: &BatchReader, file: &Arc<dyn ReadFile>, places: &[(u64, usize)]) {
    let bytes = content();
    let stretches: Vec<_> =
        places.iter().map(|&(offset, len)| Stretch { file: file.clone(), offset, len }).collect();
    let read = reader.read(&stretches);
    assert_eq!(read.len(), places.len());
    for (&(offset, len), read) in places.iter().zip(read) {
        let expected = bytes.get(offset as usize..offset as usize + len);
        match (expected, read) {
            (Some(expected), Ok(read)) => assert!(expected == &read[..], "{offset} {len} {reader:?}"),
            (None, Err(e)) => assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof, "{offset} {len}"),
            (None, Ok(read)) => assert!(read.is_empty()),
            (Some(_), Err(e)) => panic!("{offset} {len}: {e} {reader:?}"),
        }
    }
}

#[test]
fn a_batch_returns_the_same_as_single_reads() {
    let dir = directory();
    let systems: [Box<dyn FileSystem>; 4] = [
        Box::new(DiskFs::without_mapping()),
        Box::new(DirectFs::new()),
        Box::new(DiskFs::new()),
        Box::new(MemFs::new()),
    ];
    for fs in systems {
        fs.create_dir_all(dir.path()).unwrap();
        let file = stored(&*fs, dir.path());
        for reader in readers() {
            for (seed, count) in [0, 1, 2, 7, 40, 300].into_iter().enumerate() {
                check(&reader, &file, &places(seed as u64 + 1, count));
            }
            assert_eq!(reader.counts(), (4, 349));
        }
    }
}

#[test]
fn impossible_offsets_are_reported_as_end_of_file() {
    let dir = directory();
    for fs in [&DirectFs::new() as &dyn FileSystem, &DiskFs::without_mapping()] {
        let file = stored(fs, dir.path());
        for reader in readers() {
            let offsets = [5, u64::MAX, i64::MAX as u64, u64::MAX - 50, 1 << 62, 77];
            let stretches = offsets.map(|offset| Stretch { file: file.clone(), offset, len: 100 });
            let read = reader.read(&stretches);
            for (i, read) in read.into_iter().enumerate() {
                match i {
                    0 | 5 => assert_eq!(read.unwrap()[..], content()[offsets[i] as usize..][..100]),
                    _ => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
                }
            }
        }
    }
}

#[test]
fn batches_of_many_threads_do_not_mix() {
    let dir = directory();
    let file = stored(&DirectFs::new(), dir.path());
    for reader in readers() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (reader, file) = (&reader, &file);
                scope.spawn(move || {
                    for round in 0..10 {
                        check(reader, file, &places(100 * thread + round + 1, 20));
                    }
                });
            }
        });
    }
}

/// A file whose descriptor cannot be read through the ring, while plain reads work.
#[derive(Debug)]
struct Deceptive {
    plain: Arc<dyn ReadFile>,
    descriptor: std::fs::File,
}

impl ReadFile for Deceptive {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.plain.read_exact_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.plain.len()
    }

    fn overlap(&self) -> Overlap<'_> {
        Overlap::Descriptor { fd: self.descriptor.as_fd(), align: 4096 }
    }
}

/// A transfer that the kernel refuses, as on file systems that support `O_DIRECT` in name only,
/// becomes a plain read.
#[test]
fn transfers_that_the_kernel_refuses_become_plain_reads() {
    let dir = directory();
    let plain = stored(&DiskFs::without_mapping(), dir.path());
    let descriptor = std::fs::File::open(dir.path()).unwrap();
    let good = Arc::clone(&plain);
    let file: Arc<dyn ReadFile> = Arc::new(Deceptive { plain, descriptor });
    for reader in readers() {
        check(&reader, &file, &places(5, 50));
        let mixed: Vec<_> = (0..50u64)
            .map(|i| Stretch {
                file: if i % 3 == 0 { file.clone() } else { good.clone() },
                offset: i * 999,
                len: 3000,
            })
            .collect();
        for (stretch, read) in mixed.iter().zip(reader.read(&mixed)) {
            assert!(read.unwrap()[..] == content()[stretch.offset as usize..][..stretch.len]);
        }
    }
}

#[test]
fn threads_are_started_as_needed_and_not_beyond_the_depth() {
    let dir = directory();
    let file = stored(&DiskFs::without_mapping(), dir.path());
    let pool = threads::Pool::new(3);
    let read = |count: usize| {
        let stretches = vec![Stretch { file: file.clone(), offset: 17, len: 100 }; count];
        let mut outcomes: Vec<Outcome> = stretches.iter().map(|_| None).collect();
        pool.read(&stretches, &mut outcomes);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Some(Ok(_)))));
        pool.threads()
    };
    assert_eq!(read(1), 0);
    assert_eq!(read(2), 1);
    assert!((1..=3).contains(&read(3)));
    assert_eq!(read(40), 3);
    assert_eq!(read(40), 3);
}

#[test]
fn without_io_uring_threads_read() {
    assert_eq!(BatchReader::new(32, false).method(), "threads");
    let expected = if uring::allowed() { "io-uring" } else { "threads" };
    assert_eq!(BatchReader::new(32, true).method(), expected);
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
#[test]
fn one_ring_per_concurrent_reader_is_created_and_kept() {
    if !uring::allowed() {
        return;
    }
    let dir = directory();
    let file = stored(&DirectFs::new(), dir.path());
    let rings = uring::Rings::new(4);
    for _ in 0..3 {
        let stretches = vec![Stretch { file: file.clone(), offset: 0, len: 9 }; 6];
        let mut outcomes: Vec<Outcome> = stretches.iter().map(|_| None).collect();
        rings.read(&stretches, &mut outcomes);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Some(Ok(_)))));
        assert_eq!(rings.idle(), 1);
    }
}

/// A file that runs a callback on each read.
struct Watched(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

impl ReadFile for Watched {
    fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        (self.0)();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(1)
    }

    fn overlap(&self) -> Overlap<'_> {
        Overlap::Threads
    }
}

/// A caller used to continue with any job queued by the end of its own batch, so a steady stream of
/// requests kept it busy.
#[test]
fn a_batch_is_not_delayed_by_later_requests() {
    use std::sync::{Barrier, Mutex};
    use std::thread::{ThreadId, current};

    let file = |work: Box<dyn Fn() + Send + Sync>| -> Arc<dyn ReadFile> { Arc::new(Watched(work)) };
    let meet = Arc::new(Barrier::new(2));
    let at = |times: usize| {
        let meet = meet.clone();
        file(Box::new(move || {
            (0..times).for_each(|_| _ = meet.wait());
        }))
    };
    let read_by = Arc::new(Mutex::new(None::<ThreadId>));
    let (noted, idle) = (read_by.clone(), file(Box::new(|| ())));
    let later = file(Box::new(move || *noted.lock().unwrap() = Some(current().id())));
    // A pool without threads: the callers read everything.
    let pool = threads::Pool::new(0);
    let read = |files: [&Arc<dyn ReadFile>; 2]| {
        let mut outcomes = [None, None];
        pool.read(&files.map(|file| Stretch { file: file.clone(), offset: 0, len: 1 }), &mut outcomes);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Some(Ok(_)))));
    };
    let (first, second) = (at(2), at(2));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            // The first batch is queued; then this one; then the first has been read.
            meet.wait();
            read([&second, &later]);
        });
        read([&first, &idle]);
        meet.wait();
        let other_id = other.thread().id();
        other.join().unwrap();
        assert_eq!(*read_by.lock().unwrap(), Some(other_id));
    });
}
