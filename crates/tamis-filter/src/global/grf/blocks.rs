//! Blocks: the encoded entries of a range of positions, searched without decoding them.
//!
//! ```text
//! block: top parts of the positions in Elias–Fano coding (unary, then low bits)
//!        one bit per entry: it has digits
//!        for each that has, in order: ones fewer than digits as zeros and a one (unless they are the most there can be),
//!        the digits, the extra bits of the position
//! ```
//! The paper's cumulative Golomb coding with a power of two for K is Elias–Fano coding; the indicators, digits and
//! suffixes of the paper's Figure 9 follow the quotients instead of being interleaved with them. So a probe that
//! finds no position reads neither, and one that finds only entries of the last level reads no digits.
//!
//! All blocks lie in one array of words without gaps. The directory has a word for each block, and one more for the
//! end.

use crate::bits;
use crate::elias_fano::Sequence;
use crate::words::{Owned, Words};

use super::code::{Code, Coder, Collector};

/// Bits of a directory word for the offset of the block; the rest is its number of entries.
const PLACE_BITS: u32 = 36;
/// Maximum number of entries in a block.
const MAX_ENTRIES: u64 = 1 << (64 - PLACE_BITS);

/// A decoded entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Entry {
    /// Its position at the finest resolution; zeros below the bits that are known.
    pub(super) position: u64,
    pub(super) code: Code,
}

/// The shape that all blocks of a partition share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Bits of a position present only in entries with all digits.
    pub(super) extra: u32,
    /// Low bits of a top part.
    pub(super) width: u32,
    /// Number of values of its high bits.
    pub(super) buckets: u64,
}

impl Layout {
    /// Returns the last position that shares the known bits of an entry's.
    #[inline(always)]
    pub(super) fn last_of(&self, entry: &Entry) -> u64 {
        entry.position | bits::mask(self.extra - entry.code.digits())
    }

    /// Returns the bits of the tops of `count` entries.
    fn tops(&self, count: u64) -> u64 {
        count * (u64::from(self.width) + 1) + self.buckets
    }
}

/// Extent of a block.
#[derive(Clone, Copy)]
struct Block {
    at: u64,
    count: u64,
}

/// All blocks of a partition.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    directory: Box<[u64]>,
    words: Owned,
}

