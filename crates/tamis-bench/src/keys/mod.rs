//! Key sets: existing keys, keys known to be absent, and empty ranges.
//!
//! Invariants of every set, on which all checks of answers depend:
//!
//! * keys `existing(0..len)` are distinct, in no particular byte order unless the set says so;
//! * keys `absent(0..absent_len)` are distinct, and none of them exists;
//! * both are pure functions of the set's parameters: another process generates the same keys.

mod drawn;
mod generated;
mod listed;
mod numbers;

use std::io::BufRead;

pub use drawn::{Distribution, cell, places};
pub use generated::{GAP_KEYS, Generated, Order};
pub use listed::Listed;
pub use numbers::Numbers;

use crate::error::BenchError;

/// The reason why a key set cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// There are not enough different keys of that width.
    #[error(
        "keys of {width} bytes cannot hold {count} existing keys and as many absent ones; use wider keys"
    )]
    TooNarrow {
        /// The length of a key in bytes.
        width: usize,
        /// The number of keys requested.
        count: u64,
    },
    /// The keys are empty, or longer than the engine accepts.
    #[error("keys of {width} bytes are out of range: 1 to {max}", max = tamis::MAX_KEY_BYTES)]
    Width {
        /// The length of a key in bytes.
        width: usize,
    },
    /// A list with too few different keys.
    #[error("{name} holds {found} different keys; at least {needed} are needed")]
    TooFew {
        /// The source of the keys.
        name: String,
        /// The number of different keys found.
        found: usize,
        /// The minimum required.
        needed: usize,
    },
}

/// A set of keys to load and to read.
#[derive(Clone, Debug)]
pub enum KeySet {
    /// Generated from numbers.
    Generated(Generated),
    /// Read from a list.
    Listed(Listed),
    /// Drawn from a distribution.
    Numbers(Numbers),
}

impl KeySet {
    /// Returns `count` keys of `width` bytes spread uniformly (the first 8 bytes are a seeded
    /// bijection of the key's number, big-endian).
    pub fn uniform(count: u64, width: usize, seed: u64) -> Result<KeySet, KeySetError> {
        Generated::new(Order::Uniform, count, width, seed).map(KeySet::Generated)
    }

    /// Returns `count` ascending keys of `width` bytes, 128 apart.
    pub fn sequential(count: u64, width: usize) -> Result<KeySet, KeySetError> {
        Generated::new(Order::Sequential, count, width, 0).map(KeySet::Generated)
    }

    /// Returns `count` keys of 8 bytes drawn from a distribution, big-endian.
    pub fn drawn(from: Distribution, count: u64, seed: u64) -> Result<KeySet, KeySetError> {
        Numbers::new(from, count, seed).map(KeySet::Numbers)
    }

    /// Returns `count` keys of 8 bytes: the first `first` drawn from one distribution, the others
    /// from another.
    pub fn shifted(
        from: Distribution,
        to: Distribution,
        first: u64,
        count: u64,
        seed: u64,
    ) -> Result<KeySet, KeySetError> {
        Numbers::shifted(from, to, first, count, seed).map(KeySet::Numbers)
    }

    /// Returns the distinct keys of a list; every tenth in key order is held out and serves as an
    /// absent key. At most `limit` keys are used (all if 0).
    pub fn listed(name: &str, keys: Vec<Vec<u8>>, limit: u64) -> Result<KeySet, KeySetError> {
        Listed::new(name, keys, limit).map(KeySet::Listed)
    }

