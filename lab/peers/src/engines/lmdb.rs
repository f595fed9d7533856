//! LMDB through the crate `heed`: a copy-on-write B+tree in a mapped file, in C.
//!
//! Source: the comments of `lmdb.h` (`mdb_env_set_mapsize`, `MDB_NOTLS`, `MDB_NOSYNC`, `mdb_txn_renew`), and heed's documentation.
//!
//! * A put is a write transaction of its own. With `sync` it is committed as by default; without, with `MDB_NOSYNC`: the pages
//!   are written, as the other engines' logs are, and lost only if the machine fails.
//! * A session keeps its read transaction open, as LMDB's users do, until anything was written: the next operation begins
//!   another.
//! * `MDB_NORDAHEAD`, for random reads of a file that is not in memory. Not used: `MDB_WRITEMAP`, which lmdb.h calls
//!   slightly faster for databases in memory and slower for larger ones, and `MDB_APPEND`, which takes keys in order
//!   only.
//! * `settle` syncs. There is no background compaction, and no cache but the system's.
//!
//! Threads: readers run concurrently, without locks; writers wait for each other.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};
use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Engine, Inside, Setup};

const NAME: &str = "lmdb";

/// The size of the map, and the limit of the file: address space, not memory.
const MAP_BYTES: usize = 256 << 30;

/// The same under valgrind, which has not as many addresses.
const COUNTED_MAP_BYTES: usize = 16 << 30;

fn map_bytes() -> usize {
    if crate::instructions::is_counting() { COUNTED_MAP_BYTES } else { MAP_BYTES }
}

/// An open LMDB environment.
pub struct Lmdb {
    env: Env<WithoutTls>,
    database: Database<Bytes, Bytes>,
    /// The number of write transactions committed.
    ///
    /// Stored with release ordering after a commit, and loaded with acquire ordering before a read: who has learnt of a write begins
    /// a transaction that sees it.
    commits: AtomicU64,
}

/// A thread's session.
pub struct LmdbSession<'s> {
    lmdb: &'s Lmdb,
    /// The open read transaction, and the number of commits before it began.
    reading: Option<(u64, RoTxn<'s, WithoutTls>)>,
}

impl Engine for Lmdb {
    const NAME: &'static str = NAME;

    fn version() -> String {
        let (lmdb, heed) = (heed::lmdb_version().string, shared::locked_version("heed"));
        format!("{lmdb} (heed {heed})")
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        shared::refused_by_b_tree(setup)
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let dir = shared::make_dir(setup)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_bytes());
        let flags = EnvFlags::NO_READ_AHEAD | if setup.sync { EnvFlags::empty() } else { EnvFlags::NO_SYNC };
        // SAFETY: the comparison's own directory; nothing else opens or changes its files, and a file whose unsynced pages a
        // failure of the machine garbled is not opened again.
        let env = unsafe { options.flags(flags).open(dir) }.map_err(failed)?;
        let mut transaction = env.write_txn().map_err(failed)?;
        let database = env.create_database(&mut transaction, None).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        let told = told([
            ("map_size", map_bytes().to_string()),
            (
                "flags",
                if setup.sync { "MDB_NOTLS, MDB_NORDAHEAD" } else { "MDB_NOTLS, MDB_NORDAHEAD, MDB_NOSYNC" }
                    .to_owned(),
            ),
            (
                "transactions",
                "a write transaction for each put; a read transaction until the next write".to_owned(),
            ),
        ]);
        Ok((Lmdb { env, database, commits: AtomicU64::new(0) }, told))
    }

    fn write(session: &mut LmdbSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        session.write(|database, transaction| {
            batch.iter().try_for_each(|(key, value)| database.put(transaction, key, value))
        })
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.env.force_sync().map_err(failed)
    }

    fn durability(setup: &Setup) -> &'static str {
        if setup.sync { shared::ON_DEVICE } else { shared::MAYBE_DAMAGED }
    }

    fn inside(&self) -> Result<Inside, BenchError> {
        Ok(Inside { runs: Some(1), ..Inside::default() })
    }

    fn close(self) -> Result<(), BenchError> {
        self.settle()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl Store for Lmdb {
    type Session<'s> = LmdbSession<'s>;

    fn session(&self) -> Result<LmdbSession<'_>, BenchError> {
        Ok(LmdbSession { lmdb: self, reading: None })
    }
}

impl<'s> LmdbSession<'s> {
    fn write(
        &mut self,
        change: impl FnOnce(&Database<Bytes, Bytes>, &mut heed::RwTxn<'_>) -> heed::Result<()>,
    ) -> Result<(), BenchError> {
        // An open reader keeps the pages that it may see from being used again.
        self.reading = None;
        let mut transaction = self.lmdb.env.write_txn().map_err(failed)?;
        change(&self.lmdb.database, &mut transaction).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        self.lmdb.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns a read transaction that sees all commits.
    #[inline]
    fn read(&mut self) -> Result<(&'s Database<Bytes, Bytes>, &RoTxn<'s, WithoutTls>), BenchError> {
        let commits = self.lmdb.commits.load(Ordering::Acquire);
        if self.reading.as_ref().is_none_or(|(seen, _)| *seen != commits) {
            self.reading = None;
            self.reading = Some((commits, self.lmdb.env.read_txn().map_err(failed)?));
        }
        let (_, transaction) = self.reading.as_ref().expect("just begun");
        Ok((&self.lmdb.database, transaction))
    }
}

impl Session for LmdbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.write(|database, transaction| database.put(transaction, key, value))
    }

    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        let (database, transaction) = self.read()?;
        Ok(look(database.get(transaction, key).map_err(failed)?))
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let (database, transaction) = self.read()?;
        for (place, key) in keys.iter().enumerate() {
            if look(place, database.get(transaction, key).map_err(failed)?).is_break() {
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
        if high.is_some_and(<[u8]>::is_empty) {
            return Ok(());
        }
        let (database, transaction) = self.read()?;
        let range = (bound(low), high.map_or(Bound::Unbounded, bound));
        look_at(database.range(transaction, &range).map_err(failed)?, look)
    }

    fn scan_back(
        &mut self,
        high: &[u8],
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        if high.is_empty() {
            return Ok(());
        }
        let (database, transaction) = self.read()?;
        let range = (Bound::Unbounded, bound(high));
        look_at(database.rev_range(transaction, &range).map_err(failed)?, look)
    }
}

/// Returns a bound at `key`. LMDB has no empty keys, and takes none as a bound.
fn bound(key: &[u8]) -> Bound<&[u8]> {
    if key.is_empty() { Bound::Unbounded } else { Bound::Included(key) }
}

fn look_at<'t>(
    entries: impl Iterator<Item = heed::Result<(&'t [u8], &'t [u8])>>,
    mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), BenchError> {
    for entry in entries {
        let (key, value) = entry.map_err(failed)?;
        if look(key, value).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the error of a call.
fn failed(source: heed::Error) -> BenchError {
    BenchError::Store { system: NAME, source: source.into() }
}
