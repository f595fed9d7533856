//! The file of rows: appended to during a comparison, and continued by the next one.
//!
//! Only ratios within a run count. So a resumed run keeps complete suites only: rows of an interrupted one are
//! discarded and measured again.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::conduct::STOPPED;
use crate::engines::system::System;
use crate::failure::Failure;
use crate::record::Row;
use crate::report;
use crate::suites::{Plan, Suite};

/// Its name in the directory of results.
pub(crate) const FILE: &str = "rows.jsonl";

/// Appends rows to the file, each immediately.
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
}

impl Writer {
    /// Opens the file for new rows, and returns the suites that are already complete: none, unless a run is resumed.
    ///
    /// # Errors
    ///
    /// The file has rows and the run is not resumed; it is damaged; it cannot be read or written.
    pub(crate) fn open(
        path: &Path,
        resume: bool,
        plans: &[Plan],
        systems: &[System],
    ) -> Result<(Writer, BTreeSet<Suite>), Failure> {
        let failed = |error: std::io::Error| Failure::file("write", path, &error);
        let mut there = BTreeSet::new();
        match fs::metadata(path) {
            Ok(metadata) if metadata.len() > 0 && !resume => {
                return Err(Failure::Usage(format!(
                    "{} already has rows: pass --resume to continue, or another directory with --out",
                    path.display()
                )));
            }
            Ok(metadata) if metadata.len() > 0 => there = keep_whole_suites(path, plans, systems)?,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::file("read", path, &error)),
        }
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
        Ok((Writer { file, path: path.to_owned() }, there))
    }

    /// Appends a row.
    pub(crate) fn append(&mut self, row: &Row) -> Result<(), Failure> {
        let line = line_of(row)?;
        self.file.write_all(line.as_bytes()).map_err(|error| Failure::file("write", &self.path, &error))
    }
}

fn line_of(row: &Row) -> Result<String, Failure> {
    let line = serde_json::to_string(row)
        .map_err(|error| Failure::System(format!("a row cannot be serialised: {error}")))?;
    Ok(line + "\n")
}

/// Keeps the rows of suites that are not measured now, and of complete ones, which are returned.
fn keep_whole_suites(path: &Path, plans: &[Plan], systems: &[System]) -> Result<BTreeSet<Suite>, Failure> {
    let rows = load_interrupted(path)?;
    let asked: BTreeSet<Suite> = plans.iter().map(|plan| plan.suite).collect();
    let whole: BTreeSet<Suite> = asked
        .iter()
        .copied()
        .filter(|&suite| {
            plans.iter().filter(|plan| plan.suite == suite).all(|plan| is_whole(plan, systems, &rows))
        })
        .collect();
    let kept = |row: &&Row| {
        let of = |suite: &Suite| suite.name() == row.conditions.suite;
        whole.iter().any(of) || !asked.iter().any(of)
    };
    let lines = rows.iter().filter(kept).map(line_of).collect::<Result<Vec<_>, _>>()?;
    // The new file is written beside the old one, so that an interruption loses nothing.
    let beside = path.with_extension("jsonl.new");
    fs::write(&beside, lines.concat())
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| Failure::file("write", path, &error))?;
    Ok(whole)
}

/// Returns the rows of a file whose last line may be truncated.
fn load_interrupted(path: &Path) -> Result<Vec<Row>, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    if end < bytes.len() {
        let file = OpenOptions::new().write(true).open(path);
        file.and_then(|file| file.set_len(end as u64))
            .map_err(|error| Failure::file("write", path, &error))?;
    }
    report::load(path).map_err(|error| Failure::Usage(error.to_string()))
}

