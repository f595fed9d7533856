//! Queries that contain no key, in four classes: the quality of a filter depends on them as much as on the keys.

use std::ops::Bound;

use serde::Serialize;
use tamis_bench::random::Random;
use tamis_filter::{Digest, KeyList, KeyRange, prefix_end};

use crate::keysets::{KeySet, lower_bound};

/// The start of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Class {
    /// Integers: uniform between the smallest and the largest key. Strings: the length of a random key, with random
    /// bytes that occur in keys.
    Uniform,
    /// A held-out key of the same source; each at most once, in random order.
    HeldOut,
    /// Integers: a random key plus 1 to 1024. Strings: a random key with its last byte changed, or a byte appended.
    KeyDelta,
    /// A random gap between neighbours in key order, and a random point in it.
    Gap,
}

impl Class {
    /// All classes.
    pub(crate) const ALL: [Class; 4] = [Class::Uniform, Class::HeldOut, Class::KeyDelta, Class::Gap];

    /// Returns the name in tables.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Class::Uniform => "uniform",
            Class::HeldOut => "held-out",
            Class::KeyDelta => "key+delta",
            Class::Gap => "gap",
        }
    }

    /// Returns the name as part of a file name.
    pub(crate) fn file_name(self) -> &'static str {
        if self == Class::KeyDelta { "key-delta" } else { self.text() }
    }
}

/// The width of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    /// One key.
    Point,
    /// This number of neighbouring integers.
    Integers(u64),
    /// All keys with a prefix: the start, truncated at a random length at which it is no key's prefix.
    Prefix,
}

impl Width {
    /// Returns the widths for a set: the given numbers for integers; points and prefixes for strings.
    pub(crate) fn of_set(set: &KeySet, ranges: &[u64]) -> Vec<Width> {
        let mut widths: Vec<Width> = Vec::new();
        for &range in ranges {
            let width = match range {
                0 | 1 => Width::Point,
                _ if set.integers => Width::Integers(range),
                _ => Width::Prefix,
            };
            if !widths.contains(&width) {
                widths.push(width);
            }
        }
        widths
    }

    /// Returns the name in tables.
    pub(crate) fn text(self) -> String {
        match self {
            Width::Point => "1".to_owned(),
            Width::Integers(n) if n.is_power_of_two() && n > 1024 => format!("2^{}", n.trailing_zeros()),
            Width::Integers(n) => n.to_string(),
            Width::Prefix => "prefix".to_owned(),
        }
    }

    /// Returns the number of neighbouring integers, if known.
    pub(crate) fn integers(self) -> Option<u64> {
        match self {
            Width::Point => Some(1),
            Width::Integers(n) => Some(n),
            Width::Prefix => None,
        }
    }
}

/// Queries of one class and width that contain none of the keys.
#[derive(Clone, Debug)]
pub(crate) struct Queries {
    /// Their class.
    pub class: Class,
    /// Their width.
    pub width: Width,
    /// Number of queries drawn that contained a key and were dropped.
    pub dropped: u64,
    starts: KeyList,
    ends: KeyList,
    digests: Vec<Digest>,
}

impl Queries {
    /// Draws up to `count` queries that contain no member of `set`; fewer if nearly all draws contain one.
    pub(crate) fn draw(set: &KeySet, class: Class, width: Width, count: usize, seed: u64) -> Self {
        let mut source = Source::new(set, seed ^ class as u64);
        let mut queries = Self {
            class,
            width,
            dropped: 0,
            starts: KeyList::new(),
            ends: KeyList::new(),
            digests: Vec::new(),
        };
        let tries = count.saturating_mul(8);
        for _ in 0..tries {
            if queries.len() == count {
                break;
            }
            if class == Class::HeldOut && source.left.is_empty() {
                break;
            }
            let Some(start) = source.start(class) else { continue };
            match source.query(start, width) {
                Some((start, end)) => queries.push(&start, &end),
                None => queries.dropped += 1,
            }
        }
        queries
    }

