use super::*;
use crate::memory::random::Random;

const TOTAL: u64 = 256 << 20;
const STEP: u64 = TOTAL / STEPS;
const BLOCK: f64 = 4096.0;

/// A database whose cache and filters follow two given curves: the block reads per get that remain,
/// by bytes.
struct World<C, F> {
    cache: C,
    filters: F,
    sampling: u64,
    gets: u64,
    ghost: Ghosts,
    random: Random,
}

impl<C: Fn(f64) -> f64, F: Fn(f64) -> f64> World<C, F> {
    fn new(cache: C, filters: F, seed: u64) -> World<C, F> {
        let ghost = Ghosts { step_bytes: STEP, sampling: 4, ..Ghosts::default() };
        World { cache, filters, sampling: 4, gets: 0, ghost, random: Random(seed) }
    }

    fn cache_slope(&self, split: Split) -> f64 {
        let c = split.cache as f64;
        ((self.cache)(c) - (self.cache)(c + STEP as f64)) / STEP as f64
    }

    fn marginal(&self, split: Split) -> Marginal {
        let (f, step) = (split.filters as f64, STEP as f64);
        let now = (self.filters)(f);
        Marginal {
            gain: (now - (self.filters)(f + step)) / step,
            loss: ((self.filters)(f - step) - now) / step,
        }
    }

    /// Performs `gets` more reads under the current split, then a turn.
    fn turn(&mut self, divider: &mut Divider, gets: u64) -> Option<Split> {
        let split = divider.split();
        self.gets += gets;
        let misses = (self.cache)(split.cache as f64) * gets as f64;
        self.ghost.evicted_bytes += (misses * BLOCK) as u64;
        let mean = self.cache_slope(split) * STEP as f64 * gets as f64 / self.sampling as f64;
        self.ghost.ghost_hits += self.random.poisson(mean) * self.sampling;
        let moved = divider.turn(self.gets, self.ghost, self.marginal(split));
        let now = divider.split();
        assert_eq!(now.cache + now.filters, TOTAL);
        assert!(now.cache >= TOTAL / LEAST_SHARE && now.filters >= TOTAL / LEAST_SHARE, "{now:?}");
        assert_eq!(moved, (now != split).then_some(now), "what it says is what it did");
        moved
    }

    /// Like [`turn`](Self::turn), for a share.
    fn share(&mut self, divider: &mut Divider, turns: u64) {
        for _ in 0..turns {
            let split = divider.split();
            self.gets += 20_000;
            self.ghost.evicted_bytes += STEP;
            self.ghost.ghost_hits += (self.cache_slope(split) * STEP as f64 * 20_000.0) as u64;
            divider.turn(self.gets, self.ghost, self.marginal(split));
        }
    }

    /// Returns the number of steps made in `turns` turns.
    fn moves(&mut self, divider: &mut Divider, turns: u64, gets: u64) -> u64 {
        (0..turns).filter(|_| self.turn(divider, gets).is_some()).count() as u64
    }

    /// Returns the split, in steps of the cache, at which a byte is worth the same on both sides,
    /// by exhaustive search.
    fn balance(&self) -> u64 {
        let worth = |steps: &u64| {
            let split = Split { cache: steps * STEP, filters: TOTAL - steps * STEP };
            (self.cache_slope(split) / self.marginal(split).gain).ln().abs()
        };
        (2..=62).min_by(|a, b| worth(a).total_cmp(&worth(b))).unwrap()
    }
}

/// Cache misses: concave hits with a long tail.
fn cache_curve(bytes: f64) -> f64 {
    0.8 * (-bytes / 64e6).exp() + 0.2 * (1.0 - (bytes / 4e9).sqrt())
}

/// False positives of Bloom filters over 60 million keys with uneven popularity: convex.
fn filter_curve(bytes: f64) -> f64 {
    0.3 * (-bytes * 8.0 / 20e6 * 0.48).exp() + 0.4 * (-bytes * 8.0 / 120e6 * 0.48).exp()
}

#[test]
fn it_converges_from_both_ends_to_equal_worth_and_stays_there() {
    for seed in 1..=5 {
        for start in [0, TOTAL / 2, TOTAL] {
            let mut world = World::new(cache_curve, filter_curve, seed);
            let mut divider = Divider::new(TOTAL, start);
            world.moves(&mut divider, 4000, 20_000);
            let (came, balance) = (divider.split().cache / STEP, world.balance());
            assert!((8..=56).contains(&balance), "a balance at the end proves nothing: {balance}");
            // If the step between is worth less than the margin, both sides of it are equally good.
            let split = divider.split();
            let ratio = world.cache_slope(split) / world.marginal(split).gain;
            assert!((1.0 / 1.5..1.5).contains(&ratio), "from {start}: {came} for {balance}, {ratio}");
            assert!(came.abs_diff(balance) <= 4, "from {start}: {came} for {balance}");
            // 80 million more gets.
            let moves = world.moves(&mut divider, 4000, 20_000);
            assert!(moves <= 2, "noise moved it {moves} times");
        }
    }
}

/// The result must not depend on how often turns happen.
#[test]
fn turns_may_be_frequent_or_rare() {
    for gets in [100, 5_000, 200_000] {
        let mut world = World::new(cache_curve, filter_curve, 3);
        let mut divider = Divider::new(TOTAL, 0);
        world.moves(&mut divider, 80_000_000 / gets, gets);
        let (came, balance) = (divider.split().cache / STEP, world.balance());
        assert!(came.abs_diff(balance) <= 4, "turns of {gets} gets: {came} for {balance}");
    }
}

