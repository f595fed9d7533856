//! The blob files that a merge writes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::ids::LogId;
use tamis_files::blob::{BlobWriter, Reference};
use tamis_files::tree::files::blob_path;

use crate::compaction::logged::adopt;
use crate::compaction::sink::TableSink;
use crate::error::StorageError;
use crate::io::Usage;
use crate::tree::new_tables::NewFiles;

/// The blob files that a merge writes.
#[derive(Debug, Default)]
pub(super) struct BlobOutput {
    /// The logs asked for, and whether they have become blob files.
    logs: BTreeMap<LogId, bool>,
    open: Option<BlobWriter>,
    /// Bytes of the finished files.
    finished: u64,
}

impl BlobOutput {
    /// Returns the bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.finished + self.open.as_ref().map_or(0, BlobWriter::bytes)
    }

    /// Reports whether a table can refer to the value where it is. If it is in a log, that becomes
    /// a blob file.
    pub(super) fn can_stay(&mut self, sink: &TableSink<'_>, files: &mut NewFiles, at: &Reference) -> bool {
        let adopted = || adopt(sink.fs, sink.dir, files, at.file);
        !sink.blobs.is_log(at.file) || *self.logs.entry(at.file).or_insert_with(adopted)
    }

    /// Writes a value.
    pub(super) fn put(
        &mut self,
        sink: &TableSink<'_>,
        files: &mut NewFiles,
        value: &[u8],
    ) -> Result<Reference, StorageError> {
        let writer = match &mut self.open {
            Some(writer) => writer,
            None => {
                let id = sink.next_file.fetch_add(1, Relaxed);
                let path = blob_path(sink.dir, id);
                let file =
                    sink.fs.create(&path, Usage::Table).map_err(|e| StorageError::io("create", &path, e))?;
                files.add_blob(id);
                let compression = sink.options.compression.at(sink.level).of_files();
                self.open.insert(BlobWriter::new(file, path, id, compression))
            }
        };
        let at = writer.add(value)?;
        if writer.bytes() >= sink.options.blob_file_bytes {
            self.finish()?;
        }
        Ok(at)
    }

    /// Finishes the open file, synced.
    pub(super) fn finish(&mut self) -> Result<(), StorageError> {
        if let Some(writer) = self.open.take() {
            self.finished += writer.finish()?;
        }
        Ok(())
    }
}
