//! Overlapping reads: several byte ranges of files are requested at once, so that the device works
//! on all of them while the caller waits once.
//!
//! A device serves many reads at a time, and each takes about as long as one alone; a thread that
//! reads one after the other only sees the latency. A [`BatchReader`] hands a batch to the kernel
//! through one io_uring ("Efficient IO with io_uring", Axboe, 2019), or spreads it over threads
//! where the kernel has none or forbids it. Files that [take reads in](super::Submit) themselves
//! get all of them before the first is completed. A database has one.
//!
//! # Invariants
//!
//! * A batch returns the same result for each byte range as [`ReadFile::read_exact_at`].
//!   Overlapping reads are best effort: any range that they did not read is read with a plain call,
//!   which also decides the error. This completes short transfers, handles refused direct
//!   transfers, and makes errors uniform.
//! * The caller reads files that do not [overlap](ReadFile::overlap) one after the other, in order.
//!   Files in memory are among them, so injected faults hit the same operation each time.
//! * No read of a batch is in flight when [`BatchReader::read`] returns.
//!
//! # Threads
//!
//! Any number of threads may read at the same time. A lock is held to take or return a ring, or for
//! a queue operation, never during a read.
//!
//! # Costs
//!
//! A ring costs about two system calls per batch, and a copy of the bytes read. Idle rings and
//! their buffers (at most 64 KiB for each read of a batch) are kept for the next batch.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Overlap, ReadFile};

#[cfg(all(test, unix))]
mod tests;
mod threads;
#[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
mod uring;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
#[path = "no_uring.rs"]
mod uring;

/// One byte range of a file.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The file.
    pub file: Arc<dyn ReadFile>,
    /// The first byte.
    pub offset: u64,
    /// The length in bytes.
    pub len: usize,
}

/// The bytes read, or the error; `None` if not attempted.
type Outcome = Option<io::Result<Arc<[u8]>>>;

impl Stretch {
    /// Reads the range with a plain call.
    fn read(&self) -> io::Result<Arc<[u8]>> {
        let mut bytes = zeroed(self.len);
        let buffer = Arc::get_mut(&mut bytes).expect("new memory has one owner");
        self.file.read_exact_at(buffer, self.offset)?;
        Ok(bytes)
    }

    fn overlaps(&self) -> bool {
        !matches!(self.file.overlap(), Overlap::Never)
    }
}

/// Shared zeroed memory in one allocation.
fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, len).collect()
}

/// Reads the ranges of files that take reads in, up to `depth` at a time, and leaves the rest
/// untouched.
fn submit(stretches: &[Stretch], outcomes: &mut [Outcome], depth: usize) {
    let taking = |stretch: &'_ Stretch| matches!(stretch.file.overlap(), Overlap::Submitted(_));
    let places: Vec<usize> = (0..stretches.len()).filter(|&i| taking(&stretches[i])).collect();
    let mut tickets = VecDeque::new();
    for (done, &place) in places.iter().enumerate() {
        for &next in places.iter().take(done + depth).skip(done + tickets.len()) {
            if let Overlap::Submitted(file) = stretches[next].file.overlap() {
                tickets.push_back(file.submit(stretches[next].len));
            }
        }
        let Stretch { file, offset, len } = &stretches[place];
        if let (Overlap::Submitted(file), Some(ticket)) = (file.overlap(), tickets.pop_front()) {
            let mut bytes = zeroed(*len);
            let buffer = Arc::get_mut(&mut bytes).expect("new memory has one owner");
            outcomes[place] = Some(file.complete(ticket, buffer, *offset).map(|()| bytes));
        }
    }
}

#[derive(Debug)]
enum Method {
    Rings(uring::Rings),
    Threads(threads::Pool),
}

/// Reads batches; see the module documentation.
#[derive(Debug)]
pub struct BatchReader {
    method: Method,
    depth: usize,
    // Only statistics; nothing depends on their order.
    batches: AtomicU64,
    reads: AtomicU64,
}

impl BatchReader {
    /// Creates a reader of up to `depth` byte ranges at a time, at least 2: through io_uring if it
    /// is requested and the kernel has it and allows it, otherwise in threads, which are started as
    /// needed.
    pub fn new(depth: usize, uring: bool) -> BatchReader {
        let depth = depth.max(2);
        let method = if uring && uring::allowed() {
            Method::Rings(uring::Rings::new(depth))
        } else {
            Method::Threads(threads::Pool::new(depth - 1))
        };
        BatchReader::of(method, depth)
    }

    fn of(method: Method, depth: usize) -> BatchReader {
        BatchReader { method, depth, batches: AtomicU64::new(0), reads: AtomicU64::new(0) }
    }

    /// Returns the maximum number of overlapping reads.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns `io-uring` or `threads`.
    pub fn method(&self) -> &'static str {
        match &self.method {
            Method::Rings(_) => "io-uring",
            Method::Threads(_) => "threads",
        }
    }

    /// Returns the number of batches of more than one read so far, and of the reads in them.
    pub fn counts(&self) -> (u64, u64) {
        (self.batches.load(Relaxed), self.reads.load(Relaxed))
    }

    /// Reads all byte ranges and returns their bytes or errors in the same order. Blocks until all
    /// are done. Errors are those of [`ReadFile::read_exact_at`], per range.
    pub fn read(&self, stretches: &[Stretch]) -> Vec<io::Result<Arc<[u8]>>> {
        let mut outcomes: Vec<Outcome> = stretches.iter().map(|_| None).collect();
        if stretches.len() > 1 {
            self.batches.fetch_add(1, Relaxed);
            self.reads.fetch_add(stretches.len() as u64, Relaxed);
            if stretches.iter().any(|stretch| matches!(stretch.file.overlap(), Overlap::Submitted(_))) {
                submit(stretches, &mut outcomes, self.depth);
            } else if stretches.iter().any(Stretch::overlaps) {
                match &self.method {
                    Method::Rings(rings) => rings.read(stretches, &mut outcomes),
                    Method::Threads(pool) => pool.read(stretches, &mut outcomes),
                }
            }
        }
        stretches
            .iter()
            .zip(outcomes)
            .map(|(stretch, outcome)| outcome.unwrap_or_else(|| stretch.read()))
            .collect()
    }
}