    /// Reads one key per line, without the line end; skips empty lines.
    pub fn from_lines(name: &str, mut lines: impl BufRead, limit: u64) -> Result<KeySet, BenchError> {
        let mut keys = Vec::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            let read =
                read.map_err(|source| BenchError::Io { operation: "read", path: name.into(), source })?;
            if read == 0 {
                break;
            }
            let key = line.strip_suffix(b"\n").unwrap_or(&line);
            let key = key.strip_suffix(b"\r").unwrap_or(key);
            if key.len() > tamis::MAX_KEY_BYTES {
                return Err(KeySetError::Width { width: key.len() }.into());
            }
            if !key.is_empty() {
                keys.push(key.to_vec());
            }
        }
        Ok(KeySet::listed(name, keys, limit)?)
    }

    /// Returns the set's name in reports.
    pub fn name(&self) -> &str {
        match self {
            KeySet::Generated(g) => g.name(),
            KeySet::Listed(l) => l.name(),
            KeySet::Numbers(n) => n.name(),
        }
    }

    /// Returns the number of existing keys.
    #[expect(clippy::len_without_is_empty, reason = "no key set is empty")]
    pub fn len(&self) -> u64 {
        match self {
            KeySet::Generated(g) => g.len(),
            KeySet::Listed(l) => l.len(),
            KeySet::Numbers(n) => n.len(),
        }
    }

    /// Returns the number of known absent keys; at least 1.
    pub fn absent_len(&self) -> u64 {
        match self {
            KeySet::Generated(g) => g.absent_len(),
            KeySet::Listed(l) => l.absent_len(),
            KeySet::Numbers(n) => n.absent_len(),
        }
    }

    /// Returns the mean length of a key in bytes.
    pub fn key_bytes(&self) -> f64 {
        match self {
            KeySet::Generated(g) => g.width() as f64,
            KeySet::Listed(l) => l.mean_bytes(),
            KeySet::Numbers(_) => 8.0,
        }
    }

    /// Appends existing key `i` to `out`.
    #[inline]
    pub fn existing(&self, i: u64, out: &mut Vec<u8>) {
        match self {
            KeySet::Generated(g) => g.existing(i, out),
            KeySet::Listed(l) => out.extend_from_slice(l.existing(i)),
            KeySet::Numbers(n) => out.extend_from_slice(&n.existing(i)),
        }
    }

    /// Appends absent key `i` to `out`.
    #[inline]
    pub fn absent(&self, i: u64, out: &mut Vec<u8>) {
        match self {
            KeySet::Generated(g) => g.absent(i, out),
            KeySet::Listed(l) => out.extend_from_slice(l.absent(i)),
            KeySet::Numbers(n) => out.extend_from_slice(&n.absent(i)),
        }
    }

    /// Reports whether existing key `i` is the `i`-th smallest, so that consecutive numbers are
    /// adjacent in key order.
    pub fn is_ordered(&self) -> bool {
        matches!(self, KeySet::Generated(g) if g.is_sequential())
    }

    /// Appends the `n`-th of the [`GAP_KEYS`] absent keys between existing key `i` and the next.
    /// Only for [sequential](KeySet::sequential) sets.
    pub fn gap_key(&self, i: u64, n: u64, out: &mut Vec<u8>) {
        match self {
            KeySet::Generated(g) => g.gap_key(i, n, out),
            KeySet::Listed(_) | KeySet::Numbers(_) => unreachable!("only sequential sets have known gaps"),
        }
    }

    /// Reports whether `key` is one of the existing keys.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeySet::Generated(g) => g.contains(key),
            KeySet::Listed(l) => l.contains(key),
            KeySet::Numbers(n) => n.contains(key),
        }
    }

    /// Appends to `low` and `high` the inclusive bounds of a narrow range right after existing key
    /// `i`: the next 64 keys of its width or, in a list, the keys that start with the key and one
    /// more small byte. Such a range is empty unless two uniform keys are neighbours by chance
    /// (once in 10^10 for millions of 8-byte keys), which [`contains`](KeySet::contains) detects.
    /// Returns false if there is no such range.
    pub fn empty_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) -> bool {
        match self {
            KeySet::Generated(g) => g.empty_range(i, low, high),
            KeySet::Listed(l) => l.empty_range(i, low, high),
            KeySet::Numbers(n) => n.empty_range(i, low, high),
        }
    }

    /// Appends to `low` and `high` the inclusive bounds of a narrow range that starts at absent key
    /// `i`: it and the next 63 keys of its width (fewer if an existing key follows sooner) or, in a
    /// list, the key and the keys that start with it and one more small byte. As with
    /// [`empty_range`](KeySet::empty_range), two random keys may be neighbours.
    pub fn absent_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) {
        match self {
            KeySet::Generated(g) => g.absent_range(i, low, high),
            KeySet::Listed(l) => l.absent_range(i, low, high),
            KeySet::Numbers(n) => n.absent_range(i, low, high),
        }
    }

    /// Returns the numbers of the existing keys in ascending key order. Takes 8 bytes per key.
    pub fn ascending(&self) -> Vec<u64> {
        match self {
            KeySet::Generated(g) => g.ascending(),
            KeySet::Listed(l) => (0..l.len()).collect(),
            KeySet::Numbers(n) => n.ascending(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keys_of(set: &KeySet, absent: bool) -> Vec<Vec<u8>> {
        let n = if absent { set.absent_len().min(3000) } else { set.len() };
        let one = |i| {
            let mut key = Vec::new();
            if absent {
                set.absent(i, &mut key)
            } else {
                set.existing(i, &mut key)
            }
            key
        };
        (0..n).map(one).collect()
    }

    fn sets() -> Vec<KeySet> {
        let words: Vec<Vec<u8>> = (0..2500u32).map(|i| format!("word-{}", i % 2000).into_bytes()).collect();
        vec![
            KeySet::uniform(2000, 8, 1).unwrap(),
            KeySet::uniform(2000, 2, 1).unwrap(),
            KeySet::uniform(2000, 3, 9).unwrap(),
            KeySet::uniform(2000, 37, 9).unwrap(),
            KeySet::sequential(2000, 8).unwrap(),
            KeySet::sequential(2000, 20).unwrap(),
            KeySet::sequential(500, 2).unwrap(),
            KeySet::listed("words", words, 0).unwrap(),
            KeySet::drawn(Distribution::Uniform50, 2000, 1).unwrap(),
            KeySet::drawn(Distribution::Normal, 2000, 2).unwrap(),
            KeySet::drawn(Distribution::Cells, 2000, 3).unwrap(),
            KeySet::drawn(Distribution::Books, 2000, 4).unwrap(),
            KeySet::drawn(Distribution::Fb, 2000, 5).unwrap(),
            KeySet::shifted(Distribution::Fb, Distribution::Fb, 1500, 2000, 6).unwrap(),
        ]
    }

    #[test]
    fn existing_keys_are_distinct_and_absent_ones_do_not_exist() {
        for set in sets() {
            let existing: BTreeSet<Vec<u8>> = keys_of(&set, false).into_iter().collect();
            let absent: BTreeSet<Vec<u8>> = keys_of(&set, true).into_iter().collect();
            assert_eq!(existing.len() as u64, set.len(), "{set:?}");
            assert_eq!(absent.len() as u64, set.absent_len().min(3000), "{set:?}");
            assert!(existing.is_disjoint(&absent), "{set:?}");
            assert!(existing.iter().all(|k| set.contains(k)));
            assert!(!absent.iter().any(|k| set.contains(k)));
        }
    }

    #[test]
    fn ascending_numbers_give_ascending_keys() {
        for set in sets() {
            let order = set.ascending();
            assert_eq!(order.len() as u64, set.len());
            let key = |&i: &u64| {
                let mut key = Vec::new();
                set.existing(i, &mut key);
                key
            };
            assert!(order.iter().map(key).is_sorted_by(|a, b| a < b), "{set:?}");
        }
    }

    /// Reports whether neighbours are common.
    fn is_dense(set: &KeySet) -> bool {
        matches!(set, KeySet::Generated(g) if g.width() < 4 && g.name() == "uniform")
    }

    #[test]
    fn empty_ranges_hold_no_key() {
        for set in sets() {
            if is_dense(&set) {
                continue;
            }
            let existing: BTreeSet<Vec<u8>> = keys_of(&set, false).into_iter().collect();
            let mut made = 0;
            for i in 0..set.len() {
                let (mut low, mut high, mut key) = (Vec::new(), Vec::new(), Vec::new());
                if set.empty_range(i, &mut low, &mut high) {
                    set.existing(i, &mut key);
                    assert!(key < low && low < high);
                    assert_eq!(existing.range(low..=high).next(), None, "{set:?} behind {key:?}");
                    made += 1;
                }
            }
            assert!(made > set.len() / 2);
        }
    }

    #[test]
    fn ranges_from_absent_keys_hold_no_key() {
        for set in sets() {
            if is_dense(&set) {
                continue;
            }
            let existing: BTreeSet<Vec<u8>> = keys_of(&set, false).into_iter().collect();
            for i in 0..set.absent_len().min(3000) {
                let (mut low, mut high, mut key) = (Vec::new(), Vec::new(), Vec::new());
                set.absent_range(i, &mut low, &mut high);
                set.absent(i, &mut key);
                assert!(key == low && low <= high);
                assert_eq!(existing.range(low..=high).next(), None, "{set:?} from {key:?} on");
            }
        }
    }

    #[test]
    fn a_width_that_cannot_hold_the_keys_is_rejected() {
        assert!(matches!(KeySet::uniform(200, 1, 0), Err(KeySetError::TooNarrow { .. })));
        assert!(KeySet::uniform(128, 1, 0).is_ok());
        assert!(matches!(KeySet::uniform(1, 0, 0), Err(KeySetError::Width { .. })));
        assert!(matches!(KeySet::uniform(1, 65537, 0), Err(KeySetError::Width { .. })));
        assert!(matches!(KeySet::sequential(513, 2), Err(KeySetError::TooNarrow { .. })));
        assert!(matches!(KeySet::uniform(u64::MAX, 8, 0), Err(KeySetError::TooNarrow { .. })));
    }

    #[test]
    fn lines_become_keys_without_their_ends() {
        let set = KeySet::from_lines("x", &b"b\r\n\na\nb\nc\nlast"[..], 0).unwrap();
        assert_eq!(keys_of(&set, false), [&b"a"[..], b"b", b"c"]);
        assert_eq!(keys_of(&set, true), [&b"last"[..]]);
        assert!(matches!(
            KeySet::from_lines("x", &b"one\n"[..], 0),
            Err(BenchError::Keys(KeySetError::TooFew { .. }))
        ));
    }

    #[test]
    fn a_limit_cuts_a_list() {
        let keys = || (0..100u8).map(|i| vec![i]).collect();
        let set = KeySet::listed("x", keys(), 20).unwrap();
        assert_eq!((set.len(), set.absent_len()), (18, 2));
        assert_eq!(KeySet::listed("x", keys(), 0).unwrap().len(), 90);
    }
}
