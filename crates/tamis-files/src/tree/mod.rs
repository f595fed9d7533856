//! The on-disk shape of the trees: file names, range tombstones, version edits, and the manifest
//! that records the edits.

pub mod edit;
pub mod files;
pub mod found;
pub mod identify;
pub mod manifest;
pub mod place;
pub mod replay;
pub mod state;
#[cfg(test)]
mod tests;
pub mod times;
pub mod tombstones;
