//! Filters for sorted runs, as plain data structures: build from digests, probe with a digest, turn into bytes.
//!
//! A *point filter* answers "may this run hold this key?" without reading the run. It may say yes wrongly (a false
//! positive, at a rate set by its size) and never says no wrongly. Two kinds live here: the standard [`Bloom`]
//! filter, whose false-positive rate is the textbook one, and [`BlockedBloom`], which confines a key to one 64-byte
//! cache line: slightly more false positives for one cache miss per probe instead of up to *k*.
//!
//! # Invariants
//! * A point filter never takes a key. It takes a [`Digest`], computed once per operation and handed by value to
//!   every filter of every run. Each filter remixes the digest with its own salt, a few cycles, so that a key that
//!   fools one run is not more likely to fool the next.
//! * The digest function, the remix, and the bit positions derived from them are part of the file format
//!   (`docs/filter-format.md`). Changing any of them needs a new format version.
//! * Opening bytes never panics and never allocates more than the bytes' own length, whatever they hold.
//!
//! # Threads
//! No I/O, no engine, no threads. Every filter is immutable once built, `Send + Sync` and (where it owns memory)
//! cheap to clone; only [`AtomicBlockedBloom`] takes insertions while it is being probed.
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
mod keys;
mod point;
mod range;
mod ribbon;
pub mod theory;
mod words;
mod xor;

pub use blocked::{
    BATCH, BlockedBloom, BlockedBloomBuilder, BlockedBloomRef, Line, probe_many_keys, probe_selected,
};
pub use bloom::{Bloom, BloomRef, BloomScheme, IndependentDigests};
pub use concurrent::AtomicBlockedBloom;
pub use cuckoo::Cuckoo;
pub use digest::Digest;
pub use elastic::{
    ElasticGroup, ElasticLayout, ElasticSet, ElasticSpec, ElasticUnit, ElasticUnitRef, MAX_ELASTIC_UNITS,
};
pub use error::FilterError;
pub use format::{Filter, FilterInfo, FilterKind, Verify};
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
