//! On-disk elastic filters: small filters over neighbouring keys, in several units that can be read
//! separately.
//!
//! Y. Li et al., "ElasticBF" (ATC 2019): sections 3.2 (a group of independent filters of few bits
//! for each segment of a table) and 3.5 (built along with the table, stored in its metadata).
//! [`tamis_filter::ElasticUnit`] documents what a unit is, and why no subset of a group's units
//! rejects a key of the segment. This module defines which keys form a segment and where its units
//! are, and reads any of them. `docs/formats/tables.md` describes the bytes of the filter part:
//!
//! ```text
//! for unit 0..n: for segment 0..m: the unit | directory | trailer
//! directory: for each segment its first key, keys, length of a unit
//! ```
//!
//! Units with the same number are adjacent, so the first units of all segments of a new table are
//! one byte range of the file.
//!
//! # Segments
//!
//! A segment has as many distinct keys as fit a unit whose encoding takes at most
//! `filter_unit_bytes`, in whole cache lines: the paper wants a unit to be about one device block.
//! If less than a quarter of that is left for the last segment, the previous one absorbs it. A key
//! belongs to the last segment that starts at or before it. Each segment's group has a salt of its
//! own, derived from the table's salt and the segment's number, so the units of two segments or two
//! tables are independent.
//!
//! # Invariants
//!
//! * First keys ascend strictly; units and directory fill the filter part exactly.
//! * The directory and each unit carry their own checksums and are read separately, bypassing the
//!   checksum of the whole part.
//! * Stored values are not trusted. Reading a unit yields the one requested or an error, as a unit
//!   of another segment would reject keys that exist.
//!
//! # Threads
//!
//! A builder belongs to one thread and starts a helper thread; see [`ElasticBuilder`]. A directory
//! is immutable, and any thread may call its methods.
//!
//! # Costs
//!
//! A segment has some two thousand keys. A directory takes four or eight bytes per segment if these
//! suffice to tell segments apart, and otherwise the border keys and 13 bytes each (see `borders`).
//! Finding a segment takes two cache lines for up to 32 segments, five for five hundred.

mod borders;
mod build;
mod directory;
#[cfg(all(test, loom))]
mod model;
mod read;
mod reclaim;
mod resident;
#[cfg(test)]
mod tests;
mod word;

use tamis_filter::{BloomScheme, ElasticLayout, theory};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use build::{ElasticBuilder, FilterBuildError};
pub use directory::UnitDirectory;
#[cfg(test)]
pub(crate) use read::LoadedUnit;
use reclaim::Pin;
pub use reclaim::{Retired, pin, retire};
pub use resident::{ElasticFilter, FoundUnits};

/// The filter kind recorded in a table with an elastic filter.
pub const ELASTIC: &str = "elastic";

/// The last bytes of the filter part.
const MAGIC: [u8; 8] = *b"tamis\0el";

/// The version of the format. In version 1 units were [`ElasticLayout::Blocked`].
const VERSION: u32 = 2;

/// Returns the salt of a segment's group of units.
#[inline]
fn group_salt(layout: ElasticLayout, salt: u64, segment: usize) -> u64 {
    match layout {
        // Filters mix their salts, so salts at any fixed distance will do.
        ElasticLayout::Interleaved => salt.wrapping_add((segment as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        ElasticLayout::Standard | ElasticLayout::Blocked => {
            xxh3_64_with_seed(&(segment as u64).to_le_bytes(), salt)
        }
    }
}

/// Returns the layout of units with this hashing scheme in this format version. Independent probes
/// cannot lie within one cache line.
fn layout_of(scheme: BloomScheme, version: u32) -> ElasticLayout {
    match scheme {
        BloomScheme::Independent => ElasticLayout::Standard,
        BloomScheme::Rotation | BloomScheme::DoubleHashing if version == 1 => ElasticLayout::Blocked,
        BloomScheme::Rotation | BloomScheme::DoubleHashing => ElasticLayout::Interleaved,
    }
}

/// The payload of a unit is a multiple of this many bytes.
fn unit_granule(layout: ElasticLayout) -> usize {
    match layout {
        ElasticLayout::Standard => 8,
        ElasticLayout::Blocked => theory::LINE_BITS as usize / 8,
        ElasticLayout::Interleaved => theory::INTERLEAVED_BITS as usize / 8,
    }
}

/// Returns the number of distinct keys of a full segment: the most whose unit is encoded in at most
/// `unit_bytes`, but at least one granule's worth, or a cache line's worth where a granule is a
/// word.
fn segment_keys(layout: ElasticLayout, bits_per_key: f64, unit_bytes: u64) -> usize {
    let granule = unit_granule(layout).max(unit_granule(ElasticLayout::Interleaved));
    let bits = granule as f64 * 8.0;
    let granules = unit_bytes.saturating_sub(tamis_filter::format::TRAILER_LEN as u64) / granule as u64;
    let granules = granules.max(1) as f64;
    let mut keys = (granules * bits / bits_per_key) as usize;
    // Rounding in the division must not add a granule.
    while keys > 1 && (keys as f64 * bits_per_key / bits).ceil() > granules {
        keys -= 1;
    }
    keys.max(1)
}
