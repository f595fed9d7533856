//! The files of one state as a directory that can only be read.
//!
//! # Reads
//!
//! | what | how |
//! | --- | --- |
//! | filters, index, footer of a table | all of it in one request, before the state is shown; kept in a local file |
//! | `CURRENT`, options, manifest, logs | their pieces, whole, checked against their hashes; kept in local files |
//! | data of tables and blob files | one request for each read, unless the block cache has the same stretch |
//!
//! A file that never changes stays the one that it was opened as when another state is shown. Its
//! objects may be pruned some day: reads then fail with `NotFound`, and whoever catches up has
//! other files. An open log or manifest grows with the states of the same epoch, as a local one
//! does under its readers; after a takeover the same name may stand for other bytes, and it stays
//! what it was.
//!
//! # Threads
//!
//! Any number. Showing another state is one store of a pointer; readers take a lock for a clone of
//! it when they open or list.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use tamis::io::{Access, DirLock, FileSystem, Overlap, ReadFile, Usage, WriteFile};

use super::blocks::Blocks;
use super::kept::Kept;
use crate::error::Error;
use crate::hash::ContentHash;
use crate::parallel::each;
use crate::repository::Repository;
use crate::state::{FileEntry, Piece, State};

/// Files of a state. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    repo: Repository,
    /// The directory that the state is shown as.
    dir: PathBuf,
    shown: RwLock<Arc<Shown>>,
    blocks: Blocks,
    kept: Kept,
}

/// The state that is shown.
#[derive(Debug, Default)]
struct Shown {
    epoch: u64,
    files: HashMap<String, Arc<FileEntry>>,
}

impl RemoteFs {
    pub(crate) fn new(repo: &Repository, dir: &Path, blocks: Blocks, kept: Kept) -> RemoteFs {
        let shown = RwLock::default();
        RemoteFs(Arc::new(Shared { repo: repo.clone(), dir: dir.to_owned(), shown, blocks, kept }))
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.0.blocks
    }

    /// Fetches what opening the state's files will need, several at a time.
    pub(crate) fn prepare(&self, state: &State) -> Result<(), Error> {
        let threads = self.0.repo.store.transfer().parallel;
        // Logs may be many, and long: they are fetched when they are read.
        let files: Vec<&FileEntry> = state.files.iter().filter(|file| !file.kind.is_appended()).collect();
        each(threads, &files, |file| match file.metadata_from < file.len {
            true => self.0.metadata(file).map(drop),
            false => Ok(()),
        })?;
        Ok(())
    }

    /// Shows a state, and forgets what the former one needed.
    pub(crate) fn show(&self, state: &State) {
        let files = state.files.iter().map(|file| (file.name.clone(), Arc::new(file.clone()))).collect();
        let shown = Arc::new(Shown { epoch: state.epoch, files });
        *self.0.shown.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = shown;
        let mut needed = HashSet::new();
        for file in &state.files {
            needed.extend(metadata_name(file));
            if file.kind.is_appended() {
                needed.extend(file.pieces.iter().map(piece_name));
            }
        }
        self.0.kept.retain(&needed);
    }

    /// Forgets what is kept of all objects, so that reads fetch it again. Parts of objects have no
    /// hash of their own: bytes that were damaged on their way are noticed by the engine only, when
    /// they are here.
    pub(crate) fn forget(&self) {
        self.0.kept.clear();
        self.0.blocks.clear();
    }

