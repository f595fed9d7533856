//! Dropping tables emptied by range deletes, without reading them.
//!
//! Deleting a range writes one tombstone; merging it with everything below rewrites all the rest. A
//! table that is wholly covered by newer range tombstones holds nothing visible, so it is dropped
//! at once, without writing a byte: this needs no room, so it works on a full disk.
//!
//! # Why reads are unaffected
//!
//! A table's sequence numbers are those of its entries and of its own range tombstones. Every key
//! from its first to its last is covered by a tombstone with a larger number than all of these; so
//! that tombstone is in another table, and stays. A read at that tombstone or later sees nothing of
//! the table, nor anything older below it: the tombstone hides that just as the table's own deletes
//! did. A snapshot older than one of these tombstones must also be older than the entire table.

use tamis_base::collections::HashSet;
use tamis_base::ids::TableId;
use tamis_base::key::{KeyEnd, SeqNo};
use tamis_base::meta::TableMeta;
use tamis_files::tree::tombstones::Fragment;
use tamis_policy::compaction::plan::{Plan, Reason};
use tamis_policy::compaction::shape::{KeyRange, Shape, TableShape};

use crate::error::StorageError;
use crate::observe::cost::ReadCost;
use crate::read::Bounds;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// Drops the tables that are wholly covered by range tombstones of other tables; with a range, only
/// those that overlap it. O(tables) without range tombstones.
pub(crate) fn covered_tables(shape: &Shape, version: &Version, range: Option<&KeyRange>) -> Option<Plan> {
    let holders: Vec<&OpenTable> =
        version.tables.iter().filter(|table| table.tombstones.is_some()).map(|table| &**table).collect();
    if holders.is_empty() {
        return None;
    }
    let gone = |table: &TableShape| {
        table.free
            && range.is_none_or(|range| range.overlaps(&table.range()))
            && covered_since(&holders, &table.meta)
                .is_some_and(|since| !is_seen(&shape.snapshots, &table.meta, since))
    };
    Plan::drop_of(shape, Reason::Covered, gone)
}

/// Returns which part of a table is covered by newer range tombstones of the other tables in
/// `named`. An index that cannot be read counts as 0.
pub(crate) fn hidden_share(version: &Version, named: &HashSet<TableId>, id: TableId) -> f64 {
    let Some(table) = version.tables.iter().find(|table| table.meta.id == id) else { return 0.0 };
    let newer = version
        .tables
        .iter()
        .filter(|holder| named.contains(&holder.meta.id) && holder.meta.max_seq > table.meta.max_seq);
    let fragments = newer.flat_map(|holder| holder.tombstones.iter().flat_map(|all| all.fragments()));
    let hiding =
        fragments.filter(|fragment| fragment.seqs.first().is_some_and(|&seq| seq > table.meta.max_seq));
    let share = |fragment: &Fragment| {
        let end = fragment.end.as_ref().map(|end| end.to_vec());
        share_of(table, &Bounds { start: fragment.start.to_vec(), end }).unwrap_or(0.0)
    };
    hiding.map(share).sum::<f64>().min(1.0)
}

/// Reports whether a snapshot sees any part of a table that is wholly deleted from write `since`
/// on. A table whose smallest number is 0 may hold entries as old as any snapshot.
fn is_seen(snapshots: &[SeqNo], table: &TableMeta, since: SeqNo) -> bool {
    snapshots.iter().any(|&snapshot| table.min_seq <= snapshot && snapshot < since)
}

/// Returns the write from which on every key of the table's range is covered by a tombstone newer
/// than the entire table; `None` if some key is not.
fn covered_since(holders: &[&OpenTable], table: &TableMeta) -> Option<SeqNo> {
    let mut from = table.smallest.clone();
    let mut since = 0;
    loop {
        let over =
            holders.iter().filter(|holder| holder.meta.max_seq > table.max_seq && holder.meta.covers(&from));
        let over = over.filter_map(|holder| holder.tombstones.as_ref()?.fragment_at(&from));
        // A fragment's numbers descend. The first tombstone that deletes the table's keys is the
        // last one in the list that is newer than the table.
        let deletes = over.filter_map(|fragment| {
            let newer = fragment.seqs.partition_point(|&seq| seq > table.max_seq);
            Some((fragment, *fragment.seqs[..newer].last()?))
        });
        let (farthest, seq) = deletes.max_by(|(a, _), (b, _)| match (&a.end, &b.end) {
            (Some(a), Some(b)) => a.cmp(b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        })?;
        since = since.max(seq);
        let end = match (&farthest.end, &table.largest) {
            (None, _) => return Some(since),
            (Some(end), KeyEnd::Included(last)) if end > last => return Some(since),
            (Some(end), KeyEnd::Excluded(last)) if end >= last => return Some(since),
            (Some(end), _) => end,
        };
        // Fragments are not empty, so each iteration advances.
        from = end.clone();
    }
}

/// Returns which part of a table's blocks a range covers.
pub(crate) fn share_of(table: &OpenTable, bounds: &Bounds) -> Result<f64, StorageError> {
    let meta = &table.meta;
    let outside = !meta.largest.reaches(&bounds.start)
        || bounds.end.as_ref().is_some_and(|end| end[..] <= meta.smallest[..]);
    if outside || meta.entries == 0 {
        return Ok(0.0);
    }
    let starts_before = bounds.start[..] <= meta.smallest[..];
    let ends_after = bounds.end.as_ref().is_none_or(|end| !meta.largest.reaches(end));
    if starts_before && ends_after {
        return Ok(1.0);
    }
    let index = table.table.index(&mut ReadCost::default())?;
    let blocks = index.len() as f64;
    let place = |key: &[u8]| index.find(key).map_or(blocks, |block| block as f64 + 0.5);
    let from = if starts_before { 0.0 } else { place(&bounds.start) };
    let to = match &bounds.end {
        Some(end) if !ends_after => place(end),
        _ => blocks,
    };
    // Within a single block, the covered part is unknown.
    Ok(((to - from).max(0.5) / blocks.max(1.0)).min(1.0))
}

#[cfg(test)]
mod tests;
