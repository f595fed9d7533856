//! What building filters of tables costs, measured on the filters themselves: in a database it would drown in flushes.

use std::collections::HashMap;
use std::hint::black_box;

use tamis_filter::{
    BloomScheme, Digest, ElasticGroup, ElasticLayout, ElasticSpec, KeyList, PointFilter, PointSpec,
    RangeFilter, RangeSpec, SurfSuffix, Verify,
};

use super::Selector;
use super::calibrate::{RUNS, Setup, Sizes, key, quiet_ns};

/// Bits for each key that filters are built with.
const BITS: f64 = 14.0;

/// Builds every kind of filter. One that cannot be built for these keys is left out, and costs nothing: it will not be asked.
pub(super) fn building(setup: &Setup, sizes: &Sizes) -> HashMap<Selector, f64> {
    let count = sizes.keys * RUNS / 2;
    let mut keys: Vec<Vec<u8>> = (0..count).map(|i| key(setup, 0, i)).collect();
    keys.sort_unstable();
    let digests: Vec<Digest> = keys.iter().map(|key| Digest::of(key)).collect();
    let mut list = KeyList::new();
    keys.iter().for_each(|key| list.push(key));
    let passes = sizes.passes.min(3);
    let mut costs = HashMap::new();
    for selector in Selector::ALL {
        let built = |spec| {
            quiet_ns(passes, count, |salt| {
                drop(black_box(RangeFilter::build(spec, &list, BITS, salt as u64, Verify::Yes)))
            })
        };
        let point = |spec| {
            quiet_ns(passes, count, |salt| {
                drop(black_box(PointFilter::build(spec, &digests, BITS, salt as u64, Verify::Yes)))
            })
        };
        let cost = match selector {
            Selector::Bloom => point(PointSpec::Bloom(BloomScheme::Rotation)),
            Selector::BlockedBloom => point(PointSpec::BlockedBloom),
            Selector::Ribbon => point(PointSpec::Ribbon),
            Selector::Fuse => point(PointSpec::BinaryFuse),
            Selector::Xor => point(PointSpec::Xor),
            Selector::Cuckoo => point(PointSpec::Cuckoo),
            Selector::Elastic => {
                let spec = ElasticSpec {
                    units: 6,
                    bits_per_key: 4.0,
                    scheme: BloomScheme::Rotation,
                    layout: ElasticLayout::Blocked,
                };
                let build =
                    |salt| drop(black_box(ElasticGroup::build(spec, &digests, salt as u64, Verify::Yes)));
                quiet_ns(passes, count, build)
            }
            Selector::SurfBase => built(RangeSpec::Surf(SurfSuffix::None)),
            Selector::SurfHash => built(RangeSpec::Surf(SurfSuffix::Hash)),
            Selector::SurfReal => built(RangeSpec::Surf(SurfSuffix::Real)),
            Selector::SurfMixed => built(RangeSpec::Surf(SurfSuffix::Mixed)),
            Selector::Snarf => built(RangeSpec::Snarf),
            Selector::Rosetta => built(RangeSpec::Rosetta { max_range: 64 }),
            Selector::REncoder => built(RangeSpec::REncoder),
            Selector::Grafite => built(RangeSpec::Grafite),
            _ => continue,
        };
        costs.insert(selector, cost);
    }
    costs
}
