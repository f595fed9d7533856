//! Tests of partitions: helpers that generate keys and batches.

mod books;
mod images;
mod schedules;
mod sets;
mod sizes;
mod walks;

use std::collections::BTreeSet;

use super::*;
use crate::global::{Batch, Cuts};
use set::Entry;

pub(super) type Key = Vec<u8>;

pub(super) fn epochs(lo: u64, hi: u64) -> Epochs {
    Epochs { lo, hi }
}

pub(super) fn random(i: u64, salt: u64) -> u64 {
    Digest::from_u64(i).remix(salt)
}

pub(super) fn spec(map: MapChoice) -> PartitionSpec {
    PartitionSpec { bits_per_key: 10.0, map, mix: QueryMix::default() }
}

/// Choices of a map, with the share of ranges among queries. With few ranges or many,
/// [`MapChoice::Auto`] chooses maps that the other choices do not name: ordered ones whose cells
/// the digest divides.
pub(super) const MAPS: [(MapChoice, f64); 8] = [
    (MapChoice::Auto, 0.0),
    (MapChoice::Auto, 0.1),
    (MapChoice::Auto, 0.5),
    (MapChoice::Auto, 1.0),
    (MapChoice::Learned, 0.1),
    (MapChoice::Digest, 0.1),
    (MapChoice::Mixed, 0.1),
    (MapChoice::Local, 0.1),
];

pub(super) fn spec_of((map, range_share): (MapChoice, f64)) -> PartitionSpec {
    PartitionSpec { mix: QueryMix { range_share, ..QueryMix::default() }, ..spec(map) }
}

/// Kinds of keys.
pub(super) const KINDS: usize = 8;

/// Returns key number `i` of a kind. `i` grows with time.
pub(super) fn key(kind: usize, i: u64) -> Key {
    let r = random(i, 1);
    match kind {
        0 => r.to_be_bytes().to_vec(),
        // Clusters of neighbours, far apart.
        1 => ((random(r % 5, 2) << 20) + (r >> 32) % 300).to_be_bytes().to_vec(),
        // A series, somewhat out of order.
        2 => (1_000_000 + i * 10 + r % 40).to_be_bytes().to_vec(),
        3 => format!("user:{:010}:{}", i / 2, ["a", "mail", "name"][r as usize % 3]).into_bytes(),
        // Prefixes of each other, the empty key among them.
        4 => vec![(i % 2) as u8 * 255; (r % 20) as usize],
        5 => {
            let mut key = vec![b'p'; (r % 12) as usize];
            key.extend_from_slice(&r.to_be_bytes()[..(r >> 20) as usize % 8]);
            key
        }
        // Clusters of clusters, of all densities; now and then one more.
        7 => {
            let (coarse, fine) = (r % (20 + i / 500), (r >> 20) % 8);
            let cluster = (random(coarse, 3) >> 24) + (random(coarse * 8 + fine, 4) >> (31 + coarse % 4));
            (cluster + (random(i, 5) >> (38 + fine % 4))).to_be_bytes().to_vec()
        }
        // Four bytes; then, over time, longer ones and ones before and after.
        _ if i % 7 < 5 => (r as u32).to_be_bytes().to_vec(),
        _ => [&b"common prefix"[..], &r.to_be_bytes()].concat()[r as usize % 3..].to_vec(),
    }
}

/// Returns a batch of tables' keys.
pub(super) fn batch<'k>(entries: impl IntoIterator<Item = (&'k Key, Epochs)>) -> Batch {
    let sorted: BTreeSet<(&Key, Epochs)> = entries.into_iter().collect();
    let mut batch = Batch::new();
    for (key, epochs) in sorted {
        batch.push(key, Digest::of(key), epochs);
    }
    batch
}

pub(super) fn named(partition: &Partition, key: &[u8]) -> Vec<Epochs> {
    let mut all = Vec::new();
    partition.probe(key, Digest::of(key), |epochs| all.push(epochs));
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the contents of a partition, block by block.
pub(super) fn contents(partition: &Partition) -> Vec<Vec<Entry>> {
    let inner = &*partition.inner;
    let decode = |at| {
        let mut entries = Vec::new();
        inner.set.each_of(&inner.book.names, at, &mut Vec::new(), &mut |position, symbol| {
            entries.push(set::Entry { position, symbol: symbol as u16 });
            true
        });
        entries
    };
    (0..inner.set.blocks()).map(decode).collect()
}

/// Checks that the counters agree with the contents, and that the partition comes back from its
/// bytes.
pub(super) fn consistent(partition: &Partition) {
    let inner = &*partition.inner;
    let (layout, blocks) = (inner.set.layout, contents(partition));
    let all: Vec<_> = blocks.iter().flatten().copied().collect();
    assert_eq!(partition.entries(), all.len() as u64);
    assert_eq!(
        partition.last_entries(),
        all.iter()
            .filter(|entry| inner.book.epochs(entry.symbol.into()) == epochs(0, inner.book.base))
            .count() as u64
    );
    assert_eq!(partition.largest_block(), blocks.iter().map(Vec::len).max().unwrap_or(0));
    assert!(all.is_sorted_by(|a, b| a < b), "the entries ascend and are all different");
    assert_eq!(blocks.len() as u64, layout.blocks());
    assert_eq!(layout.positions, layout::after_cut(inner.map.positions(), inner.cut));
    for (at, block) in (0u64..).zip(&blocks) {
        for entry in block {
            assert_eq!((layout.block(entry.position), layout.kept(entry.position)), (at, entry.position));
            assert!(u32::from(entry.symbol) < inner.book.symbols());
        }
    }
    let mut names = Vec::new();
    inner.set.each_place_from(0, |position, place| {
        names.push(Entry { position, symbol: inner.set.symbol(&inner.book.names, place) as u16 });
        true
    });
    assert_eq!(names, all, "entry by entry as block by block");
    let bytes = partition.to_bytes();
    let restored = Partition::from_bytes(&bytes).expect("its own bytes");
    assert_eq!(restored.to_bytes(), bytes);
    assert_eq!(contents(&restored), blocks);
}
