//! Batched point lookups in mapped tables whose filters can be asked for many keys at once.
//!
//! Most keys of a batch meet no candidate, or one that has them. Until a key meets an operand it is kept as its bytes, their prefix and
//! their digest: a batch of 32 stays in the first-level cache. A step first asks the filters of its runs for all keys, then
//! looks up the block of each key that has a candidate, and asks the processor for it, and only then searches blocks: the misses of
//! each stage overlap.
//!
//! Belongs to one call, and so to one thread.

use smallvec::SmallVec;

use crate::error::ReadError;
use crate::key::SeqNo;
use crate::operators::MergeOperator;
use crate::read::View;
use crate::read::get::{Findings, Lookup, Newest, search_memtables, search_table, searched};
use crate::select::{Candidate, Candidates, LeanKey, MAX_BATCH, Probe, next_step};
use crate::slice::Slice;
use crate::table::ReadCost;
use crate::table::{BlockAt, prefetch};
use crate::tree::version::Version;

use super::Open;

/// Keys of which nothing was found yet, with their places in the answer and what covers them.
#[derive(Default)]
struct Waiting<'k> {
    keys: SmallVec<[LeanKey<'k>; MAX_BATCH]>,
    places: SmallVec<[(usize, SeqNo); MAX_BATCH]>,
}

/// As [`multi_get`](super::multi_get), for at most [`MAX_BATCH`] keys; the selector must
/// [answer for many](crate::select::RunSelector::answers_many).
pub(super) fn look_up<K: AsRef<[u8]>>(
    view: &View,
    keys: &[K],
    snapshot: SeqNo,
    horizon: SeqNo,
    operator: Option<&dyn MergeOperator>,
    values: &mut [Option<Slice>],
    cost: &mut ReadCost,
) -> Result<(), ReadError> {
    let (version, selector) = (&*view.version, &*view.selector);
    cost.gets += keys.len() as u64;
    let in_memory = view.memtables.iter().any(|slot| !slot.memtable.is_empty());
    let mut waiting = Waiting::default();
    let mut open: Vec<Open<'_, '_>> = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        let key = LeanKey::new(key.as_ref(), cost);
        let cover = view.cover(key.key, snapshot).max(horizon);
        if in_memory {
            let (mut probe, mut findings) = (Probe::of(&key), Findings::new(operator));
            let answer = search_memtables(view, &mut probe, &mut findings, snapshot, cover, cost)?;
            if let Some(answer) = answer {
                values[place] = answer.value();
                continue;
            }
            if findings.has_operands() {
                open.push(Open { place, probe, cover, candidates: Candidates::new(), findings });
                continue;
            }
        }
        waiting.keys.push(key);
        waiting.places.push((place, cover));
    }
    let mut first = 0;
    while first < version.runs.len() && !(waiting.keys.is_empty() && open.is_empty()) {
        let runs = next_step(first, version.runs.len(), false);
        first = runs.end;
        let mut kept = Vec::new();
        for mut key in open {
            key.candidates.clear();
            selector.select(version, &mut key.probe, runs.clone(), &mut key.candidates, cost);
            let candidates = std::mem::take(&mut key.candidates);
            let Open { place, probe, cover, findings, .. } = &mut key;
            match search(version, &candidates, probe, findings, snapshot, *cover, cost)? {
                Some(answer) => values[*place] = answer.value(),
                None => kept.push(key),
            }
        }
        open = kept;

        let mut masks = [0u32; MAX_BATCH];
        selector.select_many(version, &waiting.keys, runs.clone(), &mut masks, cost);
        let mut blocks = [None; MAX_BATCH];
        for ((key, mask), block) in waiting.keys.iter().zip(masks).zip(&mut blocks) {
            if mask != 0 {
                *block = locate(version, key, runs.start + mask.trailing_zeros() as usize, cost)?;
            }
        }
        let mut left = 0;
        for i in 0..waiting.keys.len() {
            let (key, (place, cover)) = (waiting.keys[i], waiting.places[i]);
            if masks[i] != 0 {
                let (mut probe, mut findings) = (Probe::of(&key), Findings::new(operator));
                let candidates = candidates(version, &key, runs.start, masks[i]);
                let answer = match blocks[i] {
                    Some(at) => search_located(
                        version,
                        &candidates,
                        at,
                        &mut probe,
                        &mut findings,
                        snapshot,
                        cover,
                        cost,
                    )?,
                    None => search(version, &candidates, &mut probe, &mut findings, snapshot, cover, cost)?,
                };
                if let Some(answer) = answer {
                    values[place] = answer.value();
                    // The caller will look at it, after the other keys were searched.
                    values[place].iter().for_each(|value| prefetch(value));
                    continue;
                }
                if findings.has_operands() {
                    open.push(Open { place, probe, cover, candidates: Candidates::new(), findings });
                    continue;
                }
            }
            (waiting.keys[left], waiting.places[left]) = (key, (place, cover));
            left += 1;
        }
        waiting.keys.truncate(left);
        waiting.places.truncate(left);
    }
    for mut key in open {
        values[key.place] = key.findings.nothing_left(key.probe.key, key.cover, cost)?.value();
    }
    Ok(())
}

