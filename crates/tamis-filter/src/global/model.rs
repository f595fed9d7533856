//! A model of the input of run indexes, for their tests: keys with the tags of their runs, through
//! random changes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::digest::Digest;
use crate::global::{Batch, Epochs, RunIndex, RunIndexSpec, RunTag, Tagged, TagsAhead};

/// What the tree does next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Creates a new run of these keys at level 0.
    Flush(Vec<Vec<u8>>),
    /// Merges all runs of a level into one of the next level, without the keys that `drop` selects.
    Merge { level: u8, drop: u8 },
    /// Moves some keys of a run of the level to a run of the next level.
    Partial { level: u8, from: Vec<u8>, to: Vec<u8> },
}

pub(super) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0u64..400).prop_map(|n| n.to_be_bytes().to_vec()),
        2 => any::<u64>().prop_map(|n| n.to_be_bytes().to_vec()),
        2 => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), Just(b'k')], 0..12),
        1 => prop::collection::vec(any::<u8>(), 0..12).prop_map(|key| [b"user/", &key[..]].concat()),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(key(), 0..120).prop_map(Step::Flush),
        2 => (0u8..2, any::<u8>()).prop_map(|(level, drop)| Step::Merge { level, drop }),
        1 => (0u8..2, key(), key()).prop_map(|(level, from, to)| Step::Partial { level, from, to }),
    ];
    prop::collection::vec(step, 1..14)
}

/// The runs of a tree and their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) runs: BTreeMap<RunTag, BTreeSet<Vec<u8>>>,
}

pub(super) type Lists = Vec<(Batch, RunTag)>;

pub(super) fn batch<'k>(keys: impl IntoIterator<Item = &'k Vec<u8>>) -> Batch {
    let mut batch = Batch::new();
    keys.into_iter().for_each(|key| batch.push(key, Digest::of(key), Epochs::ALL));
    batch
}

pub(super) fn refs(lists: &Lists) -> Vec<Tagged<'_>> {
    lists.iter().map(|(batch, tag)| (batch, *tag)).collect()
}

impl Tree {
    /// Takes a step and returns the removed and added entries.
    pub(super) fn step(&mut self, step: &Step) -> (Lists, Lists) {
        match step {
            Step::Flush(keys) => {
                let keys: BTreeSet<_> = keys.iter().cloned().collect();
                let tag = self.free(0);
                let added = vec![(batch(&keys), tag)];
                self.runs.insert(tag, keys);
                (vec![], added)
            }
            Step::Merge { level, drop } => {
                let tags: Vec<RunTag> = self.runs.keys().filter(|tag| tag.level == *level).copied().collect();
                let removed: Lists = tags.iter().map(|tag| (batch(&self.runs[tag]), *tag)).collect();
                let mut keys = BTreeSet::new();
                tags.iter().filter_map(|tag| self.runs.remove(tag)).for_each(|run| keys.extend(run));
                keys.retain(|key| Digest::of(key).get() as u8 >= *drop);
                let tag = self.free(level + 1);
                let added = vec![(batch(&keys), tag)];
                self.runs.insert(tag, keys);
                (removed, added)
            }
            Step::Partial { level, from, to } => {
                let Some(source) = self.runs.keys().find(|tag| tag.level == *level).copied() else {
                    return (vec![], vec![]);
                };
                let target = self.runs.keys().find(|tag| tag.level == level + 1).copied();
                let target = target.unwrap_or(self.free(level + 1));
                let inside = |key: &Vec<u8>| from <= key && key < to;
                let take = |keys: &mut BTreeSet<Vec<u8>>| -> BTreeSet<Vec<u8>> {
                    let (gone, stay) = std::mem::take(keys).into_iter().partition(inside);
                    *keys = stay;
                    gone
                };
                let moved = self.runs.get_mut(&source).map(take).unwrap_or_default();
                let there = take(self.runs.entry(target).or_default());
                let removed = vec![(batch(&moved), source), (batch(&there), target)];
                let merged: BTreeSet<Vec<u8>> = moved.into_iter().chain(there).collect();
                let added = vec![(batch(&merged), target)];
                self.runs.entry(target).or_default().extend(merged);
                (removed, added)
            }
        }
    }

    /// Returns the lowest free name of a level.
    fn free(&self, level: u8) -> RunTag {
        let free = |slot: &u32| !self.runs.contains_key(&RunTag { level, slot: *slot });
        RunTag { level, slot: (0..).find(free).unwrap_or(0) }
    }

