//! Statistics of repeated measurements and of counted events.

use serde::Serialize;

/// Median and extremes of the rounds of one measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Spread {
    /// The median; of an even number of rounds the mean of the middle two.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// Summarises some values; `None` for none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let half = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
        Some(Self { median, min, max })
    }

    /// Returns the distance between the extremes in percent of the median.
    pub(crate) fn percent(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median * 100.0 }
    }
}

/// Returns the 95 % interval (Wilson) of a rate with `hits` out of `trials`.
pub(crate) fn interval(hits: u64, trials: u64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    const Z: f64 = 1.96;
    let (n, p) = (trials as f64, hits as f64 / trials as f64);
    let centre = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_the_spread_spans_all() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(&[8.0, 10.0, 12.0]).unwrap().percent(), 40.0);
        assert_eq!(Spread::of(&[0.0]).unwrap().percent(), 0.0);
    }

    #[test]
    fn the_interval_holds_the_rate_and_narrows() {
        let (low, high) = interval(100, 10_000);
        assert!(low < 0.01 && 0.01 < high && high - low < 0.005);
        let (wide_low, wide_high) = interval(1, 100);
        assert!(wide_high - wide_low > high - low);
        assert_eq!(interval(0, 0), (0.0, 1.0));
        assert_eq!(interval(0, 1000).0, 0.0);
        assert!(interval(0, 1000).1 > 0.003, "no hit in a thousand does not prove a rate of zero");
    }
}
