//! `tamis export` and `tamis import`: a database, or parts of it, there and back.

use std::path::Path;

use serde_json::Value;

use crate::support::{Place, Ran, run, tamis};

/// A database with three keyspaces, one of them empty, and keys and values that are not text.
fn filled(place: &Place) {
    let db = tamis::Db::open(place.db()).unwrap();
    let users = db.create_keyspace("users", tamis::KeyspaceOptions::default()).unwrap();
    db.create_keyspace("leer / \u{1F980}", tamis::KeyspaceOptions::default()).unwrap();
    for i in 0..3000u32 {
        db.put(i.wrapping_mul(2_654_435_761).to_be_bytes(), vec![i as u8; i as usize % 50]).unwrap();
        users.put(format!("user/{i:05}"), format!("tab\there, line\nthere, \"quote\" {i}")).unwrap();
    }
    db.put("", "an empty key").unwrap();
    db.put("large", "x".repeat(3 << 20)).unwrap();
    users.delete("user/00007").unwrap();
    users.delete_range("user/00100".."user/00200").unwrap();
    db.close().unwrap();
}

type Contents = Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)>;

fn contents(dir: &str) -> Contents {
    let db = tamis::Options::stored_in(dir).unwrap().unwrap().open_read_only(dir).unwrap();
    let of = |name: String| {
        let entries = db.keyspace(&name).unwrap().iter().map(|entry| {
            let (key, value) = entry.unwrap();
            (key.to_vec(), value.to_vec())
        });
        let entries = entries.collect();
        (name, entries)
    };
    db.keyspaces().into_iter().map(of).collect()
}

fn on(dir: &str, subcommand: &str, args: &[&str]) -> Ran {
    let mut command = tamis();
    command.args([subcommand, "--db", dir]).args(args);
    run(command, b"")
}

/// The text that `scan` prints does not load back.
#[test]
fn a_database_reads_back_exactly_in_every_form() {
    let place = Place::new();
    filled(&place);
    let wanted = contents(&place.db());
    for (name, format) in
        [("a.jsonl", "jsonl"), ("b.bin", "binary"), ("c.jsonl.gz", "jsonl"), ("d.bin.gz", "binary")]
    {
        let (file, copy) = (place.path(name), place.path(&format!("copy-of-{name}")));
        let said = place.run("export", &["--format", format, "--out", &file]).ok();
        assert!(said.contains("5,901 entries of 3 keyspaces"), "{said}");
        assert!(!Path::new(&place.path(&format!("{name}.partial"))).exists());
        let said = on(&copy, "import", &[&file]).ok();
        assert!(said.contains("5,901 entries of 3 keyspaces"), "{said}");
        assert!(contents(&copy) == wanted, "{name}");
        let stats: Value = serde_json::from_str(&on(&copy, "stats", &["--json"]).ok()).unwrap();
        let in_memory = |keyspace: &Value| keyspace["memtable_entries"].as_u64().unwrap();
        assert_eq!(stats["keyspaces"].as_array().unwrap().iter().map(in_memory).sum::<u64>(), 0);
        // Again, which changes nothing.
        on(&copy, "import", &[&file]).ok();
        assert!(contents(&copy) == wanted, "{name}");
        place.run("export", &["--out", &file]).fails(2, "exists already");
    }
    // Through pipes.
    let text = place.run("export", &[]);
    assert!(text.err.contains("5,901 entries"), "{}", text.err);
    let other = Place::new();
    other.run_with_input("import", &["--json"], text.ok().as_bytes()).ok();
    assert!(contents(&other.db()) == wanted);
}

