//! SurrealKV: an LSM-tree in Rust whose commits are asynchronous.
//!
//! Source: the crate's README, `docs/ARCHITECTURE.md`, and the documentation of `Options`,
//! `Durability` and `Tree`.
//!
//! * A Tokio runtime with a thread per processor, at least two, as in its examples: flushes and
//!   compaction are tasks on it. With one thread more, puts were no faster. A put is a transaction of
//!   its own, whose commit another task passes on: the caller waits for two switches of threads,
//!   most of a put's 30 µs. Callers that are tasks of the runtime wait for less. Gets and scans are
//!   synchronous calls in a read-only transaction.
//! * Its block cache holds filters and indexes, too. They are outside in the other engines, so this
//!   cache is larger by [`Setup::metadata_bytes`].
//! * Its own Bloom filter, which has 10 bits per key. For other numbers its `RibbonFilter`, the
//!   only one that can be told; it is a Bloom filter in blocks of 64 bytes.
//! * Blocks of 4 KiB (by default 64 KiB); level 1 as large as the 4 memtables that level 0 may
//!   have, the ratio of its defaults; tables of a memtable's size.
//! * `Durability::Eventual` unless synced: a commit is with the operating system before it returns.
//!   `Immediate` if synced, and the log keeps zeros written ahead (`with_wal_preallocation`), which
//!   its documentation gives for small synced commits.
//! * Large values go to its value log if asked for, as by default of no value.
//! * **Held back**, compaction has thresholds that are never reached.
//! * Two sessions may write the same key at once. One of them then gets a conflict, and repeats its
//!   put: it means to write whatever is there.
//!
//! `settle` flushes, which its manual compaction does down to level 0. Only flushes of full
//! memtables and checkpoints wake the compaction in the background; so `settle` asks for a
//! checkpoint inside the database, which is refused before anything is written, but wakes it. Then
//! it waits until no level is due, which only files say: see [`levels`].
//!
//! Threads: any may use the tree. Each call of a session blocks its thread.

mod levels;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::surrealkv::{
    CompactRangeOptions, Durability, Error, FilterPolicy, LSMIterator, Mode, Options, ReadOptions,
    RibbonFilter, Transaction, Tree, TreeBuilder,
};
use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};
use tokio::runtime::{Builder, Runtime};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Compression, Engine, Inside, Setup};
use levels::{Levels, Limits};

const NAME: &str = "surrealkv";

const BLOCK_BYTES: usize = 4096;

/// The number of bits per key of its default filter.
const DEFAULT_FILTER_BITS: u32 = 10;

/// Tables of level 0 that make its compaction due, its default, and those at which writers wait.
const LEVEL_0: (usize, usize) = (4, 12);

/// Memtables at which writers wait: two to be flushed beside the one that is written.
const MEMTABLES: usize = 3;

/// Ratio of the sizes of two levels, its default.
const RATIO: f64 = 10.0;

/// Interval at which levels are polled.
const POLL: Duration = Duration::from_millis(20);

/// An open SurrealKV.
pub struct SurrealKv {
    // Closed before the runtime ends, on which it runs.
    tree: Tree,
    runtime: Runtime,
    dir: PathBuf,
    limits: Limits,
    durability: Durability,
}

/// A thread's session.
pub struct SurrealKvSession<'s>(&'s SurrealKv);

impl Engine for SurrealKv {
    const NAME: &'static str = NAME;

