//! How blocks are written and checked.

/// How the blocks of a file are compressed. The discriminants are part of the table format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// No compression: a mapped block is read in place.
    #[default]
    None = 0,
    /// LZ4.
    Lz4 = 1,
    /// Zstandard. Needs the feature `zstd`.
    Zstd = 2,
}

/// When the checksums of blocks in a mapped file are verified. Blocks read into memory are verified
/// once per read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ChecksumMode {
    /// The first time a block is touched after its file was opened.
    #[default]
    Once,
    /// Every time a block is touched.
    Always,
}
