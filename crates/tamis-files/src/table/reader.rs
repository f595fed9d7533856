//! Opens a table file and reads its metadata and blocks.
//!
//! # Ways of reading
//!
//! * *Mapped, uncompressed*: blocks are used in place. A lookup makes no copy, takes no lock and
//!   writes no shared memory, except that returning a found value increments one of several
//!   reference counts.
//! * *Mapped, compressed* and *unmapped*: blocks go through the [`BlockCache`], if there is one.
//!
//! # Invariants
//!
//! The file does not change while the table is open. Its contents are not trusted: lengths are
//! checked against the file's length, blocks against their checksums, and block contents on use.
//!
//! Any thread may call any method at any time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tamis_base::key::SeqNo;
use tamis_env::io::batch::{BatchReader, Stretch};
use tamis_env::io::{Access, FileSystem, Mapping, ReadFile, Touch};

use super::block::Span;
use super::data::{BlockData, BlockRef, HeapBlock, PinnedValue, Pins};
use super::files::{OpenFiles, TableFile};
use super::flaw::Flaw;
use super::footer::{FOOTER_BYTES, Footer, NEWER, Part};
use super::frame::{self, Damage, TRAILER_BYTES};
use super::index::{BlockAt, Index};
use super::prefetch::prefetch;
use super::properties::Properties;
use super::trace::{BlockSource, BlockTouch, ReadTrace};
use crate::error::{StorageError, newer};
use crate::settings::{ChecksumMode, Compression};
use crate::table::cache::{BlockCache, CacheEntry, CacheKey};

/// Options for reading a table.
#[derive(Clone, Debug, Default)]
pub struct ReaderConfig {
    /// Whether to map the file, if the file system supports it.
    pub map: bool,
    /// When checksums are verified.
    pub verify: ChecksumMode,
    /// The cache for uncompressed blocks and for an unpinned index.
    pub cache: Option<Arc<BlockCache>>,
    /// Whether the index stays in memory while the table is open.
    pub pin_metadata: bool,
    /// Overlaps reads of unmapped files. `None`: reads do not overlap.
    pub reads: Option<Arc<BatchReader>>,
    /// Limits the number of open unmapped files. `None`: each table keeps its own file open.
    pub files: Option<Arc<OpenFiles>>,
}

impl ReaderConfig {
    /// Returns options for inspecting a file without side effects: reads by system call, every
    /// block verified, nothing cached.
    #[inline]
    pub fn for_a_look() -> ReaderConfig {
        ReaderConfig { verify: ChecksumMode::Always, pin_metadata: true, ..ReaderConfig::default() }
    }

    /// Opens a file, and maps it if that is wanted and possible.
    pub(crate) fn open(&self, fs: &dyn FileSystem, path: &Path) -> Result<OpenedFile, StorageError> {
        let failed = |e| StorageError::io("open", path, e);
        let file = match &self.files {
            Some(files) => files.open(path, Access::Random),
            None => fs.open(path, Access::Random),
        };
        let file = file.map_err(failed)?;
        let mapping = if self.map { file.map().map_err(failed)? } else { None };
        let len = match &mapping {
            Some(mapping) => mapping.len() as u64,
            None => file.len().map_err(failed)?,
        };
        Ok(OpenedFile { file, mapping, len })
    }

    /// Returns how an opened file is accessed from now on, and its mapping.
    pub(crate) fn keep(&self, path: &Path, opened: OpenedFile) -> (TableFile, Option<MappedFile>) {
        let file = match &self.files {
            _ if opened.mapping.is_some() => TableFile::Mapped,
            Some(files) => files.share(path, opened.file, opened.len),
            None => TableFile::Own(opened.file),
        };
        (file, opened.mapping.map(MappedFile::from))
    }
}

/// A file that was just opened, before deciding whether to keep its handle.
pub(crate) struct OpenedFile {
    pub(crate) file: Arc<dyn ReadFile>,
    pub(crate) mapping: Option<Mapping>,
    pub(crate) len: u64,
}

/// A mapping and the handles that keep it alive.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) mapping: Mapping,
    pub(crate) pins: Pins,
}

impl From<Mapping> for MappedFile {
    fn from(mapping: Mapping) -> MappedFile {
        MappedFile { pins: Pins::new(&mapping), mapping }
    }
}

