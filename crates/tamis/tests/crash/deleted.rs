//! Deleted files.
