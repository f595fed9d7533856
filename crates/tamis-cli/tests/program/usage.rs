//! Options that are misspelt or in the wrong place are refused by every command, before it does
//! anything.

use std::path::Path;

use crate::support::{Place, run, tamis};

/// Every command that `tamis --help` lists, with the least that it accepts. `DB` is a database with
/// the key `a`, `NEW` a path where nothing is, `INPUT` a file with one record.
const COMMANDS: &[&str] = &[
    "load --db NEW INPUT",
    "build-table --out NEW INPUT",
    "ingest --db NEW INPUT",
    "export --db DB",
    "import --db NEW INPUT",
    "get --db DB a",
    "put --db NEW a 1",
    "del --db DB a",
    "scan --db DB",
    "explain --db DB a",
    "stats --db DB",
    "top --db DB",
    "serve --db DB",
    "heatmap --db DB",
    "dump INPUT",
    "verify --db DB",
    "salvage --db DB",
    "keyspaces list --db DB",
    "keyspaces create --db NEW x",
    "keyspaces set --db DB default bits_per_key=9",
    "keyspaces drop --db DB x",
    "checkpoint --db DB NEW",
    "compact --db DB",
    "options",
    "advise --db DB",
    "bench --db NEW",
    "stress --db NEW",
    "soak --db NEW",
    "completions bash",
    "man --out NEW",
];

/// The names of the commands in a page of help.
fn listed(help: &str) -> Vec<String> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    // What is indented further goes on about the command above.
    let lines = commands.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter_map(|line| line.split(' ').next().filter(|name| !name.is_empty()));
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

pub(crate) fn help(command: &[&str]) -> String {
    let mut tamis = tamis();
    tamis.args(command).arg("--help");
    run(tamis, b"").ok()
}

/// The commands that `tamis --help` lists, with the parts of those that have any.
pub(crate) fn names() -> Vec<String> {
    let mut names = listed(&help(&[]));
    // In a build without it, it takes any words and says so.
    names.retain(|name| name != "backup");
    for name in names.clone() {
        let parts = listed(&help(&[&name]));
        if !parts.is_empty() {
            names.retain(|other| *other != name);
            names.extend(parts.iter().map(|part| format!("{name} {part}")));
        }
    }
    names
}

