//! The inputs of predictions: the machine, the data, the operations, the configuration. Plain
//! values with units; all times are in nanoseconds, sizes in bytes, shares from 0 to 1. Nothing
//! here is measured: `tamis_advisor` does that.

use super::selector::{Keys, Selector};
use super::shape::Shape;

/// The costs of one filter.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ProbeCost {
    /// One probe for an absent key, filter in the processor's cache, including finding the run's
    /// table. For a global filter: one probe for all runs, without `run_ns`.
    pub point_ns: f64,
    /// For a global filter: checking whether it names one given run; added to `point_ns`,
    /// `range_ns` and `seek_ns`.
    pub run_ns: f64,
    /// One probe for an empty short range; same as `point_ns` where the filter has no answer.
    pub range_ns: f64,
    /// The same for an iterator without an end that continues from the answer; 0 if the filter is
    /// not probed then.
    pub seek_ns: f64,
    /// Building, per written key. For a global filter: its part of a key list, and of changing the
    /// filter.
    pub build_ns: f64,
    /// Per entry of the whole filter at each flush: what is copied when keys fall everywhere.
    /// Global filters only.
    pub copy_ns: f64,
    /// Per flush and merge, whatever its keys: rebuilding codes, waking threads. Global filters
    /// only.
    pub change_ns: f64,
}

impl ProbeCost {
    /// Creates a filter with these costs; iterators without an end probe at `range_ns`, and changes
    /// have no cost of their own.
    pub fn new(point_ns: f64, range_ns: f64, build_ns: f64, copy_ns: f64) -> ProbeCost {
        ProbeCost { point_ns, run_ns: 0.0, range_ns, seek_ns: range_ns, build_ns, copy_ns, change_ns: 0.0 }
    }
}

/// Costs of the parts of operations on one machine, with warm processor caches unless noted.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Machine {
    /// T_H: the digest of one key of the length given by `Data`.
    pub digest_ns: f64,
    /// The fixed part of a get, including digest and memtables.
    pub get_ns: f64,
    /// T_D in memory: searching one run for a key: finding its table, index and block.
    pub search_ns: f64,
    /// The same for a run that does not have the key: its block's fingerprints reject it, and no
    /// entry is read.
    pub vain_ns: f64,
    /// Bytes of tables in the database in which `search_ns`, `cursor_ns` and `next_ns` were
    /// measured; larger ones miss more caches.
    pub measured_bytes: f64,
    /// Cache misses that such a search waits for, where the tables are larger than
    /// `measured_bytes`.
    pub search_misses: f64,
    /// The same for a search in vain; those of one get overlap.
    pub vain_misses: f64,
    /// The same for positioning a cursor; those of several cursors overlap.
    pub cursor_misses: f64,
    /// The fixed part of an iterator: creating and dropping it.
    pub iterator_ns: f64,
    /// Opening and positioning a cursor in one run.
    pub cursor_ns: f64,
    /// Additional cost of a run opened while an iterator advances: its misses overlap with no
    /// other's.
    pub late_open_ns: f64,
    /// One step of an iterator over a single run, blocks in memory.
    pub next_ns: f64,
    /// Additional cost of a step each time the number of open runs doubles.
    pub merge_step_ns: f64,
    /// A block from the page cache, beyond a mapped access: a system call and a copy; 0 where
    /// tables are mapped.
    pub page_ns: f64,
    /// T_D of the device: one random block.
    pub device_ns: f64,
    /// Decompressing one block.
    pub unpack_ns: f64,
    /// A put with a log in memory: the record, the memtable.
    pub put_ns: f64,
    /// Additional cost of handing that record to the file system, with a sync where every write is
    /// synced.
    pub log_ns: f64,
    /// Flushing or merging one entry, without its bytes and filter.
    pub merge_entry_ns: f64,
    /// Flushing or merging one byte.
    pub merge_byte_ns: f64,
    /// Share of flush and merge time that operations feel: 1 on one core, less where threads have
    /// their own cores.
    pub background_share: f64,
    /// Bytes that the page cache may use.
    pub page_cache_bytes: f64,
    /// Latency of memory by bytes of the working set, smallest first: `(bytes, ns)`.
    pub latency: Vec<(f64, f64)>,
    /// Costs of filters. Missing selectors are not feasible.
    pub probes: Vec<(Selector, ProbeCost)>,
}

