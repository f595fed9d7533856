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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).expect("JSON")
    }

    /// The public fields of a struct, from the list of the public surface.
    fn fields(of: &str) -> Vec<&'static str> {
        let surface = include_str!("../../../crates/tamis-surface/golden/tamis.txt");
        let prefix = format!("tamis::{of}.");
        let fields = surface.lines().filter_map(|line| line.strip_prefix(&prefix));
        let fields: Vec<&str> = fields.filter_map(|field| field.split(':').next()).collect();
        assert!(!fields.is_empty(), "{of} is not in the list");
        fields
    }

    #[test]
    fn objects_have_the_names_of_the_structs() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(dir.path()).expect("it opens");
        db.put(b"k\xff\\", "v").expect("a write");
        db.flush().expect("a flush");
        let keyspace = db.default_keyspace();
        let stats = parsed(&stats(&db));
        let tables = parsed(&tables(keyspace));
        let explained = parsed(&explain(keyspace, b"k\xff\\").expect("a read"));
        let verified = parsed(&verify(&db).expect("a report"));
        let keyspace = parsed(&keyspace_stats(keyspace));
        for (object, of) in [
            (&stats, "stats::Stats"),
            (&stats["read"], "stats::ReadCost"),
            (&stats["write"], "stats::WriteCost"),
            (&keyspace, "stats::KeyspaceStats"),
            (&keyspace["levels"][0], "stats::LevelStats"),
            (&keyspace["levels"][0]["runs"][0], "stats::RunStats"),
            (&tables[0], "stats::TableStats"),
            (&explained, "explain::Explanation"),
            (&verified, "maintenance::VerifyReport"),
        ] {
            let named: Vec<&String> = object.as_object().expect(of).keys().collect();
            let mut expected = fields(of);
            expected.sort_unstable();
            let mut named: Vec<&str> = named.into_iter().map(String::as_str).collect();
            named.sort_unstable();
            assert_eq!(named, expected, "{of}");
        }
        assert_eq!(stats["keyspaces"][0], keyspace);
        assert_eq!(tables[0]["smallest"], "k\\xff\\\\");
        assert_eq!(tables[0]["largest"], serde_json::json!(["k\\xff\\\\", true]));
        assert_eq!(explained["outcome"]["kind"], "found");
        assert_eq!(explained["outcome"]["value_bytes"], 1);
        let steps = explained["steps"].as_array().expect("steps");
        assert!(steps.iter().any(|step| step["kind"] == "run" && step["found"] == true), "{steps:?}");
        assert_eq!(text(&f64::NAN), "null");
    }
}
