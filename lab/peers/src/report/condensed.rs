//! The form of rows that is kept in the repository: one line for each system under each set of conditions, with a list of values for each
//! figure. A tenth of the size of the rows as they were measured, which the same functions read.
//!
//! Numbers keep four digits, figures that are 0 in all rounds are left out, and so are the puts of each second except where a suite is judged by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::record::{Conditions, Figures, Row};

/// Rows of one system under some conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Condensed {
    conditions: Conditions,
    system: String,
    version: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
    #[serde(default)]
    durability: String,
    /// The round of each value.
    rounds: Vec<u32>,
    /// The reasons for refusals, of rounds without figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    refused: Vec<(u32, String)>,
    /// By name, those within `inside` with that before a dot. As many values as rounds.
    figures: BTreeMap<String, Vec<Value>>,
}

/// The figures within figures.
const INSIDE: &str = "inside";

/// The puts of each second, and the suite judged by them.
const SECONDS: (&str, &str) = ("puts_by_second", "steady");

/// Digits kept of a number.
const DIGITS: i32 = 4;

/// The maximum number of rounds of a line that is read.
const MOST_ROUNDS: usize = 10_000;

/// Condenses rows, in the order of their first appearance. Of two rows of the same system, conditions and round the later one counts.
pub(super) fn condense(rows: &[Row]) -> Vec<Condensed> {
    let mut places: BTreeMap<(&Conditions, &str), usize> = BTreeMap::new();
    let mut groups: Vec<BTreeMap<u32, &Row>> = Vec::new();
    for row in rows {
        let place = *places.entry((&row.conditions, &row.system)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(BTreeMap::new());
        }
        groups[place].insert(row.round, row);
    }
    groups.iter().filter_map(of_rounds).collect()
}

