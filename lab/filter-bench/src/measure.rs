//! Timing: a round is many operations, and rounds of several sides are interleaved.

use std::hint::black_box;
use std::time::Instant;

use crate::stats::Spread;

/// Returns nanoseconds per call of `probe(0)`, …, `probe(mask)`, repeated until `count` calls are made. The calls are
/// independent, so the processor overlaps them. `mask + 1` must be a power of two.
#[inline]
pub(crate) fn independent(count: usize, mask: usize, mut probe: impl FnMut(usize) -> bool) -> f64 {
    let start = Instant::now();
    let mut hits = 0usize;
    for i in 0..count {
        hits += usize::from(probe(i & mask));
    }
    black_box(hits);
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Measures like [`independent`], but each query depends on the preceding answer, as for a reader that queries one run
/// after the other.
#[inline]
pub(crate) fn chained(count: usize, mask: usize, mut probe: impl FnMut(usize) -> bool) -> f64 {
    let start = Instant::now();
    let mut last = false;
    for i in 0..count {
        last = probe((i ^ usize::from(last)) & mask);
    }
    black_box(last);
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Returns the largest power of two up to `n`, minus one, as the mask for `n` queries. `None` below two.
pub(crate) fn mask(n: usize) -> Option<usize> {
    (n >= 2).then(|| (1usize << n.ilog2()) - 1)
}

/// Runs one round of every side in turn, so that disturbances affect all sides; the first round, which warms up, is not
/// counted.
pub(crate) fn interleaved(
    rounds: usize,
    sides: &mut [Box<dyn FnMut() -> f64 + '_>],
    mut tick: impl FnMut(),
) -> Vec<Spread> {
    let mut times = vec![Vec::with_capacity(rounds); sides.len()];
    for round in 0..=rounds {
        for (side, times) in sides.iter_mut().zip(&mut times) {
            let time = side();
            if round > 0 {
                times.push(time);
            }
            tick();
        }
    }
    times.iter().filter_map(|times| Spread::of(times)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_executed_and_chaining_stays_within_the_queries() {
        let mut seen = [0u32; 8];
        independent(16, 7, |i| {
            seen[i] += 1;
            true
        });
        assert_eq!(seen, [2; 8]);
        let mut asked = Vec::new();
        chained(6, 3, |i| {
            asked.push(i);
            i == 1
        });
        assert_eq!(asked, [0, 1, 3, 3, 0, 1], "after a yes the neighbour is asked");
        assert_eq!((mask(0), mask(1), mask(2), mask(7), mask(8)), (None, None, Some(1), Some(3), Some(7)));
    }

    #[test]
    fn sides_are_interleaved_and_the_first_round_is_dropped() {
        let order = std::cell::RefCell::new(Vec::new());
        let side = |name: f64| {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                name * order.borrow().len() as f64
            }) as Box<dyn FnMut() -> f64>
        };
        let spreads = interleaved(2, &mut [side(1.0), side(-1.0)], || {});
        assert_eq!(*order.borrow(), [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]);
        assert_eq!((spreads[0].min, spreads[0].max), (3.0, 5.0));
    }
}
