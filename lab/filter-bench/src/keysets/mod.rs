//! Key sets: the keys of a filter, and absent keys of the same source.
//!
//! Every set is divided into two halves by a hash of the key, so that the division does not depend on the order of the
//! source, on the number of requested keys, or on chance. The first half goes into filters; the second is held out.

mod files;
mod synthetic;

use std::error::Error;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tamis_filter::{Digest, KeyList};
use tamis_lab::samples;

/// A key set by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Name {
    /// Uniform 64-bit integers.
    Uniform,
    /// Normally distributed 64-bit integers.
    Normal,
    /// 64-bit cells (Morton codes) of the places of the GeoNames sample.
    Cells,
    /// First addresses of blocks of IPv4 addresses, as 64-bit integers.
    Ips,
    /// English words.
    Words,
    /// Paths of files on this machine.
    Paths,
    /// Names of places of the GeoNames sample, as in the main program's keys.
    Places,
}

impl Name {
    /// All key sets.
    pub(crate) const ALL: [Name; 7] =
        [Name::Uniform, Name::Normal, Name::Cells, Name::Ips, Name::Words, Name::Paths, Name::Places];

    /// Returns the name on the command line.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Name::Uniform => "uniform",
            Name::Normal => "normal",
            Name::Cells => "cells",
            Name::Ips => "ips",
            Name::Words => "words",
            Name::Paths => "paths",
            Name::Places => "places",
        }
    }
}

/// The sources of keys, if not the included samples.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Sources {
    /// File of IPv4 addresses, one per line, instead of the sample
    #[arg(long, value_name = "FILE")]
    pub ips: Option<PathBuf>,
    /// File of coordinates, LATITUDE,LONGITUDE, one per line, instead of the sample's
    #[arg(long, value_name = "FILE")]
    pub cells: Option<PathBuf>,
    /// File of words, one per line, instead of the sample
    #[arg(long, value_name = "FILE")]
    pub words: Option<PathBuf>,
    /// Directory of the files whose paths are the keys of `paths` [default: /usr, else the Rust toolchain]
    #[arg(long, value_name = "DIR")]
    pub paths: Option<PathBuf>,
}

/// The keys of a filter, and absent keys.
#[derive(Clone, Debug)]
pub(crate) struct KeySet {
    /// Short name.
    pub name: &'static str,
    /// Description and source of the keys.
    pub about: String,
    /// Whether keys are 64-bit integers, written as eight big-endian bytes.
    pub integers: bool,
    /// The keys that filters are built over, ascending, without duplicates.
    pub members: KeyList,
    /// Keys of the same source that are not members, ascending, without duplicates.
    pub held_out: KeyList,
}

impl KeySet {
    /// Loads the set called `name` with about `keys` members, or with all if the source has fewer.
    pub(crate) fn load(
        name: Name,
        keys: usize,
        seed: u64,
        sources: &Sources,
    ) -> Result<Self, Box<dyn Error>> {
        let text = name.text();
        let set = match name {
            Name::Uniform => {
                Self::of_integers(text, "Uniform 64-bit integers", synthetic::uniform(keys, seed), keys)
            }
            Name::Normal => {
                let about = "Normally distributed 64-bit integers, mean 2^63, standard deviation 2^59";
                Self::of_integers(text, about, synthetic::normal(keys, seed), keys)
            }
            Name::Cells => {
                let (places, from) = match &sources.cells {
                    Some(file) => (files::coordinates(file)?, file.display().to_string()),
                    None => (tamis_bench::keys::places(), "the GeoNames sample".to_owned()),
                };
                let cells = places.into_iter().map(|(lat, lon)| tamis_bench::keys::cell(lat, lon)).collect();
                Self::of_integers(
                    text,
                    format!("64-bit cells (Morton codes) of the places of {from}"),
                    cells,
                    keys,
                )
            }
            Name::Ips => {
                let (addresses, from) = match &sources.ips {
                    Some(file) => {
                        (files::addresses(file)?, format!("IPv4 addresses from {}", file.display()))
                    }
                    None => {
                        (samples::addresses()?, "First addresses of allocated IPv4 blocks (NRO)".to_owned())
                    }
                };
                Self::of_integers(text, format!("{from}, as 64-bit integers"), addresses, keys)
            }
            Name::Words => {
                let (words, from) = match &sources.words {
                    Some(file) => (files::lines(file)?, file.display().to_string()),
                    None => (samples::words()?, "the most frequent English ones (wordfreq)".to_owned()),
                };
                Self::of_strings(text, format!("Words: {from}"), words, keys)
            }
            Name::Paths => {
                let root = files::default_root(sources.paths.as_deref());
                let about = format!("Paths of the files below {}", root.display());
                Self::of_strings(text, about, files::walk(&root)?, keys)
            }
            Name::Places => Self::of_strings(
                text,
                "Country, region, name and place of cities (GeoNames)",
                samples::places(),
                keys,
            ),
        };
        if set.members.len() < 2 || set.held_out.is_empty() {
            return Err(format!("the key set {text} has too few keys: {}", set.about).into());
        }
        Ok(set)
    }

    fn of_integers(name: &'static str, about: impl Into<String>, mut keys: Vec<u64>, limit: usize) -> Self {
        keys.sort_unstable();
        keys.dedup();
        let keys: KeyList =
            keys.iter().map(|key| key.to_be_bytes()).collect::<Vec<_>>().iter().map(|k| &k[..]).collect();
        let (members, held_out) = split(&keys, limit);
        Self { name, about: about.into(), integers: true, members, held_out }
    }

