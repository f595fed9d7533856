//! TidesDB through its official crate: an LSM-tree in C, whose tables are B+trees.
//!
//! Source: the comments of `db.h` (`tidesdb_config_t`, `tidesdb_column_family_config_t`,
//! `tidesdb_sync_mode_t`), and the crate's documentation. One database with one column family, and:
//!
//! * Its block cache holds filters and inner nodes, too. They are outside in the other engines, so
//!   this cache is larger by twice [`Setup::metadata_bytes`].
//! * A Bloom filter with the rate of false positives that the bits per key promise; nodes of 4 KiB,
//!   as by default.
//! * As many threads for flushes, and as many for compaction, as there are processors (both 2 by
//!   default).
//! * A put is a transaction of its own, as read committed, the default: such puts never conflict.
//!   The session's transaction is reset for the next put. Gets and scans share another one, which
//!   sees all commits.
//! * `TDB_SYNC_NONE`, its default, unless synced: puts stay in the memory of the process.
//!   `TDB_SYNC_INTERVAL` passes each to the operating system, by a thread that every commit waits
//!   for: 46 µs a put on two processors instead of 3. `TDB_SYNC_FULL` if synced.
//! * Values from 1 KiB on go to its value log, as by default, or from the size that the setup says.
//!   They are compressed like all else.
//! * Compaction cannot be held back: whatever the options, level 1 is merged once it is as large as
//!   a memtable.
//!
//! `settle` flushes, and waits until no compaction has been due for longer than the interval of its
//! scheduler. `compact` repeats its forced pass, which merges one level into the next ones, until
//! there is one run.
//!
//! Threads: any may use the database; a transaction belongs to one session. `TDB_ERR_LOCKED` asks
//! to try again, and every call does.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ::tidesdb::{
    ColumnFamily, ColumnFamilyConfig, CompressionAlgorithm, Config, Error, ErrorCode, IsolationLevel,
    Iterator, LogLevel, SyncMode, TidesDB, Transaction,
};
use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Compression, Engine, Inside, Setup};

const NAME: &str = "tidesdb";

/// The name of the column family.
const FAMILY: &str = "bench";

/// The size of a node, its default.
const NODE_BYTES: usize = 4096;

/// Its cache charges nodes with what their memory was reserved in, up to twice their size.
const METADATA_SHARE: u64 = 2;

/// The tree counts as idle if nothing has been due for this long. Its scheduler looks once a
/// second.
const AT_REST: Duration = Duration::from_millis(1200);

/// Interval at which it is polled.
const POLL: Duration = Duration::from_millis(20);

/// Forced passes that `compact` makes at most; a tree has 8 levels.
const MOST_PASSES: u32 = 32;

/// An open TidesDB with its one column family.
pub struct Tides {
    db: TidesDB,
}

/// A thread's session.
pub struct TidesSession<'s> {
    family: ColumnFamily<'s>,
    reading: Transaction<'s>,
    writing: Transaction<'s>,
}

impl Engine for Tides {
    const NAME: &'static str = NAME;

