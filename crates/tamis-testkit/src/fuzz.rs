//! Shared parts of format fuzz targets: decisions from a fuzzer's bytes, and mutations without a
//! fuzzer.

use crate::Rng;

/// Reads small decisions from the front of a fuzzer's bytes, and zeros when they run out. Every
/// input is thus a program, and a shorter input a shorter program.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Reads decisions from `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }

    /// Reports whether the bytes have run out.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns one byte.
    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                byte
            }
            None => 0,
        }
    }

    /// Returns two bytes as a little-endian number.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns the lowest bit of one byte.
    pub fn bit(&mut self) -> bool {
        self.byte() & 1 == 1
    }
}

/// Numbers that are likely to break length fields and counters.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 32,
    (1 << 56) - 1,
    1 << 56,
    u64::MAX,
];

/// Applies one to four typical fuzzer mutations to a copy of `seed`: changed bits and bytes,
/// numbers in place of a possible length field, pieces removed, duplicated and inserted. `other` is
/// another input of the target, to splice with.
///
/// A corpus and a few thousand mutations of it make an ordinary test of a decoder: it runs on the
/// stable compiler, takes seconds, and the seed of `rng` reproduces a failure.
pub fn mutated(seed: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + rng.index(4) {
        let at = rng.index(bytes.len() + 1);
        let number = NUMBERS[rng.index(NUMBERS.len())];
        match rng.index(10) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << rng.index(8),
            2 if at < bytes.len() => bytes[at] = rng.next_u64() as u8,
            3 => bytes.truncate(at),
            // A length field of a fixed width.
            4 | 5 => {
                let width = [1, 2, 4, 8][rng.index(4)];
                bytes[at..]
                    .iter_mut()
                    .zip(number.to_le_bytes())
                    .take(width)
                    .for_each(|(to, from)| *to = from);
            }
            // A length field that is a varint.
            6 => {
                let (mut varint, mut rest) = (Vec::new(), number);
                while rest >= 0x80 {
                    varint.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                varint.push(rest as u8);
                let end = bytes.len().min(at + rng.index(3));
                bytes.splice(at..end, varint);
            }
            // Remove or duplicate a piece.
            7 => {
                let end = at + rng.index((bytes.len() - at).min(32) + 1);
                let piece: Vec<u8> = bytes.drain(at..end).collect();
                if rng.index(2) == 0 {
                    let at = rng.index(bytes.len() + 1);
                    bytes.splice(at..at, [&piece[..], &piece].concat());
                }
            }
            8 => {
                let from = rng.index(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let piece: Vec<u8> = (0..rng.index(8)).map(|_| rng.next_u64() as u8).collect();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_end_in_zeros() {
        let mut input = Input::new(&[3, 1, 2, 5]);
        assert_eq!((input.byte(), input.word(), input.is_empty()), (3, 0x201, false));
        assert!(input.bit() && input.is_empty());
        assert_eq!((input.byte(), input.word(), input.bit()), (0, 0, false));
    }

    #[test]
    fn mutations_repeat_and_differ() {
        let (seed, other) = (b"a seed of some length", b"another");
        let made = |number| mutated(seed, other, &mut Rng::new(number));
        let all: std::collections::BTreeSet<Vec<u8>> = (0..200).map(made).collect();
        assert!(all.len() > 150, "{} of 200", all.len());
        assert!((0..200).all(|number| made(number) == made(number)));
        // Even the shortest input can be mutated.
        (0..200).for_each(|number| _ = mutated(b"", b"", &mut Rng::new(number)));
    }
}
