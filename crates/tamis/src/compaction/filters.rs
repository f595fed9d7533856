//! Builds a table's filter from its keys (or, if the tree has a global filter, the list of keys
//! that the filter lacks), and chooses the bits per key of new filters.

use std::sync::Arc;

use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_env::memory::PageVec;
use tamis_files::table::{
    ELASTIC, ElasticBuilder, FilterBuildError, GLOBAL, KEY_LIST, KeyListBuilder, KeyListReader,
};
use tamis_filter::{
    BlockedBloom, Bloom, BloomScheme, Digest, Filter, FilterError, IndependentDigests, KeyList, PointFilter,
    PointSpec, RangeFilter, RangeSpec, Verify, theory,
};
use tamis_policy::compaction::plan::{OutputRun, Plan};

use crate::compaction::allocation::{ByAccess, MOST_BITS};
use crate::options::{BloomHashing, FilterAllocation, FilterChoice, KeyspaceOptions};
use crate::select::AccessSampler;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// Below this, a filter costs more to check than it saves: in theory 98 of 100 absent keys pass it.
const FEWEST_BITS: f64 = 0.25;

/// What a filter needs from a table's keys, collected as they arrive: the size is known only when
/// the table is complete.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    choice: FilterChoice,
    bits_per_key: f64,
    collected: Collected,
}

#[derive(Debug)]
enum Collected {
    Nothing,
    /// The digests of distinct keys. Some megabytes, so they are mapped.
    Digests(PageVec<Digest>),
    Independent(Vec<IndependentDigests>),
    /// A range filter is built from the keys themselves.
    Keys(KeyList),
    /// The keys that a global filter lacks. The second field is a hash of their digests in order.
    List(KeyListBuilder, u64),
    /// A global filter has all of the keys already.
    Global,
    /// Partly built before the last key is known. Boxed because it is much larger than the other
    /// variants.
    Elastic(Box<ElasticBuilder>),
}

/// What a table stores in place of a filter.
#[derive(Debug)]
pub(crate) struct FilterBlock {
    /// The kind, as written to the table's properties.
    pub(crate) kind: &'static str,
    /// `None`: only the kind is recorded.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Which keys a new table brings to a filter of the whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewKeys {
    /// All: its keys are new, or their origin is unknown. The table lists them.
    All,
    /// None: all of its keys come from other tables of the tree.
    None,
}

impl FilterBuilder {
    /// Creates a builder for a table whose filter may use `bits_per_key`. By default, a table has a
    /// filter of its own.
    pub(crate) fn new(
        options: &KeyspaceOptions,
        choice: FilterChoice,
        bits_per_key: f64,
        new_keys: NewKeys,
    ) -> Self {
        let choice = if choice == FilterChoice::Auto { FilterChoice::BlockedBloom } else { choice };
        let collected = match choice {
            FilterChoice::None => Collected::Nothing,
            FilterChoice::Grf if new_keys == NewKeys::None => Collected::Global,
            // A filter supplied by the program is told of every table that a merge writes, and
            // reads its keys.
            FilterChoice::Grf | FilterChoice::External(_) => Collected::List(KeyListBuilder::new(), 0),
            FilterChoice::Elastic(hashing) => Collected::Elastic(Box::new(elastic(options, hashing))),
            _ if bits_per_key < FEWEST_BITS => Collected::Nothing,
            FilterChoice::Bloom(BloomHashing::Independent) => Collected::Independent(Vec::new()),
            FilterChoice::Bloom(_)
            | FilterChoice::BlockedBloom
            | FilterChoice::Auto
            | FilterChoice::Ribbon
            | FilterChoice::Fuse
            | FilterChoice::Xor
            | FilterChoice::Cuckoo => Collected::Digests(PageVec::new()),
            FilterChoice::Surf(_)
            | FilterChoice::Snarf
            | FilterChoice::Rosetta
            | FilterChoice::REncoder
            | FilterChoice::Grafite => Collected::Keys(KeyList::new()),
        };
        FilterBuilder { choice, bits_per_key, collected }
    }

    /// Sets the salt before the first key, for filters that are built as keys arrive; otherwise
    /// they derive one from the keys. For them, the salt passed to [`FilterBuilder::finish`] comes
    /// too late.
    pub(crate) fn with_salt(mut self, salt: u64) -> Self {
        if let Collected::Elastic(units) = &mut self.collected {
            units.set_salt(salt);
        }
        self
    }

