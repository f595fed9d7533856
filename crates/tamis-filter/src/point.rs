//! Point filters of any kind: they take a [`Digest`] and never a key.

use std::borrow::Cow;
use std::sync::Arc;

use crate::blocked::{BlockedBloom, BlockedBloomRef, BlockedShape};
use crate::bloom::{Bloom, BloomRef, BloomScheme, BloomShape};
use crate::cuckoo::Cuckoo;
use crate::digest::Digest;
use crate::error::FilterError;
use crate::format::{self, Envelope, FilterInfo, FilterKind, Head, SharedBytes, Verify, WordFilter};
use crate::fuse::BinaryFuse;
use crate::ribbon::Ribbon;
use crate::theory;
use crate::words::Borrowed;
use crate::xor::Xor;

/// A filter that answers for one key, given the key's digest.
pub trait PointProbe: FilterInfo {
    /// Returns whether the run may hold the key. `false` is certain.
    fn contains(&self, digest: Digest) -> bool;

    /// Returns the theoretical false-positive rate; 0 for no keys.
    fn expected_rate(&self) -> f64;
}

/// Which point filter to build.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PointSpec {
    /// [`Bloom`], of a one-digest scheme.
    Bloom(BloomScheme),
    /// [`BlockedBloom`].
    BlockedBloom,
    /// [`Ribbon`].
    Ribbon,
    /// [`BinaryFuse`].
    BinaryFuse,
    /// [`Xor`].
    Xor,
    /// [`Cuckoo`].
    Cuckoo,
}

/// A point filter of any kind, owning its memory. Cloning shares it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PointFilter {
    /// A standard Bloom filter.
    Bloom(Bloom),
    /// A cache-line-blocked Bloom filter.
    BlockedBloom(BlockedBloom),
    /// A ribbon filter.
    Ribbon(Ribbon),
    /// A binary fuse filter.
    BinaryFuse(BinaryFuse),
    /// An XOR filter.
    Xor(Xor),
    /// A cuckoo filter.
    Cuckoo(Cuckoo),
}

