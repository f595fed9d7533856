//! A table's elastic filter as the read path uses it: the units of each segment that are in memory
//! now.
//!
//! Y. Li et al., "ElasticBF: Elastic Bloom Filter with Hotness Awareness for Boosting Read
//! Performance in Large Key-Value Stores" (ATC 2019), section 3. `session/elastic` of the engine
//! decides which units are in memory; this module probes them.
//!
//! # Structure
//!
//! A segment has its first `k` units in memory, in one piece ([`tamis_filter::ElasticStack`]), and
//! one word that says how many there are and where ([`Word`]). A unit thus takes its bits, a piece
//! [`PIECE_BYTES`] more, and a segment without units only its word.
//!
//! # Threads
//!
//! Any thread may probe at any time without a lock, under a [`Pin`]. Only one thread at a time, the
//! holder of the engine's lock over elastic filters, makes changes ([`grow`](ElasticFilter::grow),
//! [`keep`](ElasticFilter::keep), [`clear`](ElasticFilter::clear)). A change makes a new piece,
//! replaces the word and returns the old piece, which the caller must [retire](super::retire). A
//! piece is never written to while a word leads to it. A reader that loaded a word before a change
//! may probe the old piece after it. That is equally correct, as no subset of a segment's units
//! rejects any of its keys.

use std::ptr::{self, NonNull};

use tamis_filter::{
    Digest, ElasticLayout, ElasticLine, ElasticProbe, ElasticStack, ElasticUnit, FilterError,
    IndependentDigests,
};

use super::word::Word;
use super::{Pin, Retired, UnitDirectory};
use crate::table::prefetch::prefetch_place;

/// What a piece takes beside its lines, in bytes: an allocation header.
const PIECE_BYTES: u64 = 16;

/// The units to probe for a key: a segment and its units at that moment.
#[derive(Clone, Copy, Debug)]
pub struct FoundUnits<'f> {
    /// The number of the segment in the table.
    pub segment: usize,
    units: u32,
    stack: ElasticStack,
    lines: &'f [ElasticLine],
}