    /// Adds a key. Keys come in ascending order, once for each version.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], digest: Digest) {
        match &mut self.collected {
            Collected::Nothing | Collected::Global => {}
            Collected::Digests(digests) => {
                if digests.last() != Some(&digest) {
                    digests.push(digest);
                }
            }
            Collected::Independent(keys) => {
                keys.push(IndependentDigests::of(key, theory::optimal_probes(self.bits_per_key)));
            }
            Collected::Keys(keys) => {
                if keys.last() != Some(key) {
                    keys.push(key);
                }
            }
            Collected::List(list, hash) => {
                if list.add(key) {
                    *hash = hash_in_order(*hash, digest);
                }
            }
            Collected::Elastic(units) => units.add(key, digest),
        }
    }

    /// Sets the bits per key once all keys are known, to at most those that the builder was created
    /// with.
    pub(crate) fn with_bits(mut self, bits_per_key: f64) -> Self {
        debug_assert!(bits_per_key <= self.bits_per_key, "keys may lack digests");
        self.bits_per_key = bits_per_key;
        let sized =
            matches!(self.collected, Collected::Digests(_) | Collected::Independent(_) | Collected::Keys(_));
        if sized && bits_per_key < FEWEST_BITS {
            self.collected = Collected::Nothing;
        }
        self
    }

    /// Returns the filter's bytes. Each table has its own salt, so that the false positives of
    /// tables probed with the same digest are independent.
    pub(crate) fn finish(
        self,
        options: &KeyspaceOptions,
        salt: u64,
    ) -> Result<Option<FilterBlock>, FilterBuildError> {
        let bits = self.bits_per_key;
        let filter: Filter = match self.collected {
            Collected::Nothing => return Ok(None),
            Collected::Global => return Ok(Some(FilterBlock { kind: GLOBAL, bytes: None })),
            Collected::List(list, hash) => {
                let bytes = list.finish();
                if hash_of_list(&bytes) != Some(hash) {
                    return Err(FilterError::SelfCheck.into());
                }
                return Ok(Some(FilterBlock { kind: KEY_LIST, bytes: Some(bytes) }));
            }
            Collected::Elastic(units) => {
                return Ok(units.finish()?.map(|bytes| FilterBlock { kind: ELASTIC, bytes: Some(bytes) }));
            }
            Collected::Independent(keys) => {
                let filter = Bloom::build_independent(keys.iter().copied(), bits, salt)?;
                for key in &keys {
                    if !filter.contains_independent(key)? {
                        return Err(FilterError::SelfCheck.into());
                    }
                }
                PointFilter::from(filter).into()
            }
            Collected::Digests(keys) if self.choice == FilterChoice::BlockedBloom => {
                let filter: PointFilter = BlockedBloom::build(&keys, bits, salt)?.into();
                filter.check(&keys)?;
                filter.into()
            }
            Collected::Digests(keys) => {
                let spec = match self.choice {
                    FilterChoice::Bloom(BloomHashing::Double) => PointSpec::Bloom(BloomScheme::DoubleHashing),
                    FilterChoice::Ribbon => PointSpec::Ribbon,
                    FilterChoice::Fuse => PointSpec::BinaryFuse,
                    FilterChoice::Xor => PointSpec::Xor,
                    FilterChoice::Cuckoo => PointSpec::Cuckoo,
                    _ => PointSpec::Bloom(BloomScheme::Rotation),
                };
                PointFilter::build(spec, &keys, bits, salt, Verify::Yes)?.into()
            }
            Collected::Keys(keys) => {
                let spec = match self.choice {
                    FilterChoice::Snarf => RangeSpec::Snarf,
                    FilterChoice::Rosetta => RangeSpec::Rosetta { max_range: options.filter_range },
                    FilterChoice::REncoder => RangeSpec::REncoder,
                    FilterChoice::Surf(suffix) => RangeSpec::Surf(suffix),
                    _ => RangeSpec::Grafite,
                };
                RangeFilter::build(spec, &keys, bits, salt, Verify::Yes)?.into()
            }
        };
        Ok(Some(FilterBlock { kind: filter.kind().name(), bytes: Some(filter.to_bytes()) }))
    }
}

fn elastic(options: &KeyspaceOptions, hashing: BloomHashing) -> ElasticBuilder {
    let scheme = match hashing {
        BloomHashing::Rotation => BloomScheme::Rotation,
        BloomHashing::Double => BloomScheme::DoubleHashing,
        BloomHashing::Independent => BloomScheme::Independent,
    };
    let shape = (options.filter_units as u32, options.filter_unit_bits, scheme);
    ElasticBuilder::new(shape, options.filter_unit_bytes, Verify::Yes, None)
}

