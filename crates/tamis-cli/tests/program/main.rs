//! Tests of the built program as a person or a script uses it: its output and exit codes.

mod advise;
mod documents;
mod filters;
mod json;
mod keyspaces;
mod loading;
mod operators;
mod page;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
mod transfer;
mod usage;
mod verify;
mod watching;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use support::{Place, Ran, run, tamis};

#[test]
fn a_put_value_is_returned_until_it_is_deleted() {
    let place = Place::new();
    place.run("put", &["greeting", "hello"]).ok();
    place.run("put", &["--sync", "other", "-"]).ok();
    assert_eq!(place.run("get", &["greeting"]).ok(), "hello\n");
    assert_eq!(place.run("get", &["greeting", "--raw"]).ok(), "hello");
    assert_eq!(place.run("get", &["greeting", "--hex"]).code, Some(2), "`greeting` is not hexadecimal");
    place.run("del", &["greeting"]).ok();
    place.run("get", &["greeting"]).fails(1, "not found");
    assert_eq!(place.run("get", &["other"]).ok(), "\n");
}

/// Every command used to open with default options, so a `put` reset a database with other options
/// to the defaults.
#[test]
fn a_command_keeps_the_options_that_the_database_was_created_with() {
    let place = Place::new();
    place.run("put", &["-o", "keyspace.bits_per_key=14", "a", "1"]).ok();
    place.run("put", &["b", "2"]).ok();
    let stored = std::fs::read_to_string(place.path("db/OPTIONS")).unwrap();
    assert!(stored.contains("keyspace.bits_per_key = 14"), "{stored}");
    place.run("put", &["-o", "keyspace.bits_per_key=12", "c", "3"]).ok();
    let stored = std::fs::read_to_string(place.path("db/OPTIONS")).unwrap();
    assert!(stored.contains("keyspace.bits_per_key = 12"), "{stored}");
}

#[test]
fn binary_keys_and_values_go_in_and_out_as_hex() {
    let place = Place::new();
    place.run("put", &["--hex", "00ff", "0A0b"]).ok();
    assert_eq!(place.run("get", &["--hex", "00FF"]).ok(), "0a0b\n");
    place.run_with_input("put", &["--hex", "01", "-"], b"\xfe\n").ok();
    assert_eq!(place.run("scan", &["--hex"]).ok(), "00ff\t0a0b\n01\tfe0a\n");
    assert_eq!(place.run("scan", &[]).ok(), "\\x00\\xff\t\\n\\x0b\n\\x01\t\\xfe\\n\n");
    place.run("get", &["--hex", "0"]).fails(2, "odd number");
    place.run("get", &["0x00ff"]).fails(1, "not found");
}

#[test]
fn scans_respect_bounds_prefix_limit_and_direction() {
    let place = Place::new();
    place.run_with_input("load", &["--format", "tsv", "-"], b"a\t1\nab\t2\nb\t3\nc\t4\n").ok();
    let scan = |args: &[&str]| place.run("scan", args).ok();
    assert_eq!(scan(&[]), "a\t1\nab\t2\nb\t3\nc\t4\n");
    assert_eq!(scan(&["--start", "ab", "--end", "c"]), "ab\t2\nb\t3\n");
    assert_eq!(scan(&["--prefix", "a", "--keys-only"]), "a\nab\n");
    assert_eq!(scan(&["--reverse", "--limit", "2"]), "c\t4\nb\t3\n");
    assert_eq!(scan(&["--start", "x"]), "");
    assert_eq!(scan(&["--limit", "1", "--json"]), "{\"key\":\"a\",\"value\":\"1\"}\n");
    place.run("scan", &["--start", "b", "--end", "a"]).fails(2, "after the end");
}

#[test]
fn ranges_and_prefixes_are_deleted() {
    let place = Place::new();
    place.run_with_input("load", &["-"], b"a\nab\nb\nc\nd\n").ok();
    assert_eq!(place.run("del", &["--range", "b", "d"]).ok(), "deleted 2 keys\n");
    assert_eq!(place.run("scan", &["--keys-only"]).ok(), "a\nab\nd\n");
    assert_eq!(place.run("del", &["--prefix", "a"]).ok(), "deleted 2 keys\n");
    assert_eq!(place.run("del", &["--prefix", "a"]).ok(), "deleted 0 keys\n");
    assert_eq!(place.run("scan", &["--keys-only"]).ok(), "d\n");
    place.run("del", &["--range", "z", "a"]).fails(2, "after its end");
}

/// `tamis del --prefix "$UNSET"` emptied a database, and said nothing.
#[test]
fn everything_is_deleted_on_request_only() {
    let place = Place::new();
    place.run_with_input("load", &["-"], b"a\nb\nc\n").ok();
    for empty in [&["--prefix", ""][..], &["--hex", "--prefix", ""]] {
        place.run("del", empty).fails(2, "--all");
    }
    place.run("del", &["--all", "a"]).fails(2, "--all");
    place.run("del", &["--all", "--prefix", "a"]).fails(2, "--all");
    assert_eq!(place.run("del", &["--range", "a", "b"]).ok(), "deleted 1 key\n");
    assert_eq!(place.run("scan", &[]).ok().lines().count(), 2);
    assert_eq!(place.run("del", &["--all"]).ok(), "deleted 2 keys\n");
    assert_eq!(place.run("scan", &[]).ok(), "");
    let mut drop = tamis();
    drop.args(["keyspaces", "create", "--db", &place.db(), "users"]);
    run(drop, b"").ok();
    place.run("put", &["--keyspace", "users", "k", "v"]).ok();
    let mut drop = tamis();
    drop.args(["keyspaces", "drop", "--db", &place.db(), "users"]);
    assert!(run(drop, b"").ok().starts_with("dropped keyspace users: 1 entry, "));
}

