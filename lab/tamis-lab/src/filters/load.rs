//! Filling a database up to the moment before the merge into the last level, when it has the most runs.
//!
//! A number of flushes determines the moment. With `deterministic` shapes, T runs in level 0 and size ratio T
//! everywhere, a tree of L levels merges into the last one after every T^(L−1)th flush, and before flush k·T^(L−1) it
//! has T − 1 runs in each tiering level and one below (GRF, SIGMOD 2024, section 6.1). So keys are divided into
//! k·T^(L−1) − 1 equal portions, and each is flushed explicitly, whatever the size of a memtable. k is at least 3: an
//! empty tree fills its last level first, and the levels above are used from the second round on.

use std::time::Instant;

use tamis::{Db, Options};
use tamis_bench::BenchError;
use tamis_bench::histogram::Histogram;
use tamis_bench::keys::KeySet;
use tamis_bench::run::Fill;
use tamis_bench::value::{self, ValueSizes};

/// Minimum number of rounds until all levels are in use.
const FEWEST_ROUNDS: u64 = 3;

/// Intended number of keys per flush, if there are enough for [`FEWEST_ROUNDS`].
const FLUSH_KEYS: u64 = 1000;

/// Maximum overhead of an entry in a memtable.
const ENTRY_OVERHEAD: u64 = 64;

/// Intended number of tables for all keys where whole levels are merged, unless tables would get too large. Far smaller
/// ones would make the comparison unfair: filters have a fixed part, and with 8,000 keys per table SNARF took 14 bits per
/// key instead of 10.
pub const FEW_TABLES: u64 = 6;

/// The number where some sides merge parts of levels. With size ratio 10 the level above the last has 20 tables, of which
/// a partial merge takes one. With a handful of tables per level, a part would be nearly the whole, and merges by size
/// would write as much as full ones.
pub const MANY_TABLES: u64 = 200;

/// Limits of table sizes.
const TABLE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

/// The number of flushes, and the keys between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// T: the size ratio, and the number of runs of level 0.
    pub size_ratio: u64,
    /// Number of levels, including level 0.
    pub levels: usize,
    /// Number of flushes before the last merge into the last level.
    pub flushes: u64,
    /// Number of all keys.
    pub keys: u64,
}

impl Plan {
    /// Chooses the largest number of rounds, up to T, that leaves `FLUSH_KEYS` keys per flush, but at least three.
    /// Fails if there are fewer keys than flushes.
    pub fn new(keys: u64, size_ratio: u64, levels: usize) -> Result<Plan, BenchError> {
        let round = size_ratio.checked_pow(u32::try_from(levels.saturating_sub(1)).unwrap_or(u32::MAX));
        let round = round.unwrap_or(u64::MAX);
        let rounds = (keys / round.saturating_mul(FLUSH_KEYS)).min(size_ratio).max(FEWEST_ROUNDS);
        let flushes = round.saturating_mul(rounds) - 1;
        if keys < flushes {
            return Err(BenchError::Request(format!(
                "{keys} keys are too few for a tree of {levels} levels and size ratio {size_ratio}: it needs at least \
                 {flushes}, one for each flush; use more keys or a smaller --size-ratio"
            )));
        }
        Ok(Plan { size_ratio, levels, flushes, keys })
    }

    /// Returns the number of keys put before the end of flush `flush`.
    pub fn keys_after(&self, flush: u64) -> u64 {
        (u128::from(self.keys) * u128::from(flush) / u128::from(self.flushes)) as u64
    }

    /// Returns the number of keys put when the last merge into the last level is due: those in it at the end.
    pub fn keys_in_last_level(&self) -> u64 {
        let round = self.size_ratio.pow(self.levels as u32 - 1);
        self.keys_after(self.flushes + 1 - round)
    }

    /// Returns the number of flushes caused by `writes` writes, including the flush at the end of a workload.
    pub fn flushes_of(&self, writes: u64) -> u64 {
        writes.div_ceil((self.keys / self.flushes).max(1))
    }

