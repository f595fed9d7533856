//! Global filters that name a key's current run: Chucky, GRF_H and REMIX, which the GRF paper uses for comparison.
//!
//! Every version has its own index, derived from the previous one by the changes between the two. The changes are found
//! by comparing the tables of both versions; the keys of tables that were added, removed or moved to another run are
//! read from their key lists. This happens while the version is published: unlike [`Grf`](super::Grf), these filters
//! know nothing about a key before they know its current run. Flushes and compactions wait for it, including those of
//! other keyspaces, and so does opening; readers do not.
//!
//! When an index is full, or most of its keys have moved at once (a last-level compaction), it is rebuilt.

use crate::collections::{HashMap, HashSet};
use crate::sync::{self, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_filter::Digest;
use tamis_filter::global::{
    Batch, Epochs, RunIndex, RunIndexKind, RunIndexSpec, RunTag, Tagged, run_index::build,
};

use super::keys::{Source, for_each_key};
use super::run_ids::RunIdFilters;
use super::{GlobalFilterStats, RunSelector, Warnings, damaged_list};
use crate::error::StorageError;
use crate::ids::{RunId, TableId};
use crate::options::{FilterChoice, KeyspaceOptions};
use crate::tree::open_table::OpenTable;
use crate::tree::version::Run;

/// Capacity of a newly built index, as a multiple of its entries.
const ROOM: f64 = 1.2;

/// The filter of one keyspace. Its methods are called under the `state` lock; the inner mutex is for statistics.
#[derive(Debug)]
pub(crate) struct CurrentRuns {
    kind: RunIndexKind,
    name: &'static str,
    bits_per_key: f64,
    ratio: f64,
    slots: Vec<u32>,
    current: Mutex<Current>,
    inserted: AtomicU64,
    insert_ns: AtomicU64,
    rebuilt: AtomicU64,
    rebuild_ns: AtomicU64,
    from_data: AtomicU64,
    warnings: Warnings,
}

/// The state of the newest version.
#[derive(Debug, Default)]
struct Current {
    index: Option<Arc<dyn RunIndex>>,
    tags: HashMap<(usize, RunId), RunTag>,
    /// By table, the tag of its keys in the index.
    placed: HashMap<TableId, (RunTag, Arc<OpenTable>)>,
    /// Tables whose keys cannot be read because of damage; trying again is useless.
    damaged: HashSet<TableId>,
}

/// Tables whose keys could not be read, and an index of all others.
type Rebuilt = (Vec<(TableId, Unread)>, Option<Arc<dyn RunIndex>>);

/// The reason a table's keys are unavailable.
enum Unread {
    Damaged,
    /// A failed system call.
    Now,
}

impl CurrentRuns {
    /// Returns the filter of a tree about which nothing is known yet; `None` if the options ask for no filter of this kind.
    pub(crate) fn new(options: &KeyspaceOptions) -> Option<CurrentRuns> {
        let (kind, name) = match options.filter.global()? {
            FilterChoice::Chucky => (RunIndexKind::Chucky, "chucky"),
            FilterChoice::GrfHuffman => (RunIndexKind::GrfHuffman, "grf-huffman"),
            FilterChoice::Remix => (RunIndexKind::Remix, "remix"),
            _ => return None,
        };
        let slots = |level: usize| match level {
            0 => options.level0_runs as u32,
            level if level + 1 < options.levels => options.size_ratio.at(level).min(64) as u32,
            _ => 1,
        };
        Some(CurrentRuns {
            kind,
            name,
            bits_per_key: options.bits_per_key,
            ratio: options.size_ratio.at(1) as f64,
            slots: (0..options.levels).map(slots).collect(),
            current: Mutex::default(),
            inserted: AtomicU64::new(0),
            insert_ns: AtomicU64::new(0),
            rebuilt: AtomicU64::new(0),
            rebuild_ns: AtomicU64::new(0),
            from_data: AtomicU64::new(0),
            warnings: Warnings::default(),
        })
    }

    /// Returns the selector of the version that follows the version of the previous call.
    pub(crate) fn selector(&self, runs: &[Run], tables: &[Arc<OpenTable>]) -> Arc<dyn RunSelector> {
        let mut current = self.current.lock();
        let tags = retag(&current.tags, runs);
        let tag_of: Vec<RunTag> = runs.iter().map(|run| tags[&(run.level, run.id)]).collect();
        let mut placed = HashMap::default();
        for (run, tag) in runs.iter().zip(&tag_of) {
            for table in tables[run.tables.clone()].iter().filter(|t| !current.damaged.contains(&t.meta.id)) {
                placed.insert(table.meta.id, (*tag, table.clone()));
            }
        }
        let moved = |id: &TableId, tag: RunTag, of: &HashMap<TableId, (RunTag, Arc<OpenTable>)>| {
            of.get(id).is_none_or(|(other, _)| *other != tag)
        };
        let went: Vec<_> =
            current.placed.iter().filter(|(id, (tag, _))| moved(id, *tag, &placed)).map(|(_, p)| p).collect();
        let came: Vec<_> =
            placed.iter().filter(|(id, (tag, _))| moved(id, *tag, &current.placed)).map(|(_, p)| p).collect();
        let entries = |of: &[&(RunTag, Arc<OpenTable>)]| of.iter().map(|(_, t)| t.meta.entries).sum::<u64>();
        let all: u64 = placed.values().map(|(_, table)| table.meta.entries).sum();
        let mut index = None;
        if entries(&came).saturating_mul(2) < all {
            index = current.index.as_ref().and_then(|index| self.change(&**index, &went, &came));
        }
        let mut damaged = current.damaged.clone();
        if index.is_none() && all > 0 {
            let (unread, built) = self.rebuild(&placed);
            for (id, why) in unread {
                placed.remove(&id);
                if matches!(why, Unread::Damaged) {
                    damaged.insert(id);
                }
            }
            index = built;
        }
        damaged.retain(|id| tables.iter().any(|table| table.meta.id == *id));
        let covered: Vec<bool> = runs
            .iter()
            .map(|run| {
                index.is_some() && tables[run.tables.clone()].iter().all(|t| placed.contains_key(&t.meta.id))
            })
            .collect();
        *current = Current { index: index.clone(), tags, placed, damaged };
        drop(current);
        Arc::new(RunIdFilters::new(index, tag_of, covered))
    }

    /// Returns the index after tables were removed and added; `None` if it must be rebuilt.
    fn change(
        &self,
        index: &dyn RunIndex,
        went: &[&(RunTag, Arc<OpenTable>)],
        came: &[&(RunTag, Arc<OpenTable>)],
    ) -> Option<Arc<dyn RunIndex>> {
        let started = sync::now();
        let read = |of: &[&(RunTag, Arc<OpenTable>)]| -> Option<Vec<(Batch, RunTag)>> {
            of.iter().map(|(tag, table)| Some((self.keys(table).ok()?, *tag))).collect()
        };
        let (went, came) = (read(went)?, read(came)?);
        fn tagged(batches: &[(Batch, RunTag)]) -> Vec<Tagged<'_>> {
            batches.iter().map(|(batch, tag)| (batch, *tag)).collect()
        }
        let changed = index.change(&tagged(&went), &tagged(&came));
        let keys: usize = came.iter().map(|(batch, _)| batch.len()).sum();
        self.inserted.fetch_add(keys as u64, Relaxed);
        self.insert_ns.fetch_add(sync::since(started).as_nanos() as u64, Relaxed);
        changed
    }

    /// Returns the tables whose keys cannot be read, and an index of all others.
    fn rebuild(&self, placed: &HashMap<TableId, (RunTag, Arc<OpenTable>)>) -> Rebuilt {
        let started = sync::now();
        let (mut batches, mut unread) = (Vec::new(), Vec::new());
        for (id, (tag, table)) in placed {
            match self.keys(table) {
                Ok(batch) => batches.push((batch, *tag)),
                Err(why) => unread.push((*id, why)),
            }
        }
        let items: Vec<Tagged<'_>> = batches.iter().map(|(batch, tag)| (batch, *tag)).collect();
        // Count the keys actually read: a table's entry count is only a claim of its file, and this determines the memory.
        let keys: usize = batches.iter().map(|(batch, _)| batch.len()).sum();
        let spec = RunIndexSpec {
            bits_per_key: self.bits_per_key,
            capacity: (keys as f64 * ROOM) as u64,
            slots: self.slots.clone(),
            ratio: self.ratio,
            segment: RunIndexSpec::SEGMENT,
        };
        let built = build(self.kind, &items, &spec);
        self.rebuilt.fetch_add(1, Relaxed);
        self.rebuild_ns.fetch_add(sync::since(started).as_nanos() as u64, Relaxed);
        (unread, built.inspect_err(|why| log::warn!("reading without the global filter: {why}")).ok())
    }

    /// Returns the keys of a table.
    fn keys(&self, table: &OpenTable) -> Result<Batch, Unread> {
        let (mut batch, id) = (Batch::new(), table.meta.id);
        let source = for_each_key(table, &[], None, &mut |key| batch.push(key, Digest::of(key), Epochs::ALL));
        match source {
            Ok(Source::List) => {}
            Ok(source) => {
                self.from_data.fetch_add(1, Relaxed);
                if source == Source::DamagedList {
                    self.warnings.add(id, || damaged_list(id));
                }
            }
            Err(why @ StorageError::Corrupt(_)) => {
                self.warnings.add(id, || {
                    format!("table {id} is searched for every key, without the global filter: {why}")
                });
                return Err(Unread::Damaged);
            }
            Err(why) => {
                log::warn!("table {id} is read without the global filter for now: {why}");
                return Err(Unread::Now);
            }
        }
        Ok(batch)
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Returns the statistics of the filter.
    pub(crate) fn report(&self) -> GlobalFilterStats {
        let current = self.current.lock();
        let index = current.index.as_ref();
        GlobalFilterStats {
            kind: self.name.to_owned(),
            entries: index.map_or(0, |index| index.entries()),
            bytes: index.map_or(0, |index| index.memory_bytes() as u64),
            inserted: (self.inserted.load(Relaxed), self.insert_ns.load(Relaxed)),
            rebuilt: (self.rebuilt.load(Relaxed), self.rebuild_ns.load(Relaxed)),
            tables_from_data: self.from_data.load(Relaxed),
            ..GlobalFilterStats::default()
        }
    }
}

/// Returns the tags of these runs: existing tags are kept; a new run gets the smallest slot of its level that is
/// unused in this version and the previous one.
fn retag(old: &HashMap<(usize, RunId), RunTag>, runs: &[Run]) -> HashMap<(usize, RunId), RunTag> {
    let mut tags: HashMap<(usize, RunId), RunTag> = HashMap::default();
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
    use std::path::Path;

    use super::*;
    use crate::fuzzing::reseal;
    use crate::io::{FileSystem, MemFs, Usage, read_file};
    use crate::options::FilterChoice;
    use crate::tree::edit::VersionEdit;
    use crate::tree::files::table_path;
    use crate::tree::manifest::{Manifest, set_current};
    use crate::{Db, KeyspaceOptions, Options};

    fn options(fs: &MemFs, filter: FilterChoice) -> Options {
        Options {
            file_system: Some(Arc::new(fs.clone())),
            background_threads: 1,
            keyspace: KeyspaceOptions { filter: filter.into(), ..KeyspaceOptions::default() },
            ..Options::default()
        }
    }

    /// Creates a database of one table whose properties and manifest record claim `claimed` entries.
    fn database(filter: FilterChoice, claimed: u64) -> MemFs {
        let (fs, dir) = (MemFs::new(), Path::new("db"));
        let db = Db::open(dir, options(&fs, filter)).unwrap();
        for i in 0..100 {
            db.put(format!("key {i:03}"), "value").unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        let loaded = Manifest::open(&fs, dir).unwrap().unwrap();
        let mut state = loaded.state;
        let (&(level, run), tables) = state.keyspaces[&0].runs.first_key_value().unwrap();
        let mut meta = (**tables.iter().next().unwrap()).clone();
        let path = table_path(dir, meta.id);
        let file = reseal::claiming_entries(&read_file(&fs, &path).unwrap(), claimed);
        fs.create(&path, Usage::Table).unwrap().append(&file).unwrap();
        (meta.entries, meta.file_bytes) = (claimed, file.len() as u64);
        let edit = VersionEdit {
            removed: vec![(0, meta.id)],
            added: vec![(0, level, run, meta)],
            ..VersionEdit::default()
        };
        state.apply(&edit).unwrap();
        let number = loaded.number + 100;
        Manifest::create(&fs, dir, number, &state).unwrap().close().unwrap();
        set_current(&fs, dir, number).unwrap();
        fs
    }

    /// A cuckoo filter for the whole tree was sized by the number of keys that the tables claimed, so a damaged table
    /// of a kilobyte could make it allocate gigabytes.
    #[test]
    fn a_claimed_entry_count_takes_no_memory() {
        for filter in [FilterChoice::Chucky, FilterChoice::Remix, FilterChoice::Grf, FilterChoice::GrfHuffman]
        {
            for claimed in [100, 1 << 30, 1 << 45] {
                let fs = database(filter, claimed);
                let db = Db::open("db", options(&fs, filter)).unwrap();
                db.settle_filters().unwrap();
                let bytes: u64 = db.default_keyspace().stats().global_filter.map_or(0, |filter| filter.bytes);
                assert!(
                    bytes < 1 << 20,
                    "{filter:?} of a table that claims {claimed} entries: {bytes} bytes"
                );
                assert_eq!(db.get("key 042").unwrap().as_deref(), Some(&b"value"[..]));
                assert_eq!(db.get("key 100").unwrap(), None);
            }
        }
    }
}
