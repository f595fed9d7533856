//! Filling a table so that the slots of every key yield its fingerprint: peeling of a 3-uniform
//! hypergraph, as in F. C. Botelho, R. Pagh, N. Ziviani, "Simple and Space-Efficient Minimal
//! Perfect Hash Functions" (WADS 2007) and the two papers by T. M. Graf and D. Lemire that `xor.rs`
//! and `fuse.rs` name.
//!
//! A slot used by only one key can be assigned to that key, whatever the other two hold; the key
//! then no longer counts for its other slots, one of which may now have a single key left. Once all
//! keys are removed, they get their values in the reverse order: each writes a slot that no key
//! written before it reads.
//!
//! # Invariants
//! * A slot keeps the number of its keys and the exclusive or of their hashes: for a single key,
//!   that *is* its hash.
//! * Two equal hashes are never peeled: success proves that the digests were distinct.
//! * The count of a slot cannot overflow unnoticed.
//!
//! # Threads
//! Single-threaded, on the caller's thread.

use std::borrow::Cow;
use std::sync::Arc;

use super::{ATTEMPTS, MAX_KEYS, MAX_WIDTH, Slots, XorTable, field, hash, salt_of};
use crate::bits;
use crate::bloom::units_for;
use crate::digest::{Digest, SpreadSalt};
use crate::error::FilterError;
use crate::format::{Head, WordFilter};
use crate::point::distinct;
use crate::words::Owned;

/// Up to this many digests, duplicates are removed beforehand: it costs nothing, and small sets
/// need all their space.
const SMALL: usize = 1024;

/// From this many keys on, the peeling tables outgrow the nearer caches and the order of the hashes
/// matters.
const LARGE: usize = 1 << 16;

/// Returns the head and the number of words for `keys` keys on `slots` slots, with the widest
/// fingerprints that `bits_per_key` pays for. `parameter` is the second parameter of the head.
fn widest(keys: u64, slots: u64, bits_per_key: f64, parameter: u8) -> Result<(Head, u64), FilterError> {
    let units = units_for(keys, bits_per_key, 64.0)?;
    if keys > MAX_KEYS {
        return Err(FilterError::TooLarge { keys });
    }
    let width = if keys == 0 { 0 } else { (units * 64 / slots).min(u64::from(MAX_WIDTH)) };
    if width == 0 {
        return Ok((Head { salt: 0, keys, params: [0, 0] }, 1));
    }
    Ok((Head { salt: 0, keys, params: [width as u8, parameter] }, bits::words_for(slots * width)))
}

/// What a filter filled by peeling provides to the builder.
pub(crate) trait Peeled: WordFilter<Owned> {
    /// The mapping from hashes to slots.
    type Slots: Slots;

    /// Returns the slots that `keys >= 1` keys need, and the second parameter of the head.
    fn slots_for(keys: u64) -> (u64, u8);

    /// Returns the slots and the (unfilled) table of a filter.
    fn parts(&self) -> (Self::Slots, XorTable);
}

/// Builds a filter over `digests`, duplicates allowed. Expected linear time; about 20 bytes of
/// temporary memory per key.
pub(crate) fn build<F: Peeled>(digests: &[Digest], bits_per_key: f64, salt: u64) -> Result<F, FilterError> {
    let mut known_distinct = digests.len() <= SMALL;
    let mut keys = if known_distinct { distinct(digests) } else { Cow::Borrowed(digests) };
    let mut attempt = 0;
    while attempt < ATTEMPTS {
        let count = keys.len() as u64;
        let (slots, parameter) = if count == 0 { (0, 0) } else { F::slots_for(count.min(MAX_KEYS)) };
        let (head, units) = widest(count, slots, bits_per_key, parameter)?;
        let head = Head { salt: salt_of(salt, attempt), ..head };
        let mut words: Owned = std::iter::repeat_n(0, units as usize).collect();
        // Slots are derived by the function that opening uses, so building and probing cannot
        // differ.
        let (slots, table) = F::from_parts(head, Arc::clone(&words))?.parts();
        let filled = if table.width() == 0 {
            known_distinct
        } else {
            peel(&keys, SpreadSalt::new(head.salt), slots).is_some_and(|order| {
                Arc::get_mut(&mut words).map(|words| fill(words, &order, slots, table)).is_some()
            })
        };
        if filled {
            return F::from_parts(head, words);
        }
        if known_distinct {
            attempt += 1;
            continue;
        }
        known_distinct = true;
        let unique = distinct(&keys);
        if unique.len() < keys.len() {
            // Keep the salt, so that a set and a multiset of the same keys yield the same filter.
            keys = Cow::Owned(unique.into_owned());
        } else {
            attempt += u64::from(table.width() > 0);
        }
    }
    Err(FilterError::Construction { keys: keys.len() as u64 })
}

/// Hashes in the order in which they were peeled, each with the index of the slot it was alone in.
struct Order {
    hashes: Vec<u64>,
    which: Vec<u8>,
}

