//! One written-out history for each anomaly.

use super::*;

/// A history from a text: a line for each transaction, `N:` with its place or `-:` if it was
/// aborted; then `r1=5` and `r1=.` for reads of key 1, `w1=5` and `w1=.` for writes, and
/// `s0-3={1=5}` for a scan of keys 0 to 2.
fn history(text: &str) -> Vec<Txn> {
    let value = |text: &str| (text != ".").then(|| text.parse().expect("a value"));
    let op = |text: &str| {
        let (what, rest) = text.split_at(1);
        let (key, found) = rest.split_once('=').expect("key and value");
        match what {
            "r" => Op::Read { key: key.parse().expect("a key"), found: value(found) },
            "w" => Op::Write { key: key.parse().expect("a key"), value: value(found) },
            _ => {
                let (from, to) = key.split_once('-').expect("a range");
                let inside = found.trim_matches(['{', '}']).split(',').filter(|item| !item.is_empty());
                let item = |item: &str| {
                    let (key, value) = item.split_once('=').expect("key and value");
                    (key.parse().expect("a key"), value.parse().expect("a value"))
                };
                let (from, to) = (from.parse().expect("a key"), to.parse().expect("a key"));
                Op::Scan { from, to, found: inside.map(item).collect() }
            }
        }
    };
    let line = |line: &str| {
        let (place, ops) = line.trim().split_once(':').expect("a place");
        Txn { committed: place.parse().ok(), ops: ops.split_whitespace().map(op).collect() }
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
}

fn kinds(text: &str) -> Vec<String> {
    let name = |anomaly: Anomaly| {
        format!("{}{}", anomaly.kind.name(), if anomaly.predicate { " (predicate)" } else { "" })
    };
    anomalies(&history(text)).into_iter().map(name).collect()
}

#[test]
fn a_serial_history_shows_nothing() {
    let none = kinds(
        "1: r0=. w0=1
         2: r0=1 w1=2 s0-9={0=1,1=2}
         -: r0=1 w0=3 r0=3
         3: s0-3={0=1,1=2} w0=. r0=.
         4: r0=. w0=5",
    );
    assert_eq!(none, [""; 0]);
}

#[test]
fn reads_that_no_committed_version_explains() {
    assert_eq!(kinds("-: w0=1\n1: r0=1"), ["G1a"]);
    assert_eq!(kinds("1: w0=1 w0=2\n2: r0=1"), ["G1b"]);
    assert_eq!(kinds("1: r0=7"), ["garbage"]);
    assert_eq!(kinds("1: w0=1 r0=."), ["internal"]);
    assert_eq!(kinds("-: w0=1\n-: r0=1"), ["G1a"], "even if the reader was aborted");
}

#[test]
fn cycles_of_reads_of_what_was_written() {
    // Each reads what the other one wrote.
    assert_eq!(kinds("1: w0=1 r1=2\n2: w1=2 r0=1"), ["G1c"]);
}

#[test]
fn lost_updates_and_read_skew() {
    assert_eq!(kinds("1: r0=. w0=1\n2: r0=. w0=2"), ["G-single"]);
    assert_eq!(kinds("1: w0=1 w1=2\n2: r0=. r1=2"), ["G-single"]);
}

#[test]
fn write_skew_and_long_forks() {
    assert_eq!(kinds("1: r0=. r1=. w0=1\n2: r0=. r1=. w1=2"), ["G2"]);
    assert_eq!(kinds("1: w0=1\n2: w1=2\n3: r0=1 r1=.\n4: r0=. r1=2"), ["G-nonadjacent"]);
}

#[test]
fn two_replaced_reads_that_are_not_in_a_row() {
    // T0 -rw-> T1 -wr-> T2 -rw-> T3 -wr-> T0
    let text = "4: r0=. r3=9\n1: w0=1 w1=2\n2: r1=2 r2=.\n3: w2=7 w3=9";
    assert_eq!(kinds(text), ["G-nonadjacent"]);
}

#[test]
fn phantoms_are_told_apart() {
    assert_eq!(kinds("1: s0-2={} w0=1\n2: s0-2={} w1=2"), ["G2 (predicate)"]);
    // Key by key the same would be an anomaly of items.
    assert_eq!(kinds("1: r0=. r1=. w0=1\n2: r0=. r1=. w1=2"), ["G2"]);
    assert_eq!(kinds("1: s0-2={} w0=1\n2: s0-2={} w0=2"), ["G-single (predicate)"]);
}

#[test]
fn absence_after_deletes_is_read_in_the_reader_s_favour() {
    // It may have been read before 1 or after 2.
    assert_eq!(kinds("1: w0=1\n2: r0=1 w0=.\n3: r0=. w1=5"), [""; 0]);
    // It can only have been read before 3.
    assert_eq!(kinds("1: w0=1\n2: w0=.\n3: w0=2 w1=3\n4: r0=. r1=3"), ["G-single"]);
}

#[test]
fn levels_admit_what_they_are_said_to() {
    let admitted = |level: Level| {
        use Kind::*;
        let all = [Internal, Garbage, G0, G1a, G1b, G1c, GSingle, GNonadjacent, G2];
        all.into_iter().filter(|kind| level.admits(*kind)).collect::<Vec<_>>()
    };
    assert_eq!(admitted(Level::Snapshot), [Kind::G2]);
    assert_eq!(admitted(Level::Serializable), []);
}
