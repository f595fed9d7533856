//! A static search structure over sorted 64-bit numbers: a pointer-free B+ tree.
//!
//! Nodes are cache lines of eight numbers. The leaves are the sorted numbers themselves, so a
//! position in them is an entry's number. An inner node has nine children and holds the largest
//! number below each of the first eight. A lookup touches one cache line per level.

const WIDTH: usize = 8;

/// One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([u64; WIDTH]);

impl Node {
    /// Counts the numbers less than `target`. Three halvings and one comparison measured faster
    /// than eight independent comparisons, for which baseline x86-64 has no good vector form.
    #[inline]
    fn count_less(&self, target: u64) -> usize {
        let mut below = 0;
        for half in [4, 2, 1] {
            if self.0[below + half - 1] < target {
                below += half;
            }
        }
        below + usize::from(self.0[below] < target)
    }
}

/// Sorted numbers, laid out for searching.
#[derive(Debug)]
pub(crate) struct SearchTree {
    /// All levels, from the root to the leaves; unused slots hold `u64::MAX`.
    nodes: Box<[Node]>,
    /// The start of every level in `nodes`, from the root down.
    levels: Box<[usize]>,
    /// The start of the leaves in `nodes`.
    leaves: usize,
    len: usize,
}

impl SearchTree {
    /// Builds the tree over `sorted`, which must ascend (equal neighbours are allowed).
    pub(crate) fn new(sorted: &[u64]) -> SearchTree {
        debug_assert!(sorted.is_sorted());
        // Nodes per level, from the leaves up.
        let mut counts = vec![sorted.len().div_ceil(WIDTH).max(1)];
        while let Some(&below) = counts.last().filter(|&&below| below > 1) {
            counts.push(below.div_ceil(WIDTH + 1));
        }
        let mut nodes: Box<[Node]> =
            std::iter::repeat_n(Node([u64::MAX; WIDTH]), counts.iter().sum()).collect();
        let mut levels: Box<[usize]> = counts.iter().map(|_| 0).collect();
        let mut end = nodes.len();
        for (depth, &count) in counts.iter().enumerate() {
            let level = &mut nodes[end - count..end];
            end -= count;
            levels[counts.len() - 1 - depth] = end;
            match depth.checked_sub(1) {
                None => fill(level, sorted),
                Some(under) => bound(level, counts[under], under as u32, sorted),
            }
        }
        let leaves = levels[levels.len() - 1];
        SearchTree { nodes, levels, leaves, len: sorted.len() }
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number at `position`.
    #[inline]
    pub(crate) fn get(&self, position: usize) -> Option<u64> {
        (position < self.len).then(|| self.nodes[self.leaves + position / WIDTH].0[position % WIDTH])
    }

    /// The position of the first number that is at least `target`, or [`len`](Self::len).
    #[inline]
    pub(crate) fn lower_bound(&self, target: u64) -> usize {
        let (&leaves, inner) = self.levels.split_last().expect("a tree has at least its leaves");
        let mut node = 0;
        for &start in inner {
            node = node * (WIDTH + 1) + self.nodes[start + node].count_less(target);
        }
        node * WIDTH + self.nodes[leaves + node].count_less(target)
    }

    /// Heap memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.nodes) + size_of_val(&*self.levels)
    }
}

/// Returns the position of the last number below child `child` of a level whose children lie
/// `depth` levels above the leaves.
fn last_entry_below(child: usize, depth: u32) -> usize {
    (child + 1) * (WIDTH + 1).pow(depth) * WIDTH - 1
}

/// Fills the leaves with `sorted`.
fn fill(leaves: &mut [Node], sorted: &[u64]) {
    for (node, chunk) in leaves.iter_mut().zip(sorted.chunks(WIDTH)) {
        node.0[..chunk.len()].copy_from_slice(chunk);
    }
}

/// Fills the level above one of `children` nodes that lies `depth` levels above the leaves. The
/// last child needs no bound, as nothing follows it.
fn bound(parents: &mut [Node], children: usize, depth: u32, sorted: &[u64]) {
    for (node, first) in parents.iter_mut().zip((0..).step_by(WIDTH + 1)) {
        for (slot, child) in node.0.iter_mut().zip(first..children.saturating_sub(1)) {
            *slot = sorted[last_entry_below(child, depth).min(sorted.len() - 1)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_up_to_three_levels_agrees_with_binary_search() {
        for len in (0..90).chain([647, 648, 649, 720, 1000, 5832, 5833, 6000]) {
            let sorted: Vec<u64> = (0..len).map(|i| i / 3 * 10 + 5).collect();
            let tree = SearchTree::new(&sorted);
            for target in (0..len * 4 + 12).chain([u64::MAX]) {
                let expected = sorted.partition_point(|&n| n < target);
                assert_eq!(tree.lower_bound(target), expected, "{target} among {len}");
                assert_eq!(tree.get(expected), sorted.get(expected).copied());
            }
        }
    }

    #[test]
    fn the_largest_number_is_not_special() {
        let mut sorted: Vec<u64> = (0..100).collect();
        sorted.extend([u64::MAX; 20]);
        let tree = SearchTree::new(&sorted);
        assert_eq!(tree.lower_bound(u64::MAX), 100);
        assert_eq!(tree.lower_bound(99), 99);
        assert_eq!(tree.lower_bound(100), 100);
    }
}
