//! Table files.

use std::path::Path;
use std::sync::Arc;

use tamis_base::key::{Kind, MAX_SEQNO, SeqNo};
use tamis_files::settings::ChecksumMode;
use tamis_files::table::cache::BlockCache;
use tamis_files::table::{CursorOptions, ReaderConfig, Table, TableCursor};
use tamis_filter::Digest;

use crate::reseal;
use crate::{is_refusal, parts, put};
use tamis::StorageError;
use tamis::io::MemFs;
use tamis_doctor::inspect::dump_table;
use tamis_env::io::batch::BatchReader;

/// The approximate number of entries looked up individually.
const LOOKUPS: usize = 24;

/// One entry: key, sequence number, kind, value.
type Entry = (Vec<u8>, SeqNo, Kind, Vec<u8>);

/// The entries up to the end or the first error, and whether there was an error.
type Walk = (Vec<Entry>, bool);

/// Checks a table file, read in all the ways in which the engine reads one.
pub fn table(bytes: &[u8]) {
    check_table(bytes);
    let sealed = reseal::table(bytes, true);
    if sealed != bytes {
        check_table(&sealed);
    }
}

/// Returns the ways of reading: mapped or not, with or without a cache, index pinned or not, read
/// ahead or not.
fn ways() -> [(ReaderConfig, CursorOptions); 4] {
    let plain = CursorOptions { fill_cache: true, read_ahead: 0 };
    let ahead = CursorOptions { fill_cache: false, read_ahead: 1 };
    let reads = Some(Arc::new(BatchReader::new(8, true)));
    let cache = || Some(Arc::new(BlockCache::new(1 << 20, 4096)));
    [
        (
            ReaderConfig {
                map: true,
                pin_metadata: true,
                verify: ChecksumMode::Once,
                cache: None,
                reads: None,
                files: None,
            },
            plain,
        ),
        (
            ReaderConfig {
                map: true,
                pin_metadata: false,
                verify: ChecksumMode::Always,
                cache: cache(),
                reads: None,
                files: None,
            },
            plain,
        ),
        (
            ReaderConfig {
                map: false,
                pin_metadata: false,
                verify: ChecksumMode::Once,
                cache: cache(),
                reads,
                files: None,
            },
            plain,
        ),
        (
            ReaderConfig {
                map: false,
                pin_metadata: true,
                verify: ChecksumMode::Once,
                cache: None,
                reads: None,
                files: None,
            },
            ahead,
        ),
    ]
}

fn check_table(bytes: &[u8]) {
    let (fs, path) = (MemFs::new(), Path::new("000001.tam"));
    put(&fs, path, bytes);
    let mut first: Option<Option<(Walk, Walk)>> = None;
    for (config, options) in ways() {
        let table = match Table::open(&fs, path, 1, config) {
            Ok(table) => table,
            Err(error) if is_refusal(&error) => {
                assert!(
                    first.get_or_insert(None).is_none(),
                    "a table opens in one way of reading and not in another"
                );
                continue;
            }
            Err(other) => panic!("reading memory failed: {other}"),
        };
        let walks = (forward(&table, options), backward(&table, options));
        if first.is_none() {
            check_content(&table, &walks.0);
        }
        let known = first.get_or_insert_with(|| Some(walks.clone()));
        assert_eq!(known.as_ref(), Some(&walks), "the ways of reading disagree");
        let ((mut there, there_failed), (back, back_failed)) = walks;
        if !there_failed && !back_failed {
            there.reverse();
            assert_eq!(there, back, "reading backwards gives other entries");
        }
    }
    let dumped = dump_table(&fs, path, &mut std::io::sink());
    if let Some(Some(((_, failed), _))) = first {
        assert!(!failed || dumped.is_err(), "a dump hides damage");
    }
}

