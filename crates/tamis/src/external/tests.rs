//! Building and describing external tables, and refusing files that are not.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use tamis_base::key::{Entry, Kind};
use tamis_files::codec::Encode;
use tamis_files::table::{ExtraProperties, TableBuilder, TableOptions};
use tamis_files::tree::tombstones::{RangeTombstone, Tombstones};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

use super::*;
use crate::error::{AdminError, StorageError};
use crate::handles::handle::Db;
use crate::io::{MemFs, Usage, read_file};
use crate::jobs::ingest::IngestOptions;
use crate::options::{FilterChoice, KeyspaceOptions, Options, PerLevel};
use crate::reseal;

const TABLE: &str = "/out/table.tam";

fn fs() -> Arc<MemFs> {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("/out")).unwrap();
    Arc::new(fs)
}

fn builder(fs: &Arc<MemFs>) -> ExternalTableBuilder {
    ExternalTableBuilder::create_on(fs.clone(), TABLE, &KeyspaceOptions::default()).unwrap()
}

fn database(fs: &Arc<MemFs>) -> Db {
    // Small, since thousands of them are opened.
    let keyspace = KeyspaceOptions { memtable_bytes: 4 << 10, ..KeyspaceOptions::default() };
    let options = Options { keyspace, cache_bytes: 0, background_threads: 1, ..Options::default() };
    Options { file_system: Some(fs.clone()), ..options }.open("/db").unwrap()
}

/// Returns the bytes of a table of three keys and a range delete.
fn sample(options: &KeyspaceOptions) -> Vec<u8> {
    let fs = fs();
    let mut table = ExternalTableBuilder::create_on(fs.clone(), TABLE, options).unwrap();
    table.put("aaa", "1").unwrap();
    table.delete("bbb").unwrap();
    table.put("ccc", "3").unwrap();
    table.delete_range("d".."f").unwrap();
    table.finish().unwrap();
    read_file(&*fs, Path::new(TABLE)).unwrap()
}

