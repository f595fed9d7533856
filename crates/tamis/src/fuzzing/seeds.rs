//! Seeds for the corpus out of what the public API writes.

use super::reseal;
use crate::batch::{GroupHeader, WriteBatch};

/// The parts of a table file that are formats of their own: its data blocks, its filter and its range tombstones.
/// Empty where there is none or where the file makes no sense.
#[expect(clippy::type_complexity, reason = "three lists of bytes, taken apart at once")]
pub fn table_parts(file: &[u8]) -> (Vec<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>) {
    let Some([_, filter, tombstones, _, _]) = reseal::table_layout(file) else { return Default::default() };
    let part = |(at, span): (usize, usize)| reseal::block_content(&file[at..at + span]);
    (reseal::table_blocks(file).into_iter().filter_map(part).collect(), part(filter), part(tombstones))
}

/// What a batch looks like in the log: with the header of a record that holds only it, and without.
pub fn batch_bytes(batch: &WriteBatch) -> (Vec<u8>, Vec<u8>) {
    let mut record = Vec::new();
    GroupHeader { first_seq: 1, count: batch.len() as u64, older_logs_synced: true }.encode(&mut record);
    record.extend_from_slice(batch.bytes());
    (record, batch.bytes().to_vec())
}