fn entry(cursor: &TableCursor) -> Entry {
    let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
    assert_eq!(&cursor.pinned_value()[..], value);
    assert!(cursor.pinned_key().is_none_or(|pinned| pinned[..] == key[..]));
    (key, cursor.seq(), cursor.kind(), value)
}

fn walk(
    table: &Arc<Table>,
    options: CursorOptions,
    start: fn(&mut TableCursor) -> Result<(), StorageError>,
    step: fn(&mut TableCursor) -> Result<(), StorageError>,
) -> Walk {
    let mut cursor = TableCursor::new(table.clone(), options);
    let mut entries = Vec::new();
    let mut moved = start(&mut cursor);
    while moved.is_ok() && cursor.valid() {
        entries.push(entry(&cursor));
        moved = step(&mut cursor);
    }
    assert!(!cursor.valid(), "a failed cursor has no position");
    (entries, moved.is_err())
}

fn forward(table: &Arc<Table>, options: CursorOptions) -> Walk {
    walk(table, options, TableCursor::seek_to_first, TableCursor::next)
}

fn backward(table: &Arc<Table>, options: CursorOptions) -> Walk {
    walk(table, options, TableCursor::seek_to_last, TableCursor::prev)
}

fn check_content(table: &Arc<Table>, (entries, failed): &Walk) {
    if let Ok(Some(bytes)) = table.filter_bytes() {
        parts::filter(&bytes);
        parts::key_list(&bytes);
        crate::elastic(&bytes);
    }
    if let Ok(Some(bytes)) = table.tombstone_bytes() {
        parts::tombstones(&bytes);
    }
    let report = table.check();
    let is_sound = report.problems.is_empty();
    assert!(!failed || !is_sound, "a check misses an error of a walk");
    let mut cursor = TableCursor::new(table.clone(), CursorOptions::default());
    let step = (entries.len() / LOOKUPS).max(1);
    for (i, (key, seq, kind, value)) in entries.iter().enumerate().step_by(step) {
        let behind = [&key[..], &[0]].concat();
        for wanted in [key, &behind] {
            for digest in [None, Some(Digest::of(wanted))] {
                for snapshot in [*seq, MAX_SEQNO, 0] {
                    let found = table.get(wanted, digest, snapshot, &mut ());
                    if is_sound {
                        check_lookup(entries, wanted, snapshot, found);
                    }
                }
            }
        }
        let sought = cursor.seek(key, *seq).map(|()| cursor.valid().then(|| entry(&cursor)));
        let before = cursor.seek_before(key).map(|()| cursor.valid().then(|| entry(&cursor)));
        if is_sound {
            let here = (key.clone(), *seq, *kind, value.clone());
            assert_eq!(sought.expect("a sound table can be read"), Some(here));
            let expected = entries[..i].iter().rev().find(|(other, ..)| other < key);
            assert_eq!(before.expect("a sound table can be read").as_ref(), expected);
        }
    }
    if is_sound {
        assert_eq!(
            (report.entries, table.properties().entries),
            (entries.len() as u64, entries.len() as u64)
        );
        let is_before = |a: &Entry, b: &Entry| a.0 < b.0 || (a.0 == b.0 && a.1 > b.1);
        assert!(
            entries.windows(2).all(|pair| is_before(&pair[0], &pair[1])),
            "a check misses entries out of order"
        );
    }
}

fn check_lookup(
    entries: &[Entry],
    key: &[u8],
    snapshot: SeqNo,
    found: Result<Option<tamis_base::key::Entry<tamis_files::table::PinnedValue>>, StorageError>,
) {
    let from =
        entries.partition_point(|(other, seq, ..)| &other[..] < key || (other == key && *seq > snapshot));
    let expected = entries.get(from).filter(|(other, ..)| other == key);
    let found = found.expect("a sound table can be read");
    let found = found.map(|found| (key.to_vec(), found.seq, found.kind, found.value.to_vec()));
    assert_eq!(found.as_ref(), expected, "{key:?} as of {snapshot}");
}
