//! Hooks through which reads report what they touch. The default methods do nothing, so with `()`
//! they compile away.

use super::block::HashAnswer;

/// The source of a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSource {
    /// Used in place in the mapped file; no cache is involved.
    Mapped,
    /// A cache hit.
    Cache,
    /// A cache miss: decompressed from the mapped file, without a system call.
    Decompressed,
    /// A cache miss: read from the file.
    File {
        /// Bytes read from the file, in one call.
        read_bytes: u64,
    },
    /// Part of a larger piece that was read earlier; the cache was not consulted.
    ReadAhead,
}

/// One use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTouch {
    /// The block's offset in the file.
    pub offset: u64,
    /// Its bytes as stored, including the trailer.
    pub stored_bytes: u64,
    /// Where its bytes came from.
    pub source: BlockSource,
}

/// Receives the events of a read.
pub trait ReadTrace {
    /// The index of a table was searched.
    #[inline]
    fn index_searched(&mut self) {}

    /// A data block was touched.
    #[inline]
    fn block_touched(&mut self, touch: BlockTouch) {
        let _ = touch;
    }

    /// A point lookup searched the block touched last; its hash index gave this answer.
    #[inline]
    fn hash_index_answered(&mut self, answer: HashAnswer) {
        let _ = answer;
    }

    /// A metadata block (an index) was fetched because it is not pinned.
    #[inline]
    fn metadata_touched(&mut self, touch: BlockTouch) {
        let _ = touch;
    }

    /// A record of a blob file was touched.
    #[inline]
    fn blob_touched(&mut self, touch: BlockTouch) {
        let _ = touch;
    }

    /// The checksum of a stored block was computed.
    #[inline]
    fn checksum_verified(&mut self) {}
}

impl ReadTrace for () {}

impl<T: ReadTrace> ReadTrace for &mut T {
    #[inline]
    fn index_searched(&mut self) {
        (**self).index_searched();
    }
    #[inline]
    fn block_touched(&mut self, touch: BlockTouch) {
        (**self).block_touched(touch);
    }
    #[inline]
    fn hash_index_answered(&mut self, answer: HashAnswer) {
        (**self).hash_index_answered(answer);
    }
    #[inline]
    fn metadata_touched(&mut self, touch: BlockTouch) {
        (**self).metadata_touched(touch);
    }
    #[inline]
    fn blob_touched(&mut self, touch: BlockTouch) {
        (**self).blob_touched(touch);
    }
    #[inline]
    fn checksum_verified(&mut self) {
        (**self).checksum_verified();
    }
}

/// Totals of the reported events; each cursor keeps its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TouchCounts {
    /// Data blocks touched, from any source.
    pub blocks: u64,
    /// Bytes of those blocks as stored.
    pub stored_bytes: u64,
    /// Records of blob files touched, from any source.
    pub blobs: u64,
    /// Bytes of those records as stored.
    pub blob_bytes: u64,
    /// Blocks and metadata found in the cache.
    pub cache_hits: u64,
    /// Blocks and metadata not found in the cache.
    pub cache_misses: u64,
    /// Reads from the file.
    pub io_reads: u64,
    /// Bytes of those reads.
    pub io_bytes: u64,
    /// Reads among them that were issued together with others.
    pub batched_reads: u64,
    /// Checksums computed.
    pub checksums: u64,
}

impl TouchCounts {
    /// Adds other counts to these.
    pub fn add(&mut self, other: &TouchCounts) {
        self.blocks += other.blocks;
        self.stored_bytes += other.stored_bytes;
        self.blobs += other.blobs;
        self.blob_bytes += other.blob_bytes;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.io_reads += other.io_reads;
        self.io_bytes += other.io_bytes;
        self.batched_reads += other.batched_reads;
        self.checksums += other.checksums;
    }

    fn count_source(&mut self, source: BlockSource) {
        match source {
            BlockSource::Mapped | BlockSource::ReadAhead => {}
            BlockSource::Cache => self.cache_hits += 1,
            BlockSource::Decompressed => self.cache_misses += 1,
            BlockSource::File { read_bytes } => {
                self.cache_misses += 1;
                self.io_reads += 1;
                self.io_bytes += read_bytes;
            }
        }
    }
}

impl ReadTrace for TouchCounts {
    fn block_touched(&mut self, touch: BlockTouch) {
        self.blocks += 1;
        self.stored_bytes += touch.stored_bytes;
        self.count_source(touch.source);
    }

    fn metadata_touched(&mut self, touch: BlockTouch) {
        self.count_source(touch.source);
    }

    fn blob_touched(&mut self, touch: BlockTouch) {
        self.blobs += 1;
        self.blob_bytes += touch.stored_bytes;
        self.count_source(touch.source);
    }

    fn checksum_verified(&mut self) {
        self.checksums += 1;
    }
}
