//! The list of a table's keys, which replaces its filter in a keyspace with a global filter, if the
//! table brings keys that the global filter lacks: they are added to it without reading the data. A
//! merge brings none, so its tables have no list.
//!
//! It holds all distinct user keys, including deleted ones, in ascending order, in *chunks* of some
//! thousands. Within a chunk a key is stored as the length shared with the previous one plus the
//! rest (front coding): six bytes for an eight-byte integer out of some hundred million. A
//! directory has the first key of each chunk, so that a key range decodes only the chunks that it
//! meets. `docs/table-format.md` describes the bytes:
//!
//! ```text
//! chunks | directory: the last key, then for each chunk its length, its number of keys, its first key | trailer
//! ```
//!
//! # Invariants
//!
//! * Keys ascend strictly, within a chunk and from chunk to chunk. The reader checks it on every
//!   step, so that not even a hostile list yields keys out of order or twice.
//! * Stored values are not trusted: every length is checked against the available bytes, and a key
//!   grows only by bytes that were read. The reader's memory is one key.
//!
//! Builder and cursor belong to one thread at a time; the reader is a view of bytes that do not
//! change.

mod build;
mod read;
#[cfg(test)]
mod tests;

pub use build::KeyListBuilder;
pub use read::{KeyListCursor, KeyListReader};

/// The filter kind recorded by a table with a key list.
pub const KEY_LIST: &str = "keys";

/// The filter kind that is recorded by a table with neither a filter nor a key list, as a global
/// filter has its keys.
pub const GLOBAL: &str = "global";

/// The last bytes of a key list.
const MAGIC: [u8; 8] = *b"tamis\0kl";

/// The version of the format.
const VERSION: u32 = 1;

/// Number of keys, length of the directory, version, zero, checksum, magic.
const TRAILER_BYTES: usize = 40;

/// The first length that does not fit its half of a key's first byte; the excess follows as a
/// varint.
const LONG: usize = 15;
