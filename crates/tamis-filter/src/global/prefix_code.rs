//! Huffman codes in canonical order, for the filters that encode names of runs.

use std::collections::BinaryHeap;

/// Returns the lengths of Huffman codes (D. A. Huffman, "A Method for the Construction of
/// Minimum-Redundancy Codes", 1952).
pub(super) fn code_lengths(probabilities: &[f64]) -> Vec<u8> {
    // Parents by node; leaves first. The heap pops the smallest first; the bits of positive floats
    // order like the floats.
    let mut parents = vec![usize::MAX; probabilities.len()];
    let mut heap: BinaryHeap<std::cmp::Reverse<(u64, usize)>> =
        probabilities.iter().enumerate().map(|(at, p)| std::cmp::Reverse((p.to_bits(), at))).collect();
    while let (Some(std::cmp::Reverse(a)), Some(std::cmp::Reverse(b))) = (heap.pop(), heap.pop()) {
        let node = parents.len();
        parents.push(usize::MAX);
        (parents[a.1], parents[b.1]) = (node, node);
        let sum = f64::from_bits(a.0) + f64::from_bits(b.0);
        if !heap.is_empty() {
            heap.push(std::cmp::Reverse((sum.to_bits(), node)));
        }
    }
    let mut depths = vec![0u8; parents.len()];
    for node in (0..parents.len()).rev() {
        if parents[node] != usize::MAX {
            depths[node] = depths[parents[node]].saturating_add(1);
        }
    }
    depths.truncate(probabilities.len());
    depths
}

/// Returns the codes of these lengths (at most 32), first bit lowest; shorter codes come first,
/// equal lengths in order.
pub(super) fn canonical(lens: &[u8]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..lens.len()).collect();
    order.sort_by_key(|&at| lens[at]);
    let mut codes = vec![0u32; lens.len()];
    let (mut next, mut last) = (0u32, 0);
    for at in order {
        next <<= lens[at] - last;
        last = lens[at];
        if last > 0 {
            codes[at] = next.reverse_bits() >> (32 - u32::from(last));
        }
        next += 1;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_huffman() {
        assert_eq!(code_lengths(&[0.4, 0.3, 0.2, 0.1]), [1, 2, 3, 3]);
        assert_eq!(code_lengths(&[1.0]), [0]);
        assert_eq!(canonical(&[1, 2, 3, 3]), [0, 0b01, 0b011, 0b111]);
    }
}
