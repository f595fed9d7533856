//! Batches read through io_uring (Linux 5.6 and later).
//!
//! # Invariants
//!
//! * The kernel writes only to slots, buffers that a ring owns. A slot is *free*, or *in flight*
//!   from the moment its read is in the submission queue until its completion was taken; while it
//!   is in flight its bytes are neither accessed nor moved.
//! * A ring in the pool has nothing in flight. One whose system call failed is dropped, not
//!   returned.
//! * Dropping a ring waits for what is in flight. If even that fails the slots are leaked: memory
//!   that the kernel may still write to is never freed.
//!
//! # Threads
//!
//! A ring belongs to one thread at a time, the one that took it from the pool. The pool's lock is
//! held for a push or a pop.
//!
//! Costs: one system call for a batch that fits the ring, one for about every quarter of the ring
//! beyond; a copy of the bytes, because slots have the alignment of direct transfers and blocks do
//! not.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use io_uring::{IoUring, Probe, opcode, types};

use super::{Outcome, Stretch, zeroed};
use crate::io::Overlap;
use crate::io::direct::linux::{ALIGN, AlignedBuf, BUFFER_BYTES};
use crate::io::disk::check_range;

/// A slot that grew beyond this is replaced after its batch.
const KEPT_BYTES: usize = 64 << 10;

/// The number of idle rings kept. If more threads read at once, the surplus rings are created each
/// time.
const KEPT_RINGS: usize = 16;

/// The number of consecutive failed system calls without a completion after which a ring is
/// abandoned.
const PATIENCE: u32 = 1000;

/// Reports whether this kernel has io_uring with plain reads and lets this process use it. Probed
/// once per process.
pub(super) fn allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let asked = IoUring::new(2).and_then(|ring| {
            let mut probe = Probe::new();
            ring.submitter().register_probe(&mut probe)?;
            Ok(probe.is_supported(opcode::Read::CODE))
        });
        match asked {
            Ok(allowed) => allowed,
            Err(e) => {
                log::info!("io_uring cannot be used, threads will read instead: {e}");
                false
            }
        }
    })
}

/// The idle rings of a database.
#[derive(Debug)]
pub(super) struct Rings {
    depth: usize,
    /// The most bytes that one read transfers; the rest of a longer one is read with a plain call.
    most: usize,
    idle: Mutex<Vec<Ring>>,
}

impl Rings {
    /// Creates a pool for rings that read up to `depth` byte ranges at a time. Creates no ring yet.
    pub(super) fn new(depth: usize) -> Rings {
        Rings { depth, most: BUFFER_BYTES, idle: Mutex::default() }
    }

    /// The same, with transfers of at most `most` bytes, so that longer ones come out short.
    #[cfg(test)]
    pub(super) fn with_short_transfers(depth: usize, most: usize) -> Rings {
        Rings { most: most.next_multiple_of(ALIGN), ..Rings::new(depth) }
    }

    /// Reads the ranges that io_uring can read and leaves the rest untouched. Any thread may call
    /// this.
    pub(super) fn read(&self, stretches: &[Stretch], outcomes: &mut [Outcome]) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let made = idle.map_or_else(|| Ring::new(self.depth), Ok);
        let read = made.and_then(|mut ring| {
            ring.read(stretches, outcomes, self.most)?;
            ring.shrink();
            Ok(ring)
        });
        match read {
            Ok(ring) => {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                if idle.len() < KEPT_RINGS {
                    idle.push(ring);
                }
            }
            // Most likely out of memory or descriptors.
            Err(e) => log::debug!("a batch could not be read through io_uring: {e}"),
        }
    }

    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.idle.lock().unwrap().len()
    }
}

struct Ring {
    ring: IoUring,
    slots: Vec<AlignedBuf>,
    /// The slots that are not in flight.
    free: Vec<usize>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} of {} slots in flight)", self.in_flight(), self.slots.len())
    }
}

impl Ring {
    fn new(depth: usize) -> io::Result<Ring> {
        let entries = u32::try_from(depth).map_err(io::Error::other)?;
        let entries = entries.next_power_of_two();
        // Completions need not interrupt a thread that will wait for them. Before Linux 5.19 they
        // always do.
        let ring = match IoUring::builder().setup_coop_taskrun().build(entries) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => IoUring::new(entries)?,
            made => made?,
        };
        let slots = (0..depth).map(|_| AlignedBuf::EMPTY).collect();
        Ok(Ring { ring, slots, free: (0..depth).rev().collect() })
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Frees the memory of unusually long reads.
    fn shrink(&mut self) {
        debug_assert_eq!(self.in_flight(), 0);
        for slot in self.slots.iter_mut().filter(|slot| slot.len() > KEPT_BYTES) {
            *slot = AlignedBuf::EMPTY;
        }
    }

