//! The point lookup.

use std::ops::Range;

use crate::error::StorageError;
use crate::key::{Kind, SeqNo};
use crate::read::{FilterAnswer, ReadCost};
use crate::select::{Candidate, Candidates, Probe, next_step};
use crate::slice::Slice;
use crate::table::{ReadTrace, TableLookup};
use crate::tree::version::{MemtableSlot, Version, View};

/// What a point lookup found.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    /// The newest visible version is a value.
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

    /// A version found at `seq`, under the newest visible range tombstone at `cover`.
    #[inline]
    pub(crate) fn version(kind: Kind, seq: SeqNo, cover: SeqNo, value: impl FnOnce() -> Slice) -> Lookup {
        match kind {
            _ if cover > seq => Lookup::DeletedByRange { seq: cover },
            Kind::Put => Lookup::Found { seq, value: value() },
            Kind::Delete => Lookup::Deleted { seq },
        }
    }

    pub(crate) fn nothing(cover: SeqNo) -> Lookup {
        if cover > 0 { Lookup::DeletedByRange { seq: cover } } else { Lookup::Absent }
    }
}

/// Watches a lookup. [`ReadCost`] only counts; `explain` also writes down each step.
pub(crate) trait Recorder: ReadTrace {
    /// Whether runs are asked about one after the other, each searched before the next is asked.
    const ONE_BY_ONE: bool;

    fn cost(&mut self) -> &mut ReadCost;
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

/// The newest version of `key` that `snapshot` sees in `view`. What is below `horizon` has expired: it is as if a range
/// tombstone of that number covered all keys. Allocates nothing unless more than eight runs
/// of one step hold candidates.
pub(crate) fn get<R: Recorder>(
    view: &View,
    key: &[u8],
    snapshot: SeqNo,
    horizon: SeqNo,
    sharing: bool,
    recorder: &mut R,
) -> Result<Lookup, StorageError> {
    recorder.cost().gets += 1;
    let mut probe = Probe::new(key, sharing, recorder.cost());
    let cover = view.cover(key, snapshot).max(horizon);
    for (i, slot) in view.memtables().enumerate() {
        if let Some(found) = search_memtable(slot, i == 0, &mut probe, snapshot, cover, recorder) {
            return Ok(found);
        }
    }
    search_runs(&view.version, &mut probe, snapshot, cover, recorder)
}

#[inline]
pub(crate) fn search_memtable<R: Recorder>(
    slot: &MemtableSlot,
    active: bool,
    probe: &mut Probe<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    recorder: &mut R,
) -> Option<Lookup> {
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
    found.map(|entry| Lookup::version(entry.kind, entry.seq, cover, || Slice::from_memtable(entry.value)))
}

fn search_runs<R: Recorder>(
    version: &Version,
    probe: &mut Probe<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    recorder: &mut R,
) -> Result<Lookup, StorageError> {
    let one_by_one = R::ONE_BY_ONE || !probe.sharing();
    let mut candidates = Candidates::new();
    let mut first = 0;
    while first < version.runs.len() {
        let runs = next_step(first, version.runs.len(), one_by_one);
        first = runs.end;
        candidates.clear();
        version.selector.select(version, probe, runs.clone(), &mut candidates, recorder.cost());
        recorder.selected(version, probe, runs, &candidates);
        for &candidate in &candidates {
            if let Some(found) = search_table(version, candidate, probe, snapshot, cover, recorder)? {
                return Ok(found);
            }
        }
    }
    Ok(Lookup::nothing(cover))
}

#[inline]
pub(crate) fn search_table<R: Recorder>(
    version: &Version,
    candidate: Candidate,
    probe: &mut Probe<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    recorder: &mut R,
) -> Result<Option<Lookup>, StorageError> {
    recorder.cost().runs_searched += 1;
    let digest = probe.digest_for_block(recorder.cost());
    let table = &version.tables[candidate.table].table;
    let found = match table.get(probe.key, Some(digest), snapshot, recorder)? {
        TableLookup::Found { seq, kind, value } => {
            Some(Lookup::version(kind, seq, cover, || Slice::from_block(value)))
        }
        TableLookup::Absent => None,
    };
    if candidate.filtered && found.is_none() {
        recorder.cost().false_positives += 1;
    }
    recorder.searched(candidate, found.is_some());
    Ok(found)
}