fn write(fs: &MemFs, path: &str, bytes: &[u8]) {
    let mut file = fs.create(Path::new(path), Usage::Table).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

/// Ingests a file of these bytes into a new database, which must still be empty after a refusal.
fn ingest(bytes: &[u8], verify: bool) -> Result<Db, AdminError> {
    let fs = fs();
    write(&fs, "/out/some.tam", bytes);
    let db = database(&fs);
    let files = || fs.list(Path::new("/db")).unwrap().iter().filter(|name| name.ends_with(".tam")).count();
    match db.default_keyspace().ingest(&["/out/some.tam"], IngestOptions { verify, ..Default::default() }) {
        Ok(_) => Ok(db),
        Err(error) => {
            assert_eq!((db.iter().count(), files()), (0, 0), "{error}");
            assert!(db.stats().poisoned.is_none(), "{error}");
            db.put("still", "writable").unwrap();
            Err(error)
        }
    }
}

#[test]
fn a_finished_table_describes_itself() {
    let fs = fs();
    let mut table = builder(&fs);
    table.put("b", "22").unwrap();
    table.delete("c").unwrap();
    assert_eq!(table.entries(), 2);
    assert!(table.estimated_bytes() > 0);
    let info = table.finish().unwrap();
    assert_eq!((info.entries, info.deletes, info.range_deletes, info.raw_bytes), (2, 1, 0, 4));
    assert_eq!((&info.smallest[..], &info.largest), (&b"b"[..], &Bound::Included(b"c".to_vec())));
    assert_eq!(info.bytes, fs.file_len(Path::new(TABLE)).unwrap());
    assert_eq!(ExternalTableInfo::read_on(&*fs, TABLE).unwrap(), info);
}

#[test]
fn range_deletes_extend_the_bounds_and_may_come_in_any_order() {
    let fs = fs();
    let mut table = builder(&fs);
    table.delete_range("m".."p").unwrap();
    table.put("c", "1").unwrap();
    table.delete_range("a"..="b").unwrap();
    table.delete_range("o".."q").unwrap();
    table.delete_range("x".."x").unwrap();
    let info = table.finish().unwrap();
    assert_eq!((info.entries, info.range_deletes), (1, 2), "overlapping ranges become one");
    assert_eq!((&info.smallest[..], &info.largest), (&b"a"[..], &Bound::Excluded(b"q".to_vec())));
    fs.remove(Path::new(TABLE)).unwrap();
    let mut table = builder(&fs);
    table.delete_range::<&str>(..).unwrap();
    let info = table.finish().unwrap();
    assert_eq!((info.entries, &info.smallest[..], &info.largest), (0, &b""[..], &Bound::Unbounded));
}

#[test]
fn errors_name_keys_out_of_order_and_the_builder_goes_on() {
    let fs = fs();
    let mut table = builder(&fs);
    table.put("lyon", "1").unwrap();
    for wrong in ["lyon", "brest"] {
        let error = table.put(wrong, "2").unwrap_err().to_string();
        assert!(error.contains(&format!("key \"{wrong}\" comes after \"lyon\"")), "{error}");
        assert!(table.delete(wrong).is_err());
    }
    let long = vec![b'x'; crate::MAX_KEY_BYTES + 1];
    assert!(matches!(table.put(&long, ""), Err(ExternalTableError::Write(_))));
    assert!(table.delete_range("b".."a").is_err());
    table.put("paris", "3").unwrap();
    assert_eq!(table.finish().unwrap().entries, 2);
}

#[test]
fn empty_tables_and_existing_files_are_refused() {
    let fs = fs();
    assert!(matches!(builder(&fs).finish(), Err(ExternalTableError::Empty { .. })));
    assert!(!fs.exists(Path::new(TABLE)).unwrap(), "nothing is left of it");
    write(&fs, TABLE, b"precious");
    let refused = ExternalTableBuilder::create_on(fs.clone(), TABLE, &KeyspaceOptions::default());
    assert!(matches!(refused, Err(ExternalTableError::Exists { .. })));
    assert_eq!(read_file(&*fs, Path::new(TABLE)).unwrap(), b"precious");
}

#[test]
fn a_dropped_or_failed_builder_leaves_no_file() {
    let memory = fs();
    let mut table = builder(&memory);
    table.put("a", "1").unwrap();
    drop(table);
    assert!(!memory.exists(Path::new(TABLE)).unwrap());

    let fs = FaultyFs::new(1);
    fs.create_dir_all(Path::new("/out")).unwrap();
    let mut options = KeyspaceOptions::default();
    options.set("compression", "none").unwrap();
    let mut table = ExternalTableBuilder::create_on(Arc::new(fs.clone()), TABLE, &options).unwrap();
    fs.plan(FaultPlan { fail_at: Some(0), only: Some(OpClass::Write), ..FaultPlan::none() });
    let failed = (0..10u8).find_map(|key| table.put([key], vec![7; 1 << 20]).err()).expect("a write fails");
    assert!(matches!(failed, ExternalTableError::Storage(StorageError::Io(_))), "{failed}");
    assert!(matches!(table.put("z", ""), Err(ExternalTableError::Failed { .. })));
    assert!(matches!(table.finish(), Err(ExternalTableError::Failed { .. })));
    assert!(!fs.exists(Path::new(TABLE)).unwrap());
}

#[test]
fn every_kind_of_filter_works_in_an_ingested_table() {
    for filter in
        ["bloom", "ribbon", "fuse", "xor", "cuckoo", "surf", "snarf", "rosetta", "grafite", "none", "grf"]
    {
        let mut options = KeyspaceOptions::default();
        options.set("filter", filter).unwrap();
        let db = ingest(&sample(&options), true).unwrap_or_else(|e| panic!("{filter}: {e}"));
        assert_eq!(db.get("ccc").unwrap().unwrap(), "3", "{filter}");
        assert_eq!(db.get("bbb").unwrap(), None, "{filter}");
        assert_eq!(db.iter().count(), 2, "{filter}");
    }
    assert_ne!(PerLevel::from(FilterChoice::None), KeyspaceOptions::default().filter);
}

/// A file that was being written during a power cut has no footer.
#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = sample(&KeyspaceOptions::default());
    for len in 0..bytes.len() {
        let error = ingest(&bytes[..len], true).unwrap_err();
        assert!(
            matches!(error, AdminError::External(ExternalTableError::NotATable { .. })),
            "{len}: {error}"
        );
    }
    ingest(&bytes, true).unwrap();
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    for filter in [FilterChoice::default(), FilterChoice::Grf] {
        flipped_bits_are_refused(&sample(&KeyspaceOptions {
            filter: filter.into(),
            ..KeyspaceOptions::default()
        }));
    }
}

fn flipped_bits_are_refused(bytes: &[u8]) {
    for at in 0..bytes.len() {
        let mut bad = bytes.to_vec();
        bad[at] ^= 1 << (at % 8);
        let error = ingest(&bad, true).unwrap_err();
        assert!(matches!(error, AdminError::External(_)), "{at}: {error}");
    }
}

