//! What a merge over tables that are not mapped, or not in memory, knows about its scan.

use std::sync::Arc;

use tamis_files::table::CursorOptions;

use crate::io::batch::BatchReader;
use crate::read::habits::ReadHabits;
use crate::read::run_cursor::RunTables;

/// The blocks of each run that are announced at a time, in mapped tables.
const MOST_ANNOUNCED: usize = 32;

/// What a merge over tables that are not mapped, or not in memory, knows about its scan.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) habits: Option<Arc<ReadHabits>>,
    /// The number of blocks of each run that are read at a time.
    pub(crate) depth: usize,
    /// The number of blocks that the last batch aimed for.
    pub(crate) window: usize,
    /// The number of blocks that the scan needed beyond those of its seek; `None` before the first
    /// seek.
    pub(crate) needed: Option<usize>,
}

impl Ahead {
    /// Returns `None` unless reads of the tables overlap, or blocks are announced because memory is
    /// scarce.
    pub(crate) fn of(tables: &RunTables, options: &CursorOptions) -> Option<Box<Ahead>> {
        let (first, habits) = match tables {
            RunTables::Of(view) => (view.version.tables.first(), Some(&view.habits)),
            RunTables::List(tables) => (tables.first(), None),
        };
        // All tables of a database are read in the same way.
        let table = &first?.table;
        let announced = || table.is_scarce().then_some(MOST_ANNOUNCED);
        let depth = table.overlap().map(BatchReader::depth).or_else(announced)?;
        let ahead = Ahead { habits: habits.cloned(), depth, window: 0, needed: None };
        (options.read_ahead == 0).then(|| Box::new(ahead))
    }

    /// Ends the scan, and begins the next one.
    pub(crate) fn start(&mut self) {
        self.report();
        self.needed = Some(0);
    }

    fn report(&self) {
        if let (Some(needed), Some(habits)) = (self.needed, &self.habits) {
            habits.scanned(needed);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.report();
    }
}
