//! tamis itself, under the same conditions as all engines.
//!
//! Sources: the descriptions of its own options. Tables are mapped, which is the default, except with direct I/O. All
//! levels have the same compression; by default the first two would have none. Overrides of a variant are set last, and
//! so take precedence over the setup.
//!
//! A session is the database itself, used by any thread.

use std::collections::BTreeMap;

use tamis::{Db, Options, WriteBatch};
use tamis_bench::BenchError;
use tamis_bench::store::Store;

use crate::engines::{Batch, Compression, Engine, Inside, Setup, shared};

/// Number of runs from which writes are slowed down when compaction is held back: more than there ever are.
const MANY_RUNS: &str = "1048576";

/// An open tamis database.
pub struct Tamis {
    db: Db,
    compaction: bool,
}

impl Tamis {
    /// Returns the database.
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }
}

impl Store for Tamis {
    type Session<'s> = &'s Db;

    fn session(&self) -> Result<&Db, BenchError> {
        Ok(&self.db)
    }
}

impl Engine for Tamis {
    const NAME: &'static str = "tamis";

    fn version() -> String {
        shared::locked_version("tamis")
    }

    fn refuses(_: &Setup) -> Option<&'static str> {
        None
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let (options, told) = options_of(setup)?;
        shared::make_dir(setup)?;
        let db = options.open(&setup.dir)?;
        Ok((Tamis { db, compaction: setup.compaction }, told))
    }

    fn write(session: &mut &Db, batch: &Batch) -> Result<(), BenchError> {
        let mut writes = WriteBatch::new();
        for (key, value) in batch.iter() {
            writes.put(key, value);
        }
        Ok(Db::write(session, writes)?)
    }

    fn settle(&self) -> Result<(), BenchError> {
        self.db.flush()?;
        if self.compaction {
            self.db.wait_for_compaction()?;
        }
        self.db.wait_for_filters()?;
        Ok(())
    }

    fn compact(&self) -> Result<(), BenchError> {
        self.db.compact()?;
        self.settle()
    }

    fn inside(&self) -> Result<Inside, BenchError> {
        let stats = self.db.stats();
        Ok(Inside {
            runs: Some(stats.keyspaces.iter().map(|keyspace| keyspace.runs as u64).sum()),
            filter_bytes: Some(stats.filter_bytes),
            index_bytes: Some(stats.index_bytes),
            cache_bytes: Some(stats.cache_used_bytes),
            memtable_bytes: Some(stats.memtable_bytes),
        })
    }

    fn close(self) -> Result<(), BenchError> {
        Ok(self.db.close()?)
    }
}

/// Checks overrides, `OPTION=VALUE` each, on their own.
pub(super) fn check_overrides(overrides: &[String]) -> Result<(), BenchError> {
    let mut options = Options::default();
    overrides.iter().try_for_each(|text| {
        let some = share_of_cache(text, 1 << 30).map(|(name, bytes)| format!("{name}={bytes}"));
        set(&mut options, some.as_ref().unwrap_or(text), &mut BTreeMap::new())
    })
}