/// Such records were loaded with empty values, and the summary said "0 bad".
#[test]
fn records_without_one_of_the_columns_are_bad() {
    let place = Place::new();
    let load = |format: &str, more: &[&str], input: &[u8]| {
        place.run_with_input("load", &[&["--format", format], more, &["-"]].concat(), input)
    };
    load("csv", &["--header"], b"id,name\n1,one\n2\n")
        .fails(2, "line 3: the record has 1 column, the header 2");
    load("tsv", &[], b"3\tthree\n4\n").fails(2, "line 2: the record has no value");
    load("csv", &["--header"], b"").fails(2, "it has no header");
    assert_eq!(place.run("scan", &[]).ok(), "1\tone\n3\tthree\n");
    load("tsv", &[], b"5\n6\n").ok();
}

#[test]
fn csv_columns_are_chosen_by_name() {
    let place = Place::new();
    let file = place.path("users.csv");
    std::fs::write(&file, "id,email,name\n7,a@x,\"Doe, J\"\n8,b@x,Roe\n").unwrap();
    place.run("load", &["--header", "--key-column", "email", "--value-column", "name", &file]).ok();
    assert_eq!(place.run("scan", &[]).ok(), "a@x\tDoe, J\nb@x\tRoe\n");
    place.run("load", &["--header", "--key-column", "phone", &file]).fails(2, "id, email, name");
}

#[test]
fn bad_records_are_reported_by_line_and_good_ones_loaded() {
    let place = Place::new();
    let input = b"61\t62\nxx\t1\n63\n\n64\t65\n";
    let ran =
        place.run_with_input("load", &["--format", "tsv", "--hex", "--value-column", "2", "--json"], input);
    let summary: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((summary["loaded"].as_u64(), summary["bad"].as_u64()), (Some(2), Some(3)));
    for line in ["line 2: ", "line 3: ", "line 4: "] {
        assert!(ran.err.contains(line), "{ran:?}");
    }
    ran.fails(2, "hexadecimal");
    assert_eq!(place.run("scan", &["--keys-only"]).ok(), "a\nd\n");
}

fn dump(args: &[&str]) -> Ran {
    let mut command = tamis();
    command.arg("dump").args(args);
    run(command, b"")
}

/// A wrong name used to be reported as damage.
#[test]
fn a_file_under_a_wrong_name_is_identified_by_its_contents() {
    let place = Place::new();
    place.run("put", &["key", "in a table"]).ok();
    place.run("compact", &[]).ok();
    place.run("put", &["key", "in a log"]).ok();
    let find = |end: &str, start: &str| {
        let names = std::fs::read_dir(place.db()).unwrap().map(|entry| entry.unwrap().path());
        let fits = |name: &str| name.ends_with(end) && name.starts_with(start);
        let mut found: Vec<_> =
            names.filter(|path| fits(path.file_name().unwrap().to_str().unwrap())).collect();
        found.sort();
        found.pop().expect("a file").to_str().unwrap().to_owned()
    };
    let (table, log, manifest) = (find(".tam", ""), find(".log", ""), find("", "MANIFEST-"));
    let external = place.path("external.tam");
    build_table(&["--out", &external], b"a\n").ok();
    let digits = |path: &str| path.chars().filter(char::is_ascii_digit).rev().take(6).collect::<String>();
    let number = |path: &str| digits(path).chars().rev().collect::<String>().parse::<u64>().unwrap();
    let (log_is, manifest_is) =
        (format!("the log {}", number(&log)), format!("the manifest {}", number(&manifest)));
    let copy = |from: &str, name: &str| {
        let to = place.path(name);
        std::fs::copy(from, &to).unwrap();
        to
    };

    // It printed `Some(Closed { offset: 47, successor: None })`.
    for file in [&log, &manifest] {
        let shown = dump(&[file]).ok();
        let last = shown.lines().last().unwrap();
        assert!(last.starts_with("ends at ") && !shown.contains("Some(") && !shown.contains("{ "), "{shown}");
    }
    // By their names, and by their contents where the name does not tell.
    for (file, part) in [(&table, "in a table"), (&log, "in a log"), (&manifest, "create keyspace 0")] {
        assert!(dump(&[file]).ok().contains(part), "{file}");
        assert!(dump(&[&copy(file, "no-name")]).ok().contains(part), "{file}");
    }
    // Under wrong names, with and without --kind.
    for (from, name, is, kind, part) in [
        (
            &table,
            "000007.log",
            "a table, not the log that its name says; --kind table",
            "table",
            "in a table",
        ),
        (&table, "MANIFEST-000007", "a table, not the manifest", "table", "in a table"),
        (&external, "000007.log", "an external table, not the log", "table", "external"),
        (&log, "000007.tam", &format!("{log_is}, not the table"), "log", "in a log"),
        (&log, "MANIFEST-000007", &format!("{log_is}, not the manifest"), "log", "in a log"),
        (&manifest, "000007.tam", &format!("{manifest_is}, not the table"), "manifest", "create keyspace 0"),
        (&manifest, "000007.log", &format!("{manifest_is}, not the log"), "manifest", "create keyspace 0"),
    ] {
        let file = copy(from, name);
        let ran = dump(&[&file]);
        assert!(!ran.err.contains("damaged") && ran.out.is_empty(), "{ran:?}");
        ran.fails(2, is);
        let shown = dump(&["--kind", kind, &file]).ok();
        assert!(shown.contains(part), "{name}: {shown}");
    }
    dump(&["--kind", "log", &table]).fails(2, "is a table, not a log; --kind table prints it");
    // Under the number of another.
    for (other, part) in [("000001.log", ""), ("999999.log", ", or was being reused")] {
        let shown = dump(&[&copy(&log, other)]).ok();
        let told = format!("this is log {}, not {}: the file was renamed{part}", number(&log), number(other));
        assert!(number(&log) > 1 && shown.contains(&told) && shown.contains("in a log"), "{shown}");
    }
    let shown = dump(&[&copy(&manifest, "MANIFEST-999999")]).ok();
    assert!(shown.contains(&format!("this is manifest {}, not 999999", number(&manifest))), "{shown}");

    // Files of other kinds.
    for name in ["000008.tam", "000008.log", "MANIFEST-000008", "notes"] {
        let file = place.path(name);
        std::fs::write(&file, "This is text.\n").unwrap();
        let ran = dump(&[&file]);
        assert!(!ran.err.contains("damaged"), "{ran:?}");
        ran.fails(2, "is a text file");
        std::fs::write(&file, "").unwrap();
        match name.ends_with(".log") {
            true => assert!(dump(&[&file]).ok().contains("the file is empty")),
            false => dump(&[&file]).fails(2, "is an empty file"),
        }
    }
    dump(&[&place.path("db/CURRENT")]).fails(2, "is a text file, which dump does not print");
    dump(&[&place.db()]).fails(2, "is a directory");
    let bytes = place.path("bytes");
    std::fs::write(&bytes, [0, 1, 2]).unwrap();
    dump(&[&bytes]).fails(2, "--kind");
    // A file that has lost its mark is damaged.
    let whole = std::fs::read(&table).unwrap();
    std::fs::write(&table, &whole[..whole.len() - 1]).unwrap();
    dump(&[&table]).fails(3, "damaged");
    std::fs::write(&table, &whole).unwrap();

    // Other commands that take files.
    let copies = [&table, &log, &manifest].map(|file| copy(file, &format!("copy-of-{}", digits(file))));
    for (file, part) in copies.iter().zip(["a table of a database", &log_is, &manifest_is]) {
        place.run("ingest", &[file]).fails(2, part);
        place.run("load", &[file]).fails(2, part);
        build_table(&["--out", &place.path("new.tam"), file], b"").fails(2, part);
    }
    place.run("load", &[&external]).fails(2, "`tamis ingest`");
    let text = place.path("notes");
    std::fs::write(&text, "text\n").unwrap();
    place.run("ingest", &[&text]).fails(2, "it is a text file");
    std::fs::write(&text, "").unwrap();
    place.run("ingest", &[&text]).fails(2, "it is an empty file");
    place.run("ingest", &[&external]).ok();
}

