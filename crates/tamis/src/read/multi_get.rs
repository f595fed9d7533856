//! Point lookups of many keys. Performs each stage of a [get](KeyLookup) for all keys of a batch
//! before the next stage, so that cache misses overlap, and reads too where tables are not mapped
//! (see [`rounds`]).
//!
//! 1. All digests, and the memtables.
//! 2. For each step of runs: all filters, then fetches of the blocks of all keys with a candidate,
//!    then the search of these blocks.
//!
//! Most keys of a batch have no candidate, or one that has the answer. Where filters can be probed
//! for many keys at once, an unanswered key is kept as its bytes, their prefix and their digest
//! ([`LeanKey`]), so that a batch of 32 stays in the first-level cache.
//!
//! A batch belongs to one call, and so to one thread.

use std::ops::Range;

use smallvec::SmallVec;
use tamis_base::key::SeqNo;
use tamis_files::table::{BlockAt, prefetch};

use crate::error::ReadError;
use crate::io::batch::BatchReader;
use crate::observe::cost::ReadCost;
use crate::read::ReadAt;
use crate::read::lookup::{KeyLookup, Lookup};
use crate::select::{Candidate, Candidates, LeanKey, MAX_BATCH, TableFilters, next_step};
use crate::slice::Slice;
use crate::tree::version::Version;

mod blobs;
mod rounds;

/// Keys processed together, unless more reads may overlap: enough to hide memory latency, few
/// enough for the first-level cache.
const BATCH: usize = MAX_BATCH;

/// A key looked up individually: its filters cannot be probed for many keys, or it has merge
/// operands.
struct SingleKey<'k> {
    /// The key's index in the result.
    place: usize,
    lookup: KeyLookup<'k>,
    candidates: Candidates,
    /// The first candidate's block, once known.
    block: Option<BlockAt>,
}

/// Unanswered keys, with their indexes in the result and the sequence numbers that cover them.
#[derive(Default)]
struct Unanswered<'k> {
    keys: SmallVec<[LeanKey<'k>; BATCH]>,
    places: SmallVec<[(usize, SeqNo); BATCH]>,
}

impl ReadAt<'_> {
    /// Returns the visible values of `keys`, in the same order.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        cost: &mut ReadCost,
    ) -> Result<Vec<Option<Slice>>, ReadError> {
        let mut values = vec![None; keys.len()];
        if !self.sharing() {
            for (key, value) in keys.iter().zip(&mut values) {
                *value = self.get(key.as_ref(), cost)?.value();
            }
            return Ok(values);
        }
        let reads = self.view.version.tables.first().and_then(|table| table.table.overlap());
        let together = reads.map_or(BATCH, |reads| reads.depth().max(BATCH));
        for (keys, values) in keys.chunks(together).zip(values.chunks_mut(together)) {
            // Constructed in place because it is large.
            let answers = Answers { values, blobs: Vec::new() };
            let mut batch =
                Batch { at: self, reads, waiting: Unanswered::default(), open: Vec::new(), answers, cost };
            batch.search_memtables(keys)?;
            batch.search_runs()?;
            batch.read_blobs()?;
        }
        Ok(values)
    }
}

/// A batch in progress.
struct Batch<'a, 'k> {
    at: &'a ReadAt<'a>,
    /// Reads blocks together if tables are not mapped.
    reads: Option<&'a BatchReader>,
    waiting: Unanswered<'k>,
    open: Vec<SingleKey<'k>>,
    answers: Answers<'a>,
    cost: &'a mut ReadCost,
}

/// The results of a batch.
struct Answers<'a> {
    values: &'a mut [Option<Slice>],
    /// Values in blob files, read together: result index, table and reference.
    blobs: Vec<(usize, usize, Slice)>,
}

impl Answers<'_> {
    #[inline]
    fn set(&mut self, place: usize, answer: Lookup) {
        match answer {
            Lookup::Separated { table, reference, .. } => self.blobs.push((place, table, reference)),
            answer => self.values[place] = answer.value(),
        }
    }
}

impl<'a, 'k> Batch<'a, 'k> {
    /// The first stage: digests and memtables.
    fn search_memtables<K: AsRef<[u8]>>(&mut self, keys: &'k [K]) -> Result<(), ReadError> {
        let Batch { at, reads, waiting, open, answers, cost } = self;
        cost.gets += keys.len() as u64;
        let selector = &*at.view.selector;
        let lean = reads.is_none() && selector.answers_many();
        let in_memory = at.view.memtables.iter().any(|slot| !slot.memtable.is_empty());
        for (place, key) in keys.iter().enumerate() {
            let key = LeanKey::new(key.as_ref(), cost);
            let cover = at.cover(key.key);
            // If not, every version in the tables is deleted.
            let in_tables = cover == 0 || cover <= at.view.version.max_seq;
            if in_memory || !lean {
                let mut lookup = KeyLookup::with_digest(&key, cover);
                if let Some(answer) = lookup.search_memtables(at, *cost)? {
                    answers.set(place, answer);
                    continue;
                }
                if !in_tables {
                    answers.set(place, lookup.nothing_left(at, *cost)?);
                    continue;
                }
                if lookup.has_operands() {
                    open.push(SingleKey { place, lookup, candidates: Candidates::new(), block: None });
                    continue;
                }
            }
            if !in_tables {
                continue;
            }
            if let Some(records) = at.records
                && let Some(answer) = at.cached(records, &key, cover, *cost)
            {
                answers.set(place, answer);
                continue;
            }
            if !lean {
                let lookup = KeyLookup::with_digest(&key, cover);
                open.push(SingleKey { place, lookup, candidates: Candidates::new(), block: None });
                continue;
            }
            if selector.tables().is_some_and(TableFilters::samples) {
                let mut lookup = KeyLookup::with_digest(&key, cover);
                lookup.probe.set_counted(true);
                open.push(SingleKey { place, lookup, candidates: Candidates::new(), block: None });
                continue;
            }
            waiting.keys.push(key);
            waiting.places.push((place, cover));
        }
        Ok(())
    }

