//! One limit for what reads keep in memory: how it is divided between the block cache and the units of elastic filters.
//!
//! Both save block reads: the cache those of blocks that it holds, the filters those that a unit more would have
//! denied. A byte is where it should be when a byte more would save as much on either side, so [`Divider::turn`]
//! compares what each side would gain by a step with what the other would lose, and moves one step from where it is
//! worth less. Luo and Carey tune write memory against a buffer cache in this manner ("Breaking down memory walls",
//! PVLDB 14(3), 2020). The cache's side comes from a ghost list ([`crate::table::cache::GhostReport`]), the filters' from the
//! false positives that are expected of them (ElasticBF, ATC 2019).
//!
//! *What the cache gains* by a byte is ghost hits per get and byte of the ghost's step. *What it loses* by a byte less
//! is taken to be the same: of a concave curve it is a little more, by what one step makes of the slope. Where the
//! curve falls off a cliff (the data just fits) it is much more, and only seen when the step was taken; the next turns
//! give it back, and the patience below keeps this from going on.
//!
//! *When counts mean something.* Ghost hits that were seen are taken as a Poisson number `n`, and their rate to lie
//! within the score interval `n + z²/2 ± z √(n + z²/4)`, `z` = 2.5 ([`bounds`]). A step goes to the cache if the lower
//! end is worth [`MARGIN`] times what the filters would lose, to the filters if their gain is [`MARGIN`] times the
//! upper end. In between nothing is said, and counting goes on until it is clear or the window ends: then it starts
//! anew, so that what was long ago weighs nothing. That no ghost hit at all came is evidence, too: the upper end falls
//! as gets go by. The filters' numbers are taken as they are given.
//!
//! *Why it comes to rest.* The two conditions leave a gap of [`MARGIN`]² between them. If one step leaps over the gap,
//! the step back has to wait: each reversal doubles the gets that the next one takes, up to [`MOST_PATIENCE`], and only
//! two steps in one direction make it short again. So a reader sees a needless step every 2^24 gets at worst.
//!
//! *After a step* nothing is counted until two steps of bytes went through the ghost list, for it knows the new cache
//! only then; or until many gets did not bring that about: then the cache drops nothing, and more of it is worth
//! nothing.
//!
//! Pure: no clock, no threads, no lock; whoever owns it calls from one thread at a time. Time is measured in gets: if
//! none come nothing moves. A turn costs some tens of nanoseconds.

use crate::heat::Marginal;
use crate::table::cache::{BlockCache, GhostReport, Resizing};

/// How the memory is divided, in bytes. The two always add up to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// For the block cache.
    pub(crate) cache: u64,
    /// For the units of elastic filters.
    pub(crate) filters: u64,
}

/// A step must be worth so many times what it costs.
const MARGIN: f64 = 1.25;

/// Steps that the total is made of.
const STEPS: u64 = 64;

/// One of so many parts of the total stays with each side: without a cache there is no ghost, and without units
/// nothing is learnt of them.
const LEAST_SHARE: u64 = 32;

/// How many deviations of a count are allowed for: one turn in some hundred takes noise for more.
const DEVIATIONS: f64 = 2.5;

/// Gets that must be counted for any step, so that the filters' side has followed the last one.
const LEAST_GETS: u64 = 1 << 13;

/// A window that is not clear after so many gets is dropped.
const WINDOW_GETS: u64 = 1 << 22;

/// Nor is one that has as many ghost hits: their error is below a tenth, and more of the same will not decide it.
const WINDOW_HITS: u64 = 1 << 10;

/// Gets after which a cache that dropped less than two steps of bytes is taken to have room to spare.
const SETTLING_GETS: u64 = 1 << 18;

/// The most gets that a reversal waits for.
const MOST_PATIENCE: u64 = 1 << 24;

/// Where a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Cache,
    Filters,
}

/// What the counters said at some turn.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    gets: u64,
    ghost_hits: u64,
    evicted_bytes: u64,
}

/// Divides the memory for reads; see the module.
#[derive(Debug)]
pub(crate) struct Divider {
    total: u64,
    split: Split,
    /// Where counting began: at the last step as long as the ghost has not settled, at the window's begin later.
    since: Option<Mark>,
    settled: bool,
    /// The last step: where it went, and the gets by then.
    last: Option<(Side, u64)>,
    /// Gets that a step back must wait for after the last one.
    patience: u64,
}

