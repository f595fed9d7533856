//! One division of the memory for reads.
//!
//! A [`Market`] divides a number of bytes between *consumers*: every *owner* (a database) has one
//! for each of its *uses* of memory, such as blocks and units of filters. All save block reads. The
//! division is right when one more byte would save as much everywhere. So a step, a [`STEPS`]th of
//! the total, moves from the consumer that loses least by it to the one that gains most, if the
//! gain is [`MARGIN`] times the loss. Whether the two have the same owner or the same use makes no
//! difference. Luo and Carey tune write memory against a buffer cache in this manner ("Breaking
//! down memory walls", PVLDB 14(3), 2020).
//!
//! *Time* is the number of gets of all owners together, and worths are in block reads per such get
//! and byte. So they can be compared, those of an idle owner fall as the others read, and without
//! gets nothing moves.
//!
//! *A cache's worth* is [counted](Reading::Counted): by a ghost list, the hits that a cache with
//! one step more would have had. Its loss is assumed to be the same: on a concave curve it is
//! slightly more, by the change of the slope over one step. Where the curve falls off a cliff (the
//! data just fits) it is much more, and shows only after the step. A later step reverses it, and
//! the patience below prevents oscillation. Hits are treated as a Poisson count `n`, whose mean
//! lies within the score interval `n + z²/2 ± z √(n + z²/4)`, `z` = [`DEVIATIONS`]. The lower end
//! counts as gain, the upper end as loss. The absence of hits is evidence, too: the upper end falls
//! as gets go by.
//!
//! *A filter's worth* is [expected](Reading::Expected) by its owner per get of its own (ElasticBF,
//! ATC 2019), and taken as given.
//!
//! *Windows.* A consumer counts until its result decides something or the window ends; then it
//! starts over, so that old counts have no weight. Until the new window has counted enough, the
//! result of the old one stands. When its bytes change it starts over, too. A cache that grew
//! begins when two steps' worth of bytes have passed through its ghost list, since only then does
//! that reflect the new size; or when many gets have failed to bring that about, which means that
//! it evicts nothing, and more of it is worth nothing. What a cache gives up, its ghost list has at
//! once.
//!
//! *Why it converges.* Between "gives" and "takes" lies a gap of [`MARGIN`]². If a step overshoots
//! it, the step back has to wait: each reversal doubles the gets before the consumer's next one, up
//! to [`MOST_PATIENCE`], and only two steps in the same direction reset the wait. So in the end
//! there is at worst one needless step every 2^24 gets.
//!
//! *The least* that a consumer keeps is there to measure with. What lies above is in proportion
//! when owners join or leave or the total changes; an owner that joins gets an equal share.
//!
//! Pure: no clock, no threads, no lock. Costs are linear in the number of consumers, some tens of
//! nanoseconds each.

use std::collections::BTreeMap;

use crate::hotness::Marginal;

/// The number of steps in the total.
const STEPS: u64 = 64;

/// A consumer keeps at least the total divided by this, and by the number of owners.
const LEAST_PART: u64 = 32;

/// A step must be worth this many times what it costs.
const MARGIN: f64 = 1.25;

/// The number of standard deviations allowed for: about one turn in a hundred mistakes noise for
/// more.
const DEVIATIONS: f64 = 2.5;

/// The least gets counted. Filters have followed the last step by then.
const LEAST_GETS: u64 = 1 << 13;

/// A window ends after this many gets.
const WINDOW_GETS: u64 = 1 << 22;

/// One with this many hits ends sooner: their error is below a tenth, and more will not decide it.
const WINDOW_HITS: u64 = 1 << 10;

/// The gets after which a cache that evicted less than two steps of bytes is assumed to have room
/// to spare.
const SETTLING_GETS: u64 = 1 << 18;

/// The most gets that a reversal waits.
const MOST_PATIENCE: u64 = 1 << 24;

/// What a consumer reports of the worth of bytes.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// Counts of a cache.
    Counted(Ghosts),
    /// The reads per get of its owner that bytes save.
    Expected(Marginal),
}

