//! Steps in the trie: from a node by a label to a child or a leaf.
//!
//! # Invariants
//! Whatever the words hold, no step panics or reads out of bounds, each reads a bounded number of words, and a child's
//! number is above its parent's.

use super::Surf;
use super::shape::{BLOCK, CHILDREN, MARKS, PLACES, Shape};
use crate::bits;
use crate::words::Words;

/// A label of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) label: u8,
    node: u32,
    /// Sparse nodes: the place of the label, and one past the node's last. Dense nodes: not used.
    at: u32,
    end: u32,
}

/// Where a label leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// To this node.
    Child(u32),
    /// To a leaf; the edge tells which.
    Leaf,
}

impl<W: Words> Surf<W> {
    /// Whether `node`'s path is itself a key.
    #[inline]
    pub(super) fn key_ends_at(&self, node: u32) -> bool {
        self.shape.has_ends
            && self.words.word(self.shape.ends_at + (node / 64) as usize) >> (node % 64) & 1 == 1
    }

    /// The edge of `node` with this label.
    #[inline]
    pub(super) fn find(&self, node: u32, label: u8) -> Option<Edge> {
        if node < self.shape.dense_nodes {
            let word = self.words.word(dense_block(node) + MARKS + usize::from(label / 64));
            return (word >> (label % 64) & 1 == 1).then_some(Edge { label, node, at: 0, end: 0 });
        }
        self.seek(node, label).filter(|edge| edge.label == label)
    }

    /// The edge of `node` with the lowest label from `label` on.
    #[inline]
    pub(super) fn seek(&self, node: u32, label: u8) -> Option<Edge> {
        if node < self.shape.dense_nodes {
            let block = dense_block(node) + MARKS;
            let mut word = usize::from(label / 64);
            let mut marks = self.words.word(block + word) & (u64::MAX << (label % 64));
            while marks == 0 {
                word += 1;
                if word == 4 {
                    return None;
                }
                marks = self.words.word(block + word);
            }
            let label = (word as u32 * 64 + marks.trailing_zeros()) as u8;
            return Some(Edge { label, node, at: 0, end: 0 });
        }
        let (start, end) = self.sparse_node(node - self.shape.dense_nodes)?;
        let at = self.lower_bound(start, end, label);
        (at < end).then(|| Edge { label: self.sparse_label(at), node, at, end })
    }

    /// The edge after `edge` in its node.
    #[inline]
    pub(super) fn after(&self, edge: Edge) -> Option<Edge> {
        if edge.node < self.shape.dense_nodes {
            return self.seek(edge.node, edge.label.checked_add(1)?);
        }
        let at = edge.at + 1; // at most `end`
        (at < edge.end).then(|| Edge { label: self.sparse_label(at), at, ..edge })
    }

    /// Where `edge` leads; `None` if the words are damaged.
    #[inline]
    pub(super) fn target(&self, edge: Edge) -> Option<Target> {
        let (block, place, before) = self.place(edge);
        if self.words.word(block + CHILDREN + (place / 64) as usize) >> (place % 64) & 1 == 0 {
            return Some(Target::Leaf);
        }
        // Node k is the child of the k-th label that has one, counting from 1.
        let rank = self.rank(block, CHILDREN, place).wrapping_add(before);
        let child = rank.wrapping_add(1);
        (edge.node < child && child < self.shape.nodes).then_some(Target::Child(child))
    }

    /// The number of the leaf that `edge` leads to.
    #[inline]
    pub(super) fn leaf(&self, edge: Edge) -> u32 {
        let (block, place, _) = self.place(edge);
        let children = self.rank(block, CHILDREN, place);
        if edge.node < self.shape.dense_nodes {
            return self.rank(block, MARKS, place).wrapping_sub(children);
        }
        self.shape.dense_leaves.wrapping_add(edge.at).wrapping_sub(children)
    }

    /// The block of an edge, its place in the block, and the children that do not count in the block's numbers.
    #[inline]
    fn place(&self, edge: Edge) -> (usize, u32, u32) {
        if edge.node < self.shape.dense_nodes {
            return (dense_block(edge.node), u32::from(edge.label), 0);
        }
        let block = self.sparse_block(edge.at / PLACES as u32);
        (block, edge.at % PLACES as u32, self.shape.dense_children)
    }

    /// Ones of a sequence of `block` before `place`, those of all blocks before included.
    #[inline]
    fn rank(&self, block: usize, sequence: usize, place: u32) -> u32 {
        let counts = self.words.word(block);
        let before = if sequence == CHILDREN { counts as u32 } else { (counts >> 32) as u32 };
        before.wrapping_add(self.ones(block + sequence, place))
    }

