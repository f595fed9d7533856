//! Helpers for several engines.

use std::path::Path;

use tamis_bench::BenchError;

#[cfg(any(feature = "lmdb", feature = "mdbx", feature = "redb", feature = "bf-tree"))]
use crate::engines::Compression;
use crate::engines::Setup;

/// The reason why an engine other than tamis refuses options of tamis.
#[cfg(any(
    feature = "rocksdb",
    feature = "fjall",
    feature = "leveldb",
    feature = "tidesdb",
    feature = "surrealkv",
    feature = "lmdb",
    feature = "mdbx",
    feature = "redb",
    feature = "bf-tree"
))]
pub(super) const NO_OVERRIDES: &str = "it takes no options of tamis";

/// Returns the reason why a B-tree that neither compresses nor bypasses the page cache refuses a setup.
#[cfg(any(feature = "lmdb", feature = "mdbx", feature = "redb", feature = "bf-tree"))]
pub(super) fn refused_by_b_tree(setup: &Setup) -> Option<&'static str> {
    if !setup.overrides.is_empty() {
        Some(NO_OVERRIDES)
    } else if !setup.compaction {
        Some("a B-tree has no compaction that could be held back")
    } else if setup.direct_io {
        Some("it has no direct I/O")
    } else if setup.compression != Compression::None {
        Some("it does not compress")
    } else {
        None
    }
}

/// See [`Engine::durability`](crate::engines::Engine::durability).
pub(super) const ON_DEVICE: &str = "on the device: a put survives a power cut";

/// See [`Engine::durability`](crate::engines::Engine::durability).
pub(super) const WITH_SYSTEM: &str = "with the operating system: a put survives the death of the process, and a power cut loses the latest ones";

/// See [`Engine::durability`](crate::engines::Engine::durability).
#[cfg(any(feature = "lmdb", feature = "mdbx"))]
pub(super) const MAYBE_DAMAGED: &str = "with the operating system: a put survives the death of the process, and a power cut may damage the database";

/// How [`Engine::durability`](crate::engines::Engine::durability) begins if the death of the process
/// loses puts.
#[cfg(test)]
pub(super) const WITH_PROCESS: &str = "in the memory of the process";

/// The workspace's lock file, which contains the version of every dependency.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// Returns the version of a dependency.
pub(crate) fn locked_version(name: &str) -> String {
    let wanted = format!("name = \"{name}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != wanted).skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.unwrap_or("unknown").to_owned()
}

/// Returns options by name, as an engine's `open` reports them.
#[cfg(any(
    feature = "rocksdb",
    feature = "fjall",
    feature = "leveldb",
    feature = "tidesdb",
    feature = "surrealkv",
    feature = "lmdb",
    feature = "mdbx",
    feature = "redb",
    feature = "bf-tree"
))]
pub(crate) fn told<const N: usize>(
    options: [(&str, String); N],
) -> std::collections::BTreeMap<String, String> {
    options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the number of processors available to this process, for engines that need a number of threads.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Creates the database's directory with its parents.
pub(crate) fn make_dir(setup: &Setup) -> Result<&Path, BenchError> {
    let dir = setup.dir.as_path();
    let operation = "make the directory";
    std::fs::create_dir_all(dir).map_err(|source| BenchError::Io { operation, path: dir.into(), source })?;
    Ok(dir)
}

/// Converts a size in memory, saturating.
#[cfg(any(
    feature = "rocksdb",
    feature = "leveldb",
    feature = "tidesdb",
    feature = "surrealkv",
    feature = "redb",
    feature = "bf-tree"
))]
pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
