//! One side of a comparison: a filter by name; all have the same memory.

use std::fmt;
use std::str::FromStr;

use tamis::Options;
use tamis::OptionsError;

use crate::elastic::memory::bytes_of;
use crate::filters::Side;
use crate::filters::side::UnknownFilter;

/// Elastic filters whose new tables do not inherit hotness from the old ones.
const COLD: &str = "elastic-cold";

/// The end of the names of sides that compute a digest for each filter of a get.
const EACH: &str = "-each";

/// A filter of tables: any name of [`Side`]; `elastic-cold` for `elastic` with `heat_inheritance = false`; `NAME-each` for a
/// filter with `hash_sharing = false`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticSide {
    name: String,
    filter: Side,
    hash_sharing: bool,
}

impl ElasticSide {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its filter: sides with the same filter share their tables.
    pub fn filter(&self) -> &str {
        self.filter.name()
    }

    /// Reports whether its memory follows the reads.
    pub fn is_elastic(&self) -> bool {
        self.filter.is_elastic()
    }

    /// Reports whether its filters change with the reads, so that a placement has to settle.
    pub(super) fn follows_reads(&self) -> bool {
        self.filter.follows_reads()
    }

    /// Reports whether it is one filter for the whole tree, without memory of its own for a table.
    pub fn is_global(&self) -> bool {
        self.filter.is_global()
    }

    /// Sets this filter's options; its memory is `bits` per key for `keys` keys, fixed or as a budget. Fails if the engine
    /// does not have the filter's allocation.
    pub(super) fn apply(&self, bits: f64, keys: u64, options: &mut Options) -> Result<(), OptionsError> {
        self.filter.apply(bits, options)?;
        options.filter_budget_bytes = bytes_of(bits, keys);
        options.heat_inheritance = self.name != COLD;
        options.hash_sharing = self.hash_sharing;
        Ok(())
    }
}

impl fmt::Display for ElasticSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl FromStr for ElasticSide {
    type Err = UnknownFilter;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let each = name.strip_suffix(EACH);
        let filter = if name == COLD { "elastic" } else { each.unwrap_or(name) };
        let filter = filter.parse().map_err(|_| UnknownFilter(name.to_owned()))?;
        Ok(ElasticSide { name: name.to_owned(), filter, hash_sharing: each.is_none() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_has_the_same_memory_and_cold_ones_inherit_nothing() {
        for (name, elastic, inherits) in
            [("elastic", true, true), (COLD, true, false), ("bloom", false, true), ("monkey", false, true)]
        {
            let side: ElasticSide = name.parse().unwrap();
            let mut options = Options::default();
            side.apply(4.0, 1_000_000, &mut options).unwrap();
            options.check().unwrap();
            assert_eq!((side.is_elastic(), options.heat_inheritance), (elastic, inherits), "{name}");
            assert_eq!((options.filter_budget_bytes, options.keyspace.bits_per_key), (500_000, 4.0));
        }
        assert_eq!("elastic-cold".parse::<ElasticSide>().unwrap().filter(), "elastic");
        for (name, shared) in
            [("elastic-each", false), ("elastic-independent-each", false), ("elastic-independent", true)]
        {
            let side: ElasticSide = name.parse().unwrap();
            let mut options = Options::default();
            side.apply(4.0, 1_000_000, &mut options).unwrap();
            assert_eq!((options.hash_sharing, side.is_elastic()), (shared, true), "{name}");
            assert_eq!(side.filter(), name.trim_end_matches(EACH), "the same tables, opened otherwise");
        }
        assert!("elastic-cold-each".parse::<ElasticSide>().is_err());
        assert!("elastic-hot".parse::<ElasticSide>().unwrap_err().to_string().contains("elastic-hot"));
    }
}
