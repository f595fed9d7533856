//! Files that nothing refers to any more, and the open blob files, which become such when the last table
//! that refers to them goes.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};

use tamis_base::collections::HashMap;
use tamis_base::ids::BlobFileId;
use tamis_files::blob::BlobFile;
use tamis_files::table::ReaderConfig;
use tamis_files::tree::files::blob_path;

use crate::error::StorageError;
use crate::io::FileSystem;
use crate::sync::{Mutex, Process};

/// The open blob files of a database, by number.
#[derive(Debug, Default)]
pub(crate) struct BlobFiles {
    /// Whether a file that is damaged or missing is opened as a [lost](BlobFile::lost) one: while
    /// the database is opened, if it is to be opened all the same.
    pub(crate) lenient: AtomicBool,
    /// Held while a file is opened; only the mutex of the garbage's list is taken under it.
    open: Mutex<HashMap<BlobFileId, Weak<OpenBlob>>>,
}

/// An open blob file.
#[derive(Debug)]
pub(crate) struct OpenBlob {
    pub(crate) file: BlobFile,
    /// The number of open tables that refer to it and are not obsolete.
    pub(crate) named: AtomicUsize,
    /// Whether a table that referred to it became obsolete: otherwise the file is not for this
    /// process to remove.
    was_named: AtomicBool,
    /// Whether a value in it could not be moved to another file: it is not tried again. Orders no
    /// other memory.
    unreadable: AtomicBool,
    garbage: Arc<Garbage>,
}

impl OpenBlob {
    /// Records that a merge could not read a value in the file.
    #[cold]
    pub(crate) fn note_unreadable(&self, why: &StorageError) {
        if !self.unreadable.swap(true, Relaxed) {
            log::warn!("values stay where they are: {why}");
        }
    }

    /// Reports whether values may be moved out of the file.
    pub(crate) fn is_readable(&self) -> bool {
        !self.unreadable.load(Relaxed) && self.file.why_lost().is_none()
    }

    /// Called when a table that refers to the file becomes obsolete.
    pub(crate) fn unname(&self) {
        self.was_named.store(true, Relaxed);
        self.named.fetch_sub(1, Relaxed);
    }
}

impl Drop for OpenBlob {
    fn drop(&mut self) {
        if !self.garbage.is_ours() {
            return;
        }
        let mut files = self.garbage.blobs.open.lock();
        // It may have been opened again.
        if files.get(&self.file.id()).is_some_and(|file| file.strong_count() == 0) {
            files.remove(&self.file.id());
            if *self.named.get_mut() == 0 && *self.was_named.get_mut() {
                self.garbage.push(self.file.path().to_owned());
            }
        }
    }
}

impl BlobFiles {
    pub(crate) fn new(lenient: bool) -> BlobFiles {
        BlobFiles { lenient: AtomicBool::new(lenient), open: Mutex::default() }
    }

    /// From now on, files that cannot be opened are errors: the tables of the database are open,
    /// and a new table's values must be there.
    pub(crate) fn all_opened(&self) {
        self.lenient.store(false, Relaxed);
    }

    /// Opens a file, or a lost one in its place if it `may_be_lost` for that reason.
    pub(crate) fn open(
        &self,
        fs: &dyn FileSystem,
        dir: &Path,
        id: BlobFileId,
        config: &ReaderConfig,
        garbage: &Arc<Garbage>,
        may_be_lost: impl Fn(&StorageError) -> bool,
    ) -> Result<Arc<OpenBlob>, StorageError> {
        let mut files = self.open.lock();
        if let Some(open) = files.get(&id).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let path = blob_path(dir, id);
        let file = match BlobFile::open(fs, &path, Some(id), config) {
            Err(why) if may_be_lost(&why) => BlobFile::lost(&path, id, why),
            opened => opened?,
        };
        let (named, was_named) = (AtomicUsize::new(0), AtomicBool::new(false));
        let opened = Arc::new(OpenBlob {
            file,
            named,
            was_named,
            unreadable: AtomicBool::new(false),
            garbage: garbage.clone(),
        });
        files.insert(id, Arc::downgrade(&opened));
        Ok(opened)
    }
}

/// Unneeded files, waiting to be removed: removing a file may block, and the last reader of a table
/// should not pay for that.
///
/// Any thread may add a file, whatever it holds: the list is a leaf. Whoever has made files
/// obsolete in the background removes them as soon as that is published, with no lock held. So they
/// do not pile up, however busy the database is. Those that readers held go with the next flush, or
/// within a second.
#[derive(Debug)]
pub(crate) struct Garbage {
    files: Mutex<VecDeque<PathBuf>>,
    /// Held while files are removed.
    removing: Mutex<()>,
    /// The process that opened the database: in the child of a fork nothing is garbage.
    process: Process,
    /// The blob files that become garbage with the tables that refer to them.
    pub(crate) blobs: BlobFiles,
}

impl Default for Garbage {
    fn default() -> Garbage {
        Garbage::new(false)
    }
}

impl Garbage {
    /// Creates the garbage of a database that is opened even if blob files are damaged or missing,
    /// if `lenient`: then reads of the values in them fail, and all others work.
    pub(crate) fn new(lenient: bool) -> Garbage {
        Garbage {
            files: Mutex::default(),
            removing: Mutex::default(),
            process: Process::current(),
            blobs: BlobFiles::new(lenient),
        }
    }

    /// Reports whether this process opened the database, and not one that it was forked from.
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    pub(crate) fn push(&self, path: PathBuf) {
        self.files.lock().push_back(path);
    }

    /// Removes the files. What was there before the call is gone after it, whoever removed it; a
    /// file that cannot be removed is tried again by the next call.
    pub(crate) fn remove_all(&self, fs: &dyn FileSystem) {
        let _removing = self.removing.lock();
        self.remove(fs);
    }

    /// Removes the files, unless another thread is at it, which goes on until there are none.
    pub(crate) fn remove_unless_busy(&self, fs: &dyn FileSystem) {
        if let Some(_removing) = self.removing.try_lock() {
            self.remove(fs);
        }
    }

    fn remove(&self, fs: &dyn FileSystem) {
        let mut left = VecDeque::new();
        // In the order in which they were added: a table goes before the blob files that it refers
        // to, or what is left by a crash could not be opened without its manifest.
        while let Some(path) = self.pop() {
            if let Err(e) = fs.remove(&path)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                log::debug!("could not remove {}: {e}; it is tried again", path.display());
                left.push_back(path);
            }
        }
        self.files.lock().append(&mut left);
    }

    fn pop(&self) -> Option<PathBuf> {
        self.files.lock().pop_front()
    }
}
