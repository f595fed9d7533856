//! The types that options have besides numbers and flags.

use std::time::Duration;

use super::domain::Words;

/// When an acknowledged write survives a power cut. (A crash of the process alone loses nothing in any mode.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When the operating system writes it back: usually within half a minute, or when
    /// [`Db::sync`](crate::Db::sync) returns.
    #[default]
    Buffered,
    /// Before the write returns.
    Synced,
    /// At the latest this long after the write returned. Only meaningful for a whole database.
    Every(Duration),
}

/// How tables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// Mapped into memory: the operating system's page cache is the only copy of uncompressed blocks.
    #[default]
    Mapped,
    /// By system calls through the page cache; blocks are kept in the block cache.
    Buffered,
    /// By system calls past the page cache (`O_DIRECT`): only the block cache holds blocks.
    Direct,
}

impl Words for ReadMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("mapped", ReadMode::Mapped), ("buffered", ReadMode::Buffered), ("direct", ReadMode::Direct)];
}

/// How reads of blocks overlap where several are needed at once: in `multi_get`, and when an iterator is positioned in
/// several runs. Only where tables are not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AsyncReads {
    /// Through io_uring where the system has it and allows it, else by threads.
    #[default]
    Auto,
    /// The same, but it is a warning in [`Stats`](crate::Stats) if io_uring cannot be had.
    IoUring,
    /// By threads, started as they are needed.
    Threads,
    /// Not at all: one after the other.
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

/// What becomes of a database of which a table cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// It is not opened.
    #[default]
    Refuse,
    /// It is opened, and whatever needs the table is an error.
    Quarantine,
}

impl Words for OnDamage {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", OnDamage::Refuse), ("quarantine", OnDamage::Quarantine)];
}

/// When the checksums of blocks in a mapped file are computed. Blocks read from a file into memory are always checked,
/// once per read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ChecksumMode {
    /// The first time that a block is touched since its table was opened.
    #[default]
    Once,
    /// Every time a block is touched.
    Always,
}

impl Words for ChecksumMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("once", ChecksumMode::Once), ("always", ChecksumMode::Always)];
}

/// How the positions of a Bloom filter follow from the one digest of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum BloomHashing {
    /// Rotations of the digest.
    #[default]
    Rotation,
    /// Double hashing: an arithmetic sequence made of the digest's halves.
    Double,
    /// A hash function of its own for each probe: the reference, and the slowest.
    Independent,
}

/// What a SuRF filter keeps of a key beyond the part that tells it from its neighbours.
pub use tamis_filter::SurfSuffix;

/// Which filter a table carries, or the whole tree. Point filters answer `get`; range filters answer `range`, `prefix`
/// and `seek`, too, and `get` less well for the same memory. A global filter is asked once for all runs and names those
/// to search; it is one for all levels, and in its tables the list of their keys takes the place of a filter.
/// `docs/filters.md` says which one fits what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FilterChoice {
    /// None: every run that covers a key is searched.
    None,
    /// A standard Bloom filter.
    Bloom(BloomHashing),
    /// A Bloom filter whose probes for one key fall into one cache line.
    #[default]
    BlockedBloom,
    /// A ribbon filter: a third less memory than Bloom at the same rate, for more processor time.
    Ribbon,
    /// A binary fuse filter: small and three cache lines a probe.
    Fuse,
    /// An XOR filter.
    Xor,
    /// A cuckoo filter: two cache lines a probe.
    Cuckoo,
    /// Small Bloom filters of neighbouring keys in several units, of which those that pay most are in memory: see
    /// `filter_budget_bytes`.
    Elastic(BloomHashing),
    /// A succinct trie, for ranges of any byte strings.
    Surf(SurfSuffix),
    /// A learned filter, for ranges of integers or keys of eight telling bytes.
    Snarf,
    /// Bloom filters over key prefixes, for ranges as wide as `filter_range`.
    Rosetta,
    /// Bitmaps of key prefixes, for short ranges.
    REncoder,
    /// A locality-preserving hash, for ranges whose rate depends on no distribution.
    Grafite,
    /// Global: a learned filter for points and ranges whose codes of a key's run need no change when runs are merged.
    Grf,
    /// Global: the same with the run's number, Huffman-coded, in place of the code.
    GrfHuffman,
    /// Global: a cuckoo filter of fingerprints and run numbers, for points.
    Chucky,
    /// Global: for every 32 keys the runs that have some of them, for points and iterators.
    Remix,
}

