//! Elias–Fano coding of ascending integers, searched without decoding it (P. Elias, J. ACM 21,
//! 1974; R. Fano, 1971).
//!
//! A value is split into a *bucket* (its high part) and `width` low bits. The buckets form one bit
//! string, `unary`: for each bucket in turn, a one per value in it, then a zero. The low bits
//! follow, packed. `n` values below `buckets << width` take `n * (width + 1) + buckets` bits, at
//! most two above `log2(universe / n)` per value. The values of a bucket can be found from its
//! number alone: the bucket's start is a `select` of a zero, and the zeros before it determine how
//! many ones, hence values, precede it.
//!
//! Golomb or Rice coding of the gaps takes 0.45 bits per value less, but can only be decoded from
//! the start of a block, value by value, each waiting for the previous one. Here a probe of a block
//! of a hundred values or so counts ones in a handful of words.
//!
//! # Invariants
//! * Nothing here trusts the words: positions beyond the end read as zeros, every loop is bounded
//!   by the sizes the caller has checked (or by 64), and differences between values read from the
//!   words wrap.
//! * Values may repeat.
//!
//! # Threads
//! Plain values and functions.

mod directory;

use crate::bits;
use crate::words::Words;

pub(crate) use directory::Directory;

/// Where a coded sequence lies within the words, and its shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sequence {
    /// Bit where the unary part starts; the low bits follow it without a gap.
    at: u64,
    /// Bits of the unary part: one per value, one per bucket.
    unary: u64,
    /// Low bits per value, below 64.
    width: u32,
}

impl Sequence {
    /// A sequence of up to `count` values below `buckets << width`, coded from bit `at` on. The
    /// caller ensures that [`Sequence::bits_for`] these fits, and for opened filters that the
    /// sequence ends within the words.
    #[inline]
    pub(crate) const fn new(at: u64, count: u64, buckets: u64, width: u32) -> Self {
        Self { at, unary: count + buckets, width }
    }

    /// Returns the bits that `count` values below `buckets << width` take; exceeds `u64` only for
    /// sizes that fit no memory.
    pub(crate) const fn bits_for(count: u64, buckets: u64, width: u32) -> u128 {
        count as u128 * (width as u128 + 1) + buckets as u128
    }

    /// Writes `values`, which ascend and are at most `count`, into bits that are zero.
    ///
    /// # Panics
    /// If they do not fit.
    pub(crate) fn encode(&self, words: &mut [u64], values: impl IntoIterator<Item = u64, IntoIter: Clone>) {
        let values = values.into_iter();
        for (rank, value) in (0u64..).zip(values.clone()) {
            let place = (value >> self.width) + rank;
            assert!(place < self.unary, "a value beyond the universe, or too many");
            let at = self.at + place;
            words[(at / 64) as usize] |= 1 << (at % 64);
        }
        let mut lows = bits::Appender::new(words, self.low_at(0));
        values.for_each(|value| lows.push(self.width, value));
        lows.finish();
    }

    #[inline(always)]
    fn low_at(&self, rank: u64) -> u64 {
        (self.at + self.unary).wrapping_add(rank.wrapping_mul(u64::from(self.width)))
    }

    #[inline(always)]
    fn low<W: Words>(&self, words: &W, rank: u64) -> u64 {
        bits::read(words, self.low_at(rank), self.width)
    }

    /// Returns 64 bits of the unary part from its bit `place` on. Beyond its end these are low
    /// bits, which are never needed: the last bit of the unary part is a zero, and a one found
    /// after it belongs to no valid bucket.
    #[inline(always)]
    fn window<W: Words>(&self, words: &W, place: u64) -> u64 {
        bits::read(words, self.at.wrapping_add(place), 64)
    }

    /// Returns where bucket `bucket` starts in the unary part, by counting zeros from its
    /// beginning: for blocks of a few hundred values.
    #[inline]
    pub(crate) fn scan<W: Words>(&self, words: &W, bucket: u64) -> u64 {
        match bucket.checked_sub(1) {
            None => 0,
            Some(rank) => select_zero(words, self.at, self.unary, rank) + 1,
        }
    }

    /// Returns the bucket that starts at `start`.
    #[inline(always)]
    fn run<W: Words>(&self, words: &W, bucket: u64, start: u64, start_of: impl Fn(u64) -> u64) -> Run {
        let ones = u64::from(self.window(words, start).trailing_ones());
        // A bucket that fills the window is rare and may be long: it ends where the next one
        // starts.
        let end = if ones < 64 { start.wrapping_add(ones) } else { start_of(bucket + 1).wrapping_sub(1) };
        Run { rank: start.wrapping_sub(bucket), end, len: end.wrapping_sub(start) }
    }

