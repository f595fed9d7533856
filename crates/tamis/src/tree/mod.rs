//! The on-disk shape of the tree: table records, versions, and the manifest that records them.

pub(crate) mod accesses;
pub(crate) mod blobs;
pub(crate) mod edit;
pub(crate) mod files;
pub(crate) mod identify;
pub(crate) mod manifest;
pub(crate) mod open_table;
pub(crate) mod pinned_filter;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod times;
pub(crate) mod tombstones;
pub(crate) mod version;
