//! The record log: the file format under both the write-ahead log and the manifest.
//!
//! A log is a 32-byte header and a sequence of records, each a checksummed payload that is read
//! back whole or not at all. `docs/log-format.md` specifies the bytes; [`format`](mod@format)
//! implements them.
//!
//! Invariants:
//!
//! * A checksum is seeded with the log's id and the record's offset, so stale bytes of a recycled
//!   file and records moved to another place never pass for records of this log.
//! * Every record states the offset up to which the log was known to be durable when it was
//!   written. This distinguishes damage (a bad record that had been synced) from a torn tail (a bad
//!   record that had not).
//! * A log that was finished properly ends with a closing record.
//! * A torn tail is cut, and damage is an error; the replay of logs and the manifest rely on this
//!   distinction.
//!
//! Threads: a [`LogWriter`] and a [`LogReader`] have one owner at a time and may be sent between
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
pub(crate) use reader::Record;
pub use reader::{End, LogReader, ReadOptions, is_header_of};
pub use writer::LogWriter;

/// Why the payload of an intact record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub &'static str);
