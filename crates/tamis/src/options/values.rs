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

/// Which filter a table carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FilterPolicy {
    /// None: every run that covers a key is searched.
    None,
    /// A standard Bloom filter.
    Bloom(BloomHashing),
    /// A Bloom filter whose probes for one key fall into one cache line.
    #[default]
    BlockedBloom,
}

impl Words for FilterPolicy {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", FilterPolicy::None),
        ("bloom-rotation", FilterPolicy::Bloom(BloomHashing::Rotation)),
        ("bloom-double", FilterPolicy::Bloom(BloomHashing::Double)),
        ("bloom-independent", FilterPolicy::Bloom(BloomHashing::Independent)),
        ("blocked-bloom", FilterPolicy::BlockedBloom),
        ("bloom", FilterPolicy::Bloom(BloomHashing::Rotation)),
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
}

/// The compression of each level; the last one holds for all deeper levels. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionPerLevel(Vec<Compression>);

impl CompressionPerLevel {
    /// More levels than these cannot be told apart.
    pub const MAX_LEVELS: usize = 16;

    /// One compression for each level from level 0 on, at least 1 and at most
    /// [`MAX_LEVELS`](Self::MAX_LEVELS) of them; `None` otherwise.
    pub fn new(levels: Vec<Compression>) -> Option<Self> {
        (1..=Self::MAX_LEVELS).contains(&levels.len()).then_some(CompressionPerLevel(levels))
    }

    /// The same compression for all levels.
    pub fn uniform(compression: Compression) -> Self {
        CompressionPerLevel(vec![compression])
    }

    /// The compression of `level`.
    pub fn at(&self, level: usize) -> Compression {
        self.0[level.min(self.0.len() - 1)]
    }

    /// The levels that were named.
    pub fn as_slice(&self) -> &[Compression] {
        &self.0
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
