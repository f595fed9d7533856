//! The map from keys to blocks and positions.
//!
//! # Segments
//! A key has a number ([`KeyMap`]), and *knots* cut the numbers into segments: number `n` is in the segment whose
//! lower knot is the last one at or below `n`. The ranges before the first knot and from the last one on are
//! segments, too, the *edges*. A knot is only a border; no key need have its number.
//!
//! # Edges
//! An edge has far too many numbers for its positions. If keys were left there, those of a time series would soon all
//! share one position. So whenever keys arrive in an empty edge, [`Map::extend`] creates segments over them, and the
//! edge beyond stays empty. Two kinds of keys remain in an edge: those outside the common prefix, which have the
//! smallest or the largest number, and those that arrive after the knots have become too many.

use crate::digest::Digest;
use crate::keys::KeyMap;
use crate::line::Line;

/// Salt of the digest of keys, so that positions in this filter are independent of those in others.
const SALT: u64 = 0x0067_7266;
/// From this many new keys in an edge on, they get segments like those of a build, rather than a single one.
const MANY: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A segment is a block; the position follows the line from knot to knot.
    Learned,
    /// No segments: the digest determines block and position.
    Digest,
    /// A segment has one or more blocks; the digest determines block and position within it.
    Mixed,
}

/// The location of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Spot {
    pub(super) block: usize,
    /// The position at the finest resolution.
    pub(super) position: u64,
}

/// A guide for searching the knots: the numbers from the first knot to the last are cut into equal parts, about half
/// as many as there are knots. If knots are spread evenly, few are left to examine; otherwise the guide does no harm.
#[derive(Clone, Debug)]
pub(super) struct Guide {
    first: u64,
    line: Line,
    /// Number of knots in the parts before each, and in total.
    starts: Vec<u32>,
}

impl Guide {
    pub(super) fn new(knots: &[u64]) -> Self {
        let (first, last) = (knots.first().copied().unwrap_or(0), knots.last().copied().unwrap_or(0));
        let parts = (knots.len() / 2).max(1);
        let line = Line::spread((last - first).saturating_add(1), parts as u64);
        let mut starts = vec![0; parts + 1];
        for knot in knots {
            starts[line.position(knot - first) as usize + 1] += 1;
        }
        for part in 1..=parts {
            starts[part] += starts[part - 1];
        }
        Self { first, line, starts }
    }

    /// Returns the knots that may be next to a number: it is above all before them and below all after.
    #[inline(always)]
    fn around(&self, number: u64) -> std::ops::Range<usize> {
        let Some(offset) = number.checked_sub(self.first) else { return 0..0 };
        let part = self.line.position(offset) as usize;
        self.starts[part] as usize..self.starts[part + 1] as usize
    }

    fn memory_bytes(&self) -> usize {
        self.starts.capacity() * 4
    }
}

/// See the module documentation. Immutable.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) keys: KeyMap,
    pub(super) kind: Kind,
    /// Ascending, all different. Empty if the digest alone decides.
    pub(super) knots: Vec<u64>,
    pub(super) guide: Guide,
    /// The first block of each segment, and the number of blocks; empty if each has one or there are no segments.
    pub(super) firsts: Vec<u32>,
    /// Number of blocks, if the digest alone decides.
    pub(super) hashed: usize,
    /// Positions per block, at the finest resolution.
    pub(super) positions: u64,
    /// Target number of entries per block when built.
    pub(super) per_block: usize,
    /// Average number of numbers per segment, used for a new segment with few keys.
    pub(super) span: u64,
    /// Number of knots when built.
    pub(super) built: usize,
}

impl Map {
    /// Returns the number of segments, edges included.
    pub(super) fn segments(&self) -> usize {
        self.knots.len() + 1
    }

    pub(super) fn blocks(&self) -> usize {
        match self.kind {
            Kind::Digest => self.hashed,
            _ => self.firsts.last().map_or(self.segments(), |&blocks| blocks as usize),
        }
    }

    /// Returns the segment of a number.
    #[inline(always)]
    pub(super) fn segment(&self, number: u64) -> usize {
        let knots = self.guide.around(number);
        let near = &self.knots[knots.clone()];
        // Few knots are counted rather than searched, as no processor can predict how many are below.
        let below = if near.len() <= 16 {
            near.iter().map(|&knot| usize::from(knot <= number)).sum()
        } else {
            near.partition_point(|&knot| knot <= number)
        };
        knots.start + below
    }

    /// Returns the lowest number of a segment.
    #[inline(always)]
    pub(super) fn lower(&self, segment: usize) -> u64 {
        segment.checked_sub(1).map_or(0, |at| self.knots[at])
    }

    /// Returns the number after a segment's last; `None`: the segment is unbounded.
    #[inline(always)]
    pub(super) fn upper(&self, segment: usize) -> Option<u64> {
        self.knots.get(segment).copied()
    }

    /// Returns the blocks of a segment.
    #[inline(always)]
    pub(super) fn blocks_of(&self, segment: usize) -> std::ops::Range<usize> {
        match self.firsts.get(segment..segment + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => segment..segment + 1,
        }
    }

