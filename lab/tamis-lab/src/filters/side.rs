//! One side of a comparison: a filter and the allocation of its memory.

use std::fmt;
use std::str::FromStr;

use tamis::Options;
use tamis::OptionsError;
use tamis::options::FilterChoice;

/// Sides named after a value of `keyspace.filter_allocation`, with the filter whose memory it divides.
const ALLOCATIONS: [(&str, &str); 2] = [("monkey", "blocked-bloom"), (MNEMOSYNE, "bloom")];

/// The allocation by observed accesses.
const MNEMOSYNE: &str = "mnemosyne";

/// The allocation of all other sides.
const UNIFORM: &str = "uniform";

/// Default bits per key of SuRF, whose trie alone takes about ten.
const SURF_BITS: f64 = 14.0;

/// Default bits per key of all others.
const BITS: f64 = 10.0;

/// A filter by name: a value of the option `keyspace.filter`, or one of the option `keyspace.filter_allocation` other than
/// `uniform`: `monkey` for `blocked-bloom`, `mnemosyne` for `bloom`, with this allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    name: String,
    filter: FilterChoice,
    allocation: &'static str,
}

impl Side {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports whether it is one filter for the whole tree.
    pub fn is_global(&self) -> bool {
        self.filter.is_global()
    }

    /// Reports whether its memory follows the reads.
    pub fn is_elastic(&self) -> bool {
        self.filter.is_elastic()
    }

    /// Reports whether its memory is divided by what is read: elastic filters while they are read, `mnemosyne` whenever
    /// tables are rewritten.
    pub fn follows_reads(&self) -> bool {
        self.is_elastic() || self.allocation == MNEMOSYNE
    }

    /// Reports whether there is a filter at all.
    pub fn is_filter(&self) -> bool {
        self.filter != FilterChoice::None
    }

    /// Returns the default bits per key.
    pub fn default_bits(&self) -> f64 {
        if matches!(self.filter, FilterChoice::Surf(_)) { SURF_BITS } else { BITS }
    }

    /// Sets the options of this filter. Fails if the engine does not have its allocation.
    pub(crate) fn apply(&self, bits: f64, options: &mut Options) -> Result<(), OptionsError> {
        if let FilterChoice::External(_) = self.filter {
            options.operators = tamis_rivals::operators(std::mem::take(&mut options.operators));
        }
        let keyspace = &mut options.keyspace;
        keyspace.filter = self.filter.into();
        keyspace.bits_per_key = bits;
        options.set("keyspace.filter_allocation", self.allocation)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// A name that belongs to no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no filter is called `{name}`; known are monkey (blocked-bloom, its memory divided by Monkey's rule), mnemosyne (bloom, its \
     memory divided by observed accesses), and the values of the option keyspace.filter: {words}",
    name = .0,
    words = filter_words()
)]
pub struct UnknownFilter(pub String);

impl FromStr for Side {
    type Err = UnknownFilter;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = ALLOCATIONS.into_iter().find(|(allocation, _)| *allocation == name);
        let (allocation, filter) = found.unwrap_or((UNIFORM, name));
        let filter = filter_of(filter).ok_or_else(|| UnknownFilter(name.to_owned()))?;
        Ok(Side { name: name.to_owned(), filter, allocation })
    }
}

/// Returns the filter with this option value. One for all levels only, since a list would be several.
fn filter_of(word: &str) -> Option<FilterChoice> {
    let mut options = Options::default();
    let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    (is_word && tamis_rivals::set_filter(&mut options, word).is_ok()).then(|| options.keyspace.filter.at(0))
}

fn filter_words() -> String {
    let info = Options::describe().into_iter().find(|info| info.name == "keyspace.filter");
    let rivals = tamis_rivals::ALL.map(|rival| rival.name()).join(", ");
    format!("{}; and {rivals}", info.map_or_else(String::new, |info| info.takes.to_string()))
}

#[cfg(test)]
mod tests {
    use tamis::options::FilterAllocation;

    use super::*;

    #[test]
    fn every_filter_of_the_engine_has_a_side_and_others_are_refused_with_a_list() {
        for name in
            ["none", "blocked-bloom", "surf", "snarf", "rencoder", "grf", "grf-huffman", "chucky", "remix"]
        {
            let side: Side = name.parse().unwrap();
            let mut options = Options::default();
            side.apply(9.0, &mut options).unwrap();
            options.check().unwrap();
            assert_eq!((side.name(), options.keyspace.bits_per_key), (name, 9.0));
        }
        for name in ["", "sieve", "grf,grf", "GRF"] {
            let refused = name.parse::<Side>().unwrap_err().to_string();
            assert!(refused.contains(&format!("`{name}`")) && refused.contains("rencoder"), "{refused}");
        }
    }

    #[test]
    fn monkey_is_bloom_with_another_allocation() {
        let side: Side = "monkey".parse().unwrap();
        let mut options = Options::default();
        side.apply(10.0, &mut options).unwrap();
        assert_eq!(options.keyspace.filter_allocation, FilterAllocation::Monkey);
        assert_eq!(options.keyspace.filter.at(3), FilterChoice::BlockedBloom);
        // The allocation must be reset when the next side is applied.
        "grf".parse::<Side>().unwrap().apply(10.0, &mut options).unwrap();
        options.check().unwrap();
    }

    /// The side exists whether or not the engine has the allocation: without it, the engine's message names the option.
    #[test]
    fn mnemosyne_is_bloom_divided_by_observed_accesses() {
        let side: Side = "mnemosyne".parse().unwrap();
        assert_eq!(
            (side.filter, side.allocation, side.is_elastic()),
            (filter_of("bloom").unwrap(), "mnemosyne", false)
        );
        let mut options = Options::default();
        match side.apply(4.0, &mut options) {
            Ok(()) => assert!(options.to_text().contains("mnemosyne")),
            Err(why) => assert!(why.to_string().contains("filter_allocation"), "{why}"),
        }
    }
}
