//! A histogram of durations as a plain value: buckets, percentiles, sums and differences.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Buckets of each power of two, as a power of two.
const PARTS_LOG: u32 = 3;
const PARTS: u64 = 1 << PARTS_LOG;

/// Durations from this power of two of nanoseconds on (eighteen minutes) share the last bucket.
const LAST_LOG: u32 = 40;

/// The number of buckets: the first [`PARTS`] are single nanoseconds.
pub(super) const BUCKETS: usize = (PARTS as usize) * (LAST_LOG - PARTS_LOG + 1) as usize + 1;

/// Returns the bucket of a duration.
#[inline]
pub(super) fn bucket_of(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    let log = nanos.ilog2();
    if log >= LAST_LOG {
        return BUCKETS - 1;
    }
    let part = (nanos >> (log - PARTS_LOG)) - PARTS;
    (u64::from(log - PARTS_LOG + 1) * PARTS + part) as usize
}

/// Returns the least duration that does not belong to a bucket any more.
fn end_of(bucket: usize) -> u64 {
    let (octave, part) = ((bucket as u64) / PARTS, (bucket as u64) % PARTS);
    match octave {
        _ if bucket + 1 >= BUCKETS => u64::MAX,
        0 => part + 1,
        octave => (PARTS + part + 1) << (octave - 1),
    }
}

/// How often an operation took how long. Buckets are an eighth of a power of two wide.
///
/// Two of them may be added, or the earlier of two readings subtracted from the later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// As many as there are up to the last that is not empty.
    counts: Vec<u64>,
    total_nanos: u64,
    max_nanos: u64,
}

impl LatencyHistogram {
    pub(super) fn new(counts: impl Iterator<Item = u64>, total_nanos: u64, max_nanos: u64) -> Self {
        let mut histogram = LatencyHistogram { counts: counts.collect(), total_nanos, max_nanos };
        histogram.trim();
        histogram
    }

    fn trim(&mut self) {
        let used = self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        self.counts.truncate(used);
    }

    /// The number of operations that were timed.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of their durations.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_nanos)
    }

    /// The longest duration; of a difference of two readings, the longest since the database was
    /// opened.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos)
    }

    /// The mean duration; zero if nothing was timed.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.total_nanos.checked_div(self.samples()).unwrap_or(0))
    }

    /// Returns a duration within which this share of the operations (between 0 and 1) was done: the
    /// end of a bucket, so at most an eighth too long, and never longer than [`max`](Self::max).
    /// Zero if nothing was timed.
    pub fn percentile(&self, share: f64) -> Duration {
        let samples = self.samples();
        let wanted = ((samples as f64 * share.clamp(0.0, 1.0)).ceil() as u64).clamp(1, samples.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(end_of(bucket).min(self.max_nanos));
            }
        }
        Duration::ZERO
    }

    /// Returns the buckets that are not empty, in order: the end of each (excluded) in nanoseconds,
    /// and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().enumerate();
        counts.filter(|(_, count)| **count > 0).map(|(bucket, count)| (end_of(bucket), *count))
    }
}

impl Add for LatencyHistogram {
    type Output = LatencyHistogram;

    fn add(mut self, other: LatencyHistogram) -> LatencyHistogram {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        LatencyHistogram {
            counts: self.counts,
            total_nanos: self.total_nanos.wrapping_add(other.total_nanos),
            max_nanos: self.max_nanos.max(other.max_nanos),
        }
    }
}

/// Returns the difference of two readings, the later one first.
impl Sub<&LatencyHistogram> for LatencyHistogram {
    type Output = LatencyHistogram;

    fn sub(mut self, earlier: &LatencyHistogram) -> LatencyHistogram {
        self.counts.iter_mut().zip(&earlier.counts).for_each(|(count, before)| {
            *count = count.saturating_sub(*before);
        });
        self.total_nanos = self.total_nanos.wrapping_sub(earlier.total_nanos);
        self.trim();
        self
    }
}

/// As numbers for people: `samples`, and `mean_nanos`, `p50_nanos`, `p90_nanos`, `p99_nanos`,
/// `p999_nanos`, `max_nanos`.
#[cfg(feature = "serde")]
impl serde::Serialize for LatencyHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let nanos = |duration: Duration| duration.as_nanos() as u64;
        let mut fields = serializer.serialize_struct("LatencyHistogram", 7)?;
        fields.serialize_field("samples", &self.samples())?;
        fields.serialize_field("mean_nanos", &nanos(self.mean()))?;
        fields.serialize_field("p50_nanos", &nanos(self.percentile(0.5)))?;
        fields.serialize_field("p90_nanos", &nanos(self.percentile(0.9)))?;
        fields.serialize_field("p99_nanos", &nanos(self.percentile(0.99)))?;
        fields.serialize_field("p999_nanos", &nanos(self.percentile(0.999)))?;
        fields.serialize_field("max_nanos", &nanos(self.max()))?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: &[u64]) -> LatencyHistogram {
        let mut counts = vec![0; BUCKETS];
        durations.iter().for_each(|&nanos| counts[bucket_of(nanos)] += 1);
        let total = durations.iter().fold(0u64, |sum, nanos| sum.wrapping_add(*nanos));
        LatencyHistogram::new(counts.into_iter(), total, durations.iter().copied().max().unwrap_or(0))
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        let mut begin = 0;
        for bucket in 0..BUCKETS - 1 {
            let end = end_of(bucket);
            assert!(end > begin, "{bucket}");
            assert_eq!((bucket_of(begin), bucket_of(end - 1)), (bucket, bucket));
            assert!(end - begin <= (begin / PARTS).max(1), "{bucket} is too wide");
            begin = end;
        }
        assert_eq!(begin, 1 << LAST_LOG);
        assert_eq!((bucket_of(begin), bucket_of(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_at_most_an_eighth_too_long() {
        let durations: Vec<u64> = (1..=10_000).map(|n| n * 37).collect();
        let histogram = of(&durations);
        for share in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = durations[((10_000.0 * share) as usize).clamp(1, 10_000) - 1];
            let known = histogram.percentile(share).as_nanos() as u64;
            assert!((exact..=exact + exact / 8 + 1).contains(&known), "{share}: {known} for {exact}");
        }
        assert_eq!(histogram.percentile(1.0), histogram.max());
        assert_eq!(histogram.samples(), 10_000);
        assert_eq!(of(&[]).percentile(0.5), Duration::ZERO);
        assert_eq!(of(&[u64::MAX]).percentile(0.5), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn sums_and_differences_are_those_of_the_durations() {
        let (a, b) = (of(&[1, 20, 300]), of(&[20, 5_000, 1 << 50]));
        let both = a.clone() + b.clone();
        assert_eq!(both, of(&[1, 20, 300, 20, 5_000, 1 << 50]));
        assert_eq!((both.clone() - &a).buckets().collect::<Vec<_>>(), b.buckets().collect::<Vec<_>>());
        assert_eq!((both - &b).total(), a.total());
        let below = |of: &LatencyHistogram, end: u64| -> u64 {
            of.buckets().take_while(|bucket| bucket.0 <= end).map(|bucket| bucket.1).sum()
        };
        assert_eq!((below(&a, 1 << 5), below(&b, 1 << 39)), (2, 2));
    }
}
