//! Range filters: they take bounds and report whether a run may hold a key between them.
//!
//! [`Surf`] takes keys as byte strings. The others are filters over integers, usable as such; for
//! byte strings they are combined with the [`KeyMap`] of the run ([`Mapped`]).

use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::{self, Envelope, FilterInfo, FilterKind, Head, Verify, WordFilter};
use crate::keys::{KeyList, KeyMap, KeyRange, Place};
use crate::words::{Borrowed, Owned, Words};

mod dyadic;
mod grafite;
mod rencoder;
mod rosetta;
mod snarf;
mod surf;

pub use grafite::Grafite;
pub use rencoder::REncoder;
pub use rosetta::Rosetta;
pub use snarf::Snarf;
pub use surf::{Surf, SurfSuffix};

/// A filter that answers for ranges of keys.
pub trait RangeProbe: FilterInfo {
    /// Returns whether the run may hold a key in `range`. `false` is certain; it is the answer to
    /// every empty range.
    fn contains_range(&self, range: KeyRange<'_>) -> bool;

    /// Returns whether the run may hold `key`, whose digest is `digest`. `false` is certain.
    fn contains_key(&self, key: &[u8], digest: Digest) -> bool;

    /// Returns what the filter knows of the run's first key at or after `from`.
    fn next(&self, from: &[u8]) -> Next<Vec<u8>>;

    /// Returns the theoretical false-positive rate for ranges of `keys` consecutive integers (1: a
    /// point) that hold no key; `None` where the rate depends on the keys in ways that no formula
    /// captures.
    fn expected_rate(&self, keys: u64) -> Option<f64>;
}

/// The first key of a run at or after some key, as far as a filter can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next<K> {
    /// There is no such key.
    Nothing,
    /// The key is not below this one. (It may be far above it, or there may be none.)
    NotBelow(K),
    /// The filter cannot tell.
    Unknown,
}

/// A filter over integers.
pub trait IntegerProbe {
    /// Returns whether the set may hold `key`. `false` is certain.
    fn contains(&self, key: u64) -> bool;

    /// Returns whether the set may hold a number from `first` to `last`, both included. `false` is
    /// certain; it is the answer to a reversed range.
    fn contains_range(&self, first: u64, last: u64) -> bool;

    /// Returns what the filter knows of the first number at or after `from`.
    fn next(&self, _from: u64) -> Next<u64> {
        Next::Unknown
    }

    /// Same as [`RangeProbe::expected_rate`].
    fn expected_rate(&self, keys: u64) -> Option<f64>;
}

/// Which range filter to build.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RangeSpec {
    /// [`Surf`].
    Surf(SurfSuffix),
    /// [`Snarf`].
    Snarf,
    /// [`Rosetta`], for ranges of up to this many integers.
    Rosetta {
        /// Wider ranges are split into several queries.
        max_range: u64,
    },
    /// [`REncoder`].
    REncoder,
    /// [`Grafite`].
    Grafite,
}

/// An integer filter with the map from the byte strings of its run.
#[derive(Clone, Debug)]
pub struct Mapped<F> {
    map: KeyMap,
    filter: F,
}

impl<F> Mapped<F> {
    /// Returns the map from keys to integers.
    pub fn map(&self) -> &KeyMap {
        &self.map
    }

    /// Returns the filter over the integers.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// Opens the filter whose own words, followed by the map's, lie in `words`.
    fn open<W: Words>(head: Head, words: W) -> Result<Self, FilterError>
    where
        F: WordFilter<W>,
    {
        let map = KeyMap::read(&words)?;
        Ok(Self { map, filter: F::from_parts(head, words)? })
    }
}

impl<F: IntegerProbe> Mapped<F> {
    fn contains_range(&self, range: KeyRange<'_>) -> bool {
        self.map.numbers(range).is_some_and(|(first, last)| self.filter.contains_range(first, last))
    }

    fn contains_key(&self, key: &[u8], _digest: Digest) -> bool {
        match self.map.place(key) {
            Place::At(at) => self.filter.contains(at),
            Place::Below | Place::Above => false,
        }
    }

    fn next(&self, from: &[u8]) -> Next<Vec<u8>> {
        let at = match self.map.place(from) {
            Place::Below => 0,
            Place::At(at) => at,
            Place::Above => return Next::Nothing,
        };
        match self.filter.next(at) {
            Next::Nothing => Next::Nothing,
            // The number of `from` itself says nothing about later keys that share this number.
            Next::NotBelow(next) => Next::NotBelow(self.map.key_at(next).max(from.to_vec())),
            Next::Unknown => Next::Unknown,
        }
    }

    fn expected_rate(&self, keys: u64) -> Option<f64> {
        self.filter.expected_rate(keys)
    }
}

