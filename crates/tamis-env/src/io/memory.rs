//! [`MemFs`]: files in memory.
//!
//! # Invariants
//!
//! * A file's bytes live in one `Arc<Vec<u8>>`. Mapping a file shares that `Arc`; a later write
//!   copies it first, so a mapping never changes.
//! * Names follow a disk's rules: a file needs its parent directory, a removed file stays readable
//!   through its open handles, and a hard link shares the bytes.
//!
//! `..` is not resolved but treated as a name; relative and absolute paths are different places.
//!
//! A mutex guards the names, and a reader-writer lock each file's bytes. No thread waits for the
//! first while it holds the second.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Access, DirLock, FileSystem, Mapping, ReadFile, Usage, WriteFile};

/// Files in memory. Clones share them; the files live as long as the last clone or open handle.
#[derive(Clone, Debug, Default)]
pub struct MemFs {
    names: Arc<Mutex<Names>>,
}

impl MemFs {
    /// Creates an empty file system: only the root and the current directory exist.
    pub fn new() -> Self {
        MemFs::default()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        // A panic elsewhere leaves the names consistent: each change is one step.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Names {
    nodes: BTreeMap<PathBuf, Node>,
    locked: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
enum Node {
    File(Arc<MemFile>),
    Dir,
}

#[derive(Debug, Default)]
struct MemFile(RwLock<Contents>);

#[derive(Debug, Default)]
struct Contents {
    bytes: Arc<Vec<u8>>,
    /// The number of open write handles; only a file without any can be mapped.
    writers: usize,
}

impl MemFile {
    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Normalizes a path: removes `.` and trailing separators, so that equal places have equal keys.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|c| *c != Component::CurDir).collect()
}

impl Names {
    /// Returns the node at a normalized path; the root and the empty path are directories that
    /// always exist.
    fn node(&self, path: &Path) -> Option<Node> {
        if path.parent().is_none() { Some(Node::Dir) } else { self.nodes.get(path).cloned() }
    }

    fn file(&self, path: &Path) -> io::Result<Arc<MemFile>> {
        match self.node(path) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn require_dir(&self, path: &Path) -> io::Result<()> {
        match self.node(path) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Checks that a file may be created at `path`: its parent exists and no directory has the
    /// name.
    fn require_file_slot(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) => self.require_dir(parent)?,
            None => return Err(io::ErrorKind::IsADirectory.into()),
        }
        match self.nodes.get(path) {
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            _ => Ok(()),
        }
    }

    /// Returns the paths of everything below `dir`.
    fn below(&self, dir: &Path) -> Vec<PathBuf> {
        let after = (std::ops::Bound::Excluded(dir.to_owned()), std::ops::Bound::Unbounded);
        // Paths compare component by component, so a directory's contents directly follow it.
        let paths = self.nodes.range(after).map(|(path, _)| path);
        paths.take_while(|path| path.starts_with(dir)).cloned().collect()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        match self.node(from) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(Node::File(file)) => {
                self.require_file_slot(to)?;
                self.nodes.remove(from);
                self.nodes.insert(to.to_owned(), Node::File(file));
                Ok(())
            }
            Some(Node::Dir) => {
                if from.parent().is_none() || (to != from && to.starts_with(from)) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                self.require_dir(to.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
                match self.node(to) {
                    _ if to == from => return Ok(()),
                    Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                    Some(Node::Dir) if !self.below(to).is_empty() => {
                        return Err(io::ErrorKind::DirectoryNotEmpty.into());
                    }
                    _ => {}
                }
                for old in self.below(from) {
                    if let (Ok(rest), Some(node)) = (old.strip_prefix(from), self.nodes.remove(&old)) {
                        self.nodes.insert(to.join(rest), node);
                    }
                }
                self.nodes.remove(from);
                self.nodes.insert(to.to_owned(), Node::Dir);
                Ok(())
            }
        }
    }
}

#[derive(Debug)]
struct MemWriter {
    file: Arc<MemFile>,
    written: usize,
}

impl MemWriter {
    fn new(file: Arc<MemFile>) -> Self {
        file.write().writers += 1;
        MemWriter { file, written: 0 }
    }
}

impl WriteFile for MemWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut contents = self.file.write();
        let content = Arc::make_mut(&mut contents.bytes);
        let end = self.written.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if self.written == content.len() {
            content.extend_from_slice(bytes);
        } else {
            // Recycled or preallocated: overwrite, and grow if the end lies beyond the old one.
            if content.len() < end {
                content.resize(end, 0);
            }
            content[self.written..end].copy_from_slice(bytes);
        }
        self.written = end;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sets the length as a disk does, but refuses more than the memory allows.
    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::StorageFull)?;
        let mut contents = self.file.write();
        let content = Arc::make_mut(&mut contents.bytes);
        if content.len() < bytes {
            let more = bytes - content.len();
            content.try_reserve_exact(more).map_err(|_| io::ErrorKind::StorageFull)?;
            content.resize(bytes, 0);
        }
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        // After another handle truncated the file, this one's position may lie beyond its end.
        let mut contents = self.file.write();
        Arc::make_mut(&mut contents.bytes).resize(self.written, 0);
        Ok(())
    }
}

