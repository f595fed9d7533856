//! Point lookups: search memtables, then runs, newest first, until one has the answer.
//!
//! Every version found, wherever it is stored, is an [`Entry`] and goes through
//! [`KeyLookup::take`]. A put or a delete ends the lookup. A merge operand is kept, and the search
//! continues in the next older place.

use std::ops::Range;

use smallvec::SmallVec;
use tamis_base::key::{Entry, Kind, SeqNo};
use tamis_files::table::{BlockAt, BlockSource, Fetch, HeapBlock, ReadTrace, TouchCounts, fetch};
use tamis_filter::Digest;
use tamis_policy::hotness::BlockRead;

use crate::error::ReadError;
use crate::io::batch::BatchReader;
use crate::observe::cost::ReadCost;
use crate::read::operands::{BaseValue, Operands, Order};
use crate::read::{CountedGet, MemtableSlot, ReadAt};
use crate::records::{KeyspaceRecords, Sight};
use crate::select::{Candidate, Candidates, LeanKey, Probe, next_step};
use crate::slice::Slice;
use crate::tree::version::Version;

/// The result of a point lookup.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    /// The newest visible version is a value, or operands merged into one.
    Found { seq: SeqNo, value: Slice },
    /// The newest visible version is a value in a blob file; `reference` locates it for the
    /// version's table number `table`. Never leaves the read path: the value is read first.
    Separated { seq: SeqNo, table: usize, reference: Slice },
    /// The newest visible version is a delete.
    Deleted { seq: SeqNo },
    /// A range tombstone is newer than every visible version.
    DeletedByRange { seq: SeqNo },
    /// No visible version.
    Absent,
}

impl Lookup {
    pub(crate) fn value(self) -> Option<Slice> {
        match self {
            Lookup::Found { value, .. } => Some(value),
            Lookup::Separated { .. } => unreachable!("its value was not read"),
            _ => None,
        }
    }
}

/// Observes a lookup. [`ReadCost`] only counts; `explain` records each step as well.
pub(crate) trait Recorder: ReadTrace {
    /// Whether to search each run before probing the next. A global filter answers for all runs at
    /// once and is probed only once either way.
    const ONE_BY_ONE: bool;

    fn cost(&mut self) -> &mut ReadCost;
    fn hashed(&mut self, _digest: Option<Digest>) {}
    fn cached(&mut self, _found: bool) {}
    fn memtable(&mut self, _slot: &MemtableSlot, _active: bool, _filter: FilterAnswer, _found: bool) {}
    fn selected(&mut self, _version: &Version, _probe: &Probe<'_>, _runs: Range<usize>, _out: &Candidates) {}
    fn searched(&mut self, _candidate: Candidate, _found: bool) {}
}

impl Recorder for ReadCost {
    const ONE_BY_ONE: bool = false;

    #[inline]
    fn cost(&mut self) -> &mut ReadCost {
        self
    }
}

impl Recorder for CountedGet {
    const ONE_BY_ONE: bool = false;

    #[inline]
    fn cost(&mut self) -> &mut ReadCost {
        &mut self.cost
    }