    /// Returns the name of a path in the directory.
    fn name<'p>(&self, path: &'p Path) -> Option<&'p str> {
        let inside = path.parent() == Some(&self.0.dir);
        path.file_name().and_then(|name| name.to_str()).filter(|_| inside)
    }

    fn entry(&self, path: &Path) -> io::Result<Arc<FileEntry>> {
        let shown = self.0.shown();
        let entry = self.name(path).and_then(|name| shown.files.get(name).cloned());
        entry.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The name under which a table's metadata is kept.
fn metadata_name(file: &FileEntry) -> Option<String> {
    let piece = file.pieces.first().filter(|_| !file.kind.is_appended())?;
    Some(format!("{}-{}", piece.hash, file.metadata_from))
}

/// The name under which a piece of a log is kept.
fn piece_name(piece: &Piece) -> String {
    format!("{}-piece", piece.hash)
}

impl Shared {
    fn shown(&self) -> Arc<Shown> {
        self.shown.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Returns what of a file is behind its data.
    fn metadata(&self, file: &FileEntry) -> Result<super::kept::Stretch, Error> {
        let damaged = || Error::damaged(&file.name, "it has no object");
        let (name, piece) =
            (metadata_name(file).ok_or_else(damaged)?, file.pieces.first().ok_or_else(damaged)?);
        self.kept.get(&name, file.len - file.metadata_from, || match file.metadata_from {
            0 => self.checked(piece),
            from => self.repo.store.get_range(&piece.object, from..file.len),
        })
    }

    /// Fetches a whole object that must have its hash; once more if it was damaged on its way.
    fn checked(&self, piece: &Piece) -> Result<Bytes, Error> {
        for _ in 0..2 {
            let bytes = self.repo.store.get_range(&piece.object, 0..piece.len)?;
            if ContentHash::of(&bytes) == piece.hash {
                return Ok(bytes);
            }
        }
        Err(Error::damaged(&piece.object, "it has other bytes than were written"))
    }

    fn read(&self, file: &FileEntry, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let failed = |error| Error::io(&file.name)(error);
        if file.kind.is_appended() {
            return self.read_pieces(file, buf, offset);
        }
        let data = file.metadata_from.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (data, metadata) = buf.split_at_mut(data);
        if !metadata.is_empty() {
            let from = (offset + data.len() as u64) - file.metadata_from;
            self.metadata(file)?.read(metadata, from).map_err(failed)?;
        }
        let Some(piece) = file.pieces.first().filter(|_| !data.is_empty()) else { return Ok(()) };
        if !self.blocks.get(piece.hash.value(), offset, data) {
            let bytes = self.repo.store.get_range(&piece.object, offset..offset + data.len() as u64)?;
            data.copy_from_slice(&bytes);
            self.blocks.put(piece.hash.value(), offset, data);
        }
        Ok(())
    }

    fn read_pieces(&self, file: &FileEntry, mut buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let (mut begin, mut at) = (0, offset);
        for piece in &file.pieces {
            let end = begin + piece.len;
            if at < end && !buf.is_empty() {
                let stretch = self.kept.get(&piece_name(piece), piece.len, || self.checked(piece))?;
                let take = (end - at).min(buf.len() as u64) as usize;
                let (now, later) = buf.split_at_mut(take);
                stretch.read(now, at - begin).map_err(Error::io(&file.name))?;
                (buf, at) = (later, end);
            }
            begin = end;
        }
        Ok(())
    }
}

/// A file of a state that was shown when it was opened, or, if it is appended to, of the last one
/// of that epoch that had it.
#[derive(Debug)]
struct RemoteFile {
    shared: Arc<Shared>,
    epoch: u64,
    entry: RwLock<Arc<FileEntry>>,
}

impl RemoteFile {
    fn entry(&self) -> Arc<FileEntry> {
        let mine = self.entry.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        if !mine.kind.is_appended() {
            return mine;
        }
        let shown = self.shared.shown();
        let longer = |entry: &&Arc<FileEntry>| shown.epoch == self.epoch && entry.len >= mine.len;
        let Some(now) = shown.files.get(&mine.name).filter(longer) else { return mine };
        if !Arc::ptr_eq(now, &mine) {
            *self.entry.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = now.clone();
        }
        now.clone()
    }
}

impl ReadFile for RemoteFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let entry = self.entry();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > entry.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.shared.read(&entry, buf, offset).map_err(|error| match error {
            Error::Gone { .. } => io::Error::new(io::ErrorKind::NotFound, error),
            Error::Io { source, .. } => source,
            error => io::Error::other(error),
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.entry().len)
    }

    fn overlap(&self) -> Overlap<'_> {
        Overlap::Threads
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a replica's files cannot be changed"))
}

/// Nobody else writes, either.
#[derive(Debug)]
struct NoLock;

impl DirLock for NoLock {}

impl FileSystem for RemoteFs {
    fn create(&self, _: &Path, _: Usage) -> io::Result<Box<dyn WriteFile>> {
        refused()
    }

    fn reuse(&self, _: &Path, _: &Path) -> io::Result<Box<dyn WriteFile>> {
        refused()
    }

    fn open(&self, path: &Path, _: Access) -> io::Result<Arc<dyn ReadFile>> {
        let shown = self.0.shown();
        let entry = self.name(path).and_then(|name| shown.files.get(name).cloned());
        let entry = RwLock::new(entry.ok_or(io::ErrorKind::NotFound)?);
        Ok(Arc::new(RemoteFile { shared: self.0.clone(), epoch: shown.epoch, entry }))
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn link_or_copy(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path == self.0.dir { Ok(()) } else { refused() }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        match dir == self.0.dir {
            true => Ok(self.0.shown().files.keys().cloned().collect()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(path == self.0.dir || self.entry(path).is_ok())
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.entry(path)?.len)
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        Ok(Some(Box::new(NoLock)))
    }

    fn available_space(&self, _: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}
