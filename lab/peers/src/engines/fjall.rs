//! fjall: an LSM-tree in Rust.
//!
//! Source: the documentation of its crate (`DatabaseBuilder`, `KeyspaceCreateOptions`, `PersistMode`,
//! `compaction::Leveled`). One database with one keyspace, and:
//!
//! * Filters of the same number of bits per key on every level. By default it pins filters and indexes in memory only
//!   on the first levels, and reads those of deep levels, in parts, through its cache; here all are whole and pinned,
//!   as in the other engines.
//! * Each put goes to the operating system immediately (`PersistMode::Buffer`, its default); `sync` adds `SyncData`.
//! * Compaction is its leveled strategy with tables of a memtable's size. **Held back**, its threshold for level 0 is
//!   the maximum, 255. Two limits cannot be set: from 20 runs in level 0 it slows writers down by spinning, and from 30
//!   it makes them wait until compaction has helped, here forever. A session refuses puts shortly before.
//! * Large values go to blob files if asked for (`with_kv_separation`), uncompressed, with the defaults of their collection.
//! * Options of a keyspace are stored when it is created, and are permanent. Opening it with others is an error.
//!
//! `settle` flushes and waits until the background threads are idle. They take one or two steps of compaction after
//! each flush and then wait for the next one, even if more compaction is due; so `settle` then takes further steps
//! itself, with the same strategy, until there are none. It must not run concurrently with operations: a reader could
//! miss a version that such a step drops.
//!
//! Threads: any may use the keyspace; writers share one lock on the journal.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ::fjall::compaction::Leveled;
use ::fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PartitioningPolicy,
    PinningPolicy,
};
use ::fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
    PersistMode,
};
use tamis_bench::BenchError;
use tamis_bench::store::{Session, Store};

use crate::engines::shared::{self, told};
use crate::engines::{Batch, Compression, Engine, Inside, Setup};

const NAME: &str = "fjall";

/// The name of the keyspace.
pub(crate) const KEYSPACE: &str = "bench";

/// Number of runs of level 0 at which held-back compaction ends in an error: slightly below the 30 at which writers
/// would wait forever, since flushes may be in progress.
const MOST_RUNS: usize = 27;

/// The background threads count as done if they have been idle for this long.
const AT_REST: Duration = Duration::from_millis(200);

/// Interval at which they are polled.
const POLL: Duration = Duration::from_millis(5);

/// An open fjall database with its one keyspace.
pub struct Fjall {
    keyspace: Keyspace,
    // Dropped after the keyspace, since it waits for its threads.
    database: Database,
    sync: bool,
    compaction: bool,
    memtable_bytes: u64,
}

/// A thread's session.
pub struct FjallSession<'s> {
    fjall: &'s Fjall,
    /// Bytes put since the runs of level 0 were last counted.
    uncounted: u64,
}

impl Engine for Fjall {
    const NAME: &'static str = NAME;

    fn version() -> String {
        shared::locked_version("fjall")
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        if !setup.overrides.is_empty() {
            Some(shared::NO_OVERRIDES)
        } else if setup.direct_io {
            Some("it has no direct I/O")
        } else {
            None
        }
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let database = builder!(Database, setup).open().map_err(failed)?;
        let keyspace = database.keyspace(KEYSPACE, || keyspace_options(setup)).map_err(failed)?;
        let fjall = Fjall::of(database, keyspace, setup)?;
        let told = told([
            ("cache_size", setup.cache_bytes.to_string()),
            ("worker_threads", shared::cores().to_string()),
            ("max_journaling_size", journal_bytes(setup).to_string()),
            ("journal_compression", "None".into()),
            ("max_memtable_size", setup.memtable_bytes.to_string()),
            ("filter_policy", format!("Bloom(BitsPerKey({})) on all levels", setup.filter_bits)),
            ("filter_block_pinning_policy", "all".into()),
            ("filter_block_partitioning_policy", "none".into()),
            ("index_block_pinning_policy", "all".into()),
            ("index_block_partitioning_policy", "none".into()),
            ("data_block_compression_policy", format!("{:?} on all levels", compression(setup))),
            ("compaction_strategy", format!("Leveled, l0_threshold {}", l0_threshold(setup))),
            ("table_target_size", setup.memtable_bytes.to_string()),
            ("kv_separation", separation(setup).map_or("None".into(), |options| format!("{options:?}"))),
            ("persist", if setup.sync { "SyncData" } else { "Buffer" }.into()),
        ]);
        Ok((fjall, told))
    }

    fn write(session: &mut FjallSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        let fjall = session.fjall;
        let mut writes = fjall.database.batch();
        if fjall.sync {
            writes = writes.durability(Some(PersistMode::SyncData));
        }
        for (key, value) in batch.iter() {
            session.count(key, value)?;
            writes.insert(&fjall.keyspace, key, value);
        }
        writes.commit().map_err(failed)
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.keyspace.rotate_memtable().map_err(failed)?;
        self.wait_until_at_rest()?;
        if self.compaction { self.compact_by_strategy() } else { Ok(()) }
    }