    /// Sets the options that give the tree this size and shape; the policy is unchanged.
    /// `tables` is the intended number of tables.
    pub(crate) fn apply(&self, entry_bytes: u64, tables: u64, options: &mut Options) {
        let flush_keys = self.keys.div_ceil(self.flushes) + 1;
        let keyspace = &mut options.keyspace;
        // Just large enough that no memtable is full before its explicit flush: the base level's size depends on it.
        keyspace.memtable_bytes = (flush_keys * (entry_bytes + ENTRY_OVERHEAD)).max(4 << 10);
        keyspace.table_bytes =
            (self.keys * entry_bytes / tables).clamp(*TABLE_BYTES.start(), *TABLE_BYTES.end());
        keyspace.levels = self.levels;
        keyspace.size_ratio = self.size_ratio.into();
        keyspace.level0_runs = usize::try_from(self.size_ratio).unwrap_or(usize::MAX);
        keyspace.slowdown_runs = keyspace.slowdown_runs.max(keyspace.level0_runs.saturating_mul(3));
        keyspace.stop_runs = keyspace.stop_runs.max(keyspace.slowdown_runs.saturating_mul(2));
        options.memtable_budget_bytes = options.memtable_budget_bytes.max(keyspace.memtable_bytes * 8);
    }
}

/// Measurements of filling.
#[derive(Clone, Debug, Default)]
pub struct Loading {
    /// Number of keys put.
    pub keys: u64,
    /// Nanoseconds from the first put to the end of the last compaction, excluding the generation of keys and values.
    pub ns: u64,
    /// Durations of single puts, every 16th.
    pub puts: Histogram,
    /// Durations of flushes, which build tables and update filters.
    pub flushes: Histogram,
}

/// One in this number of puts is timed.
const PUT_SAMPLING: usize = 16;

