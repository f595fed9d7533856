//! Table files of sorted runs: their format, and how they are written and read.
//!
//! A table is an immutable file of key versions ordered by (user key ascending, sequence number
//! descending), with the structures to search it. `docs/formats/tables.md` describes the bytes; only
//! this module knows them. Range tombstones and most filters are opaque here. The exceptions are a
//! [key list](key_list), which may replace a filter, and the [units] of elastic filters.
//!
//! * [`TableBuilder`] writes a table.
//! * [`Table`] opens a table for point lookups, [`TableCursor`] iterates over it, and
//!   [`Table::check`] examines all of it.
//!
//! A lookup in a mapped, uncompressed table touches few cache lines: one per level of the
//! [index], the lines at the [block](mod@block)'s end, one key and the value.

mod block;
mod block_builder;
mod builder;
pub mod cache;
mod check;
mod compare;
mod cursor;
mod data;
mod files;
mod filter;
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
pub(crate) mod tests;
mod trace;
mod units;

pub use block::{BlockView, HashAnswer, InBlock};
pub use builder::{ExtraProperties, TableBuilder, TableOptions};
pub use cursor::{CursorOptions, EntryIndex, TableCursor, is_beyond};
pub use data::{HeapBlock, PinnedValue};
pub use files::OpenFiles;
pub(crate) use files::TableFile;
pub use filter::{FilterLoadError, read_filter};
pub use footer::Footer;
pub use frame::Damage;
pub use index::BlockAt;
pub(crate) use index::Index;
pub use key_list::{GLOBAL, KEY_LIST, KeyListBuilder, KeyListCursor, KeyListReader};
pub use origin::{Merged, Origin};
pub use overlap::{Coming, Fetch, MOST_BYTES, announce_coming, fetch, read_coming};
pub use prefetch::prefetch;
pub(crate) use reader::{MappedFile, OpenedFile, copy_from};
pub use reader::{ReaderConfig, Table};
pub use trace::{BlockSource, BlockTouch, ReadTrace, TouchCounts};
#[cfg(test)]
pub(crate) use units::LoadedUnit;
pub use units::{
    ELASTIC, ElasticBuilder, ElasticFilter, FilterBuildError, FoundUnits, Retired, UnitDirectory, pin, retire,
};
