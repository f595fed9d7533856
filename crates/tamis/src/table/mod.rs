//! Table files of sorted runs: format, writing, reading.
//!
//! A table is an immutable file of key versions ordered by (user key ascending, sequence number descending), together with the
//! structures to search it. `docs/table-format.md` describes the bytes; nothing outside this module knows them. Filters and
//! range tombstones are opaque here. A [key list](key_list), which may take the place of a filter, is not, nor are the
//! [units](units) of elastic filters.
//!
//! * [`TableBuilder`] writes a table.
//! * [`Table`] opens it for point lookups, [`TableCursor`] iterates over it, [`Table::check`] examines all of it.
//!
//! A lookup in a mapped, uncompressed table touches few cache lines: one per level of the
//! [index](index), the lines at the [block](block)'s end, one key and the value.

mod block;
mod block_builder;
mod builder;
pub(crate) mod cache;
mod check;
mod compare;
mod cost;
mod cursor;
mod data;
mod files;
mod flaw;
mod footer;
pub(crate) mod frame;
mod index;
mod key_list;
mod lookup;
mod origin;
mod overlap;
mod prefetch;
mod properties;
mod reader;
mod search;
#[cfg(test)]
mod tests;
mod trace;
mod units;

pub(crate) use block::HashAnswer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use block::{BlockView, InBlock};
pub(crate) use builder::{ExtraProperties, TableBuilder, TableOptions};
pub(crate) use cost::ReadCells;
pub use cost::ReadCost;
pub(crate) use cursor::{CursorOptions, Place, TableCursor, is_beyond};
pub(crate) use data::{HeapBlock, PinnedValue};
pub(crate) use files::{OpenFiles, TableFile};
pub(crate) use footer::Footer;
pub(crate) use frame::Damage;
pub(crate) use index::{BlockAt, Index};
pub(crate) use key_list::{GLOBAL, KEY_LIST, KeyListBuilder, KeyListCursor, KeyListReader};
pub(crate) use origin::{Merged, Origin};
pub(crate) use overlap::{Coming, Fetch, MOST_BYTES, fetch, read_coming};
pub(crate) use prefetch::prefetch;
pub(crate) use reader::{MappedFile, ReaderConfig, Table, copy_from};
pub(crate) use trace::{BlockSource, BlockTouch, ReadTrace, TouchCounts};
#[cfg(test)]
pub(crate) use units::LoadedUnit;
pub(crate) use units::{
    ELASTIC, ElasticBuilder, ElasticFilter, FilterBuildError, FoundUnits, Retired, UnitDirectory, pin, retire,
};
