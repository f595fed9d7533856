//! Conversion between records and rows.
//!
//! Rows may come from a file of another version, or may have been edited. So reading is lenient: missing fields get the
//! record's defaults, unknown ones are dropped, and unreadable rows are skipped.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Row;

/// Converts a record to a row. The record must be a struct or a map; numbers that JSON cannot represent become `null`.
pub fn row(record: &impl Serialize) -> Row {
    match serde_json::to_value(record) {
        Ok(Value::Object(row)) => row,
        other => unreachable!("a record is an object: {other:?}"),
    }
}

/// Returns the records of all readable rows of this kind, in order.
pub fn records<T: DeserializeOwned>(rows: &[Row], kind: &str) -> Vec<T> {
    let read = |row: &Row| {
        let told = row.iter().filter(|(_, value)| !value.is_null());
        let told = told.map(|(name, value)| (name.clone(), value.clone())).collect();
        serde_json::from_value(Value::Object(told)).ok()
    };
    rows.iter().filter(|row| row.get("kind").and_then(Value::as_str) == Some(kind)).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct Record {
        kind: String,
        ns: f64,
        times: Option<u64>,
    }

    #[test]
    fn broken_rows_are_skipped_and_missing_values_are_defaults() {
        let record = |ns, times| Record { kind: "a".into(), ns, times };
        let mut rows = vec![row(&record(1.5, Some(2))), row(&record(f64::NAN, None))];
        for text in [
            r#"{"kind": "b", "ns": 1}"#,
            r#"{"kind": "a", "ns": "many"}"#,
            r#"{"kind": 7, "ns": 1}"#,
            r#"{"ns": 1}"#,
            r#"{"kind": "a", "times": -1}"#,
            r#"{"kind": "a", "other": [1, 2]}"#,
        ] {
            rows.push(serde_json::from_str(text).unwrap());
        }
        assert_eq!(
            records::<Record>(&rows, "a"),
            [record(1.5, Some(2)), record(0.0, None), record(0.0, None)]
        );
    }
}