    fn compact(&self) -> Result<(), BenchError> {
        self.keyspace.rotate_memtable().map_err(failed)?;
        self.wait_until_at_rest()?;
        self.keyspace.major_compact().map_err(failed)?;
        self.wait_until_at_rest()
    }

    fn inside(&self) -> Result<Inside, BenchError> {
        let tree = &self.keyspace.tree;
        let runs = tree.current_version().iter_levels().map(|level| level.run_count() as u64).sum();
        Ok(Inside {
            runs: Some(runs),
            filter_bytes: Some(tree.pinned_filter_size() as u64),
            index_bytes: Some(tree.pinned_block_index_size() as u64),
            cache_bytes: Some(self.database.cache_size()),
            memtable_bytes: Some(self.database.write_buffer_size()),
        })
    }

    fn close(self) -> Result<(), BenchError> {
        self.database.persist(PersistMode::Buffer).map_err(failed)
    }
}

impl Fjall {
    /// Returns the engine over an open database and its keyspace, of any kind of transactions.
    pub(crate) fn of(database: Database, keyspace: Keyspace, setup: &Setup) -> Result<Fjall, BenchError> {
        check_stored(&keyspace.config, &keyspace_options(setup))?;
        let (sync, compaction, memtable_bytes) = (setup.sync, setup.compaction, setup.memtable_bytes);
        Ok(Fjall { keyspace, database, sync, compaction, memtable_bytes })
    }

    /// Compacts with the keyspace's strategy until there is nothing to do.
    fn compact_by_strategy(&self) -> Result<(), BenchError> {
        let tree = &self.keyspace.tree;
        loop {
            let before = tree.current_version().id();
            // There are no readers, so only the newest version of each key is needed.
            let unneeded = self.database.visible_seqno().saturating_sub(1);
            let strategy = Arc::clone(&self.keyspace.config.compaction_strategy);
            tree.compact(strategy, unneeded).map_err(failed)?;
            if tree.current_version().id() == before {
                return Ok(());
            }
        }
    }

    /// Waits until there is no memtable left to flush, and no thread has flushed or compacted for a while.
    fn wait_until_at_rest(&self) -> Result<(), BenchError> {
        let (database, tree) = (&self.database, &self.keyspace.tree);
        let (mut last, mut quiet) = (None, Duration::ZERO);
        while quiet < AT_REST {
            // Fails if a background thread has failed, which would flush no more.
            database.persist(PersistMode::Buffer).map_err(failed)?;
            let busy = tree.sealed_memtable_count() > 0
                || database.outstanding_flushes() > 0
                || database.active_compactions() > 0;
            let now = Some((database.compactions_completed(), tree.current_version().id()));
            quiet = if busy || now != last { Duration::ZERO } else { quiet + POLL };
            last = now;
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

/// Returns the builder of a database of this type for a setup. A macro, since the builders' common trait has no public name.
macro_rules! builder {
    ($database:ident, $setup:expr) => {
        ::fjall::$database::builder($crate::engines::shared::make_dir($setup)?)
            .cache_size($setup.cache_bytes)
            .worker_threads($crate::engines::shared::cores())
            .max_journaling_size($crate::engines::fjall::journal_bytes($setup))
            .journal_compression(::fjall::CompressionType::None)
    };
}
pub(crate) use builder;

/// Returns the size of the journals at which writers are stopped.
pub(crate) fn journal_bytes(setup: &Setup) -> u64 {
    (512 << 20).max(setup.memtable_bytes.saturating_mul(8))
}

fn l0_threshold(setup: &Setup) -> u8 {
    if setup.compaction { 4 } else { u8::MAX }
}

/// Returns the options of the keyspace for a setup.
pub(crate) fn keyspace_options(setup: &Setup) -> KeyspaceCreateOptions {
    let filter = match setup.filter_bits {
        0 => FilterPolicyEntry::None,
        bits => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits as f32)),
    };
    let strategy = Leveled::default()
        .with_l0_threshold(l0_threshold(setup))
        .with_table_target_size(setup.memtable_bytes);
    KeyspaceCreateOptions::default()
        .max_memtable_size(setup.memtable_bytes)
        .filter_policy(FilterPolicy::all(filter))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .data_block_compression_policy(CompressionPolicy::all(compression(setup)))
        .with_kv_separation(separation(setup))
        .compaction_strategy(Arc::new(strategy))
}

fn separation(setup: &Setup) -> Option<KvSeparationOptions> {
    let least = u32::try_from(setup.separated_bytes?).unwrap_or(u32::MAX);
    Some(KvSeparationOptions::default().separation_threshold(least).compression(compression(setup)))
}

fn compression(setup: &Setup) -> CompressionType {
    match setup.compression {
        Compression::None => CompressionType::None,
        Compression::Lz4 => CompressionType::Lz4,
    }
}

/// Checks that no readable option of an existing keyspace differs from the requested ones, since its stored options
/// apply.
fn check_stored(stored: &KeyspaceCreateOptions, wanted: &KeyspaceCreateOptions) -> Result<(), BenchError> {
    let same = stored.filter_policy == wanted.filter_policy
        && stored.data_block_compression_policy == wanted.data_block_compression_policy
        && stored.compaction_strategy.get_config() == wanted.compaction_strategy.get_config();
    match same {
        true => Ok(()),
        false => {
            let text = "fjall keeps the options that a keyspace was made with, and those of this one differ";
            Err(BenchError::Request(text.into()))
        }
    }
}

impl Store for Fjall {
    type Session<'s> = FjallSession<'s>;

