//! Dependencies point down: a file of the engine names nothing in a room above its own.
//!
//! [`ROOMS`] lists the rooms from the bottom up, in the same order as `ARCHITECTURE.md`. This rules out cycles between
//! rooms. Unit tests may use any room.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of the engine, from the bottom up. A room may use those before it.
const ROOMS: &[&str] = &[
    "idle",
    "interrupt",
    "codec",
    "serial",
    "error",
    "io",
    "selector",
    "operators",
    "memory",
    "observe",
    "options",
    "wal",
    "memtable",
    "table",
    "images",
    "blob",
    "slice",
    "tree",
    "hotness",
    "select",
    "batch",
    "read",
    "compaction",
    "external",
    "db",
    "fuzzing",
];

/// Modules of `tamis-env`, which every room may use.
const ENVIRONMENT: &[&str] = &["clock", "sync"];

/// All Rust files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the room of a file: the first component of its path.
fn room_of(file: &Path) -> String {
    let first = file.components().next().expect("a path has parts").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// Reports whether a file is test code only.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs" | "model.rs")))
}

/// Returns the code of a file without comments (strings stay) and without the test module at its end.
fn code(text: &str) -> String {
    let body = text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end]);
    body.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Returns the rooms that `code` names by a path from the crate root, `use` lists included.
fn named(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate` and names that end in `crate` are something else.
        if code[..at].ends_with(|c: char| c == '$' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let name = |text: &str| {
            text.trim().split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or("").to_owned()
        };
        match rest.strip_prefix('{') {
            None => rooms.push(name(rest)),
            Some(list) => {
                let mut depth = 0;
                let mut start = 0;
                for (i, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => {
                            rooms.push(name(&list[start..i]));
                            break;
                        }
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            rooms.push(name(&list[start..i]));
                            start = i + 1;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

/// Returns the upward dependencies, as `file -> room`, of files given by their path below the crate root.
fn wrong_arrows<'f>(files: impl Iterator<Item = (PathBuf, &'f str)>) -> Vec<String> {
    let place: BTreeMap<&str, usize> = ROOMS.iter().enumerate().map(|(place, room)| (*room, place)).collect();
    let mut wrong = Vec::new();
    for (file, text) in files {
        let room = room_of(&file);
        if is_test(&file) || room == "lib" {
            continue;
        }
        let Some(&own) = place.get(&*room) else {
            wrong.push(format!("{}: `{room}` is not among the rooms", file.display()));
            continue;
        };
        for other in named(&code(text)) {
            match place.get(&*other) {
                Some(&place) if place <= own => {}
                None if ENVIRONMENT.contains(&&*other) => {}
                _ => wrong.push(format!("{} -> {other}", file.display())),
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

#[test]
fn no_dependency_points_up() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let found = files(&root);
    assert!(found.len() > 150, "{} files", found.len());
    let texts: Vec<(PathBuf, String)> = found
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a source file");
            (file.strip_prefix(&root).expect("below the root").to_owned(), text)
        })
        .collect();
    let wrong = wrong_arrows(texts.iter().map(|(file, text)| (file.clone(), &**text)));
    assert!(wrong.is_empty(), "these depend on rooms above their own:\n{}", wrong.join("\n"));
}

#[test]
fn an_upward_dependency_is_detected() {
    let wrong = |file: &str, text: &str| wrong_arrows([(PathBuf::from(file), text)].into_iter());
    assert_eq!(wrong("table/cursor.rs", "use crate::tree::version::Version;"), ["table/cursor.rs -> tree"]);
    assert_eq!(wrong("table.rs", "fn f() { crate::read::get() }"), ["table.rs -> read"]);
    assert_eq!(
        wrong("wal/mod.rs", "use crate::{codec::Encode, db::{Db, Snapshot}, io};"),
        ["wal/mod.rs -> db"]
    );
    assert_eq!(
        wrong("wal/mod.rs", "use crate::Slice;"),
        ["wal/mod.rs -> Slice"],
        "the root re-exports items of rooms above"
    );
    assert_eq!(wrong("parlour/mod.rs", ""), ["parlour/mod.rs: `parlour` is not among the rooms"]);
    let fine = "//! [`crate::db`]\nuse tamis_base::key::Kind; // crate::db\n#[cfg(test)]\nmod tests {\n    use crate::db::Db;\n}\n";
    assert!(wrong("wal/mod.rs", fine).is_empty());
    assert!(wrong("wal/tests.rs", "use crate::db::Db;").is_empty());
}

#[test]
fn architecture_md_lists_the_rooms_in_the_same_order() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let page = fs::read_to_string(page).expect("ARCHITECTURE.md");
    let listed = page.split_once("<!-- rooms, from the bottom up -->").expect("the list of rooms").1;
    let listed = listed.split("```").nth(1).expect("in a block of its own");
    let listed: Vec<&str> = listed.split_whitespace().filter(|word| *word != "text").collect();
    assert_eq!(listed, ROOMS);
}
