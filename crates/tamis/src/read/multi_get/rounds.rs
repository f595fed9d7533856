//! The search of a batch where tables are read from files, in rounds.
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

use super::{BATCH, Batch};
use crate::error::ReadError;
use crate::io::batch::BatchReader;
use crate::read::lookup::Start;
use crate::table::{BlockAt, Fetch, TouchCounts, fetch};

/// What a key searches in a round.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The key's place among those that are looked for.
    key: usize,
    /// The table's number within the version.
    table: usize,
    at: BlockAt,
}

/// Searches the candidates of all open keys; those that are answered are taken out.
pub(super) fn search(batch: &mut Batch<'_, '_>, reads: &BatchReader) -> Result<(), ReadError> {
    let Batch { at, open, values, cost, .. } = batch;
    let tables = &at.view.version.tables;
    let mut searches: SmallVec<[Search; BATCH]> = SmallVec::new();
    let most = open.iter().map(|key| key.candidates.len()).max().unwrap_or(0);
    for round in 0..most {
        searches.clear();
        for (place, key) in open.iter().enumerate() {
            let Some(candidate) = key.candidates.get(round) else { continue };
            if let Some(at) = tables[candidate.table].table.locate(key.lookup.probe.key, *cost)? {
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
                fetches.push(Fetch::new(&tables[table].table, at));
            }
            block_of[key] = Some(fetches.len() - 1);
        }
        let mut counts = TouchCounts::default();
        let fetched = fetch(reads, &mut fetches, &mut counts);
        cost.add_touched(&counts);
        fetched?;
        let mut failed = None;
        let mut places = block_of.into_iter();
        open.retain_mut(|key| {
            let block = places.next().flatten().map(|place| &mut fetches[place]);
            let Some(&candidate) = key.candidates.get(round) else { return true };
            let start = match block.and_then(|fetch| Some((fetch.at, fetch.take()?))) {
                Some((at, (block, source))) => Start::Fetched(at, block, source),
                None => Start::Nowhere,
            };
            match key.lookup.search_table(at, candidate, start, *cost) {
                Ok(None) => return true,
                Ok(Some(answer)) => values[key.place] = answer.value(),
                Err(error) => failed = Some(error),
            }
            key.lookup.report(at);
            false
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}