    fn version() -> String {
        shared::locked_version(NAME)
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        if !setup.overrides.is_empty() {
            Some(shared::NO_OVERRIDES)
        } else if setup.direct_io {
            Some("it has no direct I/O")
        } else if setup.compression != Compression::None {
            Some("it has no LZ4")
        } else {
            None
        }
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let dir = shared::make_dir(setup)?.to_owned();
        let threads = shared::cores().max(2);
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        let runtime = runtime.map_err(|error| failed(Error::Io(Arc::new(error))))?;
        let (durability, durability_name) = match setup.sync {
            true => (Durability::Immediate, "Immediate"),
            false => (Durability::Eventual, "Eventual"),
        };
        let limits = match setup.compaction {
            true => Limits { tables: LEVEL_0.0, bytes: 4 * setup.memtable_bytes, ratio: RATIO },
            false => Limits { tables: usize::MAX, bytes: u64::MAX / 2, ratio: 1.0 },
        };
        let (stalled_tables, stalled_memtables) =
            if setup.compaction { (LEVEL_0.1, MEMTABLES) } else { (usize::MAX, usize::MAX) };
        let cache = setup.cache_bytes.saturating_add(setup.metadata_bytes);
        let mut options = Options::new()
            .with_path(dir.clone())
            .with_block_size(BLOCK_BYTES)
            .with_block_cache_capacity(cache)
            .with_max_memtable_size(shared::size(setup.memtable_bytes))
            .with_target_file_size(setup.memtable_bytes)
            .with_l0_stall_threshold(stalled_tables)
            .with_memtable_stall_threshold(stalled_memtables)
            .with_wal_preallocation(setup.sync)
            .without_compression();
        options.level0_max_files = limits.tables;
        options.max_bytes_for_level = limits.bytes;
        options.level_multiplier = limits.ratio;
        if setup.filter_bits != DEFAULT_FILTER_BITS {
            let bits = setup.filter_bits as usize;
            let filter = (bits > 0).then(|| Arc::new(RibbonFilter::new(bits)) as Arc<dyn FilterPolicy>);
            options = options.with_filter_policy(filter);
        }
        if let Some(least) = setup.separated_bytes {
            options = options.with_enable_vlog(true).with_vlog_value_threshold(shared::size(least));
        }
        let filter = match setup.filter_bits {
            0 => "none".to_owned(),
            DEFAULT_FILTER_BITS => "the default, Bloom, 10 bits per key".to_owned(),
            bits => format!("RibbonFilter({bits})"),
        };
        let told = told([
            ("worker_threads", threads.to_string()),
            ("block_cache_capacity", cache.to_string()),
            ("block_size", BLOCK_BYTES.to_string()),
            ("filter_policy", filter),
            ("max_memtable_size", setup.memtable_bytes.to_string()),
            ("target_file_size", setup.memtable_bytes.to_string()),
            ("level0_max_files", limits.tables.to_string()),
            ("l0_stall_threshold", stalled_tables.to_string()),
            ("memtable_stall_threshold", stalled_memtables.to_string()),
            ("max_bytes_for_level", limits.bytes.to_string()),
            ("level_multiplier", limits.ratio.to_string()),
            ("compression_per_level", "none".to_owned()),
            (
                "vlog_value_threshold",
                setup.separated_bytes.map_or("no value log".into(), |least| least.to_string()),
            ),
            ("durability", durability_name.to_owned()),
            ("wal_preallocation", setup.sync.to_string()),
            ("transactions", "one for each operation".to_owned()),
        ]);
        let tree = {
            let _on_runtime = runtime.enter();
            TreeBuilder::with_options(options).build().map_err(failed)?
        };
        Ok((SurrealKv { tree, runtime, dir, limits, durability }, told))
    }

