//! What the segments of a new table inherit from old ones (3.3, figure 8).
//!
//! The access rate of a run within the range of a new segment is the sum over the run's segments of
//! each one's rate, times the fraction of the segment within that range. That fraction and its
//! number of keys are estimated: keys and gets are assumed to be evenly spread over a segment, as
//! numbers made of the eight bytes that follow the common prefix of its bounds.
//!
//! A segment of a merged table gets the mean of that over the merged runs, weighted by the keys
//! that each contributes. The paper takes the mean over all old segments that overlap the new one.
//! There, a corner of a hot segment counts as much as the whole of a cold one. Also, a segment of a
//! small run, which spans many segments of a large run and is asked as often as all of them
//! together, would make all of them as hot as itself.
//!
//! A flushed table has no old segments. But the gets that asked the older runs now ask the new one
//! first, so the new segment's access rate is that of the older runs within its range, averaged the
//! same way. Hardly any of these gets will find its key there, so all of them are taken for misses.

use std::ops::Bound;

use tamis_base::ids::TableId;
use tamis_base::key::{BorderKey, KeyEnd, common_prefix_len, prefix_of};

use super::{Hotness, Manager, Segments, Table, TableSpec};

/// The minimum weight of a merged segment's sources, in keys: where no keys seem to be shared, all
/// runs count alike.
const LEAST: f64 = 1e-9;

/// Where a new table comes from. Unknown tables are skipped.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// Merged from these tables, by run.
    Merged(&'a [Vec<TableId>]),
    /// Flushed from memory, above these tables, by run.
    Flushed(&'a [Vec<TableId>]),
    /// Unknown.
    Nothing,
}

/// A key range.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// The first key.
    pub start: &'a [u8],
    /// The end.
    pub end: Bound<&'a [u8]>,
}

impl Manager {
    /// Returns the hotness of a new table's segments; call this before the tables that it comes
    /// from are removed. `run_segments` is the number of segments of the run that the table joins,
    /// at least 1: where nothing is known, they are assumed to be asked equally often, once per get
    /// in total. Without inheritance, merged and flushed tables are cold. O((segments of the table
    /// + old segments that overlap it) · log of old segments).
    pub fn inherited(&self, spec: &TableSpec, origin: Origin<'_>, run_segments: u64) -> Vec<Hotness> {
        let alike = 1.0 / run_segments.max(1) as f64;
        let unknown = Hotness { misses: alike, asked: alike };
        let known = |tables: &[TableId]| tables.iter().filter_map(|id| self.tables.get(id)).collect();
        let count = spec.segments.count();
        let (runs, flushed) = match origin {
            Origin::Nothing => return vec![unknown; count],
            _ if !self.inheritance => return vec![Hotness::default(); count],
            Origin::Merged(runs) => (runs, false),
            Origin::Flushed(runs) => (runs, true),
        };
        let runs: Vec<Vec<&Table>> = runs.iter().map(|tables| known(tables)).collect();
        let as_it_will_be =
            |hotness: Hotness| if flushed { Hotness { misses: hotness.asked, ..hotness } } else { hotness };
        let of = |segment| {
            let bounds = Bounds::of(&*spec.segments, segment, &spec.end);
            self.inherit(bounds.range(), &runs).map_or(unknown, as_it_will_be)
        };
        (0..count).map(of).collect()
    }

    /// The access rates of the runs within a range, averaged over their keys in it; `None` if no
    /// run has anything there.
    fn inherit(&self, new: Range<'_>, runs: &[Vec<&Table>]) -> Option<Hotness> {
        let (mut hotness, mut weights) = (Hotness::default(), 0.0);
        for (asked, keys) in runs.iter().filter_map(|tables| self.asked_within(new, tables)) {
            let weight = keys.max(LEAST);
            hotness.misses += weight * asked.misses;
            hotness.asked += weight * asked.asked;
            weights += weight;
        }
        (weights > 0.0).then(|| Hotness { misses: hotness.misses / weights, asked: hotness.asked / weights })
    }

    /// The access rates of tables of one run within a range, and their number of keys there; `None`
    /// if they have no segment there.
    fn asked_within(&self, new: Range<'_>, tables: &[&Table]) -> Option<(Hotness, f64)> {
        let (mut hotness, mut keys, mut found) = (Hotness::default(), 0.0, false);
        for table in tables {
            let shape = &*table.shape;
            let count = table.segments.len();
            let first = first_after(count, |i| shape.start(i)[..] <= *new.start).saturating_sub(1);
            for i in (first..count).take_while(|&i| reaches(new.end, &shape.start(i))) {
                let bounds = Bounds::of(shape, i, &table.end);
                let old = bounds.range();
                if !reaches(old.end, new.start) {
                    continue;
                }
                let (segment, share) = (&table.segments[i], share(old, new));
                hotness.misses += share * self.clock.frequency(segment.misses);
                hotness.asked += share * self.clock.frequency(segment.asked);
                keys += share * shape.keys(i) as f64;
                found = true;
            }
        }
        found.then_some((hotness, keys))
    }
}

