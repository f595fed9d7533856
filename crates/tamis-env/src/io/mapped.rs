//! Logs that are appended to through a mapping: no system call for each append.
//!
//! # How
//!
//! The space reserved for a log is mapped in windows. A window is prepared piece by piece, as the
//! appends reach it: zeros are written to the piece, and then its pages are made writable, so that
//! an append takes no page fault. An append copies its bytes into the window: they are then the
//! system's, as after a `write`, and survive the process. Where there is no window, an append is a
//! `write`; both go to the same page cache, so they mix. `fdatasync` syncs both.
//!
//! The zeros are what makes this cheap. A `write` of 64 KiB lets the file system take one large
//! folio and note the change once, where a fault, or a small `write`, does so for each page. Per
//! page of 4 KiB, in microseconds, on ext4 under Linux 6.18: 0.8 for the zeros and 0.2 to make the
//! page writable, instead of 15 to 20 to make a page writable that is not in memory, and 2.8 for a
//! `write` of its size. Pieces of 32 to 128 KiB take about the same.
//!
//! A sync makes the kernel write-protect the pages that it wrote, so that the next store into one
//! takes a fault, which costs more than a `write`. The first appends after a sync are therefore
//! writes: logs that are synced at every commit use no mapping at all. An append that fills a piece
//! by itself is a `write`, too, since it needs no zeros to be cheap.
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
//! A writer has one owner, and nobody else stores into its file. So zeros never meet a record.

use std::fs::File;
use std::io;
use std::ptr;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};

use super::WriteFile;
use super::disk::{extend, is_unsupported, preallocate, write_all_at, write_both_at};

/// The most bytes prepared at a time, some hundred records: about 15 µs on an idle machine.
const PIECE: u64 = 64 << 10;

/// The size of a window. To unmap one interrupts the other processors.
const WINDOW: u64 = 16 * PIECE;

/// The first appends after a sync, or after a long one, are writes.
const PAUSE: u32 = 16;

/// The bytes from which an append is long.
const LONG: usize = PIECE as usize;

/// The magic numbers of ext2, ext3 and ext4, and of tmpfs.
const IN_PLACE: [u64; 2] = [0xef53, 0x0102_1994];

static ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];

/// A part of the file in memory.
#[derive(Debug)]
struct Window {
    map: MmapRaw,
    /// A multiple of [`PIECE`], which is a multiple of every page size, as is `to`.
    from: u64,
    to: u64,
    /// Pages up to here are in memory and writable.
    ready: u64,
}

impl Window {
    /// Maps a reserved part of the file.
    fn new(file: &File, from: u64, to: u64) -> io::Result<Window> {
        let len = usize::try_from(to - from).map_err(io::Error::other)?;
        Ok(Window { map: MmapOptions::new().offset(from).len(len).map_raw(file)?, from, to, ready: from })
    }

    /// Prepares the piece with the file's offset `at`. The file has nothing from there on.
    fn prepare(&mut self, file: &File, at: u64) -> io::Result<()> {
        let piece = at - at % PIECE;
        write_all_at(file, &ZEROS[(at - piece) as usize..], at)?;
        self.map.advise_range(Advice::PopulateWrite, (piece - self.from) as usize, PIECE as usize)?;
        self.ready = piece + PIECE;
        Ok(())
    }

    /// Copies `bytes` to the file's offset `at`. The range is ready.
    fn store(&mut self, at: u64, bytes: &[u8]) {
        assert!(self.from <= at && at + bytes.len() as u64 <= self.ready);
        let offset = (at - self.from) as usize;
        // SAFETY: the range lies within the mapping, as asserted. Nothing in this process reads or
        // writes the mapping but through this window, to which the caller has the only reference;
        // the mapping is handled by raw pointers only, so that other processes, and reads of the
        // file, may look at it as they like. Its pages have blocks, and the file is not cut short
        // while anything can be stored: `truncate_to_written` takes the window away first, and a
        // refused `preallocate` cuts the file no shorter than it was.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(offset), bytes.len()) };
    }
}