    fn version() -> String {
        format!("{} (tidesdb {})", ::tidesdb::TIDESDB_LINKED_VERSION, shared::locked_version(NAME))
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        if !setup.overrides.is_empty() {
            Some(shared::NO_OVERRIDES)
        } else if !setup.compaction {
            Some("its compaction cannot be held back")
        } else if setup.direct_io {
            Some("it has no direct I/O")
        } else {
            None
        }
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let dir = shared::make_dir(setup)?;
        let cores = i32::try_from(shared::cores()).unwrap_or(i32::MAX);
        let (mode, mode_name) = match setup.sync {
            true => (SyncMode::Full, "TDB_SYNC_FULL"),
            false => (SyncMode::None, "TDB_SYNC_NONE"),
        };
        // 0 stands for the default.
        let metadata = setup.metadata_bytes.saturating_mul(METADATA_SHARE);
        let cache = shared::size(setup.cache_bytes.saturating_add(metadata)).max(1);
        let mut config = Config::new(dir)
            .log_level(LogLevel::Error)
            .block_cache_size(cache)
            .memtable_write_buffer_size(shared::size(setup.memtable_bytes))
            .num_flush_threads(cores)
            .num_compaction_threads(cores)
            .memtable_sync_mode(mode);
        if let Some(least) = setup.separated_bytes {
            config = config.value_separation_threshold(shared::size(least).max(1));
        }
        let separation = config.value_separation_threshold;
        let family = family_config(setup);
        let told = told([
            ("block_cache_size", cache.to_string()),
            ("memtable_write_buffer_size", setup.memtable_bytes.to_string()),
            ("num_flush_threads", cores.to_string()),
            ("num_compaction_threads", cores.to_string()),
            ("memtable_sync_mode", mode_name.to_owned()),
            ("value_separation_threshold", separation.to_string()),
            ("btree_klog_block_size", NODE_BYTES.to_string()),
            (
                "bloom_fpr",
                if family.enable_bloom_filter { family.bloom_fpr.to_string() } else { "none".into() },
            ),
            ("encoding_pipeline", format!("{:?}", family.encoding_pipeline)),
            ("transactions", "read committed, one for each put".to_owned()),
        ]);
        let db = TidesDB::open(config).map_err(failed)?;
        match db.create_column_family(FAMILY, family.clone()) {
            Err(error) if error.code() == Some(ErrorCode::Exists) => {
                let there = db.get_column_family(FAMILY).map_err(failed)?;
                if again(|| there.get_stats())?.config != family {
                    again(|| there.update_runtime_config(&family, true))?;
                }
            }
            made => made.map_err(failed)?,
        }
        Ok((Tides { db }, told))
    }

    fn write(session: &mut TidesSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        session.write(|family, transaction| {
            batch.iter().try_for_each(|(key, value)| transaction.put(family, key, value))
        })
    }

    fn settle(&self) -> Result<(), BenchError> {
        again(|| self.db.flush_memtable())?;
        let family = self.family()?;
        let mut idle_since = Instant::now();
        while idle_since.elapsed() < AT_REST {
            let stats = self.db.get_db_stats().map_err(failed)?;
            let busy = stats.immutable_memtable_count > 0
                || stats.compaction_pending_count > 0
                || stats.is_flushing
                || family.is_compacting();
            if busy {
                idle_since = Instant::now();
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn compact(&self) -> Result<(), BenchError> {
        again(|| self.db.flush_memtable())?;
        let family = self.family()?;
        for _ in 0..MOST_PASSES {
            again(|| family.compact())?;
            if self.runs()? <= 1 {
                return self.settle();
            }
        }
        let text = format!("{} runs are left after {MOST_PASSES} forced compactions", self.runs()?);
        Err(BenchError::Store { system: NAME, source: text.into() })
    }

    fn durability(setup: &Setup) -> &'static str {
        if setup.sync {
            shared::ON_DEVICE
        } else {
            "in the memory of the process: its death loses the puts that are in no table yet"
        }
    }

    /// Returns no filters and indexes: they are in the block cache, whose parts it does not report.
    fn inside(&self) -> Result<Inside, BenchError> {
        let cache = self.db.get_cache_stats().map_err(failed)?;
        let stats = self.db.get_db_stats().map_err(failed)?;
        Ok(Inside {
            runs: Some(self.runs()?),
            cache_bytes: Some(cache.total_bytes as u64),
            memtable_bytes: Some(stats.memtable_bytes as u64),
            ..Inside::default()
        })
    }

    /// Closing flushes, and reports no errors; so the flush comes before.
    fn close(self) -> Result<(), BenchError> {
        again(|| self.db.flush_memtable())
    }
}

/// Returns the options of the column family for a setup.
fn family_config(setup: &Setup) -> ColumnFamilyConfig {
    ColumnFamilyConfig::new()
        .btree_klog_block_size(NODE_BYTES)
        .enable_bloom_filter(setup.filter_bits > 0)
        .bloom_fpr(false_positives(setup.filter_bits))
        .compression_algorithm(match setup.compression {
            Compression::None => CompressionAlgorithm::None,
            Compression::Lz4 => CompressionAlgorithm::Lz4,
        })
}

/// Returns the rate of false positives of a Bloom filter with so many bits per key.
fn false_positives(bits: u32) -> f64 {
    let ln_2 = std::f64::consts::LN_2;
    (-f64::from(bits.max(1)) * ln_2 * ln_2).exp()
}

/// Repeats a call while something else holds what it needs.
fn again<R>(mut call: impl FnMut() -> Result<R, Error>) -> Result<R, BenchError> {
    loop {
        match call() {
            Err(error) if error.is_locked() => std::thread::yield_now(),
            result => return result.map_err(failed),
        }
    }
}

impl Tides {
    fn family(&self) -> Result<ColumnFamily<'_>, BenchError> {
        self.db.get_column_family(FAMILY).map_err(failed)
    }

    /// Returns the number of sorted runs: tables of level 1, and levels below that are not empty.
    fn runs(&self) -> Result<u64, BenchError> {
        let family = self.family()?;
        Ok(again(|| family.get_stats())?.read_amp as u64)
    }
}

impl Store for Tides {
    type Session<'s> = TidesSession<'s>;