    pub(super) fn lists(&self) -> Lists {
        self.runs.iter().map(|(tag, keys)| (batch(keys), *tag)).collect()
    }

    pub(super) fn entries(&self) -> u64 {
        self.runs.values().map(|keys| keys.len() as u64).sum()
    }

    /// Checks that no key is rejected in any of its runs.
    pub(super) fn check(&self, index: &dyn RunIndex) {
        assert_eq!(index.entries(), self.entries());
        for (tag, keys) in &self.runs {
            for key in keys {
                assert!(probe(index, key).contains(tag), "{tag:?} denied for {key:?} by {index:?}");
            }
        }
    }
}

pub(super) fn probe(index: &dyn RunIndex, key: &[u8]) -> BTreeSet<RunTag> {
    let mut found = BTreeSet::new();
    index.probe(key, Digest::of(key), &mut |tag| {
        found.insert(tag);
    });
    index.prefetch(key, Digest::of(key));
    found
}

pub(super) fn spec(capacity: u64) -> RunIndexSpec {
    RunIndexSpec { bits_per_key: 10.0, capacity, slots: vec![4, 4, 1], ratio: 10.0, segment: 4 }
}

/// Returns the smallest key of a number.
pub(super) fn lower(filter: &dyn RunIndex, number: u64) -> Vec<u8> {
    let mut key = vec![9; 3];
    filter.lower_key(number, &mut key);
    key
}

/// Checks what a walk returns for `[from, until)` or, if it covers the whole query, `[from, end)`.
fn check_ahead(filter: &dyn RunIndex, tree: &Tree, from: &[u8], end: Option<&[u8]>) {
    let mut out = TagsAhead { found: vec![(RunTag::LAST, None)], until: Some(3) };
    assert!(filter.ahead(from, end, &mut out));
    let until = out.until.map(|until| lower(filter, until));
    assert!(until.as_ref().is_none_or(|until| until[..] > *from), "no progress from {from:?} to {until:?}");
    let stop = until.as_deref().or(end);
    let tags: Vec<RunTag> = out.found.iter().map(|(tag, _)| *tag).collect();
    assert!((1..tags.len()).all(|i| !tags[..i].contains(&tags[i])), "a run comes once");
    for (tag, keys) in &tree.runs {
        let first = keys.iter().find(|key| key[..] >= *from && stop.is_none_or(|stop| key[..] < *stop));
        if let Some(first) = first {
            let (_, bound) = out.found.iter().find(|(t, _)| t == tag).expect("a run with a key there");
            assert!(bound.is_none_or(|bound| lower(filter, bound) <= *first));
        }
    }
}

fn check_behind(filter: &dyn RunIndex, tree: &Tree, before: Option<&[u8]>, start: &[u8]) {
    let mut out = TagsAhead { found: vec![(RunTag::LAST, None)], until: Some(3) };
    assert!(filter.behind(before, start, &mut out));
    let until = out.until.map(|until| lower(filter, until));
    if let (Some(until), Some(before)) = (&until, before) {
        assert!(until[..] < *before, "no progress from {before:?} to {until:?}");
    }
    let stop = until.as_deref().unwrap_or(start);
    for (tag, keys) in &tree.runs {
        let last =
            keys.iter().rev().find(|key| key[..] >= *stop && before.is_none_or(|before| key[..] < *before));
        if let Some(last) = last {
            let (_, bound) = out.found.iter().find(|(t, _)| t == tag).expect("a run with a key there");
            assert!(bound.is_none_or(|bound| lower(filter, bound) > *last));
        }
    }
}

/// Checks that walks from keys of the tree and from others, both ways, report all keys they pass.
pub(super) fn check_walks(filter: &dyn RunIndex, tree: &Tree, bounds: &[(Vec<u8>, Option<Vec<u8>>)]) {
    let held: Vec<&Vec<u8>> = tree.runs.values().flatten().take(200).collect();
    for (i, (key, end)) in bounds.iter().enumerate() {
        // Random keys are rarely those of the tree.
        let known = held.get(i * 17).map_or(key, |key| *key);
        for key in [key, known, &vec![]] {
            let end = end.as_deref().filter(|end| *end > &key[..]);
            check_ahead(filter, tree, key, end);
            check_ahead(filter, tree, key, None);
            check_behind(filter, tree, end, key);
            check_behind(filter, tree, Some(key), &[]);
        }
    }
    check_behind(filter, tree, None, &[]);
}
