//! `O_DIRECT` readers and writers.
//!
//! # Invariants
//!
//! * Memory address, file offset and length of every direct transfer are multiples of [`ALIGN`].
//! * A writer's buffer starts at the aligned offset `start` of the file and holds `fill` bytes of
//!   it; all appended bytes before `start` are in the file.
//! * The file is `physical` bytes long as far as the writer is concerned: the padding after the
//!   last appended byte is cut off again before `sync` returns.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;

use rustix::fs::OFlags;

use super::super::disk;
use super::super::place::{Mode, Places};
use super::super::{Overlap, ReadFile, WriteFile};

/// The alignment of every direct transfer: a multiple of the sector size of any common device.
pub(in crate::io) const ALIGN: usize = 4096;

/// The most a writer buffers before it writes, and the most one read transfers.
pub(in crate::io) const BUFFER_BYTES: usize = 1 << 20;

fn warn_once(what: &str) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        log::warn!("the file system refuses to {what} with O_DIRECT; its tables go through the page cache");
    });
}

fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error())
}

/// Opens with `O_DIRECT`, or without it where the file system does not support it.
fn open_direct(what: &str, open: impl Fn(bool) -> io::Result<File>) -> io::Result<File> {
    match open(true) {
        Err(e) if is_refusal(&e) => {
            warn_once(what);
            open(false)
        }
        opened => opened,
    }
}

/// Makes an open file buffered after a direct transfer was refused. Returns false if it already
/// was, so the refusal has another reason.
fn make_buffered(file: &File, what: &str) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    if !flags.contains(OFlags::DIRECT) {
        return Ok(false);
    }
    warn_once(what);
    rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)?;
    Ok(true)
}

/// Bytes whose address is a multiple of [`ALIGN`].
pub(in crate::io) struct AlignedBuf {
    /// Longer than requested by the most that aligning its start can take.
    bytes: Vec<u8>,
    len: usize,
}

impl AlignedBuf {
    pub(in crate::io) const EMPTY: AlignedBuf = AlignedBuf { bytes: Vec::new(), len: 0 };

    /// Makes room for at least `len` bytes; their content is arbitrary.
    pub(in crate::io) fn grow(&mut self, len: usize) {
        if self.len < len {
            self.bytes = vec![0; len + ALIGN - 1];
            self.len = len;
        }
    }

    #[cfg_attr(not(target_endian = "little"), allow(dead_code, reason = "io_uring is not used there"))]
    pub(in crate::io) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::io) fn get(&self) -> &[u8] {
        let skip = self.bytes.as_ptr().align_offset(ALIGN);
        &self.bytes[skip..skip + self.len]
    }

    pub(in crate::io) fn get_mut(&mut self) -> &mut [u8] {
        let skip = self.bytes.as_ptr().align_offset(ALIGN);
        &mut self.bytes[skip..skip + self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

thread_local! {
    /// Grows to the thread's largest read, at most [`BUFFER_BYTES`].
    static SCRATCH: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::EMPTY) };
}

/// Reads by widening to whole aligned blocks: one transfer per read of up to [`BUFFER_BYTES`], and
/// one copy.
#[derive(Debug)]
pub(super) struct DirectReader {
    file: File,
}

impl DirectReader {
    pub(super) fn open(places: &Places, path: &Path) -> io::Result<Self> {
        let file = open_direct("read", |direct| places.open(path, Mode { direct, ..Mode::READ }))?;
        Ok(DirectReader { file })
    }

    /// Makes one transfer into `into`, which is aligned like `offset`; returns the bytes read,
    /// fewer at the file's end.
    fn read_blocks(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(into, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_refusal(&e) && make_buffered(&self.file, "read")? => {}
                read => return read,
            }
        }
    }
}

