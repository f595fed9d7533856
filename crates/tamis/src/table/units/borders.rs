//! The borders between the segments of a table: which segment a key belongs to.
//!
//! A border is the shortest key that is above all keys of the segment before it and begins the first key of its own. So what
//! tells the borders of one table apart is mostly within four bytes behind their common prefix. Then these four bytes, as a
//! number, are all that is kept of a border. Otherwise borders are kept as they are, with a search structure over their first
//! eight bytes.
//!
//! # Why numbers suffice
//!
//! Let `s` be what follows the common prefix in a border, of at most four bytes of which the last is not zero, and `t` what
//! follows it in a key. Both are compared as numbers of four bytes, padded with zeros. Numbers that differ do so in the order
//! of `s` and `t`. If they are equal, `t` begins with `s`: were it shorter, the last byte of `s` would be zero.
//!
//! # Costs
//!
//! Numbers take four bytes a segment; up to 64 are compared with a key one by one, by vector instructions, more after a binary
//! search for eight of them. Borders as they are take their bytes and 13 more.

use std::cmp::Ordering;

use crate::key::{BorderKey, common_prefix_len, prefix_of};
use crate::table::search::SearchTree;

/// Numbers compared at once.
const GROUP: usize = 8;

/// Groups that are all compared: a binary search among so few would take longer.
const FEW_GROUPS: usize = 8;

/// A tree of this many segments is as large as the line-up of them that it would make faster to search.
const MANY: usize = 64;

/// See the [module](self). The borders ascend strictly; there is at least one.
#[derive(Debug)]
pub(super) struct Borders {
    count: usize,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Numbers(Numbers),
    Keys(Keys),
}

impl Borders {
    /// Takes over borders, concatenated, with their ends.
    pub(super) fn new(keys: Vec<u8>, ends: Vec<u32>) -> Borders {
        let keys = Keys::new(keys, ends);
        let count = keys.ends.len();
        let form = Numbers::of(&keys).map_or_else(|| Form::Keys(keys), Form::Numbers);
        Borders { count, form }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The last segment whose border is not above `key`, whose [`prefix_of`] is `prefix`, or the first.
    #[inline(always)]
    pub(super) fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        match &self.form {
            Form::Numbers(numbers) => numbers.segment_of(key, prefix).min(self.count - 1),
            Form::Keys(keys) => keys.segment_of(key, prefix),
        }
    }

    /// The border before a segment.
    pub(super) fn get(&self, segment: usize) -> BorderKey {
        match &self.form {
            Form::Numbers(numbers) => numbers.get(segment),
            Form::Keys(keys) => keys.get(segment).into(),
        }
    }

    /// Heap memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.form {
            Form::Numbers(numbers) => numbers.memory_bytes(),
            Form::Keys(keys) => keys.memory_bytes(),
        }
    }
}

/// Borders as numbers.
#[derive(Debug)]
struct Numbers {
    /// The first border, which need not have the common prefix of the others: nothing is before it.
    first: Box<[u8]>,
    /// The common prefix of the others.
    common: Box<[u8]>,
    /// If `common` is within eight bytes of which a key's first eight tell everything: its number, else `None`.
    lead: Option<u64>,
    /// What follows in the others, in an order of signed numbers, which is that of vector instructions. Padded with the largest.
    groups: Box<[[i32; GROUP]]>,
}

/// A number of four bytes in the order of signed numbers.
#[inline(always)]
fn signed(number: u32) -> i32 {
    (number ^ (1 << 31)) as i32
}

impl Numbers {
    /// Returns the numbers of borders, if these suffice.
    fn of(keys: &Keys) -> Option<Numbers> {
        let count = keys.ends.len();
        let common = match count {
            1 => &[][..],
            _ => &keys.get(1)[..common_prefix_len(keys.get(1), keys.get(count - 1))],
        };
        let mut groups: Vec<[i32; GROUP]> = Vec::with_capacity((count - 1).div_ceil(GROUP));
        for segment in 1..count {
            let rest = &keys.get(segment)[common.len()..];
            if rest.len() > 4 || rest.last() == Some(&0) {
                return None;
            }
            let place = (segment - 1) % GROUP;
            if place == 0 {
                groups.push([i32::MAX; GROUP]);
            }
            groups.last_mut()?[place] = signed((prefix_of(rest) >> 32) as u32);
        }
        // A key that ends within the common prefix looks as if zeros followed.
        let told = common.len() <= 4 && common.last() != Some(&0);
        let lead = told.then(|| lead(prefix_of(common), common.len()));
        Some(Numbers { first: keys.get(0).into(), common: common.into(), lead, groups: groups.into() })
    }

