//! Steps in the trie: from a node along a label to a child or a leaf.
//!
//! # Invariants
//! Whatever the words hold, no step panics or reads out of bounds, each step reads a bounded number
//! of words, and a child's number is above its parent's.

use super::Surf;
use super::blocks::{self, CHILDREN, MARKS, PLACES};
use super::shape::{FANOUT, Shape};
use crate::words::Words;

/// A label of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) label: u8,
    node: u32,
    /// The place of the label in the dense or sparse sequences.
    at: u64,
    /// For sparse nodes, one past the place of the node's last label.
    end: u64,
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
    /// Returns whether `node`'s path is itself a key.
    #[inline]
    pub(super) fn key_ends_at(&self, node: u32) -> bool {
        self.shape.has_ends
            && self.words.word(self.shape.ends_at + (node / 64) as usize) >> (node % 64) & 1 == 1
    }

    /// Returns the edge of `node` with this label.
    #[inline(always)]
    pub(super) fn find(&self, node: u32, label: u8) -> Option<Edge> {
        if node < self.shape.dense_nodes {
            let at = dense_place(node, label);
            let found = blocks::bit(&self.words, Shape::DENSE_AT, MARKS, at);
            return found.then_some(Edge { label, node, at, end: at });
        }
        self.seek_sparse(node, label).filter(|edge| edge.label == label)
    }

    /// Returns the edge of `node` with the lowest label from `label` on.
    #[inline]
    pub(super) fn seek(&self, node: u32, label: u8) -> Option<Edge> {
        if node < self.shape.dense_nodes {
            let at = dense_place(node, label);
            let at = blocks::next(&self.words, Shape::DENSE_AT, at, dense_place(node, 0) + FANOUT)?;
            return Some(Edge { label: at as u8, node, at, end: at });
        }
        self.seek_sparse(node, label)
    }

    /// Like [`Surf::seek`], in a node that is not dense.
    #[inline(always)]
    fn seek_sparse(&self, node: u32, label: u8) -> Option<Edge> {
        let (start, end) = self.sparse_node(node - self.shape.dense_nodes)?;
        let (at, label) = self.lower_bound(start, end, label)?;
        Some(Edge { label, node, at, end })
    }

    /// Returns the edge after `edge` in its node.
    #[inline]
    pub(super) fn after(&self, edge: Edge) -> Option<Edge> {
        if edge.node < self.shape.dense_nodes {
            return self.seek(edge.node, edge.label.checked_add(1)?);
        }
        let at = edge.at + 1;
        (at < edge.end).then(|| Edge { label: self.sparse_label(at), at, ..edge })
    }

    /// Returns where `edge` leads; `None` if the words are damaged.
    #[inline]
    pub(super) fn target(&self, edge: Edge) -> Option<Target> {
        let (sequences, before) = self.sequences(edge);
        if !blocks::bit(&self.words, sequences, CHILDREN, edge.at) {
            return Some(Target::Leaf);
        }
        // Node k is the child of the k-th label that has one, counting from 1.
        let child =
            blocks::rank(&self.words, sequences, CHILDREN, edge.at).wrapping_add(before).wrapping_add(1);
        (edge.node < child && child < self.shape.nodes).then_some(Target::Child(child))
    }

    /// Returns the number of the leaf that `edge` leads to.
    #[inline]
    pub(super) fn leaf(&self, edge: Edge) -> u32 {
        let (sequences, _) = self.sequences(edge);
        let children = blocks::rank(&self.words, sequences, CHILDREN, edge.at);
        let labels = if edge.node < self.shape.dense_nodes {
            blocks::rank(&self.words, sequences, MARKS, edge.at)
        } else {
            self.shape.dense_leaves.wrapping_add(edge.at as u32)
        };
        labels.wrapping_sub(children)
    }

    /// Returns where the sequences of the edge's node start, and how many children come before
    /// them.
    #[inline]
    fn sequences(&self, edge: Edge) -> (usize, u32) {
        if edge.node < self.shape.dense_nodes {
            (Shape::DENSE_AT, 0)
        } else {
            (self.shape.sparse_at, self.shape.dense_children)
        }
    }

    #[inline]
    fn sparse_label(&self, at: u64) -> u8 {
        (self.words.word(self.shape.labels_at + (at / 8) as usize) >> (at % 8 * 8)) as u8
    }

    /// Returns the eight labels from place `at` on, the first in the lowest byte.
    #[inline]
    fn sparse_labels(&self, at: u64) -> u64 {
        let (word, shift) = (self.shape.labels_at + (at / 8) as usize, at % 8 * 8);
        // Split in two, because a single shift by 64 would overflow.
        self.words.word(word) >> shift | self.words.word(word + 1) << 1 << (63 - shift)
    }

    /// Returns the places of the labels of sparse node `i`: the first, and one past the last.
    #[inline]
    fn sparse_node(&self, i: u32) -> Option<(u64, u64)> {
        let start = self.select(i)?;
        let labels = u64::from(self.shape.sparse_labels);
        let most = labels.min(start + FANOUT);
        // The next node's first label ends this one.
        let end = blocks::next(&self.words, self.shape.sparse_at, start + 1, most).unwrap_or(most);
        (start < labels).then_some((start, end))
    }

    /// Returns the place of the first label of sparse node `i`.
    #[inline]
    fn select(&self, i: u32) -> Option<u64> {
        let last = self.shape.sparse_blocks().checked_sub(1)?;
        let shift = self.shape.hint_shift;
        let hint = i >> shift;
        let mut low = self.hint(hint).min(last);
        let more = u64::from(hint + 1) << shift < u64::from(self.shape.sparse_nodes());
        let mut high = if more { self.hint(hint + 1).clamp(low, last) } else { last };
        let before = |block| blocks::marks_before(&self.words, self.shape.sparse_at, block);
        // The last block with at most `i` marks before it. The last step, usually the only one, is
        // a coin toss: no branch.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if before(middle) <= i {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low += (high - low) * u64::from(before(high) <= i);
        let rank = i.checked_sub(before(low))?;
        Some(low * PLACES + blocks::select_mark(&self.words, self.shape.sparse_at, low, rank)?)
    }

    /// Returns the block that holds the first label of sparse node `hint << hint_shift`.
    #[inline]
    fn hint(&self, hint: u32) -> u64 {
        self.words.word(self.shape.hints_at + (hint / 2) as usize) >> (hint % 2 * 32) & 0xffff_ffff
    }

    /// Returns the first place in `start..end`, whose labels ascend, with a label of at least
    /// `label`, and that label.
    #[inline]
    fn lower_bound(&self, mut start: u64, end: u64, label: u8) -> Option<(u64, u8)> {
        // Large nodes: bisect until two words hold the answer.
        let mut most = end;
        while most - start > 16 {
            let middle = start + (most - start) / 2;
            if self.sparse_label(middle) < label {
                start = middle + 1;
            } else {
                most = middle;
            }
        }
        while start < end {
            let labels = self.sparse_labels(start);
            let below = count_below(labels, label);
            if below < 8 {
                let at = start + u64::from(below);
                return (at < end).then_some((at, (labels >> (below * 8)) as u8));
            }
            start += 8;
        }
        None
    }
}

/// Returns the place of a label of a dense node.
#[inline]
fn dense_place(node: u32, label: u8) -> u64 {
    u64::from(node) * FANOUT + u64::from(label)
}

/// Counts the bytes of `labels`, from the lowest on, that are below `label`, up to the first that
/// is not.
#[inline]
fn count_below(labels: u64, label: u8) -> u32 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let label = u64::from(label) * LOW;
    // Seven bits of each byte are compared by a subtraction that borrows from a bit set for the
    // purpose and not from the next byte; the top bits decide first.
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
