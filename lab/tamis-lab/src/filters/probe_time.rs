//! The filters' part of the time of an empty get.
//!
//! A get that reads no data block consists of fixed costs and of querying the filters. So the absent keys of a sample
//! whose gets read no block (according to `explain_get`) are timed separately, and the time of the same gets on an
//! empty database is subtracted. The result is the time of finding the candidates and querying their filters.
//!
//! There is no result where nearly every get reads a block. Nor is it the probing time of a get with a false positive,
//! which may end earlier.

use std::time::Instant;

use tamis::{Db, Options};
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::random::Random;
use tempfile::TempDir;

/// Maximum number of keys in the sample.
const SAMPLE: u64 = 10_000;

/// Minimum number of keys without block reads.
const FEWEST: usize = 100;

/// Approximate number of gets timed in one pass: keys are repeated up to this number.
const PASS: usize = 10_000;

/// Absent keys whose gets read no block of a database.
#[derive(Debug, Default)]
pub(crate) struct SilentKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl SilentKeys {
    /// Finds them in a sample of absent keys. Costs one `explain_get` per key.
    pub(crate) fn find(db: &Db, keys: &KeySet, seed: u64) -> Result<SilentKeys, BenchError> {
        let mut random = Random::part(seed, 0x7175_6965);
        let mut silent = SilentKeys::default();
        for _ in 0..SAMPLE.min(keys.absent_len()) {
            let start = silent.bytes.len();
            keys.absent(random.below(keys.absent_len()), &mut silent.bytes);
            let touched = db.explain_get(&silent.bytes[start..])?.cost.block_reads > 0;
            match touched {
                true => silent.bytes.truncate(start),
                false => silent.ends.push(silent.bytes.len()),
            }
        }
        Ok(silent)
    }

    /// Returns the mean duration of their gets in nanoseconds; `None` if there are too few of them.
    pub(crate) fn get_ns(&self, db: &Db) -> Result<Option<f64>, BenchError> {
        if self.ends.len() < FEWEST {
            return Ok(None);
        }
        let (rounds, mut found) = (PASS.div_ceil(self.ends.len()), 0);
        let begun = Instant::now();
        for _ in 0..rounds {
            let mut start = 0;
            for &end in &self.ends {
                found += u64::from(db.get(&self.bytes[start..end])?.is_some());
                start = end;
            }
        }
        let ns = begun.elapsed().as_nanos() as f64 / (rounds * self.ends.len()) as f64;
        if found > 0 {
            return Err(BenchError::WrongAnswer {
                workload: "filter time".into(),
                key: "one of the absent keys".into(),
                expected: "no value".into(),
                got: format!("{found} values"),
            });
        }
        Ok(Some(ns))
    }
}

/// An empty database, for the cost of a get without tables.
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
        Ok(Nothing { db: Db::open(dir.path().join("db"), Options::default())?, _dir: dir })
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_keys_read_no_block_and_without_filters_none_is_kept() {
        for (filter, some) in [("blocked-bloom", true), ("none", false)] {
            let dir = tempfile::tempdir().unwrap();
            let mut options = Options::default();
            options.set("keyspace.filter", filter).unwrap();
            let db = Db::open(dir.path(), options).unwrap();
            let keys = KeySet::uniform(2000, 8, 1).unwrap();
            for i in 0..2000 {
                let mut key = Vec::new();
                keys.existing(i, &mut key);
                db.put(&key, b"value").unwrap();
            }
            db.flush().unwrap();
            let silent = SilentKeys::find(&db, &keys, 1).unwrap();
            let before = db.stats().read;
            assert_eq!(silent.get_ns(&db).unwrap().is_some(), some, "{filter}");
            let cost = db.stats().read - before;
            assert_eq!((cost.block_reads, cost.gets > 0), (0, some), "{filter}");
        }
    }
}
