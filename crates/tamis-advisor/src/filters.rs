//! The cost of building table filters, measured on the filters themselves: in a database, flushes
//! would drown it out.

use std::collections::HashMap;
use std::hint::black_box;

use tamis_filter::global::{Batch, Cuts, Epochs, MapChoice, Partition, PartitionSpec, QueryMix};
#[cfg(feature = "rivals")]
use tamis_filter::global::{RunIndexKind, RunIndexSpec, RunTag, build};
use tamis_filter::{
    BloomScheme, Digest, ElasticGroup, ElasticLayout, ElasticSpec, KeyList, PointFilter, PointSpec,
    RangeFilter, RangeSpec, SurfSuffix, Verify,
};

use super::Selector;
use super::calibrate::{RUNS, Setup, Sizes, key, quiet_ns};

/// Bits per key that filters are built with.
const BITS: f64 = 14.0;

/// Builds every kind of filter. A kind that cannot be built for these keys is left out and costs
/// nothing: it will not be used.
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

/// Returns the cost of adding keys to a global filter, per entry already in it, in ns: the
/// difference between a change of very few keys and one of many.
pub(super) fn copying(setup: &Setup, sizes: &Sizes, selector: Selector) -> f64 {
    let sorted = |set, count| {
        let mut keys: Vec<Vec<u8>> = (0..count).map(|i| key(setup, set, i)).collect();
        keys.sort_unstable();
        keys
    };
    let batch = |keys: &[Vec<u8>], epochs| {
        let mut batch = Batch::new();
        keys.iter().for_each(|key| batch.push(key, Digest::of(key), epochs));
        batch
    };
    let old = sorted(0, sizes.keys * RUNS);
    let (few, many) = (sorted(99, (old.len() / 256).max(1)), sorted(99, old.len() / 8));
    let passes = sizes.passes.min(5);
    let split = |few_ns: f64, many_ns: f64| {
        let each = ((many_ns - few_ns) / (many.len() - few.len()).max(1) as f64).max(0.0);
        ((few_ns - each * few.len() as f64) / old.len() as f64).max(0.0)
    };
    if selector == Selector::Grf {
        let (last, next) = (Epochs { lo: 0, hi: 100 }, Epochs { lo: 100, hi: 101 });
        let spec = PartitionSpec { bits_per_key: BITS, map: MapChoice::Auto, mix: QueryMix::default() };
        let Ok(partition) = Partition::build(&batch(&old, last), 100, &spec) else { return 0.0 };
        let cuts = Cuts::of([last, next]);
        let insert = |keys: &[Vec<u8>]| {
            let keys = batch(keys, next);
            quiet_ns(passes, 1, |_| drop(black_box(partition.insert(&keys, &cuts))))
        };
        return split(insert(&few), insert(&many));
    }
    #[cfg(feature = "rivals")]
    return copying_runs(selector, &batch(&old, Epochs::ALL), passes, split, |keys| {
        batch(if keys { &many } else { &few }, Epochs::ALL)
    });
    #[cfg(not(feature = "rivals"))]
    0.0
}

/// The same for a filter that names runs. `added` returns many keys or few.
#[cfg(feature = "rivals")]
fn copying_runs(
    selector: Selector,
    old: &Batch,
    passes: usize,
    split: impl Fn(f64, f64) -> f64,
    added: impl Fn(bool) -> Batch,
) -> f64 {
    let kind = match selector {
        Selector::GrfHuffman => RunIndexKind::GrfHuffman,
        Selector::Chucky => RunIndexKind::Chucky,
        _ => RunIndexKind::Remix,
    };
    let spec = RunIndexSpec {
        bits_per_key: BITS,
        capacity: old.len() as u64 * 3 / 2,
        slots: vec![4, 10, 1],
        ratio: 10.0,
        segment: RunIndexSpec::SEGMENT,
    };
    let Ok(index) = build(kind, &[(old, RunTag { level: 2, slot: 0 })], &spec) else { return 0.0 };
    let change = |many: bool| {
        let (keys, tag) = (added(many), RunTag { level: 0, slot: 0 });
        quiet_ns(passes, 1, |_| drop(black_box(index.change(&[], &[(&keys, tag)]))))
    };
    split(change(false), change(true))
}
