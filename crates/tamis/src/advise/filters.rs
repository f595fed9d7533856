//! What building filters costs, measured on the filters themselves: in a database it would drown in flushes.

use std::collections::HashMap;
use std::hint::black_box;

use tamis_filter::global::{
    Batch, Cuts, Epochs, MapChoice, Partition, PartitionSpec, RunIndexKind, RunIndexSpec, RunTag, build,
};
use tamis_filter::{
    BloomScheme, Digest, ElasticGroup, ElasticLayout, ElasticSpec, KeyList, PointFilter, PointSpec,
    RangeFilter, RangeSpec, SurfSuffix, Verify,
};

use super::Selector;
use super::calibrate::{Building, RUNS, Setup, Sizes, key, median_ns};

/// Bits for each key that filters are built with.
const BITS: f64 = 14.0;

/// Builds every kind of filter. One that cannot be built for these keys is left out, and costs nothing: it will not be asked.
pub(super) fn building(setup: &Setup, sizes: &Sizes) -> Building {
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
            median_ns(passes, count, |salt| {
                drop(black_box(RangeFilter::build(spec, &list, BITS, salt as u64, Verify::Yes)))
            })
        };
        let point = |spec| {
            median_ns(passes, count, |salt| {
                drop(black_box(PointFilter::build(spec, &digests, BITS, salt as u64, Verify::Yes)))
            })
        };
        let cost = match selector {
            Selector::Bloom => (point(PointSpec::Bloom(BloomScheme::Rotation)), 0.0),
            Selector::BlockedBloom => (point(PointSpec::BlockedBloom), 0.0),
            Selector::Ribbon => (point(PointSpec::Ribbon), 0.0),
            Selector::Fuse => (point(PointSpec::BinaryFuse), 0.0),
            Selector::Xor => (point(PointSpec::Xor), 0.0),
            Selector::Cuckoo => (point(PointSpec::Cuckoo), 0.0),
            Selector::Elastic => {
                let spec = ElasticSpec {
                    units: 6,
                    bits_per_key: 4.0,
                    scheme: BloomScheme::Rotation,
                    layout: ElasticLayout::Blocked,
                };
                let build =
                    |salt| drop(black_box(ElasticGroup::build(spec, &digests, salt as u64, Verify::Yes)));
                (median_ns(passes, count, build), 0.0)
            }
            Selector::SurfBase => (built(RangeSpec::Surf(SurfSuffix::None)), 0.0),
            Selector::SurfHash => (built(RangeSpec::Surf(SurfSuffix::Hash)), 0.0),
            Selector::SurfReal => (built(RangeSpec::Surf(SurfSuffix::Real)), 0.0),
            Selector::SurfMixed => (built(RangeSpec::Surf(SurfSuffix::Mixed)), 0.0),
            Selector::Snarf => (built(RangeSpec::Snarf), 0.0),
            Selector::Rosetta => (built(RangeSpec::Rosetta { max_range: 64 }), 0.0),
            Selector::REncoder => (built(RangeSpec::REncoder), 0.0),
            Selector::Grafite => (built(RangeSpec::Grafite), 0.0),
            Selector::Grf => grf(setup, &keys, passes),
            Selector::GrfHuffman => run_index(setup, RunIndexKind::GrfHuffman, &keys, passes),
            Selector::Chucky => run_index(setup, RunIndexKind::Chucky, &keys, passes),
            Selector::Remix => run_index(setup, RunIndexKind::Remix, &keys, passes),
            _ => continue,
        };
        costs.insert(selector, cost);
    }
    costs
}

fn batch(keys: &[Vec<u8>], epochs: Epochs) -> Batch {
    let mut batch = Batch::new();
    keys.iter().for_each(|key| batch.push(key, Digest::of(key), epochs));
    batch
}

/// New keys, in order.
fn others(setup: &Setup, count: usize) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..count).map(|i| key(setup, 99, i)).collect();
    keys.sort_unstable();
    keys
}

/// From the times of a change with few keys and one with many: ns for a key, and ns for each of `entries` that are copied.
fn split(entries: usize, few: (usize, f64), many: (usize, f64)) -> (f64, f64) {
    let each = ((many.1 - few.1) / (many.0 - few.0).max(1) as f64).max(0.0);
    (each, ((few.1 - each * few.0 as f64) / entries.max(1) as f64).max(0.0))
}

/// How many keys two changes have, of so many that are there.
fn changes(entries: usize) -> [usize; 2] {
    [(entries / 256).max(2), (entries / 4).max(8)]
}

fn grf(setup: &Setup, keys: &[Vec<u8>], passes: usize) -> (f64, f64) {
    let spec =
        PartitionSpec { bits_per_key: BITS, growth: 1.3, radices: vec![4, 10, 10], map: MapChoice::Auto };
    let last = Epochs { lo: 0, hi: 100 };
    let Ok(partition) = Partition::build(&batch(keys, last), 100, &spec) else { return (0.0, 0.0) };
    let next = Epochs { lo: 100, hi: 101 };
    let cuts = Cuts::of([last, next]);
    let [few, many] = changes(keys.len()).map(|count| {
        let new = batch(&others(setup, count), next);
        (count, median_ns(passes, 1, |_| drop(black_box(partition.insert(&new, &cuts)))))
    });
    split(keys.len(), few, many)
}

fn run_index(setup: &Setup, kind: RunIndexKind, keys: &[Vec<u8>], passes: usize) -> (f64, f64) {
    let spec = RunIndexSpec {
        bits_per_key: BITS,
        capacity: keys.len() as u64 * 3 / 2,
        slots: vec![4, 10, 1],
        ratio: 10.0,
        segment: RunIndexSpec::SEGMENT,
    };
    let old = batch(keys, Epochs::ALL);
    let Ok(index) = build(kind, &[(&old, RunTag { level: 2, slot: 0 })], &spec) else { return (0.0, 0.0) };
    let [few, many] = changes(keys.len()).map(|count| {
        let new = batch(&others(setup, count), Epochs::ALL);
        let tag = RunTag { level: 0, slot: 0 };
        (count, median_ns(passes, 1, |_| drop(black_box(index.change(&[], &[(&new, tag)])))))
    });
    split(keys.len(), few, many)
}
