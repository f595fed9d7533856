//! The filters of other crates and of tamis that are compared.

use std::hash::{BuildHasher, Hasher};

use cuckoofilter::CuckooFilter;
use fastbloom::BloomFilter;
use grafite::{PairwiseIndependentHasher, RangeFilter as GrafiteFilter};
use scalable_cuckoo_filter::ScalableCuckooFilterBuilder;
use tamis_filter::{
    BinaryFuse, BlockedBloom, Bloom, BloomScheme, Cuckoo, Digest, FilterError, IntegerProbe, RangeFilter,
    RangeSpec, Ribbon, Verify, Xor,
};
use xorf::{BinaryFuse8, BinaryFuse16, Filter as _, Xor8};

use super::interface::{Candidate, Keys, Recipe};

/// Number of neighbouring integers queried at once where ranges are compared.
pub(super) const RANGE: u64 = 16;

/// For crates that insist on hashing: keys are already hashes, so this costs next to nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = Digest::from_u64(self.0 ^ value).remix(1);
    }
}

impl BuildHasher for Mixer {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// A point filter of tamis, with its concrete type on both sides of the comparison: the costs of dynamic dispatch are
/// part of `table`.
macro_rules! ours {
    ($name:literal, $filter:ident, $build:expr) => {{
        let build: fn(&[Digest], f64, u64) -> Result<$filter, FilterError> = $build;
        Box::new(Recipe {
            name: $name,
            note: "takes the hash; remixes it with the filter's salt",
            build: move |keys: &Keys, bits| build(&keys.digests, bits, keys.len() as u64).map_err(text),
            contains: |filter: &$filter, key| filter.contains(Digest::from_u64(key)),
            bytes: |filter: &$filter| (filter.bits_per_key() * filter.keys() as f64 / 8.0) as usize,
        })
    }};
}

/// Returns the standard Bloom filter of tamis.
pub(super) fn bloom() -> Box<dyn Candidate> {
    ours!("tamis bloom", Bloom, |digests, bits, salt| {
        Bloom::build(digests, bits, BloomScheme::Rotation, salt)
    })
}

/// Returns the blocked Bloom filter of tamis.
pub(super) fn blocked_bloom() -> Box<dyn Candidate> {
    ours!("tamis blocked-bloom", BlockedBloom, BlockedBloom::build)
}

/// Returns the XOR filter of tamis.
pub(super) fn xor() -> Box<dyn Candidate> {
    ours!("tamis xor", Xor, Xor::build)
}

/// Returns the binary fuse filter of tamis.
pub(super) fn fuse() -> Box<dyn Candidate> {
    ours!("tamis fuse", BinaryFuse, BinaryFuse::build)
}

/// Returns the ribbon filter of tamis.
pub(super) fn ribbon() -> Box<dyn Candidate> {
    ours!("tamis ribbon", Ribbon, Ribbon::build)
}

/// Returns the cuckoo filter of tamis.
pub(super) fn cuckoo() -> Box<dyn Candidate> {
    ours!("tamis cuckoo", Cuckoo, Cuckoo::build)
}

/// Returns Grafite of tamis, queried for ranges of integers.
pub(super) fn grafite() -> Box<dyn Candidate> {
    Box::new(Recipe {
        name: "tamis grafite",
        note: "built from keys as byte strings, sorted before",
        build: |keys: &Keys, bits| {
            RangeFilter::build(RangeSpec::Grafite, keys.sorted(), bits, 1, Verify::No).map_err(text)
        },
        contains: |filter: &RangeFilter, key| match filter {
            RangeFilter::Grafite(mapped) => {
                mapped.filter().contains_range(key, key.saturating_add(RANGE - 1))
            }
            _ => true,
        },
        bytes: |filter: &RangeFilter| (filter.bits_per_key() * filter.keys() as f64 / 8.0) as usize,
    })
}

/// Returns `fastbloom`: a standard Bloom filter.
pub(super) fn fastbloom() -> Box<dyn Candidate> {
    Box::new(Recipe {
        name: "fastbloom",
        note: "takes the hash (contains_hash)",
        build: |keys: &Keys, bits| {
            let bits = (keys.len() as f64 * bits) as usize;
            let mut filter = BloomFilter::with_num_bits(bits).seed(&1).expected_items(keys.len());
            keys.hashes.iter().for_each(|&key| {
                filter.insert_hash(key);
            });
            Ok(filter)
        },
        contains: |filter: &BloomFilter, key| filter.contains_hash(key),
        bytes: |filter: &BloomFilter| filter.num_bits() / 8,
    })
}

/// Returns `sbbf-rs-safe`: the split block Bloom filter of Parquet.
pub(super) fn sbbf() -> Box<dyn Candidate> {
    Box::new(Recipe {
        name: "sbbf-rs-safe",
        note: "takes the hash; blocks of 32 bytes, always 8 probes",
        build: |keys: &Keys, bits: f64| {
            let mut filter = sbbf_rs_safe::Filter::new(bits as usize, keys.len());
            keys.hashes.iter().for_each(|&key| {
                filter.insert_hash(key);
            });
            Ok(filter)
        },
        contains: |filter: &sbbf_rs_safe::Filter, key| filter.contains_hash(key),
        bytes: |filter: &sbbf_rs_safe::Filter| filter.as_bytes().len(),
    })
}

macro_rules! xorf {
    ($function:ident, $filter:ident, $name:literal, $bytes:literal) => {
        /// Returns a filter of `xorf`.
        pub(crate) fn $function() -> Box<dyn Candidate> {
            Box::new(Recipe {
                name: $name,
                note: "takes the hash; mixes it with its seed; wants keys without duplicates",
                build: |keys: &Keys, _| xorf!(@build $filter, keys),
                contains: |filter: &$filter, key| filter.contains(&key),
                bytes: |filter: &$filter| filter.len() * $bytes,
            })
        }
    };
    (@build Xor8, $keys:ident) => { Ok(Xor8::from(&$keys.hashes[..])) };
    (@build $filter:ident, $keys:ident) => { $filter::try_from(&$keys.hashes[..]).map_err(text) };
}

xorf!(xorf_xor8, Xor8, "xorf Xor8", 1);
xorf!(xorf_fuse8, BinaryFuse8, "xorf BinaryFuse8", 1);
xorf!(xorf_fuse16, BinaryFuse16, "xorf BinaryFuse16", 2);

/// Returns `cuckoofilter`: fingerprints of 8 bits, a power of two of buckets.
pub(super) fn cuckoofilter() -> Box<dyn Candidate> {
    Box::new(Recipe {
        name: "cuckoofilter",
        note: "hashes again (twice per probe), here with a few multiplications; size rounded to a power of two",
        build: |keys: &Keys, _| {
            let mut filter = CuckooFilter::<Mixer>::with_capacity(keys.len() * 20 / 19);
            for key in &keys.hashes {
                filter.add(key).map_err(text)?;
            }
            Ok(filter)
        },
        contains: |filter: &CuckooFilter<Mixer>, key| filter.contains(&key),
        bytes: |filter: &CuckooFilter<Mixer>| filter.memory_usage(),
    })
}

/// Returns `scalable_cuckoo_filter`, sized for all keys at once.
pub(super) fn scalable_cuckoo() -> Box<dyn Candidate> {
    type Filter = scalable_cuckoo_filter::ScalableCuckooFilter<u64, Mixer>;
    Box::new(Recipe {
        name: "scalable_cuckoo_filter",
        note: "hashes again, here with a few multiplications; a requested rate of 3 %; size rounded up",
        build: |keys: &Keys, _| {
            let builder = ScalableCuckooFilterBuilder::new().initial_capacity(keys.len());
            let mut filter: Filter =
                builder.false_positive_probability(0.03).hasher(Mixer::default()).finish();
            keys.hashes.iter().for_each(|key| filter.insert(key));
            Ok(filter)
        },
        contains: |filter: &Filter, key| filter.contains(&key),
        bytes: |filter: &Filter| filter.bits() as usize / 8,
    })
}

/// Returns `qfilter`: a quotient filter.
pub(super) fn qfilter() -> Box<dyn Candidate> {
    Box::new(Recipe {
        name: "qfilter",
        note: "takes the hash (contains_fingerprint); a requested rate of 1 %; size rounded to a power of two",
        build: |keys: &Keys, _| {
            let mut filter = qfilter::Filter::new(keys.len() as u64, 0.01).map_err(text)?;
            for &key in &keys.hashes {
                filter.insert_fingerprint(false, key).map_err(text)?;
            }
            Ok(filter)
        },
        contains: |filter: &qfilter::Filter, key| filter.contains_fingerprint(key),
        bytes: |filter: &qfilter::Filter| filter.memory_usage(),
    })
}

/// Returns the filter of the `grafite` crate.
pub(super) fn grafite_crate() -> Box<dyn Candidate> {
    Box::new(Recipe {
        name: "grafite",
        note: "built from integers in no order; made for ranges of 16",
        build: |keys: &Keys, bits: f64| {
            let hasher = PairwiseIndependentHasher::new_with_space_budget(keys.len(), bits as u8, RANGE)
                .map_err(text)?;
            Ok(GrafiteFilter::new(keys.hashes.iter().copied(), hasher))
        },
        contains: |filter: &GrafiteFilter, key: u64| filter.query(key..=key.saturating_add(RANGE - 1)),
        bytes: |filter: &GrafiteFilter| filter.ef.heap_size(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_of_another_crate_keeps_its_keys() {
        let keys = Keys::numbered(0, 5_000);
        let others = Keys::numbered(1 << 60, 20_000).hashes;
        let candidates = [
            fastbloom(),
            sbbf(),
            xorf_xor8(),
            xorf_fuse8(),
            xorf_fuse16(),
            cuckoofilter(),
            scalable_cuckoo(),
            qfilter(),
            bloom(),
            blocked_bloom(),
        ];
        for candidate in candidates {
            let built = candidate.build(&keys, 10.0).unwrap();
            assert_eq!(built.positives(&keys.hashes), keys.len(), "{}", candidate.name());
            assert!(built.positives(&others) < 1_200, "{}", candidate.name());
            assert!(
                (8.0..40.0).contains(&(built.bits() / 5_000.0)),
                "{}: {}",
                candidate.name(),
                built.bits()
            );
            assert!(built.probe_time(&others, 100, true, &[]) > 0.0);
            assert!(candidate.build_time(&keys, 10.0) > 0.0);
        }
    }
}
