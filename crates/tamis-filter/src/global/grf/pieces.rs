//! A segment's map from numbers to cells as a line of several pieces.
//!
//! # Structure
//! Up to [`BREAKS`] *breaks* divide a segment. A break has two edges: behind the last key before
//! it, and at the first key behind it, so that the gap between the two takes next to no cells.
//! Between breaks a line has the cells that its keys have a share of. Edges are known to a 2^16th
//! of the segment, shares to a 256th of its keys. All of it is 36 bytes.
//!
//! Breaks go where they tell most about the keys: each is the one that takes the most bits off the
//! keys' numbers, if a number is coded by the share of its piece and its place there. That is how
//! much the logarithm of the density of keys, as the map has it, rises on average. Breaks at the
//! largest gaps alone leave pieces of very unequal density undivided.
//!
//! # Why no key is rejected
//! A number's cell is a function of the number, the edges and the shares, none of which ever
//! change. It ascends with the number: each piece's cells begin where those of the one before end.

use crate::line::Line;

/// Maximum number of breaks of a segment.
pub(super) const BREAKS: usize = 7;
/// Fewest cells of a segment with breaks: every piece, and every gap, has one at least.
pub(super) const FEWEST_CELLS: u64 = 1 << 10;
/// A gap has one in this many cells. Keys may arrive in it.
const GAP: u64 = 1 << 9;
/// Instead of an edge: there is no break.
const NONE: u16 = u16::MAX;
/// Every gap that is longer than the average gap by this factor is tried as a break, and one of
/// [`EVERY`] others.
const LONG: u64 = 2;
const EVERY: usize = 8;

/// See the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pieces {
    /// Ascending: where the first gap begins and ends, where the second one does, and so on.
    edges: [u16; 2 * BREAKS],
    /// 256ths of the cells that lie before each gap; ascending, all different, none 0.
    shares: [u8; BREAKS],
}

/// Numbers from `from` up to `to` (excluded), as offsets in their segment, and their cells.
#[derive(Clone, Copy)]
struct Piece {
    from: u64,
    to: u64,
    first: u64,
    cells: u64,
}

/// Returns the number of low bits of an offset that edges do not have.
#[inline(always)]
fn scale(span: u64) -> u32 {
    (64 - span.leading_zeros()).saturating_sub(16)
}

impl Pieces {
    /// A single piece.
    pub(super) const WHOLE: Pieces = Pieces { edges: [NONE; 2 * BREAKS], shares: [0; BREAKS] };
    /// Bytes of [`Pieces::to_bytes`].
    pub(super) const BYTES: usize = 5 * BREAKS;

    /// Returns the pieces for keys at these offsets (ascending) in a segment of `span` numbers.
    pub(super) fn fit(offsets: &[u64], span: u64) -> Self {
        let fit = Fit { offsets, scale: scale(span) };
        let mut parts = vec![Part { keys: 0..offsets.len(), from: 0, to: span, best: None }];
        parts[0].best = fit.best(&parts[0]);
        while parts.len() <= BREAKS {
            let best = |part: &Part| part.best.as_ref().map_or(0.0, |best| best.gain);
            let Some(at) = (0..parts.len()).max_by(|&a, &b| best(&parts[a]).total_cmp(&best(&parts[b])))
            else {
                break;
            };
            let Some(Break { key, end, start, .. }) = parts[at].best.take() else { break };
            let (keys, to) = (parts[at].keys.clone(), parts[at].to);
            let mut behind = Part { keys: key..keys.end, from: start, to, best: None };
            let before = &mut parts[at];
            (before.keys, before.to) = (keys.start..key, end);
            before.best = fit.best(before);
            behind.best = fit.best(&behind);
            parts.insert(at + 1, behind);
        }
        let (mut pieces, breaks) = (Self::WHOLE, parts.len() - 1);
        for (at, pair) in parts.windows(2).enumerate() {
            pieces.edges[2 * at] = (pair[0].to >> fit.scale) as u16;
            pieces.edges[2 * at + 1] = (pair[1].from >> fit.scale) as u16;
            let least = at.checked_sub(1).map_or(0, |before| pieces.shares[before]) + 1;
            let share = pair[1].keys.start * 256 / offsets.len();
            pieces.shares[at] = share.clamp(least.into(), 255 - (breaks - 1 - at)) as u8;
        }
        pieces
    }