impl Drop for MemWriter {
    fn drop(&mut self) {
        self.file.write().writers -= 1;
    }
}

#[derive(Debug)]
struct MemReader {
    file: Arc<MemFile>,
}

impl ReadFile for MemReader {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let contents = self.file.read();
        buf.copy_from_slice(slice_at(&contents.bytes, offset, buf.len())?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.read().bytes.len() as u64)
    }

    /// Returns the file's own bytes; `None` while a writer has it open.
    fn map(&self) -> io::Result<Option<Mapping>> {
        let contents = self.file.read();
        if contents.writers > 0 {
            return Ok(None);
        }
        Ok(Some(Mapping::new(contents.bytes.clone())))
    }
}

/// Returns `len` bytes of `bytes` from `offset`, or an `UnexpectedEof` error:
/// [`ReadFile::read_exact_at`] for content in memory. Reading zero bytes succeeds at any offset.
pub fn slice_at(bytes: &[u8], offset: u64, len: usize) -> io::Result<&[u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
    let end = start.checked_add(len).ok_or(io::ErrorKind::UnexpectedEof)?;
    bytes.get(start..end).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[derive(Debug)]
struct MemLock {
    fs: MemFs,
    path: PathBuf,
}

impl DirLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.fs.names().locked.remove(&self.path);
    }
}

impl FileSystem for MemFs {
    fn create(&self, path: &Path, _usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        let path = normal(path);
        let mut names = self.names();
        names.require_file_slot(&path)?;
        let file = Arc::new(MemFile::default());
        names.nodes.insert(path, Node::File(file.clone()));
        Ok(Box::new(MemWriter::new(file)))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut names = self.names();
        let (old, new) = (normal(old), normal(new));
        let file = names.file(&old)?;
        names.rename(&old, &new)?;
        Ok(Box::new(MemWriter::new(file)))
    }

    fn open(&self, path: &Path, _access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.names().file(&normal(path))?;
        Ok(Arc::new(MemReader { file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.names().rename(&normal(from), &normal(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut names = self.names();
        names.file(&path)?;
        names.nodes.remove(&path);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut names = self.names();
        names.require_dir(&path)?;
        for below in names.below(&path) {
            names.nodes.remove(&below);
        }
        names.nodes.remove(&path);
        Ok(())
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        let mut names = self.names();
        let file = names.file(&from)?;
        if names.node(&to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        names.require_file_slot(&to)?;
        names.nodes.insert(to, Node::File(file));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut names = self.names();
        for dir in path.ancestors() {
            if let Some(Node::File(_)) = names.node(dir) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        for dir in path.ancestors().filter(|dir| dir.parent().is_some()) {
            names.nodes.entry(dir.to_owned()).or_insert(Node::Dir);
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = normal(dir);
        let names = self.names();
        names.require_dir(&dir)?;
        let children = names.below(&dir).into_iter().filter(|path| path.parent() == Some(&dir));
        Ok(children.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.names().file(&normal(path)).map(drop)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.names().require_dir(&normal(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.names().node(&normal(path)).is_some())
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        let file = self.names().file(&normal(path))?;
        let len = file.read().bytes.len();
        Ok(len as u64)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        let path = normal(path);
        let mut names = self.names();
        names.require_file_slot(&path)?;
        names.nodes.entry(path.clone()).or_insert_with(|| Node::File(Arc::default()));
        if !names.locked.insert(path.clone()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemLock { fs: self.clone(), path })))
    }

    fn is_locked_here(&self, path: &Path) -> io::Result<bool> {
        Ok(self.names().locked.contains(&normal(path)))
    }

    fn available_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}