impl FilterChoice {
    /// Every choice once.
    pub fn all() -> impl Iterator<Item = FilterChoice> {
        Self::WORDS.iter().filter(|(word, choice)| choice.word() == *word).map(|(_, choice)| *choice)
    }

    /// Whether it is a filter of each table that answers for ranges, too.
    pub fn is_range(self) -> bool {
        use FilterChoice::*;
        matches!(self, Surf(_) | Snarf | Rosetta | REncoder | Grafite)
    }

    /// Whether it comes in units that are in memory or not as the reads want it.
    pub fn is_elastic(self) -> bool {
        matches!(self, FilterChoice::Elastic(_))
    }

    /// Whether it is one filter for the whole tree.
    pub fn is_global(self) -> bool {
        use FilterChoice::*;
        matches!(self, Grf | GrfHuffman | Chucky | Remix)
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
        ("grf-huffman", FilterChoice::GrfHuffman),
        ("chucky", FilterChoice::Chucky),
        ("remix", FilterChoice::Remix),
        ("bloom", FilterChoice::Bloom(BloomHashing::Rotation)),
        ("elastic", FilterChoice::Elastic(BloomHashing::Rotation)),
        ("surf", FilterChoice::Surf(SurfSuffix::Real)),
    ];
}

/// Which shape compaction gives to the tree: how many sorted runs each level may hold, and what becomes of the
/// oldest data. `docs/compaction.md` compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CompactionChoice {
    /// Level 0 collects runs, every deeper level is one run: few runs to read, most rewriting.
    #[default]
    Leveling,
    /// Every level collects runs, which are merged into one run of the next level: least rewriting, most runs.
    Tiering,
    /// Tiering, but the last level is one run (Dostoevsky): nearly the space and point reads of leveling at nearly
    /// the writes of tiering.
    LazyLeveling,
    /// Tiering above, and so many leveling levels at the bottom. 1 is lazy leveling.
    Hybrid(usize),
    /// Levels of fragments between guards (PebblesDB): a merge adds fragments to the next level and rewrites nothing
    /// there.
    Fragmented,
    /// Nothing is merged; the oldest runs are dropped by size and age.
    Fifo,
    /// Runs are merged within windows of time, and dropped by size and age.
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
pub enum MergeGranularity {
    /// What suits the policy: partial for leveling and hybrids of two levels and more, partitioned for lazy leveling,
    /// full for tiering; the other policies have one way of their own.
    #[default]
    Auto,
    /// Whole levels: least rewriting; needs as much free space as the level takes.
    Full,
    /// Some tables and what they overlap in the next level; the tables are chosen by `picker`.
    Partial,
    /// Whole levels down to the last but one, and from there into the last level piece by piece, along the last
    /// level's table borders (Spooky): nearly the rewriting of full merges without their need for space.
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

/// Which tables of a level that is too large a partial merge takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FilePicker {
    /// Those that overlap least of the next level for their own size: least rewriting.
    #[default]
    LeastOverlap,
    /// One after the other through the key space: every key's turn comes equally often.
    RoundRobin,
    /// Those with most deletes for their entries: space comes back soonest.
    MostTombstones,
    /// Those whose data is oldest: what is written often stays above longer.
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

/// How filter memory is divided between the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FilterAllocation {
    /// Every key gets the same.
    #[default]
    Uniform,
    /// So that the false positives of all runs together are fewest (Monkey): keys of small runs get more, those of
    /// the last level less. Decided anew for each table from the shape of the tree when it is written.
    Monkey,
}

impl Words for FilterAllocation {
    const WORDS: &'static [(&'static str, Self)] =
        &[("uniform", FilterAllocation::Uniform), ("monkey", FilterAllocation::Monkey)];
}

/// The filter of each level; the last one named holds for all deeper levels.
///
/// ```
/// use tamis::{BloomHashing, FilterChoice, FilterPolicy};
///
/// let everywhere = FilterPolicy::uniform(FilterChoice::BlockedBloom);
/// let small_below = FilterPolicy::split(3, FilterChoice::BlockedBloom, FilterChoice::Ribbon);
/// assert_eq!(small_below.at(2), FilterChoice::BlockedBloom);
/// assert_eq!(small_below.at(6), FilterChoice::Ribbon);
/// # let _ = everywhere;
/// ```
pub type FilterPolicy = PerLevel<FilterChoice>;