impl Default for Machine {
    /// All zero, except for cache misses observed on one machine: a starting point.
    fn default() -> Self {
        Machine {
            digest_ns: 0.0,
            get_ns: 0.0,
            search_ns: 0.0,
            vain_ns: 0.0,
            measured_bytes: 0.0,
            search_misses: 1.5,
            vain_misses: 0.3,
            cursor_misses: 0.5,
            iterator_ns: 0.0,
            cursor_ns: 0.0,
            late_open_ns: 0.0,
            next_ns: 0.0,
            merge_step_ns: 0.0,
            page_ns: 0.0,
            device_ns: 0.0,
            unpack_ns: 0.0,
            put_ns: 0.0,
            log_ns: 0.0,
            merge_entry_ns: 0.0,
            merge_byte_ns: 0.0,
            background_share: 1.0,
            page_cache_bytes: f64::MAX,
            latency: Vec::new(),
            probes: Vec::new(),
        }
    }
}

impl Machine {
    /// Returns the costs of a filter here, if it was measured.
    pub fn probe(&self, selector: Selector) -> Option<ProbeCost> {
        self.probes.iter().find(|(known, _)| *known == selector).map(|(_, cost)| *cost)
    }

    /// Returns the latency of a random access in a working set of `bytes`, interpolated linearly
    /// between the measured sizes over the logarithm of the size.
    pub fn latency_ns(&self, bytes: f64) -> f64 {
        let Some(&(first, ns)) = self.latency.first() else { return 0.0 };
        if bytes <= first {
            return ns;
        }
        for pair in self.latency.windows(2) {
            let ((a, low), (b, high)) = (pair[0], pair[1]);
            if bytes <= b && b > a && a > 0.0 {
                return low + (high - low) * (bytes / a).ln() / (b / a).ln();
            }
        }
        self.latency.last().map_or(0.0, |(_, ns)| *ns)
    }
}

/// How blocks reach readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReadPath {
    /// Mapped: the page cache holds the only copy of uncompressed blocks.
    #[default]
    Mapped,
    /// System calls through the page cache, and the block cache.
    Buffered,
    /// Bypassing the page cache: the block cache is the only cache.
    Direct,
}

/// The stored data.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Data {
    /// Number of key versions on disk.
    pub entries: u64,
    /// Average bytes of a key.
    pub key_bytes: f64,
    /// Average bytes of a value.
    pub value_bytes: f64,
    /// Structure of the keys.
    pub keys: Keys,
    /// Memtable size, in bytes, that triggers a flush.
    pub memtable_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// How blocks reach readers.
    pub read_path: ReadPath,
    /// Whether blocks of the deeper levels are compressed, and must be decompressed into the block
    /// cache.
    pub compressed: bool,
}

impl Data {
    /// Creates data with this many entries of these sizes, integer keys, and otherwise the options'
    /// defaults (not compressed).
    pub fn new(entries: u64, key_bytes: f64, value_bytes: f64) -> Data {
        Data {
            entries,
            key_bytes,
            value_bytes,
            keys: Keys::Integers,
            memtable_bytes: 64 << 20,
            block_bytes: 4096,
            read_path: ReadPath::Mapped,
            compressed: false,
        }
    }

    /// Returns the bytes that an entry takes on disk: a few for lengths, sequence number,
    /// fingerprint and its part of the index.
    pub fn entry_bytes(&self) -> f64 {
        self.key_bytes + self.value_bytes + 8.0
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> f64 {
        self.entries as f64 * self.entry_bytes()
    }

    /// Returns the entries that a memtable holds when it is flushed: a node has a header, a tower
    /// and an offset in addition.
    pub fn flush_entries(&self) -> f64 {
        (self.memtable_bytes as f64 / (self.key_bytes + self.value_bytes + 44.0)).max(1.0)
    }
}

/// The mix of operations, and where they fall. Shares need not sum to 1; they are relative to their
/// sum.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Workload {
    /// Share of gets of absent keys.
    pub empty_gets: f64,
    /// Share of gets of present keys.
    pub existing_gets: f64,
    /// Share of ranges with an end, that are empty.
    pub empty_ranges: f64,
    /// Share of iterators positioned without an end, for one entry.
    pub seeks: f64,
    /// Share of iterators positioned without an end, for `scan_entries` entries.
    pub scans: f64,
    /// Share of puts.
    pub puts: f64,
    /// Width of empty ranges, in consecutive integers.
    pub range_width: f64,
    /// Entries that a scan reads.
    pub scan_entries: f64,
    /// Exponent of the Zipf distribution of reads; 0 is uniform.
    pub skew: f64,
    /// Whether hot keys lie together in the key space, rather than anywhere.
    pub clustered: bool,
    /// Share of absent keys and empty ranges right after existing keys.
    pub near: f64,
}

