//! Rows as types: written by measurements, and read again by views.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::figures::Row;

/// Converts a value to a row of this kind. Its fields must be plain.
pub(crate) fn row<T: Serialize>(kind: &str, value: &T) -> Row {
    let mut row = Row::new();
    row.insert("kind".into(), kind.into());
    if let Ok(Value::Object(fields)) = serde_json::to_value(value) {
        row.extend(fields);
    }
    row
}

/// Returns the rows of a kind that have all its fields, in order. Others are skipped, since a view accepts any rows.
pub(crate) fn of_kind<T: DeserializeOwned>(rows: &[Row], kind: &str) -> Vec<T> {
    let of_kind = rows.iter().filter(|row| row.get("kind").and_then(Value::as_str) == Some(kind));
    of_kind.filter_map(|row| serde_json::from_value(Value::Object(row.clone())).ok()).collect()
}

/// Formats a rate.
pub(crate) fn percent(rate: f64) -> String {
    match rate * 100.0 {
        percent if percent >= 10.0 => format!("{percent:.1} %"),
        percent if percent >= 0.1 => format!("{percent:.3} %"),
        percent => format!("{percent:.5} %"),
    }
}

/// Formats a time in nanoseconds with a fitting unit.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns if ns >= 1e4 => format!("{:.1} µs", ns / 1e3),
        ns if ns >= 1e3 => format!("{:.2} µs", ns / 1e3),
        ns if ns >= 100.0 => format!("{ns:.0} ns"),
        ns => format!("{ns:.1} ns"),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Measured {
        name: String,
        ns: f64,
    }

    #[test]
    fn rows_are_read_again_and_foreign_ones_skipped() {
        let one = Measured { name: "x".into(), ns: 0.1 };
        let whole = row("time", &one);
        let mut without = whole.clone();
        without.remove("ns");
        let mut other = whole.clone();
        other.insert("kind".into(), "rate".into());
        let unmeasured = row("time", &Measured { name: "y".into(), ns: f64::NAN });
        let rows = [Row::new(), without, whole, other, unmeasured];
        assert_eq!(of_kind::<Measured>(&rows, "time"), [one]);
    }

    #[test]
    fn numbers_have_a_fitting_unit() {
        assert_eq!([0.00819, 0.25, 0.0000123].map(percent), ["0.819 %", "25.0 %", "0.00123 %"]);
        let times = [4.6e6, 113e3, 2850.0, 235.0, 4.25].map(time);
        assert_eq!(times, ["4.60 ms", "113.0 µs", "2.85 µs", "235 ns", "4.2 ns"]);
    }
}
