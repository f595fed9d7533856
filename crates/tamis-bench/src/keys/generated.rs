//! Keys of one width, generated from numbers.

use crate::keys::KeySetError;
use crate::random::{Bijection, mix64};

/// The layout of a generated set's keys in the key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Spread over the whole space, in random order.
    Uniform,
    /// Ascending, 128 apart.
    Sequential,
}

/// The distance between sequential keys, which leaves room for absent keys and empty ranges.
const SPACING: u64 = 128;

/// The number of keys of the same width between two sequential keys, all of them absent.
pub const GAP_KEYS: u64 = SPACING - 1;

/// The number of keys spanned by a range between two keys.
const RANGE_KEYS: u64 = 64;

/// `count` keys of `width` bytes.
///
/// A uniform key is the image of its number under a seeded bijection, big-endian in the first (up
/// to) 8 bytes; the bytes after them are a function of the first 8. Absent keys are the images of
/// the numbers from `count` on: disjoint because a bijection maps no two numbers to one. A
/// sequential key is 128 times its number, big-endian in the last (up to) 8 bytes after zeros;
/// absent keys lie halfway between two.
#[derive(Clone, Debug)]
pub struct Generated {
    order: Order,
    count: u64,
    width: usize,
    head: usize,
    bijection: Bijection,
}

impl Generated {
    pub(crate) fn new(order: Order, count: u64, width: usize, seed: u64) -> Result<Self, KeySetError> {
        if !(1..=tamis::MAX_KEY_BYTES).contains(&width) {
            return Err(KeySetError::Width { width });
        }
        let head = width.min(8);
        let space = 1u128 << (8 * head);
        let per_key = match order {
            Order::Uniform => 2,
            Order::Sequential => u128::from(SPACING),
        };
        if u128::from(count) * per_key > space {
            return Err(KeySetError::TooNarrow { width, count });
        }
        let count = count.max(1);
        Ok(Generated { order, count, width, head, bijection: Bijection::new(8 * head as u32, seed) })
    }

    /// Returns `uniform` or `sequential`.
    pub fn name(&self) -> &'static str {
        match self.order {
            Order::Uniform => "uniform",
            Order::Sequential => "sequential",
        }
    }

    /// Returns the length of every key in bytes.
    pub fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    pub(crate) fn absent_len(&self) -> u64 {
        match self.order {
            // Many, so that absent keys are rarely repeated; at least as many as exist.
            Order::Uniform => {
                let space = 1u128 << (8 * self.head);
                (space - u128::from(self.count)).min(u128::from(self.count.max(1 << 32))) as u64
            }
            Order::Sequential => self.count,
        }
    }

    pub(crate) fn existing(&self, i: u64, out: &mut Vec<u8>) {
        debug_assert!(i < self.count);
        match self.order {
            Order::Uniform => self.push(self.bijection.forward(i), out),
            Order::Sequential => self.push(i * SPACING, out),
        }
    }

    pub(crate) fn absent(&self, i: u64, out: &mut Vec<u8>) {
        debug_assert!(i < self.absent_len());
        match self.order {
            Order::Uniform => self.push(self.bijection.forward(self.count + i), out),
            Order::Sequential => self.push(i * SPACING + SPACING / 2, out),
        }
    }

    /// See [`KeySet::gap_key`](crate::KeySet::gap_key).
    pub(crate) fn gap_key(&self, i: u64, n: u64, out: &mut Vec<u8>) {
        debug_assert!(i < self.count && n < GAP_KEYS && self.order == Order::Sequential);
        self.push(i * SPACING + 1 + n, out);
    }

    /// Reports whether key `i` is the `i`-th smallest.
    pub(crate) fn is_sequential(&self) -> bool {
        self.order == Order::Sequential
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        if key.len() != self.width {
            return false;
        }
        let number = self.number_of(key);
        let i = match self.order {
            Order::Uniform => self.bijection.inverse(number),
            Order::Sequential if number.is_multiple_of(SPACING) => number / SPACING,
            Order::Sequential => return false,
        };
        let mut same = Vec::with_capacity(self.width);
        i < self.count && {
            self.existing(i, &mut same);
            same == key
        }
    }

    pub(crate) fn empty_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) -> bool {
        let start = (low.len(), high.len());
        self.existing(i, low);
        self.existing(i, high);
        add(&mut low[start.0..], 1) && add(&mut high[start.1..], RANGE_KEYS)
    }

    pub(crate) fn absent_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) {
        let start = high.len();
        self.absent(i, low);
        self.absent(i, high);
        if !add(&mut high[start..], RANGE_KEYS - 1) {
            // Beyond the last key of this width.
            high[start..].fill(0xFF);
        }
    }

    pub(crate) fn ascending(&self) -> Vec<u64> {
        let mut order: Vec<u64> = (0..self.count).collect();
        if self.order == Order::Uniform {
            // Sorting the keys' numbers and mapping them back needs no second array of pairs.
            for slot in &mut order {
                *slot = self.bijection.forward(*slot);
            }
            order.sort_unstable();
            for slot in &mut order {
                *slot = self.bijection.inverse(*slot);
            }
        }
        order
    }

    fn push(&self, number: u64, out: &mut Vec<u8>) {
        let head = &number.to_be_bytes()[8 - self.head..];
        let rest = self.width - self.head;
        if self.order == Order::Sequential {
            out.resize(out.len() + rest, 0);
            out.extend_from_slice(head);
            return;
        }
        out.extend_from_slice(head);
        let mut left = rest;
        let mut word = 0;
        while left > 0 {
            word += 1;
            let bytes = mix64(number ^ mix64(word)).to_le_bytes();
            let take = left.min(8);
            out.extend_from_slice(&bytes[..take]);
            left -= take;
        }
    }

    /// Returns the number from the bytes in which [`push`](Generated::push) stores it.
    fn number_of(&self, key: &[u8]) -> u64 {
        let head = match self.order {
            Order::Uniform => &key[..self.head],
            Order::Sequential => &key[self.width - self.head..],
        };
        head.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

/// Adds to a big-endian number of any width. Returns false, leaving garbage, on overflow.
fn add(number: &mut [u8], by: u64) -> bool {
    let mut carry = by;
    for byte in number.iter_mut().rev() {
        carry += u64::from(*byte);
        *byte = carry as u8;
        carry >>= 8;
        if carry == 0 {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_endian_addition_carries_and_overflows() {
        let mut n = [0x00, 0xFF, 0xFE];
        assert!(add(&mut n, 1) && n == [0x00, 0xFF, 0xFF]);
        assert!(add(&mut n, 64) && n == [0x01, 0x00, 0x3F]);
        assert!(!add(&mut [0xFF, 0xFF], 1));
    }

    #[test]
    fn eight_byte_keys_are_the_bijection_itself() {
        let g = Generated::new(Order::Uniform, 10, 8, 42).unwrap();
        let mut key = Vec::new();
        g.existing(3, &mut key);
        assert_eq!(key, Bijection::new(64, 42).forward(3).to_be_bytes());
    }
}