/// A range filter of any kind. With the default [`Owned`] words, cloning shares its memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RangeFilter<W: Words = Owned> {
    /// A succinct range filter (a trie).
    Surf(Surf<W>),
    /// A learned filter.
    Snarf(Mapped<Snarf<W>>),
    /// A hierarchy of Bloom filters over prefixes.
    Rosetta(Mapped<Rosetta<W>>),
    /// A range encoder.
    REncoder(Mapped<REncoder<W>>),
    /// A locality-preserving hash.
    Grafite(Mapped<Grafite<W>>),
}

/// A range filter of any kind over borrowed bytes.
pub type RangeFilterRef<'a> = RangeFilter<Borrowed<'a>>;

/// Expands to the same expression for each kind; `$words` binds the inner filter that owns the
/// words.
macro_rules! each {
    ($self:expr, $filter:ident => $body:expr) => {
        match $self {
            Self::Surf($filter) => $body,
            Self::Snarf($filter) => $body,
            Self::Rosetta($filter) => $body,
            Self::REncoder($filter) => $body,
            Self::Grafite($filter) => $body,
        }
    };
    (words of $self:expr, $filter:ident => $body:expr) => {
        match $self {
            Self::Surf($filter) => $body,
            Self::Snarf(Mapped { filter: $filter, .. }) => $body,
            Self::Rosetta(Mapped { filter: $filter, .. }) => $body,
            Self::REncoder(Mapped { filter: $filter, .. }) => $body,
            Self::Grafite(Mapped { filter: $filter, .. }) => $body,
        }
    };
}

