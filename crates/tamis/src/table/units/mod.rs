//! Elastic filters on disk: small filters of neighbouring keys in several units, each readable by itself.
//!
//! Y. Li et al., "ElasticBF" (ATC 2019): sections 3.2 (a group of independent filters of few bits for each segment of a
//! table) and 3.5 (built beside the table, stored in its metadata). What a unit is, and why any of a group's units
//! together deny no key, stands in [`tamis_filter::ElasticUnit`]. This module says which keys are a segment, where the
//! units lie, and reads any of them. `docs/table-format.md` describes the bytes of the filter part:
//!
//! ```text
//! for unit 0..n: for segment 0..m: the unit | directory: for each segment its first key, keys, length of a unit | trailer
//! ```
//!
//! Units lie one kind behind the other, so that the first ones of all segments of a new table are one stretch of the file.
//!
//! # Segments
//!
//! A segment has as many distinct keys as make a unit's encoding at most `filter_unit_bytes` long, in whole cache lines:
//! the paper wants a unit to be about a block of the device. If less than a quarter of that is left for the last segment,
//! the one before has it, too. A key belongs to the last segment that starts at or before it. The group of segment `i` has
//! the salt `XXH3-64(i as eight bytes, seed = the table's salt)`: units of two segments, or of two tables, share nothing.
//!
//! # Invariants
//!
//! * First keys ascend strictly; units and directory fill the filter part to the byte.
//! * Directory and units carry checksums of their own and are read by stretches, past the checksum of the whole part.
//! * Nothing stored is trusted. A unit that is read is the one asked for, or an error: a unit of another segment would
//!   deny keys.
//!
//! # Threads
//!
//! A builder belongs to one thread and has one of its own beside it, see [`ElasticBuilder`]. A directory is immutable;
//! everything of it may be called from any thread.
//!
//! # Costs
//!
//! A directory takes its keys and 32 bytes for each segment, which is some thousand keys. Finding a segment is a binary
//! search over eight-byte prefixes.

mod build;
mod directory;
mod read;
mod resident;
#[cfg(test)]
mod tests;

use tamis_filter::{BloomScheme, ElasticLayout, theory};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use build::{ElasticBuilder, FilterBuildError};
pub(crate) use directory::UnitDirectory;
#[cfg(test)]
pub(crate) use read::LoadedUnit;
pub(crate) use resident::{Budget, ElasticFilter, FoundUnits};

/// What a table with an elastic filter says of its filter's kind.
pub(crate) const ELASTIC: &str = "elastic";

/// The last bytes of the filter part.
const MAGIC: [u8; 8] = *b"tamis\0el";

/// The version of the format.
const VERSION: u32 = 1;

/// The salt of the group of units of a segment.
fn group_salt(salt: u64, segment: usize) -> u64 {
    xxh3_64_with_seed(&(segment as u64).to_le_bytes(), salt)
}

/// The layout of units with these probes: independent ones cannot be within one cache line.
fn layout_of(scheme: BloomScheme) -> ElasticLayout {
    match scheme {
        BloomScheme::Independent => ElasticLayout::Standard,
        BloomScheme::Rotation | BloomScheme::DoubleHashing => ElasticLayout::Blocked,
    }
}

/// Distinct keys of a full segment: the most whose unit is encoded in `unit_bytes`, which are at least one cache line's.
fn segment_keys(bits_per_key: f64, unit_bytes: u64) -> usize {
    let line_bits = f64::from(theory::LINE_BITS);
    let lines =
        unit_bytes.saturating_sub(tamis_filter::format::TRAILER_LEN as u64) / (theory::LINE_BITS as u64 / 8);
    let lines = lines.max(1) as f64;
    let mut keys = (lines * line_bits / bits_per_key) as usize;
    // Rounding of the division must not make one line more.
    while keys > 1 && (keys as f64 * bits_per_key / line_bits).ceil() > lines {
        keys -= 1;
    }
    keys.max(1)
}
