//! The work that is due for the filter of a version.

use std::sync::atomic::Ordering::Relaxed;

use tamis_base::key::KeyBytes;
use tamis_filter::global::Partition;

use super::cell::{Cell, CellDirectory};
use super::gather::oldest_run;
use super::grf::Grf;
use super::span::Span;
use super::upkeep::{FEWEST_KEYS, partition_keys};
use crate::tree::version::Version;

/// Codes are collected once the oldest run has changed below a partition that has grown by an eighth.
const STALE: u64 = 8;
/// After so many collections, the next is a rebuild: entries of deleted keys stay until then.
const MOST_COLLECTIONS: u32 = 4;
/// A partition of so many times the keys that a new one gets is rebuilt as several.
pub(super) const MOST_OF_TARGET: u64 = 2;
/// A partition is rebuilt, whatever has changed, once it has this many times the keys it was built
/// with: its segments have become long.
const OVERGROWN: u64 = 2;

/// What would make a partition better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Building it again from the tables.
    Build,
    /// The collection of its codes.
    Collection,
}

/// A change of the answering filter under `filter = auto`, made by a background thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Begin to build the global filter.
    Begin,
    /// Let the complete global filter answer.
    Answer,
    /// Drop the global filter.
    Leave,
}

/// What a background thread should do for a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Build or rebuild a key range.
    Build(Span),
    /// Collect the codes of key ranges whose oldest run has changed.
    Collect,
    /// Add the keys of tables published without them.
    Insert,
    /// Make cells from the images on disk, after opening.
    Load,
    /// Save images of cells.
    Save,
    /// Begin or end use of the filter, under `filter = auto`.
    Switch(Switch),
}

impl Grf {
    /// Returns the work due for the current version; images are due only if the database `saves`
    /// any. Call under the `state` lock. Cheap: O(partitions · runs · log tables), mostly without
    /// the runs.
    pub(crate) fn task(&self, version: &Version, saves: bool) -> Option<Task> {
        if !self.loaded.load(Relaxed) {
            return (!version.tables.is_empty()).then_some(Task::Load);
        }
        let directory = self.directory.load();
        self.review(&directory);
        let (mut stale, mut collects) = (None, false);
        let most = MOST_OF_TARGET * partition_keys(version);
        for (at, (_, cell)) in directory.parts.iter().enumerate() {
            let span = directory.span(at);
            let partition = cell.partition.load();
            match &*partition {
                // Without keys there is nothing to build.
                None if is_inhabited(version, &span) => {
                    return Some(Task::Build(self.widened(version, span)));
                }
                Some(_) if stale.is_some() && collects => {}
                Some(partition) => match is_inhabited(version, &span) {
                    true => match need(version, (cell, &span, partition), most) {
                        Some(Need::Build) => {
                            stale = stale.or_else(|| Some(self.widened(version, span)));
                        }
                        Some(Need::Collection) => collects = true,
                        None => {}
                    },
                    // Dropped tables leave entries behind that no later insert would remove.
                    false if stale.is_none() && partition.entries() > 0 => {
                        stale = Some(uninhabited(version, &directory, at));
                    }
                    false => {}
                },
                None => {}
            }
        }
        // Before rebuilds, of which there may be many: gets search some of these tables for every key.
        if self.is_insert_due(version) {
            return Some(Task::Insert);
        }
        if collects {
            return Some(Task::Collect);
        }
        if let Some(span) = stale {
            return Some(Task::Build(span));
        }
        // Last, so that one file holds successive builds.
        (saves && self.is_unsaved(version, &directory)).then_some(Task::Save)
    }

    /// Returns a span large enough for a partition: the tables of the oldest run that it touches,
    /// and more if these are small.
    fn widened(&self, version: &Version, span: Span) -> Span {
        let Some(run) = version.runs.last() else { return span };
        let tables = &version.tables[run.tables.clone()];
        let first = tables.partition_point(|table| !table.meta.largest.reaches(&span.start));
        let Some(first_table) = tables.get(first) else { return span };
        let start = if first == 0 { KeyBytes::default() } else { first_table.meta.smallest.clone() };
        let start = start.min(span.start.clone());
        let (mut last, mut keys) = (first, 0u64);
        let partition_keys = partition_keys(version);
        while last < tables.len() && keys < partition_keys {
            keys += tables[last].meta.entries;
            last += 1;
        }
        // A remainder too small for a partition is included.
        let rest: u64 = tables[last..].iter().map(|table| table.meta.entries).sum();
        let end = match tables.get(last) {
            Some(next) if rest >= partition_keys / 2 => Some(next.meta.smallest.clone()),
            _ => None,
        };
        Span { start, end }
    }
}

/// Returns what would make the partition of a range with tables better, if a partition may have
/// `most` keys before it should be divided.
pub(super) fn need(
    version: &Version,
    (cell, span, partition): (&Cell, &Span, &Partition),
    most: u64,
) -> Option<Need> {
    let (keys, built) = (partition.keys(), partition.built_keys());
    let is_starved = partition.is_starved();
    // Only a new map can tell apart keys outside the common prefix or in the middle of others. The
    // map may also have been chosen for other reads. Only a new partition has the bits that its
    // memory allows again.
    if cell.is_outdated
        || cell.chosen.is_unsuited()
        || partition.is_crowded()
        || keys > OVERGROWN * built + FEWEST_KEYS / 2
        || is_starved && cell.collections > 0
    {
        return Some(Need::Build);
    }
    let has_grown = keys >= built + built / STALE + 64;
    if !has_grown && !is_starved {
        return None;
    }
    let (_, oldest) = oldest_run(version, span)?;
    let changed = oldest.iter().filter(|id| !cell.oldest.contains(id)).count();
    // More than half: a key range covers a few tables of the oldest run, and work on neighbouring
    // ranges may rewrite the ones at its borders.
    if 2 * changed <= oldest.len() {
        return None;
    }
    // Tombstones and what they deleted stay entries until a rebuild (the paper's lazy way, section
    // 4.2).
    // A cell of which another serves a part would keep its entries there.
    let is_undivided = span.start == cell.start && span.end == cell.end;
    let suffices = is_undivided && !is_starved && cell.collections < MOST_COLLECTIONS && keys < most;
    Some(if suffices { Need::Collection } else { Need::Build })
}

/// Reports whether a table of the version may have keys in the span.
fn is_inhabited(version: &Version, span: &Span) -> bool {
    // The oldest run is the most likely one.
    version.runs.iter().rev().any(|run| {
        let first = version.first_reaching(&run.tables, &span.start);
        first < run.tables.end && span.overlaps(&version.tables[first])
    })
}

/// Returns the contiguous ranges around range `at` that have no tables in the version.
fn uninhabited(version: &Version, directory: &CellDirectory, at: usize) -> Span {
    let is_empty = |at: &usize| !is_inhabited(version, &directory.span(*at));
    let first = (0..at).rev().take_while(is_empty).last().unwrap_or(at);
    let last = (at + 1..directory.parts.len()).take_while(is_empty).last().unwrap_or(at);
    Span { start: directory.start(first).clone(), end: directory.end(last).cloned() }
}
