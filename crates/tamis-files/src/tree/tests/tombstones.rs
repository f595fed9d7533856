use std::collections::BTreeMap;

use tamis_base::key::{KeyEnd, SeqNo};
use tamis_testkit::script::{self, Case};

use super::drawing::{Ruler, range};
use crate::tree::tombstones::{Fragment, RangeTombstone, Tombstones};

/// The fragments, one in each line, with the numbers of the deletes over it.
fn draw(ruler: &Ruler, set: &Tombstones) -> String {
    assert_eq!(&Tombstones::fragment(set.iter().collect()), set, "the invariants");
    let fragment = |fragment: &Fragment| {
        let seqs: Vec<String> = fragment.seqs.iter().map(SeqNo::to_string).collect();
        let end = fragment.end.clone().map_or(KeyEnd::Unbounded, KeyEnd::Excluded);
        ruler.draw(&seqs.join(" "), &fragment.start, &end)
    };
    let fragments = set.fragments().iter().map(fragment);
    let ruler = ruler.row("keys", |key| key[0] as char);
    if set.is_empty() {
        "nothing".into()
    } else {
        std::iter::once(ruler).chain(fragments).collect::<Vec<_>>().join("\n")
    }
}

fn numbers(list: &str) -> Vec<SeqNo> {
    list.split(',').map(|number| number.parse().expect("a sequence number")).collect()
}

/// `NAME` is a set of range tombstones: `delete` makes one from drawn deletes, other commands from
/// sets.
fn execute(sets: &mut BTreeMap<String, Tombstones>, ruler: &mut Option<Ruler>, case: &Case<'_>) -> String {
    let (name, set) = match (case.command, &case.args[..]) {
        ("delete", [name]) => {
            let drawn = ruler.insert(Ruler::of(case.input[0]));
            let tombstone = |line: &&str| {
                let (seq, start, end) = drawn.read(line);
                let end = match end {
                    KeyEnd::Excluded(end) => Some(end),
                    KeyEnd::Unbounded => None,
                    KeyEnd::Included(_) => panic!("range deletes end before a key: {line}"),
                };
                RangeTombstone { start, end, seq: seq.parse().expect("a sequence number") }
            };
            (name, Tombstones::fragment(case.input[1..].iter().map(tombstone).collect()))
        }
        ("clip", [name, "=", old, bounds]) => {
            let (lower, upper) = range(bounds);
            let upper = match &upper {
                KeyEnd::Excluded(end) => Some(&end[..]),
                _ => None,
            };
            (name, sets[*old].clip(&lower, upper))
        }
        ("merge", [name, "=", old @ ..]) => (name, Tombstones::merge(old.iter().map(|old| &sets[*old]))),
        ("compact", [name, "=", old, readers, bottommost @ ..]) => {
            assert!(matches!(bottommost, [] | ["bottommost"]));
            let readers = readers.strip_prefix("readers=").expect("readers=…");
            let readers = if readers == "none" { Vec::new() } else { numbers(readers) };
            (name, sets[*old].retain_visible(&readers, !bottommost.is_empty()))
        }
        ("read", [name, keys @ ..]) => {
            let at = |place: &&str| {
                let (key, snapshot) = place.split_once('@').expect("KEY@SNAPSHOT");
                match sets[*name].cover(key.as_bytes(), snapshot.parse().expect("a sequence number")) {
                    0 => format!("{key} at {snapshot}: not deleted"),
                    seq => format!("{key} at {snapshot}: deleted where older than {seq}"),
                }
            };
            return keys.iter().map(at).collect::<Vec<_>>().join("\n");
        }
        ("equal", [a, b]) => return if sets[*a] == sets[*b] { "yes" } else { "no" }.into(),
        _ => panic!("no such command"),
    };
    let drawn = draw(ruler.as_ref().expect("`delete` first"), &set);
    sets.insert((*name).into(), set);
    drawn
}

#[test]
fn range_deletes_script() {
    let (mut sets, mut ruler) = (BTreeMap::new(), None);
    script::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/range-deletes.txt"), |case| {
        execute(&mut sets, &mut ruler, case)
    });
}
