//! Trees in use: their open tables and blob files, and versions made of them.

pub(crate) mod accesses;
pub(crate) mod blobs;
pub(crate) mod garbage;
pub(crate) mod new_tables;
pub(crate) mod open_table;
pub(crate) mod pinned_filter;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod version;