/// Returns the JSON object and the message of a failed load.
fn failed_load(ran: Ran) -> (Value, String) {
    let object: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    assert!(object["failed"].is_object(), "{ran:?}");
    (object, ran.err)
}

#[test]
fn a_load_whose_input_breaks_off_keeps_its_records_and_says_where_to_resume() {
    let place = Place::new();
    let lines: String = (0..100_000).map(|i| format!("{}\n", (i * 7919) % 100_003)).collect();
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(lines.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let file = place.path("numbers.gz");
    std::fs::write(&file, &packed[..packed.len() / 2]).unwrap();
    let ran = place.run("load", &["--json", &file]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let (object, message) = failed_load(ran);
    let (loaded, failed) = (object["loaded"].as_u64().unwrap(), &object["failed"]);
    assert!(loaded > 10_000 && loaded < 90_000, "{object}");
    assert_eq!((&failed["read"], &failed["refused"]), (&loaded.into(), &0.into()), "{object}");
    assert_eq!((&failed["synced"], &failed["from_line"]), (&true.into(), &(loaded + 1).into()), "{object}");
    let bytes: usize = lines.lines().take(loaded as usize).map(|line| line.len() + 1).sum();
    assert_eq!(failed["from_byte"].as_u64(), Some(bytes as u64));
    assert!(message.contains("could not read") && message.contains("They are synced"), "{message}");
    assert!(message.contains(&format!("--from-line {}", loaded + 1)), "{message}");

    // Exactly those are stored, and the rest follows with the rest of the input.
    let keys = |lines: &mut dyn Iterator<Item = &str>| {
        let mut keys: Vec<String> = lines.map(|line| format!("{line}\n")).collect();
        keys.sort();
        keys.concat()
    };
    let stored = || place.run("scan", &["--keys-only"]).ok();
    assert!(stored() == keys(&mut lines.lines().take(loaded as usize)));
    std::fs::write(&file, &packed).unwrap();
    let from = (loaded + 1).to_string();
    let out = place.run("load", &["--json", "--from-line", &from, &file]).ok();
    let rest: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rest["loaded"].as_u64(), Some(100_000 - loaded));
    assert!(stored() == keys(&mut lines.lines()));
}

/// A file size limit stands in for a full disk, which would require root.
#[cfg(target_os = "linux")]
#[test]
fn a_load_that_fails_in_the_middle_reports_what_is_stored() {
    for durability in ["buffered", "sync"] {
        let place = Place::new();
        let lines: String = (0..3000).map(|i| format!("key{i:05}\tvalue of number {i}\n")).collect();
        let file = place.path("records.tsv");
        std::fs::write(&file, &lines).unwrap();
        let mut command = Command::new("sh");
        let options = ["-o", &format!("durability={durability}"), "--batch", "100", "--json"];
        let load =
            ["-c", "trap '' XFSZ; ulimit -f 100; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tamis"), "load"];
        command.args(load).args(options).args(["--db", &place.db(), &file]);
        let ran = run(command, b"");
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let (object, message) = failed_load(ran);
        let (loaded, failed) = (object["loaded"].as_u64().unwrap(), &object["failed"]);
        assert!(loaded > 0 && loaded % 100 == 0 && loaded < 3000, "{object}");
        assert_eq!((&failed["read"], &failed["refused"]), (&(loaded + 100).into(), &100.into()), "{object}");
        assert_eq!(failed["from_line"].as_u64(), Some(loaded + 1), "{object}");
        assert!(durability == "buffered" || failed["synced"] == true, "{object}");
        assert_eq!(message.contains("They are synced"), failed["synced"] == true, "{message}");
        let refused = format!("The 100 in lines {} to {} were rejected", loaded + 1, loaded + 100);
        assert!(message.contains(&refused), "{message}");

        let stored = place.run("scan", &[]).ok().lines().count() as u64;
        let wanted = match message.contains("all or not at all") {
            true => [loaded, loaded + 100],
            false => [loaded, loaded],
        };
        assert!(wanted.contains(&stored), "{stored} records, {message}");
        place.run("load", &["--from-line", &(loaded + 1).to_string(), &file]).ok();
        assert_eq!(place.run("scan", &[]).ok(), lines);
    }
}