fn peel(digests: &[Digest], spread: SpreadSalt, slots: impl Slots) -> Option<Order> {
    let mut hashes = ordered(digests, spread, slots.order_bits());
    let keys = hashes.len();
    // Four times the number of keys, plus the exclusive or of the slot index (0 to 2) of each.
    let mut counts = vec![0u8; slots.count() as usize];
    let mut sums = vec![0u64; slots.count() as usize];
    let mut overflow = false;
    for &hash in &hashes {
        for (slot, which) in slots.of(hash).into_iter().zip(0u8..) {
            let count = &mut counts[slot as usize];
            *count = count.wrapping_add(4) ^ which;
            overflow |= *count < 4;
            sums[slot as usize] ^= hash;
        }
    }
    if overflow {
        return None;
    }
    // The sums hold everything still needed, so the memory of the hashes is reused for the new
    // order.
    hashes.clear();
    let mut which_slots = Vec::with_capacity(keys);
    let mut alone = Vec::new();
    for start in 0..slots.count() as u32 {
        alone.push(start);
        while let Some(slot) = alone.pop() {
            let slot = slot as usize;
            if counts[slot] >> 2 != 1 {
                continue;
            }
            let hash = sums[slot];
            hashes.push(hash);
            which_slots.push(counts[slot] & 3);
            for (other, which) in slots.of(hash).into_iter().zip(0u8..) {
                let count = &mut counts[other as usize];
                *count = (*count - 4) ^ which;
                sums[other as usize] ^= hash;
                if *count >> 2 == 1 {
                    alone.push(other as u32);
                }
            }
        }
    }
    (hashes.len() == keys).then_some(Order { hashes, which: which_slots })
}

/// Returns the hashes of `digests`; if there are many, ordered by of their top `order_bits` bits.
fn ordered(digests: &[Digest], spread: SpreadSalt, order_bits: u32) -> Vec<u64> {
    let hashed = digests.iter().map(|&digest| hash(digest, spread));
    if order_bits == 0 || digests.len() < LARGE {
        return hashed.collect();
    }
    let part = |hash: u64| (hash >> (64 - order_bits)) as usize;
    let mut next = vec![0usize; (1 << order_bits) + 1];
    hashed.clone().for_each(|hash| next[part(hash) + 1] += 1);
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let mut out = vec![0; digests.len()];
    for hash in hashed {
        let at = &mut next[part(hash)];
        out[*at] = hash;
        *at += 1;
    }
    out
}

/// Assigns every key its slot, the last peeled first; `words` are zero.
fn fill(words: &mut [u64], order: &Order, slots: impl Slots, table: XorTable) {
    let width = table.width();
    for (&hash, &which) in order.hashes.iter().zip(&order.which).rev() {
        let places = slots.of(hash).map(|slot| slot * u64::from(width));
        // The key's own slot is still zero.
        let sum =
            places.iter().fold(table.fingerprint(hash), |sum, &at| sum ^ field(|i| words[i], at, width));
        bits::write(words, places[usize::from(which)], width, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Xor;

    #[test]
    fn unpeelable_sets_are_rejected() {
        let head = Head { salt: 0, keys: 1, params: [8, 0] };
        let (blocks, _) = Xor::from_parts(head, vec![0; 200].into()).unwrap().parts();
        let spread = SpreadSalt::new(0);
        let one = Digest::from_u64(5);
        for copies in [2, 3, 63, 64, 65, 128, 129, 1000] {
            assert!(peel(&vec![one; copies], spread, blocks).is_none(), "{copies}");
        }
        // Counts that wrap to one make a sum look like a hash.
        let others: Vec<_> = (100..400).map(Digest::from_u64).collect();
        for copies in 50..70 {
            let digests = [&vec![one; copies][..], &others].concat();
            assert!(peel(&digests, spread, blocks).is_none(), "{copies}");
        }
        assert!(peel(&others, spread, blocks).is_some());
        let order = peel(&[one], spread, blocks).unwrap();
        assert_eq!(order.hashes, [hash(one, spread)]);
        // More keys than slots.
        let many: Vec<_> = (0..3000).map(Digest::from_u64).collect();
        assert!(peel(&many, spread, blocks).is_none());
    }

    #[test]
    fn ordering_keeps_every_hash() {
        let digests: Vec<_> = (0..LARGE as u64 + 77).map(Digest::from_u64).collect();
        let spread = SpreadSalt::new(3);
        let mut parts = ordered(&digests, spread, 7);
        assert!(parts.is_sorted_by_key(|hash| hash >> 57) && !parts.is_sorted());
        let mut plain = ordered(&digests, spread, 0);
        assert!(!plain.is_sorted_by_key(|hash| hash >> 57));
        parts.sort_unstable();
        plain.sort_unstable();
        assert!(parts == plain);
    }

    #[test]
    fn more_keys_than_can_be_counted_are_rejected() {
        let keys = MAX_KEYS + 1;
        assert_eq!(widest(keys, 10, 1.0, 0).unwrap_err(), FilterError::TooLarge { keys });
        assert_eq!(widest(u64::MAX, 10, 1.0, 0).unwrap_err(), FilterError::TooLarge { keys: u64::MAX });
        assert!(widest(MAX_KEYS, 3 * MAX_KEYS, 10.0, 0).is_ok());
    }
}
