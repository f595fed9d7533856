//! Reads blocks of one or more tables together, so that their latencies overlap.
//!
//! # Invariant
//!
//! A block returned from here is verified and inserted into the cache (unless its cursor opted
//! out), just like one read by [`Table::block`]. The caller holds a reference to it, so it need not
//! be read again if the cache is too small to keep it.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_env::io::batch::{BatchReader, Stretch};

use super::data::HeapBlock;
use super::frame::TRAILER_BYTES;
use super::index::{BlockAt, Index};
use super::reader::Table;
use super::trace::{BlockSource, BlockTouch, ReadTrace, TouchCounts};
use crate::error::StorageError;
use crate::table::cache::CacheEntry;

/// A requested block and, later, its result.
#[derive(Debug)]
pub struct Fetch<'t> {
    /// The table.
    pub(crate) table: &'t Table,
    /// The block's location in the table.
    pub at: BlockAt,
    /// The block and the source that its next touch reports.
    pub(crate) got: Option<(HeapBlock, BlockSource)>,
}

impl<'t> Fetch<'t> {
    /// Requests a block of an unmapped table.
    #[inline]
    pub fn new(table: &'t Table, at: BlockAt) -> Fetch<'t> {
        debug_assert!(!table.is_mapped());
        Fetch { table, at, got: None }
    }

    /// Returns the block for one touch. From the second touch on, the block counts as a cache hit.
    #[inline]
    pub fn take(&mut self) -> Option<(HeapBlock, BlockSource)> {
        let (block, source) = self.got.as_mut()?;
        Some((block.clone(), std::mem::replace(source, BlockSource::Cache)))
    }
}

/// Fetches all the blocks, which must be distinct, from the cache or in batches from their files.
/// Adds reads and misses to `counts`; the caller counts touches. If blocks cannot be read or are
/// damaged, returns the first error. The others are still fetched and cached, unless a file cannot
/// be opened, which ends the fetch.
///
/// A batch keeps open the files that it reads. It therefore has at most as many blocks as are read
/// at a time, and fewer if no more files can be opened.
pub fn fetch(
    reads: &BatchReader,
    fetches: &mut [Fetch<'_>],
    counts: &mut TouchCounts,
) -> Result<(), StorageError> {
    let mut missing: SmallVec<[usize; 8]> = SmallVec::new();
    for (i, fetch) in fetches.iter_mut().enumerate() {
        let cached = fetch.table.cache().and_then(|cache| cache.get(fetch.table.cache_key(fetch.at)));
        if let Some(CacheEntry::Block(block)) = cached {
            fetch.got = Some((block, BlockSource::Cache));
        } else {
            missing.push(i);
        }
    }
    let batched = missing.len() > 1;
    let mut failed = None;
    let mut rest = &missing[..];
    while !rest.is_empty() {
        let mut stretches: SmallVec<[Stretch; 8]> = SmallVec::new();
        let most = fetches[rest[0]].table.files_at_a_time(reads.depth());
        for &i in rest.iter().take(most) {
            match fetches[i].table.stretch(fetches[i].at) {
                Ok(stretch) => stretches.push(stretch),
                // Descriptors may be available once the current batch has been read.
                Err(_) if !stretches.is_empty() => break,
                Err(error) => return Err(failed.unwrap_or(error)),
            }
        }
        let (now, later) = rest.split_at(stretches.len());
        for (&i, read) in now.iter().zip(reads.read(&stretches)) {
            let Fetch { table, at, got } = &mut fetches[i];
            counts.cache_misses += 1;
            counts.io_reads += 1;
            counts.io_bytes += at.span;
            counts.batched_reads += u64::from(batched);
            let block = read.map_err(|e| StorageError::io("read", table.path(), e)).and_then(|stored| {
                counts.checksums += 1;
                table.block_of_stored(stored, *at)
            });
            match block {
                Ok(block) => {
                    if let Some(cache) = table.cache() {
                        cache.insert(table.cache_key(*at), CacheEntry::Block(block.clone()));
                    }
                    // The read was just counted, separately from the touch.
                    *got = Some((block, BlockSource::ReadAhead));
                }
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        rest = later;
    }
    failed.map_or(Ok(()), Err)
}

/// The maximum bytes that a scan reads ahead at a time, in one table or in several together.
pub const MOST_BYTES: u64 = 1 << 20;

/// The blocks that a cursor will load next. The first ones may be read before it asks for them.
///
/// They are adjacent in the file, so one transfer reads those that were [taken](Coming::take). A
/// block that is already in memory is passed over if nothing is taken yet, and otherwise ends the
/// transfer.
#[derive(Debug)]
pub struct Coming {
    table: Arc<Table>,
    index: Arc<Index>,
    backward: bool,
    /// The next block to take; `None` if there is none, or if it cannot be part of the transfer.
    next: Option<BlockAt>,
    /// Whether a seek waits for `next`.
    sought: bool,
    /// The block that the cursor will ask for first.
    start: usize,
    /// The blocks taken: their number, file offset and length.
    taken: (usize, u64, u64),
    bytes: Option<Arc<[u8]>>,
    /// Whether the blocks taken are being read into the mapping of the table.
    announced: bool,
}

impl Coming {
    /// Returns the blocks from `next` on, unless the first of them was read ahead. `loaded` is the
    /// block that the cursor has.
    pub(super) fn new(
        (table, index): (&Arc<Table>, &Arc<Index>),
        scan: &ScanAhead,
        (next, sought, backward): (usize, bool, bool),
        loaded: Option<usize>,
    ) -> Option<Coming> {
        let mut coming = Coming {
            table: table.clone(),
            index: index.clone(),
            backward,
            next: index.block(next),
            sought,
            start: next,
            taken: (0, 0, 0),
            bytes: None,
            announced: false,
        };
        // Bytes read ahead are given up only after use.
        let mut held = false;
        while let Some(at) = coming.next
            && (loaded == Some(at.index) || scan.holds(at))
        {
            held |= loaded != Some(at.index);
            coming.move_on();
        }
        if let Some(at) = coming.next {
            coming.start = at.index;
        }
        (!held).then_some(coming)
    }

    fn move_on(&mut self) {
        let next = self.next.and_then(|at| match self.backward {
            true => at.index.checked_sub(1),
            false => Some(at.index + 1),
        });
        (self.next, self.sought) = (next.and_then(|next| self.index.block(next)), false);
    }

    /// Reports whether the first coming block has to be read: nothing is taken yet, and the block
    /// is not in the cache.
    #[inline]
    pub fn starts_with_a_read(&self) -> bool {
        self.taken.0 == 0 && self.next.is_some_and(|at| !self.table.is_cached(at))
    }

    /// Reports whether a seek waits for the next block.
    #[inline]
    pub fn is_sought(&self) -> bool {
        self.sought
    }

    /// Returns the key beyond which the next block is needed: forwards, no key of the block is
    /// less; backwards, none is greater. `None` without a next block.
    #[inline]
    pub fn needed_at(&self) -> Option<Vec<u8>> {
        let at = self.next?;
        Some(self.index.separator(if self.backward { at.index } else { at.index.checked_sub(1)? }))
    }

    /// Takes the next block for the transfer, unless it is in memory or would make the transfer
    /// exceed `most_bytes` (the first block may). Returns the bytes to read for it.
    pub fn take(&mut self, most_bytes: u64) -> u64 {
        let Some(at) = self.next else { return 0 };
        let (count, offset, span) = self.taken;
        if self.table.is_cached(at) || (count > 0 && span.saturating_add(at.span) > most_bytes) {
            match count {
                0 => self.move_on(),
                _ => self.next = None,
            }
            return 0;
        }
        self.taken = match count {
            0 => (1, at.offset, at.span),
            _ => (count + 1, offset.min(at.offset), span + at.span),
        };
        self.move_on();
        at.span
    }

    /// The number of blocks taken.
    #[inline]
    pub fn blocks(&self) -> usize {
        self.taken.0
    }
}

/// Begins to read the blocks taken of mapped tables.
pub fn announce_coming(all: &mut [&mut Coming]) {
    for coming in all.iter_mut().filter(|coming| coming.table.is_mapped()) {
        let (_, offset, span) = coming.taken;
        coming.table.announce_blocks(BlockAt { index: coming.start, offset, span });
        coming.announced = true;
    }
}

/// Reads the blocks taken: one transfer per table, all transfers together. Counts reads and misses.
/// What cannot be read is left out; if the cursor gets there, it reads the block itself and reports
/// the error.
pub fn read_coming(reads: &BatchReader, all: &mut [&mut Coming], counts: &mut TouchCounts) {
    let batched = all.len() > 1;
    let mut rest = all;
    while let Some(first) = rest.first() {
        let mut stretches: SmallVec<[Stretch; 8]> = SmallVec::new();
        let most = first.table.files_at_a_time(reads.depth());
        for coming in rest.iter().take(most) {
            let (_, offset, span) = coming.taken;
            let Ok(stretch) = coming.table.stretch(BlockAt { index: coming.start, offset, span }) else {
                break;
            };
            stretches.push(stretch);
        }
        if stretches.is_empty() {
            return;
        }
        let (now, later) = rest.split_at_mut(stretches.len());
        for (coming, read) in now.iter_mut().zip(reads.read(&stretches)) {
            counts.cache_misses += 1;
            counts.io_reads += 1;
            counts.io_bytes += coming.taken.2;
            counts.batched_reads += u64::from(batched);
            coming.bytes = read.ok();
        }
        rest = later;
    }
}

/// A cursor counts as scanning after this many steps from a block to its neighbour. The second of
/// two neighbouring blocks is thus read together with the one after it, which costs little more
/// than reading it alone.
const SCANNING: u32 = 1;

/// Readahead for a cursor that moves from block to block of an unmapped table. In a merge, the
/// blocks of all its cursors are read together instead, and [accepted](ScanAhead::accept) here.
///
/// The following blocks are adjacent in the file, so one transfer fetches several, which is cheaper
/// than one transfer each: 2 blocks at first, then 4, 8 and so on up to the queue depth, and at
/// most 1 MiB. The byte range ends before a block that is in the cache, and at the bounds of the
/// iteration. Each block is verified and inserted into the cache when the cursor reaches it. A
/// cursor that moves elsewhere drops what it read ahead and starts over.
///
/// Memory: one byte range per open table of an iterator. It belongs to its cursor and, like it, to
/// one thread at a time.
#[derive(Debug, Default)]
pub(super) struct ScanAhead {
    /// The last block requested.
    last: Option<usize>,
    /// The number of consecutive steps from block to block in this direction.
    steps: u32,
    backward: bool,
    /// How many blocks the last readahead aimed for.
    window: usize,
    /// The file offset of the bytes read ahead, and the bytes.
    piece: Option<(u64, Arc<[u8]>)>,
    /// In a mapped table, the range of file offsets that was announced instead.
    announced: Range<u64>,
    /// The block to expect next regardless of the last request: accepted bytes are for it or for
    /// the blocks after it.
    expected: Option<usize>,
    /// No key before the first or from the second on will be requested.
    bounds: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl ScanAhead {
    /// Promises that no key before `start` or from `end` on will be requested.
    pub(super) fn within(&mut self, start: &[u8], end: Option<&[u8]>) {
        self.bounds = Some((start.to_vec(), end.map(<[u8]>::to_vec)));
    }

    /// Accepts bytes that were read together with those of other cursors.
    pub(super) fn accept(&mut self, coming: Coming) {
        if coming.announced {
            let (_, offset, span) = coming.taken;
            self.announced = offset..offset + span;
        }
        if let Some(bytes) = coming.bytes {
            self.piece = Some((coming.taken.1, bytes));
            self.expected = Some(coming.start);
            self.backward = coming.backward;
        }
    }

    /// Records that the cursor moves to a block. Returns whether it is scanning.
    fn step(&mut self, to: usize) -> bool {
        let last = self.last.replace(to);
        if self.expected.take_if(|expected| *expected == to).is_some() {
            self.steps = self.steps.max(SCANNING);
            return true;
        }
        let backward = last.is_some_and(|last| to.checked_add(1) == Some(last));
        let forward = last.is_some_and(|last| last.checked_add(1) == Some(to));
        if !(backward || forward) || (self.steps > 0 && self.backward != backward) {
            self.steps = 0;
            self.window = 0;
            self.piece = None;
        }
        if backward || forward {
            self.backward = backward;
            self.steps = self.steps.saturating_add(1);
        }
        self.steps >= SCANNING
    }

    /// Returns the block if it was read ahead or the cursor is scanning; `None` leaves it to
    /// [`Table::block`]. With `fill_cache`, a block that is read is inserted into the cache.
    pub(super) fn block(
        &mut self,
        table: &Table,
        index: &Index,
        at: BlockAt,
        fill_cache: bool,
        counts: &mut TouchCounts,
    ) -> Result<Option<HeapBlock>, StorageError> {
        let scanning = self.step(at.index);
        let mut source = BlockSource::ReadAhead;
        if !self.holds(at) {
            if !scanning {
                return Ok(None);
            }
            if let Some(CacheEntry::Block(block)) = table.cache().and_then(|c| c.get(table.cache_key(at))) {
                source = BlockSource::Cache;
                counts.block_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
                return Ok(Some(block));
            }
            let depth = table.overlap().map_or(1, BatchReader::depth);
            self.window = (self.window * 2).clamp(2, depth.max(2));
            let (offset, span) = self.stretch(table, index, at);
            self.piece = None;
            self.piece = Some((offset, table.read_piece(offset, span)?));
            source = BlockSource::File { read_bytes: span };
        }
        let (offset, piece) = self.piece.as_ref().expect("it holds the block");
        let start = (at.offset - offset) as usize;
        counts.block_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
        let mut block = table.block_of_piece(piece, start, at, counts)?;
        if Arc::ptr_eq(&block.bytes, piece) && block.len + TRAILER_BYTES < piece.len() {
            // Copy the block, so that pinned values and the cache do not keep the whole byte range
            // alive.
            block = HeapBlock { bytes: Arc::from(&block[..]), start: 0, len: block.len };
        }
        if fill_cache && let Some(cache) = table.cache() {
            cache.insert(table.cache_key(at), CacheEntry::Block(block.clone()));
        }
        Ok(Some(block))
    }

    /// Reports whether the bytes read ahead, or announced, contain the block.
    pub(super) fn holds(&self, at: BlockAt) -> bool {
        self.announced.contains(&at.offset)
            || self.piece.as_ref().is_some_and(|(offset, piece)| {
                at.offset >= *offset && at.offset + at.span <= offset + piece.len() as u64
            })
    }

    /// Returns the byte range to read for this block and those that follow: offset and length.
    fn stretch(&self, table: &Table, index: &Index, at: BlockAt) -> (u64, u64) {
        let (mut low, mut high) = (0, index.len());
        if let Some((start, end)) = &self.bounds {
            low = index.find(start).unwrap_or(high);
            high = end.as_ref().and_then(|end| index.find(end)).map_or(high, |last| last + 1);
        }
        let (mut offset, mut span, mut last) = (at.offset, at.span, at.index);
        for _ in 1..self.window {
            let next = if self.backward { last.checked_sub(1) } else { Some(last + 1) };
            let Some(next) = next.filter(|next| (low..high).contains(next)) else { break };
            let Some(block) = index.block(next) else { break };
            if span + block.span > MOST_BYTES || table.is_cached(block) {
                break;
            }
            offset = offset.min(block.offset);
            span += block.span;
            last = next;
        }
        (offset, span)
    }
}
