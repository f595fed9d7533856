//! Keys and key ranges as range filters take them, and the order-preserving map from byte strings
//! to integers.
//!
//! # The map
//! A filter over integers sees a key as eight bytes, big-endian: those that follow the prefix
//! common to all keys of the run, padded with zeros. If even the longest key has fewer than eight,
//! the filter sees only that many. Neighbouring keys thus have neighbouring numbers, whether they
//! are 32-bit integers or dense 64-bit ones whose first bytes are all the same. The map is monotone
//! but not one to one: keys that differ only after those bytes share a number, and so do a key and
//! the same key followed by zero bytes. Bounds are therefore widened to whole numbers; an excluded
//! bound is kept out only where the lengths of the run's keys prove that no other key shares its
//! number.

use std::borrow::Cow;
use std::ops::Bound;

use crate::bits;
use crate::error::FilterError;
use crate::words::Words;

/// A range of keys, in byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRange<'a> {
    /// The lower bound.
    pub start: Bound<&'a [u8]>,
    /// The upper bound.
    pub end: Bound<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// The whole key space.
    pub const ALL: KeyRange<'static> = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded };

    /// Creates the range between two bounds. A reversed range is an empty one.
    pub const fn new(start: Bound<&'a [u8]>, end: Bound<&'a [u8]>) -> Self {
        Self { start, end }
    }

    /// Creates the range of keys from `first` to `last`, both included.
    pub const fn closed(first: &'a [u8], last: &'a [u8]) -> Self {
        Self { start: Bound::Included(first), end: Bound::Included(last) }
    }

    /// Creates the range of all keys from `first` on.
    pub const fn from(first: &'a [u8]) -> Self {
        Self { start: Bound::Included(first), end: Bound::Unbounded }
    }

    /// Returns whether no key can lie in the range: it is reversed, or its bounds exclude the only
    /// candidates.
    pub fn is_empty(&self) -> bool {
        match (self.start, self.end) {
            (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(a), Bound::Included(b)) => a > b,
            // Nothing lies between a key and the same key with a zero byte appended.
            (Bound::Excluded(a), Bound::Excluded(b)) => a >= b || b.strip_suffix(&[0]) == Some(a),
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        }
    }

    /// Returns whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let after = match self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        after
            && match self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
            }
    }
}

/// Returns the smallest byte string above all that start with `prefix`: the excluded end of a
/// prefix scan. `None` if there is none (the prefix is empty or all `ff`) and the scan is
/// unbounded.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Keys collected for a range filter, back to back in one buffer. Any order is allowed; ascending
/// is cheapest.
#[derive(Clone, Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    unsorted: bool,
}

impl KeyList {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key.
    pub fn push(&mut self, key: &[u8]) {
        self.unsorted |= self.last().is_some_and(|last| last >= key);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Key `at`.
    ///
    /// # Panics
    /// If `at` is out of range.
    pub fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// The first key pushed.
    pub fn first(&self) -> Option<&[u8]> {
        (!self.is_empty()).then(|| self.get(0))
    }

    /// The last key pushed.
    pub fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|at| self.get(at))
    }

    /// Returns all keys in insertion order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Returns the keys in strictly ascending order, without duplicates. Free if they were pushed
    /// in that order.
    pub fn sorted(&self) -> Cow<'_, KeyList> {
        if !self.unsorted {
            return Cow::Borrowed(self);
        }
        let mut order: Vec<&[u8]> = self.iter().collect();
        order.sort_unstable();
        order.dedup();
        Cow::Owned(order.into_iter().collect())
    }
}

impl<'k> FromIterator<&'k [u8]> for KeyList {
    fn from_iter<I: IntoIterator<Item = &'k [u8]>>(keys: I) -> Self {
        let mut list = KeyList::new();
        keys.into_iter().for_each(|key| list.push(key));
        list
    }
}

impl std::fmt::Debug for KeyList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.len())
    }
}