/// `tamis put --db DIR --durability sync` stored the key `--durability`, and `tamis get --db DIR
/// --keyspace` looked for the key `--keyspace`.
#[test]
fn options_that_do_not_exist_are_refused_by_every_command() {
    let names = names();
    for name in &names {
        let known = |line: &str| {
            line.strip_prefix(&**name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        assert!(COMMANDS.iter().any(|line| known(line)), "`{name}` is missing from this test");
    }
    let place = Place::new();
    place.run("put", &["a", "1"]).ok();
    std::fs::write(place.path("input"), "record\n").unwrap();
    for line in COMMANDS {
        let words: Vec<&str> = line.split(' ').collect();
        let subcommand = 1 + names
            .iter()
            .filter(|name| line.starts_with(&format!("{name} ")) && name.contains(' '))
            .count();
        for at in subcommand..=words.len() {
            for wrong in [&["--misspelt"][..], &["--misspelt=1"], &["--misspelt", "value"], &["-Z"], &["-5"]]
            {
                let mut tamis = tamis();
                for word in words[..at].iter().chain(wrong).chain(&words[at..]) {
                    tamis.arg(match *word {
                        "DB" => place.db(),
                        "NEW" => place.path("new"),
                        "INPUT" => place.path("input"),
                        word => word.to_owned(),
                    });
                }
                let ran = run(tamis, b"");
                assert_eq!(ran.code, Some(2), "{line} with {wrong:?} at {at}: {ran:?}");
                assert!(ran.err.contains("Usage") || ran.err.contains("for more information"), "{ran:?}");
                assert!(!Path::new(&place.path("new")).exists(), "{line} with {wrong:?} at {at}");
            }
        }
    }
    assert_eq!(place.run("scan", &[]).ok(), "a\t1\n");
}

/// Returns what a shell is offered for the last of some words.
fn offered(words: &[&str]) -> Vec<String> {
    let mut tamis = tamis();
    tamis.env("TAMIS_COMPLETE", "fish").args(["--", "tamis"]).args(words);
    let lines = run(tamis, b"").ok();
    lines.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

/// They knew commands and the names of options only.
#[test]
fn completions_know_values() {
    let place = Place::new();
    let mut create = tamis();
    create.args(["keyspaces", "create", "--db", &place.db(), "users"]);
    run(create, b"").ok();
    let has = |words: &[&str], expected: &[&str]| {
        let offered = offered(words);
        for one in expected {
            assert!(offered.iter().any(|other| other == one), "{words:?}: {one} is not in {offered:?}");
        }
    };
    has(&[""], &["get", "keyspaces", "backup"]);
    has(&["get", "--key"], &["--keyspace"]);
    has(&["get", "--db", &place.db(), "--keyspace", ""], &["default", "users"]);
    has(&["keyspaces", "drop", "--db", &place.db(), ""], &["users"]);
    has(&["load", "--filter", ""], &["blocked-bloom", "grf", "auto"]);
    has(&["load", "--filter", "ribbon,f"], &["ribbon,fuse"]);
    has(&["stats", "-o", "keyspace.bits"], &["keyspace.bits_per_key="]);
    has(&["stats", "-o", "read_mode="], &["read_mode=direct"]);
    has(&["bench", "--workload", "seek-next"], &["seek-next50"]);
    has(&["bench", "--workload", "seek,get-e"], &["seek,get-empty"]);
    assert_eq!(offered(&["get", "--db", &place.path("none"), "--keyspace", ""]), ["default"]);
}

/// `unrecognized subcommand 'backup'` sent the reader of docs/backups.md to look for an error of his
/// own.
#[cfg(not(feature = "object-store"))]
#[test]
fn a_build_without_backups_names_the_feature() {
    for words in [&["backup"][..], &["backup", "create", "s3://bucket/x", "--db", "x"], &["backup", "--help"]]
    {
        let mut command = tamis();
        command.args(words);
        run(command, b"").fails(2, "--features object-store");
    }
}

#[test]
fn misspelt_options_and_decimal_sizes_are_understood() {
    let place = Place::new();
    place
        .run("put", &["-o", "keyspace.bits_per_kei=9", "a", "1"])
        .fails(2, "did you mean `keyspace.bits_per_key`?");
    place.run("put", &["-o", "bits_per_key=9", "a", "1"]).fails(2, "did you mean `keyspace.bits_per_key`?");
    place.run("put", &["-o", "cache_bytes=1GB", "a", "1"]).ok();
    let stored = std::fs::read_to_string(place.path("db/OPTIONS")).unwrap();
    assert!(stored.contains("cache_bytes = 1000000000\n"), "{stored}");
    place.run("put", &["-o", "cache_bytes=1 G", "a", "1"]).fails(2, "1 kB is 1,000");
}

/// `tamis options` listed zstd among the values, and the default build refused it.
#[test]
fn options_list_what_this_build_takes() {
    let mut options = tamis();
    options.args(["options", "--json", "compression"]);
    let text = run(options, b"").ok();
    let option: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let takes = option["takes"].as_str().unwrap();
    let place = Place::new();
    let accepts = place.run("put", &["-o", "keyspace.compression=zstd", "a", "1"]).code == Some(0);
    assert_eq!(takes.contains("not in this build: zstd"), !accepts, "{takes}");
    assert!(takes.contains("none, lz4"), "{takes}");
}

/// A terminal obeyed what was in keys, in names, and in misspelt arguments.
#[test]
fn nothing_hidden_is_printed() {
    let place = Place::new();
    let hostile = "k\u{1b}[31m\u{9b}5m\u{202e}\u{200b}";
    let hidden = |c: char| c != '\n' && c != '\t' && (c.is_control() || matches!(c, '\u{202e}' | '\u{200b}'));
    place.run("put", &[hostile, hostile]).ok();
    let scan = place.run("scan", &[]).ok();
    assert_eq!(
        scan.trim_end().split('\t').next().unwrap(),
        "k\\x1b[31m\\xc2\\x9b5m\\xe2\\x80\\xae\\xe2\\x80\\x8b"
    );
    for command in ["scan", "explain", "export"] {
        let args: &[&str] = match command {
            "scan" => &["--json"],
            "explain" => &["--json", hostile],
            _ => &[],
        };
        let out = place.run(command, args).ok();
        assert!(!out.contains(hidden), "{out:?}");
        assert!(out.lines().any(|line| {
            serde_json::from_str::<serde_json::Value>(line).is_ok_and(|object| object["key"] == hostile)
        }));
    }
    for (command, args) in [
        ("get", &["--keyspace", hostile, "k"][..]),
        ("get", &["--hex", hostile]),
        ("stats", &["-o", &format!("{hostile}=1")]),
        ("stats", &["-o", &format!("durability={hostile}")]),
        ("load", &["--header", "--key-column", hostile, "-"]),
        ("load", &[hostile]),
        ("scan", &["--format", hostile]),
    ] {
        let ran = place.run_with_input(command, args, b"a,b\n");
        assert!(ran.code == Some(2) && !ran.err.contains(hidden), "{command} {args:?}: {ran:?}");
    }
    for words in [
        &["keyspaces", "create", "--db", &place.db(), hostile][..],
        &[hostile],
        &["get", "--db", hostile, "k"],
    ] {
        let mut command = tamis();
        command.args(words);
        let ran = run(command, b"");
        assert!(ran.code == Some(2) && !ran.err.contains(hidden), "{words:?}: {ran:?}");
    }
    // Not a control character, so it may be in a name.
    let name = "users\u{202e}";
    let mut create = tamis();
    create.args(["keyspaces", "create", "--db", &place.db(), name]);
    run(create, b"").ok();
    for command in ["stats", "verify"] {
        assert!(!place.run(command, &[]).ok().contains(hidden));
    }
    assert!(!place.run("top", &["--once"]).ok().contains(hidden));
    let mut list = tamis();
    list.args(["keyspaces", "list", "--db", &place.db()]);
    assert!(!run(list, b"").ok().contains(hidden));
}

/// They are made from the definitions of the commands.
#[test]
fn completions_and_manual_pages_are_generated() {
    let of = |args: &[&str]| {
        let mut tamis = tamis();
        tamis.args(args);
        run(tamis, b"")
    };
    let names = listed(&help(&[]));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = of(&["completions", shell]).ok();
        assert!(
            script.contains("TAMIS_COMPLETE") && script.contains("tamis"),
            "the script for {shell} asks this program"
        );
    }
    of(&["completions", "tcsh"]).fails(2, "possible values");
    let page = of(&["man"]).ok();
    assert!(
        page.contains(".TH tamis 1") && page.contains("SUBCOMMANDS") && page.contains("Exit codes"),
        "{page}"
    );
    let place = Place::new();
    let dir = place.path("man/man1");
    of(&["man", "--out", &dir]).ok();
    for name in names
        .iter()
        .map(|name| format!("tamis-{name}.1"))
        .chain(["tamis.1".into(), "tamis-keyspaces-create.1".into()])
    {
        let page = std::fs::read_to_string(format!("{dir}/{name}")).unwrap_or_else(|_| panic!("{name}"));
        assert!(
            page.contains(".SH SYNOPSIS") && page.contains(&format!(".TH {}", name.trim_end_matches(".1"))),
            "{page}"
        );
    }
    let file = place.path("file");
    std::fs::write(&file, "").unwrap();
    of(&["man", "--out", &file]).fails(2, &file);
}

#[test]
fn keys_and_values_that_begin_with_a_dash_come_after_two_dashes() {
    let place = Place::new();
    place.run("put", &["--sync", "--", "-5", "--value"]).ok();
    place.run("put", &["--", "--hex", "x"]).ok();
    assert_eq!(place.run("get", &["--", "-5"]).ok(), "--value\n");
    assert!(place.run("explain", &["--", "--hex"]).ok().contains("found"));
    assert_eq!(place.run("scan", &["--start=--", "--end=--i"]).ok(), "--hex\tx\n");
    assert_eq!(place.run("scan", &["--prefix=-5"]).ok(), "-5\t--value\n");
    place.run("put", &["-5", "x"]).fails(2, "'-- -5'");
    place.run("scan", &["--start", "--end"]).fails(2, "--start <KEY>");
    place.run("del", &["--range", "--", "--h", "--i"]).ok();
    assert_eq!(place.run("scan", &[]).ok(), "-5\t--value\n");
    place.run("del", &["--range", "a"]).fails(2, "two keys");
    place.run("del", &["--range", "a", "b", "c"]).fails(2, "two keys");
    place.run("del", &["--range", "--prefix", "a"]).fails(2, "--range");
    place.run("del", &["--", "-5"]).ok();
    assert_eq!(place.run("scan", &[]).ok(), "");
}
