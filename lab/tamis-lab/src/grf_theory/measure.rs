//! Partitions as filled by trees, and their false positive rates.

use std::collections::BTreeSet;

use tamis_bench::BenchError;
use tamis_bench::random::mix64;
use tamis_filter::Digest;
use tamis_filter::global::{Batch, Cuts, Epochs, MapChoice, Partition, PartitionSpec, QueryMix};
use tamis_model::grf;
use tamis_model::lookup::Tree;

/// Number of flushes before the measured ones: all of them are in the last level.
const BASE: u64 = 1 << 20;
/// Bits per key where rounds are measured: few enough for frequent false positives.
pub(super) const ROUND_BITS: f64 = 10.0;

/// The versions that can still be read, by whose tables a filter must be able to distinguish entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The newest one.
    Newest,
    /// Those since the last merge into the last level but one.
    SinceLowMerge,
    /// All since the last merge into the last level.
    All,
}

/// Returns the tables of a tree with `above` tiering levels after this many flushes of a round, one for each run: the
/// number of runs of level n is digit n of the number of flushes.
fn tables_after(flushes: u64, ratio: u64, above: u32) -> Vec<Epochs> {
    let mut tables = vec![Epochs { lo: 0, hi: BASE }];
    let mut from = 0;
    for level in (0..above).rev() {
        let size = ratio.pow(level);
        while from + size <= flushes {
            tables.push(Epochs { lo: BASE + from, hi: BASE + from + size });
            from += size;
        }
    }
    tables
}

/// Sizes of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    /// Number of keys of a partition when it is built.
    pub(super) keys: u64,
    /// Number of queries for absent keys.
    pub(super) queries: u64,
    pub(super) seed: u64,
}

/// The rate over a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverRound {
    pub(super) begin: f64,
    /// The mean over all moments at which a level is merged.
    pub(super) mean: f64,
    pub(super) end: f64,
    /// The mean of what the entropy of the runs allows.
    pub(super) model: f64,
}

impl Measure {
    /// Returns key number `i` of a kind; kinds share keys only by chance.
    fn key(&self, kind: u64, i: u64) -> [u8; 8] {
        mix64(mix64(self.seed ^ kind << 56) ^ i).to_be_bytes()
    }

    fn batch(&self, kind: u64, numbers: std::ops::Range<u64>, epochs: impl Fn(u64) -> Epochs) -> Batch {
        let mut entries: Vec<([u8; 8], Epochs)> = numbers.map(|i| (self.key(kind, i), epochs(i))).collect();
        entries.sort_unstable();
        let mut batch = Batch::new();
        for (key, epochs) in entries {
            batch.push(&key, Digest::of(&key), epochs);
        }
        batch
    }

    fn build(&self, keys: u64, bits: f64, map: MapChoice) -> Result<Partition, BenchError> {
        let spec = PartitionSpec { bits_per_key: bits, map, mix: QueryMix::default() };
        let batch = self.batch(0, 0..keys, |_| Epochs { lo: 0, hi: BASE });
        Partition::build(&batch, BASE, &spec)
            .map_err(|why| BenchError::Request(format!("a partition could not be built: {why}")))
    }

    /// Returns the filter of a tree that has only a last level; or, if `full`, of one with T - 1 full runs in every
    /// other level, each as large as its share of the tree, collected. It has `bits` bits per key in either state.
    pub(super) fn tree(
        &self,
        bits: f64,
        tree: Tree,
        map: MapChoice,
        full: bool,
    ) -> Result<Partition, BenchError> {
        let ratio = u64::from(tree.size_ratio);
        let above = tree.levels - 1;
        let flushes = ratio.pow(above);
        let mut partition = self.build(self.keys, bits, map)?;
        if !full {
            return Ok(partition);
        }
        // A full last level has T - 1 times the keys that arrive in a round.
        let per_flush = self.keys as f64 / (flushes * (ratio - 1)) as f64;
        let mut tables = vec![Epochs { lo: 0, hi: BASE }];
        let mut flushed = 0;
        for level in (0..above).rev() {
            for _ in 1..ratio {
                let size = ratio.pow(level);
                let epochs = Epochs { lo: BASE + flushed, hi: BASE + flushed + size };
                let keys = |flushed: u64| (flushed as f64 * per_flush).round() as u64;
                let numbers = keys(flushed)..keys(flushed + size);
                flushed += size;
                tables.push(epochs);
                let cuts = Cuts::of(tables.iter().copied());
                partition = partition.insert(&self.batch(1, numbers, |_| epochs), &cuts).collect(0, &cuts);
            }
        }
        Ok(partition)
    }

