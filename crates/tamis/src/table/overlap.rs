//! Blocks of one or several tables read together, so that their waiting times overlap.
//!
//! # Invariant
//!
//! A block that comes from here is verified and in the cache, just as one that [`Table::block`] read; whoever asked
//! holds it by reference, so that it is not read again when the cache is too small to keep it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::data::HeapBlock;
use super::frame::TRAILER_BYTES;
use super::index::{BlockAt, Index};
use super::reader::Table;
use super::trace::{BlockSource, BlockTouch, ReadTrace, TouchCounts};
use crate::error::StorageError;
use crate::io::batch::{BatchReader, Stretch};
use crate::table::cache::CacheEntry;

/// A block that is asked for, and then the block.
#[derive(Debug)]
pub(crate) struct Fetch<'t> {
    /// The table.
    pub(crate) table: &'t Table,
    /// Where in the table.
    pub(crate) at: BlockAt,
    /// The block, and where it came from as the next touch of it is to tell.
    pub(crate) got: Option<(HeapBlock, BlockSource)>,
}

impl<'t> Fetch<'t> {
    /// Asks for a block, which must be of a table that is not mapped.
    pub(crate) fn new(table: &'t Table, at: BlockAt) -> Fetch<'t> {
        debug_assert!(!table.is_mapped());
        Fetch { table, at, got: None }
    }

    /// The block for one touch of it. After the first of a block that was read, it is one that was at hand.
    pub(crate) fn take(&mut self) -> Option<(HeapBlock, BlockSource)> {
        let (block, source) = self.got.as_mut()?;
        Some((block.clone(), std::mem::replace(source, BlockSource::Cache)))
    }
}

/// Fetches all the blocks, no two of them the same: from the cache, and the others in batches from their files. Reads
/// and misses are added to `counts`; touches are left to who touches. Blocks that cannot be read or are damaged: the
/// first of them is the error, and the others are in the cache.
///
/// A batch holds the files open that it reads. So it has no more blocks than are read at a time, and fewer where no more files can be
/// opened.
pub(crate) fn fetch(
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
                // There may be descriptors when those are read which it has.
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
            let block = read.map_err(|e| StorageError::io("read", table.path(), &e)).and_then(|stored| {
                counts.checksums += 1;
                table.block_of_stored(stored, *at)
            });
            match block {
                Ok(block) => {
                    if let Some(cache) = table.cache() {
                        cache.insert(table.cache_key(*at), CacheEntry::Block(block.clone()));
                    }
                    // Read and counted just now, apart from the touch.
                    *got = Some((block, BlockSource::ReadAhead));
                }
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        rest = later;
    }
    failed.map_or(Ok(()), Err)
}

/// The most bytes that a scan reads ahead in one table.
const MOST_BYTES: u64 = 1 << 20;

/// So many steps from a block to its neighbour, and a cursor scans: the second block of two that are neighbours is read
/// with the one behind it, which costs little more than to read it alone.
const SCANNING: u32 = 1;

/// What a cursor over a table that is not mapped reads ahead, once it goes from block to block.
///
/// The blocks that follow lie one behind the other in the file, so one transfer brings them, which is cheaper than one
/// for each: 2 blocks at first, then 4, 8 and so on up to the queue depth, and no more than 1 MiB. Blocks that the cache
/// has are not read: the stretch ends before them. It ends at the bounds of the iteration, too. Each block is verified
/// and goes into the cache when the cursor comes to it. A cursor that moves elsewhere drops what it read ahead and
/// begins anew.
///
/// Memory: one stretch for each open table of an iterator. Belongs to its cursor, and like it to one thread at a time.
#[derive(Debug, Default)]
pub(super) struct ScanAhead {
    /// The block that was asked for last.
    last: Option<usize>,
    /// Steps from block to block in this direction.
    steps: u32,
    backward: bool,
    /// Blocks that the last stretch was to have.
    window: usize,
    /// A stretch of the file and its offset.
    piece: Option<(u64, Arc<[u8]>)>,
    /// Nothing before the one key or from the other on is asked for.
    bounds: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl ScanAhead {
    /// Promises that nothing before `start` or from `end` on will be asked for.
    pub(super) fn within(&mut self, start: &[u8], end: Option<&[u8]>) {
        self.bounds = Some((start.to_vec(), end.map(<[u8]>::to_vec)));
    }

    /// Notes that the cursor goes to a block. Whether it goes from block to block.
    fn step(&mut self, to: usize) -> bool {
        let last = self.last.replace(to);
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

    /// Notes that the cursor has a block that was fetched for it.
    pub(super) fn jump(&mut self, to: BlockAt) {
        self.step(to.index);
    }

    /// The block, if it is to be read ahead or was; `None` leaves it to [`Table::block`]. `fill_cache`: whether it goes
    /// into the cache if it is read.
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
            // Values that are pinned, and the cache, are to keep this block and not the whole stretch.
            block = HeapBlock { bytes: Arc::from(&block[..]), start: 0, len: block.len };
        }
        if fill_cache && let Some(cache) = table.cache() {
            cache.insert(table.cache_key(at), CacheEntry::Block(block.clone()));
        }
        Ok(Some(block))
    }

    /// Whether the stretch that was read has the block.
    fn holds(&self, at: BlockAt) -> bool {
        self.piece.as_ref().is_some_and(|(offset, piece)| {
            at.offset >= *offset && at.offset + at.span <= offset + piece.len() as u64
        })
    }

    /// What to read for this block and for those that follow it: offset and bytes.
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
            let cached = || table.cache().is_some_and(|cache| cache.contains(table.cache_key(block)));
            if span + block.span > MOST_BYTES || cached() {
                break;
            }
            offset = offset.min(block.offset);
            span += block.span;
            last = next;
        }
        (offset, span)
    }
}
