//! A list of a table's keys. It replaces the table's filter in a keyspace with a global filter, if
//! the table brings keys that the global filter lacks. They can then be added without reading the
//! data. A merge brings no new keys, so its tables have no list.
//!
//! The list holds all distinct user keys, including deleted ones, in ascending order, in *chunks*
//! of a few thousand. Within a chunk a key is stored as the length shared with the previous key
//! plus the rest (front coding): six bytes for an eight-byte integer out of some hundred million. A
//! directory holds the first key of each chunk, so reading a key range decodes only the chunks that
//! it meets. `docs/formats/tables.md` describes the bytes:
//!
//! ```text
//! chunks | directory | trailer
//! directory: the last key, then for each chunk its length, its number of keys, its first key
//! ```
//!
//! # Invariants
//!
//! * Keys ascend strictly, within a chunk and from chunk to chunk. The reader checks this at every
//!   step, so not even a hostile list yields keys twice or out of order.
//! * Stored values are not trusted: every length is checked against the remaining bytes, and a key
//!   grows only by bytes that were read. The reader's memory is one key.
//!
//! Threads: a builder or cursor belongs to one thread at a time. The reader is a view of immutable
//! bytes.

mod build;
mod read;
#[cfg(test)]
mod tests;

pub use build::KeyListBuilder;
pub use read::{KeyListCursor, KeyListReader};

/// The filter kind recorded in a table with a key list.
pub const KEY_LIST: &str = "keys";

/// The filter kind recorded in a table with neither a filter nor a key list, because a global
/// filter has its keys.
pub const GLOBAL: &str = "global";

/// The last bytes of a key list.
const MAGIC: [u8; 8] = *b"tamis\0kl";

/// The version of the format.
const VERSION: u32 = 1;

/// Number of keys, length of the directory, version, zero, checksum, magic.
const TRAILER_BYTES: usize = 40;

/// The smallest length that does not fit its half of a key's first byte; the excess follows as a
/// varint.
const LONG: usize = 15;
