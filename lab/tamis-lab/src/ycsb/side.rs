//! One side of the comparison: a filter, and its memory if it differs from the others'.

use std::fmt;
use std::str::FromStr;

use tamis::Options;
use tamis::OptionsError;

use crate::filters::Side;
use crate::filters::side::UnknownFilter;

/// `NAME`, or `NAME@BITS` for a side with its own bits per key. [`Side`] defines the names.
#[derive(Clone, Debug, PartialEq)]
pub struct YcsbSide {
    name: String,
    filter: Side,
    own_bits: Option<f64>,
}

impl YcsbSide {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its filter.
    pub fn filter(&self) -> &str {
        self.filter.name()
    }

    /// Returns its bits per key, where `given` applies to all sides unless absent; 0 for no filter.
    pub fn bits(&self, given: Option<f64>) -> f64 {
        match self.filter.is_filter() {
            true => self.own_bits.or(given).unwrap_or(self.filter.default_bits()),
            false => 0.0,
        }
    }

    /// Sets this filter's options for a database of `keys` keys: bits per key, and the same memory as a budget for
    /// filters whose memory follows the reads.
    /// Fails if the engine does not have the filter's allocation.
    pub(super) fn apply(
        &self,
        given: Option<f64>,
        keys: u64,
        options: &mut Options,
    ) -> Result<(), OptionsError> {
        let bits = self.own_bits.or(given).unwrap_or(self.filter.default_bits());
        self.filter.apply(bits, options)?;
        if self.filter.is_elastic() {
            options.filter_budget_bytes = (bits * keys as f64 / 8.0) as u64;
        }
        Ok(())
    }
}

impl fmt::Display for YcsbSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// An invalid side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSide {
    /// No filter has this name.
    #[error(transparent)]
    Filter(#[from] UnknownFilter),
    /// The part after `@` is not a number of bits.
    #[error("`{0}`: @ must be followed by a positive number of bits per key, as in bloom@4")]
    Bits(String),
}

impl FromStr for YcsbSide {
    type Err = BadSide;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (filter, bits) = match text.split_once('@') {
            Some((filter, bits)) => (filter, Some(bits)),
            None => (text, None),
        };
        let filter: Side = filter.parse()?;
        let own_bits = bits.map(|bits| match bits.parse::<f64>() {
            Ok(bits) if bits > 0.0 && bits.is_finite() && filter.is_filter() => Ok(bits),
            _ => Err(BadSide::Bits(text.to_owned())),
        });
        Ok(YcsbSide { name: text.to_owned(), filter, own_bits: own_bits.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_has_the_common_memory_or_its_own() {
        let side = |text: &str| text.parse::<YcsbSide>().unwrap();
        assert_eq!((side("bloom").bits(None), side("bloom").bits(Some(6.0))), (10.0, 6.0));
        assert_eq!((side("bloom@4").bits(None), side("bloom@4").bits(Some(6.0))), (4.0, 4.0));
        assert_eq!((side("none").bits(Some(6.0)), side("elastic@4.5").filter()), (0.0, "elastic"));
        let mut options = Options::default();
        side("elastic@4").apply(Some(10.0), 1_000_000, &mut options).unwrap();
        assert_eq!((options.keyspace.bits_per_key, options.filter_budget_bytes), (4.0, 500_000));
        options.check().unwrap();
    }

    #[test]
    fn invalid_sides_are_refused() {
        for text in
            ["sieve@4", "bloom@", "bloom@x", "bloom@0", "bloom@-1", "bloom@inf", "none@4", "bloom@4@4", ""]
        {
            let refused = text.parse::<YcsbSide>().unwrap_err().to_string();
            assert!(
                refused.contains("sieve") || refused.contains("@") || refused.contains("``"),
                "{refused}"
            );
        }
    }
}
