//! The serialized form of filters: the payload, then a trailer of 40 bytes. All integers are
//! little-endian.
//!
//! | offset in trailer | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | salt: digests are remixed with it |
//! | 8 | 8 | keys the filter was built over |
//! | 16 | 8 | units: 64-byte lines (blocked Bloom) or 64-bit words (all others), 1 to 2^32 |
//! | 24 | 1 | first parameter of the kind; Bloom and blocked Bloom: probes per key |
//! | 25 | 1 | kind |
//! | 26 | 1 | second parameter of the kind; Bloom: scheme, blocked Bloom: 0 |
//! | 27 | 1 | version: 1 |
//! | 28 | 4 | magic: `54 46 4c 31` ("TFL1") |
//! | 32 | 8 | checksum: XXH3-64, seed 0, of every byte before it, payload included |
//!
//! The payload is `units` words or lines and nothing else, so it starts at offset 0 of the bytes
//! (and is aligned if they are). `docs/formats/filters.md` gives the kinds, the hash functions and
//! the bit positions.
//!
//! # Invariants
//! Bytes are hostile until proven otherwise: opening never panics, checks every length against the
//! available bytes before it allocates, and allocates no more than the payload.

use std::sync::Arc;

use crate::bloom::MAX_UNITS;
use crate::error::FilterError;
use crate::point::PointFilter;
use crate::range::RangeFilter;
use crate::words::{Borrowed, Words};

/// Bytes of the trailer.
pub const TRAILER_LEN: usize = 40;

const MAGIC: u32 = u32::from_le_bytes(*b"TFL1");
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 32;

/// What a filter is. The numbers are part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum FilterKind {
    /// [`Bloom`](crate::Bloom).
    Bloom = 1,
    /// [`BlockedBloom`](crate::BlockedBloom).
    BlockedBloom = 2,
    /// [`Ribbon`](crate::Ribbon).
    Ribbon = 3,
    /// [`BinaryFuse`](crate::BinaryFuse).
    BinaryFuse = 4,
    /// [`Xor`](crate::Xor).
    Xor = 5,
    /// [`Cuckoo`](crate::Cuckoo).
    Cuckoo = 6,
    /// [`ElasticUnit`](crate::ElasticUnit), a part of a filter; it is opened only as a unit.
    ElasticUnit = 7,
    /// [`Surf`](crate::Surf).
    Surf = 16,
    /// [`Snarf`](crate::Snarf).
    Snarf = 17,
    /// [`Rosetta`](crate::Rosetta).
    Rosetta = 18,
    /// [`REncoder`](crate::REncoder).
    REncoder = 19,
    /// [`Grafite`](crate::Grafite).
    Grafite = 20,
}

impl FilterKind {
    /// All kinds.
    pub const ALL: &'static [FilterKind] = &[
        FilterKind::Bloom,
        FilterKind::BlockedBloom,
        FilterKind::Ribbon,
        FilterKind::BinaryFuse,
        FilterKind::Xor,
        FilterKind::Cuckoo,
        FilterKind::ElasticUnit,
        FilterKind::Surf,
        FilterKind::Snarf,
        FilterKind::Rosetta,
        FilterKind::REncoder,
        FilterKind::Grafite,
    ];

    /// The kind's name, as table properties and reports show it.
    pub fn name(self) -> &'static str {
        match self {
            FilterKind::Bloom => "bloom",
            FilterKind::BlockedBloom => "blocked-bloom",
            FilterKind::Ribbon => "ribbon",
            FilterKind::BinaryFuse => "fuse",
            FilterKind::Xor => "xor",
            FilterKind::Cuckoo => "cuckoo",
            FilterKind::ElasticUnit => "elastic-unit",
            FilterKind::Surf => "surf",
            FilterKind::Snarf => "snarf",
            FilterKind::Rosetta => "rosetta",
            FilterKind::REncoder => "rencoder",
            FilterKind::Grafite => "grafite",
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Reports whether the filter preserves key order, so that it can bound the next key from
    /// below.
    pub fn is_ordered(self) -> bool {
        matches!(self, FilterKind::Surf | FilterKind::Snarf)
    }

    /// Reports whether the filter answers for key ranges rather than for digests only.
    pub fn is_range(self) -> bool {
        self as u8 >= FilterKind::Surf as u8
    }
}

