//! MDBX: a copy-on-write B+tree in a mapped file, in C; LMDB's descendant.
//!
//! Source: the comments of `mdbx.h` (`mdbx_env_set_geometry`, `MDBX_NOSTICKYTHREADS`,
//! `MDBX_UTTERLY_NOSYNC`, `MDBX_LIFORECLAIM`, `mdbx_txn_reset`, `mdbx_cursor_bind`).
//!
//! * Its own C API, as the crate `mdbx-sys` declares it: the crate `libmdbx` above that hands each
//!   write transaction to a thread of its own and waits for it twice, which a program in C does
//!   not.
//! * A put is a write transaction of its own. With `sync` it is committed as by default. Without,
//!   with `MDBX_UTTERLY_NOSYNC`, which is LMDB's `MDB_NOSYNC`: the pages are written, as the other
//!   engines' logs are, and a failure of the machine may damage the database. `MDBX_SAFE_NOSYNC`
//!   would keep it whole, but syncs in the middle of puts, whenever it needs pages that are free
//!   since the last sync: then a put takes 20 times as long.
//! * A session keeps its read transaction open until anything was written, then resets and renews
//!   it. Its cursor is made once, and bound again for each scan.
//! * `MDBX_NORDAHEAD`, for random reads of a file that is not in memory; if synced,
//!   `MDBX_LIFORECLAIM`, for disks with a cache of writes. Not used, as in LMDB: `MDBX_WRITEMAP`,
//!   with which a stray pointer of the program damages the database, and `MDBX_APPEND`, which takes
//!   keys in order only.
//! * `settle` syncs. There is no background compaction, and no cache but the system's.
//!
//! Threads: readers run concurrently, without locks; writers wait for each other.

mod ffi;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Engine, Inside, Setup};
use ffi::{Env, Go, Reader};

const NAME: &str = "mdbx";

/// The size of the map, and the limit of the file: address space, not memory.
const MAP_BYTES: isize = 256 << 30;

/// The same under valgrind, which has not as many addresses.
const COUNTED_MAP_BYTES: isize = 16 << 30;

fn map_bytes() -> isize {
    if crate::instructions::is_counting() { COUNTED_MAP_BYTES } else { MAP_BYTES }
}

/// An open MDBX environment.
pub struct Mdbx {
    env: Env,
    /// The number of write transactions committed.
    ///
    /// Stored with release ordering after a commit, and loaded with acquire ordering before a read:
    /// who has learnt of a write begins a transaction that sees it.
    commits: AtomicU64,
}

/// A thread's session.
pub struct MdbxSession<'s> {
    mdbx: &'s Mdbx,
    reader: Reader<'s>,
    /// The number of commits before the reader's transaction began; `None` if it has ended.
    seen: Option<u64>,
}

impl Engine for Mdbx {
    const NAME: &'static str = NAME;

    fn version() -> String {
        format!("{} (mdbx-sys {})", ffi::version(), shared::locked_version("mdbx-sys"))
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        shared::refused_by_b_tree(setup)
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let flags = mdbx_sys::MDBX_NOSTICKYTHREADS | mdbx_sys::MDBX_NORDAHEAD;
        let (mode, names) = match setup.sync {
            true => {
                let mode = mdbx_sys::MDBX_SYNC_DURABLE | mdbx_sys::MDBX_LIFORECLAIM;
                (mode, "MDBX_SYNC_DURABLE, MDBX_LIFORECLAIM")
            }
            false => (mdbx_sys::MDBX_UTTERLY_NOSYNC, "MDBX_UTTERLY_NOSYNC"),
        };
        let env = Env::open(shared::make_dir(setup)?, flags | mode, map_bytes()).map_err(failed)?;
        let told = told([
            ("size_upper", map_bytes().to_string()),
            ("flags", format!("MDBX_NOSTICKYTHREADS, MDBX_NORDAHEAD, {names}")),
            (
                "transactions",
                "a write transaction for each put; a read transaction until the next write".to_owned(),
            ),
        ]);
        Ok((Mdbx { env, commits: AtomicU64::new(0) }, told))
    }

    fn write(session: &mut MdbxSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        session.write(|writer| batch.iter().try_for_each(|(key, value)| writer.put(key, value)))
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.env.sync().map_err(failed)
    }

    fn durability(setup: &Setup) -> &'static str {
        if setup.sync { shared::ON_DEVICE } else { shared::MAYBE_DAMAGED }
    }

    fn inside(&self) -> Result<Inside, BenchError> {
        Ok(Inside { runs: Some(1), ..Inside::default() })
    }

    fn close(self) -> Result<(), BenchError> {
        self.env.close().map_err(failed)
    }
}

impl Store for Mdbx {
    type Session<'s> = MdbxSession<'s>;

    fn session(&self) -> Result<MdbxSession<'_>, BenchError> {
        let mut reader = Reader::begin(&self.env).map_err(failed)?;
        reader.end().map_err(failed)?;
        Ok(MdbxSession { mdbx: self, reader, seen: None })
    }
}

impl<'s> MdbxSession<'s> {
    #[inline]
    fn write(
        &mut self,
        change: impl FnOnce(&ffi::Writer<'_>) -> Result<(), String>,
    ) -> Result<(), BenchError> {
        // An open reader keeps the pages that it may see from being used again.
        if self.seen.take().is_some() {
            self.reader.end().map_err(failed)?;
        }
        self.mdbx.env.write(change).map_err(failed)?;
        self.mdbx.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns a reader that sees all commits.
    #[inline]
    fn read(&mut self) -> Result<&mut Reader<'s>, BenchError> {
        let commits = self.mdbx.commits.load(Ordering::Acquire);
        if self.seen != Some(commits) {
            if self.seen.take().is_some() {
                self.reader.end().map_err(failed)?;
            }
            self.reader.begin_again().map_err(failed)?;
            self.seen = Some(commits);
        }
        Ok(&mut self.reader)
    }
}

impl Session for MdbxSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.write(|writer| writer.put(key, value))
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        self.read()?.get(key).map(look).map_err(failed)
    }

    /// Gets keys one by one in one transaction, since MDBX has no call for several.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let reader = self.read()?;
        for (place, key) in keys.iter().enumerate() {
            if look(place, reader.get(key).map_err(failed)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let reader = self.read()?;
        reader.rewind().map_err(failed)?;
        let mut go = Go::AtOrAfter;
        while let Some((key, value)) = reader.go(go, low).map_err(failed)? {
            if high.is_some_and(|high| key > high) || look(key, value).is_break() {
                break;
            }
            go = Go::Next;
        }
        Ok(())
    }

    fn scan_back(
        &mut self,
        high: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let reader = self.read()?;
        reader.rewind().map_err(failed)?;
        let mut go = Go::AtOrBefore;
        while let Some((key, value)) = reader.go(go, high).map_err(failed)? {
            if look(key, value).is_break() {
                break;
            }
            go = Go::Back;
        }
        Ok(())
    }
}

fn failed(source: String) -> BenchError {
    BenchError::Store { system: NAME, source: source.into() }
}
