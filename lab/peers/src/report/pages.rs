//! Tables in the project's documents, made from rows that are in the repository.
//!
//! A document has a line `<!-- rows: lab/results/NAME KIND -->`, then the table, then `<!-- end of rows -->`. KIND is one of
//!
//! * `front`: the first table of the README, a column for each engine;
//! * `times SUITE`: the suite's main table and what belongs below it;
//! * `latencies SUITE`, `costs SUITE`: its other tables;
//! * `run`: the day, the machine and the commands.
//!
//! A test compares all of them with their rows, and refuses tables in the README with another engine's name that are not made from rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::context::Context;
use super::figure::Figure;
use super::markdown::{self, escaped};
use super::summary::{Group, Summary};
use super::tables::{self, Grid, GridRow};
use super::text::{self, Labels};
use super::{ReportError, load};
use crate::rows::FILE;

const BEGIN: &str = "<!-- rows: ";
const END: &str = "<!-- end of rows -->";

/// Directories with documents, below that of the project.
const DIRECTORIES: [&str; 5] = [".", "docs", "lab", "lab/peers", "lab/results"];

/// Directory of rows.
const RESULTS: &str = "lab/results";

/// The rows of the front table: a name, a suite and a workload.
const FRONT: [(&str, &str, &str); 10] = [
    ("get of an absent key", "compacted", "get-empty"),
    ("get of a present key", "compacted", "get-existing"),
    ("multi-get of present keys, per key", "compacted", "multi-get-existing"),
    ("seek", "compacted", "seek"),
    ("seek and 50 steps", "compacted", "seek-next50"),
    ("get of an absent key, compaction held back", "runs", "get-empty"),
    ("get of a present key, nothing in memory", "cold", "get-existing"),
    ("load in random order", "load", "fill-random"),
    ("load in key order", "load", "fill-seq"),
    ("overwrite of 16 KiB", "large", "overwrite"),
];

/// Size of the values of the front table's rows of large values.
const LARGE: u64 = 16 << 10;

/// Names of engines in the front table.
const NAMES: [(&str, &str); 6] = [
    ("rocksdb", "RocksDB"),
    ("rocksdb-native", "RocksDB, native, mapped"),
    ("leveldb", "LevelDB"),
    ("fjall", "fjall"),
    ("lmdb", "LMDB"),
    ("redb", "redb"),
];

/// The reason why a document cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Rows or documents cannot be read or written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A line that asks for something unknown.
    #[error("{}: line {line}: {reason}", path.display())]
    Line {
        /// The document.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Writes the tables of all documents below `root` again, and returns those that have changed.
///
/// # Errors
///
/// A document asks for an unknown table, or rows are missing or damaged. No document is written then.
pub fn refresh(root: &Path) -> Result<Vec<PathBuf>, PageError> {
    let changed = outdated(root)?;
    for (path, text) in &changed {
        fs::write(path, text).map_err(|source| ReportError::io(path, source))?;
    }
    Ok(changed.into_iter().map(|(path, _)| path).collect())
}

/// Returns the documents that differ from their rows, with what they should contain.
pub fn outdated(root: &Path) -> Result<Vec<(PathBuf, String)>, PageError> {
    let mut known = BTreeMap::new();
    let mut changed = Vec::new();
    for path in documents(root)? {
        let text = fs::read_to_string(&path).map_err(|source| ReportError::io(&path, source))?;
        let fresh = renewed(root, &path, &text, &mut known)?;
        if fresh != text {
            changed.push((path, fresh));
        }
    }
    Ok(changed)
}

fn documents(root: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let mut all = Vec::new();
    for directory in DIRECTORIES {
        let directory = root.join(directory);
        if !directory.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&directory).map_err(|source| ReportError::io(&directory, source))?;
        for entry in entries {
            let path = entry.map_err(|source| ReportError::io(&directory, source))?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                all.push(path);
            }
        }
    }
    all.sort();
    Ok(all)
}

/// Rows that were read.
type Known = BTreeMap<String, (Summary, Context)>;