    fn session(&self) -> Result<TidesSession<'_>, BenchError> {
        let begin =
            || self.db.begin_transaction_with_isolation(IsolationLevel::ReadCommitted).map_err(failed);
        Ok(TidesSession { family: self.family()?, reading: begin()?, writing: begin()? })
    }
}

impl<'s> TidesSession<'s> {
    #[inline]
    fn write(
        &mut self,
        change: impl FnOnce(&ColumnFamily<'s>, &Transaction<'s>) -> Result<(), Error>,
    ) -> Result<(), BenchError> {
        self.writing.reset(IsolationLevel::ReadCommitted).map_err(failed)?;
        change(&self.family, &self.writing).map_err(failed)?;
        again(|| self.writing.commit())
    }
}

impl Session for TidesSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.write(|family, transaction| transaction.put(family, key, value))
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        loop {
            match self.reading.get_notrack(&self.family, key) {
                Ok(value) => return Ok(look(Some(&value))),
                Err(error) if error.is_not_found() => return Ok(look(None)),
                Err(error) if error.is_locked() => std::thread::yield_now(),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Gets keys one by one, since TidesDB has no call for several.
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

    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        // There are no empty keys.
        let low = if low.is_empty() { &[0][..] } else { low };
        if high.is_some_and(|high| high < low) {
            return Ok(());
        }
        let mut entries = again(|| match high {
            Some(high) => self.reading.new_range_iterator(&self.family, low, high),
            None => self.reading.new_iterator(&self.family),
        })?;
        again(|| entries.seek(low))?;
        while let Some((key, value)) = entry(&entries)? {
            if high.is_some_and(|high| key.as_slice() > high) || look(&key, &value).is_break() {
                break;
            }
            again(|| entries.next())?;
        }
        Ok(())
    }

    fn scan_back(
        &mut self,
        high: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        if high.is_empty() {
            return Ok(());
        }
        let mut entries = again(|| self.reading.new_iterator(&self.family))?;
        again(|| entries.seek_for_prev(high))?;
        while let Some((key, value)) = entry(&entries)? {
            if look(&key, &value).is_break() {
                break;
            }
            again(|| entries.prev())?;
        }
        Ok(())
    }
}

/// A key and its value, copied twice: by TidesDB for its caller, and by the crate.
type Entry = (Vec<u8>, Vec<u8>);

/// Returns the entry at an iterator, if there is one.
#[inline]
fn entry(entries: &Iterator<'_>) -> Result<Option<Entry>, BenchError> {
    if entries.is_valid() { again(|| entries.key_value()).map(Some) } else { Ok(None) }
}

fn failed(error: Error) -> BenchError {
    BenchError::Store { system: NAME, source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_bits_per_key_promise_the_usual_rate_of_false_positives() {
        assert!((0.0081..0.0083).contains(&false_positives(10)));
        assert!(false_positives(20) < 1e-4);
    }
}
