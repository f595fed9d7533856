//! Tests of partitions: helpers that generate keys and batches.

mod schedules;
mod sizes;
mod walks;

use std::collections::BTreeSet;

use super::*;
use crate::global::{Batch, Cuts};

pub(super) type Key = Vec<u8>;

pub(super) fn epochs(lo: u64, hi: u64) -> Epochs {
    Epochs { lo, hi }
}

pub(super) fn random(i: u64, salt: u64) -> u64 {
    Digest::from_u64(i).remix(salt)
}

pub(super) fn spec(map: MapChoice) -> PartitionSpec {
    PartitionSpec { bits_per_key: 10.0, growth: 1.1, radices: vec![10, 10, 10], map }
}

/// Kinds of keys.
pub(super) const KINDS: usize = 7;

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
pub(super) fn contents(partition: &Partition) -> Vec<Vec<blocks::Entry>> {
    let inner = &*partition.inner;
    let decode = |at| {
        let mut entries = Vec::new();
        inner.blocks.decode(&inner.layout, &inner.coder, at, &mut entries);
        entries
    };
    (0..inner.blocks.count()).map(decode).collect()
}

/// Checks that the counters agree with the contents.
pub(super) fn consistent(partition: &Partition) {
    let contents = contents(partition);
    let all: Vec<_> = contents.iter().flatten().collect();
    assert_eq!(partition.entries(), all.len() as u64);
    assert_eq!(partition.last_entries(), all.iter().filter(|e| e.code == code::Code::LAST).count() as u64);
    assert_eq!(partition.largest_block(), contents.iter().map(Vec::len).max().unwrap_or(0));
    assert!(contents.iter().all(|block| block.is_sorted_by(|a, b| a < b)));
    assert_eq!(contents.len(), partition.inner.map.blocks());
}