    /// Returns the piece of an offset below `span`.
    #[inline(always)]
    fn piece(&self, offset: u64, span: u64, cells: u64) -> Piece {
        let place = ((offset >> scale(span)) as u16).min(NONE - 1);
        let at: u16 = self.edges.iter().map(|&edge| u16::from(edge <= place)).sum();
        self.nth(at.into(), span, cells)
    }

    /// Returns piece `at`, of which the odd ones are gaps.
    #[inline(always)]
    fn nth(&self, at: usize, span: u64, cells: u64) -> Piece {
        let edge = |at: usize| u64::from(self.edges[at]) << scale(span);
        let cell = |at: usize| match at {
            0 => 0,
            _ => {
                ((u64::from(self.shares[(at - 1) / 2]) * cells) >> 8)
                    + if at.is_multiple_of(2) { cells / GAP } else { 0 }
            }
        };
        let is_last = self.edges.get(at).is_none_or(|&edge| edge == NONE);
        let (from, first) = (if at == 0 { 0 } else { edge(at - 1) }, cell(at));
        let (to, end) = if is_last { (span, cells) } else { (edge(at), cell(at + 1)) };
        // At least 1 also if the bytes that they were read from had been changed.
        Piece { from, to: to.min(span), first, cells: end.saturating_sub(first).max(1) }
    }

    /// Returns the cell of an offset below `span`; there are `cells` cells, at least
    /// [`FEWEST_CELLS`].
    #[inline(always)]
    pub(super) fn cell(&self, offset: u64, span: u64, cells: u64) -> u64 {
        let piece = self.piece(offset, span, cells);
        let line = Line::spread(piece.to.saturating_sub(piece.from), piece.cells);
        (piece.first + line.position(offset.saturating_sub(piece.from))).min(cells - 1)
    }

    /// Returns the smallest offset whose cell is `cell` or a later one, up to `span`.
    pub(super) fn first_at(&self, cell: u64, span: u64, cells: u64) -> u64 {
        for at in 0..=2 * BREAKS {
            let piece = self.nth(at, span, cells);
            if cell < piece.first + piece.cells || piece.to >= span {
                let line = Line::spread(piece.to.saturating_sub(piece.from), piece.cells);
                let within = line.first_at(cell.saturating_sub(piece.first));
                return piece.from.saturating_add(within).min(piece.to);
            }
        }
        span
    }

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (edges, shares) = bytes.split_at_mut(4 * BREAKS);
        edges.chunks_mut(2).zip(self.edges).for_each(|(out, edge)| out.copy_from_slice(&edge.to_le_bytes()));
        shares.copy_from_slice(&self.shares);
        bytes
    }

    /// `None` if the bytes are not those of pieces.
    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut pieces = Self::WHOLE;
        let (edges, shares) = bytes.split_at(4 * BREAKS);
        let read = edges.as_chunks().0.iter().map(|edge| u16::from_le_bytes(*edge));
        pieces.edges.iter_mut().zip(read).for_each(|(edge, read)| *edge = read);
        pieces.shares.copy_from_slice(shares);
        let used = pieces.edges.partition_point(|&edge| edge < NONE);
        let shares = &pieces.shares[..used / 2];
        let sound = used % 2 == 0
            && pieces.edges.is_sorted()
            && shares.is_sorted_by(|a, b| a < b)
            && shares.first().is_none_or(|&share| share > 0);
        sound.then_some(pieces)
    }
}

/// Keys with no break between them yet.
struct Part {
    keys: std::ops::Range<usize>,
    from: u64,
    to: u64,
    best: Option<Break>,
}

/// A break before key `key`, of which the gap goes from `end` to `start`.
struct Break {
    gain: f64,
    key: usize,
    end: u64,
    start: u64,
}

