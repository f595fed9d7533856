//! The rule that divides memory between databases.
//!
//! Every member reports what it reads, how many of its cache's misses a larger cache would have
//! answered (a ghost list), and what its elastic filters would gain and lose. From two reports
//! follow, for the time in between, the block reads *per second* that one more byte would save (the
//! *gain*), and that one byte less would cause (the *loss*). A member spends a byte where it saves
//! most and gives one up where it saves least, so its gain is that of the better side, and its loss
//! that of the cheaper one. [`Shares::turn`] moves a step, a [`STEPS`]th of the total, from the
//! member with the least loss to the one with the largest gain, if the gain is [`MARGIN`] times the
//! loss.
//!
//! *When counts are significant.* As within one database ([`division`](super::division)): ghost
//! hits are a Poisson count, and the lower end of its score interval counts as gain, the upper end
//! as loss. An idle member's loss falls with time alone.
//!
//! *Why it converges.* Between "gives" and "takes" lies a gap of [`MARGIN`]². A member whose step
//! goes in the opposite direction to its last has to wait, twice as long each time
//! ([`MOST_PATIENCE`] at most); two steps in the same direction reset the wait. After a step the
//! member that took it is left alone until its ghost list reflects the new size, or [`SETTLING`]
//! has passed.
//!
//! *The least share* of a member is an equal share divided by [`LEAST_PART`]: an idle database
//! still has something to measure with when it wakes up. What lies above is in proportion when
//! members join or leave or the total changes; one that joins gets an equal share.
//!
//! Pure: no clock, no threads, no lock. Times are since an arbitrary moment. Costs are linear in
//! the number of members.

use std::collections::BTreeMap;
use std::time::Duration;

/// The number of steps in the total.
pub const STEPS: u64 = 64;

/// A member keeps at least an equal share divided by this.
pub const LEAST_PART: u64 = 16;

/// A step must be worth this many times what it costs.
pub const MARGIN: f64 = 1.25;

/// The number of standard deviations allowed for: about one turn in a hundred mistakes noise for
/// more.
const DEVIATIONS: f64 = 2.5;

/// The least time counted before a step.
const LEAST_COUNTED: Duration = Duration::from_millis(500);

/// A window is dropped after this time, so that old counts have no weight.
const WINDOW: Duration = Duration::from_secs(60);

/// One with this many ghost hits is dropped sooner: more of them will not decide it.
const WINDOW_HITS: f64 = 1024.0;

/// The time after which it is dropped then.
const SHORT_WINDOW: Duration = Duration::from_secs(10);

/// The time after which a ghost list is assumed to reflect a new size, if less than two of its
/// steps were evicted.
const SETTLING: Duration = Duration::from_secs(2);

/// The time that a reversal waits at first.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

/// The longest time that a reversal waits.
const MOST_PATIENCE: Duration = Duration::from_secs(3600);

/// What a member reports. Counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Gets so far.
    pub gets: u64,
    /// Misses that a cache with `step_bytes` more would have answered: an estimate, the number
    /// observed times `sampling`.
    pub ghost_hits: u64,
    /// Bytes evicted from the cache.
    pub evicted_bytes: u64,
    /// One key in this many is observed.
    pub sampling: u64,
    /// How much larger the cache is assumed to be.
    pub step_bytes: u64,
    /// Reads per get that one more byte for filters would save.
    pub filters_gain: f64,
    /// Reads per get that one byte less would cause.
    pub filters_loss: f64,
    /// Whether the cache has more than the least that it keeps.
    pub cache_gives: bool,
    /// Whether the filters have more than their least.
    pub filters_give: bool,
}

/// The direction of a member's last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Gave,
    Took,
}

/// What a byte is worth to a member, in block reads per second.
#[derive(Clone, Copy, Debug)]
struct Worth {
    gain: f64,
    loss: f64,
}

#[derive(Debug)]
struct Share {
    bytes: u64,
    steps: u64,
    /// The beginning of the window, and the last report.
    since: Option<(Duration, Reading)>,
    last: Option<(Duration, Reading)>,
    settled: bool,
    moved: Option<(Direction, Duration)>,
    patience: Duration,
}

