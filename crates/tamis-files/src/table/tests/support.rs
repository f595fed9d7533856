//! Shared test helpers: an in-memory file system, and short ways to write and read tables.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tamis_base::collections::HashMap;
use tamis_base::key::{Entry, Kind, SeqNo};
use tamis_env::io::{Access, DirLock, FileSystem, MappedPages, Mapping, ReadFile, Touch, Usage, WriteFile};
use tamis_env::sync::Mutex;
use tamis_filter::Digest;

use crate::error::StorageError;
use crate::table::cache::BlockCache;
use crate::table::*;

type Contents = Arc<Mutex<HashMap<PathBuf, Arc<Vec<u8>>>>>;

type Announced = Arc<Mutex<Vec<Range<usize>>>>;

/// In-memory files; counts reads and the appends' lengths, and notes what is announced of mappings.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestFs {
    files: Contents,
    pub(super) reads: Arc<AtomicU64>,
    pub(super) appends: Arc<Mutex<Vec<usize>>>,
    pub(crate) announced: Announced,
    pub(crate) scarce: Arc<AtomicBool>,
}

/// A mapping that notes what is announced.
struct Pages(Arc<Vec<u8>>, Announced, Arc<AtomicBool>);

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedPages for Pages {
    fn will_need(&self, part: Range<usize>, _: Touch) {
        self.1.lock().push(part);
    }

    fn are_scarce(&self) -> bool {
        self.2.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Writing {
    fs: TestFs,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl WriteFile for Writing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        self.fs.appends.lock().push(bytes.len());
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.fs.put(&self.path, self.bytes.clone());
        Ok(())
    }
    fn preallocate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn truncate_to_written(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Reading(Arc<Vec<u8>>, Arc<AtomicU64>, Announced, Arc<AtomicBool>);

impl ReadFile for Reading {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let start = offset as usize;
        let bytes = self.0.get(start..start + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(Some(Mapping::of_pages(Arc::new(Pages(self.0.clone(), self.2.clone(), self.3.clone())))))
    }
}

impl TestFs {
    pub(crate) fn put(&self, path: &Path, bytes: Vec<u8>) {
        self.files.lock().insert(path.to_owned(), Arc::new(bytes));
    }

    pub(super) fn bytes(&self, path: &Path) -> Vec<u8> {
        self.files.lock()[path].to_vec()
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl FileSystem for TestFs {
    fn create(&self, path: &Path, _: Usage) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(Writing { fs: self.clone(), path: path.to_owned(), bytes: Vec::new() }))
    }
    fn open(&self, path: &Path, _: Access) -> io::Result<Arc<dyn ReadFile>> {
        let files = self.files.lock();
        let bytes = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Reading(bytes.clone(), self.reads.clone(), self.announced.clone(), self.scarce.clone())))
    }
    fn reuse(&self, _: &Path, _: &Path) -> io::Result<Box<dyn WriteFile>> {
        unsupported()
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn link_or_copy(&self, _: &Path, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        unsupported()
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn exists(&self, _: &Path) -> io::Result<bool> {
        unsupported()
    }
    fn file_len(&self, _: &Path) -> io::Result<u64> {
        unsupported()
    }
    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        unsupported()
    }
    fn available_space(&self, _: &Path) -> io::Result<Option<u64>> {
        unsupported()
    }
}

/// One version, as written by the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) key: Vec<u8>,
    pub(super) seq: SeqNo,
    pub(super) kind: Kind,
    pub(super) value: Vec<u8>,
}

pub(super) fn put(key: impl AsRef<[u8]>, seq: SeqNo, value: impl AsRef<[u8]>) -> Version {
    Version { key: key.as_ref().to_vec(), seq, kind: Kind::Put, value: value.as_ref().to_vec() }
}

pub(super) fn delete(key: impl AsRef<[u8]>, seq: SeqNo) -> Version {
    Version { key: key.as_ref().to_vec(), seq, kind: Kind::Delete, value: Vec::new() }
}

pub(super) fn operand(key: impl AsRef<[u8]>, seq: SeqNo, value: impl AsRef<[u8]>) -> Version {
    Version { kind: Kind::Merge, ..put(key, seq, value) }
}

pub(super) fn table_path() -> &'static Path {
    Path::new("000001.tam")
}

/// Writes `versions` (in version order) as a table file.
pub(super) fn write(
    fs: &TestFs,
    versions: &[Version],
    options: &TableOptions,
    filter: Option<Vec<u8>>,
    tombstones: Option<Vec<u8>>,
) -> crate::table::builder::FinishedTable {
    let file = fs.create(table_path(), Usage::Table).unwrap();
    let mut builder = TableBuilder::new(file, table_path(), options.clone());
    for v in versions {
        builder.add(&v.key, Digest::of(&v.key), v.seq, v.kind, &v.value).unwrap();
    }
    assert_eq!(builder.entries(), versions.len() as u64);
    builder.finish(filter, tombstones, ExtraProperties::default()).unwrap()
}

pub(super) fn open(fs: &TestFs, config: ReaderConfig) -> Result<Arc<Table>, StorageError> {
    Table::open(fs, table_path(), 1, config)
}

pub(super) fn mapped() -> ReaderConfig {
    ReaderConfig { map: true, pin_metadata: true, ..ReaderConfig::default() }
}

pub(super) fn cached(capacity: u64) -> ReaderConfig {
    let cache = Some(Arc::new(BlockCache::new(capacity, 4096)));
    ReaderConfig { cache, pin_metadata: true, ..ReaderConfig::default() }
}

/// The result of a get as plain data.
pub(super) fn get(
    table: &Table,
    key: &[u8],
    digest: Option<Digest>,
    snapshot: SeqNo,
) -> Result<Option<Version>, StorageError> {
    let found = table.get(key, digest, snapshot, &mut ())?;
    Ok(found.map(|Entry { seq, kind, value }| Version {
        key: key.to_vec(),
        seq,
        kind,
        value: value.to_vec(),
    }))
}

pub(super) fn current(cursor: &TableCursor) -> Version {
    let version = Version {
        key: cursor.key().to_vec(),
        seq: cursor.seq(),
        kind: cursor.kind(),
        value: cursor.value().to_vec(),
    };
    assert_eq!(&cursor.pinned_value()[..], cursor.value());
    if let Some(key) = cursor.pinned_key() {
        assert_eq!(&key[..], cursor.key());
    }
    version
}

/// All entries forward.
pub(super) fn scan(table: &Arc<Table>, options: CursorOptions) -> Result<Vec<Version>, StorageError> {
    let mut cursor = TableCursor::new(Arc::clone(table), options);
    cursor.seek_to_first()?;
    let mut all = Vec::new();
    while cursor.valid() {
        all.push(current(&cursor));
        cursor.next()?;
    }
    Ok(all)
}