impl FilterPolicy {
    /// No filter anywhere.
    pub fn none() -> Self {
        PerLevel::uniform(FilterChoice::None)
    }

    /// Elastic filters everywhere.
    pub fn elastic() -> Self {
        PerLevel::uniform(FilterChoice::Elastic(BloomHashing::Rotation))
    }

    /// One GRF for the whole tree.
    pub fn grf() -> Self {
        PerLevel::uniform(FilterChoice::Grf)
    }

    /// One GRF with Huffman-coded run numbers for the whole tree.
    pub fn grf_huffman() -> Self {
        PerLevel::uniform(FilterChoice::GrfHuffman)
    }

    /// One Chucky filter for the whole tree.
    pub fn chucky() -> Self {
        PerLevel::uniform(FilterChoice::Chucky)
    }

    /// One REMIX for the whole tree.
    pub fn remix() -> Self {
        PerLevel::uniform(FilterChoice::Remix)
    }

    /// The filter of the whole tree, if it is to have one. Only where all levels name the same; options that mix a
    /// global filter with another do not pass their check.
    pub fn global(&self) -> Option<FilterChoice> {
        let first = self.0[0];
        (first.is_global() && self.0.iter().all(|choice| *choice == first)).then_some(first)
    }
}

/// How a global filter finds a key's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum KeyMapChoice {
    /// Learned where that keeps the rate on keys held out, else mixed.
    #[default]
    Auto,
    /// A map learned from the keys that keeps their order: points and ranges, for integers and keys much like them.
    Learned,
    /// The digest: points, for any keys.
    Digest,
    /// Order from stretch to stretch, the digest within: points for any keys, and ranges as far as stretches tell.
    Mixed,
}

impl Words for KeyMapChoice {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", KeyMapChoice::Auto),
        ("learned", KeyMapChoice::Learned),
        ("digest", KeyMapChoice::Digest),
        ("mixed", KeyMapChoice::Mixed),
    ];
}

/// How the blocks of a table are compressed. The numbers are part of the table format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all: a mapped block is read in place.
    #[default]
    None = 0,
    /// LZ4: about half the size for text, little time to unpack.
    Lz4 = 1,
    /// Zstandard: smaller and slower. Needs the feature `zstd`.
    Zstd = 2,
}

impl Compression {
    /// Whether this build can compress and unpack in this way.
    pub fn is_built_in(self) -> bool {
        self != Compression::Zstd || cfg!(feature = "zstd")
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

/// The compression of each level; the last one named holds for all deeper levels.
pub type CompressionPerLevel = PerLevel<Compression>;

/// One choice for each level; the last one holds for all deeper levels. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PerLevel<T>(Vec<T>);

/// More levels than these cannot be told apart.
const MAX_LEVELS: usize = 16;

impl<T: Copy> PerLevel<T> {
    /// More levels than these cannot be told apart.
    pub const MAX_LEVELS: usize = MAX_LEVELS;

    /// One choice for each level from level 0 on, at least 1 and at most [`MAX_LEVELS`](Self::MAX_LEVELS) of them;
    /// `None` otherwise.
    pub fn new(levels: Vec<T>) -> Option<Self> {
        (1..=MAX_LEVELS).contains(&levels.len()).then_some(PerLevel(levels))
    }

    /// The same for all levels.
    pub fn uniform(choice: T) -> Self {
        PerLevel(vec![choice])
    }

    /// One choice for the levels above `level` (those with smaller numbers), another for it and all below.
    pub fn split(level: usize, above: T, below: T) -> Self {
        let mut levels = vec![above; level.min(MAX_LEVELS - 1)];
        levels.push(below);
        PerLevel(levels)
    }

    /// The choice for `level`.
    pub fn at(&self, level: usize) -> T {
        self.0[level.min(self.0.len() - 1)]
    }

    /// The levels that were named.
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
    fn the_last_compression_holds_for_all_deeper_levels() {
        let levels = CompressionPerLevel::new(vec![Compression::None, Compression::Lz4]).unwrap();
        assert_eq!(
            [0, 1, 2, 15].map(|n| levels.at(n)),
            [Compression::None, Compression::Lz4, Compression::Lz4, Compression::Lz4]
        );
        assert_eq!(CompressionPerLevel::new(Vec::new()), None);
    }
}
