//! The sections of a trie's words: where each starts and how much it holds.

use super::blocks::{BLOCK, PLACES};
use crate::bits;
use crate::error::FilterError;
use crate::format::Head;
use crate::words::Words;

/// Words of the header.
pub(super) const HEADER: usize = 5;
/// Maximum number of labels of a node, and number of places of a dense one.
pub(super) const FANOUT: u64 = 256;
/// Maximum number of suffix bits of a kind.
pub(super) const MAX_SUFFIX: u32 = 32;
/// Maximum number of nodes per select hint, as a power of two.
const MAX_HINT_SHIFT: u32 = 9;

/// The counts that the header holds, and derived values. All sections start at a whole word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// Nodes of the dense levels: numbers `0..dense_nodes`, 256 places each.
    pub(super) dense_nodes: u32,
    /// All nodes, numbered level by level. The root is 0; without keys there is none.
    pub(super) nodes: u32,
    /// Labels of the sparse levels.
    pub(super) sparse_labels: u32,
    /// Labels of dense levels that lead to a node, and that lead to a leaf.
    pub(super) dense_children: u32,
    pub(super) dense_leaves: u32,
    /// Levels that have labels: the longest path.
    pub(super) height: u32,
    /// Lengths of the shortest and longest key without the prefix.
    pub(super) shortest: u32,
    pub(super) longest: u32,
    /// Length of the common prefix, which the trie omits.
    pub(super) prefix_len: u32,
    /// Every `2^hint_shift`-th sparse node has a select hint.
    pub(super) hint_shift: u32,
    /// Whether some key is a prefix of another; nodes then have a bit for "a key ends here".
    pub(super) has_ends: bool,
    /// Suffix bits per leaf.
    pub(super) hash_bits: u32,
    pub(super) real_bits: u32,
    /// First word of each section.
    pub(super) sparse_at: usize,
    pub(super) hints_at: usize,
    pub(super) labels_at: usize,
    pub(super) ends_at: usize,
    pub(super) prefix_at: usize,
    pub(super) suffixes_at: usize,
    /// Number of leaves, with one suffix each.
    pub(super) leaves: u32,
}

/// The counts of a shape, without derived values.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) dense_nodes: u32,
    pub(super) nodes: u32,
    pub(super) sparse_labels: u32,
    pub(super) dense_children: u32,
    pub(super) dense_leaves: u32,
    pub(super) height: u32,
    pub(super) shortest: u32,
    pub(super) longest: u32,
    pub(super) prefix_len: u32,
    pub(super) hint_shift: u32,
    pub(super) has_ends: bool,
}

impl Counts {
    /// Returns the hint distance at which neighbouring hints are about a block apart: a select then
    /// reads one or two blocks, and the hints take at most 1/8 bit per label.
    pub(super) fn hint_shift_for(sparse_nodes: u64, sparse_labels: u64) -> u32 {
        let nodes_per_block = (sparse_nodes * PLACES).checked_div(sparse_labels).unwrap_or(1).max(1);
        nodes_per_block.ilog2().min(MAX_HINT_SHIFT)
    }

