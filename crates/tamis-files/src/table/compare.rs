//! Compares short byte strings without a call: most keys, and most suffixes left by prefix
//! compression, fit in a register.

use std::cmp::Ordering;

/// Returns the first eight bytes as a big-endian number, padded with zeros: the same as
/// [`prefix_of`](tamis_base::key::prefix_of), without a variable-length copy.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk::<8>() {
        u64::from_be_bytes(*head)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // With fewer than eight bytes the two overlap, and agree where they do.
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        u64::from(first) << 32 | u64::from(last) << (8 * (8 - bytes.len()))
    } else {
        bytes.iter().enumerate().fold(0, |head, (i, &byte)| head | u64::from(byte) << (56 - 8 * i))
    }
}

/// `a.cmp(b)`.
#[inline]
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (x, y) = (head(a), head(b));
    if x != y {
        x.cmp(&y)
    } else if a.len() <= 8 && b.len() <= 8 {
        // Equal but for zero padding, so the longer one ends in those zeros.
        a.len().cmp(&b.len())
    } else {
        a.cmp(b)
    }
}

/// `a == b`.
#[inline]
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && head(a) == head(b) && (a.len() <= 8 || a == b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tamis_base::key::prefix_of;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..12)
    }

    proptest! {
        #[test]
        fn short_comparisons_agree_with_those_of_slices(a in bytes(), b in bytes(), cut in 0usize..12) {
            let shared = [&a[..cut.min(a.len())], &b].concat();
            for other in [&b, &shared, &a] {
                prop_assert_eq!(compare(&a, other), a.cmp(other));
                prop_assert_eq!(equal(&a, other), a == *other);
            }
            prop_assert_eq!(head(&a), prefix_of(&a));
        }
    }
}
