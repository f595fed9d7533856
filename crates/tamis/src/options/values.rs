//! The types of options that are neither numbers nor flags.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::options::words::{Words, value_of, word_of};

/// When an acknowledged write survives a power failure. (A crash of the process alone loses nothing
/// in any mode.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Once the operating system has written it back, for which there is no bound, or when
    /// [`Db::sync`](crate::Db::sync) returns.
    #[default]
    Buffered,
    /// Before the write returns.
    Sync,
    /// At most this long after the write returned. Only meaningful for a whole database.
    Every(Duration),
}

/// How tables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReadMode {
    /// Mapped into memory: the operating system's page cache is the only copy of uncompressed
    /// blocks.
    #[default]
    Mapped,
    /// By system calls through the page cache; blocks are kept in the block cache.
    Buffered,
    /// By system calls that bypass the page cache (`O_DIRECT`): only the block cache holds blocks.
    /// Linux only.
    Direct,
}

impl ReadMode {
    /// Returns the modes that this operating system has.
    pub fn available() -> &'static [ReadMode] {
        let all = &[ReadMode::Mapped, ReadMode::Buffered, ReadMode::Direct];
        if cfg!(target_os = "linux") { all } else { &all[..2] }
    }
}

impl Words for ReadMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("mapped", ReadMode::Mapped), ("buffered", ReadMode::Buffered), ("direct", ReadMode::Direct)];
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum LogWrites {
    /// As tables are read: mapped if they are.
    #[default]
    Auto,
    /// By copying into a mapping of the log, where that is safe, and by system calls elsewhere.
    Mapped,
    /// By system calls.
    System,
}

impl Words for LogWrites {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", LogWrites::Auto), ("mapped", LogWrites::Mapped), ("system", LogWrites::System)];
}

/// How block reads overlap when several are needed at once: in `multi_get`, and when an iterator is
/// positioned in several runs. Applies only where tables are not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum AsyncReads {
    /// Through io_uring where the system has it and allows it, otherwise in threads.
    #[default]
    Auto,
    /// The same, with a warning in [`Stats`](crate::stats::Stats) if io_uring is unavailable.
    IoUring,
    /// In threads, started as needed.
    Threads,
    /// Not at all: blocks are read one after the other.
    Off,
}

impl Words for AsyncReads {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", AsyncReads::Auto),
        ("io-uring", AsyncReads::IoUring),
        ("threads", AsyncReads::Threads),
        ("off", AsyncReads::Off),
    ];
}

/// What to do with a database when one of its tables cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnDamage {
    /// Do not open it.
    #[default]
    Refuse,
    /// Open it; reads and compactions that need the table fail.
    Quarantine,
}

impl Words for OnDamage {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", OnDamage::Refuse), ("quarantine", OnDamage::Quarantine)];
}

/// When the checksums of blocks in a mapped file are computed. Blocks read from a file into memory
/// are always checked, once per read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ChecksumMode {
    /// The first time a block is touched after its table was opened.
    #[default]
    Once,
    /// Every time a block is touched.
    Always,
}

impl ChecksumMode {
    /// Returns what it is called among files.
    pub(crate) fn of_files(self) -> tamis_files::settings::ChecksumMode {
        match self {
            ChecksumMode::Once => tamis_files::settings::ChecksumMode::Once,
            ChecksumMode::Always => tamis_files::settings::ChecksumMode::Always,
        }
    }
}

impl Words for ChecksumMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("once", ChecksumMode::Once), ("always", ChecksumMode::Always)];
}

/// How the positions in a Bloom filter are derived from a key's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum BloomHashing {
    /// Rotations of the digest.
    #[default]
    Rotation,
    /// Double hashing: an arithmetic sequence made of the digest's halves. Needs the feature
    /// `measure`.
    Double,
    /// A separate hash function for each probe: the reference, and the slowest. Needs the feature
    /// `measure`.
    Independent,
}

/// What a SuRF filter keeps of a key beyond the part that distinguishes it from its neighbours.
pub use tamis_filter::SurfSuffix;