    fn write(session: &mut SurrealKvSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        session.0.write(|transaction| batch.iter().try_for_each(|(key, value)| transaction.set(key, value)))
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.merge(&CompactRangeOptions {
            flush_memtable: true,
            target_level: Some(0),
            rewrite_bottommost: false,
        })?;
        {
            let _on_runtime = self.runtime.enter();
            if self.tree.create_checkpoint(&self.dir).is_ok() {
                return Err(refused("it made a checkpoint of the database inside the database"));
            }
        }
        loop {
            if let Some(error) = self.tree.background_error() {
                return Err(failed(error.error));
            }
            if !self.levels()?.is_due(&self.limits) {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }

    fn compact(&self) -> Result<(), BenchError> {
        self.merge(&CompactRangeOptions { rewrite_bottommost: false, ..CompactRangeOptions::default() })?;
        self.settle()
    }

    /// Returns the runs only: filters and indexes are in the block cache, of which it reports
    /// nothing.
    fn inside(&self) -> Result<Inside, BenchError> {
        Ok(Inside { runs: Some(self.levels()?.runs()), ..Inside::default() })
    }

    fn close(self) -> Result<(), BenchError> {
        self.runtime.block_on(self.tree.close()).map_err(failed)
    }
}

impl SurrealKv {
    fn merge(&self, options: &CompactRangeOptions) -> Result<(), BenchError> {
        let _on_runtime = self.runtime.enter();
        self.tree.compact_range(None, None, options).map_err(failed)
    }

    fn levels(&self) -> Result<Levels, BenchError> {
        Levels::of(&self.dir).map_err(refused)
    }

    /// Executes one write transaction, repeated after conflicts.
    #[inline]
    fn write(&self, change: impl Fn(&mut Transaction) -> Result<(), Error>) -> Result<(), BenchError> {
        loop {
            let transaction = self.tree.begin_with_mode(Mode::WriteOnly).map_err(failed)?;
            let mut transaction = transaction.with_durability(self.durability);
            change(&mut transaction).map_err(failed)?;
            match self.runtime.block_on(transaction.commit()) {
                Err(Error::TransactionWriteConflict | Error::TransactionRetry) => {}
                result => return result.map_err(failed),
            }
        }
    }

    #[inline]
    fn read(&self) -> Result<Transaction, BenchError> {
        self.tree.begin_with_mode(Mode::ReadOnly).map_err(failed)
    }
}

impl Store for SurrealKv {
    type Session<'s> = SurrealKvSession<'s>;

    fn session(&self) -> Result<SurrealKvSession<'_>, BenchError> {
        Ok(SurrealKvSession(self))
    }
}

impl Session for SurrealKvSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.0.write(|transaction| transaction.set(key, value))
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Ok(look(self.0.read()?.get(key).map_err(failed)?.as_deref()))
    }

    /// Gets keys one by one in one transaction, since SurrealKV has no call for several.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let transaction = self.0.read()?;
        for (place, key) in keys.iter().enumerate() {
            if look(place, transaction.get(*key).map_err(failed)?.as_deref()).is_break() {
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
        if high.is_some_and(|high| high < low) {
            return Ok(());
        }
        let mut options = ReadOptions::new();
        options.set_iterate_lower_bound((!low.is_empty()).then(|| low.to_vec()));
        options.set_iterate_upper_bound(high.map(after));
        let transaction = self.0.read()?;
        let mut entries = transaction.range_with_options(&options).map_err(failed)?;
        let mut there = entries.seek_first().map_err(failed)?;
        while there {
            if look(entries.key().user_key(), &entries.value_ref().map_err(failed)?).is_break() {
                break;
            }
            there = entries.next().map_err(failed)?;
        }
        Ok(())
    }

    fn scan_back(
        &mut self,
        high: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        let mut options = ReadOptions::new();
        options.set_iterate_upper_bound(Some(after(high)));
        let transaction = self.0.read()?;
        let mut entries = transaction.range_with_options(&options).map_err(failed)?;
        let mut there = entries.seek_last().map_err(failed)?;
        while there {
            if look(entries.key().user_key(), &entries.value_ref().map_err(failed)?).is_break() {
                break;
            }
            there = entries.prev().map_err(failed)?;
        }
        Ok(())
    }
}

/// Returns the first key after the given one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn failed(error: Error) -> BenchError {
    BenchError::Store { system: NAME, source: error.into() }
}

fn refused(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BenchError {
    BenchError::Store { system: NAME, source: text.into() }
}
