//! Directories that no engine wrote, and orders that no tree has.

use std::sync::Arc;

use tamis::KeyspaceOptions;
use tamis::io::{MemFs, Usage};
use tamis_base::epochs::{EpochMap, EpochSegment};
use tamis_base::key::{KeyEnd, Kind};
use tamis_files::table::{ExtraProperties, Merged, Origin, TableBuilder, TableOptions};
use tamis_filter::Digest;

use super::tree::place;
use super::*;
use tamis_base::meta::TableExtra;

/// A table of no file.
fn table(id: TableId, smallest: &str, largest: &str) -> TableMeta {
    TableMeta {
        id,
        file_bytes: 1000,
        smallest: smallest.as_bytes().into(),
        largest: KeyEnd::Included(largest.as_bytes().into()),
        entries: 10,
        deletes: 1,
        range_tombstones: 0,
        raw_bytes: 500,
        min_seq: 3,
        max_seq: 30,
        epochs: EpochMap::from_segments(vec![EpochSegment {
            start: smallest.as_bytes().into(),
            lo: 1,
            hi: 2,
        }])
        .unwrap(),
        extra: TableExtra::default(),
    }
}

fn options(fs: &MemFs) -> Options {
    Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() }
}

/// Writes table `id` with one entry and the given description.
fn write(fs: &MemFs, id: TableId, key: &str, epochs: (u64, u64), origin: Origin) {
    use tamis_files::codec::Encode;
    let dir = Path::new("db");
    fs.create_dir_all(dir).unwrap();
    let path = table_path(dir, id);
    let mut builder =
        TableBuilder::new(fs.create(&path, Usage::Table).unwrap(), &path, TableOptions::default());
    builder
        .add(key.as_bytes(), Digest::of(key.as_bytes()), id, Kind::Put, format!("of {id}").as_bytes())
        .unwrap();
    let mut bytes = Vec::new();
    bytes.put_bytes(key.as_bytes());
    bytes.put_varint(epochs.0);
    bytes.put_varint(epochs.1);
    builder
        .finish(None, None, ExtraProperties { epochs: bytes, origin, ..ExtraProperties::default() })
        .unwrap();
}

fn merged(mark: u64, inputs: &[u64]) -> Origin {
    let merged = Merged { mark, inputs: inputs.to_vec(), ..Merged::default() };
    Origin { keyspace: Some(0), merged: Some(merged), ..Origin::default() }
}

fn fate(report: &SalvageReport, id: TableId) -> TableFate {
    report.tables.iter().find(|table| table.file == format!("{id:06}.tam")).unwrap().fate
}

/// Tables may claim any origin: each other, invalid keyspaces, numbers out of range.
#[test]
fn tables_that_lie_about_their_origin_are_set_aside_and_reported() {
    let lies = [
        merged(6, &[6]),
        merged(6, &[7]),
        merged(9, &[1]),
        Origin { flushed: u64::MAX, ..Origin::default() },
        Origin { keyspace: Some(u32::MAX), ..Origin::default() },
        Origin {
            merged: Some(Merged { mark: 6, from: vec![9], to: Some(vec![9]), ..Merged::default() }),
            ..Origin::default()
        },
    ];
    for (i, lie) in lies.into_iter().enumerate() {
        let fs = MemFs::new();
        write(&fs, 5, "a", (1, 2), Origin { keyspace: Some(0), ..Origin::default() });
        write(&fs, 6, "b", (2, 3), lie);
        let report = salvage("db", options(&fs), false).unwrap();
        assert_eq!(
            (fate(&report, 5), fate(&report, 6)),
            (TableFate::Kept, TableFate::SetAside),
            "{i}: {report:#?}"
        );
        let db = options(&fs).open("db").unwrap();
        assert_eq!(db.get("a").unwrap().unwrap(), "of 5");
        assert_eq!(db.get("b").unwrap(), None);
    }
}

/// A table and a log of a newer format, which an older version took for damaged and set aside.
#[test]
fn what_a_newer_version_wrote_is_not_set_aside() {
    for kind in [".tam", ".log"] {
        let fs = MemFs::new();
        let db = options(&fs).open("db").unwrap();
        db.put("in a table", "value").unwrap();
        db.flush().unwrap();
        db.put("in a log", "value").unwrap();
        db.sync().unwrap();
        db.close().unwrap();
        let names = fs.list(Path::new("db")).unwrap();
        let name = names.iter().filter(|name| name.ends_with(kind)).max().unwrap();
        let path = Path::new("db").join(name);
        let mut bytes = tamis::io::read_file(&fs, &path).unwrap();
        if kind == ".log" {
            bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
            let sum = Digest::of(&bytes[..24]).get();
            bytes[24..32].copy_from_slice(&sum.to_le_bytes());
        } else {
            let footer = bytes.len() - 64;
            bytes[footer + 40..footer + 44].copy_from_slice(&9u32.to_le_bytes());
            let sum = Digest::seeded(&bytes[footer..footer + 48], footer as u64).get();
            bytes[footer + 48..footer + 56].copy_from_slice(&sum.to_le_bytes());
        }
        let beside = path.with_extension("new");
        fs.create(&beside, Usage::Log).unwrap().append(&bytes).unwrap();
        fs.rename(&beside, &path).unwrap();
        for dry_run in [true, false] {
            let error = salvage("db", options(&fs), dry_run).unwrap_err();
            assert!(error.to_string().contains(name.as_str()), "{kind}: {error}");
        }
        assert_eq!(fs.list(Path::new("db")).unwrap(), names, "{kind}");
    }
}

