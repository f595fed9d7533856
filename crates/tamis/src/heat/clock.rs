//! Logical time: gets of the database (3.3). When a segment is expired, and how its frequency decays.
//!
//! A frequency f is kept as of the segment's last access and multiplied by 2^(−t/W) when it is looked at t gets later;
//! W, the window, is eight life times. An access adds its weight · ln 2 / W. A segment that one get in m asks goes to
//! f = 1/m: the decayed number of all gets is W / ln 2. So nothing is ever done to segments that are not accessed.
//!
//! The life time may follow the number of segments and the sampling: if one get of n is counted, a segment that is asked
//! once in a life time is noticed once in n of them, so a life time is n times as long. Otherwise most segments were
//! always expired, and one get that happens to be counted made a segment n times as hot as it is. Then f stays what it
//! is, and only its decay changes its pace. It becomes shorter step by step only, at most by half in a life time: what was
//! sampled rarely until now must not be expired at once.

use super::Heat;

/// The window over which frequencies decay by half, in life times.
const WINDOW: u64 = 8;

/// The shortest life time that follows from the number of segments, in gets that are counted.
const SHORTEST: u64 = 1000;

/// The longest life time, in gets. Leaves room for times before the beginning.
const LONGEST: u64 = 1 << 47;

/// What the clock begins with, so that there are times at which something that came later was already expired.
const BEGIN: u64 = 1 << 48;

#[derive(Debug)]
pub(super) struct Clock {
    now: u64,
    life_time: Option<u64>,
    segments: u64,
    /// One get of so many is counted.
    sampling: u32,
    /// The last time when it was not more than it had to be.
    sampling_since: u64,
}

/// A frequency for each kind of access, as of a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warmth {
    pub(super) misses: f64,
    pub(super) asked: f64,
    pub(super) last: u64,
}

impl Clock {
    pub(super) fn new(life_time: Option<u64>) -> Clock {
        Clock {
            now: BEGIN,
            life_time: life_time.map(|gets| gets.clamp(1, LONGEST)),
            segments: 0,
            sampling: 1,
            sampling_since: BEGIN,
        }
    }

    /// One get of so many is counted from now on.
    pub(super) fn sample(&mut self, interval: u32) {
        let interval = interval.max(1);
        if interval >= self.sampling {
            (self.sampling, self.sampling_since) = (interval, self.now);
        } else if self.expired(self.sampling_since) {
            (self.sampling, self.sampling_since) = (interval.max(self.sampling / 2), self.now);
        }
    }

    /// How many gets one that is counted stands for, at most.
    pub(super) fn sampling(&self) -> f64 {
        self.sampling.into()
    }

    pub(super) fn advance(&mut self, gets: u64) {
        self.now = self.now.saturating_add(gets);
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

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Gets since the beginning.
    pub(super) fn gets(&self) -> u64 {
        self.now - BEGIN
    }

    /// In gets.
    pub(super) fn life_time(&self) -> u64 {
        let follows = || self.segments.max(SHORTEST).saturating_mul(self.sampling.into()).min(LONGEST);
        self.life_time.unwrap_or_else(follows)
    }

    /// In gets.
    pub(super) fn window(&self) -> f64 {
        (WINDOW * self.life_time()) as f64
    }

    /// Whether more than a life time went by since `last`.
    pub(super) fn expired(&self, last: u64) -> bool {
        self.now > last + self.life_time()
    }

    /// What is left of 1 since `last`.
    pub(super) fn decay(&self, last: u64) -> f64 {
        let gets = self.now - last;
        if gets == 0 { 1.0 } else { (-(gets as f64) / self.window()).exp2() }
    }

    /// What an access that stands for `weight` gets adds to a frequency.
    pub(super) fn step(&self, weight: u32) -> f64 {
        f64::from(weight) * std::f64::consts::LN_2 / self.window()
    }

    /// The heat as of a time that makes the segment expired or not, as it says. What is no frequency counts as none.
    pub(super) fn warmth(&self, heat: Heat) -> Warmth {
        let last = if heat.recent { self.now } else { self.now - self.life_time() - 1 };
        let then = |f: f64| if f > 0.0 { f.min(1.0) / self.decay(last) } else { 0.0 };
        Warmth { misses: then(heat.misses), asked: then(heat.asked), last }
    }
}
