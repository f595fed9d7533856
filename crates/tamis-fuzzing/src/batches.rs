//! Batches, as they stand in records of the log.

use tamis::WriteBatch;
use tamis_base::ids::{DEFAULT_KEYSPACE, KeyspaceId};
use tamis_base::key::MAX_KEY_BYTES;
use tamis_files::codec::Encode;

use tamis_files::wal::ops::{BatchOp, GroupHeader, Ops, tag};

/// Checks the operations of a batch, as stored in a log record, and the same bytes with a record's
/// header.
pub fn batch(bytes: &[u8]) {
    check_ops(bytes);
    if let Ok((header, operations)) = GroupHeader::decode(bytes) {
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, bytes[..bytes.len() - operations.len()], "the encoding of a header is unique");
        check_ops(operations);
    }
}

fn check_ops(bytes: &[u8]) {
    let mut ops = Ops::new(bytes);
    let decoded: Result<Vec<BatchOp<'_>>, _> = ops.by_ref().collect();
    assert!(ops.next().is_none(), "operations end after the first error");
    let Ok(decoded) = decoded else { return };
    let (mut again, mut by_batch) = (Vec::new(), WriteBatch::new());
    decoded.iter().for_each(|op| encode(op, &mut again));
    assert_eq!(again, bytes, "the encoding of an operation is unique");
    // A batch by itself writes to the default keyspace.
    let own = decoded.iter().filter(|op| op.keyspace() == DEFAULT_KEYSPACE && add(op, &mut by_batch));
    let mut expected = Vec::new();
    let rebuilt = own.inspect(|op| encode(op, &mut expected)).count();
    assert_eq!(by_batch.len(), rebuilt, "an operation vanished");
    assert_eq!(by_batch.bytes(), expected, "a batch has another encoding");
}

/// Adds an operation to a batch, if callers can.
fn add(op: &BatchOp<'_>, to: &mut WriteBatch) -> bool {
    let is_key = |bound: &[u8]| bound.len() <= MAX_KEY_BYTES;
    _ = match *op {
        BatchOp::Put { key, value, .. } => to.put(key, value),
        BatchOp::Merge { key, operand, .. } => to.merge(key, operand),
        BatchOp::Delete { key, .. } => to.delete(key),
        // Callers cannot give the bound behind the longest key.
        BatchOp::DeleteRange { start, end, .. } if is_key(start) && end.is_none_or(is_key) => match end {
            Some(end) => to.delete_range(start..end),
            None => to.delete_range(start..),
        },
        // Occurs only in the log, never in a batch.
        BatchOp::DeleteRange { .. } | BatchOp::Ingestion { .. } => return false,
    };
    true
}

/// Encodes an operation as `docs/formats/logs.md` says.
fn encode(op: &BatchOp<'_>, out: &mut Vec<u8>) {
    let mut put = |tag: u8, keyspace: KeyspaceId, parts: &[&[u8]]| {
        out.put_u8(tag);
        out.put_varint(keyspace.into());
        parts.iter().for_each(|part| out.put_bytes(part));
    };
    match *op {
        BatchOp::Put { keyspace, key, value } => put(tag::PUT, keyspace, &[key, value]),
        BatchOp::Merge { keyspace, key, operand } => put(tag::MERGE, keyspace, &[key, operand]),
        BatchOp::Delete { keyspace, key } => put(tag::DELETE, keyspace, &[key]),
        BatchOp::Ingestion { keyspace } => put(tag::INGESTION, keyspace, &[b""]),
        BatchOp::DeleteRange { keyspace, start, end: Some(end) } => {
            put(tag::DELETE_RANGE, keyspace, &[start, end]);
        }
        BatchOp::DeleteRange { keyspace, start, end: None } => put(tag::DELETE_FROM, keyspace, &[start]),
    }
}

/// Returns the encoding of a batch in the log: with the header of a record that holds only this
/// batch, and without.
pub fn batch_bytes(batch: &WriteBatch) -> (Vec<u8>, Vec<u8>) {
    let mut record = Vec::new();
    GroupHeader { first_seq: 1, count: batch.len() as u64, older_logs_synced: true }.encode(&mut record);
    record.extend_from_slice(batch.bytes());
    (record, batch.bytes().to_vec())
}
