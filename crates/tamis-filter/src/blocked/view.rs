//! A blocked filter probed in place, over borrowed bytes (a cached block, a mapped file).

use std::fmt;

use super::{BlockedBloom, BlockedShape, Line, Lines, line_contains, locate};
use crate::digest::Digest;
use crate::format::SharedBytes;
use crate::words::prefetch;

/// A blocked Bloom filter over borrowed bytes. Any alignment is correct; if
/// [`BlockedBloomRef::is_aligned`] is false a probe may touch two cache lines instead of one.
#[derive(Clone, Copy)]
pub struct BlockedBloomRef<'a> {
    lines: &'a [[u8; 64]],
    shape: BlockedShape,
}

impl<'a> BlockedBloomRef<'a> {
    /// `lines` must not be empty; the format checks this.
    pub(crate) fn new(shape: BlockedShape, lines: &'a [[u8; 64]]) -> Self {
        debug_assert!(!lines.is_empty());
        Self { lines, shape }
    }

    /// Same as [`BlockedBloom::bits_per_key`].
    pub fn bits_per_key(&self) -> f64 {
        self.shape.bits_per_key(self.lines.len())
    }

    /// Same as [`BlockedBloom::expected_rate`].
    pub fn expected_rate(&self) -> f64 {
        self.shape.expected_rate(self.lines.len())
    }

    #[inline(always)]
    fn line_of(&self, digest: Digest) -> (&'a [u8; 64], u32) {
        let (at, low) = locate(digest.remix(self.shape.salt), self.lines.len());
        (&self.lines[at], low)
    }

    /// Same as [`BlockedBloom::contains`].
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        let (line, low) = self.line_of(digest);
        line_contains(line, low, self.shape.probes)
    }

    /// Same as [`BlockedBloom::prefetch`].
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        prefetch(self.line_of(digest).0);
    }

    /// Returns whether every line of the filter is one cache line of the machine.
    pub fn is_aligned(&self) -> bool {
        self.lines.as_ptr().addr().is_multiple_of(align_of::<Line>())
    }

    /// Copies the filter into aligned memory of its own.
    pub fn to_owned(&self) -> BlockedBloom {
        let line = |bytes: &[u8; 64]| {
            let (words, _) = bytes.as_chunks::<4>();
            let mut line = Line::ZERO;
            for (to, from) in line.0.iter_mut().zip(words) {
                *to = u32::from_le_bytes(*from);
            }
            line
        };
        BlockedBloom::from_parts(self.shape, Lines::own(self.lines.iter().map(line).collect()))
    }

    /// Makes a filter of `bytes`, which begin with what this is a view of; a copy where the lines
    /// cannot be used as they lie.
    pub(crate) fn to_shared(self, bytes: SharedBytes) -> BlockedBloom {
        match Lines::in_place(bytes, self.lines.len()) {
            Some(lines) => BlockedBloom::from_parts(self.shape, lines),
            None => self.to_owned(),
        }
    }
}

impl fmt::Debug for BlockedBloomRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockedBloomRef")
            .field("lines", &self.lines.len())
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
