//! Logical time, in gets of the database, and how frequencies decay (3.3).
//!
//! A frequency f halves over a window of W gets: it is read as `stored · 2^(−t/W)` at time t, and
//! an access that stands for n gets adds `n · ln 2 / W` to it, so that the f of a segment asked by
//! one get in m converges to 1/m. All frequencies decay alike, so they are stored *scaled* by
//! 2^(t/W) and need no time of their own: decay moves nothing, and the order of segments changes
//! with accesses only. Before the scale gets too large, all stored numbers are divided by it.
//!
//! The window follows the number of segments and the sampling interval: it is [`WINDOW`] lifetimes,
//! and a lifetime four counted gets a segment. So a run's average segment has some 32 counted
//! accesses in a window, which leaves a fifth of noise. Longer windows place units hardly better
//! (less than 1 % in the simulated tree of the tests) and follow moving hot keys more slowly.

/// The window over which frequencies decay by half, in lifetimes.
const WINDOW: u64 = 8;

/// Counted gets per segment in a lifetime.
const PER_SEGMENT: u64 = 4;

/// The shortest lifetime derived from the number of segments, in counted gets.
const SHORTEST: u64 = 1000;

/// The longest lifetime, in gets.
const LONGEST: u64 = 1 << 47;

/// Stored numbers are divided by the scale once it is two to this. They lie within 2^±126, and
/// frequencies above 2^-60.
const MOST_DOUBLINGS: f64 = 40.0;

#[derive(Debug)]
pub(super) struct Clock {
    gets: u64,
    life_time: Option<u64>,
    segments: u64,
    /// One get in this many is counted.
    sampling: u32,
    /// The binary logarithm of the scale, and the scale.
    doublings: f64,
    scale: f64,
}

impl Clock {
    pub(super) fn new(life_time: Option<u64>) -> Clock {
        let life_time = life_time.map(|gets| gets.clamp(1, LONGEST));
        Clock { gets: 0, life_time, segments: 0, sampling: 1, doublings: 0.0, scale: 1.0 }
    }

    /// Sets the sampling interval: from now on, one get in `interval` is counted.
    pub(super) fn sample(&mut self, interval: u32) {
        self.sampling = interval.max(1);
    }

    /// The number of gets that one counted get stands for, on average.
    pub(super) fn sampling(&self) -> f64 {
        self.sampling.into()
    }

    /// Lets time pass. Returns a factor, if all stored numbers are to be multiplied by one.
    pub(super) fn advance(&mut self, gets: u64) -> Option<f32> {
        self.gets = self.gets.saturating_add(gets);
        self.doublings += gets as f64 / self.window();
        let fold = self.doublings > MOST_DOUBLINGS;
        let factor = fold.then(|| (-self.doublings).exp2() as f32);
        if fold {
            self.doublings = 0.0;
        }
        self.scale = self.doublings.exp2();
        factor
    }

    pub(super) fn add_segments(&mut self, segments: usize) {
        self.segments += segments as u64;
    }

    pub(super) fn remove_segments(&mut self, segments: usize) {
        self.segments -= segments as u64;
    }

    pub(super) fn segments(&self) -> u64 {
        self.segments
    }

    /// Gets since the start.
    pub(super) fn gets(&self) -> u64 {
        self.gets
    }

    /// In gets.
    pub(super) fn life_time(&self) -> u64 {
        let counted = || self.segments.saturating_mul(PER_SEGMENT).max(SHORTEST);
        self.life_time.unwrap_or_else(|| counted().saturating_mul(self.sampling.into()).min(LONGEST))
    }

    /// In gets.
    pub(super) fn window(&self) -> f64 {
        (WINDOW * self.life_time()) as f64
    }

    /// What an access that stands for `weight` gets adds to a stored frequency.
    pub(super) fn step(&self, weight: u32) -> f32 {
        (f64::from(weight) * std::f64::consts::LN_2 / self.window() * self.scale) as f32
    }

    /// A frequency as it is stored now. Invalid ones count as 0.
    pub(super) fn scaled(&self, frequency: f64) -> f32 {
        if frequency > 0.0 { (frequency.min(1.0) * self.scale) as f32 } else { 0.0 }
    }

    /// A stored frequency as of now.
    pub(super) fn frequency(&self, stored: f32) -> f64 {
        f64::from(stored) / self.scale
    }

    /// The number of counted accesses that a frequency was learned from.
    pub(super) fn counted(&self, frequency: f64) -> f64 {
        frequency * self.window() / std::f64::consts::LN_2 / self.sampling()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_converge_and_halve_over_a_window() {
        let mut clock = Clock::new(Some(100));
        let mut stored = 0.0f32;
        for get in 0..100_000u64 {
            if let Some(factor) = clock.advance(1) {
                stored *= factor;
            }
            if get % 50 == 0 {
                stored += clock.step(1);
            }
        }
        assert!((clock.frequency(stored) * 50.0 - 1.0).abs() < 0.05, "{}", clock.frequency(stored));
        assert!((clock.counted(0.02) - 0.02 * 800.0 / std::f64::consts::LN_2).abs() < 1e-9);
        let before = clock.frequency(stored);
        let factor = clock.advance(800).unwrap_or(1.0);
        let after = clock.frequency(stored * factor);
        assert!((before / after - 2.0).abs() < 0.01, "{before} {after}");
    }

    #[test]
    fn the_window_follows_segments_and_sampling() {
        let mut clock = Clock::new(None);
        assert_eq!(clock.life_time(), 1000);
        clock.add_segments(5000);
        assert_eq!(clock.life_time(), 20_000);
        clock.sample(16);
        assert_eq!(clock.life_time(), 320_000);
        clock.remove_segments(5000);
        assert_eq!((clock.life_time(), clock.segments()), (16_000, 0));
    }

    #[test]
    fn invalid_frequencies_are_none() {
        let clock = Clock::new(None);
        assert_eq!([f64::NAN, -1.0, 0.0].map(|f| clock.scaled(f)), [0.0; 3]);
        assert_eq!(clock.frequency(clock.scaled(7.0)), 1.0);
    }
}