/// Lengths from this on are indistinguishable to the map: more than the eight bytes it sees.
const LONG: usize = 9;
/// A longer common prefix is truncated to this, so that it fits a reasonably sized byte string in
/// every filter.
const MAX_PREFIX: usize = 1024;

/// The map from the byte strings of one run to integers. See the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyMap {
    prefix: Box<[u8]>,
    /// Lengths of the shortest and longest key after the prefix, at most [`LONG`].
    shortest: u8,
    longest: u8,
}

/// Where a key lies relative to a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Before every key that starts with the run's common prefix.
    Below,
    /// Among them, with this number.
    At(u64),
    /// After all of them.
    Above,
}

impl KeyMap {
    /// Creates the map for integers written as eight big-endian bytes: every key is its own number.
    pub fn integers() -> Self {
        KeyMap { prefix: Box::default(), shortest: 8, longest: 8 }
    }

    /// Creates the map for `keys`, which must be in ascending order.
    pub fn of(keys: &KeyList) -> Self {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Self::integers() };
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        // A single key keeps its last eight bytes for the number, which would otherwise carry no
        // information.
        let common = if keys.len() == 1 { common.saturating_sub(8) } else { common };
        let common = common.min(MAX_PREFIX);
        let lengths = keys.iter().map(|key| key.len().saturating_sub(common).min(LONG) as u8);
        let (shortest, longest) =
            lengths.fold((LONG as u8, 0), |(shortest, longest), n| (shortest.min(n), longest.max(n)));
        KeyMap { prefix: first[..common].into(), shortest, longest }
    }

    /// Creates a map for `keys`, which must be in ascending order, and for later keys, which may be
    /// longer or shorter. It strips no more of a common prefix than it must to see all bytes of
    /// these keys: the next keys of a series may differ from them in the byte before.
    pub(crate) fn growing(keys: &KeyList) -> Self {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            // Nothing is known of later keys, not even their lengths.
            return KeyMap { shortest: 0, ..Self::integers() };
        };
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let longest = keys.iter().map(<[u8]>::len).max().unwrap_or(0);
        let common = common.min(longest.saturating_sub(8)).min(MAX_PREFIX);
        KeyMap {
            prefix: first[..common].into(),
            shortest: 0,
            longest: (longest - common).clamp(1, LONG) as u8,
        }
    }

    /// Returns the number of `key`. Keys before all that start with the prefix have number 0, those
    /// after them the largest.
    #[inline]
    pub(crate) fn clamped(&self, key: &[u8]) -> u64 {
        match self.place(key) {
            Place::Below => 0,
            Place::At(number) => number,
            Place::Above => self.max(),
        }
    }

    /// Returns the common prefix, and the lengths of the shortest and longest key after it.
    pub(crate) fn parts(&self) -> (&[u8], u8, u8) {
        (&self.prefix, self.shortest, self.longest)
    }

    /// Returns whether different keys of the run can have the same number because they differ in
    /// bytes that the map does not see.
    pub(crate) fn is_blind(&self) -> bool {
        usize::from(self.longest) >= LONG
    }

    /// Restores a map from its [parts](Self::parts); `None` if no map has these.
    pub(crate) fn from_parts(prefix: &[u8], shortest: u32, longest: u32) -> Option<Self> {
        let (shortest, longest) = (u8::try_from(shortest).ok()?, u8::try_from(longest).ok()?);
        let sound = prefix.len() <= MAX_PREFIX && shortest <= longest && longest <= LONG as u8;
        sound.then(|| KeyMap { prefix: prefix.into(), shortest, longest })
    }

    /// Returns the bytes held outside the struct itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.prefix.len()
    }

    /// Returns the bytes in a number: later ones are zero in every key of the run, and omitted.
    fn bytes(&self) -> usize {
        usize::from(self.longest.min(8))
    }

    /// Returns the bits of a number that are omitted.
    #[inline]
    fn shift(&self) -> u32 {
        64 - 8 * self.bytes() as u32
    }

    /// Returns the largest number.
    #[inline]
    pub(crate) fn max(&self) -> u64 {
        u64::MAX.checked_shr(self.shift()).unwrap_or(0)
    }

    /// Returns where `key` lies.
    #[inline]
    pub fn place(&self, key: &[u8]) -> Place {
        // An empty prefix is not compared: some processors take a hundred nanoseconds for a masked
        // load of no bytes at an unmapped address, which a comparison with an empty box can turn
        // into.
        let rest = if self.prefix.is_empty() { Some(key) } else { key.strip_prefix(&*self.prefix) };
        match rest {
            Some(rest) => Place::At(number(rest).checked_shr(self.shift()).unwrap_or(0)),
            None if key < &*self.prefix => Place::Below,
            None => Place::Above,
        }
    }

    /// Returns the numbers that a key in `range` can have, both ends included; `None` if no key of
    /// the run can lie in it.
    #[inline]
    pub fn numbers(&self, range: KeyRange<'_>) -> Option<(u64, u64)> {
        if range.is_empty() {
            return None;
        }
        let first = match range.start {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => match self.place(key) {
                Place::Below => 0,
                Place::Above => return None,
                // Only the excluded key itself has its number: it is as long as every key of the
                // run.
                Place::At(at) if matches!(range.start, Bound::Excluded(_)) && self.owns(key) => {
                    at.checked_add(1)?
                }
                Place::At(at) => at,
            },
        };
        let last = match range.end {
            Bound::Unbounded => self.max(),
            Bound::Included(key) | Bound::Excluded(key) => match self.place(key) {
                Place::Below => return None,
                Place::Above => self.max(),
                // No key below the bound has its number: such a key would start with the bound's
                // bytes, of which there are no more than each key has and no more than the number
                // holds.
                Place::At(at)
                    if matches!(range.end, Bound::Excluded(_))
                        && usize::from(self.shortest) >= self.bytes()
                        && key.len() <= self.prefix.len() + self.bytes() =>
                {
                    at.checked_sub(1)?
                }
                Place::At(at) => at,
            },
        };
        (first <= last).then_some((first, last))
    }

    /// Returns whether `key`, which has the prefix, is the only key with its number that the run
    /// may hold.
    fn owns(&self, key: &[u8]) -> bool {
        self.shortest == self.longest && self.longest <= 8 && key.len() == self.prefix.len() + self.bytes()
    }

    /// Returns the smallest byte string whose number is `at` and that starts with the run's prefix:
    /// no key of the run with this number or a higher one is below it.
    pub fn key_at(&self, at: u64) -> Vec<u8> {
        let mut key = Vec::new();
        self.write_key_at(at, &mut key);
        key
    }

    /// Writes [`KeyMap::key_at`] into a buffer, which is overwritten.
    pub(crate) fn write_key_at(&self, at: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.prefix);
        let at = at.checked_shl(self.shift()).unwrap_or(0);
        let bytes = at.to_be_bytes();
        // Every key of the run has at least `shortest` bytes; zeros at the end of a number may be
        // padding.
        let zeros = at.trailing_zeros() as usize / 8;
        key.extend_from_slice(&bytes[..(8 - zeros.min(8)).max(usize::from(self.shortest.min(8)))]);
    }

    /// Returns the words that [`KeyMap::write_to`] appends.
    pub(crate) fn encoded_words(&self) -> usize {
        self.prefix.len().div_ceil(8) + 1
    }

    /// Appends the prefix, padded with zeros, and one word: the prefix length, and in bytes 4 and 5
    /// the shortest and longest remaining length. Written at the end of the payload, so that the
    /// filter's own words start at 0.
    pub(crate) fn write_to(&self, words: &mut Vec<u64>) {
        for chunk in self.prefix.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            words.push(u64::from_le_bytes(bytes));
        }
        let lengths = u64::from(self.shortest) << 32 | u64::from(self.longest) << 40;
        words.push(self.prefix.len() as u64 | lengths);
    }

    /// Reads what [`KeyMap::write_to`] appends.
    pub(crate) fn read<W: Words>(words: &W) -> Result<Self, FilterError> {
        let bad = FilterError::Corrupt("key map");
        let at = words.count().checked_sub(1).ok_or(bad.clone())?;
        let info = words.word(at);
        let (len, shortest, longest) = (info & bits::mask(32), (info >> 32) as u8, (info >> 40) as u8);
        if len > MAX_PREFIX as u64 || info >> 48 != 0 || usize::from(longest.max(shortest)) > LONG {
            return Err(bad);
        }
        let len = len as usize;
        let start = at.checked_sub(len.div_ceil(8)).ok_or(bad)?;
        let mut prefix: Vec<u8> = (start..at).flat_map(|word| words.word(word).to_le_bytes()).collect();
        prefix.truncate(len);
        Ok(KeyMap { prefix: prefix.into(), shortest, longest })
    }
}

