//! Partitions as filled by trees, and their false positive rates.

use tamis_bench::BenchError;
use tamis_bench::random::mix64;
use tamis_filter::Digest;
use tamis_filter::global::{Batch, Cuts, Epochs, MapChoice, Partition, PartitionSpec};
use tamis_model::lookup::Tree;

/// Number of flushes before the measured ones: all of them are in the last level.
const BASE: u64 = 1 << 20;
/// Bits per key where rounds are measured: few enough for frequent false positives.
const ROUND_BITS: f64 = 10.0;

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

    fn build(
        &self,
        keys: u64,
        bits: f64,
        growth: f64,
        radices: Vec<u32>,
        map: MapChoice,
    ) -> Result<Partition, BenchError> {
        let spec = PartitionSpec { bits_per_key: bits, growth, radices, map };
        let batch = self.batch(0, 0..keys, |_| Epochs { lo: 0, hi: BASE });
        Partition::build(&batch, BASE, &spec)
            .map_err(|why| BenchError::Request(format!("a partition could not be built: {why}")))
    }

    /// Returns the filter of a tree that has only a last level; or, if `full`, of one with T - 1 full runs in every
    /// other level, each as large as its share of the tree, collected. It has `bits` bits per key in that state.
    pub(super) fn tree(
        &self,
        bits: f64,
        tree: Tree,
        map: MapChoice,
        full: bool,
    ) -> Result<Partition, BenchError> {
        let ratio = u64::from(tree.size_ratio);
        let above = tree.levels - 1;
        let radices = vec![tree.size_ratio; above as usize];
        let flushes = ratio.pow(above);
        if !full {
            return self.build(self.keys, bits, 1.0, radices, map);
        }
        // A full last level has T - 1 times the keys that arrive in a round.
        let per_flush = self.keys as f64 / (flushes * (ratio - 1)) as f64;
        let growth = 1.0 + 1.0 / (ratio - 1) as f64;
        let mut partition = self.build(self.keys, bits, growth, radices, map)?;
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
                partition = partition.insert(&self.batch(1, numbers, |_| epochs), &cuts).collect(&cuts, 0);
            }
        }
        Ok(partition)
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
    /// arrive until its compaction. With `longer`, positions are unchanged; otherwise new keys are treated as keys of
    /// the last level.
    ///
    /// Rates are those that [`Partition::expected_rate`] sums over all entries, so they are free of sampling noise.
    pub(super) fn round(&self, ratio: u32, round: u32, longer: bool) -> Result<OverRound, BenchError> {
        let ratio = u64::from(ratio);
        let all = ratio * ratio;
        let last = self.keys * u64::from(round) / ratio;
        let new = self.keys / ratio;
        let growth = 1.0 + 1.0 / f64::from(round);
        let radices = vec![ratio as u32; 2];
        let mut partition = self.build(last, ROUND_BITS, growth, radices, MapChoice::Digest)?;
        let begin = partition.expected_rate();
        let mut rates = vec![begin];
        for merge in 0..ratio {
            // The flushes of one run of level 1, and its merge, after which the codes are collected.
            let flushes = merge * ratio..(merge + 1) * ratio;
            let last_level = Epochs { lo: 0, hi: BASE };
            let numbers = flushes.start * new / all..flushes.end * new / all;
            let merged = Epochs { lo: BASE + flushes.start, hi: BASE + flushes.end };
            let tables =
                (0..=merge).map(|run| Epochs { lo: BASE + run * ratio, hi: BASE + (run + 1) * ratio });
            let cuts = Cuts::of(tables.chain([last_level]));
            let batch = self.batch(1, numbers, |_| if longer { merged } else { last_level });
            partition = partition.insert(&batch, &cuts);
            if longer {
                partition = partition.collect(&cuts, 0);
            }
            rates.push(partition.expected_rate());
        }
        let end = rates.last().copied().unwrap_or(begin);
        // Keys arrive evenly: this is the mean of a line through the points.
        let mean = rates.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).sum::<f64>() / ratio as f64;
        Ok(OverRound { begin, mean, end })
    }
}
