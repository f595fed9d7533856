use std::collections::BTreeMap;

use tamis_base::epochs::{Epoch, EpochMap, EpochSegment};
use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_testkit::script::{self, Case};

use super::drawing::{Ruler, range, show};

struct Table {
    map: EpochMap,
    smallest: KeyBytes,
    largest: KeyEnd,
}

fn interval((lo, hi): (Epoch, Epoch)) -> String {
    match hi - lo {
        0 => "none".into(),
        1 => lo.to_string(),
        _ => format!("{lo} to {}", hi - 1),
    }
}

/// Draws the oldest and the newest epoch at each key of the ruler, and lists the steps.
fn draw(ruler: &Ruler, table: &Table) -> String {
    let digit = |epoch: Epoch| char::from_digit(epoch as u32, 36).expect("epochs up to 35");
    let row = |label: &str, pick: fn(Epoch, Epoch) -> Epoch| {
        ruler.row(label, |key| match table.map.at(key) {
            _ if key < &table.smallest[..] || !table.largest.reaches(key) => ' ',
            (0, 0) => '.',
            (lo, hi) => digit(pick(lo, hi)),
        })
    };
    let step = |s: &EpochSegment| format!("{}: {}", show(&s.start), interval((s.lo, s.hi)));
    let steps: Vec<String> = table.map.segments().iter().map(step).collect();
    let keys = ruler.row("keys", |key| key[0] as char);
    [keys, row("oldest", |lo, _| lo), row("newest", |_, hi| hi - 1), format!("steps   {}", steps.join(", "))]
        .join("\n")
}

/// `tables` draws tables with the epochs of their flushes; `merge NEW = OLD OLD…` is a compaction
/// with one output table.
fn execute(tables: &mut BTreeMap<String, Table>, ruler: &mut Option<Ruler>, case: &Case<'_>) -> String {
    match (case.command, &case.args[..]) {
        ("tables", []) => {
            let drawn = ruler.insert(Ruler::of(case.input[0]));
            for line in &case.input[1..] {
                let (label, smallest, largest) = drawn.read(line);
                let (name, epoch) = label.split_once(" of flush ").expect("NAME of flush EPOCH");
                let map = EpochMap::flush(smallest.clone(), epoch.trim().parse().expect("an epoch"));
                tables.insert(name.trim().into(), Table { map, smallest, largest });
            }
            String::new()
        }
        ("merge", [name, "=", inputs @ ..]) => {
            let (mut named, mut bounds, mut bottommost) = (Vec::new(), None, false);
            for arg in inputs {
                match *arg {
                    "bottommost" => bottommost = true,
                    arg if arg.contains("..") => bounds = Some(range(arg)),
                    name => named.push(&tables[name]),
                }
            }
            let (smallest, largest) = bounds.unwrap_or_else(|| {
                let smallest = named.iter().map(|table| table.smallest.clone()).min();
                let largest = named.iter().map(|table| table.largest.clone()).max();
                (smallest.expect("an input"), largest.expect("an input"))
            });
            let parts: Vec<_> = named.iter().map(|t| (&t.map, &t.smallest[..], &t.largest)).collect();
            let map = EpochMap::merge(&parts, &smallest, &largest);
            let map = if bottommost { map.reaching_down() } else { map };
            assert_eq!(EpochMap::from_segments(map.segments().to_vec()).as_ref(), Some(&map));
            let table = Table { map, smallest, largest };
            let drawn = draw(ruler.as_ref().expect("tables first"), &table);
            let hull = format!("table   {}", interval(table.map.hull()));
            tables.insert((*name).into(), table);
            [drawn, hull].join("\n")
        }
        ("lookup", keys) => {
            let at = |key: &&str| {
                let covers =
                    |t: &&Table| &t.smallest[..] <= key.as_bytes() && t.largest.reaches(key.as_bytes());
                let found = tables.iter().filter(|(_, table)| covers(table));
                let found = found.map(|(name, t)| format!("{name} {}", interval(t.map.at(key.as_bytes()))));
                let found: Vec<String> = found.collect();
                format!("{key}: {}", if found.is_empty() { "no table".into() } else { found.join(", ") })
            };
            keys.iter().map(at).collect::<Vec<_>>().join("\n")
        }
        ("drop", names) => {
            names.iter().for_each(|name| assert!(tables.remove(*name).is_some(), "no table {name}"));
            String::new()
        }
        ("read", []) => {
            let segment = |line: &&str| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [start, lo, hi] => {
                    let number = |text: &str| text.parse().expect("an epoch");
                    EpochSegment { start: start.as_bytes().into(), lo: number(lo), hi: number(hi) }
                }
                _ => panic!("no segment: {line}"),
            };
            let read = EpochMap::from_segments(case.input.iter().map(segment).collect());
            if read.is_some() { "accepted" } else { "refused" }.into()
        }
        _ => panic!("no such command"),
    }
}

#[test]
fn epochs_script() {
    let (mut tables, mut ruler) = (BTreeMap::new(), None);
    script::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/epochs.txt"), |case| {
        execute(&mut tables, &mut ruler, case)
    });
}
