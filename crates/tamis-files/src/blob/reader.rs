//! Opens a blob file and reads its records.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tamis_base::ids::{BlobFileId, LogId};
use tamis_env::io::batch::{BatchReader, Stretch};
use tamis_env::io::{Access, FileSystem, Touch};

use super::format::{FOOTER_BYTES, Footer, NEWER, is_marked};
use super::reference::Reference;
use crate::codec::Encode;
use crate::error::{StorageError, newer};
use crate::settings::{ChecksumMode, Compression};
use crate::table::cache::{BlockCache, CacheEntry, CacheKey};
use crate::table::frame::{self, TRAILER_BYTES};
use crate::table::{
    BlockSource, BlockTouch, Damage, HeapBlock, MappedFile, OpenedFile, PinnedValue, ReadTrace, ReaderConfig,
    TableFile, copy_from, prefetch,
};
use crate::wal::{self, HEADER_BYTES};

/// The granularity, in bytes, at which the starts of verified records in a mapped file are
/// remembered. Two shorter records may start within one grain, so those are verified at each read.
pub(super) const GRAIN_BYTES: u64 = 1 << 10;

/// In a log, damage and a wrong reference look alike.
const NOT_THE_VALUE: Damage = Damage("the checksum of a value does not match that in the table");

/// An open blob file, which does not change while it is open, or an open log, which only grows.
#[derive(Debug)]
pub struct BlobFile {
    path: PathBuf,
    mapped: Option<MappedFile>,
    file: TableFile,
    verify: ChecksumMode,
    /// One bit per [`GRAIN_BYTES`], set once a record that starts there matched its checksum. Empty
    /// if not mapped.
    verified: Box<[AtomicU64]>,
    cache: Option<Arc<BlockCache>>,
    /// Overlaps reads; `None` if reads do not overlap or the file is mapped.
    reads: Option<Arc<BatchReader>>,
    file_bytes: u64,
    footer: Footer,
    /// Whether it is a log: values lie in its records, without a trailer.
    is_log: bool,
    /// Why the file could not be opened; every read returns this error.
    lost: Option<Box<StorageError>>,
}