/// Puts `fill.loaded` keys in the order of `fill`, flushing after each portion of the plan, and waits for compaction:
/// at the end, or with `in_step` after each flush, so that the tree does not depend on the speed of compactions. Uses
/// one thread, and the memory of one portion besides the engine's.
pub fn fill(
    db: &Db,
    keys: &KeySet,
    fill: &Fill,
    plan: &Plan,
    sizes: ValueSizes,
    in_step: bool,
    advance: &dyn Fn(u64),
) -> Result<Loading, BenchError> {
    let mut loading = Loading { keys: fill.loaded, ..Loading::default() };
    let mut bytes = Vec::new();
    let mut entries = Vec::new();
    let mut flush = 0;
    while plan.keys_after(flush) < fill.loaded {
        let places = plan.keys_after(flush)..plan.keys_after(flush + 1).min(fill.loaded);
        flush += 1;
        bytes.clear();
        entries.clear();
        for place in places.clone() {
            let start = bytes.len();
            keys.existing(fill.at(place), &mut bytes);
            let middle = bytes.len();
            let tag = value::tag_of(&bytes[start..middle]);
            value::fill(tag, 0, sizes.of(tag), &mut bytes);
            entries.push((start, middle, bytes.len()));
        }
        let begun = Instant::now();
        for (n, &(start, middle, end)) in entries.iter().enumerate() {
            let sampled = n.is_multiple_of(PUT_SAMPLING).then(Instant::now);
            db.put(&bytes[start..middle], &bytes[middle..end])?;
            if let Some(begun) = sampled {
                loading.puts.record(begun.elapsed().as_nanos() as u64);
            }
        }
        let flushing = Instant::now();
        db.flush()?;
        loading.flushes.record(flushing.elapsed().as_nanos() as u64);
        if in_step {
            db.wait_for_compaction()?;
        }
        loading.ns += begun.elapsed().as_nanos() as u64;
        advance(places.end - places.start);
    }
    let settling = Instant::now();
    db.wait_for_compaction()?;
    loading.ns += settling.elapsed().as_nanos() as u64;
    Ok(loading)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis::options::{CompactionChoice, MergeGranularity};

    #[test]
    fn portions_cover_all_keys_and_rounds_grow_with_them() {
        for (keys, ratio, levels) in [(400_000, 10, 3), (10_000_000, 10, 3), (200_000, 4, 3), (50_000, 4, 4)]
        {
            let plan = Plan::new(keys, ratio, levels).unwrap();
            let round = ratio.pow(levels as u32 - 1);
            assert_eq!((plan.flushes + 1) % round, 0);
            assert!((3..=ratio.max(3)).contains(&((plan.flushes + 1) / round)), "{plan:?}");
            assert_eq!((plan.keys_after(0), plan.keys_after(plan.flushes)), (0, keys));
            assert!(plan.keys_in_last_level() > keys / 2 && plan.keys_in_last_level() < keys);
        }
        assert_eq!(Plan::new(10_000_000, 10, 3).unwrap().flushes, 999);
        let refused = Plan::new(298, 10, 3).unwrap_err().to_string();
        assert!(refused.contains("298") && refused.contains("299"), "{refused}");
        assert!(Plan::new(1000, 1000, 16).is_err());
    }

    /// Every level is as full as possible: T − 1 runs in each tiering level and one in each leveling one.
    #[test]
    fn the_tree_is_filled_up_to_the_last_merge() {
        let shapes = [
            (CompactionChoice::LazyLeveling, 4, 3, 3 + 3 + 1),
            (CompactionChoice::LazyLeveling, 10, 3, 9 + 9 + 1),
            (CompactionChoice::LazyLeveling, 3, 4, 2 + 2 + 2 + 1),
            (CompactionChoice::Hybrid(2), 4, 3, 3 + 1 + 1),
        ];
        for (compaction, ratio, levels, runs) in shapes {
            let keys = KeySet::uniform(20_000, 8, 1).unwrap();
            let plan = Plan::new(keys.len(), ratio, levels).unwrap();
            let mut options = Options::default();
            options.keyspace.compaction = compaction;
            options.keyspace.merge = MergeGranularity::Partitioned;
            options.keyspace.deterministic = true;
            plan.apply(8 + 100, FEW_TABLES, &mut options);
            let dir = tempfile::tempdir().unwrap();
            let db = options.open(dir.path().join("db")).unwrap();
            let order = Fill::random(&keys, 1);
            let loading = fill(&db, &keys, &order, &plan, 100.into(), false, &|_| ()).unwrap();
            let stats = db.stats();
            let tree = &stats.keyspaces[0];
            assert_eq!(tree.next_epoch - 1, plan.flushes, "one flush for each portion");
            assert_eq!((tree.runs, tree.entries), (runs, 20_000), "{compaction} {ratio} {levels}");
            assert_eq!((loading.keys, loading.flushes.len()), (20_000, plan.flushes));
            let last = &tree.levels[levels - 1].runs;
            assert_eq!(last.iter().map(|run| run.entries).sum::<u64>(), plan.keys_in_last_level());
        }
    }

    /// Regression: with a handful of tables in each level a partial merge rewrote whole levels, and merges by size wrote
    /// 1.45 times what merges at fixed numbers of flushes write, instead of less.
    #[test]
    fn where_levels_are_merged_in_parts_a_part_is_small() {
        let tables_of_levels = |tables| {
            let keys = KeySet::uniform(60_000, 8, 1).unwrap();
            let plan = Plan::new(keys.len(), 10, 3).unwrap();
            let mut options = Options::default();
            options.set("keyspace.compression", "none").unwrap();
            options.keyspace.compaction = CompactionChoice::Leveling;
            plan.apply(8 + 256, tables, &mut options);
            assert_eq!(options.keyspace.granularity(), MergeGranularity::Partial);
            let dir = tempfile::tempdir().unwrap();
            let db = options.open(dir.path().join("db")).unwrap();
            fill(&db, &keys, &Fill::random(&keys, 1), &plan, 256.into(), true, &|_| ()).unwrap();
            let stats = db.stats();
            let tree = &stats.keyspaces[0];
            // In step with compaction, level 0 does not depend on its speed.
            assert_eq!(tree.levels[0].runs.len() as u64, plan.flushes % 10);
            // A part that is the whole may have left level 1 empty.
            [1, 2].map(|level| tree.levels[level].runs.iter().map(|run| run.tables as u64).sum::<u64>())
        };
        let [level1, level2] = tables_of_levels(MANY_TABLES);
        assert!(level1 >= 10 && level2 >= MANY_TABLES / 2, "{level1} and {level2} tables");
        let [level1, level2] = tables_of_levels(FEW_TABLES);
        assert!(level1 <= 3 && (3..=2 * FEW_TABLES).contains(&level2), "{level1} and {level2} tables");
    }
}