    fn push(&mut self, start: &[u8], end: &[u8]) {
        if self.width == Width::Point {
            self.digests.push(Digest::of(start));
        } else {
            self.ends.push(end);
        }
        self.starts.push(start);
    }

    /// Returns the number of queries.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the key of point query `at`, or the start of a range.
    #[inline]
    pub(crate) fn start(&self, at: usize) -> &[u8] {
        self.starts.get(at)
    }

    /// Returns the digest of point query `at`.
    #[inline]
    pub(crate) fn digest(&self, at: usize) -> Digest {
        self.digests[at]
    }

    /// Returns query `at` as a range; not for points.
    #[inline]
    pub(crate) fn range(&self, at: usize) -> KeyRange<'_> {
        range(self.width, self.starts.get(at), self.ends.get(at))
    }
}

#[inline]
fn range<'a>(width: Width, start: &'a [u8], end: &'a [u8]) -> KeyRange<'a> {
    match width {
        Width::Prefix => KeyRange::new(Bound::Included(start), Bound::Excluded(end)),
        Width::Point | Width::Integers(_) => KeyRange::closed(start, end),
    }
}

/// Returns ranges of `width` that contain a member: `count` members at equal distances, each somewhere in its range.
pub(crate) fn ranges_with_a_key(
    set: &KeySet,
    width: Width,
    count: usize,
    mut ask: impl FnMut(&[u8], KeyRange<'_>),
) {
    let mut random = Random::new(17);
    let have = set.members.len();
    let count = count.min(have);
    for i in 0..count {
        let key = set.members.get((i as u128 * have as u128 / count as u128) as usize);
        match width {
            Width::Point => ask(key, KeyRange::closed(key, key)),
            Width::Integers(n) => {
                let number = integer(key);
                let first = number.saturating_sub(random.below(n));
                let last = first.saturating_add(n - 1).max(number);
                ask(key, KeyRange::closed(&first.to_be_bytes(), &last.to_be_bytes()));
            }
            Width::Prefix => {
                let prefix = &key[..random.index(key.len() + 1)];
                match prefix_end(prefix) {
                    Some(end) => ask(key, range(width, prefix, &end)),
                    None => ask(key, KeyRange::from(prefix)),
                }
            }
        }
    }
}

fn integer(key: &[u8]) -> u64 {
    u64::from_be_bytes(*key.first_chunk().expect("keys of integer sets have eight bytes"))
}

/// Draws starts and extends them to queries.
struct Source<'a> {
    set: &'a KeySet,
    /// The bytes that occur in members.
    alphabet: Vec<u8>,
    /// The held-out keys not drawn yet: a repeated key would count one false positive twice.
    left: Vec<u32>,
    random: Random,
}

impl<'a> Source<'a> {
    fn new(set: &'a KeySet, seed: u64) -> Self {
        let mut seen = [false; 256];
        set.members.iter().flatten().for_each(|&byte| seen[usize::from(byte)] = true);
        let alphabet = (0..=255).filter(|&byte| seen[usize::from(byte)]).collect();
        let left = (0..set.held_out.len() as u32).collect();
        Self { set, alphabet, left, random: Random::part(seed, 0x7175_6572_7965) }
    }

    fn letter(&mut self) -> u8 {
        self.alphabet[self.random.index(self.alphabet.len())]
    }

