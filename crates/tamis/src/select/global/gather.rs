//! Collects the keys of a version's tables into the batch that a partition is built from.

use std::sync::Arc;

use tamis_base::epochs::EpochMap;
use tamis_base::ids::TableId;
use tamis_base::key::prefix_of;
use tamis_filter::Digest;
use tamis_filter::global::{Batch, Epoch, Epochs};

use crate::error::StorageError;
use crate::select::keys::{KeySource, for_each_key};
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

use super::span::{Span, spans_within};

/// Calls `each` in ascending order with every key of a table within the span, its digest, and the
/// table's epochs at that key.
fn each_key(
    table: &OpenTable,
    span: &Span,
    each: &mut dyn FnMut(&[u8], Digest, Epochs),
) -> Result<KeySource, StorageError> {
    let epochs: &EpochMap = &table.meta.epochs;
    let segments = epochs.segments();
    let mut at = 0;
    for_each_key(table, &span.start, span.end.as_deref(), &mut |key| {
        while segments.get(at + 1).is_some_and(|next| &next.start[..] <= key) {
            at += 1;
        }
        let (lo, hi) = (segments[at].lo, segments[at].hi);
        debug_assert!(lo < hi, "a key in a gap of table {}", table.meta.id);
        // Even if the record is wrong, the key must be found.
        let epochs = if lo < hi { Epochs { lo, hi } } else { Epochs::ALL };
        each(key, Digest::of(key), epochs);
    })
}

/// The keys of one table, concatenated in one buffer.
#[derive(Default)]
struct TableKeys {
    bytes: Vec<u8>,
    entries: Vec<(usize, Digest, Epochs)>,
}

impl TableKeys {
    fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].0);
        &self.bytes[start..self.entries[at].0]
    }
}

/// The result of [`gather`].
pub(super) struct Gathered {
    pub(super) batch: Batch,
    /// The tables that were read, where their keys came from, and how many.
    pub(super) read: Vec<(TableId, KeySource, u64)>,
    /// Tables left out because damage makes their keys unreadable, and why.
    pub(super) unread: Vec<(Arc<OpenTable>, StorageError)>,
}

/// Returns all keys of the given tables within the span, in order. A key of several tables occurs
/// once for each.
///
/// Errors: a failed system call. A damaged table is left out and listed.
///
/// Cost: reads a table's key list if it has one, and otherwise its data within the span; a digest
/// per key, and a merge.
pub(super) fn gather(tables: &[Arc<OpenTable>], span: &Span) -> Result<Gathered, StorageError> {
    let mut lists = Vec::new();
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for table in tables.iter().filter(|table| span.overlaps(table)) {
        let mut list = TableKeys::default();
        let source = each_key(table, span, &mut |key, digest, epochs| {
            list.bytes.extend_from_slice(key);
            list.entries.push((list.bytes.len(), digest, epochs));
        });
        let source = match source {
            Ok(source) => source,
            Err(damage @ StorageError::Corrupt(_)) => {
                unread.push((table.clone(), damage));
                continue;
            }
            Err(io) => return Err(io),
        };
        read.push((table.meta.id, source, list.entries.len() as u64));
        if !list.entries.is_empty() {
            lists.push(list);
        }
    }
    // Lists ascend, and the sort finds such stretches and merges them. Beginnings decide mostly.
    let of_list = |(list, keys): (usize, &TableKeys)| {
        (0..keys.entries.len()).map(move |at| (prefix_of(keys.key(at)), list, at)).collect::<Vec<_>>()
    };
    let mut order: Vec<(u64, usize, usize)> = lists.iter().enumerate().flat_map(of_list).collect();
    let key = |(_, list, at): &(u64, usize, usize)| lists[*list].key(*at);
    order.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a).cmp(key(b))));
    let mut batch = Batch::new();
    for (_, list, at) in order {
        let (_, digest, epochs) = lists[list].entries[at];
        batch.push(lists[list].key(at), digest, epochs);
    }
    Ok(Gathered { batch, read, unread })
}

/// Returns the end of the epochs of a version's oldest run within a span (a code "last" may stand
/// for all before it), and the run's tables there.
pub(super) fn oldest_run(version: &Version, span: &Span) -> Option<(Epoch, Vec<u64>)> {
    let run = version.runs.last()?;
    let first = version.first_reaching(&run.tables, &span.start);
    let tables = version.tables[first..run.tables.end].iter().take_while(|table| span.overlaps(table));
    let ends = tables.clone().flat_map(|table| {
        spans_within(&table.meta.epochs, &span.start, span.end.as_deref()).map(|epochs| epochs.hi)
    });
    let base = ends.min()?;
    Some((base, tables.map(|table| table.meta.id).collect()))
}
