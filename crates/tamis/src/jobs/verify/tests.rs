//! Well-formed but wrong elastic filters: checksums do not reveal them, `verify` must.

use std::path::Path;
use std::sync::Arc;

use tamis_base::epochs::EpochMap;
use tamis_base::key::{KeyEnd, Kind};
use tamis_base::meta::TableMeta;
use tamis_files::table::{ElasticBuilder, ExtraProperties, ReaderConfig, TableBuilder, TableOptions};
use tamis_files::tree::files::table_path;
use tamis_filter::{BloomScheme, Digest, Verify};

use super::*;
use crate::io::{FileSystem, MemFs, Usage};

const SCHEMES: [BloomScheme; 3] =
    [BloomScheme::Rotation, BloomScheme::DoubleHashing, BloomScheme::Independent];

fn filter_of(keys: &[u64], scheme: BloomScheme) -> Vec<u8> {
    let mut builder = ElasticBuilder::new((2, 4.0, scheme), 128, Verify::Yes, Some(3));
    keys.iter().for_each(|key| builder.add(&key.to_be_bytes(), Digest::of(&key.to_be_bytes())));
    builder.finish().unwrap().unwrap()
}

/// Returns the problems of a table that holds `keys`, some in several versions, with these bytes as
/// its elastic filter.
fn problems(keys: &[u64], filter: Vec<u8>) -> Vec<String> {
    let (fs, dir) = (MemFs::new(), Path::new("/t"));
    fs.create_dir_all(dir).unwrap();
    let path = table_path(dir, 1);
    let file = fs.create(&path, Usage::Table).unwrap();
    let mut builder = TableBuilder::new(file, path, TableOptions::default());
    for key in keys {
        for seq in (1..2 + key % 3).rev() {
            let bytes = key.to_be_bytes();
            builder.add(&bytes, Digest::of(&bytes), seq, Kind::Put, b"value").unwrap();
        }
    }
    let extra = ExtraProperties { filter_kind: ELASTIC.into(), ..ExtraProperties::default() };
    let finished = builder.finish(Some(filter), None, extra).unwrap();
    let p = &finished.properties;
    let meta = TableMeta {
        id: 1,
        file_bytes: finished.file_bytes,
        smallest: p.smallest[..].into(),
        largest: KeyEnd::Included(p.largest[..].into()),
        entries: p.entries,
        deletes: 0,
        range_tombstones: 0,
        raw_bytes: 8,
        min_seq: 1,
        max_seq: 3,
        epochs: EpochMap::flush(p.smallest[..].into(), 1),
        extra: Default::default(),
    };
    let config = ReaderConfig { map: true, pin_metadata: true, ..ReaderConfig::default() };
    let table = OpenTable::open(&fs, dir, Arc::new(meta), &config, &Arc::default()).unwrap();
    let mut report = VerifyReport::default();
    check_table(&table, &mut report);
    report.problems
}

fn keys() -> Vec<u64> {
    (0..700).map(|i| i * 5).collect()
}

#[test]
fn a_filter_of_the_tables_keys_is_accepted() {
    for scheme in SCHEMES {
        assert_eq!(problems(&keys(), filter_of(&keys(), scheme)), Vec::<String>::new());
    }
}

#[test]
fn a_filter_that_denies_keys_is_found() {
    for scheme in SCHEMES {
        let others: Vec<u64> = keys().iter().map(|key| key + u64::from(*key > 2000)).collect();
        let found = problems(&keys(), filter_of(&others, scheme));
        assert!(found.iter().any(|what| what.contains("of its keys")), "{found:?}");
    }
}

#[test]
fn a_filter_of_more_keys_is_found() {
    // One key less in the table; nothing is denied, but hotness is divided by the number of keys.
    let mut fewer = keys();
    fewer.remove(300);
    let found = problems(&fewer, filter_of(&keys(), BloomScheme::Rotation));
    assert!(found.len() == 1 && found[0].contains("claims 128 keys but has 127"), "{found:?}");
}

#[test]
fn damaged_units_are_named() {
    let mut bytes = filter_of(&keys(), BloomScheme::Rotation);
    let directory = UnitDirectory::open(bytes.len() as u64, &bytes).unwrap();
    let (offset, _) = directory.unit_span(2, 1);
    bytes[offset as usize + 3] ^= 1;
    let found = problems(&keys(), bytes.clone());
    assert!(found.len() == 1 && found[0].contains("unit 1 of segment 2 of its filter"), "{found:?}");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let found = problems(&keys(), bytes);
    assert!(found.len() == 1 && found[0].contains("its filter"), "{found:?}");
}
