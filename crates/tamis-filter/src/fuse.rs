//! A binary fuse filter.

use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::{FilterKind, Head, WordFilter};
use crate::words::{Owned, Words};

/// A binary fuse filter.
#[derive(Clone, Copy, Debug)]
pub struct BinaryFuse<W: Words = Owned> {
    head: Head,
    words: W,
}

impl BinaryFuse {
    /// Builds.
    pub fn build(_digests: &[Digest], _bits_per_key: f64, _salt: u64) -> Result<Self, FilterError> {
        todo!()
    }
}

impl<W: Words> WordFilter<W> for BinaryFuse<W> {
    const KIND: FilterKind = FilterKind::BinaryFuse;

    fn from_parts(head: Head, words: W) -> Result<Self, FilterError> {
        Ok(Self { head, words })
    }

    fn head(&self) -> Head {
        self.head
    }

    fn words(&self) -> &W {
        &self.words
    }
}

impl<W: Words> BinaryFuse<W> {
    /// Whether the run may hold the key.
    #[inline]
    pub fn contains(&self, _digest: Digest) -> bool {
        todo!()
    }

    /// Asks the cache for what [`BinaryFuse::contains`] will read.
    #[inline]
    pub fn prefetch(&self, _digest: Digest) {
        todo!()
    }

    /// Keys the filter was built over.
    pub fn keys(&self) -> u64 {
        self.head.keys
    }

    /// Bits spent per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        (self.words.count() * 64) as f64 / self.head.keys as f64
    }

    /// False-positive rate theory promises; 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        todo!()
    }

    /// Bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.count() * 8
    }

    /// A copy that owns its words.
    pub fn to_owned(&self) -> BinaryFuse {
        BinaryFuse { head: self.head, words: self.words.to_owned_words() }
    }
}
