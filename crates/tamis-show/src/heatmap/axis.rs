//! Maps a key to its place on the picture: from 0 at the left edge to 1 at the right edge.
//!
//! By data a key lies at its rank among all keys that the tables hold, so that equal widths hold
//! equal numbers of keys. (All runs count, not just the largest: in a keyspace written in key
//! order, the newest run lies beyond it and would have no width.) By key it lies at the number that
//! its bytes form.
//!
//! Both are estimates within a segment: keys are assumed to be spread evenly between its ends. Both
//! are monotonic in the key. Placing a key costs a binary search in each run.

use tamis::stats::SegmentStats;

/// The meaning of a distance on the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum By {
    /// Equal widths hold equal numbers of keys, counted over all runs
    Data,
    /// Equal widths are equal differences between keys, read as numbers
    Key,
}

/// The approximate number of keys considered for marks.
const MARK_CANDIDATES: usize = 1000;

/// The key space of one keyspace.
pub(super) struct Axis<'a> {
    by: By,
    runs: Vec<Run<'a>>,
    /// The number of keys in all runs.
    keys: u64,
    low: &'a [u8],
    high: &'a [u8],
}

struct Run<'a> {
    segments: &'a [SegmentStats],
    /// The number of keys before each segment.
    before: Vec<u64>,
}

impl<'a> Axis<'a> {
    /// Creates the axis for the segments of one keyspace: run by run, each run's in key order.
    pub(super) fn new(segments: &'a [SegmentStats], by: By) -> Axis<'a> {
        let bounds = || segments.iter().flat_map(|segment| [&segment.smallest[..], &segment.end[..]]);
        let low = segments.iter().map(|segment| &segment.smallest[..]).min().unwrap_or_default();
        let mut keys = 0u64;
        let runs = segments.chunk_by(|a, b| (a.level, a.run) == (b.level, b.run)).map(|segments| {
            let mut before = Vec::with_capacity(segments.len());
            let mut sum = 0u64;
            for segment in segments {
                before.push(sum);
                sum = sum.saturating_add(segment.keys);
            }
            keys = keys.saturating_add(sum);
            Run { segments, before }
        });
        let runs = runs.collect();
        Axis { by, runs, keys, low, high: bounds().max().unwrap_or_default() }
    }

    /// Returns the place of a key.
    pub(super) fn place(&self, key: &[u8]) -> f64 {
        match self.by {
            By::Key => part(key, self.low, self.high),
            By::Data if self.keys == 0 => 0.0,
            By::Data => {
                let rank: f64 = self.runs.iter().map(|run| self.rank(run, key)).sum();
                (rank / self.keys as f64).clamp(0.0, 1.0)
            }
        }
    }

    /// Returns the left and right ends of a segment.
    pub(super) fn span(&self, segment: &SegmentStats) -> (f64, f64) {
        let from = self.place(&segment.smallest);
        (from, self.place(self.end(segment)).max(from))
    }

    /// Returns about `count` evenly spaced keys and their places, including the first and the last
    /// key.
    pub(super) fn marks(&self, count: usize) -> Vec<(f64, &'a [u8])> {
        let segments = || self.runs.iter().flat_map(|run| run.segments);
        let step = segments().count() / MARK_CANDIDATES + 1;
        let borders =
            segments().step_by(step).map(|segment| &segment.smallest[..]).chain([self.low, self.high]);
        let mut places: Vec<(f64, &[u8])> = borders.map(|key| (self.place(key), key)).collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
        let mut marks: Vec<(f64, &[u8])> = Vec::new();
        for i in 0..=count {
            let wanted = i as f64 / count as f64;
            let nearest = places.iter().min_by(|a, b| (a.0 - wanted).abs().total_cmp(&(b.0 - wanted).abs()));
            // A mark that would touch its predecessor adds nothing.
            let apart =
                |mark: &(f64, &[u8])| marks.last().is_none_or(|last| mark.0 - last.0 > 0.6 / count as f64);
            marks.extend(nearest.copied().filter(apart));
        }
        marks
    }

    /// Returns the common prefix of all keys.
    pub(super) fn common_prefix(&self) -> &'a [u8] {
        &self.low[..common(self.low, self.high)]
    }

    /// Returns the end of a segment; one without an end reaches as far as the last key of all.
    fn end<'b>(&self, segment: &'b SegmentStats) -> &'b [u8]
    where
        'a: 'b,
    {
        if segment.end.is_empty() { self.high } else { &segment.end }
    }

    /// Returns the number of keys of a run before `key`.
    fn rank(&self, run: &Run<'_>, key: &[u8]) -> f64 {
        let up_to = run.segments.partition_point(|segment| segment.smallest[..] <= *key);
        let Some(at) = up_to.checked_sub(1) else { return 0.0 };
        let segment = &run.segments[at];
        run.before[at] as f64 + segment.keys as f64 * part(key, &segment.smallest, self.end(segment))
    }
}