/// What every filter reports about itself.
pub trait FilterInfo {
    /// Returns the kind of the filter.
    fn kind(&self) -> FilterKind;

    /// Returns the number of keys the filter was built over.
    fn keys(&self) -> u64;

    /// Returns the bits used per key, rounding and auxiliary data included; infinite for no keys.
    fn bits_per_key(&self) -> f64;

    /// Returns the bytes held in memory.
    fn memory_bytes(&self) -> usize;
}

/// Bytes that a filter shares with others: those of a mapped file, for example.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A filter of any kind. Cloning shares its memory.
#[derive(Clone, Debug)]
pub enum Filter {
    /// A filter that answers for a digest.
    Point(PointFilter),
    /// A filter that answers for key ranges.
    Range(RangeFilter),
}

impl Filter {
    /// Opens the bytes of any filter, copying the payload into aligned memory. Linear.
    ///
    /// # Errors
    /// Any opening error of [`FilterError`], if the bytes are not exactly one undamaged filter.
    pub fn open(bytes: &[u8]) -> Result<Self, FilterError> {
        if Envelope::read(bytes)?.kind.is_range() {
            Ok(Self::Range(RangeFilter::open(bytes)?))
        } else {
            Ok(Self::Point(PointFilter::open(bytes)?))
        }
    }

    /// Like [`Filter::open`] for bytes that the filter shares with others, whose address and
    /// content do not change as long as it lives. A [`BlockedBloom`](crate::BlockedBloom) that
    /// starts at a multiple of 64 stays where it is and keeps the bytes; all other filters are
    /// copied.
    ///
    /// # Errors
    /// As [`Filter::open`].
    pub fn open_in_place(bytes: SharedBytes) -> Result<Self, FilterError> {
        if Envelope::read((*bytes).as_ref())?.kind.is_range() {
            Self::open((*bytes).as_ref())
        } else {
            Ok(Self::Point(PointFilter::open_in_place(bytes)?))
        }
    }

    /// Serializes the filter.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Point(filter) => filter.to_bytes(),
            Self::Range(filter) => filter.to_bytes(),
        }
    }

    /// Returns the kind of the filter.
    pub fn kind(&self) -> FilterKind {
        match self {
            Self::Point(filter) => filter.kind(),
            Self::Range(filter) => filter.kind(),
        }
    }

    /// Returns the number of keys the filter was built over.
    pub fn keys(&self) -> u64 {
        match self {
            Self::Point(filter) => filter.keys(),
            Self::Range(filter) => filter.keys(),
        }
    }

    /// Returns the bits used per key, everything included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        match self {
            Self::Point(filter) => filter.bits_per_key(),
            Self::Range(filter) => filter.bits_per_key(),
        }
    }

    /// Returns the theoretical false-positive rate for absent keys; `None` where no formula gives
    /// it.
    pub fn expected_rate(&self) -> Option<f64> {
        match self {
            Self::Point(filter) => Some(filter.expected_rate()),
            Self::Range(filter) => filter.expected_rate(1),
        }
    }

    /// Returns the bytes held in memory, shared ones included.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Point(filter) => filter.memory_bytes(),
            Self::Range(filter) => filter.memory_bytes(),
        }
    }

    /// Returns how many of them lie in bytes that were [opened in place](Filter::open_in_place).
    pub fn in_place_bytes(&self) -> usize {
        match self {
            Self::Point(filter) => filter.in_place_bytes(),
            Self::Range(_) => 0,
        }
    }
}

impl From<PointFilter> for Filter {
    fn from(filter: PointFilter) -> Self {
        Self::Point(filter)
    }
}

impl From<RangeFilter> for Filter {
    fn from(filter: RangeFilter) -> Self {
        Self::Range(filter)
    }
}