impl Blocks {
    pub(super) fn count(&self) -> usize {
        self.directory.len() - 1
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.directory) + self.words.len() * 8
    }

    #[inline(always)]
    fn block(&self, at: usize) -> Block {
        let word = self.directory[at];
        Block { at: word & bits::mask(PLACE_BITS), count: word >> PLACE_BITS }
    }

    /// Entries of block `at`.
    pub(super) fn entries(&self, at: usize) -> u64 {
        self.block(at).count
    }

    /// Returns the bits beyond those of the tops: all codes.
    pub(super) fn code_bits(&self, layout: &Layout) -> u64 {
        let blocks = (0..self.count()).map(|at| self.entries(at)).filter(|&count| count > 0);
        self.block(self.count()).at - blocks.map(|count| layout.tops(count)).sum::<u64>()
    }

    /// Prefetches what a probe of block `at` reads first.
    #[inline]
    pub(super) fn prefetch(&self, at: usize) {
        let word = (self.block(at).at / 64) as usize;
        self.words.prefetch(word);
        self.words.prefetch(word + 8);
        self.words.prefetch(word + 16);
    }

    /// Calls `found` with the code of every entry of block `at` whose known bits are those of `position`.
    #[inline]
    pub(super) fn probe(
        &self,
        layout: &Layout,
        coder: &Coder,
        at: usize,
        position: u64,
        found: impl FnMut(Code),
    ) {
        let block = self.block(at);
        if block.count == 0 {
            return;
        }
        let tops = Sequence::new(block.at, block.count, layout.buckets, layout.width);
        let (rank, same) = tops.equal(&self.words, position >> layout.extra);
        if same > 0 {
            self.matches(layout, coder, block, (rank, same), position, found);
        }
    }

    /// Same as [`Blocks::probe`], for the `same` entries from `rank` on, whose tops match.
    fn matches(
        &self,
        layout: &Layout,
        coder: &Coder,
        block: Block,
        (rank, same): (u64, u64),
        position: u64,
        mut found: impl FnMut(Code),
    ) {
        let flags = block.at + layout.tops(block.count);
        // Locating the codes means decoding those before them, so it is done only if needed.
        let mut codes = None;
        for rank in rank..rank + same {
            if bits::read(&self.words, flags + rank, 1) == 0 {
                found(Code::LAST);
                continue;
            }
            let mut at = codes.unwrap_or_else(|| self.codes_from(coder, flags, block.count, rank));
            let (code, suffix, end) = self.code(coder, at);
            at = end;
            codes = Some(at);
            if suffix == (position & bits::mask(layout.extra)) >> (layout.extra - code.digits()) {
                found(code);
            }
        }
    }

    /// Returns the bit at which the code of the first entry at or after `rank` with a code begins.
    fn codes_from(&self, coder: &Coder, flags: u64, count: u64, rank: u64) -> u64 {
        let before = (0..rank).step_by(64).map(|start| {
            let width = (rank - start).min(64) as u32;
            bits::read(&self.words, flags + start, width).count_ones()
        });
        (0..before.sum::<u32>()).fold(flags + count, |at, _| self.code(coder, at).2)
    }

    /// Decodes the code at a bit and the extra bits of the position; also returns the bit after them.
    #[inline]
    fn code(&self, coder: &Coder, mut at: u64) -> (Code, u64, u64) {
        let indicator = bits::read(&self.words, at, coder.depth());
        let digits = (indicator.trailing_zeros() + 1).min(coder.depth());
        at += u64::from(coder.indicator_bits(digits));
        let width = coder.field_bits(digits);
        let both = bits::read(&self.words, at, width + digits);
        let code = Code::new(digits, both & bits::mask(width));
        (code, both >> width, at + u64::from(width + digits))
    }

    /// Calls `each` with the entries of block `at` in order, from the position `first` on, until it returns `false`.
    /// May include some earlier entries that share the known bits of `first`.
    pub(super) fn each_from(
        &self,
        layout: &Layout,
        coder: &Coder,
        at: usize,
        first: u64,
        mut each: impl FnMut(Entry) -> bool,
    ) {
        let block = self.block(at);
        if block.count == 0 {
            return;
        }
        let tops = Sequence::new(block.at, block.count, layout.buckets, layout.width);
        let flags = block.at + layout.tops(block.count);
        let mut codes = None;
        tops.for_each_from(&self.words, first >> layout.extra, |rank, top| {
            let mut entry = Entry { position: top << layout.extra, code: Code::LAST };
            if bits::read(&self.words, flags + rank, 1) == 1 {
                let place = codes.unwrap_or_else(|| self.codes_from(coder, flags, block.count, rank));
                let (code, suffix, end) = self.code(coder, place);
                entry = Entry { position: entry.position | suffix << (layout.extra - code.digits()), code };
                codes = Some(end);
            }
            each(entry)
        });
    }

    /// Appends the entries of block `at`, in order.
    pub(super) fn decode(&self, layout: &Layout, coder: &Coder, at: usize, out: &mut Vec<Entry>) {
        let block = self.block(at);
        if block.count == 0 {
            return;
        }
        let first = out.len();
        let tops = Sequence::new(block.at, block.count, layout.buckets, layout.width);
        tops.for_each(&self.words, |top| {
            out.push(Entry { position: top << layout.extra, code: Code::LAST });
        });
        debug_assert_eq!((out.len() - first) as u64, block.count);
        let flags = block.at + layout.tops(block.count);
        let mut place = flags + block.count;
        for start in (0..block.count).step_by(64) {
            let mut window = bits::read(&self.words, flags + start, (block.count - start).min(64) as u32);
            while window != 0 {
                let rank = start + u64::from(window.trailing_zeros());
                let (code, suffix, end) = self.code(coder, place);
                let entry = &mut out[first + rank as usize];
                entry.position |= suffix << (layout.extra - code.digits());
                entry.code = code;
                place = end;
                window &= window - 1;
            }
        }
    }
}

/// Writes blocks sequentially.
pub(super) struct Writer<'a> {
    layout: Layout,
    coder: &'a Coder,
    directory: Vec<u64>,
    words: Vec<u64>,
    /// Bits written.
    end: u64,
    entries: u64,
    last: u64,
}

impl<'a> Writer<'a> {
    /// Creates a writer for this many blocks and about this many words.
    pub(super) fn new(layout: Layout, coder: &'a Coder, blocks: usize, words: usize) -> Self {
        Self {
            layout,
            coder,
            directory: Vec::with_capacity(blocks + 1),
            words: Vec::with_capacity(words),
            end: 0,
            entries: 0,
            last: 0,
        }
    }

