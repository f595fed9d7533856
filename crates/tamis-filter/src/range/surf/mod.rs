//! Surf.

use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::{FilterKind, Head, WordFilter};
use crate::keys::{KeyList, KeyRange};
use crate::range::Next;
use crate::words::{Owned, Words};

/// What a [`Surf`] keeps of a key beyond the part that tells it from its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SurfSuffix {
    /// Nothing.
    None,
    /// Bits of the digest: for points.
    Hash,
    /// The next bits of the key: for points and ranges.
    Real,
    /// Half of each.
    Mixed,
}

/// Surf.
#[derive(Clone, Debug)]
pub struct Surf<W: Words = Owned> {
    head: Head,
    words: W,
}

impl Surf {
    /// Builds over `keys`, in any order.
    pub fn build(
        _keys: &KeyList,
        _suffix: SurfSuffix,
        _bits_per_key: f64,
        _salt: u64,
    ) -> Result<Self, FilterError> {
        todo!()
    }
}

impl<W: Words> WordFilter<W> for Surf<W> {
    const KIND: FilterKind = FilterKind::Surf;

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

impl<W: Words> Surf<W> {
    /// As [`RangeProbe::contains_range`](crate::RangeProbe::contains_range).
    pub fn contains_range(&self, _range: KeyRange<'_>) -> bool {
        todo!()
    }

    /// As [`RangeProbe::contains_key`](crate::RangeProbe::contains_key).
    pub fn contains_key(&self, _key: &[u8], _digest: Digest) -> bool {
        todo!()
    }

    /// As [`RangeProbe::next`](crate::RangeProbe::next).
    pub fn next(&self, _from: &[u8]) -> Next<Vec<u8>> {
        todo!()
    }

    /// As [`RangeProbe::expected_rate`](crate::RangeProbe::expected_rate).
    pub fn expected_rate(&self, _keys: u64) -> Option<f64> {
        todo!()
    }
}
