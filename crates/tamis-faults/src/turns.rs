//! Rotating options: over time every filter with every policy, and other options that affect which
//! calls are made.

use tamis::options::{
    CompactionChoice, FilterAllocation, FilterChoice, LogWrites, MergeGranularity, ReadMode,
};
use tamis::{Durability, KeyspaceOptions, Options};

use crate::promises::MOST_TABLE_FILES;

/// Fixed, since keyspaces keep their number of levels between openings.
const LEVELS: usize = 5;

const COMPACTIONS: [CompactionChoice; 8] = [
    CompactionChoice::Leveling,
    CompactionChoice::Tiering,
    CompactionChoice::LazyLeveling,
    CompactionChoice::Hybrid(1),
    CompactionChoice::Hybrid(2),
    CompactionChoice::Fragmented,
    CompactionChoice::Fifo,
    CompactionChoice::TimeWindow,
];

const MERGES: [MergeGranularity; 4] = [
    MergeGranularity::Auto,
    MergeGranularity::Full,
    MergeGranularity::Partial,
    MergeGranularity::Partitioned,
];

/// Sizes, small enough for much to happen within few writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) memtable_bytes: u64,
    pub(crate) table_bytes: u64,
    pub(crate) max_log_bytes: u64,
    pub(crate) max_open_files: usize,
}

impl Sizes {
    /// For sessions of about a hundred writes.
    pub(crate) const SESSION: Sizes = Sizes {
        memtable_bytes: 16 << 10,
        table_bytes: 16 << 10,
        max_log_bytes: 64 << 10,
        max_open_files: 1000,
    };

    /// The defaults.
    pub(crate) const DEFAULT: Sizes = Sizes {
        memtable_bytes: 64 << 20,
        table_bytes: 64 << 20,
        max_log_bytes: 1 << 30,
        max_open_files: 1000,
    };

    /// Hundreds of tables from a megabyte.
    pub(crate) const MANY_TABLES: Sizes = Sizes {
        memtable_bytes: 8 << 10,
        table_bytes: 4 << 10,
        max_log_bytes: 64 << 10,
        max_open_files: MOST_TABLE_FILES,
    };

    /// Nothing is flushed by itself; compactions write a few tables.
    pub(crate) const FLIPS: Sizes = Sizes {
        memtable_bytes: 8 << 20,
        table_bytes: 64 << 10,
        max_log_bytes: 16 << 20,
        max_open_files: 1000,
    };

    /// For workers that write for tenths of a second.
    pub(crate) const CUTS: Sizes = Sizes {
        memtable_bytes: 48 << 10,
        table_bytes: 64 << 10,
        max_log_bytes: 256 << 10,
        max_open_files: 1000,
    };
}

/// Returns the options of a keyspace at a turn.
pub(crate) fn keyspace(turn: u64, sizes: Sizes) -> KeyspaceOptions {
    let filters: Vec<FilterChoice> = FilterChoice::all().collect();
    let mut rng = fastrand::Rng::with_seed(turn);
    let mut options = KeyspaceOptions {
        filter: filters[turn as usize % filters.len()].into(),
        filter_unit_bytes: 128,
        memtable_bytes: sizes.memtable_bytes,
        table_bytes: sizes.table_bytes,
        block_bytes: [256, 1024, 4096][rng.usize(..3)],
        level0_runs: rng.usize(2..4),
        size_ratio: rng.u64(2..5).into(),
        levels: LEVELS,
        restart_interval: rng.usize(1..20),
        blob_threshold: [0, 1, 64, 512][rng.usize(..4)],
        blob_garbage: [0.05, 0.3, 1.0][rng.usize(..3)],
        blob_file_bytes: [16 << 10, 256 << 20][rng.usize(..2)],
        // The workers require that their writes do not expire.
        time_to_live: None,
        ..KeyspaceOptions::default()
    };
    let plain = options.clone();
    // The policies rotate at another rate, so that every combination occurs.
    options.compaction = COMPACTIONS[(turn / 3) as usize % COMPACTIONS.len()];
    options.merge = MERGES[rng.usize(..MERGES.len())];
    options.deterministic = rng.u32(..4) == 0;
    options.filter_allocation = match rng.u32(..8) {
        0 => FilterAllocation::Monkey,
        1 => FilterAllocation::Mnemosyne,
        _ => FilterAllocation::Uniform,
    };
    for give_up in 0..4 {
        if options.check().is_ok() {
            return options;
        }
        match give_up {
            0 => options.filter_allocation = FilterAllocation::Uniform,
            1 => options.merge = MergeGranularity::Auto,
            2 => options.deterministic = false,
            _ => options = plain.clone(),
        }
    }
    options
}

/// Returns the options of a database at a turn.
pub(crate) fn database(turn: u64, sizes: Sizes) -> Options {
    let mut rng = fastrand::Rng::with_seed(!turn);
    Options {
        durability: match rng.u32(..4) {
            0 => Durability::Every(std::time::Duration::from_millis(rng.u64(1..20))),
            _ => Durability::Buffered,
        },
        read_mode: [ReadMode::Mapped, ReadMode::Mapped, ReadMode::Buffered][rng.usize(..3)],
        cache_bytes: 64 << 10,
        filter_budget_bytes: 20_000,
        heat_sampling: Some(1),
        max_log_bytes: sizes.max_log_bytes,
        max_open_files: sizes.max_open_files,
        recycled_logs: rng.usize(..4),
        background_threads: rng.usize(1..4),
        sub_jobs: Some(rng.u64(1..3)),
        pin_metadata: rng.bool(),
        log_writes: [LogWrites::Auto, LogWrites::Auto, LogWrites::Mapped, LogWrites::System][rng.usize(..4)],
        keyspace: keyspace(turn, sizes),
        ..Options::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_filter_and_every_policy_occurs_and_all_options_are_accepted() {
        let turns: Vec<Options> = (0..500).map(|turn| database(turn, Sizes::CUTS)).collect();
        turns.iter().for_each(|options| options.check().unwrap());
        let words = |of: &dyn Fn(&Options) -> String| turns.iter().map(of).collect::<BTreeSet<_>>().len();
        assert_eq!(words(&|o| format!("{:?}", o.keyspace.filter)), FilterChoice::all().count());
        assert_eq!(words(&|o| o.keyspace.compaction.to_string()), COMPACTIONS.len());
        assert_eq!(words(&|o| format!("{:?}", o.keyspace.merge)), MERGES.len());
        assert!(turns.iter().any(|o| o.keyspace.deterministic));
    }
}
