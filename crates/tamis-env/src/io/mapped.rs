//! Logs that are appended to through a mapping: no system call for each append.
//!
//! # How
//!
//! The space reserved for a log is mapped in windows, a little ahead of the writer. A thread of the
//! process maps each window and has the kernel make its pages writable, so that an append takes no
//! page fault; it also unmaps those that are full. An append copies its bytes into the window: they
//! are then the system's, as after a `write`, and survive the process. Where no window is ready, an
//! append is a `write`; both go to the same page cache, so they mix. `fdatasync` syncs both.
//!
//! A sync makes the kernel write-protect the pages that it wrote, so that the next store into one
//! takes a fault, which costs more than a `write`. The first appends after a sync are therefore
//! writes: logs that are synced at every commit use no mapping at all.
//!
//! To make a page writable takes about 5 µs more than to write it, in the other thread, but on the
//! same processors. Dozens of small records share that, and save a call each; a record that fills a
//! page or more saves one call for all of it, and is a `write`, as are the appends that follow it.
//!
//! # Where
//!
//! A store for which the file system finds no block is a signal (`SIGBUS`), where a `write` is an
//! error. So only space is mapped that `fallocate` has reserved, and only on file systems that
//! overwrite blocks in place: ext4 and tmpfs. With copy on write (btrfs, ZFS, and XFS, whose files
//! may share blocks), on other systems, and on Linux before 5.14, appends are writes. What remains
//! is a file that another program truncates, and a device that fails so badly that its file system
//! goes read-only: as with mapped tables, that is a signal.
//!
//! # Threads
//!
//! A writer has one owner. It shares with the mapping thread the windows to come, each behind a
//! mutex that neither holds while it works.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ptr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};

use super::WriteFile;
use super::disk::{preallocate, write_all_at};
use crate::sync::Process;

/// The size of a window: some thousand records, and a fifth of a millisecond of populating. For
/// that long a writer waits that shares its processor with the mapping thread. (A thread that
/// populates more, and yields in between, comes late instead.)
const WINDOW: u64 = 512 << 10;

/// The number of windows ahead of the present one: on a machine without an idle processor, the
/// thread may have to wait for several milliseconds before it runs.
const AHEAD: usize = 4;

/// Windows begin at a multiple of this, which is a multiple of every page size.
const ALIGN: u64 = 64 << 10;

/// The first appends after a sync, or after a long one, are writes.
const PAUSE: u32 = 16;

/// The bytes from which an append is long. Puts of 4 KiB take about the same either way; puts of 16
/// and 256 KiB took 1.1 and 1.9 times as long through the mapping, and 1.6 and 3 times the
/// processor time.
const LONG: usize = 4 << 10;

/// The magic numbers of ext2, ext3 and ext4, and of tmpfs.
const IN_PLACE: [u64; 2] = [0xef53, 0x0102_1994];

/// A part of the file in memory.
#[derive(Debug)]
struct Window {
    map: MmapRaw,
    from: u64,
    to: u64,
}

#[derive(Debug)]
enum Slot {
    /// The thread is at work.
    Due,
    Ready(Window),
    /// There will be no window: this file is not mapped any more.
    Failed,
}

enum Job {
    Map { file: Arc<File>, from: u64, to: u64, slot: Arc<Mutex<Slot>> },
    Unmap(Window),
}

/// Gives the process's mapping thread something to do; `false` if there is no such thread, as in
/// the child of a fork whose parent had one.
fn send(job: Job) -> bool {
    static THREAD: OnceLock<(Process, Option<Sender<Job>>)> = OnceLock::new();
    let start = || {
        let (sender, jobs) = channel::<Job>();
        let work = move || jobs.into_iter().for_each(work_on);
        std::thread::Builder::new().name("tamis-log".into()).spawn(work).ok().map(|_| sender)
    };
    let (process, sender) = THREAD.get_or_init(|| (Process::current(), start()));
    process.is_current() && sender.as_ref().is_some_and(|sender| sender.send(job).is_ok())
}

fn work_on(job: Job) {
    match job {
        Job::Unmap(window) => drop(window),
        Job::Map { file, from, to, slot } => {
            let window =
                Window::new(&file, from, to).inspect_err(|e| log::debug!("a log could not be mapped: {e}"));
            *lock(&slot) = window.map_or(Slot::Failed, Slot::Ready);
        }
    }
}

/// A panic leaves nothing half done: each change is one assignment.
fn lock(slot: &Mutex<Slot>) -> std::sync::MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves a window that nobody waits for any more to the thread: unmapping takes longer than a put.
fn give_up((slot, _): &(Arc<Mutex<Slot>>, u64)) {
    if let Slot::Ready(window) = std::mem::replace(&mut *lock(slot), Slot::Due) {
        send(Job::Unmap(window));
    }
}

