//! Keyspaces other than the default one, which were out of the program's reach.

use std::path::Path;

use serde_json::Value;

use crate::support::{Place, run, tamis};

fn names(place: &Place) -> Vec<String> {
    let listed = keyspaces(place, "list", &["--json"]).ok();
    let name = |line| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned();
    listed.lines().map(name).collect()
}

fn keyspaces(place: &Place, what: &str, args: &[&str]) -> crate::support::Ran {
    let mut command = tamis();
    command.args(["keyspaces", what, "--db", &place.db()]).args(args);
    run(command, b"")
}

#[test]
fn keyspaces_are_created_listed_changed_and_dropped() {
    let place = Place::new();
    keyspaces(&place, "list", &[]).fails(2, "no database");
    keyspaces(&place, "create", &["users", "-o", "keyspace.filter=no-such"]).fails(2, "filter");
    assert!(!Path::new(&place.db()).exists(), "nothing is created for wrong options");
    keyspaces(&place, "create", &["users", "-o", "keyspace.filter=grf", "-o", "cache_bytes=1MiB"]).ok();
    keyspaces(&place, "create", &["words", "-o", "keyspace.bits_per_key=14"]).ok();
    assert_eq!(names(&place), ["default", "users", "words"]);
    keyspaces(&place, "create", &["users"]).fails(2, "exists");
    keyspaces(&place, "create", &["default"]).fails(2, "default");
    keyspaces(&place, "create", &["a\nb"]).fails(2, "`a\\nb` cannot name a keyspace");
    let page = keyspaces(&place, "list", &[]).ok();
    assert!(page.contains("users") && page.contains("grf") && page.contains("14"), "{page}");
    let stored = std::fs::read_to_string(place.path("db/OPTIONS")).unwrap();
    assert!(stored.contains("cache_bytes = 1 MiB"), "{stored}");
    assert!(!stored.contains("keyspace.filter = grf"), "not those of the default keyspace: {stored}");

    keyspaces(&place, "set", &["words", "bits_per_key=9", "keyspace.compaction=tiering"]).ok();
    let page = keyspaces(&place, "list", &["--json"]).ok();
    let words: Value = serde_json::from_str(page.lines().last().unwrap()).unwrap();
    assert_eq!((&words["bits_per_key"], &words["compaction"]), (&9.0.into(), &"tiering".into()));
    keyspaces(&place, "set", &["words", "block_bytes=many"]).fails(2, "block_bytes");
    keyspaces(&place, "set", &["none", "bits_per_key=9"]).fails(2, "no keyspace called `none`");

    keyspaces(&place, "drop", &["users"]).ok();
    keyspaces(&place, "drop", &["users"]).fails(2, "no keyspace called `users`");
    keyspaces(&place, "drop", &["default"]).fails(2, "cannot be dropped");
    assert_eq!(names(&place), ["default", "words"]);
}

#[test]
fn every_command_that_reads_or_writes_takes_a_keyspace() {
    let place = Place::new();
    let of =
        |subcommand: &str, args: &[&str]| place.run(subcommand, &[&["--keyspace", "users"], args].concat());
    of("put", &["k", "v"]).fails(2, "no database");
    assert!(!Path::new(&place.db()).exists(), "a new database has no such keyspace");
    place.run("put", &["k", "default"]).ok();
    of("put", &["k", "v"]).fails(2, "no keyspace called `users`; `tamis keyspaces list` shows them");
    keyspaces(&place, "create", &["users"]).ok();

    of("put", &["k", "v"]).ok();
    of("put", &["l", "w"]).ok();
    assert_eq!(of("get", &["k"]).ok(), "v\n");
    assert_eq!(place.run("get", &["k"]).ok(), "default\n");
    assert!(of("explain", &["l"]).ok().contains("found"));
    place.run_with_input("load", &["--keyspace", "users", "--format", "tsv", "-"], b"m\tx\nn\ty\n").ok();
    assert_eq!(of("scan", &[]).ok(), "k\tv\nl\tw\nm\tx\nn\ty\n");
    of("del", &["k"]).ok();
    of("del", &["--range", "m", "n"]).ok();
    of("del", &["--prefix", "l"]).ok();
    assert_eq!(of("scan", &["--prefix", "n"]).ok(), "n\ty\n");
    assert_eq!(of("scan", &["--keys-only"]).ok(), "n\n");
    assert!(of("compact", &[]).ok().contains("level"));
    let stats: Value = serde_json::from_str(&of("stats", &["--json"]).ok()).unwrap();
    assert_eq!(stats["keyspaces"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&stats["keyspaces"][0]["name"], &stats["keyspaces"][0]["entries"]),
        (&"users".into(), &1.into())
    );
    of("heatmap", &[]).fails(1, "no table of keyspace `users`");
    let table = place.path("table.tam");
    let mut build = tamis();
    build.args(["build-table", "--out", &table, "-"]);
    run(build, b"o\n").ok();
    of("ingest", &[&table]).ok();
    let advice = of("advise", &["--quick", "--workload", "get 50, put 50"]).ok();
    assert!(advice.contains("data      2 entries"), "{advice}");
    assert_eq!(place.run("scan", &[]).ok(), "k\tdefault\n", "the default keyspace is as it was");
}

/// `-o keyspace.…` is about the keyspace that the command names.
#[test]
fn options_of_a_keyspace_go_to_the_keyspace_named() {
    let place = Place::new();
    keyspaces(&place, "create", &["users"]).ok();
    place.run("put", &["--keyspace", "users", "-o", "keyspace.bits_per_key=13", "k", "v"]).ok();
    let lines = keyspaces(&place, "list", &["--json"]).ok();
    let bits = |line: &str| serde_json::from_str::<Value>(line).unwrap()["bits_per_key"].as_f64().unwrap();
    assert_eq!(lines.lines().map(bits).collect::<Vec<_>>(), [10.0, 13.0]);
    place
        .run("get", &["--keyspace", "users", "-o", "keyspace.bits_per_key=12", "k"])
        .fails(2, "changes no option");
    place.run("put", &["--keyspace", "users", "-o", "keyspace.levels=4", "k", "v"]).fails(2, "levels");
}
