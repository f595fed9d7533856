//! Hashes of contents.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// XXH3-128 of some bytes. It tells bytes apart that differ by accident; it does not stop somebody
/// who makes them collide on purpose, who would need write access to the database or the repository
/// anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentHash(u128);

impl ContentHash {
    /// Hashes bytes.
    pub fn of(bytes: &[u8]) -> ContentHash {
        ContentHash(xxh3_128(bytes))
    }

    /// Returns the hash as a number.
    pub fn value(self) -> u128 {
        self.0
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ContentHash {
    type Err = String;

    fn from_str(text: &str) -> Result<ContentHash, String> {
        match text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            true => u128::from_str_radix(text, 16).map(ContentHash).map_err(|error| error.to_string()),
            false => Err(format!("{text:?} is not a hash of 32 hexadecimal digits")),
        }
    }
}

impl TryFrom<String> for ContentHash {
    type Error = String;

    fn try_from(text: String) -> Result<ContentHash, String> {
        text.parse()
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> String {
        hash.to_string()
    }
}

/// Hashes bytes that come in pieces.
#[derive(Default)]
pub(crate) struct Hasher(Box<Xxh3>);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> ContentHash {
        ContentHash(self.0.digest128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hash_as_the_whole_and_text_is_strict() {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
        let mut hasher = Hasher::default();
        bytes.chunks(777).for_each(|piece| hasher.update(piece));
        assert_eq!(hasher.finish(), ContentHash::of(&bytes));
        let text = ContentHash::of(&bytes).to_string();
        assert_eq!(text.parse(), Ok(ContentHash::of(&bytes)));
        for bad in
            ["", &text[1..], &format!("+{}", &text[1..]), &text.replace(|c: char| c.is_ascii_digit(), "G")]
        {
            assert!(bad.parse::<ContentHash>().is_err(), "{bad}");
        }
    }
}
