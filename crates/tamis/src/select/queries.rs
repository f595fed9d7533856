//! A sample of a keyspace's recent reads: which absent keys, ranges and positions they ask for, and
//! how often.
//!
//! A global filter chooses a partition's key map by how the candidates would have answered these
//! queries. `filter = auto` chooses between filters by the rates of reads. Only keyspaces with such
//! a filter have a sampler.
//!
//! # What is sampled
//!
//! Each thread samples at random one in [`INTERVAL`] of the reads that reach the tables: a get,
//! each key of a `multi_get`, or the positioning of an iterator. Gets answered by a memtable ask no
//! filter and do not count. The last [`KEPT`] samples of each kind are kept. Keys longer than
//! [`MAX_KEY_BYTES`] count, but are not kept.
//!
//! # Rates
//!
//! A sample stands for all reads of its thread since the previous sample, so no read is lost. All
//! counts decay with later reads, by a factor of e every [`MEMORY`]. Decisions need a mix before
//! the first read, so the counts begin with [`PRIOR`] reads of the mix declared by the keyspace's
//! option `workload`, or of a guess.
//!
//! # Threads
//!
//! Ticks are per thread. A sample takes the lock if it is free and is dropped otherwise, so readers
//! never wait. Gets do not allocate, so the memory for their samples is allocated in advance: 70
//! KiB.

use tamis_base::key::KeyBytes;
use tamis_model::engine::Workload;
use thread_local::ThreadLocal;

use crate::sampling::Stride;
use crate::sync::Mutex;

/// One read in this many is sampled.
const INTERVAL: u32 = 64;

/// The number of samples kept of each kind.
const KEPT: usize = 256;

/// Longer keys are not kept.
const MAX_KEY_BYTES: usize = 256;

/// Reads after which older ones count for 1/e: a few thousand samples.
const MEMORY: f64 = (1 << 18) as f64;

/// The expected mix counts for this many reads.
const PRIOR: f64 = 1024.0;

/// The share of ranges and seeks among reads whose mix is not declared. Range reads cost most where
/// they are not expected.
const EXPECTED_RANGES: f64 = 0.1;

/// The range of a bounded iterator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeQuery {
    /// Where the iteration was positioned.
    pub(crate) start: KeyBytes,
    /// Where it had to end; `None` if it went backwards from the last key.
    pub(crate) end: Option<KeyBytes>,
    /// Whether the range was empty.
    pub(crate) empty: bool,
}

/// Recent reads by kind: decayed numbers of operations. See the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Gets that reached the tables.
    pub(crate) gets: f64,
    /// Gets among them that found no value.
    pub(crate) absent_gets: f64,
    /// Tables that gets searched in vain because a filter named them.
    pub(crate) false_positives: f64,
    /// Iterators positioned with an end in their direction.
    pub(crate) ranges: f64,
    /// Ranges among them that found nothing.
    pub(crate) empty_ranges: f64,
    /// Iterators positioned without an end.
    pub(crate) seeks: f64,
}

impl Rates {
    /// Returns the expected mix of a keyspace without known reads, as [`PRIOR`] operations.
    fn expected(declared: Option<&Workload>) -> Rates {
        let usual = Rates {
            gets: 1.0 - EXPECTED_RANGES,
            absent_gets: (1.0 - EXPECTED_RANGES) / 2.0,
            false_positives: 0.0,
            ranges: EXPECTED_RANGES / 2.0,
            empty_ranges: EXPECTED_RANGES / 4.0,
            seeks: EXPECTED_RANGES / 2.0,
        };
        let declared = declared.map(|workload| Rates {
            gets: workload.empty_gets + workload.existing_gets,
            absent_gets: workload.empty_gets,
            false_positives: 0.0,
            ranges: workload.empty_ranges,
            empty_ranges: workload.empty_ranges,
            seeks: workload.seeks + workload.scans,
        });
        // A workload without reads says nothing about them.
        let rates = declared.filter(|rates| rates.reads() > 0.0).unwrap_or(usual);
        rates.times(PRIOR / rates.reads())
    }

    /// Returns the number of reads.
    pub(crate) fn reads(&self) -> f64 {
        self.gets + self.ranges + self.seeks
    }

    fn times(self, factor: f64) -> Rates {
        Rates {
            gets: self.gets * factor,
            absent_gets: self.absent_gets * factor,
            false_positives: self.false_positives * factor,
            ranges: self.ranges * factor,
            empty_ranges: self.empty_ranges * factor,
            seeks: self.seeks * factor,
        }
    }
}

