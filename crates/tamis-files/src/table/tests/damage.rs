//! Damaged and hostile bytes: an error or the right answer, never a wrong one, never a panic.

use tamis_base::key::{Kind, MAX_SEQNO};
use tamis_env::memory::PageVec;
use tamis_filter::Digest;

use crate::settings::Compression;
use proptest::prelude::*;

use super::support::*;
use crate::error::StorageError;
use crate::table::block::{BlockView, Span};
use crate::table::block_builder::BlockBuilder;
use crate::table::*;

fn small_model() -> Vec<Version> {
    let mut model = Vec::new();
    for i in 0..60u32 {
        let key = format!("key-{:04}", i * 3);
        if i % 7 == 0 {
            model.push(delete(&key, 1000 + u64::from(i)));
        }
        model.push(put(&key, u64::from(i), format!("value {i} ").repeat(9)));
    }
    model
}

/// The answers of a table to a fixed set of queries, including errors.
fn answers(fs: &TestFs, config: ReaderConfig, model: &[Version]) -> Vec<Result<Vec<Version>, ()>> {
    let table = match open(fs, config) {
        Ok(table) => table,
        Err(error) => {
            assert!(matches!(error, StorageError::Corrupt(_)), "{error}");
            return Vec::new();
        }
    };
    let mut all = vec![scan(&table, CursorOptions::default()).map_err(drop)];
    for v in model.iter().step_by(3) {
        let digest = Some(Digest::of(&v.key));
        all.push(
            get(&table, &v.key, digest, MAX_SEQNO).map(|found| found.into_iter().collect()).map_err(drop),
        );
        let absent = [&v.key[..], b"x"].concat();
        let digest = Some(Digest::of(&absent));
        all.push(
            get(&table, &absent, digest, MAX_SEQNO).map(|found| found.into_iter().collect()).map_err(drop),
        );
    }
    for part in [table.filter_bytes(), table.tombstone_bytes()] {
        all.push(part.map(|p| p.iter().map(|bytes| put(b"part", 0, &bytes[..])).collect()).map_err(drop));
    }
    table.check();
    all
}

fn flips_are_never_wrong(compression: Compression, config: impl Fn() -> ReaderConfig) {
    let model = small_model();
    let fs = TestFs::default();
    let options = TableOptions { block_bytes: 1024, compression, ..TableOptions::default() };
    write(&fs, &model, &options, Some(b"a filter".repeat(20)), Some(b"tombstones".to_vec()));
    let good = fs.bytes(table_path());
    assert!(compression != Compression::None || (5000..8000).contains(&good.len()), "{}", good.len());
    let right = answers(&fs, config(), &model);
    assert!(right.iter().all(Result::is_ok));
    for i in 0..good.len() {
        let mut bad = good.clone();
        bad[i] ^= 1 << (i % 8);
        fs.put(table_path(), bad);
        let got = answers(&fs, config(), &model);
        for (got, right) in got.iter().zip(&right) {
            assert!(got.is_err() || got == right, "byte {i}: a wrong answer");
        }
        assert!(got.is_empty() || got.iter().any(Result::is_err), "byte {i}: the flip went unnoticed");
    }
}

#[test]
fn a_flipped_byte_of_a_mapped_file_gives_an_error_or_the_right_answer() {
    flips_are_never_wrong(Compression::None, mapped);
}

#[test]
fn a_flipped_byte_of_a_compressed_file_gives_an_error_or_the_right_answer() {
    flips_are_never_wrong(Compression::Lz4, || cached(1 << 20));
}

#[test]
fn every_truncation_is_rejected_at_opening() {
    let fs = TestFs::default();
    write(&fs, &small_model(), &TableOptions::default(), None, None);
    let good = fs.bytes(table_path());
    for len in 0..good.len() {
        fs.put(table_path(), good[..len].to_vec());
        for config in [mapped(), cached(0)] {
            assert!(matches!(open(&fs, config), Err(StorageError::Corrupt(_))), "truncated to {len}");
        }
    }
}

#[test]
fn a_damaged_block_is_reported_by_its_offset_and_the_rest_is_still_read() {
    let model = small_model();
    let fs = TestFs::default();
    write(&fs, &model, &TableOptions { block_bytes: 1024, ..TableOptions::default() }, None, None);
    let mut bytes = fs.bytes(table_path());
    let at = open(&fs, mapped()).unwrap().index(&mut ()).unwrap().block(2).unwrap();
    bytes[at.offset as usize + 5] ^= 0x40;
    fs.put(table_path(), bytes);
    let table = open(&fs, mapped()).unwrap();
    let report = table.check();
    assert_eq!(report.blocks, table.properties().data_blocks - 1);
    assert!(
        matches!(&report.problems[..], [(offset, what)] if *offset == at.offset && what.contains("checksum"))
    );
    assert_eq!(get(&table, &model[0].key, None, MAX_SEQNO).unwrap(), Some(model[0].clone()));
}

