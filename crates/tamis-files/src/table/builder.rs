//! Writes a table file from entries in version order.
//!
//! The file receives large appends. Until [`finish`](TableBuilder::finish), the buffer holds at
//! most [`APPEND_BYTES`] plus a block. A huge value that is not compressed goes to the file without
//! a copy.

use std::path::PathBuf;

use tamis_base::ids::BlobFileId;
use tamis_base::key::{Kind, SeqNo, compare_versions};
use tamis_env::io::WriteFile;
use tamis_env::memory::PageVec;
use tamis_filter::Digest;

use super::block_builder::BlockBuilder;
use super::footer::{Footer, Part};
use super::frame::{self, Sealer, TRAILER_BYTES};
use super::index::{IndexBuilder, separator};
use super::origin::Origin;
use super::properties::{DIGEST_FUNCTION, Properties};
use crate::error::StorageError;
use crate::settings::Compression;

/// Appends end at multiples of this file offset, except for the last one and those next to a huge
/// value. On file systems with large folios, the Linux page cache allocates a huge page for a write
/// that covers one, and a mapping of it takes a single TLB entry.
const APPEND_BYTES: usize = 2 << 20;

/// Room for an append and, at a table's end, the filter and index after it. Untouched pages take no
/// memory.
const PENDING_BYTES: usize = 2 * APPEND_BYTES;

/// Uncompressed values of at least this length are appended separately.
const HUGE_VALUE_BYTES: usize = 1 << 20;

/// A filter of at least this length begins on a cache line in the file, if that is cheap, so that
/// readers of a mapped table can use it in place.
const ALIGNED_FILTER_BYTES: usize = 4 << 10;

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;

/// What the system and direct transfers read at least. A block that lies in one page more than it
/// fills costs two reads of a device, and the page cache holds half as many.
const PAGE_BYTES: u64 = 4 << 10;

/// A block is padded to the end of a page if that adds at most this share of its length.
const PAGE_PADDING_SHARE: u64 = 16;

/// Options for writing a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// The maximum size of a data block, including its trailer; only a single large entry exceeds
    /// it.
    pub block_bytes: usize,
    /// Entries per group of keys compressed against the group's first; rounded up to a power of
    /// two.
    pub restart_interval: usize,
    /// Whether data blocks get a hash index.
    pub hash_index: bool,
    /// How data blocks and the index are compressed. Filter, tombstones and properties never are.
    pub compression: Compression,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_bytes: 4096,
            restart_interval: 16,
            hash_index: true,
            compression: Compression::None,
        }
    }
}

/// Properties that only the caller knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraProperties {
    /// The number of range tombstones in the tombstone part.
    pub range_tombstones: u64,
    /// Recorded unchanged; see [`Properties::epochs`].
    pub epochs: Vec<u8>,
    /// The kind of the filter; empty without one.
    pub filter_kind: String,
    /// See [`Properties::external`].
    pub external: u64,
    /// See [`Properties::origin`].
    pub origin: Origin,
    /// See [`Properties::blobs`].
    pub blobs: Vec<(BlobFileId, u64)>,
}

/// A complete, synced table. Its name is durable once the directory is synced too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedTable {
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// The properties recorded in the file.
    pub properties: Properties,
}

/// Writes one table. After an error the file is incomplete and the builder must not be used.
#[derive(Debug)]
pub struct TableBuilder {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    options: TableOptions,
    block: BlockBuilder,
    /// Stored blocks not yet written to the file, and the values of the block under construction.
    pending: PageVec<u8>,
    /// Bytes written to the file.
    appended: u64,
    index: IndexBuilder,
    /// The last finished block's bytes in the file and its last key, until the next key determines
    /// the separator.
    unseparated: Option<(u64, Vec<u8>)>,
    properties: Properties,
    last_seq: SeqNo,
    sealer: Sealer,
}

impl TableBuilder {
    /// Starts a table in the empty file `file`. Errors name `path`.
    pub fn new(file: Box<dyn WriteFile>, path: impl Into<PathBuf>, options: TableOptions) -> TableBuilder {
        TableBuilder {
            file,
            path: path.into(),
            block: BlockBuilder::new(options.restart_interval, options.hash_index),
            options,
            pending: PageVec::with_capacity(PENDING_BYTES),
            appended: 0,
            index: IndexBuilder::default(),
            unseparated: None,
            properties: Properties {
                min_seq: SeqNo::MAX,
                digest_function: DIGEST_FUNCTION.into(),
                created_by: concat!("tamis ", env!("CARGO_PKG_VERSION")).into(),
                ..Properties::default()
            },
            last_seq: 0,
            sealer: Sealer::default(),
        }
    }

