//! The interface of global filters that name a key's *current* run.
//!
//! GRF stores when a key was flushed and derives where it is now; Chucky, REMIX and GRF_H (section
//! 6.1 of the GRF paper) store where it is. So each merge has to report each of its keys to them.
//! That is the update cost which the paper criticizes, and it is paid here in full, key by key.
//!
//! A run has a [`RunTag`]: a small number that the tree assigns to it for as long as it lives, and
//! may reuse for another run afterwards. Entries are pairs of a key and a tag. A key in several
//! runs makes several entries; the same key twice in one run (two tables, two epochs of a
//! [`Batch`]) makes one.
//!
//! # Invariants
//! * No false negatives: the tags reported for a key contain those of all runs that hold it, if
//!   [`RunIndex::change`] was called for every change of runs.
//! * The input of `change` must be accurate: an entry may be removed only if it is held. An index
//!   that detects a violation returns `None`, as a full one does, and has to be rebuilt.
//!
//! # Threads
//! A [`RunIndex`] is an immutable value that any thread may probe. A change makes a new one, so
//! that each version of a tree has the index that fits its runs, at the price of a copy (section
//! 3.1 of the paper explains why nothing less is correct).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::FilterError;
use crate::global::{Batch, Chucky, GrfHuffman, Remix};

/// The name of a run during its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunTag {
    /// Its level. Deeper ones have more keys.
    pub level: u8,
    /// Distinguishes it from the other runs of its level; the smaller the numbers in use, the
    /// shorter the codes.
    pub slot: u32,
}

impl RunTag {
    /// The greatest possible tag.
    pub(crate) const LAST: RunTag = RunTag { level: u8::MAX, slot: u32::MAX };
}

/// Keys added to a run, or removed from it.
pub type Tagged<'b> = (&'b Batch, RunTag);

/// What an order-preserving index has found about a key range.
///
/// Numbers stand for keys: see [`RunIndex::lower_key`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TagsAhead {
    /// Runs that may have a key in the range. Forwards, none of a run's keys in the range lies
    /// before its number, or before `from` for `None`; backwards, none lies at or after the number,
    /// or at or after `before` for `None`.
    pub found: Vec<(RunTag, Option<u64>)>,
    /// The number at which the range ends; `None` if it ends where the query ended.
    pub until: Option<u64>,
}

impl TagsAhead {
    /// The result that no run has keys in the query range.
    pub fn clear(&mut self) {
        self.found.clear();
        self.until = None;
    }
}

/// Which runs may hold a key. See the module documentation.
pub trait RunIndex: Debug + Send + Sync {
    /// Calls `found` with the tag of every run that may hold the key, in any order; tags may
    /// repeat.
    fn probe(&self, key: &[u8], digest: Digest, found: &mut dyn FnMut(RunTag));

    /// Prefetches what [`probe`](RunIndex::probe) will read.
    fn prefetch(&self, key: &[u8], digest: Digest);

    /// Returns whether [`ahead`](RunIndex::ahead) and [`behind`](RunIndex::behind) can return
    /// anything.
    fn answers_ranges(&self) -> bool;

    /// Finds the runs that may have a key in a key range that begins with `from` and ends at
    /// `out.until`, at the latest at `end` (excluded); the range consists of whole segments.
    /// Returns `false` if nothing is known, in which case `out` is meaningless. Makes progress: the
    /// key of `out.until` lies after `from`.
    fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut TagsAhead) -> bool;

    /// The same backwards: keys below `before` (`None`: all), down to `out.until` (included), at
    /// least to `start`. The key of `out.until` lies below `before`.
    fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut TagsAhead) -> bool;

    /// Replaces `key` by the smallest key that the number `at` can stand for: exactly the keys at
    /// or above it have the number `at` or a greater one. Only valid for numbers that this index
    /// returned.
    fn lower_key(&self, at: u64, key: &mut Vec<u8>);

    /// Returns the index after a change of runs: a flush adds entries; a merge removes those of its
    /// inputs and adds those of its output. A key that is both removed and added has its entry
    /// retagged. Returns `None` if there is no room, or if an entry to remove was never there; the
    /// caller then rebuilds the index.
    fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Arc<dyn RunIndex>>;

    /// Returns the bytes held in memory.
    fn memory_bytes(&self) -> usize;

    /// Returns the number of entries, pairs of a key and a run.
    fn entries(&self) -> u64;

    /// Returns the entries it was built for; not far beyond them, changes become impossible.
    fn capacity(&self) -> u64;
}

/// Kinds of [`RunIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RunIndexKind {
    /// [`Chucky`]: points, for any keys.
    Chucky,
    /// [`Remix`]: points and ranges, at segment granularity.
    Remix,
    /// [`GrfHuffman`]: points, and ranges where keys are integers or near-integers.
    GrfHuffman,
}

