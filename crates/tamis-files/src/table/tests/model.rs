//! Compares tables with sorted vectors of versions, over all ways of writing and reading.

use std::sync::Arc;

use tamis_base::key::{Kind, MAX_SEQNO, SeqNo, compare_versions};
use tamis_env::io::batch::BatchReader;
use tamis_filter::Digest;

use crate::settings::{ChecksumMode, Compression};
use proptest::prelude::*;

use super::support::*;
use crate::table::*;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(0u8..4, 0..6),
        2 => (0u32..2000).prop_map(|n| format!("user/{n:06}").into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (0u8..3, 250usize..300).prop_map(|(b, n)| vec![b; n]),
    ]
}

fn version() -> impl Strategy<Value = Version> {
    let value = prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), 0usize..600).prop_map(|(b, n)| vec![b; n]),
    ];
    let seq = prop_oneof![3 => 0..200u64, 1 => 0..=MAX_SEQNO];
    let kind = prop_oneof![7 => Just(Kind::Put), 2 => Just(Kind::Delete), 2 => Just(Kind::Merge)];
    (key(), seq, kind, value).prop_map(|(key, seq, kind, value)| match kind {
        Kind::Delete => delete(key, seq),
        Kind::Put | Kind::PutBlob => put(key, seq, value),
        Kind::Merge => operand(key, seq, value),
    })
}

fn sorted(mut versions: Vec<Version>) -> Vec<Version> {
    versions.sort_by(|a, b| compare_versions(&a.key, a.seq, &b.key, b.seq));
    versions.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
    versions
}

fn expected_get(model: &[Version], key: &[u8], snapshot: SeqNo) -> Option<Version> {
    model.iter().find(|v| v.key == key && v.seq <= snapshot).cloned()
}

fn options() -> impl Strategy<Value = TableOptions> {
    (
        prop_oneof![Just(1usize), Just(200), Just(1000), Just(4096), Just(1 << 16)],
        prop_oneof![Just(1usize), Just(2), Just(5), Just(16), Just(1000)],
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(block_bytes, restart_interval, hash_index, lz4)| TableOptions {
            block_bytes,
            restart_interval,
            hash_index,
            compression: if lz4 { Compression::Lz4 } else { Compression::None },
        })
}

fn config() -> impl Strategy<Value = ReaderConfig> {
    let cache = prop_oneof![Just(None), Just(Some(0u64)), Just(Some(20_000)), Just(Some(8 << 20))];
    (any::<bool>(), any::<bool>(), any::<bool>(), cache).prop_map(|(map, pin, always, cache)| ReaderConfig {
        map,
        verify: if always { ChecksumMode::Always } else { ChecksumMode::Once },
        pin_metadata: pin,
        ..cache.map_or(ReaderConfig::default(), cached)
    })
}

fn position(cursor: &TableCursor) -> Option<Version> {
    cursor.valid().then(|| current(cursor))
}

fn check_gets(table: &Table, model: &[Version], probes: &[(Vec<u8>, SeqNo)]) -> Result<(), TestCaseError> {
    let own = model.iter().flat_map(|v| [(v.key.clone(), v.seq), (v.key.clone(), v.seq.saturating_sub(1))]);
    let newest = model.iter().map(|v| (v.key.clone(), MAX_SEQNO));
    for (key, snapshot) in own.chain(newest).chain(probes.iter().cloned()) {
        let expected = expected_get(model, &key, snapshot);
        for digest in [None, Some(Digest::of(&key))] {
            prop_assert_eq!(&get(table, &key, digest, snapshot).unwrap(), &expected);
        }
    }
    Ok(())
}

