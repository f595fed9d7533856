//! The shape of trees on disk: names of files, range tombstones, version edits, and the manifest
//! that records them.

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
