//! Files that nothing refers to any more, and the open blob files, which join them when the last
//! table that refers to them goes.

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
    /// Whether a damaged or missing file is opened as a [lost](BlobFile::lost) one: only while the
    /// database is being opened, and if it is to be opened despite damage.
    pub(crate) lenient: AtomicBool,
    /// Held while a file is opened, so that threads that open tables open each once, one after the
    /// other. Under it, only leaves are taken: the list of garbage, of open files, of mappings.
    open: Mutex<HashMap<BlobFileId, Weak<OpenBlob>>>,
}

/// An open blob file.
#[derive(Debug)]
pub(crate) struct OpenBlob {
    pub(crate) file: BlobFile,
    /// The number of open tables that refer to it and are not obsolete.
    pub(crate) named: AtomicUsize,
    /// Whether a table that referred to it became obsolete: otherwise this process must not remove
    /// the file.
    was_named: AtomicBool,
    /// Whether a value in it could not be moved to another file; then moving is not tried again.
    /// Orders no other memory.
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
        // The file may have been opened again.
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

    /// From now on, a file that cannot be opened is an error: the tables of the database are open,
    /// and a new table's values must exist.
    pub(crate) fn all_opened(&self) {
        self.lenient.store(false, Relaxed);
    }

    /// Opens a file, or a lost one in its place if `may_be_lost` allows it for that error.
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

/// Unneeded files waiting to be removed. Removing a file may block, and the last reader of a table
/// should not pay for that.
///
/// Any thread may add a file, whatever locks it holds: the list is a leaf. Background work that
/// makes files obsolete removes them as soon as that is published, with no lock held. So they do
/// not pile up, however busy the database is. Files that readers held are removed with the next
/// flush, or within a second.
#[derive(Debug)]
pub(crate) struct Garbage {
    files: Mutex<VecDeque<PathBuf>>,
    /// Held while files are removed.
    removing: Mutex<()>,
    /// The process that opened the database: in a forked child nothing is garbage.
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
    /// Creates the garbage of a database. With `lenient`, the database opens even if blob files are
    /// damaged or missing: reads of the values in them fail, and all others work.
    pub(crate) fn new(lenient: bool) -> Garbage {
        Garbage {
            files: Mutex::default(),
            removing: Mutex::default(),
            process: Process::current(),
            blobs: BlobFiles::new(lenient),
        }
    }

    /// Reports whether this process opened the database, as opposed to being forked from the one
    /// that did.
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    pub(crate) fn push(&self, path: PathBuf) {
        self.files.lock().push_back(path);
    }

    /// Removes the files. Every file listed before the call is gone afterwards, whichever thread
    /// removed it; a file that cannot be removed is retried by the next call.
    pub(crate) fn remove_all(&self, fs: &dyn FileSystem) {
        let _removing = self.removing.lock();
        self.remove(fs);
    }

    /// Removes the files, unless another thread is already doing so, which continues until none are
    /// left.
    pub(crate) fn remove_unless_busy(&self, fs: &dyn FileSystem) {
        if let Some(_removing) = self.removing.try_lock() {
            self.remove(fs);
        }
    }

    fn remove(&self, fs: &dyn FileSystem) {
        let mut left = VecDeque::new();
        // In the order in which they were added: a table goes before the blob files that it refers
        // to; otherwise what a crash leaves behind could not be opened without its manifest.
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
