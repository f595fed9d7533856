//! The scripts in `testdata` about merges of memtables and runs, and iterators over them.

use std::collections::BTreeMap;
use std::fmt::Write;

use tamis_base::key::{Kind, MAX_SEQNO, SeqNo};
use tamis_files::table::CursorOptions;
use tamis_files::tree::tombstones::{RangeTombstone, Tombstones};
use tamis_testkit::script::{self, Case};

use super::model::options;
use super::truth::{Manner, install};
use crate::read::Bounds;
use crate::read::merge::{MergeCursor, RunTables};
use crate::read::{Iter, View};
use crate::{Db, Snapshot};

/// The database of a script, and its snapshots by name.
struct World {
    db: Db,
    snapshots: BTreeMap<String, Snapshot>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the bounds that `b..f` names; both sides may be open.
fn bounds(range: Option<&&str>) -> Bounds {
    let Some(range) = range else { return Bounds::default() };
    let (start, end) = range.split_once("..").unwrap_or_else(|| panic!("no range: {range}"));
    Bounds { start: start.into(), end: (!end.is_empty()).then(|| end.into()) }
}

/// Carries out `a=1` (put), `-a` (delete), `a+=1` (merge operand) or `-a..c` (range delete).
fn write(db: &Db, word: &str) {
    let done = if let Some((key, operand)) = word.split_once("+=") {
        db.merge(key, operand)
    } else if let Some((key, value)) = word.split_once('=') {
        db.put(key, value)
    } else {
        match word.strip_prefix('-').unwrap_or_else(|| panic!("no write: {word}")).split_once("..") {
            Some((start, end)) => db.delete_range(start..end),
            None => db.delete(&word[1..]),
        }
    };
    done.expect("a write");
}

fn version(cursor: &MergeCursor) -> String {
    let (key, seq, value) = (text(cursor.key()), cursor.seq(), text(cursor.version().3));
    match cursor.kind() {
        Kind::Put => format!("{key}@{seq}={value}"),
        Kind::Delete => format!("-{key}@{seq}"),
        Kind::Merge => format!("{key}@{seq}+={value}"),
        Kind::PutBlob => format!("{key}@{seq}=>{}", cursor.version().3.len()),
    }
}

fn tombstone(t: RangeTombstone) -> String {
    format!("-{}..{}@{}", text(&t.start), t.end.map_or(String::new(), |end| text(&end)), t.seq)
}

impl World {
    fn new() -> World {
        World { db: options().open("/db").expect("opening"), snapshots: BTreeMap::new() }
    }

    fn view(&self) -> std::sync::Arc<View> {
        self.db.default_keyspace().inner.view.load_full()
    }

    /// Returns a merge of the chosen sources: 0 is the memtable, the others are runs.
    fn merge(&self, chosen: impl Fn(usize) -> bool) -> MergeCursor {
        let view = self.view();
        let tables = RunTables::List(view.version.tables.clone());
        let mut cursor = MergeCursor::new(tables, CursorOptions::default(), view.version.runs.len() + 1);
        if chosen(0) {
            cursor.add_memtable(view.memtables.active.memtable.cursor());
        }
        for (_, run) in (1..).zip(&view.version.runs).filter(|(i, _)| chosen(*i)) {
            cursor.add_run(run.tables.clone());
        }
        cursor
    }

    /// Shows all sources, newest first, each with its versions in order and its range deletes.
    fn show(&self) -> String {
        let view = self.view();
        let mut shown = String::new();
        for source in 0..=view.version.runs.len() {
            let mut cursor = self.merge(|i| i == source);
            cursor.seek_to_first().expect("a seek");
            let mut words = Vec::new();
            while cursor.valid() {
                words.push(version(&cursor));
                cursor.next().expect("a step");
            }
            match source {
                0 => {
                    let set = Tombstones::fragment(view.memtables.active.memtable.range_tombstones());
                    words.extend(set.iter().map(tombstone));
                }
                run => {
                    let tables = view.version.tables[view.version.runs[run - 1].tables.clone()].iter();
                    let sets = tables.filter_map(|table| table.tombstones.clone());
                    words.extend(sets.flat_map(|set| set.iter().collect::<Vec<_>>()).map(tombstone));
                }
            }
            let name = if source == 0 { "memtable".into() } else { format!("run {source}") };
            if !words.is_empty() {
                writeln!(shown, "{name:9} {}", words.join("  ")).expect("text");
            }
        }
        shown
    }

    fn iter(&self, args: &[&str]) -> Iter {
        let range = args.iter().find(|arg| arg.contains(".."));
        let Bounds { start, end } = bounds(range);
        let range = (
            std::ops::Bound::Included(start),
            end.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded),
        );
        match args.iter().find_map(|arg| arg.strip_prefix('@')) {
            Some(name) => self.snapshots[name].keyspace(self.db.default_keyspace()).range(range),
            None => self.db.range(range),
        }
    }

