//! Batches, as they stand in records of the log.

use tamis_base::key::MAX_KEY_BYTES;

use tamis_files::wal::ops::{BatchOp, GroupHeader, Ops};

use crate::batch::WriteBatch;

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
    let mut again = WriteBatch::new();
    let mut rebuilt = 0;
    for op in &decoded {
        match *op {
            BatchOp::Put { keyspace, key, value } => _ = again.put_id(keyspace, key, value),
            BatchOp::Merge { keyspace, key, operand } => _ = again.merge_id(keyspace, key, operand),
            BatchOp::Delete { keyspace, key } => _ = again.delete_id(keyspace, key),
            // Occurs only in the log, never in a batch.
            BatchOp::Ingestion { .. } => continue,
            BatchOp::DeleteRange { keyspace, start, end } => {
                // Callers cannot give the bound behind the longest key.
                if start.len() > MAX_KEY_BYTES || end.is_some_and(|end| end.len() > MAX_KEY_BYTES) {
                    continue;
                }
                match end {
                    Some(end) => again.delete_range_id(keyspace, start..end),
                    None => again.delete_range_id(keyspace, start..),
                };
            }
        }
        rebuilt += 1;
    }
    again.check().expect("decoded operations are within the limits");
    assert_eq!(again.len(), rebuilt, "an operation vanished");
    if rebuilt == decoded.len() {
        assert_eq!(again.bytes(), bytes, "the encoding of an operation is unique");
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
