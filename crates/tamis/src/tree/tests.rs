//! What files of a database are taken for; tables for tests of others.

use std::path::Path;
use std::sync::Arc;

use tamis_base::epochs::{EpochMap, EpochSegment};
use tamis_base::ids::TableId;
use tamis_base::key::KeyEnd;
use tamis_base::meta::{TableExtra, TableMeta};
use tamis_files::tree::identify::{Contents, identify};

use crate::Options;
use crate::ingest::ExternalTableBuilder;
use crate::io::{FileSystem, MemFs};

/// The bytes of a file by which text is known.
const TEXT_BYTES: u64 = 4096;

/// A table with keys from `smallest` to `largest`.
pub(crate) fn table(id: TableId, smallest: &str, largest: &str) -> TableMeta {
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

#[test]
fn files_are_identified_by_their_contents() {
    let fs = MemFs::new();
    let dir = Path::new("/db");
    let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    let db = options.clone().open(dir).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.put("key", "another").unwrap();
    drop(db);
    let outside = Path::new("/outside.tam");
    let mut table =
        ExternalTableBuilder::create_on(Arc::new(fs.clone()), outside, &options.keyspace).unwrap();
    table.put(b"key", b"value").unwrap();
    table.finish().unwrap();
    let written = |name: &str, bytes: &[u8]| {
        crate::io::write_file_atomically(&fs, Path::new(name), bytes).unwrap();
        identify(&fs, Path::new(name)).unwrap()
    };

    assert_eq!(identify(&fs, outside).unwrap(), Contents::ExternalTable);
    let mut seen = Vec::new();
    for name in fs.list(dir).unwrap() {
        let path = dir.join(&name);
        let contents = identify(&fs, &path).unwrap();
        let number = || name.split(['.', '-']).find_map(|part| part.parse().ok()).unwrap();
        let wanted = match &*name {
            "CURRENT" | "OPTIONS" => Contents::Text,
            "LOCK" => continue,
            _ if name.ends_with(".tam") => Contents::Table,
            _ if name.ends_with(".log") => Contents::Log(number()),
            _ => Contents::Manifest(number()),
        };
        assert_eq!(contents, wanted, "{name}");
        seen.push(contents);
        // Under another name the result is the same, and damage elsewhere does not hide it.
        let mut bytes = crate::io::read_file(&fs, &path).unwrap();
        assert_eq!(written("/other", &bytes), contents);
        if !matches!(contents, Contents::Text) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x20;
            assert_eq!(written("/other", &bytes), contents, "{name}");
        }
    }
    assert!(seen.contains(&Contents::Table), "{seen:?}");
    assert!(seen.iter().any(|one| matches!(one, Contents::Log(_))), "{seen:?}");
    assert!(seen.iter().any(|one| matches!(one, Contents::Manifest(_))), "{seen:?}");
    assert_eq!(written("/other", b""), Contents::Nothing);
    assert_eq!(written("/other", "Zürich\t8001\r\n".as_bytes()), Contents::Text);
    let long = "ü".repeat(TEXT_BYTES as usize);
    assert_eq!(written("/other", format!("1{long}").as_bytes()), Contents::Text, "cut within a character");
    for bytes in [&[0; 5000][..], b"\xff\xfe", b"text\0text", b"\xc3"] {
        assert_eq!(written("/other", bytes), Contents::Unknown, "{bytes:?}");
    }
    assert!(identify(&fs, Path::new("/nothing")).is_err());
}
