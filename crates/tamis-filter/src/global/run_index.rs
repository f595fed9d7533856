//! Global filters that name a key's *current* run: what they are asked and told.
//!
//! GRF stores when a key was flushed and finds out where it is now; Chucky, REMIX and GRF_H (section 6.1 of the GRF paper)
//! store where it is. So each merge has to tell them of each of its keys: that is the update cost which the paper holds
//! against them, and it is paid here in full, key by key.
//!
//! A run has a [`RunTag`]: a small number that the tree gives it for as long as it lives, and may give to another run
//! afterwards. Entries are pairs of a key and a tag. A key in several runs is several entries; the same key twice in one
//! run (two tables, two epochs of a [`Batch`]) is one.
//!
//! # Invariants
//! * No false negative: the tags named for a key contain those of all runs that hold it, if [`RunIndex::change`] was
//!   told of every change of runs.
//! * `change` must be told the truth: an entry is removed only if it is held. An index that notices otherwise gives
//!   `None`, as one that is full does, and has to be built anew.
//!
//! # Threads
//! A [`RunIndex`] is an immutable value that any thread may ask. A change makes another one, so that each version of a tree
//! has the index that fits its runs, at the price of a copy (section 3.1 of the paper says why nothing less is right).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::FilterError;
use crate::global::{Batch, Chucky, GrfHuffman, Remix};

/// The name of a run for as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunTag {
    /// Its level. Deeper ones have more keys.
    pub level: u8,
    /// Tells it from the other runs of its level; the smaller the numbers in use, the cheaper the names.
    pub slot: u32,
}

impl RunTag {
    /// The greatest there can be.
    pub(crate) const LAST: RunTag = RunTag { level: u8::MAX, slot: u32::MAX };
}

/// Keys that came to a run, or went from it.
pub type Tagged<'b> = (&'b Batch, RunTag);

/// What a stretch of the key space may hold, for an index that keeps the order of keys.
///
/// Numbers stand for keys: see [`RunIndex::lower_key`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TagsAhead {
    /// Runs that may have a key in the stretch. Forwards none of their keys in the stretch lies before the number, or
    /// before `from` for `None`; backwards none lies at or behind the number, or at or behind `before` for `None`.
    pub found: Vec<(RunTag, Option<u64>)>,
    /// The number at which the stretch ends; `None` if it ends where the question ended.
    pub until: Option<u64>,
}

impl TagsAhead {
    /// Nothing, up to where the question ends.
    pub fn clear(&mut self) {
        self.found.clear();
        self.until = None;
    }
}

/// Which runs may hold a key. See the module.
pub trait RunIndex: Debug + Send + Sync {
    /// Calls `found` with the tag of every run that may hold the key, in any order; tags may repeat.
    fn probe(&self, key: &[u8], digest: Digest, found: &mut dyn FnMut(RunTag));

    /// Asks the cache for what [`probe`](RunIndex::probe) will look at.
    fn prefetch(&self, key: &[u8], digest: Digest);

    /// Whether [`ahead`](RunIndex::ahead) and [`behind`](RunIndex::behind) can tell anything.
    fn answers_ranges(&self) -> bool;

    /// Which runs may have a key in a stretch that begins with `from` and ends at `out.until`, at the latest at `end`
    /// (excluded); a stretch consists of whole segments. `false`: nothing is known, and `out` says nothing. Makes
    /// progress: the key of `out.until` lies behind `from`.
    fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut TagsAhead) -> bool;

    /// The same backwards: keys below `before` (`None`: all), down to `out.until` (included), at least to `start`. The key
    /// of `out.until` lies below `before`.
    fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut TagsAhead) -> bool;

    /// Replaces `key` by the smallest key that the number `at` can stand for: exactly the keys from it on have `at` or a
    /// greater number. Of use only for numbers that this index gave.
    fn lower_key(&self, at: u64, key: &mut Vec<u8>);

    /// The index after a change of runs: a flush adds entries; a merge removes those of its inputs and adds those of its
    /// output. A key that is both removed and added has its entry tagged anew. `None` if there is no room, or if an entry
    /// to remove was never there: the caller then builds anew.
    fn change(&self, removed: &[Tagged<'_>], added: &[Tagged<'_>]) -> Option<Arc<dyn RunIndex>>;

    /// Bytes held in memory.
    fn memory_bytes(&self) -> usize;

    /// Pairs of a key and a run that it knows of.
    fn entries(&self) -> u64;

    /// Entries for which it was built; somewhat behind it changes become impossible.
    fn capacity(&self) -> u64;
}

/// Kinds of [`RunIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RunIndexKind {
    /// [`Chucky`]: points, for any keys.
    Chucky,
    /// [`Remix`]: points and ranges, as far as segments tell.
    Remix,
    /// [`GrfHuffman`]: points, and ranges where keys are integers or nearly so.
    GrfHuffman,
}

/// What a [`RunIndex`] is to be.
#[derive(Clone, PartialEq, Debug)]
pub struct RunIndexSpec {
    /// All memory per entry once there are `capacity` of them; [`Remix`] has its own from `segment`.
    pub bits_per_key: f64,
    /// Entries there will be before the index is built anew; at least those given to build it are made room for.
    pub capacity: u64,
    /// Runs that each level has at most, level 0 first. Tags beyond this are right but costly.
    pub slots: Vec<u32>,
    /// How many times more keys a level has than the one above it (T).
    pub ratio: f64,
    /// Keys in a segment of [`Remix`], which then takes `128 / segment` bits a key.
    pub segment: u32,
}

impl RunIndexSpec {
    /// Keys in a segment of [`Remix`] where nothing else is asked for, as in its paper.
    pub const SEGMENT: u32 = 32;

    /// The tags of a full tree, each with the share of the entries that its run is expected to have. They add up to 1.
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

/// Most runs of a level that shares are worked out for.
const MAX_SLOTS: u32 = 1024;

/// Builds an index over the keys of runs.
///
/// # Errors
/// [`FilterError::BitsPerKey`], [`FilterError::Parameter`] for numbers that make no sense, [`FilterError::TooLarge`], and
/// [`FilterError::Construction`] if there is no arrangement even with more room than was asked for.
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

/// The shares that runs will have when the filter is full: what they hold now, and new entries as the levels above the
/// deepest one are expected to have them, a quarter of the new ones evenly by level, since a level may be full when those
/// below it are nearly empty. One tenth follows what is expected of the whole tree. Of what a level above the deepest one has
/// half is spread over its names evenly.
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
    // A run that ends takes its name along, and the next has one that nobody has now.
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

/// What happens to one key: the tags that it loses and those that it gets, each once. No tag is in both.
#[derive(Debug, Default)]
pub(crate) struct KeyChange<'b> {
    pub(crate) key: &'b [u8],
    pub(crate) digest: u64,
    pub(crate) removed: Vec<RunTag>,
    pub(crate) added: Vec<RunTag>,
}

/// Brings together what happens to each key, and calls `each` once per key, in the order of keys. Stops at the first
/// `None`. Costs a sort of all entries, which is a merge as the batches are ascending.
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
    // Stable sorts find the ascending stretches and merge them.
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
    fn what_happens_to_a_key_comes_together() {
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
