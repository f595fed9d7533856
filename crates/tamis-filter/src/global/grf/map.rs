//! The map from keys to positions.
//!
//! # Segments
//! A key has a number ([`KeyMap`]), and *knots* cut the numbers into segments: number `n` is in the
//! segment whose lower knot is the last one at or below `n`. The ranges before the first knot and
//! from the last one on are segments, too, the *edges*. A knot is only a border; no key need have
//! its number. All segments have equally many positions, one segment after the other.
//!
//! # Within a segment
//! | map | position |
//! | --- | --- |
//! | ordered | a line from knot to knot, or one of several pieces (`pieces.rs`), chooses a *cell*, the digest a position in it. With one position per cell order decides alone (SNARF's learned map), with one cell per segment the digest does (mixed). |
//! | local | numbers keep their distance: blocks of `2^local` numbers are put somewhere by a hash of the block, without breaking them up (a locality-preserving hash, as in Grafite: M. Costa et al., SIGMOD 2024) |
//! | digest | no knots, one segment: the digest decides alone |
//!
//! # Edges
//! An edge has far too many numbers for its positions. If keys were left there, those of a time
//! series would soon all share one position. So whenever keys arrive in an empty edge,
//! [`Map::extend`] creates segments over them, and the edge beyond stays empty. Two kinds of keys
//! remain in an edge: those outside the common prefix, which have the smallest or the largest
//! number, and those that arrive after the knots have become too many.

use std::ops::RangeInclusive;

use crate::bits::mask;
use crate::digest::Digest;
use crate::keys::KeyMap;
use crate::line::{Line, MAX_POSITIONS};

use super::pieces::{self, Pieces};

/// Salt of the digest of keys, so that positions in this filter are independent of those in others.
const SALT: u64 = 0x0067_7266;
/// Salt of the blocks of a local map.
const LOCAL_SALT: u64 = 0x6c6f_6361;
/// From this many new keys in an edge on, they get segments like those of a build, rather than a
/// single one.
const MANY: usize = 32;
/// Maximum number of positions of a partition.
pub(super) const MOST_POSITIONS: u64 = 1 << 48;
/// A range of a local map is searched block by block if it has no more of them.
const LOCAL_BLOCKS: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A line chooses one of `cells` cells of a segment, the digest a position in it.
    Ordered { cells: u64 },
    /// Blocks of `2^bits` numbers are kept together.
    Local { bits: u32 },
    /// No segments: the digest determines the position.
    Digest,
}

/// A guide for searching the knots: the numbers from the first knot to the last are cut into equal
/// parts, about half as many as there are knots. If knots are spread evenly, few are left to
/// examine; otherwise the guide does no harm.
#[derive(Clone, Debug)]
struct Guide {
    first: u64,
    line: Line,
    /// Number of knots in the parts before each, and in total.
    starts: Vec<u32>,
}

impl Guide {
    fn new(knots: &[u64]) -> Self {
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

    /// Returns the knots that may be next to a number: it is above all before them and below all
    /// after.
    #[inline(always)]
    fn around(&self, number: u64) -> std::ops::Range<usize> {
        let Some(offset) = number.checked_sub(self.first) else { return 0..0 };
        let part = self.line.position(offset) as usize;
        self.starts[part] as usize..self.starts[part + 1] as usize
    }
}

/// The knots of a map, and the pieces of the segments between them, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Knots {
    pub(super) knots: Vec<u64>,
    pub(super) pieces: Vec<Pieces>,
}

/// See the module documentation. Immutable.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) keys: KeyMap,
    pub(super) kind: Kind,
    /// Ascending, all different. Empty if the digest alone decides.
    knots: Vec<u64>,
    guide: Guide,
    /// For each segment but the edges; or empty: every segment has one line.
    pieces: Vec<Pieces>,
    /// Positions per segment.
    per_segment: u64,
    /// Positions per cell of an ordered map.
    per_cell: u64,
    /// Target number of entries per segment when built.
    segment_keys: usize,
    /// Average number of numbers per segment, used for a new segment with few keys.
    span: u64,
    /// Number of knots when built.
    built: usize,
}

