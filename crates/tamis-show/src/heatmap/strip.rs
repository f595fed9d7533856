//! The columns of one run's strip.
//!
//! Each segment contributes to a column in proportion to the share of its width that lies there, so
//! that neither hotness nor keys are lost or counted twice when thousands of segments share a few
//! columns.

use tamis::stats::SegmentStats;

/// The quantity shown by colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum What {
    /// Lookups of absent keys, which filters can save
    Hotness,
    /// All lookups
    Asked,
}

impl What {
    /// Returns the lookups per get of the database.
    pub(super) fn of(self, segment: &SegmentStats) -> f64 {
        let lookups = match self {
            What::Hotness => segment.hotness,
            What::Asked => segment.asked,
        };
        if lookups.is_finite() { lookups.max(0.0) } else { 0.0 }
    }
}

/// The contents of one column of a strip.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Column {
    /// Lookups per get.
    pub(super) lookups: f64,
    pub(super) keys: f64,
    /// Enabled units, weighted by keys.
    units: f64,
}

impl Column {
    /// Returns the lookups per get and key.
    pub(super) fn density(&self) -> f64 {
        if self.keys > 0.0 { self.lookups / self.keys } else { 0.0 }
    }

    /// Returns the enabled units, averaged over keys.
    pub(super) fn units(&self) -> f64 {
        if self.keys > 0.0 { self.units / self.keys } else { 0.0 }
    }

    fn add(&mut self, segment: &SegmentStats, what: What, share: f64) {
        let keys = segment.keys as f64 * share;
        self.lookups += what.of(segment) * share;
        self.keys += keys;
        self.units += f64::from(segment.enabled) * keys;
    }
}

/// Returns a whole run as one column.
pub(super) fn whole<'a>(segments: impl Iterator<Item = &'a SegmentStats>, what: What) -> Column {
    let mut column = Column::default();
    segments.for_each(|segment| column.add(segment, what, 1.0));
    column
}

/// Returns the columns of a run whose segments lie between places 0 and 1; `None` where the run has
/// no keys.
pub(super) fn columns<'a>(
    segments: impl Iterator<Item = (&'a SegmentStats, (f64, f64))>,
    what: What,
    count: usize,
) -> Vec<Option<Column>> {
    let mut columns = vec![None; count];
    for (segment, (from, to)) in segments {
        let (from, to) = (from * count as f64, to * count as f64);
        let width = to - from;
        let first = (from.floor() as usize).min(count - 1);
        // A segment that is too narrow to be seen still gets a column.
        let last = (to.ceil() as usize).clamp(first + 1, count);
        for (at, column) in columns[first..last].iter_mut().enumerate() {
            let left = (first + at) as f64;
            let share = if width > 0.0 { (to.min(left + 1.0) - from.max(left)) / width } else { 1.0 };
            // A border that is off by an invisible rounding error does not reach into the next
            // column.
            if share * width >= 1e-9 || width < 1e-5 {
                column.get_or_insert_with(Column::default).add(segment, what, share.max(0.0));
            }
        }
    }
    columns
}

/// Returns the ranges of adjacent columns that look alike: start, end (excluded), and their look.
pub(super) fn stretches<L: PartialEq + Copy>(
    columns: &[Option<Column>],
    look: impl Fn(&Column) -> L,
) -> Vec<(usize, usize, L)> {
    let mut stretches: Vec<(usize, usize, L)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let Some(column) = column else { continue };
        let look = look(column);
        match stretches.last_mut() {
            Some((_, to, last)) if *to == at && *last == look => *to += 1,
            _ => stretches.push((at, at + 1, look)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::super::tests::segment;
    use super::*;
    use proptest::prelude::*;

    fn asked(hotness: f64, keys: u64, enabled: u32) -> SegmentStats {
        filled!(SegmentStats { hotness, enabled, asked: 2.0 * hotness, ..segment(0, 1, "a", "b", keys) })
    }

    #[test]
    fn a_column_shows_the_segment_that_covers_it() {
        let (a, b) = (asked(0.5, 100, 1), asked(0.25, 50, 3));
        let columns = columns([(&a, (0.0, 0.5)), (&b, (0.75, 1.0))].into_iter(), What::Hotness, 4);
        let shown = columns.iter().map(|c| c.map(|c| (c.density(), c.units())));
        let of_a = Some((0.005, 1.0));
        assert_eq!(shown.collect::<Vec<_>>(), [of_a, of_a, None, Some((0.005, 3.0))]);
    }

    #[test]
    fn segments_that_share_a_column_are_weighted_by_their_keys() {
        let (a, b) = (asked(0.3, 100, 6), asked(0.0, 200, 0));
        let columns = columns([(&a, (0.0, 0.5)), (&b, (0.5, 1.0))].into_iter(), What::Asked, 1);
        let column = columns[0].unwrap();
        assert!((column.density() - 0.6 / 300.0).abs() < 1e-12, "{column:?}");
        assert!((column.units() - 2.0).abs() < 1e-12, "{column:?}");
    }

    #[test]
    fn a_very_narrow_segment_is_still_visible() {
        let a = asked(0.5, 1, 1);
        for place in [0.0, 0.3, 1.0] {
            let columns = columns([(&a, (place, place))].into_iter(), What::Hotness, 10);
            assert_eq!(columns.iter().flatten().count(), 1, "{place}");
        }
    }

    #[test]
    fn borders_that_are_off_by_rounding_fill_no_gap() {
        let a = asked(0.5, 1, 1);
        let columns = columns([(&a, (0.0, 0.5 + 1e-12))].into_iter(), What::Hotness, 10);
        assert_eq!(columns.iter().flatten().count(), 5);
    }

    #[test]
    fn adjacent_columns_that_look_alike_are_merged_up_to_a_gap() {
        let column = |units| Some(Column { keys: 1.0, units, ..Column::default() });
        let columns = [column(1.0), column(1.0), None, column(1.0), column(2.0)];
        assert_eq!(stretches(&columns, |c| c.units() as u32), [(0, 2, 1), (3, 4, 1), (4, 5, 2)]);
        assert!(stretches(&[None, None], |c| c.units() as u32).is_empty());
    }

    proptest! {
        #[test]
        fn no_key_and_no_lookup_is_lost(
            segments in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0, 0u64..1000, 0.0f64..1.0), 1..30),
            count in 1usize..50,
        ) {
            let segments: Vec<_> = segments
                .into_iter()
                .map(|(a, b, keys, hotness)| (asked(hotness, keys, 1), (a.min(b), a.max(b))))
                .collect();
            let columns = columns(segments.iter().map(|(s, span)| (s, *span)), What::Hotness, count);
            let whole = whole(segments.iter().map(|(s, _)| s), What::Hotness);
            let keys: f64 = columns.iter().flatten().map(|column| column.keys).sum();
            let lookups: f64 = columns.iter().flatten().map(|column| column.lookups).sum();
            prop_assert!((keys - whole.keys).abs() <= 1e-3 * (1.0 + whole.keys), "{keys} {whole:?}");
            prop_assert!((lookups - whole.lookups).abs() <= 1e-3 * (1.0 + whole.lookups), "{lookups} {whole:?}");
        }
    }
}
