//! The borders between a table's segments, which determine the segment of a key.
//!
//! A border is the shortest prefix of a segment's first key that is above all keys of the previous
//! segment. What tells the borders of a table apart is mostly within four bytes after their common
//! prefix, or within eight if keys are written in digits. If so, only these bytes are kept of a
//! border, as a number. Otherwise the whole borders are kept, with a search structure over their
//! first eight bytes.
//!
//! # Why numbers suffice
//!
//! Let `s` be what follows the common prefix in a border: at most four (or eight) bytes, the last
//! of them not zero. Let `t` be what follows it in a key. Both are compared as numbers of that many
//! bytes, padded with zeros. If the numbers differ, they are ordered as `s` and `t` are. If they
//! are equal, `t` begins with `s`: were `t` shorter than `s`, the last byte of `s` would be zero.
//!
//! # Costs
//!
//! Numbers take four or eight bytes per segment. Up to 64 four-byte numbers are all compared with a
//! key, by vector instructions; with more, a binary search first finds the eight to compare.
//! Eight-byte numbers are binary-searched. A whole border takes its bytes and 13 more.

use std::cmp::Ordering;

use tamis_base::key::{BorderKey, common_prefix_len, prefix_of};

use crate::table::search::SearchTree;

/// How many numbers are compared at once.
const GROUP: usize = 8;

/// Up to this many groups are all compared, as a binary search among them would take longer.
const FEW_GROUPS: usize = 8;

/// From this many segments on, prefixes are searched through a tree. With fewer, the tree is not
/// worth its memory.
const MANY: usize = 64;

/// See the [module](self). There is at least one border, and borders ascend strictly.
#[derive(Debug)]
pub(super) struct Borders {
    count: usize,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Narrow(Numbers<Narrow>),
    Wide(Numbers<Wide>),
    Keys(Box<Keys>),
}

impl Borders {
    /// Takes over concatenated borders and their ends.
    pub(super) fn new(keys: Vec<u8>, ends: Vec<u32>) -> Borders {
        let keys = Keys::new(keys, ends);
        let count = keys.ends.len();
        let form = match Numbers::of(&keys) {
            Some(numbers) => Form::Narrow(numbers),
            None => Numbers::of(&keys).map_or_else(|| Form::Keys(Box::new(keys)), Form::Wide),
        };
        Borders { count, form }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the last segment whose border is not above `key`, or the first segment. `prefix` is
    /// the key's [`prefix_of`].
    #[inline(always)]
    pub(super) fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        match &self.form {
            Form::Narrow(numbers) => numbers.segment_of(key, prefix).min(self.count - 1),
            Form::Wide(numbers) => numbers.segment_of(key, prefix).min(self.count - 1),
            Form::Keys(keys) => keys.segment_of(key, prefix),
        }
    }

    /// Returns the border before a segment.
    pub(super) fn get(&self, segment: usize) -> BorderKey {
        match &self.form {
            Form::Narrow(numbers) => numbers.get(segment),
            Form::Wide(numbers) => numbers.get(segment),
            Form::Keys(keys) => keys.get(segment).into(),
        }
    }

    /// Heap memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.form {
            Form::Narrow(numbers) => numbers.memory_bytes(),
            Form::Wide(numbers) => numbers.memory_bytes(),
            Form::Keys(keys) => size_of::<Keys>() + keys.memory_bytes(),
        }
    }
}

/// Ascending numbers of a fixed length. A number is passed as the [`prefix_of`] its bytes; bytes
/// beyond the length are zero or ignored.
trait List: Sized {
    /// The length of a number in bytes.
    const BYTES: usize;

    fn of(numbers: impl Iterator<Item = u64>) -> Self;

    fn get(&self, place: usize) -> u64;

    /// Returns how many numbers are at most `number`; possibly more if `number` is the largest
    /// possible.
    fn up_to(&self, number: u64) -> usize;

    fn memory_bytes(&self) -> usize;
}

/// Four-byte numbers, mapped to signed numbers because vector instructions compare those. Padded
/// with the largest.
#[derive(Debug)]
struct Narrow(Box<[[i32; GROUP]]>);

impl Narrow {
    /// Maps a number to a signed one, preserving order.
    #[inline(always)]
    fn signed(number: u64) -> i32 {
        ((number >> 32) as u32 ^ (1 << 31)) as i32
    }
}

impl List for Narrow {
    const BYTES: usize = 4;

