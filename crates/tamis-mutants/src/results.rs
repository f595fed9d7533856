//! Results of runs: JSON lines, which a run appends to.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::site::Mutant;

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Killed,
    Alive,
    /// Alive, as no test reaches it.
    NotReached,
    /// Alive: tests reach it, and in none of them it makes a difference.
    NoDifference,
}

/// A result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub mutant: Mutant,
    pub outcome: Outcome,
    /// How it failed: `failure`, `crash`, `hang` or `space`.
    #[serde(default)]
    pub kind: String,
    /// The program and test that found it.
    #[serde(default)]
    pub by: String,
    pub seconds: f64,
    /// How many tests ran, of how many that could find it.
    pub ran: usize,
    pub of: usize,
}

/// The files of results in a directory, in the order of the passes that write them.
pub const FILES: [&str; 3] = ["tests.jsonl", "rest.jsonl", "simulation.jsonl"];

/// Reads JSON lines; a last line that was cut off is left out, a missing file is empty.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    // What follows is written after it, so it must begin on a line of its own.
    if !text.is_empty() && !text.ends_with('\n') {
        fs::write(path, if whole.is_empty() { String::new() } else { format!("{whole}\n") })?;
    }
    whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Reads the results of a pass, by the names of the mutants.
pub fn read(directory: &Path, file: &str) -> io::Result<HashMap<String, Record>> {
    let records: Vec<Record> = read_lines(&directory.join(file))?;
    Ok(records.into_iter().map(|record| (record.mutant.id.clone(), record)).collect())
}
