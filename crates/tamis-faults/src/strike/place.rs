//! The places that can be hit.

use std::fmt;

/// The kinds of places, which are drawn equally often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A general register, the instruction pointer, or a flag of the last result.
    Register,
    /// A part of a vector register that is in use.
    Vector,
    /// The writable anonymous memory of the process, without stacks.
    Heap,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Register, Kind::Vector, Kind::Heap];

    pub(crate) fn name(self) -> &'static str {
        ["register", "vector register", "heap"][self as usize]
    }
}

/// A place that was hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Register {
        name: &'static str,
        bit: u32,
    },
    Vector {
        name: String,
        bit: u32,
    },
    Heap {
        address: u64,
        bit: u32,
        /// The bytes around it before the flip, and the index of the hit one in them.
        around: Vec<u8>,
        at: usize,
        /// The number of pages of which one was drawn.
        pages: usize,
    },
}

/// The bytes to show before and after a hit byte in one line.
const NEAR: usize = 16;

fn letters(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match byte {
        0 => '_',
        byte if byte.is_ascii_alphanumeric() || b"-#.".contains(byte) => *byte as char,
        _ => '?',
    };
    bytes.iter().map(letter).collect()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Register { name, bit } => write!(f, "{name} bit {bit}"),
            Place::Vector { name, bit } => write!(f, "{name} bit {bit}"),
            Place::Heap { address, bit, around, at, pages } => {
                let near = &around[at.saturating_sub(NEAR)..(at + NEAR).min(around.len())];
                write!(f, "heap {address:#x} bit {bit}, one of {pages} pages, in `{}`", letters(near))
            }
        }
    }
}

impl Place {
    /// Shows the memory around the hit byte, 32 bytes in a line; the hit byte is marked.
    pub(crate) fn dump(&self) -> String {
        let Place::Heap { around, at, .. } = self else { return String::new() };
        let mut text = String::new();
        for (line, bytes) in around.chunks(32).enumerate() {
            let hex = bytes.iter().enumerate().map(|(column, byte)| {
                let mark = if line * 32 + column == *at { '*' } else { ' ' };
                format!("{mark}{byte:02x}")
            });
            let hex: String = hex.collect();
            text += &format!("{hex}  {}\n", letters(bytes));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hit_byte_is_marked() {
        let place = Place::Heap { address: 0, bit: 1, around: b"abcdefgh".to_vec(), at: 2, pages: 1 };
        assert!(place.dump().starts_with(" 61 62*63 64"), "{}", place.dump());
        assert!(place.dump().ends_with("abcdefgh\n"));
    }
}
