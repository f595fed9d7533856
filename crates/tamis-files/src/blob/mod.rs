//! Blob files: large values, stored apart from the tables that refer to them.
//!
//! A flush or compaction writes a large value once, as a record of a blob file, and stores a
//! [`Reference`] in the table. Later compactions copy only the reference, so the value is not
//! written again until most of its file is garbage. `docs/formats/blobs.md` describes the bytes. Only
//! this module knows them, except that a record is framed like a table block.
//!
//! ```text
//! record 0 | record 1 | … | footer
//! ```
//!
//! A log can be a blob file, too. Memtables refer to the values where the log has them
//! ([`BlobFile::of_log`]). A flush gives the log a second name, and its tables get the references.
//! So large values are written once.
//!
//! # Invariants
//!
//! * A blob file is written once, then immutable. It does not record its garbage: that follows from
//!   the tables, each of which states how many bytes of which blob files it refers to.
//! * Nothing read is trusted. A record is checked against its file's length before memory is
//!   allocated. A value is returned only if its record's checksum matches both the bytes and the
//!   reference. A misplaced record, or one from another file with the same number, is an error just
//!   as a flipped bit is. One exception: in a mapped log whose values are verified once, a
//!   reference with a wrong checksum may get the bytes that it names, if they lie in a value that
//!   was verified.
//!
//! Threads: a writer belongs to one thread; any thread may read an open file.

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
