//! Memory that a worker under flips shares with its parent: where the worker is, and what was
//! acknowledged.
//!
//! It is a mapped file, so it is no part of the heap, in which bits are flipped, and it survives
//! the worker. The worker keeps its own counters here, too, and loads them for each use: a
//! register that is damaged while the engine runs may be the caller's.
//!
//! Atomics only. The worker writes and the parent reads.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use memmap2::MmapRaw;
use rustix::time::{ClockId, clock_gettime};

use crate::oracle::{Records, STEPS, batches};

const WORDS: usize = TOKENS + 512;
const SEGMENT: usize = 0;
const INSIDE: usize = 1;
const STARTED: usize = 2;
const SEED: usize = 3;
const BATCH: usize = 4;
const CURSOR: usize = 5;
/// How long each segment took, in nanoseconds.
const TIMES: usize = 16;
/// One token for each acknowledged batch.
const TOKENS: usize = 64;

/// The mapped file.
#[derive(Debug)]
pub(crate) struct Desk {
    map: MmapRaw,
}

impl Desk {
    pub(crate) fn create(path: &Path, seed: u64) -> io::Result<Desk> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(8 * WORDS as u64)?;
        let desk = Desk { map: MmapRaw::map_raw(&file)? };
        desk.word(SEED).store(seed, SeqCst);
        Ok(desk)
    }

    pub(crate) fn open(path: &Path) -> io::Result<Desk> {
        let file = File::options().read(true).write(true).open(path)?;
        let map = MmapRaw::map_raw(&file)?;
        if map.len() != 8 * WORDS {
            return Err(io::Error::other("not a desk"));
        }
        Ok(Desk { map })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: the mapping has `WORDS` words of eight bytes and begins at a page, so this one is
        // aligned and inside; it is writable, lives as long as `self`, and both processes access it
        // by atomics only.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(index)) }
    }

    /// Begins the segment of a step.
    pub(crate) fn begin(&self, segment: usize) {
        self.word(STARTED).store(now(), SeqCst);
        self.word(SEGMENT).store(2 * segment as u64 + 1, SeqCst);
    }

    pub(crate) fn end(&self, segment: usize) {
        self.word(SEGMENT).store(2 * segment as u64 + 2, SeqCst);
        let time = now().saturating_sub(self.word(STARTED).load(SeqCst));
        self.word(TIMES + segment).store(time, SeqCst);
    }

    /// Reports whether the worker is in the segment of a step.
    pub(crate) fn is_in(&self, segment: usize) -> bool {
        self.word(SEGMENT).load(SeqCst) == 2 * segment as u64 + 1
    }

    /// Returns the time since the current segment began, in nanoseconds.
    pub(crate) fn elapsed(&self) -> u64 {
        now().saturating_sub(self.word(STARTED).load(SeqCst))
    }

    /// Returns the times of all segments, in nanoseconds.
    pub(crate) fn times(&self) -> Vec<u64> {
        (0..STEPS.len()).map(|segment| self.word(TIMES + segment).load(SeqCst)).collect()
    }

    /// Runs a part of the engine on the main thread.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.word(INSIDE).store(1, SeqCst);
        let result = work();
        self.word(INSIDE).store(0, SeqCst);
        result
    }

    /// Reports whether the main thread executes the engine, and not the worker's own code.
    pub(crate) fn is_inside(&self) -> bool {
        self.word(INSIDE).load(SeqCst) == 1
    }

    pub(crate) fn records(&self) -> Records {
        Records { seed: self.word(SEED).load(SeqCst) }
    }

    /// Returns the number of the batch being written, and of the record within it.
    pub(crate) fn position(&self) -> (u32, u32) {
        (self.word(BATCH).load(SeqCst) as u32, self.word(CURSOR).load(SeqCst) as u32)
    }

    /// Moves on to the next record of the batch.
    pub(crate) fn next_record(&self) {
        self.word(CURSOR).fetch_add(1, SeqCst);
    }

    /// Records that the current batch was acknowledged, and moves on to the next.
    pub(crate) fn acknowledge(&self) {
        let batch = self.word(BATCH).load(SeqCst);
        let at = TOKENS + batch as usize;
        if at < WORDS {
            self.word(at).store(self.records().token(batch as u32), SeqCst);
        }
        self.word(CURSOR).store(0, SeqCst);
        self.word(BATCH).store(batch + 1, SeqCst);
    }

    /// Returns the number of acknowledged batches, as the tokens prove it; the error is the
    /// contradiction if the worker's own counters are damaged.
    pub(crate) fn acknowledged(&self) -> Result<u32, String> {
        let records = self.records();
        let told = |batch: &u32| self.word(TOKENS + *batch as usize).load(SeqCst) == records.token(*batch);
        let count = (0..batches()).take_while(told).count() as u32;
        let counter = self.word(BATCH).load(SeqCst);
        match (count..batches()).any(|batch| self.word(TOKENS + batch as usize).load(SeqCst) != 0) {
            false if counter == u64::from(count) || counter + 1 == u64::from(count) => Ok(count),
            _ => Err(format!("{count} batches are acknowledged, but the counter is {counter}")),
        }
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_and_tokens_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("desk");
        let parent = Desk::create(&path, 9).unwrap();
        let worker = Desk::open(&path).unwrap();
        assert_eq!(worker.records().seed, 9);
        worker.begin(3);
        assert!(parent.is_in(3) && !parent.is_in(2));
        worker.next_record();
        worker.acknowledge();
        worker.acknowledge();
        assert_eq!(worker.position(), (2, 0));
        assert_eq!(parent.acknowledged(), Ok(2));
        worker.inside(|| assert!(parent.is_inside()));
        assert!(!parent.is_inside());
        worker.end(3);
        assert!(!parent.is_in(3));
        parent.word(TOKENS + 7).store(parent.records().token(7), SeqCst);
        assert!(parent.acknowledged().is_err());
    }
}