/// Appends to a log through a mapping where it can, and through `write` otherwise.
#[derive(Debug)]
pub(super) struct MappedWriter {
    file: File,
    /// The offset of the next append: the total length of the successful ones. After a failed one,
    /// nothing may be appended.
    written: u64,
    /// Blocks are reserved up to here.
    reserved: u64,
    /// Bytes that were stored in windows.
    mapped: u64,
    window: Option<Window>,
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
            file,
            written: 0,
            reserved: 0,
            mapped: 0,
            window: None,
            short: PAUSE,
            maps: in_place,
        };
        if len > 0 && in_place {
            // They have blocks, unless somebody made holes.
            match fallocate(&writer.file, FallocateFlags::empty(), 0, len) {
                Ok(()) => writer.reserved = len,
                Err(_) => writer.maps = false,
            }
        }
        writer
    }

    /// Stores the first of `bytes` in windows, all of them if there is room. Returns how many.
    #[inline]
    fn store(&mut self, bytes: &[u8]) -> usize {
        if bytes.len() >= LONG {
            self.short = 0;
            return 0;
        }
        if self.short < PAUSE {
            self.short += 1;
            return 0;
        }
        match &mut self.window {
            Some(window) if self.written + bytes.len() as u64 <= window.ready => {
                window.store(self.written, bytes);
                self.note_stored(bytes.len());
                bytes.len()
            }
            _ => self.store_in_pieces(bytes),
        }
    }

    #[cold]
    fn store_in_pieces(&mut self, bytes: &[u8]) -> usize {
        let mut stored = 0;
        while stored < bytes.len() && self.maps {
            if self.window.as_ref().is_none_or(|window| window.to <= self.written) {
                self.window = None;
                let from = self.written - self.written % PIECE;
                let to = (from + WINDOW).min(self.reserved - self.reserved % PIECE);
                if to <= self.written {
                    break;
                }
                match Window::new(&self.file, from, to) {
                    Ok(window) => self.window = Some(window),
                    Err(e) => self.stop_mapping(&e),
                }
            }
            let Some(window) = &mut self.window else { break };
            // Writes may have overtaken it.
            if window.ready <= self.written
                && let Err(e) = window.prepare(&self.file, self.written)
            {
                self.stop_mapping(&e);
                break;
            }
            let len = (bytes.len() - stored).min((window.ready - self.written) as usize);
            window.store(self.written, &bytes[stored..stored + len]);
            self.note_stored(len);
            stored += len;
        }
        stored
    }

    #[inline]
    fn note_stored(&mut self, len: usize) {
        self.written += len as u64;
        self.mapped += len as u64;
    }

    /// What is wrong with the file, if anything is, the next `write` tells.
    fn stop_mapping(&mut self, why: &io::Error) {
        log::debug!("a log is not mapped any more: {why}");
        (self.window, self.maps) = (None, false);
    }
}