impl Divider {
    /// Divides `total` bytes, `cache` of them for the block cache at first; what leaves either side without its least
    /// share is moved there.
    pub(crate) fn new(total: u64, cache: u64) -> Divider {
        let least = total / LEAST_SHARE;
        let cache = cache.clamp(least, total - least);
        Divider {
            total,
            split: Split { cache, filters: total - cache },
            since: None,
            settled: true,
            last: None,
            patience: LEAST_GETS,
        }
    }

    /// An empty block cache of the present size that can be divided on. `block_bytes` as in [`BlockCache::new`].
    pub(crate) fn cache(&self, block_bytes: u64) -> BlockCache {
        let resizing = Resizing { least_bytes: self.least_bytes(), step_bytes: self.step_bytes() };
        BlockCache::with_ghost(self.split.cache, block_bytes, resizing)
    }

    /// The present split.
    pub(crate) fn split(&self) -> Split {
        self.split
    }

    /// The least that either side keeps, in bytes.
    pub(crate) fn least_bytes(&self) -> u64 {
        self.total / LEAST_SHARE
    }

    /// What a move is about, in bytes; a ghost list best stands for as much.
    pub(crate) fn step_bytes(&self) -> u64 {
        self.total / STEPS
    }

    /// Looks at what was counted since the last turn, and moves a step if that is clearly worth it: the new split, or
    /// `None` if all stays as it is. `gets` and `ghost` are readings of counters that only grow; `marginal` is what the
    /// filters say at present. To be asked as often as one likes.
    pub(crate) fn turn(&mut self, gets: u64, ghost: GhostReport, marginal: Marginal) -> Option<Split> {
        let now = Mark { gets, ghost_hits: ghost.ghost_hits, evicted_bytes: ghost.evicted_bytes };
        let since = *self.since.get_or_insert(now);
        let elapsed = gets.saturating_sub(since.gets);
        if !self.settled {
            let evicted = now.evicted_bytes.saturating_sub(since.evicted_bytes);
            if evicted >= ghost.step_bytes.saturating_mul(2) || elapsed >= SETTLING_GETS {
                self.settled = true;
                self.since = Some(now);
            }
            return None;
        }
        if elapsed < LEAST_GETS || ghost.step_bytes == 0 {
            return None;
        }
        let seen = now.ghost_hits.saturating_sub(since.ghost_hits) / ghost.sampling.max(1);
        let (low, high) = bounds(seen as f64);
        // Ghost hits that were seen, in block reads per get and byte.
        let worth = ghost.sampling.max(1) as f64 / (elapsed as f64 * ghost.step_bytes as f64);
        let wanted = if low * worth > MARGIN * marginal.loss.max(0.0) {
            Some(Side::Cache)
        } else if marginal.gain > MARGIN * high * worth {
            Some(Side::Filters)
        } else {
            None
        };
        if let Some(split) = wanted.and_then(|side| self.step(side, gets)) {
            self.since = Some(now);
            self.settled = false;
            return Some(split);
        }
        if elapsed >= WINDOW_GETS || seen >= WINDOW_HITS {
            self.since = Some(now);
        }
        None
    }

    /// Moves a step to `side`, or what the other can still give; `None` if that is nothing, or it is too early to turn
    /// back.
    fn step(&mut self, side: Side, gets: u64) -> Option<Split> {
        let least = self.least_bytes();
        let gives = match side {
            Side::Cache => self.split.filters,
            Side::Filters => self.split.cache,
        };
        let bytes = self.step_bytes().min(gives - least);
        if bytes == 0 {
            return None;
        }
        match self.last {
            Some((last, at)) if last != side => {
                if gets.saturating_sub(at) < self.patience {
                    return None;
                }
                self.patience = (self.patience * 2).min(MOST_PATIENCE);
            }
            Some(_) => self.patience = LEAST_GETS,
            None => {}
        }
        self.last = Some((side, gets));
        let cache = match side {
            Side::Cache => self.split.cache + bytes,
            Side::Filters => self.split.cache - bytes,
        };
        self.split = Split { cache, filters: self.total - cache };
        Some(self.split)
    }
}

/// Between what the mean of a Poisson number that came out as `n` most likely lies: the two means of which `n` is
/// [`DEVIATIONS`] deviations away.
fn bounds(n: f64) -> (f64, f64) {
    let z = DEVIATIONS;
    let middle = n + z * z / 2.0;
    let half = z * (n + z * z / 4.0).sqrt();
    ((middle - half).max(0.0), middle + half)
}

#[cfg(test)]
mod tests;