/// What the keyspace's reads that reach its tables ask for, as shares of all such reads. Older
/// reads count less. Before the first reads, the mix declared by the option `workload`, or an
/// expected one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct QueryStats {
    /// The reads observed since the database was opened. One in 64 is sampled and stands for the
    /// others.
    pub observed: u64,
    /// The share of gets that find a value.
    pub found_gets: f64,
    /// The share of gets that find none.
    pub absent_gets: f64,
    /// Tables searched in vain per get because a filter named them.
    pub false_positives_per_get: f64,
    /// The share of iterations positioned with an end in their direction.
    pub ranges: f64,
    /// The share of such iterations that find nothing, of all reads.
    pub empty_ranges: f64,
    /// The share of iterations positioned without an end.
    pub seeks: f64,
    /// The numbers of absent keys, ranges and seek positions kept as samples: at most 256 of each.
    pub kept: (usize, usize, usize),
}

/// What is known about the reads of a keyspace at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Queries {
    /// Keys that gets did not find, in no particular order; a key asked for often occurs often.
    pub(crate) absent: Vec<KeyBytes>,
    /// Ranges of iterators.
    pub(crate) ranges: Vec<RangeQuery>,
    /// Positions of iterators without an end.
    pub(crate) seeks: Vec<KeyBytes>,
    pub(crate) rates: Rates,
    /// Reads observed since the database was opened, up to each thread's last sample.
    pub(crate) observed: u64,
}

impl Queries {
    pub(crate) fn report(&self) -> QueryStats {
        let Queries { absent, ranges, seeks, rates, observed } = self;
        let share = |part: f64| part / rates.reads().max(f64::MIN_POSITIVE);
        QueryStats {
            observed: *observed,
            found_gets: share(rates.gets - rates.absent_gets),
            absent_gets: share(rates.absent_gets),
            false_positives_per_get: rates.false_positives / rates.gets.max(f64::MIN_POSITIVE),
            ranges: share(rates.ranges),
            empty_ranges: share(rates.empty_ranges),
            seeks: share(rates.seeks),
            kept: (absent.len(), ranges.len(), seeks.len()),
        }
    }
}

/// The last [`KEPT`] items. The oldest is overwritten in place, to reuse its memory.
#[derive(Debug)]
struct Ring<T> {
    items: Vec<T>,
    next: usize,
    used: usize,
}

impl<T: Default> Ring<T> {
    fn new(item: impl Fn() -> T) -> Ring<T> {
        Ring { items: (0..KEPT).map(|_| item()).collect(), next: 0, used: 0 }
    }

    fn place(&mut self) -> &mut T {
        let place = self.next;
        self.next = (place + 1) % KEPT;
        self.used = self.used.max(place + 1);
        &mut self.items[place]
    }

    fn kept(&self) -> &[T] {
        &self.items[..self.used]
    }
}

/// A [`RangeQuery`] in reused memory.
#[derive(Debug, Default)]
struct KeptRange {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    empty: bool,
}

#[derive(Debug)]
struct KeptQueries {
    absent: Ring<Vec<u8>>,
    ranges: Ring<KeptRange>,
    seeks: Ring<Vec<u8>>,
    rates: Rates,
    observed: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct QuerySampler {
    strides: ThreadLocal<Stride>,
    kept: Mutex<KeptQueries>,
}

impl QuerySampler {
    /// Returns a sampler for a keyspace with this declared workload, if any.
    pub(crate) fn new(declared: Option<&Workload>) -> QuerySampler {
        QuerySampler {
            strides: ThreadLocal::new(),
            kept: Mutex::new(KeptQueries {
                absent: Ring::new(|| Vec::with_capacity(MAX_KEY_BYTES)),
                ranges: Ring::new(KeptRange::default),
                seeks: Ring::new(Vec::new),
                rates: Rates::expected(declared),
                observed: 0,
            }),
        }
    }

    /// Returns the approximate memory used. Keys have a maximum length, which the slots of absent
    /// keys reserve.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kept = self.kept.lock();
        let ranges = kept.ranges.kept().len() + kept.seeks.kept().len();
        KEPT * (MAX_KEY_BYTES + size_of::<Vec<u8>>() + size_of::<KeptRange>() + size_of::<Vec<u8>>())
            + ranges * MAX_KEY_BYTES / 8
    }

    fn stride(&self) -> &Stride {
        self.strides.get_or(|| Stride::new(self.strides.iter().count(), INTERVAL))
    }