    /// Returns the shape and the words it takes; `None` if the counts contradict each other or the
    /// words cannot be counted. O(1).
    pub(super) fn shape(self, [hash_bits, real_bits]: [u8; 2]) -> Option<(Shape, u64)> {
        let Counts { dense_nodes, nodes, sparse_labels, dense_children, dense_leaves, .. } = self;
        let (hash_bits, real_bits) = (u32::from(hash_bits), u32::from(real_bits));
        if hash_bits > MAX_SUFFIX || real_bits > MAX_SUFFIX || self.hint_shift > MAX_HINT_SHIFT {
            return None;
        }
        let sparse_nodes = nodes.checked_sub(dense_nodes)?;
        // Every sparse node has a label, every node except the root is some label's child, and
        // every level has a node.
        let sparse_children = nodes.saturating_sub(1).checked_sub(dense_children)?;
        let sparse_leaves = sparse_labels.checked_sub(sparse_children)?;
        if sparse_nodes > sparse_labels
            || sparse_nodes == 0 && sparse_labels > 0
            || self.height > nodes
            || self.shortest > self.longest
        {
            return None;
        }
        let leaves = dense_leaves.checked_add(sparse_leaves)?;
        let mut end = HEADER as u64;
        // No sum of eight numbers below 2^40 overflows.
        let mut section = |words: u64| {
            let at = usize::try_from(end).ok();
            end += words;
            at
        };
        section((u64::from(dense_nodes) * FANOUT).div_ceil(PLACES) * BLOCK as u64)?;
        let sparse_at = section(u64::from(sparse_labels).div_ceil(PLACES) * BLOCK as u64)?;
        let hints_at = section(u64::from(sparse_nodes).div_ceil(1 << self.hint_shift).div_ceil(2))?;
        let labels_at = section(u64::from(sparse_labels).div_ceil(8))?;
        let ends_at = section(if self.has_ends { bits::words_for(u64::from(nodes)) } else { 0 })?;
        let prefix_at = section(u64::from(self.prefix_len).div_ceil(8))?;
        let suffixes_at = section(bits::words_for(u64::from(leaves) * u64::from(hash_bits + real_bits)))?;
        let shape = Shape {
            dense_nodes,
            nodes,
            sparse_labels,
            dense_children,
            dense_leaves,
            height: self.height,
            shortest: self.shortest,
            longest: self.longest,
            prefix_len: self.prefix_len,
            hint_shift: self.hint_shift,
            has_ends: self.has_ends,
            hash_bits,
            real_bits,
            sparse_at,
            hints_at,
            labels_at,
            ends_at,
            prefix_at,
            suffixes_at,
            leaves,
        };
        Some((shape, end))
    }
}

impl Shape {
    /// Returns the first word of the dense node blocks.
    pub(super) const DENSE_AT: usize = HEADER;

    /// Returns the header.
    pub(super) fn header(&self) -> [u64; HEADER] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            pair(self.dense_nodes, self.nodes),
            pair(self.sparse_labels, self.dense_children),
            pair(self.dense_leaves, self.height),
            pair(self.shortest, self.longest),
            pair(self.hint_shift | u32::from(self.has_ends) << 8, self.prefix_len),
        ]
    }

    /// Reads the header and checks it against the number of words. O(1).
    pub(super) fn read<W: Words>(head: Head, words: &W) -> Result<Self, FilterError> {
        let low = |at| words.word(at) as u32;
        let high = |at| (words.word(at) >> 32) as u32;
        let flags = low(4);
        if flags >> 9 != 0 {
            return Err(FilterError::Corrupt("trie flags"));
        }
        let counts = Counts {
            dense_nodes: low(0),
            nodes: high(0),
            sparse_labels: low(1),
            dense_children: high(1),
            dense_leaves: low(2),
            height: high(2),
            shortest: low(3),
            longest: high(3),
            prefix_len: high(4),
            hint_shift: flags & 0xff,
            has_ends: flags >> 8 & 1 == 1,
        };
        let (shape, len) = counts.shape(head.params).ok_or(FilterError::Corrupt("trie header"))?;
        if len != words.count() as u64 {
            return Err(FilterError::Corrupt("trie size"));
        }
        if u64::from(shape.leaves) > head.keys || (head.keys == 0) != (shape.nodes == 0) {
            return Err(FilterError::Corrupt("trie keys"));
        }
        Ok(shape)
    }

    /// Nodes of the sparse levels.
    pub(super) fn sparse_nodes(&self) -> u32 {
        self.nodes - self.dense_nodes
    }

    /// Blocks of the sparse levels.
    pub(super) fn sparse_blocks(&self) -> u64 {
        u64::from(self.sparse_labels).div_ceil(PLACES)
    }

    /// Suffix bits per leaf.
    pub(super) fn suffix_bits(&self) -> u32 {
        self.hash_bits + self.real_bits
    }
}