    fn of(numbers: impl Iterator<Item = u64>) -> Narrow {
        let mut groups: Vec<[i32; GROUP]> = Vec::new();
        for (place, number) in numbers.enumerate() {
            if place % GROUP == 0 {
                groups.push([i32::MAX; GROUP]);
            }
            groups[place / GROUP][place % GROUP] = Narrow::signed(number);
        }
        Narrow(groups.into())
    }

    fn get(&self, place: usize) -> u64 {
        u64::from(self.0[place / GROUP][place % GROUP] as u32 ^ (1 << 31)) << 32
    }

    #[inline(always)]
    fn up_to(&self, number: u64) -> usize {
        let (groups, target) = (&*self.0, Narrow::signed(number));
        let within =
            |group: &[i32; GROUP]| group.iter().map(|&number| i32::from(number <= target)).sum::<i32>();
        if groups.len() <= FEW_GROUPS {
            return groups.iter().map(within).sum::<i32>() as usize;
        }
        match groups.partition_point(|group| group[0] <= target) {
            0 => 0,
            after => (after - 1) * GROUP + within(&groups[after - 1]) as usize,
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Eight-byte numbers.
#[derive(Debug)]
struct Wide(Box<[u64]>);

impl List for Wide {
    const BYTES: usize = 8;

    fn of(numbers: impl Iterator<Item = u64>) -> Wide {
        Wide(numbers.collect())
    }

    fn get(&self, place: usize) -> u64 {
        self.0[place]
    }

    #[inline(always)]
    fn up_to(&self, number: u64) -> usize {
        self.0.partition_point(|&border| border <= number)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Borders as numbers.
#[derive(Debug)]
struct Numbers<L> {
    /// The common prefix of all borders but the first, then the first border, which need not have
    /// that prefix because no segment precedes it.
    heads: Box<[u8]>,
    /// The length of the common prefix.
    common: u32,
    /// Whether a key's first eight bytes decide how it compares with every border, and if so, the
    /// common prefix as a number.
    is_told: bool,
    lead: u64,
    /// What follows the common prefix in all borders but the first.
    list: L,
}

impl<L: List> Numbers<L> {
    /// Returns the borders as numbers, if numbers suffice.
    fn of(keys: &Keys) -> Option<Numbers<L>> {
        let count = keys.ends.len();
        let common = match count {
            1 => &[][..],
            _ => &keys.get(1)[..common_prefix_len(keys.get(1), keys.get(count - 1))],
        };
        let rest = |segment: usize| &keys.get(segment)[common.len()..];
        let is_number = |rest: &[u8]| rest.len() <= L::BYTES && rest.last() != Some(&0);
        if !(1..count).all(|segment| is_number(rest(segment))) {
            return None;
        }
        // A key that ends within the common prefix looks as if zeros followed.
        let is_told = common.len() + L::BYTES <= 8 && common.last() != Some(&0);
        let lead = if is_told { lead(prefix_of(common), common.len()) } else { 0 };
        let list = L::of((1..count).map(|segment| prefix_of(rest(segment))));
        let heads = [common, keys.get(0)].concat().into();
        Some(Numbers { heads, common: common.len() as u32, is_told, lead, list })
    }

    fn common(&self) -> &[u8] {
        &self.heads[..self.common as usize]
    }

    /// Returns how many borders, not counting the first, are not above a key; possibly more if the
    /// key's number is the largest possible.
    #[inline(always)]
    fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        let bytes = self.common as usize;
        let (order, number) = match self.is_told {
            true => (lead(prefix, bytes).cmp(&self.lead), prefix << (8 * bytes)),
            false => self.behind_common(key),
        };
        match order {
            Ordering::Less => 0,
            Ordering::Equal => self.list.up_to(number),
            Ordering::Greater => usize::MAX,
        }
    }

    /// Returns how a key compares with the common prefix and, if it begins with that, the number
    /// that follows.
    #[inline(never)]
    fn behind_common(&self, key: &[u8]) -> (Ordering, u64) {
        match key.strip_prefix(self.common()) {
            Some(rest) => (Ordering::Equal, prefix_of(rest)),
            None => (key.cmp(self.common()), 0),
        }
    }

    fn get(&self, segment: usize) -> BorderKey {
        let Some(place) = segment.checked_sub(1) else { return self.heads[self.common as usize..].into() };
        let number = self.list.get(place);
        let mut border = BorderKey::from_slice(self.common());
        border.extend_from_slice(&number.to_be_bytes()[..8 - number.trailing_zeros() as usize / 8]);
        border
    }

    fn memory_bytes(&self) -> usize {
        self.heads.len() + self.list.memory_bytes()
    }
}

/// Returns the first `bytes` bytes, at most four, of eight.
#[inline(always)]
fn lead(prefix: u64, bytes: usize) -> u64 {
    (prefix >> 1) >> (63 - 8 * bytes)
}

/// Whole borders.
#[derive(Debug)]
struct Keys {
    prefixes: Prefixes,
    /// The borders, concatenated, and their ends.
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

    /// Returns the first segment whose prefix is not less than `prefix`.
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

    /// Returns the segment of a key. Compares whole keys only if prefixes are equal.
    #[inline]
    fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        let from = self.prefixes.lower_bound(prefix);
        if self.prefixes.get(from).is_none_or(|next| next != prefix) {
            return from.saturating_sub(1);
        }
        self.segment_by_key(key, prefix, from)
    }

    /// Like [`segment_of`](Self::segment_of), if borders have this prefix; `from` is the first of
    /// them.
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

    /// Checks borders against a linear search, with keys at, around and within them. Returns the
    /// bytes per number, 0 if whole borders are kept.
    fn check(keys: &BTreeSet<Vec<u8>>, more: &[Vec<u8>]) -> usize {
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
        match borders.form {
            Form::Narrow(_) => 4,
            Form::Wide(_) => 8,
            Form::Keys(_) => 0,
        }
    }

    fn set<const N: usize>(keys: [&[u8]; N]) -> BTreeSet<Vec<u8>> {
        keys.iter().map(|key| key.to_vec()).collect()
    }

    #[test]
    fn a_border_is_a_number_where_a_few_bytes_tell_it() {
        assert_eq!(check(&set([b""]), &[]), 4);
        assert_eq!(check(&set([b"a long first border", b"b", b"bc", b"bcdef"]), &[]), 4);
        let common = [b"common".to_vec(), b"common/bcde\0".to_vec(), b"common/bcdefghij".to_vec()];
        assert_eq!(check(&set([b"", b"common/a", b"common/b", b"common/bcde"]), &common), 4);
        assert_eq!(check(&set([b"", b"common/a", b"common/b", b"common/bcdefghi"]), &common), 8);
        assert_eq!(check(&set([b"", b"12345", b"1234567", b"2", b"21000000"]), &[b"1234567".to_vec()]), 8);
        assert_eq!(check(&set([b"", b"a", b"abcdefghi", b"b"]), &[]), 0, "more than eight bytes");
        assert_eq!(
            check(&set([b"", b"a", b"a\0", b"b"]), &[]),
            0,
            "a key of one zero less would look the same"
        );
        // A common prefix that ends in zeros is not known from padded bytes.
        assert_eq!(check(&set([b"", b"\0\0", b"\0\0a", b"\0\0\xff\xff\xff\xff"]), &[b"\0".to_vec()]), 4);
        assert_eq!(check(&set([b"", b"\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff"]), &[]), 4);
        assert_eq!(check(&set([b"", b"a", b"\xff\xff\xff\xff\xff\xff\xff\xff"]), &[]), 8);
    }

    #[test]
    fn any_number_of_borders_is_searched() {
        for count in [1u32, 2, 8, 9, 10, 63, 64, 65, 66, 72, 73, 74, 600] {
            let narrow = (0..count).map(|i| (i * 7_000_000 + 1).to_be_bytes().to_vec()).collect();
            assert_eq!(check(&narrow, &[]), 4, "{count}");
            let wide = (0..count).map(|i| (u64::from(i) << 40 | 1).to_be_bytes().to_vec()).collect();
            assert_eq!(check(&wide, &[]), if count < 3 { 4 } else { 8 }, "{count}");
            // Four or eight bytes per border, except for the first ones and padding.
            let (narrow, wide) = (borders(&narrow).memory_bytes(), borders(&wide).memory_bytes());
            assert!(narrow <= 4 * (count as usize + GROUP) + 8, "{narrow} for {count}");
            assert!(count < 3 || wide <= 8 * count as usize + 16, "{wide} for {count}");
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
            // With a common prefix and no trailing zero, as the shortest separators would be.
            for most in [4, 7] {
                let trimmed = keys.iter().map(|key| {
                    let len = key.iter().take(most).rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                    [&common[..], &key[..len]].concat()
                });
                let bytes = check(&trimmed.collect(), &more);
                prop_assert!(bytes == 4 || (bytes == 8 && most == 7));
            }
        }
    }
}
