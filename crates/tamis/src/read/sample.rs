//! A sample of the keys that gets find, to estimate the skew of reads.
//!
//! Every [`SAMPLED`]th get of a thread that finds a value adds its digest; the last [`KEPT`] are
//! kept. Two random gets are for the same key with probability Σ p²: 1/n if all n keys are equally
//! likely, much more if some are hot. The share of equal pairs in the sample estimates this; it is
//! the minimum-variance unbiased estimate (Good, "The population frequencies of species",
//! Biometrika 1953).
//!
//! Costs 32 KiB for each open keyspace. Any thread may call anything. A reader that finds the
//! sample locked skips it, so readers never wait. `multi_get` does not contribute.

use crate::sync::Mutex;

use tamis_filter::Digest;

/// One in this many gets of a thread that find a value is sampled. A power of two.
pub(super) const SAMPLED: u64 = 64;

/// Digests kept. With uniform reads of a million keys, about 8 pairs are equal.
const KEPT: usize = 4096;

/// The fewest digests for an estimate.
const FEWEST: usize = 256;

#[derive(Debug, Default)]
pub(super) struct KeySample(Mutex<DigestRing>);

#[derive(Debug)]
struct DigestRing {
    /// Allocated at the start, so that no get allocates.
    digests: Vec<u64>,
    /// The next index to overwrite once all are taken.
    next: usize,
}

impl Default for DigestRing {
    fn default() -> Self {
        DigestRing { digests: Vec::with_capacity(KEPT), next: 0 }
    }
}

impl KeySample {
    pub(super) const MEMORY_BYTES: usize = KEPT * size_of::<u64>();

    /// Replaces the oldest digest, unless another thread holds the lock.
    #[cold]
    pub(super) fn add(&self, digest: Option<Digest>) {
        let (Some(digest), Some(mut ring)) = (digest, self.0.try_lock()) else { return };
        if ring.digests.len() < KEPT {
            ring.digests.push(digest.get());
            return;
        }
        let next = ring.next;
        ring.digests[next] = digest.get();
        ring.next = (next + 1) % KEPT;
    }

    /// Returns the probability that two gets that find a value are for the same key; `None` if the
    /// sample is too small. O(n log n) for a sample of n.
    pub(super) fn collisions(&self) -> Option<f64> {
        let mut digests = self.0.lock().digests.clone();
        if digests.len() < FEWEST {
            return None;
        }
        digests.sort_unstable();
        let pairs = |n: usize| n as f64 * (n as f64 - 1.0) / 2.0;
        let equal: f64 = digests.chunk_by(|a, b| a == b).map(|alike| pairs(alike.len())).sum();
        Some(equal / pairs(digests.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_of(keys: impl Iterator<Item = u64>) -> KeySample {
        let sample = KeySample::default();
        keys.for_each(|key| sample.add(Some(Digest::of(&key.to_le_bytes()))));
        sample
    }

    #[test]
    fn too_few_gets_give_no_estimate() {
        assert_eq!(sample_of(0..FEWEST as u64 - 1).collisions(), None);
        assert_eq!(sample_of(0..FEWEST as u64).collisions(), Some(0.0));
    }

    #[test]
    fn only_equal_pairs_among_the_last_gets_count() {
        // Each of 16 keys has a sixteenth, minus the pair of each sample with itself.
        let even = sample_of((0..KEPT as u64).map(|i| i % 16)).collisions().unwrap();
        assert!((even - 1.0 / 16.0).abs() < 1e-3, "{even}");
        let one = sample_of((0..KEPT as u64).map(|i| i % 16).chain((0..KEPT as u64).map(|_| 7)));
        assert_eq!(one.collisions(), Some(1.0));
    }
}
