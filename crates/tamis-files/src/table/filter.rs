//! A table's filter of points or ranges, as its block holds it.

use tamis_filter::{Filter, FilterError};

use super::Table;
use crate::error::StorageError;

/// Why a filter could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FilterLoadError {
    /// It could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Its bytes are no filter.
    #[error(transparent)]
    Format(#[from] FilterError),
    /// The table has none.
    #[error("the filter block vanished")]
    Missing,
}

/// Reads a table's filter into memory, and checks it.
///
/// # Errors
///
/// It cannot be read, or is damaged.
pub fn read_filter(table: &Table) -> Result<Filter, FilterLoadError> {
    let bytes = table.filter_bytes()?.ok_or(FilterLoadError::Missing)?;
    Ok(Filter::open(&bytes)?)
}
