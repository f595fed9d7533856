//! Where one symbol has nearly all entries of a block, the ranks of the others: the *exceptions*,
//! in Elias–Fano coding.
//!
//! ```text
//! for each bucket of 2^low ranks a one per exception in it, then a zero
//! the low bits of each exception's rank
//! ```
//!
//! An exception takes `low + 1` bits and each entry `2^-low`: with a tenth of the entries 0.53 bits
//! an entry, where a level of its own (`names.rs`) takes one and the entropy is 0.47. Only what
//! matches is decoded: a probe looks into the bucket of its entry's rank.
//!
//! Reads are total, as everywhere in a set: whatever the bits are, there are at most as many
//! exceptions as entries.

use crate::bits::{mask, select_in_word};

use super::set::Bits;

/// Maximum number of low bits.
pub(super) const MAX_LOW: u32 = 10;
/// Bits looked at together.
const STEP: u64 = 56;

/// See the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Exceptions {
    pub(super) low: u32,
}

/// The exceptions of a block: how many there are, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) count: u64,
    /// The first bit of the ranks' low bits.
    lows: u64,
    /// The bit behind them all.
    pub(super) end: u64,
}

impl Exceptions {
    /// Returns the best code for exceptions with this share of the entries, and its bits per entry.
    pub(super) fn of_share(share: f64) -> (Self, f64) {
        let costs = (1..=MAX_LOW)
            .map(|low| (Self { low }, share * f64::from(low + 1) + f64::from(low).exp2().recip()));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are some")
    }

    /// Returns the bits that every entry takes.
    pub(super) fn bits_of_all(self) -> f64 {
        f64::from(self.low).exp2().recip()
    }

    /// Returns the bits that an exception takes in addition.
    pub(super) fn bits_of_one(self) -> u32 {
        self.low + 1
    }

    fn buckets(self, entries: u64) -> u64 {
        entries.div_ceil(1 << self.low)
    }

    /// Calls `push` with width and value of what stands for exceptions of these ranks, which
    /// ascend, among so many entries.
    pub(super) fn encode(self, entries: u64, ranks: &[u64], mut push: impl FnMut(u32, u64)) {
        let mut bucket = 0;
        for rank in ranks {
            while bucket < rank >> self.low {
                push(1, 0);
                bucket += 1;
            }
            push(1, 1);
        }
        (bucket..self.buckets(entries)).for_each(|_| push(1, 0));
        ranks.iter().for_each(|rank| push(self.low, rank & mask(self.low)));
    }

    /// Returns where the exceptions among `entries` are, stored from bit `at` on, and where the
    /// bucket of `rank` starts.
    #[inline]
    fn scan(self, bits: Bits<'_>, at: u64, entries: u64, rank: u64) -> (Stored, u64) {
        let (buckets, bucket) = (self.buckets(entries), rank >> self.low);
        let most = entries + buckets;
        let (mut zeros, mut place, mut start, mut end) = (0, 0, None, most);
        if bucket == 0 {
            start = Some(0);
        }
        while place < most {
            let here = !bits.read(at + place, STEP as u32) & mask(STEP as u32);
            let after = zeros + u64::from(here.count_ones());
            if start.is_none() && bucket <= after {
                start = Some(place + u64::from(select_in_word(here, (bucket - 1 - zeros) as u32)) + 1);
            }
            if buckets <= after {
                end = place + u64::from(select_in_word(here, (buckets - 1 - zeros) as u32)) + 1;
                break;
            }
            (zeros, place) = (after, place + STEP);
        }
        let end = end.min(most);
        let count = end - buckets.min(end);
        let stored = Stored { count, lows: at + end, end: at + end + count * u64::from(self.low) };
        (stored, start.unwrap_or(end).min(end))
    }

    /// Returns where the exceptions among `entries` are, stored from bit `at` on.
    pub(super) fn stored(self, bits: Bits<'_>, at: u64, entries: u64) -> Stored {
        self.scan(bits, at, entries, 0).0
    }

    /// Returns the number of the exception that the entry of `rank` is, if it is one.
    #[inline]
    pub(super) fn find(self, bits: Bits<'_>, at: u64, entries: u64, rank: u64) -> (Stored, Option<u64>) {
        let (stored, start) = self.scan(bits, at, entries, rank);
        let (mut place, wanted) = (start, rank & mask(self.low));
        let mut nth = start.saturating_sub(rank >> self.low);
        while nth < stored.count && bits.read(at + place, 1) == 1 {
            let here = bits.read(stored.lows + nth * u64::from(self.low), self.low);
            if here >= wanted {
                return (stored, (here == wanted).then_some(nth));
            }
            (place, nth) = (place + 1, nth + 1);
        }
        (stored, None)
    }

    /// Writes to `ranks`, which is overwritten, those of all exceptions; each is less than
    /// `entries`.
    pub(super) fn ranks(self, bits: Bits<'_>, at: u64, entries: u64, ranks: &mut Vec<u64>) -> Stored {
        let stored = self.stored(bits, at, entries);
        ranks.clear();
        let (mut place, mut bucket) = (0, 0);
        while (ranks.len() as u64) < stored.count && at + place < stored.lows {
            if bits.read(at + place, 1) == 0 {
                bucket += 1;
            } else {
                let nth = ranks.len() as u64;
                let low = bits.read(stored.lows + nth * u64::from(self.low), self.low);
                ranks.push((bucket << self.low | low).min(entries - 1));
            }
            place += 1;
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bits::Appender;

    proptest! {
        #[test]
        fn exceptions_come_back(
            picks in prop::collection::btree_set(0u64..700, 0..120),
            more in 1u64..200,
            low in 1..=MAX_LOW,
            start in 0u64..70,
        ) {
            let code = Exceptions { low };
            let ranks: Vec<u64> = picks.iter().copied().collect();
            let entries = ranks.last().map_or(0, |last| last + 1) + more - 1;
            prop_assume!(entries > 0);
            let mut words = vec![0u64; 400];
            let mut appender = Appender::new(&mut words, start);
            code.encode(entries, &ranks, |width, value| appender.push(width, value));
            let end = appender.end();
            appender.finish();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut read = Vec::new();
            let stored = code.ranks(Bits(&bytes), start, entries, &mut read);
            prop_assert_eq!((&read, stored.count, stored.end), (&ranks, ranks.len() as u64, end));
            for rank in 0..entries {
                let (stored, nth) = code.find(Bits(&bytes), start, entries, rank);
                prop_assert_eq!(nth, ranks.binary_search(&rank).ok().map(|nth| nth as u64));
                prop_assert_eq!((stored.count, stored.end), (ranks.len() as u64, end));
            }
        }

        #[test]
        fn hostile_bits_are_some_exceptions(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xFF), Just(0)], 0..60),
            entries in 1u64..300,
            low in 1..=MAX_LOW,
        ) {
            let (code, mut ranks) = (Exceptions { low }, Vec::new());
            let stored = code.ranks(Bits(&bytes), 3, entries, &mut ranks);
            prop_assert!(stored.count <= entries && ranks.len() as u64 <= stored.count);
            prop_assert!(ranks.iter().all(|rank| *rank < entries));
            for rank in 0..entries {
                let (_, nth) = code.find(Bits(&bytes), 3, entries, rank);
                prop_assert!(nth.is_none_or(|nth| nth < stored.count));
            }
        }
    }
}
