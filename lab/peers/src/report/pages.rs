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
use std::path::{Path, PathBuf};

use tamis_lab::documents::{DocumentError, Marker, Section, commands, escaped};

use super::context::Context;
use super::figure::Figure;
use super::load;
use super::markdown;
use super::summary::{Group, Summary};
use super::tables::{self, Grid, GridRow};
use super::text::{self, Labels};
use crate::rows::FILE;

const MARKER: Marker = Marker("rows");

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

/// Writes the tables of all documents below `root` again, and returns those that have changed.
///
/// # Errors
///
/// A document asks for an unknown table, or rows are missing or damaged. No document is written then.
pub fn refresh(root: &Path) -> Result<Vec<PathBuf>, DocumentError> {
    MARKER.refresh(root, &mut section(&mut BTreeMap::new()))
}

/// Returns the documents that differ from their rows, with what they should contain.
pub fn outdated(root: &Path) -> Result<Vec<(PathBuf, String)>, DocumentError> {
    MARKER.outdated(root, &mut section(&mut BTreeMap::new()))
}

/// Rows that were read, by their directory.
type Known = BTreeMap<PathBuf, (Summary, Context)>;

fn section(known: &mut Known) -> impl FnMut(&Path, &str) -> Result<Section, String> {
    |dir, kind| {
        if !known.contains_key(dir) {
            let rows = load(&dir.join(FILE)).map_err(|error| error.to_string())?;
            let context = Context::load(dir).map_err(|error| error.to_string())?;
            known.insert(dir.to_owned(), (Summary::of(&rows), context));
        }
        let (summary, context) = &known[dir];
        Ok(table(summary, context, kind)?.into())
    }
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
            out += &commands(&context.commands);
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
    use std::fs;

    use super::*;
    use crate::report::condense;
    use crate::report::synthetic::{comparison, context, rows_of};

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
            made = MARKER.begins(line) || made && line != MARKER.end();
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
        let (begin, end) = (|kind: &str| MARKER.begin("lab/results/all", kind), MARKER.end());
        let document = format!(
            "# A\n\n{}\nstale\n{end}\n\nbetween\n\n{}\n{end}\n{}\n{end}\nafter\n",
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
        assert!(fresh.contains(commands(&context().commands).trim()));
        assert_eq!(refresh(dir.path()).unwrap(), Vec::<PathBuf>::new(), "nothing has changed since");
        // A figure that somebody corrects by hand is found.
        fs::write(dir.path().join("docs/comparison.md"), fresh.replacen("**218**", "**118**", 1)).unwrap();
        assert_eq!(outdated(dir.path()).unwrap().len(), 1);
    }

    /// The best median alone was bold where the rounds of others overlapped with it.
    #[test]
    fn cells_whose_rounds_overlap_with_the_best_are_bold_too() {
        let systems: &[(&str, &[f64])] = &[
            ("tamis", &[10.0, 20.0, 30.0]),
            ("rocksdb", &[29.0, 40.0, 50.0]),
            ("leveldb", &[31.0, 41.0, 51.0]),
        ];
        let grid = front(&Summary::of(&rows_of("compacted", "get-empty", systems))).unwrap();
        assert_eq!(grid.rows[0].strong, [1, 2], "{:?}", grid.rows[0].cells);
        let systems: &[(&str, &[f64])] = &[("tamis", &[31.0, 41.0, 51.0]), ("rocksdb", &[10.0, 20.0, 30.0])];
        let grid = front(&Summary::of(&rows_of("compacted", "get-empty", systems))).unwrap();
        assert_eq!(grid.rows[0].strong, [2], "a loss");
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        for (dir, kind, what) in [
            ("all", "poem", "poem"),
            ("all", "times cold", "no suite `cold`"),
            ("none", "front", "rows.jsonl"),
        ] {
            let begin = MARKER.begin(&format!("lab/results/{dir}"), kind);
            let dir = project(&format!("text\n{begin}\n{}\n", MARKER.end()));
            let error = refresh(dir.path()).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("line 2"), "{begin}: {error}");
        }
    }
}