impl Map {
    /// Creates a map with these knots, which ascend and are all different (none for
    /// [`Kind::Digest`]), and at most `positions` positions. `pieces` are empty or those of the
    /// segments between knots; they count in an ordered map with many cells only.
    pub(super) fn new(
        keys: KeyMap,
        kind: Kind,
        Knots { knots, pieces }: Knots,
        positions: u64,
        segment_keys: usize,
    ) -> Self {
        debug_assert!(pieces.is_empty() || pieces.len() + 1 == knots.len());
        debug_assert!(knots.is_sorted_by(|a, b| a < b) && (kind != Kind::Digest || knots.is_empty()));
        let segments = knots.len() as u64 + 1;
        let positions = positions.clamp(segments, MOST_POSITIONS);
        let span = match &knots[..] {
            [first, .., last] => ((last - first) / (knots.len() as u64 - 1)).max(1),
            _ => 1,
        };
        let mut map = Self {
            guide: Guide::new(&knots),
            built: knots.len(),
            knots,
            pieces,
            keys,
            kind,
            per_segment: rounded(positions / segments),
            per_cell: 1,
            segment_keys,
            span,
        };
        match &mut map.kind {
            Kind::Ordered { cells } => {
                *cells = rounded((*cells).clamp(1, map.per_segment.min(MAX_POSITIONS)));
                map.per_cell = map.per_segment / *cells;
                map.per_segment = map.per_cell * *cells;
            }
            // A block is no longer than the segment.
            Kind::Local { bits } => *bits = (*bits).min(map.per_segment.ilog2()),
            Kind::Digest => {}
        }
        if !map.allows_pieces() {
            map.pieces = Vec::new();
        }
        map
    }

    /// Returns whether segments have pieces.
    pub(super) fn is_in_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Returns whether order alone chooses positions.
    pub(super) fn is_learned(&self) -> bool {
        matches!(self.kind, Kind::Ordered { cells } if cells > 1 && self.per_cell == 1)
    }

    /// Returns whether segments have so many cells that they can have pieces.
    fn allows_pieces(&self) -> bool {
        matches!(self.kind, Kind::Ordered { cells } if cells >= pieces::FEWEST_CELLS)
    }

    /// Returns the map with the same segments and cells of the same size, but at most `positions`
    /// positions.
    #[cfg(any(test, feature = "run-index"))]
    pub(super) fn resized(&self, positions: u64) -> Self {
        let kind = match self.kind {
            Kind::Ordered { cells } if cells > 1 => {
                Kind::Ordered { cells: positions / self.segments() as u64 / self.per_cell }
            }
            kind => kind,
        };
        let knots = Knots { knots: self.knots.clone(), pieces: self.pieces.clone() };
        Self::new(self.keys.clone(), kind, knots, positions, self.segment_keys)
    }

    /// Returns the largest number that a key below `end` (`None`: any key) can have; `None` if
    /// there is no such key.
    pub(super) fn last_before(&self, end: Option<&[u8]>) -> Option<u64> {
        let Some(end) = end else { return Some(u64::MAX) };
        let number = self.keys.clamped(end);
        let mut lower = Vec::new();
        self.lower_key(number, &mut lower);
        // The lower key is the smallest key with the number of `end`.
        if lower == end { number.checked_sub(1) } else { Some(number) }
    }

    /// Writes to `key` the smallest key that a number can stand for. It is the empty key for number
    /// 0, which keys before the common prefix have, too.
    pub(super) fn lower_key(&self, number: u64, key: &mut Vec<u8>) {
        if number == 0 {
            key.clear();
        } else {
            self.keys.write_key_at(number, key);
        }
    }

    /// Returns the number of segments, edges included.
    pub(super) fn segments(&self) -> usize {
        self.knots.len() + 1
    }

    /// Returns the number of positions.
    pub(super) fn positions(&self) -> u64 {
        self.per_segment * self.segments() as u64
    }

