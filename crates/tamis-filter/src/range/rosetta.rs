//! Rosetta.

use crate::error::FilterError;
use crate::format::{FilterKind, Head, WordFilter};
use crate::range::IntegerProbe;
use crate::words::{Owned, Words};

/// Rosetta.
#[derive(Clone, Debug)]
pub struct Rosetta<W: Words = Owned> {
    head: Head,
    words: W,
}

impl Rosetta {
    /// Parameters and words of a filter over `keys`, which ascend (and may repeat).
    pub(crate) fn encode(
        _keys: &[u64],
        _bits_per_key: f64,
        _max_range: u64,
        _salt: u64,
    ) -> Result<(Head, Vec<u64>), FilterError> {
        todo!()
    }
}

impl<W: Words> WordFilter<W> for Rosetta<W> {
    const KIND: FilterKind = FilterKind::Rosetta;

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

impl<W: Words> IntegerProbe for Rosetta<W> {
    fn contains(&self, _key: u64) -> bool {
        todo!()
    }

    fn contains_range(&self, _first: u64, _last: u64) -> bool {
        todo!()
    }

    fn expected_rate(&self, _keys: u64) -> Option<f64> {
        todo!()
    }
}
