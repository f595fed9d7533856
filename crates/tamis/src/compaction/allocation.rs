//! Divides filter memory between tables by observed accesses (`filter_allocation = mnemosyne`),
//! after Z. Zhu, Y. Wei, J. H. Mun, M. Athanassoulis, "Mnemosyne: Dynamic Workload-Aware BF Tuning
//! via Accurate Statistics in LSM trees" (PACMMOD 3(3), 2025).
//!
//! A table's filter is made when the table is written, and stays. So a job that writes tables
//! computes the best [division](Division) over all tables of the tree as it will be, and gives its
//! own tables their share. Sampled gets count how often each table is asked for a key that it does
//! not hold ([`Accesses`](crate::tree::accesses::Accesses)).
//!
//! # What a new table will be asked
//!
//! The estimate comes from the *sources*: the merged tables, or, for a flush or an ingestion, all
//! tables below. A get that misses in the oldest run has missed in all newer ones that cover its
//! key. So a merged table is missed as often as the oldest source within its range, plus, where
//! that has no table, as often as the next newer one. The gets that ask it are these and those
//! whose key a source held. The oldest run is usually the largest: its tables are the smallest
//! parts of the key space that are counted, so that what was learned about parts survives merges
//! with runs of few tables. A flushed table is asked before all others, and hardly ever holds the
//! key. (The paper's estimator, Merlin, follows the files' gets over time; its first step, too, is
//! to carry counts over to new files by overlap.)
//!
//! A source's share within a range is estimated as for [units](tamis_policy::hotness): by
//! interpolation between its bounds. Keys and gets are divided the same way, so that errors cancel
//! out: bits follow from the gets per key.
//!
//! # Total memory
//!
//! Tables written earlier have the bits that were best then. If these are too few, the new tables
//! get the difference; if they are too many, the new tables give it up; either way by at most
//! [`MOST_CORRECTION`] bits per key. How many keys a merge drops becomes known with each table; the
//! bits planned for dropped keys go to the remaining ones. So in a tree that is being rewritten,
//! the total stays at `bits_per_key`.
//!
//! Plain values, owned by one job; the counters may change while it runs.

use std::ops::Bound;
use std::sync::Arc;

use tamis_base::collections::HashSet;
use tamis_base::ids::{RunId, TableId};
use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_filter::theory::Division;
use tamis_policy::compaction::plan::{OutputRun, Plan};
use tamis_policy::hotness::{Range, reaches, share};

use crate::options::KeyspaceOptions;
use crate::tree::accesses::AskedTimes;
use crate::tree::open_table::OpenTable;
use crate::tree::version::{Run, Version};

/// The maximum bits per key of one filter.
pub(crate) const MOST_BITS: f64 = 64.0;

/// The maximum bits per key by which new filters compensate for the size of older ones.
const MOST_CORRECTION: f64 = 2.0;

/// The share of the difference that one job compensates for: other jobs may be doing so at the same
/// time.
const GAIN: f64 = 0.5;

/// Misses that every run starts with, spread evenly over its keys: without gets, the division is
/// Monkey's.
const PRIOR: f64 = 64.0;

/// Likewise for each table of the run with the most tables: a table is not cold just because none
/// of a few gets asked it.
const PRIOR_OF_TABLE: f64 = 0.5;

/// The bits per key of the tables that one job writes. See the [module](self).
#[derive(Debug)]
pub(crate) struct ByAccess {
    /// Per run, newest first.
    sources: Vec<Vec<Arc<OpenTable>>>,
    /// Whether the new table is asked before all sources, instead of replacing them.
    above: bool,
    era: u64,
    /// The job's entries, if they are known and are not the sources' entries.
    entries: Option<f64>,
    /// The minimum misses assumed per new key.
    prior: f64,
    /// Misses assumed per key that no source covers.
    unknown: f64,
    division: Division,
    /// Bits per new key with a filter: how far the tables that stay fall short of their share.
    correction: f64,
    /// How far the bits of a new key with a filter exceed the average of all keys. If a merge drops
    /// keys, the remaining ones get more in proportion to this.
    beside: f64,
}

/// What the sources tell about a range of keys.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    keys: f64,
    asked: AskedTimes,
    /// The share of the range that no source covers.
    uncovered: f64,
}

/// One table of the tree as it will be.
struct PlannedTable {
    keys: f64,
    misses: f64,
    /// The size of its filter in bits; `None` if the table is still to be written.
    bits: Option<f64>,
}