fn renewed(root: &Path, path: &Path, text: &str, known: &mut Known) -> Result<String, PageError> {
    if !text.contains(BEGIN) {
        return Ok(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        out += line;
        out.push('\n');
        let Some(request) = line.strip_prefix(BEGIN) else { continue };
        let bad = |reason: String| PageError::Line { path: path.to_owned(), line: at + 1, reason };
        let request = request.strip_suffix("-->").ok_or_else(|| bad("it has no end".to_owned()))?;
        let (rows, kind) =
            request.trim().split_once(' ').ok_or_else(|| bad("it names no table".to_owned()))?;
        if !known.contains_key(rows) {
            known.insert(rows.to_owned(), read(root, rows).map_err(|error| bad(error.to_string()))?);
        }
        let (summary, context) = &known[rows];
        out += "\n";
        out += table(summary, context, kind.trim()).map_err(bad)?.trim();
        out += "\n\n";
        if !lines.any(|(_, line)| line == END) {
            return Err(PageError::Line {
                path: path.to_owned(),
                line: at + 1,
                reason: format!("there is no `{END}` after it"),
            });
        }
        out += END;
        out.push('\n');
    }
    Ok(out)
}

fn read(root: &Path, rows: &str) -> Result<(Summary, Context), ReportError> {
    let asked = Path::new(rows);
    let plain = asked.components().all(|part| matches!(part, Component::Normal(_)));
    let dir = root.join(asked);
    if !plain || !asked.starts_with(RESULTS) {
        let source = std::io::Error::other(format!("rows are below {RESULTS}"));
        return Err(ReportError::io(&dir, source));
    }
    Ok((Summary::of(&load(&dir.join(FILE))?), Context::load(&dir)?))
}

fn table(summary: &Summary, context: &Context, kind: &str) -> Result<String, String> {
    let mut out = String::new();
    let (kind, suite) = kind.split_once(' ').unwrap_or((kind, ""));
    let found = || {
        let found = summary.suites.iter().find(|known| known.name == suite.trim());
        found.ok_or_else(|| format!("the rows have no suite `{suite}`"))
    };
    match kind {
        "front" => markdown::titled(&mut out, &front(summary)?),
        "run" => {
            out += &format!("{}, {}", escaped(&context.date), escaped(&context.machine.describe()));
            if !context.commits.is_empty() {
                out += &format!(", commit {}", escaped(&context.commits.join(", ")));
            }
            out += ":\n\n";
            markdown::commands(&mut out, &context.commands);
        }
        "times" => {
            let suite = found()?;
            out += &format!("{}.\n\n", escaped(Labels::of(&suite.groups).common()));
            markdown::titled(&mut out, &tables::main(suite, false));
            markdown::below(&mut out, suite);
        }
        "latencies" => tables::latencies(found()?).iter().for_each(|grid| markdown::titled(&mut out, grid)),
        "costs" => tables::costs(found()?).iter().for_each(|grid| markdown::titled(&mut out, grid)),
        other => return Err(format!("there is no table `{other}`")),
    }
    Ok(out)
}

/// Returns the first table of the README: the rows of [`FRONT`] that were measured, with one thread.
fn front(summary: &Summary) -> Result<Grid, String> {
    let groups: Vec<(&str, &Group)> = FRONT
        .iter()
        .filter_map(|&(name, suite, workload)| {
            let suite = summary.suites.iter().find(|known| known.name == suite)?;
            let wanted = |group: &&Group| {
                let here = &group.conditions;
                let large = suite.name != "large" || here.value_bytes == LARGE;
                here.workload == workload && here.threads == 1 && large
            };
            Some((name, suite.groups.iter().find(wanted)?))
        })
        .collect();
    if groups.is_empty() {
        return Err("the rows have none of the front table".to_owned());
    }
    let measured =
        |system: &str| groups.iter().any(|(_, group)| group.spread(system, Figure::NsPerOp).is_some());
    let systems: Vec<(&str, &str)> =
        [("tamis", "tamis")].into_iter().chain(NAMES).filter(|(system, _)| measured(system)).collect();
    let names: Vec<String> = systems.iter().map(|(system, _)| (*system).to_owned()).collect();
    let mut head = vec!["ns per operation".to_owned()];
    head.extend(systems.iter().map(|(_, name)| (*name).to_owned()));
    let mut rows = Vec::new();
    for (name, group) in groups {
        let spread = |system: &str| group.spread(system, Figure::NsPerOp);
        let spreads: Vec<_> = systems.iter().map(|(system, _)| spread(system)).collect();
        let best = spreads.iter().flatten().min_by(|a, b| a.median.total_cmp(&b.median));
        let even =
            |at: &usize| spreads[*at].as_ref().zip(best).is_some_and(|(its, best)| its.min <= best.max);
        let strong = (0..spreads.len()).filter(even).map(|at| at + 1).collect();
        let mut cells = vec![name.to_owned() + &text::memory(group, &names)];
        cells.extend(systems.iter().map(|(system, _)| text::cell(group, system, Figure::NsPerOp, true)));
        let mut with = vec![text::HAD.to_owned()];
        with.extend(systems.iter().map(|(system, _)| text::had(group, system)));
        rows.push(GridRow { cells, ratio: None, strong });
        rows.push(GridRow { cells: with, ratio: None, strong: Vec::new() });
    }
    Ok(Grid {
        caption: "Medians; in bold the best of each row, and those whose rounds overlap with its".to_owned(),
        head,
        rows,
        names: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{comparison, context};
    use crate::report::{condense, markdown::commands};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn the_projects_tables_are_those_of_their_rows() {
        let outdated = outdated(&root()).unwrap();
        let paths: Vec<&PathBuf> = outdated.iter().map(|(path, _)| path).collect();
        assert!(paths.is_empty(), "{paths:?} differ from their rows: run `tamis-peers tables`");
    }

    /// Tables of times were pasted by hand, from runs whose rows nobody had.
    #[test]
    fn the_readme_has_no_table_of_engines_that_is_not_made_from_rows() {
        let text = fs::read_to_string(root().join("README.md")).unwrap();
        let mut made = false;
        for line in text.lines() {
            made = line.starts_with(BEGIN) || made && line != END;
            let names_one = NAMES.iter().any(|(_, name)| line.contains(&format!("| {name} |")));
            assert!(made || !names_one, "{line}");
        }
    }

    fn project(document: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("lab/results/all");
        fs::create_dir_all(&results).unwrap();
        fs::create_dir_all(dir.path().join("docs")).unwrap();
        let mut rows = comparison();
        let settled = rows.iter().filter(|row| row.conditions.suite == "settled");
        let mut compacted: Vec<_> = settled.cloned().collect();
        compacted.iter_mut().for_each(|row| row.conditions.suite = "compacted".to_owned());
        rows.extend(compacted);
        fs::write(results.join(FILE), condense(&rows).unwrap()).unwrap();
        fs::write(results.join("machine.json"), serde_json::to_string(&context()).unwrap()).unwrap();
        fs::write(dir.path().join("docs/comparison.md"), document).unwrap();
        dir
    }

    fn text(dir: &tempfile::TempDir) -> String {
        fs::read_to_string(dir.path().join("docs/comparison.md")).unwrap()
    }

    #[test]
    fn tables_follow_their_rows_and_the_rest_stays() {
        let begin = |kind: &str| format!("{BEGIN}lab/results/all {kind} -->");
        let document = format!(
            "# A\n\n{}\nstale\n{END}\n\nbetween\n\n{}\n{END}\n{}\n{END}\nafter\n",
            begin("times settled"),
            begin("front"),
            begin("run")
        );
        let dir = project(&document);
        assert_eq!(refresh(dir.path()).unwrap().len(), 1);
        let fresh = text(&dir);
        assert!(
            fresh.starts_with("# A\n\n") && fresh.contains("\nbetween\n") && fresh.ends_with("\nafter\n")
        );
        assert!(!fresh.contains("stale") && fresh.contains("| get-empty, 2 threads"), "{fresh}");
        assert!(fresh.contains("| ns per operation | tamis | RocksDB | LevelDB | fjall | redb |"), "{fresh}");
        assert!(fresh.contains("| get of an absent key | **218** | 1,186† |"), "{fresh}");
        let mut run = String::new();
        commands(&mut run, &context().commands);
        assert!(fresh.contains(run.trim()));
        assert_eq!(refresh(dir.path()).unwrap(), Vec::<PathBuf>::new(), "nothing has changed since");
        // A figure that somebody corrects by hand is found.
        fs::write(dir.path().join("docs/comparison.md"), fresh.replacen("**218**", "**118**", 1)).unwrap();
        assert_eq!(outdated(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        for (line, what) in [
            (format!("{BEGIN}lab/results/all -->\n{END}"), "names no table"),
            (format!("{BEGIN}lab/results/all poem -->\n{END}"), "poem"),
            (format!("{BEGIN}lab/results/all times cold -->\n{END}"), "no suite `cold`"),
            (format!("{BEGIN}lab/results/none front -->\n{END}"), "rows.jsonl"),
            (format!("{BEGIN}lab/results/../../x front -->\n{END}"), "rows are below"),
            (format!("{BEGIN}lab/results/all front\n{END}"), "no end"),
            (format!("{BEGIN}lab/results/all front -->\n"), "after it"),
        ] {
            let dir = project(&format!("text\n{line}\n"));
            let error = refresh(dir.path()).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("line 2"), "{line}: {error}");
            assert_eq!(text(&dir), format!("text\n{line}\n"));
        }
    }
}