/// The parameters of a [`RunIndex`].
#[derive(Clone, PartialEq, Debug)]
pub struct RunIndexSpec {
    /// Total memory per entry once there are `capacity` of them; [`Remix`] has its own from
    /// `segment`.
    pub bits_per_key: f64,
    /// Entries expected before the index is rebuilt; there is always room for the entries it is
    /// built from.
    pub capacity: u64,
    /// Maximum number of runs of each level, level 0 first. Tags beyond this are correct but
    /// costly.
    pub slots: Vec<u32>,
    /// The ratio of the number of keys of a level to that of the level above (T).
    pub ratio: f64,
    /// Keys per segment of [`Remix`], which then takes `128 / segment` bits per key.
    pub segment: u32,
}

impl RunIndexSpec {
    /// Default number of keys per segment of [`Remix`], as in its paper.
    pub const SEGMENT: u32 = 32;

    /// Returns the tags of a full tree, each with the expected share of the entries in its run. The
    /// shares add up to 1.
    pub fn shares(&self) -> Vec<(RunTag, f64)> {
        let ratio = if self.ratio > 1.0 { self.ratio.min(1e6) } else { 1.0 };
        let deepest = self.slots.iter().rposition(|&slots| slots > 0).unwrap_or(0);
        let mut shares = Vec::new();
        for (level, &slots) in self.slots.iter().enumerate().take(usize::from(u8::MAX) + 1) {
            let slots = slots.min(MAX_SLOTS);
            let share = ratio.powi(level as i32 - deepest as i32) / f64::from(slots);
            shares.extend((0..slots).map(|slot| (RunTag { level: level as u8, slot }, share)));
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        shares.iter_mut().for_each(|(_, share)| *share /= sum);
        shares
    }
}

/// Maximum number of runs per level for which shares are computed.
const MAX_SLOTS: u32 = 1024;

/// Builds an index over the keys of runs.
///
/// # Errors
/// [`FilterError::BitsPerKey`], [`FilterError::Parameter`] for invalid parameters,
/// [`FilterError::TooLarge`], and [`FilterError::Construction`] if no arrangement is found even
/// with more room than requested.
pub fn build(
    kind: RunIndexKind,
    items: &[Tagged<'_>],
    spec: &RunIndexSpec,
) -> Result<Arc<dyn RunIndex>, FilterError> {
    Ok(match kind {
        RunIndexKind::Chucky => Arc::new(Chucky::build(items, spec)?),
        RunIndexKind::Remix => Arc::new(Remix::build(items, spec)?),
        RunIndexKind::GrfHuffman => Arc::new(GrfHuffman::build(items, spec)?),
    })
}

/// Returns the shares that runs will have when the filter is full: what they hold now, plus the new
/// entries as expected of the levels above the deepest one; a quarter of the new entries is spread
/// evenly over levels, since a level may be full when those below it are nearly empty. One tenth
/// follows the expectation for the whole tree. Half of the share of a level above the deepest one
/// is spread evenly over its names.
pub(crate) fn expected_shares(
    counts: &BTreeMap<RunTag, u64>,
    capacity: u64,
    spec: &RunIndexSpec,
) -> Vec<(RunTag, f64)> {
    let expected = spec.shares();
    let deepest = expected.iter().map(|(tag, _)| tag.level).max().unwrap_or(0);
    let level =
        |l: u8| expected.iter().filter(move |(tag, _)| tag.level == l).map(|(_, share)| share).sum::<f64>();
    let levels: BTreeMap<u8, f64> = expected
        .iter()
        .filter(|(tag, _)| tag.level < deepest)
        .map(|(tag, _)| (tag.level, level(tag.level)))
        .collect();
    let above: f64 = levels.values().sum();
    let new = capacity as f64 - counts.values().sum::<u64>() as f64;
    let mut shares: BTreeMap<RunTag, f64> =
        counts.iter().map(|(tag, &entries)| (*tag, 0.9 * entries as f64)).collect();
    for &(tag, share) in &expected {
        let new = match above > 0.0 {
            true => levels.get(&tag.level).map_or(0.0, |level| {
                new * (0.75 * share / above + 0.25 * share / level / levels.len() as f64)
            }),
            false => new * share,
        };
        *shares.entry(tag).or_default() += 0.9 * new + 0.1 * capacity as f64 * share;
    }
    // A run that ends releases its name, and the next run gets a name that is unused now.
    let mut totals: BTreeMap<u8, (f64, f64)> = BTreeMap::new();
    for (tag, share) in &shares {
        let (sum, count) = totals.entry(tag.level).or_default();
        (*sum, *count) = (*sum + share, *count + 1.0);
    }
    for (tag, share) in shares.iter_mut().filter(|(tag, _)| tag.level < deepest) {
        let (sum, count) = totals[&tag.level];
        *share = 0.5 * *share + 0.5 * sum / count;
    }
    shares.retain(|_, share| *share > 0.0);
    shares.into_iter().collect()
}

/// The change of one key: the tags that it loses and those that it gets, each once. No tag is in
/// both.
#[derive(Debug, Default)]
pub(crate) struct KeyChange<'b> {
    pub(crate) key: &'b [u8],
    pub(crate) digest: u64,
    pub(crate) removed: Vec<RunTag>,
    pub(crate) added: Vec<RunTag>,
}

/// Collects the changes of each key and calls `each` once per key, in key order. Stops at the first
/// `None`. Costs a sort of all entries, which is a merge because the batches are ascending.
pub(crate) fn for_each_key<'b>(
    removed: &[Tagged<'b>],
    added: &[Tagged<'b>],
    mut each: impl FnMut(&KeyChange<'b>) -> Option<()>,
) -> Option<()> {
    let len = removed.iter().chain(added).map(|(batch, _)| batch.len()).sum();
    let mut entries: Vec<(&'b [u8], Digest, RunTag, bool)> = Vec::with_capacity(len);
    for (list, is_added) in [(removed, false), (added, true)] {
        for &(batch, tag) in list {
            let mut last = None;
            for (key, digest, _) in batch.iter() {
                if last.replace(key) != Some(key) {
                    entries.push((key, digest, tag, is_added));
                }
            }
        }
    }
    // Stable sorts find the ascending sequences and merge them.
    entries.sort_by(|a, b| a.0.cmp(b.0));
    let mut change = KeyChange::default();
    for entries in entries.chunk_by(|a, b| a.0 == b.0) {
        let tags = |of: bool, into: &mut Vec<RunTag>| {
            into.clear();
            into.extend(entries.iter().filter(|entry| entry.3 == of).map(|entry| entry.2));
            into.sort_unstable();
            into.dedup();
        };
        (change.key, change.digest) = (entries[0].0, entries[0].1.get());
        tags(false, &mut change.removed);
        tags(true, &mut change.added);
        let KeyChange { removed, added, .. } = &mut change;
        if !removed.is_empty() && !added.is_empty() {
            let stays = |tag: &RunTag| removed.contains(tag);
            let both: Vec<RunTag> = added.iter().copied().filter(stays).collect();
            removed.retain(|tag| !both.contains(tag));
            added.retain(|tag| !both.contains(tag));
        }
        each(&change)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::Epochs;

    #[test]
    fn shares_fall_by_the_ratio_and_add_up() {
        let spec =
            RunIndexSpec { bits_per_key: 10.0, capacity: 0, slots: vec![4, 2, 1], ratio: 10.0, segment: 32 };
        let shares = spec.shares();
        assert_eq!(shares.len(), 7);
        let level = |l| shares.iter().filter(|(tag, _)| tag.level == l).map(|(_, share)| share).sum::<f64>();
        assert!((level(0) + level(1) + level(2) - 1.0).abs() < 1e-9);
        assert!((level(2) / level(1) - 10.0).abs() < 1e-6);
        assert!((level(1) / level(0) - 10.0).abs() < 1e-6);
        assert!(RunIndexSpec { slots: vec![], ratio: f64::NAN, ..spec }.shares().is_empty());
    }

    #[test]
    fn changes_of_one_key_are_collected() {
        let batch = |keys: &[&str]| {
            let mut batch = Batch::new();
            keys.iter().for_each(|k| batch.push(k.as_bytes(), Digest::of(k.as_bytes()), Epochs::ALL));
            batch
        };
        let tag = |level| RunTag { level, slot: 0 };
        let (a, b, c) = (batch(&["a", "b", "b"]), batch(&["b", "d"]), batch(&["b", "c", "d"]));
        let mut seen = Vec::new();
        for_each_key(&[(&a, tag(0)), (&b, tag(1))], &[(&c, tag(1))], |change| {
            assert_eq!(change.digest, Digest::of(change.key).get());
            seen.push((change.key.to_vec(), change.removed.clone(), change.added.clone()));
            Some(())
        });
        let (a, b) = (vec![tag(0)], vec![tag(1)]);
        let expected: [(&[u8], _, _); 4] =
            [(b"a", a.clone(), vec![]), (b"b", a, vec![]), (b"c", vec![], b), (b"d", vec![], vec![])];
        assert_eq!(seen, expected.map(|(key, r, a)| (key.to_vec(), r, a)));
    }
}
