//! The builder of external tables.

use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis_base::key::{Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use tamis_files::table::{ExtraProperties, TableBuilder, TableOptions};
use tamis_files::tree::tombstones::{EXTERNAL_TOMBSTONE_SEQ, RangeTombstone, Tombstones};
use tamis_filter::Digest;

use crate::batch::normalize_range;
use crate::compaction::{FilterBuilder, NewKeys};
use crate::error::{ExternalTableError, StorageError, WriteError, excerpt_of_key};
use crate::external::{EXTERNAL_VERSION, ExternalTableInfo, describe};
use crate::io::{DiskFs, FileSystem, Usage};
use crate::options::KeyspaceOptions;

/// A builder of one external table: turns sorted entries into one immutable file for
/// [`Db::ingest`](crate::Db::ingest).
///
/// Entries must be added in strictly ascending key order. Memory: one block, about half a mebibyte
/// of output, the range deletes, and what the filter keeps per key. That is eight bytes for point
/// filters, the key for range filters, the bits of all units for an elastic filter, and for a
/// global filter the key's share of the key list, which is smaller than the key.
///
/// ```
/// use tamis::ingest::{ExternalTableBuilder, IngestOptions};
/// use tamis::{Db, KeyspaceOptions};
///
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("cities.tam");
/// let mut table = ExternalTableBuilder::create(&path, &KeyspaceOptions::default())?;
/// table.put("lyon", "45.75,4.85")?;
/// table.put("vik", "63.42,-19.01")?;
/// let info = table.finish()?;
/// assert_eq!(info.entries, 2);
///
/// let db = Db::open(dir.path().join("db"))?;
/// db.default_keyspace().ingest(&[path], IngestOptions::default())?;
/// assert_eq!(db.get("vik")?.unwrap(), "63.42,-19.01");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExternalTableBuilder {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    options: KeyspaceOptions,
    /// Taken by `finish`. Dropping the builder before that removes the unfinished file.
    parts: Option<Parts>,
    /// Set by a failed write, after which the file is unusable.
    failed: bool,
}

debug_as!(ExternalTableBuilder, "ExternalTableBuilder", builder => "path": builder.path, "failed": builder.failed);

#[derive(Debug)]
struct Parts {
    table: TableBuilder,
    filter: FilterBuilder,
    last_key: Option<Vec<u8>>,
    ranges: Vec<RangeTombstone>,
}

impl ExternalTableBuilder {
    /// Creates the table `path`, which must not exist, for a keyspace with these options. Block
    /// size, compression and filter are those of the keyspace's last level.
    ///
    /// # Errors
    ///
    /// Options out of range; an existing file of that name; a failed system call.
    pub fn create(
        path: impl AsRef<Path>,
        options: &KeyspaceOptions,
    ) -> Result<ExternalTableBuilder, ExternalTableError> {
        ExternalTableBuilder::create_on(Arc::new(DiskFs::without_mapping()), path, options)
    }

