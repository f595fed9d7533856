//! What a batch holds, refuses, and gives back.

use proptest::prelude::*;

use tamis_base::key::MAX_SEQNO;
use tamis_files::wal::ops::{BatchOp, GroupHeader};

use super::*;

fn ops(batch: &WriteBatch) -> Vec<BatchOp<'_>> {
    batch.ops().collect::<Result<_, _>>().unwrap()
}

#[test]
fn an_ingestion_takes_one_sequence_number() {
    let batch = WriteBatch::ingestion(300);
    assert_eq!(batch.len(), 1);
    assert_eq!(ops(&batch), [BatchOp::Ingestion { keyspace: 300 }]);
    assert_eq!(batch.bytes(), [16, 0xAC, 2, 0]);
    assert!(Ops::new(&[16, 0, 1, b'k']).next().is_some_and(|op| op.is_err()), "it has no key");
}

#[test]
fn a_protected_batch_is_intact_until_a_byte_changes() {
    for protected_at in 0..3 {
        let mut batch = if protected_at == 0 { WriteBatch::protected() } else { WriteBatch::new() };
        batch.put("a", "1").delete("b").delete_range("c".."d").delete_range("x"..);
        if protected_at == 1 {
            batch.protect();
        }
        batch.merge_id(7, b"e", b"2").put_digested(9, b"f", Digest::of(b"f"), b"3");
        batch.delete_digested(0, b"g", Digest::of(b"g"));
        batch.merge_digested(8, b"h", Digest::of(b"h"), b"4");
        batch.protect();
        assert!(batch.is_intact());
        for at in 0..batch.bytes.len() {
            for bit in 0..8 {
                batch.bytes[at] ^= 1 << bit;
                assert!(!batch.is_intact(), "bit {bit} of byte {at}");
                batch.bytes[at] ^= 1 << bit;
            }
        }
        for at in 0..batch.digests.len() {
            let digest = std::mem::replace(&mut batch.digests[at], Digest::of(b"another key"));
            assert!(!batch.is_intact(), "digest {at}");
            batch.digests[at] = digest;
        }
        batch.clear();
        batch.put("a", "2");
        assert!(batch.is_intact(), "an emptied batch begins anew");
    }
}

#[test]
fn operations_round_trip_in_order() {
    let mut batch = WriteBatch::new();
    batch.put("a", "1").delete("b").delete_range("c".."d");
    batch.put_id(300, b"", b"").merge_id(7, b"e", b"2");
    assert_eq!((batch.len(), batch.is_empty()), (5, false));
    assert_eq!((batch.keyspaces(), batch.merged()), (&[0, 300, 7][..], &[7][..]));
    let expected = [
        BatchOp::Put { keyspace: 0, key: b"a", value: b"1" },
        BatchOp::Delete { keyspace: 0, key: b"b" },
        BatchOp::DeleteRange { keyspace: 0, start: b"c", end: Some(b"d") },
        BatchOp::Put { keyspace: 300, key: b"", value: b"" },
        BatchOp::Merge { keyspace: 7, key: b"e", operand: b"2" },
    ];
    assert_eq!(ops(&batch), expected);
    let keys: Vec<_> = expected.iter().filter_map(BatchOp::key).map(Digest::of).collect();
    assert_eq!(batch.digests(), keys);
    batch.clear();
    assert_eq!(batch.digests(), []);
    assert!(batch.is_empty() && batch.byte_len() == 0 && ops(&batch).is_empty());
    assert!(batch.keyspaces().is_empty() && batch.merged().is_empty());
}

/// Whether the keyspaces have a merge operator is checked for those that are listed, each once.
#[test]
fn a_keyspace_with_operands_is_listed_once_and_not_for_a_refused_one() {
    let long = vec![0; MAX_KEY_BYTES + 1];
    let mut batch = WriteBatch::new();
    batch.merge_id(7, &long, b"1");
    assert!(batch.merged().is_empty());
    batch.merge_id(7, b"a", b"1").merge_id(8, b"a", b"1").merge_id(7, b"b", b"1");
    assert_eq!(batch.merged(), [7, 8]);
    batch.merge_id(7, &long, b"1").put_id(9, b"a", b"1");
    assert_eq!(batch.merged(), [7, 8]);
    batch.clear();
    for keyspace in [7, 8, 7] {
        batch.merge_digested(keyspace, b"a", Digest::of(b"a"), b"1");
    }
    assert_eq!((batch.merged(), batch.keyspaces()), (&[7, 8][..], &[7, 8][..]));
}

