//! The record log: the file format of both the write-ahead log and the manifest.
//!
//! A log is a 32-byte header and a sequence of records. Each record is a checksummed payload that
//! reads back whole or not at all. `docs/formats/logs.md` specifies the bytes; [`format`](mod@format)
//! implements them.
//!
//! Invariants:
//!
//! * A checksum is seeded with the log's id and the record's offset. Stale bytes of a recycled file
//!   and misplaced records therefore never pass for records of this log.
//! * Every record states how far the log was known to be durable when the record was written. This
//!   distinguishes damage (a bad record that had been synced) from a torn tail (a bad record that
//!   had not).
//! * A properly finished log ends with a closing record.
//! * A torn tail is cut off; damage is an error. Log replay and the manifest rely on this
//!   distinction.
//!
//! Threads: a [`LogWriter`] or [`LogReader`] has one owner at a time and may be sent between
//! threads.

mod format;
pub mod ops;
mod reader;
mod window;
mod writer;

#[cfg(test)]
pub(crate) mod double;
#[cfg(test)]
mod tests;

pub(crate) use format::HEADER_BYTES;
pub use format::{LogHeader, LogKind, begins_mark, is_marked};
pub use reader::{End, LogReader, ReadOptions, is_header_of};
pub(crate) use reader::{Record, identify_complete};
pub use writer::LogWriter;

/// Why an intact record's payload could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub &'static str);
