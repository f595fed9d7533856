//! A table's index, which maps a key to its data block.
//!
//! Between the last key of a block and the first key of the next lies a *separator*: a short user
//! key `s` with `last <= s < first`, or the key itself if the versions of one key span both blocks.
//! A key's block is the first whose separator is at least the key.
//!
//! In memory, the common prefix of the separators is stripped. The next eight bytes, the *head*, go
//! into a [`SearchTree`]; lengths and what follows the head are compared only among equal heads.
//! Separators are so short that few extend beyond their head, and heads are stored nowhere else.
//! Blocks are adjacent from the start of the file, so one array of offsets locates all of them.
//!
//! An index is immutable and shared by all threads.

use std::cmp::Ordering;

use tamis_base::key::{MAX_KEY_BYTES, common_prefix_len, prefix_of};
use tamis_env::memory::PageVec;

use super::compare::equal;
use super::frame::{Damage, TRAILER_BYTES};
use super::search::SearchTree;
use crate::codec::{Decoder, Encode};

/// Collects separators and stored lengths while a table is written.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    entries: PageVec<u8>,
    blocks: u64,
}

impl IndexBuilder {
    /// Appends a block of `span` bytes in the file, including its trailer.
    pub(crate) fn add(&mut self, span: u64, separator: &[u8]) {
        self.blocks += 1;
        self.entries.put_varint(span);
        self.entries.put_bytes(separator);
    }

    /// The number of blocks.
    pub(crate) fn len(&self) -> u64 {
        self.blocks
    }

    /// The approximate number of bytes that [`finish`](Self::finish) will append.
    pub(crate) fn estimated_bytes(&self) -> usize {
        self.entries.len() + 10
    }

    /// Appends the index block's content to `out`.
    pub(crate) fn finish(&self, out: &mut impl Encode) {
        out.put_varint(self.blocks);
        out.put_slice(&self.entries);
    }
}

/// Returns a short key `s` with `last <= s < next`; `last` itself if none shorter is found, or if
/// both are equal.
pub(crate) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = common_prefix_len(last, next);
    let (Some(&low), Some(&high)) = (last.get(shared), next.get(shared)) else {
        return last.to_vec();
    };
    debug_assert!(low < high, "separated keys ascend");
    if next.len() > shared + 1 {
        return next[..=shared].to_vec();
    }
    if low + 1 < high {
        let mut key = last[..=shared].to_vec();
        key[shared] += 1;
        return key;
    }
    // The keys differ by one at the last byte of `next`: round `last` up at a later byte.
    match last[shared + 1..].iter().position(|&byte| byte < 0xFF) {
        Some(behind) => {
            let mut key = last[..=shared + 1 + behind].to_vec();
            *key.last_mut().expect("just cut behind a byte") += 1;
            key
        }
        None => last.to_vec(),
    }
}

/// Bytes of a separator that are searched as one number.
const HEAD_BYTES: usize = 8;

/// Ascending numbers, in four bytes each if all fit.
#[derive(Debug)]
enum Ends {
    Small(Box<[u32]>),
    Large(Box<[u64]>),
}

impl Ends {
    fn new(numbers: &[u64]) -> Ends {
        if numbers.iter().all(|&n| u32::try_from(n).is_ok()) {
            Ends::Small(numbers.iter().map(|&n| n as u32).collect())
        } else {
            Ends::Large(numbers.into())
        }
    }

    #[inline]
    fn get(&self, i: usize) -> u64 {
        match self {
            Ends::Small(ends) => u64::from(ends[i]),
            Ends::Large(ends) => ends[i],
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Ends::Small(ends) => size_of_val(&**ends),
            Ends::Large(ends) => size_of_val(&**ends),
        }
    }
}

/// A data block's number and its location in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// The number of the block within the table, from 0.
    pub index: usize,
    /// Offset of its first byte in the file.
    pub(crate) offset: u64,
    /// Bytes in the file, including the trailer.
    pub(crate) span: u64,
}

/// The in-memory index of one table.
#[derive(Debug)]
pub struct Index {
    /// The common prefix of all separators.
    common: Box<[u8]>,
    /// The next eight bytes of every separator.
    heads: SearchTree,
    /// Block `i` lies at `offsets[i]..offsets[i + 1]` of the file.
    offsets: Ends,
    /// How many bytes of separator `i` its head holds.
    head_lens: Box<[u8]>,
    /// What follows the heads, concatenated. A separator shorter than a whole head contributes
    /// nothing.
    rests: Box<[u8]>,
    /// The rest of separator `i` is `rests[rest_ends[i]..rest_ends[i + 1]]`. Empty if all rests
    /// are.
    rest_ends: Ends,
}