    fn member(&mut self) -> &'a [u8] {
        let at = self.random.index(self.set.members.len());
        self.set.members.get(at)
    }

    /// Draws a start of `class`, which may be, or lead to, a key; `None` if the draw fails.
    fn start(&mut self, class: Class) -> Option<Vec<u8>> {
        match (class, self.set.integers) {
            (Class::HeldOut, _) => {
                let last = self.left.len().checked_sub(1)?;
                let at = self.left.swap_remove(self.random.index(last + 1));
                Some(self.set.held_out.get(at as usize).to_vec())
            }
            (Class::Uniform, true) => {
                let (low, high) = (integer(self.set.members.first()?), integer(self.set.members.last()?));
                Some(self.random.within(low, high).to_be_bytes().to_vec())
            }
            (Class::Uniform, false) => {
                let length = self.member().len();
                Some((0..length).map(|_| self.letter()).collect())
            }
            (Class::KeyDelta, true) => {
                let key = integer(self.member());
                Some(key.checked_add(self.random.within(1, 1024))?.to_be_bytes().to_vec())
            }
            (Class::KeyDelta, false) => {
                let mut key = self.member().to_vec();
                let letter = self.letter();
                if self.random.chance(50) {
                    *key.last_mut()? = letter;
                } else {
                    key.push(letter);
                }
                Some(key)
            }
            (Class::Gap, integers) => {
                let at = self.random.within(1, self.set.members.len() as u64 - 1) as usize;
                let (before, after) = (self.set.members.get(at - 1), self.set.members.get(at));
                if integers {
                    let (before, after) = (integer(before), integer(after));
                    (after - before > 1)
                        .then(|| self.random.within(before + 1, after - 1).to_be_bytes().to_vec())
                } else {
                    self.between(before, after)
                }
            }
        }
    }

    /// Returns a string between two others: their common prefix, then eight bytes drawn as one number.
    fn between(&mut self, before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
        let common = common(before, after);
        let number = |key: &[u8]| {
            let mut bytes = [0; 8];
            let rest = &key[common..];
            let len = rest.len().min(8);
            bytes[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(bytes)
        };
        let drawn = self.random.within(number(before), number(after));
        let key = [&before[..common], &drawn.to_be_bytes()].concat();
        (before < &key[..] && &key[..] < after).then_some(key)
    }

    /// Returns the query of `width` from `start`, with its end; `None` if it contains a member.
    fn query(&mut self, mut start: Vec<u8>, width: Width) -> Option<(Vec<u8>, Vec<u8>)> {
        let members = &self.set.members;
        let at = lower_bound(members, &start);
        let next = (at < members.len()).then(|| members.get(at));
        match width {
            Width::Point => (next != Some(&start[..])).then(|| (start, Vec::new())),
            Width::Integers(n) => {
                let last = integer(&start).checked_add(n - 1)?.to_be_bytes();
                next.is_none_or(|next| next > &last[..]).then(|| (start, last.to_vec()))
            }
            Width::Prefix => {
                let before = at.checked_sub(1).map(|at| members.get(at));
                let shared = [before, next].into_iter().flatten().map(|key| common(key, &start)).max()?;
                // A key begins with the whole start.
                if shared == start.len() {
                    return None;
                }
                start.truncate(self.random.within(shared as u64 + 1, start.len() as u64) as usize);
                let end = prefix_end(&start)?;
                Some((start, end))
            }
        }
    }
}

