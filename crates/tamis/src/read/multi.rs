//! Batched point lookups: all digests, then all filters, then all blocks, so that the cache misses of many keys
//! overlap instead of following each other; and where tables are not mapped, the reads of blocks (see [`rounds`]).

use smallvec::SmallVec;

use crate::error::ReadError;
use crate::io::batch::BatchReader;
use crate::key::SeqNo;
use crate::operators::MergeOperator;
use crate::read::View;
use crate::read::get::{Findings, get, search_memtables, search_table};
use crate::select::{Candidate, Candidates, MAX_BATCH, Probe, next_step};
use crate::slice::Slice;
use crate::table::ReadCost;

mod lean;
mod rounds;

/// Keys that are worked on together, unless more reads may overlap: enough to hide the latency of memory, few enough for the
/// first-level cache.
const BATCH: usize = MAX_BATCH;

/// A key that is still looked for.
struct Open<'k, 'o> {
    /// Its place in the answer.
    place: usize,
    probe: Probe<'k>,
    cover: SeqNo,
    candidates: Candidates,
    findings: Findings<'o>,
}

/// The values of `keys` that `snapshot` sees in `view`, in the order of the keys; what is below `horizon` has expired.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    view: &View,
    keys: &[K],
    snapshot: SeqNo,
    horizon: SeqNo,
    sharing: bool,
    operator: Option<&dyn MergeOperator>,
    cost: &mut ReadCost,
) -> Result<Vec<Option<Slice>>, ReadError> {
    let mut values = vec![None; keys.len()];
    if !sharing {
        for (key, value) in keys.iter().zip(&mut values) {
            *value = get(view, key.as_ref(), snapshot, horizon, sharing, operator, cost)?.value();
        }
        return Ok(values);
    }
    let reads = view.version.tables.first().and_then(|table| table.table.overlap());
    if reads.is_none() && view.selector.answers_many() {
        for (keys, values) in keys.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            lean::look_up(view, keys, snapshot, horizon, operator, values, cost)?;
        }
        return Ok(values);
    }
    let together = reads.map_or(BATCH, |reads| reads.depth().max(BATCH));
    for first in (0..keys.len()).step_by(together) {
        let batch = &keys[first..keys.len().min(first + together)];
        look_up(view, reads, batch, snapshot, horizon, operator, &mut values[first..], cost)?;
    }
    Ok(values)
}

#[expect(clippy::too_many_arguments, reason = "what a lookup needs, for many keys")]
fn look_up<K: AsRef<[u8]>>(
    view: &View,
    reads: Option<&BatchReader>,
    keys: &[K],
    snapshot: SeqNo,
    horizon: SeqNo,
    operator: Option<&dyn MergeOperator>,
    values: &mut [Option<Slice>],
    cost: &mut ReadCost,
) -> Result<(), ReadError> {
    cost.gets += keys.len() as u64;
    let mut open: SmallVec<[Open<'_, '_>; BATCH]> = SmallVec::new();
    for (place, key) in keys.iter().enumerate() {
        let key = key.as_ref();
        let mut probe = Probe::new(key, true, cost);
        let cover = view.cover(key, snapshot).max(horizon);
        let mut findings = Findings::new(operator);
        match search_memtables(view, &mut probe, &mut findings, snapshot, cover, cost)? {
            Some(answer) => values[place] = answer.value(),
            None => open.push(Open { place, probe, cover, candidates: Candidates::new(), findings }),
        }
    }
    let (version, selector) = (&*view.version, &*view.selector);
    let mut first = 0;
    while first < version.runs.len() && !open.is_empty() {
        let runs = match version.runs.len() {
            count if selector.is_global() => 0..count,
            count => next_step(first, count, false),
        };
        first = runs.end;
        for key in &mut open {
            let digest = key.probe.digest_for_filter(cost);
            selector.prefetch(version, &key.probe, digest, runs.clone());
        }
        for key in &mut open {
            key.candidates.clear();
            selector.select(version, &mut key.probe, runs.clone(), &mut key.candidates, cost);
            // The first candidate's block is on its way while the other keys ask their filters.
            if reads.is_none()
                && let Some(candidate) = key.candidates.first()
            {
                let table = &version.tables[candidate.table].table;
                if let Some(block) = table.locate(key.probe.key, &mut ())? {
                    table.prefetch_block(block);
                }
            }
        }
        if let Some(reads) = reads {
            rounds::search(view, reads, &mut open, snapshot, values, cost)?;
            continue;
        }
        let mut failed = None;
        open.retain(|key| {
            let Open { place, probe, cover, candidates, findings } = key;
            for &candidate in &*candidates {
                let found = search_table(version, candidate, probe, snapshot, *cover, cost);
                let answer = found.map_err(ReadError::from).and_then(|found| match found {
                    Some(found) => {
                        let table = &version.tables[candidate.table];
                        findings.in_table(found, table, probe.key, *cover, cost)
                    }
                    None => Ok(None),
                });
                match answer {
                    Ok(None) => {}
                    Ok(Some(answer)) => {
                        values[*place] = answer.value();
                        answered_by(view, candidate, probe);
                        return false;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            true
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }
    for key in &mut open {
        values[key.place] = key.findings.nothing_left(key.probe.key, key.cover, cost)?.value();
        if key.probe.counted().is_some() {
            selector.ended(&mut key.probe);
        }
    }
    Ok(())
}

/// Tells the filters that a lookup ended in this table.
fn answered_by(view: &View, candidate: Candidate, probe: &mut Probe<'_>) {
    if let Some(asked) = probe.counted() {
        asked.ended(candidate.table);
        view.selector.ended(probe);
    }
}
