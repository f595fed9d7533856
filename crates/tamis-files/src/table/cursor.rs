//! A bidirectional cursor over the entries of one table in version order.
//!
//! The cursor decodes an entry's location when it moves there, so accessing the entry afterwards
//! cannot fail. The value's bytes are not touched until requested. A cursor belongs to one thread
//! at a time.
//!
//! # Invariants
//! * Every step, and every seek that starts from an entry ([`pass`](TableCursor::pass),
//!   [`pass_before`](TableCursor::pass_before)), moves strictly in its direction or ends. So an
//!   iteration ends, whatever the bytes of the table.
//! * A cursor stops at the edge of a block only if its target, if there is one, is the first entry
//!   beyond that edge in its direction.

use std::sync::Arc;

use tamis_base::key::{Kind, MAX_SEQNO, SeqNo};
use tamis_env::io::Touch;

use super::block::{BlockShape, BlockView, Span};
use super::data::{BlockRef, HeapBlock, PinnedValue};
use super::frame::Damage;
use super::index::{BlockAt, Index};
use super::overlap::{Coming, ScanAhead};
use super::reader::Table;
use super::trace::{BlockSource, BlockTouch, ReadTrace, TouchCounts};
use crate::error::StorageError;

/// The minimum readahead, in bytes.
const MIN_READ_AHEAD: u64 = 256 << 10;

/// How a cursor reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorOptions {
    /// Whether blocks missing from the cache are inserted into it.
    pub fill_cache: bool,
    /// The bytes per read of an unmapped file, for cursors that traverse much of it in order. Such
    /// reads bypass the cache and take at least 256 KiB. 0: block by block through the cache.
    pub read_ahead: u64,
}

impl Default for CursorOptions {
    fn default() -> CursorOptions {
        CursorOptions { fill_cache: true, read_ahead: 0 }
    }
}

#[derive(Debug)]
enum Content {
    /// `start..start + len` of the table's mapping.
    Mapped(Span),
    Heap(HeapBlock),
}

#[derive(Debug)]
struct Loaded {
    at: BlockAt,
    content: Content,
    shape: BlockShape,
}

/// The location of the current entry within the loaded block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    index: usize,
    /// `None` if the key was assembled in the cursor's buffer.
    key: Option<Span>,
    /// The key as stored.
    record: Span,
    value: Span,
    seq: SeqNo,
    kind: Kind,
}

/// Where a cursor is in its table, ordered like the entries. The first number is the block's; the
/// second is the entry's, counted from 1, or the edge before the block's first entry (0) or after
/// its last (`usize::MAX`).
pub type EntryIndex = (usize, usize);

/// Reports whether `to` lies beyond `from` in this direction.
#[inline]
pub fn is_beyond<T: Ord>(from: T, to: T, backward: bool) -> bool {
    if backward { to < from } else { to > from }
}

/// Iterates over a table. Not valid before the first seek or after an error.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    options: CursorOptions,
    /// Fetched by the first seek.
    index: Option<Arc<Index>>,
    loaded: Option<Loaded>,
    /// The result of [`prepare`](TableCursor::prepare) for the next seek: the block, or that there
    /// is none.
    prepared: Option<Option<BlockAt>>,
    entry: Option<Entry>,
    /// The stored key record of the first entry in the current entry's group.
    group: Span,
    key: Vec<u8>,
    /// How many leading bytes of `key` are those of the group's first key.
    held: usize,
    /// The piece of the file that was read ahead, and its offset.
    ahead: Option<(u64, Arc<[u8]>)>,
    /// No key from this one on will be requested.
    end: Option<Vec<u8>>,
    /// Whether the cursor stops at the edge of a block; see [`defer`](TableCursor::defer).
    defers: bool,
    /// The block that it stopped short of, and whether it moves backwards.
    deferred: Option<(BlockAt, bool)>,
    /// Readahead for block-to-block iteration, if reads of the table may overlap, or its pages are
    /// better [announced](Table::announce_blocks).
    scan: Option<Box<ScanAhead>>,
    counts: TouchCounts,
    /// The block that was last prefetched as the expected next one.
    prefetched: usize,
}

