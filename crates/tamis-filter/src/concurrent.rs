//! A blocked Bloom filter that accepts insertions while being probed, for a memtable.
//!
//! # Memory ordering
//! Every access is `Relaxed`, and that is enough. Bits are only ever set, so each word only grows,
//! and no word's value is used to find or interpret other memory. A reader owes the answer `true`
//! only for insertions it is ordered after, and the caller establishes that order: the writer
//! inserts into the filter, then publishes (releases) the sequence number of the write; a reader
//! loads (acquires) a sequence number and may see only writes up to it. The insertion then *happens
//! before* the probe, and coherence of each single word makes the probe read that insertion's value
//! or a later, larger one. The same holds when an insertion finds its bit already set and writes
//! nothing: having *read* the bit, it is ordered after the write that set it, and a later read of
//! that word cannot go back before it (read-read coherence). A reader not ordered after the
//! insertion may see some of its bits; it may then get `false`, which is right for a key it must
//! not see.
//!
//! # Invariants
//! There is at least one line; the number of lines never changes; no bit is ever cleared. The line
//! and positions of a digest are those of [`crate::BlockedBloom`] with the same salt and number of
//! lines.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::blocked::{locate, portable::position};
use crate::bloom::{MAX_UNITS, units_for};
use crate::digest::Digest;
use crate::error::FilterError;
use crate::theory;
use crate::words::prefetch;

/// One line of an [`AtomicBlockedBloom`], empty by default: 64 zero bytes, or those of such a
/// filter.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct AtomicLine([AtomicU64; 8]);

/// A blocked Bloom filter of fixed size for any number of concurrent writers and readers, in a box
/// unless the program has other memory for its lines.
pub struct AtomicBlockedBloom<L = Box<[AtomicLine]>> {
    lines: L,
    salt: u64,
    probes: u8,
}

impl AtomicBlockedBloom {
    /// Creates a filter of `lines` 64-byte lines with `probes` bits per key.
    ///
    /// # Errors
    /// [`FilterError::Probes`] unless `1 <= probes <= 16`; [`FilterError::TooLarge`] beyond 2^32
    /// lines. Zero `lines` means one.
    pub fn new(lines: usize, probes: u8, salt: u64) -> Result<Self, FilterError> {
        check(lines, probes)?;
        AtomicBlockedBloom::over((0..lines.max(1)).map(|_| AtomicLine::default()).collect(), probes, salt)
    }

    /// Creates a filter with room for `keys` keys at `bits_per_key`. More keys may be inserted; the
    /// rate then rises.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`] unless `0 < bits_per_key <= 64`; [`FilterError::TooLarge`]
    /// beyond 2^32 lines.
    pub fn for_keys(keys: u64, bits_per_key: f64, salt: u64) -> Result<Self, FilterError> {
        let lines = units_for(keys, bits_per_key, f64::from(theory::LINE_BITS))?;
        Self::new(lines as usize, theory::optimal_blocked_probes(bits_per_key) as u8, salt)
    }
}

fn check(lines: usize, probes: u8) -> Result<(), FilterError> {
    if !(1..=theory::MAX_BLOCKED_PROBES).contains(&u32::from(probes)) {
        return Err(FilterError::Probes(probes));
    }
    if lines as u64 > MAX_UNITS {
        return Err(FilterError::TooLarge { keys: lines as u64 });
    }
    Ok(())
}

impl<L: Deref<Target = [AtomicLine]>> AtomicBlockedBloom<L> {
    /// Creates a filter with `probes` bits per key of the keys in `lines`: none, if they are empty.
    ///
    /// # Errors
    /// As those of [`AtomicBlockedBloom::new`], and [`FilterError::Parameter`] without a line.
    pub fn over(lines: L, probes: u8, salt: u64) -> Result<Self, FilterError> {
        check(lines.len(), probes)?;
        if lines.is_empty() {
            return Err(FilterError::Parameter("a filter has at least one line"));
        }
        Ok(Self { lines, salt, probes })
    }