struct Fit<'a> {
    offsets: &'a [u64],
    scale: u32,
}

impl Fit<'_> {
    /// Returns the break of a part that takes the most bits off the keys' numbers.
    fn best(&self, part: &Part) -> Option<Break> {
        let cost = |keys: usize, span: u64| keys as f64 * (span as f64 / keys as f64).log2();
        let (first, count) = (part.keys.start, part.keys.len());
        let whole = cost(count, (part.to - part.from).max(1));
        let long = ((part.to - part.from) / count.max(1) as u64).saturating_mul(LONG);
        let mut best: Option<Break> = None;
        for key in first + 1..part.keys.end {
            let (before, at) = (self.offsets[key - 1], self.offsets[key]);
            if at - before < long && !(key - first).is_multiple_of(EVERY) {
                continue;
            }
            let start = at >> self.scale;
            let end = ((before >> self.scale) + 1).min(start);
            // The largest number stands for no edge.
            if start >= u64::from(NONE) {
                break;
            }
            let (start, end) = (start << self.scale, end << self.scale);
            if end <= part.from || start >= part.to {
                continue;
            }
            let gain =
                whole - cost(key - first, end - part.from) - cost(part.keys.end - key, part.to - start);
            if gain > best.as_ref().map_or(0.0, |best| best.gain) {
                best = Some(Break { gain, key, end, start });
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cells_ascend_and_can_be_read_backwards(
            numbers in prop::collection::vec((0u32..64, any::<u64>()), 0..200),
            span in prop_oneof![1u64..100_000, 1..=u64::MAX],
            cells in FEWEST_CELLS..1 << 20,
            others in prop::collection::vec(any::<u64>(), 20),
        ) {
            // Numbers of all magnitudes.
            let mut offsets: Vec<u64> = numbers.iter().map(|(shift, number)| (number >> shift) % span).collect();
            offsets.sort_unstable();
            let pieces = Pieces::fit(&offsets, span);
            prop_assert_eq!(Pieces::from_bytes(&pieces.to_bytes()), Some(pieces));
            let ends = (0..=2 * BREAKS).flat_map(|at| {
                let Piece { from, to, .. } = pieces.nth(at.min(pieces.edges.partition_point(|&e| e < NONE)), span, cells);
                [from.saturating_sub(1), from, to.saturating_sub(1), to]
            });
            offsets.extend(others.iter().map(|number| number % span));
            offsets.extend(ends.filter(|&offset| offset < span));
            offsets.extend([0, span - 1]);
            offsets.sort_unstable();
            for pair in offsets.windows(2) {
                prop_assert!(pieces.cell(pair[0], span, cells) <= pieces.cell(pair[1], span, cells));
            }
            for &offset in &offsets {
                let cell = pieces.cell(offset, span, cells);
                prop_assert!(cell < cells);
                let first = pieces.first_at(cell, span, cells);
                prop_assert!(first <= offset && pieces.cell(first, span, cells) == cell);
                prop_assert!(first == 0 || pieces.cell(first - 1, span, cells) < cell);
                let behind = pieces.first_at(cell + 1, span, cells);
                prop_assert!(behind > offset && (behind >= span || pieces.cell(behind, span, cells) > cell));
            }
        }
    }

    #[test]
    fn gaps_take_next_to_no_cells() {
        // Two clusters, each of a thousandth of the span.
        let offsets: Vec<u64> = (0..256).map(|i| (i / 128) * 900_000 + i % 128 * 8).collect();
        let pieces = Pieces::fit(&offsets, 1_000_000);
        let mut cells: Vec<u64> =
            offsets.iter().map(|&offset| pieces.cell(offset, 1_000_000, 1 << 14)).collect();
        cells.dedup();
        assert!(cells.len() > 200, "{} cells", cells.len());
        assert!(
            pieces.cell(899_000, 1_000_000, 1 << 14) - pieces.cell(2_000, 1_000_000, 1 << 14)
                <= (1 << 14) / GAP
        );
    }
}
