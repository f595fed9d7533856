//! Why a filter could not be built or opened.
//!
//! A caller that gets any of the opening errors may go on without the filter: a missing filter
//! costs reads, never correctness.

use thiserror::Error;

use crate::bloom::BloomScheme;
use crate::format::FilterKind;

/// Why a filter could not be built, opened or probed.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The requested size is not a number in `(0, 64]` bits per key.
    #[error("{0} bits per key is not in (0, 64]")]
    BitsPerKey(f64),
    /// The filter would be larger than the format allows (2^32 cache lines or as many bytes in a
    /// standard filter).
    #[error("a filter over {keys} keys would exceed the format's limit")]
    TooLarge {
        /// Keys the filter was to hold, or lines when it was sized in lines.
        keys: u64,
    },
    /// The number of probes is not one this kind of filter can use.
    #[error("{0} probes per key are not possible in this filter")]
    Probes(u8),
    /// The operation does not fit the scheme: one digest for independent hashing, or several for a
    /// one-digest scheme.
    #[error("a filter of scheme {0:?} does not support this operation")]
    WrongScheme(BloomScheme),
    /// Fewer independent digests were given than the filter needs.
    #[error("the filter probes {need} digests per key, but {have} were given")]
    TooFewDigests {
        /// Digests the filter needs per key.
        need: usize,
        /// Digests that were given.
        have: usize,
    },
    /// A parameter of this kind of filter is out of range.
    #[error("{0}")]
    Parameter(&'static str),
    /// No arrangement of the keys was found, even with other salts or more space.
    #[error("the filter could not be built over {keys} keys")]
    Construction {
        /// Keys the filter was to hold.
        keys: u64,
    },
    /// The filter rejected a key that it had just been built over: faulty memory, a faulty
    /// processor or a bug in this crate.
    #[error("the filter rejects one of its own keys")]
    SelfCheck,
    /// The bytes hold a filter of a different family than requested: point, range, or unit of a
    /// group.
    #[error("the bytes hold a filter of kind {}", .0.name())]
    WrongKind(FilterKind),
    /// The bytes are shorter than the trailer, or than the trailer requires.
    #[error("filter bytes are truncated: {len} bytes")]
    Truncated {
        /// Bytes given.
        len: usize,
    },
    /// The bytes carry a version this build does not know.
    #[error("filter format version {0} is unknown")]
    UnknownVersion(u8),
    /// The bytes carry a kind this build does not know.
    #[error("filter kind {0} is unknown")]
    UnknownKind(u8),
    /// The checksum does not match the bytes.
    #[error("filter checksum mismatch")]
    Checksum,
    /// The fields contradict each other or the length.
    #[error("filter bytes are corrupt: {0}")]
    Corrupt(&'static str),
}
