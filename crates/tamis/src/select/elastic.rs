//! What a get asks of elastic filters, and what of that is counted.

use smallvec::SmallVec;
use tamis_filter::BloomScheme;

use super::Probe;
use crate::heat::SegmentId;
use crate::table::{ElasticFilter, FoundUnits, ReadCost};

/// Whether the segment that was found may hold the probe's key. Without units in memory it may.
#[inline]
pub(super) fn ask(
    filter: &ElasticFilter,
    found: &FoundUnits,
    probe: &mut Probe<'_>,
    cost: &mut ReadCost,
) -> bool {
    let Some(units) = found.units() else { return true };
    cost.filter_probes += 1;
    let directory = filter.directory();
    let maybe = match directory.spec().scheme {
        BloomScheme::Independent => {
            let digests = probe.independent(directory.units() * directory.probes(), cost);
            // Units that ask for more digests than there can be are damaged: they may not deny anything.
            units.contains_independent(digests).unwrap_or(true)
        }
        _ => units.contains(probe.digest_for_filter(cost)),
    };
    cost.filter_negatives += u64::from(!maybe);
    maybe
}

/// Whether a get is one of those that are counted, and what it asked.
#[expect(
    clippy::large_enum_variant,
    reason = "one for each get, on the stack, written only if it is counted"
)]
#[derive(Debug, Default)]
pub(crate) enum Counting {
    /// It has asked no elastic filter yet.
    #[default]
    Undecided,
    /// It is not counted.
    No,
    /// It is. In place, as a get allocates nothing, of a tree of up to sixteen runs.
    Yes(Asked),
}

/// The elastic segments that a get asked, newest run first.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    segments: SmallVec<[AskedSegment; 16]>,
    /// So many of the segments were asked for a reason: the answer was in the last of them. Filters are asked ahead of the
    /// search, so more may have been.
    needed: Option<usize>,
}

/// A segment that a get asked.
#[derive(Clone, Copy, Debug)]
struct AskedSegment {
    /// The table's number within the version.
    table: u32,
    id: SegmentId,
    /// Whether a version of the key was in the table.
    held: bool,
}

impl Asked {
    pub(crate) fn push(&mut self, table: usize, id: SegmentId) {
        self.segments.push(AskedSegment { table: table as u32, id, held: false });
    }

    /// A version of the key was in a table (its number within the version).
    pub(crate) fn found(&mut self, table: usize) {
        if let Some(place) = self.segments.iter().position(|asked| asked.table as usize == table) {
            self.segments[place].held = true;
        }
        self.needed = None;
    }

    /// The search ended with what was in a table: what was asked of older runs was asked in vain.
    pub(crate) fn ended(&mut self, table: usize) {
        // Candidates are searched in the order in which they were asked, but tables without an elastic filter are not
        // listed: tables of newer runs have smaller numbers.
        self.needed = Some(self.segments.partition_point(|asked| asked.table as usize <= table));
    }

    /// What was asked and needed, and whether it held the key.
    pub(crate) fn needed(&self) -> impl Iterator<Item = (SegmentId, bool)> + '_ {
        let needed = &self.segments[..self.needed.unwrap_or(self.segments.len())];
        needed.iter().map(|asked| (asked.id, asked.held))
    }
}
