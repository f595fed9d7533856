//! The reads that the key map of a partition was chosen for. [`mix`](super::mix) compares them with
//! later ones.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::select::queries::Rates;

/// Reads after which a map is compared with others: as many as the kept samples stand for.
pub(super) const FEWEST_READS: u64 = 1 << 14;
/// No range waits for more reads than this.
const LONGEST_WAIT: u64 = FEWEST_READS << 16;
/// The least change, absolute and as a factor, in the shares of ranges and seeks that makes a map
/// doubtful if the costs of its rivals are unknown.
const MOVED: (f64, f64) = (0.1, 2.0);

/// The reads that a cell's map was chosen for.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The shares of ranges and of seeks among them; `None` if unknown, as for images.
    shares: Option<Shares>,
    /// Reads observed until then.
    pub(super) observed: u64,
    /// Reads until the map is compared.
    pub(super) wait: u64,
    /// Whether another map is to be chosen.
    pub(super) is_unsuited: AtomicBool,
}

/// The shares of ranges and of seeks among reads: a good map for one may be the worst for the
/// other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) ranges: f64,
    pub(super) seeks: f64,
}

impl Shares {
    pub(super) fn of(rates: &Rates) -> Shares {
        Shares { ranges: rates.ranges / rates.reads(), seeks: rates.seeks / rates.reads() }
    }

    /// Returns the share of both.
    pub(super) fn sum(self) -> f64 {
        self.ranges + self.seeks
    }
}

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen { shares: None, observed: 0, wait: FEWEST_READS, is_unsuited: AtomicBool::new(false) }
    }
}

impl Chosen {
    /// Returns the record of a map chosen now, in place of the `old` ones.
    pub(super) fn now<'c>(
        shares: Shares,
        observed: u64,
        old: impl IntoIterator<Item = &'c Chosen>,
    ) -> Chosen {
        let wait = |old: &Chosen| if old.is_unsuited() { old.wait.saturating_mul(2) } else { old.wait };
        let wait = old.into_iter().map(wait).max().unwrap_or(FEWEST_READS).min(LONGEST_WAIT);
        Chosen { shares: Some(shares), observed, wait, is_unsuited: AtomicBool::new(false) }
    }

    pub(super) fn is_unsuited(&self) -> bool {
        self.is_unsuited.load(Relaxed)
    }

    /// Reports whether the reads differ from those of the choice.
    pub(super) fn has_moved(&self, shares: Shares) -> bool {
        let (least, factor) = MOVED;
        let moved = |was: f64, is: f64| (was - is).abs() > least && was.max(is) > factor * was.min(is);
        self.shares.is_none_or(|was| {
            moved(was.ranges, shares.ranges)
                || moved(was.seeks, shares.seeks)
                || moved(was.sum(), shares.sum())
        })
    }
}