/// Fills `buf` with a mapping's bytes from `offset` on.
pub(crate) fn copy_from(mapping: &Mapping, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
    let start = usize::try_from(offset).map_err(std::io::Error::other)?;
    let part = start.checked_add(buf.len()).filter(|end| *end <= mapping.len()).map(|end| start..end);
    let part = part.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    mapping.will_need(part.clone(), Touch::Next);
    buf.copy_from_slice(&mapping[part]);
    Ok(())
}

/// An open table.
#[derive(Debug)]
pub struct Table {
    mapped: Option<MappedFile>,
    index: Option<Arc<Index>>,
    verify: ChecksumMode,
    /// One bit per data block, set once its bytes matched their checksum. Empty if not mapped.
    verified: Box<[AtomicU64]>,
    id: u64,
    /// The sequence number of all entries of an ingested table, which are stored with number 0. 0
    /// in every other table.
    global_seq: SeqNo,
    cache: Option<Arc<BlockCache>>,
    /// Overlaps reads; `None` if reads do not overlap or the file is mapped.
    reads: Option<Arc<BatchReader>>,
    file: TableFile,
    path: PathBuf,
    file_bytes: u64,
    footer: Footer,
    properties: Properties,
    flaw: Flaw,
    /// Why the table could not be opened; reads return this error.
    lost: Option<Box<StorageError>>,
}

/// An index for the duration of one operation: the table's own, or a shared one.
#[derive(Debug)]
pub enum IndexRef<'t> {
    /// Pinned by the table.
    Pinned(&'t Index),
    /// Read, or taken from the cache, for this operation.
    Shared(Arc<Index>),
}

impl std::ops::Deref for IndexRef<'_> {
    type Target = Index;

    #[inline]
    fn deref(&self) -> &Index {
        match self {
            IndexRef::Pinned(index) => index,
            IndexRef::Shared(index) => index,
        }
    }
}

impl Table {
    /// Opens the table file `path`. `id` identifies it in the cache and must never name another
    /// file.
    ///
    /// Reads the footer, properties and index (three reads, or none if mapped). Errors: a failed
    /// system call, or damage in any of the three.
    pub fn open(
        fs: &dyn FileSystem,
        path: &Path,
        id: u64,
        config: ReaderConfig,
    ) -> Result<Arc<Table>, StorageError> {
        let opened = config.open(fs, path)?;
        let file_bytes = opened.len;
        let (file, mapped) = config.keep(path, opened);
        let mut table = Table {
            reads: if mapped.is_some() { None } else { config.reads },
            mapped,
            index: None,
            verify: config.verify,
            verified: Box::default(),
            id,
            global_seq: 0,
            cache: config.cache,
            file,
            path: path.to_owned(),
            file_bytes,
            footer: Footer::default(),
            properties: Properties::default(),
            flaw: Flaw::default(),
            lost: None,
        };
        table.read_metadata(config.pin_metadata)?;
        Ok(Arc::new(table))
    }

    /// Creates a stand-in for a table that could not be opened because of `why`. It has no index,
    /// so nothing can be read from it.
    pub fn lost(path: &Path, id: u64, why: StorageError) -> Arc<Table> {
        let flaw = Flaw::default();
        flaw.note(&why);
        Arc::new(Table {
            mapped: None,
            index: None,
            verify: ChecksumMode::default(),
            verified: Box::default(),
            id,
            global_seq: 0,
            cache: None,
            reads: None,
            file: TableFile::Lost,
            path: path.to_owned(),
            file_bytes: 0,
            footer: Footer::default(),
            properties: Properties::default(),
            flaw,
            lost: Some(Box::new(why)),
        })
    }

    /// Returns why the table could not be opened, if it is [lost](Self::lost).
    #[inline]
    pub fn why_lost(&self) -> Option<&StorageError> {
        self.lost.as_deref()
    }

    /// The damage found in the table since it was opened.
    #[inline]
    pub fn flaw(&self) -> &Flaw {
        &self.flaw
    }

