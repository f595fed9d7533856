//! Scripts: one command per line, followed by its output, on lines that start with `|`.
//!
//! `TAMIS_GOLDEN=write` writes the engine's current output into the scripts; read the difference
//! before you commit it. Commands:
//!
//! * `open NAME=VALUE…` opens a new database with these options; `reopen` closes it and opens it
//!   again.
//! * `put KEY VALUE`, `delete KEY`, `delete-range FROM..TO` (either may be missing), `fill FROM..TO
//!   BYTES` (keys `k00FROM` to before `k00TO`).
//! * `flush`, `compact`, `settle`, `snapshot NAME`, `drop NAME`.
//! * `get KEY [NAME]` and `scan [NAME]` read, from a snapshot if it is named.
//! * `shape` lists levels and runs, `moves` how often tables were moved and merged.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::io::MemFs;
use tamis::{Db, Options, Snapshot};

use crate::support::abort_when_the_engine_panics;

struct Stage {
    options: Options,
    db: Option<Db>,
    snapshots: BTreeMap<String, Snapshot>,
}

impl Stage {
    fn db(&self) -> &Db {
        self.db.as_ref().expect("the script opens a database first")
    }

    /// Executes one command and returns its output.
    fn carry_out(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut said = String::new();
        match words[..] {
            ["open", ref settings @ ..] => {
                self.options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
                // A single thread, so that the order of events is deterministic.
                self.options.background_threads = 1;
                for setting in settings {
                    let (name, value) = setting.split_once('=').expect("NAME=VALUE");
                    self.options.set(name, value).expect("an option");
                }
                self.db = Some(self.options.clone().open("/db").expect("opening"));
            }
            ["reopen"] => {
                self.db.take().expect("it is open").close().expect("closing");
                self.db = Some(self.options.clone().open("/db").expect("opening"));
            }
            ["put", key, value] => self.db().put(key, value).expect("a write"),
            ["delete", key] => self.db().delete(key).expect("a write"),
            ["delete-range", range] => {
                let (from, to) = range.split_once("..").expect("FROM..TO");
                let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
                let to = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
                self.db().delete_range::<&str>((from, to)).expect("a write");
            }
            ["fill", range, bytes] => {
                let (from, to) = range.split_once("..").expect("FROM..TO");
                let number = |text: &str| text.parse::<usize>().expect("a number");
                for i in number(from)..number(to) {
                    self.db().put(format!("k{i:04}"), vec![b'v'; number(bytes)]).expect("a write");
                }
            }
            ["flush"] => self.db().flush().expect("a flush"),
            ["compact"] => self.db().compact().expect("a compaction"),
            ["settle"] => self.db().wait_for_compaction().expect("settling"),
            ["snapshot", name] => _ = self.snapshots.insert(name.to_owned(), self.db().snapshot()),
            ["drop", name] => drop(self.snapshots.remove(name).expect("a snapshot")),
            ["get", key, ref at @ ..] => {
                let value = match at {
                    [] => self.db().get(key),
                    [name, ..] => self.snapshots[*name].get(key),
                };
                let value = value.expect("a get").map(|v| v.escape_ascii().to_string());
                said = value.unwrap_or_else(|| "nothing".into());
            }
            ["scan", ref at @ ..] => {
                let iter = match at {
                    [] => self.db().iter(),
                    [name, ..] => self.snapshots[*name].iter(),
                };
                let items = iter.map(|item| item.expect("an item"));
                let items = items.map(|(k, v)| format!("{}={}", k.escape_ascii(), v.escape_ascii()));
                said = items.collect::<Vec<_>>().join(" ");
            }
            ["shape"] => said = self.shape(),
            ["moves"] => {
                let cost = self.db().stats().write;
                said = format!("{} moves, {} compactions", cost.trivial_moves, cost.compactions);
            }
            _ => panic!("no such command: {line}"),
        }
        said
    }

    fn shape(&self) -> String {
        let stats = self.db().default_keyspace().stats();
        let mut said = String::new();
        for level in &stats.levels {
            for run in &level.runs {
                let name = |key: &[u8]| key.escape_ascii().to_string();
                let (n, count) = (level.level, run.tables);
                let tables = if count == 1 { "1 table".into() } else { format!("{count} tables") };
                let (from, to) = (name(&run.smallest), name(&run.largest));
                let (entries, (first, after)) = (run.entries, run.epochs);
                let flushes = format!("flushes {first}..{after}");
                let _ = writeln!(said, "level {n}: {tables}, {from} to {to}, {entries} entries, {flushes}");
            }
        }
        let _ = write!(said, "{} deletes, {} range tombstones", stats.deletes, stats.range_tombstones);
        said
    }
}

/// The script with the engine's current output.
fn play(script: &str) -> String {
    let mut stage = Stage { options: Options::default(), db: None, snapshots: BTreeMap::new() };
    let mut played = String::new();
    for line in script.lines().filter(|line| !line.starts_with('|')) {
        played.push_str(line);
        played.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        for said in stage.carry_out(line).lines() {
            let _ = writeln!(played, "| {said}");
        }
    }
    played
}

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model/golden");
    let files = std::fs::read_dir(dir).expect("the scripts").map(|entry| entry.expect("a script").path());
    let mut scripts: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "script")).collect();
    scripts.sort();
    scripts
}

#[test]
fn the_engine_matches_the_scripts() {
    abort_when_the_engine_panics();
    let scripts = scripts();
    assert!(scripts.len() >= 5, "{scripts:?}");
    for path in scripts {
        let script = std::fs::read_to_string(&path).expect("a script");
        let played = play(&script);
        if std::env::var("TAMIS_GOLDEN").is_ok_and(|what| what == "write") {
            std::fs::write(&path, &played).expect("writing a script");
        } else if played != script {
            let at = played.lines().zip(script.lines()).position(|(a, b)| a != b);
            let at = at.unwrap_or(played.lines().count().min(script.lines().count()));
            let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
            let (found, expected) = (line(&played), line(&script));
            panic!("{}:{}:\n   found {found}\nexpected {expected}", path.display(), at + 1);
        }
    }
}
