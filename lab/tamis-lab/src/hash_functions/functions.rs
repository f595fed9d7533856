//! The seven hash functions of the paper, and ours.

use sha2::{Digest as _, Sha256};
use xxhash_rust::{xxh3::xxh3_64, xxh64::xxh64};

/// A hash function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    /// MurmurHash3, 32 bits.
    Mm,
    /// MurmurHash64A.
    Mm64,
    /// XXH64.
    Xx,
    /// MD5, truncated to its first eight bytes.
    Md5,
    /// SHA-256, truncated to its first eight bytes.
    Sha256,
    /// CRC-32C.
    Crc,
    /// CityHash64.
    City,
    /// XXH3-64, which the paper does not have: the digest of tamis.
    Xxh3,
}

impl Function {
    /// The functions of the paper, in the order of its second table.
    pub(super) const SEVEN: [Function; 7] = [
        Function::Mm,
        Function::Mm64,
        Function::Xx,
        Function::Md5,
        Function::Sha256,
        Function::Crc,
        Function::City,
    ];

    /// These and ours; the index of a function is its number.
    pub(super) const ALL: [Function; 8] = [
        Function::Mm,
        Function::Mm64,
        Function::Xx,
        Function::Md5,
        Function::Sha256,
        Function::Crc,
        Function::City,
        Function::Xxh3,
    ];

    /// Returns the paper's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Function::Mm => "MM",
            Function::Mm64 => "MM64",
            Function::Xx => "XX",
            Function::Md5 => "MD5",
            Function::Sha256 => "SHA-256",
            Function::Crc => "CRC",
            Function::City => "CITY",
            Function::Xxh3 => "XXH3 (tamis)",
        }
    }

    /// Returns the paper's time for 1 KB in ns (Table 1).
    pub(super) fn paper_ns(self) -> Option<f64> {
        match self {
            Function::City => Some(176.0),
            Function::Mm64 => Some(235.0),
            Function::Crc => Some(323.0),
            Function::Xx => Some(874.0),
            Function::Md5 => Some(2_850.0),
            Function::Sha256 => Some(5_170.0),
            Function::Mm | Function::Xxh3 => None,
        }
    }

    /// Returns the paper's rate of one digest with rotation at 10 bits per key (Table 2).
    pub(super) fn paper_rate(self) -> Option<f64> {
        match self {
            Function::Mm => Some(0.008_50),
            Function::Mm64 => Some(0.008_53),
            Function::Xx => Some(0.007_94),
            Function::Md5 => Some(0.009_21),
            Function::Sha256 => Some(0.008_68),
            Function::Crc => Some(0.008_19),
            Function::City => Some(0.008_50),
            Function::Xxh3 => None,
        }
    }

    /// Returns the hash of `key`. MM and CRC have 32 bits, the others 64.
    #[inline]
    pub(super) fn hash(self, key: &[u8]) -> u64 {
        match self {
            Function::Mm => u64::from(mur3::murmurhash3_x86_32(key, 0)),
            Function::Mm64 => murmurhash64::murmur_hash64a(key, 0),
            Function::Xx => xxh64(key, 0),
            Function::Md5 => first(&md5::Md5::digest(key)),
            Function::Sha256 => first(&Sha256::digest(key)),
            Function::Crc => u64::from(crc32c::crc32c(key)),
            Function::City => cityhasher::hash(key),
            Function::Xxh3 => xxh3_64(key),
        }
    }
}

fn first(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a cryptographic digest has more than eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_match_known_hashes() {
        assert_eq!(Function::Mm.hash(b"hello"), 0x248b_fa47);
        assert_eq!(Function::Xx.hash(b""), 0xef46_db37_51d8_e999);
        assert_eq!(Function::Md5.hash(b"").to_le_bytes(), [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04]);
        assert_eq!(
            Function::Sha256.hash(b"").to_le_bytes(),
            [0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14]
        );
        assert_eq!(Function::Crc.hash(b"123456789"), 0xe306_9283);
        assert_eq!(Function::City.hash(b""), 0x9ae1_6a3b_2f90_404f);
        assert_eq!(Function::Xxh3.hash(b"abc"), tamis_filter::Digest::of(b"abc").get());
    }

    #[test]
    fn numbers_are_indices() {
        assert!(Function::ALL.iter().enumerate().all(|(at, function)| *function as usize == at));
        assert_eq!(Function::SEVEN[..], Function::ALL[..7]);
    }
}