/// Returns the length of the longest common prefix.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keysets::{Name, Sources, holds};

    fn set(name: Name) -> KeySet {
        KeySet::load(name, 2_000, 7, &Sources::default()).unwrap()
    }

    #[test]
    fn queries_are_empty() {
        for name in Name::ALL {
            let set = set(name);
            for class in Class::ALL {
                for width in Width::of_set(&set, &[1, 2, 64, 1 << 20]) {
                    let queries = Queries::draw(&set, class, width, 300, 1);
                    let held = (0..queries.len()).find(|&at| match width {
                        Width::Point => set.members.iter().any(|key| key == queries.start(at)),
                        _ => set.members.iter().any(|key| queries.range(at).contains(key)),
                    });
                    assert_eq!(held.map(|at| queries.start(at)), None, "{name:?} {class:?} {width:?}");
                    assert!(
                        (0..queries.len()).all(|at| width == Width::Point || !queries.range(at).is_empty())
                    );
                }
            }
        }
    }

    #[test]
    fn every_class_yields_points_of_every_set() {
        for name in Name::ALL {
            let set = set(name);
            for class in Class::ALL {
                let queries = Queries::draw(&set, class, Width::Point, 500, 1);
                assert_eq!(queries.len(), 500, "{name:?} {class:?}");
            }
        }
    }

    #[test]
    fn integer_classes_follow_their_definitions() {
        let set = set(Name::Cells);
        let points = |class| Queries::draw(&set, class, Width::Point, 500, 2);
        let (low, high) = (set.members.first().unwrap(), set.members.last().unwrap());
        for class in [Class::Uniform, Class::Gap] {
            let queries = points(class);
            assert!((0..queries.len()).all(|at| low < queries.start(at) && queries.start(at) < high));
        }
        let held_out = points(Class::HeldOut);
        assert!((0..held_out.len()).all(|at| holds(&set.held_out, held_out.start(at))));
        let all = Queries::draw(&set, Class::HeldOut, Width::Point, usize::MAX / 8, 2);
        assert_eq!(all.len(), set.held_out.len(), "each once, for any requested number");
        let delta = points(Class::KeyDelta);
        for at in 0..delta.len() {
            let start = integer(delta.start(at));
            let before = lower_bound(&set.members, delta.start(at)) - 1;
            assert!(start - integer(set.members.get(before)) <= 1024);
        }
    }

    #[test]
    fn string_classes_follow_their_definitions() {
        let set = set(Name::Words);
        let delta = Queries::draw(&set, Class::KeyDelta, Width::Point, 500, 2);
        for at in 0..delta.len() {
            let start = delta.start(at);
            let near = |key: &[u8]| {
                key == &start[..start.len() - 1]
                    || (key.len() == start.len() && common(key, start) + 1 == key.len())
            };
            assert!(set.members.iter().any(near), "{start:?}");
        }
        let prefixes = Queries::draw(&set, Class::HeldOut, Width::Prefix, 500, 2);
        assert!(
            (0..prefixes.len()).all(|at| set.held_out.iter().any(|key| key.starts_with(prefixes.start(at))))
        );
    }

    #[test]
    fn gaps_are_chosen_by_rank_and_not_by_width() {
        // One wide gap among a thousand narrow ones must not draw all queries.
        let members: Vec<[u8; 8]> =
            (0..1000u64).map(|i| (i * 10 + if i == 999 { 1 << 40 } else { 0 }).to_be_bytes()).collect();
        let members: KeyList = members.iter().map(|key| &key[..]).collect();
        let set =
            KeySet { name: "x", about: String::new(), integers: true, held_out: members.clone(), members };
        let low = |class| {
            let queries = Queries::draw(&set, class, Width::Point, 1000, 3);
            (0..queries.len()).filter(|&at| integer(queries.start(at)) < 10_000).count()
        };
        assert!(low(Class::Gap) > 950);
        assert!(low(Class::Uniform) < 10);
    }

    #[test]
    fn ranges_with_a_key_contain_it() {
        for name in [Name::Ips, Name::Places] {
            let set = set(name);
            for width in Width::of_set(&set, &[1, 16, 1 << 20]) {
                let mut asked = 0;
                ranges_with_a_key(&set, width, 300, |key, range| {
                    assert!(range.contains(key) && holds(&set.members, key));
                    asked += 1;
                });
                assert_eq!(asked, 300);
            }
        }
    }

    #[test]
    fn strings_have_points_and_prefixes_only() {
        let widths = |name| Width::of_set(&set(name), &[1, 2, 16]);
        assert_eq!(widths(Name::Words), [Width::Point, Width::Prefix]);
        assert_eq!(widths(Name::Ips), [Width::Point, Width::Integers(2), Width::Integers(16)]);
        assert_eq!(Width::Integers(1 << 20).text(), "2^20");
        assert_eq!(Width::Integers(64).text(), "64");
    }
}
