//! `--filter` on every command that creates a database.

use std::path::Path;

use serde_json::Value;

use crate::support::{Place, Ran, run, tamis};

#[test]
fn every_command_that_creates_a_database_takes_a_filter() {
    let place = Place::new();
    std::fs::write(place.path("input"), "record\n").unwrap();
    let of = |args: &[&str]| {
        let mut command = tamis();
        command.args(args);
        run(command, b"")
    };
    of(&["build-table", "--out", &place.path("table"), &place.path("input")]).ok();
    place.run("put", &["a", "1"]).ok();
    place.run("export", &["--out", &place.path("export")]).ok();
    let new = place.path("new");
    let (input, table, export) = (place.path("input"), place.path("table"), place.path("export"));
    let filter_of = |keyspace: &str| -> String {
        let listed = of(&["keyspaces", "list", "--db", &new, "--json"]).ok();
        let mut all = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.find(|one| one["name"] == keyspace).unwrap()["filter"].as_str().unwrap().to_owned()
    };
    for (keyspace, line) in [
        ("default", &["put", "--db", &new, "a", "1"][..]),
        ("default", &["load", "--db", &new, &input]),
        ("default", &["ingest", "--db", &new, &table]),
        ("default", &["import", "--db", &new, &export]),
        ("users", &["keyspaces", "create", "--db", &new, "users"]),
        ("users", &["import", "--db", &new, "--keyspace", "default", "--into", "users", &export]),
        ("default", &["bench", "--db", &new, "--keys", "500", "--ops", "10", "--workload", "get-empty"]),
        ("default", &["stress", "--db", &new, "--rounds", "1", "--kill-within", "5"]),
        ("default", &["--db", &new, "--records", "500", "--rounds", "1"]),
    ] {
        let with = |filter: &str| -> Ran { of(&[line, &["--filter", filter]].concat()) };
        with("no-such-filter").fails(2, "no-such-filter");
        assert!(!Path::new(&new).exists(), "{line:?} created a database for a wrong filter");
        with("grf").ok();
        assert_eq!(filter_of(keyspace), "grf", "{line:?}");
        std::fs::remove_dir_all(&new).unwrap();
    }
    // One per level, and that of an existing database.
    of(&["put", "--db", &new, "--filter", "ribbon,blocked-bloom", "a", "1"]).ok();
    assert_eq!(filter_of("default"), "ribbon,blocked-bloom");
    of(&["put", "--db", &new, "--filter", "grf", "b", "2"]).ok();
    assert_eq!(filter_of("default"), "grf");
    of(&["put", "--db", &new, "c", "3"]).ok();
    assert_eq!(filter_of("default"), "grf", "it stays");
    let stats = of(&["stats", "--db", &new]).ok();
    assert!(stats.contains("global"), "{stats}");
}