impl RangeFilter {
    /// Builds a filter over `keys`, in any order; duplicates are allowed. `bits_per_key` is the
    /// requested size; [`RangeFilter::bits_per_key`] returns the actual one. (The trie of [`Surf`]
    /// takes the space it needs; its suffixes get the rest.)
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`], [`FilterError::TooLarge`] and [`FilterError::Parameter`] for
    /// invalid sizes, [`FilterError::Construction`], [`FilterError::SelfCheck`].
    pub fn build(
        spec: RangeSpec,
        keys: &KeyList,
        bits_per_key: f64,
        salt: u64,
        verify: Verify,
    ) -> Result<Self, FilterError> {
        let keys = keys.sorted();
        let filter = match spec {
            RangeSpec::Surf(suffix) => Self::Surf(Surf::build(&keys, suffix, bits_per_key, salt)?),
            RangeSpec::Snarf => Self::Snarf(mapped(&keys, |numbers| Snarf::encode(numbers, bits_per_key))?),
            RangeSpec::Rosetta { max_range } => Self::Rosetta(mapped(&keys, |numbers| {
                Rosetta::encode(numbers, bits_per_key, max_range, salt)
            })?),
            RangeSpec::REncoder => {
                Self::REncoder(mapped(&keys, |numbers| REncoder::encode(numbers, bits_per_key, salt))?)
            }
            RangeSpec::Grafite => {
                Self::Grafite(mapped(&keys, |numbers| Grafite::encode(numbers, bits_per_key, salt))?)
            }
        };
        if verify == Verify::Yes {
            filter.check(&keys)?;
        }
        Ok(filter)
    }

    /// Probes the filter for each of `keys`, as a point and as a range.
    ///
    /// # Errors
    /// [`FilterError::SelfCheck`] if one is rejected.
    pub fn check(&self, keys: &KeyList) -> Result<(), FilterError> {
        let held = keys.iter().all(|key| {
            self.contains_range(KeyRange::closed(key, key)) && self.contains_key(key, Digest::of(key))
        });
        if held { Ok(()) } else { Err(FilterError::SelfCheck) }
    }

    /// Opens bytes written by [`RangeFilter::write_to`], copying the payload. Linear.
    ///
    /// # Errors
    /// Any opening error of [`FilterError`], if the bytes are not exactly one undamaged range
    /// filter.
    pub fn open(bytes: &[u8]) -> Result<Self, FilterError> {
        let envelope = Envelope::read(bytes)?;
        let filter = Self::from_parts(envelope.kind, envelope.head, envelope.words().to_owned_words())?;
        format::verify_checksum(bytes)?;
        Ok(filter)
    }

    /// Returns a view of bytes written by [`RangeFilter::write_to`], without copying. See
    /// [`RangeFilterRef::open_ref`].
    ///
    /// # Errors
    /// As [`RangeFilter::open`].
    pub fn open_view(bytes: &[u8]) -> Result<RangeFilterRef<'_>, FilterError> {
        RangeFilterRef::open_ref(bytes)
    }
}

/// Returns the words of an integer filter over the numbers of `keys` (sorted), followed by the
/// map's, and the filter.
fn mapped<F: WordFilter<Owned>>(
    keys: &KeyList,
    encode: impl FnOnce(&[u64]) -> Result<(Head, Vec<u64>), FilterError>,
) -> Result<Mapped<F>, FilterError> {
    let map = KeyMap::of(keys);
    let numbers: Vec<u64> = keys
        .iter()
        .map(|key| match map.place(key) {
            Place::At(at) => at,
            Place::Below => 0,
            Place::Above => u64::MAX,
        })
        .collect();
    let (head, mut words) = encode(&numbers)?;
    words.reserve_exact(map.encoded_words());
    map.write_to(&mut words);
    Ok(Mapped { map, filter: F::from_parts(head, words.into())? })
}

impl<'a> RangeFilterRef<'a> {
    /// Returns a view of `bytes`, which must be exactly one filter. Linear, because the checksum is
    /// verified.
    ///
    /// # Errors
    /// As [`RangeFilter::open`].
    pub fn open_ref(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let filter = Self::open_unverified(bytes)?;
        format::verify_checksum(bytes)?;
        Ok(filter)
    }

    /// Like [`RangeFilterRef::open_ref`] without verifying the checksum: O(1), for bytes that were
    /// verified before. On damaged bytes a probe may answer wrongly; neither this nor a probe
    /// panics, and both terminate.
    ///
    /// # Errors
    /// As [`RangeFilter::open`], except [`FilterError::Checksum`].
    pub fn open_unverified(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let envelope = Envelope::read(bytes)?;
        Self::from_parts(envelope.kind, envelope.head, envelope.words())
    }
}

impl<W: Words> RangeFilter<W> {
    fn from_parts(kind: FilterKind, head: Head, words: W) -> Result<Self, FilterError> {
        Ok(match kind {
            FilterKind::Surf => Self::Surf(Surf::from_parts(head, words)?),
            FilterKind::Snarf => Self::Snarf(Mapped::open(head, words)?),
            FilterKind::Rosetta => Self::Rosetta(Mapped::open(head, words)?),
            FilterKind::REncoder => Self::REncoder(Mapped::open(head, words)?),
            FilterKind::Grafite => Self::Grafite(Mapped::open(head, words)?),
            kind => return Err(FilterError::WrongKind(kind)),
        })
    }

    /// Returns whether the run may hold a key in `range`. `false` is certain; it is the answer to
    /// every empty range.
    #[inline]
    pub fn contains_range(&self, range: KeyRange<'_>) -> bool {
        !range.is_empty() && each!(self, filter => filter.contains_range(range))
    }

    /// Returns whether the run may hold `key`, whose digest is `digest`. `false` is certain.
    #[inline]
    pub fn contains_key(&self, key: &[u8], digest: Digest) -> bool {
        each!(self, filter => filter.contains_key(key, digest))
    }

    /// Returns what the filter knows of the first key of the run at or after `from`.
    pub fn next(&self, from: &[u8]) -> Next<Vec<u8>> {
        each!(self, filter => filter.next(from))
    }

    /// Same as [`RangeProbe::expected_rate`].
    pub fn expected_rate(&self, keys: u64) -> Option<f64> {
        each!(self, filter => filter.expected_rate(keys))
    }

    /// Returns the kind of the filter.
    pub fn kind(&self) -> FilterKind {
        match self {
            Self::Surf(_) => FilterKind::Surf,
            Self::Snarf(_) => FilterKind::Snarf,
            Self::Rosetta(_) => FilterKind::Rosetta,
            Self::REncoder(_) => FilterKind::REncoder,
            Self::Grafite(_) => FilterKind::Grafite,
        }
    }

    /// Returns the number of keys the filter was built over.
    pub fn keys(&self) -> u64 {
        each!(words of self, filter => filter.head().keys)
    }

    /// Returns the bits used per key, everything included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        (self.word_count() * 64) as f64 / self.keys() as f64
    }

    /// Returns the bytes held in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.word_count() * 8
    }

    fn word_count(&self) -> usize {
        each!(words of self, filter => filter.words().count())
    }

    /// Serializes the filter.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out);
        out
    }

    /// Returns the number of bytes [`RangeFilter::write_to`] appends.
    pub fn encoded_len(&self) -> usize {
        format::TRAILER_LEN + self.word_count() * 8
    }

    /// Appends the filter's bytes to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        each!(words of self, filter => format::write_words(filter, out));
    }
}

impl<W: Words> FilterInfo for RangeFilter<W> {
    fn kind(&self) -> FilterKind {
        RangeFilter::kind(self)
    }

    fn keys(&self) -> u64 {
        RangeFilter::keys(self)
    }

    fn bits_per_key(&self) -> f64 {
        RangeFilter::bits_per_key(self)
    }

    fn memory_bytes(&self) -> usize {
        RangeFilter::memory_bytes(self)
    }
}

impl<W: Words> RangeProbe for RangeFilter<W> {
    #[inline]
    fn contains_range(&self, range: KeyRange<'_>) -> bool {
        RangeFilter::contains_range(self, range)
    }

    #[inline]
    fn contains_key(&self, key: &[u8], digest: Digest) -> bool {
        RangeFilter::contains_key(self, key, digest)
    }

    fn next(&self, from: &[u8]) -> Next<Vec<u8>> {
        RangeFilter::next(self, from)
    }

    fn expected_rate(&self, keys: u64) -> Option<f64> {
        RangeFilter::expected_rate(self, keys)
    }
}