impl WriteFile for MappedWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stored = self.store(bytes);
        if stored < bytes.len() {
            write_all_at(&self.file, &bytes[stored..], self.written)?;
            self.written += (bytes.len() - stored) as u64;
        }
        Ok(())
    }

    fn append_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        if second.len() < LONG && self.short == PAUSE {
            self.append(first)?;
            return self.append(second);
        }
        self.short = if second.len() < LONG { self.short + 1 } else { 0 };
        write_both_at(&self.file, first, second, self.written)?;
        self.written += (first.len() + second.len()) as u64;
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
            let from = self.reserved.max(self.written);
            match extend(&self.file, from, bytes) {
                Ok(()) => self.reserved = bytes,
                Err(e) if is_unsupported(e) => self.stop_mapping(&e.into()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.window = None;
        self.reserved = 0;
        self.file.set_len(self.written)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use super::*;

    fn create(path: &Path) -> MappedWriter {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        MappedWriter::new(file, 0)
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
    fn appends_go_through_the_mapping() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut writer = create(&path);
        writer.preallocate(4 * WINDOW).unwrap();
        if !writer.maps {
            return;
        }
        writer.append(b"first").unwrap();
        writer.append_both(b"sec", b"ond").unwrap();
        let window = writer.window.as_ref().expect("it is used");
        assert_eq!((window.from, window.ready, window.to), (0, PIECE, WINDOW));
        // Records across the ends of pieces and windows need no system call either.
        let long = vec![7; WINDOW as usize - 20];
        for part in long.chunks(1000) {
            writer.append(part).unwrap();
        }
        writer.append(b"from one window to the next").unwrap();
        let expected = [b"firstsecond", &long[..], b"from one window to the next"].concat();
        assert_eq!(writer.mapped(), expected.len() as u64);
        assert_eq!(writer.window.as_ref().map(|window| window.from), Some(WINDOW));
        // The system has it, without a sync: another handle reads it.
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

    /// Random appends, syncs, reservations and cuts: the file is always what was appended.
    #[test]
    fn the_file_is_what_was_appended() {
        let dir = tempfile::tempdir().unwrap();
        let (mut mapped, mut written) = (0, 0);
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
                    3 if random(3) == 0 => {
                        let long = vec![step as u8; random(3 * PIECE) as usize];
                        let (first, second) = long.split_at(random(long.len() as u64 + 1) as usize);
                        writer.append_both(first, second).unwrap();
                        expected.extend(long);
                    }
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
                if random(200) == 0 {
                    let mut read = vec![0; expected.len()];
                    writer.file.read_exact_at(&mut read, 0).unwrap();
                    assert!(read == expected, "seed {seed}, step {step}");
                }
            }
            let maps = writer.maps;
            mapped += writer.mapped();
            written += expected.len() as u64;
            writer.truncate_to_written().unwrap();
            drop(writer);
            assert!(fs::read(&path).unwrap() == expected, "seed {seed}");
            if !maps {
                return;
            }
        }
        assert!(mapped > written / 10 && mapped < written, "{mapped} of {written} bytes through windows");
    }

    /// Logs that are synced at each commit take no fault at each of them, and have nothing prepared
    /// that their syncs would write.
    #[test]
    fn the_first_appends_after_a_sync_are_writes() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = create(&dir.path().join("log"));
        writer.preallocate(WINDOW).unwrap();
        writer.sync().unwrap();
        for _ in 0..100 {
            writer.append(b"record").unwrap();
            writer.append_both(b"record", &[7; 5000]).unwrap();
            writer.sync().unwrap();
        }
        assert!(writer.mapped() == 0 && writer.window.is_none());
        for _ in 0..PAUSE {
            writer.append(b"record").unwrap();
        }
        writer.append(b"record").unwrap();
        assert_eq!(writer.mapped(), if writer.maps { 6 } else { 0 });
    }

    #[test]
    fn long_appends_are_writes() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = create(&dir.path().join("log"));
        writer.preallocate(8 * WINDOW).unwrap();
        if !writer.maps {
            return;
        }
        writer.append(b"record").unwrap();
        writer.append(&[7; LONG - 1]).unwrap();
        let mapped = 6 + LONG as u64 - 1;
        assert_eq!(writer.mapped(), mapped);
        for _ in 0..20 {
            writer.append(&[7; LONG]).unwrap();
            writer.append_both(b"record", &[7; LONG]).unwrap();
        }
        assert_eq!(writer.mapped(), mapped);
        // Short ones are mapped again, after a while.
        for _ in 0..PAUSE {
            writer.append(b"record").unwrap();
        }
        assert_eq!(writer.mapped(), mapped);
        writer.append(b"record").unwrap();
        assert_eq!(writer.mapped(), mapped + 6);
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
        assert!(writer.window.is_none() && writer.mapped() == 0);
        assert_eq!(fs::metadata(&path).unwrap().len(), 1_000_000);
        // What cannot be reserved is an error, and changes nothing.
        writer.preallocate(1 << 62).unwrap_err();
        writer.append(b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1_000_001);
    }
}