impl Window {
    /// Maps a reserved part of the file, with all its pages in memory and writable.
    fn new(file: &File, from: u64, to: u64) -> io::Result<Window> {
        let len = usize::try_from(to - from).map_err(io::Error::other)?;
        let map = MmapOptions::new().offset(from).len(len).map_raw(file)?;
        map.advise(Advice::PopulateWrite)?;
        Ok(Window { map, from, to })
    }

    fn has_room(&self, at: u64, len: usize) -> bool {
        self.from <= at && at + len as u64 <= self.to
    }

    /// Copies `bytes` to the file's offset `at`, for which the window has room.
    fn store(&mut self, at: u64, bytes: &[u8]) {
        debug_assert!(self.has_room(at, bytes.len()));
        let offset = (at - self.from) as usize;
        // SAFETY: the range lies within the mapping, by `has_room`, which the caller has asked.
        // Nothing in this process reads or writes the mapping but through this window, of which the
        // caller has the only reference; the mapping is handled by raw pointers only, so that other
        // processes, and reads of the file, may look at it as they like. Its pages have blocks, and
        // the file is not cut short while anything can be stored: `truncate_to_written` takes the
        // window away first.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(offset), bytes.len()) };
    }
}

/// Appends to a log through a mapping where it can, and through `write` otherwise.
#[derive(Debug)]
pub(super) struct MappedWriter {
    file: Arc<File>,
    /// The offset of the next append: the total length of the successful ones.
    written: u64,
    /// Blocks are reserved up to here.
    reserved: u64,
    /// Bytes that were stored in windows.
    mapped: u64,
    window: Option<Window>,
    /// The windows to come, each beginning where the one before ends, and where they end.
    next: VecDeque<(Arc<Mutex<Slot>>, u64)>,
    /// Short appends since the last sync or long append, up to `PAUSE`.
    short: u32,
    /// Whether windows are to be had for this file.
    maps: bool,
}

impl MappedWriter {
    /// Writes to `file` from its start. It is open for reading, too, and holds `len` bytes that may
    /// be overwritten.
    pub(super) fn new(file: File, len: u64) -> MappedWriter {
        let in_place = fstatfs(&file).is_ok_and(|stat| IN_PLACE.contains(&(stat.f_type as u64)));
        let mut writer = MappedWriter {
            file: Arc::new(file),
            written: 0,
            reserved: 0,
            mapped: 0,
            window: None,
            next: VecDeque::with_capacity(AHEAD),
            short: PAUSE,
            maps: in_place,
        };
        if len > 0 && in_place {
            // They have blocks, unless somebody made holes.
            writer.reserve(0, len);
        }
        writer
    }

    /// Notes that the file has blocks from `from` to `to`, if it has.
    fn reserve(&mut self, from: u64, to: u64) {
        match fallocate(&*self.file, FallocateFlags::empty(), from, to - from) {
            Ok(()) => self.reserved = self.reserved.max(to),
            Err(_) => self.maps = false,
        }
    }

    /// Stores `bytes` in windows; `false` if none is ready for them.
    fn store(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() >= LONG {
            self.short = 0;
            return false;
        }
        if !self.maps || self.short < PAUSE {
            self.short = (self.short + 1).min(PAUSE);
            return false;
        }
        match &mut self.window {
            Some(window) if window.has_room(self.written, bytes.len()) => {
                window.store(self.written, bytes);
                true
            }
            _ => self.store_across(bytes),
        }
    }

    /// Stores what the present window has room for there, and the rest in the next, which is then
    /// the present one.
    #[cold]
    fn store_across(&mut self, bytes: &[u8]) -> bool {
        let fits = match &self.window {
            Some(window) if window.has_room(self.written, 0) => (window.to - self.written) as usize,
            _ => 0,
        };
        let rest = self.written + fits as u64;
        self.drop_overtaken(rest);
        let Some((slot, _)) = self.next.front() else { return false };
        let mut state = lock(slot);
        let mut next = match &*state {
            Slot::Ready(next) if next.has_room(rest, bytes.len() - fits) => {
                let Slot::Ready(next) = std::mem::replace(&mut *state, Slot::Due) else { unreachable!() };
                next
            }
            _ => return false,
        };
        drop(state);
        self.next.pop_front();
        next.store(rest, &bytes[fits..]);
        if let Some(mut full) = self.window.replace(next) {
            if fits > 0 {
                full.store(self.written, &bytes[..fits]);
            }
            send(Job::Unmap(full));
        }
        true
    }

