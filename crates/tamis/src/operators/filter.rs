//! Compaction filters: what a program wants changed or gone when it is rewritten anyway.

use std::fmt::Debug;

/// What becomes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays.
    Keep,
    /// The key is deleted.
    Remove,
    /// The key gets this value.
    Replace(Vec<u8>),
}

/// Looks at values while flushes and compactions write them.
///
/// A value is shown only if it is the newest version of its key in the merge and no snapshot that was alive when the
/// merge began sees it. (A snapshot taken while the merge runs may see a value before and not after.) Operands that
/// still wait for their base are not shown; values that were put together from operands are. There is no promise that a
/// value is ever shown, nor that it is shown only once.
///
/// What is removed stays removed: older versions of the key do not come back, here or elsewhere.
///
/// Called by several threads at once, in the middle of merges: be quick, and do not panic (a panic stops the database's
/// writes). It may be changed or left out at any opening.
pub trait CompactionFilter: Send + Sync + Debug {
    /// The name that the keyspace option `compaction_filter` calls it by: 1 to 64 letters, digits, or any of `-_.:/`.
    fn name(&self) -> &str;

    /// Decides about the value of `key` on its way to `level` (0: it is flushed).
    fn filter(&self, level: usize, key: &[u8], value: &[u8]) -> Decision;
}