fn check_seeks(
    cursor: &mut TableCursor,
    model: &[Version],
    probes: &[(Vec<u8>, SeqNo)],
) -> Result<(), TestCaseError> {
    let own = model.iter().map(|v| (v.key.clone(), v.seq));
    for (key, seq) in own.chain(probes.iter().cloned()) {
        let at = model.partition_point(|v| compare_versions(&v.key, v.seq, &key, seq).is_lt());
        cursor.seek(&key, seq).unwrap();
        prop_assert_eq!(position(cursor), model.get(at).cloned());
        if cursor.valid() {
            cursor.prev().unwrap();
            let before = at.checked_sub(1).and_then(|i| model.get(i));
            prop_assert_eq!(position(cursor), before.cloned());
        }
        let before = model.partition_point(|v| v.key < key).checked_sub(1);
        cursor.seek_before(&key).unwrap();
        prop_assert_eq!(position(cursor), before.map(|i| model[i].clone()));
        if cursor.valid() {
            cursor.next().unwrap();
            let after = before.and_then(|i| model.get(i + 1));
            prop_assert_eq!(position(cursor), after.cloned());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_table_answers_as_the_sorted_versions_do(
        versions in proptest::collection::vec(version(), 0..150),
        probes in proptest::collection::vec((key(), 0..=MAX_SEQNO), 0..20),
        options in options(),
        config in config(),
        read_ahead in prop_oneof![Just(0u64), Just(1)],
    ) {
        let model = sorted(versions);
        let fs = TestFs::default();
        let filter = (model.len().is_multiple_of(2)).then(|| vec![7; model.len()]);
        let tombstones = (model.len().is_multiple_of(3)).then(|| b"tombstones".to_vec());
        let finished = write(&fs, &model, &options, filter.clone(), tombstones.clone());
        let table = open(&fs, config).unwrap();

        prop_assert_eq!(table.properties(), &finished.properties);
        prop_assert_eq!(table.file_bytes(), finished.file_bytes);
        prop_assert_eq!(table.filter_bytes().unwrap().map(|b| b.to_vec()), filter);
        prop_assert_eq!(table.tombstone_bytes().unwrap().map(|b| b.to_vec()), tombstones);
        let deletes = model.iter().filter(|v| v.kind == Kind::Delete).count() as u64;
        prop_assert_eq!((finished.properties.entries, finished.properties.deletes), (model.len() as u64, deletes));
        prop_assert_eq!(finished.properties.largest.clone(), model.last().map_or(vec![], |v| v.key.clone()));
        let report = table.check();
        prop_assert_eq!(&report.problems, &vec![]);
        prop_assert_eq!(report.entries, model.len() as u64);

        let cursor_options = CursorOptions { fill_cache: false, read_ahead };
        prop_assert_eq!(&scan(&table, cursor_options).unwrap(), &model);
        let mut cursor = TableCursor::new(table.clone(), cursor_options);
        cursor.seek_to_last().unwrap();
        for expected in model.iter().rev() {
            prop_assert_eq!(&current(&cursor), expected);
            cursor.prev().unwrap();
        }
        prop_assert!(!cursor.valid());

        check_gets(&table, &model, &probes)?;
        check_seeks(&mut cursor, &model, &probes)?;
    }
}

/// A move of a cursor.
#[derive(Clone, Debug)]
enum Move {
    Next,
    Prev,
    Seek(u8, SeqNo),
    SeekBefore(u8),
    /// To the version so many places ahead, if it is one of the same key, or else to the next key.
    Pass(usize),
    PassBefore,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => Just(Move::Next),
        4 => Just(Move::Prev),
        2 => (0..7u8, prop_oneof![0..80u64, Just(MAX_SEQNO)]).prop_map(|(key, seq)| Move::Seek(key, seq)),
        1 => (0..7u8).prop_map(Move::SeekBefore),
        4 => (1..60usize).prop_map(Move::Pass),
        1 => Just(Move::PassBefore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Regression: a seek to a version of which newer ones fill a block stopped at the edge of that
    /// block, although the next block began with newer versions, too. A scan over them went back to
    /// that edge for ever, where reads overlap.
    ///
    /// The versions of few keys fill many blocks. Every move of a cursor leads to the version that
    /// a sorted list has there: strictly on in its direction. Where it stops at the edge of a
    /// block, that edge lies beyond what it left, and not beyond what follows.
    #[test]
    fn a_cursor_moves_in_its_direction_over_many_versions(
        counts in proptest::collection::vec((0..60u64, 0..150usize), 1..6),
        moves in proptest::collection::vec(moves(), 1..60),
        block_bytes in prop_oneof![Just(1usize), Just(128), Just(300)],
        restart_interval in prop_oneof![Just(1usize), Just(16)],
        mode in 0..3u8,
        defers in any::<bool>(),
    ) {
        let name = |key: u8| vec![b'k', key];
        let versions = counts.iter().enumerate().flat_map(|(key, &(count, len))| {
            (0..count).map(move |seq| put(vec![b'k', key as u8 + 1], seq + 1, vec![seq as u8; len]))
        });
        let model = sorted(versions.collect());
        let fs = TestFs::default();
        write(&fs, &model, &TableOptions { block_bytes, restart_interval, ..TableOptions::default() }, None, None);
        let config = match mode {
            0 => mapped(),
            1 => cached(1 << 20),
            _ => ReaderConfig { reads: Some(Arc::new(BatchReader::new(4, false))), ..cached(1 << 20) },
        };
        let table = open(&fs, config).unwrap();
        let mut cursor = TableCursor::new(table, CursorOptions::default());
        if defers {
            cursor.defer();
        }
        let after = |key: &[u8], seq: SeqNo| {
            model.partition_point(|v| compare_versions(&v.key, v.seq, key, seq).is_lt())
        };
        let before = |key: &[u8]| model.partition_point(|v| &v.key[..] < key).checked_sub(1);
        cursor.seek_to_first().unwrap();
        let mut at = (!model.is_empty()).then_some(0);
        for (number, step) in moves.iter().enumerate() {
            let here = at.map(|at: usize| model[at].clone());
            let (to, is_backward) = match (step, at, &here) {
                (Move::Seek(key, seq), ..) => {
                    cursor.seek(&name(*key), *seq).unwrap();
                    (Some(after(&name(*key), *seq)), false)
                }
                (Move::SeekBefore(key), ..) => {
                    cursor.seek_before(&name(*key)).unwrap();
                    (before(&name(*key)), true)
                }
                (Move::Next, Some(at), _) => {
                    cursor.next().unwrap();
                    (Some(at + 1), false)
                }
                (Move::Prev, Some(at), _) => {
                    cursor.prev().unwrap();
                    (at.checked_sub(1), true)
                }
                (Move::Pass(count), Some(at), Some(here)) => {
                    let target = model.get(at + count).filter(|v| v.key == here.key).map_or(0, |v| v.seq);
                    cursor.pass(&here.key, target).unwrap();
                    (Some(after(&here.key, target)), false)
                }
                (Move::PassBefore, _, Some(here)) => {
                    cursor.pass_before(&here.key).unwrap();
                    (before(&here.key), true)
                }
                _ => continue,
            };
            let to = to.filter(|&to| to < model.len());
            if let Some(bound) = cursor.deferred_bound() {
                prop_assert!(!cursor.valid() && to.is_some());
                let key = &model[to.unwrap()].key;
                prop_assert!(if is_backward { *key <= bound } else { *key >= bound }, "{number}: {step:?}");
                cursor.resume().unwrap();
            }
            prop_assert_eq!(position(&cursor), to.map(|to| model[to].clone()), "{}: {:?}", number, step);
            at = to;
        }
    }
}
