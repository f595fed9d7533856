//! A machine's costs as a file: measured once, used again, there or elsewhere. One JSON object.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tamis_advisor::{Calibration, Data, Machine};

use crate::failure::Failure;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Costs {
    /// The lengths of the entries that they are for.
    key_bytes: usize,
    value_bytes: usize,
    machine: Machine,
}

/// Reads the costs of a machine, which must be those for entries as `data` has them.
pub(super) fn read(file: &Path, data: &Data) -> Result<Calibration, Failure> {
    let text = fs::read_to_string(file).map_err(|error| wrong(file, &error))?;
    let object: Value = serde_json::from_str(&text).map_err(|error| wrong(file, &error))?;
    if has_negative(&object) {
        return Err(wrong(file, &"a cost is negative"));
    }
    let Costs { key_bytes, value_bytes, machine } =
        serde_json::from_value(object).map_err(|error| wrong(file, &error))?;
    if (key_bytes, value_bytes) != lengths(data) {
        let problem =
            format!("the costs are those for keys of {key_bytes} bytes with values of {value_bytes}");
        return Err(wrong(file, &problem));
    }
    Ok(Calibration::of(machine, key_bytes, value_bytes))
}

/// Writes the costs that were measured for `data`.
pub(super) fn write(file: &Path, calibration: &Calibration, data: &Data) -> Result<(), Failure> {
    let (key_bytes, value_bytes) = lengths(data);
    let costs = Costs { key_bytes, value_bytes, machine: calibration.machine.clone() };
    let mut text = serde_json::to_string_pretty(&costs).map_err(|error| wrong(file, &error))?;
    text.push('\n');
    fs::write(file, text).map_err(|error| wrong(file, &error))
}

/// Returns the lengths of keys and of values, which are averages.
pub(super) fn lengths(data: &Data) -> (usize, usize) {
    (data.key_bytes.round() as usize, data.value_bytes.round() as usize)
}

fn has_negative(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number < 0.0),
        Value::Array(values) => values.iter().any(has_negative),
        Value::Object(values) => values.values().any(has_negative),
        _ => false,
    }
}

fn wrong(file: &Path, problem: &dyn std::fmt::Display) -> Failure {
    Failure::Usage(format!("{}: {problem}", file.display()))
}
