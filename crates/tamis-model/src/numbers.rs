//! Clamps arguments into range, so that no function has to reject any or returns NaN.

use std::cmp::Ordering;

/// Returns `x` clamped to `0..=1`; NaN becomes 0.
pub(crate) fn fraction(x: f64) -> f64 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// Returns `x` as a time in nanoseconds, clamped to `0..=1e18`; NaN becomes 0.
pub(crate) fn time(x: f64) -> f64 {
    if x > 0.0 { x.min(1e18) } else { 0.0 }
}

/// Returns `x` as a count or weight: negative, infinite and NaN become 0.
pub(crate) fn count(x: f64) -> f64 {
    if x > 0.0 && x.is_finite() { x } else { 0.0 }
}

/// Returns `x` as a number of bits, clamped to `-1e6..=1e6`; NaN becomes 0.
pub(crate) fn bits(x: f64) -> f64 {
    if x.is_nan() { 0.0 } else { x.clamp(-1e6, 1e6) }
}

/// Returns the ratio of a part to the whole; 0 if the whole is 0.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Returns counts as fractions of their sum; all 0 if the sum is.
pub(crate) fn normalized(counts: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let counts = counts.map(count);
    // Divide by the largest first, or the sum might overflow.
    let largest = counts.clone().fold(0.0, f64::max);
    let sum: f64 = counts.clone().map(|count| share(count, largest)).sum();
    counts.map(|count| share(share(count, largest), sum)).collect()
}

/// A float with a total order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ordered(pub(crate) f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one_or_are_none() {
        assert_eq!(normalized([1.0, 3.0, f64::NAN, -1.0].into_iter()), [0.25, 0.75, 0.0, 0.0]);
        assert_eq!(normalized([f64::MAX, f64::MAX, f64::INFINITY].into_iter()), [0.5, 0.5, 0.0]);
        assert_eq!(normalized([0.0, 0.0].into_iter()), [0.0, 0.0]);
    }
}
