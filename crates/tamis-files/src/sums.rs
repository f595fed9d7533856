//! Sums of records. Equal sums show that a set of records went through memory unchanged.
//!
//! Writer and reader each add up what they see, and compare. The order does not matter, so that
//! threads may add in parallel. A record that is lost, changed or there twice changes the sum, but
//! for a chance of 2^-64. Sums guard against faults of memory and processor, not against attacks,
//! and are never stored.

use xxhash_rust::xxh3::xxh3_64;

/// Odd, with bits drawn at random.
const SPREAD: [u64; 3] = [0x9fb2_1c65_1e98_df25, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

/// The hash of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHash(u64);

impl RecordHash {
    /// Hashes a record: what it is, its key, and its value. Cost: one pass over both.
    #[inline]
    pub fn of(tag: u8, key: &[u8], value: &[u8]) -> RecordHash {
        let key = (xxh3_64(key) ^ u64::from(tag).wrapping_mul(SPREAD[0])).wrapping_mul(SPREAD[1]);
        RecordHash(key.rotate_left(32) ^ xxh3_64(value))
    }
}

/// A sum of records, each with a number, such as its sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordSum(u64);

impl RecordSum {
    /// Returns the sum with this value.
    pub fn from_u64(sum: u64) -> RecordSum {
        RecordSum(sum)
    }

    /// Returns what one record contributes.
    #[inline]
    pub fn term(hash: RecordHash, number: u64) -> u64 {
        let mixed = (hash.0 ^ number.wrapping_mul(SPREAD[0])).wrapping_mul(SPREAD[2]);
        (mixed ^ mixed >> 32).wrapping_mul(SPREAD[1])
    }

    /// Adds a record.
    #[inline]
    pub fn add(&mut self, hash: RecordHash, number: u64) {
        self.0 = self.0.wrapping_add(RecordSum::term(hash, number));
    }

    /// Adds all records of another sum.
    #[inline]
    pub fn add_all(&mut self, other: RecordSum) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Record<'a> = (u8, &'a [u8], &'a [u8], u64);

    fn sum(records: &[Record<'_>]) -> RecordSum {
        let mut sum = RecordSum::default();
        records
            .iter()
            .for_each(|&(tag, key, value, number)| sum.add(RecordHash::of(tag, key, value), number));
        sum
    }

    #[test]
    fn the_order_does_not_matter_and_anything_else_does() {
        let records: [Record<'_>; 3] = [(1, b"key", b"value", 7), (1, b"other", b"", 8), (0, b"key", b"", 9)];
        let whole = sum(&records);
        let mut reversed = records;
        reversed.reverse();
        assert_eq!(sum(&reversed), whole);
        let changed: [Record<'_>; 6] = [
            (2, b"key", b"value", 7),
            (1, b"kex", b"value", 7),
            (1, b"key", b"valuf", 7),
            (1, b"key", b"value", 6),
            (1, b"keyv", b"alue", 7),
            (1, b"value", b"key", 7),
        ];
        for record in changed {
            assert_ne!(sum(&[record, records[1], records[2]]), whole, "{record:?}");
        }
        assert_ne!(sum(&records[..2]), whole);
        assert_ne!(sum(&[records[0], records[1], records[2], records[2]]), whole);
        // Numbers of two records swapped, and of two that differ in them alone.
        let swapped: [Record<'_>; 2] = [(1, b"key", b"value", 8), (1, b"other", b"", 7)];
        assert_ne!(sum(&swapped), sum(&records[..2]));
    }
}
