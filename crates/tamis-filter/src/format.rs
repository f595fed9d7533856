//! Filters as bytes: the payload, then a trailer of 40 bytes. All integers are little-endian.
//!
//! | offset in trailer | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | salt: digests are remixed with it |
//! | 8 | 8 | keys the filter was built over |
//! | 16 | 8 | units: 64-bit words (Bloom) or 64-byte lines (blocked Bloom), 1 to 2^32 |
//! | 24 | 1 | probes per key: 1–30 (Bloom) or 1–16 (blocked Bloom) |
//! | 25 | 1 | kind: 1 Bloom, 2 blocked Bloom |
//! | 26 | 1 | scheme: 1 rotation, 2 double hashing, 3 independent; 0 for blocked Bloom |
//! | 27 | 1 | version: 1 |
//! | 28 | 4 | magic: `54 46 4c 31` ("TFL1") |
//! | 32 | 8 | checksum: XXH3-64, seed 0, of every byte before it, payload included |
//!
//! The payload is `units` words or lines and nothing else, so it starts at offset 0 of the bytes (and is aligned if
//! they are). `docs/filter-format.md` gives the hash functions and bit positions.
//!
//! # Invariants
//! Bytes are hostile until proven: opening never panics, checks every length against the bytes it has before it
//! allocates, and allocates no more than the payload.

use crate::blocked::{BlockedBloom, BlockedBloomRef, BlockedShape};
use crate::bloom::{Bloom, BloomRef, BloomScheme, BloomShape, MAX_UNITS};
use crate::digest::Digest;
use crate::error::FilterError;
use crate::theory;

/// Bytes of the trailer.
pub const TRAILER_LEN: usize = 40;

const MAGIC: u32 = u32::from_le_bytes(*b"TFL1");
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 32;

/// What a filter is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FilterKind {
    /// [`Bloom`].
    Bloom,
    /// [`BlockedBloom`].
    BlockedBloom,
}

impl FilterKind {
    /// The kind's name, as table properties and reports show it.
    pub fn name(self) -> &'static str {
        match self {
            FilterKind::Bloom => "bloom",
            FilterKind::BlockedBloom => "blocked-bloom",
        }
    }
}

/// A point filter of any kind, owning its memory. Cloning shares it.
#[derive(Clone, Debug)]
pub enum PointFilter {
    /// A standard Bloom filter.
    Bloom(Bloom),
    /// A cache-line-blocked Bloom filter.
    BlockedBloom(BlockedBloom),
}

