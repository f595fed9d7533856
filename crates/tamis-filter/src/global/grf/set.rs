//! A set of entries, each a position and a symbol, that is searched without decoding it.
//!
//! ```text
//! position   0 … positions - 1; the high part is a bucket, `width` low bits are the remainder
//! block      128 buckets: for each bucket a one per entry in it, then a zero
//!            the remainders, `width` bits each (in the first `coarse` blocks one less)
//!            the symbols (names.rs); then up to the next byte
//! directory  for each block 20 bits for its place and 12 for its number of entries; if these are all ones, the block begins
//!            with the number in 32 bits
//! ```
//!
//! Buckets in unary with remainders is the paper's cumulative Golomb coding for a power of two
//! (Elias–Fano coding). The number of buckets is 1 to 2 times that of entries, at which it takes
//! 1.91 to 2 bits more per entry than `log2(positions / entries)`.
//!
//! # Positions and layout
//! What a position means is the map's business; here it is a number. So entries can be laid out
//! anew without knowing their keys: with twice as many buckets and a remainder one bit shorter when
//! there are twice as many entries, or with positions cut by a bit to take less memory. In blocks
//! before `coarse` the lowest bit of the positions is cut already, so memory can be fitted to the
//! budget in small steps.
//!
//! # Invariants
//! * The entries of a block ascend by position, then symbol. Equal ones are stored as often as they
//!   are given: a partition gives each once, GRF_H (`huffman.rs`) counts on all of them.
//! * Reads are total: bits beyond the end are zeros, every loop is bounded by a count of the
//!   directory.

use std::cmp::Ordering;

use crate::bits::{self, mask, select_in_word};
use crate::words::prefetch;

use super::layout::{BLOCK_BITS, BUCKETS, Layout, MAX_WIDTH};
use super::map::MOST_POSITIONS;
use super::names::{Names, Scratch};

/// Bits of a directory entry for the number of entries.
const COUNT_BITS: u32 = 12;
/// In the directory: the block itself says how many entries it has.
const MANY: u64 = (1 << COUNT_BITS) - 1;

/// Bytes read as bits, the first bit lowest.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a>(pub(super) &'a [u8]);

impl Bits<'_> {
    /// Returns 64 bits from byte `at` on, zeros beyond the end.
    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        let at = at as usize;
        match self.0.get(at..).and_then(<[u8]>::first_chunk) {
            Some(&bytes) => u64::from_le_bytes(bytes),
            None => self.last_word(at),
        }
    }

    #[cold]
    fn last_word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        let rest = self.0.get(at..).unwrap_or_default();
        bytes[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(bytes)
    }

    /// Returns `width` bits, at most 57, from bit `at` on.
    #[inline(always)]
    pub(super) fn read(&self, at: u64, width: u32) -> u64 {
        self.word(at / 8) >> (at % 8) & mask(width)
    }

    /// Appends the bits from `at` up to `end`.
    #[inline]
    pub(super) fn copy(&self, mut at: u64, end: u64, out: &mut bits::Appender<'_>) {
        while at < end {
            let width = (end - at).min(56) as u32;
            out.push(width, self.read(at, width));
            at += u64::from(width);
        }
    }

    /// Returns at least 57 bits from bit `at` on.
    #[inline(always)]
    fn window(&self, at: u64) -> u64 {
        self.word(at / 8) >> (at % 8)
    }
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Entry {
    /// Zero in the bits that its block does not keep.
    pub(super) position: u64,
    pub(super) symbol: u16,
}

/// A block.
#[derive(Clone, Copy)]
struct Block {
    /// Its first bit.
    at: u64,
    count: u64,
    /// Bits of its remainders.
    width: u32,
}

impl Block {
    fn remainders(&self) -> u64 {
        self.at + self.count + BUCKETS
    }

    fn symbols(&self) -> u64 {
        self.remainders() + self.count * u64::from(self.width)
    }
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    block: Block,
    rank: u64,
}

impl Place {
    /// Returns the number of the entry in its block.
    pub(super) fn rank(self) -> usize {
        self.rank as usize
    }

    /// Returns whether both are in one block.
    pub(super) fn is_near(self, other: Place) -> bool {
        self.block.at == other.block.at
    }
}