/// What a cache tells of a larger one. Counts only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ghosts {
    /// Misses that a cache with `step_bytes` more would have answered: an estimate, the number
    /// observed times `sampling`.
    pub ghost_hits: u64,
    /// Bytes evicted for lack of room, scaled alike.
    pub evicted_bytes: u64,
    /// One key in this many is observed, so `ghost_hits / sampling` is the count that has the
    /// noise.
    pub sampling: u64,
    /// How much larger the other cache is assumed to be.
    pub step_bytes: u64,
}

impl Ghosts {
    /// Returns the hits observed since an earlier reading.
    fn hits_since(&self, earlier: &Ghosts) -> u64 {
        self.ghost_hits.saturating_sub(earlier.ghost_hits) / self.sampling.max(1)
    }
}

/// The direction of a consumer's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Gave,
    Took,
}

/// What a byte is worth to a consumer, in block reads per get of all owners.
#[derive(Clone, Copy, Debug)]
struct Worth {
    gain: f64,
    loss: f64,
}

/// A reading, the gets of all owners by then, and those of its own.
#[derive(Clone, Copy, Debug)]
struct Mark {
    time: u64,
    gets: u64,
    reading: Reading,
}

impl Mark {
    /// Reports whether a cache that grew reflects its new size, of which `first` was the first
    /// report.
    fn has_settled(&self, first: &Mark) -> bool {
        let (Reading::Counted(was), Reading::Counted(is)) = (first.reading, self.reading) else {
            return true;
        };
        let evicted = is.evicted_bytes.saturating_sub(was.evicted_bytes);
        evicted >= is.step_bytes.saturating_mul(2).max(1) || self.time - first.time >= SETTLING_GETS
    }

    /// Returns what bytes were worth in the window since `first`, and whether the window is full;
    /// `None` if too little was counted.
    fn worth(&self, first: &Mark) -> Option<(Worth, bool)> {
        let elapsed = self.time - first.time;
        if elapsed < LEAST_GETS {
            return None;
        }
        let (gain, loss, hits) = match (first.reading, self.reading) {
            (Reading::Counted(was), Reading::Counted(is)) => {
                let hits = is.hits_since(&was);
                let (low, high) = bounds(hits as f64);
                let per_hit = is.sampling.max(1) as f64 / is.step_bytes as f64;
                (low * per_hit, high * per_hit, hits)
            }
            (_, Reading::Expected(marginal)) => {
                let gets = self.gets.saturating_sub(first.gets) as f64;
                (marginal.gain * gets, marginal.loss * gets, 0)
            }
            (Reading::Expected(_), Reading::Counted(_)) => return None,
        };
        // Of other than numbers nothing follows.
        let per_get = |worth: f64| worth.is_finite().then_some(worth.max(0.0) / elapsed as f64);
        let worth = Worth { gain: per_get(gain)?, loss: per_get(loss)? };
        Some((worth, elapsed >= WINDOW_GETS || hits >= WINDOW_HITS))
    }
}

#[derive(Debug)]
struct Consumer {
    bytes: u64,
    /// The first report of the window; while the consumer has not settled, of its present size.
    since: Option<Mark>,
    settled: bool,
    /// The last result, if it is of the present size.
    worth: Option<Worth>,
    /// The last step, and its time.
    moved: Option<(Direction, u64)>,
    /// The gets after the last step before a reversal is allowed.
    patience: u64,
    /// The number of steps given or taken.
    steps: u64,
}

impl Consumer {
    fn new() -> Consumer {
        Consumer {
            bytes: 0,
            since: None,
            settled: false,
            worth: None,
            moved: None,
            patience: LEAST_GETS,
            steps: 0,
        }
    }

    /// Starts over: what was counted says nothing about another size.
    fn resize(&mut self, bytes: u64) {
        (self.since, self.worth) = (None, None);
        self.settled = bytes < self.bytes;
        self.bytes = bytes;
    }

