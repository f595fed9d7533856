//! Values that can be checked without being stored: each is a function of its key and a version.
//!
//! A value of at least 12 bytes starts with its version (4 bytes, little-endian); the rest is a
//! pseudo-random stream of key and version. A shorter value is the stream of the key alone. Values
//! do not compress.

mod sizes;

use crate::random::mix64;

pub use sizes::{UnknownSizes, ValueSizes};

const VERSION_BYTES: usize = 4;
const SMALLEST_VERSIONED: usize = VERSION_BYTES + 8;

/// Returns the number that represents a key in [`fill`] and [`check`].
pub fn tag_of(key: &[u8]) -> u64 {
    let mut tag = key.len() as u64;
    let mut words = key.chunks_exact(8);
    for word in words.by_ref() {
        tag = mix64(tag ^ u64::from_le_bytes(word.try_into().expect("chunks of eight")));
    }
    let mut last = [0u8; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix64(tag ^ u64::from_le_bytes(last))
}

/// Appends the value of `len` bytes that belongs to a key's tag in this version.
pub fn fill(tag: u64, version: u32, len: usize, out: &mut Vec<u8>) {
    let mut left = len;
    let mut seed = tag;
    if len >= SMALLEST_VERSIONED {
        out.extend_from_slice(&version.to_le_bytes());
        left -= VERSION_BYTES;
        seed = versioned(tag, version);
    }
    let mut word = 0;
    while left > 0 {
        let bytes = mix64(seed.wrapping_add(word)).to_le_bytes();
        let take = left.min(8);
        out.extend_from_slice(&bytes[..take]);
        left -= take;
        word += 1;
    }
}

fn versioned(tag: u64, version: u32) -> u64 {
    mix64(tag ^ (u64::from(version) << 17))
}

/// Reports whether `value` has the right length and starts like some version of this key's value.
/// Costs one or two multiplications and touches the value's first bytes only.
#[inline]
pub fn check(tag: u64, len: usize, value: &[u8]) -> bool {
    if value.len() != len {
        return false;
    }
    let (seed, body) = parts(tag, value);
    let expected = mix64(seed).to_le_bytes();
    let take = body.len().min(8);
    body[..take] == expected[..take]
}

/// Reads a byte of every 64, and the last one: whoever lends a value instead of copying it must
/// have brought all of it to the processor by the time that a reader has it.
#[inline]
pub fn touch(value: &[u8]) {
    let last = value.last().copied().unwrap_or_default();
    std::hint::black_box(value.chunks(64).fold(last, |sum, line| sum.wrapping_add(line[0])));
}

/// Reports whether `value` equals some version of this key's value in every byte.
pub fn check_whole(tag: u64, len: usize, value: &[u8]) -> bool {
    if value.len() != len {
        return false;
    }
    let (seed, body) = parts(tag, value);
    body.chunks(8)
        .zip(0..)
        .all(|(chunk, i)| *chunk == mix64(seed.wrapping_add(i)).to_le_bytes()[..chunk.len()])
}

#[inline]
fn parts(tag: u64, value: &[u8]) -> (u64, &[u8]) {
    match value.split_first_chunk::<VERSION_BYTES>() {
        Some((version, body)) if value.len() >= SMALLEST_VERSIONED => {
            (versioned(tag, u32::from_le_bytes(*version)), body)
        }
        _ => (tag, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_passes_its_own_check_and_no_other() {
        for len in [0usize, 1, 7, 8, 11, 12, 13, 100, 256] {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            fill(tag_of(b"a"), 1, len, &mut a);
            fill(tag_of(b"a"), 2, len, &mut b);
            assert_eq!(a.len(), len);
            for value in [&a, &b] {
                assert!(check(tag_of(b"a"), len, value) && check_whole(tag_of(b"a"), len, value));
                assert!(!check(tag_of(b"a"), len + 1, value));
                if len > 1 {
                    assert!(!check(tag_of(b"b"), len, value), "length {len}");
                }
            }
            if len >= SMALLEST_VERSIONED {
                assert_ne!(a, b);
            }
        }
    }

    #[test]
    fn a_flipped_byte_fails_the_whole_check() {
        let tag = tag_of(b"key");
        let mut value = Vec::new();
        fill(tag, 9, 61, &mut value);
        for at in 0..value.len() {
            value[at] ^= 0x10;
            assert!(!check_whole(tag, 61, &value), "byte {at}");
            value[at] ^= 0x10;
        }
    }

    #[test]
    fn tags_differ_where_keys_do() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"12345678", b"12345678\0", b"123456789"];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[..i] {
                assert_ne!(tag_of(a), tag_of(b));
            }
        }
    }
}
