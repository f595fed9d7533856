//! Conversion between options and configurations. Pure.

use super::{Allocation, Configuration, Data, Merge, Policy, ReadPath, Selector, Shape, Workload, grow};
use tamis::options::{
    BloomHashing, CompactionChoice, FilterAllocation, FilterChoice, KeyMapChoice, MergeGranularity, ReadMode,
    SurfSuffix,
};
use tamis::{KeyspaceOptions, Options};
use tamis_model::engine::between;
use tamis_model::tree_filter::TreeFilter;

/// Returns the selector that an option names. How probes are derived from digests makes no
/// difference to the model.
pub(super) fn selector_of(choice: FilterChoice) -> Selector {
    match choice {
        FilterChoice::None => Selector::None,
        FilterChoice::Bloom(_) => Selector::Bloom,
        FilterChoice::BlockedBloom => Selector::BlockedBloom,
        FilterChoice::Ribbon => Selector::Ribbon,
        FilterChoice::Fuse => Selector::Fuse,
        FilterChoice::Xor => Selector::Xor,
        FilterChoice::Cuckoo => Selector::Cuckoo,
        FilterChoice::Elastic(_) => Selector::Elastic,
        FilterChoice::Surf(SurfSuffix::None) => Selector::SurfBase,
        FilterChoice::Surf(SurfSuffix::Hash) => Selector::SurfHash,
        FilterChoice::Surf(SurfSuffix::Real) => Selector::SurfReal,
        FilterChoice::Surf(SurfSuffix::Mixed) => Selector::SurfMixed,
        FilterChoice::Snarf => Selector::Snarf,
        FilterChoice::Rosetta => Selector::Rosetta,
        FilterChoice::REncoder => Selector::REncoder,
        FilterChoice::Grafite => Selector::Grafite,
        FilterChoice::Grf => Selector::Grf,
        // Until it is known what it chooses: see `resolved`.
        FilterChoice::Auto => Selector::BlockedBloom,
        // To the model, a filter that it does not know costs nothing and excludes nothing.
        FilterChoice::External(name) => {
            let known = Selector::ALL.into_iter().find(|selector| selector.word() == name.as_str());
            known.unwrap_or(Selector::None)
        }
    }
}

/// Returns the option for a selector; `None` for a selector that this version does not know.
pub(super) fn choice_of(selector: Selector) -> Option<FilterChoice> {
    #[cfg(feature = "rivals")]
    if let Selector::GrfHuffman | Selector::Chucky | Selector::Remix = selector {
        return FilterChoice::external(selector.word());
    }
    FilterChoice::all().find(|choice| {
        let plain = !matches!(
            choice,
            FilterChoice::Bloom(BloomHashing::Double | BloomHashing::Independent)
                | FilterChoice::Elastic(BloomHashing::Double | BloomHashing::Independent)
        );
        plain && selector_of(*choice) == selector
    })
}

/// Returns the shape that a keyspace's options ask for.
pub(super) fn shape_of(options: &KeyspaceOptions) -> Shape {
    let policy = match options.compaction {
        CompactionChoice::Tiering => Policy::Tiering,
        CompactionChoice::LazyLeveling => Policy::LazyLeveling,
        CompactionChoice::Hybrid(levels) => Policy::Hybrid(levels as u32),
        CompactionChoice::Fragmented => Policy::Fragmented,
        CompactionChoice::Fifo => Policy::Fifo,
        CompactionChoice::TimeWindow => Policy::TimeWindow,
        _ => Policy::Leveling,
    };
    // Of several ratios, take the one between the last levels, where most of the data is.
    let mut shape = Shape::new(policy, options.size_ratio.at(options.levels));
    shape.merge = match options.granularity() {
        MergeGranularity::Partial => Merge::Partial,
        MergeGranularity::Partitioned => Merge::Partitioned,
        _ => Merge::Full,
    };
    shape.level0_runs = options.level0_runs as u64;
    shape.levels = options.levels;
    shape.read_compaction = options.read_compaction && options.auto_compaction && !options.deterministic;
    shape
}

/// Reports whether the engine chooses between a filter per table and one for the tree by itself.
pub(super) fn is_auto(options: &Options) -> bool {
    options.keyspace.filter.of_tree() == Some(FilterChoice::Auto)
}

/// Reports whether a filter for the tree would keep the order of keys: so the engine's rule takes
/// it.
pub(super) fn keeps_order(options: &Options) -> bool {
    options.keyspace.key_map != KeyMapChoice::Digest
}