/// Estimates the share of a key range that lies before a key, assuming evenly spread keys: by the
/// eight bytes after the common prefix of the range's ends.
fn part(key: &[u8], low: &[u8], high: &[u8]) -> f64 {
    if key <= low {
        return 0.0;
    }
    if key >= high {
        return 1.0;
    }
    // Every key between two others begins with their common prefix.
    let from = common(low, high);
    let (key, low, high) = (number(key, from), number(low, from), number(high, from));
    if high <= low {
        return 0.5;
    }
    (key.saturating_sub(low) as f64 / (high - low) as f64).min(1.0)
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the eight bytes from a position on as a number; missing bytes are 0.
fn number(key: &[u8], from: usize) -> u64 {
    let mut bytes = [0; 8];
    for (byte, &of_key) in bytes.iter_mut().zip(key.get(from..).unwrap_or_default()) {
        *byte = of_key;
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::segment;
    use super::*;
    use proptest::prelude::*;

    /// An old run of 300 keys from a to m, a third of them before f, and a new one of 100 keys
    /// after it.
    fn example() -> Vec<SegmentStats> {
        vec![segment(0, 9, "m", "q", 100), segment(3, 1, "a", "f", 100), segment(3, 1, "f", "m", 200)]
    }

    #[test]
    fn by_data_equal_widths_hold_equal_numbers_of_keys() {
        let segments = example();
        let axis = Axis::new(&segments, By::Data);
        for (key, place) in
            [("", 0.0), ("a", 0.0), ("f", 0.25), ("m", 0.75), ("o", 0.875), ("q", 1.0), ("z", 1.0)]
        {
            assert!(
                (axis.place(key.as_bytes()) - place).abs() < 1e-9,
                "{key}: {}",
                axis.place(key.as_bytes())
            );
        }
        assert_eq!(axis.span(&segments[1]), (0.0, 0.25));
        assert_eq!(axis.span(&segments[0]), (0.75, 1.0), "a run beyond the largest has a width of its own");
    }

    #[test]
    fn by_key_equal_widths_are_equal_differences() {
        let segments = example();
        let axis = Axis::new(&segments, By::Key);
        assert_eq!((axis.place(b"a"), axis.place(b"i"), axis.place(b"q")), (0.0, 0.5, 1.0));
        let segments = [segment(0, 1, "user1", "user3", 10)];
        let axis = Axis::new(&segments, By::Key);
        assert!((axis.place(b"user2") - 0.5).abs() < 1e-9, "the common prefix does not count");
        assert_eq!(axis.common_prefix(), b"user");
    }

    #[test]
    fn a_table_without_an_end_reaches_to_the_last_key() {
        let mut segments = example();
        segments[0].end.clear();
        segments[2].end = b"p".to_vec();
        let axis = Axis::new(&segments, By::Key);
        assert_eq!(axis.span(&segments[0]).1, 1.0);
        assert!((axis.place(b"p") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn marks_are_keys_at_their_places_from_the_first_to_the_last() {
        let segments = example();
        for by in [By::Data, By::Key] {
            let axis = Axis::new(&segments, by);
            let marks = axis.marks(4);
            let keys: Vec<&[u8]> = marks.iter().map(|mark| mark.1).collect();
            assert_eq!(keys, [&b"a"[..], b"f", b"m", b"q"], "{by:?}");
            assert!(marks.iter().all(|(place, key)| *place == axis.place(key)), "{by:?}");
        }
    }

    #[test]
    fn a_single_key_has_a_place_and_an_empty_axis_has_one_mark() {
        let segments = [segment(0, 1, "k", "k", 1)];
        for by in [By::Data, By::Key] {
            let axis = Axis::new(&segments, by);
            assert_eq!(axis.span(&segments[0]), (0.0, 0.0), "{by:?}");
            assert_eq!(axis.marks(4).len(), 1, "{by:?}");
        }
        assert_eq!(Axis::new(&[], By::Data).place(b"x"), 0.0);
    }

    proptest! {
        #[test]
        fn places_are_monotonic_and_stay_on_the_axis(
            mut borders in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..12), 0u64..1000), 2..20),
            mut keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..20),
        ) {
            borders.sort();
            let segments: Vec<SegmentStats> = borders
                .windows(2)
                .enumerate()
                .map(|(i, pair)| filled!(SegmentStats {
                    run: i as u64 / 7,
                    smallest: pair[0].0.clone(),
                    end: pair[1].0.clone(),
                    keys: pair[0].1,
                    ..SegmentStats::default()
                }))
                .collect();
            keys.extend(borders.into_iter().map(|border| border.0));
            keys.sort();
            for by in [By::Data, By::Key] {
                let axis = Axis::new(&segments, by);
                let places: Vec<f64> = keys.iter().map(|key| axis.place(key)).collect();
                prop_assert!(places.iter().all(|place| (0.0..=1.0).contains(place)), "{places:?}");
                prop_assert!(places.windows(2).all(|pair| pair[0] <= pair[1] + 1e-12), "{places:?}");
            }
        }
    }
}
