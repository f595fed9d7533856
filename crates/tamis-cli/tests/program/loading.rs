//! What `tamis load` leaves behind, and inputs that it refuses.

use serde_json::Value;

use crate::support::{Place, run, tamis};

fn stats(place: &Place) -> Value {
    serde_json::from_str(&place.run("stats", &["--json"]).ok()).unwrap()
}

/// A load left its last memtable in the log only, and every later command replayed it.
#[test]
fn a_load_leaves_everything_in_tables() {
    let place = Place::new();
    let lines: String = (0..20_000).map(|i| format!("key{i:06}\tvalue of number {i}\n")).collect();
    place.run_with_input("load", &["--format", "tsv", "-"], lines.as_bytes()).ok();
    let counts = |stats: &Value| {
        let keyspace = &stats["keyspaces"][0];
        (keyspace["entries"].as_u64().unwrap(), keyspace["memtable_entries"].as_u64().unwrap())
    };
    assert_eq!(counts(&stats(&place)), (20_000, 0));
    assert!(stats(&place)["log_bytes"].as_u64().unwrap() < 100, "nothing to replay");
    assert_eq!(place.run("scan", &[]).ok(), lines);
    // A load that fails leaves the rest to the log, and one that loads nothing flushes nothing.
    place.run_with_input("load", &["--format", "tsv", "--hex", "-"], b"zz\n").fails(2, "hexadecimal");
    assert_eq!(counts(&stats(&place)), (20_000, 0));
}

#[test]
fn compressed_bytes_and_random_ones_do_not_pass_for_lines() {
    let place = Place::new();
    let noise: Vec<u8> = (0..10_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (name, bytes, what) in [
        ("noise.gz", &noise[..], "not gzip"),
        ("noise.tsv.gz", &noise, "not gzip"),
        ("empty.gz", b"", "not gzip"),
        ("words.zst", b"\x28\xB5\x2F\xFD\x04\x00\n\n", "zstd -dc"),
        ("words.xz", b"\xFD7zXZ\0\0\n", "xz -dc"),
        // A header, and then nothing sound.
        ("half.gz", &[&[0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3][..], &noise].concat(), "could not read"),
    ] {
        let file = place.path(name);
        std::fs::write(&file, bytes).unwrap();
        place.run("load", &[&file]).fails(2, what);
        let mut build = tamis();
        build.args(["build-table", "--out", &place.path("table.tam"), &file]);
        run(build, b"").fails(2, what);
    }
    place.run_with_input("load", &["-"], b"\xFD7zXZ\0\0\n").fails(2, "xz -dc");
    place.run("put", &["a", "1"]).ok();
    assert_eq!(place.run("scan", &[]).ok(), "a\t1\n");
}

/// A quote that is not closed swallowed lines up to the next quote, without a word.
#[test]
fn an_open_quote_is_refused_with_its_line() {
    let place = Place::new();
    let ran = place.run_with_input("load", &["--format", "csv"], b"1,a\n2,\"b\n3,c\n4,\"d\"\n5,e\n");
    assert!(ran.out.contains("2 records loaded, 1 bad"), "{ran:?}");
    ran.fails(2, "line 2: the quote opened in line 2 is not closed");
    assert_eq!(place.run("scan", &[]).ok(), "1\ta\n5\te\n");
    let mut build = tamis();
    build.args(["build-table", "--out", &place.path("table.tam"), "--format", "csv", "-"]);
    run(build, b"1,a\n2,\"b\n").fails(2, "the quote opened in line 2 is never closed");
}
