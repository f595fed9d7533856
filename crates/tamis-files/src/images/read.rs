//! Reads a filter file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis_base::ids::{FilterFileId, KeyspaceId};
use tamis_env::io::{Access, FileSystem, ReadFile};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::{FOOTER_BYTES, Footer, Image, decode_index};
use crate::error::StorageError;

/// A filter file whose index was read and is valid. It keeps no file descriptor: each read opens
/// the file.
#[derive(Debug)]
pub struct ImageFile {
    path: PathBuf,
    number: FilterFileId,
    keyspace: KeyspaceId,
    bytes: u64,
    images: Vec<Image>,
}

impl ImageFile {
    /// Describes a file that was just written.
    pub(super) fn written(
        path: PathBuf,
        number: FilterFileId,
        keyspace: KeyspaceId,
        bytes: u64,
        images: Vec<Image>,
    ) -> ImageFile {
        ImageFile { path, number, keyspace, bytes, images }
    }

    /// Reads the footer and index of a file, not the images. Errors: a failed system call, or
    /// damage.
    pub fn open(fs: &dyn FileSystem, path: &Path) -> Result<ImageFile, StorageError> {
        let file = fs.open(path, Access::Random).map_err(|e| StorageError::io("open", path, e))?;
        let bytes = file.len().map_err(|e| StorageError::io("read", path, e))?;
        let Some(footer_at) = bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Err(StorageError::corrupt(path, None, "a file shorter than its footer"));
        };
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, footer_at).map_err(|e| StorageError::io("read", path, e))?;
        let damaged = |at: u64| move |what: &'static str| StorageError::corrupt(path, at, what);
        let footer = Footer::decode(&footer, bytes).map_err(damaged(footer_at))?;
        let payload = footer_at - footer.index_bytes;
        let index = read(&file, path, payload, footer.index_bytes)?;
        if xxh3_64_with_seed(&index, payload) != footer.index_sum {
            return Err(damaged(payload)("the checksum of the index does not match its bytes"));
        }
        let images = decode_index(&index, payload, footer.file).map_err(damaged(payload))?;
        Ok(ImageFile { path: path.to_owned(), number: footer.file, keyspace: footer.keyspace, bytes, images })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's number, according to its footer.
    pub fn number(&self) -> FilterFileId {
        self.number
    }

    /// The keyspace that the file belongs to, according to its footer.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// The file's length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The images, in file order.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// Reads an image of this file and verifies it. Errors: a failed system call, or damage.
    pub fn read(&self, fs: &dyn FileSystem, image: &Image) -> Result<Vec<u8>, StorageError> {
        let path = &self.path;
        let file = fs.open(path, Access::Random).map_err(|e| StorageError::io("open", path, e))?;
        // The file may have been cut since its index was read; check that its length still
        // justifies the allocation.
        let len = file.len().map_err(|e| StorageError::io("read", path, e))?;
        if image.offset.checked_add(image.bytes).is_none_or(|end| end > len) {
            return Err(StorageError::corrupt(path, image.offset, "the file ends within an image"));
        }
        let bytes = read(&file, path, image.offset, image.bytes)?;
        if xxh3_64_with_seed(&bytes, image.offset) != image.sum {
            let what = "the checksum of an image does not match its bytes";
            return Err(StorageError::corrupt(path, image.offset, what));
        }
        Ok(bytes)
    }
}

/// Reads `bytes` bytes, which the caller has checked against the file's length.
fn read(file: &Arc<dyn ReadFile>, path: &Path, offset: u64, bytes: u64) -> Result<Vec<u8>, StorageError> {
    let len = usize::try_from(bytes);
    let len = len.map_err(|_| StorageError::corrupt(path, offset, "a part beyond the address space"))?;
    let mut buf = vec![0; len];
    file.read_exact_at(&mut buf, offset).map_err(|e| StorageError::io("read", path, e))?;
    Ok(buf)
}
