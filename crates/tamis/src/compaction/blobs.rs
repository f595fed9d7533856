//! Large values in flushes and compactions: which go to blob files, which are carried along by
//! reference, and which are moved out of files that are mostly garbage.
//!
//! A blob file's garbage is what the tables of the tree do not refer to, so it follows from a
//! version ([`BlobUse`]). If a compaction meets a value in a file whose garbage exceeds
//! [`blob_garbage`](crate::KeyspaceOptions::blob_garbage), it writes the value to a new file. If no
//! compaction meets them, [`plan`] rewrites the tables that refer to such a file, one at a time.
//! This terminates: a rewritten table refers to new files, none of whose bytes are garbage yet.
//!
//! Each flush leaves a file, however small. Once there are more than a few small ones, merges that
//! refer to them anyway move their values to larger ones, too; no merge runs for that alone.
//!
//! A reference that is wrong, or whose value cannot be read, is carried along unchanged: reads of
//! its key fail as before, but merges do not. A flush fails if the device cannot read a value in a
//! log that does not become a blob file: the log goes after the flush.
//!
//! [`BlobUse`]: crate::tree::version::BlobUse

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::BlobFileId;
use tamis_files::blob::{BlobFile, Reference};
use tamis_files::error::{is_device_error, is_lasting};
use tamis_files::table::PinnedValue;
use tamis_policy::compaction::plan::{Plan, Reason};
use tamis_policy::compaction::released;
use tamis_policy::compaction::shape::{Shape, TableShape};

use crate::compaction::versions::SeparatedValues;
use crate::error::StorageError;
use crate::options::KeyspaceOptions;
use crate::tree::garbage::OpenBlob;
use crate::tree::open_table::OpenTable;
use crate::tree::version::{BlobUse, Version};

/// Merges join small files once a keyspace has more of them than this.
const SMALL_FILES: usize = 8;

/// A file is small below this fraction of
/// [`blob_file_bytes`](crate::KeyspaceOptions::blob_file_bytes) and of a memtable: the file of a
/// full memtable is not small.
const SMALL_PART: u64 = 4;

/// Values move out of a small file only into one that is expected to be this many times as large.
/// An output table may end at half of its size; then the file is half as large.
const GROWTH: u64 = 4;

/// Values move because of size only if the merge takes at most this fraction of the free space:
/// moving them is optional.
const ROOM_PART: u64 = 4;

/// A file that inputs of a merge refer to.
#[derive(Debug)]
enum InputFile {
    Blob(Arc<OpenBlob>),
    /// A log, which memtables refer to, and whether it was logged that it has an unreadable value.
    Log {
        log: Arc<BlobFile>,
        told: Once,
    },
}

impl InputFile {
    fn file(&self) -> &BlobFile {
        match self {
            InputFile::Blob(blob) => &blob.file,
            InputFile::Log { log, .. } => log,
        }
    }
}

#[derive(Debug)]
struct InputBlob {
    blob: InputFile,
    /// The most bytes of it that a table may list: its length or, for a lost file, what the inputs
    /// list.
    most: u64,
}

/// The blob files, or logs, that the inputs of a merge refer to; the default has none.
#[derive(Debug, Default)]
pub(crate) struct BlobInputs {
    files: HashMap<BlobFileId, InputBlob>,
    /// Files whose values are written to new files.
    rewritten: HashSet<BlobFileId>,
    /// The tables' directory, for error messages.
    dir: PathBuf,
}

impl BlobInputs {
    /// Collects the inputs of a merge into tables of at most `max_table_bytes`, with `room` bytes
    /// free, if known.
    pub(crate) fn of(
        inputs: &[Arc<OpenTable>],
        version: &Version,
        options: &KeyspaceOptions,
        max_table_bytes: u64,
        room: Option<u64>,
    ) -> BlobInputs {
        let mut files: HashMap<BlobFileId, InputBlob> = HashMap::default();
        for blob in inputs.iter().flat_map(|table| table.blobs.iter()) {
            let most = if blob.file.why_lost().is_some() { 0 } else { blob.file.data_bytes() };
            let input = || InputBlob { blob: InputFile::Blob(blob.clone()), most };
            files.entry(blob.file.id()).or_insert_with(input);
        }
        if files.is_empty() {
            return BlobInputs::default();
        }
        for (file, bytes) in inputs.iter().flat_map(|table| &table.meta.extra.blobs) {
            if let Some(listed) = files.get_mut(file).filter(|listed| listed.blob.file().why_lost().is_some())
            {
                listed.most = listed.most.saturating_add(*bytes);
            }
        }
        let mut rewritten = over(version, options.blob_garbage);
        join_small(inputs, version, options, max_table_bytes, room, &mut rewritten);
        let dir = inputs[0].table.path().parent().unwrap_or(Path::new("")).to_owned();
        BlobInputs { files, rewritten, dir }
    }