    #[inline]
    fn hashed(&mut self, digest: Option<Digest>) {
        self.digest = digest;
    }
}

/// Where the search of a table begins.
#[derive(Debug)]
pub(super) enum TableStart {
    /// At the table's index.
    Index,
    /// In this block, named by the index.
    Block(BlockAt),
    /// In this block, already fetched.
    Fetched(BlockAt, HeapBlock, BlockSource),
    /// Nowhere: the table ends before the key.
    Nowhere,
}

/// Where the searches of several tables begin, last table first.
type Starts = SmallVec<[TableStart; 4]>;

/// Fetches the candidates' blocks, up to the depth of `reads`. A failed read is left to the search
/// of its table, which reports the error if the lookup gets that far.
fn fetch_candidates<R: Recorder>(
    at: &ReadAt<'_>,
    key: &[u8],
    candidates: &[Candidate],
    reads: &BatchReader,
    recorder: &mut R,
) -> Starts {
    let candidates = &candidates[..candidates.len().min(reads.depth())];
    let mut starts = Starts::new();
    let mut fetches: SmallVec<[Fetch<'_>; 4]> = SmallVec::new();
    for candidate in candidates.iter().rev() {
        let table = &at.view.version.tables[candidate.table].table;
        starts.push(match table.locate(key, recorder) {
            Ok(Some(block)) => {
                fetches.push(Fetch::new(table, block));
                TableStart::Block(block)
            }
            Ok(None) => TableStart::Nowhere,
            Err(_) => TableStart::Index,
        });
    }
    let mut counts = TouchCounts::default();
    let _ = fetch(reads, &mut fetches, &mut counts);
    recorder.cost().add_touched(&counts);
    let waiting = starts.iter_mut().filter(|start| matches!(start, TableStart::Block(_)));
    for (start, mut fetch) in waiting.zip(fetches) {
        if let Some((block, source)) = fetch.take() {
            *start = TableStart::Fetched(fetch.at, block, source);
        }
    }
    starts
}

/// Where a version was found. Older versions of the key may follow it there.
enum FoundIn<'v> {
    Memtable(&'v MemtableSlot),
    /// A table's number within the version.
    Table(usize),
}

/// Returns the result for a value in a blob file, or in a log.
#[cold]
fn separated<R: Recorder>(
    seq: SeqNo,
    reference: Slice,
    place: &FoundIn<'_>,
    recorder: &mut R,
) -> Result<Lookup, ReadError> {
    Ok(match *place {
        FoundIn::Table(table) => Lookup::Separated { seq, table, reference },
        FoundIn::Memtable(slot) => {
            let value = slot.memtable.read_logged(&reference, recorder)?;
            Lookup::Found { seq, value: Slice::from_block(value) }
        }
    })
}

/// The lookup of one key on its way through memtables and runs. No result yet, except merge
/// operands.
#[derive(Debug)]
pub(super) struct KeyLookup<'k> {
    pub(super) probe: Probe<'k>,
    /// See [`ReadAt::cover`].
    cover: SeqNo,
    operands: Operands,
    /// The newest operand's sequence number.
    newest_operand: SeqNo,
}

impl<'k> KeyLookup<'k> {
    /// Computes the key's digest, unless digests are not shared.
    #[inline]
    pub(super) fn new<R: Recorder>(at: &ReadAt<'_>, key: &'k [u8], recorder: &mut R) -> KeyLookup<'k> {
        let digest = at.sharing().then(|| {
            recorder.cost().digests += 1;
            Digest::of(key)
        });
        recorder.hashed(digest);
        KeyLookup::of(Probe::new(key, digest), at.cover(key))
    }

