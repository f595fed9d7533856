//! The filter of a tree that names a key's current run.
//!
//! Every version has its own index, derived from the previous one by the changes between the two. The changes are found
//! by comparing the tables of both versions; the keys of tables that were added, removed or moved to another run are
//! read from their key lists. This happens while the version is published: unlike GRF, these filters
//! know nothing about a key before they know its current run. Flushes and compactions wait for it, including those of
//! other keyspaces, and so does opening; readers do not.
//!
//! When an index is full, or most of its keys have moved at once (a last-level compaction), it is rebuilt.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tamis::selector::{
    KeysUnavailable, SelectorRun, SelectorSpec, SelectorStats, SelectorTable, TreeSelector, VersionSelector,
};
use tamis_filter::Digest;
use tamis_filter::global::{
    Batch, Epochs, RunIndex, RunIndexKind, RunIndexSpec, RunTag, Tagged, run_index::build,
};

use crate::version::RunIdFilters;

/// Capacity of a newly built index, as a multiple of its entries.
const ROOM: f64 = 1.2;

/// The filter of one keyspace. The mutex is for statistics: versions are published one after the other.
#[derive(Debug)]
pub(crate) struct CurrentRuns {
    kind: RunIndexKind,
    spec: SelectorSpec,
    current: Mutex<Current>,
    inserted: AtomicU64,
    insert_ns: AtomicU64,
    rebuilt: AtomicU64,
    rebuild_ns: AtomicU64,
}

/// The state of the newest version.
#[derive(Debug, Default)]
struct Current {
    index: Option<Arc<dyn RunIndex>>,
    tags: HashMap<(usize, u64), RunTag>,
    /// By table, the tag of its keys in the index.
    placed: HashMap<u64, Placed>,
    /// Tables whose keys cannot be read because of damage; trying again is useless.
    damaged: HashSet<u64>,
}

/// The tag of a table's keys, and the table.
type Placed = (RunTag, Arc<dyn SelectorTable>);

/// Tables whose keys could not be read, and an index of all others.
type Rebuilt = (Vec<(u64, KeysUnavailable)>, Option<Arc<dyn RunIndex>>);

impl CurrentRuns {
    pub(crate) fn new(kind: RunIndexKind, spec: &SelectorSpec) -> CurrentRuns {
        CurrentRuns {
            kind,
            spec: spec.clone(),
            current: Mutex::default(),
            inserted: AtomicU64::new(0),
            insert_ns: AtomicU64::new(0),
            rebuilt: AtomicU64::new(0),
            rebuild_ns: AtomicU64::new(0),
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index after tables were removed and added; `None` if it must be rebuilt.
    fn change(&self, index: &dyn RunIndex, went: &[&Placed], came: &[&Placed]) -> Option<Arc<dyn RunIndex>> {
        let started = Instant::now();
        let read = |of: &[&Placed]| -> Option<Vec<(Batch, RunTag)>> {
            of.iter().map(|(tag, table)| Some((keys(&**table).ok()?, *tag))).collect()
        };
        let (went, came) = (read(went)?, read(came)?);
        fn tagged(batches: &[(Batch, RunTag)]) -> Vec<Tagged<'_>> {
            batches.iter().map(|(batch, tag)| (batch, *tag)).collect()
        }
        let changed = index.change(&tagged(&went), &tagged(&came));
        let keys: usize = came.iter().map(|(batch, _)| batch.len()).sum();
        self.inserted.fetch_add(keys as u64, Relaxed);
        self.insert_ns.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        changed
    }

    /// Returns the tables whose keys cannot be read, and an index of all others.
    fn rebuild(&self, placed: &HashMap<u64, Placed>) -> Rebuilt {
        let started = Instant::now();
        let (mut batches, mut unread) = (Vec::new(), Vec::new());
        for (id, (tag, table)) in placed {
            match keys(&**table) {
                Ok(batch) => batches.push((batch, *tag)),
                Err(why) => unread.push((*id, why)),
            }
        }
        let items: Vec<Tagged<'_>> = batches.iter().map(|(batch, tag)| (batch, *tag)).collect();
        // Count the keys actually read: a table's entry count is only a claim of its file, and this determines the memory.
        let keys: usize = batches.iter().map(|(batch, _)| batch.len()).sum();
        let spec = RunIndexSpec {
            bits_per_key: self.spec.bits_per_key,
            capacity: (keys as f64 * ROOM) as u64,
            slots: self.spec.runs_per_level.clone(),
            ratio: self.spec.size_ratio,
            segment: RunIndexSpec::SEGMENT,
        };
        let built = build(self.kind, &items, &spec);
        self.rebuilt.fetch_add(1, Relaxed);
        self.rebuild_ns.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        (unread, built.inspect_err(|why| log::warn!("reading without the global filter: {why}")).ok())
    }
}

impl TreeSelector for CurrentRuns {
    fn next_version(&self, runs: &[SelectorRun]) -> Arc<dyn VersionSelector> {
        let mut current = self.current();
        let tags = retag(&current.tags, runs);
        let tag_of: Vec<RunTag> = runs.iter().map(|run| tags[&(run.level, run.id)]).collect();
        let mut placed = HashMap::new();
        for (run, tag) in runs.iter().zip(&tag_of) {
            for table in run.tables.iter().filter(|table| !current.damaged.contains(&table.id())) {
                placed.insert(table.id(), (*tag, table.clone()));
            }
        }
        let moved = |id: &u64, tag: RunTag, of: &HashMap<u64, Placed>| {
            of.get(id).is_none_or(|(other, _)| *other != tag)
        };
        let went: Vec<_> =
            current.placed.iter().filter(|(id, (tag, _))| moved(id, *tag, &placed)).map(|(_, p)| p).collect();
        let came: Vec<_> =
            placed.iter().filter(|(id, (tag, _))| moved(id, *tag, &current.placed)).map(|(_, p)| p).collect();
        let entries =
            |of: &[&Placed]| of.iter().map(|(_, table)| table.entries()).fold(0, u64::saturating_add);
        let all = placed.values().map(|(_, table)| table.entries()).fold(0, u64::saturating_add);
        let mut index = None;
        if entries(&came).saturating_mul(2) < all {
            index = current.index.as_ref().and_then(|index| self.change(&**index, &went, &came));
        }
        let mut damaged = current.damaged.clone();
        if index.is_none() && all > 0 {
            let (unread, built) = self.rebuild(&placed);
            for (id, why) in unread {
                placed.remove(&id);
                if matches!(why, KeysUnavailable::Damaged) {
                    damaged.insert(id);
                }
            }
            index = built;
        }
        damaged.retain(|id| runs.iter().flat_map(|run| &run.tables).any(|table| table.id() == *id));
        let covered: Vec<bool> = runs
            .iter()
            .map(|run| index.is_some() && run.tables.iter().all(|table| placed.contains_key(&table.id())))
            .collect();
        *current = Current { index: index.clone(), tags, placed, damaged };
        drop(current);
        Arc::new(RunIdFilters::new(index, tag_of, covered))
    }