    /// Gives up windows to come that end before `at`, unless the thread is still at work for them:
    /// so it never has more to do than `AHEAD` windows for one writer.
    fn drop_overtaken(&mut self, at: u64) {
        while let Some((slot, end)) = self.next.front() {
            let failed = match &*lock(slot) {
                Slot::Failed => true,
                Slot::Ready(_) if *end <= at => false,
                _ => return,
            };
            self.maps &= !failed;
            self.next.pop_front().inspect(give_up);
        }
    }

    /// Asks for the windows to come.
    fn look_ahead(&mut self) {
        if !self.maps || self.short < PAUSE {
            return;
        }
        if self.next.front().is_some_and(|(_, end)| *end <= self.written) {
            self.drop_overtaken(self.written);
        }
        while self.maps && self.next.len() < AHEAD {
            let from = match (self.next.back(), &self.window) {
                (Some((_, end)), _) => *end,
                (None, Some(window)) => window.to,
                (None, None) => 0,
            };
            // Appends may have overtaken it.
            let from = if from < self.written { self.written - self.written % ALIGN } else { from };
            let to = (from + WINDOW).min(self.reserved);
            let to = to - to % ALIGN;
            if to <= from.max(self.written) {
                return;
            }
            let slot = Arc::new(Mutex::new(Slot::Due));
            if !send(Job::Map { file: self.file.clone(), from, to, slot: slot.clone() }) {
                self.maps = false;
                return;
            }
            self.next.push_back((slot, to));
        }
    }

    fn unmap(&mut self) {
        self.next.drain(..).for_each(|next| give_up(&next));
        if let Some(window) = self.window.take() {
            send(Job::Unmap(window));
        }
    }
}

impl WriteFile for MappedWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.store(bytes) {
            true => self.mapped += bytes.len() as u64,
            false => write_all_at(&self.file, bytes, self.written)?,
        }
        self.written += bytes.len() as u64;
        self.look_ahead();
        Ok(())
    }

    fn mapped(&self) -> u64 {
        self.mapped
    }

    fn sync(&mut self) -> io::Result<()> {
        self.short = 0;
        self.file.sync_data()
    }

    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        if !self.maps {
            return preallocate(&self.file, self.written, bytes);
        }
        if bytes > self.reserved {
            use rustix::io::Errno;
            let from = self.reserved.max(self.written);
            match fallocate(&*self.file, FallocateFlags::empty(), from, bytes - from) {
                Ok(()) => self.reserved = bytes,
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.maps = false;
                    self.unmap();
                }
                Err(e) => return Err(e.into()),
            }
        }
        // A log that is created ahead has its first window before its first append.
        self.look_ahead();
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.unmap();
        self.reserved = 0;
        self.file.set_len(self.written)
    }
}

