//! Builds the trie: one pass over neighbouring keys yields every count, so that all words are
//! allocated once; then the trie is written level by level.

use super::blocks::{self, BLOCK, CHILDREN, MARKS, PLACES};
use super::shape::{Counts, FANOUT, MAX_SUFFIX, Shape};
use super::{Surf, SurfSuffix, real_bits_of};
use crate::bits;
use crate::bloom::{MAX_UNITS, units_for};
use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::{Head, WordFilter};
use crate::keys::KeyList;

/// Size of a place, including its share of the counts, in eighths of a bit.
const PLACE: u64 = BLOCK as u64 * 64 * 8 / PLACES;
/// Sizes of a sparse label, including its share of the hints, and of a dense node.
const SPARSE_LABEL: u64 = 8 * 8 + PLACE + 1;
const DENSE_NODE: u64 = FANOUT * PLACE;
/// Dense levels may exceed their sparse form by the size of the levels below divided by this.
const DENSE_SHARE: u64 = 16;

/// The keys without their common prefix: the content of the trie.
#[derive(Clone, Copy)]
struct Rests<'a> {
    keys: &'a KeyList,
    prefix_len: usize,
}

impl<'a> Rests<'a> {
    /// `keys` must be sorted, without duplicates. A single key is kept whole.
    fn of(keys: &'a KeyList) -> Self {
        let prefix_len = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) if keys.len() > 1 => common_len(first, last),
            _ => 0,
        };
        Self { keys, prefix_len }
    }

    fn len(self) -> usize {
        self.keys.len()
    }

    fn get(self, at: usize) -> &'a [u8] {
        &self.keys.get(at)[self.prefix_len..]
    }

    fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |at| self.get(at))
    }

    fn prefix(self) -> &'a [u8] {
        self.keys.first().map_or(&[], |key| &key[..self.prefix_len])
    }
}

/// One level of the trie.
#[derive(Clone, Copy, Default, Debug)]
struct Level {
    nodes: u64,
    labels: u64,
    leaves: u64,
}

/// The results of one pass over the sorted keys.
struct Survey {
    /// Bytes that rest `i` has in common with rest `i + 1`.
    common: Vec<u32>,
    prefix_len: u32,
    levels: Vec<Level>,
    /// Length of the shortest path to a leaf; `u32::MAX` without leaves.
    shallowest: u32,
    shortest: u32,
    longest: u32,
    has_ends: bool,
}

impl Survey {
    fn of(keys: Rests<'_>) -> Result<Self, FilterError> {
        let too_large = FilterError::TooLarge { keys: keys.len() as u64 };
        if keys.len() >= u32::MAX as usize {
            return Err(too_large);
        }
        let (mut shortest, mut longest) = (u32::MAX, 0);
        for key in keys.iter() {
            let len =
                u32::try_from(key.len()).map_err(|_| FilterError::Parameter("a key of 4 GiB or more"))?;
            (shortest, longest) = (shortest.min(len), longest.max(len));
        }
        let mut common = Vec::with_capacity(keys.len());
        common.extend(keys.iter().zip(keys.iter().skip(1)).map(|(a, b)| common_len(a, b) as u32));
        let mut survey = Survey {
            common,
            prefix_len: keys.prefix_len as u32,
            levels: Vec::new(),
            shallowest: u32::MAX,
            shortest: if keys.len() == 0 { 0 } else { shortest },
            longest,
            has_ends: false,
        };
        survey.count_levels(keys);
        if survey.levels.iter().map(|level| level.labels).sum::<u64>() >= u64::from(u32::MAX) {
            return Err(too_large);
        }
        Ok(survey)
    }

    /// Counts the nodes, labels and leaves of each level. A key's path goes one byte beyond the
    /// prefix it shares with either neighbour; its labels beyond the prefix shared with the
    /// previous key are new.
    fn count_levels(&mut self, keys: Rests<'_>) {
        let shared = |i: usize| {
            let before = if i == 0 { 0 } else { self.common[i - 1] };
            (before, before.max(self.common.get(i).copied().unwrap_or(0)))
        };
        let deepest = (0..keys.len()).map(|i| shared(i).1).max();
        let Some(deepest) = deepest else { return };
        // Labels first appear (+1) and end (-1) at these levels.
        let mut changes = vec![0i64; deepest as usize + 2];
        let mut leaves = vec![0u64; deepest as usize + 1];
        let (mut has_ends, mut shallowest) = (false, u32::MAX);
        for (i, key) in keys.iter().enumerate() {
            let (before, shared) = shared(i);
            changes[before as usize] += 1;
            if key.len() == shared as usize {
                has_ends = true; // the key ends at a node
                changes[shared as usize] -= 1;
            } else {
                leaves[shared as usize] += 1;
                changes[shared as usize + 1] -= 1;
                shallowest = shallowest.min(shared + 1);
            }
        }
        let (mut nodes, mut labels) = (1, 0);
        for (change, leaves) in changes.iter().zip(leaves) {
            labels += change;
            self.levels.push(Level { nodes, labels: labels as u64, leaves });
            nodes = labels as u64 - leaves;
            if nodes == 0 {
                break;
            }
        }
        (self.has_ends, self.shallowest) = (has_ends, shallowest);
    }