/// The filter of a table, or of the whole tree. Point filters answer `get`; range filters also
/// answer `range`, `prefix` and `seek`, and `get` less well for the same memory. A global filter is
/// asked once for all runs and names those to search; there is one for all levels, and each table
/// stores a list of its keys in place of a filter. `docs/filters.md` says which one fits which
/// workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FilterChoice {
    /// None: every run that covers a key is searched.
    None,
    /// A standard Bloom filter.
    Bloom(BloomHashing),
    /// A Bloom filter whose probes for one key fall into one cache line.
    #[default]
    BlockedBloom,
    /// A ribbon filter: a third less memory than Bloom at the same false positive rate, for more
    /// CPU time.
    Ribbon,
    /// A binary fuse filter: small, with three cache lines per lookup.
    Fuse,
    /// An XOR filter.
    Xor,
    /// A cuckoo filter: two cache lines per lookup.
    Cuckoo,
    /// Small Bloom filters of adjacent keys in several units; the units that save the most block
    /// reads are kept in memory, within `filter_budget_bytes`.
    Elastic(BloomHashing),
    /// A succinct trie, for ranges of any byte strings.
    Surf(SurfSuffix),
    /// A learned filter, for ranges of integers or of keys that differ in their first eight bytes.
    Snarf,
    /// Bloom filters over key prefixes, for ranges as wide as `filter_range`.
    Rosetta,
    /// Bitmaps of key prefixes, for short ranges.
    REncoder,
    /// A locality-preserving hash, for ranges; its false positive rate does not depend on the key
    /// distribution.
    Grafite,
    /// Global: a learned filter for points and ranges; its run codes need no change when runs are
    /// merged.
    Grf,
    /// `BlockedBloom` or `Grf`, whichever makes this tree's reads faster as it is: the engine
    /// changes from one to the other in use.
    Auto,
    /// Global: a filter that the program supplies under this name, as `external:NAME` in text.
    /// Needs the feature `unstable-selector`, which has a function that makes one.
    External(SelectorName),
}

/// The name of a filter that the program supplies: lower-case letters, digits and hyphens, at most
/// 32 of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SelectorName(&'static str);

impl SelectorName {
    const PREFIX: &'static str = "external:";
    const MAX_BYTES: usize = 32;

    /// Returns `None` if `name` is not a name.
    pub(crate) fn new(name: &str) -> Option<SelectorName> {
        /// The texts of all names met in this process: a few, which are kept, so that choices are
        /// copied as they are.
        static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > Self::MAX_BYTES || !name.bytes().all(allowed) {
            return None;
        }
        let text = format!("{}{name}", Self::PREFIX);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Some(SelectorName(known.get(&text[..]).copied().unwrap_or_else(|| {
            let kept: &'static str = text.leak();
            known.insert(kept);
            kept
        })))
    }

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        &self.0[Self::PREFIX.len()..]
    }
}

impl std::fmt::Debug for SelectorName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl FilterChoice {
    /// Returns the filter that the program registers under `name` with `Operators::with_selector`;
    /// `None` if that is not a [name](SelectorName).
    #[cfg(feature = "unstable-selector")]
    pub fn external(name: &str) -> Option<FilterChoice> {
        SelectorName::new(name).map(FilterChoice::External)
    }

    /// Returns every choice of this build, once; without those that the program supplies.
    pub fn all() -> impl Iterator<Item = FilterChoice> {
        let first = |(word, choice): &&(&str, Self)| choice.word() == *word && choice.missing().is_none();
        Self::WORDS.iter().filter(first).map(|(_, choice)| *choice)
    }

    /// Reports whether this is a per-table filter that also answers range queries.
    pub fn is_range(self) -> bool {
        use FilterChoice::*;
        matches!(self, Surf(_) | Snarf | Rosetta | REncoder | Grafite)
    }

    /// Reports whether the filter comes in units that are loaded and unloaded as reads demand.
    pub fn is_elastic(self) -> bool {
        matches!(self, FilterChoice::Elastic(_))
    }

    /// Reports whether this is one filter for the whole tree. `Auto` is not, though it may choose
    /// one.
    pub fn is_global(self) -> bool {
        matches!(self, FilterChoice::Grf | FilterChoice::External(_))
    }