    /// Collects the logs that memtables refer to. `judge` returns the length of a complete log, and
    /// whether values are to stay there. From others, they are written to new files.
    pub(crate) fn of_logs(
        dir: &Path,
        logs: Vec<Arc<BlobFile>>,
        judge: impl Fn(BlobFileId) -> Option<(u64, bool)>,
    ) -> BlobInputs {
        let mut inputs = BlobInputs { dir: dir.to_owned(), ..BlobInputs::default() };
        for log in logs {
            let id = log.id();
            let (most, stay) = judge(id).unwrap_or((0, false));
            if !stay {
                inputs.rewritten.insert(id);
            }
            inputs.files.insert(id, InputBlob { blob: InputFile::Log { log, told: Once::new() }, most });
        }
        inputs
    }

    /// Reports whether the file with this number is a log, which has no name as a blob file yet.
    pub(crate) fn is_log(&self, file: BlobFileId) -> bool {
        self.files.get(&file).is_some_and(|listed| matches!(listed.blob, InputFile::Log { .. }))
    }

    /// Reports whether the file of a value is a blob file, or a log that is complete.
    pub(crate) fn may_become_blob(&self, at: &Reference) -> bool {
        !self.is_log(at.file) || self.files.get(&at.file).is_some_and(|listed| listed.most > 0)
    }

    /// Returns the place of the value that a reference stands for, in a file that an input lists,
    /// and the most bytes of the file that an output may list. For a lost file, the place cannot be
    /// checked. Errors: the reference is wrong.
    pub(crate) fn place(&self, reference: &[u8]) -> Result<(Reference, u64), StorageError> {
        self.find(reference).map(|(listed, at)| (at, listed.most))
    }

    fn find(&self, reference: &[u8]) -> Result<(&InputBlob, Reference), StorageError> {
        let at = Reference::decode(reference)
            .map_err(|damage| StorageError::corrupt(&self.dir, None, damage.0))?;
        let listed = self.files.get(&at.file).ok_or_else(|| {
            let what = format!("an entry refers to blob file {}, which no table of the merge lists", at.file);
            StorageError::corrupt(&self.dir, None, what)
        })?;
        if listed.blob.file().why_lost().is_none() {
            listed.blob.file().check_place(&at)?;
        }
        Ok((listed, at))
    }

    /// Reports whether that value is moved to a new file.
    pub(crate) fn moves(&self, at: &Reference) -> bool {
        self.rewritten.contains(&at.file)
    }