/// See the module documentation. Immutable.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) layout: Layout,
    /// For each block, and for the end.
    directory: Box<[u32]>,
    bytes: Box<[u8]>,
    /// Places in the directory count units of this many bytes, as a power of two.
    unit: u32,
    entries: u64,
}

impl Set {
    /// Returns the set of `entries`, which ascend and have the bits that their blocks keep.
    pub(super) fn write(layout: Layout, names: &Names, entries: &[Entry]) -> Self {
        let mut writer = Writer::new(layout, names, entries.len() * 2);
        let mut rest = entries;
        for block in 0..layout.blocks() {
            let count = rest.iter().take_while(|entry| layout.block(entry.position) == block).count();
            let (head, tail) = rest.split_at(count);
            writer.block(head);
            rest = tail;
        }
        writer.finish()
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    pub(super) fn blocks(&self) -> usize {
        self.directory.len() - 1
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.directory) + self.bytes.len()
    }

    #[inline(always)]
    fn block(&self, at: usize) -> Block {
        let word = self.directory.get(at).copied().unwrap_or(0);
        let place = u64::from(word >> COUNT_BITS) << self.unit;
        let cut = u32::from((at as u64) < u64::from(self.layout.coarse)).min(self.layout.width);
        let (at, count, width) = (place * 8, u64::from(word) & mask(COUNT_BITS), self.layout.width - cut);
        if count < MANY {
            return Block { at, count, width };
        }
        Block { at: at + 32, count: Bits(&self.bytes).read(at, 32), width }
    }

    /// Number of entries of block `at`.
    pub(super) fn count(&self, at: usize) -> u64 {
        self.block(at).count
    }

    /// Number of entries of the largest block. Linear in the number of blocks.
    pub(super) fn largest(&self) -> u64 {
        (0..self.blocks()).map(|at| self.count(at)).max().unwrap_or(0)
    }

    /// Returns the byte at which block `at` begins.
    fn place(&self, at: usize) -> usize {
        self.directory.get(at).map_or(0, |word| ((word >> COUNT_BITS) as usize) << self.unit)
    }

    #[inline(always)]
    fn block_of(&self, position: u64) -> usize {
        (position >> (self.layout.width + BLOCK_BITS)) as usize
    }

    /// Fetches the directory entry of a position.
    #[inline]
    pub(super) fn prefetch_directory(&self, position: u64) {
        self.directory.get(self.block_of(position)).into_iter().for_each(prefetch);
    }

    /// Fetches the block of a position. Reads its directory entry.
    #[inline]
    pub(super) fn prefetch(&self, position: u64) {
        let at = (self.block(self.block_of(position)).at / 8) as usize;
        self.bytes.get(at).into_iter().for_each(prefetch);
        self.bytes.get(at + 64).into_iter().for_each(prefetch);
    }

    /// Calls `found` with the symbol of each entry at a position.
    #[inline]
    pub(super) fn probe(&self, names: &Names, position: u64, found: impl FnMut(u32)) {
        #[cfg(target_arch = "x86_64")]
        if x86::available() {
            // SAFETY: this processor has the features that the function is compiled for.
            return unsafe { x86::probe(self, names, position, found) };
        }
        self.probe_with(names, position, select_in_word, found);
    }

    /// [`Set::probe`], with the function that finds the one of some rank in a word.
    #[inline(always)]
    fn probe_with(
        &self,
        names: &Names,
        position: u64,
        select: impl Fn(u64, u32) -> u32,
        mut found: impl FnMut(u32),
    ) {
        let block = self.block(self.block_of(position));
        if block.count == 0 {
            return;
        }
        let bits = Bits(&self.bytes);
        let bucket = position >> self.layout.width & (BUCKETS - 1);
        let start = start_of(bits, block, bucket, select);
        let rank = start - bucket;
        let mut window = bits.window(block.at + start);
        if window & 1 == 0 {
            return;
        }
        let mut wanted = position & mask(self.layout.width);
        wanted >>= self.layout.width - block.width;
        let (remainders, mut nth) = (block.remainders(), 0);
        loop {
            for _ in 0..window.trailing_ones().min(32) {
                let here = bits.read(remainders + (rank + nth) * u64::from(block.width), block.width);
                if here == wanted {
                    found(names.symbol(bits, block.symbols(), block.count, rank + nth));
                } else if here > wanted {
                    return;
                }
                nth += 1;
            }
            if window.trailing_ones() < 32 || rank + nth >= block.count {
                return;
            }
            window = bits.window(block.at + start + nth);
        }
    }