    /// Reports whether this is chosen for a tree as a whole and so for all its levels: a global
    /// filter, or `Auto`.
    pub fn is_of_tree(self) -> bool {
        self.is_global() || self == FilterChoice::Auto
    }
}

impl Words for FilterChoice {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", FilterChoice::None),
        ("bloom-rotation", FilterChoice::Bloom(BloomHashing::Rotation)),
        ("bloom-double", FilterChoice::Bloom(BloomHashing::Double)),
        ("bloom-independent", FilterChoice::Bloom(BloomHashing::Independent)),
        ("blocked-bloom", FilterChoice::BlockedBloom),
        ("ribbon", FilterChoice::Ribbon),
        ("fuse", FilterChoice::Fuse),
        ("xor", FilterChoice::Xor),
        ("cuckoo", FilterChoice::Cuckoo),
        ("elastic-rotation", FilterChoice::Elastic(BloomHashing::Rotation)),
        ("elastic-double", FilterChoice::Elastic(BloomHashing::Double)),
        ("elastic-independent", FilterChoice::Elastic(BloomHashing::Independent)),
        ("surf-base", FilterChoice::Surf(SurfSuffix::None)),
        ("surf-hash", FilterChoice::Surf(SurfSuffix::Hash)),
        ("surf-real", FilterChoice::Surf(SurfSuffix::Real)),
        ("surf-mixed", FilterChoice::Surf(SurfSuffix::Mixed)),
        ("snarf", FilterChoice::Snarf),
        ("rosetta", FilterChoice::Rosetta),
        ("rencoder", FilterChoice::REncoder),
        ("grafite", FilterChoice::Grafite),
        ("grf", FilterChoice::Grf),
        ("auto", FilterChoice::Auto),
        ("bloom", FilterChoice::Bloom(BloomHashing::Rotation)),
        ("elastic", FilterChoice::Elastic(BloomHashing::Rotation)),
        ("surf", FilterChoice::Surf(SurfSuffix::Real)),
    ];

    fn missing(self) -> Option<&'static str> {
        use BloomHashing::{Double, Independent};
        let measured = matches!(
            self,
            FilterChoice::Bloom(Double | Independent) | FilterChoice::Elastic(Double | Independent)
        );
        (measured && !cfg!(feature = "measure"))
            .then_some("this hashing scheme is there to be measured; build the crate with the feature `measure`, or use rotation")
    }

    fn word(self) -> &'static str {
        match self {
            FilterChoice::External(name) => name.0,
            shipped => word_of(shipped),
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        let external = word.strip_prefix(SelectorName::PREFIX).and_then(SelectorName::new);
        external.map(FilterChoice::External).or_else(|| value_of(word))
    }
}

/// The shape that compaction gives to the tree: how many sorted runs each level may hold, and what
/// happens to the oldest data. `docs/compaction.md` compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CompactionChoice {
    /// Level 0 collects runs, every deeper level is one run: few runs to read, the most rewriting.
    #[default]
    Leveling,
    /// Every level collects runs, which are merged into one run of the next level: the least
    /// rewriting, the most runs.
    Tiering,
    /// Tiering, but the last level is one run (Dostoevsky): nearly the space and point-read cost of
    /// leveling at nearly the write cost of tiering.
    LazyLeveling,
    /// Tiering above, and this many leveling levels at the bottom. 1 is lazy leveling.
    Hybrid(usize),
    /// Levels of fragments between guards (PebblesDB): a merge adds fragments to the next level and
    /// rewrites nothing there.
    Fragmented,
    /// Nothing is merged; the oldest runs are dropped by size and age.
    Fifo,
    /// Runs are merged within time windows, and dropped by size and age.
    TimeWindow,
}

impl CompactionChoice {
    /// The choices without a parameter, by name.
    pub(super) const NAMED: &'static [(&'static str, CompactionChoice)] = &[
        ("leveling", CompactionChoice::Leveling),
        ("tiering", CompactionChoice::Tiering),
        ("lazy-leveling", CompactionChoice::LazyLeveling),
        ("fragmented", CompactionChoice::Fragmented),
        ("fifo", CompactionChoice::Fifo),
        ("time-window", CompactionChoice::TimeWindow),
    ];
}