impl ByAccess {
    /// Allocates for a table of `entries` entries in this key range that is newer than all others.
    pub(crate) fn for_flush(
        options: &KeyspaceOptions,
        version: &Version,
        (smallest, largest): (&KeyBytes, &KeyEnd),
        entries: u64,
        era: u64,
    ) -> ByAccess {
        let sources =
            version.runs.iter().map(|run| version.tables[run.tables.clone()].to_vec()).collect::<Vec<_>>();
        let mut by = ByAccess::new(version, sources, true, era);
        by.entries = Some(entries as f64);
        by.prior = prior_of(version) / (entries as f64).max(1.0);
        let new = by.estimate(range(smallest, largest), entries as f64);
        let parts = by.kept(version, |_| true, None).chain([new]).collect();
        by.divide(options, parts)
    }

    /// Allocates for the tables that a merge writes.
    pub(crate) fn for_plan(options: &KeyspaceOptions, version: &Version, plan: &Plan, era: u64) -> ByAccess {
        let inputs: HashSet<TableId> = plan.tables().collect();
        let input = |run: &Run| -> Vec<_> {
            let tables = version.tables[run.tables.clone()].iter();
            tables.filter(|table| inputs.contains(&table.meta.id)).cloned().collect()
        };
        let sources: Vec<_> = version.runs.iter().map(input).filter(|run| !run.is_empty()).collect();
        let mut by = ByAccess::new(version, sources, false, era);
        let stays = |table: &OpenTable| !inputs.contains(&table.meta.id);
        let joined = version.runs.iter().find(|run| plan.output == OutputRun::Into(run.id));
        let beside = joined.into_iter().flat_map(|run| &version.tables[run.tables.clone()]);
        let output = by.sources.iter().flatten().map(|table| table.meta.entries).sum::<u64>()
            + beside.filter(|table| stays(table)).map(|table| table.meta.entries).sum::<u64>();
        let output = (output as f64).max(1.0);
        by.prior = prior_of(version) / output;
        // The division depends on how gets are distributed within the merged range. The tables of
        // the largest input show that at the granularity of the new ones.
        let largest = by.sources.iter().max_by_key(|run| run.iter().map(|t| t.meta.entries).sum::<u64>());
        let borders: Vec<&[u8]> =
            largest.into_iter().flatten().skip(1).map(|table| &table.meta.smallest[..]).collect();
        let all = range(&plan.range.smallest, &plan.range.largest);
        let starts = [all.start].into_iter().chain(borders.iter().copied());
        let ends = borders.iter().map(|border| Bound::Excluded(*border)).chain([all.end]);
        let new = starts.zip(ends).map(|(start, end)| by.estimate(Range { start, end }, 0.0));
        let joined = joined.map(|run| (run.id, output));
        let parts = by.kept(version, stays, joined).chain(new).collect();
        by.divide(options, parts)
    }

    fn new(version: &Version, sources: Vec<Vec<Arc<OpenTable>>>, above: bool, era: u64) -> ByAccess {
        let known = version.tables.iter().map(|t| (t.meta.entries, t.accesses.get(era).misses));
        let (keys, misses) = known.fold((0, 0.0), |sum, table| (sum.0 + table.0, sum.1 + table.1));
        ByAccess {
            sources,
            above,
            era,
            entries: None,
            prior: 0.0,
            unknown: misses / (keys as f64).max(1.0),
            division: Division::of(&[], &[], 0.0),
            correction: 0.0,
            beside: 0.0,
        }
    }

