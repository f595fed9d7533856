//! The filters' part of the time of a read.
//!
//! A read is not timed in parts: two readings of a clock take as long as a probe. Instead, after every round of a workload
//! that asks filters the same way for each of its operations, a separate pass asks only the filters, for a sample of
//! queries like the workload's, one after the other (`Keyspace::probe_filters_of_get` and `probe_filters_of_range`). The
//! time of the same calls on an empty database is subtracted. For ranges and seeks that is what the first item asks.
//!
//! The pass has the filters to itself, while blocks compete with them for the processor's caches in a read. So the share of
//! the filters is a lower bound, and the closer the more often filters are asked.

use std::time::Instant;

use tamis::Db;
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::random::Random;
use tamis_bench::run::Fill;
use tamis_bench::workload::Workload;
use tempfile::TempDir;

/// Number of queries in the sample: more than the processor's caches predict.
const SAMPLE: u64 = 5_000;

/// What is asked for one query.
#[derive(Clone, Debug)]
struct Query {
    from: Vec<u8>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A get of an absent key.
    Get,
    /// A range with a last key (included).
    Range(Vec<u8>),
    /// A seek.
    Seek,
}

/// Queries of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Queries(Vec<Query>);

impl Queries {
    /// Draws queries like those of a workload; `None` if the workload does not ask the same for each operation: gets
    /// of existing keys end at the run that has the key, scans go on, and mixes write.
    pub(crate) fn of(workload: Workload, keys: &KeySet, fill: &Fill, seed: u64) -> Option<Queries> {
        let mut random = Random::part(seed, 0x7175_6965);
        let mut query = || {
            let (mut from, mut to) = (Vec::new(), Vec::new());
            let kind = match workload {
                Workload::GetEmpty => {
                    keys.absent(random.below(keys.absent_len()), &mut from);
                    Kind::Get
                }
                Workload::RangeAbsent => {
                    keys.absent_range(random.below(keys.absent_len()), &mut from, &mut to);
                    Kind::Range(to)
                }
                Workload::RangeEmpty => {
                    let i = fill.at(random.below(fill.loaded));
                    if !keys.empty_range(i, &mut from, &mut to) {
                        return Some(None);
                    }
                    Kind::Range(to)
                }
                Workload::Seek => {
                    keys.existing(fill.at(random.below(fill.loaded)), &mut from);
                    Kind::Seek
                }
                _ => return None,
            };
            Some(Some(Query { from, kind }))
        };
        let drawn: Option<Vec<Option<Query>>> = (0..SAMPLE).map(|_| query()).collect();
        let queries: Vec<Query> = drawn?.into_iter().flatten().collect();
        (!queries.is_empty()).then_some(Queries(queries))
    }

    /// Returns the mean duration of asking the filters of a database in nanoseconds.
    pub(crate) fn ns(&self, db: &Db) -> Result<f64, BenchError> {
        let begun = Instant::now();
        for query in &self.0 {
            std::hint::black_box(query.ask(db)?);
        }
        Ok(begun.elapsed().as_nanos() as f64 / self.0.len() as f64)
    }
}

impl Query {
    fn ask(&self, db: &Db) -> Result<u64, BenchError> {
        let keyspace = db.default_keyspace();
        let cost = match &self.kind {
            Kind::Get => keyspace.probe_filters_of_get(&self.from)?,
            Kind::Range(to) => keyspace.probe_filters_of_range(&self.from, Some(to))?,
            Kind::Seek => keyspace.probe_filters_of_range(&self.from, None)?,
        };
        Ok(cost.runs_searched)
    }
}

/// An empty database, for the cost of a call without filters.
pub(crate) struct Nothing {
    db: Db,
    // Dropped after the database.
    _dir: TempDir,
}

impl Nothing {
    pub(crate) fn open() -> Result<Nothing, BenchError> {
        let failed =
            |source| BenchError::Io { operation: "make a directory in", path: std::env::temp_dir(), source };
        let dir = tempfile::Builder::new().prefix("tamis-bench-").tempdir().map_err(failed)?;
        Ok(Nothing { db: Db::open(dir.path().join("db"))?, _dir: dir })
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }
}

#[cfg(test)]
mod tests {
    use tamis::Options;

    use super::*;
    use crate::filters::Side;

    /// A database of several runs with a filter.
    fn filled(filter: &str, keys: &KeySet) -> (tempfile::TempDir, Db) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.keyspace.auto_compaction = false;
        filter.parse::<Side>().unwrap().apply(10.0, &mut options).unwrap();
        let db = options.open(dir.path()).unwrap();
        for i in 0..keys.len() {
            let mut key = Vec::new();
            keys.existing(i, &mut key);
            db.put(&key, b"value").unwrap();
            if i % 1000 == 999 {
                db.flush().unwrap();
            }
        }
        db.wait_for_filters().unwrap();
        (dir, db)
    }

    /// The pass asks what reads ask: as many filters, with as many runs left to search.
    #[test]
    fn filters_alone_are_asked_as_by_reads() {
        let keys = KeySet::uniform(6000, 8, 1).unwrap();
        let fill = Fill::random(&keys, 1);
        for filter in ["none", "blocked-bloom", "snarf", "grf", "remix"] {
            let (_dir, db) = filled(filter, &keys);
            let keyspace = db.default_keyspace();
            let queries = |workload| Queries::of(workload, &keys, &fill, 3).unwrap().0;
            for query in queries(Workload::GetEmpty).iter().take(500) {
                let alone = keyspace.probe_filters_of_get(&query.from).unwrap();
                let read = db.explain_get(&query.from).unwrap().cost;
                assert_eq!(alone.runs_searched, read.runs_searched, "{filter}");
                assert_eq!(alone.filter_probes, read.filter_probes, "{filter}");
            }
            let (mut alone, before) = ((0, 0), db.stats().read);
            for query in queries(Workload::RangeAbsent).iter().take(500) {
                let Kind::Range(to) = &query.kind else { panic!("{query:?}") };
                let cost = keyspace.probe_filters_of_range(&query.from, Some(to)).unwrap();
                alone = (alone.0 + cost.range_probes, alone.1 + cost.runs_searched);
                assert!(db.range(query.from.clone()..to.clone()).next().is_none());
            }
            let read = db.stats().read - before;
            assert_eq!(alone.1, read.seeks, "{filter}: runs that may hold a key are opened");
            if filter == "snarf" {
                assert_eq!(alone.0, read.range_probes);
                assert!(alone.0 >= 5 * 500 && alone.1 < 500 * 5);
            }
        }
    }

    #[test]
    fn only_workloads_that_ask_alike_have_queries() {
        let keys = KeySet::uniform(100, 8, 1).unwrap();
        let fill = Fill::random(&keys, 1);
        let some = [Workload::GetEmpty, Workload::RangeAbsent, Workload::RangeEmpty, Workload::Seek];
        for workload in Workload::ALL {
            let queries = Queries::of(workload, &keys, &fill, 1);
            assert_eq!(queries.is_some(), some.contains(&workload), "{workload}");
        }
    }
}