impl std::fmt::Display for CompactionChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompactionChoice::Hybrid(levels) => write!(f, "hybrid:{levels}"),
            named => f.write_str(
                Self::NAMED.iter().find(|(_, choice)| choice == named).map_or("", |(name, _)| name),
            ),
        }
    }
}

/// How much of a level one merge takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MergeGranularity {
    /// Chosen by policy: partial for leveling and hybrids of two levels and more, partitioned for
    /// lazy leveling, full for tiering; the other policies each have only one.
    #[default]
    Auto,
    /// Whole levels: least rewriting; needs as much free space as the level takes.
    Full,
    /// Some tables, chosen by `picker`, and the tables they overlap in the next level.
    Partial,
    /// Whole levels down to the last but one, and from there into the last level piece by piece,
    /// along the last level's table boundaries (Spooky): rewrites nearly as little as full merges
    /// without their need for space.
    Partitioned,
}

impl Words for MergeGranularity {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", MergeGranularity::Auto),
        ("full", MergeGranularity::Full),
        ("partial", MergeGranularity::Partial),
        ("partitioned", MergeGranularity::Partitioned),
    ];
}

/// Which tables of an oversized level a partial merge takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FilePicker {
    /// Those that overlap the next level least for their own size: the least rewriting.
    #[default]
    LeastOverlap,
    /// In turn through the key space: every key is compacted equally often.
    RoundRobin,
    /// Those with the largest share of tombstones: frees space soonest.
    MostTombstones,
    /// Those with the oldest data: frequently written keys stay in the upper levels longer.
    Oldest,
}

impl Words for FilePicker {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("least-overlap", FilePicker::LeastOverlap),
        ("round-robin", FilePicker::RoundRobin),
        ("most-tombstones", FilePicker::MostTombstones),
        ("oldest", FilePicker::Oldest),
    ];
}

/// How filter memory is divided between tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FilterAllocation {
    /// The same for every key.
    #[default]
    Uniform,
    /// Minimizes the sum of all runs' false positive rates (Monkey): keys of small runs get more,
    /// those of the last level less. Decided for each table from the shape of the tree when it is
    /// written.
    Monkey,
    /// Minimizes the expected number of reads wasted on false positives (Mnemosyne): keys of tables
    /// that are often asked for absent keys get more. Decided for each table when it is written,
    /// from a sample of the gets since the database was opened; until there are enough, as Monkey
    /// does.
    Mnemosyne,
}

impl Words for FilterAllocation {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("uniform", FilterAllocation::Uniform),
        ("monkey", FilterAllocation::Monkey),
        ("mnemosyne", FilterAllocation::Mnemosyne),
    ];
}

/// The filter of each level; the last one named applies to all deeper levels.
///
/// ```
/// use tamis::options::{BloomHashing, FilterChoice, FilterPolicy};
///
/// let everywhere = FilterPolicy::uniform(FilterChoice::BlockedBloom);
/// let small_below = FilterPolicy::split(3, FilterChoice::BlockedBloom, FilterChoice::Ribbon);
/// assert_eq!(small_below.at(2), FilterChoice::BlockedBloom);
/// assert_eq!(small_below.at(6), FilterChoice::Ribbon);
/// # let _ = everywhere;
/// ```
pub type FilterPolicy = PerLevel<FilterChoice>;

impl FilterPolicy {
    /// Returns the policy without filters.
    pub fn none() -> Self {
        PerLevel::uniform(FilterChoice::None)
    }

    /// Returns elastic filters for all levels.
    pub fn elastic() -> Self {
        PerLevel::uniform(FilterChoice::Elastic(BloomHashing::Rotation))
    }

    /// Returns one GRF for the whole tree.
    pub fn grf() -> Self {
        PerLevel::uniform(FilterChoice::Grf)
    }

    /// Returns the filter of the whole tree, if all levels name the same global one. Options that
    /// mix a global filter with another do not pass their check.
    pub fn global(&self) -> Option<FilterChoice> {
        self.of_tree().filter(|choice| choice.is_global())
    }

