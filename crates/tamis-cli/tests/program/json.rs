//! What every command prints with `--json`.

use std::path::Path;

use serde_json::Value;

use crate::documents::words;
use crate::support::{Place, Ran, run, tamis};
use crate::usage::{help, names};
use crate::watching::Served;

/// Each command that has `--json`, in a run on a small database. `DB` is a database with elastic
/// filters, `OTHER` one that the command may change, `NEW` a path where nothing is, `INPUT` a file
/// with lines, `TABLE` and `EXPORT` what `build-table` and `export` made of them.
const RUNS: &[&str] = &[
    "--db NEW --records 200 --rounds 1",
    "load --db NEW INPUT",
    "build-table --sort --out NEW INPUT",
    "ingest --db NEW TABLE",
    "export --db DB --out NEW",
    "import --db NEW EXPORT",
    "get --db DB b",
    "get --db DB --hex 62",
    "del --db OTHER b",
    "del --db OTHER --prefix c",
    "scan --db DB",
    "explain --db DB b",
    "explain --db DB --scan 2 a",
    "stats --db DB",
    "top --once --db DB",
    "heatmap --db DB",
    "verify --db DB",
    "salvage --db DB --dry-run",
    "keyspaces list --db DB",
    "keyspaces drop --db OTHER users",
    "compact --db OTHER",
    "options",
    "advise --keys 1000 --quick --workload \"get 9, put 1\"",
    "bench --keys 1000 --workload get-empty",
    "stress --rounds 1 --kill-within 1",
    "soak --seconds 1 --threads 1",
];

/// A database with everything that the commands need.
struct Small(Place);

impl Small {
    fn new() -> Small {
        let place = Place::new();
        // Neither key nor value of the last is UTF-8.
        std::fs::write(place.path("input"), b"a\t1\nb\t2\nc\t3\nd\xff\t\xfe\n").unwrap();
        let small = Small(place);
        small.run("load --db DB --filter elastic --format tsv INPUT").ok();
        small.run("load --db OTHER --format tsv INPUT").ok();
        small.run("keyspaces create --db OTHER users").ok();
        small.run("build-table --out TABLE --format tsv INPUT").ok();
        small.run("export --db DB --out EXPORT").ok();
        small
    }

    fn run(&self, line: &str) -> Ran {
        let mut tamis = tamis();
        for word in words(line) {
            tamis.arg(match &word[..] {
                "DB" | "OTHER" | "NEW" | "INPUT" | "TABLE" | "EXPORT" => self.0.path(&word.to_lowercase()),
                word => word.to_owned(),
            });
        }
        run(tamis, b"")
    }

    /// Runs a command, and returns the values that it prints, one a line.
    fn values(&self, line: &str) -> Vec<Value> {
        let ran = self.run(&format!("{line} --json"));
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        let value =
            |text| serde_json::from_str(text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"));
        let values: Vec<Value> = ran.out.lines().map(value).collect();
        for value in &values {
            assert!(value.is_object(), "{line}: {value}");
            check(line, "", value);
        }
        let new = self.0.path("new");
        match Path::new(&new).is_dir() {
            true => std::fs::remove_dir_all(new).unwrap(),
            false => std::fs::remove_file(new).unwrap_or_default(),
        }
        values
    }

    fn value(&self, line: &str) -> Value {
        let mut values = self.values(line);
        assert_eq!(values.len(), 1, "{line}");
        values.remove(0)
    }
}

/// Sizes are numbers, times have a unit in their name.
fn check(line: &str, name: &str, value: &Value) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| check(line, name, value)),
        Value::Array(values) => values.iter().for_each(|value| check(line, name, value)),
        Value::String(text) => {
            assert!(name != "bytes" && !name.ends_with("_bytes"), "{line}: {name} is {text:?}");
            if name.ends_with("_hex") {
                assert!(text.bytes().all(|digit| digit.is_ascii_hexdigit()), "{line}: {name} is {text:?}");
            }
        }
        Value::Number(_) => {
            let last = name.rsplit('_').next().unwrap_or_default();
            let bare = ["time", "age", "took", "elapsed", "duration", "latency", "written", "interval"];
            assert!(name == "life_time" || !bare.contains(&last), "{line}: {name} has no unit");
        }
        Value::Bool(_) | Value::Null => {}
    }
}