/// A point filter of any kind over borrowed bytes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PointFilterRef<'a> {
    /// A standard Bloom filter.
    Bloom(BloomRef<'a>),
    /// A cache-line-blocked Bloom filter.
    BlockedBloom(BlockedBloomRef<'a>),
    /// A ribbon filter.
    Ribbon(Ribbon<Borrowed<'a>>),
    /// A binary fuse filter.
    BinaryFuse(BinaryFuse<Borrowed<'a>>),
    /// An XOR filter.
    Xor(Xor<Borrowed<'a>>),
    /// A cuckoo filter.
    Cuckoo(Cuckoo<Borrowed<'a>>),
}

/// Expands to the same expression for each kind.
macro_rules! each {
    ($self:expr, $filter:ident => $body:expr) => {
        match $self {
            Self::Bloom($filter) => $body,
            Self::BlockedBloom($filter) => $body,
            Self::Ribbon($filter) => $body,
            Self::BinaryFuse($filter) => $body,
            Self::Xor($filter) => $body,
            Self::Cuckoo($filter) => $body,
        }
    };
    (kind of $self:expr) => {
        match $self {
            Self::Bloom(_) => FilterKind::Bloom,
            Self::BlockedBloom(_) => FilterKind::BlockedBloom,
            Self::Ribbon(_) => FilterKind::Ribbon,
            Self::BinaryFuse(_) => FilterKind::BinaryFuse,
            Self::Xor(_) => FilterKind::Xor,
            Self::Cuckoo(_) => FilterKind::Cuckoo,
        }
    };
}

macro_rules! from_kinds {
    ($($kind:ident),*) => {$(
        impl From<$kind> for PointFilter {
            fn from(filter: $kind) -> Self {
                Self::$kind(filter)
            }
        }
    )*};
}

from_kinds!(Bloom, BlockedBloom, Ribbon, BinaryFuse, Xor, Cuckoo);

impl PointFilter {
    /// Builds a filter over `digests`, in any order; duplicates are allowed. `bits_per_key` is the
    /// requested size; [`PointFilter::bits_per_key`] returns the actual one, which exceeds it only
    /// where small filters are rounded up.
    ///
    /// # Errors
    /// [`FilterError::BitsPerKey`], [`FilterError::TooLarge`] and [`FilterError::Parameter`] for
    /// invalid sizes, [`FilterError::Construction`] when no arrangement was found,
    /// [`FilterError::SelfCheck`], and [`FilterError::WrongScheme`] for
    /// [`BloomScheme::Independent`], which needs other digests ([`Bloom::build_independent`]).
    pub fn build(
        spec: PointSpec,
        digests: &[Digest],
        bits_per_key: f64,
        salt: u64,
        verify: Verify,
    ) -> Result<Self, FilterError> {
        let filter: Self = match spec {
            PointSpec::Bloom(scheme) => Bloom::build(digests, bits_per_key, scheme, salt)?.into(),
            PointSpec::BlockedBloom => BlockedBloom::build(digests, bits_per_key, salt)?.into(),
            PointSpec::Ribbon => Ribbon::build(digests, bits_per_key, salt)?.into(),
            PointSpec::BinaryFuse => BinaryFuse::build(digests, bits_per_key, salt)?.into(),
            PointSpec::Xor => Xor::build(digests, bits_per_key, salt)?.into(),
            PointSpec::Cuckoo => Cuckoo::build(digests, bits_per_key, salt)?.into(),
        };
        if verify == Verify::Yes {
            filter.check(digests)?;
        }
        Ok(filter)
    }

    /// Probes the filter for each of `digests`.
    ///
    /// # Errors
    /// [`FilterError::SelfCheck`] if one is rejected.
    pub fn check(&self, digests: &[Digest]) -> Result<(), FilterError> {
        let held = each!(self, filter => digests.iter().all(|&digest| filter.contains(digest)));
        if held { Ok(()) } else { Err(FilterError::SelfCheck) }
    }

    /// Serializes the filter.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out);
        out
    }

    /// Returns the number of bytes [`PointFilter::write_to`] appends.
    pub fn encoded_len(&self) -> usize {
        format::TRAILER_LEN
            + match self {
                Self::Bloom(filter) => size_of_val(filter.words()),
                Self::BlockedBloom(filter) => filter.line_bytes(),
                Self::Ribbon(filter) => size_of_val(&**filter.words()),
                Self::BinaryFuse(filter) => size_of_val(&**filter.words()),
                Self::Xor(filter) => size_of_val(&**filter.words()),
                Self::Cuckoo(filter) => size_of_val(&**filter.words()),
            }
    }

    /// Appends the filter's bytes to `out`. To probe it in place later, start it at a multiple of
    /// 64.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        match self {
            Self::Bloom(filter) => {
                let shape = filter.shape();
                let params = [shape.probes, shape.scheme as u8];
                let head = Head { salt: shape.salt, keys: shape.keys, params };
                format::write(FilterKind::Bloom, head, filter.words().iter().copied(), shape.words, out);
            }
            Self::BlockedBloom(filter) => {
                let shape = filter.shape();
                let head = Head { salt: shape.salt, keys: shape.keys, params: [shape.probes, 0] };
                let halves = filter.lines().iter().flat_map(|line| line.0.as_chunks::<2>().0);
                let words = halves.map(|[low, high]| u64::from(*low) | u64::from(*high) << 32);
                format::write(FilterKind::BlockedBloom, head, words, filter.lines().len() as u64, out);
            }
            Self::Ribbon(filter) => format::write_words(filter, out),
            Self::BinaryFuse(filter) => format::write_words(filter, out),
            Self::Xor(filter) => format::write_words(filter, out),
            Self::Cuckoo(filter) => format::write_words(filter, out),
        }
    }

    /// Opens bytes written by [`PointFilter::write_to`], copying the payload into aligned memory.
    /// Linear.
    ///
    /// # Errors
    /// Any opening error of [`FilterError`], if the bytes are not exactly one undamaged point
    /// filter.
    pub fn open(bytes: &[u8]) -> Result<Self, FilterError> {
        Ok(PointFilterRef::open(bytes)?.to_owned())
    }

    /// Like [`PointFilter::open`] for bytes that the filter shares with others. See
    /// [`Filter::open_in_place`](crate::Filter::open_in_place).
    ///
    /// # Errors
    /// As [`PointFilter::open`].
    pub fn open_in_place(bytes: SharedBytes) -> Result<Self, FilterError> {
        let view = PointFilterRef::open((*bytes).as_ref())?;
        Ok(match view {
            PointFilterRef::BlockedBloom(filter) => filter.to_shared(Arc::clone(&bytes)).into(),
            view => view.to_owned(),
        })
    }

    /// Returns a view of bytes written by [`PointFilter::write_to`], without copying. See
    /// [`PointFilterRef::open`].
    ///
    /// # Errors
    /// As [`PointFilter::open`].
    pub fn open_ref(bytes: &[u8]) -> Result<PointFilterRef<'_>, FilterError> {
        PointFilterRef::open(bytes)
    }

    /// Returns whether the run may hold the key. See [`Bloom::contains`] on the independent scheme.
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        each!(self, filter => filter.contains(digest))
    }

    /// Prefetches what [`PointFilter::contains`] will read first, where that is known without
    /// reading.
    #[inline]
    pub fn prefetch(&self, digest: Digest) {
        match self {
            Self::BlockedBloom(filter) => filter.prefetch(digest),
            Self::Bloom(_) => {}
            Self::Ribbon(filter) => filter.prefetch(digest),
            Self::BinaryFuse(filter) => filter.prefetch(digest),
            Self::Xor(filter) => filter.prefetch(digest),
            Self::Cuckoo(filter) => filter.prefetch(digest),
        }
    }

    /// Returns the kind of the filter.
    pub fn kind(&self) -> FilterKind {
        each!(kind of self)
    }

    /// Returns the number of keys the filter was built over.
    pub fn keys(&self) -> u64 {
        each!(self, filter => filter.keys())
    }

    /// Returns the bits used per key, rounding included; infinite for no keys.
    pub fn bits_per_key(&self) -> f64 {
        each!(self, filter => filter.bits_per_key())
    }

    /// Returns the theoretical false-positive rate; 0 for no keys.
    pub fn expected_rate(&self) -> f64 {
        each!(self, filter => filter.expected_rate())
    }

    /// Returns the bytes held in memory, shared ones included.
    pub fn memory_bytes(&self) -> usize {
        each!(self, filter => filter.memory_bytes())
    }

    /// Returns how many of them lie in bytes that were [opened in
    /// place](PointFilter::open_in_place).
    pub fn in_place_bytes(&self) -> usize {
        match self {
            Self::BlockedBloom(filter) => filter.in_place_bytes(),
            _ => 0,
        }
    }
}