    fn start(&mut self, count: u64, bits: u64) {
        assert!(self.end >> PLACE_BITS == 0 && count < MAX_ENTRIES, "a partition of some gigabytes");
        self.directory.push(self.end | count << PLACE_BITS);
        self.words.resize(bits::words_for(self.end + bits) as usize, 0);
        self.entries += count;
    }

    /// Writes the next block: `entries`, which ascend and are all different.
    ///
    /// # Panics
    /// If the partition outgrows the directory: 8 GiB, or 2^28 entries in a block.
    pub(super) fn block(&mut self, entries: &[Entry]) {
        debug_assert!(entries.is_sorted_by(|a, b| a < b));
        let count = entries.len() as u64;
        if count == 0 {
            return self.start(0, 0);
        }
        let with_digits = entries.iter().map(|entry| entry.code.digits()).filter(|&digits| digits > 0);
        let codes = count + with_digits.map(|digits| u64::from(self.coder.bits(digits) - 1)).sum::<u64>();
        self.start(count, self.layout.tops(count) + codes);
        let tops = Sequence::new(self.end, count, self.layout.buckets, self.layout.width);
        let extra = self.layout.extra;
        tops.encode(&mut self.words, entries.iter().map(|entry| entry.position >> extra));
        let mut tail = bits::Appender::new(&mut self.words, self.end + self.layout.tops(count));
        entries.iter().for_each(|entry| tail.push(1, u64::from(entry.code.digits() > 0)));
        for entry in entries {
            let digits = entry.code.digits();
            if digits == 0 {
                self.last += 1;
                continue;
            }
            let stop = if digits < self.coder.depth() { 1 << (digits - 1) } else { 0 };
            tail.push(self.coder.indicator_bits(digits), stop);
            let width = self.coder.field_bits(digits);
            let suffix = (entry.position & bits::mask(extra)) >> (extra - digits);
            tail.push(width, entry.code.fields());
            tail.push(digits, suffix);
        }
        tail.finish();
        self.end += self.layout.tops(count) + codes;
    }

    /// Writes the next block as a copy of block `at` of `blocks`, which have the same layout and coder.
    pub(super) fn copy(&mut self, blocks: &Blocks, at: usize) {
        let (block, end) = (blocks.block(at), blocks.block(at + 1).at);
        self.start(block.count, end - block.at);
        if block.count == 0 {
            return;
        }
        let flags = block.at + self.layout.tops(block.count);
        let with_digits = (0..block.count).step_by(64).map(|start| {
            let width = (block.count - start).min(64) as u32;
            u64::from(bits::read(&blocks.words, flags + start, width).count_ones())
        });
        self.last += block.count - with_digits.sum::<u64>();
        let mut from = block.at;
        while from < end {
            let width = (end - from).min(64) as u32;
            bits::write(&mut self.words, self.end, width, bits::read(&blocks.words, from, width));
            from += u64::from(width);
            self.end += u64::from(width);
        }
    }

    /// Finishes the blocks; also returns the number of entries and how many of these are of the last level.
    pub(super) fn finish(mut self) -> (Blocks, u64, u64) {
        self.directory.push(self.end);
        let blocks = Blocks { directory: self.directory.into(), words: self.words.into() };
        (blocks, self.entries, self.last)
    }
}

/// Merges both ascending inputs into `out`, which is overwritten, keeping one of each set of equal entries.
pub(super) fn merge(old: &[Entry], new: impl Iterator<Item = Entry>, out: &mut Vec<Entry>) {
    out.clear();
    let mut at = 0;
    for entry in new {
        let before = old[at..].iter().take_while(|old| **old < entry).count();
        out.extend_from_slice(&old[at..at + before]);
        at += before;
        if old.get(at) != Some(&entry) && out.last() != Some(&entry) {
            out.push(entry);
        }
    }
    out.extend_from_slice(&old[at..]);
}

/// Garbage-collects `entries`, some of a block. Those with shorter codes get shorter positions, too. `last`: whether
/// to keep entries of the last level.
pub(super) fn collect(entries: &mut Vec<Entry>, layout: &Layout, collector: &mut Collector<'_>, last: bool) {
    let mut moved = false;
    entries.retain_mut(|entry| {
        if entry.code == Code::LAST {
            return last;
        }
        let Some(code) = collector.collect(entry.code) else { return false };
        if code != entry.code {
            *entry = Entry { position: entry.position & !bits::mask(layout.extra - code.digits()), code };
            moved = true;
        }
        last || code != Code::LAST
    });
    if moved {
        // Nearly sorted: bits were only dropped within equal tops.
        entries.sort();
        entries.dedup();
    }
}
