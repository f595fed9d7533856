//! The blob files that open tables refer to. Each is opened once; its lifetime is tied to those
//! tables.
//!
//! # Invariant
//!
//! A blob file is removed once no open table holds it and every table that did was
//! [obsolete](OpenBlob::unname). So no table of a durable version refers to it, and no reader can
//! reach one that does. New tables that refer to a file are opened while the tables that they
//! replace are held, so the file is not removed in between.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::ids::BlobFileId;
use tamis_base::key::Kind;
use tamis_base::meta::TableMeta;
use tamis_files::blob::{BlobFile, Reference};
use tamis_files::error::is_lasting;
use tamis_files::table::{CursorOptions, PinnedValue, ReadTrace, ReaderConfig, Table, TableCursor};

use crate::error::StorageError;
use crate::io::FileSystem;
use crate::tree::garbage::{Garbage, OpenBlob};

/// The maximum number of problems listed.
const MAX_PROBLEMS: usize = 100;

/// The blob files of one open table, by number.
#[derive(Debug, Default)]
pub(crate) struct TableBlobs(Box<[Arc<OpenBlob>]>);

impl TableBlobs {
    /// Opens the blob files that a table refers to.
    pub(crate) fn open(
        fs: &dyn FileSystem,
        dir: &Path,
        meta: &TableMeta,
        config: &ReaderConfig,
        garbage: &Arc<Garbage>,
    ) -> Result<TableBlobs, StorageError> {
        let lenient = garbage.blobs.lenient.load(Relaxed);
        let may_be_lost = |why: &StorageError| lenient && is_lasting(why);
        let opened = meta.extra.blobs.iter().map(|&(id, bytes)| {
            let blob = garbage.blobs.open(fs, dir, id, config, garbage, may_be_lost)?;
            if bytes > blob.file.data_bytes() && blob.file.why_lost().is_none() {
                let what = format!("table {} refers to {bytes} bytes of it, which it does not have", meta.id);
                return Err(StorageError::corrupt(blob.file.path(), None, what));
            }
            Ok(blob)
        });
        Ok(TableBlobs::named(opened.collect::<Result<_, StorageError>>()?))
    }

    /// Holds the blob files of a table that cannot itself be opened: its values are needed when the
    /// table is put back.
    pub(crate) fn of_lost(
        fs: &dyn FileSystem,
        dir: &Path,
        meta: &TableMeta,
        config: &ReaderConfig,
        garbage: &Arc<Garbage>,
    ) -> TableBlobs {
        let hold = |&(id, _): &(BlobFileId, u64)| {
            let held = garbage.blobs.open(fs, dir, id, config, garbage, |_| true);
            held.expect("a file that cannot be opened is held as a lost one")
        };
        TableBlobs::named(meta.extra.blobs.iter().map(hold).collect())
    }

    fn named(files: Box<[Arc<OpenBlob>]>) -> TableBlobs {
        files.iter().for_each(|blob| {
            blob.named.fetch_add(1, Relaxed);
        });
        TableBlobs(files)
    }

    /// Called once, when the table becomes obsolete.
    pub(crate) fn unname(&self) {
        self.0.iter().for_each(|blob| blob.unname());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<OpenBlob>> {
        self.0.iter()
    }

    /// Returns messages that say why files among them could not be opened.
    pub(crate) fn lost(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|blob| blob.file.why_lost()).map(ToString::to_string)
    }

    /// Returns the file with this number.
    pub(crate) fn file(&self, id: BlobFileId) -> Option<&BlobFile> {
        let found = self.0.binary_search_by_key(&id, |blob| blob.file.id()).ok()?;
        Some(&self.0[found].file)
    }

    /// Finds the file that a reference in table `table` names.
    pub(crate) fn find(
        &self,
        table: &Path,
        reference: &[u8],
    ) -> Result<(&BlobFile, Reference), StorageError> {
        let at =
            Reference::decode(reference).map_err(|damage| StorageError::corrupt(table, None, damage.0))?;
        let file = self.file(at.file).ok_or_else(|| {
            let what = format!("an entry refers to blob file {}, which the table does not list", at.file);
            StorageError::corrupt(table, None, what)
        })?;
        Ok((file, at))
    }

    /// Reads the value that a reference in table `table` stands for.
    pub(crate) fn read<T: ReadTrace>(
        &self,
        table: &Path,
        reference: &[u8],
        fill_cache: bool,
        trace: &mut T,
    ) -> Result<PinnedValue, StorageError> {
        let (file, at) = self.find(table, reference)?;
        file.read(&at, fill_cache, trace)
    }
}

/// What is wrong with the values that a table refers to. Each problem comes with the blob file
/// concerned, if it concerns one.
pub(crate) type Problems = Vec<(Option<BlobFileId>, StorageError)>;

/// Reads every value that entries of `table` refer to, from the files that `file` returns, and
/// checks that the table's list of what it refers to is true. Calls `go_on` with the bytes of each
/// value read, and stops when it returns `false`. Returns at most about a hundred problems.
pub(crate) fn check<'f>(
    table: &Arc<Table>,
    file: impl Fn(BlobFileId) -> Option<Result<&'f BlobFile, &'f StorageError>>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Problems {
    let mut problems = Problems::new();
    let wrong = |what: String| (None, StorageError::corrupt(table.path(), None, what));
    let listed = &table.properties().blobs;
    if listed.is_empty() {
        return problems;
    }
    let mut found: BTreeMap<BlobFileId, u64> = BTreeMap::new();
    let mut cursor =
        TableCursor::new(table.clone(), CursorOptions { fill_cache: false, read_ahead: 1 << 20 });
    // The check of the blocks reports damaged blocks.
    let mut moved = cursor.seek_to_first();
    while moved.is_ok() && cursor.valid() && problems.len() < MAX_PROBLEMS {
        if cursor.kind() == Kind::PutBlob {
            let at = match Reference::decode(cursor.value()) {
                Ok(at) => at,
                Err(damage) => {
                    problems.push(wrong(damage.0.to_owned()));
                    break;
                }
            };
            let refers = found.entry(at.file).or_default();
            *refers = refers.saturating_add(at.span);
            let known = file(at.file);
            // A damaged span may be anything: count no more than the file has.
            let read = known.as_ref().map_or(0, |file| file.map_or(0, |file| at.span.min(file.data_bytes())));
            if !go_on(read) {
                return problems;
            }
            match known {
                Some(Ok(file)) => problems.extend(file.check(&at).err().map(|why| (Some(at.file), why))),
                Some(Err(_)) => {}
                None => {
                    let what =
                        format!("an entry refers to blob file {}, which the table does not list", at.file);
                    problems.push(wrong(what));
                }
            }
        }
        moved = cursor.next();
    }
    let complete = moved.is_ok() && problems.len() < MAX_PROBLEMS;
    for &(id, bytes) in listed {
        if let Some(Err(why)) = file(id) {
            problems.push((Some(id), why.clone()));
        } else if complete && found.get(&id) != Some(&bytes) {
            let refers = found.get(&id).copied().unwrap_or(0);
            problems.push(wrong(format!("it lists {bytes} bytes of blob file {id}, and refers to {refers}")));
        }
    }
    problems
}
