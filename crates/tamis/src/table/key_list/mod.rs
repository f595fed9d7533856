//! The list of a table's keys, which takes the place of its filter where the keyspace has a global one: from it the
//! global filter is made again without reading the data.
//!
//! All distinct user keys, deleted ones among them, ascending, in *chunks* of some thousands. Within a chunk a key is
//! stored as what it shares with the one before and the rest (front coding): six bytes for an eight-byte integer out of
//! some hundred million. A directory has the first key of each chunk, so that a range of keys decodes only the chunks
//! that it meets. `docs/table-format.md` describes the bytes:
//!
//! ```text
//! chunks | directory: the last key, then for each chunk its length, its number of keys, its first key | trailer
//! ```
//!
//! # Invariants
//!
//! * Keys ascend strictly, within a chunk and from chunk to chunk. The reader checks it on every step, so that not even
//!   a hostile list gives keys out of order or twice.
//! * Nothing stored is trusted: every length is checked against the bytes that are there, and a key grows only by bytes
//!   that were read. The reader's memory is one key.
//!
//! Builder and cursor belong to one thread at a time; the reader is a view of bytes that do not change.

mod build;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use build::KeyListBuilder;
pub(crate) use read::{KeyListCursor, KeyListReader};

/// What a table with a key list says of the kind of its filter.
pub(crate) const KEY_LIST: &str = "keys";

/// The last bytes of a key list.
const MAGIC: [u8; 8] = *b"tamis\0kl";

/// The version of the format.
const VERSION: u32 = 1;

/// Number of keys, length of the directory, version, zero, checksum, magic.
const TRAILER_BYTES: usize = 40;

/// A length from here on does not fit its half of a key's first byte; what is above follows as a varint.
const LONG: usize = 15;