    /// Calls `each` with every entry from the first of the block of `first` on, in order, until it
    /// returns `false`.
    pub(super) fn each_from(&self, names: &Names, first: u64, mut each: impl FnMut(u64, u32) -> bool) {
        let mut symbols = Vec::new();
        for at in self.block_of(first)..self.blocks() {
            if !self.each_of(names, at, &mut symbols, &mut each) {
                return;
            }
        }
    }

    /// The same, from the bucket of `first` on, with each entry's place instead of its symbol
    /// ([`Set::symbol`]).
    pub(super) fn each_place_from(&self, first: u64, mut each: impl FnMut(u64, Place) -> bool) {
        let bits = Bits(&self.bytes);
        let mut bucket = first >> self.layout.width & (BUCKETS - 1);
        for at in self.block_of(first)..self.blocks() {
            let block = self.block(at);
            let start = if block.count == 0 { 0 } else { start_of(bits, block, bucket, select_in_word) };
            let (mut place, mut rank) = (start, start.saturating_sub(bucket));
            let cut = self.layout.width - block.width;
            while rank < block.count && place < block.count + BUCKETS {
                let width = (block.count + BUCKETS - place).min(32);
                let mut window = bits.read(block.at + place, width as u32);
                while window != 0 && rank < block.count {
                    let bucket = bucket_of(place + u64::from(window.trailing_zeros()), rank);
                    let remainder =
                        bits.read(block.remainders() + rank * u64::from(block.width), block.width);
                    let position =
                        (((at as u64) << BLOCK_BITS) + bucket) << self.layout.width | remainder << cut;
                    if !each(position, Place { block, rank }) {
                        return;
                    }
                    rank += 1;
                    window &= window - 1;
                }
                place += width;
            }
            bucket = 0;
        }
    }

    /// Returns whether no entry has one of these positions of a map, of which the set does not have
    /// the `cut` low bits.
    pub(super) fn is_empty(&self, positions: std::ops::RangeInclusive<u64>, cut: u32) -> bool {
        let (from, to) = (positions.start() >> cut, positions.end() >> cut);
        let mut empty = true;
        self.each_place_from(from, |position, _| {
            // An entry of a coarse block has one of two positions.
            empty &= position > to || position + u64::from(self.layout.cut(position)) < from;
            empty && position <= to
        });
        empty
    }

    /// Returns the symbol of an entry.
    #[inline]
    pub(super) fn symbol(&self, names: &Names, at: Place) -> u32 {
        names.symbol(Bits(&self.bytes), at.block.symbols(), at.block.count, at.rank)
    }

    /// Writes to `symbols`, which is overwritten, those of all entries of the block that `at` is
    /// in; they are in order of their [`Place::rank`].
    pub(super) fn symbols(&self, names: &Names, at: Place, symbols: &mut Vec<u32>) {
        symbols.clear();
        names.decode(Bits(&self.bytes), at.block.symbols(), at.block.count, symbols);
    }

    /// The same for the entries of block `at`; returns what the last call returned. `symbols` is
    /// overwritten.
    pub(super) fn each_of(
        &self,
        names: &Names,
        at: usize,
        symbols: &mut Vec<u32>,
        each: &mut impl FnMut(u64, u32) -> bool,
    ) -> bool {
        let block = self.block(at);
        if block.count == 0 {
            return true;
        }
        let first = (at as u64) << BLOCK_BITS;
        let bits = Bits(&self.bytes);
        symbols.clear();
        names.decode(bits, block.symbols(), block.count, symbols);
        let cut = self.layout.width - block.width;
        let (mut place, mut rank) = (0, 0);
        while rank < block.count && place < block.count + BUCKETS {
            let width = (block.count + BUCKETS - place).min(32);
            let mut window = bits.read(block.at + place, width as u32);
            while window != 0 && rank < block.count {
                let bucket = bucket_of(place + u64::from(window.trailing_zeros()), rank);
                let remainder = bits.read(block.remainders() + rank * u64::from(block.width), block.width);
                let position = (first + bucket) << self.layout.width | remainder << cut;
                if !each(position, symbols[rank as usize]) {
                    return false;
                }
                rank += 1;
                window &= window - 1;
            }
            place += width;
        }
        true
    }