impl Drop for MappedWriter {
    fn drop(&mut self) {
        self.unmap();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;

    fn create(path: &Path) -> MappedWriter {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        MappedWriter::new(file, 0)
    }

    /// Waits until the window that was asked for is there; `false` if this file system is not
    /// mapped.
    fn wait(writer: &MappedWriter) -> bool {
        let started = Instant::now();
        while writer.next.iter().any(|(slot, _)| matches!(*lock(slot), Slot::Due)) {
            assert!(started.elapsed() < Duration::from_secs(60), "a minute without a window");
            std::thread::sleep(Duration::from_millis(1));
        }
        writer.maps
    }

    /// A simple generator: the same numbers every time.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    #[test]
    fn appends_go_through_the_mapping_once_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut writer = create(&path);
        // Without an append: a log that is created ahead has its windows then.
        writer.preallocate(4 * WINDOW).unwrap();
        if !wait(&writer) {
            return;
        }
        writer.append(b"first").unwrap();
        writer.append(b"second").unwrap();
        let window = writer.window.as_ref().expect("it is used");
        assert!(window.from == 0 && window.to == WINDOW && window.has_room(5, 6));
        assert_eq!(writer.mapped(), 11);
        // A record across the end of a window needs no system call, if the next window is there.
        let long = vec![7; WINDOW as usize - 20];
        for part in long.chunks(1000) {
            writer.append(part).unwrap();
        }
        wait(&writer);
        writer.append(b"from one window to the next").unwrap();
        assert_eq!(writer.mapped(), 11 + long.len() as u64 + 27);
        assert_eq!(writer.window.as_ref().map(|window| window.from), Some(WINDOW));
        // The system has it, without a sync: another handle reads it.
        let expected = [b"firstsecond", &long[..], b"from one window to the next"].concat();
        assert_eq!(&fs::read(&path).unwrap()[..expected.len()], expected);
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * WINDOW);
        writer.sync().unwrap();
        writer.truncate_to_written().unwrap();
        assert!(writer.window.is_none());
        assert_eq!(fs::read(&path).unwrap(), expected);
        // And it goes on after that.
        writer.append(b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), [&expected[..], b"third"].concat());
    }

    /// Random appends, syncs, reservations and cuts, with windows that are ready, late, overtaken
    /// or too small: the file is always what was appended.
    #[test]
    fn the_file_is_what_was_appended() {
        let dir = tempfile::tempdir().unwrap();
        let mut mapped = 0;
        for seed in 1..40 {
            let mut random = numbers(seed);
            let (path, mut expected) = (dir.path().join(seed.to_string()), Vec::new());
            let mut writer = if seed % 2 == 0 {
                create(&path)
            } else {
                // A recycled file.
                fs::write(&path, vec![0xee; random(3 * WINDOW) as usize]).unwrap();
                let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let len = file.metadata().unwrap().len();
                MappedWriter::new(file, len)
            };
            for step in 0..3000 {
                match random(100) {
                    0 => writer.sync().unwrap(),
                    1 => writer.preallocate(expected.len() as u64 + random(2 * WINDOW)).unwrap(),
                    2 if random(20) == 0 => writer.truncate_to_written().unwrap(),
                    3 => drop(wait(&writer)),
                    4 if random(10) == 0 => {
                        let long = vec![step as u8; random(WINDOW) as usize];
                        writer.append(&long).unwrap();
                        expected.extend(long);
                    }
                    _ => {
                        let record: Vec<u8> = (0..random(2000)).map(|i| (i + step) as u8).collect();
                        writer.append(&record).unwrap();
                        expected.extend(record);
                    }
                }
                mapped += u64::from(writer.window.is_some());
                if random(200) == 0 {
                    let mut read = vec![0; expected.len()];
                    writer.file.read_exact_at(&mut read, 0).unwrap();
                    assert!(read == expected, "seed {seed}, step {step}");
                }
            }
            let maps = writer.maps;
            writer.truncate_to_written().unwrap();
            drop(writer);
            assert!(fs::read(&path).unwrap() == expected, "seed {seed}");
            if !maps {
                return;
            }
        }
        assert!(mapped > 20_000, "{mapped} appends with a window");
    }

    /// Logs that are synced at each commit take no fault at each of them.
    #[test]
    fn the_first_appends_after_a_sync_are_writes() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = create(&dir.path().join("log"));
        writer.preallocate(WINDOW).unwrap();
        for _ in 0..100 {
            writer.append(b"record").unwrap();
            writer.sync().unwrap();
        }
        assert!(!wait(&writer) || !writer.store(b"x"));
        for _ in 0..PAUSE {
            writer.append(b"record").unwrap();
        }
        assert!(!wait(&writer) || writer.store(b"x"));
    }

    /// A put of 16 KiB took 1.6 times the processor time: each of its pages was made writable by
    /// the other thread.
    #[test]
    fn long_appends_are_writes_and_nothing_is_mapped_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = create(&dir.path().join("log"));
        writer.preallocate(8 * WINDOW).unwrap();
        if !wait(&writer) {
            return;
        }
        writer.append(b"record").unwrap();
        assert_eq!(writer.mapped(), 6);
        for _ in 0..WINDOW as usize / LONG * 3 {
            writer.append(&[7; LONG]).unwrap();
            writer.append(b"record").unwrap();
        }
        assert_eq!(writer.mapped(), 6);
        assert!(
            writer.next.iter().all(|(_, end)| *end <= (1 + AHEAD as u64) * WINDOW),
            "a window was asked for"
        );
        // Short ones are mapped again, after a while.
        for _ in 0..2 * PAUSE {
            writer.append(b"record").unwrap();
        }
        wait(&writer);
        writer.append(b"record").unwrap();
        assert!(writer.mapped() >= 12);
    }

    /// A file system without reservation, or a full one, is written to by system calls.
    #[test]
    fn nothing_is_mapped_that_is_not_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut writer = create(&path);
        for _ in 0..1000 {
            writer.append(&[7; 1000]).unwrap();
        }
        assert!(writer.window.is_none() && writer.next.is_empty());
        assert_eq!(fs::metadata(&path).unwrap().len(), 1_000_000);
        // What cannot be reserved is an error, and changes nothing.
        writer.preallocate(1 << 62).unwrap_err();
        writer.append(b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1_000_001);
    }
}