#[test]
fn a_check_notices_what_checksums_cannot() {
    // Written with wrong digests: every checksum is right, but the hash indexes are useless.
    let fs = TestFs::default();
    let file = tamis_env::io::FileSystem::create(&fs, table_path(), tamis_env::io::Usage::Table).unwrap();
    let mut builder = TableBuilder::new(file, table_path(), TableOptions::default());
    for v in small_model() {
        builder.add(&v.key, Digest::of(b"another key"), v.seq, v.kind, &v.value).unwrap();
    }
    builder.finish(None, None, ExtraProperties::default()).unwrap();
    let problems = open(&fs, mapped()).unwrap().check().problems;
    assert!(problems.iter().any(|(_, what)| what.contains("hash index")), "{problems:?}");
}

/// A lookup of the newest version never looks at the fingerprint of an older one, so only a check
/// of each entry notices that it is wrong; a lookup of another key would compare keys in vain.
#[test]
fn a_check_notices_the_fingerprint_of_another_key() {
    let fs = TestFs::default();
    write(&fs, &small_model()[..8], &TableOptions::default(), None, None);
    let good = fs.bytes(table_path());
    let table = open(&fs, mapped()).unwrap();
    assert_eq!(table.check().problems, vec![]);
    let at = table.index(&mut ()).unwrap().block(0).unwrap();
    let bytes = table.fresh_block(at).unwrap();
    let view = BlockView::parse(&bytes).unwrap();
    let prints: Vec<u8> = (0..view.len()).map(|i| view.fingerprint(i).unwrap()).collect();
    let place = good.windows(prints.len()).position(|bytes| bytes == prints).unwrap();
    for entry in 0..prints.len() {
        let mut bad = good.clone();
        bad[place + entry] ^= 1;
        let sum_at = at.span as usize - 8;
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&bad[..sum_at], at.offset);
        bad[sum_at..sum_at + 8].copy_from_slice(&sum.to_le_bytes());
        fs.put(table_path(), bad);
        let problems = open(&fs, mapped()).unwrap().check().problems;
        let named = format!("entry {entry} has the fingerprint of another key");
        assert!(problems.iter().any(|(_, what)| what.contains(&named)), "{problems:?}");
    }
}

/// Runs every query on a block; answers do not matter, returning does.
fn interrogate(bytes: &[u8], key: &[u8]) {
    let Ok(view) = BlockView::parse(bytes) else { return };
    let mut buffer = Vec::new();
    for i in (0..view.len().min(300)).chain([view.len() - 1, view.len(), usize::MAX / 16]) {
        let _ = (view.key_parts(i), view.compare_key(i, key), view.key_equals(i, key));
        let _ = (view.copy_key(i, &mut buffer), view.value(i));
        if let (Ok(record), Ok(group)) = (view.key_record(i), view.group_record(i)) {
            let mut held = 0;
            let _ = view.key_of(record, group, &mut buffer, &mut held);
            let _ = view.differs_from_preceding(i, record);
            // The neighbours, as a cursor steps to them.
            let value = view.value_span(i).unwrap_or(Span { start: 0, len: 0 });
            let behind = view.following(i + 1, record.start + record.len, value.start + value.len);
            let before = view.preceding(i.saturating_sub(1), record.start, value.start);
            for (record, _) in [behind, before].into_iter().flatten() {
                let _ = view.key_of(record, group, &mut buffer, &mut held);
            }
        }
        if i < view.len() {
            let _ = (view.seq(i), view.kind(i));
        }
    }
    for digest in [None, Some(Digest::of(key))] {
        for snapshot in [0, 5, MAX_SEQNO] {
            let _ = view.find(key, digest, snapshot);
            let _ = view.lower_bound(key, snapshot);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn arbitrary_block_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        count in 0u8..8, keys in 0u8..40, seq_width in 0u8..9, buckets in 0u8..5, widths in 0usize..9,
        key in proptest::collection::vec(any::<u8>(), 0..4),
    ) {
        interrogate(&bytes, &key);
        // The same with a footer that is accepted more often.
        let mut framed = bytes;
        framed.extend_from_slice(&[count, 0, 0, 0, keys, 0, 0, 0]);
        framed.extend_from_slice(&[9, 0, 0, 0, 0, 0, 0, seq_width, buckets, 0, 2]);
        framed.extend_from_slice(&[[2, 4, 8][widths % 3], [2, 4, 8][widths / 3], 1, 0, 0]);
        interrogate(&framed, &key);
    }

    #[test]
    fn mutated_blocks_never_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        interval in 1usize..20,
        cut in 0usize..4,
    ) {
        let mut builder = BlockBuilder::new(interval, true);
        let mut bytes = PageVec::new();
        for i in 0..40u64 {
            let key = format!("shared-{:03}", i / 2);
            let kind = if i % 5 == 0 { Kind::Delete } else { Kind::Put };
            builder.add(key.as_bytes(), Digest::of(key.as_bytes()), 99 - i % 2, kind, &[i as u8; 9], &mut bytes);
        }
        builder.finish(&mut bytes);
        let len = bytes.len();
        for (at, byte) in flips {
            // Half of the flips go to the last hundred bytes, where the structure is.
            let i = at.index(len);
            let i = if byte % 2 == 0 { i } else { len - 1 - i % 100 };
            bytes[i] = byte;
        }
        bytes.truncate(len - cut);
        interrogate(&bytes, b"shared-007");
        interrogate(&bytes, b"");
    }
}
