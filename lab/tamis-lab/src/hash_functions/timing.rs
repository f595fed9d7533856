//! Timing in nanoseconds: a round is many calls, rounds of several sides are interleaved, and statistics are derived
//! from them.

use std::hint::black_box;
use std::time::Instant;

/// Median and extremes of the rounds of one measurement, in nanoseconds per call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Summarises some values; NaN for none.
    pub(crate) fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };
        };
        let half = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Spread { median, min, max }
    }
}

/// Intended duration of one side's round in nanoseconds: less than a time slice, so that on a busy machine most rounds,
/// and so their median, are not interrupted.
const ROUND_NS: f64 = 400_000.0;
/// Minimum number of calls in a round, so that reading the clock is negligible.
const FEWEST: usize = 16;

/// Returns nanoseconds per call of `probe(0)`, …, `probe(mask)`, repeated until `count` calls are made. The calls are
/// independent, so the processor overlaps them. `mask + 1` must be a power of two.
#[inline]
fn independent(count: usize, mask: usize, probe: &mut impl FnMut(usize) -> bool) -> f64 {
    let start = Instant::now();
    let mut hits = 0usize;
    for i in 0..count {
        hits += usize::from(probe(i & mask));
    }
    black_box(hits);
    start.elapsed().as_nanos() as f64 / count.max(1) as f64
}

/// Returns a side whose rounds are [`independent`] calls of `probe`; their number fits the duration of a round and is
/// at most `most`. The first round determines it.
pub(crate) fn paced<'a>(most: usize, mask: usize, mut probe: impl FnMut(usize) -> bool + 'a) -> Side<'a> {
    let mut count = None;
    Box::new(move || {
        let count = *count.get_or_insert_with(|| {
            let tries = (0..5).map(|_| independent(FEWEST, mask, &mut probe));
            let ns = tries.fold(f64::INFINITY, f64::min).max(0.5);
            ((ROUND_NS / ns) as usize).clamp(FEWEST, most.max(FEWEST))
        });
        independent(count, mask, &mut probe)
    })
}

/// One side of a comparison: a call runs one round, and returns nanoseconds per measured call.
pub(crate) type Side<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// Runs one round of every side in turn, so that disturbances affect all sides; the first round, which warms up, is not
/// counted.
pub(crate) fn interleaved(rounds: u32, sides: &mut [Side<'_>], mut tick: impl FnMut()) -> Vec<Spread> {
    let mut times = vec![Vec::new(); sides.len()];
    for round in 0..=rounds {
        for (side, times) in sides.iter_mut().zip(&mut times) {
            let time = side();
            if round > 0 {
                times.push(time);
            }
            tick();
        }
    }
    times.into_iter().map(Spread::of).collect()
}

/// Returns mean and standard error of the mean; the error of fewer than two values is unknown: `None`.
pub(crate) fn mean_and_error(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (values.len() > 1).then(|| (variance / n).sqrt()))
}

/// Counts the pairs in which two orders of the same things agree, and all pairs.
pub(crate) fn agreeing_pairs(pairs: &[(f64, f64)]) -> (usize, usize) {
    let all = pairs.iter().enumerate().flat_map(|(i, a)| pairs[..i].iter().map(move |b| (a, b)));
    all.fold((0, 0), |(agreeing, all), (a, b)| (agreeing + usize::from((a.0 < b.0) == (a.1 < b.1)), all + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!(Spread::of(Vec::new()).median.is_nan());
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn every_query_is_asked_in_turn() {
        let mut seen = [0u32; 8];
        independent(16, 7, &mut |i: usize| {
            seen[i] += 1;
            true
        });
        assert_eq!(seen, [2; 8]);
        let calls = std::cell::Cell::new(0);
        let mut side = paced(100, 7, |_| {
            calls.set(calls.get() + 1);
            true
        });
        side();
        let first = calls.get();
        side();
        assert!((FEWEST..=100).contains(&(calls.get() - first)), "{} after {first}", calls.get());
    }

    #[test]
    fn sides_are_interleaved_and_the_first_round_is_dropped() {
        let order = std::cell::RefCell::new(Vec::new());
        let side = |name: f64| {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                name * order.borrow().len() as f64
            }) as Side<'_>
        };
        let spreads = interleaved(2, &mut [side(1.0), side(-1.0)], || {});
        assert_eq!(*order.borrow(), [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]);
        assert_eq!((spreads[0].min, spreads[0].max), (3.0, 5.0));
    }

    #[test]
    fn the_error_of_a_mean_needs_two_values() {
        assert_eq!(mean_and_error(&[1.0, 3.0]), (2.0, Some(1.0)));
        assert_eq!(mean_and_error(&[5.0]), (5.0, None));
    }

    #[test]
    fn orders_agree_in_pairs() {
        assert_eq!(agreeing_pairs(&[(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]), (3, 3));
        assert_eq!(agreeing_pairs(&[(1.0, 10.0), (2.0, 30.0), (3.0, 20.0)]), (2, 3));
    }
}
