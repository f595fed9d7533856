//! Keys of eight bytes from a list of numbers, for distributions without a formula over a key's
//! number.

use std::collections::HashSet;
use std::sync::Arc;

use crate::keys::KeySetError;
use crate::keys::drawn::Distribution;
use crate::random::{Permutation, Random};

/// The maximum number of keys in an empty range after an existing key.
const RANGE_KEYS: u64 = 64;

/// The maximum number of absent keys kept.
const MOST_ABSENT: u64 = 1 << 20;

/// Distinct numbers, big-endian, and absent ones of the same distribution.
///
/// Existing keys are numbered in random order or, in a shifted set, those of the first distribution
/// in random order and then those of the second. Takes 16 bytes per existing key and 8 per absent
/// key.
#[derive(Clone, Debug)]
pub struct Numbers {
    name: String,
    // Shared by clones: every side of an experiment has one.
    keys: Arc<[u64]>,
    sorted: Arc<[u64]>,
    absent: Arc<[u64]>,
}

impl Numbers {
    /// Returns `count` keys of one distribution.
    pub(crate) fn new(from: Distribution, count: u64, seed: u64) -> Result<Self, KeySetError> {
        let (count, absent) = (count.max(1), count.clamp(1, MOST_ABSENT));
        let mut keys = shuffled(from.draw(count + absent, seed)?, seed);
        let absent = keys.split_off(count as usize);
        Ok(Numbers::of(from.name().to_owned(), keys, absent))
    }

    /// Returns `first` keys of one distribution and then keys of another, `count` in all. Half of
    /// the absent keys are of each.
    pub(crate) fn shifted(
        from: Distribution,
        to: Distribution,
        first: u64,
        count: u64,
        seed: u64,
    ) -> Result<Self, KeySetError> {
        let count = count.max(2);
        let first = first.clamp(1, count - 1);
        let absent = count.clamp(2, MOST_ABSENT) / 2;
        let mut keys = shuffled(from.draw(first + absent, seed)?, seed);
        let mut none = keys.split_off(first as usize);
        let taken: HashSet<u64> = keys.iter().chain(&none).copied().collect();
        // Both may draw the same numbers: draw as many extra as could coincide, then keep only the
        // new ones.
        let wanted = (count - first + absent) as usize;
        let more = shuffled(to.draw(wanted as u64 + taken.len() as u64, seed ^ 1)?, seed ^ 1);
        let mut more = more.into_iter().filter(|number| !taken.contains(number));
        keys.extend(more.by_ref().take((count - first) as usize));
        none.extend(more.take(absent as usize));
        Ok(Numbers::of(format!("{}-then-{}", from.name(), to.name()), keys, none))
    }

    fn of(name: String, keys: Vec<u64>, absent: Vec<u64>) -> Self {
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        Numbers { name, keys: keys.into(), sorted: sorted.into(), absent: absent.into() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn len(&self) -> u64 {
        self.keys.len() as u64
    }

    pub(crate) fn absent_len(&self) -> u64 {
        self.absent.len() as u64
    }

    pub(crate) fn existing(&self, i: u64) -> [u8; 8] {
        self.keys[i as usize].to_be_bytes()
    }

    pub(crate) fn absent(&self, i: u64) -> [u8; 8] {
        self.absent[i as usize].to_be_bytes()
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        <[u8; 8]>::try_from(key).is_ok_and(|key| self.sorted.binary_search(&u64::from_be_bytes(key)).is_ok())
    }

    /// Appends the bounds of the up to 64 numbers right after key `i`, ending before the next key.
    pub(crate) fn empty_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) -> bool {
        let key = self.keys[i as usize];
        let next = self.sorted.partition_point(|&other| other <= key);
        let end = key.saturating_add(RANGE_KEYS);
        let end = self.sorted.get(next).map_or(end, |&next| end.min(next - 1));
        if end < key.saturating_add(2) {
            return false;
        }
        low.extend_from_slice(&(key + 1).to_be_bytes());
        high.extend_from_slice(&end.to_be_bytes());
        true
    }

    /// Appends the bounds of up to 64 numbers starting at absent key `i`, ending before the next
    /// key.
    pub(crate) fn absent_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) {
        let key = self.absent[i as usize];
        let next = self.sorted.partition_point(|&other| other <= key);
        let end = key.saturating_add(RANGE_KEYS - 1);
        let end = self.sorted.get(next).map_or(end, |&next| end.min(next - 1));
        low.extend_from_slice(&key.to_be_bytes());
        high.extend_from_slice(&end.to_be_bytes());
    }

    pub(crate) fn ascending(&self) -> Vec<u64> {
        let mut order: Vec<u64> = (0..self.len()).collect();
        order.sort_unstable_by_key(|&i| self.keys[i as usize]);
        order
    }
}

fn shuffled(numbers: Vec<u64>, seed: u64) -> Vec<u64> {
    let order = Permutation::new(numbers.len() as u64, Random::part(seed, 0x7368_7566).next_u64());
    (0..numbers.len() as u64).map(|i| numbers[order.at(i) as usize]).collect()
}