    /// Carries out the steps of one iterator.
    fn walk(&self, case: &Case<'_>) -> String {
        let mut iter = self.iter(&case.args);
        let item = |item: Option<Result<(crate::Slice, crate::Slice), _>>| match item.transpose() {
            Ok(Some((key, value))) => format!("{}={}", text(&key), text(&value)),
            Ok(None) => "end".into(),
            Err(error) => format!("{error}"),
        };
        let mut steps = String::new();
        for line in &case.input {
            let words: Vec<&str> = line.split_whitespace().collect();
            let mut given = Vec::new();
            match words[..] {
                ["seek", key] => iter.seek(key).expect("a seek"),
                [way @ ("next" | "back"), ref count @ ..] => {
                    let most = count.first().map_or(1, |count| count.parse().unwrap_or(usize::MAX));
                    while given.len() < most && given.last().is_none_or(|last| last != "end") {
                        given.push(item(if way == "next" { iter.next() } else { iter.next_back() }));
                    }
                }
                _ => panic!("no step: {line}"),
            }
            writeln!(steps, "{line:12} {}", given.join("  ")).expect("text");
        }
        steps
    }

    fn execute(&mut self, case: &Case<'_>) -> String {
        match case.command {
            "write" => {
                for line in &case.input {
                    let (source, writes) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                    match source {
                        "run" | "memtable" => {
                            writes.split_whitespace().for_each(|word| write(&self.db, word))
                        }
                        "snapshot" => {
                            self.snapshots.insert(writes.trim().into(), self.db.snapshot());
                        }
                        _ => panic!("no source: {source}"),
                    }
                    if source == "run" {
                        self.db.flush().expect("a flush");
                    }
                }
                self.show()
            }
            "new" => {
                *self = World::new();
                String::new()
            }
            "compact" => {
                self.db.compact().expect("a compaction");
                self.show()
            }
            "release" => {
                case.args.iter().for_each(|name| drop(self.snapshots.remove(*name).expect("a snapshot")));
                String::new()
            }
            "versions" => self.versions(case),
            "iterate" => {
                // The same with global filters that know of one or several keys ahead, claim too
                // much, or answer nonsense.
                let shown = self.walk(case);
                let old = self.view();
                for (keys, lies, stuck) in
                    [(0, 0, false), (1, 0, false), (3, 0, false), (2, 200, false), (2, 0, true)]
                {
                    install(&self.db, Manner { keys, lies, stuck, ..Manner::default() });
                    assert_eq!(
                        self.walk(case),
                        shown,
                        "under a global filter: {keys} keys, {lies} lies, {stuck}"
                    );
                }
                self.db.default_keyspace().inner.view.store(old);
                shown
            }
            _ => panic!("no such command"),
        }
    }

    /// Moves over all versions of all sources.
    fn versions(&self, case: &Case<'_>) -> String {
        let mut cursor = self.merge(|_| true);
        let mut shown = String::new();
        for line in &case.input {
            let words: Vec<&str> = line.split_whitespace().collect();
            let place = |place: &str| match place.split_once('@') {
                Some((key, seq)) => (key.to_owned(), seq.parse::<SeqNo>().expect("a number")),
                None => (place.to_owned(), MAX_SEQNO),
            };
            let mut given = Vec::new();
            let mut here = |cursor: &MergeCursor| {
                given.push(if cursor.valid() { version(cursor) } else { "end".into() });
                cursor.valid()
            };
            match words[..] {
                ["first"] => cursor.seek_to_first().expect("a seek"),
                ["last"] => cursor.seek_to_last().expect("a seek"),
                ["seek", at] => {
                    let (key, seq) = place(at);
                    cursor.seek(key.as_bytes(), seq).expect("a seek");
                }
                ["seek-before", key] => cursor.seek_before(key.as_bytes()).expect("a seek"),
                ["next"] => cursor.next().expect("a step"),
                ["prev"] => cursor.prev().expect("a step"),
                [way @ ("next" | "prev"), "all"] => {
                    let step = if way == "next" { MergeCursor::next } else { MergeCursor::prev };
                    step(&mut cursor).expect("a step");
                    while here(&cursor) {
                        step(&mut cursor).expect("a step");
                    }
                }
                _ => panic!("no step: {line}"),
            }
            if !line.ends_with("all") {
                here(&cursor);
            }
            writeln!(shown, "{line:14} {}", given.join("  ")).expect("text");
        }
        shown
    }
}

fn run(name: &str) {
    let mut world = World::new();
    let path = format!("{}/testdata/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    script::run(path, |case| world.execute(case));
}

#[test]
fn merging_script() {
    run("merging");
}

#[test]
fn iterators_script() {
    run("iterators");
}