impl Share {
    fn new() -> Share {
        Share {
            bytes: 0,
            steps: 0,
            since: None,
            last: None,
            settled: false,
            moved: None,
            patience: LEAST_PATIENCE,
        }
    }

    /// Starts over: what was counted says nothing about the new size.
    fn recount(&mut self) {
        (self.since, self.settled) = (self.last, false);
    }

    fn observe(&mut self, now: Duration, reading: Reading) {
        self.last = Some((now, reading));
        let (began, first) = *self.since.get_or_insert((now, reading));
        let elapsed = now.saturating_sub(began);
        let restart = if self.settled {
            elapsed >= WINDOW || elapsed >= SHORT_WINDOW && hits(&first, &reading) >= WINDOW_HITS
        } else {
            let evicted = reading.evicted_bytes.saturating_sub(first.evicted_bytes);
            let passed = reading.step_bytes > 0 && evicted >= reading.step_bytes.saturating_mul(2);
            self.settled = passed || elapsed >= SETTLING;
            self.settled
        };
        if restart {
            self.since = self.last;
        }
    }

    /// Returns what bytes are worth, if enough was counted.
    fn worth(&self) -> Option<Worth> {
        let ((began, first), (now, last)) = (self.since?, self.last?);
        let elapsed = now.saturating_sub(began);
        if !self.settled || elapsed < LEAST_COUNTED {
            return None;
        }
        let seconds = elapsed.as_secs_f64();
        let gets = last.gets.saturating_sub(first.gets) as f64 / seconds;
        let (low, high) = bounds(hits(&first, &last));
        let per_hit = match last.step_bytes {
            0 => 0.0,
            step => last.sampling.max(1) as f64 / (seconds * step as f64),
        };
        // Other than numbers would end up as gains.
        let number = |worth: f64| if worth.is_finite() { worth.max(0.0) } else { 0.0 };
        let filters = (number(last.filters_gain * gets), number(last.filters_loss * gets));
        let cheapest = match (last.cache_gives, last.filters_give) {
            (true, true) => filters.1.min(high * per_hit),
            (true, false) => high * per_hit,
            (false, true) => filters.1,
            (false, false) => f64::INFINITY,
        };
        Some(Worth { gain: filters.0.max(low * per_hit), loss: cheapest })
    }

    fn may(&self, direction: Direction, now: Duration) -> bool {
        match self.moved {
            Some((last, at)) if last != direction => now.saturating_sub(at) >= self.patience,
            _ => true,
        }
    }

    fn note(&mut self, direction: Direction, now: Duration) {
        self.patience = match self.moved {
            Some((last, _)) if last != direction => (self.patience * 2).min(MOST_PATIENCE),
            _ => LEAST_PATIENCE,
        };
        self.moved = Some((direction, now));
        self.steps += 1;
        self.recount();
        // What a cache gives up, its ghost list has at once.
        self.settled = direction == Direction::Gave;
    }
}

/// The shares of all members, by number.
#[derive(Debug)]
pub struct Shares {
    total: u64,
    members: BTreeMap<u64, Share>,
}

impl Shares {
    /// Creates the shares of a total that has no members.
    pub fn new(total: u64) -> Shares {
        Shares { total, members: BTreeMap::new() }
    }

    /// The bytes that are divided.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns a member's bytes, and the number of steps that it gave or took; 0 for an unknown
    /// one.
    pub fn of(&self, id: u64) -> (u64, u64) {
        self.members.get(&id).map_or((0, 0), |share| (share.bytes, share.steps))
    }

    /// Returns the least share of any member.
    fn least(&self) -> u64 {
        self.total / (LEAST_PART * self.members.len().max(1) as u64)
    }