#[test]
fn parts_are_exported_and_imported_under_other_names() {
    let place = Place::new();
    filled(&place);
    let users = &contents(&place.db())[1].1;
    let lines = |args: &[&str]| place.run("export", args).ok().lines().count() - 3;
    assert_eq!(lines(&["--keyspace", "users"]), users.len());
    assert_eq!(lines(&["--keyspace", "users", "--prefix", "user/0001"]), 10);
    assert_eq!(lines(&["--keyspace", "users", "--start", "user/00005", "--end", "user/00010"]), 4);
    assert!(lines(&["--keyspace", "default", "--hex", "--start", "ff"]) > 5);
    place.run("export", &["--keyspace", "none"]).fails(2, "no keyspace called `none`");
    place.run("export", &["--keyspace", "users", "--keyspace", "users"]).fails(2, "twice");
    place.run("export", &["--start", "b", "--end", "a"]).fails(2, "after the end");
    place.run("export", &["--json"]).fails(2, "--out");

    let file = place.path("all.bin");
    place.run("export", &["--format", "binary", "--out", &file, "--json"]).ok();
    let copy = place.path("copy");
    let people = ["--keyspace", "users", "--into", "people", "-o", "keyspace.bits_per_key=14"];
    on(&copy, "import", &[&people[..], &[&file]].concat()).ok();
    let copied = contents(&copy);
    assert_eq!(copied.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["default", "people"]);
    assert!(copied[0].1.is_empty() && copied[1].1 == *users);
    let db = tamis::Options::stored_in(&copy).unwrap().unwrap().open_read_only(&copy).unwrap();
    assert_eq!(db.keyspace("people").unwrap().options().bits_per_key, 14.0);
    let nowhere = place.path("nowhere");
    on(&nowhere, "import", &["--keyspace", "none", &file]).fails(2, "the input has no keyspace `none`");
    on(&nowhere, "import", &["--into", "x", &file]).fails(2, "--keyspace");
    on(&nowhere, "import", &[&place.path("no-such-file")]).fails(2, "no-such-file");
    assert!(!Path::new(&nowhere).exists());
}

#[test]
fn damaged_and_incomplete_inputs_are_refused() {
    let place = Place::new();
    filled(&place);
    for (format, gz) in [("jsonl", ""), ("binary", ""), ("binary", ".gz")] {
        let file = place.path(&format!("{format}{gz}"));
        place.run("export", &["--format", format, "--out", &file]).ok();
        let whole = std::fs::read(&file).unwrap();
        let mut wrong: Vec<Vec<u8>> =
            [0, 1, 10, whole.len() / 3, whole.len() - 1].map(|end| whole[..end].to_vec()).into();
        wrong.push([&whole[..], b"more"].concat());
        wrong.push([&whole[..], &whole[..]].concat());
        if format == "binary" {
            for at in [0, 3, 40, whole.len() / 2, whole.len() - 2] {
                let mut flipped = whole.clone();
                flipped[at] ^= 4;
                wrong.push(flipped);
            }
        }
        for bytes in wrong {
            std::fs::write(&file, &bytes).unwrap();
            let copy = place.path("refused");
            let ran = on(&copy, "import", &[&file]);
            assert!(
                ran.code == Some(2) && !ran.err.contains("panicked"),
                "{format}{gz}, {} bytes: {ran:?}",
                bytes.len()
            );
            assert!(ran.err.contains(&file), "{ran:?}");
            assert!(!Path::new(&copy).exists(), "a file is checked before anything is written");
        }
    }
    // A stream cannot be checked first: what was imported is said.
    let text = place.run("export", &["--keyspace", "users"]).ok();
    let end = text[..text.len() / 2].rfind('\n').unwrap() + 1;
    let other = Place::new();
    let ran = other.run_with_input("import", &[], &text.as_bytes()[..end]);
    let count = text[..end].lines().count() - 2;
    assert!(count > 1000 && ran.out.is_empty(), "{ran:?}");
    let told = format!("Imported before that: {},{:03} entries.", count / 1000, count % 1000);
    ran.fails(2, &told);
    assert_eq!(contents(&other.db())[1].1.len(), count);
    other.run_with_input("import", &[], text.as_bytes()).ok();
    assert!(contents(&other.db())[1].1 == contents(&place.db())[1].1);
}

/// A key whose value cannot be read must not be left out without a word, and a broken export must
/// not look like one.
#[test]
fn an_export_that_fails_leaves_no_file() {
    let place = Place::new();
    filled(&place);
    place.run("compact", &[]).ok();
    let table = std::fs::read_dir(place.db()).unwrap().map(|entry| entry.unwrap().path());
    let table = table
        .filter(|path| path.extension().is_some_and(|e| e == "tam"))
        .max_by_key(|path| path.metadata().unwrap().len());
    let table = table.unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let file = place.path("export.bin");
    let name = table.file_name().unwrap().to_str().unwrap();
    place.run("export", &["--format", "binary", "--out", &file]).fails(3, name);
    assert!(!Path::new(&file).exists() && !Path::new(&format!("{file}.partial")).exists());
    let ran = place.run("export", &[]);
    assert_eq!(ran.code, Some(3));
    let other = Place::new();
    assert_eq!(other.run_with_input("import", &[], ran.out.as_bytes()).code, Some(2), "its end is missing");
    place.run("export", &["--out", &place.path("no/such/dir")]).fails(2, "no/such/dir");
}