#[test]
fn csv_that_ends_within_a_record_loads_its_complete_records() {
    let place = Place::new();
    let ran = place.run_with_input("load", &["--format", "csv"], b"a,1\nb,2\nc,\"3\nd,4\n");
    assert!(ran.out.contains("2 records loaded, 1 bad"), "{ran:?}");
    ran.fails(2, "line 3: the input ends within a quoted field");
    assert_eq!(place.run("scan", &[]).ok(), "a\t1\nb\t2\n");
}

#[test]
fn a_load_resumes_after_its_header() {
    let place = Place::new();
    let input = b"name,id\nx,1\n\"y\nz\",2\nlast,3\n";
    let args = ["--format", "csv", "--header", "--key-column", "id", "--from-line", "5"];
    place.run_with_input("load", &args, input).ok();
    assert_eq!(place.run("scan", &[]).ok(), "3\tlast\n");
    place.run("load", &["--from-line", "0"]).fails(2, "--from-line");
}

#[test]
fn wrong_usage_exits_with_2_and_so_does_a_missing_database() {
    let place = Place::new();
    place.run("get", &["key"]).fails(2, "no database");
    place.run("stats", &["-o", "no_such_option=1"]).fails(2, "no_such_option");
    place.run("get", &[]).fails(2, "Usage");
    place.run("load", &["/no/such/file"]).fails(2, "/no/such/file");
    place.run("put", &[&"k".repeat(70_000), "v"]).fails(2, "too long");
    let mut command = tamis();
    command.args(["dump", "x.txt"]);
    run(command, b"").fails(2, "could not open x.txt");
    assert!(!Path::new(&place.db()).join("CURRENT").exists() || place.run("verify", &[]).code == Some(0));
}

/// They advised the option `create_if_missing`, which no command has, or spoke of a file OPTIONS in
/// a file; some exited with 3, as all did for a directory of LevelDB's.
#[test]
fn a_path_without_a_database_is_wrong_usage_everywhere() {
    let place = Place::new();
    let file = place.path("file");
    std::fs::write(&file, "text\n").unwrap();
    let (leveldb, others) = (place.path("leveldb"), place.path("others"));
    let files = [
        (&leveldb, "CURRENT", "MANIFEST-000002\n"),
        (&leveldb, "LOCK", ""),
        (&leveldb, "LOG", "2023/01/01-00:00:00.000000 1 Creating DB since it was missing.\n"),
        (&leveldb, "MANIFEST-000002", "\x56\x02\x0c\x04\x1c\x00\x01\x1aleveldb.BytewiseComparator\x02\x00"),
        (&leveldb, "000003.log", "not ours"),
        (&others, "note.txt", "text\n"),
    ];
    for (dir, name, text) in files {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(Path::new(dir).join(name), text).unwrap();
    }
    let commands: [&[&str]; 15] = [
        &["get", "key"],
        &["scan"],
        &["explain", "key"],
        &["del", "key"],
        &["stats"],
        &["verify"],
        &["top", "--once"],
        &["serve", "--metrics", "127.0.0.1:0"],
        &["salvage"],
        &["heatmap"],
        &["compact"],
        &["export"],
        &["checkpoint", "copy"],
        &["keyspaces", "list"],
        &["advise", "--quick", "--workload", "get 50, put 50"],
    ];
    for words in commands {
        for (path, says) in [
            (&place.path("nothing"), "there is no database in"),
            (&file, "is a file"),
            (&leveldb, "found a database of LevelDB or RocksDB"),
            (&others, "found files of others: `note.txt`"),
        ] {
            let mut command = tamis();
            command.args(words).args(["--db", path]);
            let ran = run(command, b"");
            assert!(ran.code == Some(2) && ran.err.contains(says), "{words:?}: {ran:?}");
            assert!(
                !ran.err.contains("create_if_missing") && !ran.err.contains("OPTIONS"),
                "{words:?}: {ran:?}"
            );
            assert!(!Path::new(&place.path("nothing")).exists(), "{words:?}");
        }
    }
    for words in [&["put", "key", "value"][..], &["load"]] {
        let mut command = tamis();
        command.args(words).args(["--db", &file]);
        run(command, b"").fails(2, "is a file");
        for (path, says) in [(&leveldb, "LevelDB"), (&others, "-o create_among_others=true")] {
            let mut command = tamis();
            command.args(words).args(["--db", path]);
            run(command, b"").fails(2, says);
        }
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text\n");
    for (dir, name, text) in files {
        assert_eq!(std::fs::read_to_string(Path::new(dir).join(name)).unwrap(), text);
    }
    for (dir, count) in [(&leveldb, 5), (&others, 1)] {
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), count);
    }
}

#[test]
fn figures_are_available_as_json_objects() {
    let place = Place::new();
    place.run_with_input("load", &["-"], b"one\ntwo\n").ok();
    let object = |subcommand: &str, args: &[&str]| -> Value {
        serde_json::from_str(&place.run(subcommand, args).ok()).expect("one JSON object")
    };
    assert!(object("stats", &["--json"])["keyspaces"][0]["levels"].is_array());
    let explanation = object("explain", &["--json", "one"]);
    assert_eq!(explanation["key"], "one");
    assert_eq!(explanation["outcome"]["kind"], "found");
    assert_eq!(object("verify", &["--json"])["problems"], Value::Array(vec![]));
    let mut options = tamis();
    options.args(["options", "--json", "hash_sharing"]);
    let option: Value = serde_json::from_str(&run(options, b"").ok()).unwrap();
    assert_eq!(option["default"], "true");
}