fn of_rounds(rounds: &BTreeMap<u32, &Row>) -> Option<Condensed> {
    let first = rounds.values().next()?;
    let keeps_seconds = first.conditions.suite == SECONDS.1;
    let mut figures: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (at, row) in rounds.values().enumerate() {
        for (name, value) in flattened(&row.figures) {
            if name == SECONDS.0 && !keeps_seconds {
                continue;
            }
            let values = figures.entry(name).or_default();
            values.resize(at, Value::Null);
            values.push(rounded(value));
        }
    }
    figures.retain(|_, values| values.iter().any(|value| !is_nothing(value)));
    figures.values_mut().for_each(|values| values.resize(rounds.len(), Value::Null));
    Some(Condensed {
        conditions: first.conditions.clone(),
        system: first.system.clone(),
        version: first.version.clone(),
        options: first.options.clone(),
        durability: first.durability.clone(),
        rounds: rounds.keys().copied().collect(),
        refused: rounds.iter().filter_map(|(round, row)| Some((*round, row.refused.clone()?))).collect(),
        figures,
    })
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn flattened(figures: &Figures) -> Vec<(String, Value)> {
    let Ok(Value::Object(all)) = serde_json::to_value(figures) else { return Vec::new() };
    let mut flat = Vec::new();
    for (name, value) in all {
        match value {
            Value::Object(inner) if name == INSIDE => {
                flat.extend(inner.into_iter().map(|(inner, value)| (format!("{INSIDE}.{inner}"), value)));
            }
            value => flat.push((name, value)),
        }
    }
    flat
}

fn rounded(value: Value) -> Value {
    let Value::Number(number) = &value else { return value };
    let (whole, float) = (number.as_u64(), number.as_f64().unwrap_or(0.0));
    if float == 0.0 {
        return value;
    }
    let step = 10f64.powi(float.abs().log10().floor() as i32 + 1 - DIGITS);
    match whole {
        Some(_) if step <= 1.0 => value,
        Some(_) => Value::from(((float / step).round() * step).round() as u64),
        // A power below 1 is not exact, but its inverse is.
        None if step < 1.0 => {
            let inverse = (1.0 / step).round();
            Number::from_f64((float * inverse).round() / inverse).map_or(value, Value::Number)
        }
        None => Number::from_f64((float / step).round() * step).map_or(value, Value::Number),
    }
}

impl Condensed {
    /// Returns the rows.
    ///
    /// # Errors
    ///
    /// The lists of figures do not have as many values as there are rounds, or do not fit their figures.
    pub(super) fn rows(&self) -> Result<Vec<Row>, String> {
        if self.rounds.len() > MOST_ROUNDS {
            return Err(format!("{} rounds are too many", self.rounds.len()));
        }
        if let Some((name, values)) =
            self.figures.iter().find(|(_, values)| values.len() != self.rounds.len())
        {
            return Err(format!("{name} has {} values for {} rounds", values.len(), self.rounds.len()));
        }
        let row = |(at, round): (usize, &u32)| {
            let mut all = Map::new();
            for (name, values) in self.figures.iter().filter(|(_, values)| !values[at].is_null()) {
                match name.strip_prefix(INSIDE).and_then(|rest| rest.strip_prefix('.')) {
                    Some(inner) => {
                        let inside = all.entry(INSIDE).or_insert_with(|| Value::Object(Map::new()));
                        if let Value::Object(inside) = inside {
                            inside.insert(inner.to_owned(), values[at].clone());
                        }
                    }
                    None => _ = all.insert(name.clone(), values[at].clone()),
                }
            }
            Ok(Row {
                conditions: self.conditions.clone(),
                system: self.system.clone(),
                version: self.version.clone(),
                options: self.options.clone(),
                round: *round,
                refused: self.refused.iter().find(|(other, _)| other == round).map(|(_, why)| why.clone()),
                durability: self.durability.clone(),
                figures: serde_json::from_value(Value::Object(all)).map_err(|error| error.to_string())?,
            })
        };
        self.rounds.iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::Summary;
    use crate::report::synthetic::{comparison, context, refused};
    use crate::report::{markdown, tables};

    fn there_and_back(rows: &[Row]) -> Vec<Row> {
        let lines: Vec<String> =
            condense(rows).iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        let read = |line: &String| serde_json::from_str::<Condensed>(line).unwrap().rows().unwrap();
        lines.iter().flat_map(read).collect()
    }

    #[test]
    fn a_report_of_condensed_rows_is_the_same() {
        let mut rows = comparison();
        rows[3].figures.instructions_per_op = 612.0;
        rows[3].round = 5;
        // Digits are lost once, and then nothing else. The order of the rows is another one.
        let (once, twice) = (there_and_back(&rows), there_and_back(&there_and_back(&rows)));
        let report = |rows: &[Row]| markdown::report(&Summary::of(rows), &context());
        assert!(report(&once) == report(&twice));
        assert_eq!(once.len(), rows.len());
        for row in &rows {
            let same = |kept: &&Row| {
                (&kept.conditions, &kept.system, kept.round) == (&row.conditions, &row.system, row.round)
            };
            let kept = once.iter().find(same).unwrap();
            assert!((kept.figures.ns_per_op - row.figures.ns_per_op).abs() <= 6e-4 * row.figures.ns_per_op);
            assert_eq!((&kept.options, &kept.refused), (&row.options, &row.refused));
            assert_eq!(kept.figures.instructions_per_op, row.figures.instructions_per_op);
        }
        let size =
            |rows: &[Row]| rows.iter().map(|row| serde_json::to_string(row).unwrap().len()).sum::<usize>();
        let condensed: usize =
            condense(&rows).iter().map(|line| serde_json::to_string(line).unwrap().len()).sum();
        assert!(condensed * 3 < size(&rows), "{condensed} of {}", size(&rows));
    }

    #[test]
    fn seconds_are_kept_where_they_count() {
        let mut rows = vec![crate::report::synthetic::row("steady", "overwrite", "tamis", 0, 100.0)];
        rows[0].figures.puts_by_second = vec![5, 9, 6, 1];
        assert_eq!(there_and_back(&rows)[0].figures.puts_by_second, [5, 9, 6, 1]);
        rows[0].conditions.suite = "load".to_owned();
        assert!(there_and_back(&rows)[0].figures.puts_by_second.is_empty());
    }

    #[test]
    fn refusals_stay_and_numbers_keep_four_digits() {
        let rows = [refused("runs", "seek", "leveldb", "cannot")];
        assert_eq!(there_and_back(&rows)[0].refused.as_deref(), Some("cannot"));
        assert!(
            tables::main(&Summary::of(&there_and_back(&rows)).suites[0], false).rows[0].cells[1]
                .contains("refused")
        );
        for (number, kept) in [
            (Value::from(123_456_u64), Value::from(123_500_u64)),
            (Value::from(1234_u64), Value::from(1234_u64)),
            (Value::from(1234.56), Value::from(1235.0)),
            (Value::from(0.012_345_6), Value::from(0.012_35)),
            (Value::from(0), Value::from(0)),
        ] {
            assert_eq!(rounded(number), kept);
        }
    }

    #[test]
    fn lists_of_other_lengths_are_refused() {
        let line = condense(&comparison())[0].clone();
        let mut short = line.clone();
        short.figures.values_mut().next().unwrap().pop();
        assert!(short.rows().unwrap_err().contains("values for"));
        let mut odd = line;
        odd.figures.insert("ops".to_owned(), vec![Value::from("many"); 5]);
        assert!(odd.rows().is_err());
    }
}
