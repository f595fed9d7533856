//! Large values in flushes and compactions: which go to blob files, which are carried along by reference, and which are moved out
//! of files that are mostly garbage.
//!
//! A blob file's garbage is what the tables of the tree do not refer to, so it follows from a version ([`BlobUse`]). A value that a
//! compaction meets in a file whose garbage exceeds [`blob_garbage`](crate::KeyspaceOptions::blob_garbage) is written to a new one;
//! if no compaction meets them, [`plan`] rewrites the tables that refer to such a file, one at a time. This terminates: a
//! rewritten table refers to new files, none of whose bytes are garbage yet.
//!
//! [`BlobUse`]: crate::tree::version::BlobUse

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::blob::{BlobWriter, Reference};
use crate::collections::{HashMap, HashSet};
use crate::compaction::plan::{Plan, Reason};
use crate::compaction::released;
use crate::compaction::shape::{Shape, TableShape};
use crate::compaction::versions::SeparatedValues;
use crate::compaction::writer::TableSink;
use crate::error::StorageError;
use crate::ids::BlobFileId;
use crate::io::Usage;
use crate::table::PinnedValue;
use crate::tree::files::blob_path;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The blob files that the inputs of a merge refer to; the default has none.
#[derive(Debug, Default)]
pub(crate) struct BlobInputs {
    /// An input that refers to each.
    tables: HashMap<BlobFileId, Arc<OpenTable>>,
    /// Those whose values are written to new files.
    rewritten: HashSet<BlobFileId>,
}

impl BlobInputs {
    /// `garbage` is the share above which values are moved out of a file.
    pub(crate) fn of(inputs: &[Arc<OpenTable>], version: &Version, garbage: f64) -> BlobInputs {
        let files = |table: &Arc<OpenTable>| -> Vec<_> {
            table.meta.extra.blobs.iter().map(|&(file, _)| (file, table.clone())).collect()
        };
        let tables: HashMap<_, _> = inputs.iter().flat_map(files).collect();
        let rewritten = if tables.is_empty() { HashSet::default() } else { over(version, garbage) };
        BlobInputs { tables, rewritten }
    }

    /// Returns the place of the value that a reference stands for, which must be in a file that an input lists.
    pub(crate) fn place(&self, reference: &[u8]) -> Result<Reference, StorageError> {
        let wrong = |what: &str| {
            let path = self.tables.values().next().map_or(Path::new(""), |table| table.table.path());
            StorageError::corrupt(path, None, what)
        };
        let at = Reference::decode(reference).map_err(|damage| wrong(damage.0))?;
        let listed = self.tables.contains_key(&at.file).then_some(at);
        listed.ok_or_else(|| wrong("an entry refers to a blob file that no table of the merge lists"))
    }

    /// Reports whether that value is moved to a new file.
    pub(crate) fn moves(&self, at: &Reference) -> bool {
        self.rewritten.contains(&at.file)
    }

    /// Returns the bytes that are moved out of files, of the values that these tables refer to.
    pub(crate) fn moved_bytes(&self, inputs: &[Arc<OpenTable>]) -> u64 {
        let blobs = inputs.iter().flat_map(|table| &table.meta.extra.blobs);
        blobs.filter(|(file, _)| self.rewritten.contains(file)).map(|(_, bytes)| bytes).sum()
    }
}

impl SeparatedValues for BlobInputs {
    fn read(&self, reference: &[u8]) -> Result<PinnedValue, StorageError> {
        let table = &self.tables[&self.place(reference)?.file];
        table.read_blob(reference, false, &mut ())
    }
}

/// Returns the blob files of which more than this share is garbage.
fn over(version: &Version, garbage: f64) -> HashSet<BlobFileId> {
    version
        .blobs
        .iter()
        .filter(|blob| blob.garbage_share() > garbage)
        .map(|blob| blob.file.file.id())
        .collect()
}

/// Plans the rewrite of the free table that refers to the most bytes in files of which more than the share `garbage` is garbage.
/// O(tables · their blob files).
pub(crate) fn plan(shape: &Shape, version: &Version, garbage: f64, max_table_bytes: u64) -> Option<Plan> {
    if version.blobs.is_empty() {
        return None;
    }
    let over = over(version, garbage);
    let weight = |table: &TableShape| {
        let blobs = table.meta.extra.blobs.iter();
        blobs.filter(|(file, _)| over.contains(file)).map(|(_, bytes)| *bytes as f64).sum::<f64>()
    };
    released::rewrite_heaviest(shape, max_table_bytes, Reason::BlobGarbage, |table| {
        Some(weight(table)).filter(|bytes| *bytes > 0.0)
    })
}

/// The blob files that a merge writes.
#[derive(Debug, Default)]
pub(super) struct BlobOutput {
    open: Option<BlobWriter>,
    /// Bytes of the files that are finished.
    finished: u64,
    /// The numbers of all files.
    pub(super) made: Vec<BlobFileId>,
}

impl BlobOutput {
    /// Bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.finished + self.open.as_ref().map_or(0, BlobWriter::bytes)
    }

    /// Writes a value. The path of a new file is added to `made`.
    pub(super) fn put(
        &mut self,
        sink: &TableSink<'_>,
        made: &mut Vec<PathBuf>,
        value: &[u8],
    ) -> Result<Reference, StorageError> {
        let writer = match &mut self.open {
            Some(writer) => writer,
            None => {
                let id = sink.next_file.fetch_add(1, Relaxed);
                let path = blob_path(sink.dir, id);
                let file =
                    sink.fs.create(&path, Usage::Table).map_err(|e| StorageError::io("create", &path, e))?;
                made.push(path.clone());
                self.made.push(id);
                let compression = sink.options.compression.at(sink.level);
                self.open.insert(BlobWriter::new(file, path, id, compression))
            }
        };
        let at = writer.add(value)?;
        if writer.bytes() >= sink.options.blob_file_bytes {
            self.finish()?;
        }
        Ok(at)
    }

    /// Finishes the open file, which is synced then.
    pub(super) fn finish(&mut self) -> Result<(), StorageError> {
        if let Some(writer) = self.open.take() {
            self.finished += writer.finish()?;
        }
        Ok(())
    }
}