impl FoundUnits<'_> {
    /// The number of units to probe.
    #[inline]
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Reports whether all units accept a key.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        self.stack.contains(self.lines, self.units, digest)
    }

    /// Like [`contains`](Self::contains), for independent hashing.
    #[inline]
    pub fn contains_independent(&self, digests: &IndependentDigests) -> Result<bool, FilterError> {
        self.stack.contains_independent(self.lines, self.units, digests)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct ElasticFilter {
    directory: UnitDirectory,
    /// One per segment.
    words: Box<[Word<ElasticLine>]>,
}

impl ElasticFilter {
    /// Creates a filter with no unit in memory yet.
    #[inline]
    pub fn new(directory: UnitDirectory) -> ElasticFilter {
        let words = (0..directory.segments()).map(|_| Word::empty()).collect();
        ElasticFilter { directory, words }
    }

    /// Returns the directory, which is always in memory.
    #[inline]
    pub fn directory(&self) -> &UnitDirectory {
        &self.directory
    }

    /// Returns the segment that `key` belongs to, if it is in the table. `prefix` is the key's
    /// [`prefix_of`](tamis_base::key::prefix_of).
    #[inline]
    pub fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        self.directory.segment_of(key, prefix)
    }

    /// Returns the number of units that a segment has at this moment, and their lines.
    ///
    /// # Safety
    /// `stack` must be the segment's. The piece that its word leads to now must not be freed during
    /// `'f`.
    #[inline]
    unsafe fn piece<'f>(&self, segment: usize, stack: &ElasticStack) -> (u32, &'f [ElasticLine]) {
        let (lines, units) = self.words[segment].load();
        if units == 0 {
            return (0, &[]);
        }
        // SAFETY: `install` made the piece for that many units, so it has that many lines. It
        // lives, as the caller promises. Nobody writes to it, as pieces are immutable.
        (units, unsafe { std::slice::from_raw_parts(lines, stack.lines(units)) })
    }

    /// Reports whether [`locate`](Self::locate) works with the layout of this filter.
    #[inline]
    pub fn locates(&self) -> bool {
        self.directory.spec().layout == ElasticLayout::Interleaved
    }

    /// Like [`segment_of`](Self::segment_of), but prefetches the segment's word for
    /// [`locate`](Self::locate).
    #[inline(always)]
    pub fn seek(&self, key: &[u8], prefix: u64) -> usize {
        let segment = self.segment_of(key, prefix);
        prefetch_place(&self.words[segment]);
        segment
    }

    /// Returns where a segment's units have the bits of a key, and prefetches what a probe reads
    /// first. `None` if no unit is in memory.
    #[inline(always)]
    pub fn locate<'f>(&'f self, segment: usize, digest: Digest, _pin: &'f Pin) -> Option<ElasticProbe<'f>> {
        let stack = self.directory.stack(segment);
        // SAFETY: as in `find`.
        let (units, lines) = unsafe { self.piece(segment, &stack) };
        if units == 0 { None } else { stack.locate(lines, units, digest) }
    }

    /// Returns the segment of a key with its units, and prefetches the first of them.
    #[inline]
    pub fn find<'f>(
        &'f self,
        key: &[u8],
        prefix: u64,
        digest: Option<Digest>,
        _pin: &'f Pin,
    ) -> FoundUnits<'f> {
        let segment = self.segment_of(key, prefix);
        let stack = self.directory.stack(segment);
        // SAFETY: the pin is older than the load of the word and outlives the result. Pieces are
        // freed only through `retire`, or with this filter, which is borrowed.
        let (units, lines) = unsafe { self.piece(segment, &stack) };
        if units > 0
            && let Some(digest) = digest
        {
            stack.prefetch(lines, units, digest);
        }
        FoundUnits { segment, units, stack, lines }
    }

    /// Puts the next units of a segment into use. Returns the old piece, if any.
    ///
    /// # Errors
    /// Returns [`FilterError::Parameter`] if they are not the segment's next units.
    pub fn grow(&self, segment: usize, more: &[ElasticUnit]) -> Result<Option<Retired>, FilterError> {
        let stack = self.directory.stack(segment);
        // SAFETY: only the one thread that makes changes, which is this one, retires pieces.
        let (before, old) = unsafe { self.piece(segment, &stack) };
        let after = before + more.len() as u32;
        if after > self.directory.units() {
            return Err(FilterError::Parameter("the segment has fewer units"));
        }
        let mut lines = vec![ElasticLine::ZERO; stack.lines(after)].into_boxed_slice();
        stack.copy((old, before), (&mut lines, after));
        for (index, unit) in (before..).zip(more) {
            if unit.index() != index {
                return Err(FilterError::Parameter("not the next unit"));
            }
            stack.put(&mut lines, after, unit)?;
        }
        Ok(self.install(segment, lines, after))
    }

    /// Takes all but the first `units` units of a segment out of use. Returns the old piece, if it
    /// was replaced.
    pub fn keep(&self, segment: usize, units: u8) -> Option<Retired> {
        let stack = self.directory.stack(segment);
        // SAFETY: as in `grow`.
        let (before, old) = unsafe { self.piece(segment, &stack) };
        let after = u32::from(units);
        if before <= after {
            return None;
        }
        let mut lines = vec![ElasticLine::ZERO; stack.lines(after)].into_boxed_slice();
        stack.copy((old, before), (&mut lines, after));
        self.install(segment, lines, after)
    }

    /// Makes `lines` the segment's piece, with `units` units, and returns the previous piece.
    fn install(&self, segment: usize, lines: Box<[ElasticLine]>, units: u32) -> Option<Retired> {
        let lines = match units {
            0 => ptr::null_mut(),
            _ => Box::into_raw(lines).cast::<ElasticLine>(),
        };
        let (lines, units) = self.words[segment].replace((lines, units));
        let lines = NonNull::new(lines)?;
        let count = self.directory.stack(segment).lines(units);
        // SAFETY: `install` made the piece from a box of that many lines, and the word that led to
        // it was replaced.
        Some(unsafe { Retired::new(lines, count, self.bytes(segment, units as u8)) })
    }

    /// Takes all units out of use when the table has left the tree. Remaining readers do without
    /// them.
    #[inline]
    pub fn clear(&self) -> Vec<Retired> {
        (0..self.words.len()).filter_map(|segment| self.keep(segment, 0)).collect()
    }

    /// The number of units of a segment in memory.
    #[inline]
    pub fn enabled(&self, segment: usize) -> u32 {
        self.words[segment].units()
    }

    /// Returns the memory that the first `units` units of a segment take, in bytes.
    #[inline]
    pub fn bytes(&self, segment: usize, units: u8) -> u64 {
        match self.directory.stack(segment).lines(units.into()) {
            0 => 0,
            lines => (lines * size_of::<ElasticLine>()) as u64 + PIECE_BYTES,
        }
    }

    /// Returns the total memory in bytes.
    #[inline]
    pub fn memory_bytes(&self) -> u64 {
        let units = |segment| self.bytes(segment, self.enabled(segment) as u8);
        self.fixed_bytes() + (0..self.words.len()).map(units).sum::<u64>()
    }

    /// Returns the bytes that are always in memory: the directory and a word per segment.
    #[inline]
    pub fn fixed_bytes(&self) -> u64 {
        (size_of::<Self>() + self.directory.memory_bytes() + size_of_val(&*self.words)) as u64
    }
}

impl Drop for ElasticFilter {
    fn drop(&mut self) {
        // No reader holds anything found in a filter that is being dropped.
        (0..self.words.len()).for_each(|segment| drop(self.keep(segment, 0)));
    }
}

#[cfg(test)]
mod tests;