    #[inline]
    fn line_of(&self, digest: Digest) -> (&AtomicLine, u32) {
        let (at, low) = locate(digest.remix(self.salt), self.lines.len());
        (&self.lines[at], low)
    }

    /// Adds a key. Any thread; lock-free. A repeated key dirties no cache line.
    #[inline]
    pub fn insert(&self, digest: Digest) {
        let (line, low) = self.line_of(digest);
        for i in 0..usize::from(self.probes) {
            let at = position(low, i);
            let (word, bit) = (&line.0[at / 64], 1u64 << (at % 64));
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    /// Returns whether an insertion that this call is ordered after may have added the key. Any
    /// thread; wait-free.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let (line, low) = self.line_of(digest);
        let mut all = 1;
        for i in 0..usize::from(self.probes) {
            let at = position(low, i);
            all &= line.0[at / 64].load(Relaxed) >> (at % 64);
        }
        all & 1 == 1
    }

    /// Prefetches the line that the key's bits are in.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        prefetch(self.line_of(digest).0);
    }

    /// Returns the number of bits set and tested per key.
    pub fn probes(&self) -> u32 {
        u32::from(self.probes)
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.lines)
    }
}

impl<L: Deref<Target = [AtomicLine]>> fmt::Debug for AtomicBlockedBloom<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicBlockedBloom")
            .field("lines", &self.lines.len())
            .field("probes", &self.probes)
            .field("salt", &self.salt)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{Acquire, Release};

    use super::*;
    use crate::BlockedBloom;

    fn digest(i: u64) -> Digest {
        Digest::of(&i.to_le_bytes())
    }

    #[test]
    fn an_empty_filter_holds_nothing_and_bad_shapes_are_rejected() {
        let filter = AtomicBlockedBloom::new(0, 6, 1).unwrap();
        assert!((0..1000).all(|i| !filter.contains(digest(i))));
        assert_eq!(AtomicBlockedBloom::new(1, 0, 0).unwrap_err(), FilterError::Probes(0));
        assert_eq!(AtomicBlockedBloom::new(1, 17, 0).unwrap_err(), FilterError::Probes(17));
        assert!(AtomicBlockedBloom::for_keys(u64::MAX, 10.0, 0).is_err());
        assert!(AtomicBlockedBloom::over(Vec::new(), 6, 0).is_err());
        assert_eq!(
            AtomicBlockedBloom::over(Vec::from_iter([AtomicLine::default()]), 17, 0).unwrap_err(),
            FilterError::Probes(17)
        );
        assert!(AtomicBlockedBloom::for_keys(1, f64::NAN, 0).is_err());
    }

    #[test]
    fn it_answers_exactly_as_the_immutable_filter() {
        let keys: Vec<_> = (0..5000).map(digest).collect();
        let immutable = BlockedBloom::build(&keys, 10.0, 9).unwrap();
        let atomic = AtomicBlockedBloom::for_keys(5000, 10.0, 9).unwrap();
        keys.iter().for_each(|d| atomic.insert(*d));
        for i in 0..50_000 {
            assert_eq!(atomic.contains(digest(i)), immutable.contains(digest(i)), "{i}");
        }
    }

    #[test]
    fn readers_find_every_published_key_while_writers_insert() {
        const PER_WRITER: u64 = if cfg!(miri) { 100 } else { 30_000 };
        let filter = AtomicBlockedBloom::for_keys(2 * PER_WRITER, 10.0, 3).unwrap();
        let published = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            for (w, published) in published.iter().enumerate() {
                let filter = &filter;
                scope.spawn(move || {
                    for i in 0..PER_WRITER {
                        filter.insert(digest(w as u64 * PER_WRITER + i));
                        published.store(i + 1, Release);
                    }
                });
                scope.spawn(move || {
                    let mut seen = 0;
                    while seen < PER_WRITER {
                        seen = published.load(Acquire);
                        for i in seen.saturating_sub(20)..seen {
                            assert!(filter.contains(digest(w as u64 * PER_WRITER + i)), "{i} of {seen}");
                        }
                    }
                });
            }
        });
        assert!((0..2 * PER_WRITER).all(|i| filter.contains(digest(i))));
    }
}