    fn session(&self) -> Result<FjallSession<'_>, BenchError> {
        Ok(FjallSession { fjall: self, uncounted: u64::MAX })
    }
}

impl FjallSession<'_> {
    /// Must be called before each put.
    #[inline]
    fn count(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        if !self.fjall.compaction {
            if self.uncounted > self.fjall.memtable_bytes / 8 {
                self.check_room()?;
            }
            self.uncounted += (key.len() + value.len()) as u64;
        }
        Ok(())
    }

    /// Returns an error instead of waiting forever. Counts runs once per eighth of a memtable's bytes.
    #[cold]
    fn check_room(&mut self) -> Result<(), BenchError> {
        self.uncounted = 0;
        if self.fjall.keyspace.tree.l0_run_count() < MOST_RUNS {
            return Ok(());
        }
        let text = format!(
            "with compaction held back it cannot have more than {MOST_RUNS} runs: writers would hang"
        );
        Err(BenchError::Store { system: NAME, source: text.into() })
    }
}

impl Session for FjallSession<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.count(key, value)?;
        self.fjall.keyspace.insert(key, value).map_err(failed)?;
        if self.fjall.sync {
            self.fjall.database.persist(PersistMode::SyncData).map_err(failed)?;
        }
        Ok(())
    }

    #[inline]
    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Ok(look(self.fjall.keyspace.get(key).map_err(failed)?.as_deref()))
    }

    /// Gets keys one by one, since fjall has no call for several.
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
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        match high {
            Some(high) if high < low => Ok(()),
            Some(high) => look_at(self.fjall.keyspace.range(low..=high), look),
            None => look_at(self.fjall.keyspace.range(low..), look),
        }
    }

    fn scan_back(
        &mut self,
        high: &[u8],
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        look_at(self.fjall.keyspace.range(..=high).rev(), look)
    }
}

fn look_at(
    entries: impl Iterator<Item = ::fjall::Guard>,
    mut look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), BenchError> {
    for entry in entries {
        let (key, value) = entry.into_inner().map_err(failed)?;
        if look(&key, &value).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the error of a call.
pub(crate) fn failed(source: impl Into<::fjall::Error>) -> BenchError {
    BenchError::Store { system: NAME, source: source.into().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::conformance::setup;

    /// Regression: with 30 runs in level 0 a writer waited for a compaction that never came.
    #[test]
    fn too_many_runs_are_an_error_instead_of_an_endless_wait() {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup { compaction: false, ..setup(dir.path()) };
        let (fjall, _) = Fjall::open(&setup).unwrap();
        let mut session = fjall.session().unwrap();
        let (mut full, value) = (None, [7; 1000]);
        // Enough entries for 60 runs.
        for i in 0..60 * setup.memtable_bytes / 1000 {
            if let Err(error) = session.put(&(i * 7919 % 65_521).to_be_bytes(), &value) {
                full = Some(error.to_string());
                break;
            }
            // Flushed one by one, since several memtables would become one run.
            if i % 128 == 127 {
                fjall.settle().unwrap();
            }
        }
        let runs = fjall.inside().unwrap().runs.unwrap();
        assert!(full.is_some_and(|text| text.contains("27 runs")), "{runs} runs");
        assert!((27..30).contains(&runs), "{runs} runs");
    }

    #[test]
    fn opening_a_keyspace_with_other_options_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let made = setup(dir.path());
        Fjall::open(&made).unwrap().0.close().unwrap();
        for other in [
            Setup { compaction: false, ..made.clone() },
            Setup { filter_bits: 12, ..made.clone() },
            Setup { compression: Compression::Lz4, ..made.clone() },
        ] {
            let error = Fjall::open(&other).err().expect("other options").to_string();
            assert!(error.contains("made with"), "{error}");
        }
        Fjall::open(&Setup { cache_bytes: 5 << 20, ..made }).unwrap();
    }
}