    /// Returns the line of a segment, from its lowest number on.
    #[inline(always)]
    pub(super) fn line(&self, segment: usize) -> Line {
        let lower = self.lower(segment);
        Line::spread(self.upper(segment).unwrap_or(u64::MAX) - lower, self.positions)
    }

    /// Returns the location of a key.
    #[inline(always)]
    pub(super) fn spot(&self, key: &[u8], digest: Digest) -> Spot {
        match self.kind {
            Kind::Learned => {
                let number = self.keys.clamped(key);
                let block = self.segment(number);
                Spot { block, position: self.line(block).position(number - self.lower(block)) }
            }
            Kind::Digest => self.hashed_spot(0..self.hashed, digest),
            Kind::Mixed => self.hashed_spot(self.blocks_of(self.segment(self.keys.clamped(key))), digest),
        }
    }

    /// Returns where the digest puts a key within some blocks: its high bits choose the block, the next ones the
    /// position.
    #[inline(always)]
    fn hashed_spot(&self, blocks: std::ops::Range<usize>, digest: Digest) -> Spot {
        let product = u128::from(digest.remix(SALT)) * blocks.len() as u128;
        let position = (u128::from(product as u64) * u128::from(self.positions)) >> 64;
        Spot { block: blocks.start + (product >> 64) as usize, position: position as u64 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.knots.capacity() * 8
            + self.guide.memory_bytes()
            + self.firsts.capacity() * 4
            + self.keys.heap_bytes()
    }

    /// Returns the map with segments over those of `numbers` (ascending) that lie in an edge, and the number of
    /// blocks inserted before the others; `None` if the map can stay as it is. `empty` returns whether a block is
    /// empty. Other entries keep their positions and, apart from that number of blocks, their blocks.
    pub(super) fn extend(&self, numbers: &[u64], empty: impl Fn(usize) -> bool) -> Option<(Map, usize)> {
        // The number of knots is proportional to keys, and some for stragglers; beyond that the edges take them.
        let room = (2 * self.built + 64).saturating_sub(self.knots.len()) + numbers.len() / 8;
        let is_edge_empty = |segment| self.blocks_of(segment).all(&empty);
        let max = self.keys.max();
        let (first, last) = (self.knots.first().copied(), self.knots.last().copied());
        // Numbers that a knot can be put after.
        let above = &numbers[numbers.partition_point(|&number| last.is_some_and(|last| number < last))..];
        let mut after = Vec::new();
        if room > 0 && !above.is_empty() && last != Some(max) && is_edge_empty(self.segments() - 1) {
            let from = last.unwrap_or(0);
            if above.len() >= MANY || last.is_none() {
                after.extend(self.over(above));
            }
            let behind =
                above[above.len() - 1].saturating_add(1).max(from.saturating_add(self.span)).min(max);
            after.push(behind);
            after.retain(|&knot| knot > from);
            after.sort_unstable();
            after.dedup();
        }
        let below = &numbers[..numbers.partition_point(|&number| first.is_some_and(|first| number < first))];
        let mut before = Vec::new();
        if let Some(first) =
            first.filter(|&first| room > 0 && !below.is_empty() && first > 1 && is_edge_empty(0))
        {
            if below.len() >= MANY {
                before.extend(self.over(below));
            }
            // Keys before the common prefix have number 0; that number is left in the edge.
            let lowest = below[0].min(first.saturating_sub(self.span));
            before.push(lowest.max(1));
            before.retain(|&knot| (1..first).contains(&knot));
            before.sort_unstable();
            before.dedup();
        }
        if after.is_empty() && before.is_empty() {
            return None;
        }
        Some(self.with(before, after, numbers))
    }

    /// Returns the map with more knots at its ends, for these numbers.
    fn with(&self, before: Vec<u64>, after: Vec<u64>, numbers: &[u64]) -> (Map, usize) {
        let mut map = self.clone();
        let added = before.len();
        map.knots.splice(0..0, before);
        map.knots.extend(after);
        map.knots.shrink_to_fit();
        map.guide = Guide::new(&map.knots);
        if self.kind != Kind::Mixed {
            return (map, added);
        }
        // The old segments except the edges keep their blocks; each edge stays one empty block.
        let old = added + 1..added + self.segments() - 1;
        let mut firsts = vec![0u32];
        for segment in 0..map.segments() {
            let blocks = if old.contains(&segment) {
                self.blocks_of(segment - added).len()
            } else if segment == 0 || segment + 1 == map.segments() {
                1
            } else {
                let end =
                    map.upper(segment).map_or(numbers.len(), |end| numbers.partition_point(|&n| n < end));
                let keys = end - numbers.partition_point(|&n| n < map.lower(segment));
                keys.div_ceil(self.per_block).max(1)
            };
            firsts.push(firsts[segment] + blocks as u32);
        }
        // The old segments now begin after the last new one before them instead of after the edge's single block.
        let shift = firsts[added + 1] as usize - 1;
        firsts.shrink_to_fit();
        map.firsts = firsts;
        (map, shift)
    }

    /// Returns knots over numbers, each with about as many keys as those of a build.
    fn over<'n>(&self, numbers: &'n [u64]) -> impl Iterator<Item = u64> + use<'n> {
        let segments = numbers.len().div_ceil(self.per_block.max(1));
        (0..segments).map(move |at| numbers[at * numbers.len() / segments])
    }
}
