//! The search of a batch in rounds, where tables are read from files.
//!
//! In each round every unanswered key searches its next candidate. First all keys name the block
//! they need. Then these blocks, each once, are taken from the cache or read in one batch. Then the
//! keys are answered. A key whose candidate did not have it, or had only a merge operand, goes on
//! to the next round. A call thus waits as many times as its keys have candidates to search at
//! most, not once per key. (Older blocks of merge operands within a table come on top.)
//!
//! # Invariants
//!
//! * Candidates of a key are searched in their order, newest run first, exactly as by single
//!   lookups.
//! * The blocks of a round are held until all of its keys are answered: a cache smaller than a
//!   round does not cause repeated reads.
//! * An error of any block that a key needs is the error of the call.
//!
//! Belongs to one call, and so to one thread.

use smallvec::SmallVec;
use tamis_files::table::{BlockAt, Fetch, TouchCounts, fetch};

use super::{BATCH, Batch};
use crate::error::ReadError;
use crate::io::batch::BatchReader;
use crate::read::lookup::TableStart;

/// The search of one key in a round.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The key's place among the open ones.
    key: usize,
    /// The table's number within the version.
    table: usize,
    at: BlockAt,
}

/// Searches the candidates of all open keys, and removes the keys that are answered.
pub(super) fn search(batch: &mut Batch<'_, '_>, reads: &BatchReader) -> Result<(), ReadError> {
    let Batch { at, open, answers, cost, .. } = batch;
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
        // Fetches each block once, and maps keys to blocks; a key without a block is not in its
        // candidate.
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
                Some((at, (block, source))) => TableStart::Fetched(at, block, source),
                None => TableStart::Nowhere,
            };
            match key.lookup.search_table(at, candidate, start, *cost) {
                Ok(None) => return true,
                Ok(Some(answer)) => answers.set(key.place, answer),
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
