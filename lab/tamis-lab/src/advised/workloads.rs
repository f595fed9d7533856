//! The ten workloads, and operations drawn from one.

use tamis_advisor::{Class, Workload};
use tamis_bench::keys::KeySet;
use tamis_bench::random::Random;
use tamis_bench::zipf::Ranks;

/// Size of every key in bytes.
pub(super) const KEY_BYTES: usize = 8;

/// The workloads in the advisor's syntax.
pub(super) const TEXTS: [&str; 10] = [
    "empty-get 100",
    "get 100",
    "get 50, empty-get 50",
    "get 95, put 5, skew 0.99",
    "get 45, empty-get 45, put 10",
    "empty-range 100",
    "seek 100",
    "scan 95, put 5, scan-entries 50",
    "put 90, get 10",
    "empty-get 50, get 20, seek 20, put 10, skew 0.99",
];

/// Returns the parsed workloads.
pub(super) fn all() -> Vec<Workload> {
    TEXTS.iter().map(|text| text.parse().expect("a workload")).collect()
}

/// One operation with its keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) class: Class,
    pub(super) key: [u8; KEY_BYTES],
    /// The last key of a range.
    pub(super) end: [u8; KEY_BYTES],
}

/// Draws `count` operations on the first `loaded` keys in loading order; the same seed gives the same operations.
pub(super) fn draw(
    workload: &Workload,
    keys: &KeySet,
    count: usize,
    seed: u64,
    loaded: u64,
    at: impl Fn(u64) -> u64,
) -> Vec<Op> {
    let mut random = Random::new(seed);
    let ranks = Ranks::new(loaded.max(1), workload.skew);
    // Keys are loaded in random order, so hot keys are spread over the key space.
    let mut ops = Vec::with_capacity(count);
    let mut buffers = (Vec::new(), Vec::new());
    while ops.len() < count {
        let mut left = random.unit();
        let class = Class::ALL.into_iter().find(|class| {
            left -= workload.share(*class);
            left < 0.0
        });
        let Some(class) = class else { continue };
        let (low, high) = &mut buffers;
        low.clear();
        high.clear();
        match class {
            Class::EmptyGet => keys.absent(random.below(keys.absent_len()), low),
            Class::EmptyRange => keys.absent_range(random.below(keys.absent_len()), low, high),
            _ => keys.existing(at(ranks.draw(&mut random)), low),
        }
        let bytes = |from: &[u8]| from.try_into().unwrap_or([0; KEY_BYTES]);
        ops.push(Op { class, key: bytes(low), end: bytes(high) });
    }
    ops
}
