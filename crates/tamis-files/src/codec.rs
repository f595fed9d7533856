//! The primitives of the engine's binary formats: fixed-width little-endian numbers, LEB128 varints
//! and length-prefixed bytes. Reads are bounds-checked: malformed bytes give `None`.

use smallvec::{Array, SmallVec};
use tamis_env::memory::PageVec;

/// Reads primitives from the front of a slice. A read returns `None` if the bytes run out or do not
/// form a value, and then consumes an unspecified amount.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Reads from the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    /// Returns the number of bytes that are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reports whether no bytes are left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    /// Reads a byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a LEB128 number of at most ten bytes. Over-long or overflowing forms give `None`.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for i in 0..10 {
            let byte = *self.rest.get(i)?;
            let part = u64::from(byte & 0x7F);
            if i == 9 && byte > 1 {
                return None;
            }
            value |= part << (7 * i);
            if byte < 0x80 {
                if i > 0 && byte == 0 {
                    return None;
                }
                self.rest = &self.rest[i + 1..];
                return Some(value);
            }
        }
        None
    }

    /// Reads a varint that fits in a `usize`.
    #[inline]
    pub fn varint_usize(&mut self) -> Option<usize> {
        self.varint().and_then(|v| usize::try_from(v).ok())
    }

    /// Reads a varint length, then that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.varint_usize()?;
        self.take(len)
    }
}

/// Appends primitives to a growing buffer; the counterpart of [`Decoder`].
pub trait Encode {
    /// Appends a byte.
    fn put_u8(&mut self, v: u8);
    /// Appends bytes as they are.
    fn put_slice(&mut self, v: &[u8]);

    /// Appends two bytes.
    fn put_u16(&mut self, v: u16) {
        self.put_slice(&v.to_le_bytes());
    }
    /// Appends four bytes.
    fn put_u32(&mut self, v: u32) {
        self.put_slice(&v.to_le_bytes());
    }
    /// Appends eight bytes.
    fn put_u64(&mut self, v: u64) {
        self.put_slice(&v.to_le_bytes());
    }
    /// Appends a varint.
    fn put_varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.put_u8(v as u8 | 0x80);
            v >>= 7;
        }
        self.put_u8(v as u8);
    }
    /// Appends the length as a varint, then the bytes.
    fn put_bytes(&mut self, v: &[u8]) {
        self.put_varint(v.len() as u64);
        self.put_slice(v);
    }
}

impl Encode for Vec<u8> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put_slice(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
    }
}

impl<A: Array<Item = u8>> Encode for SmallVec<A> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put_slice(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
    }
}

impl Encode for PageVec<u8> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put_slice(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_refuse_bad_forms() {
        for v in [0, 1, 127, 128, 300, u32::MAX as u64, u64::MAX - 1, u64::MAX] {
            let mut buf = Vec::new();
            buf.put_varint(v);
            let mut d = Decoder::new(&buf);
            assert_eq!(d.varint(), Some(v));
            assert!(d.is_empty());
            assert_eq!(Decoder::new(&buf[..buf.len() - 1]).varint(), None);
        }
        assert_eq!(Decoder::new(&[0x80, 0x00]).varint(), None, "over-long");
        assert_eq!(Decoder::new(&[0xFF; 10]).varint(), None, "overflow");
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        let mut buf = Vec::new();
        buf.put_varint(u64::MAX);
        buf.push(1);
        assert_eq!(Decoder::new(&buf).bytes(), None);
    }
}