    /// Called once for each read; returns whether it is sampled. A sampled read is then recorded by
    /// one of the methods below.
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        self.stride().tick(INTERVAL)
    }

    /// Records a sampled get that searched `false_positives` tables in vain.
    #[cold]
    pub(crate) fn record_get(&self, key: &[u8], found: bool, false_positives: f64) {
        self.record(|kept, weight| {
            kept.rates.gets += weight;
            kept.rates.false_positives += weight * false_positives;
            if !found {
                kept.rates.absent_gets += weight;
                if key.len() <= MAX_KEY_BYTES {
                    refill(kept.absent.place(), key);
                }
            }
        });
    }

    /// Records a sampled iteration positioned at `start` and bounded by `end`, which is `None` only
    /// backwards.
    #[cold]
    pub(crate) fn record_range(&self, start: &[u8], end: Option<&[u8]>, empty: bool) {
        self.record(|kept, weight| {
            kept.rates.ranges += weight;
            kept.rates.empty_ranges += if empty { weight } else { 0.0 };
            if start.len().max(end.map_or(0, <[u8]>::len)) <= MAX_KEY_BYTES {
                let range = kept.ranges.place();
                refill(&mut range.start, start);
                match end {
                    Some(end) => refill(range.end.get_or_insert_default(), end),
                    None => range.end = None,
                }
                range.empty = empty;
            }
        });
    }

    /// Records a sampled iteration positioned at `start`, without an end.
    #[cold]
    pub(crate) fn record_seek(&self, start: &[u8]) {
        self.record(|kept, weight| {
            kept.rates.seeks += weight;
            if start.len() <= MAX_KEY_BYTES {
                refill(kept.seeks.place(), start);
            }
        });
    }

    /// Passes the kept samples and the weight of this one to `add`, unless another thread has the
    /// lock.
    fn record(&self, add: impl FnOnce(&mut KeptQueries, f64)) {
        let Some(mut kept) = self.kept.try_lock() else { return };
        let stride = self.stride();
        let weight = stride.weight();
        stride.recorded();
        let read = f64::from(weight);
        kept.rates = kept.rates.times((-read / MEMORY).exp());
        kept.observed += u64::from(weight);
        add(&mut kept, read);
    }

    /// Returns the rates and the number of reads observed. O(1).
    pub(crate) fn rates(&self) -> (Rates, u64) {
        let kept = self.kept.lock();
        (kept.rates, kept.observed)
    }

    /// Returns everything known, for background threads. Copies at most [`KEPT`] keys or ranges of
    /// each kind. Meanwhile readers drop their samples.
    pub(crate) fn snapshot(&self) -> Queries {
        let kept = self.kept.lock();
        let keys = |ring: &Ring<Vec<u8>>| ring.kept().iter().map(|key| KeyBytes::from(&key[..])).collect();
        let range = |range: &KeptRange| RangeQuery {
            start: KeyBytes::from(&range.start[..]),
            end: range.end.as_deref().map(KeyBytes::from),
            empty: range.empty,
        };
        Queries {
            absent: keys(&kept.absent),
            ranges: kept.ranges.kept().iter().map(range).collect(),
            seeks: keys(&kept.seeks),
            rates: kept.rates,
            observed: kept.observed,
        }
    }
}