    /// Adds an entry, which must follow all earlier ones in version order. `digest` is the key's.
    #[inline]
    pub fn add(
        &mut self,
        key: &[u8],
        digest: Digest,
        seq: SeqNo,
        kind: Kind,
        value: &[u8],
    ) -> Result<(), StorageError> {
        debug_assert!(
            self.properties.entries == 0
                || compare_versions(&self.last_key(), self.last_seq, key, seq).is_lt(),
            "entries are added in version order"
        );
        self.count(key, seq, kind, value);
        if !self.block.is_empty()
            && !self.block.fits(key.len(), seq, kind, value.len(), self.options.block_bytes)
        {
            self.finish_block()?;
        }
        if let Some((span, last)) = self.unseparated.take() {
            self.index.add(span, &separator(&last, key));
        }
        let raw = self.options.compression == Compression::None || value.len() > frame::MAX_DECODED_BYTES;
        if self.block.is_empty() && value.len() >= HUGE_VALUE_BYTES && raw {
            return self.write_huge(key, digest, seq, kind, value);
        }
        self.block.add(key, digest, seq, kind, value, &mut self.pending);
        Ok(())
    }

    #[inline]
    fn count(&mut self, key: &[u8], seq: SeqNo, kind: Kind, value: &[u8]) {
        let p = &mut self.properties;
        if p.entries == 0 {
            p.smallest = key.to_vec();
        }
        p.entries += 1;
        p.deletes += u64::from(kind == Kind::Delete);
        p.raw_key_bytes += key.len() as u64;
        p.raw_value_bytes += value.len() as u64;
        p.min_seq = p.min_seq.min(seq);
        p.max_seq = p.max_seq.max(seq);
        self.last_seq = seq;
    }

    /// The last key added; empty before the first.
    pub fn last_key(&self) -> Vec<u8> {
        match &self.unseparated {
            Some((_, last)) => last.clone(),
            None => self.block.last_key(),
        }
    }

    /// The number of key versions added so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The counts and sequence numbers so far; the rest is not yet known.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The approximate length of the file if it were finished now, without filter and tombstones.
    pub fn estimated_bytes(&self) -> u64 {
        let block = if self.block.is_empty() { 0 } else { self.block.estimated_bytes() };
        self.offset() + (block + self.index.estimated_bytes() + 256) as u64
    }

    /// Reports whether the [estimated bytes](Self::estimated_bytes) are at least `bytes`. Cheaper
    /// than computing the estimate.
    #[inline]
    pub fn reaches(&self, bytes: u64) -> bool {
        let others = self.offset() + (self.index.estimated_bytes() + 256) as u64;
        others + self.block.bound() as u64 >= bytes && self.estimated_bytes() >= bytes
    }

    /// The file offset of the block under construction, or of the next one.
    #[inline]
    fn offset(&self) -> u64 {
        self.appended + (self.pending.len() - self.block.inside()) as u64
    }

    /// Finishes the current block, which must not be empty: padded to the end of a page if that is
    /// cheap, so that the next one begins with a page.
    fn finish_block(&mut self) -> Result<(), StorageError> {
        let most = self.block.estimated_bytes() as u64 / PAGE_PADDING_SHARE;
        self.finish_block_as(self.options.compression, (PAGE_BYTES, most))
    }

    /// Finishes the last block, which must not be empty, before a filter of `filter_bytes`. If the
    /// filter is to begin on a cache line, the block is padded and stored uncompressed, because a
    /// compressed block's length cannot be chosen. This is done only if it costs little beside the
    /// filter.
    fn finish_last_block(&mut self, filter_bytes: usize) -> Result<(), StorageError> {
        let bytes = self.block.estimated_bytes();
        let cheap = self.options.compression == Compression::None || filter_bytes / 4 >= bytes;
        if filter_bytes < ALIGNED_FILTER_BYTES || !cheap {
            return self.finish_block_as(self.options.compression, (1, 0));
        }
        self.finish_block_as(Compression::None, (LINE_BYTES, LINE_BYTES))
    }

    /// Finishes the current block, which must not be empty. Unless it is compressed, whose length
    /// cannot be chosen, it ends at a multiple of `unit` if that takes at most `most` bytes of
    /// padding.
    fn finish_block_as(
        &mut self,
        compression: Compression,
        (unit, most): (u64, u64),
    ) -> Result<(), StorageError> {
        let (offset, values_end) = (self.offset(), self.pending.len());
        let start = values_end - self.block.inside();
        self.block.finish(&mut self.pending);
        let method = self.sealer.pack_next(&mut self.pending, start, compression);
        if method == Compression::None {
            let end = offset + (self.pending.len() - start + TRAILER_BYTES) as u64;
            let padding = end.next_multiple_of(unit) - end;
            if padding > 0 && padding <= most {
                self.pad(values_end, padding as usize);
            }
        }
        frame::close(&mut self.pending, start, offset, method);
        let last = self.block.last_key();
        self.block.reset();
        self.unseparated = Some((self.offset() - offset, last));
        self.append_pieces()
    }

