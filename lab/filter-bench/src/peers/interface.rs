//! Filters behind one interface, without overhead in the timed loops.

use std::cell::OnceCell;
use std::hint::black_box;
use std::time::Instant;

use tamis_filter::{Digest, KeyList};

use crate::measure::{chained, independent};

/// The same keys as integers and as digests, so that neither side needs a conversion while it is timed.
pub(super) struct Keys {
    /// For other crates.
    pub hashes: Vec<u64>,
    /// For tamis.
    pub digests: Vec<Digest>,
    /// For range filters of tamis, created on demand.
    sorted: OnceCell<KeyList>,
}

impl Keys {
    /// Returns keys `from..from + count` of an endless list without duplicates.
    pub(super) fn numbered(from: u64, count: usize) -> Self {
        // All bits must depend on all others, since some filters use the lowest and others the highest.
        let digests: Vec<_> =
            (from..from + count as u64).map(|number| Digest::of(&number.to_le_bytes())).collect();
        Self { hashes: digests.iter().map(|digest| digest.get()).collect(), digests, sorted: OnceCell::new() }
    }

    /// Returns the keys as byte strings in order, as in a run.
    pub(super) fn sorted(&self) -> &KeyList {
        self.sorted.get_or_init(|| {
            let mut hashes = self.hashes.clone();
            hashes.sort_unstable();
            let mut list = KeyList::new();
            hashes.iter().for_each(|hash| list.push(&hash.to_be_bytes()));
            list
        })
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }
}

/// A method of building a filter over keys that are 64-bit hashes, or, for range filters, uniform integers.
pub(super) trait Candidate {
    /// Returns crate and filter.
    fn name(&self) -> &'static str;
    /// Returns a remark on the comparison.
    fn note(&self) -> &'static str;
    /// Reports whether it is a filter of tamis.
    fn is_ours(&self) -> bool;
    /// Builds one filter. Filters of a fixed size ignore the bits per key.
    fn build(&self, keys: &Keys, bits: f64) -> Result<Box<dyn Built>, String>;
    /// Builds several filters, each over its own keys.
    fn build_many(
        &self,
        count: usize,
        keys: &dyn Fn(usize) -> Keys,
        bits: f64,
    ) -> Result<Box<dyn Built>, String>;
    /// Returns nanoseconds per key to build one filter.
    fn build_time(&self, keys: &Keys, bits: f64) -> f64;
}

/// Filters of one candidate.
pub(super) trait Built {
    /// Returns the size of one filter in bits.
    fn bits(&self) -> f64;
    /// Counts the positive answers of the first filter for `keys`.
    fn positives(&self, keys: &[u64]) -> usize;
    /// Returns nanoseconds per probe. With several filters, random numbers choose among them.
    fn probe_time(&self, keys: &[u64], count: usize, wait: bool, route: &[u32]) -> f64;
}

/// A candidate as its parts; the timed loops are compiled for each.
pub(super) struct Recipe<B, C, S> {
    /// Crate and filter.
    pub name: &'static str,
    /// A remark on the comparison.
    pub note: &'static str,
    /// Builds a filter of about the given bits per key.
    pub build: B,
    /// Reports whether it may contain a key.
    pub contains: C,
    /// Its size in bytes.
    pub bytes: S,
}

struct Filters<F, C> {
    filters: Vec<F>,
    contains: C,
    bytes: usize,
}

impl<B, C, S> Recipe<B, C, S> {
    fn built<F>(&self, filters: Vec<F>) -> Result<Box<dyn Built>, String>
    where
        F: 'static,
        C: Fn(&F, u64) -> bool + Copy + 'static,
        S: Fn(&F) -> usize,
    {
        let bytes = filters.first().map_or(0, &self.bytes);
        Ok(Box::new(Filters { filters, contains: self.contains, bytes }))
    }
}

impl<F, B, C, S> Candidate for Recipe<B, C, S>
where
    F: 'static,
    B: Fn(&Keys, f64) -> Result<F, String>,
    C: Fn(&F, u64) -> bool + Copy + 'static,
    S: Fn(&F) -> usize,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn note(&self) -> &'static str {
        self.note
    }

    fn is_ours(&self) -> bool {
        self.name.starts_with("tamis")
    }

    fn build(&self, keys: &Keys, bits: f64) -> Result<Box<dyn Built>, String> {
        self.built(vec![(self.build)(keys, bits)?])
    }

    fn build_many(
        &self,
        count: usize,
        keys: &dyn Fn(usize) -> Keys,
        bits: f64,
    ) -> Result<Box<dyn Built>, String> {
        self.built((0..count).map(|at| (self.build)(&keys(at), bits)).collect::<Result<_, _>>()?)
    }

    fn build_time(&self, keys: &Keys, bits: f64) -> f64 {
        let start = Instant::now();
        let built = black_box((self.build)(keys, bits));
        let time = start.elapsed().as_nanos() as f64 / keys.len() as f64;
        drop(built);
        time
    }
}

impl<F, C: Fn(&F, u64) -> bool + Copy> Built for Filters<F, C> {
    fn bits(&self) -> f64 {
        self.bytes as f64 * 8.0
    }

    fn positives(&self, keys: &[u64]) -> usize {
        keys.iter().filter(|&&key| (self.contains)(&self.filters[0], key)).count()
    }

    fn probe_time(&self, keys: &[u64], count: usize, wait: bool, route: &[u32]) -> f64 {
        let Some(mask) = crate::measure::mask(keys.len()) else { return f64::NAN };
        let (filters, contains) = (&self.filters, self.contains);
        if let [filter] = &filters[..] {
            let probe = |at: usize| contains(filter, keys[at]);
            return if wait { chained(count, mask, probe) } else { independent(count, mask, probe) };
        }
        let mut turn = 0usize;
        let probe = |at: usize| {
            // Each repetition of a key queries another filter, since its line would still be in the cache otherwise.
            turn = turn.wrapping_add(1);
            let number = u64::from(route[(turn + at) % route.len()]);
            contains(&filters[((number * filters.len() as u64) >> 32) as usize], keys[at])
        };
        if wait { chained(count, mask, probe) } else { independent(count, mask, probe) }
    }
}