#[test]
fn every_command_that_takes_json_prints_it() {
    let small = Small::new();
    let known = |name: &str| {
        let fits = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        RUNS.iter().any(fits)
    };
    for name in names() {
        let has_json = help(&name.split(' ').collect::<Vec<_>>()).contains("--json");
        // It does not end: below.
        assert!(name == "serve" || known(&name) == has_json, "{name} has --json: {has_json}");
    }
    for line in RUNS {
        assert!(!small.values(line).is_empty(), "{line} prints nothing");
    }
}

#[test]
fn one_thing_has_one_shape() {
    let small = Small::new();
    let scan = small.values("scan --db DB");
    assert_eq!(small.value("get --db DB b"), scan[1]);
    assert_eq!(scan[3], serde_json::json!({ "key_hex": "64ff", "value_hex": "fe" }));
    assert_eq!(small.value("get --db DB --hex 64ff"), scan[3]);
    let table = small.value("build-table --out NEW --format tsv INPUT");
    assert_eq!((&table["smallest"], &table["largest_hex"]), (&"a".into(), &"64ff".into()), "{table}");
    assert_eq!(table["raw_bytes"], small.value("load --db NEW --format tsv INPUT")["raw_bytes"]);
    let compacted = small.value("compact --db OTHER");
    let stats = small.value("stats --db OTHER");
    assert_eq!(compacted["name"], "default");
    for (name, value) in compacted.as_object().unwrap() {
        assert_eq!(stats["keyspaces"][0][name].is_number(), value.is_number(), "{name}");
    }
    assert_eq!(compacted["table_bytes"], stats["keyspaces"][0]["table_bytes"]);
    let users = &small.values("keyspaces list --db OTHER")[1];
    let dropped = small.value("keyspaces drop --db OTHER users");
    for (name, value) in dropped.as_object().unwrap() {
        assert_eq!(&users[name], value, "{name}");
    }
}

#[test]
fn deletes_say_how_many_keys_if_they_know() {
    let small = Small::new();
    let deleted = |line: &str| small.value(&format!("del --db OTHER {line}"))["deleted"].clone();
    assert_eq!(deleted("a"), Value::Null);
    assert_eq!(deleted("--range b d"), 2);
    assert_eq!(deleted("--all"), 1);
}

#[test]
fn a_reading_of_top_has_every_metric() {
    let small = Small::new();
    let reading = small.value("top --once --db DB");
    assert_eq!(reading["path"], small.0.db());
    assert!(reading["published"].is_null() && reading["since_seconds"].is_null(), "{reading}");
    let metrics = reading["metrics"].as_array().unwrap();
    let entries = metrics.iter().find(|metric| metric["name"] == "tamis_entries").expect("the entries");
    assert_eq!(
        entries,
        &serde_json::json!({ "name": "tamis_entries", "labels": { "keyspace": "default" }, "value": 4 })
    );
    // With rates, beside a process that publishes.
    let _writer = Served::start(&["--write", "--publish", "1s", "--db", &small.0.db()]);
    let stats = std::path::PathBuf::from(small.0.path("db/STATS"));
    while !stats.exists() {
        std::thread::yield_now();
    }
    let reading = small.value("top --once --db DB");
    assert_eq!(reading["published"]["interval_seconds"], 1.0, "{reading}");
    assert!(reading["since_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let metrics = reading["metrics"].as_array().unwrap();
    let gets = metrics.iter().find(|metric| metric["name"] == "tamis_read_gets_total").expect("the gets");
    assert_eq!((&gets["value"], &gets["per_second"]), (&0.into(), &0.0.into()));
}

/// A failure is a message and an exit code, and never half an object.
#[test]
fn failures_are_text_on_standard_error() {
    let small = Small::new();
    for line in RUNS.iter().filter(|line| line.contains(" DB") || line.contains(" OTHER")) {
        let line = line.replace(" DB", " NEW").replace(" OTHER", " NEW").replace("--out NEW", "--out EXPORT");
        let ran = small.run(&format!("{line} --json"));
        assert!(ran.out.is_empty() && ran.err.starts_with("tamis: "), "{line}: {ran:?}");
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
    }
    let missing = small.run("get --db DB nothing --json");
    assert_eq!((missing.code, &missing.out[..], &missing.err[..]), (Some(1), "", "not found\n"));
    small.run("get --db DB b --raw --json").fails(2, "--raw");
    small.run("put --db DB b 1 --json").fails(2, "--json");
}

#[test]
fn serve_says_where_it_listens() {
    let small = Small::new();
    let served = Served::start(&["--json", "--db", &small.0.db()]);
    assert_eq!(served.get("/healthz").0, 200);
}
