//! Estimates of how much a range holds, without reading it.
//!
//! A table's share of a range is taken from its index: whole blocks, and half of the block in which a bound lies. A memtable's is taken
//! from the upper levels of its skip list. Nothing is known of which versions shadow others: each counts that is still stored.

use std::ops::RangeBounds;

use crate::db::{Db, Keyspace};
use crate::error::{ReadError, StorageError};
use crate::read::Bounds;
use crate::table::ReadCost;
use crate::tree::open_table::OpenTable;

/// What is stored of a range.
#[derive(Default)]
struct Estimate {
    entries: f64,
    bytes: f64,
}

impl Keyspace {
    /// Estimates the number of keys in a range, without reading it. Every stored version counts: a key counts once more for each newer
    /// value that no compaction has merged with the older one yet, and a deleted key counts until it is compacted away. At its bounds the
    /// range counts by half blocks, in each run. Costs two searches in each table's index, and a few hundred steps in each memtable.
    ///
    /// # Errors
    ///
    /// [`ReadError::Dropped`], [`ReadError::Storage`] if an index that is not in memory cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path(), tamis::Options::default())?;
    /// for i in 0..1000 {
    ///     db.put(format!("key{i:03}"), "value")?;
    /// }
    /// let half = db.approximate_len("key500"..)?;
    /// assert!((200..1200).contains(&half));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn approximate_len<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, ReadError> {
        Ok(self.estimate(&Bounds::of(&range))?.entries.round() as u64)
    }

    /// Estimates the bytes that the keys in a range take: in tables and blob files as on disk, compressed and with their share of filters and indexes; in
    /// memtables as keys and values. As rough, and at the same cost, as [`approximate_len`](Keyspace::approximate_len).
    ///
    /// # Errors
    ///
    /// Those of [`approximate_len`](Keyspace::approximate_len).
    pub fn approximate_size<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, ReadError> {
        Ok(self.estimate(&Bounds::of(&range))?.bytes.round() as u64)
    }

    fn estimate(&self, bounds: &Bounds) -> Result<Estimate, ReadError> {
        self.check()?;
        let mut sum = Estimate::default();
        if bounds.end.as_ref().is_some_and(|end| *end <= bounds.start) {
            return Ok(sum);
        }
        let view = self.inner.view.load();
        for slot in view.memtables.iter() {
            let entries = slot.memtable.estimate(&bounds.start, bounds.end.as_deref());
            let share = entries as f64 / slot.memtable.entries().max(1) as f64;
            sum.entries += entries as f64;
            sum.bytes += slot.memtable.data_bytes() as f64 * share.min(1.0);
        }
        for table in &view.version.tables {
            let share = share_of(table, bounds)?;
            let values = table.meta.entries.saturating_sub(table.meta.deletes);
            sum.entries += values as f64 * share;
            sum.bytes += table.meta.whole_bytes() as f64 * share;
        }
        Ok(sum)
    }
}

/// Returns which part of a table's blocks a range covers.
fn share_of(table: &OpenTable, bounds: &Bounds) -> Result<f64, StorageError> {
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
    // Within one block, which part of it is unknown.
    Ok(((to - from).max(0.5) / blocks.max(1.0)).min(1.0))
}

impl Db {
    /// [`Keyspace::approximate_len`] of the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::approximate_len`].
    pub fn approximate_len<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, ReadError> {
        self.default_keyspace().approximate_len(range)
    }

    /// [`Keyspace::approximate_size`] of the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::approximate_len`].
    pub fn approximate_size<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, ReadError> {
        self.default_keyspace().approximate_size(range)
    }
}
