//! Options that are misspelt or in the wrong place are refused by every command, before it does anything.

use std::path::Path;

use crate::support::{Place, run, tamis};

/// Every command that `tamis --help` lists, with the least that it accepts. `DB` is a database with the key `a`, `NEW` a path where
/// nothing is, `INPUT` a file with one record.
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
    "salvage DB",
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
    let names =
        commands.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn help(command: &[&str]) -> String {
    let mut tamis = tamis();
    tamis.args(command).arg("--help");
    run(tamis, b"").ok()
}

/// `tamis put --db DIR --durability sync` stored the key `--durability`, and `tamis get --db DIR --keyspace` looked for the key
/// `--keyspace`.
#[test]
fn options_that_do_not_exist_are_refused_by_every_command() {
    let mut names = listed(&help(&[]));
    for name in names.clone() {
        let parts = listed(&help(&[&name]));
        if !parts.is_empty() {
            names.retain(|other| *other != name);
            names.extend(parts.iter().map(|part| format!("{name} {part}")));
        }
    }
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

/// They are made from the definitions of the commands, so it is enough that they name all commands.
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
        for name in names.iter().map(|name| &**name).chain(["keyspace", "filter-budget"]) {
            assert!(script.contains(name), "{name} is not in the script for {shell}");
        }
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
