//! Points, ranges and successors.
//!
//! The published search keeps a stack of the path and steps to the next leaf. None is needed here:
//! a range diverges from the trie where its bounds diverge, at one node. A label strictly between
//! the bounds there proves a key; otherwise only two paths are left, one along each bound, and both
//! are walked without backtracking.

use std::cmp::Ordering;
use std::ops::Bound;

use super::trie::{Edge, Target};
use super::{Surf, real_bits_of};
use crate::bits;
use crate::digest::Digest;
use crate::keys::KeyRange;
use crate::range::Next;
use crate::words::Words;

/// Length of a path in bytes.
type Depth = usize;

/// Maximum number of bytes of a successor beyond its path: damaged words must not ask for gigabytes
/// of zeros.
pub(super) const MOST_BEYOND: usize = 64;

/// Where a key lies relative to the keys of the run.
enum Place<'k> {
    /// Before all keys that start with the prefix.
    Below,
    /// Among them: the bytes after the prefix.
    At(&'k [u8]),
    /// After all of them.
    Above,
}

impl<W: Words> Surf<W> {
    /// Returns where `key` lies relative to the keys of the run, all of which start with the
    /// prefix, and its bytes after the prefix if it shares it.
    #[inline]
    fn rest<'k>(&self, key: &'k [u8]) -> Place<'k> {
        let len = self.shape.prefix_len as usize;
        if len == 0 {
            return Place::At(key);
        }
        let (chunks, tail) = key[..len.min(key.len())].as_chunks::<8>();
        for (i, chunk) in chunks.iter().enumerate() {
            let word = self.words.word(self.shape.prefix_at + i);
            if u64::from_le_bytes(*chunk) != word {
                return if *chunk < word.to_le_bytes() { Place::Below } else { Place::Above };
            }
        }
        let word = self.words.word(self.shape.prefix_at + chunks.len()).to_le_bytes();
        match tail.cmp(&word[..tail.len()]) {
            Ordering::Less => Place::Below,
            Ordering::Greater => Place::Above,
            Ordering::Equal => key.get(len..).map_or(Place::Below, Place::At),
        }
    }

    pub(super) fn search_key(&self, key: &[u8], digest: Digest) -> bool {
        let shape = &self.shape;
        let Place::At(key) = self.rest(key) else { return false };
        let len = key.len() as u64;
        if shape.nodes == 0 || len < u64::from(shape.shortest) || len > u64::from(shape.longest) {
            return false;
        }
        let mut node = 0;
        for (depth, &label) in key.iter().enumerate() {
            let Some(edge) = self.find(node, label) else { return false };
            match self.target(edge) {
                Some(Target::Child(child)) => node = child,
                Some(Target::Leaf) => return self.suffix_matches(edge, &key[depth + 1..], digest),
                None => return false,
            }
        }
        self.key_ends_at(node)
    }

    /// Returns whether the suffix of a leaf is that of the key whose bytes after the path are
    /// `rest`.
    #[inline]
    fn suffix_matches(&self, leaf: Edge, rest: &[u8], digest: Digest) -> bool {
        let (hash_bits, real_bits) = (self.shape.hash_bits, self.shape.real_bits);
        if hash_bits + real_bits == 0 {
            return true;
        }
        let stored = self.suffix(leaf);
        if hash_bits > 0
            && (digest.remix(self.head.salt) >> (64 - hash_bits)) != stored & bits::mask(hash_bits)
        {
            return false;
        }
        stored >> hash_bits == real_bits_of(rest, real_bits)
    }

    /// Returns the hash bits of a leaf, and above them its real bits.
    #[inline]
    fn suffix(&self, leaf: Edge) -> u64 {
        let width = self.shape.suffix_bits();
        let at = self.shape.suffixes_at as u64 * 64 + u64::from(self.leaf(leaf)) * u64::from(width);
        bits::read(&self.words, at, width)
    }

    /// Returns the real bits of a leaf.
    #[inline]
    fn real(&self, leaf: Edge) -> u64 {
        if self.shape.real_bits == 0 { 0 } else { self.suffix(leaf) >> self.shape.hash_bits }
    }

    pub(super) fn search_range(&self, range: KeyRange<'_>) -> bool {
        if self.shape.nodes == 0 {
            return false;
        }
        let (low, low_in) = match range.start {
            Bound::Unbounded => (Place::Below, true),
            Bound::Included(key) => (self.rest(key), true),
            Bound::Excluded(key) => (self.rest(key), false),
        };
        let (low, low_in) = match low {
            Place::Below => (&[][..], true),
            Place::At(low) => (low, low_in),
            Place::Above => return false,
        };
        let (high, high_in) = match range.end {
            Bound::Unbounded => (Place::Above, true),
            Bound::Included(key) => (self.rest(key), true),
            Bound::Excluded(key) => (self.rest(key), false),
        };
        let high = match high {
            Place::Below => return false,
            Place::At(high) => high,
            Place::Above => return self.reaches(0, 0, low, low_in),
        };
        let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
        let empty = match (low.get(common), high.get(common)) {
            (Some(a), Some(b)) => a > b,
            (Some(_), None) => true,
            (None, None) => !(low_in && high_in),
            // Nothing lies between a key and the same key with a zero byte appended.
            (None, Some(_)) => !low_in && !high_in && high[common..] == [0],
        };
        if empty {
            return false;
        }
        let mut node = 0;
        for (depth, &label) in low[..common].iter().enumerate() {
            let Some(edge) = self.find(node, label) else { return false };
            match self.target(edge) {
                Some(Target::Child(child)) => node = child,
                Some(Target::Leaf) => {
                    let depth = depth + 1;
                    return self.leaf_reaches(edge, depth, low, low_in)
                        && self.leaf_starts_by(edge, depth, high, high_in);
                }
                None => return false,
            }
        }
        self.parts(node, common, (low, low_in), (high, high_in))
    }

    /// Searches from `node` on, whose path of `depth` bytes is the common prefix of the bounds.
    #[inline]
    fn parts(
        &self,
        node: u32,
        depth: Depth,
        (low, low_in): (&[u8], bool),
        (high, high_in): (&[u8], bool),
    ) -> bool {
        let first = match low.get(depth) {
            None => {
                if low_in && self.key_ends_at(node) {
                    return true;
                }
                self.seek(node, 0)
            }
            Some(&label) => self.seek(node, label),
        };
        // Without a byte here both bounds equal this path, and everything that continues it is
        // above.
        let (Some(mut edge), Some(&last)) = (first, high.get(depth)) else { return false };
        if low.get(depth) == Some(&edge.label) {
            let after = self.after(edge);
            if after.is_some_and(|after| after.label < last) {
                return true;
            }
            let reached = match self.target(edge) {
                Some(Target::Child(child)) => self.reaches(child, depth + 1, low, low_in),
                Some(Target::Leaf) => self.leaf_reaches(edge, depth + 1, low, low_in),
                None => false,
            };
            if reached {
                return true;
            }
            let Some(after) = after else { return false };
            edge = after;
        }
        match edge.label.cmp(&last) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.starts_by(edge, depth, high, high_in),
        }
    }

    /// Returns whether a key at or after `low` may lie below `node`, whose path is the first
    /// `depth` bytes of `low`.
    #[inline]
    fn reaches(&self, mut node: u32, mut depth: Depth, low: &[u8], low_in: bool) -> bool {
        loop {
            let Some(&label) = low.get(depth) else {
                return low_in && self.key_ends_at(node) || self.seek(node, 0).is_some();
            };
            let Some(edge) = self.seek(node, label) else { return false };
            if edge.label > label || self.after(edge).is_some() {
                return true;
            }
            depth += 1;
            match self.target(edge) {
                Some(Target::Child(child)) => node = child,
                Some(Target::Leaf) => return self.leaf_reaches(edge, depth, low, low_in),
                None => return false,
            }
        }
    }

    /// Returns whether a key at or before `high` may lie below `edge`, whose path is the first
    /// `depth + 1` bytes of `high`.
    #[inline]
    fn starts_by(&self, mut edge: Edge, mut depth: Depth, high: &[u8], high_in: bool) -> bool {
        loop {
            depth += 1;
            let node = match self.target(edge) {
                Some(Target::Child(child)) => child,
                Some(Target::Leaf) => return self.leaf_starts_by(edge, depth, high, high_in),
                None => return false,
            };
            let Some(&label) = high.get(depth) else {
                return high_in && self.key_ends_at(node);
            };
            if self.key_ends_at(node) {
                return true;
            }
            let Some(first) = self.seek(node, 0) else { return false };
            match first.label.cmp(&label) {
                Ordering::Less => return true,
                Ordering::Greater => return false,
                Ordering::Equal => edge = first,
            }
        }
    }

    /// Returns whether the leaf's key is known to the last byte, given the real bits: it then has
    /// the longest key's length.
    #[inline]
    fn is_whole(&self, depth: Depth) -> bool {
        let shape = &self.shape;
        let longest = u64::from(shape.longest);
        depth as u64 >= longest
            || shape.shortest == shape.longest && depth as u64 * 8 + u64::from(shape.real_bits) >= longest * 8
    }

    /// Returns whether the key of a leaf, whose path is the first `depth` bytes of `low`, may be at
    /// or after `low`.
    #[inline]
    fn leaf_reaches(&self, leaf: Edge, depth: Depth, low: &[u8], low_in: bool) -> bool {
        match self.real(leaf).cmp(&real_bits_of(&low[depth..], self.shape.real_bits)) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal if self.is_whole(depth) => {
                match u64::from(self.shape.longest).cmp(&(low.len() as u64)) {
                    Ordering::Less => false,
                    Ordering::Equal => low_in,
                    Ordering::Greater => true,
                }
            }
            Ordering::Equal => true,
        }
    }

    /// Returns whether the key of a leaf, whose path is the first `depth` bytes of `high`, may be
    /// at or before `high`.
    #[inline]
    fn leaf_starts_by(&self, leaf: Edge, depth: Depth, high: &[u8], high_in: bool) -> bool {
        let real_bits = self.shape.real_bits;
        let (real, rest) = (self.real(leaf), &high[depth..]);
        match real.cmp(&real_bits_of(rest, real_bits)) {
            Ordering::Less => return true,
            Ordering::Greater => return false,
            Ordering::Equal => {}
        }
        // `high` and the lowest key that the leaf can stand for agree in path and real bits; after
        // those, that key has only zeros, up to the shortest key's length.
        let partial = rest.get((real_bits / 8) as usize).is_some_and(|byte| byte << (real_bits % 8) != 0);
        if partial || rest.iter().skip((real_bits / 8) as usize + 1).any(|byte| *byte != 0) {
            return true;
        }
        match self.lowest_len(depth, real).cmp(&high.len()) {
            Ordering::Less => true,
            Ordering::Equal => high_in,
            Ordering::Greater => false,
        }
    }

    /// Returns the length of the lowest key that a leaf can stand for.
    #[inline]
    fn lowest_len(&self, depth: Depth, real: u64) -> usize {
        let bits = if real == 0 { 0 } else { self.shape.real_bits.saturating_sub(real.trailing_zeros()) };
        (depth + bits.div_ceil(8) as usize).max(self.shape.shortest as usize)
    }

    pub(super) fn search_next(&self, from: &[u8]) -> Next<Vec<u8>> {
        let rest = match self.rest(from) {
            _ if self.shape.nodes == 0 => return Next::Nothing,
            Place::Above => return Next::Nothing,
            Place::Below => &[],
            Place::At(rest) => rest,
        };
        let next = match self.next_rest(rest) {
            Next::NotBelow(rest) if self.shape.prefix_len > 0 => {
                let prefix = (0..u64::from(self.shape.prefix_len))
                    .map(|i| bits::read(&self.words, self.shape.prefix_at as u64 * 64 + i * 8, 8) as u8);
                Next::NotBelow(prefix.chain(rest).collect())
            }
            next => next,
        };
        match next {
            // The labels of a damaged node need not ascend; a caller that continues from the answer
            // must not go back.
            Next::NotBelow(next) if *next < *from => Next::Unknown,
            next => next,
        }
    }

    /// Returns the next key from `from` on, both without the prefix.
    fn next_rest(&self, from: &[u8]) -> Next<Vec<u8>> {
        let (mut node, mut depth) = (0, 0);
        // The deepest label above the path.
        let mut beside = None;
        loop {
            let Some(&label) = from.get(depth) else {
                // Everything below the node is at or after `from`.
                if self.key_ends_at(node) {
                    return Next::NotBelow(from.to_vec());
                }
                match self.seek(node, 0) {
                    Some(edge) => beside = Some((depth, edge)),
                    None => return Next::Unknown,
                }
                break;
            };
            let Some(edge) = self.seek(node, label) else { break };
            if edge.label > label {
                beside = Some((depth, edge));
                break;
            }
            beside = self.after(edge).map(|after| (depth, after)).or(beside);
            depth += 1;
            match self.target(edge) {
                Some(Target::Child(child)) => node = child,
                Some(Target::Leaf) if self.leaf_reaches(edge, depth, from, true) => {
                    let lowest = self.lowest_of_leaf(from[..depth].to_vec(), edge);
                    return Next::NotBelow(lowest.max(from.to_vec()));
                }
                Some(Target::Leaf) => break,
                None => return Next::Unknown,
            }
        }
        let Some((depth, edge)) = beside else { return Next::Nothing };
        self.lowest_below(from[..depth].to_vec(), edge).map_or(Next::Unknown, Next::NotBelow)
    }

    /// Returns the lowest key that may lie below `edge` of the node with this path.
    fn lowest_below(&self, mut path: Vec<u8>, mut edge: Edge) -> Option<Vec<u8>> {
        // Child numbers rise, so the walk ends; damaged words may make it longer than any path of
        // the trie.
        while path.len() < self.shape.height as usize {
            path.push(edge.label);
            match self.target(edge)? {
                Target::Leaf => return Some(self.lowest_of_leaf(path, edge)),
                Target::Child(child) if self.key_ends_at(child) => return Some(path),
                Target::Child(child) => edge = self.seek(child, 0)?,
            }
        }
        None
    }

    /// Returns the lowest key that a leaf with this path can stand for.
    fn lowest_of_leaf(&self, mut path: Vec<u8>, leaf: Edge) -> Vec<u8> {
        let real = self.real(leaf);
        let len = self.lowest_len(path.len(), real).min(path.len() + MOST_BEYOND);
        let bytes =
            if self.shape.real_bits == 0 { 0 } else { real << (64 - self.shape.real_bits) }.to_be_bytes();
        path.extend_from_slice(&bytes[..(len - path.len()).min(8)]);
        path.resize(len, 0);
        path
    }
}