    /// Returns the bits of all symbols.
    pub(super) fn symbol_bits(&self) -> u64 {
        let ends = (0..self.blocks()).map(|at| (self.block(at), self.place(at + 1) as u64 * 8));
        ends.filter(|(block, _)| block.count > 0)
            .map(|(block, end)| end.saturating_sub(block.symbols()))
            .sum()
    }

    /// Returns the expected number of entries at a random position within a random entry's block.
    pub(super) fn rate(&self) -> f64 {
        let (mut sum, size) = (0.0, (BUCKETS << self.layout.width) as f64);
        for at in 0..self.blocks() {
            let count = self.count(at) as f64;
            let cut = self.layout.width - self.block(at).width;
            sum += count * count * f64::from(cut).exp2() / size;
        }
        sum / self.entries.max(1) as f64
    }

    /// Appends the set to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.layout.positions.to_le_bytes());
        out.extend(self.layout.width.to_le_bytes());
        out.extend(self.layout.coarse.to_le_bytes());
        out.extend(self.unit.to_le_bytes());
        out.extend((self.directory.len() as u32).to_le_bytes());
        out.extend((self.bytes.len() as u64).to_le_bytes());
        out.extend(self.entries.to_le_bytes());
        self.directory.iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend_from_slice(&self.bytes);
    }

    /// Reads what [`Set::encode`] wrote; `None` if it is not that.
    pub(super) fn read(from: &mut super::image::Reader<'_>) -> Option<Self> {
        let layout = Layout { positions: from.u64()?, width: from.u32()?, coarse: from.u32()? };
        let (unit, words) = (from.u32()?, from.u32()? as usize);
        let (len, entries) = (usize::try_from(from.u64()?).ok()?, from.u64()?);
        let sound = (1..=MOST_POSITIONS).contains(&layout.positions)
            && layout.width <= MAX_WIDTH
            // So that what decoding makes of hostile bits is still a number of about as many bits
            // as the positions.
            && (layout.width == 0 || 1 << (layout.width - 1) <= layout.positions)
            && u64::from(layout.coarse) <= layout.blocks()
            && (layout.width > 0 || layout.coarse == 0)
            && unit < 32
            && words as u64 == layout.blocks() + 1;
        if !sound {
            return None;
        }
        let directory: Box<[u32]> = from
            .take(words.checked_mul(4)?)?
            .as_chunks()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        let bytes: Box<[u8]> = from.take(len)?.into();
        let set = Set { layout, directory, bytes, unit, entries };
        // What a block says about its size must agree with where the next one begins.
        let ordered = (0..set.blocks()).all(|at| {
            let (block, place, end) = (set.block(at), set.place(at), set.place(at + 1));
            let is_long = u64::from(set.directory[at]) & mask(COUNT_BITS) == MANY;
            place <= end
                && end <= len
                && (!is_long || block.count >= MANY)
                && (block.count == 0 || block.symbols() <= end as u64 * 8)
        });
        let counted: u64 = (0..set.blocks()).map(|at| set.count(at)).sum();
        (ordered && set.place(0) == 0 && counted == entries).then_some(set)
    }
}

/// Returns the bucket of the entry of some rank, whose one is at `place`; a bucket of the block
/// also if the bits are hostile.
#[inline(always)]
fn bucket_of(place: u64, rank: u64) -> u64 {
    place.saturating_sub(rank).min(BUCKETS - 1)
}

/// Returns where a bucket starts in the buckets of a block: behind the zero of the one before.
#[inline(always)]
fn start_of(bits: Bits<'_>, block: Block, bucket: u64, select: impl Fn(u64, u32) -> u32) -> u64 {
    let Some(mut rank) = bucket.checked_sub(1) else { return 0 };
    let mut start = 0;
    while start < block.count + BUCKETS {
        // A block begins at a byte.
        let zeros = !bits.word((block.at + start) / 8);
        let count = u64::from(zeros.count_ones());
        if rank < count {
            return start + u64::from(select(zeros, rank as u32)) + 1;
        }
        rank -= count;
        start += 64;
    }
    start
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The probe compiled for processors that count and deposit bits. `unsafe` here is the call
    //! into code compiled for these features, which [`available`] guards.

    use super::{Names, Set};

    /// Returns whether this machine has the features. Cached by the standard library.
    #[inline(always)]
    pub(super) fn available() -> bool {
        is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("popcnt")
    }

    #[target_feature(enable = "bmi1,bmi2,popcnt")]
    #[inline]
    pub(super) fn probe(set: &Set, names: &Names, position: u64, found: impl FnMut(u32)) {
        let select = |word: u64, rank: u32| core::arch::x86_64::_pdep_u64(1 << rank, word).trailing_zeros();
        set.probe_with(names, position, select, found);
    }
}