    /// Returns the rank of the first value in `run` whose low bits are at least `low`.
    #[inline]
    fn seek<W: Words>(&self, words: &W, run: &Run, low: u64) -> Option<u64> {
        let (mut at, mut len) = (run.rank, run.len);
        while len > 8 {
            let half = len / 2;
            if self.low(words, at.wrapping_add(half - 1)) < low {
                at = at.wrapping_add(half);
                len -= half;
            } else {
                len = half;
            }
        }
        // Either the run ends here, or a large enough value does.
        (0..len).map(|i| at.wrapping_add(i)).find(|&rank| self.low(words, rank) >= low)
    }

    /// Returns whether a value lies in `first..=last`, both below the universe and in this order.
    /// `start_of(b)` returns where bucket `b` starts, for `b` up to the number of buckets; it is
    /// called once, and rarely twice.
    #[inline]
    pub(crate) fn any_within<W: Words>(
        &self,
        words: &W,
        first: u64,
        last: u64,
        start_of: impl Fn(u64) -> u64,
    ) -> bool {
        let (bucket, last_bucket) = (first >> self.width, last >> self.width);
        let mask = bits::mask(self.width);
        let (low, last_low) = (first & mask, last & mask);
        let run = self.run(words, bucket, start_of(bucket), &start_of);
        if bucket == last_bucket {
            return run.len > 0
                && self.seek(words, &run, low).is_some_and(|rank| self.low(words, rank) <= last_low);
        }
        // The next bucket's first value has this rank; the one before it is the largest of the
        // bucket.
        let next = run.rank.wrapping_add(run.len);
        if run.len > 0 && self.low(words, next.wrapping_sub(1)) >= low {
            return true;
        }
        let window = self.window(words, run.end);
        let next_bucket = if window != 0 {
            run.end.wrapping_add(u64::from(window.trailing_zeros())).wrapping_sub(next)
        } else {
            // A long gap: instead of walking through it, check whether a value lies before the last
            // bucket.
            let start = start_of(last_bucket);
            if start.wrapping_sub(last_bucket) != next {
                return true;
            }
            if self.window(words, start) & 1 == 1 { last_bucket } else { u64::MAX }
        };
        next_bucket < last_bucket || next_bucket == last_bucket && self.low(words, next) <= last_low
    }

    /// Returns the smallest value at or above `first`, which is below the universe. Linear in the
    /// unary part: for blocks.
    pub(crate) fn successor<W: Words>(&self, words: &W, first: u64) -> Option<u64> {
        let bucket = first >> self.width;
        let start_of = |bucket| self.scan(words, bucket);
        let run = self.run(words, bucket, start_of(bucket), start_of);
        if let Some(rank) = self.seek(words, &run, first & bits::mask(self.width)) {
            return Some(self.join(bucket, self.low(words, rank)));
        }
        let next = run.rank.wrapping_add(run.len);
        let mut place = run.end;
        while place < self.unary {
            let window = self.window(words, place);
            if window == 0 {
                place += 64;
                continue;
            }
            place += u64::from(window.trailing_zeros());
            let found = place < self.unary;
            return found.then(|| self.join(place.wrapping_sub(next), self.low(words, next)));
        }
        None
    }

    #[inline]
    fn join(&self, bucket: u64, low: u64) -> u64 {
        bucket << self.width | low
    }
}

/// The values of one bucket.
struct Run {
    /// Rank of its first value: the number of values in earlier buckets.
    rank: u64,
    /// Position of the zero that ends it.
    end: u64,
    /// Number of values in it.
    len: u64,
}

/// Returns the distance from bit `from` to the zero that has `rank` zeros between `from` and
/// itself; `within` if there is none in that many bits. Works word by word: a word's count of ones
/// takes a dozen instructions, and no word waits for another.
#[inline]
fn select_zero<W: Words>(words: &W, from: u64, within: u64, rank: u64) -> u64 {
    let (mut at, end) = (from / 64, from + within);
    let mut rank = rank;
    let mut zeros = !words.word(at as usize) & (u64::MAX << (from % 64));
    loop {
        let count = u64::from(zeros.count_ones());
        if rank < count {
            let bit = at * 64 + u64::from(bits::select_in_word(zeros, rank as u32));
            return (bit - from).min(within);
        }
        rank -= count;
        at += 1;
        if at * 64 >= end {
            return within;
        }
        zeros = !words.word(at as usize);
    }
}

#[cfg(test)]
mod tests;
