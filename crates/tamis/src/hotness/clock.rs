//! Logical time, in gets of the database (3.3): when a segment expires, and how its frequency decays.
//!
//! A frequency f is stored as of the segment's last access and multiplied by 2^(−t/W) when it is read t gets later; W, the
//! window, is eight lifetimes. An access adds its weight · ln 2 / W. The f of a segment asked by one get in m converges to 1/m,
//! as the decayed number of all gets is W / ln 2. Segments that are not accessed thus need no updates.
//!
//! The lifetime may follow the number of segments and the sampling interval: if one get in n is counted, a segment that is
//! asked once per lifetime is noticed once in n lifetimes, so the lifetime is made n times as long. Otherwise most segments
//! would always be expired, and a get that happened to be counted would make a segment look n times as hot as it is. A change
//! keeps f and only alters the pace of its decay. The lifetime shrinks step by step, at most by half per lifetime: segments
//! that were sampled rarely until now must not expire at once.

use super::Hotness;

/// The window over which frequencies decay by half, in lifetimes.
const WINDOW: u64 = 8;

/// The shortest lifetime derived from the number of segments, in counted gets.
const SHORTEST: u64 = 1000;

/// The longest lifetime, in gets. Leaves room for times before the start.
const LONGEST: u64 = 1 << 47;

/// The clock's initial value, which leaves room for times at which a later segment was already expired.
const BEGIN: u64 = 1 << 48;

#[derive(Debug)]
pub(super) struct Clock {
    now: u64,
    life_time: Option<u64>,
    segments: u64,
    /// One get in this many is counted.
    sampling: u32,
    /// The last time at which it was no higher than required.
    sampling_since: u64,
}

/// A frequency for each kind of access, as of some time.
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

    /// Sets the sampling interval: from now on, one get in `interval` is counted.
    pub(super) fn sample(&mut self, interval: u32) {
        let interval = interval.max(1);
        if interval >= self.sampling {
            (self.sampling, self.sampling_since) = (interval, self.now);
        } else if self.expired(self.sampling_since) {
            (self.sampling, self.sampling_since) = (interval.max(self.sampling / 2), self.now);
        }
    }

    /// The maximum number of gets that one counted get stands for.
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

    /// Gets since the start.
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

    /// Reports whether more than a lifetime has passed since `last`.
    pub(super) fn expired(&self, last: u64) -> bool {
        self.now > last + self.life_time()
    }

    /// The decay factor since `last`.
    pub(super) fn decay(&self, last: u64) -> f64 {
        let gets = self.now - last;
        if gets == 0 { 1.0 } else { (-(gets as f64) / self.window()).exp2() }
    }

    /// What an access that stands for `weight` gets adds to a frequency.
    pub(super) fn step(&self, weight: u32) -> f64 {
        f64::from(weight) * std::f64::consts::LN_2 / self.window()
    }

    /// The hotness as of a time that makes the segment expired or not, as `hotness` says. Invalid frequencies count as 0.
    pub(super) fn warmth(&self, hotness: Hotness) -> Warmth {
        let last = if hotness.recent { self.now } else { self.now - self.life_time() - 1 };
        let then = |f: f64| if f > 0.0 { f.min(1.0) / self.decay(last) } else { 0.0 };
        Warmth { misses: then(hotness.misses), asked: then(hotness.asked), last }
    }
}
