//! What a get asks filters with, and the record of what a sampled one asked.

use smallvec::SmallVec;
use tamis_base::key::prefix_of;
use tamis_filter::{Digest, IndependentDigests};
use tamis_policy::hotness::{BlockRead, SegmentId};

use crate::observe::cost::ReadCost;
use crate::sampling::AskedSegment;

/// The state of a point read: the key, its first bytes as a number, and its digest.
///
/// The digest is computed once and serves every memtable filter, table filter and block hash index
/// of the operation. Only builds with the feature `measure` can turn this hash sharing off, to
/// measure its benefit.
#[derive(Debug)]
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    digest: Option<Digest>,
    sharing: bool,
    independent: Option<Box<IndependentDigests>>,
    counting: Counting,
}

impl<'k> Probe<'k> {
    /// Returns a probe for a key whose digest is already computed, with hash sharing.
    #[inline]
    pub(crate) fn of(lean: &LeanKey<'k>) -> Self {
        Probe {
            key: lean.key,
            prefix: lean.prefix,
            digest: Some(lean.digest),
            sharing: true,
            independent: None,
            counting: Counting::Undecided,
        }
    }

    /// Returns a probe that shares the given digest; without one, every filter computes its own.
    #[inline]
    pub(crate) fn new(key: &'k [u8], shared: Option<Digest>) -> Self {
        Probe {
            key,
            prefix: prefix_of(key),
            digest: shared,
            sharing: shared.is_some(),
            independent: None,
            counting: Counting::Undecided,
        }
    }

    fn compute(&mut self, cost: &mut ReadCost) -> Digest {
        cost.digests += 1;
        *self.digest.insert(Digest::of(self.key))
    }

    /// Returns the digest for one filter: the shared one, or a new one each time without sharing.
    #[inline]
    pub(crate) fn digest_for_filter(&mut self, cost: &mut ReadCost) -> Digest {
        match self.digest {
            Some(digest) if self.sharing() => digest,
            _ => self.compute(cost),
        }
    }

    /// Returns the digest that all filters share, if they do.
    #[inline]
    pub(crate) fn shared_digest(&self) -> Option<Digest> {
        self.digest.filter(|_| self.sharing())
    }

    /// Returns the key with `digest`, its own.
    #[inline]
    pub(crate) fn lean(&self, digest: Digest) -> LeanKey<'k> {
        LeanKey { key: self.key, prefix: self.prefix, digest }
    }

    /// Returns the digest for a block's hash index: the last one this operation computed.
    #[inline]
    pub(crate) fn digest_for_block(&mut self, cost: &mut ReadCost) -> Digest {
        match self.digest {
            Some(digest) => digest,
            None => self.compute(cost),
        }
    }

    #[inline]
    pub(crate) fn sharing(&self) -> bool {
        !cfg!(feature = "measure") || self.sharing
    }

    /// Like [`counted`](Self::counted), but the first call decides with `draw` whether the get is
    /// sampled.
    #[inline]
    pub(super) fn count_with(&mut self, draw: impl FnOnce() -> bool) -> Option<&mut SampledProbes> {
        if matches!(self.counting, Counting::Undecided) {
            self.counting = if draw() { Counting::Yes(SampledProbes::default()) } else { Counting::No };
        }
        self.counted()
    }

    /// Sets whether the get is sampled.
    pub(crate) fn set_counted(&mut self, counted: bool) {
        self.counting = if counted { Counting::Yes(SampledProbes::default()) } else { Counting::No };
    }

    /// Returns the record of probes if the get is sampled.
    #[inline]
    pub(crate) fn counted(&mut self) -> Option<&mut SampledProbes> {
        match &mut self.counting {
            Counting::Yes(asked) => Some(asked),
            _ => None,
        }
    }

    /// Returns the `count` seeded digests for a Bloom filter with independent hash functions.
    pub(crate) fn independent(&mut self, count: u32, cost: &mut ReadCost) -> &IndependentDigests {
        let shared =
            self.independent.take().filter(|d| self.sharing() && d.as_slice().len() >= count as usize);
        let digests = shared.unwrap_or_else(|| {
            cost.digests += u64::from(count);
            Box::new(IndependentDigests::of(self.key, count))
        });
        self.independent.insert(digests)
    }
}

/// A batch key with no known candidate run yet. It has only what filters need, so that many keys
/// fit into the L1 cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeanKey<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    pub(crate) digest: Digest,
}

impl<'k> LeanKey<'k> {
    /// Computes the digest.
    #[inline]
    pub(crate) fn new(key: &'k [u8], cost: &mut ReadCost) -> Self {
        cost.digests += 1;
        LeanKey { key, prefix: prefix_of(key), digest: Digest::of(key) }
    }
}

/// Whether a get is sampled, and the segments it probed.
#[expect(
    clippy::large_enum_variant,
    reason = "one for each get, on the stack, written only if it is counted"
)]
#[derive(Debug, Default)]
enum Counting {
    /// The get has not probed an elastic filter yet.
    #[default]
    Undecided,
    /// The get is not sampled.
    No,
    /// The get is sampled. Stored in place, so that a get allocates nothing in a tree of up to
    /// sixteen runs.
    Yes(SampledProbes),
}

/// The elastic segments that a get probed, newest run first.
#[derive(Debug, Default)]
pub(crate) struct SampledProbes {
    segments: SmallVec<[SampledSegment; 16]>,
    /// The number of segments that had to be probed: the last of them had the answer. Filters are
    /// probed ahead of the search, so more may have been probed.
    needed: Option<usize>,
}

/// A segment that a get probed.
#[derive(Clone, Copy, Debug)]
struct SampledSegment {
    /// The table's number within the version.
    table: u32,
    id: SegmentId,
    /// Whether the table held a version of the key.
    held: bool,
    /// Whether the search of the table read a block.
    read: BlockRead,
}

impl SampledProbes {
    pub(crate) fn push(&mut self, table: usize, id: SegmentId) {
        self.segments.push(SampledSegment { table: table as u32, id, held: false, read: BlockRead::None });
    }

    /// Returns the tables that had to be probed (their numbers within the version), and whether
    /// each held the key.
    pub(crate) fn needed_tables(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        let needed = &self.segments[..self.needed.unwrap_or(self.segments.len())];
        needed.iter().map(|asked| (asked.table as usize, asked.held))
    }

    /// Records that a table (its number within the version) was searched, and whether it held a
    /// version of the key.
    pub(crate) fn searched(&mut self, table: usize, read: BlockRead, held: bool) {
        if let Some(asked) = self.segments.iter_mut().find(|asked| asked.table as usize == table) {
            (asked.read, asked.held) = (read, held);
        }
        self.needed = None;
    }

    /// Records that the search ended in a table: probes of older runs were wasted.
    pub(crate) fn ended(&mut self, table: usize) {
        // Candidates are searched in the order in which they were probed, but tables without an
        // elastic filter are not listed. Tables of newer runs have smaller numbers.
        self.needed = Some(self.segments.partition_point(|asked| asked.table as usize <= table));
    }

    /// Returns the segments that had to be probed.
    pub(crate) fn needed(&self) -> impl Iterator<Item = AskedSegment> + '_ {
        let needed = &self.segments[..self.needed.unwrap_or(self.segments.len())];
        needed.iter().map(|&SampledSegment { id, held, read, .. }| AskedSegment { id, held, read })
    }
}
