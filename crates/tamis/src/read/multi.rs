//! Batched point lookups: all digests, then all filters, then all blocks, so that the cache misses of many keys
//! overlap instead of following each other.

use smallvec::SmallVec;

use crate::error::StorageError;
use crate::key::SeqNo;
use crate::read::get::{get, search_memtable, search_table};
use crate::read::{Lookup, ReadCost};
use crate::select::{Candidates, Probe, next_step};
use crate::slice::Slice;
use crate::tree::version::View;

/// Keys that are worked on together: enough to hide the latency of memory, few enough for the first-level cache.
const BATCH: usize = 32;

/// A key that is still looked for.
struct Open<'k> {
    /// Its place in the answer.
    place: usize,
    probe: Probe<'k>,
    cover: SeqNo,
    candidates: Candidates,
}

/// The values of `keys` that `snapshot` sees in `view`, in the order of the keys; what is below `horizon` has expired.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    view: &View,
    keys: &[K],
    snapshot: SeqNo,
    horizon: SeqNo,
    sharing: bool,
    cost: &mut ReadCost,
) -> Result<Vec<Option<Slice>>, StorageError> {
    let mut values = vec![None; keys.len()];
    if !sharing {
        for (key, value) in keys.iter().zip(&mut values) {
            *value = get(view, key.as_ref(), snapshot, horizon, sharing, cost)?.value();
        }
        return Ok(values);
    }
    for first in (0..keys.len()).step_by(BATCH) {
        let batch = &keys[first..keys.len().min(first + BATCH)];
        look_up(view, batch, snapshot, horizon, &mut values[first..], cost)?;
    }
    Ok(values)
}

fn look_up<K: AsRef<[u8]>>(
    view: &View,
    keys: &[K],
    snapshot: SeqNo,
    horizon: SeqNo,
    values: &mut [Option<Slice>],
    cost: &mut ReadCost,
) -> Result<(), StorageError> {
    cost.gets += keys.len() as u64;
    let mut open: SmallVec<[Open<'_>; BATCH]> = SmallVec::new();
    for (place, key) in keys.iter().enumerate() {
        let key = key.as_ref();
        let mut probe = Probe::new(key, true, cost);
        let cover = view.cover(key, snapshot).max(horizon);
        let found = view
            .memtables()
            .enumerate()
            .find_map(|(i, slot)| search_memtable(slot, i == 0, &mut probe, snapshot, cover, cost));
        match found {
            Some(found) => values[place] = found.value(),
            None => open.push(Open { place, probe, cover, candidates: Candidates::new() }),
        }
    }
    let version = &view.version;
    let mut first = 0;
    while first < version.runs.len() && !open.is_empty() {
        let runs = next_step(first, version.runs.len(), false);
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
            for &candidate in &key.candidates {
                match search_table(version, candidate, &mut key.probe, snapshot, key.cover, cost) {
                    Ok(None) => {}
                    Ok(Some(found)) => {
                        values[key.place] = Lookup::value(found);
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
    Ok(())
}
