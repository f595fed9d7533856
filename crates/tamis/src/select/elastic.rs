//! Probes of elastic filters by gets, and their sampling.

use smallvec::SmallVec;
use tamis_filter::BloomScheme;

use super::Probe;
use crate::hotness::{Asked, BlockRead, SegmentId};
use crate::table::{ElasticFilter, FoundUnits, ReadCost};

/// Reports whether the segment found may hold the probe's key. Without units in memory it may.
#[inline]
pub(super) fn ask(
    filter: &ElasticFilter,
    found: &FoundUnits<'_>,
    probe: &mut Probe<'_>,
    cost: &mut ReadCost,
) -> bool {
    if found.units() == 0 {
        return true;
    }
    cost.filter_probes += 1;
    let directory = filter.directory();
    let maybe = match directory.spec().scheme {
        BloomScheme::Independent => {
            let digests = probe.independent(directory.units() * directory.probes(), cost);
            // Units that need more digests than possible are damaged and must not deny anything.
            found.contains_independent(digests).unwrap_or(true)
        }
        _ => found.contains(probe.digest_for_filter(cost)),
    };
    cost.filter_negatives += u64::from(!maybe);
    maybe
}

/// Whether a get is sampled, and the segments it probed.
#[expect(
    clippy::large_enum_variant,
    reason = "one for each get, on the stack, written only if it is counted"
)]
#[derive(Debug, Default)]
pub(crate) enum Counting {
    /// The get has not probed an elastic filter yet.
    #[default]
    Undecided,
    /// The get is not sampled.
    No,
    /// The get is sampled. Stored in place, so that a get does not allocate in a tree of up to sixteen runs.
    Yes(SampledProbes),
}

/// The elastic segments that a get probed, newest run first.
#[derive(Debug, Default)]
pub(crate) struct SampledProbes {
    segments: SmallVec<[SampledSegment; 16]>,
    /// The number of segments that had to be probed: the answer was in the last of them. Filters are probed ahead of
    /// the search, so more may have been probed.
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

    /// Returns the tables that had to be probed (their numbers within the version), and whether each held the key.
    pub(crate) fn needed_tables(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        let needed = &self.segments[..self.needed.unwrap_or(self.segments.len())];
        needed.iter().map(|asked| (asked.table as usize, asked.held))
    }

    /// Records that a table (its number within the version) was searched, and whether it held a version of the key.
    pub(crate) fn searched(&mut self, table: usize, read: BlockRead, held: bool) {
        if let Some(asked) = self.segments.iter_mut().find(|asked| asked.table as usize == table) {
            (asked.read, asked.held) = (read, held);
        }
        self.needed = None;
    }

    /// Records that the search ended in a table: probes of older runs were wasted.
    pub(crate) fn ended(&mut self, table: usize) {
        // Candidates are searched in the order in which they were probed, but tables without an elastic filter are not
        // listed. Tables of newer runs have smaller numbers.
        self.needed = Some(self.segments.partition_point(|asked| asked.table as usize <= table));
    }

    /// Returns the segments that had to be probed.
    pub(crate) fn needed(&self) -> impl Iterator<Item = Asked> + '_ {
        let needed = &self.segments[..self.needed.unwrap_or(self.segments.len())];
        needed.iter().map(|&SampledSegment { id, held, read, .. }| Asked { id, held, read })
    }
}
