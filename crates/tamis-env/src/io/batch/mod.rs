//! Reads that overlap: several stretches of files asked for at once, so that the device works on all of them while
//! the caller waits once.
//!
//! A device serves many reads at a time and each takes about as long as one alone; a thread that asks for one after
//! the other sees only the latency. A [`BatchReader`] hands a batch to the kernel through one io_uring ("Efficient IO
//! with io_uring", Axboe, 2019), or spreads it over threads where the kernel has none or forbids it. A database has
//! one.
//!
//! # Invariants
//!
//! * What a batch gives for a stretch is what [`ReadFile::read_exact_at`] gives for it. The overlapping way only does
//!   what it can: whatever it did not read, for whatever reason, is read the plain way, whose error is the answer. So
//!   short transfers are continued, refusals of direct transfers dealt with, and errors told alike.
//! * Files that do not [overlap](ReadFile::overlap) are read one after the other, in order, by the caller. Files in
//!   memory are such ones: their faults fall on the same operation each time.
//! * Nothing of a batch is under way when [`BatchReader::read`] returns.
//!
//! # Threads
//!
//! Any number of threads may read at the same time. A lock is held for taking and giving back a ring, or for a queue's
//! operations, never during a read.
//!
//! # Costs
//!
//! A ring costs two system calls or so for a batch, and a copy of what was read. Idle rings and their buffers (at
//! most 64 KiB for each read of a batch) are kept for the next batch.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Overlap, ReadFile};

#[cfg(all(test, unix))]
mod tests;
mod threads;
#[cfg(target_os = "linux")]
mod uring;

/// One stretch of a file.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The file.
    pub file: Arc<dyn ReadFile>,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub len: usize,
}

/// What was read, or why it was not; `None`: nobody tried.
type Outcome = Option<io::Result<Arc<[u8]>>>;

impl Stretch {
    /// Reads it the plain way.
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

#[derive(Debug)]
enum Method {
    #[cfg(target_os = "linux")]
    Rings(uring::Rings),
    Threads(threads::Pool),
}

/// Reads batches. See the module.
#[derive(Debug)]
pub struct BatchReader {
    method: Method,
    depth: usize,
    // Only told to whoever asks; nothing depends on their order.
    batches: AtomicU64,
    reads: AtomicU64,
}

impl BatchReader {
    /// Reads up to `depth` stretches at a time, at least 2: through io_uring if that is wanted and the kernel has it and
    /// allows it, else by threads, which are started as they are needed.
    pub fn new(depth: usize, uring: bool) -> BatchReader {
        let depth = depth.max(2);
        #[cfg(target_os = "linux")]
        if uring && uring::allowed() {
            return BatchReader::of(Method::Rings(uring::Rings::new(depth)), depth);
        }
        let _ = uring;
        BatchReader::of(Method::Threads(threads::Pool::new(depth - 1)), depth)
    }

    fn of(method: Method, depth: usize) -> BatchReader {
        BatchReader { method, depth, batches: AtomicU64::new(0), reads: AtomicU64::new(0) }
    }

    /// How many reads overlap at most.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// `io-uring` or `threads`.
    pub fn method(&self) -> &'static str {
        match &self.method {
            #[cfg(target_os = "linux")]
            Method::Rings(_) => "io-uring",
            Method::Threads(_) => "threads",
        }
    }

    /// Batches of more than one read so far, and the reads in them.
    pub fn counts(&self) -> (u64, u64) {
        (self.batches.load(Relaxed), self.reads.load(Relaxed))
    }

    /// Reads all stretches and gives their bytes or errors in the same order. Blocks until all are done. Errors are
    /// those of [`ReadFile::read_exact_at`], each for its own stretch.
    pub fn read(&self, stretches: &[Stretch]) -> Vec<io::Result<Arc<[u8]>>> {
        let mut outcomes: Vec<Outcome> = stretches.iter().map(|_| None).collect();
        if stretches.len() > 1 {
            self.batches.fetch_add(1, Relaxed);
            self.reads.fetch_add(stretches.len() as u64, Relaxed);
            if stretches.iter().any(Stretch::overlaps) {
                match &self.method {
                    #[cfg(target_os = "linux")]
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