    fn of_strings(name: &'static str, about: impl Into<String>, keys: Vec<Vec<u8>>, limit: usize) -> Self {
        let keys: KeyList = keys.iter().map(|key| &key[..]).collect();
        let (members, held_out) = split(&keys.sorted(), limit);
        Self { name, about: about.into(), integers: false, members, held_out }
    }

    /// Returns the set with at most `count` members, taken at equal distances in key order.
    pub(crate) fn thinned(&self, count: usize) -> Self {
        let have = self.members.len();
        if have <= count {
            return self.clone();
        }
        let members =
            (0..count).map(|i| self.members.get((i as u128 * have as u128 / count as u128) as usize));
        Self { members: members.collect(), ..self.clone() }
    }

    /// Returns the digests of the members, in key order.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        self.members.iter().map(Digest::of).collect()
    }

    /// Returns the mean length of a member in bytes.
    pub(crate) fn mean_bytes(&self) -> f64 {
        self.members.iter().map(|key| key.len() as f64).sum::<f64>() / self.members.len() as f64
    }
}

/// Divides ascending keys by the lowest bit of a hash, and keeps at most `limit` keys of each half: those with the
/// smallest hashes, which are spread evenly.
fn split(keys: &KeyList, limit: usize) -> (KeyList, KeyList) {
    /// Any seed except 0, which is the one of the digests in filters.
    const SPLIT: u64 = 0x5911;
    let hash = |key: &[u8]| Digest::seeded(key, SPLIT).get();
    let half = |side: u64| -> KeyList {
        let mut hashes: Vec<u64> = keys.iter().map(hash).filter(|hash| hash & 1 == side).collect();
        let largest = if hashes.len() > limit && limit > 0 {
            *hashes.select_nth_unstable(limit - 1).1
        } else {
            u64::MAX
        };
        keys.iter().filter(|key| hash(key) & 1 == side && hash(key) <= largest).collect()
    };
    (half(0), half(1))
}

/// Returns the position of the first key that is not below `key`.
pub(crate) fn lower_bound(keys: &KeyList, key: &[u8]) -> usize {
    let (mut low, mut high) = (0, keys.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if keys.get(middle) < key { low = middle + 1 } else { high = middle }
    }
    low
}

/// Reports whether `key` is one of the ascending `keys`.
#[cfg(test)]
pub(crate) fn holds(keys: &KeyList, key: &[u8]) -> bool {
    let at = lower_bound(keys, key);
    at < keys.len() && keys.get(at) == key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: u32) -> Vec<Vec<u8>> {
        (0..count).map(|i| format!("word {i}").into_bytes()).collect()
    }

    #[test]
    fn the_halves_are_disjoint_complete_and_of_similar_size() {
        let set = KeySet::of_strings("x", "", words(10_000), usize::MAX);
        assert_eq!(set.members.len() + set.held_out.len(), 10_000);
        assert!((4_700..5_300).contains(&set.members.len()));
        assert!(set.held_out.iter().all(|key| !holds(&set.members, key)));
        assert!(set.members.iter().all(|key| holds(&set.members, key)));
    }

    #[test]
    fn the_split_depends_on_nothing_but_the_key() {
        let all = KeySet::of_strings("x", "", words(1_000), usize::MAX);
        let mut shuffled = words(2_000);
        shuffled.reverse();
        let more = KeySet::of_strings("x", "", shuffled, usize::MAX);
        assert!(all.members.iter().all(|key| holds(&more.members, key)));
        let few = KeySet::of_strings("x", "", words(1_000), 100);
        assert_eq!((few.members.len(), few.held_out.len()), (100, 100));
        assert!(few.members.iter().all(|key| holds(&all.members, key)));
    }

    #[test]
    fn thinning_keeps_order_and_spread() {
        let set = KeySet::of_strings("x", "", words(10_000), usize::MAX);
        let thin = set.thinned(100);
        assert_eq!(thin.members.len(), 100);
        assert_eq!(thin.members.first(), set.members.first());
        assert!(thin.members.iter().is_sorted_by(|a, b| a < b));
        assert_eq!(set.thinned(usize::MAX).members.len(), set.members.len());
    }

    #[test]
    fn every_included_set_has_keys_of_its_form() {
        for name in Name::ALL {
            let set = KeySet::load(name, 3_000, 1, &Sources::default()).unwrap();
            assert!(set.members.len() > 1_000, "{name:?}");
            assert!(set.members.iter().is_sorted_by(|a, b| a < b));
            assert!(set.held_out.iter().is_sorted_by(|a, b| a < b));
            assert!(!set.integers || set.members.iter().all(|key| key.len() == 8));
            assert_eq!(set.integers, matches!(name, Name::Uniform | Name::Normal | Name::Cells | Name::Ips));
        }
    }

    #[test]
    fn bounds_are_found() {
        let keys: KeyList = [&b"b"[..], b"d"].into_iter().collect();
        let at = |key: &[u8]| lower_bound(&keys, key);
        assert_eq!((at(b"a"), at(b"b"), at(b"c"), at(b"d"), at(b"e")), (0, 0, 1, 1, 2));
    }
}