    /// Returns a lookup for a key with a known digest and cover.
    #[inline]
    pub(super) fn with_digest(key: &LeanKey<'k>, cover: SeqNo) -> KeyLookup<'k> {
        KeyLookup::of(Probe::of(key), cover)
    }

    // Constructors return the expression itself: a sampled get's record has some hundred bytes, and
    // a variable would cost a copy.
    #[inline(always)]
    fn of(probe: Probe<'k>, cover: SeqNo) -> KeyLookup<'k> {
        KeyLookup { probe, cover, operands: Operands::new(Order::NewestFirst), newest_operand: 0 }
    }

    #[inline]
    pub(super) fn has_operands(&self) -> bool {
        !self.operands.is_empty()
    }

    /// Searches the memtables, newest first, until one has the answer.
    #[inline]
    pub(super) fn search_memtables<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        for (i, slot) in at.view.memtables.iter().enumerate() {
            if let Some(entry) = self.search_memtable(slot, i == 0, at.seq, recorder)
                && let Some(answer) = self.take(at, entry, FoundIn::Memtable(slot), recorder)?
            {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    #[inline]
    fn search_memtable<R: Recorder>(
        &mut self,
        slot: &MemtableSlot,
        active: bool,
        snapshot: SeqNo,
        recorder: &mut R,
    ) -> Option<Entry<Slice>> {
        let (memtable, probe) = (&slot.memtable, &mut self.probe);
        if memtable.is_empty() {
            return None;
        }
        recorder.cost().memtable_probes += 1;
        if !memtable.may_contain(probe.digest_for_filter(recorder.cost())) {
            debug_assert!(
                memtable.get(probe.key, snapshot).is_none(),
                "a memtable filter denies {:?}",
                probe.key
            );
            recorder.memtable(slot, active, FilterAnswer::No, false);
            return None;
        }
        let found = memtable.get_pinned(probe.key, snapshot);
        recorder.memtable(slot, active, FilterAnswer::Maybe, found.is_some());
        found.map(|Entry { seq, kind, value }| Entry { seq, kind, value: Slice::from_memtable(value) })
    }

    /// Probes the runs' filters, newest first, and searches the runs that may hold the key, until
    /// one has the answer.
    pub(super) fn search_runs<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        let (version, selector) = (&*at.view.version, &*at.view.selector);
        if self.cover > 0 && self.cover > version.max_seq {
            // The cover is newer than every run.
            return self.nothing_left(at, recorder);
        }
        let one_by_one = R::ONE_BY_ONE || !self.probe.sharing();
        let global = selector.is_global();
        let mut candidates = Candidates::new();
        let mut first = 0;
        while first < version.runs.len() {
            let runs = match version.runs.len() {
                count if global => 0..count,
                count => next_step(first, count, one_by_one),
            };
            first = runs.end;
            candidates.clear();
            selector.select(version, &mut self.probe, runs.clone(), &mut candidates, recorder.cost());
            recorder.selected(version, &self.probe, runs, &candidates);
            let reads = match &candidates[..] {
                [first, _, ..] if !R::ONE_BY_ONE => version.tables[first.table].table.overlap(),
                _ => None,
            };
            let answer = match reads {
                Some(reads) => self.search_together(at, &candidates, reads, recorder)?,
                None => self.search_candidates(at, &candidates, None, recorder)?,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        self.nothing_left(at, recorder)
    }

    /// Searches several candidate tables in order until one has the answer. Once a table waits for
    /// a block, the blocks of all following candidates are read with it, unless the first candidate
    /// mostly has the answer.
    #[cold]
    fn search_together<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        candidates: &[Candidate],
        reads: &BatchReader,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        let habits = &*at.view.habits;
        let together = habits.reads_candidates_together();
        let mut starts = Starts::new();
        for (i, &candidate) in candidates.iter().enumerate() {
            if starts.is_empty() {
                let table = &at.view.version.tables[candidate.table].table;
                match table.locate(self.probe.key, recorder)? {
                    None => starts.push(TableStart::Nowhere),
                    Some(block) if together && !table.is_cached(block) => {
                        starts = fetch_candidates(at, self.probe.key, &candidates[i..], reads, recorder);
                    }
                    Some(block) => starts.push(TableStart::Block(block)),
                }
            }
            let start = starts.pop().unwrap_or(TableStart::Index);
            let answer = self.search_table(at, candidate, start, recorder)?;
            if i == 0 {
                habits.got(answer.is_some());
            }
            if answer.is_some() {
                return Ok(answer);
            }
        }
        Ok(None)
    }

    /// Searches candidate tables in order until one has the answer. Starts the first one at
    /// `block`, if known.
    #[inline(always)]
    pub(super) fn search_candidates<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        candidates: &[Candidate],
        mut block: Option<BlockAt>,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        for &candidate in candidates {
            let start = block.take().map_or(TableStart::Index, TableStart::Block);
            if let Some(answer) = self.search_table(at, candidate, start, recorder)? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Searches a table that may hold the key. Returns the answer if final.
    #[inline(always)]
    pub(super) fn search_table<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        candidate: Candidate,
        start: TableStart,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        if self.cover > 0 && self.cover > at.view.version.tables[candidate.table].meta.max_seq {
            // The cover is newer than the whole table.
            return Ok(None);
        }
        recorder.cost().runs_searched += 1;
        let digest = Some(self.probe.digest_for_block(recorder.cost()));
        let (table, key) = (&at.view.version.tables[candidate.table], self.probe.key);
        let hits = recorder.cost().cache_hits;
        let found = match start {
            TableStart::Index => table.table.get(key, digest, at.seq, recorder)?,
            TableStart::Block(block) => table.table.get_in_block(block, key, digest, at.seq, recorder)?,
            TableStart::Fetched(block, bytes, source) => {
                table.table.get_in_fetched((block, bytes, source), key, digest, at.seq, recorder)?
            }
            TableStart::Nowhere => None,
        };
        if candidate.filtered && found.is_none() {
            recorder.cost().false_positives += 1;
        }
        recorder.searched(candidate, found.is_some());
        if let Some(asked) = self.probe.counted() {
            let cached = recorder.cost().cache_hits > hits;
            let read = if cached { BlockRead::Cached } else { BlockRead::Fetched };
            asked.searched(candidate.table, read, found.is_some());
        }
        let Some(Entry { seq, kind, value }) = found else { return Ok(None) };
        let entry = Entry { seq, kind, value: Slice::from_block(value) };
        let answer = self.take(at, entry, FoundIn::Table(candidate.table), recorder)?;
        if answer.is_some()
            && let Some(asked) = self.probe.counted()
        {
            asked.ended(candidate.table);
        }
        Ok(answer)
    }

    /// Processes the newest visible version of the key in one place. Returns the answer if final.
    #[inline(always)]
    fn take<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        Entry { seq, kind, value }: Entry<Slice>,
        place: FoundIn<'_>,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        let last = match kind {
            _ if self.cover > seq => Lookup::DeletedByRange { seq: self.cover },
            Kind::Put => Lookup::Found { seq, value },
            Kind::PutBlob => separated(seq, value, &place, recorder)?,
            Kind::Delete => Lookup::Deleted { seq },
            Kind::Merge => return self.take_operand(at, seq, value, place, recorder),
        };
        if self.operands.is_empty() {
            return Ok(Some(last));
        }
        let base = at.read_separated(last, recorder)?.value().map_or(BaseValue::Nothing, BaseValue::Value);
        self.resolve(at, &base, recorder).map(Some)
    }

    /// Keeps an operand, and the older ones in the same place.
    #[cold]
    fn take_operand<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        seq: SeqNo,
        value: Slice,
        place: FoundIn<'_>,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        if self.operands.is_empty() {
            self.newest_operand = seq;
        }
        let (key, operator, seen) = (self.probe.key, at.operator(), (seq, self.cover));
        self.operands.push(key, value, operator);
        let base = match place {
            FoundIn::Memtable(slot) => {
                self.operands.follow_memtable(slot, key, seen, operator, recorder.cost())?
            }
            FoundIn::Table(table) => {
                let table = &at.view.version.tables[table];
                self.operands.follow_table(table, key, seen, operator, recorder.cost())?
            }
        };
        base.map(|base| self.resolve(at, &base, recorder)).transpose()
    }