    /// Returns the filter of a full tree, just before the merge into the last level, that was filled flush by flush while
    /// versions could still be read. It keeps to `bits` bits per key: what longer codes take, positions lose.
    pub(super) fn versions(&self, bits: f64, tree: Tree, kept: Kept) -> Result<Partition, BenchError> {
        let ratio = u64::from(tree.size_ratio);
        let above = tree.levels - 1;
        let flushes = ratio.pow(above);
        let mut partition = self.build(self.keys, bits, MapChoice::Digest)?;
        let per_flush = self.keys as f64 / (flushes * (ratio - 1)) as f64;
        let keys = |flushed: u64| (flushed as f64 * per_flush).round() as u64;
        // The tables of all versions that can be read.
        let mut readable: BTreeSet<Epochs> = BTreeSet::new();
        for flush in 0..flushes - 1 {
            let epochs = Epochs { lo: BASE + flush, hi: BASE + flush + 1 };
            let newest = tables_after(flush + 1, ratio, above);
            let collects = match kept {
                Kept::Newest => true,
                // The merges into the last level but one, which the paper's bound assumes to collect everything.
                Kept::SinceLowMerge => (flush + 1).is_multiple_of(flushes / ratio),
                Kept::All => false,
            };
            if collects {
                readable.clear();
            }
            readable.extend(newest.iter().copied());
            let cuts = Cuts::of(readable.iter().copied());
            partition = partition.insert(&self.batch(1, keys(flush)..keys(flush + 1), |_| epochs), &cuts);
            if collects && kept == Kept::SinceLowMerge {
                partition = partition.collect(0, &cuts);
            }
        }
        Ok(partition.collect(0, &Cuts::of(readable)))
    }

    /// Counts the absent keys that match any entry.
    pub(super) fn positives(&self, partition: &Partition) -> u64 {
        let matches = |i: &u64| {
            let key = self.key(2, *i);
            let mut any = false;
            partition.probe(&key, Digest::of(&key), |_| any = true);
            any
        };
        (0..self.queries).filter(matches).count() as u64
    }

    /// Returns the rate over a round in a tree of three levels whose last level begins with `round` times the keys that
    /// arrive until its compaction. The filter keeps to its bits per key: what codes take, positions lose.
    ///
    /// Rates are those that [`Partition::expected_rate`] sums over all entries, so they are free of sampling noise.
    pub(super) fn round(&self, ratio: u32, round: u32) -> Result<OverRound, BenchError> {
        let ratio = u64::from(ratio);
        let all = ratio * ratio;
        let last = self.keys * u64::from(round) / ratio;
        let new = self.keys / ratio;
        let mut partition = self.build(last, ROUND_BITS, MapChoice::Digest)?;
        let mut shares = vec![last as f64];
        let mut rates = vec![partition.expected_rate()];
        let mut models = vec![grf::global_rate(ROUND_BITS, &shares)];
        let mut tables = vec![Epochs { lo: 0, hi: BASE }];
        for merge in 0..ratio {
            // The flushes of one run of level 1, and its merge, after which the codes are collected.
            let flushes = merge * ratio..(merge + 1) * ratio;
            let numbers = flushes.start * new / all..flushes.end * new / all;
            let merged = Epochs { lo: BASE + flushes.start, hi: BASE + flushes.end };
            tables.push(merged);
            shares.push((numbers.end - numbers.start) as f64);
            let cuts = Cuts::of(tables.iter().copied());
            partition = partition.insert(&self.batch(1, numbers, |_| merged), &cuts).collect(0, &cuts);
            rates.push(partition.expected_rate());
            models.push(grf::global_rate(ROUND_BITS, &shares));
        }
        // Keys arrive evenly: this is the mean of a line through the points.
        let mean = |points: &[f64]| {
            points.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).sum::<f64>() / ratio as f64
        };
        let (begin, end) = (rates[0], rates[rates.len() - 1]);
        Ok(OverRound { begin, mean: mean(&rates), end, model: mean(&models) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_digits_of_the_number_of_flushes() {
        let spans = |flushes| {
            let tables = tables_after(flushes, 3, 2).into_iter().skip(1);
            tables.map(|table| (table.lo - BASE, table.hi - BASE)).collect::<Vec<_>>()
        };
        assert_eq!(spans(0), []);
        assert_eq!(spans(2), [(0, 1), (1, 2)]);
        assert_eq!(spans(3), [(0, 3)]);
        assert_eq!(spans(8), [(0, 3), (3, 6), (6, 7), (7, 8)]);
    }

    /// Whatever is kept, every key is found, in the table that holds it in the newest version.
    #[test]
    fn every_key_is_found_in_its_table() {
        let measure = Measure { keys: 4000, queries: 1000, seed: 5 };
        let tree = Tree { levels: 3, size_ratio: 4 };
        for kept in [Kept::Newest, Kept::SinceLowMerge, Kept::All] {
            let partition = measure.versions(12.0, tree, kept).unwrap();
            let per_flush = 4000.0 / 48.0;
            for flush in 0..15u64 {
                let key = measure.key(1, (flush as f64 * per_flush).round() as u64);
                let mut found = false;
                partition.probe(&key, Digest::of(&key), |epochs| {
                    found |= (epochs.lo..epochs.hi).contains(&(BASE + flush));
                });
                assert!(found, "{kept:?}: a key of flush {flush}");
            }
        }
    }
}
