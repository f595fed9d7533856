//! redb: a copy-on-write B-tree in Rust. For reference; it has no runs, filters or compression.
//!
//! Source: the documentation of its crate (`Durability`, `Builder::set_cache_size`, `Database::begin_read`).
//!
//! * A put is a write transaction of its own, also in fills, as in every other engine. With `sync` it commits as
//!   `Durability::Immediate`, the default. Without, `Durability::None` comes closest: the commit stays in redb's memory
//!   until the next immediate one. That is **weaker** than in the other engines, which have written their logs, and
//!   lose nothing if only the process dies.
//! * A session keeps its read transaction open, as in redb's own benchmark, until anything was written: the next
//!   operation begins another.
//! * Its cache holds inner pages, too. In other engines indexes are outside, so this cache is larger by
//!   [`Setup::metadata_bytes`].
//! * `settle` commits once as `Immediate`. There is no background compaction.
//!
//! Threads: readers run concurrently; writers wait for each other in `begin_write`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use ::redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};
use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Engine, Inside, Setup};

const NAME: &str = "redb";
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("bench");

type ReadTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// An open redb database.
pub struct Redb {
    database: Database,
    durability: Durability,
    /// The number of write transactions committed.
    ///
    /// Stored with release ordering after a commit, and loaded with acquire ordering before a read: who has learnt of a
    /// write begins a transaction that sees it.
    commits: AtomicU64,
}

/// A thread's session.
pub struct RedbSession<'s> {
    redb: &'s Redb,
    /// The table of an open read transaction, and the number of commits before it began.
    reading: Option<(u64, ReadTable)>,
}

impl Engine for Redb {
    const NAME: &'static str = NAME;

    fn version() -> String {
        shared::locked_version("redb")
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        shared::refused_by_b_tree(setup)
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let file = shared::make_dir(setup)?.join("db.redb");
        let cache = setup.cache_bytes.saturating_add(setup.metadata_bytes);
        let database =
            Database::builder().set_cache_size(shared::size(cache)).create(file).map_err(failed)?;
        let (durability, name) = match setup.sync {
            true => (Durability::Immediate, "Immediate"),
            false => (Durability::None, "None: commits stay in memory until a later one is Immediate"),
        };
        let redb = Redb { database, durability, commits: AtomicU64::new(0) };
        // Readers may come before the first put, and need a table.
        redb.write_as(Durability::Immediate, |_| Ok(()))?;
        let told = told([
            ("cache_size", cache.to_string()),
            ("durability", name.to_owned()),
            (
                "transactions",
                "a write transaction for each put; a read transaction until the next write".to_owned(),
            ),
        ]);
        Ok((redb, told))
    }

    fn write(session: &mut RedbSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        session.write(|table| {
            for (key, value) in batch.iter() {
                table.insert(key, value).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.write_as(Durability::Immediate, |_| Ok(()))
    }

    fn durability(setup: &Setup) -> &'static str {
        if setup.sync {
            shared::ON_DEVICE
        } else {
            "in the memory of the process: its death loses all puts since the last synced one"
        }
    }

    fn inside(&self) -> Result<Inside, BenchError> {
        Ok(Inside { runs: Some(1), ..Inside::default() })
    }

    fn close(self) -> Result<(), BenchError> {
        self.database.close().map_err(failed)
    }
}

impl Redb {
    /// Runs one write transaction on the table, as durable as the setup says.
    pub(crate) fn write(
        &self,
        change: impl FnOnce(&mut ::redb::Table<'_, &[u8], &[u8]>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        self.write_as(self.durability, change)
    }

    fn write_as(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut ::redb::Table<'_, &[u8], &[u8]>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(durability).map_err(failed)?;
        change(&mut transaction.open_table(TABLE).map_err(failed)?)?;
        transaction.commit().map_err(failed)?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns the current table. It keeps its transaction alive.
    pub(crate) fn read(&self) -> Result<ReadTable, BenchError> {
        self.database.begin_read().map_err(failed)?.open_table(TABLE).map_err(failed)
    }
}

impl Store for Redb {
    type Session<'s> = RedbSession<'s>;

    fn session(&self) -> Result<RedbSession<'_>, BenchError> {
        Ok(RedbSession { redb: self, reading: None })
    }
}

impl RedbSession<'_> {
    fn write(
        &mut self,
        change: impl FnOnce(&mut ::redb::Table<'_, &[u8], &[u8]>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        // An open reader keeps the pages that it may see from being used again.
        self.reading = None;
        self.redb.write(change)
    }

    /// Returns a table that shows all commits.
    #[inline]
    fn table(&mut self) -> Result<&ReadTable, BenchError> {
        let commits = self.redb.commits.load(Ordering::Acquire);
        if self.reading.as_ref().is_none_or(|(seen, _)| *seen != commits) {
            self.reading = None;
            self.reading = Some((commits, self.redb.read()?));
        }
        let (_, table) = self.reading.as_ref().expect("just begun");
        Ok(table)
    }
}

impl Session for RedbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.write(|table| {
            table.insert(key, value).map_err(failed)?;
            Ok(())
        })
    }

    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        let answer = self.table()?.get(key).map_err(failed)?;
        Ok(look(answer.as_ref().map(|guard| guard.value())))
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let table = self.table()?;
        for (place, key) in keys.iter().enumerate() {
            let answer = table.get(*key).map_err(failed)?;
            if look(place, answer.as_ref().map(|guard| guard.value())).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let table = self.table()?;
        match high {
            // redb panics on a reversed range.
            Some(high) if high < low => Ok(()),
            Some(high) => look_at(table.range(low..=high).map_err(failed)?, look),
            None => look_at(table.range(low..).map_err(failed)?, look),
        }
    }

    fn scan_back(
        &mut self,
        high: &[u8],
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        look_at(self.table()?.range(..=high).map_err(failed)?.rev(), look)
    }
}

type Entry = (::redb::AccessGuard<'static, &'static [u8]>, ::redb::AccessGuard<'static, &'static [u8]>);

fn look_at(
    entries: impl Iterator<Item = Result<Entry, ::redb::StorageError>>,
    mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), BenchError> {
    for entry in entries {
        let (key, value) = entry.map_err(failed)?;
        if look(key.value(), value.value()).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the error of a call.
pub(crate) fn failed(source: impl Into<::redb::Error>) -> BenchError {
    BenchError::Store { system: NAME, source: source.into().into() }
}