    /// Returns the tables of the tree that stay. `joined`: the run that new tables join, and its
    /// number of keys including theirs.
    fn kept<'a>(
        &'a self,
        version: &'a Version,
        stays: impl Fn(&OpenTable) -> bool + Copy + 'a,
        joined: Option<(RunId, f64)>,
    ) -> impl Iterator<Item = PlannedTable> + 'a {
        let prior = prior_of(version);
        version.runs.iter().flat_map(move |run| {
            let tables = &version.tables[run.tables.clone()];
            let of_run = tables.iter().map(|table| table.meta.entries).sum::<u64>() as f64;
            let of_run = joined.filter(|(id, _)| *id == run.id).map_or(of_run, |(_, keys)| keys);
            tables.iter().filter(move |table| stays(table)).map(move |table| {
                let keys = table.meta.entries as f64;
                let misses = table.accesses.get(self.era).misses + prior * keys / of_run.max(1.0);
                PlannedTable { keys, misses, bits: Some(table.fixed_filter_bytes() as f64 * 8.0) }
            })
        })
    }

    fn divide(self, options: &KeyspaceOptions, parts: Vec<PlannedTable>) -> ByAccess {
        let keys: Vec<u64> = parts.iter().map(|part| part.keys.round() as u64).collect();
        let misses: Vec<f64> = parts.iter().map(|part| part.misses).collect();
        let division = Division::of(&keys, &misses, options.bits_per_key);
        // How far the staying tables exceed their share, and what the new ones will have.
        let (mut beyond, mut new_bits, mut new_keys, mut filtered) = (0.0, 0.0, 0.0, 0.0);
        for part in &parts {
            let bits = division.bits(part.keys, part.misses).min(MOST_BITS);
            match part.bits {
                Some(has) => beyond += has - bits * part.keys,
                None => {
                    new_bits += bits * part.keys;
                    new_keys += part.keys;
                    filtered += if bits > 0.0 { part.keys } else { 0.0 };
                }
            }
        }
        if filtered == 0.0 {
            return ByAccess { division, ..self };
        }
        let correction = (-GAIN * beyond / filtered).clamp(-MOST_CORRECTION, MOST_CORRECTION);
        let beside = (new_bits - options.bits_per_key * new_keys) / filtered + correction;
        ByAccess { division, correction, beside, ..self }
    }

    /// Returns the bits per key of the filter of a new table with this key range and this many
    /// entries.
    pub(crate) fn bits(&self, smallest: &KeyBytes, largest: &KeyEnd, entries: u64) -> f64 {
        let part = self.estimate(range(smallest, largest), self.entries.unwrap_or(0.0));
        match self.division.bits(part.keys, part.misses) {
            bits if bits > 0.0 => {
                let dropped = part.keys / (entries as f64).max(1.0) - 1.0;
                let correction = self.correction + self.beside * dropped;
                (bits + correction.clamp(-MOST_CORRECTION, MOST_CORRECTION)).clamp(0.0, MOST_BITS)
            }
            _ => 0.0,
        }
    }

    /// Gives a new table, which has no readers yet, the counts that it inherits.
    pub(crate) fn inherit(&self, table: &OpenTable) {
        let known = self.within(range(&table.meta.smallest, &table.meta.largest));
        table.accesses.inherit(self.era, self.asked_anew(&known, table.meta.entries as f64));
    }

    /// Estimates what new tables within a range will be like: `entries` keys if they do not come
    /// from the sources.
    fn estimate(&self, range: Range<'_>, entries: f64) -> PlannedTable {
        let known = self.within(range);
        let keys = if self.above { entries } else { known.keys };
        let misses = self.asked_anew(&known, keys).misses + self.prior * keys;
        PlannedTable { keys, misses, bits: None }
    }

    /// Returns the gets that will ask a new table, in place of the sources or before them.
    fn asked_anew(&self, known: &Estimate, keys: f64) -> AskedTimes {
        let Estimate { asked, uncovered, .. } = *known;
        match self.above {
            true => {
                AskedTimes { misses: asked.misses + asked.held + uncovered * keys * self.unknown, held: 0.0 }
            }
            false => asked,
        }
    }

    /// Returns what the sources tell about a range.
    fn within(&self, range: Range<'_>) -> Estimate {
        let mut known = Estimate { uncovered: 1.0, ..Estimate::default() };
        for tables in self.sources.iter().rev() {
            let (mut covered, mut misses) = (0.0, 0.0);
            for table in tables {
                let of_table = self::range(&table.meta.smallest, &table.meta.largest);
                if !reaches(range.end, of_table.start) || !reaches(of_table.end, range.start) {
                    continue;
                }
                let part = share(of_table, range);
                let AskedTimes { misses: missed, held } = table.accesses.get(self.era);
                misses += part * missed;
                known.asked.held += part * held;
                known.keys += part * table.meta.entries as f64;
                covered += share(range, of_table);
            }
            // Where an older source covers the range, gets that missed here went on to it and were
            // counted there.
            known.asked.misses += known.uncovered * misses;
            known.uncovered *= (1.0 - covered).clamp(0.0, 1.0);
        }
        known
    }
}

fn range<'a>(smallest: &'a KeyBytes, largest: &'a KeyEnd) -> Range<'a> {
    let end = match largest {
        KeyEnd::Included(key) => Bound::Included(&key[..]),
        KeyEnd::Excluded(key) => Bound::Excluded(&key[..]),
        KeyEnd::Unbounded => Bound::Unbounded,
    };
    Range { start: smallest, end }
}

/// Returns the misses that a run starts with.
fn prior_of(version: &Version) -> f64 {
    let most = version.runs.iter().map(|run| run.tables.len()).max().unwrap_or(0);
    PRIOR + PRIOR_OF_TABLE * most as f64
}

#[cfg(test)]
mod tests;