    /// Returns the number of dense levels, counted from the root.
    fn dense_levels(&self) -> usize {
        let mut rest = self.levels.iter().map(|level| level.labels * SPARSE_LABEL).sum::<u64>();
        if rest == 0 {
            return self.levels.len(); // only the root, without labels: a sparse node needs one
        }
        let (mut dense, mut least, mut chosen) = (0, rest, 0);
        for (i, level) in self.levels.iter().enumerate() {
            dense += level.nodes * DENSE_NODE;
            rest -= level.labels * SPARSE_LABEL;
            if dense + rest <= least + rest / DENSE_SHARE {
                chosen = i + 1;
            }
            least = least.min(dense + rest);
        }
        chosen
    }

    fn counts(&self, dense_levels: usize) -> Counts {
        let (dense, sparse) = self.levels.split_at(dense_levels);
        let sum = |levels: &[Level], of: fn(&Level) -> u64| levels.iter().map(of).sum::<u64>();
        let dense_nodes = sum(dense, |level| level.nodes);
        let sparse_nodes = sum(sparse, |level| level.nodes);
        let sparse_labels = sum(sparse, |level| level.labels);
        let dense_leaves = sum(dense, |level| level.leaves);
        // No count exceeds the number of labels by more than one: they all fit.
        Counts {
            dense_nodes: dense_nodes as u32,
            nodes: (dense_nodes + sparse_nodes) as u32,
            sparse_labels: sparse_labels as u32,
            dense_children: (sum(dense, |level| level.labels) - dense_leaves) as u32,
            dense_leaves: dense_leaves as u32,
            height: self.levels.iter().filter(|level| level.labels > 0).count() as u32,
            shortest: self.shortest,
            longest: self.longest,
            prefix_len: self.prefix_len,
            hint_shift: Counts::hint_shift_for(sparse_nodes, sparse_labels),
            has_ends: self.has_ends,
        }
    }

    /// Returns the hash and real bits per leaf that `spare` bits allow.
    fn suffix_bits(&self, suffix: SurfSuffix, leaves: u64, spare: u64) -> [u8; 2] {
        let each = spare.checked_div(leaves).unwrap_or(0).min(u64::from(2 * MAX_SUFFIX)) as u32;
        // Bits beyond the end of the longest key would add no information.
        let rest = self.longest.saturating_sub(self.shallowest).saturating_mul(8).min(MAX_SUFFIX);
        let (hash, real) = match suffix {
            SurfSuffix::None => (0, 0),
            SurfSuffix::Hash => (each.clamp(1, MAX_SUFFIX), 0),
            SurfSuffix::Real => (0, each.max(1).min(rest)),
            SurfSuffix::Mixed => {
                let real = (each / 2).max(1).min(rest);
                (each.saturating_sub(real).clamp(1, MAX_SUFFIX), real)
            }
        };
        [hash as u8, real as u8]
    }
}

fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Surf {
    /// Builds over `keys`, in any order; duplicates are allowed. The trie takes the space it needs;
    /// what `bits_per_key` leaves goes to the suffixes: at least one bit of each requested sort (no
    /// real bits where no key has any left), at most 32. The filter is therefore larger than
    /// requested if the trie is, smaller if the suffixes are full, and otherwise smaller by less
    /// than a bit per key. O(bytes of the keys' paths), plus a digest per key for hash suffixes.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`]; [`FilterError::TooLarge`] beyond 2^32 labels or words;
    /// [`FilterError::Parameter`] for a key of 4 GiB.
    pub fn build(
        keys: &KeyList,
        suffix: SurfSuffix,
        bits_per_key: f64,
        salt: u64,
    ) -> Result<Self, FilterError> {
        let keys = keys.sorted();
        units_for(keys.len() as u64, bits_per_key, 64.0)?;
        let too_large = FilterError::TooLarge { keys: keys.len() as u64 };
        let rests = Rests::of(&keys);
        let survey = Survey::of(rests)?;
        let dense_levels = survey.dense_levels();
        let counts = survey.counts(dense_levels);
        let (bare, trie_words) = counts.shape([0, 0]).ok_or(too_large.clone())?;
        let spare = ((keys.len() as f64 * bits_per_key).round() as u64).saturating_sub(trie_words * 64);
        let params = survey.suffix_bits(suffix, u64::from(bare.leaves), spare);
        let (shape, len) = counts.shape(params).ok_or(too_large.clone())?;
        if len > MAX_UNITS {
            return Err(too_large);
        }
        let mut words = vec![0; usize::try_from(len).map_err(|_| too_large)?];
        words[..shape.header().len()].copy_from_slice(&shape.header());
        let mut writer = Writer { shape, salt, words, label: 0, leaf: 0 };
        writer.write(rests, &survey.common, dense_levels);
        writer.count();
        Self::from_parts(Head { salt, keys: keys.len() as u64, params }, writer.words.into())
    }
}

