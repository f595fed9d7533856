//! The scripts in `testdata` about edits, epochs and range tombstones.

mod drawing;
mod edits;
mod epochs;
mod tombstones;