/// A hash that distinguishes lists of keys, including lists of the same keys in another order.
fn hash_in_order(hash: u64, digest: Digest) -> u64 {
    (hash.rotate_left(23) ^ digest.get()).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the same hash for the keys of an encoded list; `None` if the list does not decode.
fn hash_of_list(bytes: &[u8]) -> Option<u64> {
    let mut keys = KeyListReader::open(bytes).ok()?.range(&[], None);
    let mut hash = 0;
    while let Some(key) = keys.next().ok()? {
        hash = hash_in_order(hash, Digest::of(key));
    }
    Some(hash)
}

/// The bits per key for the filters of new tables.
#[derive(Debug)]
pub(crate) enum FilterBits {
    /// The same for all tables of a job.
    Same(f64),
    /// By the gets that each table will be asked.
    ByAccess(ByAccess),
}

impl FilterBits {
    /// Decides for a new table of `entries` entries in the key range `range`, which forms a run of
    /// its own, as a flush writes it.
    pub(crate) fn for_flush(
        options: &KeyspaceOptions,
        version: &Version,
        accesses: Option<&AccessSampler>,
        entries: u64,
        range: impl FnOnce() -> Option<(KeyBytes, KeyEnd)>,
    ) -> FilterBits {
        FilterBits::of(
            options,
            accesses,
            || {
                let mut runs: Vec<u64> =
                    (0..version.runs.len()).map(|run| entries_of(version, run)).collect();
                runs.push(entries);
                runs
            },
            |era| {
                let (smallest, largest) = range().unwrap_or_else(|| (KeyBytes::default(), KeyEnd::Unbounded));
                ByAccess::for_flush(options, version, (&smallest, &largest), entries, era)
            },
        )
    }

    /// Decides for the tables that `plan` writes, based on the tree as it will be afterwards.
    pub(crate) fn for_plan(
        options: &KeyspaceOptions,
        version: &Version,
        accesses: Option<&AccessSampler>,
        plan: &Plan,
    ) -> FilterBits {
        let by_access = |era| ByAccess::for_plan(options, version, plan, era);
        FilterBits::of(options, accesses, || runs_after(version, plan), by_access)
    }

    /// `runs`: the entries of each run as they will be; the last one is new.
    fn of(
        options: &KeyspaceOptions,
        accesses: Option<&AccessSampler>,
        runs: impl FnOnce() -> Vec<u64>,
        by_access: impl FnOnce(u64) -> ByAccess,
    ) -> FilterBits {
        match (options.filter_allocation, accesses) {
            (FilterAllocation::Uniform, _) => FilterBits::Same(options.bits_per_key),
            (FilterAllocation::Mnemosyne, Some(accesses)) => FilterBits::ByAccess(by_access(accesses.era())),
            // Without table filters nothing is counted, and the bits do not matter.
            (FilterAllocation::Monkey | FilterAllocation::Mnemosyne, _) => {
                FilterBits::Same(last(theory::monkey(&runs(), options.bits_per_key)))
            }
        }
    }

    /// Returns the most bits per key that a table may get, before its keys are known.
    pub(crate) fn most(&self) -> f64 {
        match self {
            FilterBits::Same(bits) => *bits,
            FilterBits::ByAccess(_) => MOST_BITS,
        }
    }

    /// Returns the bits per key of a table with this key range and this many entries.
    pub(crate) fn of_table(&self, smallest: &KeyBytes, largest: &KeyEnd, entries: u64) -> f64 {
        match self {
            FilterBits::Same(bits) => *bits,
            FilterBits::ByAccess(by) => by.bits(smallest, largest, entries),
        }
    }

    /// Gives new tables, which have no readers yet, the counts of gets to expect.
    pub(crate) fn inherit(&self, tables: &[Arc<OpenTable>]) {
        if let FilterBits::ByAccess(by) = self {
            tables.iter().for_each(|table| by.inherit(table));
        }
    }
}

/// Returns an upper bound on the entries of each run after `plan` (merges may drop some). The run
/// that the plan writes comes last; the others keep their order.
pub(crate) fn runs_after(version: &Version, plan: &Plan) -> Vec<u64> {
    let inputs: tamis_base::collections::HashSet<u64> = plan.tables().collect();
    let (mut runs, mut output) = (Vec::new(), 0);
    for run in &version.runs {
        let tables = &version.tables[run.tables.clone()];
        let (taken, kept): (Vec<_>, Vec<_>) = tables.iter().partition(|t| inputs.contains(&t.meta.id));
        output += taken.iter().map(|t| t.meta.entries).sum::<u64>();
        let kept = kept.iter().map(|t| t.meta.entries).sum::<u64>();
        match plan.output {
            OutputRun::Into(id) if id == run.id => output += kept,
            _ if kept > 0 => runs.push(kept),
            _ => {}
        }
    }
    runs.push(output);
    runs
}

fn entries_of(version: &Version, run: usize) -> u64 {
    version.tables[version.runs[run].tables.clone()].iter().map(|t| t.meta.entries).sum()
}

fn last(bits: Vec<f64>) -> f64 {
    bits.last().copied().unwrap_or(0.0)
}