impl Index {
    /// Decodes an index block's content. The blocks must fill the first `data_span` bytes of the
    /// file exactly. Memory stays within a small multiple of `bytes`.
    pub(crate) fn decode(bytes: &[u8], data_span: u64) -> Result<Index, Damage> {
        const CUT: Damage = Damage("an index that ends within an entry");
        let mut input = Decoder::new(bytes);
        let blocks = input.varint_usize().ok_or(CUT)?;
        // Every entry takes at least two bytes.
        if blocks > input.remaining() / 2 {
            return Err(Damage("an index that promises more blocks than it holds"));
        }
        let mut offsets = PageVec::with_capacity(blocks + 1);
        let mut keys: PageVec<&[u8]> = PageVec::with_capacity(blocks);
        let mut offset = 0u64;
        offsets.push(0);
        for _ in 0..blocks {
            let span = input.varint().ok_or(CUT)?;
            let key = input.bytes().ok_or(CUT)?;
            offset = offset.saturating_add(span);
            if span <= TRAILER_BYTES as u64 || offset > data_span {
                return Err(Damage("an index with a block outside the data"));
            }
            if key.len() > MAX_KEY_BYTES || keys.last().is_some_and(|last| *last > key) {
                return Err(Damage("an index whose separators are out of order"));
            }
            offsets.push(offset);
            keys.push(key);
        }
        if !input.is_empty() || offset != data_span {
            return Err(Damage("an index that does not cover the data"));
        }
        let common = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => common_prefix_len(first, last),
            _ => 0,
        };
        let tails = || keys.iter().map(|key| &key[common..]);
        let mut heads = PageVec::with_capacity(blocks);
        heads.extend(tails().map(prefix_of));
        let mut rests = PageVec::new();
        let mut rest_ends = PageVec::new();
        if tails().any(|tail| tail.len() > HEAD_BYTES) {
            rest_ends.push(0);
            for tail in tails() {
                rests.extend_from_slice(tail.get(HEAD_BYTES..).unwrap_or_default());
                rest_ends.push(rests.len() as u64);
            }
        }
        Ok(Index {
            common: keys.first().map_or(&[][..], |key| &key[..common]).into(),
            heads: SearchTree::new(&heads),
            offsets: Ends::new(&offsets),
            head_lens: tails().map(|tail| tail.len().min(HEAD_BYTES) as u8).collect(),
            rests: rests[..].into(),
            rest_ends: Ends::new(&rest_ends),
        })
    }

    /// The number of data blocks.
    #[inline]
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// The location of block `index`; `None` beyond the last.
    #[inline]
    pub(crate) fn block(&self, index: usize) -> Option<BlockAt> {
        if index >= self.len() {
            return None;
        }
        let offset = self.offsets.get(index);
        Some(BlockAt { index, offset, span: self.offsets.get(index + 1) - offset })
    }

    /// The last block.
    pub(crate) fn last_block(&self) -> Option<BlockAt> {
        self.block(self.len().wrapping_sub(1))
    }

    /// What follows the head of separator `i < len`.
    fn rest(&self, i: usize) -> &[u8] {
        if self.rests.is_empty() {
            return &[];
        }
        &self.rests[self.rest_ends.get(i) as usize..self.rest_ends.get(i + 1) as usize]
    }

    /// The separator after block `i < len`. No key of the block is greater. Every key of the next
    /// block is greater, or equal if the versions of one key span both.
    #[inline]
    pub fn separator(&self, i: usize) -> Vec<u8> {
        let head = self.heads.get(i).unwrap_or_default().to_be_bytes();
        [&self.common, &head[..usize::from(self.head_lens[i])], self.rest(i)].concat()
    }

    /// The number of the first block whose separator is at least `key`. No other block can hold
    /// `key`, except its older versions. `None` if `key` is beyond all blocks.
    ///
    /// Cost: one cache line per level, `log9(blocks / 8) + 1` in total, and a binary search among
    /// the separators that agree with `key` in the eight bytes after the common prefix.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let (start, rest) = key.split_at(key.len().min(self.common.len()));
        if !equal(start, &self.common) {
            return (key < &*self.common && self.len() > 0).then_some(0);
        }
        let head = prefix_of(rest);
        let first = self.heads.lower_bound(head);
        match self.heads.get(first) {
            None => None,
            Some(found) if found > head => Some(first),
            Some(_) => self.find_among_equals(first, head, rest),
        }
    }

    /// Reports whether `key` is less than the separator after block `i`, judging by the heads
    /// alone; `false` if these are equal.
    #[inline]
    pub(crate) fn ends_behind(&self, i: usize, key: &[u8]) -> bool {
        let tail = key.strip_prefix(&*self.common);
        tail.is_some_and(|tail| self.heads.get(i).is_some_and(|head| prefix_of(tail) < head))
    }

    fn find_among_equals(&self, first: usize, head: u64, tail: &[u8]) -> Option<usize> {
        let (bytes, tail) = (head.to_be_bytes(), tail.split_at(tail.len().min(HEAD_BYTES)));
        let (mut low, mut high) =
            (first, head.checked_add(1).map_or(self.len(), |next| self.heads.lower_bound(next)));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare(middle, &bytes, tail).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < self.len()).then_some(low)
    }

    /// Compares what follows the common prefix in separator `i`, which has this head, and in a key,
    /// whose part is cut after the length of a head.
    #[inline]
    fn compare(&self, i: usize, head: &[u8; HEAD_BYTES], tail: (&[u8], &[u8])) -> Ordering {
        // A head of fewer than eight bytes has no rest, so comparing the pairs compares the whole.
        (&head[..usize::from(self.head_lens[i])], self.rest(i)).cmp(&tail)
    }

    /// Returns the number of the first block after `from` whose separator is greater than `key`.
    /// The separator of `from` must not be greater. The versions of `key` may fill all the blocks
    /// before it.
    #[cold]
    pub(crate) fn behind_all_of(&self, from: usize, key: &[u8]) -> usize {
        let Some(tail) = key.strip_prefix(&*self.common) else { return from + 1 };
        let tail = tail.split_at(tail.len().min(HEAD_BYTES));
        let (mut low, mut high) = (from + 1, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let head = self.heads.get(middle).unwrap_or_default().to_be_bytes();
            if self.compare(middle, &head, tail).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Memory in bytes, including this value.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Index>()
            + self.common.len()
            + self.heads.memory_bytes()
            + self.offsets.memory_bytes()
            + self.head_lens.len()
            + self.rests.len()
            + self.rest_ends.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index_of(separators: &[Vec<u8>]) -> Index {
        let mut builder = IndexBuilder::default();
        for separator in separators {
            builder.add(100, separator);
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        Index::decode(&bytes, 100 * separators.len() as u64).unwrap()
    }

    fn short_key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255), any::<u8>()], 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_separator_lies_between_and_is_no_longer(a in short_key(), b in short_key()) {
            prop_assume!(a != b);
            let (last, next) = if a < b { (a, b) } else { (b, a) };
            let s = separator(&last, &next);
            prop_assert!(last <= s && s < next, "{last:?} {s:?} {next:?}");
            prop_assert!(s.len() <= last.len().max(common_prefix_len(&last, &next) + 1));
        }

        #[test]
        fn the_block_of_a_key_is_the_first_whose_separator_is_not_less(
            common in proptest::collection::vec(any::<u8>(), 0..12),
            mut tails in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..12), 0..100),
            probes in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..14), 1..20),
        ) {
            tails.sort();
            let separators: Vec<Vec<u8>> = tails.iter().map(|t| [&common[..], t].concat()).collect();
            let index = index_of(&separators);
            let extended = probes.iter().map(|p| [&common[..], p].concat());
            for key in extended.chain(probes.clone()).chain(separators.clone()).chain([common.clone()]) {
                let expected = separators.iter().position(|s| *s >= key);
                prop_assert_eq!(index.find(&key), expected);
                for i in (0..separators.len()).filter(|&i| index.ends_behind(i, &key)) {
                    prop_assert!(expected.is_some_and(|first| first <= i));
                }
            }
            for (i, s) in separators.iter().enumerate() {
                prop_assert_eq!(&index.separator(i), s);
            }
        }

        #[test]
        fn hostile_index_bytes_are_rejected_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Index::decode(&bytes, 1000);
        }
    }

    #[test]
    fn what_a_head_holds_is_not_stored_again() {
        let short: Vec<Vec<u8>> = (0..9000u32).map(|i| (i * 7001).to_be_bytes().to_vec()).collect();
        let index = index_of(&short);
        // Head and bound, offset, length.
        assert!(index.memory_bytes() < 9000 * (8 + 1 + 4 + 1) + 1200, "{}", index.memory_bytes());
        let mut long = short.clone();
        long[5].extend_from_slice(b"123456789");
        assert_eq!(index_of(&long).separator(5), long[5]);
        assert!(index_of(&long).memory_bytes() < index.memory_bytes() + 4 * 9001 + 20);
    }

    #[test]
    fn the_versions_of_one_key_may_fill_several_blocks() {
        let index = index_of(&[b"a".to_vec(), b"k".to_vec(), b"k".to_vec(), b"k".to_vec(), b"z".to_vec()]);
        assert_eq!(index.find(b"k"), Some(1));
        assert_eq!(index.find(b"k\0"), Some(4));
        assert_eq!([1, 2, 3].map(|from| index.behind_all_of(from, b"k")), [4; 3]);
        assert_eq!(index.behind_all_of(4, b"z"), 5);
        assert_eq!(index.behind_all_of(0, b"a\0"), 1);
        assert_eq!(index.block(4), Some(BlockAt { index: 4, offset: 400, span: 100 }));
        assert_eq!(index.block(5), None);
    }

    #[test]
    fn an_index_of_a_table_without_data_finds_nothing() {
        let index = index_of(&[]);
        assert_eq!(index.find(b""), None);
        assert_eq!(index.find(b"x"), None);
        assert_eq!(index.last_block(), None);
    }

    #[test]
    fn an_index_must_cover_the_data_and_ascend() {
        let mut builder = IndexBuilder::default();
        builder.add(100, b"b");
        builder.add(100, b"a");
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        assert!(Index::decode(&bytes, 200).unwrap_err().0.contains("order"));
        let mut bytes = Vec::new();
        bytes.put_varint(u64::MAX);
        assert!(Index::decode(&bytes, 0).is_err());
    }
}