    /// Returns the answer once every place was searched.
    #[inline]
    pub(super) fn nothing_left<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        match (self.operands.is_empty(), self.cover) {
            (true, 0) => Ok(Lookup::Absent),
            (true, cover) => Ok(Lookup::DeletedByRange { seq: cover }),
            (false, _) => self.resolve(at, &BaseValue::Nothing, recorder),
        }
    }

    #[cold]
    fn resolve<R: Recorder>(
        &mut self,
        at: &ReadAt<'_>,
        base: &BaseValue,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        let value = self.operands.resolve(self.probe.key, base, at.operator(), recorder.cost())?;
        Ok(Lookup::Found { seq: self.newest_operand, value })
    }

    /// Tells the record cache, if there is one, what the runs have.
    #[inline]
    pub(super) fn remember(&self, at: &ReadAt<'_>, answer: &Lookup) {
        if let (Some(records), Lookup::Found { seq, value }) = (at.records, answer)
            && let Some(digest) = self.probe.shared_digest()
            && self.operands.is_empty()
            && at.seq >= at.view.version.max_seq
        {
            records.found(at.sight(), digest, self.probe.key, (*seq, value));
        }
    }

    /// Ends the lookup: reports a sampled get's filter probes to the selector.
    #[inline]
    pub(super) fn report(&mut self, at: &ReadAt<'_>) {
        if self.probe.counted().is_some()
            && let Some(filters) = at.view.selector.tables()
        {
            filters.ended(&at.view.version, &mut self.probe);
        }
    }
}