/// Checksums are no protection against an attacker who corrects them. What is wrong is then found
/// by reading everything, or is harmless: the database answers, and passes its own verification.
#[test]
fn changed_bytes_with_valid_checksums_are_refused_or_harmless() {
    let bytes = sample(&KeyspaceOptions { filter: FilterChoice::None.into(), ..KeyspaceOptions::default() });
    let mut refused = 0;
    for at in 0..bytes.len() {
        for bit in [at % 8, 7] {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            match ingest(&reseal::table(&bad, true), true) {
                Err(_) => refused += 1,
                Ok(db) => {
                    let forwards: Vec<_> = db.iter().map(Result::unwrap).collect();
                    let mut backwards: Vec<_> = db.iter().rev().map(Result::unwrap).collect();
                    backwards.reverse();
                    assert_eq!(forwards, backwards, "byte {at} bit {bit}");
                    db.compact().unwrap();
                    assert_eq!(db.verify().unwrap().problems, [""; 0], "byte {at} bit {bit}");
                }
            }
        }
    }
    assert!(refused > bytes.len() / 2, "only {refused} refused");
}

#[test]
fn random_bytes_are_refused() {
    let mut state = 1u64;
    for len in [0, 1, 63, 64, 65, 200, 5000] {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        })
        .take(len)
        .collect();
        assert!(matches!(ingest(&bytes, false), Err(AdminError::External(_))), "{len}");
        assert!(matches!(ingest(&reseal::table(&bytes, true), false), Err(AdminError::External(_))), "{len}");
    }
}

#[test]
fn keys_in_the_wrong_order_are_detected() {
    let bytes = pretender(&[("aaa", 0), ("bbb", 0), ("ccc", 0)], None, 1);
    let at = bytes.windows(3).position(|window| window == b"bbb").unwrap();
    // One key out of order, one duplicate.
    for key in [b"ddd", b"aaa"] {
        let mut bad = bytes.clone();
        bad[at..at + 3].copy_from_slice(key);
        let error = ingest(&reseal::table(&bad, true), true).unwrap_err().to_string();
        assert!(error.contains("is out of order"), "{error}");
    }
}

/// Writes a table that claims to be external. It has no hash index, as fingerprints would tell one
/// key from another.
fn pretender(entries: &[(&str, u64)], tombstones: Option<Tombstones>, external: u64) -> Vec<u8> {
    let fs = fs();
    let file = fs.create(Path::new(TABLE), Usage::Table).unwrap();
    let options = TableOptions { hash_index: false, ..TableOptions::default() };
    let mut table = TableBuilder::new(file, TABLE, options);
    for (key, seq) in entries {
        table.add(key.as_bytes(), tamis_filter::Digest::of(key.as_bytes()), *seq, Kind::Put, b"v").unwrap();
    }
    let range_tombstones = tombstones.as_ref().map_or(0, |set| set.len() as u64);
    let encoded = tombstones.map(|set| {
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        bytes
    });
    let extra = ExtraProperties { range_tombstones, external, ..ExtraProperties::default() };
    table.finish(None, encoded, extra).unwrap();
    read_file(&*fs, Path::new(TABLE)).unwrap()
}

