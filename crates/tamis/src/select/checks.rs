//! Debug builds' checks of what filters deny.

use std::cell::Cell;
use std::ops::Bound;

use tamis_base::key::MAX_SEQNO;
use tamis_files::table::{CursorOptions, TableCursor};

use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

thread_local! {
    /// Whether this thread's rejections go unchecked.
    static UNCHECKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` without debug builds' checks of this thread's rejections, to measure the cost of
/// filters alone.
pub fn without_rejection_checks<T>(work: impl FnOnce() -> T) -> T {
    struct Checked(bool);
    impl Drop for Checked {
        fn drop(&mut self) {
            UNCHECKED.set(self.0);
        }
    }
    let _before = Checked(UNCHECKED.replace(true));
    work()
}

/// In debug builds, checks a rejection against the data: false negatives must never occur.
#[inline]
pub(super) fn check_rejection(version: &Version, table: usize, key: &[u8]) {
    if cfg!(debug_assertions) && !UNCHECKED.get() {
        let table = &version.tables[table];
        // The reader reports an unreadable table; that is not the filter's error.
        if let Ok(found) = table.table.get(key, None, MAX_SEQNO, &mut ()) {
            assert!(
                found.is_none(),
                "the filter of table {} denies a key that it holds: {key:?}",
                table.meta.id
            );
        }
    }
}

/// The same for ranges: checks that the table has nothing from `start` up to `end`.
pub(super) fn check_gap(table: &OpenTable, start: Bound<&[u8]>, end: Option<&[u8]>) {
    if cfg!(debug_assertions) {
        let start = match start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let mut cursor = TableCursor::new(table.table.clone(), CursorOptions::default());
        if cursor.seek(start, MAX_SEQNO).is_ok() && cursor.valid() {
            assert!(
                end.is_some_and(|end| cursor.key() >= end),
                "the filter of table {} denies {:?} between {start:?} and {end:?}",
                table.meta.id,
                cursor.key()
            );
        }
    }
}
