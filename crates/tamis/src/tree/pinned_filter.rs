//! A filter that is kept as long as its table is open: in place in the file's mapping, or in
//! memory.
//!
//! A filter in the mapping costs no memory of its own, but its pages are reclaimed like any others.
//! When the files exceed half of the memory, that happens all the time: a get of an absent key took
//! 4.9 µs, and takes 0.8 µs since the filter is then copied to memory, once and for good.

use std::sync::{Arc, OnceLock};

use tamis_files::table::{FilterLoadError, PinnedValue, Table, read_filter};
use tamis_filter::Filter;

/// See the module documentation. Any thread may query and copy at any time.
#[derive(Debug)]
pub(crate) struct PinnedFilter {
    opened: Filter,
    /// The filter that replaces the mapped one once memory is scarce. `None` inside if its bytes
    /// were damaged by then.
    copied: OnceLock<Option<Filter>>,
}

impl PinnedFilter {
    /// Reads and checks the filter of a table. It stays in the file's mapping if there is one, the
    /// filter's kind and place allow it, and memory is not scarce.
    pub(crate) fn open(table: &Table) -> Result<PinnedFilter, FilterLoadError> {
        let bytes = table.filter_bytes()?.ok_or(FilterLoadError::Missing)?;
        let opened = match bytes {
            PinnedValue::Mapped { .. } if !table.is_scarce() => Filter::open_in_place(Arc::new(bytes))?,
            bytes => Filter::open(&bytes)?,
        };
        Ok(PinnedFilter { opened, copied: OnceLock::new() })
    }

    /// Returns the filter; `None` if it turned out to be damaged.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Filter> {
        match self.copied.get() {
            None => Some(&self.opened),
            Some(copied) => copied.as_ref(),
        }
    }

    /// Copies the filter if it lies in the mapping of `table`, its table, and memory is scarce.
    /// Returns whether that changes [`get`](Self::get). An error means that the filter was damaged
    /// since it was opened: it is not used from then on.
    pub(crate) fn copy_if_scarce(&self, table: &Table) -> Result<bool, FilterLoadError> {
        if self.opened.in_place_bytes() == 0 || self.copied.get().is_some() || !table.is_scarce() {
            return Ok(false);
        }
        // Its pages may have been reread from the device since it was checked.
        let (copied, error) = match read_filter(table) {
            Ok(filter) => (Some(filter), None),
            Err(error) => (None, Some(error)),
        };
        // Another thread may have been faster: then its result counts.
        match (self.copied.set(copied), error) {
            (Ok(()), Some(error)) => Err(error),
            (set, _) => Ok(set.is_ok()),
        }
    }

    /// Returns the memory of the filter, in the file's mapping or outside it, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.get().map_or(0, Filter::memory_bytes)
    }

    /// Returns how much of it lies in the mapping.
    pub(crate) fn in_place_bytes(&self) -> usize {
        self.get().map_or(0, Filter::in_place_bytes)
    }
}
