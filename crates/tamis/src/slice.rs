//! [`Slice`]: bytes returned by the engine.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tamis_files::table::PinnedValue;

use crate::memtable::PinnedMemValue;

/// The bytes of a key or a value. They are shared with a table block (mapped or cached) or a
/// memtable where that saves a copy; up to 22 bytes are stored inline.
///
/// A slice stays valid whatever happens to the database, and keeps its block, mapping or memtable
/// in memory. Use [`to_vec`](slice::to_vec) for long-lived bytes. Cloning costs at most one
/// reference count update.
///
/// ```
/// let slice = tamis::Slice::from(&b"bytes"[..]);
/// assert_eq!(slice, *b"bytes");
/// assert_eq!(slice.len(), 5);
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; Slice::INLINE] },
    Shared(Arc<[u8]>),
    Block(PinnedValue),
    Memtable(PinnedMemValue),
}

impl Slice {
    /// Up to this many bytes are stored inline.
    pub(crate) const INLINE: usize = 22;

    /// Copies `bytes` into a slice.
    #[inline]
    pub fn copy_of(bytes: &[u8]) -> Slice {
        match inline(bytes) {
            Some(inline) => Slice(Repr::Inline { len: bytes.len() as u8, bytes: inline }),
            None => Slice(Repr::Shared(bytes.into())),
        }
    }

    #[inline]
    pub(crate) fn from_block(value: PinnedValue) -> Slice {
        Slice(Repr::Block(value))
    }

    #[inline]
    pub(crate) fn from_memtable(value: PinnedMemValue) -> Slice {
        Slice(Repr::Memtable(value))
    }
}

/// Returns short bytes, padded with zeros. They are put together in registers: an array filled by a
/// copy of variable length would have to be read back by wider loads, which wait for the copy.
#[inline]
fn inline(bytes: &[u8]) -> Option<[u8; Slice::INLINE]> {
    let word = |word: &[u8; 8]| u64::from_le_bytes(*word);
    let words = match (bytes.len(), bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (len @ 8..=16, Some(first), Some(last)) => {
            // The two overlap, and agree there.
            let rest = if len == 8 { 0 } else { word(last) >> (8 * (16 - len)) };
            [word(first), rest, 0]
        }
        (len @ 17..=Slice::INLINE, Some(first), Some(last)) => {
            let second = bytes[8..].first_chunk::<8>()?;
            [word(first), word(second), word(last) >> (8 * (24 - len))]
        }
        (0..8, ..) => [short(bytes), 0, 0],
        _ => return None,
    };
    let [first, second, third] = words.map(u64::to_le_bytes);
    let mut inline = [0; Slice::INLINE];
    inline[..8].copy_from_slice(&first);
    inline[8..16].copy_from_slice(&second);
    inline[16..].copy_from_slice(&third[..Slice::INLINE - 16]);
    Some(inline)
}

/// Returns fewer than eight bytes as a number.
#[inline]
fn short(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first) | u64::from(last) << (8 * (bytes.len() - 4))
        }
        _ => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

impl Default for Slice {
    /// Returns the empty slice.
    fn default() -> Slice {
        Slice::copy_of(&[])
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
            Repr::Block(value) => value,
            Repr::Memtable(value) => value,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Slice {
        Slice::copy_of(bytes)
    }
}

impl From<Vec<u8>> for Slice {
    /// Copies the bytes: a slice keeps its reference count next to them.
    fn from(bytes: Vec<u8>) -> Slice {
        Slice::copy_of(&bytes)
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Vec<u8> {
        slice.to_vec()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Slice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl std::borrow::Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_are_copied() {
        let bytes: Vec<u8> = (1..=40).collect();
        for len in 0..=40 {
            let slice = Slice::copy_of(&bytes[..len]);
            assert_eq!(&*slice, &bytes[..len]);
            assert_eq!(matches!(slice.0, Repr::Inline { .. }), len <= Slice::INLINE, "{len} bytes");
        }
    }
}