/// The first of `count` numbers for which `before`, which is true up to some number and then false,
/// is false.
fn first_after(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The range of a segment: up to the start of the next one, or the end of its table.
struct Bounds<'a> {
    start: BorderKey,
    /// The start of the next segment, if there is one.
    next: Option<BorderKey>,
    /// The end of the table.
    end: &'a KeyEnd,
}

impl Bounds<'_> {
    fn of<'a>(shape: &dyn Segments, segment: usize, end: &'a KeyEnd) -> Bounds<'a> {
        let next = (segment + 1 < shape.count()).then(|| shape.start(segment + 1));
        Bounds { start: shape.start(segment), next, end }
    }

    fn range(&self) -> Range<'_> {
        let end = match (&self.next, self.end) {
            (Some(next), _) => Bound::Excluded(&next[..]),
            (None, KeyEnd::Included(end)) => Bound::Included(&end[..]),
            (None, KeyEnd::Excluded(end)) => Bound::Excluded(&end[..]),
            (None, KeyEnd::Unbounded) => Bound::Unbounded,
        };
        Range { start: &self.start, end }
    }
}

/// Reports whether a range with this end may hold keys at or after `key`.
pub fn reaches(end: Bound<&[u8]>, key: &[u8]) -> bool {
    match end {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    }
}

/// The fraction of `old` that lies within `new`, 0 to 1. The two overlap. The fractions of one
/// segment in consecutive ranges add up to 1, except for ranges between keys that do not differ in
/// any of the bytes compared.
pub fn share(old: Range<'_>, new: Range<'_>) -> f64 {
    let common = match old.end {
        Bound::Included(end) | Bound::Excluded(end) => common_prefix_len(old.start, end),
        Bound::Unbounded => 0,
    };
    let low = prefix_of(old.start.get(common..).unwrap_or_default());
    // Keys between the bounds share the bounds' common prefix.
    let place = |key: &[u8]| prefix_of(key.get(common..).unwrap_or_default()).saturating_sub(low) as f64;
    let place_of_end = |end: Bound<&[u8]>| match end {
        Bound::Included(end) => place(end) + 1.0,
        Bound::Excluded(end) => place(end),
        Bound::Unbounded => (u64::MAX - low) as f64 + 1.0,
    };
    let width = place_of_end(old.end);
    let from = if new.start <= old.start { 0.0 } else { place(new.start) };
    let to = if ends_before(new.end, old.end) { place_of_end(new.end) } else { width };
    if width > 0.0 { ((to - from) / width).clamp(0.0, 1.0) } else { 1.0 }
}

/// Reports whether a range that ends at `a` ends before one that ends at `b`.
fn ends_before(a: Bound<&[u8]>, b: Bound<&[u8]>) -> bool {
    match (a, b) {
        (Bound::Unbounded, _) => false,
        (_, Bound::Unbounded) => true,
        (Bound::Excluded(a), Bound::Included(b)) => a <= b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a < b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range<'a>(start: &'a str, end: &'a str) -> Range<'a> {
        Range { start: start.as_bytes(), end: Bound::Excluded(end.as_bytes()) }
    }

    #[test]
    fn shares_are_interpolated_on_what_follows_the_common_prefix() {
        // Four letters lie between "user/b" and "user/f"; the bytes after the prefix decide.
        let old = range("user/b", "user/f");
        assert_eq!(share(old, range("user/b", "user/f")), 1.0);
        assert_eq!(share(old, range("a", "z")), 1.0);
        assert_eq!(share(old, range("user/a", "user/c")), 0.25);
        assert_eq!(share(old, range("user/c", "user/e")), 0.5);
        assert_eq!(share(old, range("user/e", "user/zz")), 0.25);
        assert_eq!(share(old, range("user/f", "user/zz")), 0.0);
    }

    #[test]
    fn ends_that_are_included_or_absent_have_shares() {
        let one = Range { start: b"k", end: Bound::Included(b"k") };
        assert_eq!(share(one, range("a", "z")), 1.0, "a segment of one key");
        let open = Range { start: &[0x80], end: Bound::Unbounded };
        let half = Range { start: &[0xc0], end: Bound::Unbounded };
        assert_eq!((share(open, half), share(open, open)), (0.5, 1.0));
        let most = Range { start: b"", end: Bound::Included(&[0xFF; 12]) };
        assert_eq!(share(most, Range { start: &[0x80], end: Bound::Unbounded }), 0.5);
        // Bounds that differ in more zeros than are compared.
        let flat = Range { start: b"a", end: Bound::Excluded(b"a\0\0\0\0\0\0\0\0\0") };
        assert_eq!(share(flat, range("a", "b")), 1.0);
    }

    #[test]
    fn ends_are_compared_by_what_they_hold() {
        let (x, y): (&[u8], &[u8]) = (b"x", b"y");
        let ordered = [
            Bound::Excluded(x),
            Bound::Included(x),
            Bound::Excluded(y),
            Bound::Included(y),
            Bound::Unbounded,
        ];
        for (i, &a) in ordered.iter().enumerate() {
            for (j, &b) in ordered.iter().enumerate() {
                assert_eq!(ends_before(a, b), i < j, "{a:?} {b:?}");
            }
        }
    }
}