/// Whether building a filter probes it for every key afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verify {
    /// Probe: one more probe per key; a rejected key is [`FilterError::SelfCheck`]. Guards against
    /// faulty memory and processors as much as against bugs.
    #[default]
    Yes,
    /// Do not probe.
    No,
}

/// The fields of the trailer that belong to the filter itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) salt: u64,
    pub(crate) keys: u64,
    /// First and second parameter; their meaning depends on the kind.
    pub(crate) params: [u8; 2],
}

/// A filter whose payload is a sequence of 64-bit words.
pub(crate) trait WordFilter<W: Words>: Sized {
    /// What it is.
    const KIND: FilterKind;

    /// Returns the filter over `words`, after checking that the parameters are consistent with the
    /// number of words: in O(1), or at least without reading most of the words. Whatever the words
    /// hold, probes must neither panic nor loop forever.
    fn from_parts(head: Head, words: W) -> Result<Self, FilterError>;

    /// What [`WordFilter::from_parts`] was given.
    fn head(&self) -> Head;

    /// What [`WordFilter::from_parts`] was given.
    fn words(&self) -> &W;
}

/// Appends a filter's words and its trailer to `out`.
pub(crate) fn write_words<W: Words, F: WordFilter<W>>(filter: &F, out: &mut Vec<u8>) {
    let words = filter.words();
    write(F::KIND, filter.head(), (0..words.count()).map(|at| words.word(at)), words.count() as u64, out);
}

/// Appends a payload of words and its trailer to `out`.
pub(crate) fn write(
    kind: FilterKind,
    head: Head,
    payload: impl Iterator<Item = u64>,
    units: u64,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    payload.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    for field in [head.salt, head.keys, units] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    let [first, second] = head.params;
    out.extend_from_slice(&[first, kind as u8, second, VERSION]);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Checks the last eight bytes against the checksum of the others. Linear.
pub(crate) fn verify_checksum(bytes: &[u8]) -> Result<(), FilterError> {
    let (body, checksum) =
        bytes.split_last_chunk::<8>().ok_or(FilterError::Truncated { len: bytes.len() })?;
    if xxhash_rust::xxh3::xxh3_64(body).to_le_bytes() != *checksum {
        return Err(FilterError::Checksum);
    }
    Ok(())
}

/// The fields of the trailer, and the payload.
pub(crate) struct Envelope<'a> {
    pub(crate) kind: FilterKind,
    pub(crate) head: Head,
    /// The payload: a whole number of 8-byte words or 64-byte lines, whichever the kind counts in.
    pub(crate) payload: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Splits `bytes` and performs the checks common to every kind. O(1).
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let cut = FilterError::Truncated { len: bytes.len() };
        let (payload, trailer) = bytes.split_last_chunk::<TRAILER_LEN>().ok_or(cut.clone())?;
        let (words, _) = trailer[..CHECKSUM_AT].as_chunks::<8>();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        let [first, kind, second, version, magic @ ..] = words[3];
        if magic != MAGIC.to_le_bytes() {
            return Err(FilterError::Corrupt("magic"));
        }
        if version != VERSION {
            return Err(FilterError::UnknownVersion(version));
        }
        let known = FilterKind::ALL.iter().find(|known| **known as u8 == kind);
        let kind = *known.ok_or(FilterError::UnknownKind(kind))?;
        let units = word(2);
        if !(1..=MAX_UNITS).contains(&units) {
            return Err(FilterError::Corrupt("size"));
        }
        // At most 2^38.
        let len = units * if kind == FilterKind::BlockedBloom { 64 } else { 8 };
        match (payload.len() as u64).cmp(&len) {
            std::cmp::Ordering::Less => return Err(cut),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => return Err(FilterError::Corrupt("bytes before the payload")),
        }
        let head = Head { salt: word(0), keys: word(1), params: [first, second] };
        Ok(Self { kind, head, payload })
    }

    /// The payload as words; for every kind but blocked Bloom.
    pub(crate) fn words(&self) -> Borrowed<'a> {
        Borrowed(self.payload.as_chunks::<8>().0)
    }
}