#[test]
fn pages_for_people_name_what_they_show() {
    let place = Place::new();
    place.run_with_input("load", &["-"], b"one\ntwo\n").ok();
    let stats = place.run("stats", &["--runs"]).ok();
    assert!(stats.contains("level") && stats.contains("bits per key"), "{stats}");
    let explanation = place.run("explain", &["three"]).ok();
    assert!(explanation.contains("digest") && explanation.contains("absent"), "{explanation}");
    assert!(place.run("verify", &[]).ok().contains("all sound"));
}

#[test]
fn a_checkpoint_has_the_same_contents_and_does_not_overwrite() {
    let place = Place::new();
    place.run("put", &["k", "v"]).ok();
    let copy = place.path("copy");
    place.run("checkpoint", &[&copy]).ok();
    place.run("put", &["k", "changed"]).ok();
    let mut get = tamis();
    get.args(["get", "--db", &copy, "k"]);
    assert_eq!(run(get, b"").ok(), "v\n");
    place.run("checkpoint", &[&copy]).fails(2, "exists");
}

/// The engine's own checkpoint needs the directory's lock, which the writer has.
#[test]
fn a_checkpoint_of_a_database_in_use_is_a_prefix_of_what_its_writer_wrote() {
    let place = Place::new();
    let mut options = tamis::Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.blob_threshold = 512;
    let db = options.open(place.db()).unwrap();
    let key = |n: u32| n.to_be_bytes();
    let put = |n: u32| db.put(key(n), vec![n as u8; n as usize % 1024]).unwrap();
    (0..2000).for_each(put);
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all = 2000..;
            all.take_while(|_| !ended.load(std::sync::atomic::Ordering::Relaxed)).for_each(put);
        });
        for number in 0..3 {
            let copy = place.path(&format!("copy-{number}"));
            place.run("checkpoint", &[&copy]).ok();
            place.run("checkpoint", &[&copy]).fails(2, "exists");
            let copy = tamis::Db::open(copy).unwrap();
            let found = copy.iter().map(|item| item.unwrap());
            let mut count = 0;
            for (n, (found_key, value)) in (0..).zip(found) {
                assert_eq!(
                    (&found_key[..], &value[..]),
                    (&key(n)[..], &vec![n as u8; n as usize % 1024][..])
                );
                count += 1;
            }
            assert!(count >= 2000, "{count}");
            copy.put("of its own", "value").unwrap();
            copy.close().unwrap();
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(db.get("of its own").unwrap().is_none());
    db.close().unwrap();
}