fn refill(place: &mut Vec<u8>, key: &[u8]) {
    place.clear();
    place.extend_from_slice(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks until a read is sampled.
    fn sampled(sampler: &QuerySampler) {
        while !sampler.tick() {}
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.1 * b.abs().max(1.0)
    }

    #[test]
    fn before_any_read_the_mix_is_the_declared_one() {
        let usual = QuerySampler::new(None).snapshot();
        assert!(close(usual.rates.reads(), PRIOR) && usual.observed == 0);
        assert!(close(usual.rates.ranges + usual.rates.seeks, PRIOR * EXPECTED_RANGES));
        let declared =
            Workload { existing_gets: 1.0, empty_gets: 2.0, seeks: 0.5, scans: 0.5, ..Workload::default() };
        let rates = QuerySampler::new(Some(&declared)).snapshot().rates;
        let expected = [rates.gets, rates.absent_gets, rates.ranges, rates.seeks];
        assert_eq!(expected, [0.75, 0.5, 0.0, 0.25].map(|share| share * PRIOR));
        let writes = Workload { puts: 1.0, ..Workload::default() };
        assert_eq!(QuerySampler::new(Some(&writes)).rates().0, usual.rates);
    }

    #[test]
    fn reads_replace_the_expectation_and_later_ones_the_earlier() {
        let sampler = QuerySampler::new(None);
        let mut reads = 0u64;
        while reads < MEMORY as u64 * 3 {
            reads += 1;
            if sampler.tick() {
                sampler.record_get(b"absent", false, 0.5);
            }
        }
        let rates = sampler.rates().0;
        assert!(rates.absent_gets > 0.99 * rates.reads(), "{rates:?}");
        assert!(close(rates.false_positives, rates.gets / 2.0), "{rates:?}");
        let observed = sampler.rates().1;
        assert!((reads - 2 * u64::from(INTERVAL)..=reads).contains(&observed), "{observed} of {reads}");
        for _ in 0..MEMORY as u64 * 3 {
            if sampler.tick() {
                sampler.record_seek(b"s");
            }
        }
        let rates = sampler.rates().0;
        assert!(rates.seeks > 0.94 * rates.reads(), "{rates:?}");
    }

    #[test]
    fn the_newest_samples_are_kept() {
        let sampler = QuerySampler::new(None);
        for i in 0..KEPT + 10 {
            sampled(&sampler);
            sampler.record_get(format!("{i:04}").as_bytes(), false, 0.0);
            sampled(&sampler);
            sampler.record_get(b"present", true, 0.0);
        }
        let mut absent = sampler.snapshot().absent;
        absent.sort_unstable();
        let newest: Vec<KeyBytes> =
            (10..KEPT + 10).map(|i| KeyBytes::from(format!("{i:04}").as_bytes())).collect();
        assert_eq!(absent, newest);
    }

    #[test]
    fn ranges_and_seeks_are_kept_apart_and_long_keys_only_counted() {
        let sampler = QuerySampler::new(None);
        let long = vec![b'x'; MAX_KEY_BYTES + 1];
        for (end, empty) in [(Some(&b"b"[..]), true), (None, false), (Some(&long[..]), false)] {
            sampled(&sampler);
            sampler.record_range(b"a", end, empty);
        }
        for start in [&b"s"[..], &long] {
            sampled(&sampler);
            sampler.record_seek(start);
        }
        sampled(&sampler);
        sampler.record_get(&long, false, 0.0);
        let Queries { absent, ranges, seeks, rates, observed } = sampler.snapshot();
        let range = |end: Option<&[u8]>, empty| RangeQuery {
            start: KeyBytes::from(&b"a"[..]),
            end: end.map(KeyBytes::from),
            empty,
        };
        assert_eq!(ranges, [range(Some(b"b"), true), range(None, false)]);
        assert_eq!((absent, seeks), (Vec::new(), vec![KeyBytes::from(&b"s"[..])]));
        let prior = Rates::expected(None);
        assert!(close(rates.reads() - prior.reads(), observed as f64), "long keys count: {rates:?}");
    }

    /// Readers skip the lock when it is taken; skipped reads count with their thread's next sample.
    #[test]
    fn no_read_of_any_thread_is_forgotten() {
        const READS: u64 = 200_000;
        let sampler = QuerySampler::new(None);
        let (looked, total) = (std::sync::Barrier::new(5), std::sync::Mutex::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (sampler, looked, total) = (&sampler, &looked, &total);
                let record = move || match thread % 2 {
                    0 => sampler.record_get(&[thread; 8], false, 0.0),
                    _ => sampler.record_range(&[thread], Some(&[thread + 1]), true),
                };
                scope.spawn(move || {
                    for _ in 0..READS {
                        if sampler.tick() {
                            record();
                        }
                    }
                    looked.wait();
                    // In turn, each thread takes a sample that finds the lock free.
                    let mut total = total.lock().expect("no panic");
                    *total += READS + 1;
                    while !sampler.tick() {
                        *total += 1;
                    }
                    record();
                });
            }
            for _ in 0..200 {
                let seen = sampler.snapshot();
                assert!(seen.absent.iter().all(|key| key.len() == 8 && key.iter().all(|b| b % 2 == 0)));
                let whole =
                    |r: &RangeQuery| r.end.as_deref() == Some(&[r.start[0] + 1][..]) && r.start[0] % 2 == 1;
                assert!(seen.ranges.iter().all(whole), "no torn sample");
            }
            looked.wait();
        });
        let (rates, observed) = sampler.rates();
        assert_eq!(observed, *total.lock().expect("no panic"));
        // Counts decay before a sample is added, so a sample for many reads counts in full.
        let left = (-(observed as f64) / MEMORY).exp();
        let all = rates.absent_gets + rates.empty_ranges;
        assert!(all > MEMORY * (1.0 - left) * 0.99 && all <= observed as f64 + PRIOR, "{rates:?}");
    }
}
