//! Batched point lookups: all digests, then all filters, then all blocks, so that the cache misses of many keys
//! overlap instead of following each other.

use smallvec::SmallVec;

use crate::error::ReadError;
use crate::key::SeqNo;
use crate::operators::MergeOperator;
use crate::read::ReadCost;
use crate::read::get::{Findings, get, search_memtable, search_table};
use crate::select::{Candidates, Probe, next_step};
use crate::slice::Slice;
use crate::tree::version::View;

/// Keys that are worked on together: enough to hide the latency of memory, few enough for the first-level cache.
const BATCH: usize = 32;

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
    for first in (0..keys.len()).step_by(BATCH) {
        let batch = &keys[first..keys.len().min(first + BATCH)];
        look_up(view, batch, snapshot, horizon, operator, &mut values[first..], cost)?;
    }
    Ok(values)
}

fn look_up<K: AsRef<[u8]>>(
    view: &View,
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
        let mut answer = None;
        for (i, slot) in view.memtables().enumerate() {
            if let Some(found) = search_memtable(slot, i == 0, &mut probe, snapshot, cover, cost) {
                answer = findings.in_memtable(found, slot, key, cover, cost)?;
            }
            if answer.is_some() {
                break;
            }
        }
        match answer {
            Some(answer) => values[place] = answer.value(),
            None => open.push(Open { place, probe, cover, candidates: Candidates::new(), findings }),
        }
    }
    let version = &view.version;
    let mut first = 0;
    while first < version.runs.len() && !open.is_empty() {
        let runs = match version.runs.len() {
            count if version.selector.is_global() => 0..count,
            count => next_step(first, count, false),
        };
        first = runs.end;
        for key in &mut open {
            let digest = key.probe.digest_for_filter(cost);
            version.selector.prefetch(version, &key.probe, digest, runs.clone());
        }
        for key in &mut open {
            key.candidates.clear();
            version.selector.select(version, &mut key.probe, runs.clone(), &mut key.candidates, cost);
            // The first candidate's block is on its way while the other keys ask their filters.
            if let Some(candidate) = key.candidates.first() {
                let table = &version.tables[candidate.table].table;
                if let Some(block) = table.locate(key.probe.key, &mut ())? {
                    table.prefetch_block(block);
                }
            }
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
                        if let Some(asked) = probe.counted() {
                            asked.ended(candidate.table);
                            version.selector.ended(probe);
                        }
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
            version.selector.ended(&mut key.probe);
        }
    }
    Ok(())
}
