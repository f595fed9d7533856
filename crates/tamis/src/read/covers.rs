//! Range tombstones as an iterator sees them.
//!
//! They stay where they are: in the memtables, whose maps the iterator keeps from its beginning,
//! and in the tables. The iterator asks each of these *sets* for the cover of a key, and remembers
//! for how many keys around it the answer holds. So it asks a set again only where one of the set's
//! fragments begins or ends.
//!
//! # How deleted keys are passed
//!
//! A source of a merge (a memtable, or a table of a run) has nothing newer than some number. Over
//! keys with a newer tombstone it has nothing visible, so it jumps to the end of these keys
//! ([`reach`](Covers::reach)). Each source moves by itself: another may have newer versions there.
//!
//! Belongs to one iterator, and like it to one thread at a time.

use std::sync::Arc;

use tamis_base::key::{Cover, KeyBytes, SeqNo};

use crate::memtable::RangeMap;
use crate::read::view::{MemtableSlot, View};

/// The most fragments that one search for the end of deleted keys passes. To go on, ask again from
/// there.
const MOST: usize = 1 << 10;

/// Deleted keys in a row that an end steps over before it asks how far it may go. One in debug
/// builds, so that tests with few keys meet jumps.
const STEPS: u64 = if cfg!(debug_assertions) { 1 } else { 4 };

/// The end of deleted keys.
#[derive(Debug)]
pub(crate) enum Border {
    At(KeyBytes),
    /// The last key in that direction is deleted too.
    Last,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Covers {
    view: Arc<View>,
    snapshot: SeqNo,
    /// The memtables with range tombstones.
    memtables: Vec<(Arc<MemtableSlot>, RangeMap)>,
    /// The last answer of each memtable, then of each run with range tombstones. At first, answers
    /// for no key.
    known: Vec<Cover>,
    /// All answers combined.
    here: Cover,
}

/// The answer for no key.
fn nowhere() -> Cover {
    let first: KeyBytes = [][..].into();
    Cover { from: Some(first.clone()), until: Some(first), seq: 0 }
}

impl Covers {
    /// Returns a view's range tombstones, if any. Call after the reader has loaded its number.
    /// O(sets).
    pub(crate) fn of(view: &Arc<View>, snapshot: SeqNo) -> Option<Box<Covers>> {
        let with_ranges = view.memtables.iter().filter(|slot| slot.memtable.has_range_tombstones());
        let memtables: Vec<_> = with_ranges.map(|slot| (slot.clone(), slot.memtable.range_map())).collect();
        let sets = memtables.len() + view.version.deleting.len();
        let covers = || Covers {
            view: view.clone(),
            snapshot,
            memtables,
            known: vec![nowhere(); sets],
            here: nowhere(),
        };
        (sets > 0).then(|| Box::new(covers()))
    }

    /// Returns a set's answer for `key`.
    fn ask(&self, set: usize, key: &[u8]) -> Cover {
        match self.memtables.get(set) {
            Some((slot, map)) => slot.memtable.covers_around(map, key, self.snapshot),
            None => {
                let run = self.view.version.deleting[set - self.memtables.len()];
                self.view.version.cover_around(run, key, self.snapshot)
            }
        }
    }

    /// Returns the number of the newest range tombstone over `key` that the reader sees, or 0.
    /// Costs two comparisons of keys while the answer is the same as for the last key.
    #[inline]
    pub(crate) fn at(&mut self, key: &[u8]) -> SeqNo {
        if !self.here.holds(key) {
            self.look(key);
        }
        self.here.seq
    }

    #[cold]
    fn look(&mut self, key: &[u8]) {
        let mut here = Cover::default();
        for set in 0..self.known.len() {
            if !self.known[set].holds(key) {
                self.known[set] = self.ask(set, key);
            }
            here.meet(&self.known[set]);
        }
        self.here = here;
    }

    /// Returns how far the keys from `key` on are under tombstones newer than `newest`: up to the
    /// border (forwards excluded, backwards included), or to the last key in that direction. `None`
    /// if `key` is not. Forwards it passes any number of tombstones that touch, backwards those
    /// that begin behind `key`.
    pub(crate) fn reach(&self, key: &[u8], newest: SeqNo, backward: bool) -> Option<Border> {
        let mut reached: Option<KeyBytes> = None;
        for _ in 0..MOST {
            let at = reached.as_deref().unwrap_or(key);
            let mut farther: Option<KeyBytes> = None;
            for cover in (0..self.known.len()).map(|set| self.ask(set, at)).filter(|cover| cover.seq > newest)
            {
                let border = if backward { cover.from.filter(|from| !from.is_empty()) } else { cover.until };
                let Some(border) = border else { return Some(Border::Last) };
                if farther.as_ref().is_none_or(|best| (*best < border) != backward) {
                    farther = Some(border);
                }
            }
            let Some(farther) = farther else { break };
            reached = Some(farther);
            if backward {
                break;
            }
        }
        reached.map(Border::At)
    }
}

/// Decides when an end asks how far it may go.
#[derive(Debug)]
pub(super) struct Strides {
    /// Deleted keys to step over before the next question.
    left: u64,
    /// The length of the last stride.
    last: u64,
}

impl Default for Strides {
    fn default() -> Strides {
        Strides { left: STEPS, last: STEPS }
    }
}

impl Strides {
    /// Counts a key that a range tombstone deletes. Returns whether to ask now.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Called with the answer. A question in vain is not repeated soon.
    pub(crate) fn asked(&mut self, moved: bool) {
        self.last = if moved { STEPS } else { self.last.saturating_mul(2) };
        self.left = self.last;
    }
}