    fn observe(&mut self, now: Mark) {
        let first = *self.since.get_or_insert(now);
        if !self.settled {
            self.settled = now.has_settled(&first);
            self.since = Some(if self.settled { now } else { first });
        } else if let Some((worth, is_full)) = now.worth(&first) {
            self.worth = Some(worth);
            self.since = Some(if is_full { now } else { first });
        }
    }

    fn may(&self, direction: Direction, now: u64) -> bool {
        self.moved.is_none_or(|(last, at)| last == direction || now - at >= self.patience)
    }

    fn step(&mut self, direction: Direction, bytes: u64, now: u64) {
        self.patience = match self.moved {
            Some((last, _)) if last != direction => (self.patience * 2).min(MOST_PATIENCE),
            _ => LEAST_GETS,
        };
        self.moved = Some((direction, now));
        self.steps += 1;
        self.resize(match direction {
            Direction::Gave => self.bytes - bytes,
            Direction::Took => self.bytes + bytes,
        });
    }
}

/// The division of a number of bytes. `U` tells an owner's uses of memory apart.
#[derive(Debug)]
pub struct Market<U> {
    total: u64,
    /// The gets of all owners so far, including those that left.
    now: u64,
    /// The gets that each owner last reported.
    owners: BTreeMap<u64, Option<u64>>,
    consumers: BTreeMap<(u64, U), Consumer>,
}

impl<U: Copy + Ord> Market<U> {
    /// Creates a market that has no owners.
    pub fn new(total: u64) -> Market<U> {
        Market { total, now: 0, owners: BTreeMap::new(), consumers: BTreeMap::new() }
    }

    /// The bytes that are divided.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The size of a step in bytes. Ghost lists should cover about as much.
    pub fn step(&self) -> u64 {
        (self.total / STEPS).max(1)
    }

    /// Returns the bytes of all consumers. Together they are the total.
    pub fn bytes(&self) -> impl Iterator<Item = ((u64, U), u64)> {
        self.consumers.iter().map(|(&key, consumer)| (key, consumer.bytes))
    }

    /// Returns the bytes of a consumer; 0 for an unknown one.
    pub fn bytes_of(&self, owner: u64, of: U) -> u64 {
        self.consumers.get(&(owner, of)).map_or(0, |consumer| consumer.bytes)
    }

    /// Returns the number of steps that an owner's consumers gave or took.
    pub fn steps_of(&self, owner: u64) -> u64 {
        self.consumers.iter().filter(|((of, _), _)| *of == owner).map(|(_, consumer)| consumer.steps).sum()
    }

    /// Returns the least bytes of a consumer.
    fn least(&self) -> u64 {
        self.total / LEAST_PART / self.owners.len().max(1) as u64
    }

    /// Adds an owner with an equal share, which its uses divide equally.
    pub fn join(&mut self, owner: u64, uses: &[U]) {
        let mut excess = self.excess();
        let sum: u128 = excess.values().map(|&bytes| u128::from(bytes)).sum();
        // No more than the total.
        let mean = (sum / self.owners.len().max(1) as u128 / uses.len().max(1) as u128) as u64;
        self.owners.insert(owner, None);
        for &of in uses {
            excess.insert((owner, of), mean);
            self.consumers.insert((owner, of), Consumer::new());
        }
        self.assign(&excess);
    }

    /// Removes an owner, whose share the others get.
    pub fn leave(&mut self, owner: u64) {
        let excess = self.excess();
        self.owners.remove(&owner);
        self.consumers.retain(|(of, _), _| *of != owner);
        self.assign(&excess);
    }

    /// Changes the total.
    pub fn resize(&mut self, total: u64) {
        let excess = self.excess();
        self.total = total;
        self.assign(&excess);
    }

    /// Returns what consumers have above the least.
    fn excess(&self) -> BTreeMap<(u64, U), u64> {
        let least = self.least();
        self.bytes().map(|(key, bytes)| (key, bytes.saturating_sub(least))).collect()
    }

