//! The circumstances of rows: machine, command, commit, date. Stored as `machine.json` beside the rows, so that a report made
//! later, or elsewhere, describes the machine that measured instead of the one that writes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tamis_lab::machine::{COMMIT, Machine, now};

use super::ReportError;

/// The file's name.
const FILE: &str = "machine.json";

/// The circumstances of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The command lines that measured them. Several if a run was resumed with other arguments.
    pub commands: Vec<String>,
    /// The commits of the programs that did. Empty if that was not recorded.
    #[serde(default)]
    pub commits: Vec<String>,
    /// The date of the first of them in UTC: `2026-11-21`.
    pub date: String,
    /// The machine.
    pub machine: Machine,
}

impl Context {
    /// Records beside the rows in `dir` that `command` measures on this machine, now, with databases below `place`.
    /// Earlier records are kept: the date is that of the first command, and commands and commits are listed once. Must be called
    /// before the first row is appended, by one process at a time.
    ///
    /// # Errors
    ///
    /// The rows there are from another machine; the file is damaged; it cannot be read or written.
    pub fn note(dir: &Path, command: &str, place: &Path) -> Result<Context, ReportError> {
        let now = now();
        let day = now.split_once('T').map_or(&*now, |(day, _)| day);
        Context::note_at(dir, command, COMMIT, Machine::read(Some(place)), day)
    }

    fn note_at(
        dir: &Path,
        command: &str,
        commit: &str,
        here: Machine,
        date: &str,
    ) -> Result<Context, ReportError> {
        let path = dir.join(FILE);
        let mut context = match Context::load(dir) {
            Ok(context) if !context.machine.is_same(&here) => {
                let (there, here) = (context.machine.describe(), here.describe());
                return Err(ReportError::OtherMachine { path, there, here });
            }
            Ok(context) => context,
            Err(ReportError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Context { commands: Vec::new(), commits: Vec::new(), date: date.to_owned(), machine: here }
            }
            Err(error) => return Err(error),
        };
        let known = context.clone();
        for (list, this) in [(&mut context.commands, command), (&mut context.commits, commit)] {
            if !list.iter().any(|known| known == this) {
                list.push(this.to_owned());
            }
        }
        if context != known {
            context.save(dir)?;
        }
        Ok(context)
    }

    /// Records the circumstances in `dir`.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), ReportError> {
        let path = dir.join(FILE);
        let json = serde_json::to_string_pretty(self).expect("strings and numbers have a form in JSON");
        // Written beside it first: an interruption leaves the old file or the new one.
        let fresh = path.with_extension("json.new");
        let written = fs::write(&fresh, json + "\n").and_then(|()| fs::rename(&fresh, &path));
        written.map_err(|source| ReportError::io(&path, source))
    }

    /// Returns the circumstances recorded beside the rows in `dir`.
    ///
    /// # Errors
    ///
    /// The file is missing, unreadable, or damaged.
    pub fn load(dir: &Path) -> Result<Context, ReportError> {
        let path = dir.join(FILE);
        let json = fs::read(&path).map_err(|source| ReportError::io(&path, source))?;
        serde_json::from_slice(&json)
            .map_err(|error| ReportError::Context { path, reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::context;
    use super::*;

    #[test]
    fn commands_are_noted_once_and_rows_of_two_machines_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Context::load(dir.path()), Err(ReportError::Io { .. })));
        let machine = context().machine;
        let note = |command: &str, machine: Machine, date: &str| {
            Context::note_at(dir.path(), command, &date[8..], machine, date)
        };
        note("run a", machine.clone(), "2026-11-21").unwrap();
        note("run b", Machine { memory_bytes: 1, ..machine.clone() }, "2026-11-22").unwrap();
        note("run a", machine.clone(), "2026-11-23").unwrap();
        note("run a", machine.clone(), "2026-12-22").unwrap();
        let there = Context::load(dir.path()).unwrap();
        assert_eq!(there.commands, ["run a", "run b"]);
        assert_eq!(there.commits, ["21", "22", "23"]);
        assert_eq!((there.date.as_str(), &there.machine), ("2026-11-21", &machine));

        let other = note("run a", Machine { cores: 64, ..machine }, "2026-11-24").unwrap_err().to_string();
        assert!(other.contains("64 cores") && other.contains("2 cores"), "{other}");
        fs::write(dir.path().join(FILE), "{").unwrap();
        let damaged = Context::load(dir.path()).unwrap_err().to_string();
        assert!(damaged.contains(FILE), "{damaged}");
    }

    #[test]
    fn this_machine_can_be_noted() {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::note(dir.path(), "run", dir.path()).unwrap();
        assert_eq!(Context::load(dir.path()).unwrap(), context);
    }
}