    /// The number of borders but the first that are not above a key; or more, if it is the largest number.
    #[inline(always)]
    fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        let bytes = self.common.len();
        let (order, number) = match self.lead {
            Some(common) => (lead(prefix, bytes).cmp(&common), ((prefix << (8 * bytes)) >> 32) as u32),
            None => self.behind_common(key),
        };
        match order {
            Ordering::Less => 0,
            Ordering::Equal => up_to(&self.groups, signed(number)),
            Ordering::Greater => usize::MAX,
        }
    }

    /// How a key compares with the common prefix, and if it begins with it, the number behind.
    #[inline(never)]
    fn behind_common(&self, key: &[u8]) -> (Ordering, u32) {
        match key.strip_prefix(&*self.common) {
            Some(rest) => (Ordering::Equal, (prefix_of(rest) >> 32) as u32),
            None => (key.cmp(&self.common), 0),
        }
    }

    fn get(&self, segment: usize) -> BorderKey {
        let Some(place) = segment.checked_sub(1) else { return self.first[..].into() };
        let number = signed(self.groups[place / GROUP][place % GROUP] as u32) as u32;
        let mut border = BorderKey::from_slice(&self.common);
        border.extend_from_slice(&number.to_be_bytes()[..4 - number.trailing_zeros() as usize / 8]);
        border
    }

    fn memory_bytes(&self) -> usize {
        self.first.len() + self.common.len() + size_of_val(&*self.groups)
    }
}

/// The first `bytes` bytes, at most four, of eight.
#[inline(always)]
fn lead(prefix: u64, bytes: usize) -> u64 {
    (prefix >> 1) >> (63 - 8 * bytes)
}

/// How many of the ascending numbers are at most `target`.
#[inline(always)]
fn up_to(groups: &[[i32; GROUP]], target: i32) -> usize {
    let within = |group: &[i32; GROUP]| group.iter().map(|&number| i32::from(number <= target)).sum::<i32>();
    if groups.len() <= FEW_GROUPS {
        return groups.iter().map(within).sum::<i32>() as usize;
    }
    match groups.partition_point(|group| group[0] <= target) {
        0 => 0,
        after => (after - 1) * GROUP + within(&groups[after - 1]) as usize,
    }
}

/// Borders as they are.
#[derive(Debug)]
struct Keys {
    prefixes: Prefixes,
    /// Concatenated, and their ends.
    keys: Box<[u8]>,
    ends: Box<[u32]>,
}

/// The prefixes of borders, in ascending order.
#[derive(Debug)]
enum Prefixes {
    Few(Box<[u64]>),
    Many(SearchTree),
}

impl Prefixes {
    fn new(prefixes: Vec<u64>) -> Prefixes {
        if prefixes.len() < MANY {
            Prefixes::Few(prefixes.into())
        } else {
            Prefixes::Many(SearchTree::new(&prefixes))
        }
    }

    fn get(&self, segment: usize) -> Option<u64> {
        match self {
            Prefixes::Few(all) => all.get(segment).copied(),
            Prefixes::Many(tree) => tree.get(segment),
        }
    }

    /// The first segment whose prefix is not less.
    #[inline]
    fn lower_bound(&self, prefix: u64) -> usize {
        match self {
            Prefixes::Few(all) => all.partition_point(|&start| start < prefix),
            Prefixes::Many(tree) => tree.lower_bound(prefix),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Prefixes::Few(all) => size_of_val(&**all),
            Prefixes::Many(tree) => tree.memory_bytes(),
        }
    }
}

impl Keys {
    fn new(keys: Vec<u8>, ends: Vec<u32>) -> Keys {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let prefixes = starts.zip(&ends).map(|(start, &end)| prefix_of(&keys[start as usize..end as usize]));
        Keys { prefixes: Prefixes::new(prefixes.collect()), keys: keys.into(), ends: ends.into() }
    }