struct Writer {
    shape: Shape,
    salt: u64,
    words: Vec<u64>,
    /// Number of sparse labels and leaves written so far.
    label: u64,
    leaf: u64,
}

impl Writer {
    /// Writes all but the counts. `common` is what each key shares with the next.
    fn write(&mut self, keys: Rests<'_>, common: &[u32], dense_levels: usize) {
        for (i, byte) in (0..).zip(keys.prefix()) {
            bits::write(&mut self.words[self.shape.prefix_at..], i * 8, 8, u64::from(*byte));
        }
        let mut node = 0;
        // The range of keys below each node of the level. Nodes come in key order.
        let mut level = vec![(0, keys.len() as u32)];
        let mut below = Vec::new();
        level.retain(|(first, end)| first < end);
        let mut depth = 0;
        while !level.is_empty() {
            for &(mut at, end) in &level {
                if keys.get(at as usize).len() == depth {
                    bits::write(&mut self.words[self.shape.ends_at..], node, 1, 1);
                    at += 1;
                }
                let mut first = true;
                while at < end {
                    let key = keys.get(at as usize);
                    let group = at;
                    at += 1;
                    while at < end && common[at as usize - 1] as usize > depth {
                        at += 1;
                    }
                    let child = at > group + 1;
                    if depth < dense_levels {
                        self.dense_label(node, key[depth], child);
                    } else {
                        self.sparse_label(key[depth], child, first);
                    }
                    first = false;
                    if child {
                        below.push((group, at));
                    } else {
                        self.suffix(keys.keys.get(group as usize), keys.prefix_len + depth + 1);
                    }
                }
                node += 1;
            }
            std::mem::swap(&mut level, &mut below);
            below.clear();
            depth += 1;
        }
    }

    fn dense_label(&mut self, node: u64, label: u8, child: bool) {
        let at = node * FANOUT + u64::from(label);
        blocks::set(&mut self.words, Shape::DENSE_AT, MARKS, at);
        if child {
            blocks::set(&mut self.words, Shape::DENSE_AT, CHILDREN, at);
        }
    }

    fn sparse_label(&mut self, label: u8, child: bool, first: bool) {
        if first {
            blocks::set(&mut self.words, self.shape.sparse_at, MARKS, self.label);
        }
        if child {
            blocks::set(&mut self.words, self.shape.sparse_at, CHILDREN, self.label);
        }
        bits::write(&mut self.words[self.shape.labels_at..], self.label * 8, 8, u64::from(label));
        self.label += 1;
    }

    /// Returns the suffix of a whole key whose prefix and path have `len` bytes.
    fn suffix(&mut self, key: &[u8], len: usize) {
        let Shape { hash_bits, real_bits, .. } = self.shape;
        let width = self.shape.suffix_bits();
        let hash = if hash_bits == 0 { 0 } else { Digest::of(key).remix(self.salt) >> (64 - hash_bits) };
        let value = hash | real_bits_of(&key[len..], real_bits) << hash_bits;
        bits::write(&mut self.words[self.shape.suffixes_at..], self.leaf * u64::from(width), width, value);
        self.leaf += 1;
    }

    /// Writes the counts of all blocks, and the hints.
    fn count(&mut self) {
        let (words, hints) = self.words.split_at_mut(self.shape.hints_at);
        blocks::count(&mut words[Shape::DENSE_AT..self.shape.sparse_at], |_, _, _| {});
        let shift = self.shape.hint_shift;
        blocks::count(&mut words[self.shape.sparse_at..], |block, from, to| {
            // The hints of nodes whose first label is in this block.
            let first = u64::from(from).div_ceil(1 << shift);
            for hint in first..u64::from(to).div_ceil(1 << shift) {
                bits::write(hints, hint * 32, 32, block);
            }
        });
    }
}
