//! Logs that are appended to through a mapping: no system call for each append.
//!
//! # How
//!
//! The space reserved for a log is mapped in windows, a little ahead of the writer. A thread of the process maps each window and
//! has the kernel make its pages writable, so that an append takes no page fault; it also unmaps those that are full. An append
//! copies its bytes into the window: they are then the system's, as after a `write`, and survive the process. Where no window
//! is ready, an append is a `write`; both go to the same page cache, so they mix. `fdatasync` syncs both.
//!
//! A sync makes the kernel write-protect the pages that it wrote, so that the next store into one takes a fault, which costs more
//! than a `write`. The first appends after a sync are therefore writes: logs that are synced at every commit use no
//! mapping at all.
//!
//! # Where
//!
//! A store for which the file system finds no block is a signal (`SIGBUS`), where a `write` is an error. So only space is mapped that
//! `fallocate` has reserved, and only on file systems that overwrite blocks in place: ext4 and tmpfs. With copy on write (btrfs,
//! ZFS, and XFS, whose files may share blocks), on other systems, and on Linux before 5.14, appends are writes. What remains is a
//! file that another program truncates, and a device that fails so badly that its file system goes read-only: as with mapped tables,
//! that is a signal.
//!
//! # Threads
//!
//! A writer has one owner. It shares with the mapping thread the window that it waits for, behind a mutex that neither holds while it
//! works.

use std::fs::File;
use std::io;
use std::ptr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};

use super::WriteFile;
use super::disk::{preallocate, write_all_at};

/// The size of a window: some thousand records, and a millisecond of populating.
const WINDOW: u64 = 2 << 20;

/// Windows begin at a multiple of this, which is a multiple of every page size.
const ALIGN: u64 = 64 << 10;

/// The first appends after a sync are writes.
const AFTER_SYNC: u32 = 16;

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

/// Gives the process's mapping thread something to do; `false` if there is no such thread.
fn send(job: Job) -> bool {
    static THREAD: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let start = || {
        let (sender, jobs) = channel::<Job>();
        let work = move || jobs.into_iter().for_each(work_on);
        std::thread::Builder::new().name("tamis-log".into()).spawn(work).ok().map(|_| sender)
    };
    THREAD.get_or_init(start).as_ref().is_some_and(|sender| sender.send(job).is_ok())
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
        // SAFETY: the range lies within the mapping, by `has_room`, which the caller has asked. Nothing in this process reads or
        // writes the mapping but through this window, of which the caller has the only reference; the mapping is handled by raw
        // pointers only, so that other processes, and reads of the file, may look at it as they like. Its pages have blocks, and
        // the file is not cut short while anything can be stored: `truncate_to_written` takes the window away first.
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
    /// The window to come, and where it ends.
    next: Option<(Arc<Mutex<Slot>>, u64)>,
    /// Appends since the last sync, up to `AFTER_SYNC`.
    unsynced: u32,
    /// Whether windows are to be had for this file.
    maps: bool,
}

impl MappedWriter {
    /// Writes to `file` from its start. It is open for reading, too, and holds `len` bytes that may be overwritten.
    pub(super) fn new(file: File, len: u64) -> MappedWriter {
        let in_place = fstatfs(&file).is_ok_and(|stat| IN_PLACE.contains(&(stat.f_type as u64)));
        let mut writer = MappedWriter {
            file: Arc::new(file),
            written: 0,
            reserved: 0,
            mapped: 0,
            window: None,
            next: None,
            unsynced: AFTER_SYNC,
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

    /// Stores `bytes` in a window; `false` if none is ready for them.
    fn store(&mut self, bytes: &[u8]) -> bool {
        if !self.maps || self.unsynced < AFTER_SYNC {
            return false;
        }
        if !self.window.as_ref().is_some_and(|window| window.has_room(self.written, bytes.len())) {
            self.advance();
        }
        match &mut self.window {
            Some(window) if window.has_room(self.written, bytes.len()) => window.store(self.written, bytes),
            _ => return false,
        }
        true
    }

    /// Changes to the next window if it is ready.
    fn advance(&mut self) {
        let Some((slot, _)) = &self.next else { return };
        let mut state = lock(slot);
        match std::mem::replace(&mut *state, Slot::Due) {
            Slot::Due => {}
            Slot::Ready(window) => {
                drop(state);
                self.next = None;
                if let Some(full) = self.window.replace(window) {
                    send(Job::Unmap(full));
                }
            }
            Slot::Failed => {
                drop(state);
                (self.next, self.maps) = (None, false);
            }
        }
    }

    /// Asks for the next window as soon as the present one is in use: on a machine without an idle processor, the thread may wait for
    /// several milliseconds before it runs, and until then appends would be writes.
    fn look_ahead(&mut self) {
        if !self.maps || self.unsynced < AFTER_SYNC {
            return;
        }
        if let Some((slot, end)) = &self.next {
            // Appends overtook it: it is of no use.
            if *end <= self.written && !matches!(*lock(slot), Slot::Due) {
                self.advance();
            }
            return;
        }
        let from = match &self.window {
            Some(window) if self.written < window.to => window.to,
            _ => self.written - self.written % ALIGN,
        };
        let to = (from + WINDOW).min(self.reserved);
        // The next begins where this one ends.
        let to = to - to % ALIGN;
        if to <= from.max(self.written) {
            return;
        }
        let slot = Arc::new(Mutex::new(Slot::Due));
        if send(Job::Map { file: self.file.clone(), from, to, slot: slot.clone() }) {
            self.next = Some((slot, to));
        } else {
            self.maps = false;
        }
    }

    fn unmap(&mut self) {
        self.next = None;
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
        self.unsynced = (self.unsynced + 1).min(AFTER_SYNC);
        self.look_ahead();
        Ok(())
    }

    fn mapped(&self) -> u64 {
        self.mapped
    }

    fn sync(&mut self) -> io::Result<()> {
        self.unsynced = 0;
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

    /// Waits until the window that was asked for is there; `false` if this file system is not mapped.
    fn wait(writer: &MappedWriter) -> bool {
        let started = Instant::now();
        while writer.next.as_ref().is_some_and(|(slot, _)| matches!(*lock(slot), Slot::Due)) {
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
        writer.preallocate(4 * WINDOW).unwrap();
        writer.append(b"first").unwrap();
        if !wait(&writer) {
            return;
        }
        writer.append(b"second").unwrap();
        let window = writer.window.as_ref().expect("it is used");
        assert!(window.from == 0 && window.to == WINDOW && window.has_room(5, 6));
        assert_eq!(writer.mapped(), 6);
        // The system has it, without a sync: another handle reads it.
        assert_eq!(&fs::read(&path).unwrap()[..11], b"firstsecond");
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * WINDOW);
        writer.sync().unwrap();
        writer.truncate_to_written().unwrap();
        assert!(writer.window.is_none());
        assert_eq!(fs::read(&path).unwrap(), b"firstsecond");
        // And it goes on after that.
        writer.append(b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"firstsecondthird");
    }

    /// Random appends, syncs, reservations and cuts, with windows that are ready, late, overtaken or too small: the file is always
    /// what was appended.
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
        for _ in 0..AFTER_SYNC {
            writer.append(b"record").unwrap();
        }
        assert!(!wait(&writer) || writer.store(b"x"));
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
        assert!(writer.window.is_none() && writer.next.is_none());
        assert_eq!(fs::metadata(&path).unwrap().len(), 1_000_000);
        // What cannot be reserved is an error, and changes nothing.
        writer.preallocate(1 << 62).unwrap_err();
        writer.append(b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1_000_001);
    }
}
