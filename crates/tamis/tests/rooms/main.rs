//! Dependencies point down: a file of the engine, or of a crate that it is made of, names nothing
//! in a room above its own.
//!
//! Between crates the compiler sees to that. [`ROOMS`] lists the rooms of each from the bottom up,
//! in the same order as `ARCHITECTURE.md`. This rules out cycles between rooms; [`cycles`] looks
//! for those between files. Unit tests may use any room.

mod cycles;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, and the rooms of each from the bottom up. A room may use those before it.
const ROOMS: &[(&str, &[&str])] = &[
    ("tamis-base", &["collections", "ids", "key", "epochs", "meta"]),
    ("tamis-files", &["codec", "sums", "error", "settings", "wal", "table", "blob", "images", "tree"]),
    ("tamis-policy", &["hotness", "memory", "compaction"]),
    (
        ENGINE,
        &[
            "idle",
            "interrupt",
            "serial",
            "error",
            "io",
            "selector",
            "operators",
            "memory",
            "observe",
            "options",
            "sampling",
            "memtable",
            "slice",
            "records",
            "tree",
            "select",
            "batch",
            "read",
            "compaction",
            "external",
            "gate",
            "catalogue",
            "conflicts",
            "log",
            "session",
            "jobs",
            "write",
            "open",
            "handles",
            "transaction",
            "api",
        ],
    ),
];

const ENGINE: &str = "tamis";

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
    file.components().any(|part| {
        matches!(
            part.as_os_str().to_str(),
            Some("tests" | "tests.rs" | "model" | "model.rs" | "simulator.rs" | "endurance.rs")
        )
    })
}

/// Returns the code of a file without comments (strings stay) and without the test module at its
/// end.
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

/// Returns the upward dependencies, as `file -> room`, of files of a crate given by their path
/// below its root.
fn wrong_arrows<'f>(rooms: &[&str], files: impl Iterator<Item = (PathBuf, &'f str)>) -> Vec<String> {
    let place: BTreeMap<&str, usize> = rooms.iter().enumerate().map(|(place, room)| (*room, place)).collect();
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

/// The sources of a crate, by their path below its root.
fn sources(name: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("a source file");
        (file.strip_prefix(&root).expect("below the root").to_owned(), text)
    };
    files(&root).into_iter().map(read).collect()
}

#[test]
fn no_dependency_points_up() {
    for (name, rooms) in ROOMS {
        let texts = sources(name);
        assert!(texts.len() > 5, "{name}: {} files", texts.len());
        let wrong = wrong_arrows(rooms, texts.iter().map(|(file, text)| (file.clone(), &**text)));
        assert!(wrong.is_empty(), "in {name} these depend on rooms above their own:\n{}", wrong.join("\n"));
    }
}

#[test]
fn no_files_depend_on_each_other() {
    for (name, _) in ROOMS {
        let found = cycles::cycles(&sources(name), is_test);
        let lines: Vec<String> = found.iter().map(|files| files.join(", ")).collect();
        assert!(found.is_empty(), "in {name} these files depend on each other:\n{}", lines.join("\n"));
    }
}

/// Prints the lines of every room without its tests, comments included: `-- --nocapture` shows how
/// a house grows. Each listed room has some.
#[test]
#[expect(clippy::print_stdout, reason = "a measurement")]
fn lines_by_room() {
    for (name, rooms) in ROOMS {
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for (file, text) in sources(name).iter().filter(|(file, _)| !is_test(file)) {
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            *lines.entry(room_of(file)).or_default() += text[..end].lines().count();
        }
        println!("{name}: {}: {lines:?}", lines.values().sum::<usize>());
        let empty: Vec<_> = rooms.iter().filter(|room| !lines.contains_key(**room)).collect();
        assert!(empty.is_empty(), "{name} has no {empty:?}");
    }
}

#[test]
fn an_upward_dependency_is_detected() {
    let (_, rooms) = ROOMS.iter().find(|(name, _)| *name == ENGINE).expect("the engine");
    let wrong = |file: &str, text: &str| wrong_arrows(rooms, [(PathBuf::from(file), text)].into_iter());
    assert_eq!(
        wrong("memtable/cursor.rs", "use crate::tree::version::Version;"),
        ["memtable/cursor.rs -> tree"]
    );
    assert_eq!(wrong("tree.rs", "fn f() { crate::read::get() }"), ["tree.rs -> read"]);
    assert_eq!(
        wrong("memtable/mod.rs", "use crate::{error::Error, api::{Db, Snapshot}, io};"),
        ["memtable/mod.rs -> api"]
    );
    assert_eq!(
        wrong("memtable/mod.rs", "use crate::Slice;"),
        ["memtable/mod.rs -> Slice"],
        "the root re-exports items of rooms above"
    );
    assert_eq!(wrong("parlour/mod.rs", ""), ["parlour/mod.rs: `parlour` is not among the rooms"]);
    let fine = "//! [`crate::api`]\nuse tamis_base::key::Kind; // crate::api\n#[cfg(test)]\nmod tests {\n    use crate::api::Db;\n}\n";
    assert!(wrong("memtable/mod.rs", fine).is_empty());
    assert!(wrong("memtable/tests.rs", "use crate::api::Db;").is_empty());
}

#[test]
fn architecture_md_lists_the_rooms_in_the_same_order() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let page = fs::read_to_string(page).expect("ARCHITECTURE.md");
    let listed = page.split_once("<!-- rooms, from the bottom up -->").expect("the list of rooms").1;
    let listed = listed.split("```").nth(1).expect("in a block of its own");
    let listed = listed.strip_prefix("text").expect("as text");
    let rooms = ROOMS.iter().map(|(name, rooms)| format!("{name}: {}", rooms.join(" ")));
    let page: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(page.join(" "), rooms.collect::<Vec<_>>().join(" "));
}
