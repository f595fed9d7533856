//! Reads the first blocks of several runs together.
//!
//! A seek is prepared in every run before it is made in any, so the blocks it needs are known. Where tables are not
//! mapped, they are then fetched in one batch: the seek waits once, not once per run.

use smallvec::SmallVec;

use super::Source;
use crate::error::StorageError;
use crate::read::run_cursor::RunContext;
use crate::table::{TableCursor, TouchCounts, fetch};

/// Fetches the blocks that the prepared seeks wait for, if there are several. Sources without a prepared seek are
/// untouched. After an error some seeks are prepared and must not be made.
pub(super) fn fetch_prepared(context: &RunContext, sources: &mut [Source]) -> Result<(), StorageError> {
    // All tables of a database are read in the same way.
    let Some(reads) = context.all().first().and_then(|table| table.table.overlap()) else { return Ok(()) };
    let mut waiting: SmallVec<[&mut TableCursor; 8]> = SmallVec::new();
    waiting.extend(sources.iter_mut().filter_map(|source| match source {
        Source::Run(run) => run.waiting(),
        _ => None,
    }));
    if waiting.len() < 2 {
        return Ok(());
    }
    let mut counts = TouchCounts::default();
    let mut fetches: SmallVec<[_; 8]> = waiting.iter().filter_map(|cursor| cursor.wanted()).collect();
    let fetched = fetch(reads, &mut fetches, &mut counts);
    let got: SmallVec<[_; 8]> = fetches.into_iter().map(|fetch| (fetch.at, fetch.got)).collect();
    waiting[0].add_counts(&counts);
    fetched?;
    for (cursor, (at, got)) in waiting.iter_mut().zip(got) {
        if let Some((block, source)) = got {
            cursor.bring(at, block, source);
        }
    }
    Ok(())
}