    fn get(&self, segment: usize) -> &[u8] {
        let start = segment.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start as usize..self.ends[segment] as usize]
    }

    /// Keys are compared only if prefixes are equal.
    #[inline]
    fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        let from = self.prefixes.lower_bound(prefix);
        if self.prefixes.get(from).is_none_or(|next| next != prefix) {
            return from.saturating_sub(1);
        }
        self.segment_by_key(key, prefix, from)
    }

    /// The same if borders have this prefix; `from` is the first of them.
    #[inline(never)]
    fn segment_by_key(&self, key: &[u8], prefix: u64, mut from: usize) -> usize {
        let mut to = prefix.checked_add(1).map_or(self.ends.len(), |next| self.prefixes.lower_bound(next));
        while from < to {
            let middle = from.midpoint(to);
            if self.get(middle) <= key {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from.saturating_sub(1)
    }

    fn memory_bytes(&self) -> usize {
        self.prefixes.memory_bytes() + self.keys.len() + size_of_val(&*self.ends)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn borders(keys: &BTreeSet<Vec<u8>>) -> Borders {
        let ends = keys.iter().scan(0, |end, key| {
            *end += key.len() as u32;
            Some(*end)
        });
        Borders::new(keys.iter().flatten().copied().collect(), ends.collect())
    }

    /// Checks borders against a linear search, with keys at, around and within them.
    fn check(keys: &BTreeSet<Vec<u8>>, more: &[Vec<u8>]) -> bool {
        let (borders, all) = (borders(keys), keys.iter().cloned().collect::<Vec<_>>());
        assert_eq!(borders.count(), all.len());
        let around = |key: &Vec<u8>| {
            let cut = key[..key.len().saturating_sub(1)].to_vec();
            let (below, above) = ([&cut[..], &[0xfe; 9]].concat(), [&key[..], &[0xff; 9]].concat());
            [key.clone(), [&key[..], &[0]].concat(), [&key[..], &[0; 9]].concat(), cut, below, above]
        };
        for key in all.iter().flat_map(around).chain(more.iter().cloned()) {
            let expected = all.iter().rposition(|border| *border <= key).unwrap_or(0);
            assert_eq!(borders.segment_of(&key, prefix_of(&key)), expected, "{key:?} among {all:?}");
        }
        for (segment, border) in all.iter().enumerate() {
            assert_eq!(borders.get(segment)[..], border[..]);
        }
        matches!(borders.form, Form::Numbers(_))
    }

    fn set<const N: usize>(keys: [&[u8]; N]) -> BTreeSet<Vec<u8>> {
        keys.iter().map(|key| key.to_vec()).collect()
    }

    #[test]
    fn a_border_is_a_number_where_four_bytes_tell_it() {
        assert!(check(&set([b""]), &[]));
        assert!(check(&set([b"a long first border", b"b", b"bc", b"bcdef"]), &[]));
        assert!(check(&set([b"", b"common/a", b"common/b", b"common/bcde"]), &[b"common".to_vec()]));
        assert!(!check(&set([b"", b"a", b"abcdef", b"b"]), &[]), "more than four bytes");
        assert!(!check(&set([b"", b"a", b"a\0", b"b"]), &[]), "a key of one zero less would look the same");
        // A common prefix that ends in zeros is not known from padded bytes.
        assert!(check(&set([b"", b"\0\0", b"\0\0a", b"\0\0\xff\xff\xff\xff"]), &[b"\0".to_vec()]));
        assert!(check(&set([b"", b"\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff"]), &[]));
    }

    #[test]
    fn any_number_of_borders_is_searched() {
        for count in [1u32, 2, 8, 9, 10, 63, 64, 65, 66, 72, 73, 74, 600] {
            let narrow = (0..count).map(|i| (i * 7_000_000 + 1).to_be_bytes().to_vec()).collect();
            assert!(check(&narrow, &[]), "{count}");
            let wide = (0..count).map(|i| (u64::from(i) << 40 | 1).to_be_bytes().to_vec()).collect();
            assert_eq!(check(&wide, &[]), count < 3, "{count}");
            // Four bytes a border, but for the last few.
            let numbers = borders(&narrow).memory_bytes();
            assert!(numbers <= 4 * (count as usize + GROUP) + 8, "{numbers} for {count}");
        }
    }

    proptest! {
        #[test]
        fn borders_of_all_kinds_agree_with_a_linear_search(
            keys in prop::collection::btree_set(prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), 0..4u8], 0..7), 1..100),
            more in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), 0..4u8], 0..9), 0..50),
            common in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..10),
        ) {
            check(&keys, &more);
            // Behind a common prefix, as the shortest separators would be: without a zero at the end.
            let trimmed = keys.iter().map(|key| {
                let len = key.iter().take(4).rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                [&common[..], &key[..len]].concat()
            });
            let trimmed: BTreeSet<_> = trimmed.collect();
            prop_assert!(check(&trimmed, &more));
        }
    }
}