/// A point filter of any kind over borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub enum PointFilterRef<'a> {
    /// A standard Bloom filter.
    Bloom(BloomRef<'a>),
    /// A cache-line-blocked Bloom filter.
    BlockedBloom(BlockedBloomRef<'a>),
}

impl From<Bloom> for PointFilter {
    fn from(filter: Bloom) -> Self {
        Self::Bloom(filter)
    }
}

impl From<BlockedBloom> for PointFilter {
    fn from(filter: BlockedBloom) -> Self {
        Self::BlockedBloom(filter)
    }
}

impl PointFilter {
    /// The filter as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.write_to(&mut out);
        out
    }

    /// Bytes [`PointFilter::write_to`] appends.
    pub fn encoded_len(&self) -> usize {
        TRAILER_LEN
            + match self {
                Self::Bloom(filter) => size_of_val(filter.words()),
                Self::BlockedBloom(filter) => filter.line_bytes(),
            }
    }

    /// Appends the filter's bytes to `out`. To probe it in place later, let it start at a multiple of 64.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(self.encoded_len());
        let trailer = match self {
            Self::Bloom(filter) => {
                filter.words().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
                let shape = filter.shape();
                Trailer {
                    salt: shape.salt,
                    keys: shape.keys,
                    units: shape.words,
                    probes: shape.probes,
                    kind: FilterKind::Bloom,
                    scheme: Some(shape.scheme),
                }
            }
            Self::BlockedBloom(filter) => {
                let words = filter.lines().iter().flat_map(|line| line.0);
                words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
                let shape = filter.shape();
                Trailer {
                    salt: shape.salt,
                    keys: shape.keys,
                    units: filter.lines().len() as u64,
                    probes: shape.probes,
                    kind: FilterKind::BlockedBloom,
                    scheme: None,
                }
            }
        };
        trailer.write_to(out);
        let checksum = xxhash_rust::xxh3::xxh3_64(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Opens bytes written by [`PointFilter::write_to`], copying the payload into aligned memory. Linear.
    ///
    /// # Errors
    /// Any opening error of [`FilterError`], if the bytes are not exactly one undamaged filter.
    pub fn open(bytes: &[u8]) -> Result<Self, FilterError> {
        Ok(PointFilterRef::open(bytes)?.to_owned())
    }

    /// A view of bytes written by [`PointFilter::write_to`], without copying. As [`PointFilterRef::open`].
    ///
    /// # Errors
    /// As [`PointFilter::open`].
    pub fn open_ref(bytes: &[u8]) -> Result<PointFilterRef<'_>, FilterError> {
        PointFilterRef::open(bytes)
    }

    /// Whether the run may hold the key. See [`Bloom::contains`] on the independent scheme.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        match self {
            Self::Bloom(filter) => filter.contains(digest),
            Self::BlockedBloom(filter) => filter.contains(digest),
        }
    }

    /// What the filter is.
    pub fn kind(&self) -> FilterKind {
        match self {
            Self::Bloom(_) => FilterKind::Bloom,
            Self::BlockedBloom(_) => FilterKind::BlockedBloom,
        }
    }

    /// Keys the filter was built over.
    pub fn keys(&self) -> u64 {
        match self {
            Self::Bloom(filter) => filter.keys(),
            Self::BlockedBloom(filter) => filter.keys(),
        }
    }

    /// Bits spent per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        match self {
            Self::Bloom(filter) => filter.bits_per_key(),
            Self::BlockedBloom(filter) => filter.bits_per_key(),
        }
    }

    /// False-positive rate theory promises; 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        match self {
            Self::Bloom(filter) => filter.expected_rate(),
            Self::BlockedBloom(filter) => filter.expected_rate(),
        }
    }

    /// Bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Bloom(filter) => filter.memory_bytes(),
            Self::BlockedBloom(filter) => filter.memory_bytes(),
        }
    }
}

impl<'a> PointFilterRef<'a> {
    /// A view of `bytes`, which must be exactly one filter. Linear, because the checksum is verified.
    ///
    /// # Errors
    /// As [`PointFilter::open`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let filter = Self::open_unverified(bytes)?;
        let (body, checksum) = bytes.split_at(bytes.len() - (TRAILER_LEN - CHECKSUM_AT));
        if xxhash_rust::xxh3::xxh3_64(body).to_le_bytes() != *checksum {
            return Err(FilterError::Checksum);
        }
        Ok(filter)
    }

    /// As [`PointFilterRef::open`] without verifying the checksum: O(1), for bytes that were verified before, such
    /// as those of a cached block. On damaged bytes this or a probe may answer wrongly; neither panics.
    ///
    /// # Errors
    /// As [`PointFilter::open`], but for [`FilterError::Checksum`].
    pub fn open_unverified(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let cut = FilterError::Truncated { len: bytes.len() };
        let (payload, trailer) = bytes.split_last_chunk::<TRAILER_LEN>().ok_or_else(|| cut.clone())?;
        let Trailer { salt, keys, units, probes, kind, scheme } = Trailer::read(trailer)?;
        let units = usize::try_from(units).map_err(|_| cut.clone())?;
        let fits = |have: usize, rest: &[u8]| match have.cmp(&units) {
            std::cmp::Ordering::Less => Err(cut.clone()),
            std::cmp::Ordering::Equal if rest.is_empty() => Ok(()),
            _ => Err(FilterError::Corrupt("bytes before the payload")),
        };
        Ok(match scheme {
            Some(scheme) => {
                let (words, rest) = payload.as_chunks::<8>();
                fits(words.len(), rest)?;
                let shape = BloomShape { salt, keys, words: units as u64, probes, scheme };
                Self::Bloom(BloomRef::new(shape, words))
            }
            None => {
                debug_assert_eq!(kind, FilterKind::BlockedBloom);
                let (lines, rest) = payload.as_chunks::<64>();
                fits(lines.len(), rest)?;
                Self::BlockedBloom(BlockedBloomRef::new(BlockedShape { salt, keys, probes }, lines))
            }
        })
    }

    /// As [`PointFilter::contains`].
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        match self {
            Self::Bloom(filter) => filter.contains(digest),
            Self::BlockedBloom(filter) => filter.contains(digest),
        }
    }

    /// What the filter is.
    pub fn kind(&self) -> FilterKind {
        match self {
            Self::Bloom(_) => FilterKind::Bloom,
            Self::BlockedBloom(_) => FilterKind::BlockedBloom,
        }
    }

    /// As [`PointFilter::bits_per_key`].
    pub fn bits_per_key(&self) -> f64 {
        match self {
            Self::Bloom(filter) => filter.shape().bits_per_key(),
            Self::BlockedBloom(filter) => filter.shape().bits_per_key(filter.line_count()),
        }
    }

    /// As [`PointFilter::expected_rate`].
    pub fn expected_rate(&self) -> f64 {
        match self {
            Self::Bloom(filter) => filter.shape().expected_rate(),
            Self::BlockedBloom(filter) => filter.shape().expected_rate(filter.line_count()),
        }
    }

    /// A copy in aligned memory of its own. Allocates the payload's length.
    pub fn to_owned(&self) -> PointFilter {
        match self {
            Self::Bloom(filter) => PointFilter::Bloom(filter.to_owned()),
            Self::BlockedBloom(filter) => PointFilter::BlockedBloom(filter.to_owned()),
        }
    }
}