    /// Adds a member with an equal share.
    pub fn join(&mut self, id: u64) {
        let mut excess = self.excess();
        let mean =
            excess.values().map(|&bytes| u128::from(bytes)).sum::<u128>() / excess.len().max(1) as u128;
        // Below u64::MAX, as are all that it is the mean of.
        excess.insert(id, mean as u64);
        self.members.insert(id, Share::new());
        self.assign(&excess);
    }

    /// Removes a member, whose share the others get.
    pub fn leave(&mut self, id: u64) {
        let excess = self.excess();
        self.members.remove(&id);
        self.assign(&excess);
    }

    /// Changes the total.
    pub fn resize(&mut self, total: u64) {
        let excess = self.excess();
        self.total = total;
        self.assign(&excess);
    }

    /// Returns what members have above the least share.
    fn excess(&self) -> BTreeMap<u64, u64> {
        let least = self.least();
        self.members.iter().map(|(&id, share)| (id, share.bytes.saturating_sub(least))).collect()
    }

    /// Divides the total: the least share for everyone, and the rest in proportion to `excess`,
    /// equally if there is none.
    fn assign(&mut self, excess: &BTreeMap<u64, u64>) {
        let (least, count) = (self.least(), self.members.len() as u64);
        let of = |id: &u64| u128::from(excess.get(id).copied().unwrap_or(0));
        let sum: u128 = self.members.keys().map(of).sum();
        let rest = self.total - least * count;
        let mut left = self.total;
        for (id, share) in &mut self.members {
            let part = match sum {
                0 => rest / count,
                // At most `rest`.
                sum => (u128::from(rest) * of(id) / sum) as u64,
            };
            share.bytes = least + part;
            left -= share.bytes;
            (share.moved, share.patience) = (None, LEAST_PATIENCE);
            share.recount();
        }
        // Less than a byte for each.
        if let Some(share) = self.members.values_mut().next() {
            share.bytes += left;
        }
    }

    /// Takes a member's report.
    pub fn observe(&mut self, id: u64, now: Duration, reading: Reading) {
        if let Some(share) = self.members.get_mut(&id) {
            share.observe(now, reading);
        }
    }

    /// Moves a step if that is clearly worthwhile, and returns whether it did.
    pub fn turn(&mut self, now: Duration) -> bool {
        let least = self.least();
        let worths = || self.members.iter().filter_map(|(&id, share)| Some((id, share, share.worth()?)));
        let takers = worths().filter(|(_, share, worth)| worth.gain > 0.0 && share.may(Direction::Took, now));
        let Some((to, _, Worth { gain, .. })) = takers.max_by(|a, b| a.2.gain.total_cmp(&b.2.gain)) else {
            return false;
        };
        let givers = worths()
            .filter(|(id, share, _)| *id != to && share.bytes > least && share.may(Direction::Gave, now));
        let Some((from, share, Worth { loss, .. })) = givers.min_by(|a, b| a.2.loss.total_cmp(&b.2.loss))
        else {
            return false;
        };
        if gain <= MARGIN * loss {
            return false;
        }
        let bytes = (self.total / STEPS).max(1).min(share.bytes - least);
        for (id, direction) in [(from, Direction::Gave), (to, Direction::Took)] {
            let share = self.members.get_mut(&id).expect("found above");
            match direction {
                Direction::Gave => share.bytes -= bytes,
                Direction::Took => share.bytes += bytes,
            }
            share.note(direction, now);
        }
        true
    }
}

/// Returns the ghost hits observed between two readings.
fn hits(first: &Reading, last: &Reading) -> f64 {
    (last.ghost_hits.saturating_sub(first.ghost_hits) / last.sampling.max(1)) as f64
}

/// Returns the interval in which the mean of a Poisson variable observed as `n` most likely lies:
/// the two means from which `n` is [`DEVIATIONS`] standard deviations away.
pub fn bounds(n: f64) -> (f64, f64) {
    let z = DEVIATIONS;
    let middle = n + z * z / 2.0;
    let half = z * (n + z * z / 4.0).sqrt();
    ((middle - half).max(0.0), middle + half)
}

#[cfg(test)]
mod tests;