    /// Reads the ranges that io_uring can read. After an error the ring must be dropped; ranges
    /// read until then are valid.
    fn read(&mut self, stretches: &[Stretch], outcomes: &mut [Outcome], most: usize) -> io::Result<()> {
        let mut next = 0;
        let mut failures = 0;
        loop {
            while next < stretches.len() && !self.free.is_empty() {
                self.push(&stretches[next], next, most);
                next += 1;
            }
            let in_flight = self.in_flight();
            if in_flight == 0 {
                return Ok(());
            }
            // While more reads follow the device must stay busy; at the end one call waits for all.
            let wanted = if next < stretches.len() { in_flight.div_ceil(4) } else { in_flight };
            let waited = self.ring.submit_and_wait(wanted);
            let taken = self.take_completed(|bytes, place| {
                outcomes[place] = finished(&stretches[place], bytes);
            });
            failures = if taken > 0 || waited.is_ok() { 0 } else { failures + 1 };
            match waited {
                Err(e) if !passing(&e) || failures > PATIENCE => return Err(e),
                _ => {}
            }
        }
    }

    /// Submits the read of a byte range, unless it needs a plain call. There must be a free slot.
    fn push(&mut self, stretch: &Stretch, place: usize, most: usize) {
        let Overlap::Descriptor { fd, align } = stretch.file.overlap() else { return };
        if stretch.len == 0 || align > ALIGN || check_range(stretch.offset, stretch.len + ALIGN).is_err() {
            return;
        }
        let skip = (stretch.offset % align as u64) as usize;
        let span = (skip + stretch.len).next_multiple_of(align).min(most);
        let Some(slot) = self.free.pop() else { return };
        let buffer = &mut self.slots[slot];
        buffer.grow(span);
        let read = opcode::Read::new(types::Fd(fd.as_raw_fd()), buffer.get_mut().as_mut_ptr(), span as u32)
            .offset(stretch.offset - skip as u64)
            .build()
            .user_data(slot as u64 | (place as u64) << 32);
        // SAFETY: the kernel writes at most `span` bytes to the buffer, which is as long and lies
        // on the heap. The slot is not in `free` now, and so neither read, grown nor dropped before
        // its completion was taken: `take_completed` alone gives slots back, `shrink` runs when
        // none is in flight, and `Drop` waits, or leaks them. Moving the ring moves no heap memory.
        // The descriptor is open when the kernel takes the read up, as `stretches` borrows the
        // file; should the call fail before, and the read be taken up later, it reads whatever has
        // the number by then, into the same slot, and nothing reads it.
        let pushed = unsafe { self.ring.submission().push(&read) };
        if pushed.is_err() {
            // The queue has an entry per slot, so this does not happen; if it did, a plain call
            // would read the range.
            self.free.push(slot);
        }
    }

    /// Passes each completion to `take`, as bytes and index in the batch, and returns the number of
    /// completions. A failed read has no bytes.
    fn take_completed(&mut self, mut take: impl FnMut(&[u8], usize)) -> usize {
        let Ring { ring, slots, free } = self;
        let mut taken = 0;
        for completed in ring.completion() {
            let slot = (completed.user_data() & u64::from(u32::MAX)) as usize;
            let place = (completed.user_data() >> 32) as usize;
            let len = usize::try_from(completed.result()).unwrap_or(0);
            // Free the slot first, so that a panic below leaves nothing to wait for in vain.
            free.push(slot);
            taken += 1;
            take(&slots[slot].get()[..len], place);
        }
        taken
    }
}

/// Reports whether a call with this error may succeed when retried.
fn passing(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY];
    e.raw_os_error().is_some_and(|code| passing.iter().any(|errno| errno.raw_os_error() == code))
}

/// Returns the result for a byte range of which the kernel read `bytes`, from its aligned start on.
/// `None` if it read none of the range; a plain call completes a short transfer.
fn finished(stretch: &Stretch, bytes: &[u8]) -> Outcome {
    let Overlap::Descriptor { align, .. } = stretch.file.overlap() else { return None };
    let skip = (stretch.offset % align as u64) as usize;
    let fresh = bytes.get(skip..).filter(|fresh| !fresh.is_empty())?;
    if let Some(whole) = fresh.get(..stretch.len) {
        return Some(Ok(Arc::from(whole)));
    }
    let mut all = zeroed(stretch.len);
    let buffer = Arc::get_mut(&mut all).expect("new memory has one owner");
    let (head, rest) = buffer.split_at_mut(fresh.len());
    head.copy_from_slice(fresh);
    let rest = stretch.file.read_exact_at(rest, stretch.offset + fresh.len() as u64);
    Some(rest.map(|()| all))
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut failures = 0;
        while self.in_flight() > 0 && failures < PATIENCE {
            let waited = self.ring.submit_and_wait(1);
            let taken = self.take_completed(|_, _| {});
            failures = if taken > 0 || waited.is_ok() { 0 } else { failures + 1 };
        }
        if self.in_flight() > 0 {
            log::error!("reads through io_uring that cannot be waited for: their memory is given up");
            mem::forget(mem::take(&mut self.slots));
        }
    }
}