    /// Inserts zeros into the pending data.
    fn pad(&mut self, at: usize, padding: usize) {
        let end = self.pending.len();
        self.pending.resize(end + padding, 0);
        self.pending.copy_within(at..end, at + padding);
        self.pending[at..at + padding].fill(0);
    }

    /// Writes a block of one entry, whose value goes to the file without a copy.
    fn write_huge(
        &mut self,
        key: &[u8],
        digest: Digest,
        seq: SeqNo,
        kind: Kind,
        value: &[u8],
    ) -> Result<(), StorageError> {
        self.append_pending()?;
        let offset = self.offset();
        self.block.add_with_value_outside(key, digest, seq, kind, value.len());
        self.append(value)?;
        self.block.finish(&mut self.pending);
        let trailer = frame::trailer_of_pieces(value, &self.pending, offset);
        self.pending.extend_from_slice(&trailer);
        self.unseparated = Some((self.offset() - offset, key.to_vec()));
        self.block.reset();
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.file.append(bytes).map_err(|e| StorageError::io("write", &self.path, e))?;
        self.appended += bytes.len() as u64;
        Ok(())
    }

    /// Appends the pending data up to the last multiple of [`APPEND_BYTES`] in the file.
    fn append_pieces(&mut self) -> Result<(), StorageError> {
        let boundary = self.offset() & !(APPEND_BYTES as u64 - 1);
        if boundary <= self.appended {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let whole = (boundary - self.appended) as usize;
        self.append(&pending[..whole])?;
        pending.remove_front(whole);
        self.pending = pending;
        Ok(())
    }

    fn append_pending(&mut self) -> Result<(), StorageError> {
        let mut pending = std::mem::take(&mut self.pending);
        let done = if pending.is_empty() { Ok(()) } else { self.append(&pending) };
        pending.clear();
        if pending.capacity() > 2 * PENDING_BYTES {
            pending = PageVec::with_capacity(PENDING_BYTES);
        }
        self.pending = pending;
        done
    }

    /// Adds what `put` appends as a part of the file.
    fn add_part(&mut self, compression: Compression, put: impl FnOnce(&mut PageVec<u8>)) -> Part {
        let (offset, start) = (self.offset(), self.pending.len());
        put(&mut self.pending);
        self.sealer.seal(&mut self.pending, start, offset, compression);
        Part { offset, span: self.offset() - offset }
    }

    /// Writes the rest of the table, with the opaque bytes of a filter and of range tombstones if
    /// given, and syncs the file (not its directory).
    pub fn finish(
        mut self,
        filter: Option<Vec<u8>>,
        tombstones: Option<Vec<u8>>,
        extra: ExtraProperties,
    ) -> Result<FinishedTable, StorageError> {
        if !self.block.is_empty() {
            self.finish_last_block(filter.as_ref().map_or(0, Vec::len))?;
        }
        if let Some((span, last)) = self.unseparated.take() {
            self.index.add(span, &last);
            self.properties.largest = last;
        } else {
            self.properties.min_seq = 0;
        }
        self.properties.data_blocks = self.index.len();
        self.properties.range_tombstones = extra.range_tombstones;
        self.properties.epochs = extra.epochs;
        self.properties.filter_kind = extra.filter_kind;
        self.properties.external = extra.external;
        self.properties.origin = extra.origin;
        self.properties.blobs = extra.blobs;

        let blobs = !self.properties.blobs.is_empty();
        let mut footer = Footer { data_span: self.offset(), blobs, ..Footer::default() };
        for (part, content) in [(&mut footer.filter, filter), (&mut footer.tombstones, tombstones)] {
            if let Some(content) = content {
                *part = self.add_part(Compression::None, |out| out.extend_from_slice(&content));
            }
        }
        let index = std::mem::take(&mut self.index);
        footer.index = self.add_part(self.options.compression, |out| index.finish(out));
        let mut content = Vec::new();
        self.properties.encode(&mut content);
        footer.properties = self.add_part(Compression::None, |out| out.extend_from_slice(&content));
        footer.encode(self.offset(), &mut self.pending);
        self.append_pending()?;
        self.file.truncate_to_written().map_err(|e| StorageError::io("truncate", &self.path, e))?;
        self.file.sync().map_err(|e| StorageError::io("sync", &self.path, e))?;
        Ok(FinishedTable { file_bytes: self.appended, properties: self.properties })
    }
}
