//! The book of a partition: which epochs each symbol stands for.
//!
//! A symbol stands for an interval of epochs: a *gap* between two cuts, which no table divides (so
//! any of its epochs names the same table), or one of the epochs to come. Flushes that come after
//! the book get the symbols of epochs to come, which have the longest codes; when the partition is
//! encoded anew, they become gaps like the others. This is Shape Encoding with the lengths of codes
//! taken from what the tree holds instead of from a schedule; intervals of the paper's digits are
//! gaps, too (`shape.rs`). The parent module argues why no key is denied.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::global::{Cuts, Epoch, Epochs};

use super::names::{MAX_SYMBOLS, Names};

/// Number of epochs to come that have a symbol each; the last one also stands for all that follow.
const FUTURES: u32 = 64;
/// Expected share of entries of epochs to come.
const FUTURE_SHARE: f64 = 0.04;
/// Maximum number of gaps with a symbol of their own; the rarest others share one.
const MAX_GAPS: usize = MAX_SYMBOLS - FUTURES as usize - 1;

/// See the module documentation. Immutable.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Book {
    /// The end of "last": epochs before it are of the last level.
    pub(super) base: Epoch,
    /// By symbol, the most frequent first.
    gaps: Vec<Epochs>,
    /// The symbol of "last", if there are entries of the last level.
    pub(super) last: Option<u16>,
    /// Number of epochs to come that have a symbol.
    futures: u32,
    /// The first of the epochs to come.
    future: Epoch,
    pub(super) names: Names,
}

impl Book {
    /// Returns the book for entries of these intervals, each with its number of entries. Later
    /// epochs than all of these are to come; they have symbols only if `grows`, as these take bits
    /// from all others.
    pub(super) fn new(base: Epoch, counts: &BTreeMap<Epochs, u64>, not_before: Epoch, grows: bool) -> Self {
        let last = Epochs { lo: 0, hi: base };
        let futures = if grows { FUTURES } else { 0 };
        let mut known: Vec<(u64, Epochs)> = counts.iter().map(|(epochs, count)| (*count, *epochs)).collect();
        known.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        if known.len() > MAX_GAPS {
            // "Last" keeps a symbol of its own.
            let at = known.iter().position(|(_, epochs)| *epochs == last);
            if let Some(at) = at {
                known[..=at].rotate_right(1);
            }
            let rest = known.split_off(MAX_GAPS);
            let count = rest.iter().map(|(count, _)| count).sum();
            let hull = rest.iter().fold(Epochs { lo: Epoch::MAX, hi: 0 }, |hull, (_, epochs)| Epochs {
                lo: hull.lo.min(epochs.lo),
                hi: hull.hi.max(epochs.hi),
            });
            known.push((count, hull));
            known.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        }
        let total: u64 = known.iter().map(|(count, _)| count).sum();
        let bounded = known.iter().map(|(_, epochs)| epochs).filter(|epochs| epochs.hi != Epoch::MAX);
        let future = bounded.map(|epochs| epochs.hi).max().unwrap_or(base).max(base).max(not_before);
        let least = known.last().map_or(0.0, |(count, _)| *count as f64);
        let each = (total as f64 * FUTURE_SHARE / f64::from(FUTURES)).min(least);
        let weights: Vec<f64> =
            known.iter().map(|(count, _)| *count as f64).chain((0..futures).map(|_| each)).collect();
        let gaps: Vec<Epochs> = known.into_iter().map(|(_, epochs)| epochs).collect();
        let last = gaps.iter().position(|gap| *gap == last).map(|symbol| symbol as u16);
        Self { base, last, futures, gaps, future, names: Names::new(&weights) }
    }

    /// Returns what a symbol stands for. Every number is one; those that no book assigns stand for
    /// everything.
    #[inline]
    pub(super) fn epochs(&self, symbol: u32) -> Epochs {
        if let Some(&gap) = self.gaps.get(symbol as usize) {
            return gap;
        }
        let nth = symbol - self.gaps.len() as u32;
        let lo = self.future.saturating_add(nth.into());
        match (nth + 1).cmp(&self.futures) {
            Ordering::Less => Epochs { lo, hi: lo.saturating_add(1) },
            Ordering::Equal => Epochs { lo, hi: Epoch::MAX },
            Ordering::Greater => Epochs::ALL,
        }
    }

    /// Returns the number of symbols.
    pub(super) fn symbols(&self) -> u32 {
        self.gaps.len() as u32 + self.futures
    }

    /// Returns whether there are symbols of epochs to come.
    pub(super) fn grows(&self) -> bool {
        self.futures > 0
    }

    /// Returns the number of gaps that have a symbol of their own or share one; each has entries
    /// when the book is made.
    pub(super) fn gaps(&self) -> usize {
        self.gaps.len()
    }

