//! Sets of byte positions.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of positions as ranges that are disjoint, not empty and do not touch; keyed by start,
/// holding ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    /// Adds all positions of `range`.
    pub(super) fn add(&mut self, range: Range<usize>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        // Merge all ranges that overlap or touch: the last one starts at or before our end.
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Removes all positions of `range`.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        while let Some((&s, &e)) = self.0.range(..range.end).next_back() {
            if e <= range.start || range.is_empty() {
                break;
            }
            self.0.remove(&s);
            if e > range.end {
                self.0.insert(range.end, e);
            }
            if s < range.start {
                self.0.insert(s, range.start);
            }
        }
    }

    /// Returns the ranges in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn ranges_equal_a_set_of_positions(steps in prop::collection::vec((any::<bool>(), 0usize..40, 0usize..12), 0..30)) {
            let (mut ranges, mut model) = (Ranges::default(), [false; 64]);
            for (add, start, len) in steps {
                let range = start..start + len;
                if add { ranges.add(range.clone()) } else { ranges.remove(range.clone()) }
                model[range].fill(add);
            }
            let mut marked = [false; 64];
            let mut last = None;
            for range in ranges.iter() {
                prop_assert!(!range.is_empty() && last.is_none_or(|end| end < range.start));
                last = Some(range.end);
                marked[range].fill(true);
            }
            prop_assert_eq!(marked, model);
        }
    }
}