    /// Ones among the first `places < 256` bits from word `at` on.
    #[inline]
    fn ones(&self, at: usize, places: u32) -> u32 {
        let (whole, rest) = ((places / 64) as usize, places % 64);
        let ones = (self.words.word(at + whole) & bits::mask(rest)).count_ones();
        (0..whole).fold(ones, |ones, i| ones + self.words.word(at + i).count_ones())
    }

    #[inline]
    fn sparse_block(&self, block: u32) -> usize {
        self.shape.sparse_at + block as usize * BLOCK
    }

    #[inline]
    fn sparse_label(&self, at: u32) -> u8 {
        (self.words.word(self.shape.labels_at + (at / 8) as usize) >> (at % 8 * 8)) as u8
    }

    /// The places of the labels of sparse node `i`: the first, and one past the last.
    #[inline]
    fn sparse_node(&self, i: u32) -> Option<(u32, u32)> {
        let start = self.select(i)?;
        let most = start.saturating_add(PLACES as u32).min(self.shape.sparse_labels);
        // The next node's first label, or the end of all.
        let mut at = start + 1;
        while at < most {
            let (block, place) = (self.sparse_block(at / PLACES as u32), at % PLACES as u32);
            let marks = self.words.word(block + MARKS + (place / 64) as usize) >> (place % 64);
            if marks != 0 {
                return Some((start, most.min(at.saturating_add(marks.trailing_zeros()))));
            }
            at = (at | 63).saturating_add(1);
        }
        Some((start, most))
    }

    /// The place of the first label of sparse node `i`.
    #[inline]
    fn select(&self, i: u32) -> Option<u32> {
        let last = (self.shape.sparse_blocks() as u32).checked_sub(1)?;
        let (hint, shift) = (i >> self.shape.hint_shift, self.shape.hint_shift);
        let hint_at =
            |k: u32| bits::read(&self.words, self.shape.hints_at as u64 * 64 + u64::from(k) * 32, 32);
        let mut low = (hint_at(hint) as u32).min(last);
        let more = u64::from(hint + 1) << shift < u64::from(self.shape.sparse_nodes());
        let mut high = if more { (hint_at(hint + 1) as u32).clamp(low, last) } else { last };
        let before = |block: u32| (self.words.word(self.sparse_block(block)) >> 32) as u32;
        // The last block with no more than `i` marks before it.
        while low < high {
            let middle = high - (high - low) / 2;
            if before(middle) <= i {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        let mut rank = i.checked_sub(before(low))?;
        let block = self.sparse_block(low) + MARKS;
        for word in 0..4u32 {
            let marks = self.words.word(block + word as usize);
            let ones = marks.count_ones();
            if rank < ones {
                let at = low * PLACES as u32 + word * 64 + bits::select_in_word(marks, rank);
                return (at < self.shape.sparse_labels).then_some(at);
            }
            rank -= ones;
        }
        None
    }

    /// The first place in `start..end`, whose labels ascend, with a label of at least `label`; `end` if there is none.
    #[inline]
    fn lower_bound(&self, mut start: u32, mut end: u32, label: u8) -> u32 {
        // Large nodes: halve until two words hold the rest.
        while end - start > 16 {
            let middle = start + (end - start) / 2;
            if self.sparse_label(middle) < label {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        let labels = self.shape.labels_at as u64 * 64;
        while start < end {
            let below = count_below(bits::read(&self.words, labels + u64::from(start) * 8, 64), label);
            if below < 8 {
                return (start + below).min(end);
            }
            start = start.saturating_add(8);
        }
        end
    }
}

#[inline]
fn dense_block(node: u32) -> usize {
    Shape::DENSE_AT + node as usize * BLOCK
}

/// How many of the eight bytes of `labels`, from the lowest on, are below `label` before the first that is not.
#[inline]
fn count_below(labels: u64, label: u8) -> u32 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let label = u64::from(label) * LOW;
    // Seven bits of each byte are compared by a subtraction that borrows from a bit set for it and not from the next
    // byte; the top bits decide first.
    let seven = (labels | HIGH) - (label & !HIGH);
    let below = ((!labels & label) | (!(labels ^ label) & !seven)) & HIGH;
    (below ^ HIGH).trailing_zeros() / 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_below_are_counted_up_to_the_first_that_is_not(labels: [u8; 8], label: u8, near: bool) {
            let labels = if near { labels.map(|l| label.wrapping_add(l % 3).wrapping_sub(1)) } else { labels };
            let expected = labels.iter().take_while(|l| **l < label).count() as u32;
            prop_assert_eq!(count_below(u64::from_le_bytes(labels), label), expected);
        }
    }
}