/// Returns the first eight bytes, big-endian, padded with zeros.
#[inline]
fn number(rest: &[u8]) -> u64 {
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::words::Owned;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..11),
            prop::collection::vec(any::<u8>(), 8),
        ]
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
    }

    proptest! {
        #[test]
        fn numbers_cover_every_key_of_a_range(
            mut keys in prop_oneof![
                prop::collection::vec(key(), 1..8),
                prop::collection::vec(prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 8), 1..8),
                prop::collection::vec(prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 3), 1..8),
                prop::collection::vec(prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..5), 1..8),
            ],
            prefix in prop::collection::vec(any::<u8>(), 0..4),
            (start, end) in (bound(), bound()),
            below in any::<bool>(),
        ) {
            keys.iter_mut().for_each(|key| { key.splice(0..0, prefix.iter().copied()); });
            let put = |bound: Bound<Vec<u8>>| bound.map(|mut key| {
                if !below { key.splice(0..0, prefix.iter().copied()); }
                key
            });
            let (start, end) = (put(start), put(end));
            let range = KeyRange::new(start.as_ref().map(|k| &k[..]), end.as_ref().map(|k| &k[..]));
            let list: KeyList = keys.iter().map(|k| &k[..]).collect();
            let list = list.sorted();
            let map = KeyMap::of(&list);
            let mut last = None;
            for key in list.iter() {
                let Place::At(at) = map.place(key) else { panic!("a key of the run is placed outside it") };
                prop_assert!(last <= Some(at));
                last = Some(at);
                prop_assert!(map.key_at(at) <= key.to_vec());
                if range.contains(key) {
                    let (first, last) = map.numbers(range).expect("a key lies in the range");
                    prop_assert!(first <= at && at <= last);
                }
            }
            let mut words = vec![7, 7];
            map.write_to(&mut words);
            prop_assert_eq!(words.len(), 2 + map.encoded_words());
            let words: Owned = words.into();
            prop_assert_eq!(KeyMap::read(&words).unwrap(), map);
        }

        #[test]
        fn a_range_is_empty_if_its_first_key_is_beyond_its_end((start, end) in (bound(), bound()), near: bool) {
            // Random keys are seldom neighbours.
            let end = match (&start, near) {
                (Bound::Excluded(key), true) => end.map(|_| [key, &[0][..]].concat()),
                _ => end,
            };
            let range = KeyRange::new(start.as_ref().map(|k| &k[..]), end.as_ref().map(|k| &k[..]));
            let first = match &start {
                Bound::Unbounded => Vec::new(),
                Bound::Included(key) => key.clone(),
                Bound::Excluded(key) => [key, &[0][..]].concat(),
            };
            prop_assert_eq!(range.is_empty(), !range.contains(&first));
        }

        #[test]
        fn the_end_of_a_prefix_separates_it_from_what_follows(prefix in key(), key in key()) {
            match prefix_end(&prefix) {
                Some(end) => prop_assert_eq!(key.starts_with(&prefix), key >= prefix && key < end),
                None => prop_assert!(key < prefix || key.starts_with(&prefix)),
            }
        }

        #[test]
        fn sorting_drops_duplicates(keys in prop::collection::vec(key(), 0..9)) {
            let list: KeyList = keys.iter().map(|k| &k[..]).collect();
            let mut expected = keys;
            expected.sort();
            expected.dedup();
            prop_assert_eq!(list.sorted().iter().map(<[u8]>::to_vec).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn integers_keep_excluded_bounds_out() {
        let map = KeyMap::integers();
        let (a, b, last) = (5u64.to_be_bytes(), 9u64.to_be_bytes(), u64::MAX.to_be_bytes());
        let numbers = |start, end| map.numbers(KeyRange::new(start, end));
        assert_eq!(numbers(Bound::Excluded(&a[..]), Bound::Excluded(&b[..])), Some((6, 8)));
        assert_eq!(numbers(Bound::Included(&b[..]), Bound::Included(&a[..])), None);
        assert_eq!(numbers(Bound::Included(&a[..]), Bound::Excluded(&a[..])), None);
        assert_eq!(numbers(Bound::Excluded(&last[..]), Bound::Unbounded), None);
        assert_eq!(numbers(Bound::Unbounded, Bound::Excluded(&[])), None);
    }

    #[test]
    fn neighbours_have_neighbouring_numbers() {
        // 32-bit integers in eight bytes, 32-bit integers in four, and three dense bytes.
        let runs: [Vec<Vec<u8>>; 3] = [
            [7u64, 1 << 31].map(|n| n.to_be_bytes().to_vec()).to_vec(),
            [7u32, 1 << 31].map(|n| n.to_be_bytes().to_vec()).to_vec(),
            vec![vec![9, 0, 0, 7], vec![9, 1, 2, 3]],
        ];
        for run in runs {
            let list: KeyList = run.iter().map(|key| &key[..]).collect();
            let map = KeyMap::of(&list);
            let mut after = run[0].clone();
            *after.last_mut().unwrap() += 1;
            assert_eq!(map.place(&run[0]), Place::At(7));
            let longer = [&after[..], &[0]].concat();
            let range = |start, end| map.numbers(KeyRange::new(start, end));
            assert_eq!(range(Bound::Included(&run[0][..]), Bound::Included(&after[..])), Some((7, 8)));
            assert_eq!(range(Bound::Excluded(&run[0][..]), Bound::Included(&after[..])), Some((8, 8)));
            assert_eq!(range(Bound::Included(&run[0][..]), Bound::Excluded(&after[..])), Some((7, 7)));
            assert_eq!(map.key_at(7), run[0]);
            // A bound longer than all keys lies after the key that it starts with.
            assert_eq!(
                range(Bound::Included(&longer[..]), Bound::Unbounded).map(|(first, _)| first),
                Some(8)
            );
            assert_eq!(range(Bound::Unbounded, Bound::Excluded(&longer[..])).map(|(_, last)| last), Some(8));
        }
    }

    /// The map of no keys used to take later keys for integers of eight bytes, so a walk concluded
    /// that key `a` could not come before `a` with seven zeros.
    #[test]
    fn a_map_of_no_keys_assumes_no_lengths() {
        let (map, mut lowest) = (KeyMap::growing(&KeyList::new()), Vec::new());
        for key in [&b"a"[..], b"", b"abcdefgh", b"abcdefghi"] {
            map.write_key_at(map.clamped(key), &mut lowest);
            assert!(&lowest[..] <= key, "{lowest:?} is behind {key:?}");
        }
    }

    #[test]
    fn hostile_maps_are_rejected() {
        for words in [vec![], vec![u64::MAX], vec![9], vec![1 << 47], vec![5_000; 2000]] {
            let words: Owned = words.into();
            assert!(KeyMap::read(&words).is_err());
        }
    }
}