#[test]
fn entries_and_range_deletes_with_sequence_numbers_are_refused() {
    let refused = |bytes: &[u8], part: &str| {
        for verify in [true, false] {
            let error = ingest(bytes, verify).map(drop).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    };
    ingest(&pretender(&[("a", 0), ("b", 0)], None, 1), true).unwrap();
    refused(&pretender(&[("a", 7), ("b", 0)], None, 1), "sequence numbers");
    refused(&pretender(&[("a", 7), ("a", 6)], None, 1), "sequence numbers");
    refused(&pretender(&[("a", 0)], None, 0), "a table of a database");
    refused(&pretender(&[("a", 0)], None, 2), "newer version");
    refused(&pretender(&[], None, 1), "would be empty");
    let ranges = |list: &[(&[u8], &[u8], u64)]| {
        let list = list
            .iter()
            .map(|(start, end, seq)| RangeTombstone {
                start: (*start).into(),
                end: Some((*end).into()),
                seq: *seq,
            })
            .collect();
        Some(Tombstones::fragment(list))
    };
    ingest(&pretender(&[], ranges(&[(b"a", b"c", 1)]), 1), true).unwrap();
    refused(&pretender(&[], ranges(&[(b"a", b"c", 2)]), 1), "range deletes");
    refused(&pretender(&[], ranges(&[(b"a", b"c", 1), (b"b", b"d", 2)]), 1), "range deletes");
    let long = vec![b'x'; crate::MAX_KEY_BYTES + 2];
    refused(&pretender(&[], ranges(&[(b"a", &long, 1)]), 1), "too long");
    refused(&pretender(&[], ranges(&[(b"a", b"c", 1), (&long, b"y", 1), (b"z", b"zz", 1)]), 1), "too long");
}

#[test]
fn a_file_that_misdescribes_itself_is_refused() {
    let bytes = pretender(&[("a", 0), ("b", 0)], None, 1);
    // The properties' first field: tag 1, one byte, the number of entries.
    let mut count = Vec::new();
    count.put_varint(1);
    count.put_bytes(&[2]);
    let at = bytes.windows(3).rposition(|window| window == count).unwrap();
    let mut bad = bytes.clone();
    bad[at + 2] = 3;
    let error = ingest(&reseal::table(&bad, true), true).unwrap_err().to_string();
    assert!(error.contains("wrong about entries"), "{error}");
}

/// Returns the database's only table, as in its current version, with the sequence number of its
/// ingestion.
fn ingested_table(db: &Db) -> (Arc<crate::tree::open_table::OpenTable>, u64) {
    let table = db.default_keyspace().inner.view.load().version.tables[0].clone();
    let seq = table.meta.extra.global_seq.unwrap();
    (table, seq)
}

#[test]
fn everything_in_an_ingested_table_has_its_sequence_number() {
    use tamis_base::key::MAX_SEQNO;
    use tamis_files::table::{CursorOptions, TableCursor};
    let db = ingest(&sample(&KeyspaceOptions::default()), true).unwrap();
    let (table, seq) = ingested_table(&db);
    assert!(seq > 0 && (table.meta.min_seq, table.meta.max_seq) == (seq, seq));
    assert!(table.tombstones.as_ref().unwrap().iter().all(|tombstone| tombstone.seq == seq));
    let found = |snapshot| table.table.get(b"aaa", None, snapshot, &mut ()).unwrap();
    assert!(matches!(found(seq), Some(Entry { seq: found, .. }) if found == seq));
    assert!(found(seq - 1).is_none());
    let mut cursor = TableCursor::new(table.table.clone(), CursorOptions::default());
    let mut seek = |key: &[u8], seq| {
        cursor.seek(key, seq).unwrap();
        cursor.valid().then(|| (cursor.key().to_vec(), cursor.seq()))
    };
    let entry = |key: &[u8]| Some((key.to_vec(), seq));
    for newest in [seq, seq + 1, MAX_SEQNO] {
        assert_eq!(seek(b"bbb", newest), entry(b"bbb"));
        assert_eq!(seek(b"b", newest), entry(b"bbb"));
    }
    for older in [0, seq - 1] {
        assert_eq!(seek(b"bbb", older), entry(b"ccc"), "the entry is newer and sorts before");
        assert_eq!(seek(b"bb", older), entry(b"bbb"));
        assert_eq!(seek(b"ccc", older), None);
    }
}

/// A compaction that rewrites an ingested table stores the entries' actual sequence number, not the
/// one in the file. Otherwise an older snapshot would see them.
#[test]
fn a_rewritten_table_stores_the_sequence_number_in_its_entries() {
    let db = ingest(&sample(&KeyspaceOptions::default()), true).unwrap();
    let fs = db.handle().inner.fs.clone();
    let mut table =
        ExternalTableBuilder::create_on(fs, "/out/more.tam", &KeyspaceOptions::default()).unwrap();
    table.put("aaa", "2").unwrap();
    let before = db.snapshot();
    table.finish().unwrap();
    db.default_keyspace().ingest(&["/out/more.tam"], IngestOptions::default()).unwrap();
    db.compact().unwrap();
    let version = db.default_keyspace().inner.view.load().version.clone();
    assert!(
        version.tables.iter().all(|table| table.meta.extra.global_seq.is_none()),
        "all tables are rewritten"
    );
    assert_eq!(before.get("aaa").unwrap().unwrap(), "1");
    assert_eq!(db.get("aaa").unwrap().unwrap(), "2");
}

/// A file is put into the database's directory by hand, under the very name that the ingested table
/// would get.
#[test]
fn a_file_in_the_way_is_not_overwritten() {
    let fs = fs();
    let db = database(&fs);
    let next = db.handle().inner.files.numbers.next();
    let path = tamis_files::tree::files::table_path(Path::new("/db"), next);
    write(&fs, path.to_str().unwrap(), &sample(&KeyspaceOptions::default()));
    db.default_keyspace().ingest(&[&path], IngestOptions::default()).unwrap();
    assert_eq!(db.get("ccc").unwrap().unwrap(), "3");
    assert!(ExternalTableInfo::read_on(&*fs, &path).is_ok(), "the source is intact");
}