impl ReadAt<'_> {
    /// Looks up `key`. Allocates only if more than 16 tables of one step are candidates, or to
    /// merge operands.
    pub(crate) fn get<R: Recorder>(&self, key: &[u8], recorder: &mut R) -> Result<Lookup, ReadError> {
        recorder.cost().gets += 1;
        let mut lookup = KeyLookup::new(self, key, recorder);
        if let Some(answer) = lookup.search_memtables(self, recorder)? {
            return Ok(answer);
        }
        // Here, so that a get of a key that is not cached at present takes the way of all others.
        let covers = |records: &&KeyspaceRecords| {
            lookup.probe.shared_digest().is_some_and(|digest| records.covers(digest))
        };
        match self.records.filter(covers) {
            Some(records) => self.get_cached(records, &mut lookup, recorder),
            None => self.get_of_runs(&mut lookup, recorder),
        }
    }

    #[inline(always)]
    fn get_of_runs<R: Recorder>(
        &self,
        lookup: &mut KeyLookup<'_>,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        let answer = lookup.search_runs(self, recorder);
        lookup.report(self);
        match answer {
            Ok(separated @ Lookup::Separated { .. }) => self.read_separated(separated, recorder),
            answer => answer,
        }
    }

    /// Asks the record cache before the runs, and tells it what they have.
    #[inline(never)]
    fn get_cached<R: Recorder>(
        &self,
        records: &KeyspaceRecords,
        lookup: &mut KeyLookup<'_>,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        let (Some(digest), false) = (lookup.probe.shared_digest(), lookup.has_operands()) else {
            return self.get_of_runs(lookup, recorder);
        };
        let key = lookup.probe.lean(digest);
        if let Some(answer) = self.cached(records, &key, lookup.cover, recorder) {
            return Ok(answer);
        }
        let answer = self.get_of_runs(lookup, recorder)?;
        lookup.remember(self, &answer);
        Ok(answer)
    }

    /// Returns what the record cache knows of the key's versions in the runs.
    #[inline]
    pub(super) fn cached<R: Recorder>(
        &self,
        records: &KeyspaceRecords,
        key: &LeanKey<'_>,
        cover: SeqNo,
        recorder: &mut R,
    ) -> Option<Lookup> {
        let found = records.get(self.sight(), key.digest, key.key);
        recorder.cached(found.is_some());
        let (seq, value) = found?;
        recorder.cost().record_hits += 1;
        let answer = match cover {
            cover if cover > seq => Lookup::DeletedByRange { seq: cover },
            _ => Lookup::Found { seq, value },
        };
        if cfg!(debug_assertions)
            && let Ok(truth) =
                self.get_of_runs(&mut KeyLookup::with_digest(key, cover), &mut ReadCost::default())
        {
            assert_eq!(answer.clone().value(), truth.value(), "a cached record of {:?}", key.key);
        }
        Some(answer)
    }

    #[inline]
    fn sight(&self) -> Sight {
        Sight { edition: self.view.edition, floor: self.view.floor, seq: self.seq }
    }

    /// Reads the result's value if it is in a blob file.
    #[cold]
    pub(super) fn read_separated<R: Recorder>(
        &self,
        found: Lookup,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        let Lookup::Separated { seq, table, reference } = found else { return Ok(found) };
        let value = self.view.version.tables[table].read_blob(&reference, true, recorder)?;
        Ok(Lookup::Found { seq, value: Slice::from_block(value) })
    }
}

/// The answer of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum FilterAnswer {
    /// There is no filter, or it could not be used.
    NotAsked,
    /// The key is certainly absent.
    No,
    /// The key may be present.
    Maybe,
}