#[test]
fn a_closed_output_ends_the_program_silently() {
    let place = Place::new();
    let lines: String = (0..50_000).map(|i| format!("key-number-{i:09}\n")).collect();
    place.run_with_input("load", &["-"], lines.as_bytes()).ok();
    for format in ["text", "hex", "jsonl"] {
        let mut command = tamis();
        command.args(["scan", "--db", &place.db(), "--format", format]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        assert_eq!((status.code(), String::from_utf8(stderr).unwrap()), (Some(0), String::new()), "{format}");
    }
}

#[test]
fn bench_prints_a_measurement_for_each_workload() {
    let place = Place::new();
    let args =
        ["--keys", "2000", "--ops", "500", "--json", "--workload", "get-empty,get-existing,seek-next50"];
    let out = place.run("bench", &args).ok();
    let measurements: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = measurements.iter().map(|m| m["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["get-empty", "get-existing", "seek-next50"]);
    for m in &measurements[..2] {
        assert_eq!((m["digests_per_op"].as_f64(), m["keys"].as_u64()), (Some(1.0), Some(2000)), "{m}");
    }
    let table = place.run("bench", &["--keys", "2000", "--ops", "500", "--workload", "multi-get"]).ok();
    assert!(table.contains("multi-get") && table.contains("1.00"), "{table}");
    // Keys other than those in the directory are detected, not measured.
    let args = ["--keys", "2000", "--seed", "2", "--workload", "get-existing"];
    place.run("bench", &args).fails(1, "wrong answer");
}

#[test]
fn bench_runs_mixgraph_on_values_of_mixed_lengths() {
    let place = Place::new();
    let args =
        ["--keys", "3000", "--ops", "1000", "--value-bytes", "mixed", "--workload", "fill-random,mixgraph"];
    let out = place.run("bench", &[&args[..], &["--json"]].concat()).ok();
    let measurements: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(measurements.len(), 2);
    for m in &measurements {
        assert_eq!(m["value_bytes"].as_u64(), Some(36), "{m}");
    }
    assert_eq!(
        (measurements[1]["workload"].as_str(), measurements[1]["ops"].as_u64()),
        (Some("mixgraph"), Some(1000))
    );
    let table = place.run("bench", &args).ok();
    assert!(table.contains("values of 10 to 1024 bytes, 36 on average"), "{table}");
    // The database remembers no lengths; the check of answers notices others.
    place.run("bench", &["--keys", "3000", "--workload", "get-existing"]).fails(1, "wrong answer");
    place.run("bench", &["--value-bytes", "some"]).fails(2, "`mixed`");
}

#[test]
fn compact_leaves_one_run_and_shows_it() {
    let place = Place::new();
    for i in 0..4 {
        place.run("put", &[&format!("key{i}"), "v", "-o", "keyspace.auto_compaction=false"]).ok();
    }
    let before = place.run("stats", &["--json"]).ok();
    let runs = |text: &str| serde_json::from_str::<Value>(text).unwrap()["keyspaces"][0]["runs"].as_u64();
    assert!(runs(&before) > Some(1), "{before}");
    let shown = place.run("compact", &[]).ok();
    assert!(shown.contains("█") && shown.contains("flushes up to 4"), "{shown}");
    assert_eq!(runs(&place.run("stats", &["--json"]).ok()), Some(1));
    let changed = place.run("compact", &["--due", "-o", "keyspace.compaction=tiering"]).ok();
    assert!(changed.contains("tiering"), "{changed}");
    place.run("compact", &["--keyspace", "nope"]).fails(2, "nope");
    place.run("compact", &["-o", "keyspace.compaction=sideways"]).fails(2, "lazy-leveling");
    place
        .run("compact", &["-o", "keyspace.compaction=tiering", "-o", "keyspace.merge=partial"])
        .fails(2, "full");
}

#[test]
fn bench_compares_shapes_in_one_table() {
    let small = ["--keys", "3000", "--ops", "300", "--memtable", "32KiB", "-o", "keyspace.table_bytes=32KiB"];
    let bench = |more: &[&str]| {
        let mut command = tamis();
        command.arg("bench").args(small).args(more);
        run(command, b"")
    };
    let args = [
        "--compaction",
        "leveling,tiering,lazy-leveling",
        "--merge",
        "full,partitioned",
        "--size-ratio",
        "2,4",
    ];
    let rows = bench(&[&args[..], &["--json"]].concat()).ok();
    assert_eq!(rows.lines().count(), (2 + 1 + 2) * 2, "tiering has a single merge granularity: {rows}");
    let table = bench(&args[..4]).ok();
    assert!(table.contains("amplif.") && table.contains("lazy-leveling"), "{table}");
    let one =
        bench(&["--compaction", "tiering", "--size-ratio", "3", "--json", "--workload", "get-empty"]).ok();
    let one: Value = serde_json::from_str(one.lines().next().unwrap()).unwrap();
    assert_eq!((one["compaction"].as_str(), one["size_ratio"].as_str()), (Some("tiering"), Some("3")));
    bench(&["--compaction", "sideways"]).fails(2, "lazy-leveling");
    bench(&["--size-ratio", "1"]).fails(2, "1");
    bench(&["--compaction", "leveling,tiering", "--unsettled"]).fails(2, "--unsettled");
}

#[test]
fn bench_takes_its_keys_from_a_file() {
    let place = Place::new();
    let file = place.path("words");
    std::fs::write(&file, (0..1000).map(|i| format!("word{i}\n")).collect::<String>()).unwrap();
    let mut command = tamis();
    command.args(["bench", "--keys-from", &file, "--ops", "300", "--json", "--unsettled"]);
    command.args(["--workload", "get-mixed,range-empty,read-write", "--threads", "2", "--no-hash-sharing"]);
    for line in run(command, b"").ok().lines() {
        let m: Value = serde_json::from_str(line).unwrap();
        assert_eq!((m["keys"].as_u64(), m["hash_sharing"].as_bool()), (Some(900), Some(false)), "{m}");
    }
}

#[test]
fn the_main_job_measures_both_modes_and_replaces_only_its_own() {
    let place = Place::new();
    let job = |json: bool| {
        let mut command = tamis();
        command.args(["--db", &place.db(), "--records", "3000", "--rounds", "1"]);
        if json {
            command.arg("--json");
        }
        run(command, b"")
    };
    let page = job(false).ok();
    for part in ["existing keys", "absent keys", "ranges", "prefixes", "tamis explain"] {
        assert!(page.contains(part), "{part} not in {page}");
    }
    let measurements: Vec<Value> = job(true).ok().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(measurements.len(), 8);
    for m in measurements.iter().filter(|m| m["workload"].as_str().unwrap().ends_with("keys")) {
        let (digests, probes) =
            (m["digests_per_op"].as_f64().unwrap(), m["filter_probes_per_op"].as_f64().unwrap());
        match m["hash_sharing"].as_bool().unwrap() {
            true => assert_eq!(digests, 1.0, "{m}"),
            false => assert!(digests >= probes, "{m}"),
        }
    }
    assert!(place.run("scan", &["--limit", "1"]).ok().contains("\"country\""));

    // It left the database as the last round had it: without hash sharing and compaction, so that
    // `explain` showed eleven digests.
    let options = std::fs::read_to_string(place.path("db/OPTIONS")).unwrap();
    assert_eq!(tamis::Options::from_text(&options).unwrap(), tamis::Options::default());
    let suggested = format!("tamis explain --db {} ", place.db());
    let key = page.lines().find_map(|line| line.trim_start().strip_prefix(&suggested));
    let key = key.expect("a suggestion").trim_matches('\'');
    let explained: Value = serde_json::from_str(&place.run("explain", &["--json", key]).ok()).unwrap();
    assert_eq!(explained["cost"]["digests"], 1, "{explained}");
    assert!(place.run("stats", &[]).ok().contains("with one digest for all of them"));
    assert!(place.run("stats", &["-o", "hash_sharing=false"]).ok().contains("hash_sharing is off"));

    std::fs::remove_dir_all(place.db()).unwrap();
    place.run("put", &["mine", "precious"]).ok();
    job(false).fails(2, "left alone");
    assert_eq!(place.run("get", &["mine"]).ok(), "precious\n");
}

#[test]
fn stress_finds_every_acknowledged_write_after_kills() {
    let mut command = tamis();
    command.args(["stress", "--rounds", "4", "--kill-within", "60", "--seed", "3", "--json"]);
    let ran = run(command, b"");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((summary["kills"].as_u64(), summary["lost"].as_u64()), (Some(4), Some(0)));

    let place = Place::new();
    place.run("put", &["mine", "precious"]).ok();
    place.run("stress", &["--rounds", "1"]).fails(2, "not empty");
}

#[test]
fn a_short_soak_checks_every_answer() {
    let mut command = tamis();
    command.args(["soak", "--seconds", "3", "--threads", "2", "--reopen", "1", "--json"]);
    let ran = run(command, b"");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(summary["wrong"].as_u64(), Some(0));
    assert!(
        summary["operations"].as_u64().unwrap() > 0 && summary["reopened"].as_u64().unwrap() > 0,
        "{summary}"
    );

    let place = Place::new();
    place.run("put", &["mine", "precious"]).ok();
    place.run("soak", &["--seconds", "1"]).fails(2, "not empty");
}

fn build_table(args: &[&str], input: &[u8]) -> Ran {
    let mut command = tamis();
    command.arg("build-table").args(args);
    run(command, input)
}

#[test]
fn tables_are_built_and_ingested() {
    let place = Place::new();
    let (words, more) = (place.path("words.tam"), place.path("more.tam"));
    let said = build_table(&["--out", &words, "--format", "tsv", "-"], b"a\t1\nb\t2\nc\t3\n").ok();
    assert!(said.contains("3 entries from a to c"), "{said}");
    let input = b"x\t1\nb\t9\nx\t2\n";
    let said = build_table(&["--out", &more, "--sort", "--json", "--format", "tsv", "-"], input).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((said["entries"].as_u64(), said["replaced"].as_u64()), (Some(2), Some(1)));
    place.run("put", &["a", "old"]).ok();
    let said = place.run("ingest", &[&words]).ok();
    assert!(said.contains("1 table, 3 entries"), "{said}");
    let said: Value = serde_json::from_str(&place.run("ingest", &["--move", "--json", &more]).ok()).unwrap();
    assert_eq!((said["entries"].as_u64(), said["tables"][0]["level"].as_u64()), (Some(2), Some(0)));
    assert!(Path::new(&words).exists() && !Path::new(&more).exists());
    assert_eq!(place.run("scan", &[]).ok(), "a\t1\nb\t9\nc\t3\nx\t2\n");
    place.run("verify", &[]).ok();
    let mut dump = tamis();
    dump.args(["dump", &words]);
    let page = run(dump, b"").ok();
    assert!(page.contains("external") && page.contains("put \"c\" = \"3\" @ 0"), "{page}");
}

#[test]
fn invalid_tables_are_wrong_input() {
    let place = Place::new();
    let (good, bad) = (place.path("good.tam"), place.path("bad.tam"));
    build_table(&["--out", &bad, "-"], b"b\na\n").fails(2, "line 2: key \"a\" comes after \"b\"");
    build_table(&["--out", &bad, "-"], b"a\na\n").fails(2, "--sort");
    build_table(&["--out", &bad, "--hex", "-"], b"00\nxx\n").fails(2, "line 2: ");
    build_table(&["--out", &bad, "-"], b"").fails(2, "would be empty");
    build_table(&["--out", &bad, "-o", "no_such_option=1", "-"], b"a\n").fails(2, "no_such_option");
    build_table(&["--out", &bad, "/no/such/file"], b"").fails(2, "/no/such/file");
    assert!(!Path::new(&bad).exists(), "a rejected build leaves no file");
    build_table(&["--out", &good, "-"], b"a\nb\n").ok();
    build_table(&["--out", &good, "-"], b"c\n").fails(2, "exists already");
    let bytes = std::fs::read(&good).unwrap();
    std::fs::write(&bad, &bytes[..bytes.len() / 2]).unwrap();
    place.run("put", &["a", "1"]).ok();
    place.run("ingest", &[&bad]).fails(2, "not a complete external table");
    place.run("ingest", &[&good, &good]).fails(2, "overlap");
    place.run("ingest", &["/no/such/file.tam"]).fails(2, "/no/such/file.tam");
    place.run("ingest", &["--keyspace", "none", &good]).fails(2, "no keyspace");
    place.run("ingest", &[]).fails(2, "Usage");
    let own = std::fs::read_dir(place.db()).unwrap().map(|entry| entry.unwrap().path());
    let own = own.into_iter().find(|path| path.extension().is_some_and(|e| e == "tam"));
    if let Some(own) = own {
        place.run("ingest", &[own.to_str().unwrap()]).fails(2, "a table of a database");
    }
    assert_eq!(place.run("scan", &[]).ok(), "a\t1\n");
}

/// The papers' experiments used to be a command of this program.
#[test]
fn experiment_names_the_program_that_runs_experiments() {
    let asked = |words: &[&str]| {
        let mut command = tamis();
        command.arg("experiment").args(words);
        run(command, b"")
    };
    let lab = "cargo run --release --manifest-path lab/Cargo.toml -- experiment";
    asked(&[]).fails(2, &format!("{lab} list"));
    asked(&["run", "grf-fig10", "--scale", "small"]).fails(2, &format!("{lab} run grf-fig10 --scale small"));
    asked(&["--help"]).fails(2, lab);
}

/// Loads a database whose tables have elastic filters with many small segments, and gets absent
/// keys from it.
fn with_elastic_filters(place: &Place) {
    let elastic =
        ["-o", "keyspace.filter=elastic", "-o", "keyspace.filter_unit_bytes=256", "-o", "heat_sampling=1"];
    let budget = ["-o", "filter_budget_bytes=6KiB"];
    let work =
        ["--keys", "20000", "--ops", "2000", "--memtable", "128KiB", "--workload", "get-empty", "--json"];
    place.run("bench", &[&work[..], &elastic, &budget].concat()).ok();
}

#[test]
fn stats_and_explain_show_elastic_filters() {
    let place = Place::new();
    with_elastic_filters(&place);
    let page = place.run("stats", &[]).ok();
    assert!(page.contains("elastic filters") && page.contains("of 6.0 KiB, "), "{page}");
    let stats: Value = serde_json::from_str(&place.run("stats", &["--json"]).ok()).unwrap();
    let elastic = &stats["elastic"];
    let count = |name: &str| elastic[name].as_u64().unwrap();
    assert!(count("segments") > 20 && count("keys") >= 20_000, "{elastic}");
    assert!((1..=count("budget_bytes")).contains(&count("used_bytes")) && count("loads") > 0, "{elastic}");
    let by_units: Vec<u64> = serde_json::from_value(elastic["by_units"].clone()).unwrap();
    assert_eq!((by_units.iter().sum::<u64>(), by_units.len()), (count("segments"), 9), "{elastic}");
    let explanation = place.run("explain", &["--hex", "8000000000000000"]).ok();
    assert!(explanation.contains(" of 8 units, hotness "), "{explanation}");
    let json = place.run("explain", &["--hex", "8000000000000000", "--json"]).ok();
    let explanation: Value = serde_json::from_str(&json).unwrap();
    let steps = explanation["steps"].as_array().unwrap();
    let asked: Vec<&Value> = steps.iter().map(|step| &step["elastic"]).filter(|e| e.is_object()).collect();
    assert!(!asked.is_empty(), "{json}");
    for units in asked {
        assert!(units["segment"].as_u64() < units["segments"].as_u64(), "{units}");
        assert!(
            units["units_enabled"].as_u64() <= units["units"].as_u64() && units["hotness"].is_f64(),
            "{units}"
        );
    }
}

#[test]
fn hotness_is_drawn_or_printed_as_numbers() {
    let place = Place::new();
    with_elastic_filters(&place);
    let file = place.path("hotness.svg");
    assert_eq!(place.run("heatmap", &["--out", &file]).ok(), "");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for part in ["level 6, run ", " lookups/get", " of a budget of 6.0 KiB", "equal numbers of keys"] {
        assert!(svg.contains(part), "{part:?} in {svg}");
    }
    let svg =
        place.run("heatmap", &["--by", "key", "--what", "asked", "--hex", "--keyspace", "default"]).ok();
    assert!(svg.contains("keys as numbers") && svg.contains(">lookups, per get and key<"), "{svg}");

    let object: Value = serde_json::from_str(&place.run("heatmap", &["--json"]).ok()).unwrap();
    let segments = object["segments"].as_array().unwrap();
    let sum = |name: &str| segments.iter().map(|segment| segment[name].as_f64().unwrap()).sum::<f64>();
    assert_eq!(object["elastic"]["segments"].as_u64(), Some(segments.len() as u64));
    assert_eq!(object["elastic"]["keys"].as_f64(), Some(sum("keys")));
    let runs: std::collections::BTreeSet<u64> = segments.iter().map(|s| s["run"].as_u64().unwrap()).collect();
    // A get of an absent key probes one segment of each run, or none where the run has no table;
    // hotness is stored in 9 % steps.
    assert!((0.5..=1.1 * runs.len() as f64).contains(&sum("hotness")), "{} of {runs:?}", sum("hotness"));
}

#[test]
fn without_elastic_filters_there_is_nothing_to_draw() {
    let place = Place::new();
    place.run("heatmap", &[]).fails(2, "no database");
    place.run_with_input("load", &["-"], b"one\ntwo\n").ok();
    for args in [&[][..], &["--json"]] {
        let ran = place.run("heatmap", args);
        assert_eq!(ran.out, "");
        ran.fails(1, "no table has an elastic filter");
    }
    let stats: Value = serde_json::from_str(&place.run("stats", &["--json"]).ok()).unwrap();
    assert!(stats["elastic"].is_null());
    place.run("heatmap", &["--keyspace", "default"]).fails(1, "no table of keyspace `default` has");
    place.run("heatmap", &["--keyspace", "nope"]).fails(2, "nope");
    place.run("heatmap", &["--by", "colour"]).fails(2, "--by");
    place.run("heatmap", &["--json", "--by", "key"]).fails(2, "--json");
    std::fs::remove_dir_all(place.db()).unwrap();
    with_elastic_filters(&place);
    place.run("heatmap", &["--out", &place.path("no/such/hotness.svg")]).fails(2, "no/such/hotness.svg");
}

/// A missing manifest is rebuilt; a dry run reports that and changes nothing; an unusable file is
/// set aside and is a problem (exit code 1); having nothing to do is not.
#[test]
fn a_lost_manifest_is_salvaged() {
    let place = Place::new();
    let lines: String = (0..200).map(|i| format!("key{i:03}\tvalue {i}\n")).collect();
    place.run_with_input("load", &["--format", "tsv", "-"], lines.as_bytes()).ok();
    place.run("put", &["key300", "in the log"]).ok();
    let scan = place.run("scan", &[]).ok();
    let salvage = |args: &[&str]| {
        let mut command = tamis();
        command.arg("salvage").arg(place.db()).args(args);
        run(command, b"")
    };
    let files = || {
        let names = std::fs::read_dir(place.db())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    assert!(salvage(&[]).ok().contains("nothing to salvage"));
    let manifest = files().into_iter().find(|name| name.starts_with("MANIFEST")).unwrap();
    std::fs::remove_file(place.path(&format!("db/{manifest}"))).unwrap();
    place.run("get", &["key300"]).fails(3, "which does not exist");
    let before = files();
    let told = salvage(&["--dry-run"]).ok();
    assert!(told.contains("would be kept") && told.contains("there is no manifest"), "{told}");
    let object: Value = serde_json::from_str(&salvage(&["--dry-run", "--json"]).ok()).unwrap();
    assert_eq!((&object["rebuilt"], &object["losses"]), (&Value::Bool(true), &Value::Array(vec![])));
    assert_eq!(files(), before, "a dry run changes nothing");
    assert!(salvage(&[]).ok().contains("nothing was lost"));
    assert_eq!(place.run("scan", &[]).ok(), scan);

    let table = files().into_iter().find(|name| name.ends_with(".tam")).unwrap();
    std::fs::write(place.path(&format!("db/{table}")), b"no table").unwrap();
    let lost = salvage(&[]);
    assert!(lost.code == Some(1) && lost.out.contains("LOST") && lost.out.contains(&table), "{lost:?}");
    assert!(files().contains(&format!("{table}.damaged")), "{:?}", files());
    place.run("verify", &[]).ok();
    let nowhere = {
        let mut command = tamis();
        command.arg("salvage").arg(place.path("nothing"));
        run(command, b"")
    };
    nowhere.fails(2, "no database");
}
