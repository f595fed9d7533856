//! Stretches of objects that a replica needs as a whole, in local files: metadata of tables, pieces
//! of logs and manifests.
//!
//! A file is the bytes and their XXH3-128. It is checked when it is opened, and fetched again if
//! that fails: nothing is synced. What the present state does not need is removed when another
//! state comes.
//!
//! Threads: any number; two that want the same stretch at once may both fetch it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tamis::io::{Access, FileSystem, ReadFile, Usage};

use crate::error::Error;
use crate::hash::{ContentHash, Hasher};
use crate::parallel::locked;

const PREFIX: &str = "kept-";

#[derive(Debug)]
pub(crate) struct Kept {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    open: Mutex<HashMap<String, Stretch>>,
}

/// Bytes that are here.
#[derive(Clone, Debug)]
pub(crate) enum Stretch {
    File(Arc<dyn ReadFile>),
    /// The disk did not take them.
    Memory(Bytes),
}

impl Stretch {
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        match self {
            Stretch::File(file) => file.read_exact_at(buf, offset),
            Stretch::Memory(bytes) => {
                let end = offset.checked_add(buf.len() as u64).and_then(|end| usize::try_from(end).ok());
                let bytes = end.and_then(|end| bytes.get(offset as usize..end));
                let bytes = bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?;
                buf.copy_from_slice(bytes);
                Ok(())
            }
        }
    }
}

impl Kept {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, dir: &Path) -> Kept {
        Kept { fs, dir: dir.to_owned(), open: Mutex::default() }
    }

    /// Returns the stretch of a name and length, fetched if it is not here.
    pub(crate) fn get(
        &self,
        name: &str,
        len: u64,
        fetch: impl FnOnce() -> Result<Bytes, Error>,
    ) -> Result<Stretch, Error> {
        if let Some(stretch) = locked(&self.open).get(name) {
            return Ok(stretch.clone());
        }
        let path = self.dir.join(format!("{PREFIX}{name}"));
        let stretch = match self.opened(&path, len) {
            Some(file) => Stretch::File(file),
            None => {
                let bytes = fetch()?;
                match self.write(&path, &bytes) {
                    Ok(file) => Stretch::File(file),
                    Err(error) => {
                        log::warn!("{} stays in memory: {error}", path.display());
                        Stretch::Memory(bytes)
                    }
                }
            }
        };
        locked(&self.open).insert(name.to_owned(), stretch.clone());
        Ok(stretch)
    }

    /// Opens a file if it has what was written.
    fn opened(&self, path: &Path, len: u64) -> Option<Arc<dyn ReadFile>> {
        if !self.fs.exists(path).ok()? {
            return None;
        }
        let file = self.fs.open(path, Access::Random).ok()?;
        if file.len().ok()? != len.checked_add(16)? {
            return None;
        }
        let (mut hasher, mut offset) = (Hasher::default(), 0);
        let mut buf = vec![0; 1 << 20];
        while offset < len {
            let take = (buf.len() as u64).min(len - offset) as usize;
            file.read_exact_at(&mut buf[..take], offset).ok()?;
            hasher.update(&buf[..take]);
            offset += take as u64;
        }
        let mut hash = [0; 16];
        file.read_exact_at(&mut hash, len).ok()?;
        (hasher.finish().value().to_le_bytes() == hash).then_some(file)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<Arc<dyn ReadFile>> {
        let partial = path.with_extension("partial");
        let mut out = self.fs.create(&partial, Usage::Table)?;
        out.append(bytes)?;
        out.append(&ContentHash::of(bytes).value().to_le_bytes())?;
        drop(out);
        self.fs.rename(&partial, path)?;
        self.fs.open(path, Access::Random)
    }

    /// Removes everything. Who has a stretch open can go on reading it.
    pub(crate) fn clear(&self) {
        self.retain(&HashSet::new());
    }

    /// Removes everything else. Who has a stretch open can go on reading it.
    pub(crate) fn retain(&self, names: &HashSet<String>) {
        locked(&self.open).retain(|name, _| names.contains(name));
        for file in self.fs.list(&self.dir).unwrap_or_default() {
            if file.strip_prefix(PREFIX).is_some_and(|name| !names.contains(name)) {
                let _ = self.fs.remove(&self.dir.join(file));
            }
        }
    }
}
