//! A stored table of format version 1, which must remain readable.

use crate::settings::Compression;
use std::path::Path;

use tamis_base::key::MAX_SEQNO;
use tamis_env::io::{FileSystem, Usage};
use tamis_filter::Digest;

use super::support::*;
use crate::table::*;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/table-v1.tam");

fn versions() -> Vec<Version> {
    let mut all = vec![put(b"", 1, b"the empty key")];
    for i in 0..40u64 {
        let key = format!("city/{:02}", i);
        all.push(put(&key, 500 + i, format!("population {}", i * i * 1000)));
        if i % 4 == 0 {
            all.push(delete(&key, 300 + i));
            all.push(put(&key, 100 + i, "before"));
        }
    }
    all.push(put([0xFF; 300], 7, [0xEE; 300]));
    all
}

fn build() -> Vec<u8> {
    let fs = TestFs::default();
    let options = TableOptions { block_bytes: 512, compression: Compression::Lz4, ..TableOptions::default() };
    let file = fs.create(table_path(), Usage::Table).unwrap();
    let mut builder = TableBuilder::new(file, table_path(), options);
    for v in versions() {
        builder.add(&v.key, Digest::of(&v.key), v.seq, v.kind, &v.value).unwrap();
    }
    let extra = ExtraProperties {
        range_tombstones: 2,
        epochs: b"epochs".to_vec(),
        filter_kind: "none".into(),
        ..ExtraProperties::default()
    };
    builder.finish(Some(b"filter bytes".to_vec()), Some(b"tombstone bytes".to_vec()), extra).unwrap();
    fs.bytes(table_path())
}

/// With `TAMIS_WRITE_FIXTURES` set the file is rewritten: only for a new format version, under a
/// new name.
#[test]
fn the_stored_table_of_version_1_is_read() {
    if std::env::var_os("TAMIS_WRITE_FIXTURES").is_some() {
        std::fs::create_dir_all(Path::new(FIXTURE).parent().unwrap()).unwrap();
        std::fs::write(FIXTURE, build()).unwrap();
    }
    let fs = TestFs::default();
    fs.put(table_path(), std::fs::read(FIXTURE).unwrap());
    for config in [mapped(), cached(1 << 20)] {
        let table = open(&fs, config).unwrap();
        assert_eq!(scan(&table, CursorOptions::default()).unwrap(), versions());
        for v in versions() {
            assert_eq!(get(&table, &v.key, Some(Digest::of(&v.key)), v.seq).unwrap(), Some(v));
        }
        assert_eq!(get(&table, b"city/7", Some(Digest::of(b"city/7")), MAX_SEQNO).unwrap(), None);
        assert_eq!(&table.filter_bytes().unwrap().unwrap()[..], b"filter bytes");
        assert_eq!(&table.tombstone_bytes().unwrap().unwrap()[..], b"tombstone bytes");
        let p = table.properties();
        assert_eq!((p.entries, p.deletes, p.range_tombstones, p.min_seq, p.max_seq), (62, 10, 2, 1, 539));
        assert_eq!(
            (&p.epochs[..], &p.filter_kind[..], &p.digest_function[..]),
            (&b"epochs"[..], "none", "xxh3-64")
        );
        assert!(p.created_by.starts_with("tamis "));
        assert_eq!(table.check().problems, vec![]);
    }
}