/// Returns the options for a setup, and those that were set, by name.
fn options_of(setup: &Setup) -> Result<(Options, BTreeMap<String, String>), BenchError> {
    let (mut options, mut told) = (Options::default(), BTreeMap::new());
    // Enough for all memtables of a keyspace, so that only the setup's size determines when they are flushed.
    let defaults = Options::default();
    let memtables = setup.memtable_bytes.saturating_mul(defaults.keyspace.max_memtables as u64 + 1);
    let budget = memtables.max(defaults.memtable_budget_bytes);
    let compression = match setup.compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
    };
    let mut texts = vec![
        "create_if_missing=true".to_owned(),
        format!("durability={}", if setup.sync { "sync" } else { "buffered" }),
        format!("read_mode={}", if setup.direct_io { "direct" } else { "mapped" }),
        format!("memtable_budget_bytes={budget}"),
        format!("background_threads={}", shared::cores().clamp(1, 64)),
        format!("keyspace.memtable_bytes={}", setup.memtable_bytes),
        format!("keyspace.table_bytes={}", setup.memtable_bytes),
        format!("keyspace.compression={compression}"),
        format!("keyspace.auto_compaction={}", setup.compaction),
    ];
    match setup.filter_bits {
        0 => texts.push("keyspace.filter=none".to_owned()),
        bits => texts.push(format!("keyspace.bits_per_key={bits}")),
    }
    if let Some(least) = setup.separated_bytes {
        texts.push(format!("keyspace.blob_threshold={least}"));
    }
    if !setup.compaction {
        // The order matters: a limit may not be below the preceding one.
        texts.push(format!("keyspace.stop_runs={MANY_RUNS}"));
        texts.push(format!("keyspace.slowdown_runs={MANY_RUNS}"));
    }
    let mut cache_bytes = setup.cache_bytes;
    let shares = setup.overrides.iter().map(|text| match share_of_cache(text, setup.cache_bytes) {
        Some((name, bytes)) => {
            cache_bytes = cache_bytes.saturating_sub(bytes);
            format!("{name}={bytes}")
        }
        None => text.clone(),
    });
    let overrides: Vec<String> = shares.collect();
    texts.push(format!("cache_bytes={cache_bytes}"));
    for text in texts.iter().chain(&overrides) {
        set(&mut options, text, &mut told)?;
    }
    options.check()?;
    Ok((options, told))
}

/// Returns the name of `OPTION=N%`, and so much of the cache in bytes: the block cache has the rest.
fn share_of_cache(text: &str, cache_bytes: u64) -> Option<(&str, u64)> {
    let (name, value) = text.split_once('=')?;
    let percent: u64 = value.trim().strip_suffix('%')?.parse().ok()?;
    (percent <= 100).then(|| (name.trim(), (u128::from(cache_bytes) * u128::from(percent) / 100) as u64))
}

/// Sets one option from `OPTION=VALUE`, and records it.
fn set(options: &mut Options, text: &str, told: &mut BTreeMap<String, String>) -> Result<(), BenchError> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(BenchError::Request(format!(
            "`{text}` is not OPTION=VALUE, as in keyspace.bits_per_key=12"
        )));
    };
    let (name, value) = (name.trim(), value.trim());
    options.set(name, value)?;
    told.insert(name.to_owned(), value.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::conformance::setup;

    #[test]
    fn overrides_take_precedence_over_the_setup_and_are_reported() {
        let mut setup = setup(std::path::Path::new("nowhere"));
        setup.overrides = vec!["keyspace.filter = grf".into(), "cache_bytes=1 MiB".into()];
        let (options, told) = options_of(&setup).unwrap();
        assert_eq!(options.cache_bytes, 1 << 20);
        assert_eq!(told["cache_bytes"], "1 MiB");
        assert_eq!(told["keyspace.filter"], "grf");
        assert_eq!(options.keyspace.memtable_bytes, setup.memtable_bytes);
    }

    #[test]
    fn a_share_of_the_cache_leaves_the_rest_to_blocks() {
        let mut setup = setup(std::path::Path::new("nowhere"));
        setup.cache_bytes = 4 << 20;
        setup.overrides = vec!["keyspace.blob_threshold = 25%".into()];
        let (options, told) = options_of(&setup).unwrap();
        assert_eq!((options.cache_bytes, told["keyspace.blob_threshold"].as_str()), (3 << 20, "1048576"));
        assert!(check_overrides(&setup.overrides).is_ok());
        assert!(check_overrides(&["keyspace.blob_threshold=101%".into()]).is_err());
    }

    #[test]
    fn setups_of_any_size_yield_consistent_options() {
        for (memtable_bytes, filter_bits, compaction) in [(4 << 10, 0, false), (1 << 30, 20, true)] {
            let setup =
                Setup { memtable_bytes, filter_bits, compaction, ..setup(std::path::Path::new("nowhere")) };
            let (options, _) = options_of(&setup).unwrap();
            assert!(options.memtable_budget_bytes >= 3 * memtable_bytes);
            assert_eq!(options.keyspace.auto_compaction, compaction);
        }
    }

    #[test]
    fn an_unknown_override_is_refused_by_name() {
        let refused = check_overrides(&["keyspace.bits=3".into()]).unwrap_err().to_string();
        assert!(refused.contains("keyspace.bits"), "{refused}");
        assert!(check_overrides(&["cache_bytes".into()]).is_err());
    }
}
