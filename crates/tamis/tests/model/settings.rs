//! Options under which a few writes make deep trees and many tables.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use tamis::operators::{MergeError, MergeOperator, Operators};
use tamis::options::{
    AsyncReads, ChecksumMode, CompactionChoice, Compression, CompressionPerLevel, FilePicker,
    FilterAllocation, FilterChoice, FilterPolicy, KeyMapChoice, MergeGranularity, PrefixFilter,
};
use tamis::{KeyspaceOptions, Options};

use crate::ops::{Universe, value_of};

/// A custom operator without partial merges: joins base and operands with bars.
#[derive(Debug)]
struct Bars;

impl MergeOperator for Bars {
    fn name(&self) -> &str {
        "bars"
    }

    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let mut value = base.unwrap_or(b"none").to_vec();
        operands.iter().for_each(|operand| value.extend([b"|", *operand].concat()));
        Ok(value)
    }
}

/// A value or operand that this operator accepts.
pub(crate) fn value_for(operator: &str, number: u64, len: usize) -> Vec<u8> {
    match operator {
        "add" => (number << (len % 50)).to_le_bytes().to_vec(),
        _ => value_of(number, len),
    }
}

fn operator() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just("append"), 2 => Just("add"), 1 => Just("max"), 2 => Just("bars")]
}

pub(crate) fn filter() -> impl Strategy<Value = FilterPolicy> {
    let choice = || prop_oneof![1 => Just(FilterChoice::BlockedBloom), 4 => select(all_filters())];
    prop_oneof![
        2 => choice().prop_map(FilterPolicy::uniform),
        1 => (1..3usize, choice(), choice()).prop_map(|(n, above, below)| {
            // A filter of the tree is the only one.
            match [above, below].into_iter().find(|choice| choice.is_of_tree()) {
                Some(global) => global.into(),
                None => FilterPolicy::split(n, above, below),
            }
        }),
    ]
}

fn all_filters() -> Vec<FilterChoice> {
    FilterChoice::all().collect()
}

/// How a global filter locates keys; other filters ignore it.
fn key_map() -> impl Strategy<Value = KeyMapChoice> {
    select(vec![
        KeyMapChoice::Auto,
        KeyMapChoice::Learned,
        KeyMapChoice::Digest,
        KeyMapChoice::Mixed,
        KeyMapChoice::Local,
    ])
}

fn prefix_filter() -> impl Strategy<Value = PrefixFilter> {
    use PrefixFilter::*;
    select(vec![None, Length(1), Length(4), Lengths(2, 5), Delimiter(b'/'), Delimiter(0)])
}

/// From which size values are in blob files, and the limits of these: mostly such that most values
/// are, and files are small.
fn blobs() -> impl Strategy<Value = (u64, f64, u64)> {
    let threshold = prop_oneof![3 => Just(0u64), 2 => Just(1), 2 => Just(16), 2 => Just(100)];
    (threshold, select(vec![0.05, 0.3, 1.0]), select(vec![4u64 << 10, 256 << 20]))
}

fn compression() -> impl Strategy<Value = CompressionPerLevel> {
    let per_level = |levels: &[Compression]| CompressionPerLevel::new(levels.to_vec()).expect("few levels");
    prop_oneof![
        Just(per_level(&[Compression::None])),
        Just(per_level(&[Compression::Lz4])),
        Just(per_level(&[Compression::None, Compression::Lz4])),
        Just(per_level(&[Compression::Lz4, Compression::None])),
    ]
}

/// A tree shape that the engine accepts: policy, granularity, picker, and whether it is
/// deterministic.
fn shape() -> impl Strategy<Value = (CompactionChoice, MergeGranularity, FilePicker, bool)> {
    use CompactionChoice::*;
    use MergeGranularity::*;
    let layered = || select(vec![Leveling, LazyLeveling, Hybrid(1), Hybrid(2), Hybrid(3)]);
    let picker = select(vec![
        FilePicker::LeastOverlap,
        FilePicker::RoundRobin,
        FilePicker::MostTombstones,
        FilePicker::Oldest,
    ]);
    let choice = prop_oneof![
        2 => Just((Leveling, Auto, false)),
        4 => (layered(), select(vec![Auto, Full, Partial, Partitioned])).prop_map(|(c, m)| (c, m, false)),
        2 => (layered(), select(vec![Full, Partitioned])).prop_map(|(c, m)| (c, m, true)),
        2 => any::<bool>().prop_map(|deterministic| (Tiering, Auto, deterministic)),
        2 => Just((Fragmented, Auto, false)),
        1 => select(vec![Fifo, TimeWindow]).prop_map(|c| (c, Auto, false)),
    ];
    (choice, picker)
        .prop_map(|((compaction, merge, deterministic), picker)| (compaction, merge, picker, deterministic))
}

