//! The point lookup.

use std::ops::Range;

use tamis_filter::Digest;

use crate::error::{ReadError, StorageError};
use crate::key::{Kind, SeqNo};
use crate::operators::MergeOperator;
use crate::read::chain::{Base, Chain, Order};
use crate::read::{Counted, FilterAnswer};
use crate::read::{MemtableSlot, View};
use crate::select::{Candidate, Candidates, Probe, next_step};
use crate::slice::Slice;
use crate::table::{ReadCost, ReadTrace, TableLookup};
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// What a point lookup found.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    /// The newest visible version is a value, or operands that make one.
    Found { seq: SeqNo, value: Slice },
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
            _ => None,
        }
    }

    pub(crate) fn nothing(cover: SeqNo) -> Lookup {
        if cover > 0 { Lookup::DeletedByRange { seq: cover } } else { Lookup::Absent }
    }
}

/// The newest visible version of a key in one memtable or table.
#[derive(Debug)]
pub(crate) enum Newest {
    /// It says what a lookup wants to know.
    Last(Lookup),
    /// It is an operand: older versions count, too.
    Operand { seq: SeqNo, value: Slice },
}

impl Newest {
    /// What a table knows, under the newest visible range tombstone at `cover`.
    #[inline]
    pub(crate) fn of(found: TableLookup, cover: SeqNo) -> Option<Newest> {
        match found {
            TableLookup::Found { seq, kind, value } => {
                Some(Newest::version(kind, seq, cover, || Slice::from_block(value)))
            }
            TableLookup::Absent => None,
        }
    }

    /// A version found at `seq`, under the newest visible range tombstone at `cover`.
    #[inline]
    fn version(kind: Kind, seq: SeqNo, cover: SeqNo, value: impl FnOnce() -> Slice) -> Newest {
        Newest::Last(match kind {
            _ if cover > seq => Lookup::DeletedByRange { seq: cover },
            Kind::Put => Lookup::Found { seq, value: value() },
            Kind::Delete => Lookup::Deleted { seq },
            Kind::Merge => return Newest::Operand { seq, value: value() },
        })
    }
}

/// What a lookup has found so far: nothing, or operands.
#[derive(Debug)]
pub(crate) struct Findings<'o> {
    operator: Option<&'o dyn MergeOperator>,
    chain: Chain,
    /// The newest operand's.
    seq: SeqNo,
}

impl<'o> Findings<'o> {
    /// Nothing yet.
    pub(crate) fn new(operator: Option<&'o dyn MergeOperator>) -> Self {
        Findings { operator, chain: Chain::new(Order::NewestFirst), seq: 0 }
    }

    /// Whether operands were found.
    #[inline]
    pub(crate) fn has_operands(&self) -> bool {
        !self.chain.is_empty()
    }

    /// Takes what a memtable knows; gives the answer if that is all there is to know.
    #[inline]
    pub(crate) fn in_memtable<R: Recorder>(
        &mut self,
        found: Newest,
        slot: &MemtableSlot,
        key: &[u8],
        cover: SeqNo,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        match found {
            Newest::Last(last) if self.chain.is_empty() => Ok(Some(last)),
            Newest::Last(last) => self.end(key, last, recorder).map(Some),
            Newest::Operand { seq, value } => {
                self.operand(key, seq, value);
                let base = self.chain.follow_memtable(slot, key, (seq, cover), self.operator);
                base.map(|base| self.resolve(key, &base, recorder)).transpose()
            }
        }
    }

    /// Takes what a table knows; gives the answer if that is all there is to know.
    #[inline]
    pub(crate) fn in_table<R: Recorder>(
        &mut self,
        found: Newest,
        table: &OpenTable,
        key: &[u8],
        cover: SeqNo,
        recorder: &mut R,
    ) -> Result<Option<Lookup>, ReadError> {
        match found {
            Newest::Last(last) if self.chain.is_empty() => Ok(Some(last)),
            Newest::Last(last) => self.end(key, last, recorder).map(Some),
            Newest::Operand { seq, value } => {
                self.operand(key, seq, value);
                let cost = recorder.cost();
                let base = self.chain.follow_table(table, key, (seq, cover), self.operator, cost)?;
                base.map(|base| self.resolve(key, &base, recorder)).transpose()
            }
        }
    }

    /// The answer when everything was asked.
    #[inline]
    pub(crate) fn nothing_left<R: Recorder>(
        &mut self,
        key: &[u8],
        cover: SeqNo,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        if self.chain.is_empty() {
            return Ok(Lookup::nothing(cover));
        }
        self.resolve(key, &Base::Nothing, recorder)
    }

    #[cold]
    fn operand(&mut self, key: &[u8], seq: SeqNo, value: Slice) {
        if self.chain.is_empty() {
            self.seq = seq;
        }
        self.chain.push(key, value, self.operator);
    }

    #[cold]
    fn end<R: Recorder>(&mut self, key: &[u8], last: Lookup, recorder: &mut R) -> Result<Lookup, ReadError> {
        let base = last.value().map_or(Base::Nothing, Base::Value);
        self.resolve(key, &base, recorder)
    }

    #[cold]
    fn resolve<R: Recorder>(
        &mut self,
        key: &[u8],
        base: &Base,
        recorder: &mut R,
    ) -> Result<Lookup, ReadError> {
        let value = self.chain.resolve(key, base, self.operator, recorder.cost())?;
        Ok(Lookup::Found { seq: self.seq, value })
    }
}