impl Default for Workload {
    /// No operations; ranges of 64 integers, scans of 50 entries, no skew.
    fn default() -> Self {
        Workload {
            empty_gets: 0.0,
            existing_gets: 0.0,
            empty_ranges: 0.0,
            seeks: 0.0,
            scans: 0.0,
            puts: 0.0,
            range_width: 64.0,
            scan_entries: 50.0,
            skew: 0.0,
            clustered: false,
            near: 0.0,
        }
    }
}

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A get of an absent key.
    EmptyGet,
    /// A get of a present key.
    ExistingGet,
    /// An empty range with an end.
    EmptyRange,
    /// An iterator positioned, and one entry read.
    Seek,
    /// An iterator positioned, and many entries read.
    Scan,
    /// A put, including its share of flushes and merges.
    Put,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 6] =
        [Class::EmptyGet, Class::ExistingGet, Class::EmptyRange, Class::Seek, Class::Scan, Class::Put];

    /// Returns the class in words.
    pub fn name(self) -> &'static str {
        match self {
            Class::EmptyGet => "empty get",
            Class::ExistingGet => "existing get",
            Class::EmptyRange => "empty range",
            Class::Seek => "seek",
            Class::Scan => "scan",
            Class::Put => "put",
        }
    }
}

impl Workload {
    /// Returns the share of a class, relative to the sum of all; 0 for all if there are no
    /// operations. Negative and non-finite values are treated as 0.
    pub fn share(&self, class: Class) -> f64 {
        let of = |class| {
            let share: f64 = match class {
                Class::EmptyGet => self.empty_gets,
                Class::ExistingGet => self.existing_gets,
                Class::EmptyRange => self.empty_ranges,
                Class::Seek => self.seeks,
                Class::Scan => self.scans,
                Class::Put => self.puts,
            };
            if share.is_finite() { share.max(0.0) } else { 0.0 }
        };
        let sum: f64 = Class::ALL.into_iter().map(of).sum();
        if sum > 0.0 { of(class) / sum } else { 0.0 }
    }
}

/// How filter memory is divided among runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Allocation {
    /// The same number of bits for every key.
    #[default]
    Uniform,
    /// More bits for the keys of small runs.
    Monkey,
}

/// A configuration to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Configuration {
    /// The filter.
    pub selector: Selector,
    /// How its memory is divided; nonuniform only for table filters, and not for elastic ones.
    pub allocation: Allocation,
    /// Bits per entry. For elastic filters: the average that the budget allows.
    pub bits_per_key: f64,
    /// The tree.
    pub shape: Shape,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Whether one digest serves all filters of a get, as the engine does.
    pub hash_sharing: bool,
}

impl Configuration {
    /// Creates a selector with this many bits over a tree, uniform, with hash sharing and without a
    /// block cache.
    pub fn new(selector: Selector, bits_per_key: f64, shape: Shape) -> Configuration {
        Configuration {
            selector,
            allocation: Allocation::Uniform,
            bits_per_key,
            shape,
            cache_bytes: 0,
            hash_sharing: true,
        }
    }

    /// Returns a short description: `blocked-bloom 10.0 bits, leveling T=10`.
    pub fn describe(&self) -> String {
        let monkey = if self.allocation == Allocation::Monkey { " by Monkey" } else { "" };
        let bits = match self.selector {
            Selector::None => String::new(),
            _ => format!(" {:.1} bits{monkey}", self.bits_per_key),
        };
        format!("{}{bits}, {}", self.selector.word(), self.shape.describe())
    }
}