#[test]
fn all_forms_of_bounds_are_normalized() {
    use Bound::*;
    type Form<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>, Option<(&'a [u8], Option<&'a [u8]>)>);
    let forms: [Form<'_>; 12] = [
        (Included(b"a"), Excluded(b"c"), Some((b"a", Some(b"c")))),
        (Included(b"a"), Included(b"c"), Some((b"a", Some(b"c\0")))),
        (Excluded(b"a"), Excluded(b"c"), Some((b"a\0", Some(b"c")))),
        (Excluded(b"a"), Unbounded, Some((b"a\0", None))),
        (Unbounded, Excluded(b"c"), Some((b"", Some(b"c")))),
        (Unbounded, Unbounded, Some((b"", None))),
        (Included(b"a"), Included(b"a"), Some((b"a", Some(b"a\0")))),
        (Included(b"a"), Excluded(b"a"), None),
        (Excluded(b"a"), Included(b"a"), None),
        (Excluded(b"a"), Excluded(b"a"), None),
        (Excluded(b"a"), Excluded(b"a\0"), None),
        (Unbounded, Excluded(b""), None),
    ];
    for (start, end, expected) in forms {
        let mut batch = WriteBatch::new();
        batch.delete_range::<&[u8]>((start, end));
        batch.check().unwrap();
        let expected = expected.map(|(start, end)| BatchOp::DeleteRange { keyspace: 0, start, end });
        assert_eq!(ops(&batch), Vec::from_iter(expected), "{start:?}..{end:?}");
    }
}

#[test]
fn the_first_refusal_is_reported_and_nothing_refused_is_kept() {
    let mut batch = WriteBatch::new();
    let long = vec![0; MAX_KEY_BYTES + 1];
    batch.put(&long[1..], "fits").delete_range("b".."a").put(&long, "").delete(&long);
    assert!(matches!(batch.check(), Err(WriteError::ReversedRange)));
    assert_eq!(batch.len(), 1);
    batch.clear();
    batch.check().unwrap();
    batch.delete_range::<&[u8]>(&long[..]..);
    assert!(matches!(batch.check(), Err(WriteError::KeyTooLong { len, max })
        if len == long.len() && max == MAX_KEY_BYTES));
}

/// The memory of the value is never touched.
#[test]
#[cfg(target_pointer_width = "64")]
fn a_value_that_is_too_long_is_refused() {
    let long = vec![0; MAX_VALUE_BYTES + 1];
    check_value(&long[1..]).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("key", &long);
    assert!(matches!(batch.check(), Err(WriteError::ValueTooLong { len, max })
        if len == long.len() && max == MAX_VALUE_BYTES));
    let mut batch = WriteBatch::new();
    batch.merge("key", &long);
    assert!(matches!(batch.check(), Err(WriteError::ValueTooLong { .. })));
    assert!(batch.is_empty());
    let refused = batch.put_checked(0, b"key", Digest::of(b"key"), &long);
    assert!(matches!(refused, Err(WriteError::ValueTooLong { .. })));
    assert!(batch.is_empty());
}

/// A batch is bound to the database of the keyspaces that it names, until it is cleared.
#[test]
fn a_cleared_batch_can_be_written_to_another_database() {
    let mut batch = WriteBatch::new();
    batch.claim(1, "events");
    batch.put("key", "value");
    batch.check_owner(1).unwrap();
    assert!(matches!(batch.check_owner(2), Err(WriteError::ForeignKeyspace { name }) if name == "events"));
    batch.clear();
    batch.check_owner(2).unwrap();
    batch.claim(2, "others");
    batch.claim(2, "more");
    batch.check().unwrap();
    assert!(batch.check_owner(1).is_err());
    // Keyspaces of two databases in one batch.
    batch.claim(1, "foreign");
    assert!(matches!(batch.check(), Err(WriteError::ForeignKeyspace { name }) if name == "foreign"));
}