impl Loaded {
    #[inline]
    fn bytes<'c>(&'c self, table: &'c Table) -> &'c [u8] {
        match &self.content {
            Content::Mapped(span) => table.mapped_bytes(*span),
            Content::Heap(block) => block,
        }
    }
}

impl TableCursor {
    /// Creates an unpositioned cursor, which touches no block before the first seek.
    pub fn new(table: Arc<Table>, options: CursorOptions) -> TableCursor {
        let scans = (table.overlap().is_some() || table.is_scarce()) && options.read_ahead == 0;
        TableCursor {
            scan: scans.then(Box::default),
            defers: false,
            deferred: None,
            table,
            options,
            index: None,
            loaded: None,
            prepared: None,
            entry: None,
            group: Span { start: 0, len: 0 },
            key: Vec::new(),
            held: 0,
            ahead: None,
            end: None,
            counts: TouchCounts::default(),
            prefetched: 0,
        }
    }

    /// Promises that no key before `start` or from `end` on will be requested, so that none is read
    /// ahead.
    #[inline]
    pub fn within(&mut self, start: &[u8], end: Option<&[u8]>) {
        if let Some(scan) = &mut self.scan {
            scan.within(start, end);
        }
        if self.options.read_ahead > 0 {
            self.end = end.map(<[u8]>::to_vec);
        }
    }

    /// Lets the cursor stop at the edge of a block, if blocks can be read together. It is then
    /// not valid, and [`resume`](Self::resume) moves it on. This avoids reading a block that nobody
    /// needs, and lets several be read together.
    #[inline]
    pub fn defer(&mut self) {
        self.defers = self.scan.is_some();
    }

    /// Returns the bound of what follows the edge at which the cursor stopped: forwards, no key is
    /// less; backwards, none is greater.
    #[inline]
    pub fn deferred_bound(&self) -> Option<Vec<u8>> {
        let (at, backward) = self.deferred?;
        let index = self.index.as_ref()?;
        Some(index.separator(if backward { at.index } else { at.index.checked_sub(1)? }))
    }

    /// If the cursor stopped at the edge of a block, moves it to the next entry in its direction.
    #[inline]
    pub fn resume(&mut self) -> Result<(), StorageError> {
        let Some((at, backward)) = self.deferred.take() else { return Ok(()) };
        self.enter_at(Some(at), |view| Ok(if backward { view.len() - 1 } else { 0 }))
    }

    /// Returns the blocks that the cursor will load next: from the block of a prepared seek on, or
    /// else from the next block in this direction. `None` if there are none, or if blocks
    /// are not read together.
    pub fn coming(&self, backward: bool) -> Option<Coming> {
        let scan = self.scan.as_ref()?;
        let index = self.index.as_ref()?;
        let loaded = self.loaded.as_ref().map(|loaded| loaded.at.index);
        let (next, sought) = match (self.prepared, self.deferred) {
            (Some(prepared), _) => (prepared?.index, true),
            (None, Some((at, _))) => (at.index, false),
            (None, None) if self.entry.is_none() => return None,
            (None, None) if backward => (loaded?.checked_sub(1)?, false),
            (None, None) => (loaded? + 1, false),
        };
        Coming::new((&self.table, index), scan, (next, sought, backward), loaded)
    }

    /// Accepts what was read of the coming blocks.
    #[inline]
    pub fn accept(&mut self, coming: Coming) {
        if let Some(scan) = &mut self.scan {
            scan.accept(coming);
        }
    }

    /// Adds the counts of reads that others made for this cursor.
    #[inline]
    pub fn add_counts(&mut self, counts: &TouchCounts) {
        self.counts.add(counts);
    }

    /// Returns what the cursor touched since the last call, and resets it.
    #[inline]
    pub fn take_counts(&mut self) -> TouchCounts {
        std::mem::take(&mut self.counts)
    }