    fn read_metadata(&mut self, pin_index: bool) -> Result<(), StorageError> {
        let Some(footer_at) = self.file_bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Err(StorageError::corrupt(&self.path, None, "a table file shorter than its footer"));
        };
        // As with any part: a fault would read as much around the footer as the device is set to read
        // ahead, which can be megabytes for each table.
        self.announce(footer_at, FOOTER_BYTES as u64, Touch::Next);
        let footer = self.stored(footer_at, FOOTER_BYTES as u64)?;
        let footer = footer.first_chunk().ok_or(Damage("a footer that is too short"));
        self.footer =
            footer.and_then(|bytes| Footer::decode(bytes, self.file_bytes)).map_err(
                |damage| match damage {
                    NEWER => newer(&self.path, damage.0),
                    damage => self.damaged(footer_at, damage),
                },
            )?;
        let at = self.footer.properties;
        let properties = Properties::decode(&self.read_part(at)?);
        self.properties = properties.map_err(|damage| self.damaged(at.offset, damage))?;
        let index = self.read_index()?;
        if index.len() as u64 != self.properties.data_blocks {
            let damage = Damage("the index and the properties disagree on the number of blocks");
            return Err(self.damaged(self.footer.index.offset, damage));
        }
        if self.mapped.is_some() {
            self.verified = (0..index.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        }
        self.index = pin_index.then(|| Arc::new(index));
        Ok(())
    }

    #[cold]
    pub(super) fn damaged(&self, offset: u64, damage: Damage) -> StorageError {
        let error = StorageError::corrupt(&self.path, offset, damage.0);
        let filter = self.footer.filter;
        // Damage to the filter is no flaw: the table is read without it, and a compaction builds a
        // new one.
        if !(filter.offset..filter.offset.saturating_add(filter.span)).contains(&offset) {
            self.flaw.note(&error);
        }
        error
    }