/// Writes a set block by block.
pub(super) struct Writer<'n> {
    layout: Layout,
    names: &'n Names,
    /// Place and number of entries of each block.
    blocks: Vec<(usize, u32)>,
    bytes: Vec<u8>,
    entries: u64,
    /// The block being written.
    words: Vec<u64>,
    symbols: Vec<u16>,
    scratch: Scratch,
    /// Entries to splice in: bucket, remainder, rank of the entry that they come before, symbol.
    spliced: Vec<(u64, u64, u64, u16)>,
    placed: Vec<(u64, u32)>,
}

impl<'n> Writer<'n> {
    pub(super) fn new(layout: Layout, names: &'n Names, bytes: usize) -> Self {
        Self {
            layout,
            names,
            blocks: Vec::with_capacity(layout.blocks() as usize + 1),
            bytes: Vec::with_capacity(bytes),
            entries: 0,
            words: Vec::new(),
            symbols: Vec::new(),
            scratch: Scratch::default(),
            spliced: Vec::new(),
            placed: Vec::new(),
        }
    }

    /// Writes the next block: `entries`, which ascend and have the bits that the block keeps.
    pub(super) fn block(&mut self, entries: &[Entry]) {
        debug_assert!(entries.is_sorted());
        if entries.is_empty() {
            return self.blocks.push((self.bytes.len(), 0));
        }
        let count = entries.len() as u64;
        let is_coarse = (self.blocks.len() as u64) < u64::from(self.layout.coarse);
        let cut = u32::from(is_coarse).min(self.layout.width);
        let width = self.layout.width - cut;
        self.symbols.clear();
        self.symbols.extend(entries.iter().map(|entry| entry.symbol));
        let most = BUCKETS + count * u64::from(1 + width + self.names.longest());
        self.words.clear();
        self.words.resize(bits::words_for(most) as usize + 1, 0);
        for (rank, entry) in (0..).zip(entries) {
            let at = (entry.position >> self.layout.width & (BUCKETS - 1)) + rank;
            self.words[(at / 64) as usize] |= 1 << (at % 64);
        }
        let mut tail = bits::Appender::new(&mut self.words, count + BUCKETS);
        for entry in entries {
            tail.push(width, (entry.position & mask(self.layout.width)) >> cut);
        }
        self.names.encode(&self.symbols, &mut self.scratch, |width, value| tail.push(width, value));
        let bits = tail.end();
        tail.finish();
        self.push_words(count, bits);
    }

