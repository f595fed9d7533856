//! The tables' part of a batched lookup where tables are read from files, in rounds.
//!
//! In each round every key that is still looked for searches its next candidate. First all keys name the block that they
//! need; then these blocks, each once, are taken from the cache or read in one batch; then the keys are answered. A key
//! whose candidate did not have it, or had an operand only, goes on to the next round. So the waits of a call are as many
//! as the most candidates that one of its keys has to search (the older blocks of a chain of operands within a table come
//! besides), not as many as there are keys.
//!
//! # Invariants
//!
//! * Candidates of a key are searched in their order, newest run first, exactly as by single lookups.
//! * The blocks of a round are held until all of its keys are answered: a cache that is smaller than a round makes none
//!   to be read twice.
//! * An error of any block that a key needs is the error of the call.
//!
//! Belongs to one call, and so to one thread.

use smallvec::SmallVec;

use super::{BATCH, Open, answered_by};
use crate::error::ReadError;
use crate::io::batch::BatchReader;
use crate::key::SeqNo;
use crate::read::View;
use crate::read::get::{Newest, searched};
use crate::slice::Slice;
use crate::table::ReadCost;
use crate::table::{
    BlockAt, BlockSource, BlockTouch, Fetch, HashAnswer, HeapBlock, ReadTrace, TouchCounts, fetch,
};

/// What a key searches in a round.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The key's place among those that are looked for.
    key: usize,
    /// The table's number within the version.
    table: usize,
    at: BlockAt,
}

/// Searches the candidates of all `open` keys; those that are answered are taken out.
pub(super) fn search(
    view: &View,
    reads: &BatchReader,
    open: &mut SmallVec<[Open<'_, '_>; BATCH]>,
    snapshot: SeqNo,
    values: &mut [Option<Slice>],
    cost: &mut ReadCost,
) -> Result<(), ReadError> {
    let version = &*view.version;
    let mut searches: SmallVec<[Search; BATCH]> = SmallVec::new();
    let most = open.iter().map(|key| key.candidates.len()).max().unwrap_or(0);
    for round in 0..most {
        searches.clear();
        for (place, key) in open.iter().enumerate() {
            let Some(candidate) = key.candidates.get(round) else { continue };
            let table = &version.tables[candidate.table].table;
            if let Some(at) = table.locate(key.probe.key, cost)? {
                searches.push(Search { key: place, table: candidate.table, at });
            }
        }
        searches.sort_unstable_by_key(|search| (search.table, search.at.index));
        // Each block once, and for each key which one; a key without has none in its candidate.
        let mut fetches: SmallVec<[Fetch<'_>; BATCH]> = SmallVec::new();
        let mut block_of: SmallVec<[Option<usize>; BATCH]> = smallvec::smallvec![None; open.len()];
        let mut last = None;
        for &Search { key, table, at } in &searches {
            if last.replace((table, at.index)) != Some((table, at.index)) {
                fetches.push(Fetch::new(&version.tables[table].table, at));
            }
            block_of[key] = Some(fetches.len() - 1);
        }
        let mut counts = TouchCounts::default();
        let fetched = fetch(reads, &mut fetches, &mut counts);
        cost.add_touched(&counts);
        fetched?;
        let mut failed = None;
        let mut places = block_of.into_iter();
        open.retain(|key| {
            let block = places.next().flatten().map(|place| &mut fetches[place]);
            match search_candidate(view, key, round, block, snapshot, values, cost) {
                Ok(answered) => !answered,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// Searches one candidate of a key in `block`, the block that may hold it. Whether the key is answered.
fn search_candidate(
    view: &View,
    key: &mut Open<'_, '_>,
    round: usize,
    block: Option<&mut Fetch<'_>>,
    snapshot: SeqNo,
    values: &mut [Option<Slice>],
    cost: &mut ReadCost,
) -> Result<bool, ReadError> {
    let Open { place, probe, cover, candidates, findings } = key;
    let Some(&candidate) = candidates.get(round) else { return Ok(false) };
    cost.runs_searched += 1;
    let digest = probe.digest_for_block(cost);
    let found = match block {
        None => None,
        Some(fetch) => {
            let (table, at) = (fetch.table, fetch.at);
            let mut trace = Bringing { cost, fetch };
            Newest::of(table.get_in_block(at, probe.key, Some(digest), snapshot, &mut trace)?, *cover)
        }
    };
    searched(candidate, probe, found.is_some(), cost);
    let Some(found) = found else { return Ok(false) };
    let table = &view.version.tables[candidate.table];
    let Some(answer) = findings.in_table(found, table, probe.key, *cover, cost)? else { return Ok(false) };
    values[*place] = answer.value();
    answered_by(view, candidate, probe);
    Ok(true)
}

/// Counts what a lookup touches, and brings it the block that was fetched.
struct Bringing<'a, 't> {
    cost: &'a mut ReadCost,
    fetch: &'a mut Fetch<'t>,
}

impl ReadTrace for Bringing<'_, '_> {
    fn index_searched(&mut self) {
        self.cost.index_searched();
    }

    fn block_touched(&mut self, touch: BlockTouch) {
        self.cost.block_touched(touch);
    }

    fn hash_index_answered(&mut self, answer: HashAnswer) {
        self.cost.hash_index_answered(answer);
    }

    fn metadata_touched(&mut self, touch: BlockTouch) {
        self.cost.metadata_touched(touch);
    }

    fn checksum_verified(&mut self) {
        self.cost.checksum_verified();
    }

    fn brought(&mut self, offset: u64) -> Option<(HeapBlock, BlockSource)> {
        if offset == self.fetch.at.offset { self.fetch.take() } else { None }
    }
}
