//! Latencies in logarithmic buckets: a constant 15 KiB, a few nanoseconds per recording, an error
//! of at most 1/32.

const SUB_BITS: u32 = 5;
const SUBS: usize = 1 << SUB_BITS;

/// Counts of durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; bucket_of(u64::MAX) + 1], total: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket_of(ns)] += 1;
        self.total += 1;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }

    /// Returns the number of durations counted.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Reports whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the duration that a share `q` (0 to 1) of all counted ones do not exceed, as the
    /// upper end of its bucket; 0 if nothing was counted.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((self.total as f64 * q).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(bucket);
            }
        }
        0
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < SUBS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - SUB_BITS;
    (shift as usize + 1) * SUBS + ((ns >> shift) as usize & (SUBS - 1))
}

fn upper_end(bucket: usize) -> u64 {
    if bucket < SUBS {
        return bucket as u64;
    }
    let shift = (bucket / SUBS - 1) as u32;
    let lower = ((SUBS + bucket % SUBS) as u64) << shift;
    lower + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_in_its_bucket() {
        for ns in
            (0..200).chain((0..64).flat_map(|b| [(1u64 << b) - 1, 1 << b, (1 << b) + 1])).chain([u64::MAX])
        {
            let bucket = bucket_of(ns);
            assert!(upper_end(bucket) >= ns, "{ns}");
            assert!(bucket == 0 || upper_end(bucket - 1) < ns, "{ns}");
            assert!(upper_end(bucket) as f64 <= ns as f64 * (1.0 + 1.0 / 32.0), "{ns}");
        }
    }

    #[test]
    fn quantiles_of_known_durations() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(0.5), 0);
        for ns in 1..=1000 {
            h.record(ns);
        }
        let mut twice = h.clone();
        twice.merge(&h);
        for h in [&h, &twice] {
            assert!((500..=516).contains(&h.quantile(0.5)));
            assert!((990..=1023).contains(&h.quantile(0.99)));
            assert_eq!(h.quantile(0.0), 1);
        }
        assert_eq!(twice.len(), 2000);
    }
}
