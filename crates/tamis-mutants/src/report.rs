//! `tamis-mutants report`: the results as a table, and what is alive, for reading.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::results::{self, FILES, Outcome, Record};
use crate::rooms::GROUPS;

/// What became of a mutant in all passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    KilledByTests,
    KilledBySimulation,
    Equivalent,
    Alive,
    NotReached,
}

#[derive(Default)]
struct Row {
    tests: usize,
    simulation: usize,
    equivalent: usize,
    alive: usize,
    not_reached: usize,
}

impl Row {
    fn add(&mut self, fate: Fate) {
        match fate {
            Fate::KilledByTests => self.tests += 1,
            Fate::KilledBySimulation => self.simulation += 1,
            Fate::Equivalent => self.equivalent += 1,
            Fate::Alive => self.alive += 1,
            Fate::NotReached => self.not_reached += 1,
        }
    }

    fn all(&self) -> usize {
        self.tests + self.simulation + self.equivalent + self.alive + self.not_reached
    }

    fn line(&self, name: &str) -> String {
        let mistakes = self.all() - self.equivalent;
        let score = 100.0 * (self.tests + self.simulation) as f64 / mistakes.max(1) as f64;
        format!(
            "| {name} | {} | {} | {} | {} | {} | {} | {score:.1} % |\n",
            self.all(),
            self.tests,
            self.simulation,
            self.equivalent,
            self.alive,
            self.not_reached
        )
    }
}

/// Returns the report on the results in a directory, as Markdown. The mutants that the document
/// `equivalent` lists are no mistakes; one of them that was killed is an error in that document.
pub fn report(directory: &Path, equivalent: &Path) -> io::Result<String> {
    let listed = listed(&fs::read_to_string(equivalent)?);
    let mut last: HashMap<String, (Record, Fate)> = HashMap::new();
    for file in FILES {
        let is_simulation = file == "simulation.jsonl";
        for (id, record) in results::read(directory, file)? {
            let fate = match record.outcome {
                Outcome::Killed if is_simulation => Fate::KilledBySimulation,
                Outcome::Killed => Fate::KilledByTests,
                Outcome::NotReached => Fate::NotReached,
                Outcome::Alive | Outcome::NoDifference => Fate::Alive,
            };
            match last.get_mut(&id) {
                // A mutant that a later pass did not kill stays what it was, unless only that reached it.
                Some((old, before)) => match (*before, fate) {
                    (_, Fate::KilledByTests | Fate::KilledBySimulation) | (Fate::NotReached, _) => {
                        *before = fate;
                        (old.kind, old.by) = (record.kind, record.by);
                    }
                    _ => {}
                },
                None => {
                    last.insert(id, (record, fate));
                }
            }
        }
    }
    let mut contradictions = String::new();
    for (_, (record, fate)) in last.iter_mut().filter(|(id, _)| listed.contains(*id)) {
        match fate {
            Fate::KilledByTests | Fate::KilledBySimulation => {
                contradictions += &format!("{} by {}\n", line(record, *fate).trim_end(), record.by);
            }
            _ => *fate = Fate::Equivalent,
        }
    }
    if !contradictions.is_empty() {
        contradictions.insert_str(0, "\n## Said to be equivalent, but killed\n\n");
    }
    Ok(table(&last) + &contradictions + &survivors(&last))
}

/// Returns the mutants that a document lists: the first word of each item, between backticks.
fn listed(document: &str) -> HashSet<String> {
    let items = document.lines().filter_map(|line| line.strip_prefix("* `")?.split_once('`'));
    items.map(|(id, _)| id.to_owned()).collect()
}

fn table(last: &HashMap<String, (Record, Fate)>) -> String {
    let mut rows = HashMap::<&str, Row>::new();
    let mut sum = Row::default();
    for (record, fate) in last.values() {
        rows.entry(&record.mutant.group).or_default().add(*fate);
        sum.add(*fate);
    }
    let mut text =
        "| rooms | mutants | killed by tests | by the simulation | equivalent | alive | not reached | score |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for group in GROUPS {
        if let Some(row) = rows.get(group) {
            text += &row.line(group);
        }
    }
    text + &sum.line("all")
}