    /// Returns the segment of a number.
    #[inline(always)]
    pub(super) fn segment(&self, number: u64) -> usize {
        let knots = self.guide.around(number);
        let near = &self.knots[knots.clone()];
        // Few knots are counted rather than searched, as no processor can predict how many are
        // below.
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

    /// Returns the line of a segment from its lowest number on, into `cells` cells, if it has a
    /// single piece.
    #[inline(always)]
    fn line(&self, segment: usize, cells: u64) -> Line {
        Line::spread(self.span(segment), cells)
    }

    /// Returns how many numbers a segment has.
    #[inline(always)]
    fn span(&self, segment: usize) -> u64 {
        self.upper(segment).unwrap_or(u64::MAX) - self.lower(segment)
    }

    /// Returns the pieces of a segment, if it has more than one.
    #[inline(always)]
    fn pieces(&self, segment: usize) -> Option<&Pieces> {
        self.pieces.get(segment.wrapping_sub(1))
    }

    /// Returns the cell of a number of a segment, which has `cells` of them.
    #[inline(always)]
    fn cell(&self, segment: usize, number: u64, cells: u64) -> u64 {
        let offset = number - self.lower(segment);
        match self.pieces(segment) {
            Some(pieces) => pieces.cell(offset, self.span(segment), cells),
            None => self.line(segment, cells).position(offset),
        }
    }

    /// Returns the lowest number of a segment whose cell is `cell` or a later one; where there is
    /// none, one behind the segment or the largest.
    fn number_at(&self, segment: usize, cell: u64, cells: u64) -> u64 {
        let offset = match self.pieces(segment) {
            Some(pieces) => pieces.first_at(cell, self.span(segment), cells),
            None => self.line(segment, cells).first_at(cell),
        };
        self.lower(segment).saturating_add(offset)
    }

    /// Returns the position of a key.
    #[inline(always)]
    pub(super) fn position(&self, key: &[u8], digest: Digest) -> u64 {
        let of_digest = |positions: u64| scaled(digest.remix(SALT), positions);
        if self.kind == Kind::Digest {
            return of_digest(self.per_segment);
        }
        let number = self.keys.clamped(key);
        let segment = self.segment(number);
        let start = segment as u64 * self.per_segment;
        match self.kind {
            Kind::Digest => 0,
            Kind::Local { bits } => start + self.local(number, bits),
            Kind::Ordered { cells: 1 } => start + of_digest(self.per_cell),
            Kind::Ordered { cells } => {
                let cell = self.cell(segment, number, cells);
                let within = if self.per_cell == 1 { 0 } else { of_digest(self.per_cell) };
                start + cell * self.per_cell + within
            }
        }
    }

    /// Returns the position of a number within its segment, in a local map.
    #[inline(always)]
    fn local(&self, number: u64, bits: u32) -> u64 {
        let block = number.checked_shr(bits).unwrap_or(0);
        let position =
            scaled(Digest::from_u64(block).remix(LOCAL_SALT), self.per_segment) + (number & mask(bits));
        // The block is no longer than the segment.
        if position >= self.per_segment { position - self.per_segment } else { position }
    }

    /// Returns the cells of a segment for which a walk can tell bounds: 1 means that the segment is
    /// one stretch.
    pub(super) fn cells(&self) -> u64 {
        match self.kind {
            Kind::Ordered { cells } => cells,
            Kind::Local { .. } | Kind::Digest => 1,
        }
    }

    /// Returns the positions of a segment.
    pub(super) fn positions_of(&self, segment: usize) -> RangeInclusive<u64> {
        let start = segment as u64 * self.per_segment;
        start..=start + self.per_segment - 1
    }

    /// Returns the positions that the numbers from `first` to `last`, which meet the segment, can
    /// have, if they lie next to each other; and in a local map up to as many such stretches as it
    /// has blocks.
    pub(super) fn stretches(
        &self,
        segment: usize,
        first: u64,
        last: u64,
        out: &mut Vec<RangeInclusive<u64>>,
    ) {
        out.clear();
        let whole = self.positions_of(segment);
        let start = *whole.start();
        let (lower, upper) = (self.lower(segment), self.upper(segment).map_or(u64::MAX, |upper| upper - 1));
        let (first, last) = (first.max(lower), last.min(upper));
        match self.kind {
            Kind::Ordered { cells } if cells > 1 => {
                let (from, to) = (self.cell(segment, first, cells), self.cell(segment, last, cells));
                out.push(start + from * self.per_cell..=start + (to + 1) * self.per_cell - 1);
            }
            Kind::Local { bits } => {
                let block = |number: u64| number.checked_shr(bits).unwrap_or(0);
                if block(last) - block(first) >= LOCAL_BLOCKS {
                    return out.push(whole);
                }
                for at in block(first)..=block(last) {
                    // Numbers of the block within the range.
                    let lowest = if at == block(first) { first } else { at << bits };
                    let highest = if at == block(last) { last } else { at << bits | mask(bits) };
                    let (from, to) = (self.local(lowest, bits), self.local(highest, bits));
                    if from <= to {
                        out.push(start + from..=start + to);
                    } else {
                        out.push(start..=start + to);
                        out.push(start + from..=*whole.end());
                    }
                }
                out.sort_unstable_by_key(|stretch| *stretch.start());
            }
            _ => out.push(whole),
        }
    }

    /// Returns the lowest number in a segment whose positions are not all before `position`.
    pub(super) fn first_number(&self, segment: usize, position: u64) -> u64 {
        match self.kind {
            Kind::Ordered { cells } if cells > 1 => {
                let within = position.saturating_sub(segment as u64 * self.per_segment);
                self.number_at(segment, within / self.per_cell, cells)
            }
            _ => self.lower(segment),
        }
    }

    /// Returns the lowest number of the segment whose positions lie behind the cell of `position`;
    /// that after the segment if there is none, `None` if the segment has no end.
    pub(super) fn number_behind(&self, segment: usize, position: u64) -> Option<u64> {
        let upper = self.upper(segment);
        if let Kind::Ordered { cells } = self.kind {
            let cell = position.saturating_sub(segment as u64 * self.per_segment) / self.per_cell + 1;
            if cell < cells {
                let number = self.number_at(segment, cell, cells);
                return Some(upper.map_or(number, |upper| number.min(upper)));
            }
        }
        upper
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.knots.capacity() * 8
            + self.pieces.capacity() * size_of::<Pieces>()
            + self.guide.starts.capacity() * 4
            + self.keys.heap_bytes()
    }

    /// Returns the map with segments over those of `numbers` (ascending) that lie in an edge, and
    /// the number of positions inserted before the others, a multiple of `grain`; `None` if the map
    /// can stay as it is. `empty` returns whether there are no entries at positions. Other entries
    /// keep their positions, apart from that number.
    pub(super) fn extend(
        &self,
        numbers: &[u64],
        empty: impl Fn(RangeInclusive<u64>) -> bool,
        grain: u64,
    ) -> Option<(Map, u64)> {
        // The number of knots is proportional to keys, and some for stragglers; beyond that the
        // edges take them.
        let room = (2 * self.built + 64).saturating_sub(self.knots.len()) + numbers.len() / 8;
        let most = MOST_POSITIONS / self.per_segment;
        if room == 0 || self.segments() as u64 + numbers.len() as u64 + 4 > most {
            return None;
        }
        let max = self.keys.max();
        let (first, last) = (self.knots.first().copied(), self.knots.last().copied());
        // Numbers that a knot can be put after.
        let above = &numbers[numbers.partition_point(|&number| last.is_some_and(|last| number < last))..];
        let mut after = Vec::new();
        if !above.is_empty() && last != Some(max) && empty(self.positions_of(self.segments() - 1)) {
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
            first.filter(|&first| !below.is_empty() && first > 1 && empty(self.positions_of(0)))
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
            if !(before.len() as u64 * self.per_segment).is_multiple_of(grain) {
                before.clear();
            }
        }
        if after.is_empty() && before.is_empty() {
            return None;
        }
        let mut map = self.clone();
        let shift = before.len() as u64 * self.per_segment;
        if !self.pieces.is_empty() {
            let in_front: Vec<u64> = before.iter().copied().chain(first).collect();
            let behind: Vec<u64> = last.into_iter().chain(after.iter().copied()).collect();
            map.pieces.splice(0..0, pieces_of(&in_front, numbers));
            map.pieces.extend(pieces_of(&behind, numbers));
            map.pieces.shrink_to_fit();
        }
        map.knots.splice(0..0, before);
        map.knots.extend(after);
        map.knots.shrink_to_fit();
        map.guide = Guide::new(&map.knots);
        Some((map, shift))
    }

    /// Returns knots over numbers, each with about as many keys as those of a build.
    fn over<'n>(&self, numbers: &'n [u64]) -> impl Iterator<Item = u64> + use<'n> {
        let segments = numbers.len().div_ceil(self.segment_keys.max(1));
        (0..segments).map(move |at| numbers[at * numbers.len() / segments])
    }

    /// Appends the map to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, parameter) = match self.kind {
            Kind::Ordered { cells } => (0u32, cells),
            Kind::Local { bits } => (1, bits.into()),
            Kind::Digest => (2, 0),
        };
        out.extend(kind.to_le_bytes());
        out.extend(parameter.to_le_bytes());
        for field in [self.per_segment, self.per_cell, self.span, self.segment_keys as u64, self.built as u64]
        {
            out.extend(field.to_le_bytes());
        }
        let (prefix, shortest, longest) = self.keys.parts();
        out.extend((prefix.len() as u32).to_le_bytes());
        out.extend(u32::from(shortest).to_le_bytes());
        out.extend(u32::from(longest).to_le_bytes());
        out.extend_from_slice(prefix);
        out.extend((self.knots.len() as u32).to_le_bytes());
        self.knots.iter().for_each(|knot| out.extend(knot.to_le_bytes()));
        out.extend((self.pieces.len() as u32).to_le_bytes());
        self.pieces.iter().for_each(|pieces| out.extend(pieces.to_bytes()));
    }

    /// Reads what [`Map::encode`] wrote; `None` if it is not that.
    pub(super) fn read(from: &mut super::image::Reader<'_>) -> Option<Self> {
        let (kind, parameter) = (from.u32()?, from.u64()?);
        let (per_segment, per_cell, span) = (from.u64()?, from.u64()?, from.u64()?);
        let (segment_keys, built) = (from.u64()?, from.u64()?);
        let (prefix, shortest, longest) = (from.u32()? as usize, from.u32()?, from.u32()?);
        let keys = KeyMap::from_parts(from.take(prefix)?, shortest, longest)?;
        let count = from.u32()? as usize;
        let knots: Vec<u64> = from
            .take(count.checked_mul(8)?)?
            .as_chunks()
            .0
            .iter()
            .map(|knot| u64::from_le_bytes(*knot))
            .collect();
        let count = from.u32()? as usize;
        let pieces: Option<Vec<Pieces>> = from
            .take(count.checked_mul(Pieces::BYTES)?)?
            .as_chunks()
            .0
            .iter()
            .map(Pieces::from_bytes)
            .collect();
        let pieces = pieces?;
        let kind = match kind {
            0 => Kind::Ordered { cells: parameter },
            1 => Kind::Local { bits: u32::try_from(parameter).ok()? },
            2 => Kind::Digest,
            _ => return None,
        };
        let sound = match kind {
            Kind::Ordered { cells } => {
                (1..=MAX_POSITIONS).contains(&cells) && cells.checked_mul(per_cell) == Some(per_segment)
            }
            Kind::Local { bits } => bits < 48 && 1 << bits <= per_segment,
            Kind::Digest => knots.is_empty(),
        };
        let fits = (1..=MOST_POSITIONS).contains(&per_segment)
            && per_segment.checked_mul(knots.len() as u64 + 1).is_some_and(|all| all <= MOST_POSITIONS);
        let fits = fits && segment_keys <= 1 << 32 && built <= 1 << 32;
        if !(sound && fits && knots.is_sorted_by(|a, b| a < b)) {
            return None;
        }
        let map = Self {
            guide: Guide::new(&knots),
            knots,
            pieces,
            keys,
            kind,
            per_segment,
            per_cell: per_cell.max(1),
            segment_keys: segment_keys as usize,
            span,
            built: built as usize,
        };
        let fits = map.allows_pieces() && map.pieces.len() + 1 == map.knots.len();
        (map.pieces.is_empty() || fits).then_some(map)
    }
}

/// Returns the pieces of each segment between two of these knots, by those of `numbers` (ascending)
/// that it has.
pub(super) fn pieces_of(knots: &[u64], numbers: &[u64]) -> Vec<Pieces> {
    let mut offsets = Vec::new();
    let of = |pair: &[u64]| {
        let from = numbers.partition_point(|&number| number < pair[0]);
        let within = numbers[from..].iter().take_while(|&&number| number < pair[1]);
        offsets.clear();
        offsets.extend(within.map(|number| number - pair[0]));
        Pieces::fit(&offsets, pair[1] - pair[0])
    };
    knots.windows(2).map(of).collect()
}

/// Returns a number of positions cut to a multiple of a power of two, if it is large: segments then
/// start at round positions, and stay there when bits are cut. Only so can segments be put before
/// others ([`Map::extend`]). It costs at most 3 % of the positions.
fn rounded(positions: u64) -> u64 {
    match positions {
        0..256 => positions,
        _ => positions & !mask((positions.ilog2() - 5).max(4)),
    }
}

/// Maps a hash to `0..positions`.
#[inline(always)]
fn scaled(hash: u64, positions: u64) -> u64 {
    ((u128::from(hash) * u128::from(positions)) >> 64) as u64
}