/// An undone merge left an output behind, and a later merge of one of its inputs took effect.
#[test]
fn an_orphaned_merge_output_does_not_hide_later_merges() {
    let fs = MemFs::new();
    write(&fs, 3, "k", (1, 2), Origin { keyspace: Some(0), ..Origin::default() });
    write(&fs, 6, "k", (1, 3), merged(5, &[3, 4]));
    write(&fs, 9, "k", (1, 4), merged(8, &[3, 4, 7]));
    let report = salvage("db", options(&fs), false).unwrap();
    assert_eq!(
        [3, 6, 9].map(|id| fate(&report, id)),
        [TableFate::Superseded, TableFate::Superseded, TableFate::Kept]
    );
    assert_eq!(options(&fs).open("db").unwrap().get("k").unwrap().unwrap(), "of 9");
}

/// Tables from before origins were recorded: those under later ones of the same flushes are left
/// out.
#[test]
fn tables_without_an_origin_are_told_apart_by_their_epochs() {
    let fs = MemFs::new();
    write(&fs, 3, "k", (1, 2), Origin::default());
    write(&fs, 6, "k", (1, 3), Origin::default());
    write(&fs, 7, "k", (3, 4), Origin::default());
    let report = salvage("db", options(&fs), true).unwrap();
    assert_eq!(
        [3, 6, 7].map(|id| fate(&report, id)),
        [TableFate::Superseded, TableFate::Kept, TableFate::Kept]
    );
}

/// Newer tables come first wherever tables overlap, disjoint tables share a run, and a cycle ends.
#[test]
fn tables_are_put_in_the_order_of_their_epochs() {
    let table = |id, from: &str, to: &str, epochs: &[(&str, u64)]| {
        let mut table = table(id, from, to);
        table.largest = KeyEnd::Included(to.as_bytes().into());
        let segment =
            |&(start, e): &(&str, u64)| EpochSegment { start: start.as_bytes().into(), lo: e, hi: e + 1 };
        table.epochs = EpochMap::from_segments(epochs.iter().map(segment).collect()).unwrap();
        table
    };
    let placed = |tables: Vec<TableMeta>| {
        let (mut edit, mut next_run) = (VersionEdit::default(), 5);
        let doubts = place(0, &KeyspaceOptions::default(), tables, &mut next_run, &mut edit);
        let mut tree = ManifestState::new("default", "");
        tree.apply(&edit).unwrap();
        let mut order: Vec<(u32, u64, u64)> =
            edit.added.iter().map(|(_, l, r, t)| (*l, u64::MAX - r, t.id)).collect();
        order.sort_unstable();
        (order.into_iter().map(|(_, _, id)| id).collect::<Vec<_>>(), doubts.len())
    };
    // Later epochs at other keys do not matter.
    let (order, doubts) = placed(vec![
        table(1, "a", "z", &[("a", 3), ("m", 1)]),
        table(2, "n", "p", &[("n", 2)]),
        table(3, "a", "c", &[("a", 1)]),
        table(4, "q", "r", &[("q", 5)]),
    ]);
    assert_eq!((&order[..], doubts), (&[2, 4, 1, 3][..], 0));
    let (order, doubts) =
        placed(vec![table(1, "a", "z", &[("a", 3), ("m", 1)]), table(2, "a", "z", &[("a", 2), ("m", 4)])]);
    assert_eq!((order.len(), doubts), (2, 1));
    let circle = |ids: [(u64, &str, &str, u64, &str, u64); 3]| {
        ids.map(|(id, from, to, low, middle, high)| table(id, from, to, &[(from, low), (middle, high)]))
            .to_vec()
    };
    let (order, doubts) =
        placed(circle([(1, "a", "m", 1, "f", 9), (2, "f", "z", 5, "n", 1), (3, "a", "z", 4, "n", 3)]));
    assert!(order.len() == 3 && doubts <= 2);
}
