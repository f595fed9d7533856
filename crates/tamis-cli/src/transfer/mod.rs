//! The formats of `tamis export` and `tamis import`: everything in a database, or parts of it, in a
//! form that reads back exactly. `docs/formats/exports.md` specifies them.
//!
//! A writer gets items in order: a keyspace, its entries, the next keyspace. A reader returns the
//! same items, and never takes a part for the whole: both formats end with a record that counts
//! what came before. What is read is hostile: a reader allocates no more than a small multiple of
//! the bytes that are there, and never panics.
//!
//! Used by one thread at a time.

mod binary;
mod jsonl;

use std::io::{self, BufRead, Write};

use tamis::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransferFormat {
    /// One JSON object per line; for other programs
    Jsonl,
    /// Frames with checksums; smaller and faster
    Binary,
}

/// A part of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The entries that follow are of this keyspace.
    Keyspace(String),
    /// A key and its value.
    Entry(Vec<u8>, Vec<u8>),
}

/// Why an export cannot be read.
#[derive(Debug)]
pub(crate) enum TransferError {
    /// It is not what an export writes, or not all of it. Where, and what is wrong.
    Bad { place: String, what: String },
    /// A failed read.
    Io(io::Error),
}

impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        TransferError::Io(error)
    }
}

/// Writes an export.
pub(crate) enum Writer<W: Write> {
    Binary(binary::BinaryWriter<W>),
    Jsonl(jsonl::JsonlWriter<W>),
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W, format: TransferFormat) -> io::Result<Writer<W>> {
        Ok(match format {
            TransferFormat::Binary => Writer::Binary(binary::BinaryWriter::new(out)?),
            TransferFormat::Jsonl => Writer::Jsonl(jsonl::JsonlWriter::new(out)?),
        })
    }

    /// Begins a keyspace. Its name must be new.
    pub(crate) fn keyspace(&mut self, name: &str) -> io::Result<()> {
        match self {
            Writer::Binary(writer) => writer.keyspace(name),
            Writer::Jsonl(writer) => writer.keyspace(name),
        }
    }

    /// Writes an entry of the keyspace that was begun last.
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match self {
            Writer::Binary(writer) => writer.entry(key, value),
            Writer::Jsonl(writer) => writer.entry(key, value),
        }
    }

    /// Ends the export and returns the output.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Writer::Binary(writer) => writer.finish(),
            Writer::Jsonl(writer) => writer.finish(),
        }
    }
}

/// Reads an export, whatever its format. Ends after the first error.
pub(crate) struct Reader<R: BufRead> {
    source: Source<R>,
    found: Counts,
    names: Vec<String>,
    ended: bool,
}

enum Source<R: BufRead> {
    Binary(binary::BinaryReader<R>),
    Jsonl(jsonl::JsonlReader<R>),
}

/// What a format's reader returns.
enum Part {
    Item(Item),
    /// The counts at the end.
    End(Counts),
}

/// The number of keyspaces and of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) keyspaces: u64,
    pub(crate) entries: u64,
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn new(mut input: R) -> Result<Reader<R>, TransferError> {
        // Neither format begins like the other.
        let source = match input.fill_buf()?.first() {
            Some(b'{') => Source::Jsonl(jsonl::JsonlReader::new(input)?),
            _ => Source::Binary(binary::BinaryReader::new(input)?),
        };
        Ok(Reader { source, found: Counts::default(), names: Vec::new(), ended: false })
    }

    fn part(&mut self) -> Result<Part, TransferError> {
        match &mut self.source {
            Source::Binary(reader) => reader.part(),
            Source::Jsonl(reader) => reader.part(),
        }
    }

    fn bad(&self, what: impl Into<String>) -> TransferError {
        let place = match &self.source {
            Source::Binary(reader) => reader.place(),
            Source::Jsonl(reader) => reader.place(),
        };
        TransferError::Bad { place, what: what.into() }
    }

    /// Returns the next item, checked, or `None` after the last one of a complete export.
    fn step(&mut self) -> Result<Option<Item>, TransferError> {
        match self.part()? {
            Part::Item(Item::Keyspace(name)) => {
                if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
                    return Err(
                        self.bad("a keyspace has a name of 1 to 255 bytes without control characters")
                    );
                }
                if self.names.contains(&name) {
                    return Err(self.bad(format!("the keyspace `{name}` comes twice")));
                }
                self.names.push(name.clone());
                self.found.keyspaces += 1;
                Ok(Some(Item::Keyspace(name)))
            }
            Part::Item(Item::Entry(key, value)) => {
                if self.names.is_empty() {
                    return Err(self.bad("an entry comes before any keyspace"));
                }
                if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
                    return Err(self.bad("a key or a value is too long"));
                }
                self.found.entries += 1;
                Ok(Some(Item::Entry(key, value)))
            }
            Part::End(counts) if counts == self.found => Ok(None),
            Part::End(Counts { keyspaces, entries }) => {
                let found = self.found;
                Err(self.bad(format!(
                    "there were {keyspaces} keyspaces and {entries} entries, and {} and {} are left",
                    found.keyspaces, found.entries
                )))
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Item, TransferError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.step().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests;