fn is_whole(plan: &Plan, systems: &[System], rows: &[Row]) -> bool {
    plan.steps.iter().all(|step| {
        let conditions = plan.conditions(step);
        systems.iter().all(|system| {
            let is_its = |row: &&Row| row.conditions == conditions && row.system == system.name();
            let its: Vec<&Row> = rows.iter().filter(is_its).collect();
            let refused = |row: &&Row| row.refused.as_ref().is_some_and(|why| !why.starts_with(STOPPED));
            let measured = |round| its.iter().any(|row| row.round == round && row.refused.is_none());
            its.iter().any(refused) || (0..plan.rounds).all(measured)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::load;
    use crate::suites::tests::sizes;

    fn plans() -> Vec<Plan> {
        let sizes = crate::suites::Sizes { rounds: 2, threads: vec![1], ..sizes() };
        [Suite::Cold, Suite::Sync].iter().flat_map(|suite| suite.plans(&sizes).unwrap()).collect()
    }

    fn row(plan: &Plan, step: usize, system: &System, round: u32) -> Row {
        Row {
            conditions: plan.conditions(&plan.steps[step]),
            system: system.name().to_owned(),
            version: "1".into(),
            options: Default::default(),
            round,
            refused: None,
            durability: String::new(),
            figures: Default::default(),
        }
    }

    /// Returns all rows of both suites and two systems.
    fn all(plans: &[Plan], systems: &[System]) -> Vec<Row> {
        let mut rows = Vec::new();
        for plan in plans {
            for step in 0..plan.steps.len() {
                rows.extend(
                    (0..plan.rounds).flat_map(|r| systems.iter().map(move |s| row(plan, step, s, r))),
                );
            }
        }
        rows
    }

    fn write(path: &Path, rows: &[Row]) {
        let lines: Vec<String> = rows.iter().map(|row| line_of(row).unwrap()).collect();
        fs::write(path, lines.concat()).unwrap();
    }

    #[test]
    fn a_resumed_run_keeps_complete_suites_and_foreign_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (plans, systems) = (plans(), System::parse_list("tamis,tamis-grf").unwrap());
        let mut rows = all(&plans, &systems);
        let foreign = Row { conditions: crate::record::Conditions::default(), ..rows[0].clone() };
        rows.push(foreign.clone());
        write(&path, &rows);
        let refused = Writer::open(&path, false, &plans, &systems).err().unwrap();
        assert!(matches!(&refused, Failure::Usage(text) if text.contains("--resume")), "{refused:?}");
        let whole = |path: &Path| Writer::open(path, true, &plans, &systems).unwrap().1;
        assert_eq!(whole(&path), BTreeSet::from([Suite::Cold, Suite::Sync]));
        assert_eq!(load(&path).unwrap(), rows);
        // Without one of its rows all rows of `sync` are dropped; those of `cold` and the foreign one stay.
        let missing = rows.iter().position(|row| row.conditions.suite == "sync").unwrap();
        rows.remove(missing);
        write(&path, &rows);
        assert_eq!(whole(&path), BTreeSet::from([Suite::Cold]));
        let left = load(&path).unwrap();
        assert!(left.iter().all(|row| row.conditions.suite != "sync") && left.contains(&foreign));
        assert_eq!(left.len(), plans[0].steps.len() * 2 * 2 + 1);
    }

    #[test]
    fn refusals_are_rows_and_stops_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (plans, systems) = (plans(), System::parse_list("tamis").unwrap());
        for (why, expected) in [("it has no such option", 2), ("stopped: died", 1)] {
            let mut rows = all(&plans, &systems);
            rows.retain(|row| row.conditions.suite == "cold" || row.round == 0);
            for row in rows.iter_mut().filter(|row| row.conditions.suite == "sync") {
                row.refused = Some(why.to_owned());
            }
            write(&path, &rows);
            assert_eq!(Writer::open(&path, true, &plans, &systems).unwrap().1.len(), expected, "{why}");
        }
    }

    #[test]
    fn a_truncated_line_is_dropped_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (plans, systems) = (plans(), System::parse_list("tamis").unwrap());
        let rows = all(&plans, &systems);
        write(&path, &rows);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        assert_eq!(Writer::open(&path, true, &plans, &systems).unwrap().1, BTreeSet::from([Suite::Cold]));
        fs::write(&path, "{}\n").unwrap();
        let damaged = Writer::open(&path, true, &plans, &systems).err().unwrap().to_string();
        assert!(damaged.contains(FILE) && damaged.contains("line 1"), "{damaged}");
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (plans, systems) = (plans(), System::parse_list("tamis").unwrap());
        let (mut writer, there) = Writer::open(&path, false, &plans, &systems).unwrap();
        assert!(there.is_empty());
        let rows = all(&plans, &systems);
        rows.iter().for_each(|row| writer.append(row).unwrap());
        assert_eq!(load(&path).unwrap(), rows);
    }
}
