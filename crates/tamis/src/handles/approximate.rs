//! Estimates of how much a range holds, and where to cut it, without reading it.
//!
//! A table's share of a range is taken from its index: whole blocks, and half of the block in which
//! a bound lies. A memtable's share is taken from the upper levels of its skip list. Which versions
//! shadow others is unknown: every version that is still stored counts.

use std::ops::{Bound, RangeBounds};

use crate::error::ReadError;
use crate::handles::handle::{Db, Keyspace};
use crate::jobs::covered::share_of;
use crate::observe::cost::ReadCost;
use crate::read::Bounds;

/// A range of keys as returned by [`Keyspace::split_range`], to be passed to [`Keyspace::range`]
/// and others.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The most separators taken from one table, so that a large table costs no more than a small one.
const SEPARATORS: usize = 256;

/// What is stored in a range.
#[derive(Default)]
struct RangeEstimate {
    entries: f64,
    bytes: f64,
}

impl Keyspace {
    /// Estimates the number of keys in a range without reading it. Every stored version counts: a
    /// key counts once for each version that compactions have not merged yet, and a deleted key
    /// counts until it is compacted away. At its bounds the range counts by half blocks, in each
    /// run. Costs two searches in each table's index, and a few hundred steps in each memtable.
    ///
    /// # Errors
    ///
    /// [`ReadError::Dropped`], [`ReadError::Storage`] if an index that is not in memory cannot be
    /// read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
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

    /// Estimates the bytes that the keys in a range take: in tables and blob files as on disk,
    /// compressed and with their share of filters and indexes; in memtables as keys and values. As
    /// rough as [`approximate_len`](Keyspace::approximate_len), at the same cost.
    ///
    /// # Errors
    ///
    /// Those of [`approximate_len`](Keyspace::approximate_len).
    pub fn approximate_size<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, ReadError> {
        Ok(self.estimate(&Bounds::of(&range))?.bytes.round() as u64)
    }

    /// Cuts a range into at most `parts` ranges of about equal bytes, in order and without gaps,
    /// say to read them in parallel. There is at least one unless the range is empty, and fewer
    /// than `parts` where little is stored. Bytes are those of
    /// [`approximate_size`](Keyspace::approximate_size), and as rough. A single key is never cut,
    /// however many versions it has. Costs up to 256 steps in each table's index, and a few hundred
    /// in each memtable.
    ///
    /// # Errors
    ///
    /// Those of [`approximate_len`](Keyspace::approximate_len).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// # (0..1000).for_each(|i| db.put(format!("key{i:03}"), "value").unwrap());
    /// let snapshot = db.snapshot();
    /// let parts = db.split_range::<&str>(.., 4)?;
    /// let counts = std::thread::scope(|scope| {
    ///     let snapshot = &snapshot;
    ///     let readers: Vec<_> =
    ///         parts.into_iter().map(|part| scope.spawn(move || snapshot.range(part).count())).collect();
    ///     readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    /// });
    /// assert_eq!(counts.iter().sum::<usize>(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        parts: usize,
    ) -> Result<Vec<KeyRange>, ReadError> {
        self.check()?;
        let bounds = Bounds::of(&range);
        if bounds.end.as_ref().is_some_and(|end| *end <= bounds.start) {
            return Ok(Vec::new());
        }
        let mut ranges = Vec::new();
        let mut start = Bound::Included(bounds.start.clone());
        for cut in self.cuts(&bounds, parts)? {
            ranges.push((start, Bound::Excluded(cut.clone())));
            start = Bound::Included(cut);
        }
        ranges.push((start, bounds.end.map_or(Bound::Unbounded, Bound::Excluded)));
        Ok(ranges)
    }

    /// Returns fewer than `parts` keys within the bounds, ascending, that divide what is stored
    /// there.
    fn cuts(&self, bounds: &Bounds, parts: usize) -> Result<Vec<Vec<u8>>, ReadError> {
        let end = bounds.end.as_deref();
        // Keys, each with the bytes stored up to it since the previous key of the same table.
        let mut steps: Vec<(Vec<u8>, f64)> = Vec::new();
        let view = self.inner.view.load();
        for slot in view.memtables.iter() {
            let from = steps.len();
            let each = slot.memtable.sample(&bounds.start, end, |key| steps.push((key.to_vec(), 0.0)));
            let entry = slot.memtable.data_bytes() as f64 / slot.memtable.entries().max(1) as f64;
            steps[from..].iter_mut().for_each(|step| step.1 = entry * each as f64);
        }
        for table in &view.version.tables {
            if share_of(table, bounds)? == 0.0 {
                continue;
            }
            let index = table.table.index(&mut ReadCost::default())?;
            let (blocks, bytes) = (index.len(), table.meta.whole_bytes() as f64);
            let first = index.find(&bounds.start).unwrap_or(blocks);
            let last = end.and_then(|end| index.find(end)).map_or(blocks, |block| block + 1);
            let stride = last.saturating_sub(first).div_ceil(SEPARATORS).max(1);
            let mut before = first;
            while before < last {
                let next = (before + stride).min(last);
                steps.push((index.separator(next - 1), bytes * (next - before) as f64 / blocks as f64));
                before = next;
            }
        }
        steps.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let total: f64 = steps.iter().map(|step| step.1).sum();
        let (mut cuts, mut sum) = (Vec::new(), 0.0);
        for (key, bytes) in steps {
            sum += bytes;
            let is_due = sum * parts as f64 >= total * (cuts.len() + 1) as f64;
            let is_inside = key > bounds.start && end.is_none_or(|end| key[..] < *end);
            if cuts.len() + 1 < parts && is_due && is_inside && cuts.last() != Some(&key) {
                cuts.push(key);
            }
        }
        Ok(cuts)
    }

    fn estimate(&self, bounds: &Bounds) -> Result<RangeEstimate, ReadError> {
        let view = self.inner.view.load();
        self.check()?;
        let mut sum = RangeEstimate::default();
        if bounds.end.as_ref().is_some_and(|end| *end <= bounds.start) {
            return Ok(sum);
        }
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

    /// [`Keyspace::split_range`] of the default keyspace.
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::split_range`].
    pub fn split_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        parts: usize,
    ) -> Result<Vec<KeyRange>, ReadError> {
        self.default_keyspace().split_range(range, parts)
    }
}