fn survivors(last: &HashMap<String, (Record, Fate)>) -> String {
    let mut text = String::new();
    for group in GROUPS {
        let alive = |(record, fate): &&(Record, Fate)| {
            record.mutant.group == *group && matches!(fate, Fate::Alive | Fate::NotReached)
        };
        let mut of: Vec<_> = last.values().filter(alive).collect();
        of.sort_by_key(|(record, _)| (&record.mutant.file, record.mutant.line, record.mutant.column));
        if !of.is_empty() {
            text += &format!("\n## Alive: {group}\n\n");
        }
        for (record, fate) in of {
            text += &line(record, *fate);
        }
    }
    text
}

fn line(record: &Record, fate: Fate) -> String {
    let mutant = &record.mutant;
    let change = match mutant.mutated.is_empty() {
        true => format!("`{}` left out", mutant.original),
        false => format!("`{}` → `{}`", mutant.original, mutant.mutated),
    };
    let note = match (fate, record.outcome) {
        (Fate::NotReached, _) => " (not reached)".to_owned(),
        (_, Outcome::NoDifference) => " (reached, but no test makes a difference)".to_owned(),
        _ if record.ran < record.of => format!(" ({} of {} tests)", record.ran, record.of),
        _ => String::new(),
    };
    let (id, file, line) = (&mutant.id, &mutant.file, mutant.line);
    format!("* `{id}` {file}:{line} {}, {}, {change}{note}\n", mutant.function, mutant.operator)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::report;
    use crate::results::{Outcome, Record};
    use crate::site::Mutant;

    fn record(id: &str, outcome: Outcome) -> String {
        let mutant = Mutant {
            number: 1,
            id: id.to_owned(),
            group: "log".to_owned(),
            room: "tamis/log".to_owned(),
            file: "log.rs".to_owned(),
            line: 7,
            column: 1,
            function: "f".to_owned(),
            operator: "comparison".to_owned(),
            original: "a < b".to_owned(),
            mutated: "a <= b".to_owned(),
            module: "log".to_owned(),
        };
        let (kind, by) = (String::new(), String::new());
        let record = Record { mutant, outcome, kind, by, seconds: 0.0, ran: 1, of: 1 };
        serde_json::to_string(&record).unwrap() + "\n"
    }

    #[test]
    fn a_mutant_counts_where_it_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let tests = [
            record("1", Outcome::Killed),
            record("2", Outcome::Alive),
            record("3", Outcome::Alive),
            record("4", Outcome::NotReached),
            record("5", Outcome::NotReached),
        ];
        fs::write(dir.path().join("tests.jsonl"), tests.concat()).unwrap();
        let simulation =
            [record("2", Outcome::Killed), record("3", Outcome::NotReached), record("5", Outcome::Alive)];
        fs::write(dir.path().join("simulation.jsonl"), simulation.concat()).unwrap();
        let equivalent = dir.path().join("equivalent.md");
        fs::write(&equivalent, "# None\n").unwrap();
        let text = report(dir.path(), &equivalent).unwrap();
        assert!(text.contains("| log | 5 | 1 | 1 | 0 | 2 | 1 | 40.0 % |"), "{text}");
        assert_eq!(text.matches(" log.rs:7 f, comparison, `a < b` → `a <= b`").count(), 3, "{text}");
        assert_eq!(text.matches("(not reached)").count(), 1, "{text}");

        fs::write(&equivalent, "# Why\n\n* `2` killed\n* `4` f\n* `5` f\n* `77` gone\n").unwrap();
        let text = report(dir.path(), &equivalent).unwrap();
        assert!(text.contains("| log | 5 | 1 | 1 | 2 | 1 | 0 | 66.7 % |"), "{text}");
        let contradictions = text.split("## ").find(|part| part.starts_with("Said")).unwrap();
        assert_eq!(contradictions.matches("* `").count(), 1, "{text}");
        assert!(contradictions.contains("* `2` log.rs:7 f"), "{text}");
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tests.jsonl");
        fs::write(&path, record("1", Outcome::Killed) + &record("2", Outcome::Alive)[..30]).unwrap();
        let equivalent = dir.path().join("equivalent.md");
        fs::write(&equivalent, "").unwrap();
        let text = report(dir.path(), &equivalent).unwrap();
        assert!(text.contains("| log | 1 | 1 | 0 | 0 | 0 | 0 | 100.0 % |"), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), record("1", Outcome::Killed));
    }
}
