//! Moving files into the database's directory, under numbers that no manifest names yet.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis_base::ids::TableId;
use tamis_files::tree::files::table_path;
use tamis_files::tree::tombstones::EXTERNAL_TOMBSTONE_SEQ;

use crate::error::{AdminError, ExternalTableError, StorageError};
use crate::external::{Described, describe};
use crate::io::{Access, FileSystem, Usage};
use crate::jobs::verify::{VerifyReport, check_table};
use crate::session::Session;
use crate::tree::new_tables::NewFiles;
use crate::tree::open_table::OpenTable;

/// The number of bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// An open file in the database's directory that is not in the tree yet.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) source: PathBuf,
    pub(super) id: TableId,
    pub(super) described: Described,
    pub(super) table: Arc<OpenTable>,
}

/// The files of one ingestion.
#[derive(Debug)]
pub(super) struct Staging<'d> {
    db: &'d Session,
    files: NewFiles,
}

impl<'d> Staging<'d> {
    pub(super) fn new(db: &'d Session) -> Staging<'d> {
        Staging { db, files: NewFiles::new(&db.dir, &db.files.garbage) }
    }

    /// Links or copies the `described` file into the directory, syncs it, and checks it there. The
    /// source stays unchanged. The new name is durable after [`sync_names`](Self::sync_names).
    pub(super) fn bring(
        &mut self,
        described: &Described,
        link: bool,
        verify: bool,
    ) -> Result<Staged, AdminError> {
        let (db, source) = (self.db, described.path());
        let (id, path) = loop {
            let id = db.files.numbers.take();
            let path = table_path(&db.dir, id);
            // A file of this name is not the database's: the caller may have put it there in order
            // to ingest it.
            if !db.fs.exists(&path).map_err(|e| StorageError::io("look for", &path, e))? {
                break (id, path);
            }
        };
        // Recorded before the attempt: a copy that fails midway leaves a file.
        self.files.add_table(id);
        let brought = match link {
            // The file's writer may not have synced it.
            true => db.fs.link_or_copy(source, &path).and_then(|()| db.fs.sync_file(&path)),
            false => copy(&*db.fs, source, &path),
        };
        brought.map_err(|e| StorageError::io("ingest", source, e))?;
        let here = describe(&*db.fs, &path)?;
        if !here.same_contents(described) {
            return Err(not_a_table(source, "it changed while it was being ingested").into());
        }
        let meta = here.meta(id, EXTERNAL_TOMBSTONE_SEQ, 0, 0);
        let table =
            OpenTable::open(&*db.fs, &db.dir, Arc::new(meta), &db.files.reader_config, &db.files.garbage)?;
        if verify {
            let mut report = VerifyReport::default();
            check_table(&table, &mut report);
            if let Some(problem) = report.problems.first() {
                // In the directory the file has another name, which will be removed.
                let name = path.display().to_string();
                let what = problem.strip_prefix(&name).unwrap_or(problem).trim_start_matches([':', ' ']);
                return Err(not_a_table(source, what).into());
            }
        }
        Ok(Staged { source: source.to_owned(), id, described: here, table })
    }

    /// Makes the names of all files survive a power failure.
    pub(super) fn sync_names(&self) -> Result<(), StorageError> {
        self.db.fs.sync_dir(&self.db.dir).map_err(|e| StorageError::io("sync", &self.db.dir, e))
    }

    /// From here on, a manifest may name the files, even if that is not known yet, so they stay.
    pub(super) fn keep(self) {
        self.files.keep();
    }
}

fn not_a_table(path: &Path, what: &str) -> ExternalTableError {
    ExternalTableError::NotATable { path: path.to_owned(), what: what.to_owned() }
}

/// Copies a file in chunks and syncs the copy.
fn copy(fs: &dyn FileSystem, from: &Path, to: &Path) -> io::Result<()> {
    let source = fs.open(from, Access::Sequential)?;
    let bytes = source.len()?;
    let mut target = fs.create(to, Usage::Table)?;
    let mut piece = vec![0; bytes.min(COPY_BYTES) as usize];
    let mut offset = 0;
    while offset < bytes {
        let piece = &mut piece[..(bytes - offset).min(COPY_BYTES) as usize];
        source.read_exact_at(piece, offset)?;
        target.append(piece)?;
        offset += piece.len() as u64;
    }
    target.truncate_to_written()?;
    target.sync()
}
