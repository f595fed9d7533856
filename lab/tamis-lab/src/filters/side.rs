//! One side of a comparison: a filter and how its memory is divided.

use std::fmt;
use std::str::FromStr;

use tamis::Options;
use tamis::options::{FilterAllocation, FilterChoice};

/// The word for Bloom filters with Monkey's division of memory.
const MONKEY: &str = "monkey";

/// What SuRF gets where nobody says how many bits a key: its trie alone takes some ten.
const SURF_BITS: f64 = 14.0;

/// What all others get then.
const BITS: f64 = 10.0;

/// A filter by its name: a word of the option `keyspace.filter`, or `monkey` for `blocked-bloom` with
/// `keyspace.filter_allocation = monkey`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    name: String,
    filter: FilterChoice,
    monkey: bool,
}

impl Side {
    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is one filter for the whole tree.
    pub fn is_global(&self) -> bool {
        self.filter.is_global()
    }

    /// Whether its memory follows the reads.
    pub fn is_elastic(&self) -> bool {
        self.filter.is_elastic()
    }

    /// Whether there is a filter at all.
    pub fn is_filter(&self) -> bool {
        self.filter != FilterChoice::None
    }

    /// Bits a key where nobody says how many.
    pub fn default_bits(&self) -> f64 {
        if matches!(self.filter, FilterChoice::Surf(_)) { SURF_BITS } else { BITS }
    }

    /// Sets the options of this filter.
    pub(crate) fn apply(&self, bits: f64, options: &mut Options) {
        let keyspace = &mut options.keyspace;
        keyspace.filter = self.filter.into();
        keyspace.bits_per_key = bits;
        keyspace.filter_allocation =
            if self.monkey { FilterAllocation::Monkey } else { FilterAllocation::Uniform };
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// A name that no filter has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no filter is called `{name}`; there is monkey (blocked-bloom, its memory divided by Monkey's rule), and what the \
     option keyspace.filter takes: {words}",
    name = .0,
    words = filter_words()
)]
pub struct UnknownFilter(pub String);

impl FromStr for Side {
    type Err = UnknownFilter;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let monkey = name == MONKEY;
        let filter = filter_of(if monkey { "blocked-bloom" } else { name });
        let filter = filter.ok_or_else(|| UnknownFilter(name.to_owned()))?;
        Ok(Side { name: name.to_owned(), filter, monkey })
    }
}

/// The filter that the options call so. One for all levels only: a list would be several.
fn filter_of(word: &str) -> Option<FilterChoice> {
    let mut options = Options::default();
    let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    (is_word && options.set("keyspace.filter", word).is_ok()).then(|| options.keyspace.filter.at(0))
}

fn filter_words() -> String {
    let info = Options::describe().into_iter().find(|info| info.name == "keyspace.filter");
    info.map_or_else(String::new, |info| info.takes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_of_the_engine_has_a_side_and_others_are_refused_with_what_there_is() {
        for name in
            ["none", "blocked-bloom", "surf", "snarf", "rencoder", "grf", "grf-huffman", "chucky", "remix"]
        {
            let side: Side = name.parse().unwrap();
            let mut options = Options::default();
            side.apply(9.0, &mut options);
            options.check().unwrap();
            assert_eq!((side.name(), options.keyspace.bits_per_key), (name, 9.0));
        }
        for name in ["", "sieve", "grf,grf", "GRF"] {
            let refused = name.parse::<Side>().unwrap_err().to_string();
            assert!(refused.contains(&format!("`{name}`")) && refused.contains("rencoder"), "{refused}");
        }
    }

    #[test]
    fn monkey_is_bloom_with_another_division() {
        let side: Side = MONKEY.parse().unwrap();
        let mut options = Options::default();
        side.apply(10.0, &mut options);
        assert_eq!(options.keyspace.filter_allocation, FilterAllocation::Monkey);
        assert_eq!(options.keyspace.filter.at(3), FilterChoice::BlockedBloom);
        // The division must not stay when the next side is applied.
        "grf".parse::<Side>().unwrap().apply(10.0, &mut options);
        options.check().unwrap();
    }
}
