//! Tables and blob files that no version names yet.
//!
//! A flush, a merge, an opening and an ingestion all write files before the edit that names them.
//! Until that edit, every way out has to remove them: an error, a cancellation, a panic, a dropped
//! keyspace. So dropping removes them: [`NewFiles`] while they are written, [`NewTables`] once they
//! are open. The only other way out is [`NewTables::publish`], for the catalogue: it alone knows
//! what a failed edit may have left on disk.
//!
//! A drop may happen with locks held, so the files only go on the [`Garbage`] list. The code that
//! returns the error has the list [removed](Garbage::remove_all) once it holds no lock.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis_base::ids::{BlobFileId, TableId};
use tamis_base::meta::TableMeta;
use tamis_files::table::ReaderConfig;
use tamis_files::tree::files::{blob_path, table_path};

use crate::error::StorageError;
use crate::io::FileSystem;
use crate::tree::garbage::Garbage;
use crate::tree::open_table::OpenTable;

/// Files being written. They become garbage when this is dropped.
#[derive(Debug)]
pub(crate) struct NewFiles {
    dir: PathBuf,
    garbage: Arc<Garbage>,
    tables: Vec<TableId>,
    blobs: Vec<BlobFileId>,
}

impl NewFiles {
    pub(crate) fn new(dir: &Path, garbage: &Arc<Garbage>) -> NewFiles {
        NewFiles { dir: dir.to_owned(), garbage: garbage.clone(), tables: Vec::new(), blobs: Vec::new() }
    }

    /// Call this once the file exists: a file that was there before is not ours.
    pub(crate) fn add_table(&mut self, id: TableId) {
        self.tables.push(id);
    }

    /// Like `add_table`, for a blob file.
    pub(crate) fn add_blob(&mut self, id: BlobFileId) {
        self.blobs.push(id);
    }

    /// Adds the files of another part of the same work.
    pub(crate) fn append(&mut self, mut other: NewFiles) {
        self.tables.append(&mut other.tables);
        self.blobs.append(&mut other.blobs);
    }

    /// Keeps the files: from now on, open tables are responsible for them.
    pub(crate) fn keep(mut self) {
        self.tables.clear();
        self.blobs.clear();
    }

    /// Makes the files' names durable and opens the tables. The files have all been synced.
    pub(crate) fn open(
        self,
        fs: &dyn FileSystem,
        metas: &[TableMeta],
        config: &ReaderConfig,
    ) -> Result<NewTables, StorageError> {
        fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e))?;
        let open =
            |meta: &TableMeta| OpenTable::open(fs, &self.dir, Arc::new(meta.clone()), config, &self.garbage);
        let tables = metas.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        self.keep();
        Ok(NewTables(tables))
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        // A table goes before what it refers to: see `Garbage`.
        let tables = self.tables.iter().map(|&id| table_path(&self.dir, id));
        let blobs = self.blobs.iter().map(|&id| blob_path(&self.dir, id));
        tables.chain(blobs).for_each(|path| self.garbage.push(path));
    }
}

/// Open tables that no version contains. Their files become garbage when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct NewTables(Vec<Arc<OpenTable>>);

impl NewTables {
    /// Adds a table whose file no manifest names.
    pub(crate) fn push(&mut self, table: Arc<OpenTable>) {
        self.0.push(table);
    }

    pub(crate) fn append(&mut self, mut other: NewTables) {
        self.0.append(&mut other.0);
    }

    /// Returns the tables for an edit that may be on disk from now on.
    pub(crate) fn publish(mut self) -> Vec<Arc<OpenTable>> {
        std::mem::take(&mut self.0)
    }
}

impl Deref for NewTables {
    type Target = [Arc<OpenTable>];

    fn deref(&self) -> &[Arc<OpenTable>] {
        &self.0
    }
}

impl Drop for NewTables {
    fn drop(&mut self) {
        self.0.iter().for_each(|table| table.mark_obsolete());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{MemFs, Usage};

    fn written(fs: &MemFs, garbage: &Arc<Garbage>, ids: &[TableId]) -> NewFiles {
        let dir = Path::new("db");
        fs.create_dir_all(dir).unwrap();
        let mut files = NewFiles::new(dir, garbage);
        for &id in ids {
            drop(fs.create(&table_path(dir, id), Usage::Table).unwrap());
            files.add_table(id);
        }
        files
    }

    #[test]
    fn files_that_nobody_took_are_removed_and_no_others() {
        let (fs, garbage) = (MemFs::new(), Arc::new(Garbage::default()));
        written(&fs, &garbage, &[1, 2]).keep();
        let mut parts = written(&fs, &garbage, &[3]);
        parts.append(written(&fs, &garbage, &[4]));
        garbage.remove_all(&fs);
        let left = |id| fs.exists(&table_path(Path::new("db"), id)).unwrap();
        assert_eq!([1, 2, 3, 4].map(left), [true; 4]);
        drop(parts);
        garbage.remove_all(&fs);
        assert_eq!([1, 2, 3, 4].map(left), [true, true, false, false]);
    }

    /// An empty file is not a table.
    #[test]
    fn tables_that_cannot_be_opened_are_removed() {
        let (fs, garbage) = (MemFs::new(), Arc::new(Garbage::default()));
        let files = written(&fs, &garbage, &[1]);
        let meta = crate::tree::tests::table(1, "a", "b");
        assert!(files.open(&fs, &[meta], &ReaderConfig::default()).is_err());
        garbage.remove_all(&fs);
        assert!(!fs.exists(&table_path(Path::new("db"), 1)).unwrap());
    }
}
