//! An in-memory file system for tests of the record log and the manifest: files are byte vectors,
//! and a switch makes writes fail.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tamis_env::io::{Access, DirLock, FileSystem, ReadFile, Usage, WriteFile};

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Arc<Mutex<Vec<u8>>>>,
    /// The number of writes and syncs that still succeed; `None` means all.
    writes_left: Option<u32>,
    appends: u32,
}

/// The file system. Clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToyFs(Arc<Mutex<State>>);

impl ToyFs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn file(&self, path: &Path) -> io::Result<Arc<Mutex<Vec<u8>>>> {
        self.state().files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the content of a file.
    pub(crate) fn bytes(&self, path: impl AsRef<Path>) -> Vec<u8> {
        self.file(path.as_ref()).unwrap().lock().unwrap().clone()
    }

    /// Replaces the content of a file.
    pub(crate) fn set(&self, path: impl AsRef<Path>, bytes: Vec<u8>) {
        self.state().files.insert(path.as_ref().to_owned(), Arc::new(Mutex::new(bytes)));
    }

    /// Lets the next `n` appends and syncs succeed and fails all later ones.
    pub(crate) fn fail_after(&self, n: u32) {
        self.state().writes_left = Some(n);
    }

    /// Lets appends and syncs succeed again.
    pub(crate) fn heal(&self) {
        self.state().writes_left = None;
    }

    /// Returns the number of appends.
    pub(crate) fn appends(&self) -> u32 {
        self.state().appends
    }

    fn pass(&self) -> io::Result<()> {
        match &mut self.state().writes_left {
            Some(0) => Err(io::ErrorKind::StorageFull.into()),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
struct ToyFile {
    fs: ToyFs,
    bytes: Arc<Mutex<Vec<u8>>>,
    at: usize,
}

impl WriteFile for ToyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fs.pass()?;
        self.fs.state().appends += 1;
        let mut file = self.bytes.lock().unwrap();
        let end = self.at + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[self.at..end].copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.fs.pass()
    }

    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        let mut file = self.bytes.lock().unwrap();
        if file.len() < bytes as usize {
            file.resize(bytes as usize, 0);
        }
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(self.at);
        Ok(())
    }
}

#[derive(Debug)]
struct ToyRead(Arc<Mutex<Vec<u8>>>);

impl ReadFile for ToyRead {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.0.lock().unwrap();
        let from = file.get(offset as usize..).unwrap_or_default();
        let from = from.get(..buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(from);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
}

impl FileSystem for ToyFs {
    fn create(&self, path: &Path, _: Usage) -> io::Result<Box<dyn WriteFile>> {
        self.set(path, Vec::new());
        Ok(Box::new(ToyFile { fs: self.clone(), bytes: self.file(path)?, at: 0 }))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.rename(old, new)?;
        Ok(Box::new(ToyFile { fs: self.clone(), bytes: self.file(new)?, at: 0 }))
    }

    fn open(&self, path: &Path, _: Access) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(ToyRead(self.file(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.state().files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.state().files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state().files.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.state().files.retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let bytes = self.bytes(from);
        self.set(to, bytes);
        Ok(())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let inside = state.files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.pass()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().files.contains_key(path))
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.file(path)?.lock().unwrap().len() as u64)
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        Ok(None)
    }

    fn available_space(&self, _: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}