/// Watches a lookup. [`ReadCost`] only counts; `explain` also writes down each step.
pub(crate) trait Recorder: ReadTrace {
    /// Whether runs are asked about one after the other, each searched before the next is asked. A global filter has
    /// one answer for all runs: it is asked once all the same.
    const ONE_BY_ONE: bool;

    fn cost(&mut self) -> &mut ReadCost;
    fn hashed(&mut self, _digest: Option<Digest>) {}
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

impl Recorder for Counted {
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

/// What `snapshot` sees of `key` in `view`. What is below `horizon` has expired: it is as if a range tombstone of that
/// number covered all keys. Allocates nothing unless more than eight runs of one step hold candidates, or operands have
/// to be merged.
pub(crate) fn get<R: Recorder>(
    view: &View,
    key: &[u8],
    snapshot: SeqNo,
    horizon: SeqNo,
    sharing: bool,
    operator: Option<&dyn MergeOperator>,
    recorder: &mut R,
) -> Result<Lookup, ReadError> {
    recorder.cost().gets += 1;
    let mut probe = Probe::new(key, sharing, recorder.cost());
    recorder.hashed(probe.digest());
    let cover = view.cover(key, snapshot).max(horizon);
    let mut findings = Findings::new(operator);
    if let Some(answer) = search_memtables(view, &mut probe, &mut findings, snapshot, cover, recorder)? {
        return Ok(answer);
    }
    let result = search_runs(view, &mut probe, snapshot, cover, findings, recorder);
    if probe.counted().is_some() {
        view.selector.ended(&mut probe);
    }
    result
}

/// Searches the memtables, newest first, until one has the answer.
#[inline]
pub(crate) fn search_memtables<R: Recorder>(
    view: &View,
    probe: &mut Probe<'_>,
    findings: &mut Findings<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    recorder: &mut R,
) -> Result<Option<Lookup>, ReadError> {
    for (i, slot) in view.memtables.iter().enumerate() {
        if let Some(found) = search_memtable(slot, i == 0, probe, snapshot, cover, recorder)
            && let Some(answer) = findings.in_memtable(found, slot, probe.key, cover, recorder)?
        {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

#[inline]
fn search_memtable<R: Recorder>(
    slot: &MemtableSlot,
    active: bool,
    probe: &mut Probe<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    recorder: &mut R,
) -> Option<Newest> {
    let memtable = &slot.memtable;
    if memtable.is_empty() {
        return None;
    }
    let mut answer = FilterAnswer::NotAsked;
    if memtable.has_filter() {
        recorder.cost().memtable_probes += 1;
        let maybe = memtable.may_contain(probe.digest_for_filter(recorder.cost()));
        answer = if maybe { FilterAnswer::Maybe } else { FilterAnswer::No };
    }
    if answer == FilterAnswer::No {
        debug_assert!(
            memtable.get(probe.key, snapshot).is_none(),
            "a memtable filter denies {:?}",
            probe.key
        );
        recorder.memtable(slot, active, answer, false);
        return None;
    }
    let found = memtable.get_pinned(probe.key, snapshot);
    recorder.memtable(slot, active, answer, found.is_some());
    found.map(|entry| Newest::version(entry.kind, entry.seq, cover, || Slice::from_memtable(entry.value)))
}

fn search_runs<R: Recorder>(
    view: &View,
    probe: &mut Probe<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    mut findings: Findings<'_>,
    recorder: &mut R,
) -> Result<Lookup, ReadError> {
    let one_by_one = R::ONE_BY_ONE || !probe.sharing();
    let (version, selector) = (&*view.version, &*view.selector);
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
        selector.select(version, probe, runs.clone(), &mut candidates, recorder.cost());
        recorder.selected(version, probe, runs, &candidates);
        for &candidate in &candidates {
            if let Some(found) = search_table(version, candidate, probe, snapshot, cover, recorder)?
                && let Some(answer) =
                    findings.in_table(found, &version.tables[candidate.table], probe.key, cover, recorder)?
            {
                if let Some(asked) = probe.counted() {
                    asked.ended(candidate.table);
                }
                return Ok(answer);
            }
        }
    }
    findings.nothing_left(probe.key, cover, recorder)
}

#[inline]
pub(crate) fn search_table<R: Recorder>(
    version: &Version,
    candidate: Candidate,
    probe: &mut Probe<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    recorder: &mut R,
) -> Result<Option<Newest>, StorageError> {
    recorder.cost().runs_searched += 1;
    let digest = probe.digest_for_block(recorder.cost());
    let table = &version.tables[candidate.table].table;
    let found = Newest::of(table.get(probe.key, Some(digest), snapshot, recorder)?, cover);
    searched(candidate, probe, found.is_some(), recorder);
    Ok(found)
}

/// Counts and records that a table was searched, and whether the key was found.
#[inline]
pub(crate) fn searched<R: Recorder>(
    candidate: Candidate,
    probe: &mut Probe<'_>,
    found: bool,
    recorder: &mut R,
) {
    if found && let Some(asked) = probe.counted() {
        asked.found(candidate.table);
    }
    if candidate.filtered && !found {
        recorder.cost().false_positives += 1;
    }
    recorder.searched(candidate, found);
}