    /// Writes the next block: that of `set`, which has the same layout and names, with more
    /// entries: they ascend, are all different and have the bits that the block keeps. Those that
    /// are there already are left out. Returns how many of the others have the symbol `counted`.
    pub(super) fn block_with(&mut self, set: &Set, new: &[Entry], counted: Option<u16>) -> u64 {
        let at = self.blocks.len();
        let block = set.block(at);
        let bits = Bits(&set.bytes);
        let cut = self.layout.width - block.width;
        self.spliced.clear();
        // Ranks ascend and are within the block; only changed bytes can say otherwise.
        let mut least = 0;
        for entry in new {
            let bucket = entry.position >> self.layout.width & (BUCKETS - 1);
            let wanted = (entry.position & mask(self.layout.width)) >> cut;
            let start = start_of(bits, block, bucket, select_in_word);
            let mut rank = start.saturating_sub(bucket).clamp(least, block.count);
            let mut is_new = true;
            while rank < block.count && bits.read(block.at + bucket + rank, 1) == 1 {
                let here = bits.read(block.remainders() + rank * u64::from(block.width), block.width);
                let symbol = || self.names.symbol(bits, block.symbols(), block.count, rank);
                if here > wanted {
                    break;
                }
                if here == wanted {
                    match symbol().cmp(&entry.symbol.into()) {
                        Ordering::Less => {}
                        Ordering::Equal => {
                            is_new = false;
                            break;
                        }
                        Ordering::Greater => break,
                    }
                }
                rank += 1;
            }
            least = rank;
            if is_new {
                self.spliced.push((bucket, wanted, rank, entry.symbol));
            }
        }
        let added = self.spliced.len() as u64;
        if added == 0 {
            self.copy(set, at..at + 1);
            return 0;
        }
        let count = block.count + added;
        let most = BUCKETS + count * u64::from(1 + block.width + self.names.longest());
        self.words.clear();
        self.words.resize(bits::words_for(most) as usize + 2, 0);
        let mut out = bits::Appender::new(&mut self.words, 0);
        let mut from = block.at;
        for &(bucket, _, rank, _) in &self.spliced {
            bits.copy(from, block.at + bucket + rank, &mut out);
            from = block.at + bucket + rank;
            out.push(1, 1);
        }
        bits.copy(from, block.remainders(), &mut out);
        let mut from = block.remainders();
        for &(_, wanted, rank, _) in &self.spliced {
            let to = block.remainders() + rank * u64::from(block.width);
            bits.copy(from, to, &mut out);
            from = to;
            out.push(block.width, wanted);
        }
        bits.copy(from, block.symbols(), &mut out);
        self.placed.clear();
        self.placed.extend(self.spliced.iter().map(|&(_, _, rank, symbol)| (rank, u32::from(symbol))));
        self.names.splice(bits, block.symbols(), block.count, &mut self.placed, &mut out);
        let bits = out.end();
        out.finish();
        self.push_words(count, bits);
        self.spliced.iter().filter(|(.., symbol)| Some(*symbol) == counted).count() as u64
    }

    /// Appends a block of `bits` bits that stands in `words`.
    fn push_words(&mut self, count: u64, bits: u64) {
        self.blocks.push((self.bytes.len(), count.min(MANY) as u32));
        self.entries += count;
        if count >= MANY {
            self.bytes.extend(u32::try_from(count).expect("a partition of some gigabytes").to_le_bytes());
        }
        let end = self.bytes.len() + bits.div_ceil(8) as usize;
        let words = self.words.iter().take(bits::words_for(bits) as usize);
        words.for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
        self.bytes.truncate(end);
    }

    /// Writes the next blocks as copies of blocks `range` of `set`, which has the same layout and
    /// names.
    pub(super) fn copy(&mut self, set: &Set, range: std::ops::Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (from, to) = (set.place(range.start), set.place(range.end).min(set.bytes.len()));
        let place = self.bytes.len();
        for at in range {
            let count = set.count(at);
            self.blocks.push((place + set.place(at) - from, count.min(MANY) as u32));
            self.entries += count;
        }
        self.bytes.extend_from_slice(&set.bytes[from..to]);
    }

    /// Returns the number of blocks written.
    pub(super) fn written(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn finish(self) -> Set {
        let Writer { layout, blocks, mut bytes, entries, .. } = self;
        bytes.shrink_to_fit();
        debug_assert_eq!(blocks.len() as u64, layout.blocks());
        let limit = 1u64 << (32 - COUNT_BITS);
        let end = (bytes.len(), 0);
        if (bytes.len() as u64) < limit {
            let directory = blocks.iter().chain([&end]).map(|&(at, count)| (at as u32) << COUNT_BITS | count);
            return Set { layout, directory: directory.collect(), bytes: bytes.into(), unit: 0, entries };
        }
        // Larger units, each block at the border of one.
        let unit = (1..)
            .find(|unit| (bytes.len() as u64 + (blocks.len() << unit) as u64) >> unit < limit)
            .unwrap_or(0);
        let mut aligned: Vec<u8> = Vec::with_capacity(bytes.len() + (blocks.len() << unit));
        let mut directory = Vec::with_capacity(blocks.len() + 1);
        let ends = blocks.iter().skip(1).map(|(at, _)| *at).chain([bytes.len()]);
        for (&(at, count), end) in blocks.iter().zip(ends) {
            directory.push(((aligned.len() >> unit) as u32) << COUNT_BITS | count);
            aligned.extend_from_slice(&bytes[at..end]);
            aligned.resize(aligned.len().next_multiple_of(1 << unit), 0);
        }
        directory.push(((aligned.len() >> unit) as u32) << COUNT_BITS);
        Set { layout, directory: directory.into(), bytes: aligned.into(), unit, entries }
    }
}
