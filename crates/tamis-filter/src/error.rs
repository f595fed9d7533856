//! Why a filter could not be built or opened.
//!
//! A caller that meets any of the opening errors may go on without the filter: a missing filter costs reads, never
//! answers.

use thiserror::Error;

use crate::bloom::BloomScheme;

/// Why a filter could not be built, opened or probed.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The size asked for is not a number in `(0, 64]` bits per key.
    #[error("{0} bits per key is not in (0, 64]")]
    BitsPerKey(f64),
    /// The filter would be larger than the format allows (2^32 cache lines or as many bytes in a standard filter).
    #[error("a filter over {keys} keys would exceed the format's limit")]
    TooLarge {
        /// Keys the filter was asked to hold, or lines when it was sized in lines.
        keys: u64,
    },
    /// The number of probes is not one this kind of filter can use.
    #[error("{0} probes per key are not possible in this filter")]
    Probes(u8),
    /// The operation does not fit the scheme: one digest for independent hashing, or many for a one-digest scheme.
    #[error("a filter of scheme {0:?} is built another way")]
    WrongScheme(BloomScheme),
    /// Fewer independent digests were given than the filter probes.
    #[error("the filter probes {need} digests per key, {have} were given")]
    TooFewDigests {
        /// Digests the filter needs per key.
        need: usize,
        /// Digests that were given.
        have: usize,
    },
    /// The bytes are shorter than the trailer, or than the trailer says.
    #[error("filter bytes are cut: {len} bytes")]
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
