//! Blob files: large values, apart from the tables that refer to them.
//!
//! A flush or compaction writes a large value once, as a record of a blob file, and the table gets
//! a [`Reference`] in its place. Later compactions carry the reference along, so the value is not
//! written again until most of its file is garbage. `docs/blob-format.md` describes the bytes;
//! nothing outside this module knows them, except that a record is framed as a block of a table is.
//!
//! ```text
//! record 0 | record 1 | … | footer
//! ```
//!
//! # Invariants
//!
//! * A blob file is written once, then immutable. It has no list of what is garbage in it: that
//!   follows from the tables of the trees, each of which says how many bytes of which files it
//!   refers to.
//! * Nothing read is trusted: a record is checked against the lengths of its file before memory is
//!   allocated, and a value is returned only if the checksum of its record is right and is the one
//!   that the reference names. So a record at another place, or one of another file of the same
//!   number, is an error like a flipped bit.
//!
//! A writer belongs to one thread. An open file is immutable, and any thread may read it.

mod format;
mod reader;
mod reference;
#[cfg(test)]
mod tests;
mod writer;

pub use format::is_marked;
pub use reader::BlobFile;
pub use reference::Reference;
pub use writer::BlobWriter;