    /// Returns bytes of the file, borrowed from the mapping or read. A range beyond the end of the
    /// file is an error, which bounds the allocation.
    fn stored(&self, offset: u64, span: u64) -> Result<BlockRef<'_>, StorageError> {
        if offset.checked_add(span).is_none_or(|end| end > self.file_bytes) {
            return Err(self.damaged(offset, Damage("a part beyond the end of the file")));
        }
        let len = usize::try_from(span)
            .map_err(|_| self.damaged(offset, Damage("a part too large for this machine")))?;
        if let Some(mapped) = &self.mapped {
            let start = offset as usize;
            return Ok(BlockRef::Mapped { bytes: &mapped.mapping[start..start + len], start });
        }
        let mut bytes = frame::zeroed(len);
        let buffer = Arc::get_mut(&mut bytes).expect("a new block has one owner");
        let file = self.file.get().map_err(|e| StorageError::io("open", &self.path, e))?;
        file.read_exact_at(buffer, offset).map_err(|e| StorageError::io("read", &self.path, e))?;
        Ok(BlockRef::Heap(HeapBlock { bytes, start: 0, len }))
    }

    /// Announces that these bytes are touched and may have to come from the device. The range need
    /// not lie within the file.
    fn announce(&self, offset: u64, span: u64, touch: Touch) {
        if let Some(mapped) = &self.mapped {
            let part = usize::try_from(offset).ok().zip(usize::try_from(offset.saturating_add(span)).ok());
            if let Some((start, end)) = part {
                mapped.mapping.will_need(start..end, touch);
            }
        }
    }

    /// Begins to read adjacent blocks from the device, if the table is mapped and memory is
    /// [scarce](Self::is_scarce): they are touched once all that is needed with them is announced,
    /// too. `first` has the offset of the first, and the span of all.
    #[inline]
    pub fn announce_blocks(&self, first: BlockAt) {
        if self.is_scarce() {
            self.announce(first.offset, first.span, Touch::Later);
        }
    }

    /// Fills `buf` with the file's raw bytes from `offset` on.
    #[inline]
    pub fn read_stored(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        match &self.mapped {
            Some(mapped) => copy_from(&mapped.mapping, buf, offset),
            None => self.file.get()?.read_exact_at(buf, offset),
        }
    }

    /// Returns a stored block without its trailer, decompressed if necessary. Does not verify it.
    fn opened<'t>(&'t self, stored: BlockRef<'t>, offset: u64) -> Result<BlockRef<'t>, StorageError> {
        let (payload, method) = frame::open(&stored).map_err(|damage| self.damaged(offset, damage))?;
        if method != Compression::None {
            let bytes = frame::decompress(payload, method).map_err(|damage| self.damaged(offset, damage))?;
            let len = bytes.len();
            return Ok(BlockRef::Heap(HeapBlock { bytes, start: 0, len }));
        }
        Ok(match stored {
            BlockRef::Mapped { bytes, start } => {
                BlockRef::Mapped { bytes: &bytes[..bytes.len() - TRAILER_BYTES], start }
            }
            BlockRef::Heap(block) => BlockRef::Heap(HeapBlock { len: block.len - TRAILER_BYTES, ..block }),
        })
    }

    /// Reads and verifies a part of the file.
    fn read_part(&self, at: Part) -> Result<BlockRef<'_>, StorageError> {
        self.announce(at.offset, at.span, Touch::Next);
        let stored = self.stored(at.offset, at.span)?;
        frame::verify(&stored, at.offset).map_err(|damage| self.damaged(at.offset, damage))?;
        self.opened(stored, at.offset)
    }

    /// Reads a data block from the file and verifies it, even if it was verified before.
    pub(super) fn fresh_block(&self, at: BlockAt) -> Result<BlockRef<'_>, StorageError> {
        self.read_part(Part { offset: at.offset, span: at.span })
    }

    fn read_index(&self) -> Result<Index, StorageError> {
        let at = self.footer.index;
        Index::decode(&self.read_part(at)?, self.footer.data_span)
            .map_err(|damage| self.damaged(at.offset, damage))
    }

    /// The file's path.
    #[inline]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length in bytes.
    #[inline]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The properties recorded in the table.
    #[inline]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the footer, as read when the table was opened.
    #[inline]
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Sets the sequence number of all entries of an ingested table, which are stored with number
    /// 0. Must be called before the table is shared with readers.
    #[inline]
    pub fn set_global_seq(&mut self, seq: SeqNo) {
        self.global_seq = seq;
    }

    /// The sequence number of all entries in place of the stored 0; 0 if the stored numbers apply.
    #[inline]
    pub(super) fn global_seq(&self) -> SeqNo {
        self.global_seq
    }

    /// Reports whether blocks are read from a mapping of the file.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Reports whether the table is mapped but memory is too scarce for its pages to stay; see
    /// [`MappedPages::are_scarce`].
    ///
    /// [`MappedPages::are_scarce`]: tamis_env::io::MappedPages::are_scarce
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| mapped.mapping.is_scarce())
    }

    /// Returns what overlaps reads of this table's blocks with others; `None` if reads do not
    /// overlap.
    #[inline]
    pub fn overlap(&self) -> Option<&BatchReader> {
        self.reads.as_deref()
    }

    /// How many files a batch of reads may hold open, if `depth` are read at a time.
    pub(super) fn files_at_a_time(&self, depth: usize) -> usize {
        if self.file.is_scarce() { depth.min(2) } else { depth }
    }

    /// Returns the byte range of a block in the file.
    pub(super) fn stretch(&self, at: BlockAt) -> Result<Stretch, StorageError> {
        // Decoding the index checked its offsets against the span of all blocks. A read beyond the
        // end of the file would fail, but its memory must not be allocated first.
        if at.offset.checked_add(at.span).is_none_or(|end| end > self.file_bytes) {
            return Err(self.damaged(at.offset, Damage("a part beyond the end of the file")));
        }
        let len = usize::try_from(at.span)
            .map_err(|_| self.damaged(at.offset, Damage("a part too large for this machine")))?;
        let file = self.file.get().map_err(|e| StorageError::io("open", &self.path, e))?;
        Ok(Stretch { file, offset: at.offset, len })
    }

    /// The cache key of a block.
    pub(super) fn cache_key(&self, at: BlockAt) -> CacheKey {
        CacheKey { table: self.id, offset: at.offset }
    }

    /// Reports whether the block is in the cache.
    #[inline]
    pub fn is_cached(&self, at: BlockAt) -> bool {
        self.cache().is_some_and(|cache| cache.contains(self.cache_key(at)))
    }

    /// The cache for the table's blocks.
    pub(super) fn cache(&self) -> Option<&BlockCache> {
        self.cache.as_deref()
    }

    /// Memory held by the table itself, in bytes: pinned index, verification bits and properties.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Table>()
            + self.index.as_ref().map_or(0, |index| index.memory_bytes())
            + size_of_val(&*self.verified)
            + self.properties.smallest.len()
            + self.properties.largest.len()
            + self.properties.epochs.len()
    }

    fn pinned(&self, part: BlockRef<'_>) -> BlockData {
        let whole = Span { start: 0, len: part.len() };
        self.pin(&part, whole)
    }

    /// Returns the verified filter bytes as passed to the builder; `None` without a filter. Read on
    /// demand and not kept.
    #[inline]
    pub fn filter_bytes(&self) -> Result<Option<BlockData>, StorageError> {
        self.opaque_part(self.footer.filter)
    }

    /// The length of the filter bytes as passed to the builder; 0 without a filter.
    #[inline]
    pub fn filter_len(&self) -> u64 {
        self.footer.filter.span.saturating_sub(TRAILER_BYTES as u64)
    }

    /// The file offset of byte `at` of the filter.
    pub(super) fn filter_offset(&self, at: u64) -> u64 {
        self.footer.filter.offset.saturating_add(at)
    }

    /// Reads `len` bytes of the filter from `offset` on with one read, for filters that are used in
    /// parts. They are *not* verified: the filter's checksum covers all of it, so parts must have
    /// their own. Errors: a failed system call, or a range beyond the end of the filter.
    pub(crate) fn filter_stretch(&self, offset: u64, len: u64) -> Result<PinnedValue, StorageError> {
        if offset.checked_add(len).is_none_or(|end| end > self.filter_len()) {
            let at = self.filter_offset(offset);
            return Err(self.damaged(at, Damage("a part of a filter beyond its end")));
        }
        self.announce(self.filter_offset(offset), len, Touch::Next);
        self.stored(self.filter_offset(offset), len).map(|stretch| self.pinned(stretch))
    }

    /// Returns the verified range tombstone bytes as passed to the builder; `None` if there are
    /// none.
    #[inline]
    pub fn tombstone_bytes(&self) -> Result<Option<BlockData>, StorageError> {
        self.opaque_part(self.footer.tombstones)
    }

    fn opaque_part(&self, at: Part) -> Result<Option<BlockData>, StorageError> {
        if at.span == 0 {
            return Ok(None);
        }
        self.read_part(at).map(|part| Some(self.pinned(part)))
    }

    /// The cache key under which the caller may keep this table's filter.
    #[inline]
    pub fn filter_cache_key(&self) -> CacheKey {
        CacheKey { table: self.id, offset: self.footer.filter.offset }
    }

    /// Reports whether the table was built with a filter.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.footer.filter.span > 0
    }

    /// Returns the index: pinned, from the cache, or read and decoded.
    #[inline]
    pub fn index<T: ReadTrace>(&self, trace: &mut T) -> Result<IndexRef<'_>, StorageError> {
        match &self.index {
            Some(index) => Ok(IndexRef::Pinned(index)),
            None => self.fetch_index(trace).map(IndexRef::Shared),
        }
    }

    /// Returns the index for a cursor to keep.
    pub(super) fn shared_index<T: ReadTrace>(&self, trace: &mut T) -> Result<Arc<Index>, StorageError> {
        match &self.index {
            Some(index) => Ok(Arc::clone(index)),
            None => self.fetch_index(trace),
        }
    }

    /// Returns up to `count` ascending keys within the table, each with the approximate bytes of
    /// data between it and the previous one. They are separators from the index and need not occur
    /// in the table.
    pub fn keys_within(&self, count: usize) -> Result<Vec<(Vec<u8>, u64)>, StorageError> {
        let index = self.index(&mut ())?;
        let step = index.len().div_ceil(count.max(1)).max(1);
        let mut before = 0;
        let ends = (0..index.len()).skip(step - 1).step_by(step);
        Ok(ends
            .filter_map(|i| {
                let block = index.block(i)?;
                let end = block.offset + block.span;
                let bytes = end - std::mem::replace(&mut before, end);
                Some((index.separator(i), bytes))
            })
            .collect())
    }

    fn fetch_index<T: ReadTrace>(&self, trace: &mut T) -> Result<Arc<Index>, StorageError> {
        if let Some(why) = &self.lost {
            return Err(StorageError::clone(why));
        }
        let at = self.footer.index;
        let key = CacheKey { table: self.id, offset: at.offset };
        let mut touch = BlockTouch { offset: at.offset, stored_bytes: at.span, source: BlockSource::Cache };
        if let Some(CacheEntry::Index(index)) = self.cache.as_ref().and_then(|cache| cache.get(key)) {
            trace.metadata_touched(touch);
            return Ok(index);
        }
        let index = Arc::new(self.read_index()?);
        touch.source = match &self.mapped {
            Some(_) => BlockSource::Decompressed,
            None => BlockSource::File { read_bytes: at.span },
        };
        trace.metadata_touched(touch);
        trace.checksum_verified();
        if let Some(cache) = &self.cache {
            cache.insert(key, CacheEntry::Index(Arc::clone(&index)));
        }
        Ok(index)
    }

    /// Returns the stored bytes of a data block in the mapping; `None` if the file is not mapped
    /// (or the block lies outside it, which the index rules out).
    #[inline]
    pub(super) fn mapped_block(&self, at: BlockAt) -> Option<&[u8]> {
        let start = at.offset as usize;
        self.mapped.as_ref()?.mapping.get(start..start + at.span as usize)
    }

    /// Returns a data block, verified as configured. In a mapped table, `touch` says what comes
    /// after it; with [`Touch::Later`] it was [announced](Self::announce_blocks) before.
    #[inline]
    pub(super) fn block<T: ReadTrace>(
        &self,
        at: BlockAt,
        fill_cache: bool,
        touch: Touch,
        trace: &mut T,
    ) -> Result<BlockRef<'_>, StorageError> {
        if let Some(stored) = self.mapped_block(at) {
            let start = at.offset as usize;
            prefetch_tail(stored);
            self.verify_mapped(stored, at, touch, trace)?;
            let (payload, method) = frame::open(stored).map_err(|damage| self.damaged(at.offset, damage))?;
            if method == Compression::None {
                trace.block_touched(BlockTouch {
                    offset: at.offset,
                    stored_bytes: at.span,
                    source: BlockSource::Mapped,
                });
                return Ok(BlockRef::Mapped { bytes: payload, start });
            }
        }
        self.block_through_cache(at, fill_cache, trace).map(BlockRef::Heap)
    }

    /// Verifies a mapped block, unless once is enough and it was verified before. Announces the
    /// block first if it may not be in memory: at its first touch, or at any touch if memory is
    /// scarce.
    ///
    /// `Relaxed` suffices for the bits. The bytes they describe are constant and existed before the
    /// table was shared, seeing a bit late only repeats the check, and a bit guards no other data.
    #[inline]
    fn verify_mapped<T: ReadTrace>(
        &self,
        stored: &[u8],
        at: BlockAt,
        touch: Touch,
        trace: &mut T,
    ) -> Result<(), StorageError> {
        let word = &self.verified[at.index / 64];
        let bit = 1 << (at.index % 64);
        let touched = word.load(Ordering::Relaxed) & bit != 0;
        if touch != Touch::Later && (!touched || self.is_scarce()) {
            self.announce(at.offset, at.span, touch);
        }
        if touched && self.verify == ChecksumMode::Once {
            return Ok(());
        }
        trace.checksum_verified();
        frame::verify(stored, at.offset).map_err(|damage| self.damaged(at.offset, damage))?;
        if !touched {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    fn block_through_cache<T: ReadTrace>(
        &self,
        at: BlockAt,
        fill_cache: bool,
        trace: &mut T,
    ) -> Result<HeapBlock, StorageError> {
        let key = self.cache_key(at);
        let mut touch = BlockTouch { offset: at.offset, stored_bytes: at.span, source: BlockSource::Cache };
        if let Some(CacheEntry::Block(block)) = self.cache.as_ref().and_then(|cache| cache.get(key)) {
            trace.block_touched(touch);
            return Ok(block);
        }
        let stored = self.stored(at.offset, at.span)?;
        if self.mapped.is_none() {
            trace.checksum_verified();
            frame::verify(&stored, at.offset).map_err(|damage| self.damaged(at.offset, damage))?;
        }
        let block = match self.opened(stored, at.offset)? {
            BlockRef::Heap(block) => block,
            // Only reached if the method byte changed between two reads of the mapping, so the file
            // is being written to.
            BlockRef::Mapped { .. } => {
                return Err(self.damaged(at.offset, Damage("a block that changed while it was being read")));
            }
        };
        touch.source = match &self.mapped {
            Some(_) => BlockSource::Decompressed,
            None => BlockSource::File { read_bytes: at.span },
        };
        trace.block_touched(touch);
        if fill_cache && let Some(cache) = &self.cache {
            cache.insert(key, CacheEntry::Block(block.clone()));
        }
        Ok(block)
    }

    /// Returns a range of the mapping that an earlier [`block`](Self::block) call returned; empty
    /// if not mapped.
    #[inline]
    pub(super) fn mapped_bytes(&self, span: Span) -> &[u8] {
        match &self.mapped {
            Some(mapped) => &mapped.mapping[span.start..span.start + span.len],
            None => &[],
        }
    }

    /// Reads `span` bytes at `offset` of an unmapped file, for a cursor that reads ahead.
    pub(super) fn read_piece(&self, offset: u64, span: u64) -> Result<Arc<[u8]>, StorageError> {
        match self.stored(offset, span)? {
            BlockRef::Heap(block) => Ok(block.bytes),
            BlockRef::Mapped { bytes, .. } => Ok(bytes.into()),
        }
    }

    /// Verifies a data block's stored bytes, which were just read, and returns the block.
    pub(super) fn block_of_stored(&self, bytes: Arc<[u8]>, at: BlockAt) -> Result<HeapBlock, StorageError> {
        self.block_of_piece(&bytes, 0, at, &mut ())
    }

    /// Verifies a data block's stored bytes, which start at `start` in `piece`, and returns the
    /// block.
    pub(super) fn block_of_piece<T: ReadTrace>(
        &self,
        piece: &Arc<[u8]>,
        start: usize,
        at: BlockAt,
        trace: &mut T,
    ) -> Result<HeapBlock, StorageError> {
        let stored = HeapBlock { bytes: Arc::clone(piece), start, len: at.span as usize };
        trace.checksum_verified();
        frame::verify(&stored, at.offset).map_err(|damage| self.damaged(at.offset, damage))?;
        match self.opened(BlockRef::Heap(stored), at.offset)? {
            BlockRef::Heap(block) => Ok(block),
            BlockRef::Mapped { .. } => unreachable!("heap blocks stay on the heap"),
        }
    }

    /// Pins a range of the mapping returned by an earlier [`block`](Self::block) call.
    #[inline]
    pub(super) fn pin_mapped(&self, span: Span) -> PinnedValue {
        let mapped = self.mapped.as_ref().expect("the block is mapped");
        BlockData::Mapped { pin: mapped.pins.mine(), start: span.start, len: span.len }
    }

    /// Pins a part of a block so that it outlives the block's borrow. `span` must lie within the
    /// block.
    #[inline]
    pub(super) fn pin(&self, block: &BlockRef<'_>, span: Span) -> PinnedValue {
        match block {
            BlockRef::Mapped { start, .. } => {
                self.pin_mapped(Span { start: start + span.start, len: span.len })
            }
            BlockRef::Heap(block) => BlockData::Heap {
                bytes: Arc::clone(&block.bytes),
                start: block.start + span.start,
                len: span.len,
            },
        }
    }
}

/// Prefetches the last cache lines of a stored block: the footer, fingerprints, arrays and keys of
/// a typical block, which would otherwise miss one after the other. They take a sixteenth of a
/// block whose values have a few hundred bytes. The processor cannot keep up with more than sixteen
/// lines.
#[inline]
pub(super) fn prefetch_tail(block: &[u8]) {
    let tail = (block.len() / 16 + 64).min(1024);
    for line in block[block.len().saturating_sub(tail)..].chunks(64) {
        prefetch(line);
    }
    // The chunks need not start at line boundaries.
    prefetch(&block[block.len().saturating_sub(1)..]);
}
