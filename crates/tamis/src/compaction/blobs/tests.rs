//! References that are wrong although the blocks that hold them are sound.

use tamis_base::key::Kind;
use tamis_files::table::{CursorOptions, ReaderConfig, Table, TableCursor};
use tamis_files::tree::files::table_path;

use super::*;
use crate::io::{FileSystem, MemFs, Usage, read_file};
use crate::options::CompactionChoice;
use crate::reseal;
use crate::{KeyspaceOptions, Options};

const DIR: &str = "db";
const KEYS: u32 = 400;

fn options(fs: &MemFs, compaction: CompactionChoice) -> Options {
    let keyspace = KeyspaceOptions {
        compaction,
        blob_threshold: 500,
        blob_file_bytes: 64 << 10,
        memtable_bytes: 64 << 10,
        table_bytes: 4 << 10,
        block_bytes: 512,
        ..KeyspaceOptions::default()
    };
    Options { keyspace, file_system: Some(Arc::new(fs.clone())), ..Options::default() }
}

fn key(i: u32) -> String {
    format!("key {i:05}")
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("{i} {round} ").into_bytes().repeat(120)
}

fn overwrite(fs: &MemFs, path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    fs.create(&beside, Usage::Table).unwrap().append(bytes).unwrap();
    fs.rename(&beside, path).unwrap();
}

/// The keys of a table's references, and the references.
fn references(fs: &MemFs, id: u64) -> Vec<(u32, Vec<u8>)> {
    let path = table_path(Path::new(DIR), id);
    let table = Table::open(fs, &path, id, ReaderConfig::for_a_look()).unwrap();
    let mut cursor = TableCursor::new(table, CursorOptions { fill_cache: false, read_ahead: 0 });
    let mut found = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        if cursor.kind() == Kind::PutBlob {
            let key = std::str::from_utf8(&cursor.key()[4..]).unwrap().parse().unwrap();
            found.push((key, cursor.value().to_vec()));
        }
        cursor.next().unwrap();
    }
    found
}

/// Replaces a reference by another of the same length, and corrects the checksums around it.
fn forge(fs: &MemFs, id: u64, old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let path = table_path(Path::new(DIR), id);
    let mut bytes = read_file(fs, &path).unwrap().to_vec();
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    bytes[at..at + new.len()].copy_from_slice(new);
    overwrite(fs, &path, &reseal::table(&bytes, true));
}

/// Makes a database whose deepest level has several tables, and returns the one with the most
/// references, and these.
fn settled(fs: &MemFs, compaction: CompactionChoice) -> (u64, Vec<(u32, Vec<u8>)>) {
    let db = options(fs, compaction).open(DIR).unwrap();
    for round in 0..2 {
        (0..KEYS).for_each(|i| db.put(key(i * 7919 % KEYS), value(i * 7919 % KEYS, round)).unwrap());
    }
    db.compact().unwrap();
    db.wait_for_compaction().unwrap();
    let mut tables = db.default_keyspace().tables();
    db.close().unwrap();
    let deepest = tables.iter().map(|table| table.level).max().unwrap();
    tables.retain(|table| table.level == deepest);
    let of = |id| references(fs, id);
    let id = tables.iter().map(|table| table.id).max_by_key(|&id| of(id).len()).unwrap();
    (id, of(id))
}

/// Whatever is wrong with a reference, merges go on: reads of that key fail, all others are right,
/// and the key is never taken for one that does not exist.
#[test]
fn merges_go_on_around_a_wrong_reference() {
    use CompactionChoice::*;
    type Wrong = fn(Reference) -> Reference;
    let wrongs: [(&str, Wrong); 4] = [
        ("another file", |at| Reference { file: at.file ^ 0x40, ..at }),
        ("beyond the end", |at| Reference { offset: at.offset | 0x1F_C000, ..at }),
        ("a longer record", |at| Reference { span: at.span | 0x3F00, ..at }),
        ("another value", |at| Reference { checksum: !at.checksum, ..at }),
    ];
    for compaction in [Leveling, Tiering, Fragmented] {
        for (what, wrong) in wrongs {
            let context = format!("{compaction:?}, {what}");
            let fs = MemFs::new();
            let (id, found) = settled(&fs, compaction);
            let mut changed = found.iter().filter_map(|(key, reference)| {
                let forged = wrong(Reference::decode(reference).unwrap()).encode();
                (forged.len() == reference.len()).then_some((*key, reference, forged))
            });
            let (hurt, reference, forged) = changed.next().expect("a number of as many bytes");
            forge(&fs, id, reference, &forged);

            let db = options(&fs, compaction).open(DIR).unwrap();
            if what == "another value" {
                // Merges go on also after a read has met it.
                assert!(db.get(key(hurt)).is_err(), "{context}");
            }
            for round in 2..7 {
                // Every table is merged with, and the wrong reference is not overwritten.
                let written = |i: &u32| *i != hurt && (round == 6 || i.is_multiple_of(3));
                (0..KEYS).filter(written).for_each(|i| db.put(key(i), value(i, round)).unwrap());
                db.flush().unwrap();
            }
            db.compact().unwrap();
            db.wait_for_compaction().unwrap();
            let (write, tables) = (db.stats().write, db.default_keyspace().tables());
            assert_eq!(write.set_aside, 0, "{context}");
            assert!(tables.iter().all(|table| table.id != id), "{context}: its table was not merged");
            for i in 0..KEYS {
                match db.get(key(i)) {
                    Ok(found) => {
                        assert!(i != hurt, "{context}: the wrong reference was read");
                        assert_eq!(found.as_deref(), Some(&value(i, 6)[..]), "{context}: {i}");
                    }
                    Err(error) => assert!(i == hurt, "{context}: {i}: {error}"),
                }
            }
            // Once it is overwritten, nothing is lost.
            db.put(key(hurt), value(hurt, 7)).unwrap();
            assert_eq!(db.get(key(hurt)).unwrap().as_deref(), Some(&value(hurt, 7)[..]));
        }
    }
}
