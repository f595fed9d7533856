//! Statistics, explanations and reports as JSON.
//!
//! Objects have the names and units of the Rust structs (see [`tamis::stats`], also for keys and enums); sequence numbers and digests
//! use all 64 bits. A number that is not finite is `null`.

use serde::Serialize;
use tamis::{Db, Keyspace};

use crate::Failure;

/// Returns `value` as JSON on one line.
pub fn text(value: &impl Serialize) -> String {
    // Strings, numbers and lists with keys that are names: none of them can fail.
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()))
}

/// Returns the database's [`Stats`](tamis::stats::Stats).
pub fn stats(db: &Db) -> String {
    text(&db.stats())
}

/// Returns the keyspace's [`KeyspaceStats`](tamis::stats::KeyspaceStats).
pub fn keyspace_stats(keyspace: &Keyspace) -> String {
    text(&keyspace.stats())
}

/// Returns the keyspace's tables, a list of [`TableStats`](tamis::stats::TableStats).
pub fn tables(keyspace: &Keyspace) -> String {
    text(&keyspace.tables())
}

/// Returns the segments of elastic filters, a list of [`SegmentStats`](tamis::stats::SegmentStats).
pub fn segments(db: &Db) -> String {
    text(&db.segments())
}

/// Executes one get and returns its [`Explanation`](tamis::explain::Explanation).
///
/// # Errors
///
/// Those of a get.
pub fn explain(keyspace: &Keyspace, key: &[u8]) -> Result<String, Failure> {
    Ok(text(&keyspace.explain_get(key)?))
}

/// Verifies the database and returns the [`VerifyReport`](tamis::maintenance::VerifyReport).
///
/// # Errors
///
/// A system call that failed. Damage is part of the report.
pub fn verify(db: &Db) -> Result<String, Failure> {
    Ok(text(&db.verify()?))
}