    /// Reads a value from a log that will go. `None`: its bytes are gone, or wrong. Errors: they
    /// may be there, as after a failure of the device.
    pub(crate) fn read_from_log(&self, reference: &[u8]) -> Result<Option<PinnedValue>, StorageError> {
        let (listed, at) = self.find(reference)?;
        match listed.blob.file().read(&at, false, &mut ()) {
            Err(why) if is_lasting(&why) && !is_device_error(&why) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Returns how many bytes of the values that these tables refer to are moved.
    pub(crate) fn moved_bytes(&self, inputs: &[Arc<OpenTable>]) -> u64 {
        moved_bytes(inputs, &self.rewritten)
    }
}

impl SeparatedValues for BlobInputs {
    fn read(&self, reference: &[u8]) -> Result<Option<PinnedValue>, StorageError> {
        let Ok((listed, at)) = self.find(reference) else { return Ok(None) };
        match listed.blob.file().read(&at, false, &mut ()) {
            Err(why) if is_lasting(&why) => {
                match &listed.blob {
                    InputFile::Blob(blob) => blob.note_unreadable(&why),
                    InputFile::Log { told, .. } => {
                        told.call_once(|| log::error!("a value in a log could not be read: {why}"));
                    }
                }
                Ok(None)
            }
            read => read.map(Some),
        }
    }
}

/// The size below which a blob file is small.
pub(crate) fn small_bytes(options: &KeyspaceOptions) -> u64 {
    options.blob_file_bytes.min(options.memtable_bytes) / SMALL_PART
}

fn moved_bytes(inputs: &[Arc<OpenTable>], files: &HashSet<BlobFileId>) -> u64 {
    let blobs = inputs.iter().flat_map(|table| &table.meta.extra.blobs);
    let moved = blobs.filter(|(file, _)| files.contains(file));
    moved.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

/// Returns the blob files whose garbage exceeds this share. Leaves out a file with an unreadable
/// value, which would never become empty.
fn over(version: &Version, garbage: f64) -> HashSet<BlobFileId> {
    version
        .blobs
        .iter()
        .filter(|blob| blob.garbage_share() > garbage && blob.file.is_readable())
        .map(|blob| blob.file.file.id())
        .collect()
}

/// Adds the small files whose values a merge joins into larger ones.
///
/// A file is joined if the merge refers to at least half of its live values, so that each byte
/// moved turns at most one other byte into garbage to be collected, and if the new files, one for
/// each output table, can be expected to be [`GROWTH`] times as large. With outputs of half the
/// size, they are twice as large. So a value moves because of size at most log2(size of a small
/// file / size of its first file) + 1 times. Nothing is joined that takes much of the free space.
fn join_small(
    inputs: &[Arc<OpenTable>],
    version: &Version,
    options: &KeyspaceOptions,
    max_table_bytes: u64,
    room: Option<u64>,
    rewritten: &mut HashSet<BlobFileId>,
) {
    let small_bytes = small_bytes(options);
    let small: HashMap<BlobFileId, &BlobUse> = version
        .blobs
        .iter()
        .filter(|blob| blob.file.file.data_bytes() < small_bytes && blob.file.is_readable())
        .map(|blob| (blob.file.file.id(), blob))
        .collect();
    if small.len() <= SMALL_FILES {
        return;
    }
    let mut referred: HashMap<BlobFileId, u64> = HashMap::default();
    for (file, bytes) in inputs.iter().flat_map(|table| &table.meta.extra.blobs) {
        if small.contains_key(file) && !rewritten.contains(file) {
            let referred: &mut u64 = referred.entry(*file).or_default();
            *referred = referred.saturating_add(*bytes);
        }
    }
    referred.retain(|file, bytes| *bytes >= small[file].referenced / 2);
    let mut candidates: Vec<(u64, BlobFileId, u64)> =
        referred.iter().map(|(file, bytes)| (small[file].file.file.data_bytes(), *file, *bytes)).collect();
    candidates.sort_unstable();
    let table_bytes: u64 = inputs.iter().map(|table| table.meta.file_bytes).sum();
    let outputs = table_bytes / max_table_bytes.max(1) + 1;
    let mut moved = moved_bytes(inputs, rewritten);
    let mut joined = 0;
    for (at, (size, _, bytes)) in candidates.iter().enumerate() {
        moved = moved.saturating_add(*bytes);
        if room.is_some_and(|room| table_bytes.saturating_add(moved) > room / ROOM_PART) {
            break;
        }
        if moved / outputs >= size * GROWTH {
            joined = at + 1;
        }
    }
    rewritten.extend(candidates[..joined].iter().map(|(_, file, _)| *file));
}

/// Plans the rewrite of the free table that refers to the most bytes in files whose garbage exceeds
/// the share `garbage`. O(files), and O(tables · their blob files) if there is such a file.
pub(crate) fn plan(shape: &Shape, version: &Version, garbage: f64, max_table_bytes: u64) -> Option<Plan> {
    let over = over(version, garbage);
    if over.is_empty() {
        return None;
    }
    let weight = |table: &TableShape| {
        let blobs = table.meta.extra.blobs.iter();
        blobs.filter(|(file, _)| over.contains(file)).map(|(_, bytes)| *bytes as f64).sum::<f64>()
    };
    released::rewrite_heaviest(shape, max_table_bytes, Reason::BlobGarbage, |table| {
        Some(weight(table)).filter(|bytes| *bytes > 0.0)
    })
}

#[cfg(test)]
mod tests;
