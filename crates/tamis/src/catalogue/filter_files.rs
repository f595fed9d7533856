//! The filter files that were opened, and which images of filters they hold.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::{FilterFileId, KeyspaceId};
use tamis_files::images::{Image, ImageFile, ImageKind};
use tamis_files::tree::files::filter_path;

use crate::error::StorageError;
use crate::gate::backoff::Backoff;
use crate::io::FileSystem;
use crate::observe::warnings::Warnings;
use crate::select::Span;
use crate::sync::Mutex;
use crate::tree::garbage::Garbage;

/// An image to be saved.
#[derive(Clone, Debug)]
pub(crate) struct NewImage {
    pub(crate) kind: ImageKind,
    pub(crate) span: Span,
    /// The image has every key of the range in a table with epochs below this. A later table has
    /// such epochs only if it is made of these tables.
    pub(crate) until: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Why images were not saved.
#[derive(Debug)]
pub(crate) enum NotSaved {
    /// Not now: the database does not write, or a save failed a short while ago.
    Later,
    /// Something failed; a warning was given.
    Failed(StorageError),
}

/// A key range and the newest image of it.
#[derive(Clone, Debug)]
pub(crate) struct LiveImage {
    /// The image's range, or a part of it.
    pub(crate) span: Span,
    /// See [`NewImage::until`].
    pub(crate) until: u64,
    pub(crate) stored: StoredImage,
}

/// An image in an open file.
#[derive(Clone, Debug)]
pub(crate) struct StoredImage {
    pub(crate) file: Arc<OpenImages>,
    /// Its number in the file.
    pub(crate) at: usize,
}

impl StoredImage {
    /// Identifies the image, which may count in several ranges.
    pub(crate) fn id(&self) -> (FilterFileId, usize) {
        (self.file.file.number(), self.at)
    }

    pub(crate) fn described(&self) -> &Image {
        &self.file.file.images()[self.at]
    }
}

/// An open filter file. When the last holder drops it, the file is removed if obsolete.
#[derive(Debug)]
pub(crate) struct OpenImages {
    pub(crate) file: ImageFile,
    /// Unusable images, by their number in the file.
    unusable: Mutex<HashSet<usize>>,
    obsolete: AtomicBool,
    garbage: Arc<Garbage>,
}

impl OpenImages {
    pub(crate) fn new(file: ImageFile, garbage: &Arc<Garbage>) -> Arc<OpenImages> {
        let (unusable, obsolete) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(OpenImages { file, unusable, obsolete, garbage: garbage.clone() })
    }

    /// Returns the images not known to be unusable.
    pub(crate) fn usable(self: &Arc<Self>) -> impl Iterator<Item = StoredImage> {
        let unusable = self.unusable.lock().clone();
        let numbers = (0..self.file.images().len()).filter(move |at| !unusable.contains(at));
        numbers.map(|at| StoredImage { file: self.clone(), at })
    }
}

impl Drop for OpenImages {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.garbage.push(self.file.path().to_owned());
        }
    }
}

/// A file that the tree names and that was examined.
#[derive(Clone, Debug)]
pub(crate) enum KnownFile {
    Open(Arc<OpenImages>),
    /// It is missing or damaged.
    Unusable,
}

/// The filter files of an open database.
#[derive(Debug)]
pub(crate) struct FilterFiles {
    dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    garbage: Arc<Garbage>,
    warnings: Arc<Warnings>,
    pub(crate) read_only: bool,
    pub(crate) known: Mutex<HashMap<FilterFileId, KnownFile>>,
    /// Keyspaces whose last save failed.
    pub(crate) saving: Mutex<HashMap<KeyspaceId, Backoff>>,
}

impl FilterFiles {
    pub(crate) fn new(
        dir: PathBuf,
        fs: &Arc<dyn FileSystem>,
        garbage: &Arc<Garbage>,
        warnings: &Arc<Warnings>,
        read_only: bool,
    ) -> FilterFiles {
        FilterFiles {
            dir,
            fs: fs.clone(),
            garbage: garbage.clone(),
            warnings: warnings.clone(),
            read_only,
            known: Mutex::default(),
            saving: Mutex::default(),
        }
    }

    /// Lets files that no durable tree names be removed once nothing reads them. Call under the
    /// `state` lock.
    pub(crate) fn release(&self, files: impl IntoIterator<Item = FilterFileId>) {
        let mut known = self.known.lock();
        for id in files {
            match known.remove(&id) {
                Some(KnownFile::Open(open)) => open.obsolete.store(true, Relaxed),
                Some(KnownFile::Unusable) | None => self.garbage.push(filter_path(&self.dir, id)),
            }
        }
    }

    /// Opens a file of this keyspace.
    pub(crate) fn open(
        &self,
        fs: &dyn FileSystem,
        keyspace: KeyspaceId,
        id: FilterFileId,
    ) -> Result<ImageFile, StorageError> {
        let path = filter_path(&self.dir, id);
        let file = ImageFile::open(fs, &path)?;
        if (file.number(), file.keyspace()) != (id, keyspace) {
            let (number, other) = (file.number(), file.keyspace());
            let what = format!("it is filter file {number} of keyspace {other}, not {id} of {keyspace}");
            return Err(StorageError::corrupt(&path, None, what));
        }
        Ok(file)
    }

    /// Reads all of a file; `false` if `go_on` returned it.
    pub(crate) fn check(
        &self,
        fs: &dyn FileSystem,
        keyspace: KeyspaceId,
        id: FilterFileId,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, StorageError> {
        let file = self.open(fs, keyspace, id)?;
        let images: u64 = file.images().iter().map(|image| image.bytes).sum();
        if !go_on(file.bytes() - images) {
            return Ok(false);
        }
        for image in file.images() {
            file.read(fs, image)?;
            if !go_on(image.bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads an image. After an error the image no longer counts; another may count in its place.
    pub(crate) fn read(&self, image: &StoredImage) -> Result<Vec<u8>, StorageError> {
        let read = image.file.file.read(&*self.fs, image.described());
        read.inspect_err(|why| self.note_unusable(image, why))
    }

    /// Records that an image is unusable, and warns of it once.
    pub(crate) fn note_unusable(&self, image: &StoredImage, why: &dyn std::fmt::Display) {
        if image.file.unusable.lock().insert(image.at) {
            self.warnings.add(format!("a part of a global filter is built from the tables: {why}"));
        }
    }
}