impl FilterInfo for PointFilter {
    fn kind(&self) -> FilterKind {
        PointFilter::kind(self)
    }

    fn keys(&self) -> u64 {
        PointFilter::keys(self)
    }

    fn bits_per_key(&self) -> f64 {
        PointFilter::bits_per_key(self)
    }

    fn memory_bytes(&self) -> usize {
        PointFilter::memory_bytes(self)
    }
}

impl PointProbe for PointFilter {
    #[inline]
    fn contains(&self, digest: Digest) -> bool {
        PointFilter::contains(self, digest)
    }

    fn expected_rate(&self) -> f64 {
        PointFilter::expected_rate(self)
    }
}

impl<'a> PointFilterRef<'a> {
    /// Returns a view of `bytes`, which must be exactly one filter. Linear, because the checksum is
    /// verified.
    ///
    /// # Errors
    /// As [`PointFilter::open`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let filter = Self::open_unverified(bytes)?;
        format::verify_checksum(bytes)?;
        Ok(filter)
    }

    /// Like [`PointFilterRef::open`] without verifying the checksum: O(1), for bytes that were
    /// verified before, such as those of a cached block. On damaged bytes a probe may answer
    /// wrongly; neither this nor a probe panics.
    ///
    /// # Errors
    /// As [`PointFilter::open`], except [`FilterError::Checksum`].
    pub fn open_unverified(bytes: &'a [u8]) -> Result<Self, FilterError> {
        let envelope = Envelope::read(bytes)?;
        let (head, words) = (envelope.head, envelope.words());
        let Head { salt, keys, params: [probes, scheme] } = head;
        Ok(match envelope.kind {
            FilterKind::Bloom => {
                let scheme = match scheme {
                    1 => BloomScheme::Rotation,
                    2 => BloomScheme::DoubleHashing,
                    3 => BloomScheme::Independent,
                    _ => return Err(FilterError::Corrupt("scheme")),
                };
                check_probes(probes, theory::MAX_PROBES)?;
                let shape = BloomShape::of(salt, keys, words.0.len() as u64, probes, scheme);
                Self::Bloom(BloomRef::new(shape, words.0))
            }
            FilterKind::BlockedBloom => {
                if scheme != 0 {
                    return Err(FilterError::Corrupt("scheme"));
                }
                check_probes(probes, theory::MAX_BLOCKED_PROBES)?;
                let (lines, _) = envelope.payload.as_chunks::<64>();
                Self::BlockedBloom(BlockedBloomRef::new(BlockedShape { salt, keys, probes }, lines))
            }
            FilterKind::Ribbon => Self::Ribbon(Ribbon::from_parts(head, words)?),
            FilterKind::BinaryFuse => Self::BinaryFuse(BinaryFuse::from_parts(head, words)?),
            FilterKind::Xor => Self::Xor(Xor::from_parts(head, words)?),
            FilterKind::Cuckoo => Self::Cuckoo(Cuckoo::from_parts(head, words)?),
            kind => return Err(FilterError::WrongKind(kind)),
        })
    }

    /// Same as [`PointFilter::contains`].
    #[inline]
    pub fn contains(&self, digest: Digest) -> bool {
        each!(self, filter => filter.contains(digest))
    }

    /// Returns the kind of the filter.
    pub fn kind(&self) -> FilterKind {
        each!(kind of self)
    }

    /// Same as [`PointFilter::bits_per_key`].
    pub fn bits_per_key(&self) -> f64 {
        each!(self, filter => filter.bits_per_key())
    }

    /// Same as [`PointFilter::expected_rate`].
    pub fn expected_rate(&self) -> f64 {
        each!(self, filter => filter.expected_rate())
    }

    /// Copies the filter into owned memory.
    pub fn to_owned(&self) -> PointFilter {
        match self {
            Self::Bloom(filter) => filter.to_owned().into(),
            Self::BlockedBloom(filter) => filter.to_owned().into(),
            Self::Ribbon(filter) => filter.to_owned().into(),
            Self::BinaryFuse(filter) => filter.to_owned().into(),
            Self::Xor(filter) => filter.to_owned().into(),
            Self::Cuckoo(filter) => filter.to_owned().into(),
        }
    }
}

fn check_probes(probes: u8, most: u32) -> Result<(), FilterError> {
    if (1..=most).contains(&u32::from(probes)) { Ok(()) } else { Err(FilterError::Probes(probes)) }
}

/// Returns the digests in ascending order without duplicates, for the kinds that cannot hold one
/// twice.
pub(crate) fn distinct(digests: &[Digest]) -> Cow<'_, [Digest]> {
    if digests.is_sorted_by(|a, b| a.get() < b.get()) {
        return Cow::Borrowed(digests);
    }
    let mut sorted = digests.to_vec();
    sorted.sort_unstable_by_key(|digest| digest.get());
    sorted.dedup();
    Cow::Owned(sorted)
}
