//! LevelDB: the system's library, through its C API.
//!
//! Sources: LevelDB's `doc/index.md`, `doc/impl.md` and the comments of its headers.
//!
//! * A Bloom filter, an LRU cache, a write buffer and tables of a memtable's size (both within the limits that LevelDB
//!   imposes), and enough open files for every table to stay open, with its index and its filter. The first 1000 tables
//!   are mapped. Reads verify no checksums, as by default.
//! * A get copies the value twice, because of the C API. There is no call for several keys, and iterators have no
//!   bounds: the session compares keys itself.
//! * It compacts in one thread, and compaction cannot be held back. LZ4 and direct I/O are not supported.
//!
//! `settle`: LevelDB offers no flush, no wait and no information on its background thread. Compacting a range without
//! keys begins with flushing the memtable, and then finds nothing to compact. Compacting all keys would merge the whole
//! tree into one level, which its own rules never do (`compact` does that). After the flush the tree is polled until no level is full enough
//! for LevelDB to compact it, and it has not changed for a while. (LevelDB also compacts after many wasted reads of one
//! table; this cannot be predicted.)
//!
//! Threads: any may use the database; writers queue up, and one writes for all of them.

mod ffi;
mod tree;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Compression, Engine, Inside, Setup};
use tree::Tree;

const NAME: &str = "leveldb";

/// LevelDB's limits of write buffers.
const WRITE_BUFFER: (u64, u64) = (64 << 10, 1 << 30);

/// LevelDB's limits of table sizes.
const FILE_SIZE: (u64, u64) = (1 << 20, 1 << 30);

/// LevelDB's maximum.
const OPEN_FILES: i32 = 50_000;

/// The tree counts as idle if it has not changed for this long.
const AT_REST: Duration = Duration::from_millis(300);

/// Interval at which the tree is polled.
const POLL: Duration = Duration::from_millis(20);

/// An open LevelDB.
pub struct LevelDb {
    db: ffi::Db,
    sync: bool,
}

/// A thread's session.
pub struct LevelDbSession<'s> {
    db: &'s ffi::Db,
    read: ffi::ReadOptions,
    write: ffi::WriteOptions,
}

impl Engine for LevelDb {
    const NAME: &'static str = NAME;

    fn version() -> String {
        ffi::version()
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        if !setup.overrides.is_empty() {
            Some(shared::NO_OVERRIDES)
        } else if !setup.compaction {
            Some("its compaction cannot be held back")
        } else if setup.direct_io {
            Some("it has no direct I/O")
        } else if setup.compression != Compression::None {
            Some("it has no LZ4")
        } else {
            None
        }
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let dir = ffi::path(shared::make_dir(setup)?).map_err(|error| failed(error.to_string()))?;
        let within = |bytes: u64, (least, most)| shared::size(bytes.clamp(least, most));
        let options = ffi::DbOptions {
            filter_bits: i32::try_from(setup.filter_bits).unwrap_or(i32::MAX),
            cache_bytes: shared::size(setup.cache_bytes),
            write_buffer_size: within(setup.memtable_bytes, WRITE_BUFFER),
            max_file_size: within(setup.memtable_bytes, FILE_SIZE),
            max_open_files: OPEN_FILES,
        };
        let db = ffi::Db::open(&dir, &options).map_err(failed)?;
        let told = told([
            ("block_cache", format!("LRU, {}", options.cache_bytes)),
            ("filter_policy", format!("Bloom, {} bits per key", options.filter_bits)),
            ("write_buffer_size", options.write_buffer_size.to_string()),
            ("max_file_size", options.max_file_size.to_string()),
            ("max_open_files", OPEN_FILES.to_string()),
            ("compression", "none".into()),
            ("WriteOptions::sync", setup.sync.to_string()),
        ]);
        Ok((LevelDb { db, sync: setup.sync }, told))
    }

    fn write(session: &mut LevelDbSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        session.db.write(&session.write, batch.iter()).map_err(failed)
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.db.flush();
        let (mut last, mut quiet) = (self.tree()?, Duration::ZERO);
        while quiet < AT_REST {
            // The background thread stops permanently at its first error.
            self.db.check().map_err(failed)?;
            std::thread::sleep(POLL);
            let now = self.tree()?;
            quiet = if now.is_compaction_due() || now != last { Duration::ZERO } else { quiet + POLL };
            last = now;
        }
        Ok(())
    }

    /// It decides how deep to go before it flushes the memtable, which may get deeper: so once more after that.
    fn compact(&self) -> Result<(), BenchError> {
        for _ in 0..2 {
            self.db.compact_all();
            self.settle()?;
        }
        Ok(())
    }

    /// Returns the runs only, since LevelDB reports its memory only as a total.
    fn inside(&self) -> Result<Inside, BenchError> {
        Ok(Inside { runs: Some(self.tree()?.runs()), ..Inside::default() })
    }

    fn close(self) -> Result<(), BenchError> {
        self.db.check().map_err(failed)
    }
}

impl LevelDb {
    fn tree(&self) -> Result<Tree, BenchError> {
        let text = self.db.property(c"leveldb.sstables");
        let tree = text.as_deref().and_then(Tree::parse);
        tree.ok_or_else(|| failed(format!("its list of tables cannot be parsed: {text:?}")))
    }
}

impl Store for LevelDb {
    type Session<'s> = LevelDbSession<'s>;

    fn session(&self) -> Result<LevelDbSession<'_>, BenchError> {
        let (read, write) = (ffi::ReadOptions::new(), ffi::WriteOptions::new(self.sync));
        Ok(LevelDbSession { db: &self.db, read, write })
    }
}

impl Session for LevelDbSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.db.put(&self.write, key, value).map_err(failed)
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        self.db.get(&self.read, key, look).map_err(failed)
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        for (place, key) in keys.iter().enumerate() {
            if self.get(key, |answer| look(place, answer))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let mut entries = self.db.iterator(&self.read);
        entries.seek(low);
        while let Some((key, value)) = entries.entry() {
            if high.is_some_and(|high| key > high) || look(key, value).is_break() {
                return Ok(());
            }
            entries.next();
        }
        entries.status().map_err(failed)
    }

    #[inline]
    fn scan_back(
        &mut self,
        high: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let mut entries = self.db.iterator(&self.read);
        entries.seek_back(high);
        while let Some((key, value)) = entries.entry() {
            if look(key, value).is_break() {
                return Ok(());
            }
            entries.prev();
        }
        entries.status().map_err(failed)
    }
}

fn failed(source: String) -> BenchError {
    BenchError::Store { system: NAME, source: source.into() }
}
