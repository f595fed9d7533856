//! One limit for the memory used by reads, divided between the block cache and the units of elastic
//! filters.
//!
//! Both save block reads: the cache those of the blocks that it holds, the filters those that one
//! more unit would have avoided. The division is right when one more byte would save as much on
//! either side, so [`Divider::turn`] compares what each side would gain by a step with what the
//! other would lose, and moves one step from the side where it is worth less. Luo and Carey tune
//! write memory against a buffer cache in this manner ("Breaking down memory walls", PVLDB 14(3),
//! 2020). The cache's side comes from a ghost list ([`Ghosts`]), the filters' from their expected
//! false positives (ElasticBF, ATC 2019).
//!
//! *The cache's gain* per byte is ghost hits per get and byte of the ghost's step. *Its loss* per
//! byte is assumed to be the same: on a concave curve it is slightly more, by the change of the
//! slope over one step. Where the curve falls off a cliff (the data just fits) it is much more, and
//! shows only after the step; the next turns reverse it, and the patience below prevents
//! oscillation.
//!
//! *When counts are significant.* Observed ghost hits are treated as a Poisson count `n`, whose
//! rate lies within the score interval `n + z²/2 ± z √(n + z²/4)`, `z` = 2.5 ([`bounds`]). A step
//! goes to the cache if the lower end is worth [`MARGIN`] times what the filters would lose, and to
//! the filters if their gain is [`MARGIN`] times the upper end. In between, nothing is decided, and
//! counting continues until the result is clear or the window ends; then it starts over, so that
//! old counts have no weight. The absence of ghost hits is evidence, too: the upper end falls as
//! gets go by. The filters' numbers are taken as given.
//!
//! *Why it converges.* The two conditions leave a gap of [`MARGIN`]² between them. If one step
//! overshoots the gap, the step back has to wait: each reversal doubles the gets before the next
//! one, up to [`MOST_PATIENCE`], and only two steps in the same direction reset the wait. So there
//! is at worst one needless step every 2^24 gets.
//!
//! *After a step* nothing is counted until two steps' worth of bytes have passed through the ghost
//! list, since only then does it reflect the new cache; or until many gets have failed to bring
//! that about, which means that the cache evicts nothing, and more of it is worth nothing.
//!
//! *Memory shared with other databases.* There the total is a share that changes by itself
//! ([`rule`](super::rule)), down to nothing. A small change goes to the side that gains most by it,
//! or comes from the one that loses least ([`Divider::set_share`]).
//!
//! Pure: no clock, no threads, no lock; the owner calls it from one thread at a time. Time is
//! measured in gets: without gets nothing moves. A turn costs some tens of nanoseconds.

use crate::hotness::Marginal;
use crate::memory::{Ghosts, MARGIN, Reading, STEPS, bounds};

/// The division of the memory, in bytes. The two always add up to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The block cache's share.
    pub cache: u64,
    /// The share of the elastic filters' units.
    pub filters: u64,
}

/// Each side keeps at least the total divided by this: without a cache there is no ghost list, and
/// without units nothing is learnt about them.
const LEAST_SHARE: u64 = 32;

/// The minimum gets counted before a step, so that the filters' side has followed the last one.
const LEAST_GETS: u64 = 1 << 13;

/// A window that is undecided after this many gets is dropped.
const WINDOW_GETS: u64 = 1 << 22;

/// So is one with this many ghost hits: their error is below a tenth, and more of them will not
/// decide it.
const WINDOW_HITS: u64 = 1 << 10;

/// The gets after which a cache that evicted less than two steps of bytes is assumed to have room
/// to spare.
const SETTLING_GETS: u64 = 1 << 18;

/// The maximum number of gets that a reversal waits.
const MOST_PATIENCE: u64 = 1 << 24;

/// The side that a step goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Cache,
    Filters,
}

/// Counter readings at a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    gets: u64,
    ghost_hits: u64,
    evicted_bytes: u64,
}

/// Divides the memory for reads; see the module documentation.
#[derive(Debug)]
pub struct Divider {
    total: u64,
    /// The minimum share of either side, and the size of a step, in bytes: those of the first
    /// total, for which the cache and its ghost list are made.
    least: u64,
    step: u64,
    split: Split,
    /// What a byte was last worth to the cache, in reads per get, and to the filters.
    worth: Option<(f64, Marginal)>,
    /// When counting began: at the last step while the ghost list has not settled, afterwards at
    /// the window's start.
    since: Option<Mark>,
    settled: bool,
    /// The last step: the side that it went to, and the gets by then.
    last: Option<(Side, u64)>,
    /// The gets after the last step before a reversal is allowed.
    patience: u64,
}