/// The trailer's fields, checked one by one; `scheme` is there exactly for the Bloom kind.
struct Trailer {
    salt: u64,
    keys: u64,
    units: u64,
    probes: u8,
    kind: FilterKind,
    scheme: Option<BloomScheme>,
}

impl Trailer {
    /// Appends everything but the checksum.
    fn write_to(&self, out: &mut Vec<u8>) {
        for field in [self.salt, self.keys, self.units] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let kind = match self.kind {
            FilterKind::Bloom => 1,
            FilterKind::BlockedBloom => 2,
        };
        let scheme = match self.scheme {
            None => 0,
            Some(BloomScheme::Rotation) => 1,
            Some(BloomScheme::DoubleHashing) => 2,
            Some(BloomScheme::Independent) => 3,
        };
        out.extend_from_slice(&[self.probes, kind, scheme, VERSION]);
        out.extend_from_slice(&MAGIC.to_le_bytes());
    }

    fn read(bytes: &[u8; TRAILER_LEN]) -> Result<Self, FilterError> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        let [probes, kind, scheme, version, magic @ ..] = words[3];
        if magic != MAGIC.to_le_bytes() {
            return Err(FilterError::Corrupt("magic"));
        }
        if version != VERSION {
            return Err(FilterError::UnknownVersion(version));
        }
        let (kind, scheme, most) = match (kind, scheme) {
            (1, 1) => (FilterKind::Bloom, Some(BloomScheme::Rotation), theory::MAX_PROBES),
            (1, 2) => (FilterKind::Bloom, Some(BloomScheme::DoubleHashing), theory::MAX_PROBES),
            (1, 3) => (FilterKind::Bloom, Some(BloomScheme::Independent), theory::MAX_PROBES),
            (2, 0) => (FilterKind::BlockedBloom, None, theory::MAX_BLOCKED_PROBES),
            (1 | 2, _) => return Err(FilterError::Corrupt("scheme")),
            (other, _) => return Err(FilterError::UnknownKind(other)),
        };
        if !(1..=most).contains(&u32::from(probes)) {
            return Err(FilterError::Probes(probes));
        }
        let units = word(2);
        if !(1..=MAX_UNITS).contains(&units) {
            return Err(FilterError::Corrupt("size"));
        }
        Ok(Self { salt: word(0), keys: word(1), units, probes, kind, scheme })
    }
}