/// An operation added by a later format version must not be misread.
#[test]
fn an_unknown_operation_is_an_error() {
    let mut batch = WriteBatch::new();
    batch.merge("key", "operand");
    let mut bytes = batch.bytes().to_vec();
    assert_eq!(bytes[0], tag::MERGE);
    bytes[0] = tag::MERGE + 1;
    assert!(matches!(Ops::new(&bytes).collect::<Vec<_>>()[..], [Err(_)]));
}

#[test]
fn ranges_up_to_the_longest_key_can_be_read_back() {
    let longest = vec![0xFF; MAX_KEY_BYTES];
    let mut batch = WriteBatch::new();
    batch.delete_range(longest.clone()..=longest);
    assert_eq!(ops(&batch).len(), 1);
}

#[test]
fn group_headers_round_trip_and_impossible_ones_are_refused() {
    let mut batch = WriteBatch::new();
    batch.put("a", "").delete("b");
    for older_logs_synced in [false, true] {
        let header = GroupHeader { first_seq: 1000, count: 2, older_logs_synced };
        let mut payload = Vec::new();
        header.encode(&mut payload);
        payload.extend_from_slice(batch.bytes());
        assert_eq!(GroupHeader::decode(&payload), Ok((header, batch.bytes())));
    }
    for (first_seq, count) in [(0, 1), (1, 0), (MAX_SEQNO, 1), (1, 1000)] {
        let mut payload = Vec::new();
        GroupHeader { first_seq, count, older_logs_synced: true }.encode(&mut payload);
        payload.extend_from_slice(batch.bytes());
        assert!(GroupHeader::decode(&payload).is_err(), "{first_seq} {count}");
    }
}

proptest! {
    #[test]
    fn hostile_bytes_decode_to_an_error_or_to_operations_that_round_trip(
        bytes in prop::collection::vec(prop_oneof![0..5u8, 0..32u8, any::<u8>()], 0..200),
    ) {
        let mut batch = WriteBatch::new();
        let mut whole = true;
        for op in Ops::new(&bytes) {
            match op {
                Ok(BatchOp::Put { keyspace, key, value }) => { batch.put_id(keyspace, key, value); }
                Ok(BatchOp::Merge { keyspace, key, operand }) => { batch.merge_id(keyspace, key, operand); }
                Ok(BatchOp::Delete { keyspace, key }) => { batch.delete_id(keyspace, key); }
                Ok(BatchOp::DeleteRange { keyspace, start, end }) => {
                    let end = end.map_or(Bound::Unbounded, Bound::Excluded);
                    batch.delete_range_id::<&[u8]>(keyspace, (Bound::Included(start), end));
                }
                Ok(BatchOp::Ingestion { keyspace }) => {
                    batch.bytes.extend_from_slice(WriteBatch::ingestion(keyspace).bytes());
                }
                Err(_) => whole = false,
            }
        }
        prop_assert!(bytes.starts_with(batch.bytes()));
        prop_assert!(!whole || batch.bytes() == bytes);
    }

    #[test]
    fn a_truncated_batch_yields_its_first_operations(
        puts in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..9)), 0..9),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut batch = WriteBatch::new();
        puts.iter().for_each(|(keyspace, key)| { batch.put_id(*keyspace, key, b"value"); });
        let cut = cut.index(batch.byte_len() + 1);
        for (op, (keyspace, key)) in Ops::new(&batch.bytes()[..cut]).filter_map(Result::ok).zip(&puts) {
            prop_assert_eq!(op, BatchOp::Put { keyspace: *keyspace, key, value: b"value" });
        }
        let ok = Ops::new(&batch.bytes()[..cut]).filter(Result::is_ok).count();
        prop_assert!(ok == puts.len() || cut < batch.byte_len());
    }
}