impl BlobFile {
    /// Opens blob file `id`, a number that must never name another file; `None` accepts any number.
    /// Reads the footer. Errors: a failed system call, or damage.
    pub fn open(
        fs: &dyn FileSystem,
        path: &Path,
        id: Option<BlobFileId>,
        config: &ReaderConfig,
    ) -> Result<BlobFile, StorageError> {
        let opened = config.open(fs, path)?;
        let file_bytes = opened.len;
        let Some(end) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Err(StorageError::corrupt(path, None, "a blob file shorter than its footer"));
        };
        let mut bytes = [0; FOOTER_BYTES];
        match &opened.mapping {
            Some(mapping) => {
                mapping.will_need(end as usize..mapping.len(), Touch::Next);
                bytes.copy_from_slice(&mapping[end as usize..]);
            }
            None => {
                opened.file.read_exact_at(&mut bytes, end).map_err(|e| StorageError::io("read", path, e))?;
            }
        }
        let decoded = match Footer::decode(&bytes, end) {
            Err(damage) if !is_marked(&bytes) => {
                match wal::identify_complete(&start(&opened, path)?, &bytes, file_bytes) {
                    Some(Ok(id)) => Ok((Footer { id, ..Footer::default() }, true)),
                    Some(Err(_)) => Err(NEWER),
                    None => Err(damage),
                }
            }
            footer => footer.map(|footer| (footer, false)),
        };
        let (footer, is_log) = decoded.map_err(|damage| match damage {
            NEWER => newer(path, damage.0),
            damage => StorageError::corrupt(path, end, damage.0),
        })?;
        if id.is_some_and(|id| id != footer.id) {
            let what = format!("it says that it is blob file {}", footer.id);
            return Err(StorageError::corrupt(path, end, what));
        }
        let (file, mapped) = config.keep(path, opened);
        let grains = if mapped.is_some() { file_bytes.div_ceil(GRAIN_BYTES).div_ceil(64) } else { 0 };
        Ok(BlobFile {
            path: path.to_owned(),
            reads: if mapped.is_some() { None } else { config.reads.clone() },
            mapped,
            file,
            verify: config.verify,
            verified: (0..grains).map(|_| AtomicU64::new(0)).collect(),
            cache: config.cache.clone(),
            file_bytes,
            footer,
            is_log,
            lost: None,
        })
    }

    /// Opens log `id`, which may still be written: references lead to what was written already. It
    /// stays readable without its name, and must never be overwritten. Every read verifies the
    /// value.
    pub fn of_log(fs: &dyn FileSystem, path: &Path, id: LogId) -> Result<BlobFile, StorageError> {
        // Around the page cache, a read would wait for what was just written to reach the device.
        let file = fs.open(path, Access::Sequential).map_err(|e| StorageError::io("open", path, e))?;
        Ok(BlobFile {
            path: path.to_owned(),
            reads: None,
            mapped: None,
            file: TableFile::Own(file),
            verify: ChecksumMode::default(),
            verified: Box::default(),
            cache: None,
            file_bytes: u64::MAX,
            footer: Footer { id, ..Footer::default() },
            is_log: true,
            lost: None,
        })
    }

    /// Creates a stand-in for a file that could not be opened because of `why`. Every read from it
    /// fails.
    pub fn lost(path: &Path, id: BlobFileId, why: StorageError) -> BlobFile {
        BlobFile {
            path: path.to_owned(),
            reads: None,
            mapped: None,
            file: TableFile::Lost,
            verify: ChecksumMode::default(),
            verified: Box::default(),
            cache: None,
            file_bytes: 0,
            footer: Footer { id, ..Footer::default() },
            is_log: false,
            lost: Some(Box::new(why)),
        }
    }

    /// Returns why the file could not be opened, if it is [lost](Self::lost).
    #[inline]
    pub fn why_lost(&self) -> Option<&StorageError> {
        self.lost.as_deref()
    }

    /// Returns the file's number.
    #[inline]
    pub fn id(&self) -> BlobFileId {
        self.footer.id
    }

    /// Returns the file's path.
    #[inline]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length in bytes.
    #[inline]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes of its records; the whole length of a log.
    #[inline]
    pub fn data_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(if self.is_log { 0 } else { FOOTER_BYTES as u64 })
    }

    /// What the file records about itself; `None` for a log.
    #[inline]
    pub fn footer(&self) -> Option<&Footer> {
        (!self.is_log).then_some(&self.footer)
    }

    /// Memory held by this handle, in bytes.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        size_of::<BlobFile>() + size_of_val(&*self.verified)
    }

    /// Reports whether records are read from a mapping of the file.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Returns what overlaps reads of this file's records with others; `None` if reads do not
    /// overlap.
    #[inline]
    pub fn overlap(&self) -> Option<&BatchReader> {
        self.reads.as_deref()
    }

    #[cold]
    fn damaged(&self, offset: u64, damage: Damage) -> StorageError {
        StorageError::corrupt(&self.path, offset, damage.0)
    }

    /// Returns a record's byte range, checked against the file's length.
    fn within(&self, at: &Reference) -> Result<std::ops::Range<usize>, StorageError> {
        if let Some(why) = &self.lost {
            return Err(StorageError::clone(why));
        }
        let end = at.offset.checked_add(at.span).filter(|end| *end <= self.data_bytes());
        let range = end.and_then(|end| Some(usize::try_from(at.offset).ok()?..usize::try_from(end).ok()?));
        range.ok_or_else(|| self.damaged(at.offset, Damage("a record beyond the end of the blob file")))
    }

    /// Checks that a record lies within the file.
    #[inline]
    pub fn check_place(&self, at: &Reference) -> Result<(), StorageError> {
        self.within(at).map(drop)
    }

    /// Fills `buf` with the file's raw bytes from `offset` on.
    #[inline]
    pub fn read_stored(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        match &self.mapped {
            Some(mapped) => copy_from(&mapped.mapping, buf, offset),
            None => self.file.get()?.read_exact_at(buf, offset),
        }
    }

    /// Returns the stored bytes of a record in the mapping; `None` if the file is not mapped.
    fn mapped_record(&self, at: &Reference) -> Result<Option<&[u8]>, StorageError> {
        let range = self.within(at)?;
        Ok(self.mapped.as_ref().map(|mapped| &mapped.mapping[range]))
    }

    /// Announces a record that is touched after others, and starts fetching its first and last
    /// cache lines. Does nothing if the file is not mapped.
    #[inline]
    pub fn prefetch(&self, at: &Reference) {
        if let Ok(Some(stored)) = self.mapped_record(at) {
            self.announce(at, Touch::Later);
            prefetch(&stored[..1]);
            prefetch(&stored[stored.len() - 1..]);
        }
    }

    /// Returns the verified value of a record. There is no copy if the file is mapped and the value
    /// not compressed. Otherwise the value comes from the cache, or is read and cached if
    /// `fill_cache`.
    pub fn read<T: ReadTrace>(
        &self,
        at: &Reference,
        fill_cache: bool,
        trace: &mut T,
    ) -> Result<PinnedValue, StorageError> {
        let touch = |source| BlockTouch { offset: at.offset, stored_bytes: at.span, source };
        // Where memory is scarce, the pages of a value that is in the cache may be on the device.
        if self.is_scarce()
            && let Some(value) = self.cached(at)?
        {
            trace.blob_touched(touch(BlockSource::Cache));
            return Ok(value);
        }
        if let Some(stored) = self.mapped_record(at)? {
            self.verify_mapped(stored, at, trace)?;
            let (payload, method) = self.payload(stored, at)?;
            if method == Compression::None {
                self.check_len(at, payload.len())?;
                trace.blob_touched(touch(BlockSource::Mapped));
                let mapped = self.mapped.as_ref().expect("it has mapped bytes");
                let (start, len) = (at.offset as usize, payload.len());
                return Ok(PinnedValue::Mapped { pin: mapped.pins.mine(), start, len });
            }
        }
        if let Some(value) = self.cached(at)? {
            trace.blob_touched(touch(BlockSource::Cache));
            return Ok(value);
        }
        if let Some(stored) = self.mapped_record(at)? {
            trace.blob_touched(touch(BlockSource::Decompressed));
            return self.keep(at, self.decompressed(stored, at)?, fill_cache);
        }
        let stored = self.read_stretch(&self.stretch(at)?)?;
        trace.blob_touched(touch(BlockSource::File { read_bytes: at.span }));
        self.accept(at, &stored, 0, fill_cache, trace)
    }

    /// Reads a record from the file and verifies its checksum, even if that was done before, and
    /// its value's length.
    pub fn check(&self, at: &Reference) -> Result<(), StorageError> {
        match self.mapped_record(at)? {
            Some(stored) => {
                self.announce(at, Touch::Next);
                self.check_record(stored, at)?;
                let (payload, method) = self.payload(stored, at)?;
                match method {
                    Compression::None => self.check_len(at, payload.len()),
                    _ => self.decompressed(stored, at).map(drop),
                }
            }
            None => {
                let stored = self.read_stretch(&self.stretch(at)?)?;
                self.accept(at, &stored, 0, false, &mut ()).map(drop)
            }
        }
    }

    /// Returns the value of a record if it is in the cache.
    pub fn cached(&self, at: &Reference) -> Result<Option<PinnedValue>, StorageError> {
        match self.cache.as_ref().and_then(|cache| cache.get(self.cache_key(at))) {
            Some(CacheEntry::Block(block)) => {
                self.check_len(at, block.len)?;
                Ok(Some(PinnedValue::Heap { bytes: block.bytes, start: block.start, len: block.len }))
            }
            _ => Ok(None),
        }
    }

    /// Returns the byte range of a record, to read it together with others.
    #[inline]
    pub fn stretch(&self, at: &Reference) -> Result<Stretch, StorageError> {
        let len = self.within(at)?.len();
        let file = self.file.get().map_err(|e| StorageError::io("open", &self.path, e))?;
        Ok(Stretch { file, offset: at.offset, len })
    }

    /// Reads `span` bytes of records at `offset`, for a scan that reads ahead in an unmapped file.
    #[inline]
    pub fn piece(&self, offset: u64, span: u64) -> Result<Arc<[u8]>, StorageError> {
        self.read_stretch(&self.stretch(&Reference { file: self.id(), offset, span, len: 0, checksum: 0 })?)
    }

    fn read_stretch(&self, stretch: &Stretch) -> Result<Arc<[u8]>, StorageError> {
        let mut bytes = frame::zeroed(stretch.len);
        let buffer = Arc::get_mut(&mut bytes).expect("new memory has one owner");
        let read = stretch.file.read_exact_at(buffer, stretch.offset);
        read.map_err(|e| StorageError::io("read", &self.path, e))?;
        Ok(bytes)
    }

    /// Verifies a record that was read and returns its value. Its stored bytes start at `start` in
    /// `piece`.
    pub fn accept<T: ReadTrace>(
        &self,
        at: &Reference,
        piece: &Arc<[u8]>,
        start: usize,
        fill_cache: bool,
        trace: &mut T,
    ) -> Result<PinnedValue, StorageError> {
        let range = start..start.saturating_add(self.within(at)?.len());
        let stored = piece.get(range);
        let stored =
            stored.ok_or_else(|| self.damaged(at.offset, Damage("a record that was read in part")))?;
        trace.checksum_verified();
        self.check_record(stored, at)?;
        let (payload, method) = self.payload(stored, at)?;
        let block = match method {
            Compression::None => {
                self.check_len(at, payload.len())?;
                HeapBlock { bytes: piece.clone(), start, len: payload.len() }
            }
            _ => self.decompressed(stored, at)?,
        };
        // Caching a value within a larger piece would keep the whole piece in memory.
        let whole = block.bytes.len() <= block.len + TRAILER_BYTES;
        self.keep(at, block, fill_cache && whole)
    }

    fn keep(&self, at: &Reference, block: HeapBlock, fill_cache: bool) -> Result<PinnedValue, StorageError> {
        if fill_cache && let Some(cache) = &self.cache {
            cache.insert(self.cache_key(at), CacheEntry::Block(block.clone()));
        }
        Ok(PinnedValue::Heap { bytes: block.bytes, start: block.start, len: block.len })
    }

    /// Returns the stored form of a record's value, and how it is compressed.
    fn payload<'b>(&self, stored: &'b [u8], at: &Reference) -> Result<(&'b [u8], Compression), StorageError> {
        match self.is_log {
            true => Ok((stored, Compression::None)),
            false => frame::open(stored).map_err(|damage| self.damaged(at.offset, damage)),
        }
    }

    fn decompressed(&self, stored: &[u8], at: &Reference) -> Result<HeapBlock, StorageError> {
        let (payload, method) = self.payload(stored, at)?;
        let bytes = frame::decompress(payload, method).map_err(|damage| self.damaged(at.offset, damage))?;
        self.check_len(at, bytes.len())?;
        let len = bytes.len();
        Ok(HeapBlock { bytes, start: 0, len })
    }

    fn cache_key(&self, at: &Reference) -> CacheKey {
        // Tables and blob files share one number space. The checksum, which depends on the offset,
        // stands in for it: a reference to anything else at that offset must not find the value.
        CacheKey { table: self.footer.id, offset: at.checksum }
    }

    fn is_scarce(&self) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| mapped.mapping.is_scarce())
    }

    /// Announces a record, if it is not known to have been touched or memory is scarce: each of its
    /// pages would fault, and read as much around it as the device is set to.
    fn announce(&self, at: &Reference, touch: Touch) {
        if let Some(mapped) = &self.mapped
            && (mapped.mapping.is_scarce() || !self.was_verified(at))
            && let Ok(part) = self.within(at)
        {
            mapped.mapping.will_need(part, touch);
        }
    }

    /// Reports whether a mapped record was verified and need not be again.
    fn was_verified(&self, at: &Reference) -> bool {
        self.mark(at).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Returns the word and the bit that are set once a mapped record was verified, unless it is
    /// verified each time. As for table blocks, they publish nothing, so `Relaxed` suffices.
    fn mark(&self, at: &Reference) -> Option<(&AtomicU64, u64)> {
        let once = self.verify == ChecksumMode::Once && at.span >= GRAIN_BYTES;
        let grain = (at.offset / GRAIN_BYTES) as usize;
        self.verified.get(grain / 64).filter(|_| once).map(|word| (word, 1 << (grain % 64)))
    }

    /// Verifies a mapped record, unless once is enough and it was verified before.
    fn verify_mapped<T: ReadTrace>(
        &self,
        stored: &[u8],
        at: &Reference,
        trace: &mut T,
    ) -> Result<(), StorageError> {
        self.announce(at, Touch::Next);
        if self.was_verified(at) {
            match self.is_log {
                false => return self.check_sum(stored, at),
                true if self.begins_value(at) => return Ok(()),
                true => {}
            }
        }
        trace.checksum_verified();
        self.check_record(stored, at)?;
        if let Some((word, bit)) = self.mark(at) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks a record against its own checksum and the reference's.
    fn check_record(&self, stored: &[u8], at: &Reference) -> Result<(), StorageError> {
        if self.is_log {
            return match Reference::in_log(self.id(), at.offset, stored).checksum == at.checksum {
                true => Ok(()),
                false => Err(self.damaged(at.offset, NOT_THE_VALUE)),
            };
        }
        frame::verify(stored, at.offset).map_err(|_| {
            self.damaged(at.offset, Damage("the checksum of a record does not match its bytes"))
        })?;
        self.check_sum(stored, at)
    }

    /// Checks that a record has the checksum that the reference gives.
    fn check_sum(&self, stored: &[u8], at: &Reference) -> Result<(), StorageError> {
        match stored.last_chunk::<8>() {
            Some(sum) if u64::from_le_bytes(*sum) == at.checksum => Ok(()),
            _ => Err(self.damaged(at.offset, Damage("a record other than the one that a table refers to"))),
        }
    }

    /// Reports whether the length of a value in a mapped log stands before it. Two values cannot
    /// start within one grain, so it is the one that was verified there.
    fn begins_value(&self, at: &Reference) -> bool {
        let mut len = SmallVec::<[u8; 16]>::new();
        len.put_varint(at.len);
        self.mapped.as_ref().is_some_and(|mapped| mapped.mapping[..at.offset as usize].ends_with(&len))
    }

    fn check_len(&self, at: &Reference, len: usize) -> Result<(), StorageError> {
        match len as u64 == at.len {
            true => Ok(()),
            false => Err(self.damaged(at.offset, Damage("a value of another length than a table says"))),
        }
    }
}

/// Reads the place of a log's header. The file has at least as many bytes.
fn start(opened: &OpenedFile, path: &Path) -> Result<[u8; HEADER_BYTES as usize], StorageError> {
    let mut start = [0; HEADER_BYTES as usize];
    match &opened.mapping {
        Some(mapping) => {
            mapping.will_need(0..start.len(), Touch::Next);
            start.copy_from_slice(&mapping[..HEADER_BYTES as usize]);
        }
        None => opened.file.read_exact_at(&mut start, 0).map_err(|e| StorageError::io("read", path, e))?,
    }
    Ok(start)
}

const _: () = assert!(FOOTER_BYTES as u64 >= HEADER_BYTES);