/// The block of a key in a run whose filter let it pass, on its way into the processor's cache; `None` if its table has
/// nothing so far behind.
#[inline]
fn locate(
    version: &Version,
    key: &LeanKey<'_>,
    run: usize,
    cost: &mut ReadCost,
) -> Result<Option<BlockAt>, ReadError> {
    let Some(table) = version.table_for(&version.runs[run], key.key, key.prefix) else { return Ok(None) };
    let table = &version.tables[table].table;
    let at = table.locate(key.key, cost)?;
    if let Some(at) = at {
        table.prefetch_block(at);
    }
    Ok(at)
}

fn candidates(version: &Version, key: &LeanKey<'_>, first: usize, mut mask: u32) -> Candidates {
    let mut candidates = Candidates::new();
    while mask != 0 {
        let run = first + mask.trailing_zeros() as usize;
        mask &= mask - 1;
        if let Some(table) = version.table_for(&version.runs[run], key.key, key.prefix) {
            candidates.push(Candidate { run, table, filtered: true });
        }
    }
    candidates
}

/// Searches candidates in their order until one has the answer.
fn search(
    version: &Version,
    candidates: &[Candidate],
    probe: &mut Probe<'_>,
    findings: &mut Findings<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    cost: &mut ReadCost,
) -> Result<Option<Lookup>, ReadError> {
    for &candidate in candidates {
        if let Some(found) = search_table(version, candidate, probe, snapshot, cover, cost)? {
            let table = &version.tables[candidate.table];
            if let Some(answer) = findings.in_table(found, table, probe.key, cover, cost)? {
                return Ok(Some(answer));
            }
        }
    }
    Ok(None)
}

/// The same where the block of the first candidate is known.
#[inline]
#[expect(clippy::too_many_arguments, reason = "a lookup and where it begins")]
fn search_located(
    version: &Version,
    candidates: &[Candidate],
    at: BlockAt,
    probe: &mut Probe<'_>,
    findings: &mut Findings<'_>,
    snapshot: SeqNo,
    cover: SeqNo,
    cost: &mut ReadCost,
) -> Result<Option<Lookup>, ReadError> {
    let Some((&candidate, others)) = candidates.split_first() else { return Ok(None) };
    cost.runs_searched += 1;
    let digest = probe.digest_for_block(cost);
    let table = &version.tables[candidate.table];
    let found = table.table.get_in_block(at, probe.key, Some(digest), snapshot, cost)?;
    let found = Newest::of(found, cover);
    searched(candidate, probe, found.is_some(), cost);
    if let Some(found) = found
        && let Some(answer) = findings.in_table(found, table, probe.key, cover, cost)?
    {
        return Ok(Some(answer));
    }
    search(version, others, probe, findings, snapshot, cover, cost)
}