/// Returns the options with what the engine's own rule makes of `filter = auto` in the tree that
/// this data grows into, over all of its states.
pub(super) fn resolved(options: &Options, data: &Data, workload: &Workload) -> Options {
    if !is_auto(options) {
        return options.clone();
    }
    let keyspace = &options.keyspace;
    let tree = grow(&shape_of(keyspace), data, workload.puts <= 0.0);
    let rule = between(None, &tree, data, workload, keyspace.bits_per_key, keeps_order(options));
    let choice = match rule.filter {
        TreeFilter::Global => FilterChoice::Grf,
        TreeFilter::PerTable => FilterChoice::BlockedBloom,
    };
    let mut options = options.clone();
    options.keyspace.filter = choice.into();
    options
}

/// Returns the configuration that the options describe, for a tree of this data. Of several
/// filters, that of the last level counts, since it has most of the keys.
pub(super) fn configuration_of(options: &Options, data: &Data, budget_bytes: u64) -> Configuration {
    let keyspace = &options.keyspace;
    let selector = selector_of(keyspace.filter.at(keyspace.levels));
    let entries = (data.entries as f64).max(1.0);
    let units = match options.read_memory_bytes {
        0 => options.filter_budget_bytes,
        shared => shared / 2,
    };
    let bits = match selector {
        Selector::None => 0.0,
        Selector::Elastic => (units.min(budget_bytes.max(1)) as f64 * 8.0 / entries)
            .min(keyspace.filter_unit_bits * keyspace.filter_units as f64),
        _ => keyspace.bits_per_key,
    };
    let mut configuration = Configuration::new(selector, bits, shape_of(keyspace));
    configuration.allocation = match keyspace.filter_allocation {
        // The model knows no single tables: without skew between them the two are the same.
        FilterAllocation::Monkey | FilterAllocation::Mnemosyne => Allocation::Monkey,
        FilterAllocation::Uniform => Allocation::Uniform,
    };
    let through_cache = data.compressed || data.read_path != ReadPath::Mapped;
    configuration.cache_bytes = if through_cache { options.cache_bytes } else { 0 };
    configuration.hash_sharing = options.hash_sharing;
    configuration
}

/// Returns `current` with a configuration applied. What the configuration does not decide stays.
pub(super) fn options_for(configuration: &Configuration, data: &Data, current: &Options) -> Options {
    let mut options = current.clone();
    let keyspace = &mut options.keyspace;
    if let Some(choice) = choice_of(configuration.selector)
        && selector_of(keyspace.filter.at(keyspace.levels)) != configuration.selector
    {
        keyspace.filter = choice.into();
    }
    keyspace.filter_allocation = match configuration.allocation {
        Allocation::Monkey if keyspace.filter_allocation == FilterAllocation::Mnemosyne => {
            FilterAllocation::Mnemosyne
        }
        Allocation::Monkey => FilterAllocation::Monkey,
        _ => FilterAllocation::Uniform,
    };
    if configuration.selector == Selector::Elastic {
        let bytes = configuration.bits_per_key * data.entries as f64 / 8.0;
        options.read_memory_bytes = 0;
        options.filter_budget_bytes = bytes as u64;
    } else if configuration.selector.is_sized() {
        keyspace.bits_per_key = configuration.bits_per_key.clamp(0.5, 64.0);
    }
    if shape_of(keyspace) != configuration.shape {
        let shape = configuration.shape;
        keyspace.compaction = match shape.policy {
            Policy::Tiering => CompactionChoice::Tiering,
            Policy::LazyLeveling => CompactionChoice::LazyLeveling,
            Policy::Hybrid(levels) => CompactionChoice::Hybrid(levels as usize),
            Policy::Fragmented => CompactionChoice::Fragmented,
            Policy::Fifo => CompactionChoice::Fifo,
            Policy::TimeWindow => CompactionChoice::TimeWindow,
            _ => CompactionChoice::Leveling,
        };
        keyspace.merge = MergeGranularity::Auto;
        keyspace.size_ratio = shape.size_ratio.into();
        if shape_of(keyspace).merge != shape.merge {
            keyspace.merge = match shape.merge {
                Merge::Partial => MergeGranularity::Partial,
                Merge::Partitioned => MergeGranularity::Partitioned,
                _ => MergeGranularity::Full,
            };
        }
    }
    if data.compressed || data.read_path != ReadPath::Mapped {
        options.cache_bytes = configuration.cache_bytes;
    }
    options
}

/// Returns the lines of `to` that `from` does not have.
pub(super) fn difference(from: &Options, to: &Options) -> String {
    let (before, after) = (from.to_text(), to.to_text());
    let old: std::collections::HashSet<&str> = before.lines().collect();
    after.lines().filter(|line| !old.contains(line)).fold(String::new(), |text, line| text + line + "\n")
}

/// Returns the read path that the options select.
pub(super) fn read_path_of(options: &Options) -> ReadPath {
    match options.read_mode {
        ReadMode::Buffered => ReadPath::Buffered,
        ReadMode::Direct => ReadPath::Direct,
        _ => ReadPath::Mapped,
    }
}