    /// Performs the other stages, one step of runs after another.
    fn search_runs(&mut self) -> Result<(), ReadError> {
        let (version, global) = (&*self.at.view.version, self.at.view.selector.is_global());
        let mut first = 0;
        while first < version.runs.len() && !(self.waiting.keys.is_empty() && self.open.is_empty()) {
            let runs = match version.runs.len() {
                count if global => 0..count,
                count => next_step(first, count, false),
            };
            first = runs.end;
            self.ask_for_open(&runs)?;
            match self.reads {
                Some(reads) => rounds::search(self, reads)?,
                None => self.search_open()?,
            }
            self.search_waiting(&runs)?;
        }
        for key in &mut self.open {
            self.answers.set(key.place, key.lookup.nothing_left(self.at, self.cost)?);
            key.lookup.report(self.at);
        }
        Ok(())
    }

    /// Probes the filters for every open key's candidates. In mapped tables, also prefetches the
    /// first candidate's block.
    fn ask_for_open(&mut self, runs: &Range<usize>) -> Result<(), ReadError> {
        let (version, selector) = (&*self.at.view.version, &*self.at.view.selector);
        for key in &mut self.open {
            let digest = key.lookup.probe.digest_for_filter(self.cost);
            selector.prefetch(version, &key.lookup.probe, digest, runs.clone());
        }
        for key in &mut self.open {
            key.candidates.clear();
            key.block = None;
            selector.select(version, &mut key.lookup.probe, runs.clone(), &mut key.candidates, self.cost);
            if self.reads.is_none()
                && let Some(candidate) = key.candidates.first()
            {
                key.block = locate(version, candidate.table, key.lookup.probe.key, self.cost)?;
            }
        }
        Ok(())
    }

    /// Searches the open keys' candidates, and removes the answered keys.
    fn search_open(&mut self) -> Result<(), ReadError> {
        let mut failed = None;
        self.open.retain_mut(|key| {
            match key.lookup.search_candidates(self.at, &key.candidates, key.block, self.cost) {
                Ok(None) => return true,
                Ok(Some(answer)) => {
                    key.lookup.remember(self.at, &answer);
                    self.answers.set(key.place, answer);
                }
                Err(error) => failed = Some(error),
            }
            key.lookup.report(self.at);
            false
        });
        failed.map_or(Ok(()), Err)
    }

    /// Probes the filters for the waiting keys and searches their candidates. Answered keys are
    /// removed; keys with a merge operand become open.
    fn search_waiting(&mut self, runs: &Range<usize>) -> Result<(), ReadError> {
        let Batch { at, waiting, open, answers, cost, .. } = self;
        if waiting.keys.is_empty() {
            return Ok(());
        }
        let (at, version) = (*at, &*at.view.version);
        let mut masks = [0u32; BATCH];
        at.view.selector.select_many(version, &waiting.keys, runs.clone(), &mut masks, cost);
        let mut blocks = [None; BATCH];
        for ((key, mask), block) in waiting.keys.iter().zip(masks).zip(&mut blocks) {
            if mask != 0 {
                let run = &version.runs[runs.start + mask.trailing_zeros() as usize];
                if let Some(table) = version.table_for(run, key.key, key.prefix) {
                    *block = locate(version, table, key.key, cost)?;
                }
            }
        }
        let mut left = 0;
        for i in 0..waiting.keys.len() {
            let (key, (place, cover)) = (waiting.keys[i], waiting.places[i]);
            if masks[i] != 0 {
                let mut lookup = KeyLookup::with_digest(&key, cover);
                // Sampling was decided before.
                lookup.probe.set_counted(false);
                let candidates = candidates(version, &key, runs.start, masks[i]);
                if let Some(answer) = lookup.search_candidates(at, &candidates, blocks[i], *cost)? {
                    lookup.remember(at, &answer);
                    answers.set(place, answer);
                    // The caller will read it after the other keys are searched.
                    answers.values[place].iter().for_each(|value| prefetch(value));
                    continue;
                }
                if lookup.has_operands() {
                    open.push(SingleKey { place, lookup, candidates: Candidates::new(), block: None });
                    continue;
                }
            }
            (waiting.keys[left], waiting.places[left]) = (key, (place, cover));
            left += 1;
        }
        waiting.keys.truncate(left);
        waiting.places.truncate(left);
        Ok(())
    }
}

/// Locates and prefetches a key's block in a table whose filter admitted the key; `None` if the
/// table ends before the key.
#[inline]
fn locate(
    version: &Version,
    table: usize,
    key: &[u8],
    cost: &mut ReadCost,
) -> Result<Option<BlockAt>, ReadError> {
    let table = &version.tables[table].table;
    let at = table.locate(key, cost)?;
    if let Some(at) = at {
        table.announce_blocks(at);
        table.prefetch_block(at);
    }
    Ok(at)
}

/// Returns the candidates in a mask: bit `i` is run `first + i`.
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