    /// Reports whether the cursor is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.entry.is_some()
    }

    /// Returns the index, which the first call fetches.
    #[inline]
    fn index(&mut self) -> Result<&Index, StorageError> {
        if self.index.is_none() {
            self.index = Some(self.table.shared_index(&mut self.counts)?);
        }
        Ok(self.index.as_deref().expect("just fetched"))
    }

    /// Searches the index for the first block that may hold `key`.
    #[inline]
    fn find(&mut self, key: &[u8]) -> Result<Option<BlockAt>, StorageError> {
        self.counts.index_searched();
        let index = self.index()?;
        Ok(index.find(key).and_then(|i| index.block(i)))
    }

    /// Moves to the first entry.
    #[inline]
    pub fn seek_to_first(&mut self) -> Result<(), StorageError> {
        self.leave();
        let first = self.index()?.block(0);
        self.enter_at(first, |_| Ok(0))
    }

    /// Moves to the last entry.
    #[inline]
    pub fn seek_to_last(&mut self) -> Result<(), StorageError> {
        self.leave();
        self.prepared = None;
        let last = self.index()?.last_block();
        self.enter_at(last, |view| Ok(view.len() - 1))
    }

    /// Leaves the current entry, or the edge at which the cursor stopped.
    #[inline]
    fn leave(&mut self) {
        (self.entry, self.deferred) = (None, None);
    }

    /// Performs the first half of a [`seek`](Self::seek) to `key`, which must be the next call.
    /// Searches the index and prefetches the block, so that the cache misses or reads of several
    /// cursors overlap.
    pub fn prepare(&mut self, key: &[u8]) -> Result<(), StorageError> {
        let is_behind = self.entry.is_some() && *self.key() < *key;
        self.leave();
        // A short move forwards often ends in the same block.
        if let Some(at) = self.loaded.as_ref().filter(|_| is_behind).map(|loaded| loaded.at)
            && self.index()?.ends_behind(at.index, key)
        {
            self.prepared = Some(Some(at));
            return Ok(());
        }
        let at = self.find(key)?;
        if let Some(at) = at {
            self.table.prefetch_block(at);
        }
        self.prepared = Some(at);
        Ok(())
    }

    /// Forgets a prepared seek.
    #[inline]
    pub fn unprepare(&mut self) {
        self.prepared = None;
    }

    /// Like [`prepare`](Self::prepare), for a [`seek_before`](Self::seek_before), or without a key
    /// for [`seek_to_last`](Self::seek_to_last).
    pub fn prepare_before(&mut self, key: Option<&[u8]>) -> Result<(), StorageError> {
        self.leave();
        let found = match key {
            None => None,
            Some(key) => self.find(key)?,
        };
        let at = match found {
            None => self.index()?.last_block(),
            found => found,
        };
        if let Some(at) = at {
            self.table.prefetch_block(at);
        }
        self.prepared = Some(at);
        Ok(())
    }

    /// Moves to the first entry at or after (`key`, `seq`) in version order. With [`MAX_SEQNO`],
    /// this is the newest version of the first key that is not less than `key`.
    pub fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<(), StorageError> {
        self.leave();
        let at = match self.prepared.take() {
            Some(at) => at,
            None => self.find(key)?,
        };
        self.seek_from(at, key, seq)
    }

    /// Moves forward from an entry to the first one at or after (`key`, `seq`), which must come
    /// after the entry; `key` must not be less than the entry's.
    pub fn pass(&mut self, key: &[u8], seq: SeqNo) -> Result<(), StorageError> {
        let from = self.place();
        let at = self.loaded.as_ref().map(|loaded| loaded.at);
        self.leave();
        self.seek_from(at, key, seq)?;
        self.check_passed(from, false)
    }

    /// Moves back from an entry to the last one whose user key is less than `key`, which must not
    /// be greater than the entry's.
    #[inline]
    pub fn pass_before(&mut self, key: &[u8]) -> Result<(), StorageError> {
        let from = self.place();
        self.seek_before(key)?;
        self.check_passed(from, true)
    }

    /// Returns an error if the cursor is not beyond `from`: keys then contradict each other or the
    /// index.
    fn check_passed(&mut self, from: Option<EntryIndex>, backward: bool) -> Result<(), StorageError> {
        if let (Some(from), Some(to)) = (from, self.place())
            && !is_beyond(from, to, backward)
        {
            self.leave();
            return Err(self.damaged("versions out of order"));
        }
        Ok(())
    }

    /// Returns where the cursor is, to compare with other places of the table.
    pub fn place(&self) -> Option<EntryIndex> {
        match (self.deferred, &self.entry, &self.loaded) {
            (Some((at, true)), ..) => Some((at.index, usize::MAX)),
            (Some((at, false)), ..) => Some((at.index, 0)),
            (None, Some(entry), Some(loaded)) => Some((loaded.at.index, entry.index + 1)),
            _ => None,
        }
    }

    /// Moves to the first entry at or after (`key`, `seq`) in block `at` or behind it; nothing
    /// before that block is at or after it.
    fn seek_from(&mut self, mut at: Option<BlockAt>, key: &[u8], seq: SeqNo) -> Result<(), StorageError> {
        while let Some(block) = at {
            let (len, first_not_before) = self.search_block(block, key, seq)?;
            if first_not_before < len {
                self.enter(first_not_before)?;
                break;
            }
            // All entries are before. Either the key lies between the block's last key and its
            // separator, or its newer versions end the block and may fill many more.
            if self.defers && !self.ends_with(key)? {
                self.deferred = self.index()?.block(block.index + 1).map(|next| (next, false));
                break;
            }
            at = self.following_with(block, key, seq)?;
        }
        // The entry was found by its stored sequence number, which may be smaller than the
        // effective one.
        while seq < self.table.global_seq() && self.valid() && self.key() == key {
            self.next()?;
            self.resume()?;
        }
        Ok(())
    }

    /// Reports whether the last entry of the loaded block is a version of `key`.
    fn ends_with(&self, key: &[u8]) -> Result<bool, StorageError> {
        let view = self.view().expect("just loaded");
        view.key_equals(view.len() - 1, key).map_err(|damage| self.damaged(damage.0))
    }

    /// Returns the block in which to continue a search for (`key`, `seq`) that found everything in
    /// `block` to be before.
    fn following_with(
        &mut self,
        block: BlockAt,
        key: &[u8],
        seq: SeqNo,
    ) -> Result<Option<BlockAt>, StorageError> {
        let (mut low, mut high) = (block.index + 1, self.index()?.behind_all_of(block.index, key));
        // Find the first block whose last entry is not before, or else the block after all those
        // that may end with a version of `key`.
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(at) = self.index()?.block(middle) else { break };
            let (len, first_not_before) = self.search_block(at, key, seq)?;
            if first_not_before < len {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(self.index()?.block(low))
    }

    /// Moves to the last entry whose user key is less than `key`: the oldest version of the
    /// greatest such key.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<(), StorageError> {
        if self.prepared.is_none() {
            self.prepare_before(Some(key))?;
        }
        self.leave();
        let Some(at) = self.prepared.take().flatten() else { return Ok(()) };
        let (_, first_not_before) = self.search_block(at, key, MAX_SEQNO)?;
        match first_not_before.checked_sub(1) {
            Some(i) => self.enter(i),
            None => {
                let index = self.index()?;
                let before = at.index.checked_sub(1).and_then(|i| index.block(i));
                self.cross(before, true)
            }
        }
    }

    /// Crosses the edge of a block to the next one in this direction, or stops there.
    fn cross(&mut self, to: Option<BlockAt>, backward: bool) -> Result<(), StorageError> {
        debug_assert!(
            to.zip(self.loaded.as_ref()).is_none_or(|(to, from)| is_beyond(
                from.at.index,
                to.index,
                backward
            )),
            "a step over the edge of a block leads on"
        );
        self.deferred = to.map(|to| (to, backward));
        if self.defers { Ok(()) } else { self.resume() }
    }

    /// Loads the block and returns its length and the lower bound of (`key`, `seq`) in it.
    fn search_block(&mut self, at: BlockAt, key: &[u8], seq: SeqNo) -> Result<(usize, usize), StorageError> {
        self.load(at)?;
        let view = self.view().expect("just loaded");
        view.lower_bound(key, seq)
            .map(|i| (view.len(), i))
            .map_err(|damage| self.table.damaged(at.offset, damage))
    }

    /// Moves to the next entry; past the last, the cursor is not valid. Does nothing on an invalid
    /// cursor.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it moves, and may fail")]
    pub fn next(&mut self) -> Result<(), StorageError> {
        let (Some(entry), Some(loaded)) = (&self.entry, &self.loaded) else { return Ok(()) };
        let (i, at) = (entry.index + 1, loaded.at);
        if i < loaded.shape.len() {
            // An iteration that moves once usually continues. The next block's cache lines arrive
            // while this block's entries are visited.
            if self.prefetched != at.index + 1 {
                self.prefetched = at.index + 1;
                if let Some(following) = self.index.as_ref().and_then(|index| index.block(at.index + 1)) {
                    self.table.prefetch_block(following);
                }
            }
            return self.step();
        }
        self.entry = None;
        let following = self.index()?.block(at.index + 1);
        self.cross(following, false)
    }

    /// Moves to the previous entry; before the first, the cursor is not valid. Does nothing on an
    /// invalid cursor.
    #[inline]
    pub fn prev(&mut self) -> Result<(), StorageError> {
        let (Some(entry), Some(loaded)) = (&self.entry, &self.loaded) else { return Ok(()) };
        let at = loaded.at;
        if entry.index > 0 {
            // As forwards, an iteration that moves once usually continues.
            if self.prefetched != at.index.wrapping_sub(1) {
                self.prefetched = at.index.wrapping_sub(1);
                if let Some(preceding) = self.index.as_ref().and_then(|index| index.block(self.prefetched)) {
                    self.table.prefetch_block(preceding);
                }
            }
            return self.step_back();
        }
        self.entry = None;
        let Some(before) = at.index.checked_sub(1) else { return Ok(()) };
        let before = self.index()?.block(before);
        self.cross(before, true)
    }

    fn enter_at(
        &mut self,
        at: Option<BlockAt>,
        place: impl FnOnce(BlockView<'_>) -> Result<usize, Damage>,
    ) -> Result<(), StorageError> {
        let Some(at) = at else { return Ok(()) };
        self.load(at)?;
        let view = self.view().expect("just loaded");
        let i = place(view).map_err(|damage| self.table.damaged(at.offset, damage))?;
        self.enter(i)
    }

    /// Makes `at` the loaded block.
    fn load(&mut self, at: BlockAt) -> Result<(), StorageError> {
        if self.loaded.as_ref().is_some_and(|loaded| loaded.at == at) {
            return Ok(());
        }
        self.loaded = None;
        let block = if self.options.read_ahead > 0 && !self.table.is_mapped() {
            BlockRef::Heap(self.block_ahead(at)?)
        } else if self.scan.is_some() && !self.table.is_mapped() {
            BlockRef::Heap(self.block_scanned(at)?)
        } else {
            let touch = match &self.scan {
                Some(scan) if scan.holds(at) => Touch::Later,
                // Who lets the cursor stop at the edges of blocks knows what it will need.
                _ if self.defers => Touch::Alone,
                _ => Touch::Next,
            };
            self.table.block(at, self.options.fill_cache, touch, &mut self.counts)?
        };
        let shape = BlockShape::parse(&block).map_err(|damage| self.table.damaged(at.offset, damage))?;
        let content = match block {
            BlockRef::Mapped { bytes, start } => Content::Mapped(Span { start, len: bytes.len() }),
            BlockRef::Heap(block) => Content::Heap(block),
        };
        self.loaded = Some(Loaded { at, content, shape });
        Ok(())
    }

    /// Returns a block from the readahead, or else loads it.
    fn block_scanned(&mut self, at: BlockAt) -> Result<HeapBlock, StorageError> {
        self.index()?;
        let (Some(scan), Some(index)) = (&mut self.scan, &self.index) else { unreachable!("asked before") };
        let (table, counts, fill_cache) = (&*self.table, &mut self.counts, self.options.fill_cache);
        match scan.block(table, index, at, fill_cache, counts)? {
            Some(block) => Ok(block),
            None => match table.block(at, fill_cache, Touch::Next, counts)? {
                BlockRef::Heap(block) => Ok(block),
                BlockRef::Mapped { .. } => unreachable!("reads of a mapped table do not overlap"),
            },
        }
    }

    /// Returns a block from the piece read ahead, reading the next piece if necessary.
    fn block_ahead(&mut self, at: BlockAt) -> Result<HeapBlock, StorageError> {
        let holds = |(offset, piece): &(u64, Arc<[u8]>)| {
            at.offset >= *offset && at.offset + at.span <= offset + piece.len() as u64
        };
        let mut source = BlockSource::ReadAhead;
        if !self.ahead.as_ref().is_some_and(holds) {
            let wanted = self.options.read_ahead.max(MIN_READ_AHEAD).max(at.span);
            let backward = self.ahead.as_ref().is_some_and(|(offset, _)| at.offset < *offset);
            let start = if backward { (at.offset + at.span).saturating_sub(wanted) } else { at.offset };
            // A seek may have to look at a block beyond the promised end.
            let span = wanted.min(self.end_of_data()?.saturating_sub(start)).max(at.offset + at.span - start);
            self.ahead = None;
            self.ahead = Some((start, self.table.read_piece(start, span)?));
            source = BlockSource::File { read_bytes: span };
        }
        let (offset, piece) = self.ahead.as_ref().expect("just read");
        self.counts.block_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
        self.table.block_of_piece(piece, (at.offset - offset) as usize, at, &mut self.counts)
    }

    /// Returns the file offset at which the blocks that may be requested end.
    fn end_of_data(&mut self) -> Result<u64, StorageError> {
        let all = self.table.footer().data_span;
        let Some(end) = self.end.clone() else { return Ok(all) };
        Ok(self.find(&end)?.map_or(all, |last| last.offset + last.span))
    }

    /// The bytes of the loaded block.
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.loaded.as_ref().map_or(&[], |loaded| loaded.bytes(&self.table))
    }

    #[inline]
    fn view(&self) -> Option<BlockView<'_>> {
        self.loaded.as_ref().map(|loaded| BlockView::with_shape(self.bytes(), loaded.shape))
    }

    /// Makes entry `i` of the loaded block the current one.
    #[inline]
    fn enter(&mut self, i: usize) -> Result<(), StorageError> {
        self.entry = None;
        let mut key = std::mem::take(&mut self.key);
        let mut held = 0;
        let entry = self.view().ok_or(Damage("no block is loaded")).and_then(|view| {
            let (record, group) = (view.key_record(i)?, view.group_record(i)?);
            let whole = view.key_of(record, group, &mut key, &mut held)?;
            let (value, kind) = (view.value_span(i)?, view.kind(i)?);
            let seq = view.seq(i)?.max(self.table.global_seq());
            Ok((Entry { index: i, key: whole, record, value, seq, kind }, group))
        });
        (self.key, self.held) = (key, held);
        match entry {
            Ok((entry, group)) => {
                (self.entry, self.group) = (Some(entry), group);
                Ok(())
            }
            Err(damage) => Err(self.damaged(damage.0)),
        }
    }

    /// Makes the following entry of the loaded block the current one.
    #[inline]
    fn step(&mut self) -> Result<(), StorageError> {
        self.step_to(|view, from| {
            let (i, ends) = (from.index + 1, [from.record, from.value].map(|span| span.start + span.len));
            let (record, value) = view.following(i, ends[0], ends[1])?;
            Ok((i, record, value, view.begins_group(i).then_some(record)))
        })
    }

    /// Makes the preceding entry of the loaded block the current one.
    #[inline]
    fn step_back(&mut self) -> Result<(), StorageError> {
        self.step_to(|view, from| {
            let i = from.index - 1;
            let (record, value) = view.preceding(i, from.record.start, from.value.start)?;
            let group = view.begins_group(from.index).then(|| view.group_record(i)).transpose()?;
            Ok((i, record, value, group))
        })
    }

    /// Makes a neighbour of the current entry the current one, reusing what was already decoded.
    /// `locate` returns the neighbour's number, key record and value, and its group's first record
    /// if it is in another group.
    #[inline]
    fn step_to(
        &mut self,
        locate: impl FnOnce(BlockView<'_>, &Entry) -> Result<(usize, Span, Span, Option<Span>), Damage>,
    ) -> Result<(), StorageError> {
        let (Some(loaded), Some(entry)) = (&self.loaded, &mut self.entry) else { return Ok(()) };
        let view = BlockView::with_shape(loaded.bytes(&self.table), loaded.shape);
        let stepped = locate(view, entry).and_then(|(index, record, value, group)| {
            if let Some(group) = group {
                (self.group, self.held) = (group, 0);
            }
            let key = view.key_of(record, self.group, &mut self.key, &mut self.held)?;
            let seq = view.seq(index)?.max(self.table.global_seq());
            debug_assert_eq!(index.abs_diff(entry.index), 1, "a step within a block leads to a neighbour");
            *entry = Entry { index, key, record, value, seq, kind: view.kind(index)? };
            Ok(())
        });
        stepped.map_err(|damage| {
            self.entry = None;
            self.damaged(damage.0)
        })
    }

    /// Reports whether the preceding entry is in the same block and has another key.
    #[inline]
    pub fn begins_key(&self) -> bool {
        let (Some(entry), Some(view)) = (&self.entry, self.view()) else { return false };
        view.differs_from_preceding(entry.index, entry.record)
            || (entry.index > 0 && view.key_equals(entry.index - 1, self.key()) == Ok(false))
    }

    #[inline]
    fn current(&self) -> &Entry {
        self.entry.as_ref().expect("the cursor is at an entry")
    }

    /// The current entry's user key. Panics if the cursor is not valid, as do the accessors below.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.current().key {
            Some(span) => &self.bytes()[span.start..span.start + span.len],
            None => &self.key,
        }
    }

    /// Returns the error for damage at the current entry.
    #[cold]
    pub fn damaged(&self, what: &'static str) -> StorageError {
        let offset = self.loaded.as_ref().map_or(0, |loaded| loaded.at.offset);
        self.table.damaged(offset, Damage(what))
    }

    /// The current entry's sequence number.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.current().seq
    }

    /// The current entry's kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.current().kind
    }

    /// The current entry's value; empty in a delete.
    #[inline]
    pub fn value(&self) -> &[u8] {
        let span = self.current().value;
        &self.bytes()[span.start..span.start + span.len]
    }

    /// The current entry's user key, sequence number, kind and value.
    #[inline]
    pub fn version(&self) -> (&[u8], SeqNo, Kind, &[u8]) {
        let (&Entry { key, value, seq, kind, .. }, bytes) = (self.current(), self.bytes());
        let at = |span: Span| &bytes[span.start..span.start + span.len];
        (key.map_or(&self.key[..], at), seq, kind, at(value))
    }

    /// The current entry's user key, sequence number and kind.
    #[inline]
    pub fn head(&self) -> (&[u8], SeqNo, Kind) {
        let entry = self.current();
        let key = entry.key.map_or(&self.key[..], |span| &self.bytes()[span.start..span.start + span.len]);
        (key, entry.seq, entry.kind)
    }

    /// The current entry's value, pinned without a copy. [`BlockData`](super::data::BlockData)
    /// documents what it keeps alive.
    #[inline]
    pub fn pinned_value(&self) -> PinnedValue {
        self.pin(self.current().value)
    }

    /// The current entry's key, pinned without a copy, if it is contiguous in its block.
    #[inline]
    pub fn pinned_key(&self) -> Option<PinnedValue> {
        self.current().key.map(|span| self.pin(span))
    }

    #[inline]
    fn pin(&self, span: Span) -> PinnedValue {
        match self.loaded.as_ref().map(|loaded| &loaded.content) {
            Some(Content::Mapped(block)) => {
                self.table.pin_mapped(Span { start: block.start + span.start, len: span.len })
            }
            Some(Content::Heap(block)) => PinnedValue::Heap {
                bytes: Arc::clone(&block.bytes),
                start: block.start + span.start,
                len: span.len,
            },
            None => unreachable!("an entry has a block"),
        }
    }
}