    /// Like [`create`](Self::create), on another file system.
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create).
    pub fn create_on(
        fs: Arc<dyn FileSystem>,
        path: impl AsRef<Path>,
        options: &KeyspaceOptions,
    ) -> Result<ExternalTableBuilder, ExternalTableError> {
        options.check()?;
        let (path, level) = (path.as_ref().to_owned(), options.levels - 1);
        // An existing file may be a database's table under another name; it must not be
        // overwritten.
        if fs.exists(&path).map_err(|e| StorageError::io("look for", &path, e))? {
            return Err(ExternalTableError::Exists { path });
        }
        let file = fs.create(&path, Usage::Table).map_err(|e| StorageError::io("create", &path, e))?;
        let table_options = TableOptions {
            block_bytes: options.block_bytes as usize,
            restart_interval: options.restart_interval,
            hash_index: true,
            compression: options.compression.at(level).of_files(),
        };
        let parts = Parts {
            table: TableBuilder::new(file, &path, table_options),
            filter: FilterBuilder::new(options, options.filter.at(level), options.bits_per_key, NewKeys::All),
            last_key: None,
            ranges: Vec::new(),
        };
        Ok(ExternalTableBuilder { fs, path, options: options.clone(), parts: Some(parts), failed: false })
    }

    /// Adds `key` with `value`. The key must be greater than all keys before it.
    ///
    /// # Errors
    ///
    /// A key out of order, or a key or value that is too long; the table is then unchanged. After a
    /// failed system call the builder is unusable.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), ExternalTableError> {
        self.add(key.as_ref(), Kind::Put, value.as_ref())
    }

    /// Adds a delete of `key`, which must be greater than all keys before it.
    ///
    /// # Errors
    ///
    /// Those of [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<(), ExternalTableError> {
        self.add(key.as_ref(), Kind::Delete, &[])
    }

    /// Deletes all keys in a range that the database holds when the table is ingested. Entries of
    /// this table are not affected, whichever is added first. Ranges may be added in any order and
    /// may overlap. An empty range does nothing.
    ///
    /// # Errors
    ///
    /// A bound that is too long, or a reversed range; the table is then unchanged.
    /// [`ExternalTableError::Failed`] after an earlier failure.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        range: impl RangeBounds<K>,
    ) -> Result<(), ExternalTableError> {
        let normal = normalize_range(range)?;
        let path = &self.path;
        let parts = self.parts.as_mut().filter(|_| !self.failed);
        let parts = parts.ok_or_else(|| ExternalTableError::Failed { path: path.clone() })?;
        if let Some((start, end)) = normal {
            let (start, end) = (start.into(), end.map(Into::into));
            parts.ranges.push(RangeTombstone { start, end, seq: EXTERNAL_TOMBSTONE_SEQ });
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], kind: Kind, value: &[u8]) -> Result<(), ExternalTableError> {
        let path = &self.path;
        let parts = self.parts.as_mut().filter(|_| !self.failed);
        let parts = parts.ok_or_else(|| ExternalTableError::Failed { path: path.clone() })?;
        if key.len() > MAX_KEY_BYTES {
            return Err(WriteError::KeyTooLong { len: key.len(), max: MAX_KEY_BYTES }.into());
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(WriteError::ValueTooLong { len: value.len(), max: MAX_VALUE_BYTES }.into());
        }
        if let Some(last) = parts.last_key.as_deref().filter(|last| key <= *last) {
            let (key, previous) = (excerpt_of_key(key), excerpt_of_key(last));
            return Err(ExternalTableError::OutOfOrder { key, previous });
        }
        let digest = Digest::of(key);
        let added = parts.table.add(key, digest, 0, kind, value);
        self.failed = added.is_err();
        added?;
        parts.filter.add(key, digest);
        let last = parts.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Returns the number of entries added so far, without range deletes.
    pub fn entries(&self) -> u64 {
        self.parts.as_ref().map_or(0, |parts| parts.table.entries())
    }

    /// Returns the approximate length that the file would have if finished now, in bytes, without
    /// filter and range deletes. Useful for splitting entries over several tables.
    pub fn estimated_bytes(&self) -> u64 {
        self.parts.as_ref().map_or(0, |parts| parts.table.estimated_bytes())
    }

    /// Writes the rest, and makes the file and its name survive a power failure. After an error the
    /// file is removed, if possible.
    ///
    /// # Errors
    ///
    /// [`ExternalTableError::Empty`], [`ExternalTableError::Failed`] after an earlier failure, or a
    /// failed system call.
    pub fn finish(mut self) -> Result<ExternalTableInfo, ExternalTableError> {
        let path = self.path.clone();
        let parts = self.parts.take().filter(|_| !self.failed);
        let finished = parts.ok_or_else(|| ExternalTableError::Failed { path: path.clone() });
        let finished = finished.and_then(|parts| self.write_end(parts));
        if finished.is_err() {
            self.remove();
        }
        finished
    }

    fn write_end(&self, parts: Parts) -> Result<ExternalTableInfo, ExternalTableError> {
        let Parts { table, filter, last_key, ranges } = parts;
        let ranges = Tombstones::fragment(ranges);
        if last_key.is_none() && ranges.is_empty() {
            return Err(ExternalTableError::Empty { path: self.path.clone() });
        }
        // Deterministic, but different from other tables' salts.
        let salt = Digest::of(&last_key.unwrap_or_default()).get() ^ table.entries();
        let filter = filter.finish(&self.options, salt).unwrap_or_else(|why| {
            log::warn!("{} is written without a filter: {why}", self.path.display());
            None
        });
        let extra = ExtraProperties {
            filter_kind: filter.as_ref().map_or_else(String::new, |filter| filter.kind.to_owned()),
            range_tombstones: ranges.len() as u64,
            epochs: Vec::new(),
            external: EXTERNAL_VERSION,
            ..ExtraProperties::default()
        };
        let tombstones = (!ranges.is_empty()).then(|| {
            let mut bytes = Vec::new();
            ranges.encode(&mut bytes);
            bytes
        });
        table.finish(filter.and_then(|filter| filter.bytes), tombstones, extra)?;
        let parent = self.path.parent().unwrap_or(Path::new("."));
        self.fs.sync_dir(parent).map_err(|e| StorageError::io("sync", parent, e))?;
        Ok(describe(&*self.fs, &self.path)?.info())
    }

    fn remove(&self) {
        if let Err(e) = self.fs.remove(&self.path) {
            log::warn!("could not remove the unfinished table {}: {e}", self.path.display());
        }
    }
}

impl Drop for ExternalTableBuilder {
    fn drop(&mut self) {
        if self.parts.take().is_some() {
            self.remove();
        }
    }
}
