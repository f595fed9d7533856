//! The filters of `tamis-filter` by name, built over a key set.

use tamis_filter::{
    BloomScheme, Digest, FilterError, FilterKind, KeyRange, PointFilter, PointSpec, RangeFilter, RangeSpec,
    SurfSuffix, Verify,
};

use crate::keysets::KeySet;
use crate::queries::Width;

/// A kind of filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    /// The name on the command line and in tables.
    pub name: &'static str,
    spec: Spec,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spec {
    Point(PointSpec),
    Range(RangeSpec),
}

/// Default maximum width of ranges for Rosetta.
pub(crate) const ROSETTA_RANGE: u64 = 64;

const fn point(name: &'static str, spec: PointSpec) -> Kind {
    Kind { name, spec: Spec::Point(spec) }
}

const fn range(name: &'static str, spec: RangeSpec) -> Kind {
    Kind { name, spec: Spec::Range(spec) }
}

/// All kinds: point filters, then range filters.
pub(crate) const KINDS: &[Kind] = &[
    point("bloom", PointSpec::Bloom(BloomScheme::Rotation)),
    point("bloom-double", PointSpec::Bloom(BloomScheme::DoubleHashing)),
    point("blocked-bloom", PointSpec::BlockedBloom),
    point("ribbon", PointSpec::Ribbon),
    point("fuse", PointSpec::BinaryFuse),
    point("xor", PointSpec::Xor),
    point("cuckoo", PointSpec::Cuckoo),
    range("surf-base", RangeSpec::Surf(SurfSuffix::None)),
    range("surf-hash", RangeSpec::Surf(SurfSuffix::Hash)),
    range("surf-real", RangeSpec::Surf(SurfSuffix::Real)),
    range("surf-mixed", RangeSpec::Surf(SurfSuffix::Mixed)),
    range("snarf", RangeSpec::Snarf),
    range("rosetta", RangeSpec::Rosetta { max_range: ROSETTA_RANGE }),
    range("rencoder", RangeSpec::REncoder),
    range("grafite", RangeSpec::Grafite),
];

impl Kind {
    /// Returns the kinds that `word` selects: one kind, or `points`, `ranges`, `all`.
    pub(crate) fn named(word: &str) -> Result<Vec<Kind>, String> {
        let chosen: Vec<Kind> = match word {
            "all" => KINDS.to_vec(),
            "points" => KINDS.iter().filter(|kind| !kind.is_range()).copied().collect(),
            "ranges" => KINDS.iter().filter(|kind| kind.is_range()).copied().collect(),
            name => KINDS.iter().filter(|kind| kind.name == name).copied().collect(),
        };
        if chosen.is_empty() {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            return Err(format!(
                "no filter is called {word}; known are all, points, ranges, {}",
                names.join(", ")
            ));
        }
        Ok(chosen)
    }

    /// Reports whether it answers range queries.
    pub(crate) fn is_range(&self) -> bool {
        matches!(self.spec, Spec::Range(_))
    }

    /// Returns the kind for ranges of up to `width` integers, where it depends on a width.
    pub(crate) fn for_ranges(self, width: u64) -> Self {
        match self.spec {
            Spec::Range(RangeSpec::Rosetta { .. }) => {
                range(self.name, RangeSpec::Rosetta { max_range: width })
            }
            _ => self,
        }
    }

    /// Builds a filter over the members of `set`. Their digests are passed so that a point filter need not hash.
    pub(crate) fn build(
        &self,
        set: &KeySet,
        digests: &[Digest],
        bits: f64,
        salt: u64,
    ) -> Result<Filter, FilterError> {
        Ok(match self.spec {
            Spec::Point(spec) => Filter::Point(PointFilter::build(spec, digests, bits, salt, Verify::No)?),
            Spec::Range(spec) => {
                Filter::Range(RangeFilter::build(spec, &set.members, bits, salt, Verify::No)?)
            }
        })
    }
}

/// A built filter.
pub(crate) enum Filter {
    /// Queried with digests.
    Point(PointFilter),
    /// Queried with keys.
    Range(RangeFilter),
}

impl Filter {
    /// Reports whether it may contain the key.
    pub(crate) fn contains(&self, key: &[u8], digest: Digest) -> bool {
        match self {
            Filter::Point(filter) => filter.contains(digest),
            Filter::Range(filter) => filter.contains_key(key, digest),
        }
    }

    /// Reports whether it may contain a key in `range`; always true for a point filter.
    pub(crate) fn contains_range(&self, range: KeyRange<'_>) -> bool {
        match self {
            Filter::Point(_) => true,
            Filter::Range(filter) => filter.contains_range(range),
        }
    }

    /// Returns its bits per key.
    pub(crate) fn bits_per_key(&self) -> f64 {
        match self {
            Filter::Point(filter) => filter.bits_per_key(),
            Filter::Range(filter) => filter.bits_per_key(),
        }
    }

    /// Returns the theoretical false positive rate of empty queries of `width`, if there is one. Filters over integers
    /// do not distinguish strings with the same number, so their rate does not apply to `strings`.
    pub(crate) fn expected_rate(&self, width: Width, strings: bool) -> Option<f64> {
        match self {
            Filter::Point(filter) => (width == Width::Point).then(|| filter.expected_rate()),
            Filter::Range(filter) if strings && filter.kind() != FilterKind::Surf => None,
            Filter::Range(filter) => filter.expected_rate(width.integers()?),
        }
    }

    /// Returns enough copies to fill `bytes` of memory, at least one: the same filter at different addresses has the
    /// probing cost of different filters.
    pub(crate) fn copies(&self, bytes: usize) -> Result<Vec<Filter>, FilterError> {
        let encoded = match self {
            Filter::Point(filter) => filter.to_bytes(),
            Filter::Range(filter) => filter.to_bytes(),
        };
        let count = bytes.div_ceil(encoded.len()).max(1);
        (0..count)
            .map(|_| match self {
                Filter::Point(_) => PointFilter::open(&encoded).map(Filter::Point),
                Filter::Range(_) => RangeFilter::open(&encoded).map(Filter::Range),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keysets::{Name, Sources};

    #[test]
    fn names_are_known_and_groups_are_complete() {
        assert_eq!(Kind::named("all").unwrap().len(), KINDS.len());
        let (points, ranges) = (Kind::named("points").unwrap(), Kind::named("ranges").unwrap());
        assert_eq!(points.len() + ranges.len(), KINDS.len());
        assert!(ranges.iter().all(Kind::is_range) && !points.iter().any(Kind::is_range));
        assert!(Kind::named("bluum").unwrap_err().contains("blocked-bloom"));
        for kind in KINDS {
            assert_eq!(Kind::named(kind.name).unwrap(), [*kind], "names are unique");
        }
    }

    #[test]
    fn copies_fill_the_requested_memory_and_give_the_same_answers() {
        let set = KeySet::load(Name::Uniform, 1_000, 1, &Sources::default()).unwrap();
        let digests = set.digests();
        let filter = Kind::named("blocked-bloom").unwrap()[0].build(&set, &digests, 10.0, 1).unwrap();
        let copies = filter.copies(100_000).unwrap();
        assert!((70..90).contains(&copies.len()), "{}", copies.len());
        assert!(copies.iter().all(|copy| digests.iter().all(|&digest| copy.contains(b"", digest))));
        assert_eq!(filter.copies(0).unwrap().len(), 1);
    }
}