    /// Returns the choice that was made for the tree as a whole, if one was: a global filter, or
    /// `Auto`.
    pub fn of_tree(&self) -> Option<FilterChoice> {
        let first = self.0[0];
        (first.is_of_tree() && self.0.iter().all(|choice| *choice == first)).then_some(first)
    }
}

/// How a global filter finds a key's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum KeyMapChoice {
    /// What costs the keyspace's queries least, chosen for each key range whenever its filter is
    /// built.
    #[default]
    Auto,
    /// An order-preserving map learned from the keys: points and ranges, for integers and similar
    /// keys.
    Learned,
    /// The digest: points only, for any keys.
    Digest,
    /// Order between key ranges, the digest within each: points for any keys, and ranges at the
    /// granularity of those key ranges.
    Mixed,
    /// Order between key ranges, distances of numbers within each: points, and short ranges at a
    /// rate that holds for any integer keys and any queries.
    Local,
}

impl Words for KeyMapChoice {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", KeyMapChoice::Auto),
        ("learned", KeyMapChoice::Learned),
        ("digest", KeyMapChoice::Digest),
        ("mixed", KeyMapChoice::Mixed),
        ("local", KeyMapChoice::Local),
    ];
}

/// How the blocks of a table are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all: a mapped block is read in place.
    #[default]
    None = 0,
    /// LZ4: about half the size for text, fast to decompress.
    Lz4 = 1,
    /// Zstandard: smaller and slower. Needs the feature `zstd`.
    Zstd = 2,
}

impl Compression {
    /// Reports whether this build supports this compression.
    pub fn is_built_in(self) -> bool {
        self != Compression::Zstd || cfg!(feature = "zstd")
    }
}

impl Compression {
    /// Returns what it is called among files.
    pub(crate) fn of_files(self) -> tamis_files::settings::Compression {
        match self {
            Compression::None => tamis_files::settings::Compression::None,
            Compression::Lz4 => tamis_files::settings::Compression::Lz4,
            Compression::Zstd => tamis_files::settings::Compression::Zstd,
        }
    }
}

impl Words for Compression {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

    fn missing(self) -> Option<&'static str> {
        (!self.is_built_in())
            .then_some("this build has no Zstandard; build the crate with the feature `zstd`, or use lz4")
    }
}

/// The compression of each level; the last one named applies to all deeper levels.
pub type CompressionPerLevel = PerLevel<Compression>;

/// One choice for each level; the last one applies to all deeper levels. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PerLevel<T>(Vec<T>);

/// The maximum number of levels with a choice of their own.
const MAX_LEVELS: usize = 16;

impl<T: Copy> PerLevel<T> {
    /// The maximum number of levels with a choice of their own.
    pub const MAX_LEVELS: usize = MAX_LEVELS;

    /// Takes one choice for each level from level 0 on, at least 1 and at most
    /// [`MAX_LEVELS`](Self::MAX_LEVELS) of them; returns `None` otherwise.
    pub fn new(levels: Vec<T>) -> Option<Self> {
        (1..=MAX_LEVELS).contains(&levels.len()).then_some(PerLevel(levels))
    }

    /// Uses the same choice for all levels.
    pub fn uniform(choice: T) -> Self {
        PerLevel(vec![choice])
    }

    /// Uses one choice for the levels above `level` (those with smaller numbers), another for it
    /// and all below.
    pub fn split(level: usize, above: T, below: T) -> Self {
        let mut levels = vec![above; level.min(MAX_LEVELS - 1)];
        levels.push(below);
        PerLevel(levels)
    }

    /// Returns the choice for `level`.
    pub fn at(&self, level: usize) -> T {
        self.0[level.min(self.0.len() - 1)]
    }

    /// Returns the choices as they were named.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T: Copy> From<T> for PerLevel<T> {
    fn from(choice: T) -> Self {
        PerLevel::uniform(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_compression_applies_to_all_deeper_levels() {
        let levels = CompressionPerLevel::new(vec![Compression::None, Compression::Lz4]).unwrap();
        assert_eq!(
            [0, 1, 2, 15].map(|n| levels.at(n)),
            [Compression::None, Compression::Lz4, Compression::Lz4, Compression::Lz4]
        );
        assert_eq!(CompressionPerLevel::new(Vec::new()), None);
    }
}