#[test]
fn noise_about_equal_worths_moves_nothing() {
    // Both sides lose the same, and little, for each byte everywhere: few ghost hits per turn.
    let line = |bytes: f64| 0.9 - 1e-10 * bytes;
    let mut world = World::new(line, line, 11);
    let mut divider = Divider::new(TOTAL, TOTAL / 2);
    let moves = world.moves(&mut divider, 20_000, 10_000);
    assert!(moves <= 2, "{moves}");
}

#[test]
fn a_cache_without_ghost_hits_gives_all_but_its_least_share() {
    let mut world = World::new(|_| 1.0, |f: f64| 1.0 - 1e-9 * f, 1);
    let mut divider = Divider::new(TOTAL, TOTAL);
    world.moves(&mut divider, 2000, 20_000);
    assert_eq!(divider.split().cache, TOTAL / LEAST_SHARE);
}

#[test]
fn filters_that_gain_nothing_give_all_but_their_least_share() {
    let mut world = World::new(cache_curve, |_| 0.0, 1);
    let mut divider = Divider::new(TOTAL, 0);
    world.moves(&mut divider, 2000, 20_000);
    assert_eq!(divider.split().filters, TOTAL / LEAST_SHARE);
}

#[test]
fn if_neither_side_gains_nothing_moves() {
    let mut world = World::new(|_| 0.5, |_| 0.5, 1);
    let mut divider = Divider::new(TOTAL, TOTAL / 3);
    assert_eq!(world.moves(&mut divider, 2000, 20_000), 0);
}

#[test]
fn without_gets_nothing_moves() {
    let mut world = World::new(cache_curve, filter_curve, 1);
    let mut divider = Divider::new(TOTAL, 0);
    world.turn(&mut divider, 1000);
    assert_eq!(world.moves(&mut divider, 1000, 0), 0);
    // The wait itself is no evidence: later counts are judged on their own.
    assert_eq!(world.moves(&mut divider, 3, 1000), 0);
}

/// The data just fits the cache: one step more gains nothing, and one step less loses much. Each
/// turn by itself would take the step away, see the ghost hits, and reverse it, forever.
#[test]
fn at_a_cliff_it_does_not_oscillate_forever() {
    let cliff = 24.5 * STEP as f64;
    let mut world = World::new(|c: f64| 0.5 * (1.0 - c / cliff).max(0.0), |f: f64| 0.5 - 1e-10 * f, 5);
    let mut divider = Divider::new(TOTAL, 25 * STEP);
    // A hundred million gets: without patience some hundred steps, one each time the ghost list
    // settles.
    let moves = world.moves(&mut divider, 10_000, 10_000);
    assert!((1..=40).contains(&moves), "{moves}");
    let later = world.moves(&mut divider, 10_000, 10_000);
    assert!(later <= 100_000_000 / MOST_PATIENCE + 1, "{later}");
    assert!((23..=26).contains(&(divider.split().cache / STEP)));
}

/// Patience is for oscillation, not for a workload that changed.
#[test]
fn it_follows_a_changing_workload() {
    let mut divider = Divider::new(TOTAL, TOTAL / 2);
    let mut reads = World::new(cache_curve, |_| 0.0, 1);
    reads.moves(&mut divider, 3000, 20_000);
    assert_eq!(divider.split().filters, TOTAL / LEAST_SHARE);
    let mut absent = World::new(|_| 0.9, filter_curve, 2);
    (absent.gets, absent.ghost) = (reads.gets, reads.ghost);
    absent.moves(&mut divider, 3000, 20_000);
    assert_eq!(divider.split().cache, TOTAL / LEAST_SHARE);
}

#[test]
fn hostile_numbers_do_no_harm() {
    for total in [0, 1, 63, 1 << 20, u64::MAX] {
        let mut divider = Divider::new(total, u64::MAX);
        let mut gets = 0u64;
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300] {
            for ghost_hits in [0, u64::MAX, 7] {
                gets = gets.wrapping_add(1 << 40);
                for sampling in [0, 1, u64::MAX] {
                    let ghost = Ghosts { ghost_hits, sampling, step_bytes: total, ..Ghosts::default() };
                    divider.turn(gets, ghost, Marginal { gain: value, loss: value });
                    let split = divider.split();
                    assert_eq!(split.cache + split.filters, total);
                }
            }
        }
    }
}

/// A share goes to the side that gains by it, comes from the one that loses least, and may be
/// anything.
#[test]
fn a_share_changes_where_it_is_worth_most_and_down_to_nothing() {
    let mut world = World::new(cache_curve, |_| 0.0, 1);
    let mut divider = Divider::of_share(TOTAL / 2, STEP);
    world.share(&mut divider, 40);
    let before = divider.split();
    let grown = divider.set_share(TOTAL / 2 + STEP);
    assert_eq!(grown, Split { cache: before.cache + STEP, filters: before.filters });
    let shrunk = divider.set_share(TOTAL / 2);
    let least = divider.least_bytes();
    let filters = before.filters.saturating_sub(STEP).max(least);
    assert_eq!(shrunk, Split { cache: TOTAL / 2 - filters, filters });
    let proportion = |split: Split| split.cache as f64 / (split.cache + split.filters) as f64;
    let doubled = divider.set_share(TOTAL);
    assert!((proportion(doubled) - proportion(shrunk)).abs() < 1e-6);
    for total in [1000, 3, 1, 0, u64::MAX, TOTAL] {
        let split = divider.set_share(total);
        assert_eq!(split.cache + split.filters, total);
        assert!(total < 1000 || split.cache >= total / 8 && split.filters >= total / 8, "{split:?}");
    }
}
