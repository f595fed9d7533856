//! Writes a filter file.

use std::path::{Path, PathBuf};

use tamis_base::ids::{FilterFileId, KeyspaceId};
use tamis_base::key::KeyBytes;
use tamis_env::io::{FileSystem, Usage, WriteFile};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::format::{Footer, Image, ImageKind};
use super::read::ImageFile;
use crate::error::StorageError;

/// Writes a filter file, image by image. After an error the file is incomplete; the caller removes
/// it.
#[derive(Debug)]
pub struct ImageWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    number: FilterFileId,
    keyspace: KeyspaceId,
    offset: u64,
    images: Vec<Image>,
    /// New images so far.
    made: u32,
}

impl ImageWriter {
    /// Creates the file. Errors: a failed system call.
    pub fn create(
        fs: &dyn FileSystem,
        path: &Path,
        number: FilterFileId,
        keyspace: KeyspaceId,
    ) -> Result<ImageWriter, StorageError> {
        let file = fs.create(path, Usage::Table).map_err(|e| StorageError::io("create", path, e))?;
        Ok(ImageWriter {
            file,
            path: path.to_owned(),
            number,
            keyspace,
            offset: 0,
            images: Vec::new(),
            made: 0,
        })
    }

    /// Appends a new image of the keys in `range` (start and exclusive end), which must not be
    /// empty.
    pub fn add(
        &mut self,
        kind: ImageKind,
        range: (KeyBytes, Option<KeyBytes>),
        until: u64,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        let age = (self.number, self.made);
        self.made += 1;
        self.append(Image::new(kind, range, until, age, 0), bytes)
    }

    /// Appends a copy of an image of an earlier file. It keeps its age.
    pub fn copy(&mut self, image: &Image, bytes: &[u8]) -> Result<(), StorageError> {
        debug_assert!(image.made < self.number, "an image of a later file");
        self.append(image.clone(), bytes)
    }

    fn append(&mut self, image: Image, bytes: &[u8]) -> Result<(), StorageError> {
        self.put(bytes)?;
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        let sum = xxh3_64_with_seed(bytes, offset);
        self.images.push(Image { bytes: bytes.len() as u64, offset, sum, ..image });
        Ok(())
    }

    /// Writes the index and footer and makes the contents durable. The file's name is durable once
    /// its directory is synced.
    pub fn finish(mut self) -> Result<ImageFile, StorageError> {
        let mut end = Vec::new();
        self.images.iter().for_each(|image| image.encode(&mut end));
        let index_bytes = end.len() as u64;
        let index_sum = xxh3_64_with_seed(&end, self.offset);
        let footer = Footer { file: self.number, keyspace: self.keyspace, index_bytes, index_sum };
        footer.encode(self.offset + index_bytes, &mut end);
        self.put(&end)?;
        self.file.sync().map_err(|e| StorageError::io("sync", &self.path, e))?;
        let bytes = self.offset + end.len() as u64;
        Ok(ImageFile::written(self.path, self.number, self.keyspace, bytes, self.images))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.file.append(bytes).map_err(|e| StorageError::io("write", &self.path, e))
    }
}