impl Divider {
    /// Divides `total` bytes, with `cache` of them for the block cache at first, adjusted so that
    /// each side has its minimum share.
    pub fn new(total: u64, cache: u64) -> Divider {
        let least = total / LEAST_SHARE;
        let cache = cache.clamp(least, total - least);
        Divider {
            total,
            least,
            step: total / STEPS,
            split: Split { cache, filters: total - cache },
            worth: None,
            since: None,
            settled: true,
            last: None,
            patience: LEAST_GETS,
        }
    }

    /// Divides a share of shared memory by halves, in steps of this many bytes.
    pub fn of_share(share: u64, step: u64) -> Divider {
        let split = Split { cache: share / 2, filters: share - share / 2 };
        Divider { total: share, least: step / 2, step, split, ..Divider::new(0, 0) }
    }

    /// Returns the current split.
    pub fn split(&self) -> Split {
        self.split
    }

    /// Returns the minimum share of either side, in bytes: less in a share that is smaller than was
    /// expected.
    pub fn least_bytes(&self) -> u64 {
        self.least.min(self.total / 4)
    }

    /// Returns the minimum share of either side once the total is what was expected.
    pub fn planned_least(&self) -> u64 {
        self.least
    }

    /// Returns the size of a step in bytes; the ghost list should cover as much.
    pub fn step_bytes(&self) -> u64 {
        self.step
    }

    /// Returns the smallest total that can be divided.
    pub fn least_total(&self) -> u64 {
        4 * self.least
    }

    /// Changes the total, at least [`least_total`](Self::least_total), and divides it in the same
    /// proportion; what was counted so far says nothing about the new division. Returns the new
    /// split.
    pub fn resize(&mut self, total: u64) -> Split {
        let total = total.max(self.least_total());
        let share = self.split.cache as f64 / self.total.max(1) as f64;
        let cache = ((total as f64 * share) as u64).clamp(self.least, total - self.least);
        (self.total, self.split) = (total, Split { cache, filters: total - cache });
        (self.since, self.settled, self.last, self.patience) = (None, false, None, LEAST_GETS);
        self.split
    }

    /// Changes the total to a share of shared memory. A change of a step or two is made on one
    /// side, if it is known where it is worth most or least; otherwise both keep their proportion.
    /// Returns the new split.
    pub fn set_share(&mut self, total: u64) -> Split {
        let change = total.abs_diff(self.total);
        let cache = match self.worth {
            Some((cache, filters)) if change <= 2 * self.step => {
                let grows = total > self.total;
                let is_of_cache = if grows { cache >= filters.gain } else { cache <= filters.loss };
                match (is_of_cache, grows) {
                    (true, true) => self.split.cache + change,
                    (true, false) => self.split.cache.saturating_sub(change),
                    (false, _) => self.split.cache,
                }
            }
            // Of next to nothing there is no proportion.
            _ if self.total < STEPS => total / 2,
            _ => (total as f64 * (self.split.cache as f64 / self.total as f64)) as u64,
        };
        self.total = total;
        let least = self.least_bytes();
        let cache = cache.clamp(least, total - least);
        self.split = Split { cache, filters: total - cache };
        (self.since, self.settled) = (None, false);
        self.split
    }

    /// Returns what the members of shared memory report: see [`turn`](Self::turn).
    pub fn reading(&self, gets: u64, ghost: Ghosts, marginal: Marginal) -> Reading {
        let least = self.least_bytes();
        Reading {
            gets,
            ghost_hits: ghost.ghost_hits,
            evicted_bytes: ghost.evicted_bytes,
            sampling: ghost.sampling,
            step_bytes: ghost.step_bytes,
            filters_gain: marginal.gain,
            filters_loss: marginal.loss,
            cache_gives: self.split.cache > least,
            filters_give: self.split.filters > least,
        }
    }

    /// Evaluates the counts since the last turn, and moves a step if that is clearly worthwhile.
    /// Returns the new split, or `None` if nothing changes. `gets` and `ghost` are readings of
    /// counters that only grow; `marginal` is the filters' current estimate. May be called at any
    /// frequency.
    pub fn turn(&mut self, gets: u64, ghost: Ghosts, marginal: Marginal) -> Option<Split> {
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
        // Observed ghost hits, in block reads per get and byte.
        let worth = ghost.sampling.max(1) as f64 / (elapsed as f64 * ghost.step_bytes as f64);
        self.worth = Some((seen as f64 * worth, marginal));
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

    /// Moves a step to `side`, or as much as the other side can still spare; `None` if that is
    /// nothing, or it is too early to reverse.
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

#[cfg(test)]
mod tests;
