//! `tamis verify` on damaged databases.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Place, run, tamis};

/// A database with tables in two keyspaces and synced writes in its log.
fn filled() -> Place {
    let place = Place::new();
    let lines: String = (0..2000).map(|i| format!("key{i:05}\tvalue of number {i}\n")).collect();
    place.run_with_input("load", &["--format", "tsv", "-"], lines.as_bytes()).ok();
    let mut create = tamis();
    create.args(["keyspaces", "create", "--db", &place.db(), "users"]);
    run(create, b"").ok();
    place.run_with_input("load", &["--keyspace", "users", "--format", "tsv", "-"], lines.as_bytes()).ok();
    place.run("compact", &[]).ok();
    place.run("compact", &["--keyspace", "users"]).ok();
    {
        let db = tamis::Db::open(place.db()).unwrap();
        for i in 0..20 {
            let mut batch = tamis::WriteBatch::new();
            batch.put(format!("late{i}"), "x".repeat(100));
            db.write_with(batch, tamis::Durability::Sync).unwrap();
        }
        db.close().unwrap();
    }
    place
}

fn files(place: &Place, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.db()).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| fits(path.file_name().unwrap().to_str().unwrap())).collect();
    found.sort();
    found
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    std::fs::write(path, bytes).unwrap();
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Checks that `verify` names this file and only this file, and finds all tables but those sound.
fn finds(place: &Place, damaged: &str, to_do: &str) -> Value {
    let tables = files(place, |name| name.ends_with(".tam")).len();
    let ran = place.run("verify", &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let page = &ran.out;
    assert!(page.contains(&format!("damaged: {damaged}")), "{page}");
    assert!(page.contains("sound: ") && page.contains("to do: ") && page.contains(to_do), "{page}");
    let ran = place.run("verify", &["--json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let object: Value = serde_json::from_str(&ran.out).unwrap();
    let checked = object["files"].as_array().unwrap();
    for file in checked {
        let sound = file["problems"].as_array().unwrap().is_empty();
        assert_eq!(sound, file["file"] != damaged, "{file}");
    }
    assert_eq!(checked.iter().filter(|file| file["kind"] == "table").count(), tables, "{object}");
    assert!(
        !object["advice"].as_array().unwrap().is_empty()
            && !object["problems"].as_array().unwrap().is_empty()
    );
    object
}

/// It stopped before any table, and advised to run `verify`.
#[test]
fn a_damaged_log_does_not_keep_the_tables_from_being_checked() {
    let place = filled();
    let log = files(&place, |name| name.ends_with(".log")).pop().unwrap();
    flip(&log, 600);
    place.run("get", &["key00001"]).fails(3, name(&log));
    let object = finds(&place, name(&log), "tamis salvage");
    assert!(object["unopenable"].as_str().unwrap().contains(name(&log)), "{object}");
    assert_eq!(object["entries"], 4000, "{object}");
    let readable =
        object["files"].as_array().unwrap().iter().find(|file| file["file"] == name(&log)).unwrap();
    assert!((1..20).contains(&readable["entries"].as_u64().unwrap()), "{readable}");

    // What it advises works.
    let mut salvage = tamis();
    salvage.args(["salvage", "--db", &place.db()]);
    assert_eq!(run(salvage, b"").code, Some(1));
    assert!(place.run("verify", &[]).ok().contains("all sound"));
    assert_eq!(place.run("get", &["key00001"]).ok(), "value of number 1\n");
}

/// It advised a salvage, which does not read values and said that nothing was wrong.
#[test]
fn damaged_values_are_restored_from_a_copy() {
    let place = Place::new();
    let lines: String = (0..300).map(|i| format!("key{i:03}\t{i:02000}\n")).collect();
    let load = ["-o", "keyspace.blob_threshold=1000", "--format", "tsv", "-"];
    place.run_with_input("load", &load, lines.as_bytes()).ok();
    let values = files(&place, |name| name.ends_with(".blb")).pop().expect("a blob file");
    let whole = std::fs::read(&values).unwrap();
    let salvage = || {
        let mut salvage = tamis();
        salvage.args(["salvage", "--db", &place.db()]);
        run(salvage, b"").ok()
    };
    assert!(place.run("verify", &[]).ok().contains("all sound"));
    let damage: [&dyn Fn(); 2] = [&|| flip(&values, whole.len() / 2), &|| {
        std::fs::write(&values, &whole[..whole.len() / 2]).unwrap();
    }];
    for damage in damage {
        damage();
        let object = finds(&place, name(&values), "sound copy");
        assert!(object["unopenable"].is_null(), "{object}");
        let told = salvage();
        assert!(told.contains("nothing to salvage") && told.contains("tamis verify"), "{told}");
        std::fs::write(&values, &whole).unwrap();
        assert!(place.run("verify", &[]).ok().contains("all sound"));
    }
}

#[test]
fn other_damage_is_told_from_what_is_sound() {
    let place = filled();
    let table = files(&place, |name| name.ends_with(".tam")).pop().unwrap();
    let whole = std::fs::read(&table).unwrap();
    // Within a block: the table opens.
    flip(&table, whole.len() / 4);
    let object = finds(&place, name(&table), "sound copy");
    assert!(object["unopenable"].is_null(), "{object}");
    assert!(object["log_writes"] == 20, "the logs were checked, too: {object}");
    // It does not open.
    std::fs::write(&table, &whole[..whole.len() / 2]).unwrap();
    finds(&place, name(&table), "sound copy");
    std::fs::write(&table, &whole).unwrap();
    place.run("verify", &[]).ok();

    let options = place.path("db/OPTIONS");
    let text = std::fs::read(&options).unwrap();
    std::fs::write(&options, b"\xff\xfe").unwrap();
    let ran = place.run("verify", &[]);
    assert!(
        ran.code == Some(1) && ran.out.contains("options cannot be read") && ran.out.contains("OPTIONS"),
        "{ran:?}"
    );
    std::fs::write(&options, &text).unwrap();
    place.run("verify", &["-o", "no_such_option=1"]).fails(2, "no_such_option");

    let manifest = files(&place, |name| name.starts_with("MANIFEST")).pop().unwrap();
    let size = std::fs::metadata(&manifest).unwrap().len() as usize;
    flip(&manifest, size / 2);
    finds(&place, name(&manifest), "tamis salvage");
    std::fs::remove_file(place.path("db/CURRENT")).unwrap();
    let ran = place.run("verify", &[]);
    assert!(ran.code == Some(1) && ran.out.contains("CURRENT"), "{ran:?}");
    std::fs::remove_dir_all(place.db()).unwrap();
    place.run("verify", &[]).fails(2, "no database");
}
