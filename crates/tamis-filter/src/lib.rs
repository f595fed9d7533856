//! Filters for sorted runs, as plain data structures: build, probe, serialize.
//!
//! A filter answers "may this run hold this key, or a key in this range?" without reading the run.
//! It may wrongly say yes (a false positive, at a rate set by its size) and never wrongly says no.
//!
//! | kind | takes | description |
//! | --- | --- | --- |
//! | [`Bloom`] | digests | the standard filter, with the textbook rate |
//! | [`BlockedBloom`] | digests | the same within one cache line: slightly more false positives, one cache miss |
//! | [`Ribbon`] | digests | a linear system; a third smaller, slower to build |
//! | [`BinaryFuse`], [`Xor`] | digests | three fingerprints combined; small, fast to probe |
//! | [`Cuckoo`] | digests | fingerprints in one of two buckets |
//! | [`ElasticGroup`] | digests | a Bloom filter in units that can be loaded one by one |
//! | [`Surf`] | byte strings, ranges | a succinct trie |
//! | [`Snarf`] | integers, ranges | learned positions, compressed |
//! | [`Rosetta`], [`REncoder`] | integers, short ranges | Bloom filters over prefixes |
//! | [`Grafite`] | integers, ranges | a locality-preserving hash; the rate holds for every query |
//!
//! [`PointFilter`] and [`RangeFilter`] hold any of them, [`Filter`] holds either; `docs/filters.md`
//! says which one to choose.
//!
//! # Invariants
//! * A point filter ([`PointProbe`]) never takes a key. It takes a [`Digest`], computed once per
//!   operation and passed by value to every filter of every run. Each filter remixes the digest
//!   with its own salt, which costs a few cycles, so a key that fools one run is no more likely to
//!   fool the next.
//! * A range filter ([`RangeProbe`]) takes bounds. Integer filters see byte strings through a
//!   [`KeyMap`].
//! * The digest function, the remix, and the bit positions derived from them are part of the file
//!   format (`docs/formats/filters.md`). Changing any of them needs a new format version.
//! * Opening bytes never panics and never allocates more than the bytes' own length, whatever they
//!   contain.
//!
//! # Threads
//! No I/O, no engine, no threads. Every filter is immutable once built, `Send + Sync` and (where it
//! owns memory) cheap to clone; only [`AtomicBlockedBloom`] takes insertions while it is being
//! probed.
//!
//! ```
//! use tamis_filter::{BlockedBloomBuilder, Digest, PointFilter};
//!
//! let mut builder = BlockedBloomBuilder::new();
//! for key in ["ash", "birch", "cedar"] {
//!     builder.add(Digest::of(key.as_bytes()));
//! }
//! let bytes = PointFilter::from(builder.finish(10.0, 7)?).to_bytes();
//! assert!(PointFilter::open(&bytes)?.contains(Digest::of(b"birch")));
//! # Ok::<(), tamis_filter::FilterError>(())
//! ```

#![warn(missing_debug_implementations)]

mod bits;
mod blocked;
mod bloom;
mod concurrent;
mod cuckoo;
pub mod digest;
mod elastic;
mod elias_fano;
mod error;
mod fingerprints;
pub mod format;
mod fuse;
pub mod global;
mod keys;
mod line;
mod point;
mod range;
mod ribbon;
pub mod theory;
mod words;
mod xor;

pub use blocked::{
    BATCH, BlockedBloom, BlockedBloomBuilder, BlockedBloomRef, Line, probe_many_keys, probe_pairs,
    probe_selected,
};
pub use bloom::{Bloom, BloomRef, BloomScheme, IndependentDigests};
pub use concurrent::{AtomicBlockedBloom, AtomicLine};
pub use cuckoo::Cuckoo;
pub use digest::Digest;
pub use elastic::{
    ElasticGroup, ElasticLayout, ElasticLine, ElasticProbe, ElasticSet, ElasticSpec, ElasticStack,
    ElasticUnit, ElasticUnitRef, MAX_ELASTIC_UNITS,
};
pub use error::FilterError;
pub use format::{Filter, FilterInfo, FilterKind, SharedBytes, Verify};
pub use fuse::BinaryFuse;
pub use keys::{KeyList, KeyMap, KeyRange, Place, prefix_end};
pub use point::{PointFilter, PointFilterRef, PointProbe, PointSpec};
pub use range::{
    Grafite, IntegerProbe, Mapped, Next, REncoder, RangeFilter, RangeFilterRef, RangeProbe, RangeSpec,
    Rosetta, Snarf, Surf, SurfSuffix,
};
pub use ribbon::Ribbon;
pub use words::{Borrowed, Owned, Words};
pub use xor::Xor;