impl ReadFile for DirectReader {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        // Widening to a whole block must also stay within the range of offsets.
        disk::check_range(offset, buf.len().saturating_add(ALIGN))?;
        SCRATCH.with_borrow_mut(|scratch| {
            let mut done = 0;
            while done < buf.len() {
                let at = offset + done as u64;
                let skip = (at % ALIGN as u64) as usize;
                let span = (skip + buf.len() - done).min(BUFFER_BYTES).next_multiple_of(ALIGN);
                scratch.grow(span);
                let blocks = &mut scratch.get_mut()[..span];
                let read = self.read_blocks(blocks, at - skip as u64)?;
                // A short transfer in mid-file makes progress; one that ends at the same place
                // again is the end of the file.
                let Some(fresh) = blocks[..read].get(skip..).filter(|fresh| !fresh.is_empty()) else {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                };
                let take = fresh.len().min(buf.len() - done);
                buf[done..done + take].copy_from_slice(&fresh[..take]);
                done += take;
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Stays so after the file was made buffered: aligned transfers work for it, too.
    fn overlap(&self) -> Overlap<'_> {
        Overlap::Descriptor { fd: self.file.as_fd(), align: ALIGN }
    }
}

/// Writes in whole aligned blocks.
#[derive(Debug)]
pub(super) struct DirectWriter {
    file: File,
    buf: AlignedBuf,
    /// The buffer's offset in the file; aligned.
    start: u64,
    /// Appended bytes in the buffer; below [`BUFFER_BYTES`] between calls.
    fill: usize,
    /// The number of bytes at the start of the buffer that are already in the file.
    stored: usize,
    /// The file's length, apart from the padding of a write in progress: what was preallocated or
    /// written.
    physical: u64,
}

impl DirectWriter {
    pub(super) fn create(places: &Places, path: &Path) -> io::Result<Self> {
        let file = open_direct("write", |direct| places.create_fresh(path, Mode { direct, ..Mode::WRITE }))?;
        let mut buf = AlignedBuf::EMPTY;
        buf.grow(BUFFER_BYTES);
        Ok(DirectWriter { file, buf, start: 0, fill: 0, stored: 0, physical: 0 })
    }

    fn written(&self) -> u64 {
        self.start + self.fill as u64
    }

    /// Writes the first `len` bytes of the buffer, a multiple of [`ALIGN`], to the file.
    fn write_blocks(&mut self, len: usize) -> io::Result<()> {
        loop {
            match disk::write_all_at(&self.file, &self.buf.get()[..len], self.start) {
                Err(e) if is_refusal(&e) && make_buffered(&self.file, "write")? => {}
                written => return written,
            }
        }
    }

    /// Writes a full buffer and starts the next one.
    fn write_full(&mut self) -> io::Result<()> {
        self.write_blocks(BUFFER_BYTES)?;
        self.start += BUFFER_BYTES as u64;
        self.fill = 0;
        self.stored = 0;
        self.physical = self.physical.max(self.start);
        Ok(())
    }

    /// Writes everything appended to the file. The last block is padded, and the padding cut off
    /// unless it lies within the preallocated part, which must read as zeros. The block stays in
    /// the buffer, because the next append continues in it.
    fn write_tail(&mut self) -> io::Result<()> {
        if self.stored == self.fill {
            return Ok(());
        }
        let padded = self.fill.next_multiple_of(ALIGN);
        let fill = self.fill;
        self.buf.get_mut()[fill..padded].fill(0);
        self.write_blocks(padded)?;
        let physical = self.physical.max(self.written());
        if self.start + padded as u64 > physical {
            self.file.set_len(physical)?;
        }
        self.physical = physical;
        let whole = self.fill - self.fill % ALIGN;
        self.buf.get_mut().copy_within(whole..fill, 0);
        self.start += whole as u64;
        self.fill -= whole;
        self.stored = self.fill;
        Ok(())
    }
}

impl WriteFile for DirectWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = BUFFER_BYTES - self.fill;
        if bytes.len() < room {
            let fill = self.fill;
            self.buf.get_mut()[fill..fill + bytes.len()].copy_from_slice(bytes);
            self.fill += bytes.len();
            return Ok(());
        }
        // Buffers will be written and one of the writes may fail. To return to the present position
        // then, keep its unfinished block: once a buffer is written, that is all the state a writer
        // at this position needs.
        let start = self.start;
        let before = (self.fill, self.stored);
        let physical = self.physical;
        let whole = self.fill - self.fill % ALIGN;
        let block = self.buf.get()[whole..self.fill].to_vec();
        let mut rest = bytes;
        while !rest.is_empty() {
            let fill = self.fill;
            let (now, later) = rest.split_at(rest.len().min(BUFFER_BYTES - fill));
            self.buf.get_mut()[fill..fill + now.len()].copy_from_slice(now);
            self.fill += now.len();
            rest = later;
            if self.fill < BUFFER_BYTES {
                break;
            }
            if let Err(e) = self.write_full() {
                if self.start == start {
                    (self.fill, self.stored) = before;
                } else {
                    self.start = start + whole as u64;
                    self.fill = block.len();
                    self.stored = block.len();
                    self.buf.get_mut()[..block.len()].copy_from_slice(&block);
                }
                // Remove what the failed append left behind, which also frees its space on a full
                // device.
                self.physical = physical.max(self.start + self.stored as u64);
                let _ = self.file.set_len(self.physical);
                return Err(e);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.write_tail()?;
        self.file.sync_data()
    }

    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        disk::preallocate(&self.file, self.start, bytes)?;
        self.physical = self.file.metadata()?.len();
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.write_tail()?;
        let written = self.written();
        self.file.set_len(written)?;
        self.physical = written;
        Ok(())
    }
}

impl Drop for DirectWriter {
    fn drop(&mut self) {
        if let Err(e) = self.write_tail() {
            log::warn!("the unsynced end of a table could not be written: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags};

    /// A writer on a file in memory that is `len` bytes long and cannot grow.
    fn writer_on_full_device(len: usize) -> DirectWriter {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("full", flags).unwrap());
        file.set_len(len as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let mut buf = AlignedBuf::EMPTY;
        buf.grow(BUFFER_BYTES);
        DirectWriter { file, buf, start: 0, fill: 0, stored: 0, physical: 0 }
    }

    fn content(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Appends `before`, fails to append `failing`, then continues in a file with room.
    fn fail_then_go_on(before: usize, sync: bool, failing: usize, device: usize) {
        let mut writer = writer_on_full_device(device);
        let mut model: Vec<u8> = (0..before).map(|i| ((i * 7) ^ (i >> 9)) as u8).collect();
        writer.append(&model).unwrap();
        if sync {
            writer.sync().unwrap();
        }
        assert!(writer.append(&vec![0xee; failing]).is_err());
        assert_eq!(writer.written(), before as u64);
        let left = content(&writer.file);
        assert!(left.len() <= before && left == model[..left.len()], "{} bytes left", left.len());

        let dir = tempfile::tempdir().unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let roomy = options.open(dir.path().join("f")).unwrap();
        disk::write_all_at(&roomy, &left, 0).unwrap();
        writer.file = roomy;
        let more = vec![0x55; BUFFER_BYTES + 100];
        writer.append(&more).unwrap();
        model.extend(more);
        writer.sync().unwrap();
        assert!(content(&writer.file) == model);
    }

    #[test]
    fn a_failed_append_does_not_move_the_position() {
        // The first buffer fails.
        fail_then_go_on(5_000, false, 2 * BUFFER_BYTES, 8192);
        fail_then_go_on(5_000, true, 2 * BUFFER_BYTES, 8192);
        // A later buffer fails, with the position within a block and at a block's start.
        fail_then_go_on(5_000, false, 3 * BUFFER_BYTES, BUFFER_BYTES);
        fail_then_go_on(8_192, false, 3 * BUFFER_BYTES, BUFFER_BYTES);
        fail_then_go_on(5_000, true, 3 * BUFFER_BYTES, 2 * BUFFER_BYTES + 12_288);
    }

    #[test]
    fn transfers_are_direct_where_the_file_system_supports_it() {
        let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = dir.path().join("f");
        let mut writer = DirectWriter::create(&Places::default(), &path).unwrap();
        writer.append(&[7; 5000]).unwrap();
        writer.sync().unwrap();
        let mut probe = OpenOptions::new();
        let known = probe.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path).is_ok();
        let reader = DirectReader::open(&Places::default(), &path).unwrap();
        reader.read_exact_at(&mut [0; 10], 4990).unwrap();
        for file in [&writer.file, &reader.file] {
            let direct = rustix::fs::fcntl_getfl(file).unwrap().contains(OFlags::DIRECT);
            assert_eq!(direct, known);
        }
    }

    #[test]
    fn a_file_that_refuses_direct_transfers_becomes_buffered() {
        // An unaligned transfer is refused, like any transfer on a file system that only pretends
        // to support the flag.
        let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [9; 5000]).unwrap();
        let reader = DirectReader::open(&Places::default(), &path).unwrap();
        let mut bytes = [0; 102];
        let unaligned = 1 + bytes.as_ptr().align_offset(2);
        assert_eq!(reader.read_blocks(&mut bytes[unaligned..][..100], 3).unwrap(), 100);
        assert_eq!(bytes[unaligned..][..100], [9; 100]);
    }
}