    /// Divides the total: the least for everyone, and the rest in proportion to `excess`, equally
    /// if there is none.
    fn assign(&mut self, excess: &BTreeMap<(u64, U), u64>) {
        let (least, count) = (self.least(), self.consumers.len() as u64);
        let of = |key: &(u64, U)| u128::from(excess.get(key).copied().unwrap_or(0));
        let sum: u128 = self.consumers.keys().map(of).sum();
        let rest = self.total.saturating_sub(least * count);
        let mut left = self.total;
        for (key, consumer) in &mut self.consumers {
            let part = match sum {
                0 => rest / count,
                // At most `rest`.
                sum => (u128::from(rest) * of(key) / sum) as u64,
            };
            left -= least + part;
            consumer.resize(least + part);
            (consumer.moved, consumer.patience) = (None, LEAST_GETS);
        }
        // Less than a byte for each.
        if let Some(consumer) = self.consumers.values_mut().next() {
            consumer.bytes += left;
        }
    }

    /// Takes an owner's report: its gets so far, and what bytes are worth to its uses. Then moves a
    /// step if that is clearly worthwhile, and returns whether it did. May be called at any
    /// frequency.
    pub fn report(
        &mut self,
        owner: u64,
        gets: u64,
        readings: impl IntoIterator<Item = (U, Reading)>,
    ) -> bool {
        let Some(last) = self.owners.get_mut(&owner) else { return false };
        self.now = self.now.saturating_add(gets.saturating_sub(last.unwrap_or(gets)));
        *last = Some(gets);
        for (of, reading) in readings {
            if let Some(consumer) = self.consumers.get_mut(&(owner, of)) {
                consumer.observe(Mark { time: self.now, gets, reading });
            }
        }
        self.turn()
    }

    fn turn(&mut self) -> bool {
        let (now, least) = (self.now, self.least());
        let known = |direction| {
            let all = self.consumers.iter().filter(move |(_, consumer)| consumer.may(direction, now));
            all.filter_map(|(&key, consumer)| Some((key, consumer.bytes, consumer.worth?)))
        };
        let taker = |except: Option<(u64, U)>| {
            let takers = known(Direction::Took).filter(|(key, ..)| Some(*key) != except);
            takers.map(|(key, _, worth)| (key, worth.gain)).max_by(|a, b| a.1.total_cmp(&b.1))
        };
        let giver = |except: Option<(u64, U)>| {
            let givers =
                known(Direction::Gave).filter(|(key, bytes, _)| Some(*key) != except && *bytes > least);
            givers.map(|(key, _, worth)| (key, worth.loss)).min_by(|a, b| a.1.total_cmp(&b.1))
        };
        // The same consumer may be both: filters that have almost a step of free bytes.
        let pairs = [
            taker(None).and_then(|to| Some((giver(Some(to.0))?, to))),
            giver(None).and_then(|from| Some((from, taker(Some(from.0))?))),
        ];
        let worthwhile = |&((_, loss), (_, gain)): &((_, f64), (_, f64))| gain > MARGIN * loss;
        let Some(((from, _), (to, _))) = pairs.into_iter().flatten().find(worthwhile) else { return false };
        let bytes = self.step().min(self.consumers[&from].bytes - least);
        for (key, direction) in [(from, Direction::Gave), (to, Direction::Took)] {
            self.consumers.get_mut(&key).expect("found above").step(direction, bytes, now);
        }
        true
    }
}

/// Returns the interval in which the mean of a Poisson variable observed as `n` most likely lies:
/// the two means from which `n` is [`DEVIATIONS`] standard deviations away.
fn bounds(n: f64) -> (f64, f64) {
    let z = DEVIATIONS;
    let middle = n + z * z / 2.0;
    let half = z * (n + z * z / 4.0).sqrt();
    ((middle - half).max(0.0), middle + half)
}

#[cfg(test)]
mod tests;
