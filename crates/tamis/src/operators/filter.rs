//! Compaction filters: change or remove values as compactions rewrite them.

use std::fmt::Debug;

/// What a compaction filter does with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The value stays.
    Keep,
    /// The key is deleted.
    Remove,
    /// The key gets this value.
    Replace(Vec<u8>),
}

/// A callback for the values that flushes and compactions write.
///
/// The filter is called for a value only if it is the newest version of its key in the merge and
/// invisible to every snapshot that was alive when the merge began. (A snapshot taken while the
/// merge runs may see a value before it and not after.) It is called for values merged from
/// operands, but not for operands without their base. A value may be passed to the filter more than
/// once, or never.
///
/// A removed key stays removed: its older versions do not come back, here or elsewhere.
///
/// Several threads call the filter at once, in the middle of merges: it must be quick and must not
/// panic (a panic stops the database's writes). You may change the filter or leave it out each time
/// the database is opened.
pub trait CompactionFilter: Send + Sync + Debug {
    /// Returns the name for the keyspace option `compaction_filter`: 1 to 64 letters, digits, or
    /// any of `-_.:/`.
    fn name(&self) -> &str;

    /// Decides what to do with the value of `key` on its way to `level` (0: a flush).
    fn filter(&self, level: usize, key: &[u8], value: &[u8]) -> Decision;
}
