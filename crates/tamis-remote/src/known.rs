//! What is known about a database's files from earlier backups: a small file beside the database.
//!
//! It saves reading files that never change again, and it says which copy of the database this is: a repository belongs to one copy. It is
//! a cache otherwise: without it, or when it cannot be read, files are read once more, and the copy counts as another one.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tamis::io::{FileSystem, write_file_atomically};

use crate::error::Error;
use crate::hash::ContentHash;
use crate::source::PinnedFile;

/// The version of the file; another is not read.
const FORMAT: u32 = 1;

/// How much of a file's end is compared with what is known: the footer of a table, with the checksums of its parts, and of other
/// files, their last records.
const TAIL: u64 = 4096;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    format: u32,
    /// Of this copy of the database; drawn once.
    pub(crate) writer: String,
    /// The upload session that was begun last and has not ended.
    pub(crate) session: Option<String>,
    files: HashMap<String, KnownFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownFile {
    len: u64,
    tail: ContentHash,
    hash: ContentHash,
    /// Whether this process has compared it.
    #[serde(skip)]
    compared: bool,
}

impl Known {
    /// Nothing, of a copy that is new.
    fn new() -> Result<Known, Error> {
        Ok(Known { format: FORMAT, writer: drawn()?, session: None, files: HashMap::new() })
    }

    /// Reads what is known, or begins anew.
    pub(crate) fn load(fs: &dyn FileSystem, path: Option<&Path>) -> Result<Known, Error> {
        let Some(path) = path else { return Known::new() };
        if !fs.exists(path).map_err(Error::io(path.display()))? {
            return Known::new();
        }
        let bytes = tamis::io::read_file(fs, path).map_err(Error::io(path.display()))?;
        match serde_json::from_slice::<Known>(&bytes) {
            Ok(known) if known.format == FORMAT && is_id(&known.writer) => Ok(known),
            _ => {
                log::warn!("{} cannot be used, and is replaced", path.display());
                Known::new()
            }
        }
    }

    /// Writes what is known.
    pub(crate) fn save(&self, fs: &dyn FileSystem, path: Option<&Path>) -> Result<(), Error> {
        let Some(path) = path else { return Ok(()) };
        let bytes = serde_json::to_vec(self).map_err(|error| Error::io(path.display())(error.into()))?;
        write_file_atomically(fs, path, &bytes).map_err(Error::io(path.display()))
    }

    /// Returns the hash of a file that never changes, if it is known.
    pub(crate) fn hash_of(&self, file: &PinnedFile) -> Result<Option<ContentHash>, Error> {
        match self.files.get(&file.name).filter(|known| known.len == file.len) {
            Some(known) if known.compared || known.tail == tail(file)? => Ok(Some(known.hash)),
            _ => Ok(None),
        }
    }

    /// Remembers hashes of files, and forgets files that are no more.
    pub(crate) fn learn<'f>(
        &mut self,
        hashes: impl Iterator<Item = (&'f PinnedFile, ContentHash)>,
    ) -> Result<(), Error> {
        let mut live = HashSet::new();
        for (file, hash) in hashes {
            live.insert(&file.name);
            let compared = |known: &KnownFile| known.compared && known.len == file.len && known.hash == hash;
            if !self.files.get(&file.name).is_some_and(compared) {
                let known = KnownFile { len: file.len, tail: tail(file)?, hash, compared: true };
                self.files.insert(file.name.clone(), known);
            }
        }
        self.files.retain(|name, _| live.contains(name));
        Ok(())
    }
}

fn tail(file: &PinnedFile) -> Result<ContentHash, Error> {
    let len = file.len.min(TAIL);
    let mut bytes = vec![0; len as usize];
    file.read(&mut bytes, file.len - len)?;
    Ok(ContentHash::of(&bytes))
}

/// Draws the name of a writer or a session.
pub(crate) fn drawn() -> Result<String, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::io("random numbers")(std::io::Error::other(error.to_string())))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// Whether a text may be such a name.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