/// Keyspace options with this many levels.
pub(crate) fn keyspace(levels: usize) -> impl Strategy<Value = KeyspaceOptions> {
    let shape =
        (1..5usize, 0..3usize, 0..4usize, 2..5u64, 2..4usize, prop_oneof![9 => Just(true), 1 => Just(false)]);
    let sizes =
        (prop_oneof![Just(4u64), Just(8), Just(16)], prop_oneof![Just(4u64), Just(8)], 8..11u32, 1..20usize);
    let formats = (
        compression(),
        filter(),
        prop_oneof![Just(0.5), Just(4.0), Just(10.0), Just(30.0)],
        prop_oneof![
            4 => Just(FilterAllocation::Uniform),
            1 => Just(FilterAllocation::Monkey),
            1 => Just(FilterAllocation::Mnemosyne),
        ],
        prop_oneof![Just(1u64), Just(64), Just(1 << 20)],
        (key_map(), prefix_filter(), blobs()),
    );
    (shape, sizes, formats, self::shape()).prop_map(move |(shape, sizes, formats, tree)| {
        let (level0_runs, slowdown, stop, size_ratio, max_memtables, auto_compaction) = shape;
        let (memtable_kib, table_kib, block_log, restart_interval) = sizes;
        let (
            compression,
            filter,
            bits_per_key,
            filter_allocation,
            filter_range,
            (key_map, prefix_filter, (blob_threshold, blob_garbage, blob_file_bytes)),
        ) = formats;
        // What changes the filter at a few runs.
        let workload = (filter == FilterChoice::Auto.into())
            .then(|| "seek 1, get 10, empty-get 10".parse().expect("a workload"));
        KeyspaceOptions {
            workload,
            memtable_bytes: memtable_kib << 10,
            table_bytes: table_kib << 10,
            block_bytes: 1 << block_log,
            restart_interval,
            levels,
            level0_runs,
            slowdown_runs: level0_runs + slowdown,
            stop_runs: level0_runs + slowdown + stop,
            size_ratio: size_ratio.into(),
            max_memtables,
            auto_compaction,
            compression,
            // Memory is not divided between levels that share a filter or have one that follows
            // hotness.
            filter_allocation: match filter.as_slice().iter().any(|f| f.is_of_tree() || f.is_elastic()) {
                true => FilterAllocation::Uniform,
                false => filter_allocation,
            },
            // Tables of several segments, units of all sizes.
            filter_unit_bytes: 128 << (bits_per_key as u64 % 5),
            filter,
            bits_per_key,
            filter_range,
            key_map,
            prefix_filter,
            blob_threshold,
            blob_garbage,
            blob_file_bytes,
            compaction: tree.0,
            merge: tree.1,
            picker: tree.2,
            deterministic: tree.3,
            ..KeyspaceOptions::default()
        }
    })
}

/// Database options whose keyspaces have this many levels.
pub(crate) fn options(levels: usize) -> impl Strategy<Value = Options> {
    let cache = prop_oneof![Just(0u64), Just(2 << 10), Just(1 << 20)];
    let flags = (any::<bool>(), prop_oneof![5 => Just(true), 1 => Just(false)], any::<bool>());
    let limits = (
        prop_oneof![Just(8u64), Just(1 << 10)],
        prop_oneof![Just(8u64), Just(1 << 10)],
        1..3usize,
        0..3usize,
    );
    let reads = (
        select(vec![AsyncReads::Auto, AsyncReads::IoUring, AsyncReads::Threads, AsyncReads::Off]),
        select(vec![1usize, 2, 5, 32]),
    );
    let all = (keyspace(levels), cache, flags, limits, reads);
    all.prop_map(|(keyspace, cache_bytes, flags, limits, reads)| Options {
        async_reads: reads.0,
        read_queue_depth: reads.1,
        keyspace,
        cache_bytes,
        filter_budget_bytes: cache_bytes,
        pin_metadata: flags.0,
        hash_sharing: flags.1,
        verify_checksums: if flags.2 { ChecksumMode::Once } else { ChecksumMode::Always },
        memtable_budget_bytes: limits.0 << 10,
        max_log_bytes: limits.1 << 10,
        background_threads: limits.2,
        recycled_logs: limits.3,
        ..Options::default()
    })
}

/// The options of one history: those to open and reopen with (indices are taken modulo their
/// number), and those for further keyspaces.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) options: Vec<Options>,
    pub(crate) keyspace: KeyspaceOptions,
    pub(crate) universe: Universe,
}

impl Settings {
    /// The merge operator of a keyspace.
    pub(crate) fn operator(&self, slot: usize) -> &str {
        let options = if slot == 0 { &self.options[0].keyspace } else { &self.keyspace };
        options.merge_operator.as_deref().expect("all keyspaces have one")
    }
}

pub(crate) fn universe() -> impl Strategy<Value = Universe> {
    prop_oneof![
        3 => Just(Universe::Strings),
        1 => Just(Universe::Dense),
        2 => Just(Universe::Sparse),
        1 => Just(Universe::Prefixed),
    ]
}

pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    (2..6usize).prop_flat_map(|levels| {
        let options = proptest::collection::vec(options(levels), 1..4);
        let settings = (options, keyspace(levels), universe(), operator(), operator());
        settings.prop_map(|(mut options, mut keyspace, universe, default, others)| {
            for options in &mut options {
                options.keyspace.merge_operator = Some(default.into());
                options.operators = Operators::new().with_merge(Arc::new(Bars));
            }
            keyspace.merge_operator = Some(others.into());
            Settings { options, keyspace, universe }
        })
    })
}
