//! Tables in the project's documents, made from rows that are in the repository.
//!
//! A document has a line `<!-- rows: lab/results/NAME KIND -->`, then the table, then `<!-- end of rows -->`. KIND is one of
//!
//! * `front`: the README's table, a column for each engine; `picture DIR`: its picture, written to `DIR/engines.svg` beside the document;
//! * `picture DIR mixes`, `picture DIR memory`: pictures of docs/performance.md, `DIR/mixes.svg` and `DIR/memory.svg`;
//! * `trees`: tables of trees, by what they write and how they read; `trees DIR`: with a picture, `DIR/trees.svg`;
//! * `medians`, `memory`, `rates`, `tails`: the tables of docs/performance.md, times, times with little memory,
//!   throughputs, and the slowest puts;
//! * `times SUITE`: the suite's main table and what belongs below it;
//! * `latencies SUITE`, `costs SUITE`: its other tables;
//! * `targets`: every target that the rows can judge, and by how much it is met or missed;
//! * `losses`: every time and throughput in which tamis is not clearly ahead of the best;
//! * `run`: the day, the machine and the commands.
//!
//! A test compares all of them with their rows, and refuses tables in the README with another engine's name that are not made from rows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tamis_lab::documents::{DocumentError, Marker, Section, commands, escaped};

use super::context::Context;
use super::front;
use super::load;
use super::markdown;
use super::summary::Summary;
use super::tables;
use super::text::Labels;
use super::trees;
use crate::rows::FILE;

const MARKER: Marker = Marker("rows");

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
        match kind.split_once(' ') {
            Some(("picture", words)) => front::picture(summary, words),
            Some(("trees", dir)) => trees::trees(summary, dir.trim()),
            _ => Ok(table(summary, context, kind)?.into()),
        }
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
        "front" => markdown::table(&mut out, &front::front(summary)?),
        "medians" => markdown::table(&mut out, &front::times(summary)?),
        "memory" => markdown::table(&mut out, &front::memory(summary)?),
        "tails" => markdown::table(&mut out, &front::tails(summary)?),
        "rates" => markdown::table(&mut out, &front::rates(summary)?),
        "run" => {
            out += &format!("{}, {}", escaped(&context.date), escaped(&context.machine.describe()));
            if !context.commits.is_empty() {
                out += &format!(", commit {}", escaped(&context.commits.join(", ")));
            }
            out += ":\n\n";
            out += &commands(&context.commands);
        }
        "trees" => out += &trees::tables(summary)?,
        "losses" => markdown::table(&mut out, &tables::losses(summary)),
        "targets" => markdown::table(&mut out, &tables::judged(summary)),
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::report::condense;
    use crate::report::synthetic::{comparison, context};

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
            let names_one = front::PEERS.iter().any(|name| line.contains(&format!("| {name} |")));
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
        assert!(fresh.contains("| µs per operation | tamis | RocksDB | fjall | LevelDB | redb |"), "{fresh}");
        assert!(fresh.contains("| absent get | **0.22** | 1.19 | 0.50 | 1.08 | 4.63 |"), "{fresh}");
        assert!(fresh.contains(commands(&context().commands).trim()));
        assert_eq!(refresh(dir.path()).unwrap(), Vec::<PathBuf>::new(), "nothing has changed since");
        // A figure that somebody corrects by hand is found.
        fs::write(dir.path().join("docs/comparison.md"), fresh.replacen("**0.22**", "**0.11**", 1)).unwrap();
        assert_eq!(outdated(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn the_picture_is_beside_its_document() {
        let dir =
            project(&format!("{}\n{}\n", MARKER.begin("lab/results/all", "picture pictures"), MARKER.end()));
        let picture = dir.path().join("docs/pictures/engines.svg");
        assert!(refresh(dir.path()).unwrap().contains(&picture));
        assert!(fs::read_to_string(picture).unwrap().starts_with("<svg "));
        assert!(text(&dir).contains("](pictures/engines.svg)"));
        assert!(outdated(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        for (dir, kind, what) in [
            ("all", "poem", "poem"),
            ("all", "times cold", "no suite `cold`"),
            ("all", "picture ../x", "below the document"),
            ("none", "front", "rows.jsonl"),
        ] {
            let begin = MARKER.begin(&format!("lab/results/{dir}"), kind);
            let dir = project(&format!("text\n{begin}\n{}\n", MARKER.end()));
            let error = refresh(dir.path()).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("line 2"), "{begin}: {error}");
        }
    }
}
