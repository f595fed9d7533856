//! Extracts corpus seeds from the output of the public API.

use super::reseal;
use crate::batch::{GroupHeader, WriteBatch};

/// The parts of a table file with formats of their own.
#[derive(Debug, Default)]
pub struct TableParts {
    /// The decompressed content of the data blocks.
    pub blocks: Vec<Vec<u8>>,
    /// The filter, if there is one.
    pub filter: Option<Vec<u8>>,
    /// The range tombstones, if there are any.
    pub tombstones: Option<Vec<u8>>,
}

/// Splits a table file. Returns nothing for a file that makes no sense.
pub fn table_parts(file: &[u8]) -> TableParts {
    let Some([_, filter, tombstones, _, _]) = reseal::table_layout(file) else {
        return TableParts::default();
    };
    let part = |(at, span): (usize, usize)| reseal::block_content(&file[at..at + span]);
    let blocks = reseal::table_blocks(file).into_iter().filter_map(part).collect();
    TableParts { blocks, filter: part(filter), tombstones: part(tombstones) }
}

/// Returns the encoding of a batch in the log: with the header of a record that holds only this batch, and without.
pub fn batch_bytes(batch: &WriteBatch) -> (Vec<u8>, Vec<u8>) {
    let mut record = Vec::new();
    GroupHeader { first_seq: 1, count: batch.len() as u64, older_logs_synced: true }.encode(&mut record);
    record.extend_from_slice(batch.bytes());
    (record, batch.bytes().to_vec())
}