    fn stats(&self) -> SelectorStats {
        let current = self.current();
        let index = current.index.as_ref();
        SelectorStats {
            entries: index.map_or(0, |index| index.entries()),
            bytes: index.map_or(0, |index| index.memory_bytes() as u64),
            inserted: (self.inserted.load(Relaxed), self.insert_ns.load(Relaxed)),
            rebuilt: (self.rebuilt.load(Relaxed), self.rebuild_ns.load(Relaxed)),
        }
    }
}

/// Returns the keys of a table.
fn keys(table: &dyn SelectorTable) -> Result<Batch, KeysUnavailable> {
    let mut batch = Batch::new();
    table.for_each_key(&mut |key| batch.push(key, Digest::of(key), Epochs::ALL))?;
    Ok(batch)
}

/// Returns the tags of these runs: existing tags are kept; a new run gets the smallest slot of its level that is
/// unused in this version and the previous one.
fn retag(old: &HashMap<(usize, u64), RunTag>, runs: &[SelectorRun]) -> HashMap<(usize, u64), RunTag> {
    let mut tags: HashMap<(usize, u64), RunTag> = HashMap::new();
    let mut taken: HashSet<RunTag> = old.values().copied().collect();
    // Oldest first, so that slots ascend with age where possible.
    for run in runs.iter().rev() {
        let at = (run.level, run.id);
        let tag = old.get(&at).copied().unwrap_or_else(|| {
            let level = run.level.min(usize::from(u8::MAX)) as u8;
            let free = (0..).map(|slot| RunTag { level, slot }).find(|tag| !taken.contains(tag));
            free.expect("there is always another slot")
        });
        taken.insert(tag);
        tags.insert(at, tag);
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of 100 keys that claims more.
    #[derive(Debug)]
    struct Claiming(u64);

    impl SelectorTable for Claiming {
        fn id(&self) -> u64 {
            7
        }

        fn entries(&self) -> u64 {
            self.0
        }

        fn for_each_key(&self, f: &mut dyn FnMut(&[u8])) -> Result<(), KeysUnavailable> {
            (0..100u64).for_each(|n| f(&n.to_be_bytes()));
            Ok(())
        }
    }

    /// A cuckoo filter for the whole tree was sized by the number of keys that the tables claimed, so a damaged table of a
    /// kilobyte could make it allocate gigabytes.
    #[test]
    fn a_claimed_entry_count_takes_no_memory() {
        for rival in crate::ALL {
            for claimed in [100, 1 << 30, u64::MAX] {
                let filter = CurrentRuns::new(rival.kind, &SelectorSpec::new(10.0, vec![4, 10, 1], 10.0));
                let run = SelectorRun { level: 0, id: 1, tables: vec![Arc::new(Claiming(claimed))] };
                let version = filter.next_version(std::slice::from_ref(&run));
                assert!(version.unknown_runs().is_empty());
                let bytes = filter.stats().bytes;
                assert!(
                    bytes < 1 << 20,
                    "{}: a table that claims {claimed} entries: {bytes} bytes",
                    rival.name
                );
                for n in 0..100u64 {
                    let (key, mut runs) = (n.to_be_bytes(), Vec::new());
                    version.probe(&key, Digest::of(&key), &mut |run| runs.push(run));
                    runs.dedup();
                    assert_eq!(runs, [0], "{}", rival.name);
                }
                assert!(filter.next_version(&[run]).unknown_runs().is_empty());
            }
        }
    }
}