    /// Returns the symbol of a new entry, of a table with these epochs; `None` if the book has none
    /// that is precise.
    pub(super) fn symbol(&self, table: Epochs) -> Option<u16> {
        if table.lo < self.base {
            return self.last;
        }
        if let Some(nth) = table.lo.checked_sub(self.future) {
            // The last one does not tell epochs apart.
            return (nth + 1 < self.futures.into()).then(|| self.gaps.len() as u16 + nth as u16);
        }
        let of = |gap: &Epochs| gap.lo <= table.lo && table.lo < gap.hi && gap.hi <= table.hi;
        self.gaps.iter().position(of).map(|symbol| symbol as u16)
    }

    /// Returns the symbol of an interval that the book was made for.
    ///
    /// # Panics
    /// If it was not among the intervals given to [`Book::new`].
    pub(super) fn exact(&self, epochs: Epochs) -> u16 {
        let own = self.gaps.iter().position(|gap| *gap == epochs);
        // The rarest gaps share a symbol.
        let hull = || self.gaps.iter().position(|gap| gap.contains(epochs));
        own.or_else(hull).expect("the book was made for it") as u16
    }

    /// Returns the interval of a new entry in a book to come: as much of the gap of the table's
    /// first epoch as the table has. Its table is a cut of the versions that will see the entry,
    /// whether or not `cuts` contains it.
    pub(super) fn interval(base: Epoch, table: Epochs, cuts: &Cuts) -> Epochs {
        if table.lo < base {
            return Epochs { lo: 0, hi: base };
        }
        let (gap, _) = cuts.around(table.lo);
        Epochs { lo: table.lo, hi: gap.hi.min(table.hi).max(table.lo.saturating_add(1)) }
    }

    /// Returns for each symbol what it stands for after garbage collection, in a book of this base
    /// or a later one; `None` if no table holds it any more.
    pub(super) fn collect(&self, base: Epoch, cuts: &Cuts) -> Vec<Option<Epochs>> {
        (0..self.symbols()).map(|symbol| self.collect_one(self.epochs(symbol), base, cuts)).collect()
    }

    fn collect_one(&self, own: Epochs, base: Epoch, cuts: &Cuts) -> Option<Epochs> {
        let last = Epochs { lo: 0, hi: base };
        if own == (Epochs { lo: 0, hi: self.base }) {
            return Some(last).filter(|_| !cuts.all_begin_at(self.base));
        }
        let (gap, first) = cuts.around(own.lo);
        // Nothing is known of epochs after all cuts: future tables will cut them.
        if gap.hi == Epoch::MAX || !gap.contains(own) {
            return Some(own);
        }
        // A table that begins before the base has an epoch of the last level, too.
        first.map(|first| if first < base { last } else { gap })
    }

    /// Returns the first of the epochs to come.
    pub(super) fn future(&self) -> Epoch {
        self.future
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.gaps.capacity() * size_of::<Epochs>() + self.names.heap_bytes()
    }

    /// Appends the book to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.base.to_le_bytes());
        out.extend(self.future.to_le_bytes());
        out.extend(self.last.map_or(u32::MAX, u32::from).to_le_bytes());
        out.extend(self.futures.to_le_bytes());
        out.extend((self.gaps.len() as u32).to_le_bytes());
        for gap in &self.gaps {
            out.extend(gap.lo.to_le_bytes());
            out.extend(gap.hi.to_le_bytes());
        }
        let levels = self.names.levels();
        out.extend((levels.len() as u32).to_le_bytes());
        for (width, literals) in levels {
            out.extend(width.to_le_bytes());
            out.extend(literals.to_le_bytes());
        }
    }

    /// Reads what [`Book::encode`] wrote; `None` if it is not that.
    pub(super) fn read(from: &mut super::image::Reader<'_>) -> Option<Self> {
        let (base, future) = (from.u64()?, from.u64()?);
        let (last, futures, count) = (from.u32()?, from.u32()?, from.u32()? as usize);
        if count > MAX_GAPS + 2 || futures > FUTURES {
            return None;
        }
        let mut gaps = Vec::with_capacity(count);
        for _ in 0..count {
            gaps.push(Epochs { lo: from.u64()?, hi: from.u64()? });
        }
        let count = from.u32()? as usize;
        if count > 64 {
            return None;
        }
        let mut levels = Vec::with_capacity(count);
        for _ in 0..count {
            levels.push((from.u32()?, from.u32()?));
        }
        let names = Names::from_levels(&levels)?;
        let last = if last == u32::MAX { None } else { Some(u16::try_from(last).ok()?) };
        let sound = last.is_none_or(|last| gaps.get(usize::from(last)) == Some(&Epochs { lo: 0, hi: base }));
        sound.then_some(Self { base, last, futures, gaps, future, names })
    }
}
